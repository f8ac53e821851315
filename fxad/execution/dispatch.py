"""Calls of a compiled program: match the arguments, pass their buffers to XLA, wrap the results.

XLA takes 4 us for a call of a small program, so each 0.1 us in Python counts. Each program has a closure for the usual
call, with arrays of exactly its types. The closure holds all values that the call reads. `Dispatcher` handles every
other call. See docs/adr/0036-a-function-for-each-call.md. A program whose results are operands is not run: a call
returns the buffers of the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter, is_not, itemgetter
from typing import Any, Final, TypeAlias, final
from weakref import ref

from fxad import runtime
from fxad.core import tree
from fxad.errors import ArgumentError, ExecutionError
from fxad.execution.donation import DonatingStart
from fxad.ir import Aval
from fxad.runtime import Results, Start, collect_garbage, collection_due, donated_placeholder, process_state
from fxad.tracing.array import Array, aval_of, current_binder, device_array, wrap_buffers
from fxad.tracing.placement import CommittedExecution, OperandSharding, Target, is_committed, target
from fxad.tracing.program import Program, fit_leaf, tree_error
from fxad.tracing.tracer import Tracer, active_trace
from fxad.units.forwarding import forwarded_host_functions, forwarded_operands

SlowPath: TypeAlias = Callable[[tuple[object, ...], dict[str, object]], object]

_LEAF: Final = tree.structure(0)
_first: Final = itemgetter(0)
_buffer_of: Final = attrgetter("_buffer")
aval_of_array: Final = attrgetter("_aval")


@final
class Dispatcher:
    """A program and its executables: one for the default device, and one for each device that holds operands of a call.

    It precomputes all that a call needs: the types and the tree of the arguments, the closed-over arrays, the function
    that starts an execution (with donation), the handlers of the results, and the tree of the results.

    These methods call a program, from general to specific; each calls the next. Call the most specific one whose
    argument you have: `slow_path` takes any arguments, `run` their leaves, `launch` arrays of exactly the program's
    types, `launch_buffers` buffers.
    """

    __slots__ = (
        "__weakref__", "_committed_executions", "_last_committed_call", "avals", "bound", "build_results", "donate",
        "donated_leaves", "forwarded", "handlers", "host_functions", "load", "loaded", "out_avals", "path", "program", "start",
        "start_is_ready", "takes_arrays",
    )  # fmt: skip

    def __init__(
        self,
        program: Program[..., object],
        loaded: runtime.AnyExecutable,
        load: Callable[[Target], runtime.AnyExecutable],
        donate: tuple[int, ...] = (),
        device: runtime.Device | None = None,
        sharding: OperandSharding | None = None,
    ) -> None:
        """`loaded` is compiled for the default device, for `device`, or for operands that are divided as in `sharding`.
        If `device` is given, all calls run there, and their results are committed to it."""
        self.program = program
        self.loaded, self.load, self.donate = loaded, load, donate
        self.donated_leaves = tuple([k - len(program.bound) for k in donate])  # the same, as indices of argument leaves
        self.path = program.operand_path
        self.avals = program.in_avals
        self.out_avals = program.out_avals
        arrays = [b if isinstance(b, Array) else device_array(b, aval_of(b)) for b in _bound_values(program)]
        self.bound = [x._buffer for x in arrays]
        self.takes_arrays = program.in_tree == tree.structure((tuple([0] * len(self.avals)), {}))
        self.build_results = _result_builder(program.out_tree)
        may_forward = not donate and device is None
        self.forwarded = forwarded_operands(program.jaxpr, len(program.bound)) if may_forward else None
        self.host_functions = forwarded_host_functions(program.jaxpr)
        self._committed_executions: dict[Target, CommittedExecution] = {}
        # the shardings of the committed operands in the last call that had some, and its execution
        self._last_committed_call: tuple[list[object], CommittedExecution] | None = None
        if sharding is not None:
            self._committed_executions[sharding] = self._new_committed_execution(loaded)
        # the execution on uncommitted data
        self.start: Start
        self.start_is_ready = True
        if device is not None:
            run = self._committed_execution(device)
            self.start, self.handlers = run.start, run.handlers
        elif self.forwarded is not None or (sharding is None and loaded.device is runtime.default_device()):
            self._use_by_default(loaded)
        else:  # compiled for committed data on other devices. The first start on uncommitted data loads the program for
            # the default device, and replaces `start` and `handlers`, so no closure may copy them before
            self.start_is_ready = False
            self.start, self.handlers = partial(_load_for_default_device, ref(self)), loaded.handlers

    def slow_path(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """The result of any call. Flattens the arguments once."""
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.program.in_tree:
            raise tree_error(self.program, in_tree, len(args), kwargs)
        return self.run(leaves, avals_of_arrays(leaves))

    def match(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Sequence[Array] | None:
        """The leaves of a call, if its tree is that of the program and the leaves are Arrays of its types; else None.

        Flattening up to a structure is 7 times as fast as computing the structure (100 leaves in a dict: 3 us).
        """
        leaves = tree.flatten_up_to(self.program.in_tree, (args, kwargs))
        return leaves if leaves is not None and avals_of_arrays(leaves) == self.avals else None

    def run(self, leaves: Sequence[Any], avals: tuple[Aval, ...] | None) -> object:
        """Call with the argument leaves. `avals` are their types if all are Arrays (`avals_of_arrays`), else None."""
        if avals != self.avals:
            leaves = [self._convert(k, x, a) for k, (x, a) in enumerate(zip(leaves, self.avals, strict=True))]
        return self.launch(leaves)

    def launch(self, leaves: Sequence[Array]) -> object:
        """Call with Arrays of exactly the types of the program."""
        out = self.launch_buffers([*self.bound, *map(_buffer_of, leaves)])
        if self.donated_leaves:
            _mark_as_donated(leaves, self.donated_leaves)
        return out

    def launch_buffers(self, buffers: list[runtime.Buffer]) -> object:
        """Call with the buffers of closed-over arrays, then of arguments of exactly the program's types, on any
        device."""
        if next(collection_due):
            collect_garbage()
        try:
            if process_state.any_committed and True in map(is_committed, buffers):
                outs = self._run_committed(buffers)
            else:  # read `handlers` after `start` has returned: it may change them
                outs = self.start(buffers).consume_with_handlers(self.handlers)
        except runtime.XlaRuntimeError as e:
            raise self.execution_error(e, buffers) from e
        for k, operand in self.host_functions:
            runtime.hold_same_function(buffers[operand], outs[k])
        return self.build_results(wrap_buffers(self.out_avals, outs))

    def _use_by_default(self, loaded: runtime.AnyExecutable) -> None:
        """Run uncommitted data with this executable, which is that for the default device."""
        self.handlers = loaded.handlers
        self.start = ForwardingStart(self.forwarded) if self.forwarded is not None else self._donating(loaded.start)

    def _donating(self, start: Start) -> Start:
        """The execution, which also donates operands if the program does."""
        return DonatingStart(start, self.donate, self.program.name, self.path) if self.donate else start

    def _run_committed(self, buffers: list[runtime.Buffer]) -> list[runtime.Buffer]:
        """Run on the device of the committed operands. The results are committed to it."""
        if self.forwarded is not None:
            target(self.program.name, buffers, self.path)  # as for a program that runs: one device for all
            return self.start(buffers).consume_with_handlers(self.handlers)
        shardings: list[object] = [b._sharding if b._committed else None for b in buffers]
        last = self._last_committed_call
        if last is None or any(map(is_not, shardings, last[0])):  # equal shardings are often the same object
            if last is None or last[0] != shardings:
                run = self._committed_execution(target(self.program.name, buffers, self.path))
                run.check(self.program.name, buffers, self.path)
            else:
                run = last[1]
            last = self._last_committed_call = shardings, run
        run = last[1]
        return run.start(buffers).consume_with_handlers(run.handlers)

    def _committed_execution(self, where: Target) -> CommittedExecution:
        """The execution on the devices of the operands. It is loaded at its first use."""
        if isinstance(where, OperandSharding) and self._divides_like(where):
            where = where.device  # the program itself divides its operands in this way
        run = self._committed_executions.get(where)
        if run is None:
            loaded = self.loaded if where is self.loaded.device else self.load(where)
            run = self._committed_executions[where] = self._new_committed_execution(loaded)
        return run

    def _new_committed_execution(self, loaded: runtime.AnyExecutable) -> CommittedExecution:
        run = CommittedExecution(loaded, self.bound)
        run.start = self._donating(run.start)
        return run

    def _divides_like(self, where: OperandSharding) -> bool:
        """Returns True if the program divides operands as those of a call are divided."""
        sharding = self.loaded.sharding
        if sharding is None or sharding.devices != where.devices:
            return False
        pairs = zip(where.ins, sharding.ins, strict=True)
        return all([w is None or w == (of_program.mesh, of_program.spec) for w, of_program in pairs])

    def _convert(self, k: int, value: object, aval: Aval) -> Array:
        if isinstance(value, Tracer):
            if active_trace() is None:
                raise value.leaked(
                    f"{self.program.name}: argument {self.program.paths[k]}", "a compiled program wants values"
                )
            raise ArgumentError(
                f"{self.program.name}: argument {self.program.paths[k]} is {value!r}; a compiled program is not traced",
                remedy="call the Program, or the function, inside a trace; compile the outer program",
            )
        leaf = fit_leaf(self.program, k, value, aval)
        return leaf if isinstance(leaf, Array) else device_array(leaf, aval)

    def execution_error(self, e: Exception, buffers: Sequence[runtime.Buffer]) -> ExecutionError:
        """The error for a call that XLA refused."""
        return runtime.execution_error(e, buffers, replace(self.loaded.producer, name=self.program.name), self.path)


def _load_for_default_device(dispatcher: ref[Dispatcher], buffers: Sequence[runtime.Buffer]) -> Results:
    """The first execution on uncommitted data, of a program that was not compiled for the default device.

    It does not keep the dispatcher alive, which has it as `start`: a program is freed with its last reference.
    """
    called = dispatcher()
    assert called is not None, "it is being called"
    called._use_by_default(called.load(runtime.default_device()))
    return called.start(buffers)


def _mark_as_donated(leaves: Sequence[Array], donated_leaves: Sequence[int]) -> None:
    """Replace the buffers of donated arrays by placeholders, which know the device and if they are committed to it."""
    shared = donated_placeholder(leaves[donated_leaves[0]]._buffer)
    for k in donated_leaves:
        leaves[k]._buffer = donated_placeholder(leaves[k]._buffer) if process_state.any_committed else shared


def _result_builder(out_tree: tree.Structure) -> Callable[[list[Array]], object]:
    """A function that builds the result tree from its leaves. One leaf and a flat tuple have fast paths."""
    if out_tree == _LEAF:
        return _first
    return tuple if out_tree == tree.structure(tuple([0] * out_tree.num_leaves)) else out_tree.unflatten


def avals_of_arrays(leaves: Sequence[object]) -> tuple[Aval, ...] | None:
    """The types of the leaves if all are Arrays with a value, else None."""
    try:
        return tuple(map(aval_of_array, leaves))
    except AttributeError:
        return None


def _bound_values(program: Program[..., object]) -> tuple[object, ...]:
    for b in program.bound:
        if isinstance(b, Tracer):
            raise ArgumentError(
                f"compile: {program.name} closes over {b!r} of an enclosing trace",
                remedy="call the program inside that trace instead, and compile the outer one",
            )
    return program.bound


@final
class ForwardingStart:
    """The execution of a program whose results are operands: it returns their buffers."""

    __slots__ = ("_operands",)

    def __init__(self, operands: tuple[int, ...]) -> None:
        self._operands = operands

    def __call__(self, buffers: Sequence[runtime.Buffer]) -> Results:
        for b in buffers:
            if b.is_deleted():
                raise runtime.XlaRuntimeError(runtime.OPERAND_DELETED)
        return _ForwardedResults([buffers[k] for k in self._operands])


@final
class _ForwardedResults:
    """Results that are arrays already."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: list[runtime.Buffer]) -> None:
        self._arrays = arrays

    def consume_with_handlers(self, _handlers: Sequence[runtime.ResultHandler], /) -> list[runtime.Buffer]:
        return self._arrays


# -------------------------------------------------------------------------------------------------- the usual call


def fast_path(dispatcher: Dispatcher, slow_path: SlowPath) -> Callable[..., object]:
    """A function for the usual call: outside traces, with arrays of exactly the types of the program.

    `slow_path` handles every other call. Types are compared by identity: equal avals are one object.
    """
    if not dispatcher.start_is_ready or dispatcher.host_functions:
        return _call_on_any_device(dispatcher, slow_path)
    if (
        dispatcher.takes_arrays
        and not dispatcher.bound
        and dispatcher.build_results is _first
        and not dispatcher.donate
    ):
        if len(dispatcher.avals) == 1:
            return _call_of_one_array(dispatcher, slow_path)
        if len(dispatcher.avals) == 2:
            return _call_of_two_arrays(dispatcher, slow_path)
    return _call_of_any_trees(dispatcher, slow_path)


def _call_on_any_device(dispatcher: Dispatcher, slow_path: SlowPath) -> Callable[..., object]:
    """Any argument and result trees, for a program that does not run on the default device or returns host functions."""
    match, launch = dispatcher.match, dispatcher.launch

    def call(*args: object, **kwargs: object) -> object:
        leaves = match(args, kwargs) if current_binder() is None else None
        return slow_path(args, kwargs) if leaves is None else launch(leaves)

    return call


def _call_of_one_array(dispatcher: Dispatcher, slow_path: SlowPath) -> Callable[..., object]:
    """One array in, one out: one Python frame, and no attribute lookup on the program."""
    (a,), (out_aval,), start, handlers = dispatcher.avals, dispatcher.out_avals, dispatcher.start, dispatcher.handlers
    launch_buffers, execution_error = dispatcher.launch_buffers, dispatcher.execution_error

    def call(*args: Any, **kwargs: object) -> object:
        buffers = None
        try:
            (x,) = args
            if x._aval is a and not kwargs and current_binder() is None:
                buffers = [x._buffer]
        except (AttributeError, ValueError):
            pass
        if buffers is None:
            return slow_path(args, kwargs)
        if process_state.any_committed:
            return launch_buffers(buffers)
        if next(collection_due):
            collect_garbage()
        try:
            (out,) = start(buffers).consume_with_handlers(handlers)
        except runtime.XlaRuntimeError as e:
            raise execution_error(e, buffers) from e
        result = Array()
        result._aval, result._buffer = out_aval, out
        return result

    return call


def _call_of_two_arrays(dispatcher: Dispatcher, slow_path: SlowPath) -> Callable[..., object]:
    """Two arrays in, one out."""
    (a, b), (out_aval,) = dispatcher.avals, dispatcher.out_avals
    start, handlers = dispatcher.start, dispatcher.handlers
    launch_buffers, execution_error = dispatcher.launch_buffers, dispatcher.execution_error

    def call(*args: Any, **kwargs: object) -> object:
        buffers = None
        try:
            x, y = args
            if x._aval is a and y._aval is b and not kwargs and current_binder() is None:
                buffers = [x._buffer, y._buffer]
        except (AttributeError, ValueError):
            pass
        if buffers is None:
            return slow_path(args, kwargs)
        if process_state.any_committed:
            return launch_buffers(buffers)
        if next(collection_due):
            collect_garbage()
        try:
            (out,) = start(buffers).consume_with_handlers(handlers)
        except runtime.XlaRuntimeError as e:
            raise execution_error(e, buffers) from e
        result = Array()
        result._aval, result._buffer = out_aval, out
        return result

    return call


def _call_of_any_trees(dispatcher: Dispatcher, slow_path: SlowPath) -> Callable[..., object]:
    """Any argument and result trees. Loops are written out, because a comprehension costs a frame."""
    avals, out_avals, bound = dispatcher.avals, dispatcher.out_avals, dispatcher.bound
    start, handlers, launch = dispatcher.start, dispatcher.handlers, dispatcher.launch
    flatten_up_to, takes_arrays = dispatcher.program.in_tree.flatten_up_to, dispatcher.takes_arrays
    build_results, execution_error = dispatcher.build_results, dispatcher.execution_error
    donated_leaves = dispatcher.donated_leaves
    n, n_operands = len(avals), len(bound) + len(avals)

    def call(*args: object, **kwargs: object) -> object:
        buffers, fits = [*bound], False
        leaves: Sequence[Any] = args
        try:
            if not (takes_arrays and len(args) == n and not kwargs):
                leaves = flatten_up_to((args, kwargs))  # type: ignore[arg-type]  # a pair is a tree, to optree
            for k, x in enumerate(leaves):
                if x._aval is not avals[k]:
                    break
                buffers.append(x._buffer)
            fits = len(buffers) == n_operands and current_binder() is None
        except (AttributeError, TypeError, ValueError):
            pass
        if not fits:
            return slow_path(args, kwargs)
        if process_state.any_committed:
            return launch(leaves)
        if next(collection_due):
            collect_garbage()
        try:
            outs: list[Any] = start(buffers).consume_with_handlers(handlers)
        except runtime.XlaRuntimeError as e:
            raise execution_error(e, buffers) from e
        if donated_leaves:
            _mark_as_donated(leaves, donated_leaves)
        for k, a in enumerate(out_avals):
            result = Array()
            result._aval, result._buffer = a, outs[k]
            outs[k] = result
        return build_results(outs)

    return call
