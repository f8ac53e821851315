"""A jitted function: it is compiled when it is called. It can be a method and be pickled, and has the stages `trace` and
`lower`."""

from __future__ import annotations

import functools
import logging
from abc import abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    final,
    overload,
)

from fxad.api.jit_calls import ByTypes, JitOptions
from fxad.api.pickling import importable_name, pickles_by_value
from fxad.core.dataclasses import dataclass
from fxad.core.lru import LRUCache
from fxad.core.trees import tree
from fxad.errors import ArgumentError, ParameterError
from fxad.execution.dispatch import FAST_CALL
from fxad.execution.donation import Donation
from fxad.execution.executable import Lowered
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import Argnames, Argnums, StaticArguments, attach_declaration

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_log: Final = logging.getLogger("fxad")


@final
@dataclass(frozen=True, slots=True, eq=False)
class TracedProgram(Program[P, R]):
    """The program of a jitted function for arguments of some types, with the options of `jit`: a stage, as in JAX."""

    options: JitOptions = JitOptions()

    __repr__ = Program.__repr__

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return self.name

    @property
    def args_info(self) -> Any:
        """The types of the arguments, and which are donated: a tree ((positional), {keyword}) of `ArgInfo`s."""
        return self.args_info_with_donation(self.options.donated(self))

    def lower(self) -> Lowered[P, R]:
        """Lower the program with the options of `jit`."""
        return self.options.lower(self)


class JittedMethod(Protocol[P, R_co]):
    """A method that is compiled when it is called. Of a class that is no pytree, it is a `Jitted`."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> Program[..., R_co]:
        """Return the program for these arguments. That of a method of a pytree takes the instance first."""

    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Lowered[..., R_co]:
        """Return the lowered program for these arguments (values or `Spec`s)."""

    def eval_shape(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the types of the results for these arguments."""

    def clear_cache(self) -> None:
        """Drop the programs and executables of the function."""


@final
class _MethodOfTree(functools.partial[Any]):
    """A method of a pytree: the function with the instance as its first argument. `functools.partial` calls it without
    a frame of Python."""

    func: Any  # Jitted, or StaticJitted

    def trace(self, /, *args: object, **kwargs: object) -> Program[..., Any]:
        program: Program[..., Any] = self.func.trace(*self.args, *args, **kwargs)
        return program

    def lower(self, /, *args: object, **kwargs: object) -> Lowered[..., Any]:
        lowered: Lowered[..., Any] = self.func.lower(*self.args, *args, **kwargs)
        return lowered

    def eval_shape(self, /, *args: object, **kwargs: object) -> Any:
        return self.func.eval_shape(*self.args, *args, **kwargs)

    def clear_cache(self) -> None:
        self.func.clear_cache()


class _JittedFunction(Generic[P, R]):
    """The parts of a jitted function that do not depend on static arguments. Copies are the function itself."""

    __slots__ = ()
    fn: Callable[P, R]

    @abstractmethod
    def _arguments(self) -> tuple[object, ...]:
        """Return the qualified name of the function, and the arguments of `__init__`, for a pickle by value."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        name = importable_name(self)
        if name is None and pickles_by_value():
            # The state is restored after the object is made: the function may refer to it
            return object.__new__, (type(self),), self._arguments()
        if name is None:
            raise ArgumentError(
                f"pickle: {self!r} is compiled for the devices of this process, and no module has it under its name",
                remedy="pickle the function and call jit on it there; or define it with @jit, and it is pickled by name."
                " Or hand over the bytes of jitted.lower(*args).export()",
            )
        return name

    def __setstate__(self, arguments: tuple[Any, ...]) -> None:
        name, *arguments_of_init = arguments
        function: Any = self
        function.__init__(*arguments_of_init)
        self.__dict__["__qualname__"] = name  # not that of the copy

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: _JittedFunction[Concatenate[Any, Q], T], instance: object, owner: type | None = None
    ) -> JittedMethod[Q, T]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else self._bound_to(instance)

    @abstractmethod
    def _bound_to(self, instance: object) -> Any:
        """Return the method of an instance."""

    def __repr__(self) -> str:
        return f"<jit {function_name(self.fn)}>"


@final
class Jitted(_JittedFunction[P, R]):
    """A function that is compiled once per types of arguments. Make it with `jit`.

    Inside a trace it is a call of a sub-program, traced once per types. As a method of a pytree (`fxad.tree.dataclass`)
    it takes the instance as an argument. As a method of another class, it closes over the instance and is traced at
    each call.
    """

    # `__call__` is a slot, as in `Executable`: it holds the fast call of the last program
    __slots__ = (FAST_CALL, "__dict__", "__weakref__", "_by_types", "fn")

    if TYPE_CHECKING:

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __init__(self, fn: Callable[P, R], options: JitOptions) -> None:
        self.fn = fn
        self._by_types = ByTypes(self, fn, options)
        self._set_call(self._by_types.call)
        functools.update_wrapper(self, fn)
        attach_declaration(self, None, lambda numbers, names: StaticJitted(fn, numbers, names, options))

    def _arguments(self) -> tuple[object, ...]:
        return getattr(self.fn, "__qualname__", ""), self.fn, self._by_types.options

    def _set_call(self, call: Callable[..., object]) -> None:
        """Let this function handle the calls."""
        object.__setattr__(self, FAST_CALL, call)

    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> TracedProgram[P, R]:
        """Return the program for these arguments, traced once per types (unless it closes over tracers)."""
        return TracedProgram.of(self._by_types.trace(args, kwargs), options=self._by_types.options)

    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Lowered[P, R]:
        """Return the lowered program for these arguments (values or `Spec`s)."""
        return self._by_types.lower(args, kwargs)

    def eval_shape(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the types of the results for these arguments."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drop the programs and executables of this function. Equal ones stay in `fx.cache`."""
        self._by_types.clear()

    def _bound_to(self, instance: object) -> Any:
        if tree.structure(instance) != tree.LEAF:  # the instance is a pytree: an ordinary argument
            return _MethodOfTree(self, instance)
        # closed over, as by any bound method; it may have changed, so each call traces, but compiles only new programs
        options = self._by_types.options
        options = replace(options, donation=options.donation and options.donation.of_method())
        return Jitted(functools.partial(self.fn, instance), options)  # type: ignore[arg-type]  # as above


@final
class StaticJitted(_JittedFunction[P, R]):
    """A function with static arguments, compiled once per their values and the types of the other arguments.

    Make it with `jit`. It keeps the compiled functions of the most recently used static values.
    """

    __slots__ = ("__dict__", "__weakref__", "_options", "_jitted", "_options_without_statics", "_statics", "fn")

    def __init__(
        self,
        fn: Callable[P, R],
        argnums: Argnums,
        argnames: Argnames,
        options: JitOptions,
    ) -> None:
        self.fn = fn
        self._statics = StaticArguments(f"jit of {function_name(fn)}", fn, argnums, argnames)
        self._options = options
        donation = options.donation and self._without_statics(options.donation)
        self._options_without_statics = replace(options, donation=donation)
        self._jitted: LRUCache[Hashable, Jitted[..., R]] = LRUCache(512)
        functools.update_wrapper(self, fn)
        attach_declaration(self, self._statics, lambda numbers, names: StaticJitted(fn, numbers, names, options))

    def _arguments(self) -> tuple[object, ...]:
        numbers, names = sorted(self._statics.numbers), sorted(self._statics.names)
        return getattr(self.fn, "__qualname__", ""), self.fn, numbers, names, self._options

    def _without_statics(self, donation: Donation) -> Donation:
        """Return the donation in terms of the remaining arguments. Raises: ParameterError for a static argument."""
        statics = {*self._statics.numbers, *self._statics.names}
        for k, _ in donation.entries:
            if k in statics:
                raise ParameterError(
                    f"{donation.what}: the argument {k!r} is static and donated: a static value has no memory to give up",
                    remedy="leave it out of `donate`",
                )
        entries = [
            (k if isinstance(k, str) else k - sum([n < k for n in self._statics.numbers]), prefix)
            for k, prefix in donation.entries
        ]
        return replace(donation, entries=tuple(entries))

    def _split(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Jitted[..., R], tuple[object, ...], dict[str, object]]:
        names = tuple(kwargs)
        key, fixed, args, kwargs = self._statics.split(args, kwargs)
        jitted = self._jitted.get(key)
        if jitted is None:
            jitted = Jitted(self._statics.bound(fixed, names), self._options_without_statics)
            if len(self._jitted) and _log.isEnabledFor(logging.INFO):
                what = function_name(self.fn), self._statics.values_text(fixed), len(self._jitted)
                _log.info("jit of %s: called with new static values: %s (%d before)", *what)
            self._jitted.put(key, jitted)
        return jitted, args, kwargs

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        jitted, dynamic_args, dynamic_kwargs = self._split(args, kwargs)
        return jitted(*dynamic_args, **dynamic_kwargs)

    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> TracedProgram[..., R]:
        """Return the program for these arguments, as a function of those that are not static."""
        jitted, dynamic_args, dynamic_kwargs = self._split(args, kwargs)
        return jitted.trace(*dynamic_args, **dynamic_kwargs)

    def eval_shape(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the types of the results for these arguments."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drop the programs and executables of this function. Equal ones stay in `fx.cache`."""
        self._jitted.clear()

    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Lowered[..., R]:
        """Return the lowered program for these arguments (values or `Spec`s)."""
        jitted, dynamic_args, dynamic_kwargs = self._split(args, kwargs)
        return jitted.lower(*dynamic_args, **dynamic_kwargs)

    def _bound_to(self, instance: object) -> Any:
        if 0 in self._statics.numbers or tree.structure(instance) != tree.LEAF:
            return _MethodOfTree(self, instance)
        numbers = [k - 1 for k in sorted(self._statics.numbers)]
        options = replace(self._options, donation=self._options.donation and self._options.donation.of_method())
        bound: Callable[..., object] = functools.partial(self.fn, instance)  # type: ignore[arg-type]  # as in Jitted
        return StaticJitted(bound, numbers, sorted(self._statics.names), options)
