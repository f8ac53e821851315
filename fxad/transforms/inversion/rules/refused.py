"""Primitives without an inverse, and the reasons. A reason completes the sentence "cosh is not inverted: ..."."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fxad.ir import Primitive
from fxad.primitives.argmax import ArgExtremum
from fxad.primitives.collectives import AxisIndex, Collective
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.cumulative import CumExtremum, Cumulative, LinearRecurrence
from fxad.primitives.dot import Contraction
from fxad.primitives.elementwise.arithmetic import Max, Min, Rem
from fxad.primitives.elementwise.bessel import BesselI0e, BesselI1e, BesselIOverPower, Zeta
from fxad.primitives.elementwise.beta import RegularizedIncompleteBeta
from fxad.primitives.elementwise.convert import ReducePrecision
from fxad.primitives.elementwise.exponential import XLog1pY, XLogY
from fxad.primitives.elementwise.family import Binary, Compare, PiecewiseConstantBinary, PiecewiseConstantUnary, Unary
from fxad.primitives.elementwise.gamma import Incomplete
from fxad.primitives.elementwise.logic import Clz, IsFinite, PopulationCount
from fxad.primitives.elementwise.powers import Abs, DirectionCosine, Hypot, Sign, Square
from fxad.primitives.elementwise.select import Clamp, Nextafter
from fxad.primitives.elementwise.sigmoid import Sech2
from fxad.primitives.elementwise.special import Digamma, Lgamma, Polygamma
from fxad.primitives.elementwise.trigonometric import Atan2, Cos, Cosh, Sin, Tan
from fxad.primitives.fft import Fft
from fxad.primitives.fold import Fold
from fxad.primitives.gather_scatter import ScatterAdd, ScatterExtremum, ScatterFamily, ScatterMul
from fxad.primitives.host_call import HostCall
from fxad.primitives.implicit import LinearSolve, Root
from fxad.primitives.index import IndexVectors
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.expm import Expm, ExpmFrechet
from fxad.primitives.linalg.family import Matrixwise
from fxad.primitives.linalg.lu import LuPivotsToPermutation
from fxad.primitives.linalg.qr import Geqrf, HouseholderProduct, Ormqr
from fxad.primitives.linalg.reduction import ColumnPivots, Tridiagonalize
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet
from fxad.primitives.random import GammaSample, Threefry2x32
from fxad.primitives.shape import Iota
from fxad.primitives.sliding import Windowed
from fxad.primitives.softmax import LogSoftmax, Softmax
from fxad.primitives.sort import SortLike
from fxad.transforms.inversion.rules.arithmetic import TRUTH_VALUE
from fxad.transforms.inversion.rules.contract import Args, InverseCtx, InverseRow, Outs, Refused, row
from fxad.transforms.inversion.rules.indexing import SLICES

SIGNS: Final = "x and -x have the same result"
WAVES: Final = "operands a period apart have the same result"
ROUNDED: Final = "operands that are close have the same result"
NO_RULE: Final = "it has no inverse rule"
NO_FORMULA: Final = "its inverse has no closed form"
CHOSEN: Final = "it forgets the operand that is not chosen"
BITS: Final = "bits are lost"
ORDER: Final = "the order that the elements had is lost"
WINDOWS: Final = "it makes one element of several"
OTHERS: Final = "its result depends on the values of other indices"
# by primitive, or by family: a member without a row has the reason of the family
WHY_NOT: Final[Mapping[type[Primitive], str]] = MappingProxyType(
    {
        **dict.fromkeys((Unary, Binary), NO_RULE),
        # published networks do not need these: docs/adr/0098
        **dict.fromkeys((Cumulative, LinearRecurrence, Fft, LinearSolve, Root), NO_RULE),
        **dict.fromkeys((Matrixwise, Contraction, ScatterAdd, ScatterMul), NO_RULE),
        Incomplete: NO_FORMULA,
        **dict.fromkeys((Abs, Square, Cosh, Sech2, BesselIOverPower), SIGNS),
        **dict.fromkeys((Sin, Cos, Tan), WAVES),
        **dict.fromkeys((PiecewiseConstantUnary, Sign, ReducePrecision, Nextafter), ROUNDED),
        **dict.fromkeys((XLogY, XLog1pY, Zeta, RegularizedIncompleteBeta, GammaSample), NO_FORMULA),
        **dict.fromkeys((HouseholderProduct, Ormqr, ExpmFrechet), NO_FORMULA),
        **dict.fromkeys((Hypot, DirectionCosine), "one number says less than two"),
        **dict.fromkeys((Lgamma, Digamma, Polygamma, BesselI0e, BesselI1e), "several operands have the same result"),
        **dict.fromkeys((Max, Min, Clamp, ScatterExtremum, CumExtremum), CHOSEN),
        **dict.fromkeys((Compare, IsFinite), TRUTH_VALUE),
        **dict.fromkeys((PiecewiseConstantBinary, PopulationCount, Clz), BITS),
        **dict.fromkeys((Windowed, Fold), WINDOWS),
        **dict.fromkeys((ArgExtremum, IndexVectors), "places say less than the elements"),
        SortLike: ORDER,
        **dict.fromkeys((Slogdet, Det), "many matrices have the same determinant"),
        Rem: "the quotient is lost",
        Atan2: "the length of (x, y) is lost",
        **dict.fromkeys((LogSoftmax, Softmax), "a constant added to all elements changes nothing"),
        Pinv: "it is computed from two forms of the matrix",
        Tridiagonalize: "its reflections are a means to eigh",
        ColumnPivots: "places say less than the elements",
        Geqrf: "its reflections are a means to qr",
        Eig: "its eigenvectors may not span the space",
        Expm: "many matrices have the same exponential",
        LuPivotsToPermutation: "different exchanges lead to the same order",
        ConvGeneralDilated: "a convolution is not known to be invertible",
        Threefry2x32: "a cipher is made not to be undone",
        HostCall: "what the host computes is not known",
        Collective: OTHERS,
        **dict.fromkeys((Iota, AxisIndex), "it has no operand"),
    }
)


def _refusing(kind: type[Primitive], reason: str) -> InverseRow:
    def solve(ctx: InverseCtx, prim: Primitive, args: Args, outs: Outs) -> Refused:
        return Refused(reason, SLICES if issubclass(kind, ScatterFamily) else "")

    return row(kind, solve)


REFUSED: Final[tuple[InverseRow, ...]] = tuple([_refusing(kind, reason) for kind, reason in WHY_NOT.items()])
