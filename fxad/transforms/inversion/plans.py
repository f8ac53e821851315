"""What a search for the values that known ones determine works on, and what it finds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from fxad.ir import Atom, Eqn, Jaxpr, Var, place
from fxad.transforms.inversion.normal_form import Origin
from fxad.transforms.inversion.rules.contract import Refused
from fxad.transforms.locate import describe

UNUSED: Final = Refused("no result depends on it")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Equations run backwards: `eqns` compute, over atoms of the program and `fresh` ones, the operands in `gives`.

    `measures` are the log-determinants of it, `unmeasured` says why they are not all there."""

    of: tuple[Eqn, ...]
    eqns: tuple[Eqn, ...]
    gives: Mapping[Var, Atom]
    reads: tuple[Atom, ...]
    measures: tuple[Atom, ...] = ()
    unmeasured: Refused | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Who makes and who reads each value of a program; `origins`, if any, say what its equations stand for."""

    ins: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    maker: Mapping[Atom, Eqn]
    readers: Mapping[Atom, Sequence[int]]
    number: Mapping[Atom, int]
    n: int
    origins: Mapping[Atom, Origin]

    @staticmethod
    def of(jaxpr: Jaxpr, origins: Mapping[Atom, Origin]) -> Graph:
        """Of a program. Equations without results say nothing."""
        eqns = tuple([e for e in jaxpr.eqns if e.outs])
        return Graph.over(jaxpr.ins, eqns, sum([len(e.outs) for e in eqns]), origins)

    @staticmethod
    def over(ins: tuple[Var, ...], eqns: tuple[Eqn, ...], n: int, origins: Mapping[Atom, Origin]) -> Graph:
        """Of equations in any order; new values are numbered from n."""
        maker: dict[Atom, Eqn] = {}
        number: dict[Atom, int] = {}
        readers: dict[Atom, list[int]] = {}
        for k, eqn in enumerate(eqns):
            maker.update(dict.fromkeys(eqn.outs, eqn))
            number.update(dict.fromkeys(eqn.outs, k))
            for a in dict.fromkeys(eqn.ins):
                if isinstance(a, Var):
                    readers.setdefault(a, []).append(k)
        return Graph(ins, eqns, maker, readers, number, n, origins)

    def located(self, refused: Refused, eqn: Eqn) -> Refused:
        """The reason, with the equation it is about."""
        origin = self.origins[eqn.outs[0]] if self.origins else Origin(eqn)
        of = origin.eqn
        return refused.located(of.prim.name, describe(of), str(place(of.source) or "")).within(*origin.inside)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How each value that the known ones determine is computed: by its equation, by a step backwards; None: known."""

    graph: Graph
    ways: Mapping[Atom, Eqn | Step | None]
    refusals: Mapping[int, Refused]

    def why_not(self, v: Atom) -> Refused:
        """Why a value is not determined: the equation that would have to be run backwards and cannot be."""
        return next(self.reasons(v), UNUSED)

    def reasons(self, v: Atom) -> Iterator[Refused]:
        """The equations that stand between a value and what is known, the nearest first."""
        seen: set[Atom] = {v}
        queue = deque([v])
        while queue:
            for k in self.graph.readers.get(queue.popleft(), ()):
                if k in self.refusals:
                    yield self.refusals[k]
                for out in self.graph.eqns[k].outs:
                    if out not in self.ways and out not in seen:
                        seen.add(out)
                        queue.append(out)

    def needed(self, v: Var) -> Var:
        """The first operand that is not determined and that a value which is not determined is computed from."""
        seen: set[Atom] = {v}
        stack: list[Atom] = [v]
        while stack:
            eqn = self.graph.maker.get(stack.pop())
            more = [a for a in eqn.ins if isinstance(a, Var) and a not in self.ways and a not in seen] if eqn else []
            seen.update(more)
            stack += more
        return next(x for x in self.graph.ins if x in seen)
