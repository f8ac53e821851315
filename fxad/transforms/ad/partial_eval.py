"""Partial evaluation: splits a program into the part that depends only on known operands, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, producing_eqns, subprogram
from fxad.core.dce import dce, live_eqns
from fxad.core.flags import merge_by_flags, select_by_flags, split_by_flags
from fxad.core.layout import Layout
from fxad.core.memo import by_value
from fxad.errors import ParameterError
from fxad.ir import Atom, Atoms, Eqn, Flags, HigherOrder, Jaxpr, Lit, Primitive, source_location
from fxad.primitives.control.bodies import results_without_steps
from fxad.primitives.control.call import Call
from fxad.primitives.marks import Name
from fxad.transforms.ad.halves import Halves, KnownResult, PassedValue
from fxad.transforms.ad.partial_eval_rules import split_eqn
from fxad.transforms.cleanup.inline import MAX_EQUATIONS


@by_value
def partial_eval(jaxpr: Jaxpr, known: Flags) -> Halves:
    """Split a program into a known part, which depends only on the marked operands, and an unknown part.

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
    split, eqn_known = _with_split_equations(jaxpr, known)
    known_ins, unknown_ins = split_by_flags(split.ins, known)
    known_eqns, unknown_eqns = split_by_flags(split.eqns, eqn_known)
    known_values: set[Atom] = {*known_ins, *[v for e in known_eqns for v in e.outs]}
    out_known = tuple([isinstance(a, Lit) or a in known_values for a in split.outs])
    known_outs, unknown_outs = split_by_flags(split.outs, out_known)
    live = live_eqns(unknown_eqns, unknown_outs, effects=True)
    residuals = tuple(dict.fromkeys([a for e in live for a in e.ins if a in known_values]))
    return Halves(
        dce(subprogram(known_eqns, known_ins, (*known_outs, *residuals), f"known_{jaxpr.name}")),
        subprogram(live, (*residuals, *unknown_ins), unknown_outs, f"unknown_{jaxpr.name}"),
        _describe(split, residuals),
        out_known,
    )


def _with_split_equations(jaxpr: Jaxpr, known: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """Inline the calls, and split the equations, that have a known part and an unknown one. Return the program and a
    mask of its known equations."""
    b = Builder.like(jaxpr)
    known_values: set[Atom] = set(select_by_flags(jaxpr.ins, known))
    eqn_known: list[bool] = []
    unknown_effect = False  # True after the first effect of the second program

    def marks_of(ins: Atoms) -> Flags:
        return tuple([isinstance(a, Lit) or a in known_values for a in ins])

    def body_to_inline(eqn: Eqn, ins: Atoms) -> Jaxpr | None:
        # only a plain call can be inlined
        if not isinstance(eqn.prim, Call) or all(marks := marks_of(ins)):
            return None
        has_known_part = any(marks) or any(partial_eval(eqn.prim.body, marks).out_known)
        return eqn.prim.body if has_known_part else None

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        nonlocal unknown_effect
        marks = marks_of(ins)
        if len(b.eqns) > MAX_EQUATIONS:
            raise ParameterError(
                f"partial_eval: {jaxpr.name} has more than {MAX_EQUATIONS:,} equations with those calls opened that"
                " have known arguments and others",
                remedy="give what is called so often only known arguments, or only others",
            )
        if not all(marks) and (layout := _layout_without_steps(eqn.prim)):
            return results_without_steps(layout, ins, [v.aval for v in eqn.outs])
        if split := split_eqn(eqn.prim, marks, partial_eval):
            known_outs = b(split.known, *[k if isinstance(k, Lit) else ins[k] for k in split.known_operands])
            unknown_ins = [
                known_outs[k.number] if isinstance(k, KnownResult) else ins[k] for k in split.unknown_operands
            ]
            unknown_outs = b(split.unknown, *unknown_ins)
            known_values.update(known_outs)
            eqn_known.extend((True, False))
            return merge_by_flags(split.out_known, [known_outs[k] for k in split.known_results], unknown_outs)
        outs = b.copy(eqn, ins)
        has_effect = bool(eqn.prim.effects)
        is_known = all(marks) and not (has_effect and unknown_effect)
        unknown_effect = unknown_effect or (has_effect and not is_known)
        eqn_known.append(is_known)
        known_values.update(outs if is_known else ())
        return outs

    return b.build(b.inline_calls(jaxpr, jaxpr.ins, body_to_inline, rule), jaxpr.name), eqn_known


def _layout_without_steps(prim: Primitive) -> Layout | None:
    """Return the layout of a loop that takes no step: its results are its first carries, so known ones stay known.
    None for every other equation."""
    if not isinstance(prim, HigherOrder) or prim.effects:
        return None
    layout = prim.layout
    return layout if layout.transparent and layout.takes_no_step else None


def _describe(jaxpr: Jaxpr, residuals: Sequence[Atom]) -> tuple[PassedValue, ...]:
    """Return names, types and lines of the residuals."""
    producer = producing_eqns(jaxpr.eqns)
    numbers = {a: k for k, a in enumerate(producer)}
    operands: dict[Atom, int] = {v: k for k, v in enumerate(jaxpr.ins)}
    out = []
    for a in residuals:
        if a in operands:
            out.append(PassedValue(f"operand {operands[a]}", a.aval, None))
        else:
            eqn = producer[a]
            name = eqn.prim.label if isinstance(eqn.prim, Name) else f"{eqn.prim.name} %{numbers[a]}"
            out.append(PassedValue(name, a.aval, source_location(eqn.source)))
    return tuple(out)
