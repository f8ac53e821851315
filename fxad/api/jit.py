"""`jit`: trace, lower and compile when first called on new types; run from then on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, final, overload

from fxad import placement, tree
from fxad.api.lift import check_function
from fxad.api.news import news
from fxad.array import Array
from fxad.donation import Donate, Donation, asked, donation
from fxad.errors import ArgumentError, ParameterError
from fxad.executable import Executable, Lowered, Units, aval_of_array, check_choice, lower, type_of_arrays
from fxad.ir import Aval
from fxad.mapped import Surroundings, ask, surroundings, watching
from fxad.program import Program, name_of, parameter_names, trace_tree, types_of
from fxad.recent import Recent
from fxad.static import Argnames, Argnums, Statics, parameters
from fxad.trace import Tracer, active, binding
from fxad.tree import Structure

P = ParamSpec("P")
R = TypeVar("R")


@final
class Jitted(Generic[P, R]):
    """A function that compiles itself, once per types of arguments. Make it with `jit`.

    Inside a trace it is a call to a sub-program, traced once per types. As a method of a pytree (`fxad.tree.dataclass`) it
    takes the instance as an argument; of any other class, it closes over it and traces at each call.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_donation",
        "_executables",
        "_last",
        "_programs",
        "_simple",
        "_units",
        "fn",
    )

    def __init__(self, fn: Callable[P, R], given_up: Donation | None = None, units: Units = "auto") -> None:
        self.fn = fn
        self._donation, self._units = given_up, units
        self._programs: dict[tuple[Structure, tuple[Aval, ...], Surroundings | None], Program[P, R]] = {}
        self._executables: dict[tuple[Structure, tuple[Aval, ...]], Executable[P, R]] = {}
        self._last: Executable[P, R] | None = None
        # the fast path: positional arrays only, keyed by their types
        self._simple: dict[tuple[Aval, ...] | None, Executable[P, R]] = {}
        functools.update_wrapper(self, fn)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Program[P, R]:
        """The program for these arguments, traced once per types (unless it closes over tracers)."""
        leaves, in_tree = tree.flatten((args, kwargs))
        return self._program(in_tree, self._types(leaves, in_tree))

    def _types(self, leaves: Sequence[object], in_tree: Structure) -> tuple[Aval, ...]:
        return types_of(f"jit of {name_of(self.fn)}", self.fn, leaves, in_tree)

    def _program(self, in_tree: Structure, avals: tuple[Aval, ...]) -> Program[P, R]:
        known = self._programs.get((in_tree, avals, None))
        if known is None:
            known = self._programs.get((in_tree, avals, surroundings()))
            if known is not None:
                ask()
        if known is None:
            with watching() as watched:
                known = trace_tree(self.fn, in_tree, avals, name_of(self.fn), parameter_names(self.fn))
            if not watched.inside and not any(isinstance(b, Tracer) for b in known.bound):
                # a rule for stacks is traced for the sizes around: then the program is theirs
                key = (in_tree, avals, surroundings() if watched.asked else None)
                known = self._programs.setdefault(key, known)
        return known

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if binding() is not None and active() is not None:
            return self.trace(*args, **kwargs)(*args, **kwargs)
        avals = None
        if not kwargs:
            try:  # `type_of_arrays`, spelled out: this path costs 5 us, a Python function 0.1
                avals = tuple(map(aval_of_array, args))
            except AttributeError:
                avals = None
        simple = self._simple.get(avals)
        if simple is not None:
            return simple.launch(args)  # type: ignore[arg-type]
        last = self._last  # most calls repeat the types of the one before
        leaves = None if last is None else last.match(args, kwargs)
        if last is not None and leaves is not None:
            return last.launch(leaves)
        leaves, in_tree = tree.flatten((args, kwargs))
        found = type_of_arrays(leaves)
        types = self._types(leaves, in_tree) if found is None else found
        executable = self._executables.get((in_tree, types))
        if executable is None:
            program = self._program(in_tree, types)
            if _log.isEnabledFor(logging.INFO):
                _log.info("jit of %s: %s", program.name, news(program, [e.program for e in self._executables.values()]))
            where = placement.home([x._buffer for x in (*program.bound, *leaves) if type(x) is Array])
            executable = self._executables[in_tree, types] = self._lowered(program).compile(device=where)
            if avals is not None:
                self._simple[avals] = executable
        self._last = executable
        return executable.run(leaves, found)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The lowered program for these arguments (values or `Spec`s)."""
        return self._lowered(self.trace(*args, **kwargs))

    def _lowered(self, program: Program[P, R]) -> Lowered[P, R]:
        if self._donation is None:
            return lower(program, self._units)
        bound = len(program.bound)
        return replace(lower(program, self._units), donate=tuple([bound + k for k in self._donation.leaves(program)]))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if tree.structure(instance) != _LEAF:  # the instance is a pytree, and an argument like any other
            return functools.partial(self, instance)  # type: ignore[arg-type]
        # closed over, as by any bound method; it may have changed since, so it is traced each time, and compiled once
        return Jitted(functools.partial(self.fn, instance), self._donation, self._units)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<jit {name_of(self.fn)}>"


@final
class StaticJitted(Generic[P, R]):
    """A function with static arguments that compiles itself, once per their values and the types of the others.

    Make it with `jit`. The functions of the static values used last are held.
    """

    __slots__ = ("__dict__", "__weakref__", "_donation", "_jitted", "_statics", "_units", "fn")

    def __init__(
        self,
        fn: Callable[P, R],
        argnums: Argnums,
        argnames: Argnames,
        given_up: Donation | None = None,
        units: Units = "auto",
    ) -> None:
        self.fn = fn
        self._units = units
        self._statics = Statics(f"jit of {name_of(fn)}", fn, argnums, argnames)
        self._donation = given_up and self._statics_apart(given_up)
        self._jitted: Recent[Hashable, Jitted[..., R]] = Recent(512)
        functools.update_wrapper(self, fn)

    def _statics_apart(self, given_up: Donation) -> Donation:
        """The donation in terms of the arguments that are left. Raises: ParameterError for a static argument."""
        fixed = {*self._statics.numbers, *self._statics.names}
        for k, _ in given_up.entries:
            if k in fixed:
                raise ParameterError(
                    f"{given_up.what}: the argument {k!r} is static and donated: a static value has no memory to give up",
                    remedy="leave it out of `donate`",
                )
        entries = [
            (k if isinstance(k, str) else k - sum([n < k for n in self._statics.numbers]), prefix)
            for k, prefix in given_up.entries
        ]
        return replace(given_up, entries=tuple(entries))

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Jitted[..., R], Any, Any]:
        key, fixed, left, named = self._statics.split(args, kwargs)
        known = self._jitted.get(key)
        if known is None:
            known = Jitted(self._statics.bound(fixed), self._donation, self._units)
            if len(self._jitted) and _log.isEnabledFor(logging.INFO):
                what = self._statics.described(fixed), len(self._jitted)
                _log.info("jit of %s: %s is new to a function known for %d others", name_of(self.fn), *what)
            self._jitted.put(key, known)
        return known, left, named

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        jitted, left, named = self._split(args, kwargs)
        return jitted(*left, **named)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Program[..., R]:
        """The program for these arguments; it takes those that are not static."""
        jitted, left, named = self._split(args, kwargs)
        return jitted.trace(*left, **named)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The lowered program for these arguments (values or `Spec`s)."""
        jitted, left, named = self._split(args, kwargs)
        return jitted.lower(*left, **named)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        partial: Any = functools.partial  # no type says that the first parameter goes
        if 0 in self._statics.numbers or tree.structure(instance) != _LEAF:
            return partial(self, instance)
        return StaticJitted(partial(self.fn, instance), (), sorted(self._statics.names), self._donation, self._units)

    def __repr__(self) -> str:
        return f"<jit {name_of(self.fn)}>"


_LEAF: Final = tree.structure(0)
_log: Final = logging.getLogger("fxad")


class _Decorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> Jitted[P, R]: ...


class _StaticDecorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> StaticJitted[P, R]: ...


@overload
def jit(f: Program[P, R], *, donate: Donate = ..., units: Units = ...) -> Executable[P, R]: ...  # type: ignore[overload-overlap]
@overload
def jit(f: Callable[P, R], *, donate: Donate = ..., units: Units = ...) -> Jitted[P, R]: ...
@overload
def jit(
    f: Callable[P, R],
    *,
    static_argnums: Argnums = ...,
    static_argnames: Argnames = ...,
    donate: Donate = ...,
    units: Units = ...,
) -> StaticJitted[P, R]: ...
@overload
def jit(*, donate: Donate, units: Units = ...) -> _Decorator: ...
@overload
def jit(*, units: Units) -> _Decorator: ...
@overload
def jit(
    *, static_argnums: Argnums = ..., static_argnames: Argnames = ..., donate: Donate = ..., units: Units = ...
) -> _StaticDecorator: ...
def jit(
    f: Any = _LEAF,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    donate: Donate = (),
    units: Units = "auto",
) -> Any:
    """Compile a function when it is called; a `Program` at once.

    Static arguments are hashable values, given to the function as they are: it is compiled for each of them. Donated
    arguments are gone after a call, and results are written where they were: name them by position or name, or map
    names to tree prefixes of bools, as in `donate={"state": (True, False)}`. Without a function it is a decorator:
    `@jit(static_argnames="n", donate="state")`. What repeats in it is compiled once: `units` is that of `lower`.

    Rule:   the function must be pure: it is run once per types of arguments, and what it closes over is read then.
            Inside a trace nothing is donated: the outer program decides.
    Cost:   see `trace`, `lower`; equal programs share one executable, whoever asks.
    Raises: ParameterError for a `donate` that is no argument, or a static one, and for `units` of no meaning; DonationWarning, once per types of
            arguments, for memory that no result can use.
    """
    if f is _LEAF:  # nothing anybody would jit
        given: dict[str, object] = {
            "static_argnums": static_argnums,
            "static_argnames": static_argnames,
            "donate": donate,
        }
        given["units"] = units
        return functools.partial(jit, **given)
    check_choice("jit", units)
    static = static_argnums not in ((), []) or static_argnames not in ((), [])
    if isinstance(f, Program):
        if static:
            raise ArgumentError(
                f"jit: {f.name} is a Program, which has no static arguments",
                remedy="jit the function, or give them to trace as static_argnames",
            )
        return lower(f, units).compile(donate=donate)
    check_function("jit", f)
    given_up = donation(f"jit of {name_of(f)}", donate, *parameters(f)) if asked(donate) else None
    if static:
        return StaticJitted(f, static_argnums, static_argnames, given_up, units)
    return Jitted(f, given_up, units)


__all__ = ["Jitted", "StaticJitted", "jit"]
