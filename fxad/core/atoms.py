"""The parts of equations: types, variables, literals, and the sum types of tangents and cotangents.

`Aval`, `Var` and `Lit` are hash-consed when they are made: two of them are equal exactly when they are one object, so
the hot paths compare by identity and hash in C, and `pickle` and `copy` give back the same object. The tables of types
and literals are weak. A type holds its variables, and they hold it: the garbage collector frees all of them together
(docs/adr/0002). Users and rules import these names from `fxad.ir`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import field
from math import prod
from operator import index
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core import scalar_text as scalars
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.polynomials import exact_text
from fxad.core.sizes.size import Size, evaluate
from fxad.core.weak import WeakTable
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, SizeError, TypecheckError, shown

Shape: TypeAlias = tuple[int, ...]  # of ints, and of `Size`s in a program of symbolic shape
NDArray: TypeAlias = npt.NDArray[np.generic]
# The named axes of a mesh of devices and their sizes, the slowest first.
MeshAxes: TypeAlias = tuple[tuple[str, int], ...]
# For each axis of an array, the named axes that divide it, the slowest first. Axes at the end may be left out.
DimensionAxes: TypeAlias = tuple[tuple[str, ...], ...]

_set: Final = object.__setattr__
_DIMS: Final = frozenset({int, Size})


# ----------------------------------------------------------------------------------------------------------- types


_avals: Final[WeakTable[tuple[Shape, DType], Aval]] = WeakTable()
_lits: Final[WeakTable[tuple[bytes | Size, Aval], Lit]] = WeakTable()


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False, weakref_slot=True)
class Aval:
    """The type of an array: shape and dtype. `Aval((3, 4), "float32")` prints as `f32[3,4]`.

    Raises: DTypeError for a dtype fxad does not know; ShapeError for a shape that is not made of sizes >= 0,
            or whose array has 2**63 bytes.
    """

    shape: Shape
    dtype: DType
    nbytes: int  # of the dense array; a symbolic shape counts with each name at `NOMINAL`
    _vars: dict[int, tuple[Var]] = field(repr=False)  # by index; as the `outs` tuple of an equation with one result
    _by_dtype: dict[DType, Aval] = field(repr=False)  # types of this shape with other dtypes

    def __new__(cls, shape: Iterable[int], dtype: object) -> Aval:
        # 1 == True == 1.0: only a shape of plain ints may be looked up by equality
        if type(shape) is tuple and isinstance(dtype, np.dtype) and _DIMS.issuperset(map(type, shape)):
            interned = _avals.get((shape, dtype))
            if interned is not None:
                return interned
        shape = as_shape(shape)
        dtype = dtypes.as_dtype(dtype)
        symbolic = Size in map(type, shape)
        # XLA aborts the process on such a shape
        if not symbolic and prod([d or 1 for d in shape]) * dtype.itemsize >= 1 << 63:
            raise ShapeError(
                f"shape: {list(shape)} of {dtype.name} has 2**63 bytes or more",
                remedy="give smaller sizes: no device holds such an array, not even for a moment",
            )
        self = object.__new__(cls)
        _set(self, "shape", shape)
        _set(self, "dtype", dtype)
        _set(self, "nbytes", prod(map(nominal, shape) if symbolic else shape) * dtype.itemsize)
        _set(self, "_vars", {})
        _set(self, "_by_dtype", {})
        return _avals.put((shape, dtype), self)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def symbolic(self) -> bool:
        """Return True if a dimension is not a number."""
        return Size in map(type, self.shape)

    @property
    def inexact(self) -> bool:
        """Return True if values of this type have tangents (floating or complex)."""
        return self.dtype in dtypes.INEXACT

    def with_shape(self, shape: Iterable[int]) -> Aval:
        """Return the same dtype with another shape."""
        return Aval(tuple(shape), self.dtype)

    def stacked(self, size: int, axis: int = 0) -> Aval:
        """Return the type of a stack of `size` arrays of this type along a new axis."""
        return Aval((*self.shape[:axis], size, *self.shape[axis:]), self.dtype)

    def with_dtype(self, dtype: object) -> Aval:
        """Return the same shape with another dtype."""
        aval = self._by_dtype.get(dtype) if isinstance(dtype, np.dtype) else None
        if aval is None:
            aval = Aval(self.shape, dtype)
            self._by_dtype[aval.dtype] = aval
        return aval

    def __str__(self) -> str:
        return f"{dtypes.short(self.dtype)}[{','.join(map(exact_text, self.shape))}]"

    __repr__ = __str__

    def __reduce__(self) -> tuple[object, ...]:
        return Aval, (self.shape, self.dtype)

    def __deepcopy__(self, memo: object) -> Aval:
        return self


def as_shape(shape: int | Iterable[int]) -> Shape:
    """Return a user's shape as a tuple of plain ints >= 0; one integer is a vector of that size. Raises: ShapeError."""
    try:  # an integer cannot be iterated over; an array of integers can, and has `__index__` too
        out = tuple([d if type(d) is Size else d.__index__() for d in shape])  # type: ignore[union-attr]  # TypeError is caught
    except (AttributeError, TypeError) as item_error:
        try:
            out = (index(shape),)  # type: ignore[arg-type]  # raises for any other object
        except TypeError as shape_error:
            remedies = [e.remedy for e in (item_error, shape_error) if isinstance(e, FxadError)]
            if isinstance(shape, tuple | list) and any([type(d) is str for d in shape]):
                remedies = [f'a shape with names is one text: "{", ".join(map(str, shape))}"']
            raise ShapeError(
                f"shape: {shown(shape)} is not a sequence of integers", remedy="".join(remedies[-1:])
            ) from None
    if any([type(d) is int and d < 0 for d in out]):
        raise ShapeError(f"shape: {out} has a negative size")
    if any([type(d) is int and d >= 1 << 63 for d in out]):
        raise ShapeError("shape: a size is 2**63 or more")
    for d in out:
        if type(d) is Size and not at_least(d, 0) and at_least(-d, 1):
            raise ShapeError(f"shape: {out} has a negative size")
    return out


INT32_SCALAR: Final = Aval((), dtypes.int32)
BOOL_SCALAR: Final = Aval((), dtypes.bool_)

NOMINAL: Final = 256  # the value of a named size in estimates of memory and work


def nominal(size: int) -> int:
    """Return a dimension for estimates: each name counts as `NOMINAL`."""
    return max(evaluate(size, lambda _: NOMINAL), 1)


# ----------------------------------------------------------------------------------------------------------- atoms


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Var:
    """A variable: its place in the binding order and its type.

    Operands of a jaxpr count down from -1, results of equations count up from 0. So an operand that is added during
    tracing (a closed-over array, a residual) does not renumber the program. See `Jaxpr`.

    A variable belongs to no program: variables of two programs with one number and one type are one object. So a pass
    must map every variable of the program that it reads. `Builder.extend` takes one that is not mapped for the variable
    of the new program that has this number.
    """

    index: int
    aval: Aval

    def __new__(cls, index: int, aval: Aval) -> Var:
        return result_vars(index.__index__(), (aval,))[0]  # NumPy's ints are accepted and converted to Python's

    @property
    def is_operand(self) -> bool:
        """Return True for an operand of a program, False for a result of an equation."""
        return self.index < 0

    def __str__(self) -> str:
        return f"%arg{~self.index}" if self.is_operand else f"%{self.index}"

    def __repr__(self) -> str:
        return f"{self}:{self.aval}"

    def __reduce__(self) -> tuple[object, ...]:
        return Var, (self.index, self.aval)

    def __deepcopy__(self, memo: object) -> Var:
        return self


class _UnfrozenVar:
    """A variable while it is made: the fields of `Var`, without its `__new__`, which looks for an interned one."""

    __slots__ = ("index", "aval")


def operand_var(k: int, aval: Aval) -> Var:
    """Return operand `k` of a program, counted from 0."""
    return Var(~k, aval)


def result_vars(n: int, avals: tuple[Aval, ...]) -> tuple[Var, ...]:
    """Return the variables of an equation's results, numbered from `n`. One result: a cached tuple, so the hot path of
    every pass allocates nothing here."""
    if len(avals) == 1:
        (aval,) = avals
        interned = aval._vars.get(n)
        if interned is not None:
            return interned
        var: Any = _UnfrozenVar()
        var.index = n
        var.aval = aval
        var.__class__ = Var
        return aval._vars.setdefault(n, (var,))
    return tuple([Var(n + k, a) for k, a in enumerate(avals)])


_REAL: Final = frozenset({bool, int, float})
_PACK: Final = MappingProxyType(
    {dtypes.float32: struct.Struct("<f").pack, dtypes.float64: struct.Struct("<d").pack},
)
_SCALARS: Final = (bool, int, float, complex, np.generic, np.ndarray)


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False, weakref_slot=True)
class Lit:
    """A constant: the bits of one element, filling the whole of `aval`.

    Compared by bits: `0.0` and `-0.0` differ, a nan equals itself, `1` and `True` differ. `bits` is little-endian.
    A literal whose value is a `Size` (`Lit.sized`) has it as `size`, and the text of the size as `bits`.
    """

    bits: bytes
    aval: Aval
    size: Size | None

    def __new__(cls, bits: bytes, aval: Aval) -> Lit:
        interned = _lits.get((bits, aval))
        if interned is not None:
            return interned
        if len(bits) != aval.dtype.itemsize:
            raise TypecheckError(f"literal: {len(bits)} bytes given for one element of {aval}")
        if aval.dtype == dtypes.bool_ and bits not in (b"\0", b"\1"):
            raise TypecheckError(f"literal: {bits!r} is not a bool")
        self = object.__new__(cls)
        _set(self, "bits", bits)
        _set(self, "aval", aval)
        _set(self, "size", None)
        return _lits.put((bits, aval), self)

    @staticmethod
    def zero(aval: Aval) -> Lit:
        """Return the zero of a type: 0, 0.0 or False."""
        return Lit(bytes(aval.dtype.itemsize), aval)

    @staticmethod
    def sized(size: Size, aval: Aval) -> Lit:
        """Return the literal whose value is a size, converted to `aval.dtype` as an int is. `specialize` makes it a
        number."""
        interned = _lits.get((size, aval))
        if interned is not None:
            return interned
        if aval.dtype not in dtypes.NUMERIC:
            raise DTypeError(f"literal: the size {size} is not a value of {aval}")
        self = object.__new__(Lit)
        _set(self, "bits", size.text.encode())
        _set(self, "aval", aval)
        _set(self, "size", size)
        return _lits.put((size, aval), self)

    @staticmethod
    def of(value: object, aval: Aval) -> Lit:
        """Return the literal for a Python or NumPy scalar, converted to `aval.dtype` as NumPy's `astype` does.

        Python ints out of the dtype's range wrap, as in NumPy's `astype`; callers that do not want this check before.

        Raises: ArgumentError for a value that is not a scalar; DTypeError for a complex value and a real dtype.
        """
        if aval.dtype in _PACK and (type(value) is float or (type(value) is int and abs(value) <= 1 << 53)):
            try:
                return Lit(_PACK[aval.dtype](value), aval)  # same as NumPy below, three times faster
            except OverflowError:
                pass
        if isinstance(value, Size):
            return Lit.sized(value, aval)
        if aval.dtype in dtypes.INTEGER and isinstance(value, int) and type(value) is not bool:
            size = aval.dtype.itemsize
            return Lit((value & (1 << 8 * size) - 1).to_bytes(size, "little"), aval)
        if type(value) not in _REAL:
            if not isinstance(value, _SCALARS) or np.ndim(value) != 0 or np.asarray(value).dtype.kind in "USOMm":
                raise ArgumentError(f"literal: {value!r} of {type(value).__name__} is not a scalar")
            if np.iscomplexobj(value) and not dtypes.is_complex(aval.dtype):
                raise DTypeError(f"literal: {value!r} is complex, {aval} is not")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:  # NumPy has no dtype for it
            try:
                value = float(value)
            except OverflowError:
                value = float("inf") if value > 0 else float("-inf")
        with np.errstate(all="ignore"):
            return Lit(np.asarray(value).astype(aval.dtype).tobytes(), aval)

    @property
    def value(self) -> np.generic:
        """The element as a NumPy scalar. `literal_number` asks first whether there is one.

        Raises: SizeError for a literal whose value is a size.
        """
        if self.size is not None:
            raise SizeError(
                f"literal: {self!r} has no value while the program is of symbolic shape",
                remedy="specialize the program, or mask it",
            )
        element: np.generic = np.frombuffer(self.bits, self.aval.dtype)[0]
        return element

    @property
    def integer(self) -> int:
        """The element of an integer literal, as an int; the size of a literal whose value is a size."""
        return int(self.value) if self.size is None else self.size

    @property
    def array(self) -> NDArray:
        """The constant as a read-only NumPy array, which takes one element of memory for any shape."""
        return np.broadcast_to(self.value, self.aval.shape)

    def with_shape(self, shape: Iterable[int]) -> Lit:
        """Return the same element filling another shape."""
        aval = self.aval.with_shape(shape)
        return Lit(self.bits, aval) if self.size is None else Lit.sized(self.size, aval)

    def __repr__(self) -> str:
        shown = scalars.show(self.bits, self.aval.dtype) if self.size is None else f"{{{self.size.text}}}"
        return f"{shown}:{self.aval}"

    def __reduce__(self) -> tuple[object, ...]:
        return (Lit, (self.bits, self.aval)) if self.size is None else (Lit.sized, (self.size, self.aval))

    def __deepcopy__(self, memo: object) -> Lit:
        return self


Atom: TypeAlias = Var | Lit


def literal_number(a: Atom | Hole) -> np.generic | None:
    """Return the element of a literal; None for a variable, and for a literal whose value is a size."""
    return a.value if isinstance(a, Lit) and a.size is None else None


@final
@dataclass(frozen=True, slots=True)
class Zero:
    """A symbolic zero tangent or cotangent, which is never computed.

    It becomes a literal (`instantiate`) only if an output needs it."""

    aval: Aval

    def instantiate(self) -> Lit:
        """Return the zero as a literal."""
        return Lit.zero(self.aval)


@final
@dataclass(frozen=True, slots=True)
class Lin:
    """A tangent that is not a symbolic zero: a variable of the linear program under construction (see `JvpCtx`)."""

    var: Var

    @property
    def aval(self) -> Aval:
        """Type of the tangent."""
        return self.var.aval


_new: Final = object.__new__
_set_var: Final = Lin.__dict__["var"].__set__


def as_lin(var: Var) -> Lin:
    """Return `Lin(var)`, in a third of the time."""
    tangent = _new(Lin)
    _set_var(tangent, var)
    return tangent


@final
@dataclass(frozen=True, slots=True)
class Hole:
    """A linear operand in `Linear.transpose`: its value is unknown, and the rule returns its cotangent."""

    aval: Aval


Tangent: TypeAlias = Lin | Zero
Cotangent: TypeAlias = Var | Lit | Zero


def known_operands(args: Sequence[Atom | Hole]) -> tuple[Atom, ...]:
    """Return the operands of a transposed equation that have a value."""
    return tuple([a for a in args if not isinstance(a, Hole)])


def instantiated(cts: Sequence[Cotangent]) -> tuple[Atom, ...]:
    """Return cotangents, with arrays of zeros in place of symbolic zeros."""
    return tuple([ct.instantiate() if isinstance(ct, Zero) else ct for ct in cts])
