"""The transformation: a program of symbolic shape becomes a program on padded arrays and the true sizes."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.memo import by_value
from fxad.core.sizes.size import Size
from fxad.errors import SizeError
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, Param, Record, Var, jaxprs_in_params, params, source_text
from fxad.primitives.custom import CallWithRules
from fxad.primitives.index import check_positions
from fxad.primitives.named_calls import NamedCall, called_functions
from fxad.transforms.locate import describe, locate
from fxad.transforms.mask.context import MaskCtx, PaddingStates
from fxad.transforms.mask.contract import MaskTable, not_masked
from fxad.transforms.mask.padded_builder import SizeBounds
from fxad.transforms.mask.padding_facts import PaddingFacts
from fxad.transforms.mask.rules import MASK_RULES


@by_value
def mask(jaxpr: Jaxpr, bounds: SizeBounds, rules: MaskTable = MASK_RULES) -> Jaxpr:
    """Return the program on padded arrays, then the sizes in `bounds`, as i32[], in order. Other sizes stay symbolic.

    Law:    the valid elements of the results are those of the program at these sizes, whatever the padding holds; the
            padding of results is zero, and so are the cotangents of the padding of operands.
    Cost:   one pass; about one select for each equation that combines elements along an axis of masked size.
    Raises: SizeError for an equation that has no padded form, with its line.
    """
    b, args = _context(jaxpr, bounds, rules)
    cleared = [b.cleared(x, v.aval.shape) for x, v in zip(args, jaxpr.ins, strict=True)]
    for x in cleared:
        b.learn(x, PaddingFacts(finite=True))
    outs = _walk(b, jaxpr, cleared, rules)
    results = [b.clear_pending(b.zero_filled(x, a.aval.shape)) for x, a in zip(outs, jaxpr.outs, strict=True)]
    return b.build(results, f"mask_{jaxpr.name}")


@by_value
def masked_body(jaxpr: Jaxpr, bounds: SizeBounds, rules: MaskTable) -> Jaxpr:
    """Return `mask` for a body: the padding of its operands and results holds anything. No result is pending."""
    b, args = _context(jaxpr, bounds, rules)
    outs = _walk(b, jaxpr, args, rules)
    return b.build([b.clear_pending(x) for x in outs], jaxpr.name)


@by_value
def masked_call(
    jaxpr: Jaxpr, bounds: SizeBounds, rules: MaskTable, operands: PaddingStates
) -> tuple[Jaxpr, PaddingStates]:
    """Return `mask` for a body that runs once, whose operands have these facts and pending axes. Return the body, and
    the facts and pending axes of its results."""
    b, args = _context(jaxpr, bounds, rules)
    b.add_states(args, operands)
    outs = _walk(b, jaxpr, args, rules)
    return b.build(outs, jaxpr.name), b.states(outs)


def _context(jaxpr: Jaxpr, bounds: SizeBounds, rules: MaskTable) -> tuple[MaskCtx, tuple[Var, ...]]:
    """Return a context with the padded operands of a program, then the sizes, as its inputs; and these operands."""
    b = MaskCtx(
        bounds,
        lambda body, bounds: masked_body(body, bounds, rules),
        lambda body, bounds, operands: masked_call(body, bounds, rules, operands),
    )
    return b, b.operands(jaxpr.in_avals)


def _walk(b: MaskCtx, jaxpr: Jaxpr, args: Sequence[Atom], rules: MaskTable) -> list[Atom]:
    """Add the padded form of each equation. Return the padded results."""
    env: dict[Atom, Atom] = dict(zip(jaxpr.ins, args, strict=True))

    def atom(a: Atom) -> Atom:
        return b.literal(a) if isinstance(a, Lit) else env[a]

    check_positions("mask", jaxpr, b.padded_size)
    for eqn in jaxpr.eqns:
        b.source = eqn.source
        ins = tuple([atom(a) for a in eqn.ins])
        if not _depends_on_masked_size(b, eqn):
            env.update(zip(eqn.outs, b.copy(eqn, ins), strict=True))
            continue
        row = rules.of(eqn.prim)
        try:
            if row is None:
                raise not_masked(eqn.prim, "it has no rule")
            if row.clears_operands:
                ins = tuple([b.clear_pending(a) for a in ins])
            types = tuple([a.aval for a in eqn.ins]), tuple([v.aval for v in eqn.outs])
            outs = tuple(row.write(b, eqn.prim, ins, *types))
        except Exception as e:
            locate(e, eqn)
            raise
        for v, out in zip(eqn.outs, outs, strict=True):
            if out.aval is not b.type(v.aval):
                raise SizeError(
                    f"mask: the rule of {eqn.prim.name} gives {out.aval} for {v.aval}, not {b.type(v.aval)}",
                    remedy="correct the rule: its results have the padded types",
                    equation=describe(eqn),
                    where=source_text(eqn.source),
                )
            env[v] = out
    return [atom(a) for a in jaxpr.outs]


def _depends_on_masked_size(b: MaskCtx, eqn: Eqn) -> bool:
    """Return True if an equation depends on a masked size: in a type, a parameter or a body, or in a function that it
    calls, which takes the sizes."""
    if any([a.aval.symbolic and b.ragged(a.aval.shape) for a in (*eqn.ins, *eqn.outs)]):
        return True
    prim = eqn.prim
    if isinstance(prim, NamedCall):
        return True
    if isinstance(prim, HigherOrder):
        has_module = isinstance(prim, CallWithRules) and bool(prim.module)
        if not has_module and any([called_functions(body) for body in prim.bodies]):
            return True
        if any(map(b.uses_sizes, jaxprs_in_params(prim))):
            return True
    return _has_masked_parameter(b, eqn)


def _has_masked_parameter(b: MaskCtx, eqn: Eqn) -> bool:
    """Return True if a parameter of an equation contains a masked size."""

    def contains(value: Param) -> bool:
        if type(value) is Size:
            return b.masked(value)
        if isinstance(value, Record):
            return any([contains(v) for _, v in params(value)])
        return type(value) is tuple and any([contains(v) for v in value])

    return any([contains(value) for _, value in params(eqn.prim)])
