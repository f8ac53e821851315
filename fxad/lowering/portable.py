"""Modules in the portable form of StableHLO: a version that other releases of XLA read, five years back.

Source: https://openxla.org/stablehlo/compatibility
"""

from __future__ import annotations

import re
from typing import Final

from fxad.errors import CompileError, FileFormatError, ParameterError
from fxad.lowering import mlir
from fxad.lowering.bindings import _stablehlo, ir, passmanager

# CHLO has no portable form: its operations become what they mean.
_PASSES: Final = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


def newest_version() -> str:
    """The newest version that this jaxlib reads and writes."""
    return _stablehlo.get_current_version()


def usual_version() -> str:
    """The version that a jaxlib of twelve weeks ago reads."""
    return _stablehlo.get_version_from_compatibility_requirement(_stablehlo.StablehloCompatibilityRequirement.WEEK_12)


def check_version(version: object) -> None:
    """Raises: ParameterError for what is no version that this jaxlib writes."""
    oldest, newest = _stablehlo.get_minimum_version(), newest_version()
    known = isinstance(version, str) and _VERSION.fullmatch(version)
    if not isinstance(version, str) or not known or not _numbers(oldest) <= _numbers(version) <= _numbers(newest):
        raise ParameterError(
            f"export: version must be a version of StableHLO from {oldest} to {newest}, got {version!r}",
            remedy=f"leave it out for {usual_version()}, which jaxlibs of the last twelve weeks read",
        )


def serialized(source: str, version: str) -> bytes:
    """A module in the portable form. Raises: CompileError for one that the version has no words for."""

    def write(module: ir.Module) -> bytes:
        _stablehlo.register_stablehlo_passes()
        try:
            passmanager.PassManager.parse(_PASSES, module.context).run(module.operation)
            return _stablehlo.serialize_portable_artifact(module, version)
        except (ir.MLIRError, ValueError) as e:
            raise CompileError(
                f"export: the program cannot be said in StableHLO {version}: {e}", remedy="export for a newer version"
            ) from e

    return mlir.parsed(source, write)


def restored(artifact: bytes, version: str) -> bytes:
    """The module of an artifact, as XLA takes it. Raises: FileFormatError for a version this jaxlib does not read."""
    newest = newest_version()
    if _numbers(version) > _numbers(newest):
        raise FileFormatError(
            f"load_exported: the program is in StableHLO {version}, this jaxlib reads up to {newest}",
            remedy=f"install a newer jaxlib, or export with version={newest!r}",
        )
    try:
        return _stablehlo.deserialize_portable_artifact_str(artifact)
    except ValueError as e:
        raise FileFormatError(
            f"load_exported: the StableHLO {version} of the program cannot be read: {e}", remedy="export it again"
        ) from e


def _numbers(version: str) -> tuple[int, ...]:
    return tuple([int(k) for k in version.split(".")])
