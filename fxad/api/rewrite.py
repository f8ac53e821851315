"""`remat`, `dce`, `cse`, `simplify`, `inline`: the same function, another program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from fxad import transforms
from fxad.api.lift import lift
from fxad.program import Program

P = ParamSpec("P")
R = TypeVar("R")


@overload
def remat(f: Program[P, R]) -> Program[P, R]: ...
@overload
def remat(f: Callable[P, R]) -> Callable[P, R]: ...
def remat(f: Any) -> Any:
    """The same function; reverse mode stores its arguments only, and computes everything else again.

    Nestable; on a function used inside another it makes that call a segment.

    Law:  same value and, bitwise, the same gradient; the compiled program holds what the program says (CPU). The last
          bits may differ in two cases: an argument that several segments share gets its contributions summed segment
          by segment; and XLA contracts `a * b + c` within a fusion, where it chooses other fusions.
    Cost: one more forward computation in the backward program.
    """
    return lift("remat", f, lambda p: p.replace(transforms.remat(p.jaxpr)))


@overload
def dce(f: Program[P, R]) -> Program[P, R]: ...
@overload
def dce(f: Callable[P, R]) -> Callable[P, R]: ...
def dce(f: Any) -> Any:
    """The same function without equations that no result needs, bodies of calls included."""
    return lift("dce", f, lambda p: p.replace(transforms.dce(p.jaxpr)))


@overload
def cse(f: Program[P, R]) -> Program[P, R]: ...
@overload
def cse(f: Callable[P, R]) -> Callable[P, R]: ...
def cse(f: Any) -> Any:
    """The same function with equal equations computed once."""
    return lift("cse", f, lambda p: p.replace(transforms.cse(p.jaxpr)))


@overload
def simplify(f: Program[P, R]) -> Program[P, R]: ...
@overload
def simplify(f: Callable[P, R]) -> Callable[P, R]: ...
def simplify(f: Any) -> Any:
    """The same function with constants folded and identities removed; never changes a floating result."""
    return lift("simplify", f, lambda p: p.replace(transforms.simplify(p.jaxpr)))


@overload
def inline(f: Program[P, R]) -> Program[P, R]: ...
@overload
def inline(f: Callable[P, R]) -> Callable[P, R]: ...
def inline(f: Any) -> Any:
    """The same function without `call` equations, at any depth."""
    return lift("inline", f, lambda p: p.replace(transforms.inline(p.jaxpr)))
