"""Memory plans: what reverse mode stores and what it computes again, as a value, and the plans worth trying.

A plan divides the equations of a program (its calls inlined) into segments, and the steps of its loops into nested
segments. Each segment is stored or recomputed, under a policy. `frontier` gives the plans that need least memory for
their time, by estimates: the plain program first, each plan slower and smaller than the one before. See docs/adr/0066.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import ceil, isqrt
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.core.tables import Table, escaped, headed
from fxad.errors import ArgumentError
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Var, source_location
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import CustomCall
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.vjp import vjp_fused
from fxad.transforms.cleanup.inline import inline
from fxad.transforms.costs import microseconds, time_of
from fxad.transforms.memory.nested_scan import balanced, nested_scan
from fxad.transforms.memory.peak import peak_bytes
from fxad.transforms.memory.policies import Policy, cost_ratio, costly, decided, nothing
from fxad.transforms.memory.remat import remat
from fxad.transforms.memory.segments import live_bytes

LEAST_GAIN: Final = 0.9  # a plan on the frontier needs at most this part of the bytes of the one before
MAX_PARTS: Final = 16  # parts of a stretch in which nothing repeats
MAX_PERIOD: Final = 1024  # equations of a repeated layer


@final
@dataclass(frozen=True, slots=True)
class Segment:
    """Equations of the inlined program, from `start` to before `stop`. With a policy `keep` the backward pass
    recomputes them, except what the policy selects; without one their values are stored. `parts` are segments within,
    which are recomputed once more."""

    start: int
    stop: int
    keep: Policy | None = None
    parts: tuple[Segment, ...] = ()


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

    `bytes` and `microseconds` are estimates for the gradient: temporaries, and run time. `with_segment` and `with_loop`
    return edited plans, for `remat(program, plan=plan)`.
    """

    jaxpr: Jaxpr
    wrt: tuple[bool, ...]
    segments: tuple[Segment, ...] = ()
    loops: tuple[Loop, ...] = ()

    @property
    def bytes(self) -> int:
        """The estimated bytes of temporaries of the gradient."""
        return peak_bytes(vjp_fused(applied(self), self.wrt))

    @property
    def microseconds(self) -> float:
        """The estimated run time of the gradient."""
        return time_of(vjp_fused(applied(self), self.wrt))

    def with_segment(self, k: int, keep: Policy | None) -> MemoryPlan:
        """Returns a plan in which segment k is recomputed except what `keep` selects, or stored if `keep` is None.

        Raises: ArgumentError for a segment that does not exist.
        """
        new = replace(self.segments[self._index("segment", k, len(self.segments))], keep=keep, parts=())
        return replace(self, segments=(*self.segments[:k], new, *self.segments[k + 1 :]))

    def with_loop(self, k: int, sizes: tuple[int, ...], keep: Policy | None) -> MemoryPlan:
        """Returns a plan in which loop k runs in nested segments of `sizes` steps, each step under the policy `keep`.

        Raises: ArgumentError for a loop that does not exist.
        """
        new = replace(self.loops[self._index("loop", k, len(self.loops))], sizes=sizes, keep=keep)
        return replace(self, loops=(*self.loops[:k], new, *self.loops[k + 1 :]))

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
            rows.append(
                (
                    str(k),
                    f"{sum([v.aval.nbytes for v in eqn.outs]):,}",
                    f"{microseconds(eqn):,.1f}",
                    eqn.prim.name,
                    _line(eqn),
                    "" if number < 0 else str(number),
                    _treatment(eqn, segment, [last.get(v, -1) for v in eqn.outs]),
                )
            )
        head = ("", "bytes", "us", "operation", "where", "segment", "in the backward pass")
        return Table(head, tuple(rows), right=(0, 1, 2))

    @property
    def _loops(self) -> list[str]:
        return [f"loop {k}: {_loop_text(loop)}" for k, loop in enumerate(self.loops)]

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


def _line(eqn: Eqn) -> str:
    where = source_location(eqn.source)
    return f"{where.file.rpartition('/')[2]}:{where.line}" if where else ""


def _places(segments: Sequence[Segment]) -> dict[int, tuple[int, Segment]]:
    return {k: (n, segment) for n, segment in enumerate(segments) for k in range(segment.start, segment.stop)}


def _treatment(eqn: Eqn, segment: Segment | None, last: Sequence[int]) -> str:
    if isinstance(eqn.prim, CustomCall) and eqn.prim.tolerance is not None:
        return "reconstructed"
    if segment is None or segment.keep is None:
        return "stored where a derivative reads it"
    if any([k >= segment.stop for k in last]):
        return "stored: a later segment reads it"
    if segment.keep != nothing and decided(segment.keep, eqn):
        return f"stored: {segment.keep}"
    return "recomputed twice" if segment.parts else "recomputed"


# ------------------------------------------------------------------------------------------------------ applying a plan


def applied(plan: MemoryPlan) -> Jaxpr:
    """Returns the program under a plan; the program itself if the plan stores everything.

    Law: same value; the same gradient, bitwise where loops are not divided.
    """
    loops = tuple([loop for loop in plan.loops if loop.sizes or loop.keep is not None])
    if not loops and all([s.keep is None and not s.parts for s in plan.segments]):
        return plan.jaxpr
    return _applied(plan.jaxpr, plan.segments, loops)


@by_value
def _applied(jaxpr: Jaxpr, segments: tuple[Segment, ...], loops: tuple[Loop, ...]) -> Jaxpr:
    flat = inline(jaxpr)
    choice = {loop.scan: loop for loop in loops}
    segments = segments or (Segment(0, len(flat.eqns)),)
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    last: dict[Atom, int] = {a: k for k, e in enumerate(flat.eqns) for a in e.ins}
    last.update(dict.fromkeys(flat.outs, len(flat.eqns)))
    _add(b, flat.eqns, segments, env, last, choice)
    return b.build(substitute(flat.outs, env), jaxpr.name)


def _add(
    b: Builder,
    eqns: Sequence[Eqn],
    segments: Sequence[Segment],
    env: dict[Atom, Atom],
    last: dict[Atom, int],
    choice: dict[Scan, Loop],
) -> None:
    """Adds segments to a builder."""

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        return _in_loops(b, eqn, ins, choice)

    for segment in segments:
        own = eqns[segment.start : segment.stop]
        if segment.keep is None or not own:
            b.extend(own, env, rule)
            continue
        inside = {v for e in own for v in e.outs}
        read = tuple(dict.fromkeys([a for e in own for a in e.ins if isinstance(a, Var) and a not in inside]))
        given = tuple([v for e in own for v in e.outs if last.get(v, -1) >= segment.stop])
        body = Builder()
        inner: dict[Atom, Atom] = dict(zip(read, body.inputs([a.aval for a in read]), strict=True))
        _add(body, eqns, segment.parts or (Segment(segment.start, segment.stop),), inner, last, choice)
        made = remat(body.build(substitute(given, inner), "segment"), segment.keep)
        b.source = own[-1].source
        env.update(zip(given, b.inline(made, substitute(read, env)), strict=True))


def _in_loops(b: Builder, eqn: Eqn, ins: tuple[Atom, ...], choice: dict[Scan, Loop]) -> Sequence[Atom] | None:
    """Applies a plan to a loop, and to the loops in the bodies of an equation. Functions with custom rules stay."""
    prim = eqn.prim
    if not choice or not isinstance(prim, HigherOrder) or prim.layout.has_rules:
        return None
    if isinstance(prim, Scan) and (loop := choice.get(prim)) is not None:
        return b.inline(nested_scan(prim, loop.sizes, loop.keep), ins)
    bodies = tuple([_body(body, choice) for body in prim.bodies])
    return None if bodies == prim.bodies else b.copy(eqn, ins, prim.with_bodies(bodies))


def _body(body: Jaxpr, choice: dict[Scan, Loop]) -> Jaxpr:
    if not any([isinstance(e.prim, HigherOrder) for e in body.eqns]):
        return body
    b = Builder.like(body)
    env: dict[Atom, Atom] = {}
    b.extend(body.eqns, env, lambda b, eqn, ins: _in_loops(b, eqn, ins, choice))
    return b.build(substitute(body.outs, env), body.name)


# --------------------------------------------------------------------------------------------------------- the frontier


def frontier(jaxpr: Jaxpr, wrt: tuple[bool, ...]) -> Plans:
    """Returns the plans worth trying: the plain program first, then each slower and smaller than the one before, by
    estimates. No plan outside is estimated to be faster and as small.

    Law:  the same plans for every budget, so a smaller budget never chooses a larger plan.
    Cost: a derivative for each plan that is examined, a few dozen.
    """
    found = [(plan.microseconds, plan.bytes, plan) for plan in _candidates(jaxpr, wrt)]
    plain, rest = found[0], sorted(found[1:], key=lambda row: row[:2])
    out = [plain]
    for row in rest:
        if row[1] <= LEAST_GAIN * out[-1][1]:
            out.append(row)
    return tuple([plan for *_, plan in out])


def _candidates(jaxpr: Jaxpr, wrt: tuple[bool, ...]) -> Iterator[MemoryPlan]:
    flat = inline(jaxpr)
    yield MemoryPlan(jaxpr, wrt)
    scans = tuple(dict.fromkeys(_scans(flat)))
    loops = [tuple([ladder[min(k, len(ladder) - 1)] for ladder in map(_loop_ladder, scans)]) for k in range(9)]
    loops = list(dict.fromkeys(loops)) if scans else []
    divided = list(dict.fromkeys(_sequences(flat)))
    for chosen in loops:
        yield MemoryPlan(jaxpr, wrt, (), chosen)
    for segments in divided:
        yield MemoryPlan(jaxpr, wrt, segments, tuple(map(Loop, scans)))
    # both at once, in steps: only the strongest of each
    for chosen, segments in product(loops[2::3], divided[3::4]):
        yield MemoryPlan(jaxpr, wrt, segments, chosen)


def _scans(jaxpr: Jaxpr) -> Iterator[Scan]:
    """Returns the loops of a program and of its bodies that can be divided."""
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, Scan) and not prim.upto and prim.length > 1 and not prim.effects:
            yield prim
        elif isinstance(prim, HigherOrder) and not prim.layout.has_rules:
            for body in prim.bodies:
                yield from _scans(body)


def _loop_ladder(scan: Scan) -> list[Loop]:
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
    return [*out, *dict.fromkeys([Loop(scan, sizes, nothing) for sizes in depths if sizes])]


def _divisor(n: int, wanted: int) -> int:
    """Returns a divisor of n near the wanted number, or that number if none is near."""
    near = [m for m in range(max(1, wanted // 2), min(n, 2 * wanted) + 1) if n % m == 0]
    return min(near, key=lambda m: abs(m - wanted), default=wanted)


def _least_ratio(eqns: Sequence[Eqn]) -> float:
    """Returns the least cost ratio of what is dearer than an elementwise operation; 0 if nothing is."""
    return min([r for r in map(cost_ratio, eqns) if r > 1.01], default=0.0)


def _sequences(flat: Jaxpr) -> Iterator[tuple[Segment, ...]]:
    """Returns ways to divide a program into segments, those that recompute less first."""
    cuts = _cuts(flat)
    n = len(cuts) - 1
    if n < 1 or not flat.eqns:
        return
    layers = [Segment(a, b) for a, b in pairwise(cuts)]
    ratio = _least_ratio(flat.eqns)
    policies: list[Policy] = [*([costly(ratio)] if ratio else []), nothing]
    for keep in policies:
        for part in sorted({ceil(n / 4), ceil(n / 2), ceil(3 * n / 4), n - 1, n} - {0}):
            yield tuple([replace(s, keep=keep) if k < part else s for k, s in enumerate(layers)])
    for m in sorted({2, 3, 4, 6, 8, 12, isqrt(n)}):
        if 1 < m <= n // 2:
            groups = [layers[k : k + m] for k in range(0, n, m)]
            yield tuple([Segment(g[0].start, g[-1].stop, nothing) for g in groups])
            if m * m >= n // 2:
                inner = [tuple([replace(s, keep=nothing) for s in g]) for g in groups]
                yield tuple([Segment(g[0].start, g[-1].stop, nothing, g) for g in inner])


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
        return _quantiles(live, start, stop)
    means = [_mean([live[c] for c in range(first + k, first + covered + 1, period)]) for k in range(period)]
    phase = means.index(min(means))  # where layers begin: of equal shifts the first, where the run begins
    cuts = list(range(first + phase, first + covered + 1, period))
    before = _cuts_between(kinds, live, start, cuts[0]) if cuts[0] - start > 2 * period else [start]
    after = _cuts_between(kinds, live, cuts[-1], stop) if stop - cuts[-1] > 2 * period else [stop]
    return [*before, *cuts, *after]


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / max(1, len(numbers))


def _quantiles(live: Sequence[int], start: int, stop: int) -> list[int]:
    """Returns cuts of a stretch in which nothing repeats: in each of equal parts, where the fewest bytes live."""
    parts = min(MAX_PARTS, max(1, (stop - start) // 4))
    ends = [start + (stop - start) * k // parts for k in range(parts + 1)]
    return [start, *[min(range(a + 1, b + 1), key=lambda k: (live[k], -k)) for a, b in pairwise(ends)], stop]
