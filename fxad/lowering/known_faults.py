"""Operations that XLA compiles to wrong numbers on some versions of jaxlib, and what is written in their place.

`docs/known-faults.md` has the versions, and the faults that are avoided elsewhere. A version without faults has empty
tables, and its programs do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Flag, auto
from types import MappingProxyType
from typing import Final, TypeAlias, final

from jaxlib.version import __version__ as jaxlib_version

from fxad import dtypes
from fxad.core.dataclasses import dataclass
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


class Kind(Flag):
    """Kinds of values, by the operation that made them: XLA folds such operations into those that read the value."""

    NONE = 0
    SUM = auto()  # x + a, x - a, a - x of a constant a
    PRODUCT = auto()  # x * a, x / a, a / x
    QUOTIENT = auto()  # x / y
    POWER = auto()  # x ** y
    CONSTANT = auto()

    # of operands of functions and results of calls, since XLA inlines functions
    UNKNOWN = SUM | PRODUCT | QUOTIENT | POWER


@final
@dataclass(frozen=True, slots=True)
class Folding:
    """XLA folds an operand of the kind `after` into the operation that has this entry in `FOLDS`. The result is of the
    kind `makes`. If `beside_constant`, both hold only if another operand is a constant."""

    after: Kind
    makes: Kind
    beside_constant: bool = False


# XLA computes a / (b / c) as (a * c) / b, (a / b) / c as a / (b * c), and log(x ** y) as y * log|x|. The products leave
# the range: 300 / (200 / 300) is infinite in float16. The logarithm of (-4) ** 0.5 is 0.69, and not nan.
_QUOTIENTS: Final = Folding(Kind.QUOTIENT, Kind.QUOTIENT)
# Up to jaxlib 0.11, XLA computes (x + a) - b as x + (a - b), and (x * a) * b as x * (a * b), for constants a and b.
_SUMS: Final = Folding(Kind.SUM, Kind.SUM, beside_constant=True)
_PRODUCTS: Final = Folding(Kind.PRODUCT, Kind.PRODUCT, beside_constant=True)

# The foldings of XLA, by the name of the second operation. A barrier between the two operations keeps them apart until
# kernels are formed, and takes no time.
_ALWAYS: Final[Mapping[str, tuple[Folding, ...]]] = MappingProxyType({
    "stablehlo.divide": (_QUOTIENTS,),
    "stablehlo.power": (Folding(Kind.NONE, Kind.POWER),),
    "stablehlo.log": (Folding(Kind.POWER, Kind.NONE),),
})  # fmt: skip
FOLDS: Final[Mapping[str, tuple[Folding, ...]]] = _ALWAYS if VERSION >= (0, 12) else MappingProxyType({
    **_ALWAYS,
    "stablehlo.divide": (_QUOTIENTS, _PRODUCTS),
    "stablehlo.multiply": (_PRODUCTS,),
    "stablehlo.add": (_SUMS,),
    "stablehlo.subtract": (_SUMS,),
})  # fmt: skip
# XLA moves these over others: the result is of the kind of the operand.
MOVED: Final = frozenset({"stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose"})
