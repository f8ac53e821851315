"""How deeply bodies may be nested in what is compiled, and how large it may be.

XLA reads a module by recursion, in a thread with 2 MB of stack, and ends the process where that is not enough: measured
with jaxlib 0.10.2, at 185 calls in each other, and at 97 branches or 63 scans each of which has a call in it.
"""

from __future__ import annotations

from typing import Final

from fxad.core.layout import Once, Slice
from fxad.errors import CompileError
from fxad.ir import HigherOrder, Jaxpr, distinct, place

# In calls: what is left is for other versions of jaxlib.
_LIMIT: Final = 150
_LARGEST: Final = 1 << 24  # some ten GB


def check_nesting(jaxpr: Jaxpr, what: str = "compile") -> None:
    """Raises: CompileError for a program that XLA could not read, naming the outermost equation of the nest, or that is
    too large with its calls opened; `what` is who asks."""
    deep: dict[Jaxpr, tuple[int, int]] = {}  # how much stack, in calls, and how many bodies in each other
    size: dict[Jaxpr, int] = {}  # equations, bodies in place of those that carry them
    for body in distinct(jaxpr):
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
    ).located(equation=f"{eqn.prim.name} of {len(eqn.ins)} operands", where=str(place(eqn.source) or ""))


def _below(prim: HigherOrder, deep: dict[Jaxpr, tuple[int, int]]) -> tuple[int, int]:
    stack, levels = max([deep[body] for body in _compiled(prim)], default=(0, 0))
    return stack + _calls(prim), levels + 1


def _compiled(prim: HigherOrder) -> tuple[Jaxpr, ...]:
    """The bodies that are compiled: rules have done what they are for."""
    layout = prim.layout
    return tuple([layout.bodies[k].jaxpr for k in layout.running])


def _calls(prim: HigherOrder) -> int:
    """How many calls take as much stack as one such equation."""
    layout = prim.layout
    runs = [layout.bodies[k].runs for k in layout.running]
    apart = any([isinstance(r, Once) and r.opaque for r in runs])
    sliced = any([type(g.role) is Slice for g in (*layout.operands, *layout.results)]) and not layout.depends
    return 2 if apart or sliced else 1
