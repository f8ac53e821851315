"""A table that remembers what was used last: bounded, without a lock, a dictionary's price for a hit."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, final

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@final
class Recent(Generic[K, V]):
    """Values by key. At least the `limit` keys used last are held, never more than twice as many.

    Two generations: what is found in the old one moves to the young; a full young one becomes the old, and what nobody
    asked for meanwhile is dropped. Threads may share a table: each step is one operation of a dictionary, and the worst
    that a race does is to forget an entry early.

    `peek(key)` is `get` without a frame of Python: it finds most of what is there, and remembers no use of it.
    """

    __slots__ = ("_limit", "_old", "_young", "peek")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self.peek: Callable[[K], V | None] = self._young.get

    def __len__(self) -> int:
        return len({**self._old, **self._young})

    def get(self, key: K) -> V | None:
        """The value, or None."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, value: V) -> None:
        """Remember a value (not None)."""
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, {}
            self.peek = self._young.get
        self._young[key] = value

    def clear(self) -> None:
        """Forget everything."""
        self._old, self._young = {}, {}
        self.peek = self._young.get
