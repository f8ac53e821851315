"""Greedy star and acyclic colourings of symmetric patterns, of many columns at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

import numpy as np

from fxad.transforms.sparse.csr import (
    BoolArray,
    Colors,
    Csr,
    Ints,
    alone_in_line,
    components,
    csr_of,
    no_colors,
    renumbered,
)
from fxad.transforms.sparse.decompression import Coloring, one_sided
from fxad.transforms.sparse.greedy import ONE_BY_ONE, greedy_columns, smallest_last

_MOST_PATHS: Final = 100_000_000  # pairs of neighbours of a column, about ten seconds
_MOST_COUNTS: Final = 400_000_000  # elements of the table of colours of neighbours
_PATHS_AGAIN: Final = 20_000_000  # of all repetitions of a colouring together, about two seconds


def _paths(counts: Ints) -> int:
    """Return the number of pairs of neighbours, of all nodes together."""
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
    repetitions = int(np.clip(_PATHS_AGAIN // paths, 2 if kind == "star" else 0, 12))
    results: list[Colors] = []
    for k in range(len(keys) + repetitions):
        if k < len(keys):
            key = keys[k]
        else:
            best = min(results, key=lambda c: int(c.max()))
            key = _classes_again(best, used, k)[best] * np.int64(number) + separate  # so a batch keeps its distances
        batches = (used[np.argsort(key[used], kind="stable")], np.sort(key[used]))
        results.append(_star_batches(graph, *batches) if kind == "star" else _acyclic_batches(graph, *batches))
    return results


def _classes_again(colors: Colors, used: Ints, k: int) -> Ints:
    """Return the ranks of the classes of a colouring: reversed, the largest first, or shuffled."""
    classes = int(colors.max()) + 1
    match k % 3:
        case 0:
            order: Ints = np.arange(classes)[::-1]
        case 1:
            order = -np.bincount(colors[used], minlength=classes)
        case _:
            order = np.random.default_rng(k).permutation(classes)
    return _rank(order)


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
    n_neighbours_of_color = np.zeros((n, 8), np.int32)  # how many neighbours have each colour
    mate = np.full(n, -1, np.int64)  # the node of the batch beside a node
    n_colors = 0
    for batch in _batches(nodes, keys):
        while len(batch):
            owner, w = graph.neighbours(batch)
            is_colored_neighbour = colors[w] >= 0
            forbidden = np.zeros((len(batch), n_colors + 1), np.bool_)
            forbidden[owner[is_colored_neighbour], colors[w[is_colored_neighbour]]] = True
            # paths v - a - b, where b has a colour
            middle, b = graph.neighbours(w[is_colored_neighbour])
            v, a = owner[is_colored_neighbour][middle], w[is_colored_neighbour][middle]
            is_colored = colors[b] >= 0
            v, a, b = v[is_colored], a[is_colored], b[is_colored]
            # a path of two colours: v or b has another neighbour with the colour of a
            closing = (n_neighbours_of_color[batch[v], colors[a]] >= 2) | (n_neighbours_of_color[b, colors[a]] >= 2)
            forbidden[v[closing], colors[b[closing]]] = True
            chosen = np.argmin(forbidden, axis=1).astype(np.int32)
            if int(chosen.max()) == n_colors:
                n_colors += 1
                if n_colors >= n_neighbours_of_color.shape[1]:
                    n_neighbours_of_color = np.concatenate(
                        [n_neighbours_of_color, np.zeros_like(n_neighbours_of_color)], axis=1
                    )
            colors[batch] = chosen
            n_neighbours_of_color[w, chosen[owner]] += 1
            mate[w] = batch[owner]
            far_end = mate[b]  # the node w at the end of v - a - b - w, if it is in the batch
            (k,) = np.nonzero((far_end >= 0) & (colors[b] == chosen[v]) & (far_end != batch[v]))
            k = k[colors[far_end[k]] == colors[a[k]]]
            late = np.unique(np.maximum(batch[v[k]], far_end[k]))
            mate[w] = -1
            undone, w = graph.neighbours(late)
            n_neighbours_of_color[w, colors[late][undone]] -= 1
            colors[late] = -1
            batch = late
    return colors


def _acyclic_batches(graph: Csr, nodes: Ints, keys: Ints) -> Colors:
    """Return the greedy acyclic colouring that takes the nodes of equal key together, in order.

    Each node gets the first colour that is not forbidden: by a neighbour, or by a cycle that would have two colours. If
    two red neighbours of v are in one tree of red and blue nodes, blue is forbidden for v. Where the nodes of a batch
    close a cycle together, all but the first of each component are coloured again.
    """
    n = graph.shape[0]
    colors = no_colors(n)
    trees = _Trees(n)
    n_colors = 0
    for batch in _batches(nodes, keys):
        while len(batch):
            owner, w = graph.neighbours(batch)
            is_colored = colors[w] >= 0
            owner, w = owner[is_colored], w[is_colored]  # neighbour w, of colour q, of node batch[owner]
            q = colors[w].astype(np.int64)
            forbidden = np.zeros((len(batch), n_colors + 1), np.bool_)
            forbidden[owner, q] = True
            forbidden[trees.closing(owner, w, q, n_colors)] = True
            chosen = np.argmin(forbidden, axis=1).astype(np.int64)
            n_colors = max(n_colors, int(chosen.max()) + 1)
            late = trees.grow(batch, owner, w, q, chosen, n_colors)
            colors[batch] = np.where(late, -1, chosen)
            batch = batch[late]
    return colors


class _Trees:
    """The trees of the pairs of colours so far, as a forest (union-find) of their ends.

    An end is a column together with the colour of the other column of an entry, see `trees_of`: its number is
    column * width + colour. Example: the entry of a red node v and a blue one w has the ends (v, blue) and (w, red),
    which have one root.
    """

    def __init__(self, n: int) -> None:
        self.n, self.width = n, 8
        self.parent: Ints = np.arange(n * self.width)

    def closing(self, owner: Ints, w: Ints, q: Ints, n_colors: int) -> tuple[Ints, Ints]:
        """Return the pairs (owner, colour) that would close a cycle: two neighbours w of one colour q are in one tree
        of q and this colour.

        Example: node 0 of the batch has the neighbours 5 and 7, which are red, and 9, which has another colour. Of the
        colours red, blue, 5 and 7 are in one tree of red and blue nodes, whose root is 31.

            several          [5, 7]                   neighbours of a node that have one colour
            node_and_color   [(0, red), (0, red)]
            root             [[.., 31], [.., 31]]     for each other colour, the tree of the neighbour
            pairs            ((0, red), 31) is there twice, in the column of blue: (0, blue) is returned
        """
        (several,) = np.nonzero(~alone_in_line(owner, q, max(n_colors, 1)))
        if not len(several) or not n_colors:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        node_and_color = owner[several] * np.int64(n_colors) + q[several]
        root = self._roots(w[several, None] * np.int64(self.width) + np.arange(n_colors))
        pairs = np.stack([np.repeat(node_and_color, n_colors), root.reshape(-1)])
        order = np.lexsort(pairs)
        equals_previous = np.all(pairs[:, order[1:]] == pairs[:, order[:-1]], axis=0)
        neighbour, other_color = np.divmod(order[1:][equals_previous], n_colors)
        return owner[several[neighbour]], other_color

    def grow(self, batch: Ints, owner: Ints, w: Ints, q: Ints, chosen: Ints, n_colors: int) -> BoolArray:
        """Add the entries of a batch with its chosen colours, but for those of some nodes, which are returned: they
        would close cycles together.

        An entry of a node v of the batch and a neighbour w joins two ends: (v, colour of w), which is new, and (w,
        colour of v), which may be in a tree. Example: the nodes 1 and 2 get the colour blue, and both have the red
        neighbours 5 and 7, which are in trees of their own. The four entries join the ends (1, red) and (2, red) to the
        trees of (5, blue) and (7, blue): as many entries as ends, so there is a cycle, and node 2 is returned.
        """
        if n_colors >= self.width:
            self._widen()
        end_in_batch = batch[owner] * np.int64(self.width) + q
        root = self._roots(w * np.int64(self.width) + chosen[owner])
        ends, inverse = np.unique(np.concatenate([end_in_batch, root]), return_inverse=True)
        x, y = inverse[: len(end_in_batch)], inverse[len(end_in_batch) :]  # the two ends of each entry
        label = components(x, y, len(ends))
        n_entries, n_ends = np.bincount(label[x], minlength=len(ends)), np.bincount(label, minlength=len(ends))
        cyclic = (n_entries >= n_ends)[label[x]]  # a tree has an entry less than ends
        late = np.zeros(len(batch), np.bool_)
        if np.any(cyclic):
            component, node = label[x[cyclic]], owner[cyclic]
            first_node = np.full(len(ends), len(batch))  # of each component
            np.minimum.at(first_node, component, node)
            late[node[node != first_node[component]]] = True
            stays = ~late[owner]
            label = components(x[stays], y[stays], len(ends))
        if len(ends):
            least = np.full(len(ends), ends[-1])
            np.minimum.at(least, label, ends)
            self.parent[ends] = least[label]
        return late

    def _widen(self) -> None:
        """Make room for twice as many colours."""
        n, width = self.n, self.width
        wider = np.arange(n * width * 2).reshape(n, 2 * width)
        wider[:, :width] = (self.parent // width * 2 * width + self.parent % width).reshape(n, width)
        self.parent, self.width = wider.reshape(-1), 2 * width

    def _roots(self, ends: Ints) -> Ints:
        """Return the roots of some ends, and let these point at them."""
        root = self.parent[ends]
        while True:
            above = self.parent[root]
            if np.array_equal(above, root):
                self.parent[ends] = root
                return root
            root = above
