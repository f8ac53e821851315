"""Inverts programs: finds the values that the known ones determine, and emits equations that compute them on demand.

The solver works on the dataflow graph, so the order of equations does not matter. It repeats two steps until nothing
changes. It computes an equation whose operands are known. It runs an equation backwards whose results are known, by the
inverse rule of its primitive, if that gives unknown operands. Then values are emitted on demand, each once, so a value
is computed where it is first read. The docstring of the package has an example.

Parts. A choice or a slice gives only some elements of an operand: a `PartialValue`. The solver collects the parts of
each unknown value, and joins them when they are complete. Before that, a part may already determine other values. In
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
    ...         print(value, step.prim.name if step else "given")
    %arg1 given
    %3 given
    %0 ['select_n'] backward
    %1 exp
    %arg0 ['select_n', 'mul'] backward
    %2 mul

1. The last choice runs backwards. It gives a part of `%arg0` (where m is False), with the path (3,), and a part of `%2`
   (where m is True), with the path (3,). The path of a part lists the equations that were inverted to obtain it.
2. Neither is complete. But the first choice, `%0`, reads of `%arg0` only the elements of the first part
   (`_determine_readers`). So it is known, and then `%1`.
3. Now `mul` has one unknown operand, and is inverted on the part of `%2` (`_invert_part`). This gives a second part of
   `%arg0`, with the path (3, 2).
4. The two parts are complete, and are joined to `%arg0` (`_join_parts`). The equations of both paths are emitted again,
   into one step: parts keep no equations of their own.

The kinds of parts are classes (`PartialValue` in `rules/contract.py`). Only parts that a selector chose, or whose
elements a constant mask marks, pass through equations as in step 3 (`Followed`). A box determines slices that lie in
it, and pieces that were joined to the value (`_read_box`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder, substitute
from fxad.core.memo import by_value
from fxad.errors import SizeError
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Hole, Jaxpr, Lit, Mask, Var
from fxad.primitives.control.bodies import select_by_mask
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.gather_scatter import Scatter
from fxad.primitives.shape import BroadcastInDim, emit_reshape
from fxad.primitives.slicing import Slice
from fxad.transforms.inversion.mask_couplings import sums_as_choices
from fxad.transforms.inversion.normal_form import NO_ORIGINS, backward_form
from fxad.transforms.inversion.plans import UNUSED, BackwardStep, Graph, InversionPlan
from fxad.transforms.inversion.rules.assembling import assembled, complete, slice_of_box, where_chosen
from fxad.transforms.inversion.rules.contract import (
    Args,
    BoxPart,
    ChosenPart,
    InverseRow,
    InverseTable,
    MaskPart,
    PartialInverse,
    PartialValue,
    Refused,
)
from fxad.transforms.inversion.rules.indexing import SLICES
from fxad.transforms.inversion.rules.measuring import log_det_of, log_det_of_parts, total_log_det
from fxad.transforms.inversion.rules.placing import reads_part, through_places, windows_of
from fxad.transforms.inversion.rules.structure import box_of
from fxad.transforms.locate import EqnOrigin, body_label, locate

# The indices of the equations that were inverted to obtain a part, from the last to the first: see the docstring.
Path: TypeAlias = tuple[int, ...]

# The parts that may determine other values: see the docstring.
Followed: TypeAlias = ChosenPart | MaskPart

UNKNOWN_RULE: Final = Refused("it has no inverse rule")
REPEATED_OPERAND: Final = Refused("an unknown operand stands in it twice")
PARTLY_DETERMINED: Final = Refused(
    "its results determine some elements of the operand, and the others are not found elsewhere",
    "return the other elements too, as they are or changed by what stays",
)
MIXES_ELEMENTS: Final = Refused("its results are known only where a mask chose them, and it mixes elements")
SOME_RESULTS_UNKNOWN: Final = Refused("not all of its results are known")


class RuleBuilder(Builder):
    """The `BodyCtx` of the rules: a builder of equations over the atoms of the program. Its variables are numbered
    after those of the program."""

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

    def made(self, a: Atom) -> Eqn | None:
        return self._graph.producer.get(a)

    def at(self, eqn: Eqn) -> None:
        """Sets the equation that is being inverted."""
        self._eqn, self.source = eqn, eqn.source

    def recur(self, body: Jaxpr, ins: Mask, outs: Mask) -> PartialInverse:
        inverted = partial_inverse(body, ins, outs, self._rules, self.measured, bool(self._graph.origins))
        if self._graph.origins and self._eqn is not None:
            inverted = inverted.within(body_label(self._eqn, body))
        self.unmeasured = self.unmeasured or inverted.unmeasured
        return inverted

    def measure(self, log_det: Atom) -> None:
        self.measures.append(log_det)


class _Search:
    """One search for the values that the known ones determine."""

    def __init__(self, graph: Graph, rules: InverseTable, measured: bool) -> None:
        self.graph, self.rules, self.measured = graph, rules, measured
        self.computed_by: dict[Atom, Eqn | BackwardStep | None] = {}
        self.refusals: dict[int, Refused] = {}
        # the parts of each value, by their paths
        self.parts: dict[Var, dict[Path, PartialValue]] = {}
        self.followed: deque[tuple[Var, Path]] = deque()  # parts that may determine other values
        self.missing = [len({a for a in e.ins if isinstance(a, Var)}) for e in graph.eqns]
        self.forward: deque[int] = deque([k for k, m in enumerate(self.missing) if m == 0])
        self.backward: list[int] = []  # a heap, of negative numbers: the last equation first
        self.waiting: set[int] = set()

    def mark_known(self, v: Atom, computed_by: Eqn | BackwardStep | None) -> None:
        """Records how a value is computed (None: it is given), and queues the equations that it may determine."""
        if isinstance(v, Lit) or v in self.computed_by:
            return
        self.computed_by[v] = computed_by
        for k in self.graph.readers.get(v, ()):
            self.missing[k] -= 1
            if self.missing[k] == 0:
                self.forward.append(k)
            else:
                self._queue_inverse(k)
                result = self.graph.eqns[k].outs[0]
                paths = [path for path, part in self.parts.get(result, {}).items() if isinstance(part, Followed)]
                self.followed.extend([(result, path) for path in paths])
        k = self.graph.index_of_producer.get(v, -1)
        if k >= 0 and self.missing[k]:
            self._queue_inverse(k)

    def _queue_inverse(self, k: int) -> None:
        """Queues an equation to be run backwards, if enough of its results are known."""
        eqn = self.graph.eqns[k]
        known = [v in self.computed_by for v in eqn.outs]
        rule = self.rules.of(eqn.prim)
        if any(known) and (all(known) or (rule is not None and rule.partial)) and k not in self.waiting:
            self.waiting.add(k)
            heapq.heappush(self.backward, -k)

    def run(self, given: Iterable[Atom]) -> InversionPlan:
        for a in given:
            self.mark_known(a, None)
        for v in self.graph.ins:
            if not v.aval.size and v not in self.computed_by:  # all arrays without elements are equal
                # by an equation: a linear call would take a literal zero among its other operands for a linear operand
                scratch = self._scratch()
                zero = Lit.of(0, v.aval.with_shape(()))
                self._add_step((), scratch, {v: scratch.one(BroadcastInDim(v.aval.shape, ()), zero)})
        while self.forward or self.followed or self.backward:
            if self.forward:
                eqn = self.graph.eqns[self.forward.popleft()]
                for v in eqn.outs:
                    self.mark_known(v, eqn)
            elif self.followed:
                self._follow_part(*self.followed.popleft())
            else:
                k = -heapq.heappop(self.backward)
                self.waiting.discard(k)
                if self.missing[k]:
                    self._invert(k)
        for k, eqn in enumerate(self.graph.eqns):
            if self.missing[k] and k not in self.refusals and any([v in self.computed_by for v in eqn.outs]):
                solved = self._apply_rule(self._scratch(), eqn, eqn.outs)
                self.refusals[k] = self.graph.located(
                    solved if isinstance(solved, Refused) else SOME_RESULTS_UNKNOWN, eqn
                )
        return InversionPlan(self.graph, self.computed_by, self.refusals)

    # --------------------------------------------------------------------------------------------- running backwards

    def _invert(self, k: int) -> None:
        """Runs an equation backwards, and records its unknown operands or the reason for the refusal."""
        eqn = self.graph.eqns[k]
        scratch = self._scratch(self.measured)
        solved = self._apply_rule(scratch, eqn)
        if isinstance(solved, Refused):
            self.refusals[k] = self.graph.located(solved, eqn)
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
            self._add_step((eqn,), scratch, determined)
        elif not any([isinstance(v, PartialValue) for v in solved]):
            self.refusals[k] = self.graph.located(UNUSED, eqn)

    def _apply_rule(
        self, scratch: RuleBuilder, eqn: Eqn, outs: tuple[Var, ...] = ()
    ) -> Sequence[Atom | PartialValue | None] | Refused:
        """Applies the inverse rule of an equation to its unknown operands; `outs` are also taken to be known."""
        rule = self.rules.of(eqn.prim)
        if rule is None:
            return UNKNOWN_RULE
        args = tuple([Hole(a.aval) if self._unknown(a) else a for a in eqn.ins])
        unknown = self._unknown_operands(eqn)
        if len(set(unknown)) != len(unknown):
            if not isinstance(eqn.prim, HigherOrder):
                return REPEATED_OPERAND
            # a body may determine a repeated operand at either position, but its determinant is for separate operands
            scratch.unmeasured = self.graph.located(REPEATED_OPERAND, eqn) if scratch.measured else None
        scratch.at(eqn)
        results = tuple([v if v in self.computed_by or v in outs else Hole(v.aval) for v in eqn.outs])
        solved = _call_rule(scratch, rule, eqn, args, results)
        if scratch.measured and not isinstance(solved, Refused):
            self._measure(scratch, eqn, rule, solved)
        return solved

    def _measure(
        self,
        scratch: RuleBuilder,
        eqn: Eqn,
        rule: InverseRow,
        solved: Sequence[Atom | PartialValue | None],
        part: ChosenPart | None = None,
    ) -> None:
        if rule.partial:
            return
        try:
            measured = log_det_of(scratch, eqn, rule, solved, part)
        except SizeError as e:
            measured = Refused(f"its log-determinant needs the sizes: {e.message}")
        except Exception as e:
            locate(e, eqn)
            raise
        if isinstance(measured, Refused):
            scratch.unmeasured = self.graph.located(measured, eqn)
        elif measured is not None:
            scratch.measure(measured)

    def _unknown(self, a: Atom) -> bool:
        return isinstance(a, Var) and a not in self.computed_by

    def _unknown_operands(self, eqn: Eqn) -> list[Var]:
        return [a for a in eqn.ins if isinstance(a, Var) and self._unknown(a)]

    def _scratch(self, measured: bool = False) -> RuleBuilder:
        """Returns a builder for the equations of one backward step."""
        return RuleBuilder(self.graph, self.rules, measured)

    # ------------------------------------------------------------------------------------------------------- parts

    def _add_part(self, v: Var, path: Path, part: PartialValue) -> None:
        """Records a part of an operand. If the parts are complete, joins them to the operand. Otherwise looks for
        values that the part determines."""
        parts = self.parts.setdefault(v, {})
        parts[path] = part
        if complete(v.aval, list(parts.values())):
            self._join_parts(v, tuple(parts))
            return
        inverted = self.graph.eqns[path[-1]]
        scatters = isinstance(inverted.prim, Scatter)
        refused = replace(PARTLY_DETERMINED, remedy=SLICES) if scatters else PARTLY_DETERMINED
        self.refusals[path[-1]] = self.graph.located(refused, inverted)
        if isinstance(part, Followed):
            self.followed.append((v, path))
        elif isinstance(part, BoxPart):
            self._read_box(v, path[-1], part)

    def _join_parts(self, v: Var, paths: tuple[Path, ...]) -> None:
        """Assembles an operand from the parts that several equations give."""
        scratch = self._scratch(self.measured)
        parts = [part for path in paths if (part := self._emit_part(scratch, v, path)) is not None]
        eqns = tuple([self.graph.eqns[path[-1]] for path in paths])
        operand = assembled(scratch, v.aval, parts)
        if self.measured and (lost := log_det_of_parts(scratch, operand, parts)) is not None:
            scratch.measure(lost)
        self._add_step(eqns, scratch, {v: operand})

    def _emit_part(self, scratch: RuleBuilder, v: Var, path: Path) -> PartialValue | None:
        """Emits the equations of a part into another scratch builder: applies the rules along its path once more.
        Returns the part, which then reads atoms of this builder; None if a value on the path is known by now."""
        first, *rest = [self.graph.eqns[k] for k in path]
        solved = self._apply_rule(scratch, first)
        assert not isinstance(solved, Refused), "an equation gave this part before"
        part: object = solved[first.ins.index(rest[0].outs[0] if rest else v)]
        for eqn in rest:
            part = self._invert_part(scratch, eqn, part) if isinstance(part, Followed) else None
        return part if isinstance(part, PartialValue) else None

    def _invert_part(self, scratch: RuleBuilder, eqn: Eqn, part: Followed) -> PartialValue | Atom | Refused:
        """Inverts an equation of which only a part of the result is known. Returns its unknown operand, or the same
        part of it."""
        scratch.at(eqn)
        if (placed := through_places(scratch, eqn, part, self._unknown, self.graph.producer.get)) is not None:
            return placed
        rule = self.rules.of(eqn.prim)
        if rule is None or not isinstance(part, ChosenPart) or not isinstance(eqn.prim, Unary | Binary):
            return MIXES_ELEMENTS
        if len(self._unknown_operands(eqn)) != 1:
            return REPEATED_OPERAND
        args = tuple([Hole(a.aval) if self._unknown(a) else where_chosen(scratch, a, part) for a in eqn.ins])
        solved = _call_rule(scratch, rule, eqn, args, (part.value,))
        if isinstance(solved, Refused):
            return solved
        (value,) = [x for x in solved if x is not None]
        if isinstance(value, PartialValue):  # the real or the imaginary part of the selected elements
            return MIXES_ELEMENTS
        if scratch.measured:
            self._measure(scratch, eqn, rule, solved, part)
        return replace(part, value=value)

    def _follow_part(self, v: Var, path: Path) -> None:
        """Determines other values from a part that a mask selected."""
        part = self.parts[v][path]
        if v not in self.computed_by and isinstance(part, Followed):
            self._determine_readers(v, path, part)
            self._invert_producer(v, path)

    def _determine_readers(self, v: Var, path: Path, part: Followed) -> None:
        """Computes the equations that read no other elements of the value than this part."""
        for j in self.graph.readers.get(v, ()):
            reader = self.graph.eqns[j]
            if reader.outs[0] not in self.computed_by and reads_part(reader, v, part, self._unknown):
                scratch = self._scratch()
                again = self._emit_part(scratch, v, path)
                if again is not None:
                    result = scratch.one(reader.prim, *[again.value if a is v else a for a in reader.ins])
                    self._add_step((reader,), scratch, {reader.outs[0]: result})

    def _invert_producer(self, v: Var, path: Path) -> None:
        """Inverts the equation that computed the value, on a part of its result."""
        k = self.graph.index_of_producer.get(v, -1)
        if k < 0 or k in path:
            return
        eqn = self.graph.eqns[k]
        scratch = self._scratch()
        part = self._emit_part(scratch, v, path) if v not in self.computed_by else None
        if not isinstance(part, Followed):
            return
        operand = self._invert_part(scratch, eqn, part)
        if isinstance(operand, Refused):
            if operand is not REPEATED_OPERAND:
                self.refusals[k] = self.graph.located(operand, eqn)
            return
        (unknown,) = self._unknown_operands(eqn)
        if not isinstance(operand, PartialValue):
            self._add_step((eqn,), scratch, {unknown: operand})
        elif (*path, k) not in self.parts.get(unknown, {}):
            self._add_part(unknown, (*path, k), operand)

    def _read_box(self, v: Var, k: int, part: BoxPart) -> None:
        """Determines other values from a part that is a box: slices of `v` that lie in it, and operands that the
        equation of `v` put there (joined by a `concatenate`, or written by a `dynamic_update_slice`)."""
        for j in self.graph.readers[v]:
            reader = self.graph.eqns[j]
            box = box_of(reader.prim, v.aval)
            if box is not None and reader.outs[0] not in self.computed_by:
                self._read_window(v, k, slice_of_box(part, box), reader.outs[0], self.graph.eqns[k])
        for a, box in windows_of(self.graph.producer.get(v)):
            if isinstance(a, Var) and self._unknown(a):
                self._read_window(v, k, slice_of_box(part, box), a, self.graph.producer[v])

    def _read_window(self, v: Var, k: int, window: Slice | None, target: Var, inverts: Eqn) -> None:
        """Adds a step that reads a value from a window of the part of `v` that equation k gave; no step if the part
        lacks some elements of the window."""
        scratch = self._scratch()
        again = None if window is None else self._emit_part(scratch, v, (k,))
        if window is not None and again is not None:
            value = emit_reshape(scratch, scratch.one(window, again.value), target.aval.shape)
            self._add_step((inverts,), scratch, {target: value})

    def _add_step(self, eqns: tuple[Eqn, ...], scratch: RuleBuilder, gives: dict[Var, Atom]) -> None:
        """Adds a backward step that gives values, and marks them as known."""
        for v, a in gives.items():
            assert v.aval is a.aval, (
                f"{[e.prim.name for e in eqns]}: the inverse gives {a.aval} for an operand {v.aval}"
            )
        fresh = {v for e in scratch.eqns for v in e.outs}
        used = dict.fromkeys([*[a for e in scratch.eqns for a in e.ins], *gives.values(), *scratch.measures])
        reads = tuple([a for a in used if isinstance(a, Var) and a not in fresh and a not in gives])
        step = BackwardStep(eqns, tuple(scratch.eqns), gives, reads, tuple(scratch.measures), scratch.unmeasured)
        for v in gives:
            self.mark_known(v, step)


def _call_rule(
    scratch: RuleBuilder, rule: InverseRow, eqn: Eqn, args: Args, outs: Args
) -> Sequence[Atom | PartialValue | None] | Refused:
    """Returns what the rule of an equation gives. An error names the equation."""
    try:
        return rule.solve(scratch, eqn.prim, args, outs)
    except SizeError as e:  # the rule computes with the sizes, as numbers
        return Refused(f"its inverse needs the sizes: {e.message}")
    except Exception as e:
        locate(e, eqn)
        raise


def find_plan(
    jaxpr: Jaxpr,
    given: Iterable[Atom],
    rules: InverseTable,
    measured: bool = False,
    origins: Mapping[Atom, EqnOrigin] = NO_ORIGINS,
) -> InversionPlan:
    """Returns how to compute the values of a program that the given atoms determine.

    `origins` maps values to equations of the original program, for messages.

    Rule: if not all operands are determined, sums of masked values are also tried as choices.
    """
    graph, given = Graph.of(jaxpr, origins), tuple(given)
    plan = _Search(graph, rules, measured).run(given)
    if all([v in plan.computed_by for v in jaxpr.ins]):
        return plan
    again = sums_as_choices(graph, plan.computed_by)
    other = again and _Search(again, rules, measured).run(given)
    return other if other and _count_determined(jaxpr, other) > _count_determined(jaxpr, plan) else plan


def _count_determined(jaxpr: Jaxpr, plan: InversionPlan) -> int:
    return sum([v in plan.computed_by for v in jaxpr.ins])


# ---------------------------------------------------------------------------------------------------------- on demand


@final
@dataclass(slots=True, eq=False)
class LazyValues:
    """Emits values of a program into a builder on demand, each once. `env` holds the values that are available."""

    b: Builder
    plan: InversionPlan
    env: dict[Atom, Atom]
    steps: dict[BackwardStep, dict[Atom, Atom]] = field(default_factory=dict)  # the emitted steps, with their new atoms
    # for each inverted equation: the values that it gave, and the values that it read
    inverted: list[tuple[Atoms, Atoms]] = field(default_factory=list)

    def get(self, a: Atom) -> Atom:
        """Returns the value of an atom that the plan determines."""
        stack = [a]
        while stack:
            top = stack[-1]
            if isinstance(top, Lit) or top in self.env:
                stack.pop()
                continue
            source = self.plan.computed_by[top]
            assert source is not None, f"{top!r} is not given"
            reads = source.ins if isinstance(source, Eqn) else source.reads
            missing = [r for r in reads if isinstance(r, Var) and r not in self.env]
            if missing:
                stack += missing
                continue
            self._emit(source)
        return a if isinstance(a, Lit) else self.env[a]

    def _emit(self, source: Eqn | BackwardStep) -> None:
        env = self.env
        if isinstance(source, Eqn):
            for v, value in zip(source.outs, self.b.copy(source, substitute(source.ins, env)), strict=True):
                env.setdefault(v, value)
            return
        local: dict[Atom, Atom] = {}
        for eqn in source.eqns:
            ins = tuple([local[a] if a in local else env.get(a, a) for a in eqn.ins])
            local.update(zip(eqn.outs, self.b.copy(eqn, ins), strict=True))
        for v, a in source.gives.items():
            local[v] = local.get(a) or env.get(a, a)
            env.setdefault(v, local[v])
        self.steps[source] = local
        self.inverted.append((tuple(source.gives), source.reads))

    def last_reconstructed(self) -> list[Atom]:
        """Returns the reconstructed values from which no other value was reconstructed. Errors of the reconstruction
        accumulate in them."""
        reconstructed = dict.fromkeys([v for gives, _ in self.inverted for v in gives])
        stack, seen = [a for _, reads in self.inverted for a in reads], set[Atom]()
        while stack:
            a = stack.pop()
            if a not in seen:
                seen.add(a)
                source = self.plan.computed_by.get(a)
                stack += source.ins if isinstance(source, Eqn) and a not in reconstructed else ()
        return [v for v in reconstructed if v not in seen]

    def measures(self) -> list[Atom]:
        """Returns the log-determinants of the emitted steps."""
        return [local[a] if a in local else self.env.get(a, a) for s, local in self.steps.items() for a in s.measures]


@by_value
def partial_inverse(
    jaxpr: Jaxpr, ins: Mask, outs: Mask, rules: InverseTable, measured: bool = False, located: bool = False
) -> PartialInverse:
    """Runs a program backwards as far as possible, from the results marked in `outs` and the operands marked in `ins`.

    `located`: reasons name equations of the program itself, not of its normal form, and the bodies that contain them.

    Rule: equal equations are merged: a value that is computed twice is known if one of the two is known.
    Cost: one search; linear in the equations if each is inverted once.
    """
    program = Jaxpr(jaxpr.ins, jaxpr.eqns, select_by_mask(jaxpr.outs, outs), jaxpr.name)
    normal, origins = backward_form(program, located)
    known_ins = select_by_mask(jaxpr.ins, ins)
    plan = find_plan(normal, (*known_ins, *normal.outs), rules, measured, origins)
    b = Builder()
    env: dict[Atom, Atom] = {}
    for a, value in zip(normal.outs, b.inputs(normal.out_avals), strict=True):
        env.setdefault(a, value)
    env.update(zip(known_ins, b.inputs([v.aval for v in known_ins]), strict=True))
    solved = tuple([v in plan.computed_by and not k for v, k in zip(jaxpr.ins, ins, strict=True)])
    lazy = LazyValues(b, plan, env)
    values = [lazy.get(v) for v in select_by_mask(jaxpr.ins, solved)]
    missing = [v for v in jaxpr.ins if v not in plan.computed_by]
    refused = plan.why_not(missing[0]) if missing else None
    unmeasured: Refused | None = None
    if measured:
        values.append(total_log_det(b, lazy.measures(), [v.aval for v in select_by_mask(jaxpr.ins, solved)]))
        unmeasured = next((s.unmeasured for s in lazy.steps if s.unmeasured), None)
    return PartialInverse(b.build(values, f"inverse_{jaxpr.name}"), solved, refused, unmeasured)
