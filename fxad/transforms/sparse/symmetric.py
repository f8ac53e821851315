"""Greedy star and acyclic colourings of symmetric patterns, of many columns at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

import numpy as np

from fxad.transforms.sparse.csr import Colors, Csr, Ints, alone_in_line, components, csr_of, no_colors, renumbered
from fxad.transforms.sparse.decompression import Coloring, one_sided
from fxad.transforms.sparse.greedy import ONE_BY_ONE, greedy_columns, smallest_last

_MOST_PATHS: Final = 100_000_000  # pairs of neighbours of a column, about ten seconds
_MOST_COUNTS: Final = 400_000_000  # elements of the table of colours of neighbours


def _paths(counts: Ints) -> int:
    return int(np.square(counts, dtype=np.int64).sum())


def dense_lines(counts: Ints) -> tuple[int, int]:
    """Return how many of the fullest lines to take out, and the products if each takes one and the rest its fullest."""
    falling = np.sort(counts)[::-1]
    products = np.arange(len(counts) + 1) + np.concatenate([falling, [0]])
    k = int(np.argmin(products))
    return k, int(products[k])


def color_symmetric(pattern: Csr, kind: str) -> Coloring:
    """Return a star or an acyclic colouring.

    The columns with many entries are taken out if this promises fewer colours. They have colours of their own, such
    that no column has two neighbours of one of these colours; so no path and no cycle of two colours goes through
    them. The rest is coloured in batches, see `_in_batches`. A colouring of the columns is a star colouring too, and a
    star colouring is acyclic; the fewest colours are taken.
    """
    n = pattern.shape[0]
    # with the diagonal, neighbours share a row, so that they differ in each of the colourings below
    i, j = pattern.entries()
    used = np.unique(i)
    pattern = Csr(*csr_of(np.concatenate([i, used]), np.concatenate([j, used]), pattern.shape), pattern.shape)
    counts = pattern.counts()
    every = np.ones(n, np.bool_)
    best: Colors | None = None
    promised, _ = dense_lines(counts)
    for k in sorted({0, promised}):
        hub = np.zeros(n, np.bool_)
        hub[np.argsort(-counts, kind="stable")[:k]] = True
        if k == 0 and promised and _paths(counts) > _MOST_PATHS:
            continue
        rest = pattern.part(~hub, ~hub)
        separate = greedy_columns(rest)
        options = [separate, *_in_batches(rest, separate, kind)]
        colors = min(options, key=lambda c: int(c.max(initial=-1)))
        if k:
            hubs = greedy_columns(pattern.part(every, hub))
            colors = np.where(hubs >= 0, hubs + (int(colors.max(initial=-1)) + 1), colors)
        # a column without entries among the rest may have some in rows that were taken out
        (bare,) = np.nonzero((colors < 0) & (counts > 0))
        colors[bare] = 0
        colors = renumbered(colors.astype(np.int32))
        if best is None or colors.max() < best.max():
            best = colors
    assert best is not None
    return one_sided(kind, pattern.shape, best)


def _in_batches(pattern: Csr, separate: Colors, kind: str) -> list[Colors]:
    """Return greedy star or acyclic colourings that take many columns at once.

    A batch is a class of a colouring of the columns: two of its members have distance three or more, so their colours
    seldom exclude each other. The orders of the batches are: most neighbours first, by columns and by classes, and the
    classes of the best colouring so far. A small graph is coloured one column at a time as well, in natural order, most
    neighbours first, and smallest degree last.
    """
    graph = pattern.without_diagonal()
    paths = _paths(graph.counts())
    if not paths or paths > _MOST_PATHS or len(separate) * (int(separate.max()) + 2) > _MOST_COUNTS:
        return []
    degree = graph.counts().astype(np.int64)
    number = int(separate.max()) + 1
    (used,) = np.nonzero(separate >= 0)
    largest = np.zeros(number, np.int64)
    np.maximum.at(largest, separate[used], degree[used])
    keys = [(int(degree.max()) - degree) * number + separate, _rank(-largest)[separate]]
    if paths > _MOST_PATHS // 10:
        keys = keys[:1] if kind == "star" else keys[1:]
    if len(used) <= ONE_BY_ONE:
        keys += [np.arange(len(degree)), _rank(-degree), np.argsort(smallest_last(graph))]
    repetitions = int(np.clip(20_000_000 // paths, 2 if kind == "star" else 0, 12))
    results: list[Colors] = []
    for k in range(len(keys) + repetitions):
        if k < len(keys):
            key = keys[k]
        else:  # classes of the best so far, each split so that a batch keeps its distances
            best = min(results, key=lambda c: int(c.max()))
            classes = int(best.max()) + 1
            sizes = np.bincount(best[used], minlength=classes)
            order = [np.arange(classes)[::-1], -sizes, np.random.default_rng(k).permutation(classes)][k % 3]
            key = _rank(order)[best] * np.int64(number) + separate
        batches = (used[np.argsort(key[used], kind="stable")], np.sort(key[used]))
        results.append(_star_batches(graph, *batches) if kind == "star" else _acyclic_batches(graph, *batches))
    return results


def _rank(values: Ints) -> Ints:
    """Return the place of each value in ascending order; equal values keep their order."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def _batches(nodes: Ints, keys: Ints) -> Iterable[Ints]:
    starts = np.concatenate([[0], np.nonzero(np.diff(keys))[0] + 1, [len(keys)]])
    return [nodes[first:last] for first, last in itertools.pairwise(starts)]


def _star_batches(graph: Csr, nodes: Ints, keys: Ints) -> Colors:
    """Return the greedy star colouring that takes the nodes of equal key together, in order.

    Each node gets the first colour that is not forbidden: by a neighbour, or by a path of four nodes that would have
    two colours. If v - a - b - c has a and c red and b blue, blue is forbidden for v. Two nodes of a batch are in the
    way of each other only at the ends of a path v - a - b - w, with equal colours of v and b, and of w and a. Then the
    later one is coloured again.
    """
    n = graph.shape[0]
    colors = no_colors(n)
    seen = np.zeros((n, 8), np.int32)  # how many neighbours have each colour
    mate = np.full(n, -1, np.int64)  # the node of the batch beside a node
    n_colors = 0
    for batch in _batches(nodes, keys):
        while len(batch):
            owner, w = graph.neighbours(batch)
            known = colors[w] >= 0
            forbidden = np.zeros((len(batch), n_colors + 1), np.bool_)
            forbidden[owner[known], colors[w[known]]] = True
            # paths v - a - b, where b has a colour
            middle, b = graph.neighbours(w[known])
            v, a = owner[known][middle], w[known][middle]
            kept = colors[b] >= 0
            v, a, b = v[kept], a[kept], b[kept]
            # a path of two colours: v or b has another neighbour with the colour of a
            closing = (seen[batch[v], colors[a]] >= 2) | (seen[b, colors[a]] >= 2)
            forbidden[v[closing], colors[b[closing]]] = True
            chosen = np.argmin(forbidden, axis=1).astype(np.int32)
            if int(chosen.max()) == n_colors:
                n_colors += 1
                if n_colors >= seen.shape[1]:
                    seen = np.concatenate([seen, np.zeros_like(seen)], axis=1)
            colors[batch] = chosen
            seen[w, chosen[owner]] += 1
            mate[w] = batch[owner]
            other = mate[b]  # the node w at the end of v - a - b - w, if it is in the batch
            (k,) = np.nonzero((other >= 0) & (colors[b] == chosen[v]) & (other != batch[v]))
            k = k[colors[other[k]] == colors[a[k]]]
            late = np.unique(np.maximum(batch[v[k]], other[k]))
            mate[w] = -1
            undone, w = graph.neighbours(late)
            seen[w, colors[late][undone]] -= 1
            colors[late] = -1
            batch = late
    return colors


def _acyclic_batches(graph: Csr, nodes: Ints, keys: Ints) -> Colors:
    """Return the greedy acyclic colouring that takes the nodes of equal key together, in order.

    Each node gets the first colour that is not forbidden: by a neighbour, or by a cycle that would have two colours. If
    two red neighbours of v are in one tree of red and blue nodes, blue is forbidden for v. The trees are sets of ends,
    see `trees_of`, kept as a forest of parents. Where the nodes of a batch close a cycle together, all but the
    first of each component are coloured again.
    """
    n = graph.shape[0]
    colors = no_colors(n)
    width = 8
    parent = np.arange(n * width)  # of the end (column, colour of the other column), at column * width + colour
    n_colors = 0
    for batch in _batches(nodes, keys):
        while len(batch):
            owner, w = graph.neighbours(batch)
            known = colors[w] >= 0
            owner, w = owner[known], w[known]
            q = colors[w].astype(np.int64)
            forbidden = np.zeros((len(batch), n_colors + 1), np.bool_)
            forbidden[owner, q] = True
            group = owner * np.int64(max(n_colors, 1)) + q
            (r,) = np.nonzero(~alone_in_line(owner, colors[w], max(n_colors, 1)))
            if len(r) and n_colors:
                # the trees of neighbours of one colour, for each further colour
                tree = _roots(parent, w[r, None] * np.int64(width) + np.arange(n_colors))
                key = np.stack([np.broadcast_to(group[r, None], tree.shape).reshape(-1), tree.reshape(-1)])
                order = np.lexsort(key)
                same = np.all(key[:, order[1:]] == key[:, order[:-1]], axis=0)
                twice = order[1:][same]
                forbidden[owner[r[twice // n_colors]], twice % n_colors] = True
            chosen = np.argmin(forbidden, axis=1).astype(np.int64)
            if int(chosen.max()) == n_colors:
                n_colors += 1
                if n_colors >= width:
                    grown = np.arange(n * width * 2).reshape(n, 2 * width)
                    grown[:, :width] = (parent // width * 2 * width + parent % width).reshape(n, width)
                    parent, width = grown.reshape(-1), 2 * width
            # the new entries join the ends of their batch with trees
            own = batch[owner] * np.int64(width) + q
            tree = _roots(parent, w * np.int64(width) + chosen[owner])
            ends, inverse = np.unique(np.concatenate([own, tree]), return_inverse=True)
            x, y = inverse[: len(own)], inverse[len(own) :]
            label = components(x, y, len(ends))
            cyclic = (np.bincount(label[x], minlength=len(ends)) >= np.bincount(label, minlength=len(ends)))[label[x]]
            late = np.zeros(len(batch), np.bool_)
            if np.any(cyclic):
                first = np.full(len(ends), len(batch))
                np.minimum.at(first, label[x[cyclic]], owner[cyclic])
                late[owner[cyclic][owner[cyclic] != first[label[x[cyclic]]]]] = True
                stays = ~late[owner]
                label = components(x[stays], y[stays], len(ends))
            if len(ends):
                least = np.full(len(ends), ends[-1])
                np.minimum.at(least, label, ends)
                parent[ends] = least[label]
            colors[batch] = np.where(late, -1, chosen)
            batch = batch[late]
    return colors


def _roots(parent: Ints, nodes: Ints) -> Ints:
    """Return the roots of some nodes of a forest, and let the nodes point at them."""
    root = parent[nodes]
    while True:
        above = parent[root]
        if np.array_equal(above, root):
            parent[nodes] = root
            return root
        root = above
