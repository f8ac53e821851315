"""Draws applications of the elementwise primitives: types, and the domains where their functions are defined and
smooth."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Aval, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.elementwise.bessel import BesselIOverPower
from fxad.primitives.elementwise.beta import RegularizedIncompleteBeta
from fxad.primitives.random import GammaSample, Threefry2x32
from fxad.testing.applications import DrawnOperands, DrawOperands, dtype_of
from fxad.testing.values import ORDINARY, SPECIAL, Domain, any_values, shapes

_POSITIVE: Final = Domain(0.3, 3.0)
_INSIDE: Final = Domain(-0.9, 0.9)
_AWAY: Final = Domain(0.3, 2.0, signs=True)
_SHAPE: Final = Domain(0.3, 8.0)  # the parameters of distributions
_BESSEL: Final = Domain(0.2, 12.0, signs=True)
_WORD: Final = Domain(whole=(0, 2**32 - 1))
# By name of the primitive: a domain for each operand, where it is not `ORDINARY`.
_DOMAINS: Final[Mapping[str, tuple[Domain, ...]]] = MappingProxyType(
    {
        "acos": (_INSIDE,),
        "acosh": (Domain(1.2, 3.0),),
        "asin": (_INSIDE,),
        "atan2": (_AWAY, _AWAY),
        "atanh": (_INSIDE,),
        "abs": (_AWAY,),
        "cbrt": (_AWAY,),
        "ceil": (Domain(1.1, 1.9, signs=True),),
        "digamma": (Domain(0.6, 3.0),),
        "div": (ORDINARY, _AWAY),
        "erf_inv": (_INSIDE,),
        "floor": (Domain(1.1, 1.9, signs=True),),
        "lgamma": (Domain(1.2, 3.0),),
        "log": (_POSITIVE,),
        "log1p": (Domain(-0.6, 2.0),),
        "log2": (_POSITIVE,),
        "log10": (_POSITIVE,),
        "logit": (Domain(0.1, 0.9),),
        "xlogy": (ORDINARY, _POSITIVE),
        "xlog1py": (ORDINARY, Domain(-0.6, 2.0)),
        "hypot": (_AWAY, _AWAY),
        "direction_cosine": (_AWAY, _AWAY),
        "pow": (Domain(0.3, 2.0), ORDINARY),
        "polygamma": (Domain(1.0, 1.0), Domain(0.6, 3.0)),
        "rem": (Domain(4.9, 6.2, signs=True), Domain(2.1, 2.4, signs=True)),
        "round": (Domain(1.6, 2.4, signs=True),),
        "rsqrt": (_POSITIVE,),
        "sign": (_AWAY,),
        "sqrt": (_POSITIVE,),
        "tan": (Domain(-1.2, 1.2),),
        **dict.fromkeys(("igamma", "igammac", "igamma_grad_a", "random_gamma_grad"), (_SHAPE, _SHAPE)),
        **dict.fromkeys(("bessel_i0e", "bessel_i1e"), (_BESSEL,)),
        "zeta": (Domain(1.5, 6.0), _SHAPE),
        "regularized_incomplete_beta": (_SHAPE, _SHAPE, Domain(0.05, 0.95)),
    }
)
# where a complex function is far from its branch cuts
_COMPLEX: Final = Domain(0.2, 0.9)
# what computes exactly, so that NumPy and XLA agree at nan, infinities and -0.0 too
_EXACT: Final = frozenset(
    [
        "abs",
        "eq",
        "ge",
        "gt",
        "is_finite",
        "le",
        "lt",
        "max",
        "min",
        "ne",
        "neg",
        "stop_gradient",
        "real",
        "imag",
        "conj",
    ]
)


def _domains(prim: Primitive, count: int, dtype: DType, smooth: bool) -> tuple[Domain, ...]:
    # XLA's absolute value of complex(inf, nan) is nan, not inf
    if prim.name in _EXACT and not smooth and (prim is not ew.ABS or dtype not in dtypes.COMPLEX):
        return (SPECIAL,) * count
    if dtype in dtypes.COMPLEX:
        return (Domain(1.2, 3.0) if prim.name == "acosh" else _COMPLEX,) * count
    return _DOMAINS.get(prim.name, (ORDINARY,) * count)


def elementwise(prim: Primitive, count: int, takes: frozenset[DType]) -> DrawOperands:
    """Return `count` operands of one type."""

    def specs(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
        aval = Aval(draw(shapes()), dtype_of(draw, takes, smooth))
        return prim, [(aval, d) for d in _domains(prim, count, aval.dtype, smooth)]

    return specs


def _convert_element_type(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    x, to = dtype_of(draw, frozenset(dtypes.ALL), smooth), dtype_of(draw, frozenset(dtypes.ALL), smooth)
    return ew.ConvertElementType(to), [(Aval(draw(shapes()), x), ORDINARY)]


def _bitcast_convert_type(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    kinds = dtypes.INTEGER | dtypes.FLOATING
    x, to = dtype_of(draw, kinds, smooth), dtype_of(draw, kinds, False)
    shape = draw(shapes())
    if to.itemsize > x.itemsize:
        shape = (*shape, to.itemsize // x.itemsize)
    # a nan of a narrow type may change its payload on the way through a wide register
    return ew.BitcastConvertType(to), [(Aval(shape, x), ORDINARY)]


def _reduce_precision(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    dtype = dtype_of(draw, frozenset({dtypes.float32, dtypes.float64}), smooth)
    prim = ew.ReducePrecision(draw(st.sampled_from([8, 5, 4])), draw(st.sampled_from([7, 10, 3])))
    return prim, [(Aval(draw(shapes()), dtype), ORDINARY)]


def _integer_pow(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    dtype = dtype_of(draw, dtypes.NUMERIC, smooth)
    n = draw(st.integers(0 if dtype in dtypes.INTEGER else -3, 5))
    domain = _COMPLEX if dtype in dtypes.COMPLEX else _AWAY
    return ew.IntegerPow(n), [(Aval(draw(shapes()), dtype), domain)]


def _round(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    prim = draw(st.sampled_from([ew.ROUND_AWAY, ew.ROUND_EVEN]))
    return elementwise(prim, 1, prim.takes)(draw, smooth)


def _select_n(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    shape, dtype = draw(shapes()), dtype_of(draw, frozenset(dtypes.ALL), smooth)
    count = draw(st.integers(1, 4))
    which = draw(st.sampled_from([dtypes.bool_, dtypes.int32])) if count == 2 else dtypes.int32
    case = (Aval(shape, dtype), any_values(smooth))
    return ew.SELECT_N, [(Aval(shape, which), Domain(whole=(-1, count + 1))), *[case] * count]


def _clamp(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    aval = Aval(draw(shapes()), dtype_of(draw, dtypes.INTEGER | dtypes.FLOATING, smooth))
    return ew.CLAMP, [(aval, Domain(-2, -0.5)), (aval, Domain(-3, 3)), (aval, Domain(0.5, 2))]


def _complex(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    aval = Aval(draw(shapes()), dtype_of(draw, frozenset({dtypes.float32, dtypes.float64}), smooth))
    return ew.COMPLEX, [(aval, ORDINARY)] * 2


def _threefry2x32(draw: st.DrawFn, smooth: bool) -> DrawnOperands:  # noqa: ARG001  integers only
    aval = Aval(draw(shapes()), dtypes.uint32)
    return Threefry2x32(draw(st.booleans())), [(aval, _WORD)] * 4


def _gamma_sample(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    aval = Aval(draw(shapes()), dtype_of(draw, GammaSample.takes, smooth))
    log = draw(st.booleans())
    return GammaSample(log), [(aval, Domain(0.5, 3.0)), (aval, Domain(-3.0, 1.0) if log else Domain(0.1, 3.0))]


def _bessel_i_over_power(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    prim = BesselIOverPower(draw(st.integers(0, 3)), draw(st.booleans()))
    return prim, [(Aval(draw(shapes()), dtype_of(draw, prim.takes, smooth)), _BESSEL)]


OWN: Final[Mapping[type[Primitive], DrawOperands]] = MappingProxyType(
    {
        ew.ConvertElementType: _convert_element_type,
        ew.BitcastConvertType: _bitcast_convert_type,
        ew.ReducePrecision: _reduce_precision,
        ew.IntegerPow: _integer_pow,
        ew.Round: _round,
        ew.SelectN: _select_n,
        ew.Clamp: _clamp,
        ew.Complex: _complex,
        BesselIOverPower: _bessel_i_over_power,
        RegularizedIncompleteBeta: elementwise(RegularizedIncompleteBeta(), 3, RegularizedIncompleteBeta.takes),
        Threefry2x32: _threefry2x32,
        GammaSample: _gamma_sample,
    }
)
