"""`jit`: traces, lowers and compiles a function at its first call with new argument types, and reuses the
executable."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, final, overload

from fxad.api.lift import check_function, check_no_statics
from fxad.api.recompilation import recompilation_reason
from fxad.api.shapes import Shapes, symbolic_types
from fxad.core import tree
from fxad.core.dataclasses import dataclass
from fxad.core.lru import LRUCache
from fxad.core.tree import Structure
from fxad.errors import ArgumentError, ParameterError
from fxad.execution.dispatch import Dispatcher, avals_of_arrays, fast_path, operand_path
from fxad.execution.donation import Donate, Donation, donates_any, parse_donation
from fxad.execution.executable import Executable, Lowered, Units, check_choice, lower, specs
from fxad.execution.shardings import Shardings, check_shardings, with_program_shardings
from fxad.ir import Aval
from fxad.passes import Passes, check_passes
from fxad.runtime import default_device
from fxad.sharding import Mesh, get_mesh
from fxad.tracing import placement
from fxad.tracing.array import OPERATION_BY_OPERATION, Array
from fxad.tracing.context import (
    EnclosingTransforms,
    TraceDependencies,
    depend_on_mesh,
    depend_on_transforms,
    enclosing_transforms,
    record_in_outer,
    recording_dependencies,
)
from fxad.tracing.program import (
    Program,
    function_name,
    parameter_names,
    specialize_to_types,
    trace_tree,
    types_of,
)
from fxad.tracing.static_args import (
    Argnames,
    Argnums,
    StaticArguments,
    attach_declaration,
    parameters,
    static_arguments,
)
from fxad.tracing.tracer import Tracer, active_trace, current_binder

P = ParamSpec("P")
R = TypeVar("R")


@final
@dataclass(frozen=True, slots=True)
class _How:
    """Compile options of a function: donated arguments, and the options of `lower`."""

    donation: Donation | None = None
    units: Units = "auto"
    passes: Passes | None = None
    ins: Shardings = None
    outs: Shardings = None
    symbolic: Shapes = None  # of the arguments that are not static

    def lowered(self, program: Program[P, R]) -> Lowered[P, R]:
        """Lower a program with these options."""
        lowered = lower(program, self.units, self.passes)
        if self.donation is None:
            return lowered
        bound = len(program.bound)
        return replace(lowered, donate=tuple([bound + k for k in self.donation.leaves(program)]))


@final
@dataclass(frozen=True, slots=True, eq=False)
class TracedProgram(Program[P, R]):
    """The program of a jitted function for arguments of some types, with the options of `jit`: a stage, as in JAX."""

    how: _How = _How()

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return self.name

    @property
    def args_info(self) -> Any:
        """The types of the arguments: a tree ((positional), {keyword})."""
        return specs(self.in_tree, self.in_avals)

    @property
    def out_info(self) -> Any:
        """The types of the results."""
        return specs(self.out_tree, self.out_avals)

    def lower(self) -> Lowered[P, R]:
        """Lower the program with the options of `jit`."""
        return self.how.lowered(self)


@final
class _Compiled(Generic[P, R]):
    """The programs and executables of a jitted function, by argument types."""

    __slots__ = ("_missed", "_owner", "_simple", "executables", "fn", "how", "on_mesh", "programs")

    def __init__(self, owner: Jitted[P, R], fn: Callable[P, R], how: _How) -> None:
        self._owner = weakref.ref(owner)  # weak: an unreferenced function is freed at once, with its closure
        self.fn, self.how = fn, how
        self.programs: dict[tuple[Structure, tuple[Aval, ...], EnclosingTransforms | None], Program[P, R]] = {}
        self.executables: dict[tuple[Structure, tuple[Aval, ...], Mesh | None], Executable[P, R]] = {}
        self.on_mesh = False  # a program was traced with the mesh of `with mesh:`: each call looks for its own
        # positional arrays only, keyed by their types
        self._simple: dict[tuple[Aval, ...] | None, Dispatcher] = {}
        self._missed = 0

    def types(self, leaves: Sequence[object], in_tree: Structure) -> tuple[Aval, ...]:
        """Return the types of the leaves of a call. Raises: ArgumentError, DTypeError naming the path."""
        return types_of(f"jit of {function_name(self.fn)}", self.fn, leaves, in_tree)

    def program(self, in_tree: Structure, avals: tuple[Aval, ...]) -> Program[P, R]:
        """Return the program for arguments of these types, traced once (unless it closes over tracers)."""
        return self._kept(in_tree, avals, self._for_types)

    def _for_types(self, in_tree: Structure, avals: tuple[Aval, ...]) -> Program[P, R]:
        """Trace the program for these types, or specialize the one for every size."""
        every = avals
        if self.how.symbolic is not None:
            every, _ = symbolic_types("jit", self.fn, self.how.symbolic, avals, in_tree, "symbolic")
        if every == avals:
            known = self._traced(in_tree, avals)
        else:
            known = self._kept(in_tree, every, self._traced)
            known = known.replace(specialize_to_types(known, avals))
        return with_program_shardings(f"jit of {known.name}", known, self.how.ins, self.how.outs)

    def _traced(self, in_tree: Structure, avals: tuple[Aval, ...]) -> Program[P, R]:
        return trace_tree(self.fn, in_tree, avals, function_name(self.fn), parameter_names(self.fn))

    def _kept(
        self,
        in_tree: Structure,
        avals: tuple[Aval, ...],
        make: Callable[[Structure, tuple[Aval, ...]], Program[P, R]],
    ) -> Program[P, R]:
        """Return the known program for these types, or a new one, which is kept unless it closes over tracers."""
        known = self.programs.get((in_tree, avals, None))
        if known is None:
            known = self.programs.get((in_tree, avals, enclosing_transforms()))
            if known is not None:
                (depend_on_mesh if self.on_mesh else depend_on_transforms)()
        if known is None:
            watched = TraceDependencies()
            try:
                with recording_dependencies(watched):
                    known = make(in_tree, avals)
            finally:
                record_in_outer(watched)
            self.on_mesh = self.on_mesh or watched.on_mesh
            if not watched.on_outer_trace and not any(isinstance(b, Tracer) for b in known.bound):
                # a batching rule is traced for the mapped sizes around it, so the program is specific to them
                key = (in_tree, avals, enclosing_transforms() if watched.on_transforms else None)
                known = self.programs.setdefault(key, known)
        return known

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program[P, R]:
        """Return the program for these arguments."""
        leaves, in_tree = tree.flatten((args, kwargs))
        return self.program(in_tree, self.types(leaves, in_tree))

    def general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The slow path of a call: inside a trace, for new types, or for other types than those of the last call."""
        if (here := current_binder()) is OPERATION_BY_OPERATION:
            return self.fn(*args, **kwargs)
        if here is not None and active_trace() is not None:
            leaves, in_tree = tree.flatten((args, kwargs))
            return self.program(in_tree, self.types(leaves, in_tree)).call_flat(leaves)
        known = self._simple.get(avals_of_arrays(args)) if not kwargs else None
        if known is not None:
            self._missed_by_one(known)
            return known.launch(args)
        leaves, in_tree = tree.flatten((args, kwargs))
        fast_types = avals_of_arrays(leaves)
        types = self.types(leaves, in_tree) if fast_types is None else fast_types
        executable = self.executables.get((in_tree, types, get_mesh() if self.on_mesh else None))
        if executable is None:
            executable = self._compile(in_tree, types, leaves)
            self._turn_to(executable._calls)
        elif fast_types is not None:
            self._missed_by_one(executable._calls)
        known = executable._calls
        if known.flat and fast_types is not None and not self.on_mesh:
            self._simple[fast_types] = known
        return known.run(leaves, fast_types)

    def _missed_by_one(self, known: Dispatcher) -> None:
        """Count a miss of the fast call and redirect it to this program. It is redirected only at each power of two, so
        alternating types do not redirect it at each call."""
        self._missed += 1
        if self._missed & (self._missed - 1) == 0:
            self._turn_to(known)

    def _compile(self, in_tree: Structure, types: tuple[Aval, ...], leaves: Sequence[object]) -> Executable[P, R]:
        program = self.program(in_tree, types)
        if _log.isEnabledFor(logging.INFO):
            _log.info(
                "jit of %s: %s",
                program.name,
                recompilation_reason(program, [e.program for e in self.executables.values()]),
            )
        held = [x._buffer if type(x) is Array else None for x in (*program.bound, *leaves)]
        where = placement.target_of(program.name, held, functools.partial(operand_path, program))
        mesh = get_mesh() if self.on_mesh else None
        executable = self.executables[in_tree, types, mesh] = self.how.lowered(program).compile_first_for(where)
        return executable

    def _turn_to(self, calls: Dispatcher) -> None:
        """Redirect the fast call of the function to one of its programs."""
        owner = self._owner()
        if owner is not None and self.on_mesh:
            self._simple.clear()
            owner._call_with(lambda *args, **kwargs: self.general(args, kwargs))
        elif owner is not None:
            owner._call_with(fast_path(calls, self.general))


@final
class Jitted(Generic[P, R]):
    """A function that is compiled once per types of arguments. Make it with `jit`.

    Inside a trace it is a call of a sub-program, traced once per types. As a method of a pytree (`fxad.tree.dataclass`)
    it takes the instance as an argument. As a method of another class, it closes over the instance and is traced at
    each call.
    """

    # `__call__` is a slot, as in `Executable`: it holds the fast call of the last program
    __slots__ = ("__call__", "__dict__", "__weakref__", "_compiled", "fn")

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __init__(self, fn: Callable[P, R], how: _How) -> None:
        self.fn = fn
        general = (compiled := _Compiled(self, fn, how)).general
        self._compiled = compiled
        self._call_with(lambda *args, **kwargs: general(args, kwargs))
        functools.update_wrapper(self, fn)
        attach_declaration(self, None, lambda numbers, names: StaticJitted(fn, numbers, names, how))

    def _call_with(self, call: Callable[..., R]) -> None:
        object.__setattr__(self, "__call__", call)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedProgram[P, R]:
        """Return the program for these arguments, traced once per types (unless it closes over tracers)."""
        p = self._compiled.trace(args, kwargs)
        return TracedProgram(p.jaxpr, p.in_tree, p.out_tree, p.bound, p.names, p.name, self._compiled.how)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered[P, R]:
        """Return the lowered program for these arguments (values or `Spec`s)."""
        return self._compiled.how.lowered(self._compiled.trace(args, kwargs))

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the types of the results for these arguments."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drop the programs and executables of this function. Equal ones stay in `fx.cache`."""
        self._compiled.programs.clear()
        self._compiled.executables.clear()

    @property
    def _executables(self) -> dict[tuple[Structure, tuple[Aval, ...], Mesh | None], Executable[P, R]]:
        return self._compiled.executables

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if tree.structure(instance) != _LEAF:  # the instance is a pytree: an ordinary argument
            return functools.partial(self, instance)  # type: ignore[arg-type]  # the first parameter is bound
        # closed over, as by any bound method; it may have changed, so each call traces, but compiles only new programs
        how = self._compiled.how
        how = replace(how, donation=how.donation and how.donation.of_method())
        return Jitted(functools.partial(self.fn, instance), how)  # type: ignore[arg-type]  # as above

    def __repr__(self) -> str:
        return f"<jit {function_name(self.fn)}>"


@final
class StaticJitted(Generic[P, R]):
    """A function with static arguments, compiled once per their values and the types of the other arguments.

    Make it with `jit`. It keeps the compiled functions of the most recently used static values.
    """

    __slots__ = ("__dict__", "__weakref__", "_how", "_jitted", "_others", "_statics", "fn")

    def __init__(
        self,
        fn: Callable[P, R],
        argnums: Argnums,
        argnames: Argnames,
        how: _How,
    ) -> None:
        self.fn = fn
        self._statics = StaticArguments(f"jit of {function_name(fn)}", fn, argnums, argnames)
        self._how = how
        self._others = replace(how, donation=how.donation and self._without_statics(how.donation))
        self._jitted: LRUCache[Hashable, Jitted[..., R]] = LRUCache(512)
        functools.update_wrapper(self, fn)
        attach_declaration(self, self._statics, lambda numbers, names: StaticJitted(fn, numbers, names, how))

    def _without_statics(self, given_up: Donation) -> Donation:
        """Return the donation in terms of the remaining arguments. Raises: ParameterError for a static argument."""
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
            known = Jitted(self._statics.bound(fixed), self._others)
            if len(self._jitted) and _log.isEnabledFor(logging.INFO):
                what = self._statics.described(fixed), len(self._jitted)
                _log.info("jit of %s: %s is new to a function known for %d others", function_name(self.fn), *what)
            self._jitted.put(key, known)
        return known, left, named

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        jitted, left, named = self._split(args, kwargs)
        return jitted(*left, **named)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedProgram[..., R]:
        """Return the program for these arguments, as a function of those that are not static."""
        jitted, left, named = self._split(args, kwargs)
        return jitted.trace(*left, **named)

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the types of the results for these arguments."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drop the programs and executables of this function. Equal ones stay in `fx.cache`."""
        self._jitted = LRUCache(512)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered[..., R]:
        """Return the lowered program for these arguments (values or `Spec`s)."""
        jitted, left, named = self._split(args, kwargs)
        return jitted.lower(*left, **named)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        partial: Any = functools.partial  # no type expresses the removal of the first parameter
        if 0 in self._statics.numbers or tree.structure(instance) != _LEAF:
            return partial(self, instance)
        numbers = [k - 1 for k in sorted(self._statics.numbers)]
        how = replace(self._how, donation=self._how.donation and self._how.donation.of_method())
        return StaticJitted(partial(self.fn, instance), numbers, sorted(self._statics.names), how)

    def __repr__(self) -> str:
        return f"<jit {function_name(self.fn)}>"


_LEAF: Final = tree.structure(0)
_log: Final = logging.getLogger("fxad")


class JaxOptions(TypedDict, total=False):
    """Options of `jit` by JAX's names."""

    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Sequence[str] | None
    in_shardings: object
    out_shardings: object
    keep_unused: bool
    inline: bool
    device: None
    backend: str | None
    compiler_options: None
    symbolic: Shapes


class _Decorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> Jitted[P, R]: ...


class _StaticDecorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> StaticJitted[P, R]: ...


@overload
def jit(  # type: ignore[overload-overlap]
    f: Program[P, R],
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    **options: Unpack[JaxOptions],
) -> Executable[P, R]: ...
@overload
def jit(
    f: Callable[P, R],
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    **options: Unpack[JaxOptions],
) -> Jitted[P, R]: ...
@overload
def jit(
    f: Callable[P, R],
    *,
    static_argnums: Argnums | None = ...,
    static_argnames: Argnames | None = ...,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    **options: Unpack[JaxOptions],
) -> StaticJitted[P, R]: ...
@overload
def jit(*, donate: Donate, units: Units = ..., passes: Passes | None = ...) -> _Decorator: ...
@overload
def jit(*, units: Units, passes: Passes | None = ...) -> _Decorator: ...
@overload
def jit(*, passes: Passes | None) -> _Decorator: ...
@overload
def jit(**options: Unpack[JaxOptions]) -> _Decorator: ...
@overload
def jit(
    *,
    static_argnums: Argnums | None = ...,
    static_argnames: Argnames | None = ...,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    **options: Unpack[JaxOptions],
) -> _StaticDecorator: ...
def jit(
    f: Any = _LEAF,
    *,
    static_argnums: Argnums | None = (),
    static_argnames: Argnames | None = (),
    donate: Donate = (),
    units: Units = "auto",
    passes: Passes | None = None,
    symbolic: Shapes = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: Shardings = None,
    out_shardings: Shardings = None,
    keep_unused: bool = False,  # noqa: ARG001
    inline: bool = False,  # noqa: ARG001
    device: None = None,
    backend: str | None = None,
    compiler_options: None = None,
) -> Any:
    """Compile a function when it is called, or a `Program` at once.

    Static arguments are hashable values, given to the function as they are: it is compiled for each of them. So are those
    that `f` declares itself, as `grad(g, static_argnums=0)`. Donated
    arguments are gone after a call, and results are written where they were: name them by position or name, or map
    names to tree prefixes of bools, as in `donate={"state": (True, False)}`. Without a function it is a decorator:
    `@jit(static_argnames="n", donate="state")`. What repeats in it is compiled once: `units` and `passes`
    are those of `lower`.

    `symbolic` names sizes of the arguments that are not static, as the `in_shapes` of `mask`: the function is traced once
    for every size, and compiled for each. `bucketed` compiles fewer programs.

    `in_shardings` and `out_shardings` are tree prefixes of `NamedSharding`s, of `PartitionSpec`s of the mesh of
    `with mesh:`, or of None for what XLA decides: they say
    how devices divide the arguments that are not static, and the results. Arguments that are divided among devices
    already are taken as they are.

    `donate_argnums` and `donate_argnames` are JAX's names for `donate`. Unused arguments are always kept, and a call in a
    trace is inlined by XLA, so `keep_unused` and `inline` change nothing. Other names of JAX are refused if they ask for
    something.

    Rule:   the function must be pure: it runs once per types of arguments, and reads the values that it closes over at
            that time. Inside a trace there is no donation: the outer program decides.
    Cost:   see `trace`, `lower`; equal programs share one executable.
    Raises: ParameterError for a `donate` that is not an argument or is static, and for invalid `units` or `passes`;
            DonationWarning, once per types of arguments, for memory that no result can use.
    """
    _check_jax_options(
        device=device,
        backend=None if isinstance(backend, str) and backend == default_device().platform else backend,
        compiler_options=compiler_options,
    )
    static_argnums = () if static_argnums is None else static_argnums  # JAX's defaults
    static_argnames = () if static_argnames is None else static_argnames
    donate = _with_jax_names(donate, donate_argnums, donate_argnames)
    if f is _LEAF:  # jit called without a function: a decorator
        options: dict[str, object] = {
            "static_argnums": static_argnums,
            "static_argnames": static_argnames,
            "donate": donate,
            "units": units,
            "passes": passes,
            "in_shardings": in_shardings,
            "out_shardings": out_shardings,
            "symbolic": symbolic,
        }
        return functools.partial(jit, **options)
    check_choice("jit", units)
    check_passes("jit", passes)
    for side, given in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        check_shardings(f"jit: {side}", given)
    if isinstance(f, Program):
        if symbolic is not None:
            raise ArgumentError(
                f"jit of {f.name}: symbolic names sizes of the arguments of a function, and {f.name} is a Program",
                remedy="leave out symbolic: trace(f, Spec('(n, 3)')) gives a program for every size",
            )
        check_no_statics("jit", f, static_argnums, static_argnames)
        f = with_program_shardings(f"jit of {f.name}", f, in_shardings, out_shardings)
        return lower(f, units, passes).compile(donate=donate)
    check_function("jit", f)
    how = _How(
        parse_donation(f"jit of {function_name(f)}", donate, *parameters(f)) if donates_any(donate) else None,
        units,
        passes,
        in_shardings,
        out_shardings,
        symbolic,
    )
    statics = static_arguments(f"jit of {function_name(f)}", f, static_argnums, static_argnames)
    return Jitted(f, how) if statics is None else StaticJitted(f, static_argnums, static_argnames, how)


_INSTEAD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "device": "put the arguments on the device: device_put(x, device)",
        "backend": "put the arguments on a device of that platform: device_put(x, device)",
        "compiler_options": "lower(trace(f, x)).compile(CompileOptions(...))",
    }
)


def _check_jax_options(**options: object) -> None:
    """Raises: ParameterError for what jit cannot do."""
    for name, value in options.items():
        if value is not None:
            raise ParameterError(f"jit: {name} is {value!r:.60}, which jit does not take", remedy=_INSTEAD[name])


def _with_jax_names(donate: Donate, argnums: object, argnames: object) -> Donate:
    """The donation of `donate`, or of JAX's names. Raises: ArgumentError for both."""
    named: list[Any] = []
    for more in (argnums, argnames):
        named += [more] if isinstance(more, int | str) else list(more) if isinstance(more, Sequence) else []
    if named and donates_any(donate):
        raise ArgumentError(
            f"jit: donate is {donate!r:.60}, and donate_argnums or donate_argnames is given too",
            remedy="name all donated arguments in donate",
        )
    return named or donate


__all__ = ["Jitted", "StaticJitted", "jit"]
