"""SciPy's functions at SciPy's paths, over fxad arrays: `special`, `linalg`, `stats`, `optimize`, `signal` and more.

Each is a function of `fxad.lax`, `fxad.nn` or `fxad.numpy.linalg` under SciPy's name, with SciPy's defaults. Arguments
promote and broadcast; integers become float32.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.scipy import (
        cluster,
        fft,
        integrate,
        interpolate,
        linalg,
        ndimage,
        optimize,
        signal,
        sparse,
        spatial,
        special,
        stats,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__, {}, "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats"
    )

__all__ = [
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse",
    "spatial", "special", "stats",
]  # fmt: skip
