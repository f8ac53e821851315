"""From the functions that are rules to the programs that `custom_call` carries: traced, checked, brought into one form.

Everything here is done when a function with rules is called in a trace, once for each call; nothing of it is left in the
program but jaxprs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, cast, final

import numpy as np

from fxad import tree
from fxad.api.lift import tangent_tree
from fxad.api.symbolic import CustomVJPPrimal, SymbolicZero
from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, TreeError, described
from fxad.ir import Aval, Jaxpr, Zero
from fxad.lax.control.bodies import Body, traced_body
from fxad.lax.creation import splat
from fxad.numpy.binary import add
from fxad.numpy.shapes import broadcast_to
from fxad.primitives.control.bodies import select_by_mask
from fxad.runtime import SupportsDLPack
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar
from fxad.tracing.program import count_text, function_name
from fxad.transforms.ad.linear_rule import cotangent_maps, split_tangents
from fxad.transforms.reorder import reorder_ins
from fxad.tree import Structure


@final
@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What a function with rules was called with, and what it gives: trees, types, and paths for messages."""

    name: str
    in_tree: Structure
    in_avals: tuple[Aval, ...]
    in_paths: tuple[str, ...]
    out_tree: Structure
    out_avals: tuple[Aval, ...]

    @property
    def out_paths(self) -> tuple[str, ...]:
        """Paths of the results."""
        return tuple(tree.paths(self.out_tree, "result"))


@final
@dataclass(frozen=True, slots=True, eq=False)
class TracedRule:
    """Bodies of a rule over flat operands; `n_res` says how many residuals the first of them gives."""

    bodies: tuple[Body, ...]
    n_res: int = 0


def inexact(avals: Sequence[Aval]) -> tuple[Aval, ...]:
    """Those types that have tangents."""
    return tuple([a for a in avals if a.inexact])


def with_none(
    structure: Structure, avals: Sequence[Aval], values: Sequence[object], live: Sequence[bool] | None = None
) -> Any:
    """The tree of tangents: None where a leaf has none. `live`: which are among the values; the others vanish."""
    given = iter(values)
    marks = [a.inexact for a in avals] if live is None else live
    pairs = zip(avals, marks, strict=True)
    return tree.unflatten(structure, [next(given) if m else SymbolicZero(a) if a.inexact else None for a, m in pairs])


def traced(what: str, fn: Callable[..., object], flat: Callable[..., object], avals: Sequence[Aval]) -> Body:
    """Trace `flat`, a function of leaves, under the name of `fn`."""
    flat.__name__ = function_name(fn)
    return traced_body(what, flat, tree.structure((0,) * len(avals)), avals)


def check_takes(role: str, name: str, fn: Callable[..., object], given: Sequence[str]) -> None:
    """Raises: ArgumentError for a rule of the function `name` that cannot be called with the arguments `given`."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*given)
    except TypeError as e:
        raise ArgumentError(
            f"{role} of {name}: {function_name(fn)}: {e}",
            remedy=f"it is called with ({', '.join(given)}), its signature is {function_name(fn)}{signature}",
        ) from None


# -------------------------------------------------------------------------------------------------- rules that raise


@final
class RuleError(Exception):
    """A user's rule raised an error while it was traced. `message` and `remedy` are those of who would use it."""

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(error)
        said = error.message if isinstance(error, FxadError) else str(error)
        self.message = f"{what} raised {type(error).__name__}" + (f": {said}" if said else "")
        self.remedy = (error.remedy if isinstance(error, FxadError) else "") or "give a rule that covers this case"


@final
class MisfitError(Exception):
    """What a part of a rule returned does not fit: `error` says so, and is no error of the rule's own."""

    def __init__(self, error: FxadError) -> None:
        super().__init__(error)
        self.error = error


def asked(what: str, rule: Callable[..., object], *args: object) -> object:
    """What a user's rule returns; `what` names it. Raises: RuleError for an error in it."""
    try:
        return rule(*args)
    except MisfitError as e:
        raise e.error from None
    except Exception as e:
        raise RuleError(what, e) from e


# ------------------------------------------------------------------------------------------------------------ tangents


def tangent_rule(
    sig: Signature, fn: Callable[..., object], rule: Callable[[Any, Any], object], live: Sequence[bool]
) -> TracedRule:
    """Trace a rule (primals, tangents) -> (results, tangents of results); `fn` is the user's function, for names.
    `live` marks the leaves whose tangents do not vanish.

    Raises: TreeError, ShapeError, DTypeError for what does not fit the function, naming the path and both types.
    """
    what, n = f"defjvp of {sig.name}: {function_name(fn)}", len(sig.in_avals)

    def flat(*leaves: object) -> object:
        primals = tree.unflatten(sig.in_tree, leaves[:n])
        found = asked(what, rule, primals, with_none(sig.in_tree, sig.in_avals, leaves[n:], live))
        out, dot = pair(what, "(results, tangents)", found)
        return _results(what, sig, out) + directions(
            what, "tangent", sig.out_tree, sig.out_avals, sig.out_paths, dot, "the results"
        )

    body = traced(what, fn, flat, (*sig.in_avals, *select_by_mask(sig.in_avals, live)))
    body = body.typed([*sig.out_avals, *inexact(sig.out_avals)])
    found, m = body.jaxpr.out_avals, len(sig.out_avals)
    check_types(what, "for", sig.out_paths, sig.out_avals, found[:m])
    moving = [p for p, a in zip(sig.out_paths, sig.out_avals, strict=True) if a.inexact]
    check_types(what, "as tangent of", moving, inexact(sig.out_avals), found[m:])
    return TracedRule((body,))


def split_tangent_rule(sig: Signature, what: str, rule: Jaxpr, live: Sequence[bool]) -> tuple[Jaxpr, ...]:
    """(forward, push) of a traced rule, over all operands. Raises: NotLinearError."""
    return split_tangents(rule, len(sig.out_avals), sum(live), f"defjvp of {sig.name}: {what}")


def added_tangents(fun: object, out: object, parts: Sequence[tuple[object, object]]) -> Any:
    """The sum of the tangents of results that rules give, one for each argument; None where all of them vanish.

    Raises: TreeError, ShapeError, DTypeError for a tangent that does not fit the results, naming the rule.
    """
    leaves, structure = tree.flatten(out)
    avals, paths = [aval_of(x) for x in leaves], tree.paths(structure, "result")
    moving = [a.inexact for a in avals]
    total: list[object] = [None] * len(avals)
    for rule, value in parts:
        what = f"defjvps of {function_name(fun)}: {function_name(rule)}"
        found = directions(what, "tangent", structure, avals, paths, value, "the results")
        types = [a if is_scalar(x) else aval_of(x) for x, a in zip(found, inexact(avals), strict=True)]
        check_types(what, "as tangent of", select_by_mask(paths, moving), inexact(avals), types)
        for k, x in enumerate(tree.flatten_up_to(structure, value) or ()):
            if moving[k] and x is not None and not isinstance(x, SymbolicZero):
                total[k] = x if total[k] is None else add(cast("ArrayLike", total[k]), x)
    return tree.unflatten(structure, total)


# ---------------------------------------------------------------------------------------------------------- cotangents


def cotangent_rule(
    sig: Signature,
    fwd: Callable[..., object],
    bwd: Callable[..., object],
    forward: Callable[..., object],
    backward: Callable[[Any, Any], object],
    live: Sequence[bool],
    wrapped: bool,
) -> TracedRule:
    """Trace `forward(*args) -> (results, residuals)` and `backward(residuals, cotangents) -> cotangents of args`.

    `fwd` and `bwd` are the user's functions, for names. `live` marks the leaves whose cotangents are asked for; with
    `wrapped` the function is given them as `CustomVJPPrimal`.
    Raises: TreeError, ShapeError, DTypeError for what does not fit the function, naming the path and both types.
    """
    what, back = f"defvjp of {sig.name}: {function_name(fwd)}", f"defvjp of {sig.name}: {function_name(bwd)}"
    res_tree: Structure | None = None
    held: list[object] = []

    def flat_forward(*leaves: object) -> object:
        nonlocal res_tree
        args = [CustomVJPPrimal(x, m) for x, m in zip(leaves, live, strict=True)] if wrapped else leaves
        given = asked(what, forward, *tree.unflatten(sig.in_tree, args))
        out, residuals = pair(what, "(results, residuals)", given)
        stored, res_tree = tree.flatten(residuals)
        held.extend(_held(what, stored, res_tree))
        return _results(what, sig, out) + [x for x, h in zip(stored, held, strict=True) if h is _ARRAY]

    first = traced(what, fwd, flat_forward, sig.in_avals)
    m, n_res = len(sig.out_avals), len(first.numbers) - len(sig.out_avals)
    first = first.typed([*sig.out_avals, *[None] * n_res])
    check_types(what, "for", sig.out_paths, sig.out_avals, first.jaxpr.out_avals[:m])

    def flat_backward(*leaves: object) -> object:
        assert res_tree is not None
        arrays = iter(leaves[:n_res])
        residuals = tree.unflatten(res_tree, [next(arrays) if h is _ARRAY else h for h in held])
        bars = asked(back, backward, residuals, with_none(sig.out_tree, sig.out_avals, leaves[n_res:]))
        wanted = [m for a, m in zip(sig.in_avals, live, strict=True) if a.inexact]
        return list(select_by_mask(cotangents(back, sig, bars), wanted))

    second = traced(back, bwd, flat_backward, (*first.jaxpr.out_avals[m:], *inexact(sig.out_avals)))
    wants = select_by_mask(sig.in_avals, live)
    second = second.typed(wants)
    check_types(back, "as cotangent of", select_by_mask(sig.in_paths, live), wants, second.jaxpr.out_avals)
    return TracedRule((first, second), n_res)


_ARRAY: Final = object()  # stands for a residual that is an array, and so an operand of the backward program


def _held(what: str, stored: Sequence[object], res_tree: Structure) -> list[object]:
    """What is given to `bwd` as it is: numbers, strings, sizes, functions; `_ARRAY` for arrays.

    Raises: ArgumentError for what is no array and might change until then.
    """
    out: list[object] = []
    for x, path in zip(stored, tree.paths(res_tree, "residual"), strict=True):
        if not is_scalar(x) and isinstance(x, Array | np.ndarray | np.generic | SupportsDLPack):
            out.append(_ARRAY)
            continue
        try:
            hash(x)
        except TypeError:
            raise ArgumentError(
                f"{what} returns {described(x)} as {path}, which is no array and can change: {x!r:.60}",
                remedy="store arrays, or values that are hashable, such as a frozenset for a set",
            ) from None
        out.append(x)
    return out


def split_cotangent_rule(
    sig: Signature, what: str, n_captured: int, n_res: int, forward: Jaxpr, backward: Jaxpr
) -> tuple[Jaxpr, ...]:
    """(forward, push, pull) of a traced rule, over all operands: what `backward` closes over becomes a residual.

    forward: (captured, arguments) -> (results, residuals). backward: (captured, residuals, cotangents) -> cotangents.
    Raises: NotLinearError.
    """
    kept = forward.ins[:n_captured]
    whole = Jaxpr(forward.ins, forward.eqns, (*forward.outs, *kept), forward.name)
    n_cts = len(inexact(sig.out_avals))
    push, pull = cotangent_maps(_reordered(backward, n_captured, n_res), n_cts, f"defvjp of {sig.name}: {what}")
    return whole, push, pull


def _reordered(backward: Jaxpr, n_captured: int, n_res: int) -> Jaxpr:
    """(captured, residuals, cotangents) as (cotangents, residuals, captured)."""
    n = n_captured + n_res
    order = (*range(n, len(backward.ins)), *range(n_captured, n), *range(n_captured))
    return reorder_ins(backward, order)


def cotangents(what: str, sig: Signature, bars: object) -> list[object]:
    """The leaves of a tuple with a cotangent for each argument. Raises: TreeError, DTypeError."""
    parts = sig.in_tree.children()
    if not isinstance(bars, tuple | list) or len(bars) != len(parts):
        raise TreeError(
            f"{what} returns {tree.shape_text(tree.structure(bars))}, {sig.name} has "
            f"{count_text(len(parts), 'argument')} that its rule is about",
            remedy="return a tuple with a cotangent for each argument, None where it has none",
        )
    out: list[object] = []
    at = 0
    for part, bar in zip(parts, bars, strict=True):
        here = slice(at, at + part.num_leaves)
        out += directions(what, "cotangent", part, sig.in_avals[here], sig.in_paths[here], bar, "the argument")
        at += part.num_leaves
    return out


# ------------------------------------------------------------------------------------------------------------ batching


def stacked_rule(
    sig: Signature, fn: Callable[..., object], size: int, rule: Callable[[int, Any, Any], object]
) -> TracedRule:
    """Trace a rule (size, which leaves are mapped, stacked arguments) -> (results, which of them are mapped).

    Raises: TreeError, ShapeError, DTypeError for what does not fit the function, naming the path and both types.
    """
    what = f"def_vmap of {sig.name}: {function_name(fn)}"

    def flat(*leaves: object) -> object:
        mapped = tree.unflatten(sig.in_tree, [True] * len(leaves))
        out, where = pair(what, "(results, out_batched)", rule(size, mapped, tree.unflatten(sig.in_tree, leaves)))
        marks = tree.broadcast_prefix(where, sig.out_tree, f"{what}: out_batched", lambda x: isinstance(x, bool))
        results = _results(what, sig, out)
        for k, (x, is_stack) in enumerate(zip(results, marks, strict=True)):
            if not is_stack:
                have, want = aval_of(x), sig.out_avals[k]
                if have.shape != want.shape and not is_scalar(x):
                    raise ShapeError(
                        f"{what} returns {have} for {sig.out_paths[k]}, which is {want}, and is no stack by out_batched",
                        remedy=f"return {want} there, or say True for it in out_batched if it is a stack",
                    )
                results[k] = broadcast_to(cast("ArrayLike", x), (size, *want.shape))
        return results

    body = traced(what, fn, flat, [a.with_shape((size, *a.shape)) for a in sig.in_avals])
    body = body.typed(sig.out_avals)
    wants = [a.with_shape((size, *a.shape)) for a in sig.out_avals]
    check_types(what, "as stack of", sig.out_paths, wants, body.jaxpr.out_avals)
    return TracedRule((body,))


# -------------------------------------------------------------------------------------------------------------- checks


def pair(what: str, wanted: str, value: object) -> tuple[Any, Any]:
    """A value that must be a pair. Raises: TreeError."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TreeError(
            f"{what} returns {tree.shape_text(tree.structure(value))}, not a pair {wanted}",
            remedy=f"return a tuple of two: {wanted}",
        )
    return value[0], value[1]


def _results(what: str, sig: Signature, out: object) -> list[object]:
    leaves, found = tree.flatten(out)
    if found != sig.out_tree:
        raise TreeError(
            f"{what} returns results {tree.shape_text(found)}, {sig.name} returns {tree.shape_text(sig.out_tree)}",
            remedy="a rule gives the results of its function, in the same tree",
        )
    for x, path in zip(leaves, sig.out_paths, strict=True):
        aval_of(x, f"{what}: {path}")
    return leaves


def directions(
    what: str, role: str, structure: Structure, avals: Sequence[Aval], paths: Sequence[str], value: object, of: str
) -> list[object]:
    """The leaves of a tree of tangents (or cotangents) that belong to leaves with tangents; zeros for None.

    Raises: TreeError where it has another structure than `structure`; DTypeError for a tangent of what has none.
    """
    if value is None or (isinstance(value, SymbolicZero) and structure.type is not None):
        return [splat(Zero(a).instantiate()) for a in avals if a.inexact]
    leaves = tree.flatten_up_to(structure, value)
    if leaves is None or any([x is not None and tree.structure(x).num_nodes != 1 for x in leaves]):
        found, want = tree.structure(value), tangent_tree(structure, avals)
        raise TreeError(
            f"{what} returns the {role} {tree.shape_text(found)}, it must be {tree.shape_text(want)} as {of}",
            remedy=f"a {role} has the structure of {of}, with None for integers and bools, or where it vanishes",
        )
    out: list[object] = []
    for x, aval, path in zip(leaves, avals, paths, strict=True):
        if aval.inexact:
            zero = x is None or isinstance(x, SymbolicZero)
            if not zero:
                aval_of(x, f"{what}: {role} of {path}")
            out.append(splat(Zero(aval).instantiate()) if zero else x)
        elif x is not None and not isinstance(x, SymbolicZero):
            raise DTypeError(
                f"{what} returns a {role} of {path}, which is {aval} and has none", remedy="return None for it"
            )
    return out


def check_types(what: str, verb: str, paths: Sequence[str], wants: Sequence[Aval], found: Sequence[Aval]) -> None:
    """Raises: ShapeError, DTypeError for the first type that is not as wanted."""
    for path, want, have in zip(paths, wants, found, strict=True):
        if have is not want:
            kind: type[FxadError] = ShapeError if have.shape != want.shape else DTypeError
            raise kind(
                f"{what} returns {have} {verb} {path}, which is {want}",
                remedy=f"return {want} there" + ("" if kind is ShapeError else f": astype('{want.dtype.name}')"),
            )


# -------------------------------------------------------------------------------------- arguments that rules are not about


def static_places(name: str, nondiff_argnums: Sequence[int]) -> tuple[int, ...]:
    """`nondiff_argnums` in order, each once. Raises: ArgumentError for what are no positions."""
    if not isinstance(nondiff_argnums, Sequence):
        raise ArgumentError(
            f"custom rules of {name}: nondiff_argnums is {nondiff_argnums!r:.60}, not a sequence of numbers",
            remedy="nondiff_argnums=(0,)",
        )
    for k in nondiff_argnums:
        if not isinstance(k, int) or isinstance(k, bool) or k < 0:
            raise ArgumentError(
                f"custom rules of {name}: nondiff_argnums {nondiff_argnums!r} has {k!r}",
                remedy="number positional arguments from 0",
            )
    return tuple(sorted(set(nondiff_argnums)))


def static_arguments(name: str, places: Sequence[int], n: int) -> list[int]:
    """Which of the n arguments of a call the rules are not about. Raises: ArgumentError for one that it does not have."""
    if places and places[-1] >= n:
        raise ArgumentError(
            f"{name}: nondiff_argnums has {places[-1]}, and it is called with {count_text(n, 'argument')}",
            remedy="number the arguments from 0",
        )
    return list(places)
