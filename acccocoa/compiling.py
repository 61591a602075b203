"""How every numba kernel is compiled."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel, *, error_model: Literal["python", "numpy"] = "python") -> Kernel:
    """Compile on first use, without the GIL, keeping the machine code on disk where there is a place for it.

    error_model : numba's; "numpy" divides by zero as IEEE 754 says instead of raising
    """
    try:
        kernel: Kernel = njit(function, nogil=True, cache=True, error_model=error_model)
    except RuntimeError:  # numba finds no directory it may write to: compile anew in each process
        kernel = njit(function, nogil=True, error_model=error_model)
    return kernel
