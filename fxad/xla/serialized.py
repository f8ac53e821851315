"""A compiled program as bytes, and what it weighs."""

from __future__ import annotations

from typing import Final

from fxad.lower import LoweredModule
from fxad.lowering.door import _jax
from fxad.xla.executable import LoadedProgram

# What an executable on the CPU takes of the process's memory, measured (jaxlib 0.10.2, resident bytes over 200 small
# and 20 large programs): 80 to 170 kB however small, and 2 to 3 times its serialized bytes.
_LEAST: Final = 64 * 2**10
_FACTOR: Final = 3


def serialized(program: LoadedProgram) -> bytes | None:
    """The executable as bytes; None where XLA cannot write it (it calls back into this process).

    Cost: 0.2 ms for a small program, 4 ms for one that compiled in a second.
    """
    try:
        return program.device.client.serialize_executable(program.raw)
    except (_jax.JaxRuntimeError, NotImplementedError):
        return None


def footprint(program: LoadedProgram, lowered: LoweredModule, payload: bytes | None = None) -> int:
    """An estimate of the bytes that an executable and its program hold.

    XLA says how much code it generated, except on the CPU, where it says 0 or less: there it is what the executable
    takes when written out, times what was measured. The text of the module, kept with the program, is added.
    """
    text = len(lowered.body) + len(lowered.locations)
    code = program.raw.size_of_generated_code_in_bytes()
    if code <= 0:
        payload = serialized(program) if payload is None else payload
        code = _FACTOR * len(payload or b"")
    return _LEAST + code + text
