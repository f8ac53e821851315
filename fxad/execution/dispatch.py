"""Calls of a compiled program: match the arguments, pass their buffers to XLA, wrap the results.

XLA takes 4 us for a call of a small program, so each 0.1 us in Python counts. Each program has a closure for the usual
call, with uncommitted arrays of exactly its types (`fast_path`). The closure holds all values that the call reads.
`Dispatcher` handles every other call. See docs/adr/0036-a-function-for-each-call.md. A program whose results are
operands is not run: a call returns the buffers of the operands.

The paths of calls outside of traces. Each ends in `runtime.launch`:

| call | path |
|---|---|
| `x + y`, a primitive, a function of `fxad.lax` | `tracing.array.Eager` caches executables by operation and types |
| `fnp.sin(x)`: a function of `fxad.numpy` | `numpy.apply` calls its cached executable, else `Eager` |
| `program(x)` | `Program.__call__`; `Eager.call` gets the executable from the compilation cache, at each call |
| `executable(x)` | `fast_path`; for other arguments `Dispatcher.call` |
| `jit(f)(x)` | `fast_path` of one of its programs; for others `api.jit_calls` finds the dispatcher by their types |

A start (`runtime.Start`) is the part of `launch` that runs the program. Wrappers of starts add the rest; the comment
above `Start` in `xla/jaxlib_types.py` lists them in order.

In a trace, `program(x)` and `jit(f)(x)` are equations (`tracing.tracer.Trace.call`). An executable takes no tracers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, is_not, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, final

from fxad import runtime
from fxad.core.trees import tree
from fxad.core.trees.structure_check import has_structure
from fxad.errors import ArgumentError
from fxad.execution.donation import DonatingStart
from fxad.ir import Aval
from fxad.runtime import (
    Start,
    XlaResults,
    donated_placeholder,
    launch,
    process_state,
)
from fxad.tracing.array import Array, aval_of, current_binder, device_array, wrap_buffers
from fxad.tracing.placement import OperandSharding, Target, check_operands_on, is_committed, moved_to, target_of_call
from fxad.tracing.program import CallObserver, CompileChoices, Program, fit_leaf, leaves_of_call
from fxad.tracing.tracer import Tracer, active_trace
from fxad.units.forwarding import forwarded_host_functions, forwarded_operands

_UserCall: TypeAlias = Callable[..., object]  # of a program, as the user calls it

# The name of the slot of an object that holds `fast_path`, so that its call is one Python frame.
FAST_CALL: Final = "__call__"

_first: Final = itemgetter(0)
_buffer_of: Final = attrgetter("_buffer")
aval_of_array: Final = attrgetter("_aval")


class Launcher(NamedTuple):
    """The arguments of `runtime.launch` beside the buffers: the function that starts the program, and the handlers that
    make its results, committed to the device or not."""

    start: Start
    handlers: Sequence[runtime.ResultHandler]
    devices: tuple[runtime.Device, ...] = ()  # committed operands must be on these; empty: operands are moved


@final
class Dispatcher:
    """A program and its executables: one for the default device, and one for each device that holds operands of a call.

    It precomputes all that a call needs: the types and the tree of the arguments, the closed-over arrays, the
    launchers (with donation), and the tree of the results.

    These methods call the program, from general to specific; each calls the next. Call the most specific one whose
    argument you have: `call` takes any arguments, `call_leaves` their leaves, `call_arrays` arrays of exactly the
    program's types, `call_buffers` buffers.
    """

    __slots__ = (
        "__weakref__", "_has_structure", "_launchers", "_last_committed_call", "avals", "bound", "build_results",
        "default_launcher", "choices", "donate", "donated_leaves", "forwarded", "host_functions", "load", "loaded",
        "out_avals", "path", "producer", "program", "takes_arrays", "target",
    )  # fmt: skip

    def __init__(
        self,
        program: Program[..., object],
        loaded: runtime.AnyExecutable,
        load: Callable[[Target], runtime.AnyExecutable],
        choices: CompileChoices,
        device: runtime.Device | None = None,
        target: Target | None = None,
    ) -> None:
        """Bind a program to executables, which are compiled as `choices` says. `loaded` is compiled for the default
        device, for `device`, or for the devices `target` of operands. If `device` is given, calls of data that is free
        to move run there, and their results are committed to it.

        given                                       loaded for          default_launcher      _launchers
        nothing, or shardings: compile(...)         the default device  `_uncommitted`        empty
        `device`: compile(device=)                  that device         `_committing`         that of `device`
        `target`, a device: jit(f).lower(operands)  that device         `_uncommitted`, None  empty
        `target`, an `OperandSharding`              its devices         None                  that of `target`

        In the third row, `default_launcher` is None unless `target` is the default device. A program whose results are
        operands, without `device` and without donation, runs nothing: `default_launcher` starts nothing in each row,
        and `_launcher_on` returns it.
        """
        self.program = program
        self.loaded, self.load, self.choices, self.target = loaded, load, choices, target
        self.donate = donate = choices.options.donate
        self.donated_leaves = tuple([k - len(program.bound) for k in donate])  # the same, as indices of argument leaves
        self.path = program.operand_path
        self.producer = loaded.producer.named(program.name)  # for messages
        self.avals = program.in_avals
        self.out_avals = program.out_avals
        arrays = [b if isinstance(b, Array) else device_array(b, aval_of(b)) for b in _bound_values(program)]
        self.bound = [x._buffer for x in arrays]
        self.takes_arrays = program.in_tree == tree.structure((tuple([0] * len(self.avals)), {}))
        self.build_results = _result_builder(program.out_tree)
        self._has_structure: dict[bool, Callable[[object], bool]] = {}
        may_forward = not donate and device is None
        self.forwarded = forwarded_operands(program.jaxpr, len(program.bound)) if may_forward else None
        self.host_functions = forwarded_host_functions(program.jaxpr)
        self._launchers: dict[Target, Launcher] = {}
        # the shardings of the committed operands in the last call that had some, and its launcher
        self._last_committed_call: tuple[list[object], Launcher] | None = None
        if isinstance(target, OperandSharding):
            self._launchers[target] = self._committing(loaded)
        # for uncommitted data; None: it is loaded for the default device at the first call with such data
        self.default_launcher: Launcher | None = None
        if device is not None:
            self.default_launcher = self._launcher_on(device)
        elif self.forwarded is not None:
            self.default_launcher = Launcher(_ForwardingStart(self.forwarded), loaded.handlers)
        elif not isinstance(target, OperandSharding) and loaded.device is runtime.default_device():
            self.default_launcher = self._uncommitted(loaded)

    def call(self, /, *args: object, **kwargs: object) -> object:
        """Call with any arguments. Flattens them once."""
        leaves = leaves_of_call(self.program, args, kwargs)
        return self.call_leaves(leaves, avals_of_arrays(leaves))

    def has_structure(self, ordered: bool) -> Callable[[object], bool]:
        """Return a predicate of arguments `(args, kwargs)`: True if they have the structure of the program."""
        check = self._has_structure.get(ordered)
        if check is None:
            check = self._has_structure[ordered] = has_structure(self.program.in_tree, ordered=ordered)
        return check

    def call_leaves(self, leaves: Sequence[Any], avals: tuple[Aval, ...] | None) -> object:
        """Call with the argument leaves. `avals` are their types if all are Arrays (`avals_of_arrays`), else None."""
        if avals != self.avals:
            leaves = [self._convert(k, x, a) for k, (x, a) in enumerate(zip(leaves, self.avals, strict=True))]
        return self.call_arrays(leaves)

    def call_arrays(self, leaves: Sequence[Array]) -> object:
        """Call with Arrays of exactly the types of the program."""
        out = self.call_buffers([*self.bound, *map(_buffer_of, leaves)])
        if self.donated_leaves:
            _mark_as_donated(leaves, self.donated_leaves)
        return out

    def call_buffers(self, buffers: list[runtime.Buffer]) -> object:
        """Call with the buffers of closed-over arrays, then of arguments of exactly the program's types, on any
        device."""
        observer = current_binder()
        if isinstance(observer, CallObserver):
            return self._call_observed(observer, buffers)
        return self.build_results(wrap_buffers(self.out_avals, self._launch(buffers)))

    def _call_observed(self, observer: CallObserver, buffers: list[runtime.Buffer]) -> object:
        """Call inside a block that observes calls."""
        operands = wrap_buffers(self.program.jaxpr.in_avals, buffers)

        def run() -> Sequence[Array]:
            return wrap_buffers(self.out_avals, self._launch(buffers))

        return self.build_results(list(observer.observe(self.program, operands, self.choices, run)))

    def _launch(self, buffers: list[runtime.Buffer]) -> list[runtime.Buffer]:
        if process_state.any_committed and True in map(is_committed, buffers):
            launcher = self._launcher_of_committed(buffers)
        else:
            launcher = self.default_launcher or self._load_for_default_device()
        outs = launch(launcher.start, buffers, launcher.handlers, self.producer, self.path)
        for k, operand in self.host_functions:
            runtime.hold_same_function(buffers[operand], outs[k])
        return outs

    def _load_for_default_device(self) -> Launcher:
        """Load the program for the default device, for uncommitted data."""
        self.default_launcher = self._uncommitted(self.load(runtime.default_device()))
        return self.default_launcher

    def _launcher_of_committed(self, buffers: list[runtime.Buffer]) -> Launcher:
        """Return the launcher for the device of the committed operands, to which it commits the results.

        Raises: PlacementError naming two operands that are committed to different devices.
        """
        shardings: list[object] = [b._sharding if b._committed else None for b in buffers]
        last = self._last_committed_call
        if last is None or any(map(is_not, shardings, last[0])):  # equal shardings are often the same object
            if last is not None and last[0] == shardings:
                launcher = last[1]
            else:
                launcher = self._launcher_on(target_of_call(self.program.name, buffers, self.path))
                if launcher.devices:
                    check_operands_on(launcher.devices, self.program.name, buffers, self.path)
            last = self._last_committed_call = shardings, launcher
        return last[1]

    def _launcher_on(self, target: Target) -> Launcher:
        """Return the launcher for the devices of the operands. It is loaded at its first use."""
        if self.forwarded is not None and self.default_launcher is not None:
            return self.default_launcher  # it runs nothing
        if isinstance(target, OperandSharding) and self._divides_like(target):
            target = target.device  # the program itself divides its operands in this way
        launcher = self._launchers.get(target)
        if launcher is None:
            loaded = self.loaded if target is self.loaded.device else self.load(target)
            launcher = self._launchers[target] = self._committing(loaded)
        return launcher

    def _uncommitted(self, loaded: runtime.AnyExecutable) -> Launcher:
        """Return the launcher that does not commit the results."""
        return Launcher(self._donating(loaded.start), loaded.handlers)

    def _committing(self, loaded: runtime.AnyExecutable) -> Launcher:
        """Return the launcher that commits the results to the device of the executable, or to its devices."""
        start, bound, sharding = loaded.start, self.bound, loaded.sharding
        if sharding is None:
            start = _MovingStart(start, moved_to(bound, loaded.device), loaded.device)
        elif bound:  # the program divides its operands itself; the bound ones come first
            on_devices = [runtime.resharded(b, w) for b, w in zip(bound, sharding.ins, strict=False)]
            start = _MovingStart(start, on_devices, None)
        devices = () if sharding is None else sharding.devices
        return Launcher(self._donating(start), loaded.committing_handlers, devices)

    def _donating(self, start: Start) -> Start:
        """Return the start, which also donates operands if the program does."""
        return DonatingStart(start, self.donate, self.program.name, self.path) if self.donate else start

    def _divides_like(self, target: OperandSharding) -> bool:
        """Return True if the program divides operands as those of a call are divided."""
        sharding = self.loaded.sharding
        if sharding is None or sharding.devices != target.devices:
            return False
        pairs = zip(target.ins, sharding.ins, strict=True)
        return all([w is None or w == (divided_by.mesh, divided_by.spec) for w, divided_by in pairs])

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


def _mark_as_donated(leaves: Sequence[Array], donated_leaves: Sequence[int]) -> None:
    """Replace the buffers of donated arrays by placeholders, which know the device and if they are committed to it."""
    shared = donated_placeholder(leaves[donated_leaves[0]]._buffer)
    for k in donated_leaves:
        leaves[k]._buffer = donated_placeholder(leaves[k]._buffer) if process_state.any_committed else shared


def _result_builder(out_tree: tree.Structure) -> Callable[[list[Array]], object]:
    """Return a function that builds the result tree from its leaves. One leaf and a flat tuple have fast paths."""
    if out_tree == tree.LEAF:
        return _first
    return tuple if out_tree == tree.structure(tuple([0] * out_tree.num_leaves)) else out_tree.unflatten


def avals_of_arrays(leaves: Sequence[object]) -> tuple[Aval, ...] | None:
    """Return the types of the leaves if all are Arrays with a value, else None."""
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


# ------------------------------------------------------------------------------------------------ starts for a call


@final
class _ForwardingStart:
    """The start of a program whose results are operands: it runs nothing, and returns their buffers."""

    __slots__ = ("_operands",)

    def __init__(self, operands: tuple[int, ...]) -> None:
        self._operands = operands

    def __call__(self, buffers: Sequence[runtime.Buffer]) -> XlaResults:
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


@final
class _MovingStart:
    """The start of a program on `device`, to which it copies its operands. None: the program divides its operands
    itself.

    The first operands are arrays that the program closes over. They are copied once, and given as `bound`.
    """

    __slots__ = ("_bound", "_device", "_start")

    def __init__(self, start: Start, bound: list[runtime.Buffer], device: runtime.Device | None) -> None:
        self._start, self._bound, self._device = start, bound, device

    def __call__(self, buffers: Sequence[runtime.Buffer]) -> XlaResults:
        arguments = buffers[len(self._bound) :]
        if self._device is not None:
            arguments = moved_to(arguments, self._device)
        return self._start([*self._bound, *arguments])


# -------------------------------------------------------------------------------------------------- the usual call


def fast_path(dispatcher: Dispatcher, general: _UserCall, *, ordered: bool = False) -> _UserCall:
    """Return a function for the usual call: outside traces, with uncommitted arrays of exactly the types of the
    program.

    `general` handles calls with other arguments, and the dispatcher those with committed arrays. Types are compared by
    identity: equal avals are one object.

    Checking the structure, then flattening up to it, takes a fifth of the time of computing it.
    `ordered`: the keys of dicts must have the order of the program's too.
    """
    launcher = dispatcher.default_launcher
    if launcher is None or dispatcher.host_functions:
        return _call_of_any_arrays(dispatcher, general, ordered)
    if (
        dispatcher.takes_arrays
        and not dispatcher.bound
        and dispatcher.build_results is _first
        and not dispatcher.donate
    ):
        if len(dispatcher.avals) == 1:
            return _call_of_one_array(dispatcher, launcher, general)
        if len(dispatcher.avals) == 2:
            return _call_of_two_arrays(dispatcher, launcher, general)
    return _call_of_any_trees(dispatcher, launcher, general, ordered)


def _call_of_any_arrays(dispatcher: Dispatcher, general: _UserCall, ordered: bool) -> _UserCall:
    """Return the call for any argument and result trees, for a program that is not loaded for the default device, or
    that returns numbers of host functions."""
    in_tree, avals, call_arrays = dispatcher.program.in_tree, dispatcher.avals, dispatcher.call_arrays
    has_structure = dispatcher.has_structure(ordered)

    def call(*args: object, **kwargs: object) -> object:
        leaves = None
        try:
            if current_binder() is None and has_structure((args, kwargs)):
                leaves = tree.flatten_up_to(in_tree, (args, kwargs))
        except Exception:  # noqa: BLE001  # the user's classes: `general` raises it again
            pass
        if leaves is None or avals_of_arrays(leaves) != avals:
            return general(*args, **kwargs)
        return call_arrays(leaves)

    return call


def _call_of_one_array(dispatcher: Dispatcher, launcher: Launcher, general: _UserCall) -> _UserCall:
    """Return the call of a program from one array to one array: one Python frame, and no attribute lookup on the
    program. It is `_call_of_two_arrays` with one operand, written out as docs/adr/0036 says why;
    tests/api/test_calling.py calls both."""
    (a,), (out_aval,), (start, handlers, _) = dispatcher.avals, dispatcher.out_avals, launcher
    call_buffers, producer, path = dispatcher.call_buffers, dispatcher.producer, dispatcher.path

    def call(*args: Any, **kwargs: object) -> object:
        buffers = None
        try:
            (x,) = args
            if x._aval is a and not kwargs and current_binder() is None:
                buffers = [x._buffer]
        except (AttributeError, ValueError):
            pass
        if buffers is None:
            return general(*args, **kwargs)
        if process_state.any_committed:
            return call_buffers(buffers)
        (out,) = launch(start, buffers, handlers, producer, path)
        result = Array()
        result._aval, result._buffer = out_aval, out
        return result

    return call


def _call_of_two_arrays(dispatcher: Dispatcher, launcher: Launcher, general: _UserCall) -> _UserCall:
    """Return the call of a program from two arrays to one array, likewise."""
    (a, b), (out_aval,), (start, handlers, _) = dispatcher.avals, dispatcher.out_avals, launcher
    call_buffers, producer, path = dispatcher.call_buffers, dispatcher.producer, dispatcher.path

    def call(*args: Any, **kwargs: object) -> object:
        buffers = None
        try:
            x, y = args
            if x._aval is a and y._aval is b and not kwargs and current_binder() is None:
                buffers = [x._buffer, y._buffer]
        except (AttributeError, ValueError):
            pass
        if buffers is None:
            return general(*args, **kwargs)
        if process_state.any_committed:
            return call_buffers(buffers)
        (out,) = launch(start, buffers, handlers, producer, path)
        result = Array()
        result._aval, result._buffer = out_aval, out
        return result

    return call


def _call_of_any_trees(dispatcher: Dispatcher, launcher: Launcher, general: _UserCall, ordered: bool) -> _UserCall:
    """Any argument and result trees. Loops are written out, because a comprehension costs a frame."""
    avals, out_avals, bound = dispatcher.avals, dispatcher.out_avals, dispatcher.bound
    (start, handlers, _), call_arrays = launcher, dispatcher.call_arrays
    flatten_up_to, takes_arrays = dispatcher.program.in_tree.flatten_up_to, dispatcher.takes_arrays
    has_structure = dispatcher.has_structure(ordered)
    build_results, donated_leaves = dispatcher.build_results, dispatcher.donated_leaves
    producer, path = dispatcher.producer, dispatcher.path
    n, n_operands = len(avals), len(bound) + len(avals)

    def call(*args: object, **kwargs: object) -> object:
        buffers, fits = [*bound], False
        leaves: Sequence[Any] = args
        try:
            if (len(args) == n and not kwargs) if takes_arrays else has_structure((args, kwargs)):
                if not takes_arrays:
                    leaves = flatten_up_to((args, kwargs))  # type: ignore[arg-type]  # a pair is a tree, to optree
                for k, x in enumerate(leaves):
                    if x._aval is not avals[k]:
                        break
                    buffers.append(x._buffer)
                fits = len(buffers) == n_operands and current_binder() is None
        except Exception:  # noqa: BLE001  # a leaf that is no array, and the user's classes: `general` raises it again
            pass
        if not fits:
            return general(*args, **kwargs)
        if process_state.any_committed:
            return call_arrays(leaves)
        outs: list[Any] = launch(start, buffers, handlers, producer, path)
        if donated_leaves:
            _mark_as_donated(leaves, donated_leaves)
        for k, a in enumerate(out_avals):
            result = Array()
            result._aval, result._buffer = a, outs[k]
            outs[k] = result
        return build_results(outs)

    return call
