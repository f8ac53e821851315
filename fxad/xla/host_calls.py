"""Programs that call the host: what XLA calls back, and an execution that waits.

Such a program is waited for before its call returns: what the host functions do has happened then, what they raise is
raised there, and they are held as long as they may be called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, final

from fxad.errors import CompileError, ExecutionError, FxadError
from fxad.ir import NDArray
from fxad.lowering import mlir
from fxad.lowering.door import _jax
from fxad.lowering.ordering import DONE
from fxad.primitives.host import HostCall
from fxad.xla.client import Device
from fxad.xla.compat import result_handler


class Results(Protocol):
    """Results of an execution, not arrays yet."""

    def consume_with_handlers(self, handlers: Sequence[_jax.ResultHandler], /) -> list[_jax.ArrayImpl]:
        """Make arrays of them."""


Start: TypeAlias = Callable[[Sequence[_jax.ArrayImpl]], Results]


@final
class _Callback:
    """What XLA calls: the meaning of the equation, with what it raises kept."""

    __slots__ = ("_call", "_raised")

    def __init__(self, call: HostCall, raised: deque[tuple[str, BaseException]]) -> None:
        self._call, self._raised = call, raised

    def __call__(self, *args: NDArray) -> tuple[NDArray, ...]:
        try:
            return self._call.impl(*args)
        except BaseException as e:
            self._raised.append((self._call.label, e))
            raise


@final
class Waiting:
    """The execution of a program that calls the host. Raises: ExecutionError with what a host function raised."""

    __slots__ = ("_done", "_raised", "_start")

    def __init__(
        self,
        start: Start,
        raised: deque[tuple[str, BaseException]],
        device: Device,
    ) -> None:
        self._start, self._raised = start, raised
        self._done = result_handler(DONE, device.sharding, False, None)

    def __call__(self, buffers: Sequence[_jax.ArrayImpl]) -> Results:
        try:  # a small program runs here, in the call
            return _Results(self._start(buffers), self._done, self._raised)
        except _jax.JaxRuntimeError as e:
            _explain(e, self._raised)
            raise


@final
class _Results:
    __slots__ = ("_done", "_raised", "_results")

    def __init__(self, results: Results, done: _jax.ResultHandler, raised: deque[tuple[str, BaseException]]) -> None:
        self._results, self._done, self._raised = results, done, raised

    def consume_with_handlers(self, handlers: Sequence[_jax.ResultHandler], /) -> list[_jax.ArrayImpl]:
        *arrays, done = self._results.consume_with_handlers([*handlers, self._done])
        try:
            done.block_until_ready()
        except _jax.JaxRuntimeError as e:
            _explain(e, self._raised)
            raise
        return arrays


def _explain(e: Exception, raised: deque[tuple[str, BaseException]]) -> None:
    """Raises: what a host function raised, where that is why the execution failed."""
    if "Callback" in str(e) and raised:
        label, cause = raised.popleft()
        if isinstance(cause, FxadError):
            raise cause from None
        raise ExecutionError(f"host_call: {label} raised {type(cause).__name__}: {cause}") from cause


def compiled(
    source: str, calls: Sequence[HostCall], device: Device, options: _jax.CompileOptions
) -> tuple[_jax.LoadedExecutable, Waiting]:
    """Compile a module that calls the host. Raises: CompileError off the CPU; what XLA raises."""
    if device.platform != "cpu":
        raise CompileError(
            f"compile: {calls[0].label} is a function of the host, which programs on {device.platform} do not call",
            remedy="run this part of the program on the CPU: fx.devices('cpu')",
        )
    raised: deque[tuple[str, BaseException]] = deque(maxlen=64)
    callbacks = [_Callback(call, raised) for call in calls]
    devices = _jax.DeviceList((device.raw,))
    raw = mlir.parsed(source, lambda module: device.client.compile_and_load(module, devices, options, callbacks))
    return raw, Waiting(raw.execute_sharded, raised, device)
