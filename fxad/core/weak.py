"""A weak table that threads share without a lock.

A lock can be left taken: an exception of a signal handler (Ctrl-C) may come between any two steps of Python, and a
child is forked while another thread has it. Here each step that changes the table is one operation in C.
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
    """Weak interning: the one object for a key, as long as somebody holds it. Thread-safe, also beside finalisers.

    Rule: keys are compared in C (numbers, bytes, tuples of them, objects compared by identity).
    Law:  two calls of `put` with equal keys return the same object while that object is held.
    """

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: dict[K, KeyedRef[K, V]] = {}

    def get(self, key: K) -> V | None:
        """The object for a key."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def put(self, key: K, made: V) -> V:
        """Store `made` under `key`, unless an object is there: then that one."""
        refs = self._refs
        mine: KeyedRef[K, V] = KeyedRef(made, lambda ref: _forget(refs, ref.key), key)
        while True:
            there = refs.setdefault(key, mine)
            if there is mine:
                return made
            known = there()
            if known is not None:
                return known
            _forget(refs, key)

    def __len__(self) -> int:
        return len(self._refs)


def _forget(refs: dict[K, KeyedRef[K, V]], key: K) -> None:
    """Remove the entry of a key if its object is dead: another one may have taken its place."""
    _remove_dead_weakref(refs, key)


__all__ = ["WeakTable"]
