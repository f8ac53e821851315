"""The interface of inverse rules: a rule runs one equation backwards, from its results to its unknown operands.

A row of the table is the rule of one primitive. The solver (`fxad.transforms.inversion.solver`) calls it if all results
of an equation are known and some operands are not. The known operands come from elsewhere in the program.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final, Protocol, TypeAlias, TypeVar, final

from fxad.core.dataclasses import dataclass
from fxad.errors import NotInvertibleError
from fxad.ir import Atom, Atoms, Emit, Eqn, Flags, Hole, Jaxpr, NDArray, Primitive, source_text
from fxad.transforms.locate import EqnOrigin, describe
from fxad.transforms.rule_tables import RuleTable

P = TypeVar("P", bound=Primitive)
Q = TypeVar("Q", bound=Primitive, contravariant=True)
T = TypeVar("T")

RESULTS_UNKNOWN: Final = "its results are not known"


class InverseCtx(Emit, Protocol):
    """The context of an inverse rule: emits equations over known values, and returns the equations that computed
    these values."""

    def producer(self, a: Atom) -> Eqn | None:
        """Return the equation of the program that computes a known operand. The rule may rely on its properties (a
        triangular matrix, a power of e). Return None for operands of the program and for literals."""


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """The result of a rule if the results do not determine the unknown operands. The error message gives the reason.

    `reason` completes the sentence "mul is not inverted: ...", such as "both factors are unknown". `remedy` says what
    to write instead. The solver adds the equation, as `origin`.
    """

    reason: str
    remedy: str = field(default="", compare=False)
    origin: EqnOrigin | None = field(default=None, compare=False)

    def at(self, origin: EqnOrigin) -> Refused:
        """Return the reason with its equation. If it has one, in a body, add the bodies that contain the equation
        with this body."""
        return self.within(*origin.inside) if self.origin else replace(self, origin=origin)

    def within(self, *bodies: str) -> Refused:
        """Return the reason with these enclosing bodies. A reason without an equation stays as it is."""
        origin = self.origin
        return replace(self, origin=replace(origin, inside=(*bodies, *origin.inside))) if origin and bodies else self

    @property
    def sentence(self) -> str:
        """The reason as a sentence about the primitive."""
        origin = self.origin
        return f"{origin.name or origin.eqn.prim.name} is not inverted: {self.reason}" if origin else self.reason

    def error(self, op: str, what: str, remedy: str = "") -> NotInvertibleError:
        """Return the error of an operation, about a value that the results do not determine."""
        origin = self.origin
        return NotInvertibleError(
            f"{op}: {what}: {self.sentence}",
            equation=describe(origin.eqn) if origin else "",
            where=source_text(origin.eqn.source) if origin else "",
            inside=origin.inside if origin else (),
            remedy="; or ".join([part for part in (self.remedy, remedy) if part]),
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class PartialInverse:
    """The values that a body determines when it is run backwards. `program`: known results, then known operands -> the
    operands marked in `solved` (and the log-determinant, of shape (), if it is measured). `refused` is the reason for
    the first operand that is not solved, `unmeasured` the reason if the log-determinant is incomplete."""

    program: Jaxpr
    solved: Flags
    refused: Refused | None
    unmeasured: Refused | None = None

    @property
    def why_not(self) -> Refused:
        """The reason for a body that determines nothing."""
        return self.refused or Refused(RESULTS_UNKNOWN)

    def within(self, body: str) -> PartialInverse:
        """Return the same with an enclosing body in its reasons."""
        why = [r and r.within(body) for r in (self.refused, self.unmeasured)]
        return PartialInverse(self.program, self.solved, *why)


class BodyCtx(InverseCtx, Protocol):
    """The context of the rule of an equation with bodies. It also applies the solver to a body."""

    @property
    def measured(self) -> bool:
        """Is True if log-determinants are computed."""

    def recur(self, body: Jaxpr, known_ins: Flags, known_outs: Flags) -> PartialInverse:
        """Run a body backwards, from its operands marked in `known_ins` and its results marked in `known_outs`."""

    def measure(self, log_det: Atom) -> None:
        """Add the log-determinant of this equation."""


# Parts of an operand. `value` holds the elements of the part.

Window: TypeAlias = tuple[range, ...]  # the indices along each axis


@final
@dataclass(frozen=True, slots=True, eq=False)
class WindowPart:
    """The elements in a window: a range of indices for each axis of the operand.

    Example, as all below with an operand x of shape (6,): y = x[1:6:2] gives WindowPart(y, (range(1, 6, 2),)).
    """

    value: Atom
    window: Window


@final
@dataclass(frozen=True, slots=True, eq=False)
class ChosenPart:
    """The elements where a selector chose one of `count` cases. `value` has the shape of the operand.

    `mask` marks these elements if the selector is constant. An axis of size 1 in it stands for all elements along it.

    Example: y = select_n m a x gives ChosenPart(y, m, 1, 2): where m has the value 1, of 2 cases. The case 0 from
    another equation completes it.
    """

    value: Atom
    selector: Atom
    case: int
    count: int
    mask: NDArray | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class MaskPart:
    """The elements that a constant `mask` marks, as in `ChosenPart`. `write(emit, base)` returns the array `base` with
    these elements.

    Example: y = x.at[2].set(0) gives MaskPart(y, [T, T, F, T, T, T], base -> y.at[2].set(base[2])).
    """

    value: Atom
    mask: NDArray
    write: Callable[[Emit, Atom], Atom]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ScatteredPart:
    """Elements at positions that are known only at run time. `write(emit, base)` returns the array `base` with these
    elements. At least `count` of them are at different positions, if none of them is written twice.

    Example: y = gather x i gives ScatteredPart(y, base -> scatter base i y, 6), if y has 6 elements.
    """

    value: Atom
    write: Callable[[Emit, Atom], Atom]
    count: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class SharePart:
    """One of `count` shares that complete the operand only together, such as the real and the imaginary part of each
    element. Shares of equal `of` belong together. `write(emit, base)` returns the array `base` with this share.

    Example: y = real x gives SharePart(y, base -> complex y (imag base), PAIR, 0, 2). `imag x` gives the other share.
    """

    value: Atom
    write: Callable[[Emit, Atom], Atom]
    of: str
    index: int
    count: int


# The result of a rule if the results determine some elements of an operand. Several equations may complete it.
PartialValue: TypeAlias = WindowPart | ChosenPart | MaskPart | ScatteredPart | SharePart


# The operands of an equation, with a `Hole` for each unknown one; its results, all known; and the values that a rule
# returns, one for each operand.
Args: TypeAlias = tuple[Atom | Hole, ...]
Outs: TypeAlias = Atoms
Solved: TypeAlias = tuple[Atom | PartialValue | None, ...]


def known_flags(args: Args) -> Flags:
    """Return a mask of the known values."""
    return tuple([not isinstance(a, Hole) for a in args])


def known_atoms(args: Sequence[Atom | Hole]) -> list[Atom]:
    """Return the known values."""
    return [a for a in args if not isinstance(a, Hole)]


def all_known(args: Sequence[Atom | Hole]) -> list[Atom] | None:
    """Return the operands if all of them are known."""
    values = known_atoms(args)
    return values if len(values) == len(args) else None


def at_positions(values: Sequence[Atom], solved: Flags) -> tuple[Atom | None, ...]:
    """Return the values, which are those of the marked operands, at the positions of these operands; None at the
    others."""
    remaining = iter(values)
    return tuple([next(remaining) if s else None for s in solved])


def for_unknown(values: Sequence[T], args: Args) -> tuple[T | None, ...]:
    """Return the values of the operands that are a `Hole`; None for known operands. There is one value for each
    operand."""
    return tuple([value if isinstance(a, Hole) else None for value, a in zip(values, args, strict=True)])


class SolveRule(Protocol[Q]):
    """Emits equations that compute the operands that are a `Hole` (at least one) from the results.

    Return an entry for each operand. The entry is None for known operands, and for operands that do not affect the
    results (the predicate of a check). An atom has exactly the type of its operand. If values do not determine the
    operand (a factor that is zero, a saturated tanh), it must be nan, never a plausible number. If its dtype has no nan
    (integers), the rule refuses. `Hole`s are different variables: the solver refuses an unknown operand that occurs
    twice in an equation.
    """

    def __call__(self, ctx: InverseCtx, prim: Q, args: Args, outs: Outs, /) -> Solved | Refused: ...


class LogDetRule(Protocol[Q]):
    """Emits log|det| of the Jacobian of the results in the operands marked `unknown`, summed over all elements: an
    atom of shape () and the real dtype of the operand; None if it is not known. All operands and results are known at
    this point. Elementwise primitives (`Unary`, `Binary`) return log|slope| for each element; complex ones return the
    logarithm of the slope."""

    def __call__(self, ctx: InverseCtx, prim: Q, args: Atoms, unknown: Flags, outs: Outs, /) -> Atom | None: ...


class SolveBodyRule(Protocol[Q]):
    """Like `SolveRule`, for an equation with bodies. Results may be unknown too, and some of the unknown operands may
    remain unknown (None). The solver calls it again whenever more values are known."""

    def __call__(self, ctx: BodyCtx, prim: Q, args: Args, outs: Args, /) -> Solved | Refused: ...


@final
class VolumePreserving:
    """The log-determinant 0: elements are moved or shifted."""


VOLUME: Final = VolumePreserving()


@final
@dataclass(frozen=True, slots=True, eq=False)
class InverseRow:
    """A row of the table, made by `row` or `body_row`.

    `partial`: the rule is called as soon as one result is known, and adds its log-determinant itself
    (`BodyCtx.measure`). Otherwise it is called when all results are known, and `log_det` gives the log-determinant, or
    is None if that is not known.
    """

    kind: type[Primitive]
    solve: SolveBodyRule[Primitive]
    log_det: LogDetRule[Primitive] | VolumePreserving | None
    partial: bool


def row(kind: type[P], solve: SolveRule[P], log_det: LogDetRule[P] | VolumePreserving | None = None) -> InverseRow:
    """Return the rule of the primitives of one class."""

    def solving(ctx: InverseCtx, prim: Primitive, args: Args, outs: Args) -> Solved | Refused:
        assert isinstance(prim, kind)
        return solve(ctx, prim, args, tuple([a for a in outs if not isinstance(a, Hole)]))

    if log_det is None or isinstance(log_det, VolumePreserving):
        return InverseRow(kind, solving, log_det, False)
    measure = log_det

    def measuring(ctx: InverseCtx, prim: Primitive, args: Atoms, unknown: Flags, outs: Outs) -> Atom | None:
        assert isinstance(prim, kind)
        return measure(ctx, prim, args, unknown, outs)

    return InverseRow(kind, solving, measuring, False)


def body_row(kind: type[P], solve: SolveBodyRule[P], partial: bool = True) -> InverseRow:
    """Return the rule of one class of primitives with bodies. A rule that is not `partial` is called only if all
    results are known, and has no log-determinant."""

    def solving(ctx: BodyCtx, prim: Primitive, args: Args, outs: Args) -> Solved | Refused:
        assert isinstance(prim, kind)
        return solve(ctx, prim, args, outs)

    return InverseRow(kind, solving, None, partial)


class HasInverse(Primitive):
    """A primitive from outside fxad that has an inverse rule. Those of fxad have rows in a table."""

    __slots__ = ()

    @abstractmethod
    def solve(self, ctx: InverseCtx, args: Args, outs: Outs) -> Solved | Refused:
        """Emit equations that compute the operands that are a `Hole` from the results, which are all known, as in
        `SolveRule`. Return an entry for each operand, None for known ones; or `Refused` with the reason."""

    def log_det(self, ctx: InverseCtx, args: Atoms, unknown: Flags, outs: Outs) -> Atom | None:
        """Return the log-determinant as in `LogDetRule`; None, as here, if it is not known."""
        return None


@final
class InverseTable(RuleTable[InverseRow]):
    """A table of inverse rules."""

    __slots__ = ()

    def stated_by(self, prim: Primitive) -> InverseRow | None:
        """Return the rule of a `HasInverse`."""
        if not isinstance(prim, HasInverse):
            return None

        def solve(ctx: InverseCtx, prim: HasInverse, args: Args, outs: Outs) -> Solved | Refused:
            return prim.solve(ctx, args, outs)

        def log_det(ctx: InverseCtx, prim: HasInverse, args: Atoms, unknown: Flags, outs: Outs) -> Atom | None:
            return prim.log_det(ctx, args, unknown, outs)

        return row(type(prim), solve, log_det)
