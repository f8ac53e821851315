"""Minimum vertex cut: the cheapest set of values that separates known values from needed ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_Residual = list[dict[int, int]]


def min_vertex_cut(
    weights: Sequence[int], edges: Collection[tuple[int, int]], sources: Collection[int], sinks: Collection[int]
) -> frozenset[int]:
    """A set of vertices of least total weight that every path from a source to a sink meets.

    It may contain sources and sinks. Of several minimal sets, it is the one nearest to the sinks. For example, the
    paths from 0 to 3 meet the vertices 1 and 2, of which each has one:

    >>> sorted(min_vertex_cut([9, 2, 3, 6], [(0, 1), (0, 2), (1, 3), (2, 3)], sources=[0], sinks=[3]))
    [1, 2]
    >>> sorted(min_vertex_cut([9, 2, 3, 4], [(0, 1), (0, 2), (1, 3), (2, 3)], sources=[0], sinks=[3]))
    [3]

    Law:    every path from a source to a sink meets it; no other such set weighs less.
    Cost:   a breadth-first search for each augmenting path, at most vertices times edges of them.
    Source: Menger's theorem as a flow through vertices that are split in two; Edmonds and Karp (1972), "Theoretical
            improvements in algorithmic efficiency for network flow problems", for the order of the paths.
    """
    n = len(weights)
    start, end, unlimited = 2 * n, 2 * n + 1, sum(weights) + 1
    capacities: _Residual = [{} for _ in range(2 * n + 2)]  # vertex v is entered at 2 v and left at 2 v + 1

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
    while path := _path(capacities, start, end):
        flow = min([capacities[u][v] for u, v in path])
        for u, v in path:
            capacities[u][v] -= flow
            capacities[v][u] += flow
    reaching = _reaching(capacities, end)
    return frozenset([v for v in range(n) if 2 * v + 1 in reaching and 2 * v not in reaching])


def _path(capacities: _Residual, start: int, end: int) -> list[tuple[int, int]]:
    """A shortest augmenting path; empty if there is none."""
    predecessor = {start: start}
    queue = [start]
    for u in queue:
        for v, capacity in capacities[u].items():
            if capacity and v not in predecessor:
                predecessor[v] = u
                queue.append(v)
        if end in predecessor:
            break
    path = []
    while end in predecessor and end != start:
        path.append((predecessor[end], end))
        end = predecessor[end]
    return path


def _reaching(capacities: _Residual, end: int) -> set[int]:
    """The vertices from which `end` is reachable in the residual graph."""
    reaching = {end}
    queue = [end]
    for v in queue:
        for u in capacities[v]:  # every edge has a reverse edge
            if capacities[u].get(v, 0) and u not in reaching:
                reaching.add(u)
                queue.append(u)
    return reaching
