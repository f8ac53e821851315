"""The compile cache: keyed by the value of the program, the options and the device.

An entry lives as long as its program. The programs used last are held here, so that a function that is traced again
(`grad(f)(x)` in a loop, a lambda made anew) finds its executable; what is dropped and not among them is collected.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
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

    __slots__ = ("hits", "lock", "program", "seconds")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.program: LoadedProgram | None = None
        self.hits = 0
        self.seconds = 0.0


@final
class Cache:
    """One executable per program, options and device, however many threads ask for it.

    The `keep` programs used last are held, and so are their executables; neither holds an array (docs/adr/0010). Others
    are held by whoever uses them. `clear()` lets go of all.

    Law: `cache(f, o, d) is cache(f, o, d)` while `f` lives or is among the last `keep` programs; compiled once.
    """

    __slots__ = ("_compilations", "_entries", "_hits", "_keep", "_lock", "_recent", "_seconds")

    def __init__(self, keep: int = 512) -> None:
        self._lock = threading.Lock()
        self._keep = keep
        self.clear()

    def clear(self) -> None:
        """Forget every executable and start counting anew. What holds an executable keeps it."""
        with self._lock:
            self._entries: WeakKeyDictionary[Jaxpr, dict[_Key, _Entry]] = WeakKeyDictionary()
            self._recent: OrderedDict[Jaxpr, None] = OrderedDict()
            self._hits = self._compilations = 0
            self._seconds = 0.0

    def __call__(self, jaxpr: Jaxpr, device: Device, options: CompileOptions = DEFAULT) -> LoadedProgram:
        """The executable of a program. Raises: CompileError; the next caller tries again."""
        with self._lock:
            entry = self._entries.setdefault(jaxpr, {}).setdefault((options, device), _Entry())
            known = entry.program
            if known is not None:
                return self._hit(jaxpr, entry, known)
        with entry.lock:
            known = entry.program
            if known is not None:  # another thread compiled it while this one waited
                with self._lock:
                    return self._hit(jaxpr, entry, known)
            start = time.perf_counter()
            program = compile_module(lower_jaxpr(jaxpr), options, device)
            with self._lock:
                entry.program = program
                entry.seconds = time.perf_counter() - start
                self._compilations += 1
                self._seconds += entry.seconds
                self._touch(jaxpr)
            return program

    def _hit(self, jaxpr: Jaxpr, entry: _Entry, program: LoadedProgram) -> LoadedProgram:
        entry.hits += 1
        self._hits += 1
        self._touch(jaxpr)
        return program

    def _touch(self, jaxpr: Jaxpr) -> None:
        """Make a program the one used last."""
        self._recent[jaxpr] = None
        self._recent.move_to_end(jaxpr)
        if len(self._recent) > self._keep:
            self._recent.popitem(last=False)

    def _held(self) -> list[tuple[Jaxpr, _Key, _Entry, LoadedProgram]]:
        return [
            (jaxpr, key, entry, entry.program)
            for jaxpr, entries in self._entries.items()
            for key, entry in entries.items()
            if entry.program is not None
        ]

    def stats(self) -> CacheStats:
        """Counters and contents."""
        with self._lock:
            held = self._held()
            code = sum([max(0, program.raw.size_of_generated_code_in_bytes()) for *_, program in held])
            return CacheStats(self._hits, self._compilations, self._compilations, self._seconds, len(held), code)

    def explain(self) -> str:
        """What is held and what it cost, one line an executable, the most expensive first."""
        with self._lock:
            held = sorted(self._held(), key=lambda row: -row[2].seconds)
            return "\n".join([_line(jaxpr, key, entry) for jaxpr, key, entry, _ in held])


def _line(jaxpr: Jaxpr, key: _Key, entry: _Entry) -> str:
    options, device = key
    how = "" if options == DEFAULT else f" with {options}"
    return f"{1e3 * entry.seconds:9.1f} ms {entry.hits:6d} hits  {device}  {jaxpr!r}{how}"


cache: Final = Cache()


def compile_jaxpr(jaxpr: Jaxpr, options: CompileOptions = DEFAULT, device: Device | None = None) -> LoadedProgram:
    """The executable of a program, from the process's cache. Raises: CompileError."""
    return cache(jaxpr, device or default_device(), options)
