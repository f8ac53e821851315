"""Traces the inverses that users give, checks them against their function, and makes the records of `custom_call`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from fxad.api.custom_rules import (
    Signature,
    TracedRule,
    call_rule,
    cotangents,
    inexact,
    pair,
    traced_rule,
    with_none,
)
from fxad.core import tree
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce, prune
from fxad.errors import ArgumentError, NotInvertibleError, TreeError
from fxad.ir import Jaxpr, Zero
from fxad.operations.arguments import plain_ints
from fxad.primitives.control.bodies import reorder_operands, select_by_mask, with_outs
from fxad.primitives.custom_rules import Derivative, InverseRule, Rules
from fxad.tracing.program import function_name, parameter_names
from fxad.transforms.ad.linear_rule import cotangent_maps


@final
@dataclass(frozen=True, slots=True, eq=False)
class GivenInverse:
    """A user's rule, and the positions of the arguments that it takes beside the results. `fused`: it also gives the
    cotangents."""

    rule: Callable[..., Any]
    keep: tuple[int, ...]
    fused: bool

    @property
    def role(self) -> str:
        """The name of the method that the user called."""
        return "defivjp" if self.fused else "definverse"


def places_of(what: str, fun: object, keep: int | str | Sequence[int | str]) -> tuple[int, ...]:
    """Arguments to keep, as positions. Raises: ArgumentError."""
    names = parameter_names(fun)
    out: list[int] = []
    keep = plain_ints(keep)
    for k in keep if isinstance(keep, list | tuple) else (keep,):
        if not (k in names if isinstance(k, str) else isinstance(k, int) and not isinstance(k, bool) and k >= 0):
            raise ArgumentError(
                f"{what} of {function_name(fun)}: keep has {k!r}, which is no argument of it",
                remedy="name arguments, or number them from 0",
            )
        out.append(names.index(k) if isinstance(k, str) else k)
    return tuple(out)


def inverse_rule(sig: Signature, places: Sequence[int], given: GivenInverse, rule: Callable[..., Any]) -> TracedRule:
    """Trace `rule(results, [cotangents,] *kept) -> others`, or with cotangents `(others, cotangents of arguments)`.

    `places` are the positions of the arguments that the rules of the function are about.
    Raises: TreeError, ShapeError, DTypeError for a result that does not fit the function, naming the path and both
            types; ArgumentError for a position to keep that the call does not have; from `finish`, NotLinearError for an
            ivjp that is not linear in the cotangents, NotInvertibleError if what it reconstructs depends on them.
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
            return _others(call_rule(what, rule, results, *kept))
        cts = with_none(sig.out_tree, sig.out_avals, leaves[m:])
        others, bars = pair(what, "(arguments, cotangents)", call_rule(what, rule, results, cts, *kept))
        return _others(others) + cotangents(what, sig, bars)

    def _others(value: object) -> list[object]:
        leaves, found = tree.flatten(value)
        if found != shape:
            raise TreeError(
                f"{what} returns {tree.shape_text(found)}, {sig.name} takes {tree.shape_text(shape)}",
                remedy="return the argument that is not kept, or a tuple of them in order",
            )
        return leaves

    takes = (*sig.out_avals, *select_by_mask(sig.in_avals, marks), *(inexact(sig.out_avals) if given.fused else ()))
    gives = "for", select_by_mask(sig.in_paths, free), select_by_mask(sig.in_avals, free)
    moving = [p for p, a in zip(sig.in_paths, sig.in_avals, strict=True) if a.inexact]
    bars = [("as cotangent of", moving, inexact(sig.in_avals))] if given.fused else []
    body = traced_rule(what, given.rule, flat, takes, gives, *bars)

    def finish(whole: Jaxpr, programs: Sequence[Jaxpr]) -> Rules:
        n_captured = len(whole.ins) - len(marks)
        order = (*range(n_captured, n_captured + n), *range(n_captured), *range(n_captured + n, len(programs[0].ins)))
        ordered = reorder_operands(programs[0], order)  # results, captured, kept, cotangents
        kept = (True,) * n_captured + marks
        moving = sig.marks(whole, [a.inexact for a in sig.in_avals])
        return _fused(what, whole, ordered, kept, moving) if given.fused else Rules(inverse=InverseRule(kept, ordered))

    return TracedRule((body,), finish)


def _single(parts: list[Any]) -> Any:
    """A single argument as it is, several as a tuple."""
    return parts[0] if len(parts) == 1 else tuple(parts)


def _fused(what: str, body: Jaxpr, rule: Jaxpr, kept: tuple[bool, ...], moving: tuple[bool, ...]) -> Rules:
    """The inverse and the derivative that an ivjp gives: (results, kept operands, cotangents) -> (other operands,
    cotangents of the moving ones)."""
    n_out, n_free = len(body.outs), len(kept) - sum(kept)
    n_known = n_out + sum(kept)
    read = prune(rule, tuple([k < n_free for k in range(len(rule.outs))]))[1]
    if any(read[n_known:]):
        raise NotInvertibleError(
            f"{what}: what it reconstructs depends on the cotangents",
            remedy="return (arguments, cotangents of all arguments), in this order",
        )
    b = Builder()
    known = b.inputs(rule.in_avals[:n_known])
    zeros = [Zero(a).instantiate() for a in rule.in_avals[n_known:]]
    inverse = dce(b.build(b.inline(rule, [*known, *zeros])[:n_free], f"inverse_{body.name}"))
    forward = with_outs(body, (*body.outs, *body.outs, *select_by_mask(body.ins, kept)))
    backward = reorder_operands(rule, (*range(n_known, len(rule.ins)), *range(n_known)))
    maps = cotangent_maps(with_outs(backward, backward.outs[n_free:]), len(rule.ins) - n_known, what)
    return Rules(vjp=(Derivative(moving, forward, *maps),), inverse=InverseRule(kept, inverse, rule))
