"""The solver of inversion: finds the values that the known ones determine, and a plan that computes them.

The solver works on the dataflow graph, so the order of equations does not matter. It applies two rules until nothing
changes:

- If all operands of an equation are known, so are its results: the equation computes them.
- If its results are known and some operands are not, the inverse rule of its primitive may determine these operands: a
  `BackwardStep` computes them.

The result is a plan (`find_plan`): for each known value, the equation or step that computes it. `partial_inverse` emits
the unknown operands of a program by its plan (`LazyValues`). The docstring of the package has an example.

Parts. A choice or a slice determines only some elements of an operand: a `PartialValue`. The solver collects the parts
of each unknown value, and joins them when they are complete. Before that, a part may already determine other values. In
this coupling the mask m is known, and the elements of x outside of m are returned as they are:

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> from fxad.transforms.inversion.plans import BackwardStep
    >>> from fxad.transforms.inversion.rules import INVERSE_RULES
    >>> from fxad.transforms.inversion.solver import find_plan
    >>> def coupling(x, m):
    ...     return fnp.where(m, x * fnp.exp(fnp.where(m, 0.0, x)), x)
    >>> jaxpr = fx.trace(coupling, fx.Spec((4,), "float32"), fx.Spec((4,), "bool")).jaxpr
    >>> print(jaxpr, end="")
    main @coupling(%arg0: f32[4], %arg1: bool[4]) -> (f32[4]) {
      %0: f32[4] = select_n %arg1, %arg0, 0.0:f32[4]
      %1: f32[4] = exp %0
      %2: f32[4] = mul %arg0, %1
      %3: f32[4] = select_n %arg1, %arg0, %2
      return %3
    }
    >>> plan = find_plan(jaxpr, (jaxpr.ins[1], *jaxpr.outs), INVERSE_RULES)
    >>> for value, step in plan.computed_by.items():
    ...     if isinstance(step, BackwardStep):
    ...         print(value, [eqn.prim.name for eqn in step.inverts], "backward")
    ...     else:
    ...         print(value, step.prim.name if step else "known from the start")
    %arg1 known from the start
    %3 known from the start
    %0 ['select_n'] backward
    %1 exp
    %arg0 ['select_n', 'mul'] backward
    %2 mul

1. The last choice, equation 3, runs backwards. It determines a part of `%arg0` (where m is False) and a part of `%2`
   (where m is True). Both have the path (3,): the path of a part lists the equations that were inverted to obtain it.
2. Neither is complete. But the first choice, `%0`, reads of `%arg0` only the elements of the first part
   (`_compute_readers`). So it is known, and then `%1`.
3. Now `mul`, equation 2, has one unknown operand, and is inverted on the part of `%2` (`_invert_producer`). The result
   is a second part of `%arg0`, with the path (3, 2).
4. The two parts are complete, and are joined to `%arg0` (`_join_parts`), by one step.

A part is recorded without the equations that compute it. A step that reads a part applies the rules along its path once
more, and so contains all equations that it needs (`_emit_part`).

The kinds of parts are classes (`PartialValue` in `rules/contract.py`). Only a `MaskedPart` passes through equations, as
in the steps 2 and 3. A window determines slices that lie in it, and pieces that were joined to the value
(`_read_window`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from fxad.core.builder import Builder
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.errors import SizeError
from fxad.ir import Atom, Eqn, Flags, HigherOrder, Hole, Jaxpr, Lit, Var
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.gather_scatter import Scatter
from fxad.primitives.shape import BroadcastInDim, emit_reshape
from fxad.primitives.slicing import Slice
from fxad.transforms.inversion.mask_couplings import sums_as_choices
from fxad.transforms.inversion.normal_form import NO_ORIGINS, backward_form
from fxad.transforms.inversion.plans import UNUSED, BackwardStep, Graph, InversionPlan, LazyValues
from fxad.transforms.inversion.rules.assembling import assembled_operand, complete, slice_of_part, where_chosen
from fxad.transforms.inversion.rules.contract import (
    Args,
    ChosenPart,
    InverseRow,
    InverseTable,
    MaskPart,
    PartialInverse,
    PartialValue,
    Refused,
    Solved,
    WindowPart,
)
from fxad.transforms.inversion.rules.indexing import SLICES
from fxad.transforms.inversion.rules.measuring import log_det_of, log_det_of_parts, total_log_det
from fxad.transforms.inversion.rules.placing import invert_at_places, reads_part, unchanged_operands
from fxad.transforms.inversion.rules.structure import window_of
from fxad.transforms.locate import EqnOrigin, body_label, locate

# The indices of the equations that were inverted to obtain a part, in the order of inversion: see the docstring.
InvertedEqns: TypeAlias = tuple[int, ...]

# The parts whose elements a selector chose, or a constant mask marks.
MaskedPart: TypeAlias = ChosenPart | MaskPart

UNKNOWN_RULE: Final = Refused("it has no inverse rule")
REPEATED_OPERAND: Final = Refused("an unknown operand stands in it twice")
PARTLY_DETERMINED: Final = Refused(
    "its results determine some elements of the operand, and the others are not found elsewhere",
    "return the other elements too, as they are or changed by what stays",
)
SOME_ELEMENTS_UNKNOWN: Final = Refused(
    "only some elements of its results are known", "return the other elements too, as they are or changed by what stays"
)
MIXES_ELEMENTS: Final = Refused("its results are known only where a mask chose them, and it mixes elements")
SOME_RESULTS_UNKNOWN: Final = Refused("not all of its results are known")


@by_value
def partial_inverse(
    jaxpr: Jaxpr,
    known_ins: Flags,
    known_outs: Flags,
    rules: InverseTable,
    measured: bool = False,
    located: bool = False,
) -> PartialInverse:
    """Run a program backwards as far as possible, from the operands marked in `known_ins` and the results marked in
    `known_outs`.

    `measured`: computes the log-determinant too. `located`: reasons name equations of the program itself, not of its
    normal form, and the bodies that contain them.

    Rule: equal equations are merged: a value that is computed twice is known if one of the two is known.
    Cost: one search; linear in the equations if each is inverted once.
    """
    program = jaxpr.with_outs(select_by_flags(jaxpr.outs, known_outs))
    normal, origins = backward_form(program, located)
    known_operands = select_by_flags(jaxpr.ins, known_ins)
    plan = find_plan(normal, (*known_operands, *normal.outs), rules, measured, origins)
    solved = tuple([v in plan.computed_by and not k for v, k in zip(jaxpr.ins, known_ins, strict=True)])
    undetermined = [v for v in jaxpr.ins if v not in plan.computed_by]
    refused = plan.why_not(undetermined[0]) if undetermined else None

    b = Builder()
    env: dict[Atom, Atom] = {}
    for a, value in zip(normal.outs, b.inputs(normal.out_avals), strict=True):
        env.setdefault(a, value)
    env.update(zip(known_operands, b.inputs([v.aval for v in known_operands]), strict=True))
    lazy = LazyValues(b, plan, env)
    values = [lazy.get(v) for v in select_by_flags(jaxpr.ins, solved)]
    unmeasured: Refused | None = None
    if measured:
        values.append(total_log_det(b, lazy.measures(), [v.aval for v in select_by_flags(jaxpr.ins, solved)]))
        unmeasured = next((s.unmeasured for s in lazy.steps if s.unmeasured), None)
    return PartialInverse(b.build(values, f"inverse_{jaxpr.name}"), solved, refused, unmeasured)


def find_plan(
    jaxpr: Jaxpr,
    known_values: Iterable[Atom],
    rules: InverseTable,
    measured: bool = False,
    origins: Mapping[Atom, EqnOrigin] = NO_ORIGINS,
) -> InversionPlan:
    """Return how to compute the values of a program that the known ones determine.

    `origins` maps values to equations of the original program, for messages.

    Rule: if not all operands are determined, sums of masked values are also tried as choices.
    """
    graph, known_values = Graph.of(jaxpr, origins), tuple(known_values)
    plan = _Search(graph, rules, measured).run(known_values)
    if all([v in plan.computed_by for v in jaxpr.ins]):
        return plan
    with_choices = sums_as_choices(graph, plan.computed_by)
    other = with_choices and _Search(with_choices, rules, measured).run(known_values)
    return other if other and _count_determined(jaxpr, other) > _count_determined(jaxpr, plan) else plan


def _count_determined(jaxpr: Jaxpr, plan: InversionPlan) -> int:
    return sum([v in plan.computed_by for v in jaxpr.ins])


# ---------------------------------------------------------------------------------------------------------- the search


class _Search:
    """One search for the values that the known ones determine. Equations are given by their indices."""

    def __init__(self, graph: Graph, rules: InverseTable, measured: bool) -> None:
        self.graph, self.rules, self.measured = graph, rules, measured
        # the result: the known values, and the reasons for equations that cannot be run backwards
        self.computed_by: dict[Atom, Eqn | BackwardStep | None] = {}
        self.refusals: dict[int, Refused] = {}
        # the parts of each unknown value, by their paths
        self.parts: dict[Var, dict[InvertedEqns, PartialValue]] = {}
        # for each equation, the number of its unknown operands
        self.n_unknown = [len({a for a in e.ins if isinstance(a, Var)}) for e in graph.eqns]
        # three queues: equations to compute, parts that may determine other values, and equations to run backwards. The
        # last one is a heap of negative indices, so that the last equation comes first; `in_heap` has its indices
        self.to_compute: deque[int] = deque([k for k, n in enumerate(self.n_unknown) if n == 0])
        self.to_follow: deque[tuple[Var, InvertedEqns]] = deque()
        self.to_invert: list[int] = []
        self.in_heap: set[int] = set()

    def run(self, known_values: Iterable[Atom]) -> InversionPlan:
        """Search from the known values until nothing changes."""
        for a in known_values:
            self._mark_known(a, None)
        self._compute_empty_operands()
        while self.to_compute or self.to_follow or self.to_invert:
            if self.to_compute:
                eqn = self.graph.eqns[self.to_compute.popleft()]
                for v in eqn.outs:
                    self._mark_known(v, eqn)
            elif self.to_follow:
                self._follow_part(*self.to_follow.popleft())
            else:
                k = -heapq.heappop(self.to_invert)
                self.in_heap.discard(k)
                if self.n_unknown[k]:
                    self._invert(k)
        self._refuse_remaining()
        return InversionPlan(self.graph, self.computed_by, self.refusals)

    def _compute_empty_operands(self) -> None:
        """Compute the operands without elements: all such arrays are equal."""
        for v in self.graph.ins:
            if v.aval.size == 0 and v not in self.computed_by:
                # by an equation, not as a literal: transposition counts literal zeros as linear operands
                # (`primitives.linearity.linear_operands`)
                b = self._builder()
                zero = Lit.of(0, v.aval.with_shape(()))
                self._add_step((), b, {v: b.one(BroadcastInDim(v.aval.shape, ()), zero)})

    def _mark_known(self, v: Atom, computed_by: Eqn | BackwardStep | None) -> None:
        """Record how a value is computed (None: it is known from the start), and queue the equations and parts that
        may determine other values now."""
        if isinstance(v, Lit) or v in self.computed_by:
            return
        self.computed_by[v] = computed_by
        for k in self.graph.readers.get(v, ()):
            self.n_unknown[k] -= 1
            if self.n_unknown[k] == 0:
                self.to_compute.append(k)
            else:
                self._queue_inverse(k)
                # if a part of its result is known, it may be inverted on this part now: one operand may be unknown
                result = self.graph.eqns[k].outs[0]
                paths = [path for path, part in self.parts.get(result, {}).items() if isinstance(part, MaskedPart)]
                self.to_follow.extend([(result, path) for path in paths])
        producer = self.graph.index_of_producer.get(v)
        if producer is not None and self.n_unknown[producer]:
            self._queue_inverse(producer)

    def _queue_inverse(self, k: int) -> None:
        """Queue an equation to be run backwards, if enough of its results are known."""
        eqn = self.graph.eqns[k]
        is_known = [v in self.computed_by for v in eqn.outs]
        rule = self.rules.of(eqn.prim)
        needs_all = rule is None or not rule.partial
        enough = all(is_known) if needs_all else any(is_known)
        if enough and k not in self.in_heap:
            self.in_heap.add(k)
            heapq.heappush(self.to_invert, -k)

    def _is_unknown(self, a: Atom) -> bool:
        return isinstance(a, Var) and a not in self.computed_by

    def _unknown_operands(self, eqn: Eqn) -> list[Var]:
        return [a for a in eqn.ins if isinstance(a, Var) and self._is_unknown(a)]

    def _refuse(self, k: int, why: Refused) -> None:
        self.refusals[k] = self.graph.located(why, self.graph.eqns[k])

    def _refuse_remaining(self) -> None:
        """Find the reasons for equations with too few known results: that of the rule, if all results were known."""
        for k, eqn in enumerate(self.graph.eqns):
            if self.n_unknown[k] and k not in self.refusals and any([v in self.computed_by for v in eqn.outs]):
                solved = self._apply_rule(self._builder(), eqn, eqn.outs)
                self._refuse(k, solved if isinstance(solved, Refused) else SOME_RESULTS_UNKNOWN)

    # -------------------------------------------------------------------------------------------- running backwards

    def _invert(self, k: int) -> None:
        """Run an equation backwards, and record its unknown operands or the reason for the refusal."""
        eqn = self.graph.eqns[k]
        b = self._builder(self.measured)
        solved = self._apply_rule(b, eqn)
        if isinstance(solved, Refused):
            self._refuse(k, solved)
            return
        determined: dict[Var, Atom] = {}
        for a, value in zip(eqn.ins, solved, strict=True):
            if isinstance(a, Lit) or value is None or a in self.computed_by:
                continue
            if isinstance(value, PartialValue):
                self._add_part(a, (k,), value)
            else:
                determined.setdefault(a, value)
        if determined:
            self._add_step((eqn,), b, determined)
        elif not any([isinstance(v, PartialValue) for v in solved]):
            self._refuse(k, UNUSED)

    def _apply_rule(self, b: StepBuilder, eqn: Eqn, outs: tuple[Var, ...] = ()) -> Solved | Refused:
        """Apply the inverse rule of an equation to its unknown operands. The results in `outs` count as known."""
        rule = self.rules.of(eqn.prim)
        if rule is None:
            return UNKNOWN_RULE
        if (x := self.graph.value_of_choice(eqn)) is not None:
            return tuple([eqn.outs[0] if a is x else None for a in eqn.ins])
        args = tuple([Hole(a.aval) if self._is_unknown(a) else a for a in eqn.ins])
        unknown = self._unknown_operands(eqn)
        if len(set(unknown)) != len(unknown):
            if not isinstance(eqn.prim, HigherOrder):
                return REPEATED_OPERAND
            # a body may determine a repeated operand at either position, but its determinant is for separate operands
            b.unmeasured = self.graph.located(REPEATED_OPERAND, eqn) if b.measured else None
        results = tuple([v if v in self.computed_by or v in outs else Hole(v.aval) for v in eqn.outs])
        solved = _call_rule(b, rule, eqn, args, results)
        if b.measured and not isinstance(solved, Refused):
            self._measure(b, eqn, rule, solved)
        return solved

    def _measure(
        self,
        b: StepBuilder,
        eqn: Eqn,
        rule: InverseRow,
        solved: Solved,
        part: ChosenPart | None = None,
    ) -> None:
        """Add the log-determinant of an inverted equation to its step, or the reason why it is missing."""
        if rule.partial:
            return  # the rule has added it
        try:
            log_det = log_det_of(b, eqn, rule, solved, part)
        except SizeError as e:
            log_det = Refused(f"its log-determinant needs the sizes: {e.message}")
        except Exception as e:
            locate(e, eqn)
            raise
        if isinstance(log_det, Refused):
            b.unmeasured = self.graph.located(log_det, eqn)
        elif log_det is not None:
            b.measure(log_det)

    def _builder(self, measured: bool = False) -> StepBuilder:
        """Return a builder for the equations of one backward step; if `measured`, they add to the log-determinant.

        Each equation that is inverted counts once. So two kinds of steps are measured: those that invert an equation
        for its whole operands (`_invert`), and those that join the parts of an operand (`_join_parts`), which apply the
        rules along the paths of the parts again. The steps that read a known part are not: they compute an equation
        forward, or they take a slice of the part, which has no term of its own.
        """
        return StepBuilder(self.graph, self.rules, measured)

    def _add_step(self, eqns: tuple[Eqn, ...], b: StepBuilder, computes: dict[Var, Atom]) -> None:
        """Add a backward step that computes values, and marks them as known."""
        for v, a in computes.items():
            assert v.aval is a.aval, (
                f"{[e.prim.name for e in eqns]}: the inverse gives {a.aval} for an operand {v.aval}"
            )
        computed = {v for e in b.eqns for v in e.outs}
        used = dict.fromkeys([*[a for e in b.eqns for a in e.ins], *computes.values(), *b.measures])
        assert used.keys().isdisjoint(computes), "a step computes values that are unknown, and reads those that are not"
        reads = tuple([a for a in used if isinstance(a, Var) and a not in computed])
        step = BackwardStep(eqns, tuple(b.eqns), computes, reads, tuple(b.measures), b.unmeasured)
        for v in computes:
            self._mark_known(v, step)

    # -------------------------------------------------------------------------------------------------------- parts

    def _add_part(self, v: Var, path: InvertedEqns, part: PartialValue) -> None:
        """Record a part of an unknown value. If the parts are complete, joins them to the value. Otherwise looks for
        other values that the part determines."""
        parts = self.parts.setdefault(v, {})
        parts[path] = part
        if complete(v.aval, list(parts.values())):
            self._join_parts(v, tuple(parts))
            return
        k = path[-1]
        scatters = isinstance(self.graph.eqns[k].prim, Scatter)
        self._refuse(k, replace(PARTLY_DETERMINED, remedy=SLICES) if scatters else PARTLY_DETERMINED)
        if isinstance(part, MaskedPart):
            self.to_follow.append((v, path))
        elif isinstance(part, WindowPart):
            self._read_window(v, k, part)

    def _join_parts(self, v: Var, paths: tuple[InvertedEqns, ...]) -> None:
        """Add a step that assembles a value from its parts."""
        b = self._builder(self.measured)
        parts = [part for path in paths if (part := self._emit_part(b, v, path)) is not None]
        eqns = tuple([self.graph.eqns[path[-1]] for path in paths])
        value = assembled_operand(b, v.aval, parts)
        if self.measured and (log_det := log_det_of_parts(b, value, parts)) is not None:
            b.measure(log_det)
        self._add_step(eqns, b, {v: value})

    def _emit_part(self, b: StepBuilder, v: Var, path: InvertedEqns) -> PartialValue | None:
        """Emit the equations of a part into the builder of a step: apply the rules along its path once more. Returns
        the part, over atoms of this builder; None if a value on the path is known by now."""
        first, *rest = [self.graph.eqns[k] for k in path]
        solved = self._apply_rule(b, first)
        assert not isinstance(solved, Refused), "the rule returned this part before"
        part: object = solved[first.ins.index(rest[0].outs[0] if rest else v)]
        for eqn in rest:
            part = self._invert_on_part(b, eqn, part) if isinstance(part, MaskedPart) else None
        return part if isinstance(part, PartialValue) else None

    def _invert_on_part(self, b: StepBuilder, eqn: Eqn, part: MaskedPart) -> PartialValue | Atom | Refused | None:
        """Invert an equation of which only a part of the result is known. Return its unknown operand, or the same
        part of it; None while it has several unknown operands."""
        b.at(eqn)
        if self.graph.value_of_choice(eqn) is not None:
            return part
        operand = invert_at_places(b, eqn, part, self._is_unknown, self.graph.producer.get)
        if operand is not None:
            return operand
        if isinstance(part, MaskPart):
            return SOME_ELEMENTS_UNKNOWN
        rule = self.rules.of(eqn.prim)
        if rule is None or not isinstance(eqn.prim, Unary | Binary):
            return MIXES_ELEMENTS
        if len(self._unknown_operands(eqn)) != 1:
            return None
        args = tuple([Hole(a.aval) if self._is_unknown(a) else where_chosen(b, a, part) for a in eqn.ins])
        solved = _call_rule(b, rule, eqn, args, (part.value,))
        if isinstance(solved, Refused):
            return solved
        (value,) = [x for x in solved if x is not None]
        if isinstance(value, PartialValue):  # the real or the imaginary part of the selected elements
            return MIXES_ELEMENTS
        if b.measured:
            self._measure(b, eqn, rule, solved, part)
        return replace(part, value=value)

    def _follow_part(self, v: Var, path: InvertedEqns) -> None:
        """Determine other values from a part of an unknown value: results of its readers, and operands of its
        producer."""
        part = self.parts[v][path]
        if v not in self.computed_by and isinstance(part, MaskedPart):
            self._compute_readers(v, path, part)
            self._invert_producer(v, path)

    def _compute_readers(self, v: Var, path: InvertedEqns, part: MaskedPart) -> None:
        """Compute the equations that read no other elements of the value than this part."""
        for j in self.graph.readers.get(v, ()):
            reader = self.graph.eqns[j]
            if reader.outs[0] not in self.computed_by and reads_part(reader, v, part, self._is_unknown):
                b = self._builder()
                emitted = self._emit_part(b, v, path)
                if emitted is not None:
                    result = b.one(reader.prim, *[emitted.value if a is v else a for a in reader.ins])
                    self._add_step((reader,), b, {reader.outs[0]: result})

    def _invert_producer(self, v: Var, path: InvertedEqns) -> None:
        """Invert the equation that computed the value, on a part of its result."""
        k = self.graph.index_of_producer.get(v)
        if k is None or k in path:
            return
        eqn = self.graph.eqns[k]
        b = self._builder()
        emitted = self._emit_part(b, v, path) if v not in self.computed_by else None
        if not isinstance(emitted, MaskedPart):
            return
        operand = self._invert_on_part(b, eqn, emitted)
        if isinstance(operand, Refused):
            self._refuse(k, operand)
        elif operand is not None:
            value = self.graph.value_of_choice(eqn)
            (unknown,) = self._unknown_operands(eqn) if value is None else (value,)
            if not isinstance(operand, PartialValue):
                self._add_step((eqn,), b, {unknown: operand})
            elif (*path, k) not in self.parts.get(unknown, {}):
                self._add_part(unknown, (*path, k), operand)

    def _read_window(self, v: Var, k: int, part: WindowPart) -> None:
        """Determine other values from a part that is a window: slices of `v` that lie in it, and operands that the
        equation of `v` put there (joined by a `concatenate`, or written by a `dynamic_update_slice`)."""
        for j in self.graph.readers[v]:
            reader = self.graph.eqns[j]
            window = window_of(reader.prim, v.aval)
            if window is not None and reader.outs[0] not in self.computed_by:
                self._read_slice(v, k, slice_of_part(part, window), reader.outs[0], self.graph.eqns[k])
        for a, window in unchanged_operands(self.graph.producer.get(v)):
            if isinstance(a, Var) and self._is_unknown(a):
                self._read_slice(v, k, slice_of_part(part, window), a, self.graph.producer[v])

    def _read_slice(self, v: Var, k: int, read: Slice | None, target: Var, inverts: Eqn) -> None:
        """Add a step that reads a value from a slice of the part of `v` that equation k determined; no step if the
        part lacks some elements of it."""
        b = self._builder()
        emitted = None if read is None else self._emit_part(b, v, (k,))
        if read is not None and emitted is not None:
            value = emit_reshape(b, b.one(read, emitted.value), target.aval.shape)
            self._add_step((inverts,), b, {target: value})


# --------------------------------------------------------------------------------------------------- rules in one step


class StepBuilder(Builder):
    """The builder of one backward step, and the `BodyCtx` of the rules that write it.

    Its equations are over atoms of the program, and its variables are numbered after those of the program. `measures`
    collects the log-determinants of the rules, if `measured`. `unmeasured` is the reason why one is missing.
    """

    __slots__ = ("_eqn", "_graph", "_rules", "measured", "measures", "unmeasured")

    def __init__(self, graph: Graph, rules: InverseTable, measured: bool) -> None:
        super().__init__()
        self.n = graph.n
        self._graph = graph
        self._rules = rules
        self._eqn: Eqn | None = None
        self.measured = measured
        self.measures: list[Atom] = []
        self.unmeasured: Refused | None = None

    def producer(self, a: Atom) -> Eqn | None:
        return self._graph.producer.get(a)

    def at(self, eqn: Eqn) -> None:
        """Set the equation that is being inverted."""
        self._eqn, self.source = eqn, eqn.source

    def recur(self, body: Jaxpr, known_ins: Flags, known_outs: Flags) -> PartialInverse:
        inverted = partial_inverse(body, known_ins, known_outs, self._rules, self.measured, bool(self._graph.origins))
        if self._graph.origins and self._eqn is not None:
            inverted = inverted.within(body_label(self._eqn, body))
        self.unmeasured = self.unmeasured or inverted.unmeasured
        return inverted

    def measure(self, log_det: Atom) -> None:
        self.measures.append(log_det)


def _call_rule(b: StepBuilder, rule: InverseRow, eqn: Eqn, args: Args, outs: Args) -> Solved | Refused:
    """Return the result of the rule of an equation. An error names the equation."""
    b.at(eqn)
    try:
        return rule.solve(b, eqn.prim, args, outs)
    except SizeError as e:  # the rule computes with the sizes, as numbers
        return Refused(f"its inverse needs the sizes: {e.message}")
    except Exception as e:
        locate(e, eqn)
        raise
