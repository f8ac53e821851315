"""`jit`: traces, lowers and compiles a function at its first call with new argument types, and reuses the
executable."""

from __future__ import annotations

import functools
import logging
import weakref
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType, MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    final,
    overload,
)

import numpy as np

from fxad.api.decorator_form import NoFunction, decorator_form
from fxad.api.lift import check_function, check_no_statics, importable_name, pickles_by_value
from fxad.api.symbolic_shapes import Shapes, symbolic_types
from fxad.core import tree
from fxad.core.dataclasses import dataclass
from fxad.core.exact_key import exact_key
from fxad.core.lru import LRUCache
from fxad.core.tree import ExactStructure
from fxad.errors import ArgumentError, ParameterError, RecompilationWarning, shown, warn
from fxad.execution.dispatch import FAST_CALL, avals_of_arrays, fast_path
from fxad.execution.donation import Donate, Donation, donates_any, parse_donation
from fxad.execution.executable import Executable, Lowered, Units, check_choice, lower
from fxad.execution.shardings import with_program_shardings
from fxad.ir import Aval, source_text
from fxad.operations.arguments import argument_keys, parse_bytes
from fxad.passes import Passes, check_passes
from fxad.primitives.marks import with_budget
from fxad.runtime import ReleaseReason, active_cache, default_device, parts_of
from fxad.sharding import Shardings, check_shardings, get_mesh
from fxad.support.constants import CALL_BYTES
from fxad.tracing import placement
from fxad.tracing.array import OPERATION_BY_OPERATION, Array, current_binder
from fxad.tracing.context import (
    TraceDependencies,
    depend_on_mesh,
    depend_on_transforms,
    enclosing_transforms,
    record_in_outer,
    recording_dependencies,
)
from fxad.tracing.program import (
    Program,
    flatten_call,
    function_name,
    parameter_names,
    specialize_to_types,
    trace_tree,
    tree_difference,
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
from fxad.tracing.tracer import Tracer, active_trace, user_source

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class _JitOptions:
    """Compile options of a function: donated arguments, and the options of `lower`."""

    donation: Donation | None = None
    units: Units = "auto"
    passes: Passes | None = None
    in_shardings: Shardings = None
    out_shardings: Shardings = None
    symbolic: Shapes = None  # of the arguments that are not static
    budget: int | None = None  # bytes of temporaries

    def lower(self, program: Program[P, R]) -> Lowered[P, R]:
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

    options: _JitOptions = _JitOptions()

    __repr__ = Program.__repr__

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return self.name

    def lower(self) -> Lowered[P, R]:
        """Lower the program with the options of `jit`."""
        return self.options.lower(self)


def _target_of(program: Program[..., object], leaves: Sequence[object]) -> placement.Target | None:
    """Return the devices that hold the arguments of a call; None if all may move."""
    buffers = [x._buffer if type(x) is Array else None for x in (*program.bound, *leaves)]
    return placement.target_of_committed(program.name, buffers, program.operand_path)


_ALL_REASONS: Final = int(ReleaseReason.EXECUTABLES | ReleaseReason.CALLS)


@final
class _Held(Generic[P, R]):
    """A program or an executable of a jitted function for arguments of some types. It is a `HeldCall` of the cache,
    which says when such calls are dropped."""

    __slots__ = ("__weakref__", "_by_types", "_reference_bits", "array_types", "executable", "key", "program")

    def __init__(
        self, by_types: _ByTypes[P, R], key: Hashable, program: Program[P, R], executable: Executable[P, R] | None
    ) -> None:
        self._by_types = weakref.ref(by_types)
        self.key, self.program, self.executable = key, program, executable
        self.array_types: tuple[Aval, ...] | None = None  # the key among those of calls with positional arrays only
        self._reference_bits = 0  # one for each `ReleaseReason`

    @property
    def bytes(self) -> int:
        """The bytes of Python objects, and of copies of closed-over arrays."""
        return CALL_BYTES + sum([b.nbytes for b in self.program.bound if isinstance(b, np.ndarray)])

    def mark_used(self) -> None:
        """Set the reference bits."""
        self._reference_bits = _ALL_REASONS

    def release(self, reason: ReleaseReason) -> bool:
        """Answer a request of the cache: see `HeldCall`."""
        by_types = self._by_types()
        if by_types is None:
            return True
        if self._reference_bits & reason:
            self._reference_bits &= ~reason
            return False
        if by_types.leave_fast_path(self):
            self._reference_bits = _ALL_REASONS & ~reason
            return False
        by_types.drop(self)
        return True


@final
class _ByTypes(Generic[P, R]):
    """The programs and executables of a jitted function, by argument types. The active cache bounds them.

    programs         (structure, types, transformations around the call or None) -> a program
    executables      (structure, types, mesh or None) -> an executable
    _by_array_types  types of a call with positional arrays only -> its executable, without flattening
    _fast            the executable that the fast path runs: its caller compares types itself, and counts no uses
    """

    __slots__ = (
        "__weakref__", "_by_array_types", "_fast", "_misses", "_owner", "executables", "fn", "on_mesh", "options",
        "programs",
    )  # fmt: skip

    def __init__(self, owner: Jitted[P, R], fn: Callable[P, R], options: _JitOptions) -> None:
        self._owner = weakref.ref(owner)  # weak: an unreferenced function is freed at once, with its closure
        self.fn, self.options = fn, options
        self.programs: dict[Hashable, _Held[P, R]] = {}
        self.executables: dict[Hashable, _Held[P, R]] = {}
        self.on_mesh = False  # a program was traced with the mesh of `with mesh:`: each call looks for its own
        self._by_array_types: dict[tuple[Aval, ...] | None, _Held[P, R]] = {}
        self._fast: _Held[P, R] | None = None
        self._misses = 0

    def leave_fast_path(self, held: _Held[P, R]) -> bool:
        """Use no fast path if it runs this executable. Return True if it did."""
        if self._fast is not held:
            return False
        self._use_no_fast_path()
        return True

    def drop(self, held: _Held[P, R]) -> None:
        """Drop a program or an executable."""
        table = self.programs if held.executable is None else self.executables
        table.pop(held.key, None)
        self._by_array_types.pop(held.array_types, None)

    def _hold(self, key: Hashable, program: Program[P, R], executable: Executable[P, R] | None = None) -> _Held[P, R]:
        """Store a program or an executable, and let the active cache hold it."""
        table = self.programs if executable is None else self.executables
        new = _Held(self, key, program, executable)
        held = table.setdefault(key, new)
        if held is not new:  # another thread has made it
            return held
        parts = () if executable is None else parts_of(executable._dispatcher.loaded)
        active_cache().hold_call(held, held.bytes, parts)
        return held

    def flatten(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[list[Any], ExactStructure]:
        """Return the leaves of the arguments of a call, and their exact structure. Raises: ArgumentError."""
        return flatten_call(f"jit of {function_name(self.fn)}", self.fn, args, kwargs)

    def types(self, leaves: Sequence[object], exact: ExactStructure) -> tuple[Aval, ...]:
        """Return the types of the leaves of a call. Raises: ArgumentError, DTypeError naming the path."""
        return types_of(f"jit of {function_name(self.fn)}", self.fn, leaves, exact.structure)

    def program(self, exact: ExactStructure, avals: tuple[Aval, ...]) -> Program[P, R]:
        """Return the program for arguments of these types, traced once (unless it closes over tracers)."""
        return self._cached(exact, avals, self._new_program)

    def _new_program(self, exact: ExactStructure, avals: tuple[Aval, ...]) -> Program[P, R]:
        """Trace the program for these types, or specialize the one for every size."""
        symbolic_avals = avals
        if self.options.symbolic is not None:
            symbolic = self.options.symbolic
            symbolic_avals, _ = symbolic_types("jit", self.fn, symbolic, avals, exact.structure, "symbolic")
        if symbolic_avals == avals:
            program = self._trace(exact, avals)
        else:
            program = self._cached(exact, symbolic_avals, self._trace)
            program = program.replace(specialize_to_types(program, avals))
        options = self.options
        if options.budget is not None:
            program = program.replace(with_budget(program.jaxpr, options.budget))
        return with_program_shardings(f"jit of {program.name}", program, options.in_shardings, options.out_shardings)

    def _trace(self, exact: ExactStructure, avals: tuple[Aval, ...]) -> Program[P, R]:
        name, names = function_name(self.fn), parameter_names(self.fn)
        return trace_tree(self.fn, exact.structure, avals, name, names)

    def _cached(
        self,
        exact: ExactStructure,
        avals: tuple[Aval, ...],
        make: Callable[[ExactStructure, tuple[Aval, ...]], Program[P, R]],
    ) -> Program[P, R]:
        """Return the cached program for these types, or a new one, which is cached unless it closes over tracers.

        A key ends with the transformations around the call if the program depends on them, and with None if it does
        not. If it depends on them, so does a trace around the call.
        """
        held = self.programs.get((exact, avals, None))
        if held is None:
            held = self.programs.get((exact, avals, enclosing_transforms()))
            if held is not None:
                (depend_on_mesh if self.on_mesh else depend_on_transforms)()
        if held is not None:
            held.mark_used()
            return held.program
        dependencies = TraceDependencies()
        try:
            with recording_dependencies(dependencies):
                program = make(exact, avals)
        finally:
            record_in_outer(dependencies)
        self.on_mesh = self.on_mesh or dependencies.on_mesh
        if not dependencies.on_outer_trace and not any(isinstance(b, Tracer) for b in program.bound):
            # such as a program with a batching rule, which is traced for the mapped sizes around it
            key = exact, avals, enclosing_transforms() if dependencies.on_transforms else None
            program = self._hold(key, program).program
        return program

    def trace(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Program[P, R]:
        """Return the program for these arguments."""
        leaves, exact = self.flatten(args, kwargs)
        return self.program(exact, self.types(leaves, exact))

    def lower(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Lowered[P, R]:
        """Return the lowered program for these arguments, which compiles for the devices that hold them."""
        leaves, exact = self.flatten(args, kwargs)
        program = self.program(exact, self.types(leaves, exact))
        return replace(self.options.lower(program), operands=_target_of(program, leaves))

    def clear(self) -> None:
        """Drop the programs and executables."""
        self.programs.clear()
        self.executables.clear()
        self._by_array_types.clear()
        self.on_mesh = False
        self._use_no_fast_path()

    def _use_no_fast_path(self) -> None:
        self._fast = None
        owner = self._owner()
        if owner is not None:
            owner._set_call(self.call)

    def call(self, /, *args: Any, **kwargs: Any) -> object:
        """Call the function, also inside a trace, with new types, or with other types than those of the last call."""
        binder = current_binder()
        if binder is OPERATION_BY_OPERATION:  # inside `disable_jit`
            return self.fn(*args, **kwargs)
        if binder is not None and active_trace() is not None:
            leaves, exact = self.flatten(args, kwargs)
            return self.program(exact, self.types(leaves, exact)).call_flat(leaves)
        held = self._by_array_types.get(avals_of_arrays(args)) if not kwargs else None
        if held is not None and held.executable is not None:
            self._count_miss(held)
            return held.executable._dispatcher.call_arrays(args)
        leaves, exact = self.flatten(args, kwargs)
        array_types = avals_of_arrays(leaves)
        types = self.types(leaves, exact) if array_types is None else array_types
        held = self.executables.get((exact, types, get_mesh() if self.on_mesh else None))
        if held is None:
            held = self._compile(exact, types, leaves)
            self._redirect_to(held)
        elif array_types is not None:
            self._count_miss(held)
        else:
            held.mark_used()
        assert held.executable is not None, "an executable"
        dispatcher = held.executable._dispatcher
        if dispatcher.takes_arrays and array_types is not None and not self.on_mesh:
            held.array_types = array_types
            self._by_array_types[array_types] = held
        return dispatcher.call_leaves(leaves, array_types)

    def _count_miss(self, held: _Held[P, R]) -> None:
        """Count a call that the fast path did not handle, and redirect the fast path to its program if the count is a power
        of two. So alternating types do not redirect it at each call."""
        held.mark_used()
        self._misses += 1
        if self._fast is None or self._misses & (self._misses - 1) == 0:
            self._redirect_to(held)

    def _compile(self, exact: ExactStructure, types: tuple[Aval, ...], leaves: Sequence[object]) -> _Held[P, R]:
        program = self.program(exact, types)
        line = source_text(user_source(2))
        if _log.isEnabledFor(logging.INFO):
            _log.info("jit of %s: %s; called at %s", program.name, self._reason(program), line)
        cache = active_cache()
        compiled = cache.compilations()
        mesh = get_mesh() if self.on_mesh else None
        executable = self.options.lower(program).compile_for_operands(_target_of(program, leaves))
        if line and cache.compilations() != compiled and cache.count_compiled_at(line) == _MANY_COMPILATIONS:
            warn(
                f"jit of {program.name}: the calls at {line} have compiled {_MANY_COMPILATIONS} programs. The last reason:"
                f" {self._reason(program)}. Pad to a few sizes (fx.bucketed), compile for every size (symbolic), make the"
                " function once, or see fx.cache.explain",
                RecompilationWarning,
            )
        return self._hold((exact, types, mesh), program, executable)

    def _reason(self, program: Program[P, R]) -> str:
        return _recompilation_reason(program, [held.program for held in self.executables.copy().values()])

    def _redirect_to(self, held: _Held[P, R]) -> None:
        """Redirect the fast path of the function to one of its programs."""
        owner = self._owner()
        if self.on_mesh:
            self._by_array_types.clear()
            self._use_no_fast_path()
        elif owner is not None and held.executable is not None:
            if self._fast is not None:
                self._fast.mark_used()  # its calls were not counted
            self._fast = held
            owner._set_call(fast_path(held.executable._dispatcher, self.call, ordered=True))


_MANY_COMPILATIONS: Final = 10  # for the calls at one line


def _recompilation_reason(program: Program[..., object], compiled: Sequence[Program[..., object]]) -> str:
    """Return the reason for a recompilation, as a line of the log: the difference between a program and the nearest of
    those that are compiled."""
    if not compiled:
        arguments = ", ".join([f"{path} {a}" for path, a in zip(program.paths, program.in_avals, strict=True)][:_SHOWN])
        return f"called for the first time, with {arguments or 'no arguments'}{_more(len(program.in_avals))}"
    same_tree = [other for other in compiled if other.in_tree == program.in_tree]
    if not same_tree:
        keywords = dict.fromkeys(program.kwargs_tree.entries())
        return tree_difference(compiled[-1], program.in_tree, program.args_tree.num_children, keywords).text
    changes = min([_changes(program, other) for other in reversed(same_tree)], key=len)
    if not changes:
        if all([exact_key(program.in_tree) != exact_key(other.in_tree) for other in same_tree]):
            return "the keys of a dict have another order"
        return "the argument types are not new: it closes over other values, or other maps are around it"
    return f"{', '.join(changes[:_SHOWN])}{_more(len(changes))}"


_SHOWN: Final = 3


def _more(n: int) -> str:
    return f" and {n - _SHOWN} more" if n > _SHOWN else ""


def _changes(program: Program[..., object], other: Program[..., object]) -> list[str]:
    leaves = zip(program.paths, program.in_avals, other.in_avals, strict=True)
    return [f"{path} is {now}, it was {before}" for path, now, before in leaves if now != before]


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


_COPY: Final = "_fxad_copy"
_BY_VALUE: Final = "._function_by_value"


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
        name, *others = arguments
        made: Any = self
        made.__init__(*others)
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

    @property
    def _function_by_value(self) -> Callable[P, R]:
        """A copy of the function that pickle finds in a script as an attribute of this object, and cloudpickle pickles by
        value. The script has this object under the name of the function itself."""
        fn: Any = self.fn
        if type(fn) is not FunctionType or fn.__module__ != "__main__" or fn.__qualname__.endswith(_BY_VALUE):
            return self.fn
        copy = self.__dict__.get(_COPY)
        if copy is None:
            copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
            functools.update_wrapper(copy, fn)
            del copy.__dict__["__wrapped__"]
            copy.__kwdefaults__ = fn.__kwdefaults__
            copy.__qualname__ = fn.__qualname__ + _BY_VALUE
            copy = self.__dict__.setdefault(_COPY, copy)
        return cast("Callable[P, R]", copy)  # the same code

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

    def __init__(self, fn: Callable[P, R], options: _JitOptions) -> None:
        self.fn = fn
        self._by_types = _ByTypes(self, fn, options)
        self._set_call(self._by_types.call)
        functools.update_wrapper(self, fn)
        attach_declaration(self, None, lambda numbers, names: StaticJitted(fn, numbers, names, options))

    def _arguments(self) -> tuple[object, ...]:
        return getattr(self.fn, "__qualname__", ""), self._function_by_value, self._by_types.options

    def _set_call(self, call: Callable[..., object]) -> None:
        """Let this function handle the calls."""
        object.__setattr__(self, FAST_CALL, call)

    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> TracedProgram[P, R]:
        """Return the program for these arguments, traced once per types (unless it closes over tracers)."""
        p = self._by_types.trace(args, kwargs)
        return TracedProgram(p.jaxpr, p.in_tree, p.out_tree, p.bound, p.names, p.name, self._by_types.options)

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
        options: _JitOptions,
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
        return getattr(self.fn, "__qualname__", ""), self._function_by_value, numbers, names, self._options

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
        key, fixed, args, kwargs = self._statics.split(args, kwargs)
        jitted = self._jitted.get(key)
        if jitted is None:
            jitted = Jitted(self._statics.bound(fixed), self._options_without_statics)
            if len(self._jitted) and _log.isEnabledFor(logging.INFO):
                what = function_name(self.fn), self._statics.values_text(fixed), len(self._jitted)
                _log.info("jit of %s: called with new static values: %s (%d before)", *what)
            self._jitted.put(key, jitted)
        return jitted, args, kwargs

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        jitted, others, named = self._split(args, kwargs)
        return jitted(*others, **named)

    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> TracedProgram[..., R]:
        """Return the program for these arguments, as a function of those that are not static."""
        jitted, others, named = self._split(args, kwargs)
        return jitted.trace(*others, **named)

    def eval_shape(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the types of the results for these arguments."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drop the programs and executables of this function. Equal ones stay in `fx.cache`."""
        self._jitted.clear()

    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Lowered[..., R]:
        """Return the lowered program for these arguments (values or `Spec`s)."""
        jitted, others, named = self._split(args, kwargs)
        return jitted.lower(*others, **named)

    def _bound_to(self, instance: object) -> Any:
        if 0 in self._statics.numbers or tree.structure(instance) != tree.LEAF:
            return _MethodOfTree(self, instance)
        numbers = [k - 1 for k in sorted(self._statics.numbers)]
        options = replace(self._options, donation=self._options.donation and self._options.donation.of_method())
        bound: Callable[..., object] = functools.partial(self.fn, instance)  # type: ignore[arg-type]  # as in Jitted
        return StaticJitted(bound, numbers, sorted(self._statics.names), options)


_log: Final = logging.getLogger("fxad")


class JaxOptions(TypedDict, total=False):
    """Options of `jit` by JAX's names, and `symbolic`. Shardings are checked when they are read: a prefix is any tree."""

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


class _JitDecorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> Jitted[P, R]: ...


class _StaticDecorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> StaticJitted[P, R]: ...


@overload
def jit(f: NoFunction, **options: Any) -> Jitted[..., Any]: ...
@overload
def jit(  # type: ignore[overload-overlap]  # a Program is callable, and has an overload of its own
    f: Program[P, R],
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> Executable[P, R]: ...
@overload
def jit(
    f: Callable[P, R],
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
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
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> StaticJitted[P, R]: ...
@overload
def jit(
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> _JitDecorator: ...
@overload
def jit(
    *,
    static_argnums: Argnums | None = ...,
    static_argnames: Argnames | None = ...,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> _StaticDecorator: ...
@decorator_form
def jit(
    f: Any,
    *,
    static_argnums: Argnums | None = (),
    static_argnames: Argnames | None = (),
    donate: Donate = (),
    units: Units = "auto",
    passes: Passes | None = None,
    budget: int | str | None = None,
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

    Static arguments are hashable values that are passed to the function unchanged. It is compiled for each of them.
    Numbers of other types or bits are others (1 and 1.0, 0.0 and -0.0), also in tuples, frozensets and dataclasses; of
    other classes, objects that are equal are one value.
    Arguments that `f` itself declares static, such as `grad(g, static_argnums=0)`, are static too. A call deletes the
    donated arguments, and its results reuse their memory. Name them by position or name, or map names to tree prefixes
    of bools, as in `donate={"state": (True, False)}`. Without a function, `jit` is a decorator:
    `@jit(static_argnames="n", donate="state")`. `units` and `passes` are those of `lower`.

    `budget` is that of `Lowered.compile`: each executable has at most so many bytes of temporaries, or the call raises with
    the least bytes that were reached. So has an executable of which the function becomes part, and an exported one.

    `symbolic` names sizes of the arguments that are not static, as `in_shapes` of `mask` does. The function is traced
    once for all sizes, and compiled for each. `bucketed` compiles fewer programs.

    `in_shardings` and `out_shardings` divide the arguments that are not static, and the results, among devices. They are
    tree prefixes of `NamedSharding`s, of `PartitionSpec`s of the mesh of `with mesh:`, or of None where XLA decides.
    Without them, arguments that are already divided stay as they are.

    `donate_argnums` and `donate_argnames` are JAX's names for `donate`. Unused arguments are always kept, and XLA inlines
    a call in a trace, so `keep_unused` and `inline` have no effect. Other options of JAX must have their defaults.

    Rule:   the function must be pure: it runs once per types of arguments, and reads the values that it closes over at
            that time. Inside a trace there is no donation: the outer program decides.
    Cost:   see `trace`, `lower`; equal programs share one executable.
    Raises: ParameterError for a `donate` that is not an argument or is static, for invalid `units` or `passes`, and at
            a call for a budget into which nothing fits; ArgumentError for a budget that is no number of bytes;
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
    check_choice("jit", units)
    check_passes("jit", passes)
    check_shardings("jit: in_shardings", in_shardings)
    check_shardings("jit: out_shardings", out_shardings)
    if isinstance(f, Program):
        if symbolic is not None:
            raise ArgumentError(
                f"jit of {f.name}: symbolic names sizes of the arguments of a function, and {f.name} is a Program",
                remedy="leave out symbolic: trace(f, Spec('(n, 3)')) gives a program for every size",
            )
        check_no_statics("jit", f, static_argnums, static_argnames)
        f = with_program_shardings(f"jit of {f.name}", f, in_shardings, out_shardings)
        return lower(f, units, passes).compile(donate=donate, budget=budget)
    check_function("jit", f)
    options = _JitOptions(
        parse_donation(f"jit of {function_name(f)}", donate, *parameters(f)) if donates_any(donate) else None,
        units,
        passes,
        in_shardings,
        out_shardings,
        symbolic,
        None if budget is None else parse_bytes("jit", budget),
    )
    statics = static_arguments(f"jit of {function_name(f)}", f, static_argnums, static_argnames)
    return Jitted(f, options) if statics is None else StaticJitted(f, static_argnums, static_argnames, options)


_INSTEAD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "device": "put the arguments on the device: device_put(x, device)",
        "backend": "put the arguments on a device of that platform: device_put(x, device)",
        "compiler_options": "lower(trace(f, x)).compile(CompileOptions(...))",
    }
)


def _check_jax_options(**options: object) -> None:
    """Raise ParameterError for an option of JAX that jit does not have."""
    for name, value in options.items():
        if value is not None:
            raise ParameterError(f"jit: {name} is {shown(value)}, which jit does not take", remedy=_INSTEAD[name])


def _with_jax_names(donate: Donate, argnums: object, argnames: object) -> Donate:
    """Return the donation of `donate`, or of JAX's names. Raises: ArgumentError for both."""
    named: list[Any] = []  # `parse_donation` refuses what names no arguments
    for arguments in (argnums, argnames):
        if arguments is not None:
            keys = argument_keys(arguments)
            named += [arguments] if keys is None else keys
    if named and donates_any(donate):
        raise ArgumentError(
            f"jit: donate is {shown(donate)}, and donate_argnums or donate_argnames is given too",
            remedy="name all donated arguments in donate",
        )
    return named or donate


__all__ = ["Jitted", "StaticJitted", "jit"]
