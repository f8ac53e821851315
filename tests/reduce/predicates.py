"""Predicates for tests of the reducer: at the top of a module, so that files and processes can import them."""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import Any

import numpy as np

from fxad.core.builder import Builder, rewrite
from fxad.core.interpreter import run
from fxad.ir import Atom, Eqn, Jaxpr, distinct_jaxprs
from fxad.primitives import elementwise as ew
from fxad.transforms.map_bodies import map_bodies


def sines(jaxpr: Jaxpr) -> Jaxpr:
    """A faulty pass: tanh becomes sin, also in bodies."""

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Any:
        return b(ew.SIN, *ins) if eqn.prim is ew.TANH else None

    return rewrite(map_bodies(jaxpr, sines), rule)


def pass_differs(program: Any, args: Any) -> str | None:
    have, want = (run(j, [*program.bound, *args]) for j in (sines(program.jaxpr), program.jaxpr))
    same = all([np.allclose(a, b, equal_nan=True) for a, b in zip(have, want, strict=True)])
    return None if same else "differs"


def gives_nan(program: Any, args: Any) -> str | None:
    return "nan" if any([np.isnan(x).any() for x in run(program.jaxpr, [*program.bound, *args])]) else None


def has(name: str, program: Any, args: Any) -> str | None:
    """As a compiler that refuses a primitive: no values are needed."""
    names = {e.prim.name for body in distinct_jaxprs(program.jaxpr) for e in body.eqns}
    return f"refuses {name}" if name in names else None


has_tanh = functools.partial(has, "tanh")


def quotes(program: Any, args: Any) -> str | None:
    return 'a "reason" of\n"""lines"""\\' if program.jaxpr.eqns else None


WAYS = ("none", "signal", "exit", "time", "memory", "raise", "server")


def ends(program: Any, args: Any) -> str | None:
    """End, or do not end, the process: in the way that the first argument says."""
    if has_tanh(program, args) is None:
        return None
    match WAYS[int(args[0][0])]:
        case "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            raise SystemExit(3)
        case "time":
            time.sleep(60)
        case "memory":
            held = []
            for _ in range(8):
                held.append(np.ones(1 << 20))
                time.sleep(0.01)
        case "raise":
            raise ZeroDivisionError("by zero")
        case "server":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        case _:
            pass
    return "tanh"
