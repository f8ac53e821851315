"""Minimum vertex cut: the cheapest set of values that separates known values from needed ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_Residual = list[dict[int, int]]


def separator(
    weights: Sequence[int], edges: Collection[tuple[int, int]], sources: Collection[int], sinks: Collection[int]
) -> frozenset[int]:
    """A set of vertices of least total weight that every path from a source to a sink meets.

    It may contain sources and sinks. Of several minimal sets, it is the one nearest to the sinks.

    Law:    every path from a source to a sink meets it; no other such set weighs less.
    Cost:   a breadth-first search for each augmenting path, at most vertices times edges of them.
    Source: Menger's theorem as a flow through vertices that are split in two; Edmonds and Karp (1972), "Theoretical
            improvements in algorithmic efficiency for network flow problems", for the order of the paths.
    """
    n = len(weights)
    start, end, endless = 2 * n, 2 * n + 1, sum(weights) + 1
    left: _Residual = [{} for _ in range(2 * n + 2)]  # vertex v is entered at 2 v and left at 2 v + 1

    def edge(u: int, v: int, capacity: int) -> None:
        left[u][v] = capacity
        left[v].setdefault(u, 0)

    for v, weight in enumerate(weights):
        edge(2 * v, 2 * v + 1, weight)
    for u, v in edges:
        edge(2 * u + 1, 2 * v, endless)
    for v in sources:
        edge(start, 2 * v, endless)
    for v in sinks:
        edge(2 * v + 1, end, endless)
    while path := _path(left, start, end):
        flow = min([left[u][v] for u, v in path])
        for u, v in path:
            left[u][v] -= flow
            left[v][u] += flow
    ahead = _reaching(left, end)
    return frozenset([v for v in range(n) if 2 * v + 1 in ahead and 2 * v not in ahead])


def _path(left: _Residual, start: int, end: int) -> list[tuple[int, int]]:
    """A shortest augmenting path; empty if there is none."""
    came = {start: start}
    queue = [start]
    for u in queue:
        for v, capacity in left[u].items():
            if capacity and v not in came:
                came[v] = u
                queue.append(v)
        if end in came:
            break
    path = []
    while end in came and end != start:
        path.append((came[end], end))
        end = came[end]
    return path


def _reaching(left: _Residual, end: int) -> set[int]:
    """The vertices from which `end` is reachable in the residual graph."""
    found = {end}
    queue = [end]
    for v in queue:
        for u in left[v]:  # every edge has one back
            if left[u].get(v, 0) and u not in found:
                found.add(u)
                queue.append(u)
    return found
