"""Inverses that users give: traced, checked, and brought into the form that `custom_call` carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from fxad import tree
from fxad.api.custom_rules import (
    Signature,
    TracedRule,
    asked,
    check_types,
    cotangents,
    inexact,
    pair,
    traced,
    with_none,
)
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce, prune
from fxad.errors import ArgumentError, NotInvertibleError, TreeError
from fxad.ir import Jaxpr, Zero
from fxad.primitives.control.bodies import select_by_mask
from fxad.tracing.program import function_name, parameter_names
from fxad.transforms.ad.linear_rule import cotangent_maps
from fxad.transforms.reorder import reorder_ins


@final
@dataclass(frozen=True, slots=True, eq=False)
class GivenInverse:
    """A user's rule, and the positions of the arguments that it is given beside the results."""

    rule: Callable[..., Any]
    keep: tuple[int, ...]
    fused: bool

    @property
    def role(self) -> str:
        """What gave it."""
        return "defivjp" if self.fused else "definverse"


def places_of(what: str, fun: object, keep: int | str | Sequence[int | str]) -> tuple[int, ...]:
    """Arguments to keep, as positions. Raises: ArgumentError."""
    names = parameter_names(fun)
    out: list[int] = []
    for k in keep if isinstance(keep, list | tuple) else (keep,):
        if not (k in names if isinstance(k, str) else isinstance(k, int) and not isinstance(k, bool) and k >= 0):
            raise ArgumentError(
                f"{what} of {function_name(fun)}: keep has {k!r}, which is no argument of it",
                remedy="name arguments, or number them from 0",
            )
        out.append(names.index(k) if isinstance(k, str) else k)
    return tuple(out)


def inverse_rule(
    sig: Signature, places: Sequence[int], given: GivenInverse, rule: Callable[..., Any]
) -> tuple[TracedRule, tuple[bool, ...]]:
    """Trace `rule(results, [cotangents,] *kept) -> others`, or with cotangents `(others, cotangents of arguments)`.

    `places` are the positions of the arguments that the rules of the function are about. Gives the body, over results,
    kept leaves, then cotangents, and which leaves are kept.
    Raises: TreeError, ShapeError, DTypeError for what does not fit the function, naming the path and both types;
            ArgumentError for a position to keep that the call does not have.
    """
    what, n = f"{given.role} of {sig.name}: {function_name(given.rule)}", len(sig.out_avals)
    parts = sig.in_tree.children()
    for k in given.keep:
        if k not in places:
            raise ArgumentError(
                f"{given.role} of {sig.name}: keep has {k}, and its rules are about arguments {', '.join(map(str, places))}",
                remedy="number positional arguments from 0; those in nondiff_argnums are given to the rule anyway",
            )
    held = tuple([k in given.keep for k in places])
    marks = tuple([h for h, part in zip(held, parts, strict=True) for _ in range(part.num_leaves)])
    free = tuple([not m for m in marks])
    m = n + sum(marks)
    shape = tree.structure(
        _single([p.unflatten(range(p.num_leaves)) for p, h in zip(parts, held, strict=True) if not h])
    )

    def flat(*leaves: object) -> object:
        rest = iter(leaves[n:m])
        kept = [tree.unflatten(p, [next(rest) for _ in range(p.num_leaves)]) for p in select_by_mask(parts, held)]
        results = tree.unflatten(sig.out_tree, leaves[:n])
        if not given.fused:
            return _others(asked(what, rule, results, *kept))
        cts = with_none(sig.out_tree, sig.out_avals, leaves[m:])
        others, bars = pair(what, "(arguments, cotangents)", asked(what, rule, results, cts, *kept))
        return _others(others) + cotangents(what, sig, bars)

    def _others(value: object) -> list[object]:
        leaves, found = tree.flatten(value)
        if found != shape:
            raise TreeError(
                f"{what} returns {tree.shape_text(found)}, {sig.name} takes {tree.shape_text(shape)}",
                remedy="return the argument that is not kept, or a tuple of them in order",
            )
        return leaves

    cts = inexact(sig.out_avals) if given.fused else ()
    wants = select_by_mask(sig.in_avals, free)
    body = traced(what, given.rule, flat, (*sig.out_avals, *select_by_mask(sig.in_avals, marks), *cts))
    body = body.typed([*wants, *(inexact(sig.in_avals) if given.fused else ())])
    check_types(what, "for", select_by_mask(sig.in_paths, free), wants, body.jaxpr.out_avals[: len(wants)])
    if given.fused:
        moving = [p for p, a in zip(sig.in_paths, sig.in_avals, strict=True) if a.inexact]
        check_types(what, "as cotangent of", moving, inexact(sig.in_avals), body.jaxpr.out_avals[len(wants) :])
    return TracedRule((body,)), marks


def _single(parts: list[Any]) -> Any:
    """A single argument as it is, several as a tuple."""
    return parts[0] if len(parts) == 1 else tuple(parts)


@final
@dataclass(frozen=True, slots=True)
class InverseBodies:
    """`inverse_rule`, `held`, and for an ivjp `vjp_rule`, as `custom_call` carries them."""

    rule: tuple[Jaxpr, ...]
    held: tuple[bool, ...]
    vjp: tuple[Jaxpr, ...]


def inverse_bodies(
    sig: Signature, given: GivenInverse, body: Jaxpr, rule: Jaxpr, marks: tuple[bool, ...]
) -> InverseBodies:
    """From a traced rule over (captured, results, kept, cotangents) to the programs over (results, captured, kept, ...).

    Raises: NotLinearError when an ivjp is not linear in the cotangents; NotInvertibleError when what it reconstructs
            depends on them.
    """
    n_out = len(sig.out_avals)
    n = len(body.ins) - len(marks)
    held = (True,) * n + marks
    order = (*range(n, n + n_out), *range(n), *range(n + n_out, len(rule.ins)))
    ordered = reorder_ins(rule, order)
    if not given.fused:
        return InverseBodies((ordered,), held, ())
    n_free, n_known = len(marks) - sum(marks), n_out + sum(held)
    needed = prune(ordered, tuple([k < n_free for k in range(len(ordered.outs))]))[1]
    what = f"defivjp of {sig.name}: {function_name(given.rule)}"
    if any(needed[n_known:]):
        raise NotInvertibleError(
            f"{what}: what it reconstructs depends on the cotangents",
            remedy="return (arguments, cotangents of all arguments), in this order",
        )
    b = Builder()
    known = b.inputs(ordered.in_avals[:n_known])
    zeros = [Zero(a).instantiate() for a in ordered.in_avals[n_known:]]
    inverse = dce(b.build(b.inline(ordered, [*known, *zeros])[:n_free], f"inverse_{body.name}"))
    residuals = (*body.outs, *select_by_mask(body.ins, held))
    forward = Jaxpr(body.ins, body.eqns, (*body.outs, *residuals), body.name)
    backward = reorder_ins(ordered, (*range(n_known, len(ordered.ins)), *range(n_known)))
    bars = Jaxpr(backward.ins, backward.eqns, backward.outs[n_free:], backward.name)
    push, pull = cotangent_maps(bars, len(ordered.ins) - n_known, what)
    return InverseBodies((inverse, ordered), held, (forward, push, pull))
