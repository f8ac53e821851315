"""A bounded table of recently used entries, without a lock. A hit costs as much as in a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar, final

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@final
class LRUCache(Generic[K, V]):
    """Values by key. It holds at least the `limit` most recently used keys, and at most twice as many.

    There are two generations. An entry found in the old generation is added to the young one. A full young generation
    replaces the old one, whose entries are dropped. Threads may share a table: each step is one dictionary operation,
    and a race can only drop an entry early, or keep one while another thread clears the table.

    `peek(key)` is `get` without a Python frame: it looks in the young generation only, and does not count as a use.
    """

    __slots__ = ("_limit", "_old", "_young", "peek")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._young: Final[dict[K, V]] = {}  # always this dictionary, in which `peek` looks
        self._old: dict[K, V] = {}
        self.peek: Final[Callable[[K], V | None]] = self._young.get

    def __len__(self) -> int:
        return len({**self._old, **self._young})

    def get(self, key: K) -> V | None:
        """Return the value, or None."""
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Store a value (not None)."""
        if len(self._young) >= self._limit:
            self._old = self._young.copy()
            self._young.clear()
        self._young[key] = value

    def clear(self) -> None:
        """Remove all entries."""
        self._young.clear()
        self._old = {}
