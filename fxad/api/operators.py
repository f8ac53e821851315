"""Linear differential operators of functions: `laplacian`, `biharmonic`, `operator`; `collapse`.

Their arguments are read and checked here; `operator_programs` makes their programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

import numpy as np

from fxad import numpy as fnp, random
from fxad.api.chosen_arguments import ChosenArguments
from fxad.api.lift import check_function, lift
from fxad.api.operator_programs import (
    Decomposition,
    Directions,
    Estimate,
    MultiIndex,
    OperatorTransform,
    UnitVectors,
    collapsed,
    decompose_laplacian,
    directions_of,
)
from fxad.core.sizes.size import Size
from fxad.core.trees import tree
from fxad.dtypes import FLOATING
from fxad.errors import ArgumentError, ShapeError, TreeError, shown
from fxad.operations.arguments import plain_ints, to_count
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import Argnums

P = ParamSpec("P")
R = TypeVar("R")

# A coefficient: a number, an array without axes, or a function of the arguments that gives one.
Coefficient: TypeAlias = "float | Array | Callable[..., object]"

# ----------------------------------------------------------------------------------------------------------- collapse


@overload
def collapse(f: Program[P, R]) -> Program[P, R]: ...
@overload
def collapse(f: Callable[P, R]) -> Callable[P, R]: ...
def collapse(f: Callable[..., object]) -> object:
    """Return the same function in which sums over an axis are taken before linear equations, where these treat all
    slices alike and the values are used for nothing else. Calls are inlined.

    The sum over a batch of a linear map is the map of the sum. So the last derivatives of a Laplacian are carried as one
    value, also through loops and branches, and a sum of gradients over examples is the gradient of the batch. Sums of
    products of slices, such as a trace of a Jacobian or a sum of squares, stay: they are not linear in the slices.

    Law:  same value up to rounding: terms are added in another order.
    """
    return lift("collapse", f, lambda p: p.replace(collapsed(p).jaxpr))


# ---------------------------------------------------------------------------------------------------------- operators


def _checked_estimate(what: str, samples: object, key: ArrayLike | None) -> Estimate | None:
    if samples is None and key is None:
        return None
    if samples is None or key is None:
        which = "samples" if key is None else "a key"
        raise ArgumentError(f"{what}: {which} is given alone", remedy="an estimate takes both: samples=16, key=key")
    return Estimate(to_count(what, "samples", samples, 1), key)


def _make_laplacian(
    what: str, f: Any, argnums: Argnums, weights: Any, samples: int | None, key: ArrayLike | None, with_value: bool
) -> object:
    estimate = _checked_estimate(what, samples, key)

    def decompose(chosen: ChosenArguments, n: int, *_: object) -> Decomposition:
        if weights is None and estimate is not None and estimate.samples < n:  # Hutchinson: the mean of v v^T is I
            signs = random.rademacher(estimate.key, (estimate.samples, n), np.dtype(np.float32))
            return Decomposition(None, [Directions(2, signs, {2: 2 / estimate.samples})])
        if weights is None:
            return decompose_laplacian(chosen, n)
        coefficients = 2 * _flat_weights(what, weights, chosen)
        return Decomposition(None, [] if n == 0 else [Directions(2, UnitVectors(n), {2: coefficients})])

    # With weights, the directions are those of all elements, and the estimate draws from them. Without, the signs above
    # are the estimate: their sum is the result.
    estimate_of_directions = estimate if weights is not None else None
    return lift(what, f, OperatorTransform(what, argnums, decompose, with_value, estimate_of_directions), 2, argnums)


def _flat_weights(what: str, weights: Any, chosen: ChosenArguments) -> Array:
    """Return the weights of the elements of the chosen arguments, in order. Raises: TreeError, ShapeError."""
    remedy = "give a weight for each element of the argument, in its tree and shape"
    if tree.structure(weights) != chosen.tree:
        raise TreeError(
            f"{what}: the weights are {tree.shape_text(tree.structure(weights))}, what is differentiated is"
            f" {tree.shape_text(chosen.tree)}",
            remedy=remedy,
        )
    leaves = [fnp.asarray(w) for w in tree.leaves(weights)]
    avals = [chosen.program.in_avals[k] for k in chosen.leaves]
    for w, a, path in zip(leaves, avals, tree.paths(chosen.tree, "weights"), strict=True):
        if w.shape != a.shape:
            raise ShapeError(f"{what}: {path} is {w.aval}, the argument is {a}", remedy=remedy)
    return fnp.concatenate([w.reshape(-1) for w in leaves]) if leaves else fnp.zeros(0)


@overload
def laplacian(
    f: Program[P, R],
    argnums: Argnums = 0,
    weights: Any = None,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Program[P, R]: ...
@overload
def laplacian(
    f: Callable[P, R],
    argnums: Argnums = 0,
    weights: Any = None,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Callable[P, R]: ...
def laplacian(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    weights: Any = None,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> object:
    """Return the function whose value is the Laplacian of `f`: the sum of the second derivatives in each element of an
    argument, for each element of the results.

    `argnums`: the argument, or several, all of whose elements count. `weights`: factors of the second derivatives, in the
    tree and shape of the argument. With `samples` and a `key` it is an estimate without bias: the mean over random
    directions of signs (Hutchinson), or over elements chosen at random if there are weights.
    Where `f` is smooth in pieces, such as `relu`, the derivatives are those of its pieces.

    Law:    the trace of the Hessian.
    Cost:   of first derivatives in n directions, and of one second derivative: `collapse` (forward Laplacian). A value
            that depends on some elements alone, such as the coordinates of one electron, has directions for these.
    Raises: NotDifferentiableError for arguments or results that are not real floating; ShapeError and TreeError
            for weights of another shape and tree; ArgumentError for samples without a key.
    """
    return _make_laplacian("laplacian", f, argnums, weights, samples, key, False)


@overload
def value_and_laplacian(
    f: Program[P, R],
    argnums: Argnums = 0,
    weights: Any = None,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Program[P, tuple[R, R]]: ...
@overload
def value_and_laplacian(
    f: Callable[P, R],
    argnums: Argnums = 0,
    weights: Any = None,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Callable[P, tuple[R, R]]: ...
def value_and_laplacian(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    weights: Any = None,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> object:
    """Return (value of `f`, `laplacian` of it), computed together."""
    return _make_laplacian("value_and_laplacian", f, argnums, weights, samples, key, True)


def _make_biharmonic(
    what: str, f: Any, argnums: Argnums, samples: int | None, key: ArrayLike | None, with_value: bool
) -> object:
    estimate = _checked_estimate(what, samples, key)

    def decompose(_chosen: ChosenArguments, n: int, *_: object) -> Decomposition:
        # `twice` is the way where there are too many monomials (`_MOST_PRODUCTS`, from n = 9 on): two Laplacians carry
        # (n + 2)^2 values, series of order 4 in n^2 directions 3 n^2 + 2
        twice = n not in (0, 1, 2)
        if estimate is None and isinstance(n, Size):
            return Decomposition(None, (), twice=True)
        terms: dict[MultiIndex, float] = {((i, 4),): 1.0 for i in range(n)}
        terms.update({((i, 2), (j, 2)): 2.0 for j in range(n) for i in range(j)})
        return Decomposition(None, () if twice and estimate is None else directions_of(terms, n), terms, twice)

    return lift(what, f, OperatorTransform(what, argnums, decompose, with_value, estimate), 4, argnums)


@overload
def biharmonic(
    f: Program[P, R], argnums: Argnums = 0, *, samples: int | None = None, key: ArrayLike | None = None
) -> Program[P, R]: ...
@overload
def biharmonic(
    f: Callable[P, R], argnums: Argnums = 0, *, samples: int | None = None, key: ArrayLike | None = None
) -> Callable[P, R]: ...
def biharmonic(
    f: Callable[..., Any], argnums: Argnums = 0, *, samples: int | None = None, key: ArrayLike | None = None
) -> object:
    """Return the function whose value is the Laplacian of the Laplacian of `f`.

    With `samples` and a `key` it is an estimate without bias, from so many of the n^2 directions, chosen at random.

    Cost:   (n + 1) (n + 4) / 2 values for each value of `f`, for n elements: each mixed second derivative once. With
            loops in `f`, and for n > 8, as the Laplacian of the Laplacian: (n + 2)^2.
    Raises: as `laplacian`.
    """
    return _make_biharmonic("biharmonic", f, argnums, samples, key, False)


@overload
def value_and_biharmonic(
    f: Program[P, R], argnums: Argnums = 0, *, samples: int | None = None, key: ArrayLike | None = None
) -> Program[P, tuple[R, R]]: ...
@overload
def value_and_biharmonic(
    f: Callable[P, R], argnums: Argnums = 0, *, samples: int | None = None, key: ArrayLike | None = None
) -> Callable[P, tuple[R, R]]: ...
def value_and_biharmonic(
    f: Callable[..., Any], argnums: Argnums = 0, *, samples: int | None = None, key: ArrayLike | None = None
) -> object:
    """Return (value of `f`, `biharmonic` of it), computed together."""
    return _make_biharmonic("value_and_biharmonic", f, argnums, samples, key, True)


def _make_operator(
    what: str,
    f: Any,
    terms: Mapping[Any, Coefficient],
    argnums: Argnums,
    samples: int | None,
    key: ArrayLike | None,
    with_value: bool,
) -> Any:
    if not isinstance(terms, Mapping) or not terms:
        raise ArgumentError(
            f"{what}: the terms are {shown(terms)}, not a dict of multi-indices",
            remedy="give the coefficient of each derivative: {(2, 0): 1.0, (0, 2): 1.0} is u_xx + u_yy",
        )
    indices = {index: _multi_index(what, index) for index in terms}
    if len(set(indices.values())) < len(indices):
        raise ArgumentError(
            f"{what}: {shown(tuple(indices))} name one derivative twice", remedy="give the sum of its coefficients"
        )
    if any(map(callable, terms.values())) and not isinstance(f, Program):
        return _of_varying_terms(what, f, terms, argnums, samples, key, with_value)
    order = max([sum(powers) for powers in indices.values()])

    def decompose(_chosen: ChosenArguments, n: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decomposition:
        sparse: dict[MultiIndex, Any] = {}
        for index, powers in indices.items():
            if len(powers) != n:
                raise ArgumentError(
                    f"{what}: the multi-index {index!r} has {len(powers)} entries, the argument has {n} elements",
                    remedy="give the order of the derivative in each element of the argument",
                )
            coefficient = terms[index]
            value = coefficient(*args, **kwargs) if callable(coefficient) else coefficient
            sparse[tuple([(i, p) for i, p in enumerate(powers) if p])] = _scalar(what, index, value)
        constant = sparse.pop((), None)
        return Decomposition(constant, directions_of(sparse, n), sparse)

    return lift(
        what,
        f,
        OperatorTransform(what, argnums, decompose, with_value, _checked_estimate(what, samples, key)),
        order,
        argnums,
    )


def _of_varying_terms(
    what: str,
    f: Callable[..., Any],
    terms: Mapping[Any, Coefficient],
    argnums: Argnums,
    samples: int | None,
    key: ArrayLike | None,
    with_value: bool,
) -> Callable[..., Any]:
    """Return the operator of a function whose coefficients are functions. They take the arguments as they are given:
    the program of the function has no operands for numbers."""
    check_function(what, f)

    @wraps(f, updated=())
    def transformed(*args: Any, **kwargs: Any) -> Any:
        values: dict[Any, Any] = {i: c(*args, **kwargs) if callable(c) else c for i, c in terms.items()}
        return _make_operator(what, f, values, argnums, samples, key, with_value)(*args, **kwargs)

    transformed.__name__ = f"{what}_{function_name(f)}"
    return transformed


def _multi_index(what: str, index: object) -> tuple[int, ...]:
    powers = plain_ints(index)
    entries: Iterable[object] = (
        (powers,) if isinstance(powers, int) else powers if isinstance(powers, tuple) else (None,)
    )
    orders = tuple([p for p in entries if isinstance(p, int) and not isinstance(p, bool) and p >= 0])
    if len(orders) != len(tuple(entries)):
        raise ArgumentError(
            f"{what}: {shown(index)} is no multi-index",
            remedy="a multi-index is a tuple of ints >= 0, the order of the derivative in each element of the argument",
        )
    return orders


def _scalar(what: str, index: object, value: object) -> float | Array:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, Array | np.ndarray | np.generic):
        array = fnp.asarray(value)
        if not array.shape and array.dtype in FLOATING:
            return array
    raise ArgumentError(
        f"{what}: the coefficient of {index!r} is {shown(value)}, not a real number",
        remedy="a coefficient is a number, or a function of the arguments that gives one; vmap the operator over points",
    )


@overload
def operator(
    f: Program[P, R],
    terms: Mapping[Any, Coefficient],
    argnums: Argnums = 0,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Program[P, R]: ...
@overload
def operator(
    f: Callable[P, R],
    terms: Mapping[Any, Coefficient],
    argnums: Argnums = 0,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Callable[P, R]: ...
def operator(
    f: Callable[..., Any],
    terms: Mapping[Any, Coefficient],
    argnums: Argnums = 0,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> object:
    """Return the function whose value is a linear differential operator, applied to `f`.

    `terms` maps multi-indices to coefficients: `{(2, 0): 1.0, (0, 2): 1.0}` is u_xx + u_yy, for an argument of two
    elements. A multi-index has an entry for each element of the argument (for arguments of several arrays, in the order
    of their leaves). A coefficient is a number, or a function of the arguments of `f` that gives one. With `samples` and
    a `key` it is an estimate without bias, from so many directions, chosen at random.

    Rule:   each mixed derivative once, or by polarisation: see `fxad.api.operator_programs`.
    Cost:   of order 2 and n elements, n + 2 values for each value of `f`; of order 4, at most (n + 1) (n + 4) / 2. With
            loops in `f`, or many terms, a Taylor series for each direction, the highest coefficient once (`collapse`).
    Raises: ArgumentError for what is no multi-index, or has another length; as `laplacian`.
    """
    return _make_operator("operator", f, terms, argnums, samples, key, False)


@overload
def value_and_operator(
    f: Program[P, R],
    terms: Mapping[Any, Coefficient],
    argnums: Argnums = 0,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Program[P, tuple[R, R]]: ...
@overload
def value_and_operator(
    f: Callable[P, R],
    terms: Mapping[Any, Coefficient],
    argnums: Argnums = 0,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> Callable[P, tuple[R, R]]: ...
def value_and_operator(
    f: Callable[..., Any],
    terms: Mapping[Any, Coefficient],
    argnums: Argnums = 0,
    *,
    samples: int | None = None,
    key: ArrayLike | None = None,
) -> object:
    """Return (value of `f`, `operator` applied to it), computed together."""
    return _make_operator("value_and_operator", f, terms, argnums, samples, key, True)
