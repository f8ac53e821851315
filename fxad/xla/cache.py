"""The compile cache: keyed by the value of the program, the options and the device.

The cache holds the most recently used executables, up to a budget of bytes. So a function that is traced again
(`grad(f)(x)` in a loop, a new lambda) finds its executable. Other executables are collected with their last reference.
A directory may store executables beyond the end of the process (docs/adr/0025).

Each context has an active cache: the process's own, or one made by the user (`with fx.cache.private()`).
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from enum import Enum, IntFlag
from functools import partial
from os import PathLike
from threading import get_ident
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar, final, overload
from weakref import ref

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.core.lru import LRUCache
from fxad.core.single_flight import FLIGHTS
from fxad.core.weak import CLEANUP, RefWithCleanup, WeakKeyTable
from fxad.errors import ArgumentError, CacheError, CacheWarning, ParameterError, shown, warn
from fxad.ir import Jaxpr
from fxad.support.constants import PLANNED_EQUATION_BYTES
from fxad.xla.client import Device, default_device, require_device
from fxad.xla.disk_tier import DiskTier
from fxad.xla.executable import CachedExecutable, XlaExecutable, compile_uncached, footprint
from fxad.xla.explanation import (
    CacheKey,
    CompileTarget,
    Explanation,
    HasJaxpr,
    explain_miss,
    explain_miss_of_units,
    to_jaxpr,
)
from fxad.xla.interpreter_exit import begin_compilation
from fxad.xla.options import DEFAULT_OPTIONS, CompileOptions, check_options

K = TypeVar("K")
V = TypeVar("V")

FilePath: TypeAlias = str | PathLike[str]

MEMORY: Final = 256 * 2**20
DISK: Final = 2**30
_VARIABLE: Final = "FXAD_CACHE_DIR"

# Logs each compilation and its time at INFO; users configure it by `logging.getLogger("fxad")`.
_log: Final = logging.getLogger("fxad")


@final
class SpecialDirectory(Enum):
    """Directories without a path: the current one (SAME), and that of the environment variable FXAD_CACHE_DIR."""

    SAME = 0
    ENVIRONMENT = 1


@final
@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters of a cache since it was made or cleared; `entries`, `bytes` and `calls` are its present contents.
    `calls` are the programs and executables that jitted functions have for the types of their arguments.

    A hit found an executable in memory; a miss found it on disk (`disk_hits`) or compiled it (`compilations`).
    """

    hits: int = 0
    misses: int = 0
    compilations: int = 0
    seconds: float = 0.0  # spent lowering and compiling, over all threads
    seconds_saved: float = 0.0  # the compile time that hits avoided
    entries: int = 0
    bytes: int = 0
    calls: int = 0
    evictions: int = 0
    disk_hits: int = 0
    disk_writes: int = 0


class HeldCall(Protocol):
    """A *call*: a program or an executable that a jitted function has for arguments of some types.

    A jitted function refers to its calls, and a call to its executables. The cache refers to executables, and weakly to
    calls. So an executable lives while a call has it, and an executable that the cache alone drops frees no memory:
    before it drops one, and when there are too many calls, the cache requests the calls to be released.

    Calls are dropped by second chance (CLOCK), because a list in order of use would cost time at each use. A use sets
    the reference bits of the call, one for each `ReleaseReason`. A request does the first of these that applies:

        the bit of its reason is set       it clears this bit; the call is kept
        the fast path runs the call        it takes the call from the fast path, whose uses set no bits, and sets the
                                           other bits; the call is kept
        neither                            it drops the call

    For example, executables of f and g are held, and one of h does not fit beside them. f is on the fast path, and the
    bits of f and g are set. If nobody calls f or g meanwhile, the requests are:

        round 1     f: its bit is cleared           g: its bit is cleared
        round 2     f: it leaves the fast path      g: it is dropped, and its executable with it
        round 3     f: it is dropped, if h still does not fit

    `xla.cache` makes the requests (`_drop_oldest`), `api.jit_calls` sets the bits and answers (`_Held`).
    """

    def release(self, reason: ReleaseReason) -> bool:
        """Answer a request, as above. Return True if the call is dropped."""


class ReleaseReason(IntFlag):
    """Why a call is to be released: an executable of it is, or there are too many calls.

    Each reason has its own hand of the clock, which goes round its own list, and its own bit in a call: a request for
    one must not take the chance that the other gives.
    """

    EXECUTABLES = 1
    CALLS = 2


@final
class _CacheEntry:
    """The entry of one executable. `calls` are those of jitted functions that hold the executable."""

    __slots__ = ("__weakref__", "_reference", "bytes", "calls", "hits", "seconds")

    def __init__(self) -> None:
        self.calls: WeakKeyTable[HeldCall, None] = WeakKeyTable()
        self._reference: ref[XlaExecutable] | None = None
        self.hits = 0
        self.seconds = 0.0  # of lowering and compiling
        self.bytes = 0

    def executable(self) -> XlaExecutable | None:
        """Return the executable, if it is alive."""
        return None if self._reference is None else self._reference()

    def release(self) -> bool:
        """Drop the calls of jitted functions that hold the executable, but those in use. True if all are dropped."""
        return all([call.release(ReleaseReason.EXECUTABLES) for call in self.calls.living_keys()])

    def fill(self, cached: CachedExecutable) -> None:
        """Set the executable, which the entry does not keep alive, and its costs."""
        self.seconds, self.bytes, self._reference = cached.seconds, cached.bytes, ref(cached.executable)


@final
class _Counts:
    """The counters of a cache for one thread."""

    __slots__ = (
        "compilations", "disk_hits", "disk_writes", "evictions", "hits", "misses", "seconds", "seconds_saved",
    )  # fmt: skip

    def __init__(self) -> None:
        self.hits = self.misses = self.compilations = self.evictions = 0
        self.disk_hits = self.disk_writes = 0
        self.seconds = self.seconds_saved = 0.0


@final
class _Contents:
    """The contents and counters of a cache. Thread-safe without a lock: each change is one operation in C. After an
    asynchronous exception between two changes, an executable is found or is compiled again."""

    __slots__ = ("_counts", "calls", "compiled_at", "entries", "entry_of", "held", "planned")

    def __init__(self) -> None:
        self.entries: WeakKeyTable[Jaxpr, dict[CompileTarget, _CacheEntry]] = WeakKeyTable()
        self.held: OrderedDict[_CacheEntry, tuple[CacheKey, XlaExecutable]] = OrderedDict()  # in order of use
        self.planned: OrderedDict[Jaxpr, None] = OrderedDict()
        self.entry_of: WeakKeyTable[XlaExecutable, _CacheEntry] = WeakKeyTable()
        # Calls of jitted functions by their numbers, and their bytes beside those of executables.
        self.calls: OrderedDict[int, tuple[RefWithCleanup[HeldCall], int]] = OrderedDict()
        # How many programs jitted functions have compiled for calls at a line of the user.
        self.compiled_at: LRUCache[str, int] = LRUCache(1024)
        self._counts: dict[int, _Counts] = {}

    def entry(self, key: CacheKey) -> _CacheEntry:
        """Return the entry of an executable, made if it does not exist."""
        jaxpr, target = key
        entries = self.entries.get(jaxpr)
        if entries is None:
            entries = self.entries.setdefault(jaxpr, {})
        return entries.get(target) or entries.setdefault(target, _CacheEntry())

    def counts(self) -> _Counts:
        """Return the counters of this thread."""
        me = get_ident()
        return self._counts.get(me) or self._counts.setdefault(me, _Counts())

    def counted(self, name: str) -> Any:
        """Return a counter, summed over all threads."""
        return sum([getattr(c, name) for c in self._counts.copy().values()])

    def keys(self) -> list[tuple[CacheKey, _CacheEntry]]:
        """Return the held entries, most recently used last."""
        return [(key, entry) for entry, (key, _) in self.held.copy().items()]

    def bytes(self) -> int:
        """Return the bytes of the held executables."""
        return sum([entry.bytes for entry in self.held.copy()])

    def hold_call(self, call: HeldCall, size: int, executables: Sequence[XlaExecutable], max_bytes: int) -> None:
        """Hold a call of a jitted function, up to `max_bytes` for all. The call holds the executables."""
        for executable in executables:
            entry = self.entry_of.get(executable)
            if entry is not None:
                entry.calls.setdefault(call, None)
        newest, number = RefWithCleanup(call, CLEANUP), id(call)
        newest.cleanup = partial(self.calls.pop, number, None)
        self.calls[number] = newest, size

        def try_drop(_: int, item: tuple[RefWithCleanup[HeldCall], int]) -> int | None:
            oldest = item[0]()
            if oldest is call or (oldest is not None and not oldest.release(ReleaseReason.CALLS)):
                return None
            return item[1]

        _drop_oldest(self.calls, self.call_bytes() - max_bytes, try_drop, rounds=2)

    def call_bytes(self) -> int:
        """Return the bytes of the calls of jitted functions, beside those of executables."""
        return sum([size for _, size in self.calls.copy().values()])

    def hold(self, key: CacheKey, entry: _CacheEntry, executable: XlaExecutable, max_bytes: int) -> None:
        """Hold an executable as the most recently used one."""
        item = self.held.get(entry)
        if item is None or item[1] is not executable:
            self.held[entry] = key, executable
            self.evict(max_bytes, entry)
        with suppress(KeyError):  # evicted
            self.held.move_to_end(entry)

    def evict(self, max_bytes: int, newest: _CacheEntry | None = None) -> None:
        """Drop the least recently used executables until the rest fits into `max_bytes`. A call of a jitted function
        uses its executables, and is dropped with them. The newest one is dropped last."""

        def try_drop(entry: _CacheEntry, _: object) -> int | None:
            others_are_held = bool(self.held)  # `_drop_oldest` has taken this entry out
            if (entry is newest and others_are_held) or not entry.release():
                return None
            self.counts().evictions += 1
            return entry.bytes

        _drop_oldest(self.held, self.bytes() - max_bytes, try_drop, rounds=3)


def _drop_oldest(held: OrderedDict[K, V], excess: int, try_drop: Callable[[K, V], int | None], rounds: int) -> None:
    """Drop items, the oldest first, until at least `excess` bytes are free, in at most so many rounds through all of
    them. `try_drop` returns the bytes of a dropped item, or None for one that is kept, and becomes the newest. Other
    threads may change `held` meanwhile.

    The example of `HeldCall` has the rounds. Executables get three, because their bytes must fit; calls get two, so one
    that leaves the fast path is kept.
    """
    for _ in range(rounds * len(held)):
        if excess <= 0:
            return
        try:
            key, item = held.popitem(last=False)
        except KeyError:
            return
        freed = try_drop(key, item)
        if freed is None:
            held[key] = item
        else:
            excess -= freed


@final
class _Settings:
    """The directory and the budgets of a cache. Immutable: `configure` replaces the object."""

    __slots__ = ("_dir", "_from_environment", "_tier", "disk_bytes", "max_bytes")

    def __init__(self, max_bytes: int, dir: FilePath | None | SpecialDirectory, disk_bytes: int) -> None:
        self.max_bytes, self.disk_bytes = _budget("max_bytes", max_bytes), _budget("disk_bytes", disk_bytes)
        self._dir = dir
        self._tier = None if dir is None or isinstance(dir, SpecialDirectory) else DiskTier(dir, self.disk_bytes)
        # By the name of the environment variable, the directory that it names, once it is read. In a dictionary, whose
        # `setdefault` is atomic: all threads have the directory of the first one.
        self._from_environment: dict[str, tuple[FilePath | None, DiskTier | None]] = {}

    @property
    def dir(self) -> FilePath | None | SpecialDirectory:
        """The directory."""
        return self._from_environment[_VARIABLE][0] if _VARIABLE in self._from_environment else self._dir

    def disk(self) -> DiskTier | None:
        """Return the disk tier. The environment variable is read at first use. An unusable directory there is a
        warning."""
        if self._dir is not SpecialDirectory.ENVIRONMENT:
            return self._tier
        if _VARIABLE not in self._from_environment:
            named, problem = os.environ.get(_VARIABLE) or None, ""
            try:
                opened = named, None if named is None else DiskTier(named, self.disk_bytes)
            except CacheError as e:
                opened, problem = (None, None), f"{e.message} ({_VARIABLE}); nothing is stored. {e.remedy}"
            if self._from_environment.setdefault(_VARIABLE, opened) is opened and problem:
                warn(problem, CacheWarning)
        return self._from_environment[_VARIABLE][1]


@final
class Cache:
    """One executable per program, options and device, shared by all threads.

    The cache holds the most recently used executables with their programs, up to `max_bytes`; they refer to no arrays
    (docs/adr/0003). It finds other executables while a reference to them exists elsewhere. It also holds the most
    recently used programs that run as several executables, up to a quarter of `max_bytes`, so that a new trace finds
    their plan (docs/adr/0029). A jitted function has its executables among those held here, and that of its last call.
    Its own data for types of arguments are held up to another quarter of `max_bytes`. `clear()` drops everything. With
    `dir`, executables are also stored on disk, up to `disk_bytes`, and found by later processes.

    Law:    `cache(f, o, d) is cache(f, o, d)` while a reference to the result exists; concurrent calls compile once.
    Raises: ParameterError for a budget that is no number of bytes; CacheError for a directory that is not the user's
            own, or that others can write to.
    """

    __slots__ = ("_contents", "_settings")

    def __init__(
        self, max_bytes: int = MEMORY, dir: FilePath | None | SpecialDirectory = None, disk_bytes: int = DISK
    ) -> None:
        self._settings = _Settings(max_bytes, dir, disk_bytes)
        self._contents = _Contents()

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(
            "pickle: a Cache belongs to its process",
            remedy="make one there: fx.Cache(dir=...) finds what the directory contains",
        )

    def clear(self, *, disk: bool = False) -> None:
        """Drop every executable and reset the counters; `disk` also removes stored ones. Executables stay alive while
        referred to by jitted functions, `Executable`s, or the 4,096 most recent operations outside traces."""
        self._contents = _Contents()
        tier = self._settings.disk() if disk else None
        if tier is not None:
            tier.directory.clear()

    def configure(
        self,
        *,
        dir: FilePath | None | SpecialDirectory = SpecialDirectory.SAME,
        max_bytes: int | None = None,
        disk_bytes: int | None = None,
    ) -> None:
        """Change the directory and the budgets. Omitted settings keep their values; `dir=None` means no directory.

        Raises: ParameterError, CacheError; then nothing has changed.
        """
        now = self._settings
        self._settings = _Settings(
            now.max_bytes if max_bytes is None else max_bytes,
            now.dir if dir is SpecialDirectory.SAME else dir,
            now.disk_bytes if disk_bytes is None else disk_bytes,
        )
        self._contents.evict(self._settings.max_bytes)

    # ------------------------------------------------------------------------------------------------- finding

    def __call__(self, jaxpr: Jaxpr, device: Device, options: CompileOptions = DEFAULT_OPTIONS) -> XlaExecutable:
        """Return the executable of a program, traced or exported. Raises: CompileError; errors are not cached."""
        key = jaxpr, (options, device)
        entry = self._contents.entry(key)
        return FLIGHTS.do(entry, partial(self._hit, key, entry), partial(self._make, key, entry))

    def _hit(self, key: CacheKey, entry: _CacheEntry) -> XlaExecutable | None:
        executable = entry.executable()
        if executable is not None:
            contents = self._contents
            entry.hits += 1
            counts = contents.counts()
            counts.hits += 1
            counts.seconds_saved += entry.seconds
            contents.hold(key, entry, executable, self._settings.max_bytes)
        return executable

    def _make(self, key: CacheKey, entry: _CacheEntry) -> XlaExecutable:
        jaxpr, (options, device) = key
        begin_compilation(f"compile of {jaxpr.name}", device)
        tier = self._settings.disk()
        cached = None if tier is None else tier.find(jaxpr, device, options)
        from_disk, written = cached is not None, False
        if cached is None:
            cached, written = self._compiled(key, tier)
        else:
            _log.info("%s for %s: from the directory, which saved %.1f ms", jaxpr.name, device, 1e3 * cached.seconds)
        entry.fill(cached)
        contents = self._contents
        counts = contents.counts()
        counts.misses += 1
        counts.disk_writes += written
        if from_disk:
            counts.disk_hits += 1
            counts.seconds_saved += cached.seconds
        else:
            counts.compilations += 1
            counts.seconds += cached.seconds
        contents.entries.setdefault(jaxpr, {})[key[1]] = entry  # another thread may have cleared it
        contents.entry_of.setdefault(cached.executable, entry)
        contents.hold(key, entry, cached.executable, self._settings.max_bytes)
        return cached.executable

    def _compiled(self, key: CacheKey, tier: DiskTier | None) -> tuple[CachedExecutable, bool]:
        """Compile a program and store it on disk. Return the executable, and True if it was stored."""
        jaxpr, (options, device) = key
        start = time.perf_counter()
        compilation = compile_uncached(jaxpr, options, device)
        seconds = time.perf_counter() - start
        if _log.isEnabledFor(logging.INFO):
            _log.info(
                "compiled %s for %s in %.1f ms: %s, %s temporary bytes%s%s",
                jaxpr.name,
                device,
                1e3 * seconds,
                f"{len(jaxpr.eqns)} equations",
                f"{compilation.executable.memory().temp_bytes:,}",
                "" if options == DEFAULT_OPTIONS else f", with {options}",
                self._nearest_difference(key),
            )
        written = tier is not None and tier.keep(jaxpr, device, options, compilation, seconds)
        size = footprint(compilation.executable, compilation.characters)
        return CachedExecutable(compilation.executable, seconds, size), written

    def _nearest_difference(self, key: CacheKey) -> str:
        """Return the difference of a program from the most similar held one of the same name, for the log."""
        jaxpr, _ = key
        keys = reversed(self._contents.keys())
        same_name = [(program, target) for (program, target), _ in keys if program.name == jaxpr.name]
        difference = explain_miss(key, same_name).difference
        if difference is None:
            return ""
        where = f"; traced at {difference.where}" if difference.where else ""
        return f"; the nearest of that name differs at {difference}{where}"

    def hold_call(self, call: HeldCall, size: int, executables: Sequence[XlaExecutable] = ()) -> None:
        """Hold what a jitted function has for some types of arguments, `size` bytes beside those of the executables."""
        self._contents.hold_call(call, size, executables, self._settings.max_bytes // 4)

    def compilations(self) -> int:
        """Return how many programs this thread has compiled since the cache was made or cleared."""
        return self._contents.counts().compilations

    def count_compiled_at(self, line: str) -> int:
        """Count a program that a jitted function has compiled for a call at a line of the user. Return the number."""
        counts = self._contents.compiled_at
        number = (counts.get(line) or 0) + 1
        counts.put(line, number)
        return number

    def hold_planned(self, jaxpr: Jaxpr) -> None:
        """Hold a program that runs as several executables, or with passes of its own, as the most recently used one.
        While it is held, a new trace of an equal program finds its memo, which contains the plan."""
        planned, max_bytes = self._contents.planned, self._settings.max_bytes // 4
        planned[jaxpr] = None
        with suppress(KeyError):  # dropped by another thread
            planned.move_to_end(jaxpr)
            while planned and sum([PLANNED_EQUATION_BYTES * len(p.eqns) for p in planned.copy()]) > max_bytes:
                planned.popitem(last=False)

    # ----------------------------------------------------------------------------------------------- the active cache

    @contextmanager
    def use(self) -> Iterator[Cache]:
        """Make this the active cache in this thread or asyncio task, and in tasks started here.

        A new thread begins with the process's cache, unless it runs in a copy of the context
        (`contextvars.copy_context().run`, `asyncio.to_thread`).
        """
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    def private(
        self, max_bytes: int = MEMORY, dir: FilePath | None = None, disk_bytes: int = DISK
    ) -> AbstractContextManager[Cache]:
        """Return a new cache, active in a `with` block: `with fx.cache.private() as mine:`."""
        return Cache(max_bytes, dir, disk_bytes).use()

    # ------------------------------------------------------------------------------------------------- inspecting

    def stats(self) -> CacheStats:
        """Return counters and contents."""
        c = self._contents
        counted = {n: c.counted(n) for n in _Counts.__slots__}
        return CacheStats(**counted, entries=len(c.held), bytes=c.bytes() + c.call_bytes(), calls=len(c.calls))

    def programs_named(self, name: str) -> tuple[Jaxpr, ...]:
        """Return the distinct held programs of a name, the most recently used first."""
        held = [jaxpr for (jaxpr, _), _ in reversed(self._contents.keys())]
        planned = [*reversed(self._contents.planned.copy())]
        return tuple(dict.fromkeys([p for p in (*planned, *held) if p.name == name]))

    @overload
    def explain(self) -> str: ...
    @overload
    def explain(
        self, program: Jaxpr | HasJaxpr, options: CompileOptions = DEFAULT_OPTIONS, device: Device | None = None
    ) -> Explanation: ...
    def explain(
        self,
        program: Jaxpr | HasJaxpr | None = None,
        options: CompileOptions = DEFAULT_OPTIONS,
        device: Device | None = None,
    ) -> str | Explanation:
        """Explain a cache miss: the most similar held program, and the first difference. If the program runs as units,
        explain its largest unit that is not held.

        Without a program: the held executables and their costs, one line each, the most expensive first. Exported
        programs are listed too, but have no equations to compare.

        Raises: ArgumentError if `program` is not a program, `options` are not `CompileOptions`, or `device` is not a
                device.
        Cost:   linear in the equations of the held programs, once; then in the distinct ones.
        """
        check_options("cache.explain", options)
        entries = self._contents.keys()
        if program is None:
            entries.sort(key=lambda row: -row[1].seconds)
            return "\n".join([_entry_text(key, entry) for key, entry in entries])
        target = options, default_device() if device is None else require_device("cache.explain", device)
        programs = [key for key, _ in reversed(entries)]
        return explain_miss_of_units((to_jaxpr(program), target), programs)


def _budget(name: str, value: object) -> int:
    value = int(value) if isinstance(value, np.integer) else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParameterError(f"cache: {name} must be a number of bytes, got {shown(value)}", remedy="give an int >= 0")
    return value


def _entry_text(key: CacheKey, entry: _CacheEntry) -> str:
    jaxpr, (options, device) = key
    how = "" if options == DEFAULT_OPTIONS else f" with {options}"
    return f"{1e3 * entry.seconds:9.1f} ms {entry.hits:6d} hits {entry.bytes:10d} bytes  {device}  {jaxpr!r}{how}"


cache: Final = Cache(dir=SpecialDirectory.ENVIRONMENT)
_active: Final[ContextVar[Cache]] = ContextVar("fxad_cache", default=cache)


def active_cache() -> Cache:
    """Return the active cache: that of the enclosing `with` block, else the process's own."""
    return _active.get()


def compile_jaxpr(
    jaxpr: Jaxpr, options: CompileOptions = DEFAULT_OPTIONS, device: Device | None = None
) -> XlaExecutable:
    """Return the executable of a program, from the active cache. Raises: CompileError.

    Code that compiles in other threads must call this in a copy of the caller's context.
    """
    return _active.get()(jaxpr, device or default_device(), options)
