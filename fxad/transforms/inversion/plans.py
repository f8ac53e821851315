"""The data of the inverse solver: the dataflow graph of a program, the plan that a search finds, and its values."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, final

from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Atoms, Eqn, Jaxpr, Lit, Var
from fxad.primitives.elementwise.convert import StopGradient
from fxad.primitives.elementwise.select import SelectN
from fxad.transforms.inversion.rules.contract import Refused
from fxad.transforms.locate import EqnOrigin

UNUSED: Final = Refused("no result depends on it")


@final
@dataclass(frozen=True, slots=True, eq=False)
class BackwardStep:
    """The equations `inverts`, run backwards. `computes` has the values that the step computes. Each has its atom: a
    result of `eqns`, or an atom of the program. `reads` are the values of the program that the step reads.

    `measures` are the log-determinants. `unmeasured` is the reason if some of these are missing.
    """

    inverts: tuple[Eqn, ...]
    eqns: tuple[Eqn, ...]
    computes: Mapping[Var, Atom]
    reads: Atoms
    measures: Atoms = ()
    unmeasured: Refused | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The equation that defines each value of a program, and the indices of those that read it. New values are numbered
    from `n`. `origins`, if any, maps values to equations of the original program."""

    ins: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    producer: Mapping[Atom, Eqn]
    readers: Mapping[Atom, Sequence[int]]
    index_of_producer: Mapping[Atom, int]
    n: int
    origins: Mapping[Atom, EqnOrigin]

    @staticmethod
    def of(jaxpr: Jaxpr, origins: Mapping[Atom, EqnOrigin]) -> Graph:
        """Return the graph of a program. Equations without results are left out."""
        eqns = tuple([e for e in jaxpr.eqns if e.outs])
        return Graph.over(jaxpr.ins, eqns, sum([len(e.outs) for e in eqns]), origins)

    @staticmethod
    def over(ins: tuple[Var, ...], eqns: tuple[Eqn, ...], n: int, origins: Mapping[Atom, EqnOrigin]) -> Graph:
        """Return the graph of equations in any order. New values are numbered from n."""
        producer: dict[Atom, Eqn] = {}
        index: dict[Atom, int] = {}
        readers: dict[Atom, list[int]] = {}
        for k, eqn in enumerate(eqns):
            producer.update(dict.fromkeys(eqn.outs, eqn))
            index.update(dict.fromkeys(eqn.outs, k))
            for a in dict.fromkeys(eqn.ins):
                if isinstance(a, Var):
                    readers.setdefault(a, []).append(k)
        return Graph(ins, eqns, producer, readers, index, n, origins)

    def value_of_choice(self, eqn: Eqn) -> Var | None:
        """Return x for a choice between x and `stop_gradient(x)`: its value is x, its derivative is not that of x.

        A batched `cond` writes `s = stop_gradient x; z = select_n m, s, x` for the operand of a branch: a branch
        that is not taken has no derivative.
        """
        if not isinstance(eqn.prim, SelectN) or len(eqn.ins) != 3:
            return None
        for s, x in (eqn.ins[1:], eqn.ins[:0:-1]):
            stop = self.producer.get(s)
            if isinstance(x, Var) and stop is not None and isinstance(stop.prim, StopGradient) and stop.ins[0] is x:
                return x
        return None

    def located(self, refused: Refused, eqn: Eqn) -> Refused:
        """Return the reason with its equation."""
        return refused.at(self.origins[eqn.outs[0]] if self.origins else EqnOrigin(eqn))


@final
@dataclass(frozen=True, slots=True, eq=False)
class InversionPlan:
    """Maps each known value to the equation or the backward step that computes it; to None if it is known from the
    start. `refusals` are the reasons why equations, given by their indices, are not run backwards."""

    graph: Graph
    computed_by: Mapping[Atom, Eqn | BackwardStep | None]
    refusals: Mapping[int, Refused]

    def determines(self, a: Atom) -> bool:
        """Return True for a literal, and for a value that the known ones determine."""
        return not isinstance(a, Var) or a in self.computed_by

    def why_not(self, v: Atom) -> Refused:
        """Return the reason why a value is not determined: the refusal of the nearest equation between the value and
        the known values."""
        seen: set[Atom] = {v}
        queue = deque([v])
        while queue:
            for k in self.graph.readers.get(queue.popleft(), ()):
                if k in self.refusals:
                    return self.refusals[k]
                for out in self.graph.eqns[k].outs:
                    if out not in self.computed_by and out not in seen:
                        seen.add(out)
                        queue.append(out)
        return UNUSED

    def undetermined_operand(self, v: Var) -> Var:
        """Return the first undetermined operand on which an undetermined value depends."""
        seen: set[Atom] = {v}
        stack: list[Atom] = [v]
        while stack:
            eqn = self.graph.producer.get(stack.pop())
            more = [a for a in (eqn.ins if eqn else ()) if not self.determines(a) and a not in seen]
            seen.update(more)
            stack += more
        return next(x for x in self.graph.ins if x in seen)


# ----------------------------------------------------------------------------------------------------------- emission


@final
@dataclasses.dataclass(slots=True, eq=False)
class LazyValues:
    """Emits values of a program into a builder on demand, each once. `env` maps values of the program to their atoms in
    the builder, as far as they are emitted.

    `steps` are the backward steps that were emitted, each with the atoms of its values. `inverted` has for each step,
    and for each equation whose ivjp was emitted, the values that it reconstructed and those that it read.
    """

    b: Builder
    plan: InversionPlan
    env: dict[Atom, Atom]
    steps: dict[BackwardStep, dict[Atom, Atom]] = field(default_factory=dict)
    inverted: list[tuple[Atoms, Atoms]] = field(default_factory=list)

    def get(self, a: Atom) -> Atom:
        """Return the value of an atom that the plan determines."""
        stack = [a]
        while stack:
            top = stack[-1]
            if isinstance(top, Lit) or top in self.env:
                stack.pop()
                continue
            step = self.plan.computed_by[top]
            assert step is not None, f"{top!r} has no value"
            reads = step.ins if isinstance(step, Eqn) else step.reads
            missing = [r for r in reads if isinstance(r, Var) and r not in self.env]
            if missing:
                stack += missing
                continue
            self._emit(step)
        return a if isinstance(a, Lit) else self.env[a]

    def _emit(self, step: Eqn | BackwardStep) -> None:
        env = self.env
        if isinstance(step, Eqn):
            for v, value in zip(step.outs, self.b.copy(step, substitute(step.ins, env)), strict=True):
                env.setdefault(v, value)
            return
        local: dict[Atom, Atom] = {}
        for eqn in step.eqns:
            ins = tuple([local[a] if a in local else env.get(a, a) for a in eqn.ins])
            local.update(zip(eqn.outs, self.b.copy(eqn, ins), strict=True))
        for v, a in step.computes.items():
            local[v] = local.get(a) or env.get(a, a)
            env.setdefault(v, local[v])
        self.steps[step] = local
        self.inverted.append((tuple(step.computes), step.reads))

    def last_reconstructed(self) -> list[Atom]:
        """Return the reconstructed values from which no other value was reconstructed. Errors of the reconstruction
        accumulate in them."""
        reconstructed = dict.fromkeys([v for values, _ in self.inverted for v in values])
        stack, seen = [a for _, reads in self.inverted for a in reads], set[Atom]()
        while stack:
            a = stack.pop()
            if a not in seen:
                seen.add(a)
                step = self.plan.computed_by.get(a)
                stack += step.ins if isinstance(step, Eqn) and a not in reconstructed else ()
        return [v for v in reconstructed if v not in seen]

    def measures(self) -> list[Atom]:
        """Return the log-determinants of the emitted steps."""
        return [local[a] if a in local else self.env.get(a, a) for s, local in self.steps.items() for a in s.measures]
