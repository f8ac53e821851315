"""A primitive that lacks a rule is refused where it is made."""

from collections.abc import Sequence
from typing import ClassVar, assert_never, final

from fxad.ir import Atom, Aval, Hlo, HloValue, Lin, NDArray, Primitive, Tangent, Var, Zero, primitive
from fxad.transforms.ad.linearize import LinearizeBuilder


@final
@primitive
class Half(Primitive):  # E: Half has abstract attributes "batch", "jvp"
    name: ClassVar[str] = "half"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return args

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return args


Half()  # E: Cannot instantiate abstract class "Half" with abstract attributes "batch" and "jvp"


def instantiate(t: Tangent) -> Var:
    if isinstance(t, Lin):
        return t.var
    assert_never(t)  # E: Argument 1 to "assert_never" has incompatible type "Zero"; expected "Never"


def tangent_in_a_primal_equation(ctx: LinearizeBuilder, prim: Primitive, x: Atom, t: Lin) -> None:
    ctx(prim, x, t)  # E: Argument 3 to "__call__" of "Builder" has incompatible type "Lin"; expected "Var | Lit"


def write(aval: Aval) -> None:
    aval.shape = ()  # E: Property "shape" defined in "Aval" is read-only
    print(Zero(aval))
