"""Greedy colourings of columns. The colouring in a given order is SciPy's; the orders are chosen here."""

from __future__ import annotations

import importlib
import itertools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fxad.transforms.sparse.csr import Colors, Csr, Ints, no_colors, scipy_sparse

_MOST_WORK: Final = 1_000_000_000  # comparisons of a greedy colouring, about twenty seconds
_MOST_ENTRIES: Final = 5_000_000  # of the graph of columns that share a row, if it is made
ONE_BY_ONE: Final = 1_500  # nodes of a graph that is ordered, and coloured, one node at a time
_ROUNDS: Final = 200  # of `smallest_last` on a large graph, after which each takes off a part of the rest


def greedy_columns(pattern: Csr) -> Colors:
    """Return a colouring of the columns: those of one colour share no row. Columns without entries have none.

    Each greedy colouring takes the columns in an order, and gives each the first colour that is free. The orders are
    the natural one, most entries first, and then the classes of the best colouring so far: with each class together
    the number of colours does not grow.
    """
    m, n = pattern.shape
    matrix = pattern.matrix().tocsc()
    count = np.diff(matrix.indptr)
    least = int(pattern.counts().max(initial=0))
    (used,) = np.nonzero(count)
    colors = no_colors(n)
    if least <= 1:
        colors[used] = 0
        return colors
    if least * (len(used) + m) > _MOST_WORK or least == len(used):
        colors[used] = np.arange(len(used))  # a dense row: hardly any two columns share a product
        return colors
    # A private name of SciPy, which has no public one: `least_squares` calls it. A colouring in Python would take the
    # columns one by one. SciPy is loaded when it is needed.
    group = importlib.import_module("scipy.optimize._numdiff").group_columns
    matrix = scipy_sparse().csc_array(
        (np.ones(len(matrix.indices), np.int8), matrix.indices, matrix.indptr), shape=pattern.shape
    )[:, used]
    weight = _degrees(pattern)[used]
    best = np.asarray(group(matrix, np.arange(len(used))), np.int32)
    repetitions = int(np.clip(30_000_000 // ((least + 1) * (len(used) + m)), 2, 60))
    for k in range(2 + repetitions):
        if int(best.max()) + 1 == least:
            break
        order: Ints
        if k == 0:
            order = np.argsort(-weight, kind="stable")
        elif k == 1:
            if weight.sum() > _MOST_ENTRIES:
                continue
            order = smallest_last(_column_intersection_graph(matrix))
        else:
            order = _class_order(best, weight, k)
        other = np.asarray(group(matrix, order), np.int32)
        best = other if other.max() <= best.max() else best
    colors[used] = best
    return colors


def _degrees(pattern: Csr) -> npt.NDArray[np.float64]:
    """Return, for each column, the number of other entries in its rows: its degree, with repetitions."""
    i, j = pattern.entries()
    weights = (pattern.counts() - 1)[i].astype(np.float64)
    return np.bincount(j, weights, pattern.shape[1]).astype(np.float64)


def _column_intersection_graph(matrix: Any) -> Csr:
    """Return the graph of the columns that share a row."""
    ones = matrix.astype(np.int32)
    product = (ones.T @ ones).tocsr()
    product.sort_indices()
    return Csr(product.indptr, product.indices, product.shape).without_diagonal()


def smallest_last(graph: Csr) -> Ints:
    """Return the nodes in the order in which each has few neighbours before it: those of smallest degree come last.

    In a large graph, all nodes of the smallest degree among the rest are taken off at once; if these are few again and
    again, as at the ends of a band, a part of the rest.
    """
    at_once = len(graph.indptr) if len(graph.indptr) > ONE_BY_ONE else 1
    degree = graph.counts().astype(np.int64)
    removed: list[Ints] = []
    remaining = np.arange(len(degree))
    for count in itertools.count():
        if not len(remaining):
            break
        degrees = degree[remaining]
        rank = len(degrees) // 32 if at_once > 1 and count > _ROUNDS else 0
        low = np.nonzero(degrees <= np.partition(degrees, rank)[rank])[0][:at_once]
        batch = remaining[low]
        removed.append(batch[::-1])
        degree[batch] = -1
        _, w = graph.neighbours(batch)
        degree -= np.bincount(w, minlength=len(degree))
        remaining = np.delete(remaining, low)
    return np.concatenate([*removed, np.zeros(0, np.int64)])[::-1].astype(np.int64)


def _class_order(colors: Colors, weight: npt.NDArray[Any], k: int) -> Ints:
    """Return an order in which the classes of a colouring stay together: reversed, the smallest first, or shuffled."""
    number = int(colors.max()) + 1
    sizes = np.bincount(colors, minlength=number)
    if k % 3 == 1:
        rank = np.arange(number)[::-1]
    elif k % 3 == 2:
        rank = np.argsort(np.argsort(sizes, kind="stable"), kind="stable")
    else:
        rank = np.random.default_rng(k).permutation(number)
    return np.lexsort((-weight, rank[colors]))
