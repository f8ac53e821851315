"""Limits of the nesting depth and of the size of compiled programs.

XLA parses a module by recursion, in a thread with 2 MB of stack, and aborts the process if that overflows. Measured
with jaxlib 0.10.2: at 185 nested calls, and at 97 nested branches or 63 nested scans, each of which contains a call.
"""

from __future__ import annotations

from typing import Final

from fxad.core.layout import Once, Sliced
from fxad.errors import CompileError
from fxad.ir import HigherOrder, Jaxpr, distinct_jaxprs, source_text

# Stack in units of one call, with a margin for other versions of jaxlib.
_MAX_CALLS: Final = 150
_MAX_EQUATIONS: Final = 1 << 24  # some ten GB


def check_nesting(jaxpr: Jaxpr, what: str = "compile") -> None:
    """Check that XLA can compile a program. Raises: CompileError if it is nested too deeply, with the outermost
    equation of the nest, or if it is too large with calls inlined. `what` is the caller, for messages."""
    depth: dict[Jaxpr, tuple[int, int]] = {}  # stack, in units of one call, and depth of nesting
    size: dict[Jaxpr, int] = {}  # equations, with bodies inlined
    for body in distinct_jaxprs(jaxpr):
        inner = [b for eqn in body.eqns if isinstance(eqn.prim, HigherOrder) for b in _compiled_bodies(eqn.prim)]
        size[body] = len(body.eqns) + sum([size[b] for b in inner])
        below = [_depth_of(prim, depth) for prim in body.prims if isinstance(prim, HigherOrder)]
        depth[body] = max(below, default=(0, 0))
    stack, levels = depth[jaxpr]
    if stack <= _MAX_CALLS and size[jaxpr] > _MAX_EQUATIONS:
        raise CompileError(
            f"{what}: {jaxpr.name} is {size[jaxpr]:,} equations with its calls opened, as XLA does, and at most"
            f" {_MAX_EQUATIONS:,} are compiled",
            remedy="loop over a body that is called so often, with fxad.lax.scan or fori_loop",
        )
    if stack <= _MAX_CALLS:
        return
    eqn = next(e for e in jaxpr.eqns if isinstance(e.prim, HigherOrder) and _depth_of(e.prim, depth) == (stack, levels))
    raise CompileError(
        f"{what}: bodies are nested {levels} deep in {jaxpr.name}, and XLA has stack for"
        f" {_MAX_CALLS * levels // stack} of this kind",
        remedy="fxad.inline opens calls; let segments, branches and loops follow each other, or loop over one body",
    ).located(equation=f"{eqn.prim.name} of {len(eqn.ins)} operands", where=source_text(eqn.source))


def _depth_of(prim: HigherOrder, depth: dict[Jaxpr, tuple[int, int]]) -> tuple[int, int]:
    stack, levels = max([depth[body] for body in _compiled_bodies(prim)], default=(0, 0))
    return stack + _stack_of(prim), levels + 1


def _compiled_bodies(prim: HigherOrder) -> tuple[Jaxpr, ...]:
    """Return the bodies that are compiled, which excludes those of rules."""
    layout = prim.layout
    return tuple([layout.bodies[k].jaxpr for k in layout.running])


def _stack_of(prim: HigherOrder) -> int:
    """Return the stack that such an equation takes, in units of one call."""
    layout = prim.layout
    runs = [layout.bodies[k].runs for k in layout.running]
    opaque = any([isinstance(r, Once) and r.opaque for r in runs])
    sliced = any([type(g.role) is Sliced for g in (*layout.operands, *layout.results)]) and not layout.has_predicate
    return 2 if opaque or sliced else 1
