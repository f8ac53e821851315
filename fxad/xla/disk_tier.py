"""The disk tier of a compile cache: executables that this or an earlier process compiled."""

from __future__ import annotations

import os
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.errors import CompileError
from fxad.ir import Jaxpr
from fxad.xla.client import Device
from fxad.xla.disk import Directory
from fxad.xla.executable import CompileOptions, LoadedProgram
from fxad.xla.serialized import (
    CompilerConfiguration,
    UnreadableError,
    footprint,
    from_disk_entry,
    is_storable,
    key_of,
    to_disk_entry,
)
from fxad.xla.sources import Compilation


@final
@dataclass(frozen=True, slots=True)
class CachedExecutable:
    """An executable, the seconds of its original compilation, and its bytes."""

    program: LoadedProgram
    seconds: float
    bytes: int


_LARGEST: Final = 2**40  # of seconds, and of characters
_surroundings: Final = CompilerConfiguration()


@final
class DiskTier:
    """Executables in a directory, keyed by the digest of their program and the compiler configuration."""

    __slots__ = ("directory",)

    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        self.directory = Directory(path, max_bytes)

    def find(self, source: Jaxpr, device: Device, options: CompileOptions) -> CachedExecutable | None:
        """The executable of a program, if its entry exists and is valid. Does not lower or compile."""
        key = self._key(source, device, options)
        entry = None if key is None else self.directory.read(key)
        if entry is None:
            return None
        try:
            facts = entry.facts
            targets, seconds, text = facts["targets"], facts["seconds"], facts["text"]
            if not isinstance(targets, list) or not all([isinstance(t, str) for t in targets]):
                raise ValueError(f"targets is {targets!r:.60}")
            if type(seconds) not in (int, float) or not 0 <= seconds < _LARGEST:
                raise ValueError(f"seconds is {seconds!r:.60}")
            if type(text) is not int or not 0 <= text < _LARGEST:
                raise ValueError(f"text is {text!r:.60}")
            program = from_disk_entry(entry.payload, targets, source, device)
            return CachedExecutable(program, float(seconds), footprint(program, text, entry.payload))
        except (UnreadableError, CompileError, KeyError, TypeError, ValueError, OverflowError) as e:
            path = self.directory.file(key or "")
            self.directory.tell("refused", f"cache: {path} is refused: {e}; it is compiled again")
            return None

    def keep(
        self,
        source: Jaxpr,
        device: Device,
        options: CompileOptions,
        compilation: Compilation,
        payload: bytes,
        took: float,
    ) -> bool:
        """Store an executable that took `took` seconds to compile. Returns True if it was stored."""
        key = self._key(source, device, options)
        entry = to_disk_entry(compilation, payload, took)
        return key is not None and entry is not None and self.directory.write(key, entry)

    def _key(self, source: Jaxpr, device: Device, options: CompileOptions) -> str | None:
        return key_of(source, options, _surroundings.of(device)) if is_storable(source) else None
