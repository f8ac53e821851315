"""Merges bodies: calls of a body whose equations are part of another body become calls of that body.

The first layer of a network does not need the derivative of its input. So a gradient of calls, or `dce` after
`outline`, gives that layer a smaller body than the other layers. Nearly the same equations would be compiled twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, final

from fxad.core.builder import Builder, rewrite, substitute
from fxad.core.constants import CALL_EQUATIONS, OVERLAP
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, Jaxpr, Lit
from fxad.primitives.control.call import Call, callee
from fxad.transforms.cleanup.inline import inline, inlined_length
from fxad.transforms.costs import equations_to_compile, time_of
from fxad.transforms.map_bodies import map_bodies
from fxad.transforms.outlining.incomplete_match import Pattern
from fxad.transforms.outlining.shared_body import Flow, SharedBody, sharing_key

# for each body: the number of longer bodies that are considered, and (`MAX_TRIES`) the number that are compared
MAX_LONGER: Final = 256
MAX_LENGTH: Final = 10_000  # equations of a body that is compared
MAX_TRIES: Final = 8


@by_value
def merge_bodies(jaxpr: Jaxpr, waste: float) -> Jaxpr:
    """Returns the program, also its bodies, in which calls of a body that lacks a few equations of another call the
    other.

    The missing equations are computed without use; their missing operands are ones. This may take at most the part
    `waste` of the run time. A call is left unchanged if the missing equations have effects, may fail, or may not
    terminate.

    Law:  same value; fewer equations to compile, or the same program.
    Cost: linear in the equations, and in the pairs of equal equations of the compared bodies.
    """
    return _merged(map_bodies(jaxpr, lambda body: merge_bodies(body, waste)), waste)


def _merged(jaxpr: Jaxpr, waste: float) -> Jaxpr:
    uses = Counter([body for body in map(callee, jaxpr.eqns) if body is not None])
    if len(uses) < 2:
        return jaxpr
    # bodies are inlined: a missing equation in an inner call makes it a call of a different body
    flat = {body: inline(body) if inlined_length(body) <= MAX_LENGTH else body for body in uses}
    keys = {body: Counter(map(sharing_key, flat[body].eqns)) for body in uses}
    size = {body: sum(map(equations_to_compile, flat[body].eqns)) for body in uses}
    time = {body: time_of(flat[body]) for body in uses}
    waste_left = waste * time_of(jaxpr)
    ordered = sorted(uses, key=lambda body: (size[body], len(body.outs)))
    replacements: dict[Jaxpr, _Part] = {}
    for at, part in enumerate(ordered):
        if size[part] <= CALL_EQUATIONS:  # it costs no more to compile than a call
            continue
        longer = [b for b in ordered[at + 1 : at + 1 + MAX_LONGER] if OVERLAP * size[b] <= size[part]]
        for whole in [b for b in longer if all([n <= keys[b][k] for k, n in keys[part].items()])][:MAX_TRIES]:
            more = uses[part] * (time[whole] - time[part])
            if more <= waste_left and (match := _part(flat[part], whole, flat[whole])) is not None:
                waste_left -= more
                replacements[part] = match
                break
    return _called(jaxpr, replacements) if replacements else jaxpr


@final
@dataclass(frozen=True, slots=True)
class _Part:
    """Describes a body as a part of `whole`. `operands`: for each operand of `whole`, the operand of the body or a
    literal. `results`: for each result of the body, its number among the results of `whole`, or None if it is an
    operand or a literal.

    For example, (a, w) -> let s = sin a, y = mul s w in y is a part of the body

        (w, a, g) -> let s = sin a, y = mul s w, c = cos a, z = mul c g in (z, y)

    with `operands` (w, a, 1.0) and `results` (1,).
    """

    whole: Jaxpr
    operands: Atoms
    results: tuple[int | None, ...]


def _part(part: Jaxpr, body: Jaxpr, whole: Jaxpr) -> _Part | None:
    """Matches all equations of `part` to equations of `whole`, which is `body` inlined; returns None if they do not
    match."""
    b, n = Builder(), len(whole.eqns)
    b.inline(whole, b.inputs(whole.in_avals))
    mine = b.inputs(part.in_avals)
    both = b.build(b.inline(part, mine))
    shared = SharedBody(whole, (0,), n, (both.ins[: len(whole.ins)],), (None,) * n)
    match = Pattern(Flow(both), shared).match(n, len(both.eqns))
    if match is None or len(match.places) < len(part.eqns):
        return None
    own: dict[Atom, Atom] = dict(zip(mine, part.ins, strict=True))
    operands = tuple([own.get(a, a if isinstance(a, Lit) else Lit.of(1, a.aval)) for a in match.operands])
    slots = {place - n: slot for slot, place in match.places.items()}
    same: dict[Atom, Atom] = {}
    for at, eqn in enumerate(part.eqns):
        same.update(zip(eqn.outs, whole.eqns[slots[at]].outs, strict=True))
    result_index: dict[Atom, int] = {a: k for k, a in enumerate(whole.outs)}
    if any([same[a] not in result_index for a in part.outs if a in same]):
        return None
    return _Part(body, operands, tuple([result_index[same[a]] if a in same else None for a in part.outs]))


def _called(jaxpr: Jaxpr, replacements: Mapping[Jaxpr, _Part]) -> Jaxpr:
    """Replaces calls of the parts by calls of the whole bodies."""

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        body = callee(eqn)
        part = None if body is None else replacements.get(body)
        if part is None or body is None:
            return None
        renaming: dict[Atom, Atom] = dict(zip(body.ins, ins, strict=True))
        outs = b(Call(part.whole), *substitute(part.operands, renaming))
        return [renaming.get(a, a) if k is None else outs[k] for k, a in zip(part.results, body.outs, strict=True)]

    return rewrite(jaxpr, rule)
