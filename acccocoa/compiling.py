"""How every numba kernel is compiled."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(
    function: Kernel,
    *,
    error_model: Literal["python", "numpy"] = "python",
    allocates: bool = True,
    inlined: bool = False,
) -> Kernel:
    """Compile on first use, without the GIL, keeping the machine code on disk where there is a place for it.

    Parameters
    ----------
    error_model : numba's; "numpy" divides by zero as IEEE 754 says instead of raising
    allocates : it makes arrays, or views of them. If it does not, they are not counted: numba counts them up and down
        around most calls of one kernel by another, atomically, which takes longer than a short row
    inlined : into every kernel that calls it; an array is seven arguments of a call
    """
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": error_model,
        "_nrt": allocates,
        "forceinline": inlined,
    }
    try:
        made: Kernel = njit(function, cache=True, **options)
    except RuntimeError:  # numba finds no directory it may write to: compile anew in each process
        made = njit(function, **options)
    return made


# numba ships no types: to the checker a decorated function is Any, so that the signatures of kernels are for the reader
def kernel(function: Any) -> Any:
    """Compile what only computes, with numbers that it is given: divides as IEEE 754 says, makes no arrays."""
    return compiled(function, error_model="numpy", allocates=False)


def inlined_kernel(function: Any) -> Any:
    """The same, into every kernel that calls it."""
    return compiled(function, error_model="numpy", allocates=False, inlined=True)
