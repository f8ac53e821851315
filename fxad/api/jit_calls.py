"""A call of a jitted function: its program and its executable, found by the types of the arguments and made once, and
the one that the fast path runs."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, final

import numpy as np

from fxad.api.recompilation import recompilation_reason
from fxad.api.symbolic_shapes import Shapes, symbolic_types
from fxad.core.dataclasses import dataclass
from fxad.core.trees.tree import ExactStructure
from fxad.errors import RecompilationWarning, warn
from fxad.execution.dispatch import avals_of_arrays, fast_path
from fxad.execution.donation import Donation
from fxad.execution.executable import Executable, Lowered, Units, lower
from fxad.execution.shardings import with_program_shardings
from fxad.ir import Aval, source_text
from fxad.operations.number_types import CallType
from fxad.passes import Passes
from fxad.primitives.marks import with_budget
from fxad.runtime import ReleaseReason, active_cache, parts_of
from fxad.sharding import Shardings, get_mesh
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
from fxad.tracing.program import Program, function_name, specialize_to_types
from fxad.tracing.trace import flatten_call, parameter_names, trace_tree, types_of
from fxad.tracing.tracer import Tracer, active_trace, user_source

P = ParamSpec("P")
R = TypeVar("R")

_log: Final = logging.getLogger("fxad")


@final
@dataclass(frozen=True, slots=True)
class JitOptions:
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
        return lowered if self.donation is None else replace(lowered, donate=self.donated(program))

    def donated(self, program: Program[..., object]) -> tuple[int, ...]:
        """Return the operands of a program's jaxpr that the calls donate."""
        bound = len(program.bound)
        return () if self.donation is None else tuple([bound + k for k in self.donation.leaves(program)])


def _target_of(program: Program[..., object], leaves: Sequence[object]) -> placement.Target | None:
    """Return the devices that hold the arguments of a call; None if all may move."""
    buffers = [x._buffer if type(x) is Array else None for x in (*program.bound, *leaves)]
    return placement.target_of_committed(program.name, buffers, program.operand_path)


_ALL_REASONS: Final = int(ReleaseReason.EXECUTABLES | ReleaseReason.CALLS)


@final
class _Held(Generic[P, R]):
    """A program or an executable of a jitted function for arguments of some types. It is a `HeldCall` of the cache:
    calls are dropped by second chance (CLOCK), as `xla.cache.HeldCall` explains."""

    __slots__ = ("__weakref__", "_by_types", "_reference_bits", "array_types", "executable", "key", "program")

    def __init__(
        self, by_types: ByTypes[P, R], key: Hashable, program: Program[P, R], executable: Executable[P, R] | None
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
        """Answer a request of the cache by the table of `HeldCall`: True if the call is dropped."""
        by_types = self._by_types()
        if by_types is None:
            return True
        if self._reference_bits & reason:  # used: a second chance
            self._reference_bits &= ~reason
            return False
        if by_types.leave_fast_path(self):  # in use without setting bits: from now on its uses set them
            self._reference_bits = _ALL_REASONS & ~reason
            return False
        by_types.drop(self)
        return True


class CallSlot(Protocol):
    """The function that the user calls, as what holds the function that handles its calls."""

    def _set_call(self, call: Callable[..., object], /) -> None: ...


@final
class ByTypes(Generic[P, R]):
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

    def __init__(self, owner: CallSlot, fn: Callable[P, R], options: JitOptions) -> None:
        self._owner = weakref.ref(owner)  # weak: an unreferenced function is freed at once, with its closure
        self.fn, self.options = fn, options
        self.programs: dict[Hashable, _Held[P, R]] = {}
        self.executables: dict[Hashable, _Held[P, R]] = {}
        self.on_mesh = False  # a program was traced with the mesh of `with mesh:`: each call looks for its own
        self._by_array_types: dict[tuple[Aval, ...] | None, _Held[P, R]] = {}  # not for None
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

    def types(self, leaves: Sequence[object], exact: ExactStructure) -> tuple[CallType, ...]:
        """Return the types of the leaves of a call. Raises: ArgumentError, DTypeError naming the path."""
        return types_of(f"jit of {function_name(self.fn)}", self.fn, leaves, exact.structure)

    def program(self, exact: ExactStructure, avals: tuple[CallType, ...]) -> Program[P, R]:
        """Return the program for arguments of these types, traced once (unless it closes over tracers)."""
        return self._cached(exact, avals, self._new_program)

    def _new_program(self, exact: ExactStructure, avals: tuple[CallType, ...]) -> Program[P, R]:
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

    def _trace(self, exact: ExactStructure, avals: tuple[CallType, ...]) -> Program[P, R]:
        name, names = function_name(self.fn), parameter_names(self.fn)
        return trace_tree(self.fn, exact.structure, avals, name, names)

    def _cached(
        self,
        exact: ExactStructure,
        avals: tuple[CallType, ...],
        make: Callable[[ExactStructure, tuple[CallType, ...]], Program[P, R]],
    ) -> Program[P, R]:
        """Return the cached program for these types, or a new one, which is cached unless it closes over tracers.

        A key ends with the transformations around the call if the program depends on them, and with None if it does
        not. If it depends on them, so does a trace around the call.
        """
        held = self.programs.get((exact, avals, None))
        if held is None:
            held = self.programs.get((exact, avals, enclosing_transforms()))
            # The mesh is one of `enclosing_transforms`, so this key serves both dependencies. A program that depends on
            # the mesh depends on the transformations too: `depend_on_mesh` records both.
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
        if current_binder() is OPERATION_BY_OPERATION:  # inside `disable_jit`
            return self.fn(*args, **kwargs)
        if active_trace() is not None:
            leaves, exact = self.flatten(args, kwargs)
            return self.program(exact, self.types(leaves, exact)).call_flat(leaves)
        # Types of a call, the cheapest to find first:
        #   positional     of the arguments, if each is an array, as in f(x, y); None for f(x, {"a": y}) and for f(x, 2)
        #   array_types    of the leaves, if each is an array, as in f(x, {"a": y}); None for f(x, 2)
        #   types          of the leaves, also of numbers, as in f(x, 2)
        positional = None if kwargs else avals_of_arrays(args)
        held = self._by_array_types.get(positional)
        if held is not None and held.executable is not None:
            self._use_without_fast_path(held)
            return held.executable._dispatcher.call_arrays(args)
        leaves, exact = self.flatten(args, kwargs)
        array_types = avals_of_arrays(leaves)
        types = self.types(leaves, exact) if array_types is None else array_types
        held = self.executables.get((exact, types, get_mesh() if self.on_mesh else None))
        if held is None:
            held = self._compile(exact, types, leaves)
            self._redirect_to(held)
        elif array_types is not None:
            self._use_without_fast_path(held)
        else:
            held.mark_used()
        assert held.executable is not None, "an executable"
        dispatcher = held.executable._dispatcher
        if positional is not None and dispatcher.takes_arrays and not self.on_mesh:
            held.array_types = positional
            self._by_array_types[positional] = held
        return dispatcher.call_leaves(leaves, array_types)

    def _use_without_fast_path(self, held: _Held[P, R]) -> None:
        """Note the use of an executable by a call that the fast path did not handle, and redirect the fast path if that
        pays."""
        held.mark_used()
        self._misses += 1
        # at the 1st, 2nd, 4th, 8th, ... miss: alternating types do not redirect it at each call
        if self._fast is None or self._misses.bit_count() == 1:
            self._redirect_to(held)

    def _compile(self, exact: ExactStructure, types: tuple[CallType, ...], leaves: Sequence[object]) -> _Held[P, R]:
        program = self.program(exact, types)
        line = source_text(user_source(2))  # 2 frames up, the caller of this function, the search begins
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
        return recompilation_reason(program, [held.program for held in self.executables.copy().values()])

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


_MANY_COMPILATIONS: Final = 10  # number of compilations for the calls at one line that is reported
