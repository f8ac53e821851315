"""Products of arrays, summed over shared axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import cast

import opt_einsum

from fxad.core.atoms import nominal
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.ir import Shape
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.shapes import moveaxis
from fxad.operations import arithmetic, contractions
from fxad.operations.arguments import is_one_integer, no_out, to_int, to_tuple
from fxad.operations.axes import normalize_axis_tuple
from fxad.operations.contractions import Label
from fxad.operations.operators import Operation
from fxad.operations.precision import PrecisionLike, precise, to_precision
from fxad.operations.promotion import optional_dtype
from fxad.tracing.array import Array, ArrayLike, aval_of


def _with_precision(
    name: str, op: Operation, operands: tuple[ArrayLike, ...], precision: PrecisionLike, *static: Hashable
) -> Array:
    """Return an operation whose products have a precision."""
    how = to_precision(name, precision, algorithms=True)
    return apply_op(name, precise, operands, *static, op, how) if how else apply_op(name, op, operands, *static)


def matmul(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: object = None
) -> Array:
    """Return the matrix product over the last two axes; the other axes broadcast. A vector is a row (`a`) or a column
    (`b`). `precision` is that of products on an accelerator, see `lax.Precision`."""
    return _with_precision("matmul", contractions.matmul, (a, b), precision, optional_dtype(preferred_element_type))


def dot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: object = None) -> Array:
    """Return the product summed over the last axis of `a` and the second-to-last of `b`; a scalar multiplies."""
    return _with_precision("dot", contractions.dot, (a, b), precision, optional_dtype(preferred_element_type))


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the sum of products along one axis, with x1 conjugated; the other axes broadcast."""
    if preferred_element_type is not None:
        left, right = [moveaxis(as_array("vecdot", a, k), axis, -1) for k, a in enumerate((x1, x2))]
        product = matmul(
            left.conj()[..., None, :],
            right[..., :, None],
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
        return product[..., 0, 0]
    return _with_precision("vecdot", contractions.vecdot, (x1, x2), precision, axis)


def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: object = None
) -> Array:
    """Return the sum of the products of all elements, with `a` conjugated, in the dtype `preferred_element_type`."""
    x, y = as_array("vdot", a).ravel(), as_array("vdot", b, 1).ravel()
    if preferred_element_type is None:
        return vecdot(x, y, precision=precision)
    return tensordot(x.conj(), y, 1, precision=precision, preferred_element_type=preferred_element_type)


def inner(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: object = None
) -> Array:
    """Return the product summed over the last axes; a scalar multiplies."""
    x, y = as_array("inner", a), as_array("inner", b, 1)
    if not (x.ndim and y.ndim):
        preferred = optional_dtype(preferred_element_type)
        return x * y if preferred is None else x.astype(preferred) * y.astype(preferred)
    return tensordot(x, y, ((-1,), (-1,)), precision=precision, preferred_element_type=preferred_element_type)


def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Return the products of all pairs of an element of `a` and an element of `b`."""
    no_out("outer", out)
    x, y = as_array("outer", a), as_array("outer", b, 1)
    return apply_op("outer", arithmetic.multiply, (x.reshape(-1, 1), y.reshape(1, -1)))


def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: int | tuple[int | Sequence[int], int | Sequence[int]] = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the product summed over pairs of axes, or over the last `axes` axes of the first array
    and the first ones of the second."""
    n, m = [aval_of(x, f"tensordot: argument {k}").ndim for k, x in enumerate((a, b))]
    if is_one_integer(axes):
        count = to_int("tensordot", "axes", cast("int", axes))
        if not 0 <= count <= min(n, m):
            raise ParameterError(f"tensordot: {count} axes of arrays with {n} and {m}")
        axes = tuple(range(n - count, n)), tuple(range(count))
    pair = to_tuple("tensordot", "axes", cast("Sequence[int | Sequence[int]]", axes))
    if len(pair) != 2:
        raise ParameterError(f"tensordot: axes {shown(axes)} is neither a number nor a pair of axes")
    left, right = normalize_axis_tuple("tensordot", pair[0], n), normalize_axis_tuple("tensordot", pair[1], m)
    if len(left) != len(right):
        raise ShapeError(f"tensordot: {len(left)} axes of x1 against {len(right)} of x2")
    preferred = optional_dtype(preferred_element_type)
    return _with_precision("tensordot", contractions.tensordot, (a, b), precision, left, right, preferred)


# ----------------------------------------------------------------------------------------------------------- einsum


def einsum(
    subscripts: str,
    *operands: ArrayLike,
    optimize: bool | str | Sequence[object] = "optimal",
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the sum of products over labelled axes, as in `einsum("...ij,jk->...ik", a, b)`.

    Rule:   a repeated label in one operand takes the diagonal. Labels that the result lacks are summed over. Without
            `->` the result has the labels that occur once, in alphabetical order. Axes of size 1 broadcast.
    Cost:   three or more operands are contracted in the order that `opt_einsum` finds cheapest, where named sizes count
            as 64; `optimize`, also a path of `einsum_path`, is accepted as in JAX, and changes no value.
    Raises: ParameterError for subscripts that do not parse; ShapeError for sizes that differ.
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(
            f"einsum: argument 0 must be the subscripts, got {type(subscripts).__qualname__}",
            remedy="write them as one string: einsum('ij,jk->ik', a, b)",
        )
    shapes = [aval_of(x, f"einsum: argument {k + 1}").shape for k, x in enumerate(operands)]
    labels, out = _parse_subscripts(subscripts, shapes)
    path = _path(labels, out, shapes)
    if not isinstance(optimize, bool | str | list | tuple):
        raise ArgumentError(f"einsum: optimize is {described(optimize)}, not a bool or a str", remedy="leave it out")
    if isinstance(optimize, list | tuple):
        _check_path(optimize)
    preferred = optional_dtype(preferred_element_type)
    return _with_precision("einsum", contractions.einsum, operands, precision, labels, out, path, preferred)


def _check_path(path: Sequence[object]) -> None:
    """Check that each step of a path contracts one or two operands. Raises: ParameterError."""
    for step in path[1:] if path[:1] and path[0] == "einsum_path" else path:
        numbers = isinstance(step, list | tuple) and all([isinstance(n, int) for n in step])
        if not numbers or not 1 <= len(cast("Sequence[int]", step)) <= 2:
            raise ParameterError(
                f"einsum: optimize has the step {shown(step, 40)}, not one or two operands", remedy="leave it out"
            )


def _parse_subscripts(
    subscripts: str, shapes: Sequence[Shape]
) -> tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...]]:
    """Return the labels of the axes of the operands and of the result. The axes of an ellipsis have negative labels: -1
    is its last axis."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ParameterError(f"einsum: {subscripts!r} is for {len(terms)} operands, got {len(shapes)}")
    hidden = [len(s) - len(t.replace("...", "", 1)) if "..." in t else 0 for t, s in zip(terms, shapes, strict=True)]
    for k, (t, s, h) in enumerate(zip(terms, shapes, hidden, strict=True)):
        if h < 0 or ("..." not in t and len(t) != len(s)):
            raise ShapeError(f"einsum: {t!r} does not fit operand {k} of shape {s}")
    labels = [_split_labels(subscripts, t, h) for t, h in zip(terms, hidden, strict=True)]
    broad = max(hidden, default=0)
    if arrow:
        out = _split_labels(subscripts, right, broad)
    else:
        once = sorted([c for c, n in Counter(left.replace("...", "").replace(",", "")).items() if n == 1])
        out = (*range(-broad, 0), *once)
    operand_labels = {label for term in labels for label in term}
    for label, n in Counter(out).items():
        if label not in operand_labels or n > 1:
            problem = "twice" if n > 1 else "and no operand has it"
            raise ParameterError(f"einsum: {subscripts!r}: the result has label {label!r} {problem}")
    return tuple(labels), out


def _split_labels(subscripts: str, term: str, hidden: int) -> tuple[Label, ...]:
    before, dots, after = term.partition("...")
    if not all([c.isalpha() for c in before + after]):
        raise ParameterError(
            f"einsum: {subscripts!r} does not parse at {term!r}",
            remedy="labels are letters; '...' stands once in a term",
        )
    return (*before, *(range(-hidden, 0) if dots else ()), *after)


def _path(
    labels: tuple[tuple[Label, ...], ...], out: tuple[Label, ...], shapes: Sequence[Shape]
) -> tuple[tuple[int, ...], ...]:
    if len(shapes) < 3:
        return (tuple(range(len(shapes))),)
    names = {label: opt_einsum.get_symbol(k) for k, label in enumerate(dict.fromkeys(chain(*labels)))}
    terms = ["".join([names[label] for label in term]) for term in (*labels, out)]
    numbers = [tuple([nominal(n) for n in shape]) for shape in shapes]
    path, _ = opt_einsum.contract_path(f"{','.join(terms[:-1])}->{terms[-1]}", *numbers, shapes=True)
    return tuple([tuple(step) for step in path])
