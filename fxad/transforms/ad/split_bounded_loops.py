"""Partial evaluation of a loop with a bound that ends by a known predicate.

It is split as a scan (`split_bounded_loop`), which has operands and results of its own numbers:
`_BoundedLoop.scan_operands` gives the operands of the loop for those of the scan. `step_at` and `test_at` are the
bodies of the layout that take a step and that return the predicate. The other numbers are those of `split_loops`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder, rebind_operands
from fxad.core.dataclasses import dataclass
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.core.flags import select_by_flags
from fxad.core.layout import PREDICATE, Body, Carry, Constant, Layout, Sliced, Unknown
from fxad.ir import INT32_SCALAR, Aval, Flags, HigherOrder, Jaxpr, Lit, Primitive
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.transforms.ad.halves import KnownResult, OperandOrigin, SplitBody, SplitEqn
from fxad.transforms.ad.split_loops import split_loop


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


def split_bounded_loop(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split a loop with a bound that ends by a known predicate. The known half is a loop that also counts its steps;
    the unknown half is a scan of so many steps.

    For example, c0 is known and d0 is unknown in

        c, d = while[c -> c < 9, (c, d) -> let e = exp(c) in (c * c, d * e), max_steps=5] c0 d0

    The steps are a scan of up to 5 steps, with one more carry, the count n (`counting_scan`):

        c, d, n = scan[(c, d, n) -> let e = exp(c) in (c * c, d * e, n + 1), length=5] limit c0 d0 0

    `split_loop` splits this scan:

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
    split = split_loop(scan, scan.layout, scan_known, split_body)
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

    In the example of `split_bounded_loop`, let the step return the predicate: (c, d) -> (c * c < 9, c * c, d * e). Then
    the stack es is result 3 of the known scan and result 2 of the known loop. `split.out_known`, of c, d, n and the
    predicate, is (True, False, True, True). The count and the predicate are results 2 and 3 of `counting_scan`, and
    results 1 and 2 of the known scan, which lacks d:

        c, n, go, es = scan[(c, n) -> let e = exp(c) in (c * c, n + 1, c * c < 9, e), length=5] limit c0 0
        c, n, es     = until[(c, n) -> let e = exp(c) in (c * c < 9, c * c, n + 1, e), most=5] c0 0
    """
    assert isinstance(split.known, Scan), "`rebuild` keeps the class"
    # where the count and the predicate are among the results of `counting_scan`; without a predicate, their end
    count_at, predicate_at = len(loop.carries), len(split.out_known) - loop.predicate_in_step
    # where they are among the results of the known scan, before the residuals
    known_count_at, known_predicate_at = [sum(split.out_known[:k]) for k in (count_at, predicate_at)]
    known_results = tuple([k for k in range(known_predicate_at) if k != known_count_at])
    if not known_results and len(split.known.body.eqns) == 1:
        return None
    known, known_operands = _known_loop(
        prim, loop, split.known.body, _known_step_operands(loop, split), known_predicate_at
    )
    unknown_operands: list[OperandOrigin] = []
    for k in split.unknown_operands:
        if isinstance(k, KnownResult):  # a stack: they stand after the predicate
            unknown_operands.append(KnownResult(k.number - loop.predicate_in_step))
        elif (p := loop.scan_operands[k]) is _LIMIT:  # the count of known steps is the limit of the unknown ones
            unknown_operands.append(KnownResult(known_count_at))
        else:
            assert isinstance(p, int), "the count is known"
            unknown_operands.append(p)
    return SplitEqn(
        known,
        split.unknown,
        tuple([p if isinstance(p, int) else Lit.zero(INT32_SCALAR) for p in known_operands]),
        tuple(unknown_operands),
        split.out_known[:count_at] + split.out_known[count_at + 1 : predicate_at],
        known_results,
    )


def _known_loop(
    prim: HigherOrder, loop: _BoundedLoop, body: Jaxpr, step_operands: list[_LoopOperand], predicate_at: int
) -> tuple[Primitive, list[_LoopOperand]]:
    """Return the loop over known steps, and its operands. `body` is the step of the known scan: `step_operands` ->
    `predicate_at` results, then the predicate if the step returns it, then residuals."""
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
    if test is None:
        results, (predicate, *stacks) = step.outs[:predicate_at], step.outs[predicate_at:]
        step = step.with_outs((predicate, *results, *stacks))  # a step of a loop returns its predicate first
        bodies = {loop.step_at: step}
    else:
        test_groups = layout.bodies[loop.test_at].operands_in(groups)
        bodies = {loop.step_at: step, loop.test_at: rebind_operands(test, test_groups, has=test_operands, types=types)}
    n_rows = len(step.outs) - loop.predicate_in_step - len(carries)  # the step returns predicate, carries, rows
    known = prim.rebuild(tuple([bodies[k] for k in layout.running]), tuple(map(len, groups)), (len(carries), n_rows))
    return known, [p for group in groups for p in group]
