"""`Array`: a value on a device, with NumPy's operators; and `Binder`, the interface through which operations run.

An operator does not know whether it runs inside a trace. It passes an operation (`fxad.operations`) or a primitive to
the active `Binder`: the trace of this context if there is one (`tracing.tracer`), else `Eager`, which compiles the
operation as a program, once per operand types, and runs it.

The parts of this file are one, because each calls the others: the active binder; `Array`, which calls it; values of
users as arrays; `Eager`, the binder that is active if no other is, which makes arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, Self, TypeGuard, cast
from weakref import ref

import numpy as np
import numpy.typing as npt

from fxad import dtypes, runtime
from fxad.core.builder import Builder
from fxad.core.exact_key import NEEDS_EXACT_KEY, exact_key
from fxad.core.lru import LRUCache
from fxad.core.numbers import NUMBER_ARGUMENTS, PYTHON_NUMBERS, plain_number
from fxad.core.sizes.size import Size
from fxad.errors import (
    ArgumentError,
    DTypeError,
    ExecutionError,
    FxadError,
    LeakedTracerError,
    ParameterError,
    described,
    exception_text,
    shown,
)
from fxad.ir import EAGER_NAME, Atom, Aval, Jaxpr, NDArray, Primitive
from fxad.operations import elementwise, index_plan, indexing, promotion
from fxad.operations.arguments import contained_array
from fxad.operations.at import Updatable
from fxad.operations.aval_attributes import Typed
from fxad.operations.conversions import Conversions
from fxad.operations.methods import Methods
from fxad.operations.operators import ArrayLike, Operation
from fxad.primitives.index import index_dtype
from fxad.runtime import process_state
from fxad.sharding import Shard, Sharding, sharding_of
from fxad.support.tables import headed, preformatted
from fxad.tracing import placement
from fxad.units.forwarding import forwarded_host_functions


class Binder(Protocol):
    """The destination of operations: the program being traced, or a device."""

    def bind(self, prim: Primitive, args: tuple[object, ...]) -> tuple[Array, ...]:
        """Run a primitive on the arguments, or add it as an equation, without promotion. Return the results."""

    def apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> tuple[Array, ...]:
        """Run an operation on array arguments, or add its equations. Return the results."""

    def call(
        self, jaxpr: Jaxpr, args: Sequence[object], path: placement.PathOf = placement.operand_label, name: str = ""
    ) -> tuple[Array, ...]:
        """Run a whole program on its operands, or add it as one equation. Return the results. For messages, `path`
        gives the name of an operand, and `name` is that of the program, by default that of its jaxpr."""

    def paste(self, op: str, jaxpr: Jaxpr, args: tuple[object, ...]) -> tuple[Array, ...]:
        """Run the short program of a function of the library, or add its equations, with the user's line as their
        source. Return the results."""

    def staging(self) -> bool:
        """Return True if operations of the calling code become equations."""


_binder: Final[ContextVar[Binder | None]] = ContextVar("fxad_binder", default=None)
# The active binder of this context (thread, asyncio task); None for `EAGER`. It is called without a Python frame.
current_binder: Final = _binder.get


def binder() -> Binder:
    """Return the active binder of this context (thread, asyncio task)."""
    return current_binder() or EAGER


@contextmanager
def evaluating() -> Iterator[None]:
    """Return a context. Inside it, operations are computed at once: no trace is active."""
    with binding(None):
        yield


@contextmanager
def running_each_operation(on: bool) -> Iterator[None]:
    """Return a context. Inside it, functions of `jit` run operation by operation. A trace that is active stays so."""
    active = current_binder()
    if active is None or isinstance(active, Eager):
        active = OPERATION_BY_OPERATION if on else None
    with binding(active):
        yield


@contextmanager
def binding(active: Binder | None) -> Iterator[None]:
    """Return a context. Inside it, operations of this thread or task go to a binder. None: they are computed."""
    before = _binder.set(active)
    try:
        yield
    finally:
        _binder.reset(before)


# ----------------------------------------------------------------------------------------------------------- Array


class Array(Typed, Conversions, Methods, Updatable):
    """An immutable array on a device.

    Type:  `shape`, `dtype` as in NumPy; never a subclass of `numpy.ndarray`. The arguments of a traced function are
           tracers: Arrays without a value.
    Rule:  arrays promote by kind, then by width (decision 64); a Python scalar takes the dtype of the array it meets.
    """

    __slots__ = ("__weakref__", "_aval", "_buffer")
    __array_priority__ = 1000  # NumPy must leave `ndarray + Array` to `Array.__radd__`

    _aval: Aval
    _buffer: runtime.Buffer

    @property
    def aval(self) -> Aval:
        """Shape and dtype together."""
        return self._aval

    @property
    def device(self) -> runtime.Device:
        """The device of the value."""
        return runtime.device_of(self._buffer)

    @property
    def committed(self) -> bool:
        """Return True if the array was put on its device, or computed from such an array. Such an array never moves
        implicitly."""
        return self._buffer._committed

    @property
    def sharding(self) -> Sharding:
        """The division of the value among devices."""
        return sharding_of(self._buffer)

    def devices(self) -> set[runtime.Device]:
        """Return the devices that hold the value."""
        return set(self.sharding.device_set)

    def is_deleted(self) -> bool:
        """Return True if the memory was freed: deleted, or donated."""
        return runtime.is_deleted(self._buffer)

    def is_ready(self) -> bool:
        """Return True if the value has been computed."""
        return runtime.is_ready(self._buffer)

    def delete(self) -> None:
        """Free the memory now. Later uses are errors."""
        runtime.delete_for_user(self._buffer)

    def tobytes(self, order: Literal["C", "F", "A"] | None = "C") -> bytes:
        """Return the elements as bytes."""
        return self.__array__().tobytes(order)

    @property
    def addressable_shards(self) -> tuple[Shard[Array], ...]:
        """The parts of the value on the devices of this process, each with its device and its index."""
        buffer = self._buffer  # another thread may donate it
        if buffer.is_deleted():
            runtime.block(buffer, "addressable_shards")
        if not runtime.is_sharded(buffer):
            return (Shard(self.device, (slice(None),) * self.ndim, self),)
        last_replica: dict[object, int] = {}  # of each part, by its bounds, in the order of the mesh
        indices: dict[runtime.Device, tuple[tuple[slice, ...], int]] = {}
        for d, index in sharding_of(buffer).devices_indices_map(self.shape).items():
            bounds = tuple([(s.start, s.stop) for s in index])  # a slice is not hashable in Python 3.11
            last_replica[bounds] = last_replica.get(bounds, -1) + 1
            indices[d] = index, last_replica[bounds]
        parts = [(d, wrap_buffer(Aval(p.aval.shape, p.aval.dtype), p)) for d, _, p in runtime.shards(buffer)]
        return tuple([Shard(d, indices[d][0], part, indices[d][1]) for d, part in parts])

    @property
    def is_fully_addressable(self) -> bool:
        """Return True if all parts are on devices of this process."""
        return self.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Return True if each device has the whole value."""
        return self.sharding.is_fully_replicated

    def addressable_data(self, index: int) -> Array:
        """Return the value of one part on the devices of this process."""
        return self.addressable_shards[index].data

    def to_device(self, device: runtime.Device, /, *, stream: None = None) -> Array:
        """Return the value on another device; the array itself if it is there. `stream` must be None (array API
        standard)."""
        placement.check_device("to_device", device, stream)
        if self.device is device and not runtime.is_sharded(self._buffer):
            return self
        placement.check_local("to_device", device)
        return wrap_buffer(self._aval, runtime.transfer(self._buffer, device))

    # ---------------------------------------------------------------------------------------------------- values

    def __array__(self, dtype: object = None, copy: bool | None = None) -> npt.NDArray[Any]:
        value = runtime.to_numpy(self._buffer)
        if copy is False and not _is_view(value):
            raise ParameterError(f"numpy: {self._aval} has no view in NumPy, only a copy", remedy="leave `copy` out")
        if dtype is not None and value.dtype != dtype:
            if copy is False:
                raise ParameterError(
                    f"numpy: {value.dtype.name} does not become {dtype} without a copy", remedy="leave `copy` out"
                )
            return value.astype(np.dtype(dtype))  # type: ignore[call-overload]  # NumPy checks that it is a dtype
        return value.copy() if copy else value

    def __repr__(self) -> str:
        missing = runtime.unreadable_reason(self._buffer)  # debuggers and messages also show deleted arrays
        return f"<Array {self._aval}, {missing}>" if missing else super().__repr__()

    def __str__(self) -> str:
        return repr(self) if runtime.is_elsewhere(self._buffer) else super().__str__()

    def _repr_html_(self) -> str:
        if runtime.unreadable_reason(self._buffer):
            return headed(repr(self))
        devices = sorted(map(str, self.devices()))
        places = devices[0] if len(devices) == 1 else f"{len(devices)} devices"
        return headed(f"{self._aval}, {self._aval.nbytes:,} bytes, {places}", preformatted(str(self)))

    def leaked(self, what: str, where: str) -> LeakedTracerError:
        """Return the error for a tracer used outside its trace. `what` is its role, `where` the place of the use."""
        raise AssertionError("an array with a value belongs to no trace")

    def check_usable(self, what: str) -> None:
        """Check that the array may be used here. Raises: LeakedTracerError for a tracer of another trace."""

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return runtime.to_dlpack(self._buffer, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return runtime.dlpack_device(self._buffer)

    def __jax_array__(self) -> Any:
        """Return the value as an array of JAX, which calls this: the same memory, on one device."""
        numpy_of_jax = sys.modules["jax"].numpy
        sharded = runtime.is_sharded(self._buffer)
        return numpy_of_jax.asarray(self.__array__()) if sharded else numpy_of_jax.from_dlpack(_Lent(self))

    def block_until_ready(self) -> Array:
        """Wait until the value has been computed, and return the array itself."""
        runtime.block(self._buffer)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return asarray, (np.array(self.__array__()),)

    def copy(self) -> Self:
        """Return a copy in separate memory, which can be donated on its own. Inside a trace, it is the array itself."""
        self.check_usable("copy: argument 0")
        staged = type(self) is not Array or binder().staging()
        return self if staged else cast("Self", wrap_buffer(self._aval, runtime.copy_buffer(self._buffer)))

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def __contains__(self, value: ArrayLike) -> bool:
        equal: object = self == value
        return bool(equal.any()) if isinstance(equal, Array) else False

    # Operations make Arrays outside traces and Tracers inside, as `Self` says. Their types say Array, hence the casts
    # to `Self` in this class.
    def _apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> Self:
        return cast("Self", apply_operation(op, (self, *args), static))

    def _binary(self, op: Operation, x: ArrayLike, y: ArrayLike, *static: Hashable) -> Self:
        if type(x) is not type(y) and not (isinstance(y, _OPERANDS) and isinstance(x, _OPERANDS)):
            other: object = y if x is self else x
            if other is not (inner := contained_array(other)):
                x, y = (x, cast("ArrayLike", inner)) if x is self else (cast("ArrayLike", inner), y)
                return self._binary(op, x, y, *static)
            if not isinstance(other, runtime.SupportsDLPack):
                if isinstance(other, Sequence) and not isinstance(other, str | bytes):
                    raise _sequence_error(op, static, other)
                return cast("Self", NotImplemented)
        if type(x) is Array is type(y) and current_binder() is None:
            return cast("Self", EAGER.apply_to_arrays(op, (x, y), static)[0])
        return cast("Self", apply_operation(op, (x, y), static))

    def __getitem__(self, index: object) -> Self:
        active = current_binder()
        if active is None:
            return cast("Self", EAGER.getitem(self, index))
        plan, operands = index_plan.plan(self.aval.shape, index)
        return cast("Self", active.apply(indexing.getitem, (self, *operands), (plan,))[0])


def _is_view(value: NDArray) -> bool:
    """Return True if a NumPy array shows the memory of a buffer."""
    return isinstance(runtime.owner_of_memory(value), memoryview)


class _Lent:
    """The memory of an array by DLPack, without a copy, for jax, which never writes to an array."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **_: object) -> Any:
        return runtime.lend(self._array._buffer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def _sequence_error(op: Operation, static: tuple[Hashable, ...], other: object) -> ArgumentError:
    """Return the error for an operator with a list. Python would compare it as a whole, or repeat it."""
    names = [p.name for p in static if isinstance(p, Primitive)]
    return ArgumentError(
        f"{names[0] if names else op.__name__}: {described(other)} is not an array: {shown(other)}",
        remedy="make it one: fnp.asarray(...)",
    )


_OPERANDS: Final = (Array, np.ndarray, np.generic, bool, int, float, complex)


# ------------------------------------------------------------------------------------------- values of users as arrays


def asarray(value: object, dtype: object = None, what: str = "asarray: argument 0") -> Array:
    """Put a value on the default device: a NumPy array, a scalar, or anything with DLPack. Converted, with a `dtype`.
    Errors name the argument (`what`).

    Raises: ArgumentError if `value` is not an array; DTypeError for a dtype fxad does not have, for a complex value and
            a real dtype, and for a Python int that does not fit.
    """
    if isinstance(value, Array):
        value.check_usable(what)
        return cast("Array", value.settled()) if dtype is None else value.astype(dtype)
    if value is not (inner := contained_array(value)):
        return asarray(inner, dtype, what)
    if type(value) is Size:
        size = apply_operation(_size_literal, (value,), ())
        return size if dtype is None else size.astype(dtype)
    if dtype is None:
        return device_array(value, aval_of(value, what))
    converted = dtypes.as_dtype(dtype)
    if is_scalar(value):  # an int must fit in the dtype, and not in its own
        promotion.scalar_dtype(value, converted, what)
        if isinstance(value, int) and value.bit_length() > 64:  # NumPy would make an array of an object
            value = float(value)
        aval = Aval((), dtypes.complex64 if isinstance(value, complex) else converted)
    else:
        aval = aval_of(value, what)
    if dtypes.is_complex(aval.dtype) and not dtypes.is_complex(converted) and converted is not dtypes.bool_:
        raise DTypeError(
            f"asarray: {aval} to {converted.name} would drop the imaginary part", remedy="use x.real or abs"
        )
    with np.errstate(all="ignore"):
        return device_array(np.asarray(value).astype(converted), aval.with_dtype(converted))


def _size_literal(_emit: object, x: Atom) -> tuple[Atom, ...]:
    """Return the value of a size. A size counts as a scalar, so x is its literal already: there is nothing to emit."""
    return (x,)


def wrap_buffer(aval: Aval, buffer: runtime.Buffer) -> Array:
    """Return a buffer as an Array of its type."""
    array = Array()
    array._aval, array._buffer = aval, buffer
    return array


def wrap_buffers(avals: Sequence[Aval], buffers: Sequence[runtime.Buffer]) -> list[Array]:
    """Return the buffers as Arrays of these types."""
    return [wrap_buffer(a, b) for a, b in zip(avals, buffers, strict=True)]


def device_array(value: object, aval: Aval) -> Array:
    """Return an uncommitted array of exactly the type `aval`, on the default device."""
    return wrap_buffer(aval, runtime.to_buffer(value, aval))


def aval_of(value: object, what: str = "value") -> Aval:
    """Return the type of a user's value. This function alone decides which values can be operands.

    Raises: ArgumentError for what is not an array; DTypeError for a dtype fxad does not have.
    """
    if isinstance(value, Array):
        return value.aval
    if isinstance(value, np.ndarray | np.generic):
        # numpy.ma is imported at its first use, so plain arrays do not mention it
        if isinstance(value, np.ndarray) and type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
            raise ArgumentError(f"{what}: a masked array is not taken: its mask would be lost", remedy="use filled()")
        try:
            return Aval(value.shape, value.dtype)
        except DTypeError as e:
            remedy = e.remedy if value.dtype.isnative else 'give x.astype(x.dtype.newbyteorder("="))'
            raise DTypeError(f"{what}: {value.dtype!r} is not a dtype of fxad", remedy=remedy) from None
    if isinstance(value, bool | int | float | complex):
        return Aval((), promotion.scalar_dtype(value, None, what))
    if isinstance(value, runtime.SupportsDLPack) and not isinstance(value, type):
        try:
            return runtime.dlpack_aval(value)
        except FxadError:
            raise
        except Exception as e:
            message = f"{what}: the __dlpack__ of {described(value)} raises {exception_text(e)}"
            raise ArgumentError(message, remedy="give np.asarray of it") from e
    remedy = "pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__"
    if type(value).__module__.startswith("jax."):  # a tracer: arrays of JAX have DLPack
        remedy = "give the function of fxad to fxad.interop.jax.to_jax, and call the result"
    elif hasattr(value, "to_dense"):
        remedy = "make an array of it with to_dense()"
    elif isinstance(value, list | tuple):
        remedy = "make it one: fxad.numpy.asarray(...)"
    raise ArgumentError(f"{what}: {described(value)} is not an array: {shown(value)}", remedy=remedy)


def unchanging_array(value: object, aval: Aval) -> object:
    """Return an array of type `aval` to whose elements nobody can write: the value itself, if it is one, else a
    copy."""
    if isinstance(value, np.ndarray):
        if not value.size or runtime.is_immutable(value):
            return value
        return np.frombuffer(value.tobytes(), value.dtype).reshape(value.shape)
    if isinstance(value, Array | runtime.Buffer) or not isinstance(value, runtime.SupportsDLPack):
        return value
    return wrap_buffer(aval, runtime.to_buffer(value, aval))


def same_bits(x: object, y: object) -> bool:
    """Return True if two arrays have equal types and elements of equal bits."""
    a, b = np.asarray(x), np.asarray(y)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = np.dtype(f"u{a.itemsize}" if a.itemsize in (1, 2, 4, 8) else np.uint8)
    a, b = [np.ascontiguousarray(v).reshape(-1).view(bits) for v in (a, b)]
    return np.array_equal(a, b)


# ---------------------------------------------------------------------------------------------------------- eager


def load_for(jaxpr: Jaxpr, target: placement.Target | None) -> runtime.XlaExecutable:
    """Return the executable of a program for the devices of its operands (None: the default one), from the active
    cache."""
    if isinstance(target, placement.OperandSharding):
        return runtime.compile_jaxpr(target.program(jaxpr), device=target.device)
    return runtime.compile_jaxpr(jaxpr, device=target)


class Eager:
    """The binder outside a trace: each operation is a program, compiled once per operand types, and launched at once.

    It stands beside `Array`, and not in `fxad.execution`: the operators of arrays call it, and it makes arrays.

    Cost: 1.5 us in addition to the execution (4 us), once the operation has run on these types.
    """

    __slots__ = ("_plans", "_programs", "_scalars")

    def __init__(self, limit: int = 4096) -> None:
        # The references are weak because the cache of executables holds them, within its budget.
        self._programs: LRUCache[Hashable, ref[runtime.XlaExecutable]] = LRUCache(limit)
        # keyed by the scalar: `x + 1` in a loop transfers its 1 to the device once
        self._scalars: LRUCache[Hashable, Array] = LRUCache(limit)
        self._plans: LRUCache[Hashable, tuple[index_plan.IndexPlan, tuple[int, ...], dtypes.DType]] = LRUCache(limit)

    def bind(self, prim: Primitive, args: tuple[object, ...]) -> tuple[Array, ...]:
        arrays = [self._operand(prim.name, k, a) for k, a in enumerate(args)]
        return self.apply_to_arrays(_emit_prim, arrays, (prim,))

    def apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> tuple[Array, ...]:
        for a in args:
            if type(a) is not Array:
                return self.apply_to_arrays(op, self.operands(op, args, static), static)
        return self.apply_to_arrays(op, cast("tuple[Array, ...]", args), static)  # the loop has checked it

    def call(
        self, jaxpr: Jaxpr, args: Sequence[object], path: placement.PathOf = placement.operand_label, name: str = ""
    ) -> tuple[Array, ...]:
        name = name or jaxpr.name
        buffers = [self._operand(name, k, a)._buffer for k, a in enumerate(args)]
        if process_state.any_committed and True in map(placement.is_committed, buffers):
            loaded = load_for(jaxpr, placement.target_of_call(name, buffers, path))
            outs = placement.launch_committed(loaded, buffers, loaded.producer.named(name), path)
        else:
            loaded = load_for(jaxpr, None)
            outs = runtime.launch(loaded.start, buffers, loaded.handlers, loaded.producer.named(name), path)
        for k, operand in forwarded_host_functions(jaxpr):
            runtime.hold_same_function(buffers[operand], outs[k])
        return tuple(wrap_buffers(loaded.out_avals, outs))

    def paste(self, op: str, jaxpr: Jaxpr, args: tuple[object, ...]) -> tuple[Array, ...]:
        return self.apply_to_arrays(_paste, [self._operand(op, k, a) for k, a in enumerate(args)], (jaxpr,))

    def staging(self) -> bool:
        return False

    def getitem(self, x: Array, index: object) -> Array:
        """Return `x[index]`. The start indices are operands: one program for x[0], x[1], ..."""
        if type(x) is not Array:
            x = self._operand("getitem", 0, x)
        shape = x.aval.shape
        key = index_plan.hashable_index(index)
        cached = self._plans.get((shape, key)) if key is not None else None
        if cached is not None:
            plan, starts, dtype = cached
            return self.apply(indexing.getitem, (x, *[self.scalar(k, dtype) for k in starts]), (plan,))[0]
        plan, operands = index_plan.plan(shape, index)
        plan, starts = index_plan.with_dynamic_starts(plan, shape)
        dtype = index_dtype(shape)
        if key is not None:
            self._plans.put((shape, key), (plan, starts, dtype))
        return self.apply(indexing.getitem, (x, *[self.scalar(k, dtype) for k in starts], *operands), (plan,))[0]

    def apply_to_arrays(self, op: Operation, args: Sequence[Array], static: tuple[Hashable, ...]) -> tuple[Array, ...]:
        """Return `apply` for Arrays that are not tracers. A cached operation takes one Python frame."""
        avals: tuple[Aval, ...]
        if len(args) == 1:  # spelled out: a comprehension costs a frame, 0.1 us
            (x,) = args
            avals, buffers = (x._aval,), [x._buffer]
        elif len(args) == 2:
            x, y = args
            avals, buffers = (x._aval, y._aval), [x._buffer, y._buffer]
        else:
            avals, buffers = tuple([a._aval for a in args]), [a._buffer for a in args]
        key: Hashable = op, avals, static
        if static:
            kinds = tuple(map(type, static))
            key = op, avals, static if NEEDS_EXACT_KEY.isdisjoint(kinds) else exact_key(static), kinds
        try:
            cached = self._programs.peek(key) or self._programs.get(key)
            loaded = None if cached is None else cached()
        except TypeError:  # an array or a list as a parameter: the operation checks it
            loaded = key = None
        try:
            if process_state.any_committed and True in map(placement.is_committed, buffers):
                target = placement.target_of_call(operation_name(op, static), buffers, placement.operand_label)
                loaded = self._load_on(target, op, avals, static, key)
                out = placement.launch_committed(loaded, buffers, loaded.producer)
            else:
                if loaded is None:
                    loaded = self._load(op, avals, static, key)
                out = runtime.launch(loaded.start, buffers, loaded.handlers, loaded.producer)
        except ExecutionError as e:
            if loaded is None or not isinstance(e.__cause__, runtime.XlaRuntimeError):
                raise
            producer = loaded.producer.named(operation_name(op, static))  # equal operations share an executable
            raise runtime.execution_error(e.__cause__, buffers, producer, _label_of(op)) from e.__cause__
        if len(out) != 1:
            return tuple(wrap_buffers(loaded.out_avals, out))
        result = Array()
        result._aval, result._buffer = loaded.out_avals[0], out[0]
        return (result,)

    def _load_on(
        self,
        target: placement.Target,
        op: Operation,
        avals: tuple[Aval, ...],
        static: tuple[Hashable, ...],
        key: Hashable,
    ) -> runtime.XlaExecutable:
        """Return the operation's program for its devices, loaded at its first use there."""
        if key is not None and target is not runtime.default_device():
            key = target, key
        cached = None if key is None else self._programs.get(key)
        return (cached and cached()) or self._load(op, avals, static, key, target)

    def _load(
        self,
        op: Operation,
        avals: tuple[Aval, ...],
        static: tuple[Hashable, ...],
        key: Hashable,
        target: placement.Target | None = None,
    ) -> runtime.XlaExecutable:
        b = Builder()
        loaded = load_for(b.build(op(b, *b.inputs(avals), *static), EAGER_NAME), target)
        if key is not None:
            self._programs.put(key, ref(loaded))
        return loaded

    def cached(self, op: Operation, aval: Aval, prim: Primitive) -> runtime.XlaExecutable | None:
        """Return the cached program of an operation of one array and a primitive, on the default device; else None."""
        cached = self._programs.get((op, (aval,), (prim,), (type(prim),)))
        return None if cached is None else cached()

    def operands(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> list[Array]:
        """Return arguments as arrays on the device; a Python scalar in the dtype of the first array."""
        like = _dtype_of_first_array(op, args, static)
        return [a if type(a) is Array else self._operand((op, static), k, a, like) for k, a in enumerate(args)]

    def scalar(self, value: promotion.Scalar, like: dtypes.DType | None = None) -> Array:
        """Return a Python scalar on the device, in the dtype it takes beside `like`."""
        # zeros and complex numbers that are equal may have different bits, so they are keyed by their repr
        key = type(value), value if value and type(value) is not complex else repr(value), like
        array = self._scalars.get(key)
        if array is None:
            array = _scalar_array(value, like)
            self._scalars.put(key, array)
        return array

    def _operand(
        self,
        op: str | tuple[Operation, tuple[Hashable, ...]],
        k: int,
        value: object,
        like: dtypes.DType | None = None,
    ) -> Array:
        if type(value) is Array:
            return value
        try:
            if type(value) in PYTHON_NUMBERS:  # mypy does not narrow by it, and `isinstance` takes longer
                return self.scalar(cast("promotion.Scalar", value), like)
            if is_scalar(value):
                return (
                    self.scalar(plain_number(value), like)
                    if type(value) in NUMBER_ARGUMENTS
                    else _scalar_array(value, like)
                )
        except DTypeError as e:
            raise promotion.argument(e, _argument_text(op, k)) from None
        what = _argument_text(op, k)
        if isinstance(value, Array):  # a tracer, and no active trace
            raise value.leaked(what, "no function is being traced here")
        if value is not (inner := contained_array(value)):
            return self._operand(op, k, inner, like)
        aval = aval_of(value, what)
        return device_array(value, aval)


def _dtype_of_first_array(op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> dtypes.DType | None:
    """Return the dtype of the first array among arguments; the one that Python scalars take together if there is
    none."""
    for k, a in enumerate(args):
        if isinstance(a, Array | np.ndarray | np.generic):
            return a.dtype
        if not is_scalar(a):  # an array of another library
            return aval_of(contained_array(a), _argument_text((op, static), k)).dtype
    return promotion.dtype_of_scalars([a for a in args if is_scalar(a)])


def apply_operation(op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> Array:
    """Return `binder().apply(op, args, static)[0]`, with a fast path for arrays outside a trace."""
    active = current_binder()
    if active is not None:
        return active.apply(op, args, static)[0]
    for a in args:
        if type(a) is not Array:
            return EAGER.apply_to_arrays(op, EAGER.operands(op, args, static), static)[0]
    return EAGER.apply_to_arrays(op, cast("tuple[Array, ...]", args), static)[0]  # the loop has checked it


def _scalar_array(value: promotion.Scalar, like: dtypes.DType | None) -> Array:
    aval = Aval((), promotion.scalar_dtype(value, like))
    return device_array(promotion.scalar_element(value, aval.dtype), aval)


def is_scalar(value: object) -> TypeGuard[promotion.Scalar]:
    """Return True for a Python number, also for one of a subclass, such as a member of an IntEnum."""
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


# Operations that take the arguments of a public function otherwise: its name, and the number there of each argument
_PUBLIC: Final[Mapping[Operation, tuple[str, tuple[int, ...]]]] = MappingProxyType(
    {
        elementwise.where: ("where", (1, 2, 0)),
        elementwise.clip_below: ("clip", (0, 1)),
        elementwise.clip_above: ("clip", (0, 2)),
    }
)


def _label_of(op: Operation) -> placement.PathOf:
    """Return the names of operands in messages. Those of a program or a primitive, as of `scan`, are not the arguments
    that the user gave."""
    if op in (_paste, _emit_prim):
        return placement.operand_label
    return lambda k: placement.argument_label(argument_number(op, k))


def operation_name(op: Operation, static: tuple[Hashable, ...]) -> str:
    """Return the name of an operation in a message: that of its primitive or program, or that of the function that
    users call."""
    own = _PUBLIC[op][0] if op in _PUBLIC else op.__name__
    return next((s.name for s in static if isinstance(s, Primitive | Jaxpr)), own)


def argument_number(op: Operation, k: int) -> int:
    """Return the number that argument `k` of an operation has in a message: the one in the function that users call."""
    return _PUBLIC[op][1][k] if op in _PUBLIC else k


def _argument_text(op: str | tuple[Operation, tuple[Hashable, ...]], k: int) -> str:
    """Return an argument of an operation in a message. `op` is a name, or an operation and its static arguments."""
    return (
        f"{op}: argument {k}" if isinstance(op, str) else f"{operation_name(*op)}: argument {argument_number(op[0], k)}"
    )


def _paste(b: Builder, *args: Any) -> tuple[Atom, ...]:
    *atoms, program = args
    return b.paste(program, atoms)


def _emit_prim(b: Builder, *args: Any) -> tuple[Atom, ...]:
    *atoms, prim = args
    return b(prim, *atoms)


EAGER: Final = Eager()
OPERATION_BY_OPERATION: Final = Eager()  # the binder while functions of `jit` are not compiled

__all__ = [
    "Array",
    "ArrayLike",
    "Binder",
    "EAGER",
    "Eager",
    "OPERATION_BY_OPERATION",
    "Operation",
    "apply_operation",
    "binding",
    "evaluating",
    "running_each_operation",
    "same_bits",
    "unchanging_array",
    "wrap_buffers",
    "asarray",
    "argument_number",
    "aval_of",
    "binder",
    "current_binder",
    "is_scalar",
    "operation_name",
    "device_array",
    "wrap_buffer",
]
