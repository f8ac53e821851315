"""Memory plans: values that say what reverse mode stores and recomputes, and the program under a plan.

A plan divides the equations of a program (its calls inlined) into segments, and the steps of its loops into nested
segments. Bodies of loops, branches and custom derivatives have segments too. Each segment is stored, recomputed under a
policy, or reconstructed from its results. `fxad.transforms.memory_plans.frontier` finds the plans that are worth
trying. See docs/adr/0066 and 0074.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar, final

from fxad import transforms
from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Mask, Var, source_location
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import has_derived_rules, reversible
from fxad.support.tables import Table, escaped, headed
from fxad.transforms.ad.vjp import vjp_fused
from fxad.transforms.cleanup.inline import inline
from fxad.transforms.costs import microseconds, time_of
from fxad.transforms.memory.nested_scan import nested_scan
from fxad.transforms.memory.policies import Policy, check_policy, decided, nothing
from fxad.transforms.memory.remat import remat
from fxad.transforms.memory.residuals import as_row_number
from fxad.transforms.memory.segments import last_reads, live_ins_and_outs
from fxad.transforms.memory_plans.peak import peak_bytes

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Segment:
    """Equations of the inlined program, from `start` to before `stop`. With a policy `keep` the backward pass
    recomputes them, except what the policy selects; without one their values are stored. `parts` are segments within,
    which are recomputed once more. With `reconstruct` the backward pass computes the operands from the results, as
    `invertible` does; operands that are operands of the program are stored anyway."""

    start: int
    stop: int
    keep: Policy | None = None
    parts: tuple[Segment, ...] = ()
    reconstruct: bool = False

    @property
    def stored(self) -> bool:
        """True if the plan changes nothing here."""
        return self.keep is None and not self.reconstruct


@final
@dataclass(frozen=True, slots=True)
class SegmentedBody:
    """A body of a loop, a branch or a custom derivative, and the segments of its own equations, its calls inlined."""

    body: Jaxpr
    segments: tuple[Segment, ...]


@final
@dataclass(frozen=True, slots=True)
class Loop:
    """A `scan`, and the lengths of its nested segments, outermost first. With a policy `keep` each step is recomputed,
    except what the policy selects; without one the steps of the innermost segment are stored."""

    scan: Scan
    sizes: tuple[int, ...] = ()
    keep: Policy | None = None


@final
@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The values of a program that reverse mode stores or recomputes. `print` shows a row for each equation.

    `bytes` and `microseconds` are estimates for the gradient: temporaries, and run time. `with_segment`, `with_loop`
    and `with_inner` return edited plans, for `remat(program, plan=plan)`.
    """

    jaxpr: Jaxpr
    wrt: Mask
    segments: tuple[Segment, ...] = ()
    loops: tuple[Loop, ...] = ()
    inner: tuple[SegmentedBody, ...] = ()

    @property
    def bytes(self) -> int:
        """The estimated bytes of temporaries of the gradient."""
        return peak_bytes(vjp_fused(apply_plan(self), self.wrt))

    @property
    def microseconds(self) -> float:
        """The estimated run time of the gradient."""
        return time_of(vjp_fused(apply_plan(self), self.wrt))

    def with_segment(self, k: int, keep: Policy | None) -> MemoryPlan:
        """Return a plan in which segment k is recomputed except what `keep` selects, or stored if `keep` is None.

        Raises: ArgumentError for a segment that does not exist, and for another value than a policy.
        """
        k = _number("segment", k, len(self.segments))
        new = Segment(self.segments[k].start, self.segments[k].stop, _policy(keep))
        return replace(self, segments=_with_item(self.segments, k, new))

    def with_loop(self, k: int, sizes: tuple[int, ...], keep: Policy | None) -> MemoryPlan:
        """Return a plan in which loop k runs in nested segments of `sizes` steps, each step under the policy `keep`.

        Raises: ArgumentError for a loop that does not exist, and for sizes or a policy that are none.
        """
        k = _number("loop", k, len(self.loops))
        new = Loop(self.loops[k].scan, _sizes(sizes), _policy(keep))
        return replace(self, loops=_with_item(self.loops, k, new))

    def with_inner(self, k: int, segments: tuple[Segment, ...]) -> MemoryPlan:
        """Return a plan in which body k has these segments.

        Raises: ArgumentError for a body that does not exist, and for segments that leave out equations or repeat them.
        """
        k = _number("body", k, len(self.inner))
        if not isinstance(segments, Sequence):
            raise ArgumentError(f"plan: {described(segments)} is not a tuple of segments", remedy=_SEGMENTS_OF_A_PLAN)
        new = SegmentedBody(self.inner[k].body, tuple(segments))
        _check_inner(k, new)
        return replace(self, inner=_with_item(self.inner, k, new))

    def __repr__(self) -> str:
        n, m = len(self.segments), len(self.loops)
        return f"<MemoryPlan of {self.jaxpr.name}: {n} segments, {m} loops, {self.bytes:,} bytes>"

    @property
    def _table(self) -> Table:
        flat = inline(self.jaxpr)
        places = _places(self.segments)
        rows = []
        last = {a: k for k, e in enumerate(flat.eqns) for a in e.ins}
        for k, eqn in enumerate(flat.eqns):
            number, segment = places.get(k, (-1, None))
            where = source_location(eqn.source)
            rows.append(
                (
                    str(k),
                    f"{sum([v.aval.nbytes for v in eqn.outs]):,}",
                    f"{microseconds(eqn):,.1f}",
                    eqn.prim.name,
                    where.short if where else "",
                    "" if number < 0 else str(number),
                    _treatment(eqn, segment, [last.get(v, -1) for v in eqn.outs]),
                )
            )
        head = ("", "bytes", "us", "operation", "where", "segment", "in the backward pass")
        return Table(head, tuple(rows), right=(0, 1, 2))

    @property
    def _lines(self) -> list[str]:
        """A line for each loop, and one for each body."""
        loops = [f"loop {k}: {_loop_text(loop)}" for k, loop in enumerate(self.loops)]
        return [*loops, *[f"body {k}: {_inner_text(inner)}" for k, inner in enumerate(self.inner)]]

    @property
    def _estimate(self) -> str:
        return f"estimate: {self.bytes:,} bytes of temporaries, {self.microseconds:,.0f} microseconds"

    def __str__(self) -> str:
        return "\n".join([*self._lines, self._table.text(), self._estimate])

    def _repr_html_(self) -> str:
        lines = [f"<div>{escaped(line)}</div>" for line in self._lines]
        return headed(f"MemoryPlan of {self.jaxpr.name}, {self._estimate}", *lines, self._table.html())


# -------------------------------------------------------------------------------------------------- checks of an edit

_SEGMENTS_OF_A_PLAN: Final = "take those of a plan"


def _with_item(items: tuple[T, ...], k: int, item: T) -> tuple[T, ...]:
    return (*items[:k], item, *items[k + 1 :])


def _number(what: str, k: object, n: int) -> int:
    number, remedy = as_row_number(k), "print(plan) shows the numbers, from 0"
    if number is None:
        raise ArgumentError(f"plan: {shown(k)} is not the number of a {what}", remedy=remedy)
    if not 0 <= number < n:
        raise ArgumentError(f"plan: {what} {number} does not exist: there are {n}", remedy=remedy)
    return number


def _policy(keep: object) -> Policy | None:
    return None if keep is None else check_policy("plan", keep)


def _sizes(sizes: object) -> tuple[int, ...]:
    numbers = [as_row_number(m) for m in sizes] if isinstance(sizes, Sequence) else [None]
    valid = tuple([m for m in numbers if m is not None and m > 0])
    if len(valid) < len(numbers):
        raise ArgumentError(
            f"plan: the sizes of segments are {shown(sizes)}, not ints from 1 on",
            remedy="give ints, the outermost first: with_loop(0, (100, 10), policies.nothing)",
        )
    return valid


def _check_inner(k: int, inner: SegmentedBody) -> None:
    _check_segments(inner.segments, 0, len(inline(inner.body).eqns), f"segments of body {k}", "body")


def _check_segments(segments: Sequence[Segment], start: int, stop: int, what: str, whole: str) -> None:
    """Check that segments, if there are any, are the equations from `start` to before `stop`, each once and in order.
    Raises: ArgumentError."""
    for segment in segments:
        if not isinstance(segment, Segment):
            raise ArgumentError(
                f"plan: {described(segment)} is not a segment: {shown(segment)}", remedy=_SEGMENTS_OF_A_PLAN
            )
        if None in (as_row_number(segment.start), as_row_number(segment.stop)) or segment.start > segment.stop:
            raise ArgumentError(
                f"plan: a segment is from {shown(segment.start)} to before {shown(segment.stop)}",
                remedy="a segment has two ints, and stops where it starts or later",
            )
        if segment.keep is not None:
            check_policy("plan", segment.keep)
    if segments and [start, *[s.stop for s in segments]] != [*[s.start for s in segments], stop]:
        raise ArgumentError(
            f"plan: the {what} are the equations {_ranges(segments)}, the {whole} has {start} to {stop - 1}",
            remedy="a segment starts where the one before it stops",
        )
    for k, s in enumerate(segments):
        _check_segments(s.parts, s.start, s.stop, f"parts of segment {k} of {what.rpartition(' of ')[2]}", "segment")


def _ranges(segments: Sequence[Segment]) -> str:
    return ", ".join([f"{s.start} to {s.stop - 1}" for s in segments])


# --------------------------------------------------------------------------------------------------- texts of the table


def _loop_text(loop: Loop) -> str:
    sizes = f"segments of {', '.join(map(str, loop.sizes))} steps" if loop.sizes else "no segments"
    step = "steps stored" if loop.keep is None else f"steps recomputed except {loop.keep}"
    return f"scan of {loop.scan.length} steps: {sizes}, {step}"


def _inner_text(inner: SegmentedBody) -> str:
    cuts = _ranges([s for s in inner.segments if not s.stored])
    return f"{inner.body.name}: recomputed in segments of the equations {cuts}"


def _places(segments: Sequence[Segment]) -> dict[int, tuple[int, Segment]]:
    return {k: (n, segment) for n, segment in enumerate(segments) for k in range(segment.start, segment.stop)}


def _treatment(eqn: Eqn, segment: Segment | None, last: Sequence[int]) -> str:
    if has_derived_rules(eqn.prim) or (segment is not None and segment.reconstruct):
        return "reconstructed"
    if segment is None or segment.keep is None:
        return "stored where a derivative reads it"
    if any([k >= segment.stop for k in last]):
        return "stored: a later segment reads it"
    if segment.keep != nothing and decided(segment.keep, eqn):
        return f"stored: {segment.keep}"
    return f"recomputed up to {_depth(segment)} times" if segment.parts else "recomputed"


def _depth(segment: Segment) -> int:
    """Return how often the innermost equations are recomputed."""
    return (segment.keep is not None) + max(map(_depth, segment.parts), default=0)


# ------------------------------------------------------------------------------------------------------ applying a plan


def apply_plan(plan: MemoryPlan) -> Jaxpr:
    """Return the program under a plan; the program itself if the plan stores everything.

    Law:    same value; the same gradient, bitwise where loops are not divided.
    Raises: ArgumentError for segments that leave out equations or repeat them.
    """
    _check_segments(plan.segments, 0, len(inline(plan.jaxpr).eqns), "segments of the program", "program")
    for k, body in enumerate(plan.inner):
        _check_inner(k, body)
    loops = tuple([loop for loop in plan.loops if loop.sizes or loop.keep is not None])
    inner = tuple([body for body in plan.inner if not all([s.stored for s in body.segments])])
    if not loops and not inner and all([s.stored for s in plan.segments]):
        return plan.jaxpr
    return _with_choices(plan.jaxpr, plan.segments, loops, inner)


@by_value
def _with_choices(
    jaxpr: Jaxpr, segments: tuple[Segment, ...], loops: tuple[Loop, ...], inner: tuple[SegmentedBody, ...]
) -> Jaxpr:
    choice = _Choice({loop.scan: loop for loop in loops}, {body.body: body.segments for body in inner})
    return _divided(jaxpr, segments, choice)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """The choices of a plan: the nesting of each loop, and the segments of each body."""

    loops: dict[Scan, Loop]
    inner: dict[Jaxpr, tuple[Segment, ...]]


def _divided(jaxpr: Jaxpr, segments: tuple[Segment, ...], choice: _Choice) -> Jaxpr:
    """Return a program in segments."""
    flat = inline(jaxpr)
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    _Division(flat, choice).emit(b, segments or (Segment(0, len(flat.eqns)),), env)
    return b.build(substitute(flat.outs, env), jaxpr.name)


@final
class _Division:
    """Divides the equations of one program into segments."""

    def __init__(self, flat: Jaxpr, choice: _Choice) -> None:
        self.eqns = flat.eqns
        self.choice = choice
        self.last = last_reads(flat)
        self.operands = frozenset(flat.ins)

    def emit(self, b: Builder, segments: Sequence[Segment], env: dict[Atom, Atom]) -> None:
        """Add segments to a builder. `env` maps the values of the program to those of the builder."""

        def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
            return _in_bodies(b, eqn, ins, self.choice)

        for segment in segments:
            own = self.eqns[segment.start : segment.stop]
            if segment.stored or not own:
                b.extend(own, env, rule)
                continue
            read, returned = live_ins_and_outs(self.eqns, segment.start, segment.stop, self.last)
            body = self._body(segment, read, returned)
            if segment.keep is not None:
                body = remat(body, segment.keep)
            else:  # operands of the program are stored anyway; the others are reconstructed
                body = transforms.invertible(body, tuple([a in self.operands for a in read]))
            b.source = own[-1].source
            env.update(zip(returned, b.inline(body, substitute(read, env)), strict=True))

    def _body(self, segment: Segment, read: Sequence[Var], returned: Sequence[Var]) -> Jaxpr:
        """Return a segment, with the segments within, as a program from the values `read` to the values `returned`."""
        b = Builder()
        env: dict[Atom, Atom] = dict(zip(read, b.inputs([a.aval for a in read]), strict=True))
        parts = () if segment.reconstruct else segment.parts
        self.emit(b, parts or (Segment(segment.start, segment.stop),), env)
        return b.build(substitute(returned, env), "segment")


def _in_bodies(b: Builder, eqn: Eqn, ins: Atoms, choice: _Choice) -> Sequence[Atom] | None:
    """Apply a plan to the bodies of an equation whose values reverse mode may store, and divides a loop."""
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or reversible(eqn.prim) or not (choice.loops or choice.inner):
        return None
    bodies = tuple([_segmented_body(x.jaxpr, choice) if x.stores else x.jaxpr for x in prim.layout.bodies])
    # a loop over a loop of steps is a `scan`: of other loops the number of steps is not known
    if isinstance(prim, Scan) and (loop := choice.loops.get(prim)) is not None:
        return b.inline(nested_scan(replace(prim, body=bodies[0]), loop.sizes, loop.keep), ins)
    return None if bodies == prim.bodies else b.copy(eqn, ins, prim.with_bodies(bodies))


def _segmented_body(body: Jaxpr, choice: _Choice) -> Jaxpr:
    segments = choice.inner.get(body, ())
    if not segments and not any([isinstance(prim, HigherOrder) for prim in body.prims]):
        return body
    if segments:
        return _divided(body, segments, choice)
    b = Builder.like(body)
    env: dict[Atom, Atom] = {}
    b.extend(body.eqns, env, lambda b, eqn, ins: _in_bodies(b, eqn, ins, choice))
    return b.build(substitute(body.outs, env), body.name)
