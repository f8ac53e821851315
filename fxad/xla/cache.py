"""The compile cache: keyed by the value of the program, the options and the device.

What was used last is held, up to a budget of bytes, so that a function that is traced again (`grad(f)(x)` in a loop, a
lambda made anew) finds its executable; what is dropped and not among these is collected. Behind it may stand a
directory, in which executables outlive the process (docs/adr/0025).

A cache is in force for a context: the process's own, or one made by the user (`with fx.cache.private()`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from enum import Enum
from os import PathLike
from typing import Final, TypeAlias, final, overload
from weakref import WeakKeyDictionary, ref

from fxad.core.dataclasses import dataclass
from fxad.errors import CacheError, CacheWarning, ParameterError, warn
from fxad.ir import Jaxpr
from fxad.xla.client import Device, default_device
from fxad.xla.disk_tier import DiskTier, Made
from fxad.xla.executable import DEFAULT, CompileOptions, LoadedProgram
from fxad.xla.explanation import Carrier, Explanation, Key, explained, program_of, with_units
from fxad.xla.in_flight import under_way
from fxad.xla.serialized import footprint, serialized
from fxad.xla.sources import compiled, size

_Slot: TypeAlias = tuple[Jaxpr, Key]
Path: TypeAlias = str | PathLike[str]

MEMORY: Final = 256 * 2**20
DISK: Final = 2**30
_VARIABLE: Final = "FXAD_CACHE_DIR"
# What an equation of a program takes with what is remembered on it: its plan, the program with stretches outlined.
_EQUATION: Final = 4 * 2**10

# What is compiled and how long it takes, at INFO; `logging.getLogger("fxad")` is the user's handle.
_log: Final = logging.getLogger("fxad")


@final
class Other(Enum):
    """Directories that are not named: the one there is, and the one of the environment variable FXAD_CACHE_DIR."""

    SAME = 0
    ENVIRONMENT = 1


@final
@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the cache did since it was made or cleared; `entries` and `bytes` are what it holds now.

    A hit found an executable in memory; a miss found it on disk (`disk_hits`) or compiled it (`compilations`).
    """

    hits: int = 0
    misses: int = 0
    compilations: int = 0
    seconds: float = 0.0  # spent lowering and compiling, over all threads
    seconds_saved: float = 0.0  # what hits would have spent so
    entries: int = 0
    bytes: int = 0
    evictions: int = 0
    disk_hits: int = 0
    disk_writes: int = 0


@final
class _Entry:
    """The place of one executable; its lock is held by the thread that makes it."""

    __slots__ = ("bytes", "hits", "lock", "program", "seconds")

    def __init__(self) -> None:
        # a compilation that comes upon its own key (from a finaliser, say) repeats the work rather than wait for itself
        self.lock = threading.RLock()
        self.program: ref[LoadedProgram] | None = None
        self.hits = 0
        self.seconds = 0.0  # of lowering and compiling
        self.bytes = 0

    def found(self) -> LoadedProgram | None:
        """The executable, if anybody holds it."""
        return None if self.program is None else self.program()


@final
class Cache:
    """One executable per program, options and device, however many threads ask for it.

    The executables used last are held with their programs, up to `max_bytes`; neither holds an array (docs/adr/0003).
    Others are found as long as somebody else holds them. Programs that run as several executables are held too, those
    used last, up to a quarter of that, so that their plan is found when they are traced again (docs/adr/0029).
    `clear()` lets go of all. With `dir`, what is compiled is stored there too, up to `disk_bytes`, and found by later
    processes.

    Law:    `cache(f, o, d) is cache(f, o, d)` while that is held; compiled once, however many threads ask.
    Raises: ParameterError for a budget that is no number of bytes; CacheError for a directory that is not the user's
            own, or that others can write to.
    """

    __slots__ = ("_dir", "_disk_bytes", "_entries", "_held", "_lock", "_max_bytes", "_planned", "_stats", "_tier")

    def __init__(self, max_bytes: int = MEMORY, dir: Path | None | Other = None, disk_bytes: int = DISK) -> None:
        # re-entrant: the collector may run a user's finaliser in here, and that may compile
        self._lock = threading.RLock()
        self._max_bytes = _budget("max_bytes", max_bytes)
        self._disk_bytes = _budget("disk_bytes", disk_bytes)
        self._dir: Path | None | Other = dir
        self._tier: DiskTier | None = None
        if dir is not Other.ENVIRONMENT:
            self._tier = self._opened(dir)
        self.clear()

    def clear(self, *, disk: bool = False) -> None:
        """Forget every executable and start counting anew; what is stored too with `disk`. What holds one keeps it:
        jitted functions, `Executable`s, and the operations that ran outside of traces, the 4,096 used last."""
        with self._lock:
            self._entries: WeakKeyDictionary[Jaxpr, dict[Key, _Entry]] = WeakKeyDictionary()
            self._held: OrderedDict[_Slot, tuple[LoadedProgram, _Entry]] = OrderedDict()
            self._planned: OrderedDict[Jaxpr, None] = OrderedDict()
            self._stats = _Counts()
            tier = self._disk() if disk else None
        if tier is not None:
            tier.directory.clear()

    def configure(
        self, *, dir: Path | None | Other = Other.SAME, max_bytes: int | None = None, disk_bytes: int | None = None
    ) -> None:
        """Change where and how much is held; what is not given stays, and `dir=None` is no directory.

        Raises: ParameterError, CacheError; nothing is changed then.
        """
        with self._lock:
            memory = self._max_bytes if max_bytes is None else _budget("max_bytes", max_bytes)
            disk, before = self._disk_bytes, self._disk_bytes
            if disk_bytes is not None:
                disk = self._disk_bytes = _budget("disk_bytes", disk_bytes)
            if dir is not Other.SAME or disk != before:
                where = self._dir if dir is Other.SAME else dir
                try:
                    self._tier = None if where is Other.ENVIRONMENT else self._opened(where)
                except BaseException:
                    self._disk_bytes = before
                    raise
                self._dir = where
            self._max_bytes = memory
            self._evict()

    def _opened(self, dir: Path | None | Other) -> DiskTier | None:
        return None if dir is None or isinstance(dir, Other) else DiskTier(dir, self._disk_bytes)

    def _disk(self) -> DiskTier | None:
        """The disk tier; the environment is read when it is first needed, and only warned about."""
        if self._dir is Other.ENVIRONMENT:
            with self._lock:
                if self._dir is Other.ENVIRONMENT:
                    self._dir = os.environ.get(_VARIABLE) or None
                    try:
                        self._tier = self._opened(self._dir)
                    except CacheError as e:
                        warn(f"{e.message} ({_VARIABLE}); nothing is stored. {e.remedy}", CacheWarning)
        return self._tier

    # ------------------------------------------------------------------------------------------------- asking

    def __call__(self, source: Jaxpr, device: Device, options: CompileOptions = DEFAULT) -> LoadedProgram:
        """The executable of a program, traced or exported. Raises: CompileError; the next caller tries again."""
        key = (options, device)
        with self._lock:
            entries = self._entries.get(source)
            if entries is None:
                entries = self._entries[source] = {}
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = _Entry()
            known = entry.found()
            if known is not None:
                return self._hit((source, key), entry, known)
        with entry.lock:
            known = entry.found()
            if known is None:
                with under_way(f"compile of {source.name}", key[1]):
                    return self._make((source, key), entry)
        with self._lock:  # another thread compiled it while this one waited
            return self._hit((source, key), entry, known)

    def _hit(self, slot: _Slot, entry: _Entry, program: LoadedProgram) -> LoadedProgram:
        entry.hits += 1
        self._stats.hits += 1
        self._stats.seconds_saved += entry.seconds
        self._hold(slot, entry, program)
        return program

    def _make(self, slot: _Slot, entry: _Entry) -> LoadedProgram:
        source, key = slot
        tier = self._disk()
        found = tier.find(source, key[1], key[0]) if tier is not None else None
        written = False
        if found is None:
            made, written = self._compiled(slot, tier)
        else:
            made = found
            _log.info("%s for %s: from the directory, which saved %.1f ms", source.name, key[1], 1e3 * made.seconds)
        with self._lock:
            entry.program, entry.seconds, entry.bytes = ref(made.program), made.seconds, made.bytes
            s = self._stats
            s.misses += 1
            s.disk_writes += written
            if found is None:
                s.compilations += 1
                s.seconds += made.seconds
            else:
                s.disk_hits += 1
                s.seconds_saved += made.seconds
            self._entries.setdefault(source, {})[key] = entry  # cleared meanwhile, perhaps
            self._hold(slot, entry, made.program)
        return made.program

    def _compiled(self, slot: _Slot, tier: DiskTier | None) -> tuple[Made, bool]:
        """Compile a program, and store it; what came of both."""
        source, (options, device) = slot
        start = time.perf_counter()
        made = compiled(source, options, device)
        seconds = time.perf_counter() - start
        _log.info(
            "compiled %s for %s in %.1f ms: %s, %s temporary bytes%s%s",
            *(source.name, device, 1e3 * seconds, size(source), f"{made.program.origin.memory.temp_bytes:,}"),
            "" if options == DEFAULT else f", with {options}",
            self._unlike(slot) if _log.isEnabledFor(logging.INFO) else "",
        )
        payload = serialized(made.program)
        written = tier is not None and tier.keep(source, device, options, made, payload, seconds)
        return Made(made.program, seconds, footprint(made.program, made.text, payload)), written

    def _unlike(self, slot: _Slot) -> str:
        """How a program differs from the nearest of its name that is held, for the log."""
        source, key = slot
        with self._lock:
            held = [(p, k) for p, k in reversed(self._held) if p.name == source.name]
        difference = explained(source, key, held).difference
        return f"; the nearest of that name differs at {difference}" if difference is not None else ""

    def _hold(self, slot: _Slot, entry: _Entry, program: LoadedProgram) -> None:
        """Make an executable the one used last."""
        if self._held.get(slot, (None,))[0] is not program:
            self._stats.bytes += entry.bytes - self._size_of(slot)
            self._held[slot] = program, entry
        self._held.move_to_end(slot)
        self._evict()

    def _size_of(self, slot: _Slot) -> int:
        held = self._held.get(slot)
        return 0 if held is None else held[1].bytes

    def _evict(self) -> None:
        while self._stats.bytes > self._max_bytes:
            _, (_, entry) = self._held.popitem(last=False)
            self._stats.bytes -= entry.bytes
            self._stats.evictions += 1

    def hold_planned(self, jaxpr: Jaxpr) -> None:
        """Hold a program that runs as several executables, among those used last: what is remembered on it, as its plan
        is, is found by whoever traces an equal program while this one is held."""
        with self._lock:
            self._planned[jaxpr] = None
            self._planned.move_to_end(jaxpr)
            room = self._max_bytes // 4
            while self._planned and sum([_EQUATION * len(p.eqns) for p in self._planned]) > room:
                self._planned.popitem(last=False)

    # ----------------------------------------------------------------------------------------------- in force

    @contextmanager
    def use(self) -> Iterator[Cache]:
        """Make this the cache in force: in this thread or asyncio task, and in tasks started here.

        A new thread begins with the process's cache, unless it runs in a copy of the context
        (`contextvars.copy_context().run`, `asyncio.to_thread`).
        """
        token = _in_force.set(self)
        try:
            yield self
        finally:
            _in_force.reset(token)

    def private(
        self, max_bytes: int = MEMORY, dir: Path | None = None, disk_bytes: int = DISK
    ) -> AbstractContextManager[Cache]:
        """A cache of its own, in force in a `with` block: `with fx.cache.private() as mine:`."""
        return Cache(max_bytes, dir, disk_bytes).use()

    # ------------------------------------------------------------------------------------------------- seeing

    def stats(self) -> CacheStats:
        """Counters and contents."""
        with self._lock:
            s = self._stats
            return CacheStats(**{n: getattr(s, n) for n in s.__slots__}, entries=len(self._held))

    @overload
    def explain(self) -> str: ...
    @overload
    def explain(
        self, program: Jaxpr | Carrier, options: CompileOptions = DEFAULT, device: Device | None = None
    ) -> Explanation: ...
    def explain(
        self, program: Jaxpr | Carrier | None = None, options: CompileOptions = DEFAULT, device: Device | None = None
    ) -> str | Explanation:
        """Why a program would be compiled: what is held that is nearest to it, and their first difference. Of one that
        runs as units, why the largest unit would be that is not held.

        Without a program: what is held and what it cost, one line an executable, the most expensive first; what was
        exported is among them, and has no equations that another program could be near to.

        Raises: ArgumentError for what is no program.
        Cost:   linear in the equations that are held, once; then in the distinct ones.
        """
        with self._lock:
            held = [(slot, entry) for slot, (_, entry) in self._held.items()]
        if program is None:
            return "\n".join([_line(slot, entry) for slot, entry in sorted(held, key=lambda row: -row[1].seconds)])
        key = options, device or default_device()
        programs = [(source, k) for (source, k), _ in reversed(held)]
        return with_units(program_of(program), key, programs)


@final
class _Counts:
    """The counters of a cache, changed under its lock."""

    __slots__ = (
        "bytes", "compilations", "disk_hits", "disk_writes", "evictions", "hits", "misses", "seconds", "seconds_saved",
    )  # fmt: skip

    def __init__(self) -> None:
        self.hits = self.misses = self.compilations = self.evictions = self.bytes = 0
        self.disk_hits = self.disk_writes = 0
        self.seconds = self.seconds_saved = 0.0


def _budget(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParameterError(f"cache: {name} must be a number of bytes, got {value!r}", remedy="give an int >= 0")
    return value


def _line(slot: _Slot, entry: _Entry) -> str:
    source, (options, device) = slot
    how = "" if options == DEFAULT else f" with {options}"
    return f"{1e3 * entry.seconds:9.1f} ms {entry.hits:6d} hits {entry.bytes:10d} bytes  {device}  {source!r}{how}"


cache: Final = Cache(dir=Other.ENVIRONMENT)
_in_force: Final[ContextVar[Cache]] = ContextVar("fxad_cache", default=cache)


def cache_in_force() -> Cache:
    """The cache of this context: the process's own, unless a `with` block put another in its place."""
    return _in_force.get()


def compile_jaxpr(jaxpr: Jaxpr, options: CompileOptions = DEFAULT, device: Device | None = None) -> LoadedProgram:
    """The executable of a program, from the cache in force. Raises: CompileError.

    What compiles in threads of its own must run this in a copy of the caller's context.
    """
    return _in_force.get()(jaxpr, device or default_device(), options)
