"""Programs that call the host: the callbacks of XLA, and a synchronous execution.

A call of such a program returns after the program has run. So the effects of host functions are complete, the call
raises their exceptions, and the functions are alive while they may be called.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, Protocol, TypeAlias, final

from fxad import lowering
from fxad.errors import CompileError, FxadError
from fxad.ir import NDArray
from fxad.lowering.jaxlib import _jax
from fxad.lowering.ordered_effects import DONE
from fxad.primitives.check import Called
from fxad.xla.client import Device
from fxad.xla.compat import result_handler
from fxad.xla.in_flight import call_host_function, execute_with_host_calls


class Results(Protocol):
    """Results of an execution, not arrays yet."""

    def consume_with_handlers(self, handlers: Sequence[_jax.ResultHandler], /) -> list[_jax.ArrayImpl]:
        """Make arrays of them."""


Start: TypeAlias = Callable[[Sequence[_jax.ArrayImpl]], Results]


class _Raised(Exception):  # noqa: N818  not an error of its own: a number that XLA's message has in it
    """Replaces an exception of a host function while XLA propagates it."""


@final
class HostErrors:
    """The exceptions of the host functions of an executable, by numbers that XLA's messages contain. Thread-safe."""

    __slots__ = ("_count", "_raised")

    def __init__(self) -> None:
        self._count = count()
        self._raised: OrderedDict[int, BaseException] = OrderedDict()

    def add(self, error: BaseException) -> _Raised:
        """Store an exception, and return the one to raise in its place."""
        number = next(self._count)
        self._raised[number] = error
        if len(self._raised) > _KEPT:  # left over from executions whose error was never explained
            self._raised.pop(number - _KEPT, None)
        return _Raised(f"<host call {number}>")

    def explain(self, e: Exception) -> None:
        """Raise the exception of a host function, if that is the reason why the execution failed."""
        numbers = re.findall(r"<host call (\d+)>", str(e))
        error = self._raised.pop(int(numbers[-1]), None) if numbers else None
        if error is not None:
            raise error from error.__cause__


_KEPT: Final = 64


@final
class _Callback:
    """The function that XLA calls: it evaluates the equation, and stores its exceptions."""

    __slots__ = ("_call", "_failures", "_where")

    def __init__(self, call: Called, where: str, failures: HostErrors) -> None:
        self._call, self._where, self._failures = call, where, failures

    def __call__(self, *args: NDArray) -> tuple[NDArray, ...]:
        try:
            return call_host_function(self._call.impl, *args)
        except FxadError as e:
            raise self._failures.add(e.located(where=self._where)) from e
        except BaseException as e:  # such as KeyboardInterrupt: no failure of the function
            raise self._failures.add(e) from e


@final
class SynchronousStart:
    """The execution of a program that calls the host. Raises: ExecutionError with what a host function raised."""

    __slots__ = ("_done", "_failures", "_start")

    def __init__(self, start: Start, failures: HostErrors, device: Device) -> None:
        self._start, self._failures = start, failures
        self._done = result_handler(DONE, device.sharding, False, None)

    def __call__(self, buffers: Sequence[_jax.ArrayImpl]) -> Results:
        try:  # a small program runs here, in the call
            return _Results(execute_with_host_calls(self._start, buffers), self._done, self._failures)
        except _jax.JaxRuntimeError as e:
            self._failures.explain(e)
            raise


@final
class _Results:
    __slots__ = ("_done", "_failures", "_results")

    def __init__(self, results: Results, done: _jax.ResultHandler, failures: HostErrors) -> None:
        self._results, self._done, self._failures = results, done, failures

    def consume_with_handlers(self, handlers: Sequence[_jax.ResultHandler], /) -> list[_jax.ArrayImpl]:
        *arrays, done = execute_with_host_calls(self._results.consume_with_handlers, [*handlers, self._done])
        try:
            execute_with_host_calls(done.block_until_ready)
        except _jax.JaxRuntimeError as e:
            self._failures.explain(e)
            raise
        return arrays


def compile_with_callbacks(
    source: str, calls: Sequence[tuple[Called, str]], device: Device, options: _jax.CompileOptions
) -> tuple[_jax.LoadedExecutable, SynchronousStart]:
    """Compile a module that calls the host. Raises: CompileError off the CPU; what XLA raises."""
    if calls and device.platform != "cpu":
        what, remedy = calls[0][0].refusal
        raise CompileError(f"compile: a program on {device.platform} cannot call {what}", remedy=remedy)
    failures = HostErrors()
    callbacks = [_Callback(call, where, failures) for call, where in calls]
    devices = _jax.DeviceList((device.raw,))
    load = device.client.compile_and_load
    raw = lowering.mlir.with_module(source, lambda module: load(module, devices, options, callbacks))
    return raw, SynchronousStart(raw.execute_sharded, failures, device)
