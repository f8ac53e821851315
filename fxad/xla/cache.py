"""The compile cache: keyed by the value of the program, the options and the device.

An entry lives as long as its program (or whoever holds the executable): nothing here keeps a dropped program alive.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final, TypeAlias, final
from weakref import WeakKeyDictionary

from fxad.ir import Jaxpr
from fxad.lower import lower_jaxpr
from fxad.xla.client import Device, default_device
from fxad.xla.executable import DEFAULT, CompileOptions, LoadedProgram, compile_module

_Key: TypeAlias = tuple[CompileOptions, Device]


@final
@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the cache did since it was made or cleared; `entries` and `bytes` (of code) are what it holds now."""

    hits: int
    misses: int
    compilations: int
    seconds: float  # spent compiling, over all threads
    entries: int
    bytes: int


@final
class _Entry:
    """The place of one executable; its lock is held by the thread that compiles."""

    __slots__ = ("lock", "program")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.program: LoadedProgram | None = None


@final
class Cache:
    """One executable per program, options and device, however many threads ask for it.

    Law: `cache(f, o, d) is cache(f, o, d)` while `f` lives, and it was compiled once.
    """

    __slots__ = ("_compilations", "_entries", "_hits", "_lock", "_misses", "_seconds")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget every executable and start counting anew. What holds an executable keeps it."""
        with self._lock:
            self._entries: WeakKeyDictionary[Jaxpr, dict[_Key, _Entry]] = WeakKeyDictionary()
            self._hits = self._misses = self._compilations = 0
            self._seconds = 0.0

    def __call__(self, jaxpr: Jaxpr, device: Device, options: CompileOptions = DEFAULT) -> LoadedProgram:
        """The executable of a program. Raises: CompileError; the next caller tries again."""
        with self._lock:
            entry = self._entries.setdefault(jaxpr, {}).setdefault((options, device), _Entry())
            known = entry.program
            self._hits += known is not None
        if known is not None:
            return known
        with entry.lock:
            known = entry.program
            if known is not None:  # another thread compiled it while this one waited
                with self._lock:
                    self._hits += 1
                return known
            start = time.perf_counter()
            program = compile_module(lower_jaxpr(jaxpr), options, device)
            with self._lock:
                entry.program = program
                self._misses += 1
                self._compilations += 1
                self._seconds += time.perf_counter() - start
            return program

    def stats(self) -> CacheStats:
        """Counters and contents."""
        with self._lock:
            held = [e.program for es in self._entries.values() for e in es.values() if e.program is not None]
            code = sum([max(0, p.raw.size_of_generated_code_in_bytes()) for p in held])
            return CacheStats(self._hits, self._misses, self._compilations, self._seconds, len(held), code)


cache: Final = Cache()


def compile_jaxpr(jaxpr: Jaxpr, options: CompileOptions = DEFAULT, device: Device | None = None) -> LoadedProgram:
    """The executable of a program, from the process's cache. Raises: CompileError."""
    return cache(jaxpr, device or default_device(), options)
