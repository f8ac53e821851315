"""Calls of a compiled program: match the arguments, pass their buffers to XLA, wrap the results.

XLA takes 4 us for a call of a small program, so each 0.1 us in Python counts. Each program has a closure for the usual
call, with arrays of exactly its types. The closure holds all values that the call reads. `Dispatcher` handles every
other call. See docs/adr/0036-a-function-for-each-call.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter, is_not, itemgetter
from typing import Any, Final, TypeAlias, final

from fxad import runtime
from fxad.core import tree
from fxad.errors import ArgumentError, ExecutionError
from fxad.execution.donation import DonatingStart
from fxad.ir import Aval
from fxad.runtime import Results, Start, collect_garbage, collection_due, commitments, donated_placeholder
from fxad.tracing.array import Array, aval_of, device_array, wrap_buffers
from fxad.tracing.placement import CommittedRun, Division, Forwarding, Target, forwarded_operands, is_committed, target
from fxad.tracing.program import Program, fit_leaf, tree_error
from fxad.tracing.tracer import Tracer, active_trace, current_binder

SlowPath: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Any]

_LEAF: Final = tree.structure(0)
_first: Final = itemgetter(0)
_buffer_of: Final = attrgetter("_buffer")
aval_of_array: Final = attrgetter("_aval")


@final
class Dispatcher:
    """A program and its executables: one for the default device, and one for each device that holds operands of a call.

    It precomputes all that a call needs: the types and the tree of the arguments, the closed-over arrays, the function
    that starts an execution (with donation), the handlers of the results, and the tree of the results.
    """

    __slots__ = (
        "_recent", "_there", "avals", "bound", "donate", "finish", "flat", "given_up", "handlers", "load", "loaded",
        "out_avals", "passed", "path", "program", "settled", "start",
    )  # fmt: skip

    def __init__(
        self,
        program: Program[Any, Any],
        loaded: runtime.Runnable,
        load: Callable[[Target], runtime.Runnable],
        donate: tuple[int, ...] = (),
        device: runtime.Device | None = None,
        division: Division | None = None,
    ) -> None:
        self.program = program
        self.loaded, self.load, self.donate = loaded, load, donate
        self.given_up = tuple([k - len(program.bound) for k in donate])  # the same, as indices of argument leaves
        self.path = partial(operand_path, program)
        passes = not donate and device is None
        self.passed = forwarded_operands(program.jaxpr, len(program.bound)) if passes else None
        self.start: Start = self._free
        self.handlers = self.loaded.handlers
        self._there: dict[Target, CommittedRun] = {}  # devices on which it has run
        self._recent: tuple[list[object], CommittedRun] | None = None  # the placement of operands in the last call
        self.avals = program.in_avals
        self.out_avals = program.out_avals
        self.bound = [(b if isinstance(b, Array) else device_array(b, aval_of(b)))._buffer for b in _values(program)]
        at_home = loaded.device is runtime.default_device() and division is None
        self.settled = device is not None or at_home or self.passed is not None
        if division is not None:
            self._there[division] = self._ready(loaded)
        if device is not None:  # free data goes there, and the results are committed to it
            there = self._on_device(device)
            self.start, self.handlers = there.start, there.handlers
        elif self.settled:
            self._start_with(self.loaded)
        self.flat = program.in_tree == tree.structure((tuple([0] * len(self.avals)), {}))
        self.finish = _finish(program.out_tree)

    def general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handle any call. Flattens the arguments once."""
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.program.in_tree:
            raise tree_error(self.program, in_tree, len(args), kwargs)
        return self.run(leaves, avals_of_arrays(leaves))

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The leaves of a call, if its tree is that of the program and the leaves are Arrays of its types; else None.

        Flattening up to a known structure is 7 times as fast as computing the structure (100 leaves in a dict: 3 us).
        """
        leaves = tree.flatten_up_to(self.program.in_tree, (args, kwargs))
        return leaves if leaves is not None and avals_of_arrays(leaves) == self.avals else None

    def run(self, leaves: Sequence[Any], avals: tuple[Aval, ...] | None) -> Any:
        """Call with the argument leaves; `avals` are their types, known when all are Arrays (`avals_of_arrays`)."""
        if avals != self.avals:
            leaves = [self._convert(k, x, a) for k, (x, a) in enumerate(zip(leaves, self.avals, strict=True))]
        return self.launch(leaves)

    def launch(self, leaves: Sequence[Array]) -> Any:
        """Call with Arrays of exactly the types of the program."""
        out = self.launch_buffers([*self.bound, *map(_buffer_of, leaves)])
        if self.given_up:
            _leave(leaves, self.given_up)
        return out

    def launch_buffers(self, buffers: list[runtime.Buffer]) -> Any:
        """Call with the buffers of closed-over arrays, then of arguments of exactly the program's types, on any
        device."""
        if next(collection_due):
            collect_garbage()
        try:
            if commitments.any and True in map(is_committed, buffers):
                outs = self._placed(buffers)
            else:  # read `handlers` after `start` has returned: it may change them
                outs = self.start(buffers).consume_with_handlers(self.handlers)
        except runtime.XlaRuntimeError as e:
            raise self.refused(e, buffers) from e
        return self.finish(wrap_buffers(self.out_avals, outs))

    def _free(self, buffers: Sequence[runtime.Buffer]) -> Results:
        """The first execution on uncommitted data, of a program that was not compiled for the default device."""
        self._start_with(self.load(runtime.default_device()))
        return self.start(buffers)

    def _start_with(self, loaded: runtime.Runnable) -> None:
        """Set the executable for the default device."""
        self.handlers = loaded.handlers
        self.start = Forwarding(self.passed) if self.passed is not None else self._around(loaded.start)

    def _around(self, start: Start) -> Start:
        return DonatingStart(start, self.donate, self.program.name, self.path) if self.donate else start

    def _placed(self, buffers: list[runtime.Buffer]) -> list[runtime.Buffer]:
        """Run on the device of the committed operands. The results are committed to it."""
        if self.passed is not None:
            return self.start(buffers).consume_with_handlers(self.handlers)
        where: list[object] = [b._sharding if b._committed else None for b in buffers]
        recent = self._recent
        if recent is None or any(map(is_not, where, recent[0])):  # equal shardings are often the same object
            if recent is None or recent[0] != where:
                there = self._on_device(target(self.program.name, buffers, self.path))
                there.check(self.program.name, buffers, self.path)
            else:
                there = recent[1]
            recent = self._recent = where, there
        there = recent[1]
        return there.start(buffers).consume_with_handlers(there.handlers)

    def _on_device(self, where: Target) -> CommittedRun:
        """The execution on the devices of the operands. It is loaded at its first use."""
        if isinstance(where, Division) and self._divides_so(where):
            where = where.device  # as the program divides its operands itself
        there = self._there.get(where)
        if there is None:
            loaded = self.loaded if where is self.loaded.device else self.load(where)
            there = self._there[where] = self._ready(loaded)
        return there

    def _ready(self, loaded: runtime.Runnable) -> CommittedRun:
        there = CommittedRun(loaded, self.bound)
        there.start = self._around(there.start)
        return there

    def _divides_so(self, where: Division) -> bool:
        """Returns True if the program divides operands as those of a call are divided."""
        placed = self.loaded.placed if isinstance(self.loaded, runtime.LoadedProgram) else None
        if placed is None or placed.devices != where.devices:
            return False
        pairs = zip(where.ins, placed.ins, strict=True)
        return all([w is None or w == (have.mesh, have.spec) for w, have in pairs])

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

    def refused(self, e: Exception, buffers: Sequence[runtime.Buffer]) -> ExecutionError:
        """The error for a call that XLA refused."""
        return runtime.execution_error(e, buffers, replace(self.loaded.origin, name=self.program.name), self.path)


def _leave(leaves: Sequence[Array], given_up: Sequence[int]) -> None:
    """Replace the buffers of donated arrays by placeholders, which keep the device and whether it is committed."""
    left = donated_placeholder(leaves[given_up[0]]._buffer)
    for k in given_up:
        leaves[k]._buffer = donated_placeholder(leaves[k]._buffer) if commitments.any else left


def _finish(out_tree: tree.Structure) -> Callable[[list[Array]], Any]:
    """A function that builds the result tree from its leaves. One leaf and a flat tuple have fast paths."""
    if out_tree == _LEAF:
        return _first
    return tuple if out_tree == tree.structure(tuple([0] * out_tree.num_leaves)) else out_tree.unflatten


def operand_path(program: Program[Any, Any], operand: int) -> str:
    """The name of an operand of a program's jaxpr in messages."""
    k = operand - len(program.bound)
    return f"argument {program.paths[k]}" if k >= 0 else f"closed-over array {operand}"


def avals_of_arrays(leaves: Sequence[Any]) -> tuple[Aval, ...] | None:
    """The types of the leaves if all are Arrays with a value, else None."""
    try:
        return tuple(map(aval_of_array, leaves))
    except AttributeError:
        return None


def _values(program: Program[Any, Any]) -> tuple[object, ...]:
    for b in program.bound:
        if isinstance(b, Tracer):
            raise ArgumentError(
                f"compile: {program.name} closes over {b!r} of an enclosing trace",
                remedy="call the program inside that trace instead, and compile the outer one",
            )
    return program.bound


# -------------------------------------------------------------------------------------------------- the usual call


def fast_path(calls: Dispatcher, otherwise: SlowPath) -> Callable[..., Any]:
    """A function for the usual call: outside traces, with arrays of exactly the types of the program.

    `otherwise` handles every other call. Types are compared by identity: equal avals are one object.
    """
    if not calls.settled:  # compiled for another device than the default, for committed data
        return _elsewhere(calls, otherwise)
    if calls.flat and not calls.bound and calls.finish is _first and not calls.donate:
        if len(calls.avals) == 1:
            return _of_one(calls, otherwise)
        if len(calls.avals) == 2:
            return _of_two(calls, otherwise)
    return _of_many(calls, otherwise)


def _elsewhere(calls: Dispatcher, otherwise: SlowPath) -> Callable[..., Any]:
    """Any argument and result trees, for a program that does not run on the default device."""
    match, launch = calls.match, calls.launch

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = match(args, kwargs) if current_binder() is None else None
        return otherwise(args, kwargs) if leaves is None else launch(leaves)

    return call


def _of_one(calls: Dispatcher, otherwise: SlowPath) -> Callable[..., Any]:
    """One array in, one out: one Python frame, and no attribute lookup on the program."""
    (a,), (out_aval,), start, handlers, refused = (
        calls.avals,
        calls.out_avals,
        calls.start,
        calls.handlers,
        calls.refused,
    )
    placed = calls.launch_buffers

    def call(*args: Any, **kwargs: Any) -> Any:
        buffers = None
        try:
            (x,) = args
            if x._aval is a and not kwargs and current_binder() is None:
                buffers = [x._buffer]
        except (AttributeError, ValueError):
            pass
        if buffers is None:
            return otherwise(args, kwargs)
        if commitments.any:
            return placed(buffers)
        if next(collection_due):
            collect_garbage()
        try:
            (out,) = start(buffers).consume_with_handlers(handlers)
        except runtime.XlaRuntimeError as e:
            raise refused(e, buffers) from e
        result = Array()
        result._aval, result._buffer = out_aval, out
        return result

    return call


def _of_two(calls: Dispatcher, otherwise: SlowPath) -> Callable[..., Any]:
    """Two arrays in, one out."""
    (a, b), (out_aval,), start, handlers = calls.avals, calls.out_avals, calls.start, calls.handlers
    placed, refused = calls.launch_buffers, calls.refused

    def call(*args: Any, **kwargs: Any) -> Any:
        buffers = None
        try:
            x, y = args
            if x._aval is a and y._aval is b and not kwargs and current_binder() is None:
                buffers = [x._buffer, y._buffer]
        except (AttributeError, ValueError):
            pass
        if buffers is None:
            return otherwise(args, kwargs)
        if commitments.any:
            return placed(buffers)
        if next(collection_due):
            collect_garbage()
        try:
            (out,) = start(buffers).consume_with_handlers(handlers)
        except runtime.XlaRuntimeError as e:
            raise refused(e, buffers) from e
        result = Array()
        result._aval, result._buffer = out_aval, out
        return result

    return call


def _of_many(calls: Dispatcher, otherwise: SlowPath) -> Callable[..., Any]:
    """Any argument and result trees. Loops are written out, because a comprehension costs a frame."""
    avals, bound, start, handlers, out_avals = calls.avals, calls.bound, calls.start, calls.handlers, calls.out_avals
    follow, flat, n = calls.program.in_tree.flatten_up_to, calls.flat, len(avals)
    finish, refused, operands, given_up = calls.finish, calls.refused, len(bound) + len(avals), calls.given_up

    def call(*args: Any, **kwargs: Any) -> Any:
        buffers, fits = [*bound], False
        leaves: Sequence[Any] = args
        try:
            leaves = args if flat and len(args) == n and not kwargs else follow((args, kwargs))  # type: ignore[arg-type]
            for k, x in enumerate(leaves):
                if x._aval is not avals[k]:
                    break
                buffers.append(x._buffer)
            fits = len(buffers) == operands and current_binder() is None
        except (AttributeError, TypeError, ValueError):
            pass
        if not fits:
            return otherwise(args, kwargs)
        if commitments.any:
            return calls.launch(leaves)
        if next(collection_due):
            collect_garbage()
        try:
            outs: list[Any] = start(buffers).consume_with_handlers(handlers)
        except runtime.XlaRuntimeError as e:
            raise refused(e, buffers) from e
        if given_up:
            _leave(leaves, given_up)
        for k, a in enumerate(out_avals):
            result = Array()
            result._aval, result._buffer = a, outs[k]
            outs[k] = result
        return finish(outs)

    return call
