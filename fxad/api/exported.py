"""`load_exported`: runs exported programs without tracing."""

from __future__ import annotations

from typing import Any, Final, NoReturn, Self, final

from fxad import runtime
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.execution.executable import Executable, lower
from fxad.ir import Aval
from fxad.runtime import CompileOptions, MemoryStats
from fxad.storage.decoding import decode
from fxad.storage.exported import KIND, VERSION
from fxad.storage.file_format import raise_damaged, unpack
from fxad.text import OwnPrimitives, vocabulary


@final
class Exported:
    """An exported program, ready to run. It has the arguments and results of the original program.

    `digest` is the digest of the program; `platforms` are the platforms that it may run on.
    """

    __slots__ = ("_run", "digest", "name", "platforms")

    def __init__(self, run: Executable[..., object], platforms: tuple[str, ...]) -> None:
        self._run = run
        self.name, self.digest = run.program.name, run.program.jaxpr.digest
        self.platforms = platforms

    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        return self._run(*args, **kwargs)

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the argument leaves."""
        return self._run.in_avals

    def memory(self) -> MemoryStats:
        """Return bytes of arguments, results and temporaries, as XLA planned them."""
        return self._run.memory()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(
            f"pickle: {self!r} is compiled for the devices of this process",
            remedy="hand over the bytes that it was loaded from, and call load_exported on them there",
        )

    def __repr__(self) -> str:
        return f"<Exported {self.name}>"


_WHAT: Final = "load_exported: the program"


def load_exported(data: bytes, *, trusted: bool = False, primitives: OwnPrimitives = ()) -> Exported:
    """Load the bytes that `export` wrote, for the default device. Nothing is traced, and nothing is lowered or compiled
    if the cache has the executable, in memory or on disk.

    The bytes may be untrusted: the program is parsed and typechecked, and can only compute. Classes of pytrees are
    looked up among imported modules. With `trusted`, their modules are imported, which runs their code. `primitives`
    are classes of primitives from outside fxad that the program may use, too.

    Raises: FileFormatError for bytes that are damaged, of a newer version or malformed, whatever their origin;
            ParameterError when the program is not for the default platform; CompileError.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ArgumentError(f"load_exported: {described(data)} is not bytes", remedy="read the file in binary mode")
    _, sections = unpack(_WHAT, bytes(data), KIND, VERSION)
    program, head = decode(_WHAT, sections, trusted, vocabulary("load_exported", primitives))
    platforms, donate = head.get("platforms"), head.get("donate")
    at, first, n = sections[0].start, len(program.bound), len(program.jaxpr.ins)
    if not isinstance(platforms, list) or not all([isinstance(p, str) for p in platforms]):
        raise_damaged(_WHAT, at, f"section program: platforms is {shown(platforms)}")
    if not isinstance(donate, list) or not all([type(k) is int and first <= k < n for k in donate]):
        raise_damaged(_WHAT, at, f"section program: donate is {shown(donate)}, the operands are {first} to {n - 1}")
    device = runtime.default_device()
    if device.platform not in platforms:
        raise ParameterError(
            f"load_exported: {program.name} was exported for {', '.join(platforms)[:120]}, the default platform is"
            f" {device.platform}",
            remedy="export it with platforms=..., or set FXAD_PLATFORM",
        )
    operands = CompileOptions(donate=tuple(sorted(set(donate))))
    return Exported(lower(program, units="none").compile(operands), tuple(platforms))
