"""Programs that call the host: the callbacks of XLA, and a synchronous execution.

A call of such a program returns after the program has run. So the effects of host functions are complete, the call
raises their exceptions, and the functions are alive while they may be called.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from threading import local
from typing import Final, final

import numpy as np

from fxad import lowering
from fxad.errors import CompileError, ExecutionError, FxadError
from fxad.ir import NDArray
from fxad.lowering.jaxlib import _jax
from fxad.lowering.ordered_effects import DONE
from fxad.primitives.check import CallsHost
from fxad.primitives.host_call import HostCall
from fxad.xla.client import Device
from fxad.xla.compat import result_handler
from fxad.xla.cuda import PLUGIN
from fxad.xla.interpreter_exit import call_host_function, execute_with_host_calls
from fxad.xla.jaxlib_types import Buffer, ResultHandler, Start, XlaResults


class _StandIn(Exception):  # noqa: N818  not an error of its own
    """The exception that XLA gets in place of that of a host function. Its message has the number of the other one."""


@final
class HostErrors:
    """The exceptions of the host functions of an executable. Thread-safe.

    On one device, a host function that fails ends the run. XLA gets a stand-in for the exception, and puts the message
    of the stand-in into its error. The number in it tells `end` which exception to raise.

    On several devices, exceptions are `deferred`. A device whose host function fails goes on, because others may wait
    for it in a collective, and XLA ends a process whose devices wait too long. Each call that is in progress then
    raises the exception at its end.
    """

    __slots__ = ("_by_number", "_count", "_errors_of_calls", "deferred")

    def __init__(self, deferred: bool) -> None:
        self.deferred = deferred
        self._count = count()
        self._by_number: OrderedDict[int, BaseException] = OrderedDict()
        # for each call in progress: the deferred exceptions, with the numbers of their devices
        self._errors_of_calls: dict[int, list[tuple[int, BaseException]]] = {}

    def stand_in(self, error: BaseException) -> _StandIn:
        """Store an exception, and return the one to raise in its place."""
        number = next(self._count)
        self._by_number[number] = error
        if len(self._by_number) > _MAX_KEPT:  # left over from executions whose error was never explained
            self._by_number.popitem(last=False)
        return _StandIn(f"<host call {number}>")

    def begin(self) -> int:
        """Return a number for a call that begins."""
        number = next(self._count)
        self._errors_of_calls[number] = []
        return number

    def defer(self, device: int, error: BaseException) -> None:
        """Store an exception of a device for all calls in progress."""
        for call_errors in self._errors_of_calls.copy().values():
            call_errors.append((device, error))

    def end(self, number: int, error: BaseException | None = None) -> None:
        """End a call. Raises the exception of a host function that is the reason of an error of XLA, or the first
        deferred one of the first device."""
        deferred = self._errors_of_calls.pop(number)
        numbers = re.findall(r"<host call (\d+)>", str(error)) if isinstance(error, _jax.JaxRuntimeError) else []
        _, first = min(deferred, key=itemgetter(0), default=(0, None))
        raised = first or (self._by_number.pop(int(numbers[-1]), None) if numbers else None)
        if raised is not None:
            raise raised from raised.__cause__


_MAX_KEPT: Final = 64


@final
class _Caller(local):
    """The caller of the host function that a thread runs: if it is a program on several devices."""

    on_several_devices = False


_caller: Final = _Caller()


def is_called_by_several_devices() -> bool:
    """Return True in a function of the host that a program on several devices calls."""
    return _caller.on_several_devices


def check_may_start(name: str) -> None:
    """Check that a program on several devices is not started by a host function of another one. XLA starts it after the
    other one, which waits for the host function.

    Raises: ExecutionError.
    """
    if _caller.on_several_devices:
        raise ExecutionError(
            f"{name}: it runs on several devices, and a host function that another program on several devices calls"
            " would wait for it for ever",
            remedy="call it before or after that program, or compute on one device: np.asarray(x) gathers an array",
        )


@final
class _Callback:
    """The function that XLA calls: it evaluates the equation, and stores its exceptions."""

    __slots__ = ("_call", "_errors", "_where")

    def __init__(self, call: CallsHost, where: str, errors: HostErrors) -> None:
        self._call, self._where, self._errors = call, where, errors

    def __call__(self, *operands: NDArray) -> tuple[NDArray, ...]:
        args, device = operands, 0
        if self._errors.deferred:
            args, device = operands[:-1], int(operands[-1])
        around = _caller.on_several_devices
        _caller.on_several_devices = around or self._errors.deferred
        try:
            return call_host_function(self._call.impl, *args)
        except BaseException as e:  # also KeyboardInterrupt and the like, which are no failures of the function
            error = e.located(where=self._where) if isinstance(e, FxadError) else e
            if not self._errors.deferred:
                raise self._errors.stand_in(error) from e
            self._errors.defer(device, error)
        finally:
            _caller.on_several_devices = around
        outs = self._call.out_avals if isinstance(self._call, HostCall) else ()
        return tuple([np.zeros(a.shape, a.dtype) for a in outs])


@final
class SynchronousStart:
    """The execution of a program that calls the host. Raises: ExecutionError with what a host function raised."""

    __slots__ = ("_done", "_errors", "_start")

    def __init__(self, start: Start, errors: HostErrors, sharding: _jax.Sharding) -> None:
        self._start, self._errors = start, errors
        self._done = result_handler(DONE, sharding, False, None)

    def __call__(self, buffers: Sequence[Buffer]) -> XlaResults:
        number = self._errors.begin()
        try:  # a small program runs here, in the call
            results = execute_with_host_calls(self._start, buffers)
        except BaseException as e:
            self._errors.end(number, e)
            raise
        return _SynchronousResults(results, self._done, self._errors, number)


@final
class _SynchronousResults:
    """The results of a `SynchronousStart`, which wait for the end of the program."""

    __slots__ = ("_done", "_errors", "_number", "_results")

    def __init__(self, results: XlaResults, done: ResultHandler, errors: HostErrors, number: int) -> None:
        self._results, self._done, self._errors, self._number = results, done, errors, number

    def consume_with_handlers(self, handlers: Sequence[ResultHandler], /) -> list[Buffer]:
        try:
            *arrays, done = execute_with_host_calls(self._results.consume_with_handlers, [*handlers, self._done])
            execute_with_host_calls(done.block_until_ready)
        except BaseException as e:
            self._errors.end(self._number, e)
            raise
        self._errors.end(self._number)
        return arrays


@final
class FunctionHolder:
    """Keeps a host function in the table of `core.host_functions`. The buffers with its number refer to the holder."""

    __slots__ = ("__weakref__",)


def hold_host_function(number: Buffer) -> FunctionHolder:
    """Return a holder that lives as long as this buffer and its copies."""
    holder = number.__dict__[_HOLDER] = FunctionHolder()
    return holder


def hold_same_function(number: Buffer, copy: Buffer) -> Buffer:
    """Return a copy of a buffer. If the buffer is the number of a host function, the copy keeps the function, too."""
    holder = number.__dict__.get(_HOLDER)
    if holder is not None:
        copy.__dict__[_HOLDER] = holder
    return copy


_HOLDER: Final = "fxad_host_function"  # in the dictionary of a buffer


def compile_with_callbacks(
    text: str,
    calls: Sequence[tuple[CallsHost, str]],
    devices: Sequence[Device],
    options: _jax.CompileOptions,
) -> tuple[_jax.LoadedExecutable, HostErrors]:
    """Compile a module that calls the host. Raises: CompileError without the plugin for it; what XLA raises."""
    client, platform = devices[0].client, devices[0].platform
    if calls and platform != "cpu":
        what, remedy = calls[0][0].refusal
        if platform != "cuda":
            raise CompileError(f"compile: a program on {platform} cannot call {what}", remedy=remedy)
        if not PLUGIN.calls_host:
            raise CompileError(
                f"compile: without jax-cuda13-plugin, a program on cuda cannot call {what}",
                remedy="pip install jax-cuda13-plugin of the version of jaxlib",
            )
    errors = HostErrors(deferred=len(devices) > 1)
    callbacks = [_Callback(call, where, errors) for call, where in calls]
    device_list = _jax.DeviceList(tuple([d.raw for d in devices]))
    raw = lowering.mlir.with_module(
        text, lambda module: client.compile_and_load(module, device_list, options, callbacks)
    )
    return raw, errors
