"""acccocoa: Accelerated CoCoA+ (arXiv 1711.05305) for linear models, with a certified duality gap.

This package is the language that `coordinator` and `worker` share; it imports neither.
"""

from importlib.metadata import version

__version__: str = version("acccocoa")
