"""Serialization of compiled programs: size estimate, eligibility for storage, key, and deserialization."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final, final

from fxad.core.atomic_file import checksum
from fxad.core.memo import by_value
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.lowering.jaxlib import _jax, jaxlib_version
from fxad.primitives.check import Check
from fxad.primitives.host_call import HostCall
from fxad.primitives.meshes import OnMesh
from fxad.xla import custom_calls
from fxad.xla.client import Device
from fxad.xla.compat import compile_options, reason
from fxad.xla.disk import Stored
from fxad.xla.executable import CompileOptions, LoadedProgram
from fxad.xla.sources import Compilation, describe_program

# Memory of an executable on the CPU, as measured (jaxlib 0.10.2, resident bytes over 200 small
# and 20 large programs): 80 to 170 kB however small, and 2 to 3 times its serialized bytes.
_LEAST: Final = 64 * 2**10
_FACTOR: Final = 3


def serialized(program: LoadedProgram) -> bytes:
    """The executable as bytes; empty if XLA cannot serialize it.

    Cost: 0.2 ms for a small program, 4 ms for one that compiled in a second.
    """
    try:
        return program.device.client.serialize_executable(program.raw)
    except _jax.JaxRuntimeError:
        return b""


def footprint(program: LoadedProgram, text: int, payload: bytes) -> int:
    """An estimate of the bytes of an executable and its program, whose module has `text` characters.

    XLA reports the size of the generated code, except on the CPU, where it reports 0 or less. There, the estimate is
    the size of the serialized executable times a measured factor.
    """
    code = program.raw.size_of_generated_code_in_bytes()
    return _LEAST + text + (code if code > 0 else _FACTOR * len(payload))


# ------------------------------------------------------------------------------------------------------------- keys


def is_storable(source: Jaxpr) -> bool:
    """Returns True if the digest of a program determines its executable."""
    return _ours(source)


@by_value
def _ours(jaxpr: Jaxpr) -> bool:
    """False for programs with calls of the host, which belong to this process, and for programs with primitives from
    outside fxad, since a change of their lowering cannot be detected."""
    kinds = {type(eqn.prim) for body in distinct_jaxprs(jaxpr) for eqn in body.eqns}
    ours = all([kind.__module__.startswith("fxad.") for kind in kinds])
    of_process = any([issubclass(kind, (HostCall, Check, OnMesh)) for kind in kinds])
    return ours and not jaxpr.effects and not of_process


@final
class CompilerConfiguration:
    """The compiler configuration as text: versions, device and flags. Read from the system once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def of(self, device: Device) -> str:
        """The versions, the kind of device, and XLA's flags in the environment."""
        kind = device.platform, device.kind
        text = self._known.get(kind)
        if text is None:
            text = "\n".join(
                [
                    f"lowering {_lowering()}",
                    f"jaxlib {jaxlib_version}",
                    f"platform {device.platform}, {device.client.platform_version}",
                    f"device {device.kind}",
                    f"processor {processor() if device.platform == 'cpu' else 'any'}",
                    f"XLA_FLAGS {os.environ.get('XLA_FLAGS', '')}",  # XLA reads it once, like this
                ]
            )
            self._known[kind] = text
        return text


def lowering_sources() -> list[Path]:
    """The source files of fxad that determine how a program is lowered and compiled."""
    root = Path(__file__).parent.parent
    folders = [root / name for name in ("core", "primitives", "lowering", "xla")]
    return sorted([*root.glob("*.py"), *[path for folder in folders for path in folder.rglob("*.py")]])


def _lowering() -> str:
    """The digest of the sources that determine the lowering. Takes 2 ms.

    A version number that is increased by hand could be forgotten, and then a stale executable would run.
    """
    return checksum([part for path in lowering_sources() for part in (path.name.encode(), path.read_bytes())]).hex()


def processor() -> str:
    """A digest of the instruction set of this processor: machine code for another one must not run here."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:  # not Linux: `platform.processor()` does not start a process there
        return checksum([f"{platform.machine()} {platform.processor()}".encode()]).hex()
    lines = re.findall(r"^(?:model name|flags|Features|CPU (?:part|variant|implementer))\s*:.*$", text, re.MULTILINE)
    return checksum([f"{platform.machine()} {' '.join(lines)}".encode()]).hex()


def key_of(source: Jaxpr, options: CompileOptions, surroundings: str) -> str:
    """The key of an executable on disk: the digest of the program, the options and the compiler configuration."""
    return f"program {source.digest}\noptions {options}\n{surroundings}"


# -------------------------------------------------------------------------------------------------- disk entries


def to_disk_entry(compilation: Compilation, payload: bytes, seconds: float) -> Stored | None:
    """An executable as an entry; None if it calls functions of this process or cannot be serialized."""
    targets = list(compilation.targets)
    if not payload or not custom_calls.are_portable(targets):
        return None
    return Stored({"seconds": seconds, "targets": targets, "text": compilation.text}, payload)


def from_disk_entry(payload: bytes, targets: list[str], source: Jaxpr, device: Device) -> LoadedProgram:
    """The executable of an entry.

    Raises: UnreadableError when XLA refuses it; CompileError for a function that this jaxlib does not have.
    """
    custom_calls.register_targets(targets, device.platform)
    try:
        raw = device.client.deserialize_executable(payload, device.raw_list, compile_options(device.id))
    except _jax.JaxRuntimeError as e:
        raise UnreadableError(reason(e)) from e
    return LoadedProgram(raw, describe_program(source), device)


class UnreadableError(Exception):
    """XLA cannot deserialize an executable."""
