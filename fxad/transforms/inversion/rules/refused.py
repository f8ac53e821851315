"""Primitives without an inverse, and the reasons. A reason completes the sentence "cosh is not inverted: ..."."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fxad.ir import Primitive
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.collectives import AllGather, AllToAll, AxisIndex, Pmax, Pmin, Ppermute, Psum, PsumScatter
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.cumulative import CumMax, CumMin
from fxad.primitives.elementwise.arithmetic import Max, Min, Rem
from fxad.primitives.elementwise.bessel import BesselI0e, BesselI1e, BesselIOverPower, Zeta
from fxad.primitives.elementwise.beta import RegularizedIncompleteBeta
from fxad.primitives.elementwise.convert import ReducePrecision
from fxad.primitives.elementwise.exponential import XLog1pY, XLogY
from fxad.primitives.elementwise.gamma import Igamma, Igammac, IgammaGradA, RandomGammaGrad
from fxad.primitives.elementwise.logic import (
    And,
    Clz,
    Ge,
    Gt,
    IsFinite,
    Le,
    Lt,
    Or,
    PopulationCount,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
)
from fxad.primitives.elementwise.powers import Abs, DirectionCosine, Hypot, Sign, Square
from fxad.primitives.elementwise.select import Ceil, Clamp, Floor, Nextafter, Round
from fxad.primitives.elementwise.sigmoid import Sech2
from fxad.primitives.elementwise.special import Digamma, Lgamma, Polygamma
from fxad.primitives.elementwise.trigonometric import Atan2, Cos, Cosh, Sin, Tan
from fxad.primitives.fold import Reduce, ReduceWindow
from fxad.primitives.gather_scatter import ScatterMax, ScatterMin
from fxad.primitives.host_call import HostCall
from fxad.primitives.index import IndexVectors
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.expm import Expm, ExpmFrechet
from fxad.primitives.linalg.lu import LuPivotsToPermutation
from fxad.primitives.linalg.qr import Geqrf, HouseholderProduct, Ormqr
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet
from fxad.primitives.random import GammaSample, Threefry2x32
from fxad.primitives.reduce_window import ReduceWindowMax, ReduceWindowMin, ReduceWindowProd, ReduceWindowSum
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from fxad.primitives.shape import Iota
from fxad.primitives.softmax import LogSoftmax, Softmax
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK
from fxad.transforms.inversion.rules.arithmetic import TRUTH_VALUE
from fxad.transforms.inversion.rules.contract import Args, InverseCtx, InverseRow, Outs, Refused, row

SIGNS: Final = "x and -x have the same result"
WAVES: Final = "operands a period apart have the same result"
ROUNDED: Final = "operands that are close have the same result"
NO_FORMULA: Final = "its inverse has no closed form"
CHOSEN: Final = "it forgets the operand that is not chosen"
BITS: Final = "bits are lost"
ORDER: Final = "the order that the elements had is lost"
WINDOWS: Final = "it makes one element of several"
OTHERS: Final = "its result depends on the values of other indices"
REASONS: Final[Mapping[type[Primitive], str]] = MappingProxyType(
    {
        **dict.fromkeys((Abs, Square, Cosh), SIGNS),
        **dict.fromkeys((Sin, Cos, Tan), WAVES),
        **dict.fromkeys((Sign, Floor, Ceil, Round, ReducePrecision, Nextafter), ROUNDED),
        **dict.fromkeys((Sech2, BesselIOverPower), SIGNS),
        **dict.fromkeys((XLogY, XLog1pY), NO_FORMULA),
        **dict.fromkeys((Hypot, DirectionCosine), "one number says less than two"),
        **dict.fromkeys((Lgamma, Digamma, Polygamma, BesselI0e, BesselI1e), "several operands have the same result"),
        **dict.fromkeys((Igamma, Igammac, IgammaGradA, RandomGammaGrad, Zeta), NO_FORMULA),
        **dict.fromkeys((RegularizedIncompleteBeta, GammaSample, HouseholderProduct, Ormqr, ExpmFrechet), NO_FORMULA),
        **dict.fromkeys((Max, Min, Clamp, ScatterMax, ScatterMin, CumMax, CumMin), CHOSEN),
        **dict.fromkeys((Lt, Le, Gt, Ge, IsFinite), TRUTH_VALUE),
        **dict.fromkeys((And, Or, ShiftLeft, ShiftRightLogical, ShiftRightArithmetic), BITS),
        **dict.fromkeys((PopulationCount, Clz), BITS),
        **dict.fromkeys((ReduceWindowSum, ReduceWindowMax, ReduceWindowMin, ReduceWindowProd), WINDOWS),
        **dict.fromkeys((Reduce, ReduceWindow, SelectAndGatherAdd, SelectAndScatterAdd), WINDOWS),
        **dict.fromkeys((ArgMax, ArgMin, IndexVectors), "places say less than the elements"),
        **dict.fromkeys((Sort, TopK), ORDER),
        **dict.fromkeys((Slogdet, Det), "many matrices have the same determinant"),
        Rem: "the quotient is lost",
        Atan2: "the length of (x, y) is lost",
        LogSoftmax: "a constant added to all elements changes nothing",
        Softmax: "a constant added to all elements changes nothing",
        Pinv: "it is computed from two forms of the matrix",
        Geqrf: "its reflections are a means; qr gives back its operand",
        Eig: "its eigenvectors may not span the space",
        Expm: "many matrices have the same exponential",
        LuPivotsToPermutation: "different exchanges lead to the same order",
        ConvGeneralDilated: "a convolution is not known to be invertible",
        Threefry2x32: "a cipher is made not to be undone",
        Iota: "it has no operand",
        HostCall: "what the host computes is not known",
        **dict.fromkeys((Psum, Pmax, Pmin, AllGather, PsumScatter, AllToAll, Ppermute), OTHERS),
        AxisIndex: "it has no operand",
    }
)


def _refusing(kind: type[Primitive], reason: str) -> InverseRow:
    def solve(ctx: InverseCtx, prim: Primitive, args: Args, outs: Outs) -> Refused:
        return Refused(reason)

    return row(kind, solve)


REFUSED: Final[tuple[InverseRow, ...]] = tuple([_refusing(kind, reason) for kind, reason in REASONS.items()])
