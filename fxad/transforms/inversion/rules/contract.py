"""What an inverse rule is: how one equation is run backwards, from its results to the operands that are not known.

A row of the table says it for one primitive. The solver (`fxad.transforms.inversion.solver`) asks it when all results of an
equation are known and some operands are not; operands that are known came from elsewhere in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol, TypeAlias, TypeVar, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Emit, Eqn, Hole, Jaxpr, Lit, NDArray, Primitive, Var

P = TypeVar("P", bound=Primitive)
Q = TypeVar("Q", bound=Primitive, contravariant=True)


class InverseCtx(Emit, Protocol):
    """What an inverse rule may use: emit equations over what is known, and look at how that was computed."""

    def made(self, a: Atom) -> Eqn | None:
        """The equation of the program that computes a known operand: what it says of the value (a triangular matrix, a
        power of e) may be relied on. None for operands of the program and for literals."""


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """The rule's answer where the results do not determine the unknown operands; the error gives the reason.

    `reason` completes the sentence "mul is not inverted: ...", such as "both factors are unknown". The solver fills in
    the rest: the name of the primitive, its equation, and the user's line.
    """

    reason: str
    name: str = ""
    equation: str = ""
    where: str = ""
    inside: tuple[str, ...] = ()

    def located(self, name: str, equation: str, where: str) -> Refused:
        """The same reason at an equation, unless it has one (of a body) already."""
        return self if self.name else Refused(self.reason, name, equation, where)

    def within(self, *bodies: str) -> Refused:
        """The same reason, through these bodies."""
        return Refused(self.reason, self.name, self.equation, self.where, (*bodies, *self.inside)) if bodies else self


@final
@dataclass(frozen=True, slots=True, eq=False)
class Determined:
    """What a body determines when it is run backwards. `program`: known results, then known operands -> the operands
    marked in `solved` (and, where it is measured, the log-determinant, of shape ()). `refused` says why the first of
    the others is not among them, `unmeasured` why the log-determinant is not right."""

    program: Jaxpr
    solved: tuple[bool, ...]
    refused: Refused | None
    unmeasured: Refused | None = None

    def within(self, body: str) -> Determined:
        """The same, with reasons through a body."""
        why = [r.within(body) if r and r.name else r for r in (self.refused, self.unmeasured)]
        return Determined(self.program, self.solved, *why)


class BodyCtx(InverseCtx, Protocol):
    """What the rule of an equation with bodies may use beside: the solver, for a body."""

    @property
    def measured(self) -> bool:
        """Whether log-determinants are asked for."""

    def recur(self, body: Jaxpr, ins: tuple[bool, ...], outs: tuple[bool, ...]) -> Determined:
        """Run a body backwards, from the results marked in `outs` and the operands marked in `ins`."""

    def measure(self, log_det: Atom) -> None:
        """Give the log-determinant of this equation."""


Share: TypeAlias = tuple[Atom | str, int, int]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The rule's answer where the results determine some elements of an operand: several equations may make it whole.

    `value` holds the elements. Either they stand in a `box` (a range of indices for each axis of the operand), or where
    they stand is known when the program runs, and `write(emit, base)` gives an array `base` with them in their places:
    the solver starts from nan, so an element that nobody writes is nan. Of the elements it writes `count` are sure to
    be different ones (-1: as many as `value` has). A `share` (of what, k, n) is one of n that make the operand whole
    together, and never alone: the elements where a selector chose case k, or one part of complex numbers. Where the
    selector is known beforehand, `covers` says which elements those are: along axes of size 1 all or none.
    """

    value: Atom
    box: tuple[range, ...] = ()
    write: Callable[[Emit, Atom], Atom] | None = None
    count: int = -1
    share: Share | None = None
    covers: NDArray | None = None

    @property
    def chosen(self) -> tuple[Atom, int, int] | None:
        """The selector, the case and how many cases there are, where it is what a selector chose."""
        match self.share:
            case (Var() | Lit()) as selector, k, n:
                return selector, k, n
            case _:
                return None

    @property
    def followed(self) -> bool:
        """Whether what reads it, and what it was computed from, may be found from it alone."""
        return self.chosen is not None or self.covers is not None

    @property
    def size(self) -> int:
        """How many elements it gives at most."""
        return self.value.aval.size if self.count < 0 else self.count


Args: TypeAlias = tuple[Atom | Hole, ...]
Outs: TypeAlias = tuple[Atom, ...]
Solved: TypeAlias = tuple[Atom | Part | None, ...]


def known(args: Args) -> tuple[bool, ...]:
    """Which of some values are known."""
    return tuple([not isinstance(a, Hole) for a in args])


def atoms(args: Args) -> list[Atom]:
    """Those of some values that are known."""
    return [a for a in args if not isinstance(a, Hole)]


def spread(found: Sequence[Atom], solved: tuple[bool, ...]) -> tuple[Atom | None, ...]:
    """The values found, at the places of the operands that they are."""
    given = iter(found)
    return tuple([next(given) if s else None for s in solved])


class Solve(Protocol[Q]):
    """Emit what computes the operands that are a `Hole`, of which there is at least one, from the results.

    Returns an entry for each operand, None for those that were known, and for those that results say nothing of at all
    (the predicate of a check). An atom has exactly the type of its operand.
    Where values do not determine the operand (a factor that is zero, a saturated tanh), it must be nan, never a
    plausible number; where that cannot be said (integers), the rule refuses. `Hole`s are different variables: the
    solver refuses an unknown operand that stands in an equation twice.
    """

    def __call__(self, ctx: InverseCtx, prim: Q, args: Args, outs: Outs, /) -> Solved | Refused: ...


class LogDet(Protocol[Q]):
    """Emit log|det| of the Jacobian of the results in the operands marked `unknown`, summed over all elements: an atom
    of shape () and the real dtype of the operand. All operands and results are known by now. Elementwise primitives
    (`Unary`, `Binary`) give log|slope| for each element, complex ones the logarithm of the slope."""

    def __call__(
        self, ctx: InverseCtx, prim: Q, args: tuple[Atom, ...], unknown: tuple[bool, ...], outs: Outs, /
    ) -> Atom: ...


class SolveBody(Protocol[Q]):
    """As `Solve`, for an equation with bodies: results may be unknown too, and some of the unknown operands may stay so
    (None). It is asked again whenever more is known."""

    def __call__(self, ctx: BodyCtx, prim: Q, args: Args, outs: Args, /) -> Solved | Refused: ...


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """A log-determinant that no function need compute: 0 (`VOLUME`: elements are moved or shifted)."""

    name: str


VOLUME: Final = Constant("volume")


@final
@dataclass(frozen=True, slots=True, eq=False)
class InverseRule:
    """A row of the table, made by `row` or `body_row`. Without `log_det` the primitive has an inverse but no
    log-determinant; an equation with bodies (`partial`) gives its own."""

    kind: type[Primitive]
    solve: SolveBody[Primitive]
    log_det: LogDet[Primitive] | Constant | None
    partial: bool


def row(kind: type[P], solve: Solve[P], log_det: LogDet[P] | Constant | None = None) -> InverseRule:
    """The rule of the primitives of one class."""

    def solving(ctx: InverseCtx, prim: Primitive, args: Args, outs: Args) -> Solved | Refused:
        assert isinstance(prim, kind)
        return solve(ctx, prim, args, tuple([a for a in outs if not isinstance(a, Hole)]))

    if log_det is None or isinstance(log_det, Constant):
        return InverseRule(kind, solving, log_det, False)
    given = log_det

    def measuring(
        ctx: InverseCtx, prim: Primitive, args: tuple[Atom, ...], unknown: tuple[bool, ...], outs: Outs
    ) -> Atom:
        assert isinstance(prim, kind)
        return given(ctx, prim, args, unknown, outs)

    return InverseRule(kind, solving, measuring, False)


def body_row(kind: type[P], solve: SolveBody[P], partial: bool = True) -> InverseRule:
    """The rule of the primitives of one class of equations with bodies; one that is not `partial` is asked once all
    results are known, and has no log-determinant."""

    def solving(ctx: BodyCtx, prim: Primitive, args: Args, outs: Args) -> Solved | Refused:
        assert isinstance(prim, kind)
        return solve(ctx, prim, args, outs)

    return InverseRule(kind, solving, None, partial)


@final
@dataclass(frozen=True, slots=True, eq=False)
class InverseRules:
    """An immutable table of rules; two tables are different values."""

    rows: Mapping[type[Primitive], InverseRule] = field(repr=False)
