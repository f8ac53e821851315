"""Exported programs, for other processes and versions: `Lowered.export` writes and `fx.load_exported` reads them.

An exported program is its text, as in a file of `save`, with its donated operands and its platforms. It contains no
StableHLO: jaxlib's reader of serialized modules aborts the process on forged bytes (docs/adr/0039), and a module could
contain anything. A loaded program is lowered again, so it runs on every jaxlib that the loading fxad supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad import runtime
from fxad.errors import ArgumentError, CompileError, ParameterError, described
from fxad.lower import lower_jaxpr
from fxad.runtime import PLATFORM_ALIASES, check_nesting
from fxad.storage.encoding import encode
from fxad.storage.file_format import pack
from fxad.tracing.program import Program

KIND: Final = "fxad exported program"
VERSION: Final = 1
_PLATFORMS: Final = ("cpu", "cuda")


def export(
    program: Program[..., object],
    *,
    donate: tuple[int, ...] = (),
    platforms: str | Sequence[str] | None = None,
) -> bytes:
    """Return a program as bytes, for `load_exported`. Its calls donate operands in `donate`.

    `platforms` are the platforms that it may run on (default: all that implement its custom calls).

    Raises: ArgumentError for a program that calls the host or closes over tracers; ParameterError for a platform that
            it cannot run on; CompileError if its bodies are nested too deeply.
    """
    check_nesting(program.jaxpr, "export")
    module = lower_jaxpr(program.jaxpr)
    if module.host:
        what, remedy = module.host[0][0].refusal
        raise ArgumentError(f"export: {program.name} calls {what}", remedy=remedy)
    chosen = _platforms(program, platforms)
    sections = encode("export", program, {"platforms": list(chosen), "donate": list(donate)})
    return b"".join(pack(KIND, VERSION, sections))


def _platforms(program: Program[..., object], asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the platforms that a program is exported for, each once."""
    missing = {p: _missing_on(program, p) for p in _PLATFORMS}
    allowed = tuple([p for p in _PLATFORMS if not missing[p]])
    if asked is None:
        return allowed
    remedy = f"export for {', '.join(allowed)}"
    if not isinstance(asked, str | Sequence):
        raise ParameterError(f"export: platforms is {described(asked)}, not a name or several", remedy=remedy)
    platforms: dict[str, None] = {}
    for name in (asked,) if isinstance(asked, str) else asked:
        platform = PLATFORM_ALIASES.get(name, name) if isinstance(name, str) else ""
        if platform not in allowed:
            why = missing.get(platform, "")
            raise ParameterError(f"export: {program.name} does not run on {name!r}{why}", remedy=remedy)
        platforms[platform] = None
    if not platforms:
        raise ParameterError(f"export: {program.name} is to run on no platform", remedy=remedy)
    return tuple(platforms)


def _missing_on(program: Program[..., object], platform: str) -> str:
    """Return the reason why a program does not run on a platform; empty if it does."""
    try:
        module = lower_jaxpr(program.jaxpr, platform)
    except CompileError as e:
        return f": {e.message}"
    targets = sorted(runtime.custom_call_targets(module.body))
    return next((f", which has no {t}" for t in targets if not runtime.implements(platform, t)), "")
