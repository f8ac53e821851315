"""The memory plans that are worth trying: those that need least memory for their time, by estimates.

`frontier` examines some dozens of plans. It cuts the program into layers: where equations repeat, and elsewhere where
few bytes live. It recomputes or reconstructs some layers, nests the steps of loops, and divides bodies. See
docs/adr/0066 and 0074.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import ceil, isqrt
from typing import Final, final

from fxad import transforms
from fxad.core.builder import subprogram
from fxad.core.dataclasses import dataclass
from fxad.core.sizes import at_least
from fxad.errors import NotDifferentiableError, NotInvertibleError
from fxad.ir import Eqn, HigherOrder, Jaxpr, Mask, Var
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import reversible
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.cleanup.inline import inline
from fxad.transforms.memory.nested_scan import balanced, near_divisor
from fxad.transforms.memory.policies import Policy, cost_ratio, costly, nothing
from fxad.transforms.memory.segments import last_reads, live_bytes, live_ins_and_outs
from fxad.transforms.memory_plans.plans import Loop, MemoryPlan, Segment, SegmentedBody

MAX_BYTES_RATIO: Final = 0.9  # of the bytes of a plan on the frontier to those of the plan before it
MAX_PARTS: Final = 16  # parts of a stretch in which nothing repeats
MAX_PERIOD: Final = 1024  # equations of a repeated layer
LAYER_PARTS: Final = (2, 4)  # parts of a layer
MAX_LEVELS: Final = 6  # levels of recomputation within recomputation
BODY_PARTS: Final = (1, 2, 4, 8)  # parts of a body
SMALLEST_BODY: Final = 4  # equations of a body that is divided
ELEMENTWISE_RATIO: Final = 1.01  # the cost ratio of an elementwise operation is 1, but for rounding


def frontier(jaxpr: Jaxpr, wrt: Mask, reconstruct: bool = False) -> tuple[MemoryPlan, ...]:
    """Return the plans worth trying: the plain program first, then each slower and smaller than the one before, by
    estimates. No plan outside is estimated to be faster and as small. With `reconstruct`, functions with an inverse
    are reconstructed too.

    Law:  the same plans for every budget, so a smaller budget never chooses a larger plan.
    Cost: a derivative for each plan that is examined, a few dozen.
    """
    plain, *others = [_Estimate(p.microseconds, p.bytes, p) for p in _candidates(jaxpr, wrt, reconstruct)]
    others.sort(key=lambda estimate: (estimate.microseconds, estimate.bytes))
    out = [plain]
    for estimate in others:
        if estimate.bytes <= MAX_BYTES_RATIO * out[-1].bytes:
            out.append(estimate)
    smallest = min(others, key=lambda estimate: estimate.bytes, default=plain)
    if smallest.bytes < out[-1].bytes:
        out.append(smallest)
    return tuple([estimate.plan for estimate in out])


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Estimate:
    """A plan with its estimates, which a plan computes anew each time."""

    microseconds: float
    bytes: int
    plan: MemoryPlan


def _candidates(jaxpr: Jaxpr, wrt: Mask, reconstruct: bool) -> Iterator[MemoryPlan]:
    """Yield the plans that are examined; first the one that stores everything."""
    flat = inline(jaxpr)
    plain = MemoryPlan(jaxpr, wrt)
    yield plain
    scans = tuple(dict.fromkeys(_scans(flat)))
    undivided = tuple(map(Loop, scans))
    # division k of the loops: division k of each loop, or its last one
    each_loop = [_divisions_of_loop(scan) for scan in scans]
    most = max(map(len, each_loop), default=0)
    combined = [tuple([ways[min(k, len(ways) - 1)] for ways in each_loop]) for k in range(most)]
    divisions_of_loops = list(dict.fromkeys(combined))
    for loops in divisions_of_loops:
        yield MemoryPlan(jaxpr, wrt, (), loops)
    divisions = []
    for family in _divisions_of_program(flat):
        for k, segments in enumerate(family):
            plan = MemoryPlan(jaxpr, wrt, segments, undivided)
            yield plan
            if k == 0 and plan.bytes > MAX_BYTES_RATIO * plain.bytes:
                break  # the others of this family need more
            divisions.append(segments)
    divisions_of_bodies = _divisions_of_bodies(flat)
    for bodies in divisions_of_bodies:
        yield MemoryPlan(jaxpr, wrt, (), undivided, bodies)
    # divided loops together with segments or bodies: a few of each, because the number of plans is their product
    for loops, segments in product(divisions_of_loops[2::3], divisions[::4]):
        yield MemoryPlan(jaxpr, wrt, segments, loops)
    for loops, bodies in product(divisions_of_loops[2::3], divisions_of_bodies[2:3]):
        yield MemoryPlan(jaxpr, wrt, (), loops, bodies)
    if reconstruct:
        for segments in _reconstructed(flat):
            yield MemoryPlan(jaxpr, wrt, segments, undivided)


def _scans(jaxpr: Jaxpr) -> Iterator[Scan]:
    """Return the loops of a program and of its bodies that can be divided."""
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        # the steps of other loops are not known, so they cannot be divided
        if isinstance(prim, Scan) and not prim.upto and at_least(prim.length, 2) and not prim.effects:
            yield prim
        if isinstance(prim, HigherOrder) and not reversible(eqn.prim):
            for body in prim.layout.bodies:
                if body.stores:
                    yield from _scans(body.jaxpr)


# ------------------------------------------------------------------------------------- bodies, and reconstructed layers


def _divisions_of_bodies(flat: Jaxpr) -> list[tuple[SegmentedBody, ...]]:
    """Return ways to divide the bodies of a program, those with fewer segments first."""
    bodies = tuple(dict.fromkeys(_stored_bodies(flat)))
    out = []
    for parts in BODY_PARTS:
        division = []
        for body in bodies:
            inlined = inline(body)
            live = live_bytes(inlined, (False,) * len(inlined.ins))
            cuts = sorted({*cuts_at_minima(live, 0, len(inlined.eqns), parts)})
            division.append(SegmentedBody(body, tuple([Segment(i, j, nothing) for i, j in pairwise(cuts)])))
        out.append(tuple(division))
    return list(dict.fromkeys(out)) if bodies else []


def _stored_bodies(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Return the bodies in which segments may save memory: large ones whose values reverse mode stores."""
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, HigherOrder) and not reversible(eqn.prim):
            for body in eqn.prim.layout.bodies:
                if body.stores and len(inline(body.jaxpr).eqns) >= SMALLEST_BODY:
                    yield body.jaxpr
                if body.stores:
                    yield from _stored_bodies(body.jaxpr)


def _reconstructed(flat: Jaxpr) -> Iterator[tuple[Segment, ...]]:
    """Return segments that are reconstructed: the longest stretches of layers that have an inverse, and loops."""
    last, operands = last_reads(flat), frozenset(flat.ins)
    # of the loops, only a `scan` runs backwards
    cuts = {*layer_cuts(flat)} | {k + d for k, e in enumerate(flat.eqns) if isinstance(e.prim, Scan) for d in (0, 1)}
    tried: dict[tuple[Jaxpr, Mask], bool] = {}

    def runs_backwards(start: int, stop: int) -> bool:
        read, returned = live_ins_and_outs(flat.eqns, start, stop, last)
        if not returned or all([a in operands or not a.aval.inexact for a in read]):
            return False  # nothing is to be reconstructed
        program = subprogram(flat.eqns[start:stop], read, returned, "segment")
        kept = tuple([a in operands for a in read])
        if (program, kept) not in tried:
            tried[program, kept] = _has_inverse(program, kept)
        return tried[program, kept]

    runs: list[list[int]] = []  # the borders of adjacent layers that have an inverse
    for start, stop in pairwise(sorted(cuts)):
        if runs_backwards(start, stop):
            if runs and runs[-1][-1] == start:
                runs[-1].append(stop)
            else:
                runs.append([start, stop])
    reconstructed: set[tuple[int, int]] = set()
    for run in runs:
        whole = run[0], run[-1]
        reconstructed.update([whole] if runs_backwards(*whole) else pairwise(run))
    if reconstructed:
        borders = sorted({0, len(flat.eqns), *[k for segment in reconstructed for k in segment]})
        yield tuple([Segment(a, b, reconstruct=(a, b) in reconstructed) for a, b in pairwise(borders)])


def _has_inverse(body: Jaxpr, kept: Mask) -> bool:
    try:
        transforms.invertible(body, kept)
    except (NotDifferentiableError, NotInvertibleError):
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------- loops


def _divisions_of_loop(scan: Scan) -> list[Loop]:
    """Return ways to run a loop, those that recompute less first."""
    n, body = scan.length, scan.body
    ratio = _least_ratio(body.eqns)
    carry_bytes = sum([a.nbytes for a in body.in_avals[scan.n_consts :][: scan.n_carry]])
    split = linearize(body, tuple([a.inexact for a in body.in_avals]))
    computed = [a for a in split.primal.outs[len(body.outs) :] if isinstance(a, Var) and a not in split.primal.ins]
    step_bytes = max(sum([a.aval.nbytes for a in computed]), 1)
    # segments of m steps store n / m carries and the values of m steps, which is least for this m
    m = near_divisor(n, max(1, isqrt(max(1, n * carry_bytes // step_bytes))))
    policies: list[Policy] = [*([costly(ratio)] if ratio else []), nothing]
    out = [Loop(scan, (), keep) for keep in policies]
    out += [Loop(scan, (m,), None)] if 1 < m < n else []
    nestings = [balanced(n, depth) for depth in (2, 3, 4, 6, max(n, 2).bit_length())]
    nestings.insert(1, tuple([max(2, size // 2) for size in nestings[0]]))  # shorter segments, which copy fewer slices
    return [*out, *dict.fromkeys([Loop(scan, sizes, nothing) for sizes in nestings if sizes])]


def _least_ratio(eqns: Sequence[Eqn]) -> float:
    """Return the least cost ratio of equations that cost more than an elementwise operation; 0 if there is none."""
    return min([r for r in map(cost_ratio, eqns) if r > ELEMENTWISE_RATIO], default=0.0)


# ---------------------------------------------------------------------------------------------------- recomputed layers


def _divisions_of_program(flat: Jaxpr) -> Iterator[list[tuple[Segment, ...]]]:
    """Return families of ways to divide a program into segments. The first of a family needs least memory."""
    cuts = layer_cuts(flat)
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
    # recomputation within recomputation: it stores a value at each level, and the values of one layer
    yield [_nested_groups(layers, sizes) for sizes in _depths(n) if sizes]
    live = live_bytes(flat, (False,) * len(flat.ins))
    between_layers = 2 * isqrt(n) * max([live[k] for k in cuts])
    computed = [sum([v.aval.nbytes for e in flat.eqns[a:b] for v in e.outs]) for a, b in pairwise(cuts)]
    if max(computed) > between_layers:  # the values within a layer need the most memory: parts of layers help
        for parts in LAYER_PARTS:
            fine = {k for a, b in pairwise(cuts) for k in cuts_at_minima(live, a, b, parts)}
            leaves = [Segment(a, b) for a, b in pairwise(sorted(fine))]
            yield [_nested_groups(leaves, sizes) for sizes in _depths(len(leaves)) if sizes]


def _depths(n: int) -> list[tuple[int, ...]]:
    """Return the sizes of nested groups of n segments for each number of levels, the most levels first."""
    return list(dict.fromkeys([balanced(n, depth) for depth in range(min(n.bit_length(), MAX_LEVELS), 0, -1)]))


def _nested_groups(leaves: Sequence[Segment], sizes: tuple[int, ...]) -> tuple[Segment, ...]:
    """Return segments that are recomputed, in nested groups of `sizes` segments, outermost first."""
    if not sizes:
        return tuple([replace(s, keep=nothing) for s in leaves])
    groups = [leaves[k : k + sizes[0]] for k in range(0, len(leaves), sizes[0])]
    return tuple(
        [Segment(g[0].start, g[-1].stop, nothing, _nested_groups(g, sizes[1:]) if len(g) > 1 else ()) for g in groups]
    )


# --------------------------------------------------------------------------------------------------------------- layers


def layer_cuts(flat: Jaxpr) -> list[int]:
    """Return where a program is cut into layers: between repeated stretches, and elsewhere where few bytes live."""
    live = live_bytes(flat, (False,) * len(flat.ins))
    labels: dict[object, int] = {}
    kinds = [
        labels.setdefault((e.prim, tuple([a.aval for a in e.ins]), tuple([v.aval for v in e.outs])), len(labels))
        for e in flat.eqns
    ]
    inner = sorted({*_cuts_between(kinds, live, 0, len(kinds))} - {0, len(kinds)})
    return [0, *inner, len(kinds)]


def _cuts_between(kinds: Sequence[int], live: Sequence[int], start: int, stop: int) -> list[int]:
    """Return the cuts of a stretch of equations, given their kinds."""
    n = stop - start
    if n < 4:
        return [start, stop]
    # The run that covers most equations; of several, the one with the shortest period. A run is represented by
    # (equations that it covers, -period, its first equation), so that it is the maximum.
    best = (0, 0, 0)
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
        return cuts_at_minima(live, start, stop, min(MAX_PARTS, max(1, n // 4)))
    # layers begin where the fewest bytes live on average; of equal offsets from the start of the run, at the first
    mean_bytes = [_mean([live[c] for c in range(first + k, first + covered + 1, period)]) for k in range(period)]
    phase = mean_bytes.index(min(mean_bytes))
    cuts = list(range(first + phase, first + covered + 1, period))
    before = _cuts_between(kinds, live, start, cuts[0]) if cuts[0] - start > 2 * period else [start]
    after = _cuts_between(kinds, live, cuts[-1], stop) if stop - cuts[-1] > 2 * period else [stop]
    return [*before, *cuts, *after]


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / max(1, len(numbers))


def cuts_at_minima(live: Sequence[int], start: int, stop: int, parts: int) -> list[int]:
    """Return cuts of a stretch in which nothing repeats: in each of equal parts, where the fewest bytes live."""
    ends = [start + (stop - start) * k // parts for k in range(parts + 1)]
    inside = [min(range(a + 1, b + 1), key=lambda k: (live[k], -k)) for a, b in pairwise(ends) if a < b]
    return [start, *inside, stop]
