"""The linear program of an inverted program, cut at the equations that are inverted and transposed as one.

`CutLinearization` is `linearize` with one difference. An equation with an ivjp is not linearized: it stays in the
primal program, and the linear program ends before it and begins anew after it, with the tangents of its results as
operands (`Cut`). For f(x) = sin(call(exp(x))), where the call has an ivjp,

    primal      e = exp x        y = call e        z = sin y       c = cos y
    linear      e_dot = x_dot * e     | cut |     z_dot = y_dot * c
"""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import Final, final

from fxad.core.builder import substitute
from fxad.core.dataclasses import dataclass
from fxad.errors import FxadError
from fxad.ir import (
    Atom,
    Atoms,
    Eqn,
    Flags,
    Jaxpr,
    Lin,
    Tangent,
    Tangents,
    Var,
    Zero,
    as_lin,
)
from fxad.primitives.custom import CallWithRules
from fxad.transforms.ad.linearize import LinearizeBuilder
from fxad.transforms.inversion.reversible_adjoint import IvjpEqn
from fxad.transforms.locate import EqnOrigin, bodies_around, locate

NO_IVJP: Final[Mapping[Var, Flags]] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """An equation with an ivjp, at which the linear program is cut: before its equation number `place`. The tangents of
    the results of the equation are operands of the linear program."""

    place: int
    ivjp_eqn: IvjpEqn
    tangents_in: tuple[Tangent, ...]
    tangents_out: tuple[Tangent, ...]


@final
class CutLinearization(LinearizeBuilder):
    """A program that is linearized equation by equation.

    `primal` is the primal program, without residuals as results, and `linear` the builder of the linear program, cut at
    `cuts`. `atoms` and `tangents` map values of the program to their atoms in the two, and `origins` maps values of the
    primal program to equations of the original program.
    """

    __slots__ = ("atoms", "cuts", "origins", "primal", "tangents")
    primal: Jaxpr
    atoms: dict[Atom, Atom]
    tangents: dict[Atom, Lin]
    cuts: list[Cut]
    origins: dict[Atom, EqnOrigin]

    @classmethod
    def of(
        cls,
        jaxpr: Jaxpr,
        perturbed: Flags,
        origins: Mapping[Atom, EqnOrigin],
        *,
        with_ivjp: Mapping[Var, Flags] = NO_IVJP,
        inverted_whole: AbstractSet[Var] = frozenset(),
    ) -> CutLinearization:
        """Split a program. `with_ivjp` has the known operands of the equations at which the linear program is cut.
        `inverted_whole` are equations to run backwards as they are. Equations are given by their first results.
        `origins`, if any, are those of the values of the program."""
        linearized = cls.like(jaxpr)
        linearized.origins = {}
        linearized.cuts = []
        linearized.atoms = {v: v for v in jaxpr.ins}
        linearized.tangents = {
            v: as_lin(linearized.linear.input(v.aval)) for v, m in zip(jaxpr.ins, perturbed, strict=True) if m
        }
        for eqn in jaxpr.eqns:
            start = len(linearized.eqns)
            known_ins = with_ivjp.get(eqn.outs[0])
            origin = origins.get(eqn.outs[0], EqnOrigin(eqn))
            linearized._add(eqn, origin, known_ins, eqn.outs[0] in inverted_whole)
            if origins:
                for e in linearized.eqns[start:]:
                    linearized.origins.update(dict.fromkeys(e.outs, replace(origin, name=e.prim.name)))
        linearized.primal = linearized.build(substitute(jaxpr.outs, linearized.atoms), jaxpr.name)
        return linearized

    def _add(self, eqn: Eqn, origin: EqnOrigin, known_ins: Flags | None, inverted_whole: bool) -> None:
        """Add an equation to the primal program, and its tangents to the linear program."""
        ins = substitute(eqn.ins, self.atoms)
        operand_tangents = [self.tangents.get(a) for a in eqn.ins]
        self.source = self.linear.source = eqn.source
        outs: Atoms
        if not any(operand_tangents):
            outs = self.copy(eqn, ins)
        else:
            tangents = tuple([t or Zero(a.aval) for t, a in zip(operand_tangents, ins, strict=True)])
            out_tangents: Tangents
            if known_ins is None or _captured_value_moves(eqn, tangents):
                outs, out_tangents = self._linearize(eqn, ins, tangents, origin)
                # Some equations are inverted themselves, and not the equations that their jvp rule has just added:
                # those that are inverted as a whole, and functions with rules, whose derivative may use another program
                # than the function. So a copy of the equation computes the results. Inverting it gives the operands,
                # from which the equations of the jvp rule compute residuals; their results are not used.
                if inverted_whole or isinstance(eqn.prim, CallWithRules):
                    outs = self.copy(eqn, ins)
            else:
                outs = self.copy(eqn, ins)
                out_tangents = self._cut(known_ins, tangents)
            self.tangents.update({v: t for v, t in zip(eqn.outs, out_tangents, strict=True) if isinstance(t, Lin)})
        self.atoms.update(zip(eqn.outs, outs, strict=True))

    def _linearize(self, eqn: Eqn, ins: Atoms, tangents: Tangents, origin: EqnOrigin) -> tuple[Atoms, Tangents]:
        """Apply the jvp rule of an equation. Return its results and their tangents."""
        try:
            return eqn.prim.jvp(self, ins, tangents)
        except Exception as e:
            locate(e, origin.eqn)
            if isinstance(e, FxadError):
                e.inside = (*origin.inside, *bodies_around(e))
            raise

    def _cut(self, known_ins: Flags, tangents: Tangents) -> Tangents:
        """Cut the linear program at the last equation of the primal program. Return the tangents of its results."""
        eqn = self.eqns[-1]
        out_tangents = tuple([as_lin(self.linear.input(v.aval)) if v.aval.inexact else Zero(v.aval) for v in eqn.outs])
        ivjp_eqn = IvjpEqn(eqn, known_ins, tuple([isinstance(t, Lin) for t in tangents]))
        self.cuts.append(Cut(len(self.linear.eqns), ivjp_eqn, tangents, out_tangents))
        return out_tangents


def _captured_value_moves(eqn: Eqn, tangents: Tangents) -> bool:
    """Return True if a captured value of a function with rules has a tangent. The rules do not cover it, and its jvp
    rule raises the error."""
    prim = eqn.prim
    return isinstance(prim, CallWithRules) and any([isinstance(t, Lin) for t in tangents[: prim.captured]])
