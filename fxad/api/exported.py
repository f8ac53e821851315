"""`load_exported`: programs that run without having been traced here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from fxad import runtime
from fxad.errors import ArgumentError, ParameterError, described
from fxad.execution.executable import Executable, lower
from fxad.ir import Aval, Primitive
from fxad.runtime import MemoryStats
from fxad.storage.decoding import decoded
from fxad.storage.exported import ALIASES, KIND, VERSION
from fxad.storage.sections import broken, unpacked
from fxad.text import PRIMITIVES
from fxad.xla.executable import CompileOptions


@final
class Exported:
    """A program that was exported, ready to run. It takes what the program took, and gives what it gave.

    `digest` is that of the program, `platforms` those it may run on.
    """

    __slots__ = ("_run", "digest", "name", "platforms")

    def __init__(self, run: Executable[..., Any], platforms: tuple[str, ...]) -> None:
        self._run = run
        self.name, self.digest = run.program.name, run.program.jaxpr.digest
        self.platforms = platforms

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the argument leaves."""
        return self._run.in_avals

    def memory(self) -> MemoryStats:
        """Bytes of arguments, results and temporaries, as XLA planned them."""
        return self._run.memory()

    def __repr__(self) -> str:
        return f"<Exported {self.name}>"


_WHAT: Final = "load_exported: the program"


def load_exported(
    data: bytes, *, trusted: bool = False, primitives: Mapping[str, type[Primitive]] = PRIMITIVES
) -> Exported:
    """What `export` wrote, for the default device: nothing is traced, and what the cache has, in memory or on disk, is not
    lowered or compiled.

    The bytes may come from anybody: the program in them is parsed and typechecked, and may compute what it likes and no
    more. Classes of the trees are looked up among the modules that are imported; with `trusted`, their modules are
    imported, which runs them. `primitives` are those that the program may use, for primitives of one's own.

    Raises: FileFormatError for bytes that are damaged, of a newer version, or not what they should be, whoever wrote
            them; ParameterError when the program is not for the platform in force; CompileError.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ArgumentError(f"load_exported: {described(data)} is not bytes", remedy="read the file in binary mode")
    _, sections = unpacked(_WHAT, bytes(data), KIND, VERSION)
    program, head = decoded(_WHAT, sections, trusted, primitives)
    platforms, donate = head.get("platforms"), head.get("donate")
    at, first, n = sections[0].start, len(program.bound), len(program.jaxpr.ins)
    if not isinstance(platforms, list) or not all([isinstance(p, str) for p in platforms]):
        broken(_WHAT, at, f"section program: platforms is {platforms!r:.60}")
    if not isinstance(donate, list) or not all([type(k) is int and first <= k < n for k in donate]):
        broken(_WHAT, at, f"section program: donate is {donate!r:.60}, the operands are {first} to {n - 1}")
    device = runtime.default_device()
    if ALIASES.get(device.platform, device.platform) not in platforms:
        raise ParameterError(
            f"load_exported: {program.name} was exported for {', '.join(platforms)[:120]}, the platform in force is"
            f" {device.platform}",
            remedy="export it with platforms=..., or set FXAD_PLATFORM",
        )
    operands = CompileOptions(donate=tuple(sorted(set(donate))))
    return Exported(lower(program, units="none").compile(operands), tuple(platforms))
