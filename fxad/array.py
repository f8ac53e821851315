"""`Array`: a value on a device, with NumPy's operators; and the seam at which operations reach a trace or a device.

An operator does not know whether it runs inside a trace. It hands an operation (`fxad.operations`) or a primitive to
the `Binder` in charge: the trace of this context if there is one (`fxad.trace`), else the eager one below, which
compiles the operation as a program of its own, once per types, and runs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from itertools import repeat
from typing import Any, Final, Protocol, Self, TypeAlias, cast

import numpy as np

from fxad import dtypes, runtime
from fxad.builder import Builder
from fxad.errors import ArgumentError, DTypeError, LeakedTracerError, ParameterError, described
from fxad.ir import Atom, Aval, Jaxpr, NDArray, Primitive
from fxad.operations import arithmetic, contractions, index_plan, indexing, promotion
from fxad.operations.conversions import Conversions
from fxad.operations.methods import Methods
from fxad.primitives.elementwise import AND, EQ, GE, GT, LE, LT, NE, OR, SHIFT_LEFT, SUB, XOR

DEFAULT_OPTIONS: Final = runtime.CompileOptions()

# What operators and functions take beside arrays.
ArrayLike: TypeAlias = "Array | NDArray | np.generic | bool | int | float | complex"
Operation: TypeAlias = Callable[..., tuple[Atom, ...]]


class Binder(Protocol):
    """Where operations go: into the program being traced, or to a device."""

    def bind(self, prim: Primitive, args: tuple[object, ...]) -> tuple[Array, ...]:
        """One equation over the arguments, exactly as they are: no promotion."""

    def apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> tuple[Array, ...]:
        """An operation over array arguments."""

    def call(self, jaxpr: Jaxpr, args: Sequence[object]) -> tuple[Array, ...]:
        """A whole program over its operands."""


_binder: ContextVar[Binder | None] = ContextVar("fxad_binder", default=None)


def binder() -> Binder:
    """The binder in charge of this context (thread, asyncio task)."""
    return _binder.get() or EAGER


class Array(Conversions, Methods):
    """An immutable array on a device.

    Type:  `shape`, `dtype` as in NumPy; never a subclass of `numpy.ndarray`. In a traced function arguments are
           tracers, which are Arrays without a value.
    Rule:  operators promote as NumPy does between arrays; a Python scalar takes the dtype of the array it meets.
    """

    __slots__ = ("__weakref__", "_aval", "_buffer")
    # NumPy must leave `ndarray + Array` to `Array.__radd__`
    __array_priority__ = 1000

    _aval: Aval
    _buffer: runtime.Buffer

    def __init__(self, aval: Aval, buffer: runtime.Buffer) -> None:
        self._aval = aval
        self._buffer = buffer

    # ------------------------------------------------------------------------------------------------- properties

    @property
    def aval(self) -> Aval:
        """Shape and dtype together."""
        return self._aval

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> dtypes.DType:
        """NumPy dtype of the elements."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.aval.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.aval.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.aval.dtype.itemsize

    # ---------------------------------------------------------------------------------------------------- values

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray:
        value = runtime.to_numpy(self._buffer)
        if dtype is not None and value.dtype != dtype:
            if copy is False:
                raise ParameterError(
                    f"numpy: {value.dtype.name} does not become {dtype} without a copy", remedy="leave `copy` out"
                )
            return value.astype(np.dtype(dtype))  # type: ignore[call-overload]
        return value.copy() if copy else value

    def leaked(self, what: str, here: str) -> LeakedTracerError:
        """The error for a tracer met where its trace is not: `what` it is to whom, and what is being traced there."""
        raise AssertionError("an array with a value belongs to no trace")

    def __dlpack__(self, **kwargs: Any) -> Any:
        return runtime.to_dlpack(self._buffer, **kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return runtime.dlpack_device(self._buffer)

    def block_until_ready(self) -> Array:
        """Wait until the value has been computed; returns the array itself."""
        runtime.block(self._buffer)
        return self

    # Equality is elementwise, so arrays are not hashable, as in NumPy.
    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[object, ...]:
        return asarray, (np.array(self.__array__()),)

    def __copy__(self) -> Array:
        return self

    def __deepcopy__(self, memo: object) -> Array:
        return self

    # --------------------------------------------------------------------------------------------------- operators

    def __add__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.add, self, other)

    def __radd__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.add, other, self)

    def __sub__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.binary, self, other, SUB)

    def __rsub__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.binary, other, self, SUB)

    def __mul__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.multiply, self, other)

    def __rmul__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.multiply, other, self)

    def __truediv__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.true_divide, self, other)

    def __rtruediv__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.true_divide, other, self)

    def __floordiv__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.floor_divide, self, other)

    def __rfloordiv__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.floor_divide, other, self)

    def __mod__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.remainder, self, other)

    def __rmod__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.remainder, other, self)

    def __divmod__(self, other: ArrayLike) -> tuple[Array, Array]:
        return self // other, self % other

    def __rdivmod__(self, other: ArrayLike) -> tuple[Array, Array]:
        return other // self, other % self

    def __pow__(self, other: ArrayLike) -> Array:
        if type(other) is int:
            return binder().apply(arithmetic.integer_power, (self,), (other,))[0]
        return _binary(arithmetic.power, self, other)

    def __rpow__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.power, other, self)

    def __matmul__(self, other: ArrayLike) -> Array:
        return _binary(contractions.matmul, self, other)

    def __rmatmul__(self, other: ArrayLike) -> Array:
        return _binary(contractions.matmul, other, self)

    def __neg__(self) -> Array:
        return binder().apply(arithmetic.negative, (self,), ())[0]

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return binder().apply(arithmetic.absolute, (self,), ())[0]

    def __invert__(self) -> Array:
        return binder().apply(arithmetic.invert, (self,), ())[0]

    def __and__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, self, other, AND)

    def __rand__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, other, self, AND)

    def __or__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, self, other, OR)

    def __ror__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, other, self, OR)

    def __xor__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, self, other, XOR)

    def __rxor__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, other, self, XOR)

    def __lshift__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, self, other, SHIFT_LEFT)

    def __rlshift__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.logical, other, self, SHIFT_LEFT)

    def __rshift__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.shift_right, self, other)

    def __rrshift__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.shift_right, other, self)

    def __eq__(self, other: ArrayLike) -> Array:  # type: ignore[override]
        return _binary(arithmetic.binary, self, other, EQ)

    def __ne__(self, other: ArrayLike) -> Array:  # type: ignore[override]
        return _binary(arithmetic.binary, self, other, NE)

    def __lt__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.binary, self, other, LT)

    def __le__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.binary, self, other, LE)

    def __gt__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.binary, self, other, GT)

    def __ge__(self, other: ArrayLike) -> Array:
        return _binary(arithmetic.binary, self, other, GE)

    def __contains__(self, value: ArrayLike) -> bool:
        hit: object = self == value
        return bool(hit.any()) if isinstance(hit, Array) else False

    def _apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> Self:
        return cast("Self", binder().apply(op, (self, *args), static)[0])

    def __getitem__(self, index: object) -> Self:
        plan, dynamic = index_plan.plan(self.shape, index)
        return cast("Self", binder().apply(indexing.getitem, (self, *dynamic), (plan,))[0])


_SCALARS: Final = frozenset({bool, int, float, complex})


def _binary(op: Operation, x: ArrayLike, y: ArrayLike, *static: Hashable) -> Array:
    if not isinstance(y, _OPERANDS) or not isinstance(x, _OPERANDS):
        return NotImplemented
    return binder().apply(op, (x, y), static)[0]


_OPERANDS: Final = (Array, np.ndarray, np.generic, bool, int, float, complex)


# ----------------------------------------------------------------------------------------------------------- eager


def asarray(value: object, dtype: object = None) -> Array:
    """Put a value on the default device: a NumPy array, a scalar, or anything with DLPack. Converted, with a `dtype`.

    Raises: ArgumentError for what is not an array; DTypeError for a dtype fxad does not have.
    """
    if isinstance(value, Array):
        return value if dtype is None else value.astype(dtype)
    if dtype is None:
        return put(value, aval_of(value))
    aval = aval_of(value).with_dtype(dtype)
    return put(np.asarray(value).astype(aval.dtype), aval)


_new: Final = object.__new__
_set_aval: Final = Array.__dict__["_aval"].__set__
_set_buffer: Final = Array.__dict__["_buffer"].__set__


def arrays(avals: Sequence[Aval], buffers: Sequence[runtime.Buffer]) -> list[Array]:
    """`[Array(a, b), ...]`, with the loop in C: 0.13 us each instead of 0.2, which counts for results of 100 leaves."""
    made = list(map(_new, repeat(Array, len(buffers))))
    deque(map(_set_aval, made, avals), 0)
    deque(map(_set_buffer, made, buffers), 0)
    return made


def put(value: object, aval: Aval) -> Array:
    """A value of exactly the type `aval`, on the default device."""
    return Array(aval, runtime.to_buffer(value, aval, runtime.devices()[0]))


def load(jaxpr: Jaxpr, options: runtime.CompileOptions = DEFAULT_OPTIONS) -> runtime.LoadedProgram:
    """The executable of a program on the default device, from the cache."""
    return runtime.cache(jaxpr, runtime.devices()[0], options)


def aval_of(value: object, what: str = "value") -> Aval:
    """The type of anything that can be an operand: the one place where what a user hands over becomes an aval.

    Raises: ArgumentError for what is not an array; DTypeError for a dtype fxad does not have.
    """
    if isinstance(value, Array):
        return value.aval
    if isinstance(value, np.ndarray | np.generic):
        if type(value) is np.ma.MaskedArray:
            raise ArgumentError(f"{what}: a masked array is not taken: its mask would be lost", remedy="use filled()")
        try:
            return Aval(value.shape, value.dtype)
        except DTypeError as e:
            raise DTypeError(f"{what}: {value.dtype!r} is not a dtype of fxad", remedy=e.remedy) from None
    if isinstance(value, bool | int | float | complex):
        return Aval((), promotion.scalar_dtype(value))
    if isinstance(value, runtime.Exporter):
        return runtime.dlpack_aval(value)
    raise ArgumentError(
        f"{what}: {described(value)} is not an array: {value!r:.60}",
        remedy="pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__",
    )


class Eager:
    """The binder outside a trace: each operation is a program, compiled once per types, run at once."""

    __slots__ = ("_programs",)
    LIMIT: Final = 4096  # distinct operations kept; least recently used go first

    def __init__(self) -> None:
        self._programs: dict[Hashable, runtime.LoadedProgram] = {}

    def bind(self, prim: Primitive, args: tuple[object, ...]) -> tuple[Array, ...]:
        arrays = [_operand(prim.name, k, a) for k, a in enumerate(args)]
        return self._run((prim, tuple([a._aval for a in arrays])), _emit_prim, arrays, (prim,))

    def apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> tuple[Array, ...]:
        like = next((a.dtype for a in args if isinstance(a, Array | np.ndarray | np.generic)), None)
        arrays = [_operand(operation_name(op, static), k, a, like) for k, a in enumerate(args)]
        return self._run((op, tuple([a._aval for a in arrays]), static), op, arrays, static)

    def call(self, jaxpr: Jaxpr, args: Sequence[object]) -> tuple[Array, ...]:
        arrays = [_operand(jaxpr.name, k, a) for k, a in enumerate(args)]
        loaded = load(jaxpr)
        return _wrap(loaded, arrays)

    def _run(
        self, key: Hashable, op: Operation, arrays: list[Array], static: tuple[Hashable, ...]
    ) -> tuple[Array, ...]:
        loaded = self._programs.pop(key, None)
        if loaded is None:
            b = Builder()
            loaded = load(b.build(op(b, *b.inputs([a._aval for a in arrays]), *static), "eager"))
            if len(self._programs) >= self.LIMIT:
                self._programs.pop(next(iter(self._programs)), None)
        self._programs[key] = loaded
        return _wrap(loaded, arrays)


def is_scalar(value: object) -> bool:
    """Whether a value is a Python number: also one of a subclass, as the members of an IntEnum are."""
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


def operation_name(op: Operation, static: tuple[Hashable, ...]) -> str:
    """What to call an operation in a message: the primitive it was given, or its own name."""
    return next((s.name for s in static if isinstance(s, Primitive)), op.__name__)


def _emit_prim(b: Builder, *args: Any) -> tuple[Atom, ...]:
    *atoms, prim = args
    return b(prim, *atoms)


def _wrap(loaded: runtime.LoadedProgram, arrays: list[Array]) -> tuple[Array, ...]:
    out = loaded.execute([a._buffer for a in arrays])
    return tuple([Array(v, x) for v, x in zip(loaded.out_avals, out, strict=True)])


def _operand(op: str, k: int, value: object, like: dtypes.DType | None = None) -> Array:
    if type(value) is Array:
        return value
    if isinstance(value, Array):  # a tracer, and no trace in charge
        raise value.leaked(f"{op}: argument {k}", "no function is being traced here")
    if type(value) in _SCALARS or is_scalar(value):
        aval = Aval((), promotion.scalar_dtype(cast("promotion.Scalar", value), like))
        return put(np.asarray(value, aval.dtype), aval)
    aval = aval_of(value, f"{op}: argument {k}")
    return put(value, aval)


EAGER: Final = Eager()
