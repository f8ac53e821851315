"""`remat`: a program that stores only its operands, and the values that a policy selects, for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxad.core.builder import Builder, rewrite, single_equation
from fxad.core.layout import Body
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.marks import Keep, Mark
from fxad.transforms.memory.policies import Policy, decided, nothing


@by_value
def remat(jaxpr: Jaxpr, policy: Policy = nothing) -> Jaxpr:
    """Return the program as one `remat` equation. Can be nested.

    Differentiation stores the operands of the equation and the values that `policy` selects. The backward program
    computes all other values again.

    Law:  same value; the same gradient, bitwise up to the sign of a zero, also if segments share operands:
          contributions to a cotangent are added in the order of the program without segments; the residuals of
          `linearize` are among the operands and the selected values.
    Cost: none forward; one more forward computation in the backward program.
    """
    return as_remat(mark_kept(jaxpr, policy))


def as_remat(marked: Jaxpr) -> Jaxpr:
    """Return a program whose only equation is the `remat` of a program with marks (`Keep`)."""
    return single_equation(Remat(marked), marked.in_avals, f"remat_{marked.name.removeprefix('remat_')}")


@by_value
def mark_kept(jaxpr: Jaxpr, policy: Policy) -> Jaxpr:
    """Return the program with marks (`Keep`) on the values that `policy` selects.

    The policy also selects values in bodies: of calls, loops and branches, and the body and the forward programs of a
    function with custom rules. In an inner `remat` it selects among its results and the values that it keeps itself.
    The body of a `while` without `max_steps` is not searched, because such a loop has no reverse mode.
    """
    if policy == nothing:
        return jaxpr

    def marked_body(body: Body, in_remat: bool) -> Jaxpr:
        if not body.stores:
            return body.jaxpr
        return mark_kept_outside(body.jaxpr, policy, 0) if in_remat else mark_kept(body.jaxpr, policy)

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        prim = eqn.prim
        if isinstance(prim, HigherOrder):
            layout = prim.layout
            prim = prim.with_bodies(tuple([marked_body(body, layout.remat) for body in layout.bodies]))
        outs: Atoms = b.copy(eqn, ins, prim)
        # the results of a call are marked in its body
        if not isinstance(prim, Keep | Call) and decided(policy, eqn):
            outs = tuple([b.one(Keep(str(policy)), v) for v in outs])
        return outs

    return rewrite(jaxpr, rule)


@by_value
def mark_kept_outside(jaxpr: Jaxpr, policy: Policy, level: int) -> Jaxpr:
    """Return the body of a `remat` with marks that an enclosing `remat` also keeps a value: on the kept values that
    `policy` selects.

    `level` is the number of `remat` equations between this body and the enclosing one; all of them must keep the value.
    For example, in `remat(remat(x -> cos(sin(x)), everything), sines)` the inner `remat` marks the sine by
    `keep[by=everything]`. At level 0 this becomes `keep[by=everything, also_kept_by=(sines,)]`.
    """
    producer: dict[Atom, Eqn] = {}

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        prim = eqn.prim
        if isinstance(prim, Keep):
            if len(prim.also_kept_by) == level and _selects(policy, eqn.ins[0], producer):
                prim = Keep(prim.by, (*prim.also_kept_by, str(policy)))
        elif isinstance(prim, HigherOrder):
            layout = prim.layout
            inner = level + layout.remat
            bodies = [mark_kept_outside(x.jaxpr, policy, inner) if x.stores else x.jaxpr for x in layout.bodies]
            prim = prim.with_bodies(tuple(bodies))
        producer.update(dict.fromkeys(eqn.outs, eqn))
        return b.copy(eqn, ins, prim)

    return rewrite(jaxpr, rule)


def _selects(policy: Policy, value: Atom, producer: Mapping[Atom, Eqn]) -> bool:
    """Return True if a policy selects the equation that computes a value, or one of the names of the value."""
    while value in producer:
        eqn = producer[value]
        if not isinstance(eqn.prim, Keep) and decided(policy, eqn):
            return True
        if not isinstance(eqn.prim, Mark):
            return False
        value = eqn.ins[0]
    return False
