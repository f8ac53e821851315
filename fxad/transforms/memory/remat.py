"""`remat`: a program that stores for the backward pass its operands, and what a policy chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.naming import Keep, Mark
from fxad.transforms.memory.policies import Policy, decided, nothing


@by_value
def remat(jaxpr: Jaxpr, policy: Policy = nothing) -> Jaxpr:
    """The same program as one `remat` equation: differentiating it saves its operands and what `policy` chooses, and
    the backward program computes everything else again. Nestable.

    Law:  same value; the same gradient, bitwise, whatever segments share: what they contribute to a cotangent is added
          in the order of the program without them; the residuals of `linearize` are among the operands and the chosen
          values.
    Cost: none forward; one more forward computation in the backward program.
    """
    b = Builder.like(jaxpr)
    return b.build(b(Remat(keeping(jaxpr, policy)), *jaxpr.ins), f"remat_{jaxpr.name}")


@by_value
def keeping(jaxpr: Jaxpr, policy: Policy) -> Jaxpr:
    """The program with a mark on the results that `policy` chooses, for the `remat` that is put around it.

    Bodies are looked at too: those of calls, loops and branches, the body and the forward programs of a function with
    rules of its own, and of an inner `remat` its results and what it keeps itself. A `while` without `max_steps` has no
    reverse mode: what its steps compute is not stored.
    """
    if policy == nothing:
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        outs: tuple[Atom, ...]
        if isinstance(eqn.prim, HigherOrder):
            layout = eqn.prim.layout
            made = [
                body.jaxpr
                if not body.stores
                else keeping_too(body.jaxpr, policy, 0)
                if layout.segment
                else keeping(body.jaxpr, policy)
                for body in layout.bodies
            ]
            outs = b(eqn.prim.with_bodies(tuple(made)), *ins)
        else:
            outs = b.copy(eqn, ins)
        # what a call gives is marked in its body
        if not isinstance(eqn.prim, Keep | Call) and decided(policy, eqn):
            outs = tuple([b.one(Keep(str(policy)), v) for v in outs])
        return outs

    return rewrite(jaxpr, rule)


@by_value
def keeping_too(jaxpr: Jaxpr, policy: Policy, level: int) -> Jaxpr:
    """The body of a `remat` with the values that it keeps marked as kept by one around it too, where `policy` says so.

    `level`: how many other `remat` are in between; all of them must keep the value.
    """
    made: dict[Atom, Eqn] = {}

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        prim = eqn.prim
        if isinstance(prim, Keep):
            if len(prim.outer) == level and _chosen(policy, eqn.ins[0], made):
                prim = Keep(prim.by, (*prim.outer, str(policy)))
        elif isinstance(prim, HigherOrder):
            layout = prim.layout
            inner = level + layout.segment
            made_of = [keeping_too(x.jaxpr, policy, inner) if x.stores else x.jaxpr for x in layout.bodies]
            prim = prim.with_bodies(tuple(made_of))
        made.update(dict.fromkeys(eqn.outs, eqn))
        return b.copy(eqn, ins, prim)

    return rewrite(jaxpr, rule)


def _chosen(policy: Policy, value: Atom, made: Mapping[Atom, Eqn]) -> bool:
    """Whether a policy keeps a value, for what computes it or for a name that it has."""
    while value in made:
        eqn = made[value]
        if not isinstance(eqn.prim, Keep) and decided(policy, eqn):
            return True
        if not isinstance(eqn.prim, Mark):
            return False
        value = eqn.ins[0]
    return False
