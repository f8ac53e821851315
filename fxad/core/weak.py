"""A thread-safe weak table without a lock.

A lock may never be released: a signal handler (Ctrl-C) may raise between any two bytecodes, and a process may fork
while another thread holds the lock. Here each change of the table is one operation in C.
"""

from __future__ import annotations

from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]  # compare and delete: `weakref` is built on it
from collections.abc import Hashable
from typing import Generic, TypeVar, final
from weakref import KeyedRef

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@final
class WeakTable(Generic[K, V]):
    """Weak interning: the unique object for a key, while a reference to it exists. Thread-safe, also with finalisers.

    Rule: keys are compared in C (numbers, bytes, tuples of them, objects compared by identity).
    Law:  two calls of `put` with equal keys return the same object while a reference to that object exists.
    """

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: dict[K, KeyedRef[K, V]] = {}

    def get(self, key: K) -> V | None:
        """The object for a key."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def put(self, key: K, value: V) -> V:
        """Store `value` under `key`, unless the key has an object. Returns the stored object."""
        # Removes an entry if its object is dead: a live one may have replaced it. A closure holds the function, because
        # objects may die at interpreter exit, after the globals of this module.
        refs, remove_dead = self._refs, _remove_dead_weakref
        ref: KeyedRef[K, V] = KeyedRef(value, lambda ref: remove_dead(refs, ref.key), key)
        while True:
            stored = refs.setdefault(key, ref)
            if stored is ref:
                return value
            live = stored()
            if live is not None:
                return live
            remove_dead(refs, key)

    def __len__(self) -> int:
        return len(self._refs)


__all__ = ["WeakTable"]
