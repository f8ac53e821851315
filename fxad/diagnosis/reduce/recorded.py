"""The values of all equations of a run, also inside of bodies, for programs that begin in the middle."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, final

import numpy as np

from fxad.core.interpreter import array_of, run_by_layout, run_with
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, NDArray

# The values of the operands and the equations of a program in one of its runs.
ValuesOfRun: TypeAlias = Mapping[Atom, NDArray]

_LARGEST: Final = 1 << 26  # greatest number of bytes of a value that is stored
_TOTAL: Final = 1 << 31


class _StoppedError(Exception):
    """The recording took too long, or an equation raised: what was recorded until then is used."""


@final
class BodyRuns:
    """The runs of a program and of its bodies: the first and the last run of each distinct body.

    `first` and `last` map a program to the values of that run. A value may be missing: of an equation that did not run,
    or one that is very large.
    """

    def __init__(self, jaxpr: Jaxpr, values: Sequence[NDArray | None], deadline: float) -> None:
        self.first: dict[Jaxpr, dict[Atom, NDArray]] = {}
        self.last: dict[Jaxpr, dict[Atom, NDArray]] = {}
        self._deadline = deadline
        self._bytes = 0
        known = [x for x in values if x is not None]
        if jaxpr.symbolic or len(known) != len(values):
            return
        try:
            with np.errstate(all="ignore"):
                self._run(jaxpr, known)
        except Exception:  # noqa: BLE001  an equation may raise: that may be the fault that is reduced
            return

    def of(self, jaxpr: Jaxpr) -> list[ValuesOfRun]:
        """Return the recorded runs of a program or body: the first and, if there is another, the last."""
        runs: list[ValuesOfRun] = [runs[jaxpr] for runs in (self.first, self.last) if jaxpr in runs]
        return runs if len(runs) == 2 and runs[0] is not runs[1] else runs[:1]

    def _run(self, jaxpr: Jaxpr, args: Sequence[NDArray]) -> list[NDArray]:
        if time.monotonic() > self._deadline:
            raise _StoppedError
        env: dict[Atom, NDArray] = {}
        self.first.setdefault(jaxpr, env)
        self.last[jaxpr] = env
        self._store(env, jaxpr.ins, args)

        def apply(_: int, eqn: Eqn, operands: list[NDArray]) -> list[NDArray]:
            outs = list(map(np.asarray, self._apply(eqn, operands)))
            self._store(env, eqn.outs, outs)
            return outs

        return run_with(jaxpr, args, apply, array_of)

    def _apply(self, eqn: Eqn, args: list[NDArray]) -> Sequence[NDArray]:
        if isinstance(eqn.prim, HigherOrder) and (layout := eqn.prim.layout).states_results:
            outs = run_by_layout(
                layout,
                args,
                [v.aval for v in eqn.outs],
                lambda k, _, operands: self._run(layout.bodies[k].jaxpr, operands),
            )
            if outs is not None:
                return outs
        return eqn.prim.impl(*args)

    def _store(self, env: dict[Atom, NDArray], of: Sequence[Atom], values: Sequence[NDArray]) -> None:
        for a, x in zip(of, values, strict=True):
            if x.nbytes <= _LARGEST and self._bytes + x.nbytes <= _TOTAL:
                env[a] = x
                self._bytes += x.nbytes
