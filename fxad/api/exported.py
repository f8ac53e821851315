"""`load_exported`: programs that run without having been traced here."""

from __future__ import annotations

from functools import partial
from typing import Any, final

import numpy as np

from fxad import runtime
from fxad.errors import ParameterError
from fxad.execution.calls import Calls
from fxad.execution.executable import Executable
from fxad.ir import Aval, Jaxpr, Var, Zero
from fxad.runtime import MemoryStats
from fxad.storage.exported import ALIASES, parts
from fxad.storage.tree_structure import rebuild
from fxad.tracing.array import Array, asarray
from fxad.tracing.program import Program


@final
class Exported:
    """A program that was exported, ready to run. It takes what the program took, and gives what it gave.

    `digest` is that of the program, `platforms` those it may run on, `stablehlo` the version that it is written in.
    """

    __slots__ = ("_run", "digest", "name", "platforms", "stablehlo")

    def __init__(self, head: dict[str, Any], run: Executable[..., Any]) -> None:
        self._run = run
        self.name: str = head["name"]
        self.digest: str = head["digest"]
        self.platforms: tuple[str, ...] = tuple(head["platforms"])
        self.stablehlo: str = head["stablehlo"]

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


def load_exported(data: bytes, *, trusted: bool = False) -> Exported:
    """What `export` wrote, for the default device: nothing is traced or lowered, and what the cache has, in memory or on
    disk, is not compiled: equal bytes share one executable.

    Classes of the trees are looked up among the modules that are imported; with `trusted`, their modules are imported.

    Raises: FileFormatError for bytes that are damaged, of a newer format, or of a version of StableHLO that this jaxlib does
            not read; ParameterError when the program is not for the platform in force.
    """
    head, module, arrays = parts(data)
    device = runtime.default_device()
    if ALIASES.get(device.platform, device.platform) not in head["platforms"]:
        raise ParameterError(
            f"load_exported: {head['name']} was exported for {', '.join(head['platforms'])}, the platform in force is"
            f" {device.platform}",
            remedy="export it with platforms=..., or set FXAD_PLATFORM",
        )
    ins = tuple([Aval(shape, dtype) for dtype, shape in head["operands"]])
    outs = tuple([Aval(shape, dtype) for dtype, shape in head["gives"]])
    bound: list[Array] = [
        asarray(np.frombuffer(a, aval.dtype).reshape(aval.shape)) for a, aval in zip(arrays, ins, strict=False)
    ]
    signature = Jaxpr(
        tuple([Var(~k, a) for k, a in enumerate(ins)]), (), tuple([Zero(a).instantiate() for a in outs]), head["name"]
    )
    trees = [rebuild(head[key], f"load_exported: {key}", trusted) for key in ("arguments", "results")]
    program: Program[..., Any] = Program(
        signature, trees[0], trees[1], tuple(bound), tuple(head["names"]), head["name"]
    )
    source = runtime.artifact(module, head["stablehlo"], head["calls"], (ins, outs), head["name"], head["where"])
    load = partial(_load, source)
    calls = Calls(program, load(device), load, tuple(head.get("donate", ())))
    return Exported(head, Executable(program, calls))


def _load(source: runtime.Artifact, device: runtime.Device) -> runtime.LoadedProgram:
    return runtime.cache_in_force()(source, device)
