"""The programs of linear differential operators, from Taylor series.

There are two ways, and the one that carries fewer values is taken. By monomials: a series of order k along one
direction is expanded in the elements of the direction, so each mixed derivative is carried once, and of those of high
degree the sums that the operator needs (`transforms/jet/graded.py`). By directions, as for Laplacians, for loops and for
estimates: a derivative of order k is a sum of k-th derivatives along directions v, which are coefficients of series:

    d^a f = 2^-k sum over b <= a of (-1)^|b| C(a, b) y_k(a - 2 b),      k = |a|,

where y_k(v) is coefficient k of f(x + v t), and C(a, b) is the product of binomial coefficients (polarisation). The
operator is then a weighted sum over directions. `vmap` computes the series for all directions, and `collapse` moves
the sum towards the arguments: the highest coefficient is carried as one value, and not as one for each direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import comb, gcd, prod
from typing import Any, Final, TypeAlias, final

import numpy as np

from fxad import lax, numpy as fnp, random, transforms
from fxad.api.chosen_arguments import ChosenArguments
from fxad.api.jet import jet, jet_of_program
from fxad.api.lift import before_differentiation
from fxad.api.vmap import vmap
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.dtypes import FLOATING
from fxad.errors import NotDifferentiableError
from fxad.ir import Aval, NDArray
from fxad.passes import Pass, Passes, run_passes
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.program import Program
from fxad.tracing.spec import Spec
from fxad.tracing.static_args import Argnums
from fxad.tracing.trace import trace
from fxad.transforms.jet.collapse.collapse import collapse as collapse_jaxpr
from fxad.transforms.jet.directions.directions import sparse_directions
from fxad.transforms.jet.graded import Grading, factorials, graded

# A direction, or a multi-index: its nonzero elements, by number. Of order k, in increasing order of the numbers.
MultiIndex: TypeAlias = tuple[tuple[int, int], ...]
# Rows for monomials are used up to so many products of rows, for one product of values of each two degrees: each is an
# equation for XLA to compile. A biharmonic of n variables has about 2.5 n^2: 70 for n = 5, 216 for n = 9.
_MOST_PRODUCTS: Final = 200
# The passes for the program of an operator. `collapse` alone is a pass for any program.
COLLAPSE: Final[Passes] = (
    Pass("inline", transforms.inline),
    Pass("cse", transforms.cse),
    Pass("simplify", transforms.simplify),
    Pass("collapse", collapse_jaxpr),
)


def collapsed(program: Program[..., Any]) -> Program[..., Any]:
    """Return a program after the passes `COLLAPSE`."""
    return program.replace(run_passes(program.jaxpr, COLLAPSE))


# ---------------------------------------------------------------------------------------------------------- directions


@final
@dataclass(frozen=True, slots=True)
class UnitVectors:
    """The unit vectors as rows. The program makes them: they are no constant of it."""

    n: int


@final
@dataclass(frozen=True, slots=True)
class Directions:
    """Directions, one a row, whose series have one order; weights of their coefficients by order, a number if all are
    equal."""

    order: int
    rows: NDArray | Array | UnitVectors
    weights: Mapping[int, NDArray | Array | float]


def along_directions(index: MultiIndex) -> dict[MultiIndex, float]:
    """Return the derivative of a multi-index as a sum of coefficients y_k(v), by direction. Directions are primitive
    integer vectors whose first element is positive: y_k(s v) = s^k y_k(v)."""
    order = sum([power for _, power in index])
    sums: dict[MultiIndex, int] = {}
    for below in product(*[range(power + 1) for _, power in index]):
        vector = tuple([(i, power - 2 * b) for (i, power), b in zip(index, below, strict=True) if power != 2 * b])
        if not vector:
            continue
        scale = gcd(*[v for _, v in vector]) * (1 if vector[0][1] > 0 else -1)
        weight = (-1) ** sum(below) * prod([comb(power, b) for (_, power), b in zip(index, below, strict=True)])
        direction = tuple([(i, v // scale) for i, v in vector])
        sums[direction] = sums.get(direction, 0) + weight * scale**order
    return {v: w / 2**order for v, w in sums.items() if w}


def directions_of(terms: Mapping[MultiIndex, Any], n: int) -> list[Directions]:
    """Return the directions of an operator. Those with series of one order are computed together."""
    weights: dict[MultiIndex, dict[int, list[tuple[float, Any]]]] = {}
    for index, coefficient in terms.items():
        order = sum([power for _, power in index])
        for direction, weight in along_directions(index).items():
            weights.setdefault(direction, {}).setdefault(order, []).append((weight, coefficient))
    groups: dict[int, list[MultiIndex]] = {}
    for direction, terms_by_order in weights.items():
        groups.setdefault(max(terms_by_order), []).append(direction)
    sets: list[Directions] = []
    for order, directions in sorted(groups.items()):
        rows = np.zeros((len(directions), n))
        for row, direction in zip(rows, directions, strict=True):
            for i, v in direction:
                row[i] = v
        orders = sorted({k for d in directions for k in weights[d]})
        unit_vectors = rows.shape == (n, n) and (rows == np.eye(n)).all()
        by_order = {k: _weights_of([weights[d].get(k, []) for d in directions]) for k in orders}
        sets.append(Directions(order, UnitVectors(n) if unit_vectors else rows, by_order))
    return sets


def _weights_of(terms: Sequence[Sequence[tuple[float, Any]]]) -> NDArray | Array:
    """Return the weight of each direction: a sum of numbers times coefficients."""
    constant = np.array([sum([w * c for w, c in row if not isinstance(c, Array)]) for row in terms], np.float64)
    coefficients = list({id(c): c for row in terms for _, c in row if isinstance(c, Array)}.values())
    if not coefficients:
        return constant
    places = {id(c): k for k, c in enumerate(coefficients)}
    matrix = np.zeros((len(terms), len(coefficients)))
    for j, row in enumerate(terms):
        for w, c in row:
            if isinstance(c, Array):
                matrix[j, places[id(c)]] += w
    dtype = coefficients[0].dtype
    varying = fnp.asarray(matrix, dtype) @ fnp.stack(coefficients)
    return varying + fnp.asarray(constant, dtype) if constant.any() else varying


@final
@dataclass(frozen=True, slots=True)
class Decomposition:
    """An operator as a sum of derivatives that are computed: of `terms`, which are the coefficients of the derivatives,
    if rows for monomials are fewer values than series along the `directions`; `twice`: in place of series, as the
    Laplacian of the Laplacian. `constant` is the coefficient of the value itself."""

    constant: Any
    directions: Sequence[Directions]
    terms: Mapping[MultiIndex, Any] | None = None
    twice: bool = False

    @property
    def n_values(self) -> int:
        """The number of values that series along the directions carry for each value."""
        return 1 + sum([1 + (d.order - 1) * _n_rows(d.rows) for d in self.directions])


def _n_rows(rows: Any) -> int:
    n: int = rows.n if isinstance(rows, UnitVectors) else rows.shape[0]
    return n


# ------------------------------------------------------------------------------------------------------ the programs


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """A stochastic estimate from so many random directions."""

    samples: int
    key: ArrayLike


@final
class OperatorTransform:
    """From a program to that of an operator. `decompose` takes the chosen arguments, the number of their elements and the
    arguments of the call."""

    def __init__(
        self,
        what: str,
        argnums: Argnums,
        decompose: Callable[[ChosenArguments, int, tuple[Any, ...], dict[str, Any]], Decomposition],
        with_value: bool,
        estimate: Estimate | None,
    ) -> None:
        self.what, self.argnums, self.decompose = what, argnums, decompose
        self.with_value, self.estimate = with_value, estimate

    def __call__(self, program: Program[..., object]) -> Program[..., Any]:
        chosen = ChosenArguments.by_number(self.what, program, self.argnums)
        self._check(program, chosen)
        specs = [Spec(a.shape, a.dtype) for a in program.in_avals]
        args, kwargs = tree.unflatten(program.in_tree, specs)

        def applied(unit: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._apply(chosen, args, kwargs, unit)

        unit = self._unit_vectors([program.in_avals[k] for k in chosen.leaves])
        traced = collapsed(trace(applied, unit, *args, **kwargs))
        jaxpr = traced.jaxpr
        if unit is not None:  # removes this operand, the first one behind the bound: the others are those of `in_tree`
            jaxpr = transforms.simplify(sparse_directions(jaxpr, len(traced.bound), unit.shape[1:]))
        name = f"{self.what}_{program.name}"
        return Program.of(program, jaxpr=jaxpr, out_tree=traced.out_tree, bound=traced.bound, name=name)

    def _unit_vectors(self, primals: Sequence[Aval]) -> Spec | None:
        """Return the type of an operand for all unit vectors. They are an operand while the program is traced, and no
        `eye`, so that `sparse_directions` knows them: it carries derivatives without their zeros, and takes the
        operand out again. None for several arguments, and for one of a size that is not known or less than 2."""
        if len(primals) != 1 or primals[0].symbolic or primals[0].size < 2:
            return None
        (x,) = primals
        return Spec((x.size, *x.shape), x.dtype)

    def _check(self, program: Program[..., object], chosen: ChosenArguments) -> None:
        paths = [f"{a.name}{path.removeprefix('x')}" for a in chosen.arguments for path in tree.paths(a.tree, "x")]
        named = [
            *[(f"argument {path}", program.in_avals[k]) for path, k in zip(paths, chosen.leaves, strict=True)],
            *zip(tree.paths(program.out_tree, "result"), program.out_avals, strict=True),
        ]
        for name, aval in named:
            if aval.dtype not in FLOATING:
                raise NotDifferentiableError(
                    f"{self.what}: {name} of {program.name} has type {aval}, not real floating",
                    remedy="convert it to floating point, or differentiate a part of it: jet takes complex curves",
                )

    def _apply(
        self,
        chosen: ChosenArguments,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        unit: Array | None,
    ) -> Any:
        of_chosen = chosen.function(args, kwargs)
        primals, structure = tree.flatten(tuple(chosen.of_call(args, kwargs)))
        decomposition = self.decompose(chosen, sum([x.size for x in primals]), args, kwargs)

        def of_primals(*values: Any) -> Any:
            return of_chosen(*tree.unflatten(structure, values))

        inner = trace(of_primals, *primals)
        by_monomials = self._by_monomials(inner, primals, decomposition, unit)
        value, totals = by_monomials or self._by_directions(inner, primals, decomposition, unit)
        if decomposition.constant is not None:
            totals.append(tree.map(lambda y: y * fnp.asarray(decomposition.constant, y.dtype), value))
        total = totals[0] if totals else tree.map(fnp.zeros_like, value)
        for other in totals[1:]:
            total = tree.map(lambda a, b: a + b, total, other)
        return (value, total) if self.with_value else total

    def _by_directions(
        self, inner: Program[..., Any], primals: Sequence[Array], decomposition: Decomposition, unit: Array | None
    ) -> tuple[Any, list[Any]]:
        """Return the value, and parts of the operator: by series along directions, or by two Laplacians."""
        if decomposition.twice and self.estimate is None:
            first, total = _laplacian_twice(inner)(*primals)
            return first, [total]
        value: Any = None
        totals: list[Any] = []
        for directions in decomposition.directions:
            directions = self._sampled(directions)
            series = jet(inner, order=directions.order, given=1)
            run = partial(_series_along, series, tuple(primals))
            value, coefficients = vmap(run, out_axes=(None, 0))(_split(directions.rows, primals, unit))
            for k, weights in directions.weights.items():
                totals.append(tree.map(partial(_weighted_sum, weights), coefficients[k - 1]))
        return inner(*primals) if value is None else value, totals

    def _by_monomials(
        self, inner: Program[..., Any], primals: Sequence[Array], decomposition: Decomposition, unit: Array | None
    ) -> tuple[Any, list[Any]] | None:
        """Return the value and the operator, by rows for monomials; None if directions carry no more, or if there are
        too many products, or an equation without a rule."""
        if self.estimate is not None or not decomposition.terms or len(decomposition.terms) > _MOST_PRODUCTS:
            return None
        terms = {tuple([i for i, p in index for _ in range(p)]): c for index, c in decomposition.terms.items()}
        grading = Grading.least(tuple(terms))
        if (
            grading.n_rows >= decomposition.n_values and not decomposition.twice
        ) or grading.n_products > _MOST_PRODUCTS:
            return None
        # Numbers are constants of the program, and arrays its operands. If one coefficient is an array, all are elements of
        # the operand `factors`, and the constants are the factorials alone.
        arrays = [c for c in terms.values() if isinstance(c, Array)]
        numbers = [factorials(t) * (1.0 if arrays or isinstance(c, Array) else c) for t, c in terms.items()]
        factors = [fnp.stack([fnp.asarray(c, arrays[0].dtype) for c in terms.values()])] if arrays else []
        series = jet_of_program(before_differentiation(inner), grading.order, 1, composed=True)
        jaxpr = transforms.simplify(transforms.cse(transforms.inline(series.jaxpr)))
        direction = range(len(jaxpr.ins) - len(primals), len(jaxpr.ins))
        of_factors = Aval(factors[0].shape, factors[0].dtype) if factors else None
        rows = graded(jaxpr, direction, len(inner.out_avals), grading, numbers, of_factors)
        if rows is None:
            return None
        n = sum([x.size for x in primals])
        unit_rows = UnitVectors(n) if len(grading.variables) == n else np.eye(n)[list(grading.variables)]
        args = (*primals, *_split(unit_rows, primals, unit), *factors)
        program: Program[..., Any] = Program(
            rows,
            tree.flatten((args, {}))[1],
            tree.tuple_structure(inner.out_tree, inner.out_tree),
            series.bound,
            ("x",) * len(args),
            series.name,
        )
        value, total = program(*args)
        return value, [total]

    def _sampled(self, directions: Directions) -> Directions:
        """Return random rows in place of all, drawn with equal probability, with weights whose mean is that of all."""
        m = _n_rows(directions.rows)
        if self.estimate is None or self.estimate.samples >= m:
            return directions
        chosen = random.randint(self.estimate.key, (self.estimate.samples,), 0, m)
        scale = m / self.estimate.samples
        return Directions(
            directions.order,
            _dense(directions.rows)[chosen],
            {
                k: scale * w if isinstance(w, float) else scale * fnp.asarray(w)[chosen]
                for k, w in directions.weights.items()
            },
        )


def _series_along(series: Program[..., Any], primals: tuple[Any, ...], direction: tuple[Any, ...]) -> Any:
    return series(primals, (direction,))


def _split(rows: Any, leaves: Sequence[Any], unit: Array | None) -> tuple[Any, ...]:
    """Return the directions of each leaf: stacks of arrays of its shape."""
    if isinstance(rows, UnitVectors) and unit is not None:
        return (unit,)
    if isinstance(rows, UnitVectors) and len(leaves) == 1:  # in the dtype of the only argument, without a conversion
        (x,) = leaves
        return (fnp.eye(x.size, dtype=x.dtype).reshape((x.size, *x.shape)),)
    dense, stacks, start = _dense(rows), list[Any](), 0
    for x in leaves:
        columns = dense[:, start : start + x.size]
        stacks.append(columns.astype(x.dtype).reshape((dense.shape[0], *x.shape)))
        start += x.size
    return tuple(stacks)


def _dense(rows: Any) -> Array:
    return fnp.eye(rows.n, dtype=np.float32) if isinstance(rows, UnitVectors) else fnp.asarray(rows)


def _weighted_sum(weights: Any, y: Array) -> Array:
    """Return the sum over the first axis of weights times slices."""
    if isinstance(weights, np.ndarray) and (weights == weights[0]).all():
        weights = float(weights[0])
    if isinstance(weights, float):
        return y.sum(0) if weights == 1 else y.sum(0) * weights
    by_slice = fnp.asarray(weights, y.dtype)
    return (y * lax.broadcast_in_dim(by_slice, y.shape, (0,))).sum(0)


def decompose_laplacian(_chosen: ChosenArguments, n: int, *_: object) -> Decomposition:
    """Return the Laplacian in `n` elements: twice the coefficients of order 2 along the unit vectors."""
    return Decomposition(None, [] if n == 0 else [Directions(2, UnitVectors(n), {2: 2.0})])


def _laplacian_twice(program: Program[..., Any]) -> Program[..., Any]:
    """Return the program of the value and of the Laplacian of the Laplacian."""
    every = tuple(range(len(program.in_avals)))
    laplacian_of = OperatorTransform("biharmonic", every, decompose_laplacian, True, None)
    both = laplacian_of(before_differentiation(laplacian_of(program)))
    m = len(program.out_avals)
    # the results of `both` are f, Lf, L of f, L of Lf, with m leaves each
    outs = (*both.jaxpr.outs[:m], *both.jaxpr.outs[3 * m :])
    jaxpr = transforms.dce(both.jaxpr.with_outs(outs))
    out_tree = tree.tuple_structure(program.out_tree, program.out_tree)
    return Program(jaxpr, program.in_tree, out_tree, both.bound, program.names, both.name)
