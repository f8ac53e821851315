"""Applications of primitives, and helpers for strategies that draw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import single_equation
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Aval, Jaxpr, NDArray, Primitive, Shape
from fxad.primitives import elementwise as ew
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet, Solve
from fxad.primitives.random import GammaSample
from fxad.testing.values import PRECISE, SEEDS, Domain, ShownByRepr, operands_text, sample, shapes


@final
@dataclass(frozen=True, slots=True, eq=False)
class Application(ShownByRepr):
    """A primitive and operands for it. `smooth`: finite differences at the operands give its derivative, if it has
    one."""

    prim: Primitive
    args: tuple[NDArray, ...]
    smooth: bool = False

    @property
    def avals(self) -> tuple[Aval, ...]:
        """The types of the operands."""
        return tuple([Aval(a.shape, a.dtype) for a in self.args])

    @property
    def program(self) -> Jaxpr:
        """The program of this one equation."""
        return single_equation(self.prim, self.avals)

    def __repr__(self) -> str:
        return f"{self.program}at\n{operands_text(self.avals, self.args)}"


# A drawn application: the primitive with its parameters, and a type and a domain for each operand.
Spec: TypeAlias = tuple[Primitive, Sequence[tuple[Aval, Domain]]]
# `smooth`: float64 (or complex128) operands where the derivative exists and finite differences approximate it.
Specs: TypeAlias = Callable[[st.DrawFn, bool], Spec]


@st.composite
def applications(draw: st.DrawFn, specs: Specs, *, smooth: bool = False) -> Application:
    """Draw applications of a primitive of your own. `specs(draw, smooth)` returns parameters, types and domains."""
    prim, operands = specs(draw, smooth)
    seed = draw(SEEDS)
    args = tuple([sample(aval, domain, seed, k) for k, (aval, domain) in enumerate(operands)])
    return Application(prim, args, smooth and type(prim) not in _BY_CONVENTION)


# Their derivatives are defined, and are not the limits of differences.
_BY_CONVENTION: Final = frozenset(
    {ew.BitcastConvertType, ew.StopGradient, ew.ReducePrecision, GammaSample, Solve, Slogdet, Det, Pinv}
)


# -------------------------------------------------------------------------------------------- helpers of strategies

ANY: Final = frozenset(dtypes.ALL)


def dtype_of(draw: st.DrawFn, takes: frozenset[DType], smooth: bool) -> DType:
    """Draw a dtype that a primitive takes. For `smooth`, one in which finite differences are precise enough, if there
    is one."""
    chosen = takes & PRECISE if smooth and takes & PRECISE else takes
    return draw(st.sampled_from([d for d in dtypes.ALL if d in chosen]))


def dtypes_of_product(draw: st.DrawFn, smooth: bool) -> tuple[DType, DType | None]:
    """Draw the dtype of the operands of a product, and that of the result: None for the same, or a wider one."""
    dtype = dtype_of(draw, dtypes.NUMERIC - dtypes.FLOAT8, smooth)
    wider = {dtypes.bfloat16: dtypes.float32, dtypes.float32: dtypes.float64, dtypes.int8: dtypes.int32}
    return dtype, draw(st.sampled_from([None, wider.get(dtype)]))


def shape_and_axis(draw: st.DrawFn, max_rank: int = 5) -> tuple[Shape, int]:
    """Draw a shape with an axis, and one of its axes."""
    shape = draw(shapes(max_rank, min_rank=1))
    return shape, draw(st.integers(0, len(shape) - 1))


def some_axes(draw: st.DrawFn, ndim: int) -> tuple[int, ...]:
    """Draw increasing axes."""
    return tuple([a for a in range(ndim) if draw(st.booleans())])


_INDEX_DTYPES: Final = (dtypes.int32, dtypes.int64, dtypes.int8, dtypes.uint8, dtypes.uint32)


def index_of(draw: st.DrawFn, shape: Shape, low: int, high: int) -> tuple[Aval, Domain]:
    """Draw an index operand with values in a range, clipped at 0 for unsigned dtypes."""
    dtype = draw(st.sampled_from(_INDEX_DTYPES))
    return Aval(shape, dtype), Domain(whole=(max(low, 0) if dtype in dtypes.UNSIGNED else low, high))
