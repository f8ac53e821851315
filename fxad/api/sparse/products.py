"""Programs of sparse derivatives: few products with the Jacobian, from which its entries are read.

Columns of one color share no row, so the entries of all of them stand apart in one jvp. Example: a matrix with the
entries a..e, and colors 0 1 0 of its columns:

    a b .       jvp with (1, 0, 1) = (a, c, e)      color 0: columns 0 and 2
    . . c       jvp with (0, 1, 0) = (b, 0, d)      color 1: column 1
    . d e

    products = (a, c, e, b, 0, d)       places of a b c d e = 0 3 1 5 2

Rows of one color are read from a vjp in the same way; a symmetric matrix reads an entry from the product of its column
or of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from fxad import numpy as fnp
from fxad.api.chosen_arguments import ChosenArguments
from fxad.api.directional import linearize, vjp
from fxad.api.sparse.matrix import Sparse, unchecked_sparse
from fxad.api.vmap import vmap
from fxad.core.trees import tree
from fxad.ir import distinct_jaxprs
from fxad.lax.barrier import optimization_barrier
from fxad.lax.binary import rem
from fxad.tracing.array import Array, asarray
from fxad.transforms.sparse.decompression import Coloring, Decompression
from fxad.transforms.sparse.pattern import Pattern, places_in_products


def derivative_by_products(
    chosen: ChosenArguments, pattern: Pattern, coloring: Coloring, check: bool, dtype: Any
) -> Callable[..., Sparse]:
    """Return the function of the Jacobian. It computes a jvp for each color of columns and a vjp for each color of rows,
    and reads the entries from these products. `dtype` is that of a matrix without entries."""
    jvps, vjps = coloring.jvps, coloring.vjps
    places, decompression = places_in_products(pattern, coloring)

    def derivative(*args: object, **kwargs: object) -> Sparse:
        f, values = chosen.function(args, kwargs), chosen.of_call(args, kwargs)
        leaves, structure = tree.flatten(tuple(values))
        products: list[Array] = []
        f_jvp: Any = None
        if jvps or check:
            _, f_jvp = linearize(f, *values)
        if jvps:
            products += _products(
                lambda *t: f_jvp(*tree.unflatten(structure, t)), coloring.columns, leaves, _as_stack(f_jvp, jvps)
            )
        if vjps:
            out, f_vjp = vjp(f, *values)
            outs, out_tree = tree.flatten(out)
            products += _products(
                lambda *c: f_vjp(tree.unflatten(out_tree, c)), coloring.rows, outs, _as_stack(f_vjp, vjps)
            )
        data = _entries(products, places, decompression) if pattern.nnz else fnp.zeros(0, dtype)
        matrix = unchecked_sparse(data, pattern)
        return unchecked_sparse(_data_or_nan(matrix, f_jvp, structure, leaves), pattern) if check else matrix

    return derivative


def _entries(products: Sequence[Array], places: Any, decompression: Decompression) -> Array:
    """Return the entries of a matrix: the elements of its products at `places`. In those of an "acyclic" coloring an
    element may be a sum of entries; the other ones, which previous levels have found, are subtracted."""
    elements = products[0] if len(products) == 1 else fnp.concatenate(products)
    data = elements[places]  # `places` are constants: no index is compared while the program runs
    for target, source in decompression.levels:
        data = data.at[target].add(-data[source])
    return data if decompression.final is None else data[decompression.final]


_FEW_COLORS: Final = 16
_FEW_EQUATIONS: Final = 1024


def _as_stack(linear: Any, count: int) -> bool:
    """Return True if the products of a linear program are computed as one stack.

    A few products are computed one by one: XLA runs the loops of a vector faster than those of a stack. Milliseconds on
    two shared cores (`python -m benchmarks.sparse`):

                                                                 one by one   as one stack
        chained Rosenbrock of 10^6 unknowns, 3 colors            14           34
        Brusselator of 131,072 unknowns, 10 colors               3.7          5.2
        a neural residual, 16 colors                             4.1          4.0
    """
    equations = sum([len(body.eqns) for body in distinct_jaxprs(linear.jaxpr)])
    return count > _FEW_COLORS or count * equations > _FEW_EQUATIONS


def _products(apply: Callable[..., object], colors: Any, leaves: Sequence[Any], as_stack: bool) -> list[Array]:
    """Return the products of a linear function with the indicator of each color, as vectors that follow one another.

    `colors` has the color of each element of all leaves.
    """
    count = int(colors.max()) + 1
    leaf_colors = _colors_of_leaves(colors, leaves)
    if as_stack:
        stacks = vmap(apply)(*_indicators(leaf_colors, leaves, np.arange(count, dtype=np.int32)))
        return [_ravel(stacks, batch=True).reshape(-1)]
    products = [_ravel(apply(*_indicators(leaf_colors, leaves, k))) for k in range(count)]
    # Without the barrier XLA computes a product again for each entry that is read from it. Of the products as one vector
    # it makes one kernel; of single ones it looks for the product of each entry.
    return [optimization_barrier(fnp.concatenate(products))]


def _colors_of_leaves(colors: Any, leaves: Sequence[Any]) -> list[Array]:
    """Return the colors of the elements of each leaf."""
    leaf_colors: list[Array] = []
    start = 0
    for x in leaves:
        these: Any = colors[start : start + x.size]
        modulus = int(these.max(initial=0)) + 1
        if np.array_equal(these, np.arange(len(these)) % modulus):  # of a band: no constant of the size of the leaf
            numbers = fnp.arange(x.size, dtype=np.int32)
            # computed once: a division for each element of each product takes as long as the product
            leaf_colors.append(optimization_barrier(rem(numbers, fnp.full_like(numbers, modulus))))
        else:
            leaf_colors.append(asarray(these))
        start += x.size
    return leaf_colors


def _indicators(leaf_colors: Sequence[Array], leaves: Sequence[Any], color: Any) -> list[Array]:
    """Return for each leaf the array that is 1 at the elements of a color and 0 elsewhere; for several colors, a stack
    of such arrays."""
    stack: tuple[int, ...] = np.shape(color)
    column = np.reshape(color, (*stack, 1)).astype(np.int32)
    return [
        (colors == column).astype(x.dtype).reshape((*stack, *x.shape))
        for colors, x in zip(leaf_colors, leaves, strict=True)
    ]


def _ravel(values: object, batch: bool = False) -> Array:
    """Return the leaves as one vector, or the leaves of stacks as one array (stack, elements)."""
    parts = [x.reshape((x.shape[0], -1) if batch else (-1,)) for x in tree.leaves(values)]
    return parts[0] if len(parts) == 1 else fnp.concatenate(parts, -1)


def _data_or_nan(matrix: Sparse, f_jvp: Any, structure: Any, leaves: Sequence[Any]) -> Array:
    """Return the data of a matrix, or nan if its product with one random vector differs from the jvp."""
    generator = np.random.default_rng(20240131)
    directions = [asarray(generator.standard_normal(x.shape).astype(x.dtype)) for x in leaves]
    tangent = _ravel(f_jvp(*tree.unflatten(structure, directions)))
    vector = _ravel(directions)
    product = matrix @ vector
    absolute = unchecked_sparse(fnp.abs(matrix.data), matrix.pattern)
    size = absolute @ fnp.abs(vector) + fnp.abs(tangent)
    # 1000 units of roundoff; fewer in half precision, where so many would hide a missing entry
    tolerance = min(1e3 * float(fnp.finfo(tangent.dtype).eps), 0.125)
    close = fnp.abs(product - tangent) <= tolerance * size
    return fnp.where(fnp.all(close), matrix.data, fnp.full((), np.nan, matrix.dtype))
