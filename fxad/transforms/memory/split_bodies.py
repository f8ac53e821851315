"""Partial evaluation of equations with bodies: what they do with what is known, as an equation of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Jaxpr, Primitive, Var
from fxad.primitives.control.bodies import placed, shared_places, with_outs, with_places_in, with_places_out
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.scan_parts import Steps, rearranged

Marks: TypeAlias = tuple[bool, ...]


@final
@dataclass(frozen=True, slots=True)
class Body:
    """A body in two. `known`: known operands -> results marked in `out_known`, then residuals. `unknown`: residuals,
    then the other operands -> the other results."""

    known: Jaxpr
    unknown: Jaxpr
    out_known: Marks

    @property
    def residuals(self) -> tuple[Atom, ...]:
        """The residuals, as values of `known`."""
        return self.known.outs[sum(self.out_known) :]

    def without(self, out_known: Marks) -> Body:
        """The same halves with fewer results that are known: the others are residuals that `unknown` hands on."""
        if out_known == self.out_known:
            return self
        given = dict(zip([k for k, known in enumerate(self.out_known) if known], self.known.outs, strict=False))
        later = [k for k in given if not out_known[k]]
        outs = [given[k] for k, known in enumerate(out_known) if known]
        first = with_outs(self.known, (*outs, *self.residuals, *[given[k] for k in later]))
        n, b = len(self.residuals), Builder()
        held = b.inputs(self.unknown.in_avals[:n])
        late = dict(zip(later, b.inputs([given[k].aval for k in later]), strict=True))
        rest = iter(b.inline(self.unknown, (*held, *b.inputs(self.unknown.in_avals[n:]))))
        results = [late[k] if k in late else next(rest) for k, known in enumerate(out_known) if not known]
        return Body(first, b.build(results, self.unknown.name), out_known)

    @property
    def idle(self) -> bool:
        """Whether nothing is known that is worth an equation."""
        return not self.known.eqns and not any(self.out_known)


Halve: TypeAlias = Callable[[Jaxpr, Marks], Body]


@final
@dataclass(frozen=True, slots=True)
class Apart:
    """An equation in two. `known` takes the operands of it that `takes` names and gives the results marked in
    `out_known`, then further values. `unknown` takes what `reads` names, operands by their places and then, counted
    from -1 down, further values of `known`; it gives the other results."""

    known: Primitive
    unknown: Primitive
    takes: tuple[int, ...]
    reads: tuple[int, ...]
    out_known: Marks


def apart(prim: Primitive, have: Marks, halve: Halve) -> Apart | None:
    """An equation in two, where the marked operands are known; None where it is known whole or not at all.

    A loop that ends by a predicate, a branch chosen by what is not known, a function with rules and whatever has an
    effect are not split.
    """
    if prim.effects or not any(have) or all(have):
        return None
    match prim:
        case Remat():
            return _remat(prim, halve(prim.body, have), have)
        case Cond() if have[0]:
            return _cond(prim, have, halve)
        case Scan() if all(have[: prim.upto]):
            return _scan(prim, have, halve)
        case _:
            return None


def _places(marks: Sequence[bool], wanted: bool) -> list[int]:
    return [k for k, m in enumerate(marks) if m is wanted]


def _remat(prim: Remat, body: Body, have: Marks) -> Apart | None:
    if body.idle:
        return None
    further = [~k for k in range(len(body.residuals))]
    known, unknown = prim.with_bodies((body.known,)), prim.with_bodies((body.unknown,))
    return Apart(known, unknown, tuple(_places(have, True)), (*further, *_places(have, False)), body.out_known)


def _cond(prim: Cond, have: Marks, halve: Halve) -> Apart | None:
    """Each branch in two; what they hand over shares places, as residuals of derivatives do."""
    bodies = [halve(branch, have[1:]) for branch in prim.branches]
    out_known = tuple([all(marks) for marks in zip(*[body.out_known for body in bodies], strict=True)])
    bodies = [body.without(out_known) for body in bodies]
    if all([body.idle for body in bodies]):
        return None
    n = sum(out_known)
    places = shared_places([[a.aval for a in body.residuals] for body in bodies])
    known = [with_places_out(body.known, n, placed(body.residuals, places), places) for body in bodies]
    takes, others = _places(have, True), _places(have, False)
    unknown = [with_places_in(_residuals_last(body), len(others), places) for body in bodies]
    further = [~k for k in range(len(places))]
    return Apart(
        prim.with_bodies(tuple(known)),
        prim.with_bodies(tuple(unknown)),
        tuple(takes),
        (0, *others, *further),
        out_known,
    )


def _residuals_last(body: Body) -> Jaxpr:
    n = len(body.residuals)
    return rearranged(body.unknown, (*range(n, len(body.unknown.ins)), *range(n)), body.unknown.outs)


def _scan(prim: Scan, have: Marks, halve: Halve) -> Apart | None:
    """Steps in two: a carry is known when every step gives a known one. A residual that is a constant or a slice is
    read from the operand; the others are stacked."""
    steps, n = prim.steps, prim.n_carry
    consts, carry, xs = steps.split(prim.counted(have)[1])
    while True:
        body = halve(prim.body, (*consts, *carry, *xs))
        fewer = tuple([c and o for c, o in zip(carry, body.out_known, strict=False)])
        if fewer == carry:
            break
        carry = fewer
    marks = (*consts, *carry, *xs)
    body = body.without((*carry, *body.out_known[n:]))
    if body.idle:
        return None
    places = dict(zip(body.known.ins, _places(marks, True), strict=True))
    first, last = steps.n_consts, steps.n_consts + n
    fixed: list[int] = []  # residuals that are constants
    slices: list[tuple[int, int]] = []  # residuals that are slices, or stacked: their number, and where they are
    stacked: list[Atom] = []
    for k, a in enumerate(body.residuals):
        place = places.get(a) if isinstance(a, Var) else None
        if place is not None and place < first:
            fixed.append(k)
        elif place is not None and place >= last:
            slices.append((k, prim.upto + place))
        else:
            slices.append((k, ~len(stacked)))
            stacked.append(a)
    known = Steps(with_outs(body.known, (*body.known.outs[: sum(body.out_known)], *stacked)), sum(consts), sum(carry))
    n_res = len(body.residuals)
    of_consts, of_carry, of_xs = [
        [n_res + j for j in group]
        for group in Steps(prim.body, consts.count(False), carry.count(False)).split(range(marks.count(False)))
    ]
    order = (*fixed, *of_consts, *of_carry, *[k for k, _ in slices], *of_xs)
    unknown = Steps(rearranged(body.unknown, order, body.unknown.outs), len(fixed) + len(of_consts), len(of_carry))
    at = prim.upto
    mine, others = [at + k for k in _places(marks, True)], [at + k for k in _places(marks, False)]
    residual_places = [at + places[a] for a in [body.residuals[k] for k in fixed] if isinstance(a, Var)]
    b = len(of_consts) + len(of_carry)
    reads = (*residual_places, *others[:b], *[place for _, place in slices], *others[b:])
    count = tuple(range(at))
    return Apart(prim.over(known), prim.over(unknown), (*count, *mine), (*count, *reads), body.out_known)
