"""Minimum vertex cut, which `min_cut_recompute` solves: the cheapest values that separate known from needed ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

_ResidualGraph = list[dict[int, int]]


def min_vertex_cut(
    weights: Sequence[int], edges: Collection[tuple[int, int]], sources: Collection[int], sinks: Collection[int]
) -> frozenset[int]:
    """Return a set of vertices of least total weight that every path from a source to a sink meets.

    It may contain sources and sinks. Of several minimal sets, it is the one nearest to the sinks. For example, the
    paths from 0 to 3 meet the vertices 1 and 2, of which each has one:

    >>> sorted(min_vertex_cut([9, 2, 3, 6], [(0, 1), (0, 2), (1, 3), (2, 3)], sources=[0], sinks=[3]))
    [1, 2]
    >>> sorted(min_vertex_cut([9, 2, 3, 4], [(0, 1), (0, 2), (1, 3), (2, 3)], sources=[0], sinks=[3]))
    [3]

    Law:    every path from a source to a sink meets it; no other such set weighs less.
    Cost:   linear for each length of a shortest path, beside the edges of the paths. Paths are short here.
    Source: Menger's theorem as a flow through vertices that are split in two; Dinitz (1970), "Algorithm for solution of
            a problem of maximum flow in networks with power estimation".
    """
    n = len(weights)
    start, end, unlimited = 2 * n, 2 * n + 1, sum(weights) + 1
    capacities: _ResidualGraph = [{} for _ in range(2 * n + 2)]  # vertex v is entered at 2 v and left at 2 v + 1

    def edge(u: int, v: int, capacity: int) -> None:
        capacities[u][v] = capacity
        capacities[v].setdefault(u, 0)

    for v, weight in enumerate(weights):
        edge(2 * v, 2 * v + 1, weight)
    for u, v in edges:
        edge(2 * u + 1, 2 * v, unlimited)
    for v in sources:
        edge(start, 2 * v, unlimited)
    for v in sinks:
        edge(2 * v + 1, end, unlimited)
    while end in (level := _levels(capacities, start)):
        _add_blocking_flow(capacities, level, start, end)
    reaching = _reaching(capacities, end)
    return frozenset([v for v in range(n) if 2 * v + 1 in reaching and 2 * v not in reaching])


def _levels(capacities: _ResidualGraph, start: int) -> dict[int, int]:
    """Return the number of edges of a shortest path from `start` to each vertex that it reaches."""
    level = {start: 0}
    queue = [start]
    for u in queue:
        for v, capacity in capacities[u].items():
            if capacity and v not in level:
                level[v] = level[u] + 1
                queue.append(v)
    return level


def _add_blocking_flow(capacities: _ResidualGraph, level: Mapping[int, int], start: int, end: int) -> None:
    """Add flows along paths on which each edge leads to the next level, until every such path is blocked."""
    # for each vertex, the edges that are not blocked; the last is next
    untried = {u: list(capacities[u]) for u in level}
    path = [start]
    while path:
        u = path[-1]
        if u == end:
            edges = list(pairwise(path))
            flow = min([capacities[v][w] for v, w in edges])
            for v, w in edges:
                capacities[v][w] -= flow
                capacities[w][v] += flow
            del path[1 + next(k for k, (v, w) in enumerate(edges) if not capacities[v][w]) :]
            continue
        ahead = untried[u]
        while ahead and not (capacities[u][ahead[-1]] and level.get(ahead[-1]) == level[u] + 1):
            ahead.pop()
        if ahead:
            path.append(ahead[-1])
            continue
        path.pop()  # no edge leads on from here, so the edge that leads here is blocked too
        if path:
            untried[path[-1]].pop()


def _reaching(capacities: _ResidualGraph, end: int) -> set[int]:
    """Return the vertices from which `end` is reachable in the residual graph."""
    reaching = {end}
    queue = [end]
    for v in queue:
        for u in capacities[v]:  # every edge has a reverse edge
            if capacities[u].get(v, 0) and u not in reaching:
                reaching.add(u)
                queue.append(u)
    return reaching
