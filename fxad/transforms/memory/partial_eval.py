"""Partial evaluation: splits a program into the part that depends only on known operands, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.errors import ParameterError
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, SourceLocation, source_location
from fxad.primitives.control.call import Call
from fxad.primitives.marks import Name
from fxad.transforms.cleanup.inline import MAX_EQUATIONS
from fxad.transforms.memory.split_bodies import SplitBody, split_eqn


@final
@dataclass(frozen=True, slots=True)
class PassedValue:
    """A residual, which the first program returns and the second reads: its name (the `checkpoint_name`, or the name of
    the operation that computes it with a number), its type and the user's line."""

    name: str
    aval: Aval
    where: SourceLocation | None


@final
@dataclass(frozen=True, slots=True)
class Halves:
    """A program in two parts. `known`: known operands -> known results, then residuals. `unknown`: residuals, then the
    other operands -> the other results. `out_known` marks the known results."""

    known: Jaxpr
    unknown: Jaxpr
    residuals: tuple[PassedValue, ...]
    out_known: tuple[bool, ...]


@by_value
def partial_eval(jaxpr: Jaxpr, known: tuple[bool, ...]) -> Halves:
    """Splits a program into a known part, which depends only on the marked operands, and an unknown part.

    An equation is known if all its operands are known. Literals are known. Some equations with bodies are split: calls,
    `remat`, a `cond` whose index is known, a `scan`, and a `while` with a bound and a known predicate. The known part
    of a loop is a loop; the unknown part of a `while` is a scan of as many steps. A carry is known if each step
    computes it from known values. The residuals of the steps are stacked, except constants and slices, which the second
    program reads from the operands. Other loops, a `cond` on an unknown index and a function with custom rules are not
    split: they are known or unknown as a whole. The same holds for equations with effects. The first program returns
    the known results, including known operands and literals. The second program returns the others.

    Law:  `unknown(residuals of known, others)` and the results of `known` are the results of the program, bit for bit.
          No equation is in both. Effects stay in order: an effect that follows an effect of the second program is in
          the second program, whatever its operands.
    Cost: one pass; each value that the second program reads is one residual.
    """
    flat, sure = _opened(jaxpr, known)
    known_values: set[Atom] = {v for v, k in zip(flat.ins, known, strict=True) if k}
    known_values.update([v for e, s in zip(flat.eqns, sure, strict=True) if s for v in e.outs])
    out_known = tuple([isinstance(a, Lit) or a in known_values for a in flat.outs])
    late = [a for a, k in zip(flat.outs, out_known, strict=True) if not k]
    rest = _live([e for e, s in zip(flat.eqns, sure, strict=True) if not s], late)
    read = dict.fromkeys([a for e in rest for a in e.ins if a in known_values])
    first = _builder_with(flat, known, (), [e for e, s in zip(flat.eqns, sure, strict=True) if s])
    second = _builder_with(flat, [not k for k in known], tuple(read), rest)
    results = [a for a, k in zip(flat.outs, out_known, strict=True) if k]
    return Halves(
        dce(first[0].build(substitute((*results, *read), first[1]), f"known_{jaxpr.name}")),
        second[0].build([second[1][a] for a in late], f"unknown_{jaxpr.name}"),
        _passed(flat, tuple(read)),
        out_known,
    )


def _opened(jaxpr: Jaxpr, known: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """Inlines the calls and splits the equations that have both known and unknown operands. Returns the program and a
    mask of its known equations."""
    b = Builder.like(jaxpr)
    known_values: set[Atom] = {v for v, k in zip(jaxpr.ins, known, strict=True) if k}
    sure: list[bool] = []
    waiting = False  # True after the first effect of the second program

    def have(ins: tuple[Atom, ...]) -> list[bool]:
        return [isinstance(a, Lit) or a in known_values for a in ins]

    def body_to_inline(eqn: Eqn, ins: tuple[Atom, ...]) -> Jaxpr | None:
        # only a plain call can be inlined
        if not isinstance(eqn.prim, Call) or all(marks := have(ins)):
            return None
        opened = any(marks) or any(partial_eval(eqn.prim.body, tuple(marks)).out_known)
        return eqn.prim.body if opened else None

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        nonlocal waiting
        here = have(ins)
        if len(b.eqns) > MAX_EQUATIONS:
            raise ParameterError(
                f"partial_eval: {jaxpr.name} has more than {MAX_EQUATIONS:,} equations with those calls opened that"
                " have known arguments and others",
                remedy="give what is called so often only known arguments, or only others",
            )
        if parts := split_eqn(eqn.prim, tuple(here), _halve):
            first = b(parts.known, *[k if isinstance(k, Lit) else ins[k] for k in parts.takes])
            known_values.update(first)
            sure.append(True)
            rest = b(parts.unknown, *[ins[k] if k >= 0 else first[~k] for k in parts.reads])
            sure.append(False)
            known_results, late = iter([first[k] for k in parts.gives]), iter(rest)
            return [next(known_results) if k else next(late) for k in parts.out_known]
        effects = bool(eqn.prim.effects)
        outs = b.copy(eqn, ins)
        sure.append(all(here) and not (effects and waiting))
        waiting = waiting or (effects and not sure[-1])
        known_values.update(outs if sure[-1] else ())
        return outs

    return b.build(b.inline_calls(jaxpr, jaxpr.ins, body_to_inline, rule), jaxpr.name), sure


def _halve(jaxpr: Jaxpr, known: tuple[bool, ...]) -> SplitBody:
    halves = partial_eval(jaxpr, known)
    return SplitBody(halves.known, halves.unknown, halves.out_known)


def _live(eqns: Sequence[Eqn], wanted: Sequence[Atom]) -> list[Eqn]:
    """Returns the equations that the wanted values or effects depend on."""
    live, out = set(wanted), []
    for eqn in reversed(eqns):
        if eqn.prim.effects or not live.isdisjoint(eqn.outs):
            live.update(eqn.ins)
            out.append(eqn)
    return out[::-1]


def _builder_with(
    jaxpr: Jaxpr, takes: Sequence[bool], further: Sequence[Atom], eqns: Sequence[Eqn]
) -> tuple[Builder, dict[Atom, Atom]]:
    """Returns a builder with the given equations of a program. Its operands are the `further` values, then the operands
    marked in `takes`."""
    b = Builder()
    env: dict[Atom, Atom] = {a: b.input(a.aval) for a in further}
    env.update({v: b.input(v.aval) for v, t in zip(jaxpr.ins, takes, strict=True) if t})
    b.extend(eqns, env)
    return b, env


def _passed(jaxpr: Jaxpr, values: Sequence[Atom]) -> tuple[PassedValue, ...]:
    """Returns names, types and lines of the residuals."""
    producer: dict[Atom, Eqn] = {v: e for e in jaxpr.eqns for v in e.outs}
    places = {a: k for k, a in enumerate(producer)}
    operands: dict[Atom, int] = {v: k for k, v in enumerate(jaxpr.ins)}
    out = []
    for a in values:
        if a in operands:
            out.append(PassedValue(f"operand {operands[a]}", a.aval, None))
        else:
            eqn = producer[a]
            label = eqn.prim.label if isinstance(eqn.prim, Name) else f"{eqn.prim.name} %{places[a]}"
            out.append(PassedValue(label, a.aval, source_location(eqn.source)))
    return tuple(out)
