"""Parts of `fxad.lower`: MLIR as text, and the rewrites of a program before it is written.

The rewrites add what XLA does not guarantee. `fxad.lower` applies them in this order; a program that runs on one
device, calls no host and compares nothing with an extremum is written as it is.

| module | applies to | in the rewritten program | tests |
|---|---|---|---|
| `nan_of_extrema` | several devices | maxima and minima are computed on integers, so nan is kept | `lowering/` |
| `failed_checks` | several devices, a check and a `while` | a flag ends all loops after a failed check | `lowering/` |
| `ordered_effects` | programs that call the host | ordered calls take and return a token | `api/test_host_calls.py` |
| `host_calls_on_devices` | these, on several devices | one device calls the host for all | `spmd/` |
| `compared_extrema` | one device, on CPUs | elements are compared with an extremum in a branch | `lowering/` |

The last result of a program that calls the host is `DONE`. Tests in `tests/lowering/` have the names of the modules.
`tests/spmd/combinations_on_devices.py` runs the rewritten programs on 8 devices.

`known_faults` lists the operations that XLA compiles to wrong numbers; the lowering writes others for them
(`tests/test_known_faults.py`). `overlapping_updates` finds the updates whose operand is computed in a branch of its
own, `stored_values` the values that no kernel computes again. `threaded_values` threads the flag and the token through
bodies (`tests/lowering/`). `shardings` reads the shardings of operands and results from the program. `mlir_text` and
`locations` write types, constants and source locations. `nesting` refuses programs that overflow XLA's stack.
`jaxlib`, `mlir` and `lapack` are jaxlib's libraries and bindings.

The modules of `__all__` are imported at their first use: the compilation of most programs does not need them, and
jaxlib's bindings take 7 ms to import.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
