"""Custom calls: the functions that programs call by name, and their implementation on each platform.

Only this module maps `fxad_getrf_f64` to an implementation: on the CPU, the LAPACK routine of jaxlib (`dgetrf`, from
scipy), on GPUs that of cuSOLVER. The names are fxad's own, and are registered per platform, so they
never conflict with jax's registrations. LAPACK is loaded (0.2 s, most of it scipy) when the first program that calls it
is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType
from typing import Final, final

from fxad import lowering
from fxad.errors import CompileError
from fxad.lowering.jaxlib import xla_client
from fxad.xla.cuda import PLUGIN, ROUTINES, TYPED

_TARGET: Final = re.compile(r'call_target_name = "([^"]*)"')
_PREFIX: Final = MappingProxyType({"f32": "s", "f64": "d", "c64": "c", "c128": "z"})
# Routine -> its name in LAPACK for real and for complex matrices.
_LAPACK: Final = MappingProxyType(
    {
        "potrf": ("potrf", "potrf"),
        "trsm": ("trsm", "trsm"),
        "gtsv": ("gtsv", "gtsv"),
        "getrf": ("getrf", "getrf"),
        "geqrf": ("geqrf", "geqrf"),
        "geqp3": ("geqp3", "geqp3"),
        "sytrd": ("sytrd", "hetrd"),
        "orgqr": ("orgqr", "ungqr"),
        "ormqr": ("ormqr", "unmqr"),
        "syevd": ("syevd", "heevd"),
        "geev": ("geev", "geev"),
        "gees": ("gees", "gees"),
        "gesdd": ("gesdd", "gesdd"),
    }
)


@final
class _Targets:
    """The functions registered with XLA in this process. Registering one again is not an error."""

    __slots__ = ("_registered",)

    def __init__(self) -> None:
        self._registered: set[tuple[str, str]] = set()

    def provide(self, targets: set[str], platform: str) -> None:
        missing = {t for t in targets if (t, platform) not in self._registered}
        if not missing:
            return
        if platform == "cpu":
            self._provide_lapack(missing)
            return
        for target in sorted(missing):
            if not implements(platform, target):
                raise CompileError(
                    f"compile: {target} has no implementation on {platform}",
                    remedy="run this part of the program on the CPU: fx.devices('cpu')",
                )
            PLUGIN.register(target)
            self._registered.add((target, platform))

    def _provide_lapack(self, targets: set[str]) -> None:
        lowering.lapack.initialize()
        handlers = lowering.lapack.registrations()
        for target in sorted(targets):
            handler = handlers.get(_lapack_name(target))
            if handler is None:
                raise CompileError(
                    f"compile: {target} has no implementation in this jaxlib", remedy="install a newer jaxlib"
                )
            xla_client.register_custom_call_target(target, handler, platform="cpu", api_version=TYPED)
            self._registered.add((target, "cpu"))


def _lapack_name(target: str) -> str:
    """Return `lapack_dgetrf_ffi` for `fxad_getrf_f64`."""
    _, routine, dtype = target.split("_")
    return f"lapack_{_PREFIX[dtype]}{_LAPACK[routine][dtype in ('c64', 'c128')]}_ffi"


_targets: Final = _Targets()


def custom_call_targets(text: str) -> frozenset[str]:
    """Return the functions that a module calls by name."""
    return frozenset(_TARGET.findall(text)) if "stablehlo.custom_call" in text else frozenset()


def are_portable(targets: Iterable[str]) -> bool:
    """Return True if these functions are the same in every process: library functions are, user callbacks are not."""
    return all([t.startswith("fxad_") and any([implements(p, t) for p in ("cpu", "cuda")]) for t in targets])


def implements(platform: str, target: str) -> bool:
    """Return True if a platform has a routine of a library."""
    routine = target.split("_")[1]
    return (platform == "cpu" and routine in _LAPACK) or (platform == "cuda" and routine in ROUTINES)


def register_targets(targets: Iterable[str], platform: str) -> None:
    """Register functions with XLA before it compiles a call. Raises: CompileError if the platform lacks one."""
    library_targets = {t for t in targets if t.startswith("fxad_")}
    if library_targets:
        _targets.provide(library_targets, platform)
