"""Parts of `fxad.lower`: types, constants, locations and modules as MLIR text.

`mlir`, which parses modules, and `lapack` are imported at their first use: jaxlib's bindings take 7 ms to import, and
the compilation of most programs does not need them. So are `failed_checks`, `host_calls_on_devices` and
`nan_of_extrema`, which rewrite programs on several devices.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.lowering import failed_checks, host_calls_on_devices, lapack, mlir, nan_of_extrema
else:
    __getattr__, __dir__ = lazy_exports(
        __name__, {}, modules="failed_checks host_calls_on_devices lapack mlir nan_of_extrema"
    )

__all__ = ["failed_checks", "host_calls_on_devices", "lapack", "mlir", "nan_of_extrema"]
