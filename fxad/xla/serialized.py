"""A compiled program as bytes: what it weighs, when it may be stored, what it is stored under, and back."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final, final

from fxad.durable import checksum
from fxad.ir import Aval, Jaxpr, distinct
from fxad.lower import LoweredModule, first_line
from fxad.lowering.door import _jax, jaxlib_version
from fxad.memo import by_value
from fxad.primitives.checking import Check
from fxad.primitives.host import HostCall
from fxad.records import dataclass
from fxad.xla import custom_calls
from fxad.xla.client import Device
from fxad.xla.compat import compile_options, reason
from fxad.xla.disk import Stored
from fxad.xla.executable import CompileOptions, LoadedProgram

# What an executable on the CPU takes of the process's memory, measured (jaxlib 0.10.2, resident bytes over 200 small
# and 20 large programs): 80 to 170 kB however small, and 2 to 3 times its serialized bytes.
_LEAST: Final = 64 * 2**10
_FACTOR: Final = 3


def serialized(program: LoadedProgram) -> bytes:
    """The executable as bytes; none where XLA cannot write it.

    Cost: 0.2 ms for a small program, 4 ms for one that compiled in a second.
    """
    try:
        return program.device.client.serialize_executable(program.raw)
    except _jax.JaxRuntimeError:
        return b""


def footprint(program: LoadedProgram, text: int, payload: bytes) -> int:
    """An estimate of the bytes that an executable and its program, of so many characters, hold.

    XLA says how much code it generated, except on the CPU, where it says 0 or less: there it is what the executable
    takes when written out, times what was measured.
    """
    code = program.raw.size_of_generated_code_in_bytes()
    return _LEAST + text + (code if code > 0 else _FACTOR * len(payload))


# ------------------------------------------------------------------------------------------------------------- keys


@by_value
def storable(jaxpr: Jaxpr) -> bool:
    """Whether the digest of a program says what it compiles to: not with calls of the host, which belong to this
    process, nor with primitives from outside fxad, for nothing tells when their lowering changes."""
    kinds = {type(eqn.prim) for body in distinct(jaxpr) for eqn in body.eqns}
    ours = all([kind.__module__.startswith("fxad.") for kind in kinds])
    return ours and not jaxpr.effects and kinds.isdisjoint((HostCall, Check))


@final
class Surroundings:
    """What compiles a program, as text, beside the program and its options. Read from the system once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def of(self, device: Device) -> str:
        """The versions, the kind of device, and what XLA is told by the environment."""
        kind = device.platform, device.kind
        known = self._known.get(kind)
        if known is None:
            known = "\n".join(
                [
                    f"lowering {_lowering()}",
                    f"jaxlib {jaxlib_version}",
                    f"platform {device.platform}, {device.client.platform_version}",
                    f"device {device.kind}",
                    f"processor {processor() if device.platform == 'cpu' else 'any'}",
                    f"XLA_FLAGS {os.environ.get('XLA_FLAGS', '')}",  # XLA reads it once, like this
                ]
            )
            self._known[kind] = known
        return known


def _lowering() -> str:
    """What is between a program and its module: the text of fxad's own sources, as a digest. 2 ms.

    A number that is raised by hand would be forgotten once, and an executable of a wrong program would be run.
    """
    root = Path(__file__).parent.parent
    rooms = [*root.glob("*.py"), *root.glob("primitives/**/*.py"), *root.glob("lowering/*.py"), *root.glob("xla/*.py")]
    return checksum([part for path in sorted(rooms) for part in (path.name.encode(), path.read_bytes())]).hex()


def processor() -> str:
    """The instructions of this processor, as a digest: machine code for others must not run here."""
    known = " ".join([platform.machine(), platform.processor()])
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:  # not Linux
        return checksum([known.encode()]).hex()
    lines = re.findall(r"^(?:model name|flags|Features|CPU (?:part|variant|implementer))\s*:.*$", text, re.MULTILINE)
    return checksum([f"{known} {' '.join(lines)}".encode()]).hex()


def key_of(jaxpr: Jaxpr, options: CompileOptions, surroundings: str) -> str:
    """The key of an executable on disk: the digest of the program, and what compiled it."""
    return f"program {jaxpr.digest}\noptions {options}\n{surroundings}"


# ------------------------------------------------------------------------------------------------- there and back


def stored(lowered: LoweredModule, payload: bytes, seconds: float) -> Stored | None:
    """An executable as an entry; None where it cannot be one: it calls back into this process."""
    targets = sorted(custom_calls.called(lowered.body))
    if not payload or not custom_calls.in_every_process(targets):
        return None
    return Stored({"seconds": seconds, "targets": targets, "text": text_size(lowered)}, payload)


def text_size(lowered: LoweredModule) -> int:
    """Characters of a module's text."""
    return len(lowered.body) + len(lowered.locations)


@final
@dataclass(frozen=True, slots=True)
class _Program:
    """What is said of a program that was not lowered."""

    in_avals: tuple[Aval, ...]
    out_avals: tuple[Aval, ...]
    name: str
    where: str


def restored(payload: bytes, targets: list[str], jaxpr: Jaxpr, device: Device) -> LoadedProgram:
    """The executable of an entry.

    Raises: UnreadableError when XLA refuses it; CompileError for a function that this jaxlib does not have.
    """
    custom_calls.provide(targets, device.platform)
    try:
        raw = device.client.deserialize_executable(payload, device.raw_list, compile_options(device.id))
    except _jax.JaxRuntimeError as e:
        raise UnreadableError(reason(e)) from e
    return LoadedProgram(raw, _Program(jaxpr.in_avals, jaxpr.out_avals, jaxpr.name, first_line(jaxpr)), device)


class UnreadableError(Exception):
    """XLA does not take an executable back."""
