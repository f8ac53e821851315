from . import (
    failed_checks as failed_checks,
    host_calls_on_devices as host_calls_on_devices,
    lapack as lapack,
    mlir as mlir,
    nan_of_extrema as nan_of_extrema,
    shardings as shardings,
)
