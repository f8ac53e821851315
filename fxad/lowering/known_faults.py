"""Operations that XLA compiles to wrong numbers on some versions of jaxlib, and what is written in their place.

`docs/known-faults.md` has the versions, and the faults that are avoided elsewhere. A version without faults has empty
tables, and its programs do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from jaxlib.version import __version__ as jaxlib_version

from fxad import dtypes
from fxad.ir import Aval, Hlo, HloValue
from fxad.primitives.elementwise.annex_g import HloReal
from fxad.primitives.stablehlo import lower_compare

# (the writer, the operand, its type, a function that writes the operation itself) -> its value
Repair: TypeAlias = Callable[[Hlo, HloValue, Aval, Callable[[], HloValue]], HloValue]

VERSION: Final = tuple(map(int, jaxlib_version.split(".")[:2]))


def _keep_nan(hlo: Hlo, x: HloValue, aval: Aval, operation: Callable[[], HloValue]) -> HloValue:
    """Keep the nan of an operand. LLVM converts a nan that it sees while it compiles to an integer, and the result is
    any number. The select takes 2 % of an exp, and up to 15 % where exps are summed."""
    y = operation()
    if aval.dtype is dtypes.float64 or aval.dtype not in dtypes.FLOATING:
        return y
    (is_nan,) = lower_compare(hlo, "NE", (x, x), aval)
    return hlo.op("stablehlo.select", (is_nan, x, y), (aval,))[0]


def _log_plus_one(hlo: Hlo, x: HloValue, aval: Aval, operation: Callable[[], HloValue]) -> HloValue:
    """XLA's is off by 126 units in the last place near -0.414 in float64. This one takes 0.6 of the time.

    With u = 1 + x as rounded, log(1 + x) is log(u) x / (u - 1): Kahan, "Pracniques: Further remarks on reducing
    truncation errors" (1965); Higham, Accuracy and Stability of Numerical Algorithms, section 1.14.1.
    """
    if aval.dtype is not dtypes.float64:
        return operation()
    small = HloReal(hlo, x, aval)
    u = small + small.like(1)
    value = u.op("log") * (small / (u - u.like(1)))
    return (u.equals(1) | u.equals(math.inf)).where(small, value).value


REPAIRS: Final[Mapping[str, Repair]] = MappingProxyType(
    {
        "stablehlo.exponential": _keep_nan,
        "chlo.sinh": _keep_nan,
        "chlo.cosh": _keep_nan,
        "stablehlo.log_plus_one": _log_plus_one,
    }
    if VERSION < (0, 11)
    else {}
)

# XLA computes (x + a) - b as x + (a - b), and (x * a) * b as x * (a * b), for constants a and b. A barrier between the
# two operations keeps them apart until they are fused, and takes no time.
WITH_CONSTANT: Final[Mapping[str, str]] = MappingProxyType(
    {"stablehlo.add": "+", "stablehlo.subtract": "+", "stablehlo.multiply": "*", "stablehlo.divide": "*"}
    if VERSION < (0, 12)
    else {}
)
# XLA moves them over sums and products
MOVED: Final = frozenset({"stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose"})

# XLA computes a / (b / c) as (a * c) / b, (a / b) / c as a / (b * c), and log(x ** y) as y * log|x|. The products leave
# the range: 300 / (200 / 300) is infinite in float16. The logarithm of (-4) ** 0.5 is 0.69, and not nan. A barrier
# keeps the second operation apart from the first.
AFTER: Final[Mapping[str, str]] = MappingProxyType({"stablehlo.divide": "/", "stablehlo.log": "^"})
MAKES: Final[Mapping[str, str]] = MappingProxyType({"stablehlo.divide": "/", "stablehlo.power": "^"})
