"""Limits of the nesting depth and of the size of compiled programs.

XLA parses a module by recursion, in a thread with 2 MB of stack, and aborts the process if that overflows. Measured
with jaxlib 0.10.2: at 185 nested calls, and at 97 nested branches or 63 nested scans, each of which contains a call.
"""

from __future__ import annotations

from typing import Final

from fxad.core.layout import Once, Slice
from fxad.errors import CompileError
from fxad.ir import HigherOrder, Jaxpr, distinct_jaxprs, source_location

# In calls, with a margin for other versions of jaxlib.
_LIMIT: Final = 150
_LARGEST: Final = 1 << 24  # some ten GB


def check_nesting(jaxpr: Jaxpr, what: str = "compile") -> None:
    """Check that XLA can compile a program. Raises: CompileError if it is nested too deeply, with the outermost
    equation of the nest, or if it is too large with calls inlined. `what` is the caller, for messages."""
    deep: dict[Jaxpr, tuple[int, int]] = {}  # stack, in units of one call, and depth of nesting
    size: dict[Jaxpr, int] = {}  # equations, with bodies inlined
    for body in distinct_jaxprs(jaxpr):
        inner = [b for eqn in body.eqns if isinstance(eqn.prim, HigherOrder) for b in _compiled(eqn.prim)]
        size[body] = len(body.eqns) + sum([size[b] for b in inner])
        below = [_below(eqn.prim, deep) for eqn in body.eqns if isinstance(eqn.prim, HigherOrder)]
        deep[body] = max(below, default=(0, 0))
    stack, levels = deep[jaxpr]
    if stack <= _LIMIT and size[jaxpr] > _LARGEST:
        raise CompileError(
            f"{what}: {jaxpr.name} is {size[jaxpr]:,} equations with its calls opened, as XLA does, and at most"
            f" {_LARGEST:,} are compiled",
            remedy="loop over a body that is called so often, with fxad.lax.scan or fori_loop",
        )
    if stack <= _LIMIT:
        return
    eqn = next(e for e in jaxpr.eqns if isinstance(e.prim, HigherOrder) and _below(e.prim, deep) == (stack, levels))
    raise CompileError(
        f"{what}: bodies are nested {levels} deep in {jaxpr.name}, and XLA has stack for"
        f" {_LIMIT * levels // stack} of this kind",
        remedy="fxad.inline opens calls; let segments, branches and loops follow each other, or loop over one body",
    ).located(equation=f"{eqn.prim.name} of {len(eqn.ins)} operands", where=str(source_location(eqn.source) or ""))


def _below(prim: HigherOrder, deep: dict[Jaxpr, tuple[int, int]]) -> tuple[int, int]:
    stack, levels = max([deep[body] for body in _compiled(prim)], default=(0, 0))
    return stack + _calls(prim), levels + 1


def _compiled(prim: HigherOrder) -> tuple[Jaxpr, ...]:
    """The bodies that are compiled, which excludes those of rules."""
    layout = prim.layout
    return tuple([layout.bodies[k].jaxpr for k in layout.running])


def _calls(prim: HigherOrder) -> int:
    """The stack that such an equation takes, in units of one call."""
    layout = prim.layout
    runs = [layout.bodies[k].runs for k in layout.running]
    apart = any([isinstance(r, Once) and r.opaque for r in runs])
    sliced = any([type(g.role) is Slice for g in (*layout.operands, *layout.results)]) and not layout.has_predicate
    return 2 if apart or sliced else 1
