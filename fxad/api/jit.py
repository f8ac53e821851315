"""`jit`: trace, lower and compile when first called on new types; run from then on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, Generic, ParamSpec, TypeVar, final, overload

from fxad import tree
from fxad.array import Array
from fxad.errors import ArgumentError
from fxad.program import Executable, Program, lower, name_of, parameter_names, spec_of, trace_tree
from fxad.trace import Tracer, active

P = ParamSpec("P")
R = TypeVar("R")


@final
class Jitted(Generic[P, R]):
    """A function that compiles itself, once per types of arguments. Make it with `jit`.

    Inside a trace it is a call to a sub-program, traced once per types.
    """

    __slots__ = ("__dict__", "__weakref__", "_executables", "_programs", "_simple", "fn")

    def __init__(self, fn: Callable[P, R]) -> None:
        self.fn = fn
        self._programs: dict[Hashable, Program[P, R]] = {}
        self._executables: dict[Hashable, Executable[P, R]] = {}
        # the fast path: positional arrays only, keyed by their types
        self._simple: dict[tuple[Any, ...], Executable[P, R]] = {}
        functools.update_wrapper(self, fn)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Program[P, R]:
        """The program for these arguments, traced once per types (unless it closes over tracers)."""
        leaves, in_tree = tree.flatten((args, kwargs))
        name, names = name_of(self.fn), parameter_names(self.fn)
        key = (in_tree, tuple([spec_of(x, f"{name}: argument {k}") for k, x in enumerate(leaves)]))
        known = self._programs.get(key)
        if known is None:
            known = trace_tree(self.fn, in_tree, key[1], name, names)
            if not any(isinstance(b, Tracer) for b in known.bound):
                known = self._programs.setdefault(key, known)
        return known

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            simple = None if kwargs else self._simple.get(tuple([x._aval for x in args]))  # type: ignore[attr-defined]
        except AttributeError:
            simple = None
        tracing = active() is not None
        if simple is not None and not tracing:
            return simple(*args, **kwargs)
        if tracing:
            return self.trace(*args, **kwargs)(*args, **kwargs)
        return self._compiled(args, kwargs)(*args, **kwargs)

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Executable[P, R]:
        leaves, in_tree = tree.flatten((args, kwargs))
        name = name_of(self.fn)
        avals = tuple([spec_of(x, f"{name}: argument {k}") for k, x in enumerate(leaves)])
        key = (in_tree, avals)
        known = self._executables.get(key)
        if known is None:
            known = self._executables[key] = lower(self.trace(*args, **kwargs)).compile()
            if not kwargs and all([type(x) is Array for x in args]):
                self._simple[avals] = known
        return known

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The lowered program for these arguments (values or `Spec`s)."""
        return lower(self.trace(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        # a method: the instance is closed over, as with any bound function
        return self if instance is None else functools.partial(self, instance)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<jit {name_of(self.fn)}>"


@overload
def jit(f: Program[P, R]) -> Executable[P, R]: ...
@overload
def jit(f: Callable[P, R]) -> Jitted[P, R]: ...
def jit(f: Any) -> Any:
    """Compile a function when it is called; a `Program` at once.

    Rule: the function must be pure: it is run once per types of arguments, and what it closes over is read then.
    Cost: see `trace`, `lower`; equal programs share one executable, whoever asks.
    """
    if isinstance(f, Program):
        return lower(f).compile()
    if not callable(f):
        raise ArgumentError(f"jit: a {type(f).__qualname__} is neither a Program nor a function: {f!r}")
    return Jitted(f)


__all__ = ["Jitted", "jit"]
