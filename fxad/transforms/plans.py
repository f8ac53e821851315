"""What a search for the values that known ones determine works on, and what it finds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from fxad.ir import Atom, Eqn, Jaxpr, Var
from fxad.transforms.inverse_rules.contract import Refused

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
    """Who makes and who reads each value of a program."""

    jaxpr: Jaxpr
    maker: Mapping[Atom, Eqn]
    readers: Mapping[Atom, Sequence[int]]
    number: Mapping[Atom, int]
    n: int

    @staticmethod
    def of(jaxpr: Jaxpr) -> Graph:
        maker: dict[Atom, Eqn] = {}
        number: dict[Atom, int] = {}
        readers: dict[Atom, list[int]] = {}
        for k, eqn in enumerate(jaxpr.eqns):
            maker.update(dict.fromkeys(eqn.outs, eqn))
            number.update(dict.fromkeys(eqn.outs, k))
            for a in dict.fromkeys(eqn.ins):
                if isinstance(a, Var):
                    readers.setdefault(a, []).append(k)
        return Graph(jaxpr, maker, readers, number, len(number))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How each value that the known ones determine is computed: by its equation, by a step backwards; None: known."""

    graph: Graph
    ways: Mapping[Atom, Eqn | Step | None]
    refusals: Mapping[int, Refused]

    def why_not(self, v: Atom) -> Refused:
        """Why a value is not determined: the equation that would have to be run backwards and cannot be."""
        seen: set[Atom] = {v}
        queue = deque([v])
        while queue:
            for k in self.graph.readers.get(queue.popleft(), ()):
                if k in self.refusals:
                    return self.refusals[k]
                for out in self.graph.jaxpr.eqns[k].outs:
                    if out not in self.ways and out not in seen:
                        seen.add(out)
                        queue.append(out)
        return UNUSED

    def needed(self, v: Var) -> Var:
        """The first operand that is not determined and that a value which is not determined is computed from."""
        seen: set[Atom] = {v}
        stack: list[Atom] = [v]
        while stack:
            eqn = self.graph.maker.get(stack.pop())
            more = [a for a in eqn.ins if isinstance(a, Var) and a not in self.ways and a not in seen] if eqn else []
            seen.update(more)
            stack += more
        return next(x for x in self.graph.jaxpr.ins if x in seen)
