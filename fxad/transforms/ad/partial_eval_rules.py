"""Partial evaluation rules of equations with bodies: an equation is split into a known and an unknown one.

For example, w and x are known and y is unknown, in

    c, d, zs = scan[(w, c, d, x) -> let e = exp(c), c' = e * w, d' = d * x + e in (c', d', e)] w c0 y xs

The carry c is known, because each step computes it from known values; the carry d is not. The unknown step reads the
residual e, which is stacked, and x, which is a slice of an operand:

    c, zs, es = scan[(w, c, x) -> let e = exp(c), c' = e * w in (c', e, e)] w c0 xs
    d         = scan[(d, x, e) -> d * x + e] y xs es

The operands w, c0, y, xs have the numbers 0 to 3. So the `SplitEqn` has `known_operands` (0, 1, 3), `unknown_operands`
(2, 3, KnownResult(2)), because es is result 2 of the known scan, `out_known` (True, False, True) and `known_results`
(0, 1).

Numbers of this file:

    p, operands           operands of the equation that is split
    q, results            results of it
    KnownResult(k)        results of the known equation
    at, step_at, test_at  bodies of the layout of the equation
    g                     groups of operands or of results of the layout

A loop that ends by a predicate is split as a scan (`_bounded_loop`), which has operands and results of its own numbers:
`_BoundedLoop.scan_operands` gives the operands of the loop for those of the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder, rebind_operands
from fxad.core.dataclasses import dataclass
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.core.flags import merge_by_flags, select_by_flags, split_by_flags
from fxad.core.layout import PREDICATE, Body, BranchIndex, Carry, Constant, Count, Layout, OneOf, Sliced, Unknown
from fxad.ir import INT32_SCALAR, Atom, Atoms, Aval, Flags, HigherOrder, Jaxpr, Lit, Primitive, SourceLocation, Var
from fxad.primitives.control.bodies import (
    assign_slots,
    rotate_operands,
    shared_slots,
    with_slot_operands,
    with_slot_results,
)
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import ADD


@final
@dataclass(frozen=True, slots=True)
class PassedValue:
    """A residual, which the first program returns and the second reads.

    name:  its `checkpoint_name`, or the operation that computes it, with a number, or the number of the operand.
    where: the user's line.
    """

    name: str
    aval: Aval
    where: SourceLocation | None


@final
@dataclass(frozen=True, slots=True)
class Halves:
    """A program in two halves.

    known:     known operands -> the results marked in `out_known`, then residuals.
    unknown:   residuals, then the other operands -> the other results.
    residuals: a description of each residual.
    """

    known: Jaxpr
    unknown: Jaxpr
    residuals: tuple[PassedValue, ...]
    out_known: Flags

    @property
    def residual_atoms(self) -> Atoms:
        """The residuals, as atoms of `known`."""
        return self.known.outs[sum(self.out_known) :]

    def with_out_known(self, out_known: Flags) -> Halves:
        """Return the two halves with fewer known results: those marked in `out_known`. The other known results become
        results of `unknown`: literals as they are, variables through new residuals.

        For example, if `out_known` changes from (True, True, True, False) to (True, False, False, False),

            before:  known(x) = (sin(x), exp(x), 2.0)    unknown(y) = -y
            after:   known(x) = (sin(x), exp(x))         unknown(e, y) = (e, 2.0, -y)
        """
        if out_known == self.out_known:
            return self
        n_known, n_residuals = sum(self.out_known), len(self.residuals)
        numbers = select_by_flags(range(len(out_known)), self.out_known)
        results = dict(zip(numbers, self.known.outs[:n_known], strict=True))
        still_known = [a for k, a in results.items() if out_known[k]]
        moved = {k: a for k, a in results.items() if not out_known[k]}
        new_residuals = {k: a for k, a in moved.items() if isinstance(a, Var)}
        b = Builder()
        residuals = b.inputs(self.unknown.in_avals[:n_residuals])
        moved.update(zip(new_residuals, b.inputs([a.aval for a in new_residuals.values()]), strict=True))
        others = b.inline(self.unknown, (*residuals, *b.inputs(self.unknown.in_avals[n_residuals:])))
        is_moved = [k in moved for k, known in enumerate(out_known) if not known]
        return Halves(
            self.known.with_outs((*still_known, *self.residual_atoms, *new_residuals.values())),
            b.build(merge_by_flags(is_moved, moved.values(), others), self.unknown.name),
            (*self.residuals, *[PassedValue(f"result {k}", a.aval, None) for k, a in new_residuals.items()]),
            out_known,
        )

    @property
    def nothing_known(self) -> bool:
        """Return True if the known half has no equations and no results."""
        return not self.known.eqns and not any(self.out_known)


# Splits a body, given flags for its known operands: `partial_eval`.
SplitBody: TypeAlias = Callable[[Jaxpr, Flags], Halves]


@final
@dataclass(frozen=True, slots=True)
class KnownResult:
    """Result `number` of the known half, which the unknown half takes."""

    number: int


# An operand of the unknown half: the number of an operand of the equation, or a result of the known half.
OperandOrigin: TypeAlias = int | KnownResult


@final
@dataclass(frozen=True, slots=True)
class SplitEqn:
    """An equation in two halves, `known` and `unknown`.

    known_operands:   for each operand of `known`, the number of an operand of the equation, or a literal.
    unknown_operands: for each operand of `unknown`, the number of an operand of the equation, or a result of `known`.
    out_known:        marks the results of the equation that `known` computes. `unknown` returns the others.
    known_results:    for each of the marked results, the number of a result of `known`.
    """

    known: Primitive
    unknown: Primitive
    known_operands: tuple[int | Lit, ...]
    unknown_operands: tuple[OperandOrigin, ...]
    out_known: Flags
    known_results: tuple[int, ...]


def split_eqn(prim: Primitive, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split an equation whose marked operands are known. Return None if it is known or unknown as a whole.

    Not split are a loop without a bound or with an unknown predicate, a branch on an unknown index, a function with
    custom rules, and an equation with an effect.
    """
    if prim.effects or all(in_known) or not isinstance(prim, HigherOrder):
        return None
    layout = prim.layout
    roles = zip(in_known, layout.operand_roles, strict=True)
    control_known = all([known for known, role in roles if isinstance(role, BranchIndex | Count)])
    if not layout.transparent or not control_known:
        return None
    runs = [layout.bodies[k].runs for k in layout.running]
    if layout.has_predicate:
        split = _bounded_loop(prim, layout, in_known, split_body)
    elif layout.once is not None:
        split = _once(prim, layout, in_known, split_body)
    elif all([isinstance(r, OneOf) for r in runs]):
        split = _branches(prim, layout, in_known, split_body)
    else:
        split = _loop(prim, layout, in_known, split_body) if len(runs) == 1 else None
    # without a known operand, only known results are worth an equation of their own
    return split if split is None or any(in_known) or any(split.out_known) else None


# --------------------------------------------------------------------------------------------------- calls and branches


def _once(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split an equation whose body runs once. Its residuals are the first operands of the unknown half."""
    if len(layout.operands) != 1 or len(layout.results) != 1:
        return None
    body = split_body(layout.bodies[0].jaxpr, in_known)
    if body.nothing_known:
        return None
    n_known = sum(body.out_known)
    residuals = [KnownResult(k) for k in range(n_known, len(body.known.outs))]
    known_ins, unknown_ins = split_by_flags(range(len(in_known)), in_known)
    return SplitEqn(
        prim.rebuild((body.known,), (len(body.known.ins),), (len(body.known.outs),)),
        prim.rebuild((body.unknown,), (len(body.unknown.ins),), (len(body.unknown.outs),)),
        known_ins,
        (*residuals, *unknown_ins),
        body.out_known,
        tuple(range(n_known)),
    )


def _branches(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split each branch. A result is known if it is known in every branch. Residuals are passed in slots, each of
    which holds a residual of whichever branch runs, as in derivatives."""
    if [type(g.role) for g in layout.operands] != [BranchIndex, Constant] or len(layout.results) != 1:
        return None
    if any([(body.operands, body.results) != ((1,), (0,)) for body in layout.bodies]):
        return None
    bodies = [split_body(branch.jaxpr, in_known[1:]) for branch in layout.bodies]
    out_known = tuple([all(marks) for marks in zip(*[body.out_known for body in bodies], strict=True)])
    bodies = [body.with_out_known(out_known) for body in bodies]
    if all([body.nothing_known for body in bodies]):
        return None
    n_known = sum(out_known)
    slots = shared_slots([[r.aval for r in body.residuals] for body in bodies])
    known_branches = [
        with_slot_results(body.known, n_known, assign_slots(body.residual_atoms, slots), slots) for body in bodies
    ]
    known_ins, unknown_ins = split_by_flags(range(len(in_known)), in_known)
    unknown_branches = [
        with_slot_operands(rotate_operands(body.unknown, len(body.residuals)), len(unknown_ins), slots)
        for body in bodies
    ]
    residuals = [KnownResult(n_known + k) for k in range(len(slots))]
    return SplitEqn(
        prim.rebuild(tuple(known_branches), (1, len(known_ins) - 1), (n_known + len(slots),)),
        prim.rebuild(tuple(unknown_branches), (1, len(unknown_ins) + len(slots)), (len(out_known) - n_known,)),
        known_ins,
        (0, *unknown_ins, *residuals),
        out_known,
        tuple(range(n_known)),
    )


# --------------------------------------------------------------------------------------------------------------- loops


def _loop(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split a loop with one body. A carry is known if every step computes a known value for it. A residual that is a
    constant or a slice is read from the operand. The other residuals are stacked along the first axis, in the last
    groups of operands and results.

    For the scan at the top of this file, over the operands 0 to 3 and the stack es, which is the known result 2:

        operand_known  (True, True, False, True)
        residuals      [3, KnownResult(2)]          x and e
        known_groups   [[0], [1], [3]]              constants, carries, slices
        unknown_groups [[], [2], [3, KnownResult(2)]]
    """
    (at,) = layout.running
    body = layout.bodies[at]
    last_operands, last_results = len(layout.operands) - 1, len(layout.results) - 1
    if body.operands[-1:] != (last_operands,) or body.results[-1:] != (last_results,):
        return None
    if layout.operands[-1].role != Sliced(0) or layout.results[-1].role != Sliced(0):
        return None
    operand_known, step = _split_step(layout, at, in_known, split_body)
    if step.nothing_known:
        return None
    step_operands = layout.operand_indices(at)
    known_ins, unknown_ins = split_by_flags(step_operands, [operand_known[p] for p in step_operands])
    residuals, stacked = _residual_operands(layout, step, known_ins)
    known_groups: list[list[int]] = []
    unknown_groups: list[list[OperandOrigin]] = []
    for g, group in enumerate(layout.operands):
        members = layout.operands_of(g)
        read = [p for p in residuals if (p in members if isinstance(p, int) else g == last_operands)]
        unknown = [p for p in members if not operand_known[p] or isinstance(group.role, Count)]  # both halves take it
        known_groups.append([p for p in members if operand_known[p]])
        unknown_groups.append([*read, *unknown])
    n_known = sum(step.out_known)
    known_outs = (*step.known.outs[:n_known], *stacked)
    known_body = rebind_operands(step.known, body.operands_in(known_groups), has=known_ins, outs=known_outs)
    unknown_body = rebind_operands(step.unknown, body.operands_in(unknown_groups), has=(*residuals, *unknown_ins))
    marks = dict(zip(layout.result_indices(at), step.out_known, strict=True))
    out_known = tuple([marks[q] for q in range(len(marks))])
    by_group = [[out_known[q] for q in layout.results_of(g)] for g in range(len(layout.results))]
    known_sizes, unknown_sizes = [m.count(True) for m in by_group], [m.count(False) for m in by_group]
    known_sizes[-1] += len(stacked)
    return SplitEqn(
        prim.rebuild((known_body,), tuple(map(len, known_groups)), tuple(known_sizes)),
        prim.rebuild((unknown_body,), tuple(map(len, unknown_groups)), tuple(unknown_sizes)),
        tuple([p for group in known_groups for p in group]),
        tuple([p for group in unknown_groups for p in group]),
        out_known,
        tuple(range(n_known)),
    )


def _split_step(layout: Layout, at: int, in_known: Flags, split_body: SplitBody) -> tuple[list[bool], Halves]:
    """Split the step of a loop, body `at`. Return flags for the operands of the loop whose value is known in every
    step, and the two halves of the step, of which the known one returns exactly the known carries and rows."""
    step_operands, step_results = layout.operand_indices(at), layout.result_indices(at)
    operand_known = list(in_known)
    while True:
        step = split_body(layout.bodies[at].jaxpr, tuple([operand_known[p] for p in step_operands]))
        result_known = dict(zip(step_results, step.out_known, strict=True))
        no_longer_known = [p for p, q in layout.carries.items() if operand_known[p] and not result_known[q]]
        if not no_longer_known:
            break
        for p in no_longer_known:
            operand_known[p] = False
    # a carry whose initial value is unknown is unknown, even if each step computes a known value for it
    result_known.update({q: operand_known[p] for p, q in layout.carries.items()})
    return operand_known, step.with_out_known(tuple([result_known[q] for q in step_results]))


def _residual_operands(
    layout: Layout, step: Halves, known_ins: Sequence[int]
) -> tuple[list[OperandOrigin], list[Atom]]:
    """Return, for each residual of a step, the operand of the loop that it is, or the known result that is its stack;
    and the values that are stacked. The known half returns the stacks after its other results. A residual that is a
    carry is stacked, because it has another value in each step."""
    operands = dict(zip(step.known.ins, known_ins, strict=True))
    roles = layout.operand_roles
    n_known = sum(step.out_known)
    residuals: list[OperandOrigin] = []
    stacked: list[Atom] = []
    for a in step.residual_atoms:
        operand = operands.get(a) if isinstance(a, Var) else None
        if operand is None or isinstance(roles[operand], Carry):
            residuals.append(KnownResult(n_known + len(stacked)))
            stacked.append(a)
        else:
            residuals.append(operand)
    return residuals, stacked


# --------------------------------------------------------------------------------------- loops that end by a predicate


@final
class _Added(Enum):
    """The operands that the scan has beside those of the loop: the limit, which is its first one, and the count of its
    steps, which is a carry, and one of the known loop too."""

    LIMIT = "limit"
    COUNT = "count"


_LIMIT: Final = _Added.LIMIT
_COUNT: Final = _Added.COUNT
# An operand of the scan or of the known loop: the number of an operand of the loop, or an added one.
_LoopOperand: TypeAlias = int | _Added


def _bounded_loop(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split a loop with a bound that ends by a known predicate. The known half is a loop that also counts its steps;
    the unknown half is a scan of so many steps.

    For example, c0 is known and d0 is unknown in

        c, d = while[c -> c < 9, (c, d) -> let e = exp(c) in (c * c, d * e), max_steps=5] c0 d0

    The steps are a scan of up to 5 steps, with one more carry, the count n (`counting_scan`):

        c, d, n = scan[(c, d, n) -> let e = exp(c) in (c * c, d * e, n + 1), length=5] limit c0 d0 0

    `_loop` splits this scan:

        c, n, es = scan[(c, n) -> let e = exp(c) in (c * c, n + 1, e), length=5] limit c0 0
        d        = scan[(d, e) -> d * e, length=5] limit d0 es

    The predicate reads only c, which is known in every step (`_predicate_is_known`). So it can end the known steps, and
    their count is the limit of the unknown scan (`_with_known_loop`):

        c, n, es = while[(c, n) -> c < 9, (c, n) -> let e = exp(c) in (c * c, n + 1, e), max_steps=5] c0 0
        d        = scan[(d, e) -> d * e, length=5] n d0 es

    So `known_operands` is (0, the literal 0), `unknown_operands` is (KnownResult(1), 1,
    KnownResult(2)).
    """
    loop = _as_bounded_loop(layout)
    if loop is None:
        return None
    scan = loop.counting_scan()
    scan_known = tuple([isinstance(p, _Added) or in_known[p] for p in loop.scan_operands])
    split = _loop(scan, scan.layout, scan_known, split_body)
    if split is None or not _predicate_is_known(loop, split, in_known):
        return None
    return _with_known_loop(prim, loop, split)


@final
@dataclass(frozen=True, slots=True)
class _BoundedLoop:
    """A loop with a bound that ends by a predicate.

    step_at: the number of the body that takes a step: (constants, carries) -> (carries, rows).
    test_at: the number of the body that returns the predicate. It is another body, as in a `while`, or the step itself,
             which then returns the predicate before the carries.
    most:    the largest number of steps.
    """

    layout: Layout
    step_at: int
    test_at: int
    most: int

    @property
    def step(self) -> Body:
        """The body that takes a step."""
        return self.layout.bodies[self.step_at]

    @property
    def predicate_in_step(self) -> bool:
        """Return True if the step returns the predicate."""
        return self.step_at == self.test_at

    @property
    def step_operands(self) -> tuple[int, ...]:
        """For each operand of the step, the operand of the loop that it takes."""
        return self.layout.operand_indices(self.step_at)

    @property
    def scan_operands(self) -> tuple[_LoopOperand, ...]:
        """For each operand of `counting_scan`, the operand of the loop that it takes, or an added one."""
        return (_LIMIT, *self.step_operands, _COUNT)

    @property
    def carries(self) -> range:
        """The operands of the loop that are carries."""
        return self.layout.operands_of(self.step.operands[1])

    def counting_scan(self) -> Scan:
        """Return the steps as a scan: (limit, constants, carries, count) -> (carries, count + 1, rows). A predicate
        that the step returns is one more row, the last one, so that equations which it shares with the step are
        computed once."""
        jaxpr, n_carry = self.step.jaxpr, len(self.carries)
        predicate, outs = jaxpr.outs[: self.predicate_in_step], jaxpr.outs[self.predicate_in_step :]
        b = Builder.resume(jaxpr)
        count = b.one(ADD, b.input(INT32_SCALAR), Lit.of(1, INT32_SCALAR))
        body = b.build((*outs[:n_carry], count, *outs[n_carry:], *predicate), jaxpr.name)
        return Scan(
            body, self.most, reverse=False, unroll=1, n_consts=len(jaxpr.ins) - n_carry, n_carry=n_carry + 1, upto=True
        )

    def separate_predicate(self) -> tuple[Jaxpr, tuple[int, ...]]:
        """Return the program of a predicate that the step does not return, and the operands of the loop that it
        reads."""
        test, results = self.layout.bodies[self.test_at].jaxpr, self.layout.result_indices(self.test_at)
        predicate = test.outs[results.index(None)]
        program, is_read = drop_unread_operands(remove_dead_eqns(test.with_outs([predicate])))
        return program, select_by_flags(self.layout.operand_indices(self.test_at), is_read)


def _as_bounded_loop(layout: Layout) -> _BoundedLoop | None:
    """Return the loop of a layout with a predicate. None if it has no bound, or other groups of operands or results
    than a `_BoundedLoop`."""
    test_at = next(k for k in layout.running if PREDICATE in layout.bodies[k].results)
    step_at = next((k for k in layout.running if k != test_at), test_at)
    step = layout.bodies[step_at]
    results = [g for g in step.results if g != PREDICATE]
    roles = [layout.operands[g].role for g in step.operands] + [layout.results[g].role for g in results]
    if len(layout.running) > 2 or roles != [Constant(), Carry(), Carry(), Sliced()]:
        return None
    if not isinstance(step.runs, Unknown) or not step.runs.most or step.results[-2:] != tuple(results):
        return None
    return _BoundedLoop(layout, step_at, test_at, step.runs.most)


def _known_step_operands(loop: _BoundedLoop, split: SplitEqn) -> list[_LoopOperand]:
    """Return the operands of the loop that the known step takes; the last one is the count. `split` has the halves of
    `counting_scan`."""
    operands = [loop.scan_operands[k] for k in split.known_operands if isinstance(k, int)]
    return [p for p in operands if p is not _LIMIT]


def _predicate_is_known(loop: _BoundedLoop, split: SplitEqn, in_known: Flags) -> bool:
    """Return True if the predicate depends only on known operands and on carries that are known in every step.
    `split` has the halves of `counting_scan`."""
    if loop.predicate_in_step:
        return split.out_known[-1]
    known_carries = _known_step_operands(loop, split)
    _, reads = loop.separate_predicate()
    return all([p in known_carries if p in loop.carries else in_known[p] for p in reads])


def _with_known_loop(prim: HigherOrder, loop: _BoundedLoop, split: SplitEqn) -> SplitEqn | None:
    """Return the two halves of a loop, given those of `counting_scan`. None if the known half would only count.

    The known scan returns carries, the count, rows, the predicate if the step returns it, and stacked residuals. The
    known loop returns the same, without the predicate.

    In the example of `_bounded_loop`, let the step return the predicate: (c, d) -> (c * c < 9, c * c, d * e). Then the
    stack es is result 3 of the known scan and result 2 of the known loop, and `split.out_known`, of c, d, n and the
    predicate, is (True, False, True, True):

        c, n, go, es = scan[(c, n) -> let e = exp(c) in (c * c, n + 1, c * c < 9, e), length=5] limit c0 0
        c, n, es     = until[(c, n) -> let e = exp(c) in (c * c < 9, c * c, n + 1, e), most=5] c0 0
    """
    assert isinstance(split.known, Scan), "`rebuild` keeps the class"
    count_at, n_results = len(loop.carries), len(split.out_known) - loop.predicate_in_step
    n_carry, n_known = sum(split.out_known[:count_at]), sum(split.out_known[:n_results])
    known_results = tuple([k for k in range(n_known) if k != n_carry])
    if not known_results and len(split.known.body.eqns) == 1:
        return None
    known, known_operands = _known_loop(prim, loop, split.known.body, _known_step_operands(loop, split), n_known)
    unknown_operands: list[OperandOrigin] = []
    for k in split.unknown_operands:
        if isinstance(k, KnownResult):  # a stack: they stand after the predicate
            unknown_operands.append(KnownResult(k.number - loop.predicate_in_step))
        elif (p := loop.scan_operands[k]) is _LIMIT:  # the count of known steps is the limit of the unknown ones
            unknown_operands.append(KnownResult(n_carry))
        else:
            assert isinstance(p, int), "the count is known"
            unknown_operands.append(p)
    return SplitEqn(
        known,
        split.unknown,
        tuple([p if isinstance(p, int) else Lit.zero(INT32_SCALAR) for p in known_operands]),
        tuple(unknown_operands),
        split.out_known[:count_at] + split.out_known[count_at + 1 : n_results],
        known_results,
    )


def _known_loop(
    prim: HigherOrder, loop: _BoundedLoop, body: Jaxpr, step_operands: list[_LoopOperand], n_known: int
) -> tuple[Primitive, list[_LoopOperand]]:
    """Return the loop over known steps, and its operands. `body` is the step of the known scan: `step_operands` ->
    `n_known` results, then the predicate if the step returns it, then residuals."""
    layout = loop.layout
    test, test_operands = (None, ()) if loop.predicate_in_step else loop.separate_predicate()
    reads = {*step_operands, *test_operands}
    groups: list[list[_LoopOperand]] = [
        [p for p in layout.operands_of(g) if p in reads] for g in range(len(layout.operands))
    ]
    carries = groups[loop.step.operands[1]]
    carries.append(_COUNT)
    types: dict[_LoopOperand, Aval] = {_COUNT: INT32_SCALAR}
    for k in layout.running:
        types.update(zip(layout.operand_indices(k), layout.bodies[k].jaxpr.in_avals, strict=True))
    step = rebind_operands(body, loop.step.operands_in(groups), has=step_operands, types=types)
    n_rows = len(step.outs) - len(carries) - loop.predicate_in_step
    if test is None:
        step = step.with_outs((step.outs[n_known], *step.outs[:n_known], *step.outs[n_known + 1 :]))
        bodies = {loop.step_at: step}
    else:
        test_groups = layout.bodies[loop.test_at].operands_in(groups)
        bodies = {loop.step_at: step, loop.test_at: rebind_operands(test, test_groups, has=test_operands, types=types)}
    known = prim.rebuild(tuple([bodies[k] for k in layout.running]), tuple(map(len, groups)), (len(carries), n_rows))
    return known, [p for group in groups for p in group]
