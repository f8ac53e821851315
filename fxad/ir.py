"""The program as a value: types, atoms, equations, jaxprs, and the contract a primitive answers.

Everything here is frozen and compared by value. `Aval`, `Var`, `Lit` and `Jaxpr` are hash-consed when they are made:
two of them are equal exactly when they are one object, so the hot paths compare by identity and hash in C, a cache
keyed by a program costs a pointer, and `pickle` and `copy` give back the same object. The tables are weak: a program
nobody holds is collected.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import CodeType, MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, cast, dataclass_transform, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes, printing, scalars
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, ShapeError, TypecheckError

Shape: TypeAlias = tuple[int, ...]
NDArray: TypeAlias = npt.NDArray[np.generic]

_set: Final = object.__setattr__


# ----------------------------------------------------------------------------------------------------------- types


class _WeakTable:
    """Weak hash-consing: the one object for a key, as long as somebody holds it. Thread-safe.

    The garbage collector may call back at any allocation, in a thread that holds any lock. So the callbacks take none
    and change no table: they note what died, and the next `put` sweeps.
    """

    __slots__ = ("_dead", "_lock", "_refs")

    def __init__(self) -> None:
        self._refs: dict[Hashable, weakref.ref[Any]] = {}
        self._dead: deque[tuple[Hashable, weakref.ref[Any]]] = deque()
        self._lock = threading.RLock()

    def get(self, key: Hashable) -> Any:
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def put(self, key: Hashable, made: Any) -> Any:
        """Store `made` under `key`, unless another thread was first: then the first one."""
        with self._lock:
            self._sweep()
            known = self.get(key)
            if known is None:
                self._refs[key] = weakref.ref(made, lambda ref: self._dead.append((key, ref)))
                known = made
            return known

    def _sweep(self) -> None:
        while self._dead:
            key, ref = self._dead.popleft()
            if self._refs.get(key) is ref:  # not when the key has a new object by now
                del self._refs[key]

    def __len__(self) -> int:
        with self._lock:
            self._sweep()
            return len(self._refs)


_avals: Final = _WeakTable()
_lits: Final = _WeakTable()


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False, weakref_slot=True)
class Aval:
    """The type of an array: shape and dtype. `Aval((3, 4), "float32")` prints as `f32[3,4]`.

    Raises: DTypeError for a dtype fxad does not know; ShapeError for a shape that is not made of sizes >= 0.
    """

    shape: Shape
    dtype: DType
    _vars: dict[int, Var] = field(repr=False)
    _kin: dict[DType, Aval] = field(repr=False)  # the same shape with other dtypes

    def __new__(cls, shape: Iterable[int], dtype: object) -> Aval:
        # 1 == True == 1.0: only a shape of plain ints may be answered by an equal key
        if type(shape) is tuple and isinstance(dtype, np.dtype) and all([type(n) is int for n in shape]):
            known = _avals.get((shape, dtype))
            if known is not None:
                return cast(Aval, known)
        shape = as_shape(shape)
        dtype = dtypes.as_dtype(dtype)
        self = object.__new__(cls)
        _set(self, "shape", shape)
        _set(self, "dtype", dtype)
        _set(self, "_vars", {})
        _set(self, "_kin", {})
        return cast(Aval, _avals.put((shape, dtype), self))

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
    def nbytes(self) -> int:
        """Bytes of the dense array."""
        return self.size * self.dtype.itemsize

    @property
    def inexact(self) -> bool:
        """Whether values of this type have tangents (floating or complex)."""
        return self.dtype in dtypes.INEXACT

    def with_shape(self, shape: Iterable[int]) -> Aval:
        """The same dtype with another shape."""
        return Aval(tuple(shape), self.dtype)

    def with_dtype(self, dtype: object) -> Aval:
        """The same shape with another dtype."""
        known = self._kin.get(dtype) if isinstance(dtype, np.dtype) else None
        if known is None:
            known = Aval(self.shape, dtype)
            self._kin[known.dtype] = known
        return known

    def __str__(self) -> str:
        return f"{dtypes.short(self.dtype)}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__

    def __reduce__(self) -> tuple[object, ...]:
        return Aval, (self.shape, self.dtype)

    def __deepcopy__(self, memo: object) -> Aval:
        return self


def as_shape(shape: Iterable[int]) -> Shape:
    """A user's shape as a tuple of plain ints >= 0. Raises: ShapeError."""
    try:
        out = tuple(d.__index__() for d in shape)
    except (AttributeError, TypeError):
        raise ShapeError(f"shape: {shape!r} is not a sequence of integers") from None
    if any(d < 0 for d in out):
        raise ShapeError(f"shape: {out} has a negative size")
    if any(d >= 1 << 63 for d in out):
        raise ShapeError("shape: a size is 2**63 or more")
    return out


# ----------------------------------------------------------------------------------------------------------- atoms


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Var:
    """A variable: its place in the binding order and its type.

    Operands of a jaxpr count down from -1, results of equations count up from 0, so an operand that is found late
    (a closed-over array, a residual) does not renumber the program. See `Jaxpr`.
    """

    index: int
    aval: Aval

    def __new__(cls, index: int, aval: Aval) -> Var:
        known = aval._vars.get(index)
        if known is not None:
            return known
        index = index.__index__()  # NumPy's ints are as good as Python's, and equal; the stored one is Python's
        self = object.__new__(cls)
        _set(self, "index", index)
        _set(self, "aval", aval)
        return aval._vars.setdefault(index, self)

    def __str__(self) -> str:
        return f"%{self.index}" if self.index >= 0 else f"%arg{~self.index}"

    def __repr__(self) -> str:
        return f"{self}:{self.aval}"

    def __reduce__(self) -> tuple[object, ...]:
        return Var, (self.index, self.aval)

    def __deepcopy__(self, memo: object) -> Var:
        return self


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
    """

    bits: bytes
    aval: Aval

    def __new__(cls, bits: bytes, aval: Aval) -> Lit:
        known = _lits.get((bits, aval))
        if known is not None:
            return cast(Lit, known)
        if len(bits) != aval.dtype.itemsize:
            raise TypecheckError(f"literal: {len(bits)} bytes given for one element of {aval}")
        if aval.dtype == dtypes.bool_ and bits not in (b"\0", b"\1"):
            raise TypecheckError(f"literal: {bits!r} is not a bool")
        self = object.__new__(cls)
        _set(self, "bits", bits)
        _set(self, "aval", aval)
        return cast(Lit, _lits.put((bits, aval), self))

    @staticmethod
    def of(value: object, aval: Aval) -> Lit:
        """The literal for a Python or NumPy scalar, converted to `aval.dtype` as NumPy's `astype` does.

        Python ints out of the dtype's range wrap, as in NumPy's `astype`; check before where that is not wanted.

        Raises: ArgumentError for what is not a scalar; DTypeError for a complex value and a dtype that is not.
        """
        if aval.dtype in _PACK and (type(value) is float or (type(value) is int and abs(value) <= 1 << 53)):
            try:
                return Lit(_PACK[aval.dtype](value), aval)  # what NumPy does below, three times faster
            except OverflowError:
                pass
        if type(value) not in _REAL:
            if not isinstance(value, _SCALARS) or np.ndim(value) != 0:
                raise ArgumentError(f"literal: {value!r} of {type(value).__name__} is not a scalar")
            if np.iscomplexobj(value) and not dtypes.is_complex(aval.dtype):
                raise DTypeError(f"literal: {value!r} is complex, {aval} is not")
        with np.errstate(all="ignore"):
            if isinstance(value, int) and not isinstance(value, bool) and dtypes.is_integer(aval.dtype):
                value %= 1 << (8 * aval.dtype.itemsize)
                return Lit(value.to_bytes(aval.dtype.itemsize, "little"), aval)
            return Lit(np.asarray(value).astype(aval.dtype).tobytes(), aval)

    @property
    def value(self) -> np.generic:
        """The element as a NumPy scalar."""
        return cast(np.generic, np.frombuffer(self.bits, self.aval.dtype)[0])

    @property
    def array(self) -> NDArray:
        """The constant as a read-only NumPy array; one element of memory, whatever the shape."""
        return np.broadcast_to(np.frombuffer(self.bits, self.aval.dtype)[0], self.aval.shape)

    def with_aval(self, shape: Iterable[int]) -> Lit:
        """The same element filling another shape."""
        return Lit(self.bits, self.aval.with_shape(shape))

    def __repr__(self) -> str:
        return f"{scalars.show(self.bits, self.aval.dtype)}:{self.aval}"

    def __reduce__(self) -> tuple[object, ...]:
        return Lit, (self.bits, self.aval)

    def __deepcopy__(self, memo: object) -> Lit:
        return self


Atom: TypeAlias = Var | Lit


@final
@dataclass(frozen=True, slots=True)
class Zero:
    """The symbolic zero of a tangent or cotangent: known to vanish, never computed.

    Reaches a builder only when an output needs it (`instantiate`)."""

    aval: Aval

    def instantiate(self) -> Lit:
        """The zero as a literal."""
        return Lit(bytes(self.aval.dtype.itemsize), self.aval)


@final
@dataclass(frozen=True, slots=True)
class Lin:
    """A tangent that does not vanish: a variable of the linear program under construction (see `JvpCtx`)."""

    var: Var

    @property
    def aval(self) -> Aval:
        """Type of the tangent."""
        return self.var.aval


@final
@dataclass(frozen=True, slots=True)
class Hole:
    """The place of a linear operand in `Linear.transpose`: its value is not known, its cotangent is asked for."""

    aval: Aval


Tangent: TypeAlias = Lin | Zero
Cotangent: TypeAlias = Var | Lit | Zero


# ------------------------------------------------------------------------------------------------------- equations


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


# While tracing, a code object and an instruction offset: cheap to take, resolved to a line when somebody asks.
Source: TypeAlias = tuple[CodeType, int] | Place | None


def place(source: Source) -> Place | None:
    """Resolve where an equation was written."""
    if source is None or isinstance(source, Place):
        return source
    code, offset = source
    line = code.co_firstlineno
    for start, end, at in code.co_lines():
        if start <= offset < end:
            line = at or line
            break
    return Place(code.co_filename, line, code.co_qualname)


@final
@dataclass(frozen=True, slots=True)
class Eqn:
    """One equation: `outs = prim(ins)`. Where it was written is not part of its value."""

    prim: Primitive
    ins: tuple[Atom, ...]
    outs: tuple[Var, ...]
    source: Source = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return Eqn, (self.prim, self.ins, self.outs, place(self.source))

    def __copy__(self) -> Eqn:
        return self

    def __deepcopy__(self, memo: object) -> Eqn:
        return self

    def __str__(self) -> str:
        """The equation as in program text, bodies by their names."""
        return printing.equation(self, printing.labels(bodies(self.prim)))


_new: Final = object.__new__
_set_prim: Final = Eqn.__dict__["prim"].__set__
_set_ins: Final = Eqn.__dict__["ins"].__set__
_set_outs: Final = Eqn.__dict__["outs"].__set__
_set_source: Final = Eqn.__dict__["source"].__set__


def equation(prim: Primitive, ins: tuple[Atom, ...], outs: tuple[Var, ...], source: Source) -> Eqn:
    """`Eqn(prim, ins, outs, source)` in 0.25 us instead of 0.5: it is made for every equation of every pass."""
    eqn = _new(Eqn)
    _set_prim(eqn, prim)
    _set_ins(eqn, ins)
    _set_outs(eqn, outs)
    _set_source(eqn, source)
    return eqn


# Structural hash -> the jaxprs that have it. Weak, and swept like `_WeakTable`.
_jaxprs: Final[dict[int, list[weakref.ref[Jaxpr]]]] = {}
_dead_jaxprs: Final[deque[int]] = deque()
_jaxprs_lock: Final = threading.RLock()


def _sweep_jaxprs() -> None:
    while _dead_jaxprs:
        h = _dead_jaxprs.popleft()
        alive = [ref for ref in _jaxprs.pop(h, ()) if ref() is not None]
        if alive:
            _jaxprs[h] = alive


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False, weakref_slot=True)
class Jaxpr:
    """A program: operands, equations in binding order, results.

    Canonical: `ins[k].index == -1-k`; results of equations are numbered 0, 1, 2, ... in order. So alpha-equivalent
    programs are equal, and equal programs are one object (`is`). Make it with a `Builder`.

    Law: `Jaxpr(j.ins, j.eqns, j.outs) is j`; `pickle.loads(pickle.dumps(j)) is j`; `copy.deepcopy(j) is j`.
    """

    ins: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outs: tuple[Atom, ...]
    name: str  # the user's function, for messages and metadata; not part of the value
    _hash: int
    _memo: dict[Hashable, Any]  # results of memoised transforms: they live and die with the program

    def __new__(cls, ins: tuple[Var, ...], eqns: tuple[Eqn, ...], outs: tuple[Atom, ...], name: str = "main") -> Jaxpr:
        h = hash((ins, outs, tuple([(e.prim, e.ins) for e in eqns])))
        with _jaxprs_lock:
            _sweep_jaxprs()
            for ref in _jaxprs.get(h, ()):
                known = ref()
                if known is not None and known.ins == ins and known.outs == outs and known.eqns == eqns:
                    return known
            self = object.__new__(cls)
            _set(self, "ins", ins)
            _set(self, "eqns", eqns)
            _set(self, "outs", outs)
            _set(self, "name", name)
            _set(self, "_hash", h)
            _set(self, "_memo", {})
            _jaxprs.setdefault(h, []).append(weakref.ref(self, lambda _: _dead_jaxprs.append(h)))
            return self

    def __hash__(self) -> int:
        return self._hash

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the operands."""
        return tuple([v.aval for v in self.ins])

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """Types of the results."""
        return tuple([a.aval for a in self.outs])

    @property
    def effects(self) -> frozenset[str]:
        """Effects of all equations; empty for a pure program."""
        return frozenset().union(*(e.prim.effects for e in self.eqns))

    def __reduce__(self) -> tuple[object, ...]:
        # bodies first, as a list: pickle recurses, and should not do so as deep as bodies are nested
        return _rebuilt, (distinct(self)[:-1], self.ins, self.eqns, self.outs, self.name)

    def __copy__(self) -> Jaxpr:
        return self

    def __deepcopy__(self, memo: object) -> Jaxpr:
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the program's text, without the user's names and with bodies named by their digests.

        Law: equal for equal programs in every process, Python version and machine; computed once per program.
        """
        if "digest" not in self._memo:
            for jaxpr in distinct(self):
                known: dict[object, str] = {body: f"@{body._memo['digest']}" for body in _carried(jaxpr)}
                text = printing.function(jaxpr, "fxad 1 ", known)
                jaxpr._memo["digest"] = hashlib.sha256(text.encode()).hexdigest()
        return cast(str, self._memo["digest"])

    def __str__(self) -> str:
        """The program as text, exact; `fxad.text.parse` reads it back."""
        return printing.program(distinct(self))

    def __repr__(self) -> str:
        signature = f"({', '.join(map(str, self.in_avals))}) -> ({', '.join(map(str, self.out_avals))})"
        return f"<Jaxpr {self.name}{signature}, {len(self.eqns)} equations>"


def _rebuilt(
    _bodies: tuple[Jaxpr, ...], ins: tuple[Var, ...], eqns: tuple[Eqn, ...], outs: tuple[Atom, ...], name: str
) -> Jaxpr:
    return Jaxpr(ins, eqns, outs, name)


def bodies(prim: Primitive) -> tuple[Jaxpr, ...]:
    """The programs among the parameters of a primitive, in the order of its fields."""
    out: list[Jaxpr] = []
    stack: list[Param] = [value for _, value in reversed(params(prim))]
    while stack:
        value = stack.pop()
        if isinstance(value, Jaxpr):
            out.append(value)
        elif isinstance(value, tuple):
            stack.extend(reversed(value))
    return tuple(out)


def distinct(jaxpr: Jaxpr) -> tuple[Jaxpr, ...]:
    """The programs that `jaxpr` consists of: each once, after the bodies it carries; itself last.

    Cost: linear in the distinct equations, however deep bodies are nested and however often they are shared.
    """
    done: dict[Jaxpr, None] = {}
    stack: list[tuple[Jaxpr, Iterator[Jaxpr]]] = [(jaxpr, _carried(jaxpr))]
    while stack:
        top, rest = stack[-1]
        inner = next((b for b in rest if b not in done), None)
        if inner is None:
            done[top] = None
            stack.pop()
        else:
            stack.append((inner, _carried(inner)))
    return tuple(done)


def _carried(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    return (body for eqn in jaxpr.eqns for body in bodies(eqn.prim))


# ------------------------------------------------------------------------------------------------------ primitives

# What a primitive's parameter may be: exact in text, hashable, without arrays, callables, dicts or lists.
# A float parameter is a `Lit`, so that it is compared by bits.
Param: TypeAlias = "int | bool | str | None | DType | Jaxpr | Lit | Aval | tuple[Param, ...]"


class Emit(Protocol):
    """Somewhere equations can be added: a builder, seen by the rules."""

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        """Add an equation; returns its results."""

    def one(self, prim: Primitive, *args: Atom) -> Var:
        """Add an equation with a single result; returns it."""


class BatchCtx(Emit, Protocol):
    """What a batching rule may use: emit into the batched program, and batch the bodies it carries."""

    @property
    def size(self) -> int:
        """Size of the mapped axis."""

    def recur(
        self, body: Jaxpr, in_dims: tuple[int | None, ...], out_dims: tuple[int | None, ...] | None = None
    ) -> tuple[Jaxpr, tuple[int | None, ...]]:
        """Batch a body: the batched body and where its results carry the mapped axis (None: they do not)."""


class JvpCtx(Emit, Protocol):
    """What a jvp rule may use: two programs at once.

    Calling the context emits into the primal program (nothing that depends on a tangent). `lin` emits into the linear
    program: its equation must be linear in its `Lin` operands taken together, and may use primal values, which become
    residuals. So the types keep a tangent out of a non-linear equation.
    """

    def lin(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> tuple[Tangent, ...]:
        """Add an equation to the linear program. All linear operands `Zero`: the results are `Zero`, no equation."""

    def lin_one(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangent:
        """`lin` for an equation with a single result."""

    def add(self, a: Tangent, b: Tangent) -> Tangent:
        """Sum of two tangents of one type; `Zero` costs nothing."""

    @property
    def split(self) -> bool:
        """Whether the two programs are separate (linearize), or one (forward mode)."""

    def recur(self, body: Jaxpr, nonzero: tuple[bool, ...]) -> LinearizedBody:
        """Linearize a body with respect to the operands marked in `nonzero`: for `split` contexts."""

    def recur_fused(self, body: Jaxpr, nonzero: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...]]:
        """Forward mode of a body, for contexts that are not `split`: operands, then tangents of the marked ones ->
        results, then tangents of those results that the second value marks."""


@final
@dataclass(frozen=True, slots=True)
class LinearizedBody:
    """A body split in two. `primal`: operands -> results, then residuals. `linear`: nonzero tangents of operands, then
    residuals -> nonzero tangents of results. `out_nonzero` says which results have a tangent that does not vanish."""

    primal: Jaxpr
    linear: Jaxpr
    n_res: int
    out_nonzero: tuple[bool, ...]


class TransposeCtx(Emit, Protocol):
    """What a transpose rule may use: emit into the transposed program, and transpose the bodies it carries."""

    def recur(self, body: Jaxpr, linear: tuple[bool, ...]) -> Jaxpr:
        """Transpose a body, linear in the operands marked: (cotangents of all results, then the operands not marked)
        -> cotangents of the marked operands, all instantiated."""


HloValue: TypeAlias = object


class Hlo(Protocol):
    """What a lowering rule may use: append StableHLO operations to the function under construction."""

    def op(
        self,
        name: str,
        operands: Sequence[HloValue],
        outs: Sequence[Aval],
        attrs: Mapping[str, str] = ...,
        regions: Sequence[Jaxpr | str] = ...,
    ) -> tuple[HloValue, ...]:
        """Append an operation by its MLIR name (`stablehlo.tanh`).

        `attrs` maps attribute names to MLIR attribute text (`"array<i64: 0, 1>"`); `regions` are bodies whose operands
        are the block's arguments and whose results are returned by `stablehlo.return`. A name instead of a body
        (`"stablehlo.add"`) is the block that applies that operation to two scalars of the first result's dtype."""

    def constant(self, lit: Lit) -> HloValue:
        """A splat constant; one operation per distinct literal in a function."""

    def call(self, body: Jaxpr, operands: Sequence[HloValue]) -> tuple[HloValue, ...]:
        """Call the function of a sub-program; it is emitted once per distinct body."""

    def opaque_call(self, body: Jaxpr, operands: Sequence[HloValue]) -> tuple[HloValue, ...]:
        """`call`, in a form whose equations the compiler cannot merge with equal ones outside (a recomputation)."""


class Primitive(ABC):
    """An operation of the language. A leaf is `@final @primitive`, with its static parameters as typed fields.

    The five dense rules are abstract, so mypy refuses a primitive that lacks one where the class is defined. All take
    and return tuples, one entry per operand or result.
    """

    __slots__ = ()

    name: ClassVar[str]
    effects: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        """Types of the results. Raises: ShapeError, DTypeError, ArgumentError with operation, difference and values."""

    @abstractmethod
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        """The meaning, in NumPy. Pure; the reference for tests and `interpret`. Results have the dtypes and shapes of
        `abstract_eval`; the operands may be read-only and are not modified."""

    @abstractmethod
    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        """The meaning, in StableHLO."""

    @abstractmethod
    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        """Results for a stack of operands. `dims[i]` is the axis of `args[i]` that is mapped (None: the operand is the
        same for all); at least one is mapped. Returns the results and where they carry the mapped axis."""

    @abstractmethod
    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        """Results and their tangents. Operands of integer or bool type always have a `Zero` tangent, and so must such
        results. At least one tangent is not `Zero`. Raises: NotDifferentiableError with the reason."""


class Linear(Primitive):
    """A primitive that is linear in some of its operands, and so has a transpose there."""

    __slots__ = ()

    @abstractmethod
    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        """Whether the equation is linear in the marked operands taken together, the others held fixed."""

    @abstractmethod
    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        """Cotangents of the operands that are a `Hole`; None for the others. At least one of `cts` is not `Zero`.
        A cotangent has exactly the type of its operand."""


class HigherOrder(Primitive):
    """A primitive that carries bodies. A body is a parameter of type `Jaxpr` (or a tuple of them)."""

    __slots__ = ()

    @property
    @abstractmethod
    def bodies(self) -> tuple[Jaxpr, ...]:
        """The bodies, in the order of the parameters."""

    @abstractmethod
    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Primitive:
        """The same equation with bodies that have the same operand and result types."""


P = TypeVar("P", bound=Primitive)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def primitive(cls: type[P]) -> type[P]:
    """Make a primitive: a frozen, slotted dataclass compared by class and parameters.

    A class without parameters has one instance, compared and hashed by identity, in C.
    """
    plain = not any("ClassVar" not in str(t) for t in cls.__dict__.get("__annotations__", {}).values())
    if plain:
        made = dataclass(frozen=True, slots=True, eq=False)(cls)
        instance = object.__new__(made)
        made.__new__ = lambda _: instance  # type: ignore[method-assign,assignment,return-value]
        made.__reduce__ = lambda _: (made, ())  # type: ignore[method-assign,assignment]
        made.__deepcopy__ = lambda s, _: s  # type: ignore[attr-defined]
        return made
    made = dataclass(frozen=True, slots=True)(cls)
    by_params = made.__hash__
    seed = hash(made.__qualname__)
    made.__hash__ = lambda self: seed ^ by_params(self)  # type: ignore[method-assign]
    return made


def params(prim: Primitive) -> tuple[tuple[str, Param], ...]:
    """The static parameters of a primitive: names and values, in the order of its fields."""
    return tuple((f.name, getattr(prim, f.name)) for f in fields(prim))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- typecheck


def typecheck(jaxpr: Jaxpr) -> None:
    """Check that a jaxpr is well formed and well typed, bodies included.

    Law: holds for what every transform returns.
    Raises: TypecheckError that names the function and the equation.
    Cost: each distinct body is checked once, ever.
    """
    for function in distinct(jaxpr):
        if "well typed" not in function._memo:
            _check(function)
            function._memo["well typed"] = True


def _check(jaxpr: Jaxpr) -> None:
    for k, v in enumerate(jaxpr.ins):
        if v.index != ~k:
            raise TypecheckError(f"typecheck: {jaxpr.name}: operand {k} is numbered {v.index}, not {~k}")
    bound: set[Atom] = set(jaxpr.ins)
    n = 0
    for i, eqn in enumerate(jaxpr.eqns):
        avals = _check_equation(jaxpr, i, eqn, bound)
        for v, aval in zip(eqn.outs, avals, strict=True):
            if v.index != n or v.aval is not aval:
                raise _bad(jaxpr, i, eqn, f"result {v!r} should be %{n}:{aval}")
            bound.add(v)
            n += 1
    for k, a in enumerate(jaxpr.outs):
        if isinstance(a, Var) and a not in bound:
            raise TypecheckError(f"typecheck: {jaxpr.name}: result {k}, {a!r}, is not bound")


def _check_equation(jaxpr: Jaxpr, i: int, eqn: Eqn, bound: set[Atom]) -> tuple[Aval, ...]:
    for a in eqn.ins:
        if isinstance(a, Var) and a not in bound:
            raise _bad(jaxpr, i, eqn, f"{a!r} is used and not bound before")
    for name, value in params(eqn.prim):
        if not _storable(value):
            raise _bad(jaxpr, i, eqn, f"parameter {name} is {value!r}, which a program cannot hold")
    try:
        avals = eqn.prim.abstract_eval(*[a.aval for a in eqn.ins])
    except Exception as e:
        raise _bad(jaxpr, i, eqn, f"{type(e).__name__}: {e}") from e
    if len(avals) != len(eqn.outs):
        raise _bad(jaxpr, i, eqn, f"{len(eqn.outs)} results are bound, the primitive has {len(avals)}")
    return avals


def _storable(value: object) -> bool:
    """Whether a parameter is exactly of a kind of `Param`: NumPy's ints are equal to ints, and not the same in text."""
    if type(value) is tuple:
        return all(map(_storable, value))
    return type(value) in _STORABLE or (isinstance(value, np.dtype) and value in dtypes.ALL)


_STORABLE: Final = frozenset({type(None), bool, int, str, Aval, Lit, Jaxpr})


def _bad(jaxpr: Jaxpr, i: int, eqn: Eqn, problem: str) -> TypecheckError:
    where = place(eqn.source)
    return TypecheckError(
        f"typecheck: {jaxpr.name}: equation {i} ({eqn.prim.name}): {problem}",
        equation=f"{', '.join(map(repr, eqn.outs))} = {eqn.prim.name} {' '.join(map(repr, eqn.ins))}",
        where=str(where) if where else "",
    )
