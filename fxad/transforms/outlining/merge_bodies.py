"""Merges bodies: calls of a body whose equations are part of another body become calls of that body.

The first layer of a network does not need the derivative of its input. So a gradient of calls, or `dce` after
`outline`, gives that layer a smaller body than the other layers. Nearly the same equations would be compiled twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, final

from fxad.core.builder import Builder, rewrite, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, Jaxpr, Lit
from fxad.primitives.control.call import Call, callee
from fxad.support.constants import CALL_EQUATIONS, OVERLAP
from fxad.transforms.cleanup.inline import inline, inlined_length
from fxad.transforms.costs import equations_to_compile, time_of
from fxad.transforms.map_bodies import map_bodies
from fxad.transforms.outlining.incomplete_match import BodySearch, comparisons_for
from fxad.transforms.outlining.shared_body import EquationSequence, SharedBody, sharing_key

MAX_LARGER: Final = 256  # larger bodies that are considered for each body
MAX_COMPARED: Final = 8  # those of them that have all its operations, and are compared equation by equation
MAX_LENGTH: Final = 10_000  # equations of a body that is compared with its calls inlined


@by_value
def merge_bodies(jaxpr: Jaxpr, waste: float) -> Jaxpr:
    """Return the program with its bodies merged: if a body lacks a few equations of a larger one, its calls become
    calls of the larger one. Bodies within bodies are merged too.

    The missing equations are computed without use; their missing operands are ones. This may take at most the part
    `waste` of the run time. A call is left unchanged if the missing equations have effects, may fail, or may not
    terminate.

    Law:  same value; fewer equations to compile, or the same program.
    Cost: linear in the equations, and in the pairs of equal equations of the compared bodies.
    """
    return _merged(map_bodies(jaxpr, lambda body: merge_bodies(body, waste)), waste)


def _merged(jaxpr: Jaxpr, waste: float) -> Jaxpr:
    """Return the program with the bodies that it calls directly merged. The smallest body comes first; of the bodies
    that contain it, the smallest replaces it."""
    uses = Counter([body for body in map(callee, jaxpr.eqns) if body is not None])
    if len(uses) < 2:
        return jaxpr
    # bodies are inlined: a missing equation in an inner call makes it a call of a different body
    flat = {body: inline(body) if inlined_length(body) <= MAX_LENGTH else body for body in uses}
    keys = {body: Counter(map(sharing_key, flat[body].eqns)) for body in uses}
    cost = {body: sum(map(equations_to_compile, flat[body].eqns)) for body in uses}
    time = {body: time_of(flat[body]) for body in uses}
    waste_left = waste * time_of(jaxpr)
    ordered = sorted(uses, key=lambda body: (cost[body], len(body.outs)))
    replacements: dict[Jaxpr, _PartOfBody] = {}
    for rank, part in enumerate(ordered):
        if cost[part] <= CALL_EQUATIONS:  # it costs no more to compile than a call
            continue
        larger = [b for b in ordered[rank + 1 : rank + 1 + MAX_LARGER] if OVERLAP * cost[b] <= cost[part]]
        for larger_body in [b for b in larger if keys[part] <= keys[b]][:MAX_COMPARED]:
            unused_time = uses[part] * (time[larger_body] - time[part])
            if unused_time > waste_left:
                continue
            match = _as_part_of(flat[part], larger_body, flat[larger_body])
            if match is not None:
                waste_left -= unused_time
                replacements[part] = match
                break
    return _with_calls_replaced(jaxpr, replacements) if replacements else jaxpr


@final
@dataclass(frozen=True, slots=True)
class _PartOfBody:
    """Describes a body as a part of `larger_body`. `inlined` is the body with its calls inlined; the atoms are those of
    it. `operands`: for each operand of `larger_body`, the operand of the body or a literal. `results`: for each result
    of the body, its number among the results of `larger_body`, or None if it is an operand or a literal.

    For example, (a, w) -> let s = sin a, y = mul s w in y is a part of the body

        (w, a, g) -> let s = sin a, y = mul s w, c = cos a, z = mul c g in (z, y)

    with `operands` (w, a, 1.0) and `results` (1,).
    """

    inlined: Jaxpr
    larger_body: Jaxpr
    operands: Atoms
    results: tuple[int | None, ...]


def _as_part_of(inlined_part: Jaxpr, larger_body: Jaxpr, inlined_larger: Jaxpr) -> _PartOfBody | None:
    """Return a body as a part of `larger_body`; None if an equation or a result of it is not in `larger_body`, or if
    there are too many pairs of equal equations to compare. Both are compared with their calls inlined."""
    # `BodySearch` searches in one program, so this one has the equations of both
    b, n = Builder(), len(inlined_larger.eqns)
    b.inline(inlined_larger, b.inputs(inlined_larger.in_avals))
    part_ins = b.inputs(inlined_part.in_avals)
    both = b.build(b.inline(inlined_part, part_ins))
    shared = SharedBody(inlined_larger, (0,), n, (both.ins[: len(inlined_larger.ins)],), (None,) * n)
    pattern, stop = BodySearch(EquationSequence(both), shared), len(both.eqns)
    match = pattern.match(n, stop) if pattern.comparisons(n, stop) <= comparisons_for(stop) else None
    if match is None or len(match.places) < len(inlined_part.eqns):
        return None
    operand_of_part: dict[Atom, Atom] = dict(zip(part_ins, inlined_part.ins, strict=True))
    # an operand that the part lacks is a variable of the larger body: it becomes a one
    operands = tuple([operand_of_part.get(a, a if isinstance(a, Lit) else Lit.of(1, a.aval)) for a in match.operands])
    value_in_larger: dict[Atom, Atom] = {}  # for each value that the part computes
    for slot, place in match.places.items():
        value_in_larger.update(zip(inlined_part.eqns[place - n].outs, inlined_larger.eqns[slot].outs, strict=True))
    index_in_larger: dict[Atom, int] = {a: k for k, a in enumerate(inlined_larger.outs)}
    computed = [value_in_larger.get(a) for a in inlined_part.outs]
    if any([a is not None and a not in index_in_larger for a in computed]):
        return None
    results = tuple([None if a is None else index_in_larger[a] for a in computed])
    return _PartOfBody(inlined_part, larger_body, operands, results)


def _with_calls_replaced(jaxpr: Jaxpr, replacements: Mapping[Jaxpr, _PartOfBody]) -> Jaxpr:
    """Replace calls of the parts by calls of the larger bodies."""

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        body = callee(eqn)
        part = None if body is None else replacements.get(body)
        if part is None or body is None:
            return None
        renaming: dict[Atom, Atom] = dict(zip(part.inlined.ins, ins, strict=True))
        outs = b(Call(part.larger_body), *substitute(part.operands, renaming))
        part_outs = substitute(part.inlined.outs, renaming)
        return [a if k is None else outs[k] for k, a in zip(part.results, part_outs, strict=True)]

    return rewrite(jaxpr, rule)
