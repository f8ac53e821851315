"""Weak references and weak tables for threads and signals, without a lock.

A lock may never be released: a signal handler (Ctrl-C) may raise between any two bytecodes, and a process may fork
while another thread holds the lock. Here each change of the table is one operation in C.

Python ignores an exception in the callback of a weak reference. If such a callback were a Python function, a signal
handler might run in it, and its exception (Ctrl-C) would be lost. So callbacks are functions in C.
"""

from __future__ import annotations

from _weakref import _remove_dead_weakref as remove_dead  # type: ignore[attr-defined]  # compare and delete
from collections.abc import Callable, Hashable
from functools import partial
from operator import methodcaller
from typing import Final, Generic, TypeVar, final
from weakref import ref

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")


class RefWithCleanup(ref[V]):
    """A weak reference, made as `RefWithCleanup(value, CLEANUP)`. `cleanup()`, a function in C that is set while the
    object lives, is called when the object dies."""

    __slots__ = ("cleanup",)

    cleanup: Callable[[], object]


CLEANUP: Final = methodcaller("cleanup")  # Python calls it with the reference


@final
class WeakTable(Generic[K, V]):
    """Weak interning: the unique object for a key, while a reference to it exists. Thread-safe, also with finalisers.

    Rule: keys are compared in C (numbers, bytes, tuples of them, objects compared by identity).
    Law:  two calls of `put` with equal keys return the same object while a reference to that object exists.
    """

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: dict[K, RefWithCleanup[V]] = {}

    def get(self, key: K) -> V | None:
        """Return the object for a key."""
        reference = self._refs.get(key)
        return None if reference is None else reference()

    def put(self, key: K, value: V) -> V:
        """Store `value` under `key`, unless the key has an object. Return the stored object."""
        # the cleanup removes the entry only if its object is dead: a live one may have replaced it
        cleanup = partial(remove_dead, self._refs, key)  # made first, so no signal leaves a reference without it
        reference = RefWithCleanup(value, CLEANUP)
        reference.cleanup = cleanup
        while True:
            stored = self._refs.setdefault(key, reference)
            if stored is reference:
                return value
            live = stored()
            if live is not None:
                return live
            remove_dead(self._refs, key)

    def __len__(self) -> int:
        return len(self._refs)


@final
class WeakKeyTable(Generic[T, V]):
    """Values by object, each kept while its key exists. Keys are compared by identity. Thread-safe."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[int, tuple[RefWithCleanup[T], V]] = {}

    def get(self, key: T) -> V | None:
        """Return the value of a key; None if there is none."""
        item = self._items.get(id(key))
        return None if item is None else item[1]

    def setdefault(self, key: T, value: V) -> V:
        """Store a value, unless the key has one. Return the stored value."""
        # the entry goes before the memory of the key is used again, so no other object has its id
        cleanup = partial(self._items.pop, id(key), None)
        reference = RefWithCleanup(key, CLEANUP)
        reference.cleanup = cleanup
        return self._items.setdefault(id(key), (reference, value))[1]

    def living_keys(self) -> list[T]:
        """Return the keys that exist."""
        return [key for reference, _ in self._items.copy().values() if (key := reference()) is not None]

    def __len__(self) -> int:
        return len(self._items)


__all__ = ["CLEANUP", "RefWithCleanup", "WeakKeyTable", "WeakTable", "remove_dead"]
