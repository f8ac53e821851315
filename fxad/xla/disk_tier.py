"""The disk tier of a compile cache: executables that this or an earlier process compiled.

It decides which programs are stored, computes their keys, and serializes executables. `fxad.xla.disk` stores bytes by
key.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any, Final, final

from fxad.core.memo import by_value
from fxad.errors import AxisNameError, CompileError, shown
from fxad.ir import Aval, Jaxpr, all_prims
from fxad.lower import ModuleSharding
from fxad.lowering.jaxlib import _jax, jaxlib_version
from fxad.primitives.check import calls_host
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.primitives.meshes import DimensionAxes, check_divides, check_ids, check_mesh, check_spec
from fxad.support.atomic_file import checksum
from fxad.xla import custom_calls
from fxad.xla.client import Device, devices, process_count, process_index
from fxad.xla.compat import reason
from fxad.xla.disk import Directory, DiskEntry
from fxad.xla.executable import CachedExecutable, Compilation, XlaExecutable, footprint, load
from fxad.xla.options import CompileOptions, options_for
from fxad.xla.sharded import devices_of_module


def serialized(executable: XlaExecutable) -> bytes:
    """Return the executable as bytes; empty if XLA cannot serialize it.

    Cost: 0.2 ms for a small program, 4 ms for one that compiled in a second.
    """
    try:
        return executable.device.client.serialize_executable(executable.raw)
    except _jax.JaxRuntimeError:
        return b""


# ------------------------------------------------------------------------------------------------------------- keys


@by_value
def is_storable(jaxpr: Jaxpr) -> bool:
    """Return True if the digest of a program determines its executable.

    It does not for programs that call the host, because the functions belong to this process; nor for programs with
    primitives from outside fxad, because a change of their lowering cannot be detected.
    """
    kinds = {type(prim) for prim in all_prims(jaxpr)}
    of_fxad = all([kind.__module__.startswith("fxad.") for kind in kinds])
    return of_fxad and not jaxpr.effects and not calls_host(jaxpr)


@final
class CompilerConfiguration:
    """The compiler configuration as text: versions, device and flags. Read from the system once."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], str] = {}

    def of(self, device: Device) -> str:
        """Return the versions, the kind of device, and XLA's flags in the environment."""
        kind = device.platform, device.kind
        text = self._texts.get(kind)
        if text is None:
            text = "\n".join(
                [
                    f"lowering {_digest_of_sources()}",
                    f"jaxlib {jaxlib_version}",
                    f"platform {device.platform}, {device.client.platform_version}",
                    f"device {device.kind}",
                    f"processor {processor() if device.platform == 'cpu' else 'any'}",
                    f"XLA_FLAGS {os.environ.get('XLA_FLAGS', '')}",  # XLA reads it once, like this
                ]
            )
            self._texts[kind] = text
        return text


def lowering_sources() -> list[str]:
    """Return the files of fxad that determine how a program is lowered and compiled: compiled modules if the sources
    are not there, or one archive. `units`, `transforms/costs` and `transforms/fusion` decide which programs XLA
    compiles without fusion."""
    root = os.path.dirname(os.path.dirname(__file__))
    if not os.path.isdir(root):  # in an archive
        while root and not os.path.isfile(root):
            root = os.path.dirname(root).rstrip(os.sep)
        return [root] if root else []
    paths = [os.path.join(root, name) for name in os.listdir(root)]
    transforms = os.path.join(root, "transforms")
    paths += [
        os.path.join(transforms, name) for name in os.listdir(transforms) if name.startswith(("costs.", "fusion."))
    ]
    for folder in ("core", "support", "primitives", "lowering", "units", "xla"):  # pathlib takes 3 ms more
        for directory, folders, names in os.walk(os.path.join(root, folder)):
            folders[:] = [name for name in folders if name != "__pycache__"]
            paths += [os.path.join(directory, name) for name in names]
    return sorted([path for path in paths if path.endswith((".py", ".pyc"))])


def _digest_of_sources() -> str:
    """Return the digest of the sources that determine the lowering. Takes 5 ms.

    A version number that is increased by hand could be forgotten, and then a stale executable would run.
    """
    return checksum(
        [part for path in lowering_sources() for part in (os.path.basename(path).encode(), read(path))]
    ).hex()


def read(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _file_states() -> dict[str, tuple[int, int, int]]:
    """Return for each source, what changes when it is replaced. Takes 1 ms."""
    states = {}
    for path in lowering_sources():
        try:
            s = os.stat(path)
        except OSError:
            continue
        states[path] = s.st_mtime_ns, s.st_size, s.st_ino
    return states


def processor() -> str:
    """Return a digest of the instruction set of this processor: machine code for another one must not run here."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:  # not Linux: `platform.processor()` does not start a process there
        return checksum([f"{platform.machine()} {platform.processor()}".encode()]).hex()
    lines = re.findall(r"^(?:model name|flags|Features|CPU (?:part|variant|implementer))\s*:.*$", text, re.MULTILINE)
    return checksum([f"{platform.machine()} {' '.join(lines)}".encode()]).hex()


def key_of(jaxpr: Jaxpr, options: CompileOptions, configuration: str) -> str:
    """Return the key of an executable on disk: the digest of the program, the options and the compiler
    configuration."""
    return f"program {jaxpr.digest}\noptions {options}\n{configuration}"


# -------------------------------------------------------------------------------------------------- disk entries


def to_disk_entry(compilation: Compilation, payload: bytes, seconds: float) -> DiskEntry | None:
    """Return an executable as an entry; None if it calls functions of this process or cannot be serialized."""
    targets = list(compilation.targets)
    if not payload or not custom_calls.are_portable(targets):
        return None
    header = {"seconds": seconds, "targets": targets, "text": compilation.characters}
    if compilation.sharding is not None:
        header["sharding"] = asdict(compilation.sharding)
    return DiskEntry(header, payload)


def from_disk_entry(
    payload: bytes, targets: list[str], jaxpr: Jaxpr, device: Device, sharding: ModuleSharding | None = None
) -> XlaExecutable:
    """Return the executable of an entry.

    Raises: UnreadableError when XLA refuses it; CompileError for a function that this jaxlib does not have.
    """
    custom_calls.register_targets(targets, device.platform)
    program_devices = devices_of_module(sharding, device, jaxpr.name)
    try:
        raw = device.client.deserialize_executable(
            payload, [d.raw for d in program_devices], options_for(program_devices, sharding)
        )
    except _jax.JaxRuntimeError as e:
        raise UnreadableError(reason(e)) from e
    return load(raw, jaxpr, sharding, program_devices)


class UnreadableError(Exception):
    """XLA cannot deserialize an executable."""


def sharding_of_entry(stored: Any, jaxpr: Jaxpr) -> ModuleSharding | None:
    """Return the sharding of an entry. Raises: KeyError, TypeError, ValueError, AxisNameError for one that does not fit
    the program."""
    if stored is None:
        return None
    meshes = tuple([tuple([(str(name), int(size)) for name, size in mesh]) for mesh in stored["meshes"]])
    count, ids = int(stored["devices"]), tuple([int(k) for k in stored["ids"]])
    for mesh in meshes:
        check_mesh("cache", mesh)
        if prod([size for _, size in mesh]) != count:
            raise ValueError(f"mesh {mesh} has not {count} devices")
        check_ids("cache", mesh, ids)

    def division(entry: Any, aval: Aval) -> tuple[int, DimensionAxes]:
        k, spec = int(entry[0]), tuple([tuple([str(name) for name in group]) for group in entry[1]])
        check_spec("cache", meshes[k], spec, aval)
        check_divides("cache", meshes[k], spec, aval)
        return k, spec

    ins = tuple([division(g, a) for g, a in zip(stored["ins"], jaxpr.in_avals, strict=True)])
    outs = tuple([None if g is None else division(g, a) for g, a in zip(stored["outs"], jaxpr.out_avals, strict=True)])
    return ModuleSharding(count, meshes, ins, outs, ids)


# -------------------------------------------------------------------------------------------------------- the tier


_MAX_FIGURE: Final = 2**40  # of seconds, and of characters
_configuration: Final = CompilerConfiguration()
# The files that this process has imported. While it runs, the package may be upgraded.
_imported: Final = _file_states()


_CHANGED: Final = (
    "cache: the files of fxad have changed since this process imported it; it stores nothing in the directory and reads"
    " nothing from it. Start the process again"
)


@final
class DiskTier:
    """Executables in a directory, keyed by the digest of their program and the compiler configuration."""

    __slots__ = ("directory",)

    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        self.directory = Directory(path, max_bytes)

    def find(self, jaxpr: Jaxpr, device: Device, options: CompileOptions) -> CachedExecutable | None:
        """Return the executable of a program, if its entry exists and is valid. Does not lower or compile."""
        key = self._key(jaxpr, device, options)
        entry = None if key is None else self.directory.read(key)
        if entry is None:
            return None
        try:
            header = entry.header
            targets, seconds, text = header["targets"], header["seconds"], header["text"]
            if not isinstance(targets, list) or not all([isinstance(t, str) for t in targets]):
                raise ValueError(f"targets is {shown(targets)}")
            if type(seconds) not in (int, float) or not 0 <= seconds < _MAX_FIGURE:
                raise ValueError(f"seconds is {shown(seconds)}")
            if type(text) is not int or not 0 <= text < _MAX_FIGURE:
                raise ValueError(f"text is {shown(text)}")
            sharding = sharding_of_entry(header.get("sharding"), jaxpr)
            executable = from_disk_entry(entry.payload, targets, jaxpr, device, sharding)
            return CachedExecutable(executable, float(seconds), footprint(executable, text))
        except (UnreadableError, CompileError, LookupError, TypeError, ValueError, OverflowError, AxisNameError) as e:
            path = self.directory.file(key or "")
            self.directory.warn_once("refused", f"cache: {path} is refused: {e}; it is compiled again")
            return None

    def keep(
        self,
        jaxpr: Jaxpr,
        device: Device,
        options: CompileOptions,
        compilation: Compilation,
        seconds: float,
    ) -> bool:
        """Store an executable that took `seconds` to compile. Return True if it was stored."""
        key = self._key(jaxpr, device, options)
        entry = None if key is None else to_disk_entry(compilation, serialized(compilation.executable), seconds)
        return key is not None and entry is not None and self.directory.write(key, entry)

    def _key(self, jaxpr: Jaxpr, device: Device, options: CompileOptions) -> str | None:
        if not is_storable(jaxpr):
            return None
        configuration = self._configuration(device)
        if configuration is None:
            self.directory.warn_once("sources", _CHANGED)
            return None
        if runs_on_devices(jaxpr):
            count = len(devices(device.platform))
            configuration += f"\ndevices {count}, process {process_index()} of {process_count()}"
        return key_of(jaxpr, options, configuration)

    def _configuration(self, device: Device) -> str | None:
        """Return the compiler configuration; None if the files of fxad are not those that this process has imported: it
        must not store executables under the digest of other sources. Takes 1 ms."""
        try:
            configuration = _configuration.of(device)
            return configuration if _file_states() == _imported else None
        except OSError:  # the files are being replaced
            return None
