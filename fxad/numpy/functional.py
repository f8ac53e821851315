"""Higher-order functions. A Python function is traced once, for one example, and mapped over the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from typing import Final, TypeAlias, cast

from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.ir import as_shape
from fxad.lax.shapes import broadcast_shapes
from fxad.numpy.apply import as_array
from fxad.numpy.composites import promote_arguments
from fxad.numpy.indexing import indices
from fxad.numpy.shapes import moveaxis
from fxad.operations.arguments import function, text, to_tuple
from fxad.operations.axes import hashable_axis, normalize_axis_index
from fxad.tracing.array import Array, ArrayLike, binder
from fxad.tracing.trace_function import trace_flat
from fxad.transforms.vmap import vmap

OneOrMore: TypeAlias = "Array | tuple[Array, ...]"

_NAME: Final = r"[A-Za-z_]\w*|\d+"
_CORE: Final = rf"\((?:(?:{_NAME})(?:,(?:{_NAME}))*)?\)"
_SIGNATURE: Final = re.compile(rf"(?:{_CORE}(?:,{_CORE})*)?->{_CORE}(?:,{_CORE})*")


def vectorize(
    pyfunc: Callable[..., object],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., OneOrMore]:
    """Return a function over arrays that broadcast, from a function of scalars; with a `signature`, from a function of
    small arrays.

    Rule:   "(m,n),(n)->(m)" names the last axes of each argument and result, which belong to one example. Equal names
            are equal sizes. The other axes broadcast and are mapped. Positions and keywords in `excluded`,
            and without a signature None, are passed unchanged.
    Cost:   the function is traced once, for one example.
    Raises: ShapeError, ArgumentError naming the function and the argument.
    """
    signature = None if signature is None else text("vectorize", "signature", signature)
    _check_excluded(excluded)
    cores = None if signature is None else _parse_signature(signature)
    name = getattr(pyfunc, "__name__", "function")

    @wraps(pyfunc, updated=())
    def mapped(*args: object, **kwargs: object) -> OneOrMore:
        slots: list[int | str] = [*range(len(args)), *kwargs]
        by_slot = dict(zip(slots, (*args, *kwargs.values()), strict=True))
        free = [k for k in slots if k not in excluded and not (by_slot[k] is None and cores is None)]

        def example(*xs: Array) -> object:
            own = {**by_slot, **dict(zip(free, xs, strict=True))}
            return pyfunc(*[own[k] for k in range(len(args))], **{k: own[k] for k in kwargs})

        arrays = list(promote_arguments(f"vectorize: {name}", *[by_slot[k] for k in free]))
        ins = [()] * len(free) if cores is None else cores[0]
        if len(ins) != len(free):
            raise ArgumentError(f"vectorize: {name} takes {len(ins)} arrays by {signature!r}, got {len(free)}")
        sizes = _core_sizes(name, signature, ins, arrays)
        results, single = _vmap_leading(f"vectorize({name})", example, arrays, [len(core) for core in ins])
        _check_core_results(name, signature, cores, sizes, arrays, results)
        return results[0] if single else tuple(results)

    return mapped


def _check_excluded(excluded: Collection[int | str]) -> None:
    """Raises: ParameterError for what no argument has, which would exclude nothing."""
    for slot in excluded if isinstance(excluded, Iterable) and not isinstance(excluded, str) else [excluded]:
        is_position = isinstance(slot, int) and not isinstance(slot, bool)
        if slot is excluded or not (isinstance(slot, str) or (is_position and slot >= 0)):
            remedy = "give a set of positions from 0 on, and of names of arguments"
            raise ParameterError(f"vectorize: excluded has {shown(slot, 40)}", remedy=remedy)


Core: TypeAlias = "tuple[str, ...]"


def _parse_signature(signature: str) -> tuple[list[Core], list[Core]]:
    text = signature.replace(" ", "")
    if not _SIGNATURE.fullmatch(text):
        raise ParameterError(
            f"vectorize: signature {signature!r} does not parse", remedy="write it as in '(m,n),(n)->(m)'"
        )
    before, after = [
        [tuple([c for c in core[1:-1].split(",") if c]) for core in re.findall(_CORE, part)]
        for part in text.split("->")
    ]
    return before, after


def _core_sizes(name: str, signature: str | None, ins: Sequence[Core], arrays: list[Array]) -> dict[str, int]:
    """Return the size of each named axis. Raises: ShapeError if two sizes differ."""
    sizes: dict[str, int] = {}
    for k, (core, x) in enumerate(zip(ins, arrays, strict=True)):
        if x.ndim < len(core):
            raise ShapeError(f"vectorize: argument {k} of {name} has {x.ndim} axes, {signature!r} wants {len(core)}")
        for label, n in zip(core, x.shape[x.ndim - len(core) :], strict=True):
            wanted = sizes.setdefault(label, int(label) if label.isdecimal() else n)
            if n != wanted:
                raise ShapeError(
                    f"vectorize: axis {label} of {name} has sizes {wanted} and {n}, by argument {k}: {x.aval}"
                )
    return sizes


def _check_core_results(
    name: str,
    signature: str | None,
    cores: tuple[list[Core], list[Core]] | None,
    sizes: dict[str, int],
    arrays: list[Array],
    results: list[Array],
) -> None:
    if cores is None:
        return
    ins, outs = cores
    if len(outs) != len(results):
        raise ArgumentError(f"vectorize: {name} gives {len(results)} results, {signature!r} says {len(outs)}")
    lead = max([x.ndim - len(core) for core, x in zip(ins, arrays, strict=True)], default=0)
    for k, (core, y) in enumerate(zip(outs, results, strict=True)):
        own = y.shape[lead:]
        expected = tuple([sizes.setdefault(c, n) for c, n in zip(core, own, strict=False)])
        if len(own) != len(core) or expected != own:
            raise ShapeError(f"vectorize: result {k} of {name} has shape {own}, {signature!r} says ({','.join(core)})")


def _vmap_leading(
    name: str, fn: Callable[..., object], arrays: list[Array], cores: list[int]
) -> tuple[list[Array], bool]:
    """Map `fn` over the leading axes of the arrays, which broadcast. Return its results, and whether it has one
    result."""
    leads = [x.shape[: x.ndim - n] for x, n in zip(arrays, cores, strict=True)]
    shape = broadcast_shapes(*leads)
    avals = [x.aval.with_shape(x.shape[len(lead) :]) for x, lead in zip(arrays, leads, strict=True)]
    single = True

    def flat(xs: list[Array]) -> Sequence[object]:
        nonlocal single
        out = fn(*xs)
        single = not isinstance(out, tuple | list)
        return [out] if single else list(cast("Sequence[object]", out))

    program, captured = trace_flat(flat, avals, name)
    for k in reversed(range(len(shape))):
        if shape[k] == 1:
            continue
        # an argument that broadcasts along this axis has no such axis here: its axes of size 1 are dropped below
        has = [len(lead) - len(shape) + k >= 0 and lead[len(lead) - len(shape) + k] != 1 for lead in leads]
        dims = (*[None] * len(captured), *[0 if h else None for h in has])
        program, _ = vmap(program, shape[k], dims, (0,) * len(program.outs))
    squeezed = [
        x.reshape([n for n in lead if n != 1] + list(x.shape[len(lead) :]))
        for x, lead in zip(arrays, leads, strict=True)
    ]
    outs = binder().call(program, [*captured, *squeezed])
    mapped = len([n for n in shape if n != 1])
    return [y.reshape(shape + y.shape[mapped:]) for y in outs], single


def apply_along_axis(
    func1d: Callable[..., object], axis: int, arr: ArrayLike, *args: object, **kwargs: object
) -> OneOrMore:
    """Apply a function of vectors to the vectors along an axis. The axes of its result replace that axis."""
    func1d = function("apply_along_axis", "func1d", func1d)
    array = as_array("apply_along_axis", arr, 2)
    k = normalize_axis_index("apply_along_axis", axis, array.ndim)
    name = getattr(func1d, "__name__", "function")
    rows = moveaxis(array, k, -1)
    results, single = _vmap_leading(f"apply_along_axis({name})", lambda x: func1d(x, *args, **kwargs), [rows], [1])
    lead, outs = array.ndim - 1, []
    for y in results:
        more = y.ndim - lead
        outs.append(moveaxis(y, tuple(range(lead, y.ndim)), tuple(range(k, k + more))) if more else y)
    return outs[0] if single else tuple(outs)


def apply_over_axes(func: Callable[[Array, int], ArrayLike], a: ArrayLike, axes: int | Sequence[int]) -> Array:
    """Apply a function of (array, axis) for each axis in turn. An axis that it removes is restored with size 1."""
    func = function("apply_over_axes", "func", func)
    out = as_array("apply_over_axes", a, 1)
    n = out.ndim
    all_axes = hashable_axis(axes)
    for axis in (
        (all_axes,)
        if isinstance(all_axes, int)
        else to_tuple("apply_over_axes", "axes", () if all_axes is None else all_axes)
    ):
        k = normalize_axis_index("apply_over_axes", axis, n)
        applied = as_array("apply_over_axes", func(out, k))
        if applied.ndim not in (n, n - 1):
            raise ShapeError(
                f"apply_over_axes: the function makes {applied.aval} of {out.aval}", remedy="keep or drop the axis"
            )
        out = applied if applied.ndim == n else applied.reshape(out.shape[:k] + (1,) + out.shape[k + 1 :])
    return out


def fromfunction(
    function: Callable[..., object], shape: int | Sequence[int], *, dtype: object = float, **kwargs: object
) -> object:
    """Apply a function to the index arrays of a shape, one for each axis."""
    if not callable(function):
        raise ArgumentError(f"fromfunction: argument 0 must be a function, got {described(function)}")
    sizes = as_shape(shape)
    grid = indices(sizes, "int32")
    assert isinstance(grid, Array)
    return function(*[grid[k].astype(dtype) for k in range(len(sizes))], **kwargs)


__all__ = ["apply_along_axis", "apply_over_axes", "fromfunction", "vectorize"]
