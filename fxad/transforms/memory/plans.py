"""Memory plans: values that say what reverse mode stores and recomputes, and the plans that are worth trying.

A plan divides the equations of a program (its calls inlined) into segments, and the steps of its loops into nested
segments. Bodies of loops, branches and custom derivatives have segments too. Each segment is stored, recomputed under a
policy, or reconstructed from its results. `frontier` gives the plans that need least memory for their time, by
estimates: the plain program first, each plan slower and smaller than the one before. See docs/adr/0066 and 0074.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import ceil, isqrt
from typing import Final, TypeAlias, final

from fxad import transforms
from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.core.sizes import at_least
from fxad.core.tables import Table, escaped, headed
from fxad.errors import ArgumentError, NotDifferentiableError, NotInvertibleError
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Var, source_location
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import made_by_invertible
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.vjp import vjp_fused
from fxad.transforms.cleanup.inline import inline
from fxad.transforms.costs import microseconds, time_of
from fxad.transforms.inversion.chains import reversible
from fxad.transforms.memory.nested_scan import balanced, nested_scan
from fxad.transforms.memory.peak import peak_bytes
from fxad.transforms.memory.policies import Policy, cost_ratio, costly, decided, nothing
from fxad.transforms.memory.remat import remat
from fxad.transforms.memory.segments import live_bytes

LEAST_GAIN: Final = 0.9  # a plan on the frontier needs at most this part of the bytes of the one before
MAX_PARTS: Final = 16  # parts of a stretch in which nothing repeats
MAX_PERIOD: Final = 1024  # equations of a repeated layer
LAYER_PARTS: Final = (2, 4)  # parts of a layer
MAX_LEVELS: Final = 6  # levels of recomputation within recomputation
BODY_PARTS: Final = (1, 2, 4, 8)  # parts of a body
SMALLEST_BODY: Final = 4  # equations of a body that is divided


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
class Inner:
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
    wrt: tuple[bool, ...]
    segments: tuple[Segment, ...] = ()
    loops: tuple[Loop, ...] = ()
    inner: tuple[Inner, ...] = ()

    @property
    def bytes(self) -> int:
        """The estimated bytes of temporaries of the gradient."""
        return peak_bytes(vjp_fused(apply_plan(self), self.wrt))

    @property
    def microseconds(self) -> float:
        """The estimated run time of the gradient."""
        return time_of(vjp_fused(apply_plan(self), self.wrt))

    def with_segment(self, k: int, keep: Policy | None) -> MemoryPlan:
        """Returns a plan in which segment k is recomputed except what `keep` selects, or stored if `keep` is None.

        Raises: ArgumentError for a segment that does not exist.
        """
        old = self.segments[self._index("segment", k, len(self.segments))]
        new = Segment(old.start, old.stop, keep)
        return replace(self, segments=(*self.segments[:k], new, *self.segments[k + 1 :]))

    def with_loop(self, k: int, sizes: tuple[int, ...], keep: Policy | None) -> MemoryPlan:
        """Returns a plan in which loop k runs in nested segments of `sizes` steps, each step under the policy `keep`.

        Raises: ArgumentError for a loop that does not exist.
        """
        new = replace(self.loops[self._index("loop", k, len(self.loops))], sizes=sizes, keep=keep)
        return replace(self, loops=(*self.loops[:k], new, *self.loops[k + 1 :]))

    def with_inner(self, k: int, segments: tuple[Segment, ...]) -> MemoryPlan:
        """Returns a plan in which body k has these segments.

        Raises: ArgumentError for a body that does not exist.
        """
        new = replace(self.inner[self._index("body", k, len(self.inner))], segments=segments)
        return replace(self, inner=(*self.inner[:k], new, *self.inner[k + 1 :]))

    def _index(self, what: str, k: int, n: int) -> int:
        if not 0 <= k < n:
            raise ArgumentError(
                f"plan: {what} {k} does not exist: there are {n}", remedy="print(plan) shows the numbers, from 0"
            )
        return k

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
    def _loops(self) -> list[str]:
        loops = [f"loop {k}: {_loop_text(loop)}" for k, loop in enumerate(self.loops)]
        return [*loops, *[f"body {k}: {_inner_text(inner)}" for k, inner in enumerate(self.inner)]]

    @property
    def _estimate(self) -> str:
        return f"estimate: {self.bytes:,} bytes of temporaries, {self.microseconds:,.0f} microseconds"

    def __str__(self) -> str:
        return "\n".join([*self._loops, self._table.text(), self._estimate])

    def _repr_html_(self) -> str:
        loops = [f"<div>{escaped(loop)}</div>" for loop in self._loops]
        return headed(f"MemoryPlan of {self.jaxpr.name}, {self._estimate}", *loops, self._table.html())


Plans: TypeAlias = tuple[MemoryPlan, ...]


def _loop_text(loop: Loop) -> str:
    sizes = f"segments of {', '.join(map(str, loop.sizes))} steps" if loop.sizes else "no segments"
    step = "steps stored" if loop.keep is None else f"steps recomputed except {loop.keep}"
    return f"scan of {loop.scan.length} steps: {sizes}, {step}"


def _inner_text(inner: Inner) -> str:
    cuts = ", ".join([f"{s.start} to {s.stop - 1}" for s in inner.segments if not s.stored])
    return f"{inner.body.name}: recomputed in segments of the equations {cuts}"


def _places(segments: Sequence[Segment]) -> dict[int, tuple[int, Segment]]:
    return {k: (n, segment) for n, segment in enumerate(segments) for k in range(segment.start, segment.stop)}


def _treatment(eqn: Eqn, segment: Segment | None, last: Sequence[int]) -> str:
    if made_by_invertible(eqn.prim):
        return "reconstructed"
    if segment is not None and segment.reconstruct:
        return "reconstructed"
    if segment is None or segment.keep is None:
        return "stored where a derivative reads it"
    if any([k >= segment.stop for k in last]):
        return "stored: a later segment reads it"
    if segment.keep != nothing and decided(segment.keep, eqn):
        return f"stored: {segment.keep}"
    return f"recomputed up to {_depth(segment)} times" if segment.parts else "recomputed"


def _depth(segment: Segment) -> int:
    """Returns how often the innermost equations are recomputed."""
    return (segment.keep is not None) + max(map(_depth, segment.parts), default=0)


# ------------------------------------------------------------------------------------------------------ applying a plan


def apply_plan(plan: MemoryPlan) -> Jaxpr:
    """Returns the program under a plan; the program itself if the plan stores everything.

    Law: same value; the same gradient, bitwise where loops are not divided.
    """
    loops = tuple([loop for loop in plan.loops if loop.sizes or loop.keep is not None])
    inner = tuple([body for body in plan.inner if not all([s.stored for s in body.segments])])
    if not loops and not inner and all([s.stored for s in plan.segments]):
        return plan.jaxpr
    return _with_choices(plan.jaxpr, plan.segments, loops, inner)


@by_value
def _with_choices(
    jaxpr: Jaxpr, segments: tuple[Segment, ...], loops: tuple[Loop, ...], inner: tuple[Inner, ...]
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
    """Returns a program in segments."""
    flat = inline(jaxpr)
    segments = segments or (Segment(0, len(flat.eqns)),)
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    last: dict[Atom, int] = {a: k for k, e in enumerate(flat.eqns) for a in e.ins}
    last.update(dict.fromkeys(flat.outs, len(flat.eqns)))
    _add(b, flat.eqns, segments, env, last, choice, frozenset(flat.ins))
    return b.build(substitute(flat.outs, env), jaxpr.name)


def _add(
    b: Builder,
    eqns: Sequence[Eqn],
    segments: Sequence[Segment],
    env: dict[Atom, Atom],
    last: dict[Atom, int],
    choice: _Choice,
    operands: frozenset[Atom],
) -> None:
    """Adds segments to a builder. `operands` are those of the program."""

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        return _in_bodies(b, eqn, ins, choice)

    for segment in segments:
        own = eqns[segment.start : segment.stop]
        if segment.stored or not own:
            b.extend(own, env, rule)
            continue
        read, returned = _border(eqns, segment, last)
        body = Builder()
        within: dict[Atom, Atom] = dict(zip(read, body.inputs([a.aval for a in read]), strict=True))
        parts = () if segment.reconstruct else segment.parts
        _add(body, eqns, parts or (Segment(segment.start, segment.stop),), within, last, choice, operands)
        segment_program = body.build(substitute(returned, within), "segment")
        keep = None if segment.reconstruct else segment.keep
        # operands of the program are stored anyway; the others are reconstructed
        kept = tuple([a in operands for a in read])
        segment_program = transforms.invertible(segment_program, kept) if keep is None else remat(segment_program, keep)
        b.source = own[-1].source
        env.update(zip(returned, b.inline(segment_program, substitute(read, env)), strict=True))


def _border(eqns: Sequence[Eqn], segment: Segment, last: Mapping[Atom, int]) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
    """Returns the values that a segment reads, and those that later equations read of it."""
    own = eqns[segment.start : segment.stop]
    inside = {v for e in own for v in e.outs}
    read = tuple(dict.fromkeys([a for e in own for a in e.ins if isinstance(a, Var) and a not in inside]))
    return read, tuple([v for e in own for v in e.outs if last.get(v, -1) >= segment.stop])


def _in_bodies(b: Builder, eqn: Eqn, ins: tuple[Atom, ...], choice: _Choice) -> Sequence[Atom] | None:
    """Applies a plan to the bodies of an equation whose values reverse mode may store, and divides a loop."""
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


# --------------------------------------------------------------------------------------------------------- the frontier


def frontier(jaxpr: Jaxpr, wrt: tuple[bool, ...], reconstruct: bool = False) -> Plans:
    """Returns the plans worth trying: the plain program first, then each slower and smaller than the one before, by
    estimates. No plan outside is estimated to be faster and as small. With `reconstruct`, functions with an inverse
    are reconstructed too.

    Law:  the same plans for every budget, so a smaller budget never chooses a larger plan.
    Cost: a derivative for each plan that is examined, a few dozen.
    """
    rows = [(plan.microseconds, plan.bytes, plan) for plan in _candidates(jaxpr, wrt, reconstruct)]
    plain, rest = rows[0], sorted(rows[1:], key=lambda row: row[:2])
    out = [plain]
    for row in rest:
        if row[1] <= LEAST_GAIN * out[-1][1]:
            out.append(row)
    least = min(rest, key=lambda row: row[1], default=plain)
    if least[1] < out[-1][1]:
        out.append(least)
    return tuple([plan for *_, plan in out])


def _candidates(jaxpr: Jaxpr, wrt: tuple[bool, ...], reconstruct: bool) -> Iterator[MemoryPlan]:
    flat = inline(jaxpr)
    plain = MemoryPlan(jaxpr, wrt)
    yield plain
    scans = tuple(dict.fromkeys(_scans(flat)))
    whole = tuple(map(Loop, scans))
    loops = [tuple([ways[min(k, len(ways) - 1)] for ways in map(_divisions_of_loop, scans)]) for k in range(9)]
    loops = list(dict.fromkeys(loops)) if scans else []
    inner = _divisions_of_bodies(flat)
    for chosen in loops:
        yield MemoryPlan(jaxpr, wrt, (), chosen)
    divided = []
    for family in _sequences(flat):
        for k, segments in enumerate(family):
            plan = MemoryPlan(jaxpr, wrt, segments, whole)
            yield plan
            if k == 0 and plan.bytes > LEAST_GAIN * plain.bytes:
                break  # the others of this family need more
            divided.append(segments)
    for bodies in inner:
        yield MemoryPlan(jaxpr, wrt, (), whole, bodies)
    # both at once, in steps: only the strongest of each
    for chosen, segments in product(loops[2::3], divided[::4]):
        yield MemoryPlan(jaxpr, wrt, segments, chosen)
    for chosen, bodies in product(loops[2::3], inner[2:3]):
        yield MemoryPlan(jaxpr, wrt, (), chosen, bodies)
    if reconstruct:
        for segments in _reconstructed(flat):
            yield MemoryPlan(jaxpr, wrt, segments, whole)


def _scans(jaxpr: Jaxpr) -> Iterator[Scan]:
    """Returns the loops of a program and of its bodies that can be divided."""
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        # the steps of other loops are not known, so they cannot be divided
        if isinstance(prim, Scan) and not prim.upto and at_least(prim.length, 2) and not prim.effects:
            yield prim
        if isinstance(prim, HigherOrder) and not reversible(eqn.prim):
            for body in prim.layout.bodies:
                if body.stores:
                    yield from _scans(body.jaxpr)


def _divisions_of_bodies(flat: Jaxpr) -> list[tuple[Inner, ...]]:
    """Returns ways to divide the bodies of a program, those with fewer segments first."""
    bodies = tuple(dict.fromkeys(_stored_bodies(flat)))
    out = []
    for parts in BODY_PARTS:
        division = []
        for body in bodies:
            inlined = inline(body)
            live = live_bytes(inlined, (False,) * len(inlined.ins))
            cuts = sorted({*_quantiles(live, 0, len(inlined.eqns), parts)})
            division.append(Inner(body, tuple([Segment(i, j, nothing) for i, j in pairwise(cuts)])))
        out.append(tuple(division))
    return list(dict.fromkeys(out)) if bodies else []


def _stored_bodies(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Returns the bodies in which segments may save memory: large ones whose values reverse mode stores."""
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, HigherOrder) and not reversible(eqn.prim):
            for body in eqn.prim.layout.bodies:
                if body.stores and len(inline(body.jaxpr).eqns) >= SMALLEST_BODY:
                    yield body.jaxpr
                if body.stores:
                    yield from _stored_bodies(body.jaxpr)


def _reconstructed(flat: Jaxpr) -> Iterator[tuple[Segment, ...]]:
    """Returns segments that are reconstructed: the longest stretches of layers that have an inverse, and loops."""
    last: dict[Atom, int] = {a: k for k, e in enumerate(flat.eqns) for a in e.ins}
    last.update(dict.fromkeys(flat.outs, len(flat.eqns)))
    operands = frozenset(flat.ins)
    # of the loops, only a `scan` runs backwards
    cuts = {*_cuts(flat)} | {k + d for k, e in enumerate(flat.eqns) if isinstance(e.prim, Scan) for d in (0, 1)}
    tried: dict[tuple[Jaxpr, tuple[bool, ...]], bool] = {}

    def invertible(start: int, stop: int) -> bool:
        segment = Segment(start, stop, reconstruct=True)
        read, returned = _border(flat.eqns, segment, last)
        if not returned or all([a in operands or not a.aval.inexact for a in read]):
            return False  # nothing is to be reconstructed
        body = Builder()
        within: dict[Atom, Atom] = dict(zip(read, body.inputs([a.aval for a in read]), strict=True))
        body.extend(flat.eqns[start:stop], within)
        program = body.build(substitute(returned, within), "segment")
        kept = tuple([a in operands for a in read])
        if (program, kept) not in tried:
            tried[program, kept] = _has_inverse(program, kept)
        return tried[program, kept]

    runs: list[list[int]] = []  # the borders of adjacent layers that have an inverse
    for start, stop in pairwise(sorted(cuts)):
        if invertible(start, stop):
            if runs and runs[-1][-1] == start:
                runs[-1].append(stop)
            else:
                runs.append([start, stop])
    joined = [k for run in runs for k in ([(run[0], run[-1])] if invertible(run[0], run[-1]) else [*pairwise(run)])]
    if joined:
        ends = sorted({0, len(flat.eqns), *[k for run in joined for k in run]})
        yield tuple([Segment(a, b, reconstruct=(a, b) in joined) for a, b in pairwise(ends)])


def _has_inverse(body: Jaxpr, kept: tuple[bool, ...]) -> bool:
    try:
        transforms.invertible(body, kept)
    except (NotDifferentiableError, NotInvertibleError):
        return False
    return True


def _divisions_of_loop(scan: Scan) -> list[Loop]:
    """Returns ways to run a loop, those that recompute less first."""
    n, body = scan.length, scan.body
    ratio = _least_ratio(body.eqns)
    carry = sum([a.nbytes for a in body.in_avals[scan.n_consts :][: scan.n_carry]])
    split = linearize(body, tuple([a.inexact for a in body.in_avals]))
    kept = [a for a in split.primal.outs[len(body.outs) :] if isinstance(a, Var) and a not in split.primal.ins]
    step = max(sum([a.aval.nbytes for a in kept]), 1)
    m = _divisor(n, max(1, isqrt(max(1, n * carry // step))))
    products = [costly(ratio)] if ratio else []
    out = [Loop(scan, (), keep) for keep in (*products, nothing)]
    out += [Loop(scan, (m,), None)] if 1 < m < n else []
    depths = [balanced(n, depth) for depth in (2, 3, 4, 6, max(n, 2).bit_length())]
    depths.insert(1, tuple([max(2, m // 2) for m in depths[0]]))  # shorter segments, which copy fewer slices
    return [*out, *dict.fromkeys([Loop(scan, sizes, nothing) for sizes in depths if sizes])]


def _divisor(n: int, wanted: int) -> int:
    """Returns a divisor of n near the wanted number, or that number if none is near."""
    near = [m for m in range(max(1, wanted // 2), min(n, 2 * wanted) + 1) if n % m == 0]
    return min(near, key=lambda m: abs(m - wanted), default=wanted)


def _least_ratio(eqns: Sequence[Eqn]) -> float:
    """Returns the least cost ratio of equations that cost more than an elementwise operation; 0 if there is none."""
    return min([r for r in map(cost_ratio, eqns) if r > 1.01], default=0.0)


def _sequences(flat: Jaxpr) -> Iterator[list[tuple[Segment, ...]]]:
    """Returns families of ways to divide a program into segments. The first of a family needs least memory."""
    cuts = _cuts(flat)
    n = len(cuts) - 1
    if n < 1 or not flat.eqns:
        return
    layers = [Segment(a, b) for a, b in pairwise(cuts)]
    ratio = _least_ratio(flat.eqns)
    policies: list[Policy] = [*([costly(ratio)] if ratio else []), nothing]
    for keep in policies:
        # nothing is gained by recomputing the last layer: its derivative comes first
        shares = dict.fromkeys([max(1, n - 1), ceil(n / 2), ceil(n / 4)])
        yield [tuple([replace(s, keep=keep) if k < m else s for k, s in enumerate(layers)]) for m in shares]
    yield [
        tuple([Segment(g[0].start, g[-1].stop, nothing) for g in [layers[k : k + m] for k in range(0, n, m)]])
        for m in (2, 3)
        if m <= n // 2
    ]
    # recomputation within recomputation: a state for each level, and the values of one layer
    yield [_nested(layers, sizes) for sizes in _depths(n) if sizes]
    live = live_bytes(flat, (False,) * len(flat.ins))
    states = 2 * isqrt(n) * max([live[k] for k in cuts])
    computed = [sum([v.aval.nbytes for e in flat.eqns[a:b] for v in e.outs]) for a, b in pairwise(cuts)]
    if max(computed) > states:  # the values of a layer are more than the states: parts of layers help
        for parts in LAYER_PARTS:
            fine = {k for a, b in pairwise(cuts) for k in _quantiles(live, a, b, parts)}
            leaves = [Segment(a, b) for a, b in pairwise(sorted(fine))]
            yield [_nested(leaves, sizes) for sizes in _depths(len(leaves)) if sizes]


def _depths(n: int) -> list[tuple[int, ...]]:
    """Returns the sizes of nested groups of n segments for each number of levels, the most levels first."""
    return list(dict.fromkeys([balanced(n, depth) for depth in range(min(n.bit_length(), MAX_LEVELS), 0, -1)]))


def _nested(leaves: Sequence[Segment], sizes: tuple[int, ...]) -> tuple[Segment, ...]:
    """Returns segments that are recomputed, in nested groups of `sizes` segments, outermost first."""
    if not sizes:
        return tuple([replace(s, keep=nothing) for s in leaves])
    groups = [leaves[k : k + sizes[0]] for k in range(0, len(leaves), sizes[0])]
    return tuple(
        [Segment(g[0].start, g[-1].stop, nothing, _nested(g, sizes[1:]) if len(g) > 1 else ()) for g in groups]
    )


def _cuts(flat: Jaxpr) -> list[int]:
    """Returns where a program is cut into layers: between repeated stretches, and elsewhere where few bytes live."""
    live = live_bytes(flat, (False,) * len(flat.ins))
    labels: dict[object, int] = {}
    kinds = [
        labels.setdefault((e.prim, tuple([a.aval for a in e.ins]), tuple([v.aval for v in e.outs])), len(labels))
        for e in flat.eqns
    ]
    inner = sorted({*_cuts_between(kinds, live, 0, len(kinds))} - {0, len(kinds)})
    return [0, *inner, len(kinds)]


def _cuts_between(kinds: Sequence[int], live: Sequence[int], start: int, stop: int) -> list[int]:
    """Returns the cuts of a stretch of equations, given their kinds."""
    n = stop - start
    if n < 4:
        return [start, stop]
    best = (0, 0, 0)  # equations in repetitions, minus the period, first
    for period in range(1, min(n // 2, MAX_PERIOD) + 1):
        run = 0
        for k in range(start, stop - period):
            run = run + 1 if kinds[k] == kinds[k + period] else 0
            if run >= period:
                best = max(best, (run + period, -period, k - run + 1))
        if best[0] > 0.8 * n:
            break
    covered, period, first = best[0], -best[1], best[2]
    if covered < n // 2 or period < 2:
        return _quantiles(live, start, stop, min(MAX_PARTS, max(1, n // 4)))
    means = [_mean([live[c] for c in range(first + k, first + covered + 1, period)]) for k in range(period)]
    phase = means.index(min(means))  # where layers begin: of equal shifts the first, where the run begins
    cuts = list(range(first + phase, first + covered + 1, period))
    before = _cuts_between(kinds, live, start, cuts[0]) if cuts[0] - start > 2 * period else [start]
    after = _cuts_between(kinds, live, cuts[-1], stop) if stop - cuts[-1] > 2 * period else [stop]
    return [*before, *cuts, *after]


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / max(1, len(numbers))


def _quantiles(live: Sequence[int], start: int, stop: int, parts: int) -> list[int]:
    """Returns cuts of a stretch in which nothing repeats: in each of equal parts, where the fewest bytes live."""
    ends = [start + (stop - start) * k // parts for k in range(parts + 1)]
    inside = [min(range(a + 1, b + 1), key=lambda k: (live[k], -k)) for a, b in pairwise(ends) if a < b]
    return [start, *inside, stop]
