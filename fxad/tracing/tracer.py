"""From a Python function to a jaxpr: tracers, and the trace that records their operations.

One kind of tracer, one builder per trace, held in a context variable: threads and asyncio tasks do not see each other's
(docs/adr/0045). Transformations are no interpreters on a stack: they run on finished programs. `fxad.tracing.context`
keeps the enclosing mapped axes and the order of differentiation, for rules that are traced for these only. A function
traced inside another may use the outer function's tracers: they become operands of the inner program (closure
conversion), as do arrays that are closed over.

    def f(x, zs):
        return lax.scan(lambda c, z: (c + x * z, None), x, zs)[0]

The trace of `f` has the operands x and zs. `scan` traces the lambda, with the operands c and z. It meets x, a tracer of
the trace of `f`, and captures it: the body has the operands (x, c, z), and the `scan` takes x as a constant.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any, Final, Literal, NamedTuple, NoReturn, SupportsIndex, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.frames import CalledFrames
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.errors import (
    INTERNAL_FILES,
    NEEDS_STATIC,
    DepthError,
    DTypeError,
    FxadError,
    LeakedTracerError,
    TracerError,
    is_rule,
)
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Eqn,
    Jaxpr,
    Lit,
    NDArray,
    Primitive,
    Source,
    Var,
    Zero,
    new_eqn,
    result_vars,
    source_location,
    source_text,
)
from fxad.operations import arithmetic, contractions, elementwise, indexing, promotion, sorting
from fxad.operations.arguments import contained_array
from fxad.operations.number_types import BOOL, FLOAT, INT, RESULTS, NumberType, number_type
from fxad.operations.promotion import NumberKind
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import whole_remat
from fxad.primitives.elementwise.arithmetic import ADD, SUB
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import AND, OR, XOR
from fxad.primitives.elementwise.select import emit_where
from fxad.runtime import Device, default_device
from fxad.sharding import Shard, Sharding
from fxad.support.tables import headed
from fxad.tracing.array import (
    EAGER,
    Array,
    Binder,
    Operation,
    _binder,
    aval_of,
    binder,
    current_binder,
    is_scalar,
    operation_name,
    same_bits,
    unchanging_array,
)
from fxad.tracing.context import Copies, copies_in_scope
from fxad.tracing.placement import PathOf, check_device, operand_label


@final
class _InternalFiles(dict[str, bool]):
    """By name of a file: True if its code is not the user's."""

    def __missing__(self, file: str) -> bool:
        internal = self[file] = file.startswith(INTERNAL_FILES)
        return internal


_is_internal: Final = _InternalFiles()


def user_source(depth: int) -> Source:
    """Code and offset of the innermost frame, from `depth` frames up, that is not fxad's own."""
    return _source(sys._getframe(depth))


def _source(frame: FrameType) -> Source:
    while _is_internal[frame.f_code.co_filename]:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


class Tracer(Array):
    """An array in a traced function: a type, and a variable of the program being built."""

    __slots__ = ("_trace", "_var")

    def __init__(self, trace: Trace, var: Atom) -> None:
        self._trace = trace
        self._var = var

    @property
    def aval(self) -> Aval:
        return self._var.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self._var.aval.shape

    @property
    def dtype(self) -> dtypes.DType:
        return self._var.aval.dtype

    @property
    def device(self) -> Device:
        """The device on which the program will run."""
        return default_device()

    @property
    def committed(self) -> bool:
        """Unknown while tracing: a program runs on the device of its arguments."""
        return False

    def to_device(self, device: Device, /, *, stream: None = None) -> Array:
        check_device("to_device", device, stream)
        if device is not self.device:
            self._refuse(f"to_device: {device}", "a program runs on one device: move its arguments, or its results")
        return self

    @property
    def literal(self) -> Lit | None:
        """The constant that it is in the program; None for a variable."""
        return self._var if isinstance(self._var, Lit) else None

    def __repr__(self) -> str:
        return f"Tracer<{self.aval}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return headed(repr(self))

    def __format__(self, spec: str) -> str:
        return repr(self)

    def _without_value(self, what: str, remedy: str) -> FxadError:
        if not self._trace.alive:
            return self.leaked(f"{what}: the array", "it has no value")
        message = f"{what}: {self!r} of {self._trace.name} has no value while the function is traced"
        return TracerError(message, remedy=remedy)

    @property
    def reachable(self) -> bool:
        """Return True if the tracer belongs to the active trace or an enclosing one, so that it may be used here."""
        return _encloses(self._trace, active_trace())

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise self._without_value(what, remedy)

    @property
    def origin(self) -> str:
        """The place where the value was computed, as text: the user's line, or the traced function."""
        function = self._trace.name
        for eqn in reversed(self._trace.builder.eqns):
            if self._var in eqn.outs:
                line = source_location(eqn.source)
                return f"made at {line}" if line else f"made in {function}"
        return f"an argument of {function}" if self._var in self._trace.builder.ins else f"of {function}"

    def leaked(self, what: str, where: str) -> LeakedTracerError:
        state = "which is being traced elsewhere" if self._trace.alive else "whose trace has ended"
        return LeakedTracerError(
            f"{what} is {self!r}, {self.origin}, {state}; {where}",
            remedy="return values from traced functions; do not keep them in globals, attributes or other threads",
        )

    def check_usable(self, what: str) -> None:
        active = active_trace()
        if not _encloses(self._trace, active):
            raise self.leaked(what, f"it is used in {active.name}" if active else "no function is being traced here")

    def _problem_in_numpy(self, name: str) -> FxadError:
        return self._without_value(
            f"numpy.{name}", f"use fxad.numpy.{name}, or return the array and convert it outside"
        )

    def __array__(self, dtype: object = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self._refuse("numpy", "use fxad.numpy in place of numpy, or return the array and convert it outside")

    def __bool__(self) -> bool:  # noqa: PLE0304  it raises
        remedy = "use fxad.numpy.where or fxad.lax.cond in place of if, while, and, or"
        if self._var in self._trace.builder.ins:
            remedy += "; a flag that is no data can be made static: jit(f, static_argnames=...)"
        self._refuse("bool", remedy)

    def __int__(self) -> int:
        self._refuse("int", "use astype, or make the value a Python number that the function closes over")

    def __float__(self) -> float:
        self._refuse("float", "use astype, or make the value a Python number that the function closes over")

    def __complex__(self) -> complex:
        self._refuse("complex", "use astype, or make the value a Python number that the function closes over")

    def __index__(self) -> int:  # noqa: PLE0305  it raises
        self._refuse("index", NEEDS_STATIC)

    def item(self, /, *args: SupportsIndex | tuple[SupportsIndex, ...]) -> bool | int | float | complex:
        self._refuse("item", "return the array and call item() on the result")

    def tolist(self) -> Any:
        self._refuse("tolist", "return the array and call tolist() on the result")

    def tobytes(self, order: Literal["C", "F", "A"] | None = "C") -> bytes:
        self._refuse("tobytes", "return the array and call tobytes() on the result")

    def block_until_ready(self) -> Array:
        return self

    @property
    def sharding(self) -> Sharding:
        self._refuse("sharding", "look at the sharding of the arguments, before the function is traced")

    @property
    def addressable_shards(self) -> tuple[Shard[Array], ...]:
        self._refuse("addressable_shards", "look at the parts of the arguments, before the function is traced")

    def devices(self) -> set[Device]:
        self._refuse("devices", "look at the devices of the arguments, before the function is traced")

    def is_deleted(self) -> bool:
        return False

    def is_ready(self) -> bool:
        self._refuse("is_ready", "ask the result of the program")

    def delete(self) -> None:
        self._refuse("delete", "delete the argument after the call, or donate it")

    def __dlpack__(self, **kwargs: object) -> Any:
        self._refuse("__dlpack__", "return the array and export the result")

    def __dlpack_device__(self) -> tuple[int, int]:
        self._refuse("__dlpack_device__", "return the array and export the result")

    @property
    def __jax_array__(self) -> Any:
        """Missing, so that operators of JAX's arrays leave the operation to fxad."""
        raise AttributeError(f"{self!r} has no value while the function is traced")

    def __reduce__(self) -> tuple[object, ...]:
        self._refuse("pickle", "return the array and pickle the result")


@final
class TracedNumber(Tracer):
    """A Python number whose value is not known: an argument of a traced function, or computed from one.

    It takes the dtype of an array that it meets, as a number does. Everywhere else it is an array without axes, of
    int32, float32, ...: it is *settled*.

    The variable of an argument has the base type of the number, and `Trace.finish` decides the dtype of the operand. A
    computed number has an expression. Python computes in full precision, so the program does, in 64 bits (integers
    wrap), if the number meets an array. A settled number is computed in 32 bits, as an array would be.

    `arguments` are the arguments of traced functions from which the number is computed; `meets_64_bits` is True for one
    that has met a floating array of 64 bits.
    """

    __slots__ = ("_arrays", "_expression", "arguments", "meets_64_bits", "number_type")

    def __init__(
        self, trace: Trace, var: Atom, number_type: NumberType, expression: NumberExpression | None = None
    ) -> None:
        Tracer.__init__(self, trace, var)
        self.number_type = number_type
        self._expression = expression
        self.arguments: tuple[TracedNumber, ...] = (self,)
        if expression is not None:
            self.arguments = tuple([n for x in expression.args if type(x) is TracedNumber for n in x.arguments])
        self.meets_64_bits = False
        self._arrays: dict[tuple[dtypes.DType, bool], Tracer] = {}

    @property
    def aval(self) -> Aval:
        return self.number_type.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> dtypes.DType:
        return self.number_type.dtype

    def in_dtype(self, dtype: dtypes.DType, wide: bool = True) -> Tracer:
        """Return the number as an array of a dtype, in the trace of the number. `wide`: computed in 64 bits."""
        array = self._arrays.get((dtype, wide))
        if array is None:
            b, expression = self._trace.builder, self._expression
            if expression is not None:
                self._compute_operands(wide)
            b.source = user_source(2) if expression is None else expression.source
            if expression is None:
                var = self._var
            elif wide or self.number_type is BOOL:  # a comparison is exact
                var = self._computed(expression, expression.computed.base.dtype, True)
            else:
                var = self._computed(expression, expression.computed.dtype, False)
            if var.aval.dtype is not dtype:
                var = b.one(ConvertElementType(dtype), var)
            array = self._arrays[dtype, wide] = Tracer(self._trace, var)
        return array

    def _compute_operands(self, wide: bool) -> None:
        """Compute the numbers from which this one is computed, the first one first: a long sum must not recur."""
        stack = [(self, self.dtype, wide)]
        while stack:
            number, dtype, number_wide = stack[-1]
            e = number._expression
            assert e is not None
            operands_wide = number_wide or number.number_type is BOOL
            operand_dtype = e.computed.base.dtype if operands_wide else e.computed.dtype
            for x in e.args:
                if type(x) is TracedNumber and x._expression and (operand_dtype, operands_wide) not in x._arrays:
                    stack.append((x, operand_dtype, operands_wide))
                    break
            else:
                stack.pop()
                if number is not self:
                    number.in_dtype(dtype, number_wide)

    def _computed(self, e: NumberExpression, dtype: dtypes.DType, wide: bool) -> Atom:
        """Return the result of an expression that is computed in a dtype. Raises: DTypeError for an int that does not
        fit."""
        trace, operands = self._trace, list[Atom]()
        for k, x in enumerate(e.args):
            if type(x) is TracedNumber:
                operands.append(trace.lift(e.op.__name__, k, x.in_dtype(dtype, wide)))
            elif type(x) in NUMBER_ARGUMENTS:
                operands.append(trace.number_operand(cast("promotion.Scalar", x), dtype))
            else:
                operands.append(promotion.scalar_literal(cast("promotion.Scalar", x), Aval((), dtype)))
        trace.builder.source = e.source
        return e.op(trace.builder, *operands, *e.static)[0]

    def in_base(self) -> Tracer:
        """Return the number as an array with all of its bits."""
        return self.in_dtype(self._var.aval.dtype if self._expression is None else self.number_type.base.dtype)

    def beside(self, dtype: dtypes.DType | None = None) -> Tracer:
        """Return the number in the dtype that it takes beside an array of `dtype` (None: by itself)."""
        if dtype is None:
            return self.in_dtype(self.dtype, wide=False)
        dtype = self.number_type.dtype_beside(dtype)
        if dtype in _64_BITS:
            self.meet_64_bits()
        return self.in_dtype(dtype)

    def as_type(self, dtype: dtypes.DType) -> Tracer:
        """Return the number converted to a dtype as by `astype`, rounded once; a complex one by itself if `dtype` is
        real."""
        if dtypes.is_complex(self.dtype) and not dtypes.is_complex(dtype):
            return self.beside()
        if dtype in _64_BITS:
            self.meet_64_bits()
        return self.in_dtype(dtype)

    def meet_64_bits(self) -> None:
        """Record that the number meets a floating array of 64 bits."""
        for number in self.arguments:
            number.meets_64_bits = True

    def settled(self) -> Tracer:
        return self.beside()

    def _apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> Any:
        kind = self.number_type.kind
        if op is arithmetic.integer_power:
            kind = max(kind, NumberKind.FLOATING) if cast("int", static[0]) < 0 else kind
        elif op not in (arithmetic.negative, arithmetic.invert, elementwise.conj, *_REAL_OF_COMPLEX):
            return super()._apply(op, args, static)
        if op is arithmetic.invert and kind is NumberKind.BOOL:  # Python's has a truth value of True
            raise DTypeError(
                f"invert: ~ of a bool of Python, {self!r}: Python gives an int, -2 or -1, NumPy and JAX the other bool",
                remedy="fxad.numpy.logical_not gives the other bool; numpy.bool_(x) is an array of one bool",
            )
        result = FLOAT if kind is NumberKind.COMPLEX and op in _REAL_OF_COMPLEX else None
        return self._number_of(op, (self,), static, RESULTS[max(kind, NumberKind.INTEGER)], result)

    def _binary(self, op: Operation, x: Any, y: Any, *static: Hashable) -> Any:
        numbers = [v.number_type if type(v) is TracedNumber else number_type(v) for v in (x, y)]
        kinds = [n.kind for n in numbers if n is not None]
        if len(kinds) < 2 or op is contractions.matmul:
            return super()._binary(op, x, y, *static)
        computed = max(kinds)
        logical = op is arithmetic.bitwise_operator and static[0] in (AND, OR, XOR)
        compared = op is arithmetic.binary and static[0] is not SUB  # the others are comparisons
        if op is arithmetic.true_divide:
            computed = max(computed, NumberKind.FLOATING)
        elif not (logical or compared):  # a bool is an int
            computed = max(computed, NumberKind.INTEGER)
        in_32_bits = compared and all([n is INT for n in numbers])
        return self._number_of(op, (x, y), static, INT if in_32_bits else RESULTS[computed], BOOL if compared else None)

    def _number_of(
        self,
        op: Operation,
        args: tuple[object, ...],
        static: tuple[Hashable, ...],
        computed: NumberType,
        result: NumberType | None = None,
    ) -> TracedNumber:
        """Return the number that an operation gives for numbers. It is computed in the base dtype of `computed`.

        Raises: DTypeError for an operation that numbers of this kind do not have, and for an int of more than 64 bits.
        """
        self.check_usable(f"{operation_name(op, static)}: argument {0 if args[0] is self else 1}")
        trace = self._trace
        for x in args:
            if type(x) is not TracedNumber:
                promotion.scalar_dtype(cast("promotion.Scalar", x), computed.base.dtype)
            elif _encloses(trace, x._trace):  # the innermost one
                trace = x._trace
        scratch = Builder()
        op(scratch, *scratch.inputs([computed.base] * len(args)), *static)  # it may refuse them
        expression = NumberExpression(op, args, static, computed, user_source(2))
        result = computed if result is None else result
        return TracedNumber(trace, Lit.zero(result.base), result, expression)


class NumberExpression(NamedTuple):
    """An operation on numbers, at least one of which is traced; the type in which they are computed; the line."""

    op: Operation
    args: tuple[object, ...]
    static: tuple[Hashable, ...]
    computed: NumberType
    source: Source


_REAL_OF_COMPLEX: Final = (arithmetic.absolute, elementwise.real, elementwise.imag)
_64_BITS: Final[frozenset[object]] = frozenset({dtypes.float64, dtypes.complex128})


@final
class DifferentiatedNumber(NamedTuple):
    """The type of an argument by which a function is differentiated and that is a Python number, with the number.

    Its tangent is of float32 or complex64 unless it meets an array of 64 bits. If Python computes with it, the program
    needs all of its bits. Then its operand is the number rounded to 32 bits; the rest is an operand without tangent.
    Without a value there is no rest.
    """

    number_type: NumberType
    value: object = None

    def rest(self) -> object:
        """Return the number without the number rounded to 32 bits, in 64 bits; 0 where that is not finite."""
        wide, narrow = self.number_type.base.dtype, self.number_type.dtype
        if type(self.value) is not TracedNumber:
            with np.errstate(all="ignore"):
                value = np.asarray(self.value, wide)
                rest = value - value.astype(narrow).astype(wide)
            return rest if np.isfinite(rest) else np.zeros_like(rest)
        x, b = self.value.in_base(), self.value._trace.builder
        rounded = b.one(ConvertElementType(wide), b.one(ConvertElementType(narrow), x._var))
        difference = b.one(SUB, x._var, rounded)
        finite = elementwise.isfinite(b, difference)[0]
        return Tracer(self.value._trace, emit_where(b, finite, difference, Lit.zero(difference.aval)))


@final
class Outside(Enum):
    """The source location of code that the traced function has not called."""

    OUTSIDE = 0


OUTSIDE: Final = Outside.OUTSIDE


# The type of an argument of a traced function.
ArgumentType: TypeAlias = Aval | NumberType | DifferentiatedNumber


class Trace:
    """A trace in progress: a `Binder` that adds equations to one builder."""

    __slots__ = (
        "builder", "captured", "copies", "dependent", "differentiated", "elements", "frames", "name", "numbers",
        "outer", "scalar_operands", "scope",
    )  # fmt: skip

    def __init__(self, name: str, base: FrameType, outer: Trace | None) -> None:
        self.name = name
        self.outer = outer
        self.scope: str = "" if outer is None else outer.scope  # the names of `named_scope` around the running code
        # of arrays that others can write to; a trace and those inside of it share them
        self.copies: Copies = copies_in_scope() if outer is None else outer.copies
        # Known arguments that are operands. A trace shares them with those around it, so that a number is one operand
        # of each. By the id of a number and a dtype: the number, which keeps the id unique, and its element, the
        # operand.
        self.elements: dict[tuple[int, dtypes.DType], tuple[object, NDArray]] = {} if outer is None else outer.elements
        # by id, scalars of NumPy
        self.scalar_operands: dict[int, np.generic] = {} if outer is None else outer.scalar_operands
        self.numbers: list[TracedNumber] = []  # the arguments that are numbers, of unknown value
        self.differentiated: dict[Atom, DifferentiatedNumber] = {}  # those by which the function is differentiated
        self.frames = CalledFrames(base)  # only code that the tracing function called adds equations
        self.builder = Builder()
        # id -> (captured object, its operand); the reference to the object keeps the id unique
        self.captured: dict[int, tuple[object, Var]] = {}
        # a cache of `fxad.api.custom.traced_call`, which extends it at each call: how many equations it covers, and the
        # operands of the trace and results of these equations that have a tangent if all operands have one
        self.dependent: tuple[int, set[Atom]] = 0, set()

    @property
    def alive(self) -> bool:
        """Return True until the trace ends."""
        return self.frames.base is not None

    def source(self) -> Source | Outside:
        """Return the user's line that is running; OUTSIDE for code that the traced function has not called."""
        frame, base = sys._getframe(2), self.frames.base
        while _is_internal[(code := frame.f_code).co_filename]:
            if frame is base:  # the traced function belongs to fxad
                return _source(frame)
            caller = frame.f_back
            if caller is None:
                return OUTSIDE
            frame = caller
        if frame is not self.frames.last and frame not in self.frames:
            return OUTSIDE
        return (code, frame.f_lasti, self.scope) if self.scope else (code, frame.f_lasti)

    def staging(self) -> bool:
        return active_trace() is not None

    def bind(self, prim: Primitive, args: tuple[object, ...]) -> tuple[Array, ...]:
        # the hot path of tracing: written out for one and two operands, without a call of the builder
        source = self.source()
        if source is OUTSIDE:
            return self._other_binder(prim.name).bind(prim, args)
        n_args = len(args)
        atoms: tuple[Atom, ...]
        if n_args == 2:
            x, y = args
            atoms = (
                x._var if type(x) is Tracer and x._trace is self else self.lift(prim.name, 0, x),
                y._var if type(y) is Tracer and y._trace is self else self.lift(prim.name, 1, y),
            )
        elif n_args == 1:
            (x,) = args
            atoms = (x._var if type(x) is Tracer and x._trace is self else self.lift(prim.name, 0, x),)
        else:
            atoms = tuple([self.lift(prim.name, k, a) for k, a in enumerate(args)])
        b = self.builder
        b.source = source
        try:
            if n_args == 2:
                avals = prim.abstract_eval(atoms[0].aval, atoms[1].aval)
            else:
                avals = prim.abstract_eval(*[a.aval for a in atoms])
        except FxadError as e:
            raise self._located(e, prim.name, atoms, source)
        outs = result_vars(b.n, avals)
        b.n += len(outs)
        b.eqns.append(new_eqn(prim, atoms, outs, source))
        return (Tracer(self, outs[0]),) if len(outs) == 1 else tuple([Tracer(self, v) for v in outs])

    def apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> tuple[Array, ...]:
        source = self.source()
        if source is OUTSIDE:
            return self._other_binder(operation_name(op, static)).apply(op, args, static)
        like: Aval | None = None  # the type of the first array
        scalars = False
        atoms: list[Atom | None] = []  # None for a Python scalar
        for k, a in enumerate(args):
            if type(a) is Tracer and a._trace is self:
                atom: Atom | None = a._var
            elif type(a) in _SCALARS or type(a) is TracedNumber or is_scalar(a):
                atom, scalars = None, True
            else:
                atom = self.lift(operation_name(op, static), k, a)
            if like is None and atom is not None:
                like = atom.aval
            atoms.append(atom)
        b = self.builder
        operands: list[Any] = self._with_scalars(op, args, static, atoms, like) if scalars else atoms
        b.source = source  # a number that is converted there has its own line
        start, first = len(b.eqns), b.n
        try:
            outs = op(b, *operands, *static)
        except FxadError as e:
            # remove the equations of the failed operation
            del b.eqns[start:]
            b.n = first
            raise self._located(e, operation_name(op, static), operands, source)
        return (Tracer(self, outs[0]),) if len(outs) == 1 else tuple([Tracer(self, v) for v in outs])

    def _with_scalars(
        self,
        op: Operation,
        args: tuple[object, ...],
        static: tuple[Hashable, ...],
        atoms: Sequence[Atom | None],
        like: Aval | None,
    ) -> list[Atom | None]:
        """Return the atoms of arguments, with literals for the Python scalars, and operands for those that are
        arguments of the traced function. `like` is the type of the first array."""
        if like is None:
            like = Aval((), promotion.ALONE[max(map(number_kind, args))])
        elif like.shape and not _NOT_ELEMENTWISE.isdisjoint((op, *static)):
            like = like.with_shape(())
        operands = list(atoms)
        for k, x in enumerate(args):
            if atoms[k] is not None:
                continue
            if type(x) is TracedNumber:
                array = x.as_type(cast("dtypes.DType", static[0])) if op is elementwise.astype else x.beside(like.dtype)
                operands[k] = self.lift(operation_name(op, static), k, array)
                continue
            scalar = cast("promotion.Scalar", x)  # all others are atoms
            try:
                if type(x) in NUMBER_ARGUMENTS:
                    operands[k] = self.number_operand(scalar, promotion.scalar_dtype(scalar, like.dtype))
                else:
                    operands[k] = promotion.scalar_literal(scalar, like)
            except DTypeError as e:
                raise promotion.argument(e, f"{operation_name(op, static)}: argument {k}") from None
        return operands

    def number_operand(self, value: promotion.Scalar, dtype: dtypes.DType) -> Var:
        """Return the operand of a number that is an argument of the traced function, in a dtype."""
        key = id(value), dtype
        if key not in self.elements:
            self.elements[key] = value, promotion.scalar_element(value, dtype)
        return self._capture(self.elements[key][1], Aval((), dtype))

    def call(
        self, jaxpr: Jaxpr, args: Sequence[object], path: PathOf = operand_label, name: str = ""
    ) -> tuple[Array, ...]:
        # a `remat` is a call already; a second call around it would sum its cotangent contributions separately
        remat = whole_remat(jaxpr)
        return self.bind(Call(jaxpr) if remat is None else remat, tuple(args))

    def paste(self, op: str, jaxpr: Jaxpr, args: tuple[object, ...]) -> tuple[Array, ...]:
        source = self.source()
        if source is OUTSIDE:
            return self._other_binder(op).paste(op, jaxpr, args)
        atoms: list[Atom] = []
        for a in args:
            atoms.append(a._var if type(a) is Tracer and a._trace is self else self.lift(op, len(atoms), a))
        b = self.builder
        b.source = source
        outs = b.paste(jaxpr, atoms)
        return (Tracer(self, outs[0]),) if len(outs) == 1 else tuple([Tracer(self, v) for v in outs])

    def _other_binder(self, op: str) -> Binder:
        """Return the binder for code that the traced function has not called: code in a copy of the context of this
        trace, in another thread or after the trace.

        Raises: LeakedTracerError in another thread while the trace is alive: two threads would add equations in an
                undefined order.
        """
        if self.alive and self.frames.thread != get_ident():
            raise LeakedTracerError(
                f"{op}: {self.name} is being traced by another thread, whose context this one has",
                remedy="compute in the thread that traces, or start this one with an empty context",
            )
        return active_trace() or EAGER

    def lift(self, op: str, k: int, value: object, role: str = "argument") -> Atom:
        """Return the atom of a value in this trace: a scalar becomes a literal, an array or outer tracer is
        captured."""
        if isinstance(value, Tracer):
            if type(value) is TracedNumber:
                value = value.beside()
            if value._trace is self:
                return value._var
            self._check_outer(f"{op}: {role} {k}", value)
            if isinstance(value._var, Lit):
                return value._var
            return self._capture(value, value.aval)
        if isinstance(value, np.generic):
            aval = aval_of(value, f"{op}: {role} {k}")
            return self._capture(value, aval) if id(value) in self.scalar_operands else Lit.of(value, aval)
        if is_scalar(value):
            try:
                if type(value) in NUMBER_ARGUMENTS:
                    return self.number_operand(value, promotion.scalar_dtype(value))
                return promotion.scalar_literal(value)
            except DTypeError as e:
                raise promotion.argument(e, f"{op}: {role} {k}") from None
        if value is not (inner := contained_array(value)):
            return self.lift(op, k, inner, role)
        aval = aval_of(value, f"{op}: {role} {k}")
        return self._capture(self._unchanging(value, aval), aval)

    def _unchanging(self, value: object, aval: Aval) -> object:
        """Return an array with the elements that `value`, of type `aval`, has now: the user may write to it before the
        trace ends. One copy stands for all uses between two writes."""
        _, previous = self.copies.get(id(value), (value, None))
        is_numpy = isinstance(value, np.ndarray)
        # the elements of a NumPy array are compared where they are, those of other arrays only after they are copied
        if previous is not None and is_numpy and same_bits(previous, value):
            return previous
        copy = unchanging_array(value, aval)
        if copy is value:
            return value
        if previous is not None and not is_numpy and same_bits(previous, copy):
            return previous
        self.copies[id(value)] = value, copy
        return copy

    def _capture(self, value: object, aval: Aval) -> Var:
        captured = self.captured.get(id(value))
        if captured is None:
            captured = self.captured[id(value)] = value, self.builder.input(aval)
        return captured[1]

    def _check_outer(self, what: str, value: Tracer) -> None:
        if not _encloses(value._trace, self.outer):
            raise value.leaked(what, f"it is used in {self.name}")

    def _located(self, e: FxadError, op: str, atoms: Sequence[Atom], source: Source) -> FxadError:
        return e.located(equation=f"{op} {' '.join(map(repr, atoms))}", where=source_text(source))

    def argument(self, aval: ArgumentType) -> Array:
        """Return a new argument of the traced function."""
        if isinstance(aval, Aval):
            return Tracer(self, self.builder.input(aval))
        kind = aval.number_type if isinstance(aval, DifferentiatedNumber) else aval
        number = TracedNumber(self, self.builder.input(kind.base), kind)
        self.numbers.append(number)
        if isinstance(aval, DifferentiatedNumber):
            self.differentiated[number._var] = aval
        return number

    def variable_of(self, value: object) -> Var | None:
        """Return the variable of a tracer of this trace; None for a literal and for every other value."""
        atom = value._var if isinstance(value, Tracer) and value._trace is self else None
        return atom if isinstance(atom, Var) else None

    @property
    def operands(self) -> list[Var]:
        """The operands so far, without the constants that were captured."""
        constants = {var for value, var in self.captured.values() if not isinstance(value, Tracer)}
        return [v for v in self.builder.ins if v not in constants]

    # ------------------------------------------------------------------------------------------------ the end

    def finish(self, outs: Sequence[Atom], n_args: int) -> tuple[Jaxpr, tuple[object, ...]]:
        """Return the program, with its captured operands first, and the captured values. A captured value that nothing
        reads, because the operation that captured it failed, is left out of both. Operands that are numbers have the
        dtypes in which they are used."""
        jaxpr = self.builder.build(outs, self.name)
        if not self.captured and not self.numbers:
            return jaxpr, ()
        read = {x for eqn in jaxpr.eqns for x in eqn.ins}.union(jaxpr.outs)
        b, numbers = Builder(), _NumberOperands(self.numbers, self.differentiated, jaxpr)
        # `inline` takes an atom for each operand: for one that nothing reads, any will do
        captured = [b.input(v.aval) if v in read else Zero(v.aval).instantiate() for v in jaxpr.ins[n_args:]]
        args = numbers.add_operands(b, jaxpr.ins[:n_args])
        outs = b.inline(jaxpr, [*args, *captured], numbers.convert if self.numbers else None)
        captured_first = b.build(outs, self.name)
        values = [value for value, var in self.captured.values() if var in read]
        return captured_first, (*values, *numbers.rests.values())


@final
class _NumberOperands:
    """The operands of a program for the arguments that are Python numbers.

    While a function is traced, the variable of a number can hold each value of its type: that of a float has 64 bits.
    An equation converts it where the number is used. At the end of the trace, the operand gets the dtype in which the
    program uses the number, so a conversion to this dtype goes. For `lambda x, n: x * n`, of an array and a float:

        while it is traced                          at the end
        x: f32[3], n: f64[]                         x: f32[3], n: f32[]
        a: f32[] = convert_element_type n
        b: f32[3] = mul x a                         b: f32[3] = mul x n

    `types` are the types of the operands. `rests` are the values of further operands, one for each number that is
    rounded to 32 bits although the program uses all of its bits: see `DifferentiatedNumber`.
    """

    __slots__ = ("_met", "_operands", "_whole", "rests", "types")

    def __init__(
        self, numbers: Sequence[TracedNumber], differentiated: Mapping[Atom, DifferentiatedNumber], jaxpr: Jaxpr
    ) -> None:
        self._met = met = _dtypes_in_use([n._var for n in numbers], jaxpr)
        self.types = {n._var: Aval((), n.number_type.operand_dtype(met[n._var])) for n in numbers}
        self.rests: dict[Atom, Any] = {}
        for n in numbers:
            v, number = n._var, differentiated.get(n._var)
            if number is None or n.meets_64_bits or self.types[v].dtype not in _64_BITS:
                continue
            self.types[v] = n.number_type.aval  # rounded to 32 bits, those of its tangent
            if number.value is not None:
                self.rests[v] = number.rest()
        self._operands: dict[Atom, Atom] = {}
        self._whole: dict[Atom, Atom] = {}  # of each number, the value that is converted where the program uses it

    def add_operands(self, b: Builder, ins: Sequence[Var]) -> list[Atom]:
        """Add the operands for the arguments `ins` of the program, those of `rests` first. Returns what its equations
        read in place of `ins`."""
        rests = {v: b.input(v.aval) for v in self.rests}
        self._operands = {v: b.input(self.types.get(v, v.aval)) for v in ins}
        self._whole = whole = {v: self._operands[v] for v in self.types}
        for v, rest in rests.items():
            whole[v] = b.one(ADD, promotion.convert(b, whole[v], rest.aval.dtype), rest)
        met = self._met
        return [
            promotion.convert(b, whole[v], v.aval.dtype) if v in met and v.aval.dtype in met[v] else x
            for v, x in self._operands.items()
        ]

    def convert(self, b: Builder, eqn: Eqn, _: Atoms) -> Atoms | None:
        """Return a conversion of a number, from the dtype that its operand has now; None for another equation."""
        prim, v = eqn.prim, eqn.ins[0] if eqn.ins else None
        if not isinstance(prim, ConvertElementType) or v not in self._whole:
            return None
        if v in self.rests and prim.dtype is self.types[v].dtype:
            return (self._operands[v],)  # the number itself, rounded to 32 bits
        return (promotion.convert(b, self._whole[v], prim.dtype),)


def _dtypes_in_use(numbers: Sequence[Atom], jaxpr: Jaxpr) -> dict[Atom, set[dtypes.DType]]:
    """Return the dtypes in which the program uses each operand that is a number."""
    met: dict[Atom, set[dtypes.DType]] = {v: set() for v in numbers}
    if not met:
        return met
    for eqn in jaxpr.eqns:
        for x in eqn.ins:
            if x in met:
                met[x].add(eqn.prim.dtype if type(eqn.prim) is ConvertElementType else x.aval.dtype)
    for x in jaxpr.outs:
        if x in met:
            met[x].add(x.aval.dtype)
    return met


def is_number(x: object) -> bool:
    """Return True for a Python number, also for a traced one."""
    return type(x) is TracedNumber or is_scalar(x)


def number_kind(x: object) -> NumberKind:
    """Return the kind of a number, also of a traced one."""
    return x.number_type.kind if type(x) is TracedNumber else promotion.scalar_kind(cast("promotion.Scalar", x))


def dtype_of_number(x: object, like: dtypes.DType | None, what: str = "scalar") -> dtypes.DType:
    """Return `promotion.scalar_dtype`, also of a traced number."""
    if type(x) is TracedNumber:
        return x.number_type.dtype_beside(like)
    return promotion.scalar_dtype(cast("promotion.Scalar", x), like, what)


def number_array(x: object, dtype: dtypes.DType) -> Array | NDArray:
    """Return a number as an array without axes, of a dtype that holds its kind. In a trace, it is an operand if the
    number is an argument of the traced function."""
    if type(x) is TracedNumber:
        return x.as_type(dtype)
    trace = active_trace() if type(x) in NUMBER_ARGUMENTS else None
    value = cast("promotion.Scalar", x)
    return (
        promotion.scalar_element(value, dtype) if trace is None else Tracer(trace, trace.number_operand(value, dtype))
    )


def _encloses(outer: Trace, trace: Trace | None) -> bool:
    """Return True if `outer` is a trace or one of those around it."""
    while trace is not None and trace is not outer:
        trace = trace.outer
    return trace is not None


_SCALARS: Final = frozenset({bool, int, float, complex})
# Operations in which a Python scalar has no axes; in others it is a literal of the shape of the array that it meets.
# `operations.precision.precise` has the operation that it applies among its static arguments.
_NOT_ELEMENTWISE: Final[frozenset[object]] = frozenset(
    {
        contractions.dot,
        contractions.einsum,
        contractions.matmul,
        contractions.vecdot,
        indexing.dynamic_update_slice,
        sorting.searchsorted,
    }
)


def active_trace() -> Trace | None:
    """Return the trace to which the calling code adds equations, if there is one."""
    trace = current_binder()
    while isinstance(trace, Trace) and trace.source() is OUTSIDE:
        if not trace.alive and trace is current_binder():
            _binder.set(trace.outer)  # a copied context, or an interruption, has left it there
        trace = trace.outer
    return trace if isinstance(trace, Trace) else None


def line_of_traceback(traceback: TracebackType | None) -> str:
    """Return the user's line in a traceback: the innermost that is not fxad's own; empty when there is none."""
    source: Source = None
    called_by_fxad = False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        own = _is_internal[code.co_filename]
        if called_by_fxad and not own and is_rule(traceback.tb_frame):
            break
        if not own:
            source = code, traceback.tb_lasti
        called_by_fxad = own
        traceback = traceback.tb_next
    return source_text(source)


def trace_flat(
    fn: Callable[[list[Array]], Sequence[object]], avals: Sequence[ArgumentType], name: str
) -> tuple[Jaxpr, tuple[object, ...]]:
    """Trace a function of flat arguments. Return the program, with captured operands first, and their values.
    An argument of a `NumberType` is a number; the program decides the dtype of its operand.
    The values are copies of the arrays that others can write to, made when `fn` uses them.

    Law:    the same function on the same types gives the same object.
    Cost:   one run of `fn` on tracers.
    Raises: what `fn` raises; ArgumentError when it returns something that is not an array; DepthError when so many
            functions are traced inside of each other that Python has no frame left.
    """
    trace = Trace(name, sys._getframe(), active_trace())
    before = _binder.set(trace)
    try:
        args = [trace.argument(a) for a in avals]
        results = fn(args)
        outs = [trace.lift(name, k, r, "result") for k, r in enumerate(results)]
        return trace.finish(outs, len(avals))
    except FxadError as e:  # without an equation: an error of an argument, an axis or an index
        raise e.located(where=line_of_traceback(e.__traceback__))
    except RecursionError as e:
        depth, first = _traces_in(e.__traceback__)
        if trace.outer is not None or depth < _MIN_NESTED_TRACES:  # the recursion is the user's own
            raise
        raise DepthError(
            f"trace of {name}: {depth} functions are traced inside of each other, and Python allows"
            f" {sys.getrecursionlimit()} frames",
            remedy="trace the inner functions first: fx.trace(f, x) is a program, and programs call each other at any"
            " depth; or loop over one function with lax.scan",
        ).located(where=source_text(first)) from None
    finally:  # an asynchronous exception may prevent this; then the trace ends with this frame
        trace.frames.end()
        _binder.reset(before)


_MIN_NESTED_TRACES: Final = 20  # fewer do not exhaust Python's frames


def _traces_in(traceback: TracebackType | None) -> tuple[int, Source]:
    """Return the number of traces that were in progress when an exception was raised, and the line in the first
    function."""
    n = 0
    first: Source = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        n += code is trace_flat.__code__
        if n and first is None and not _is_internal[code.co_filename]:
            first = code, traceback.tb_lasti
        traceback = traceback.tb_next
    return n, first


def bind(prim: Primitive, *args: object) -> tuple[Array, ...]:
    """Bind one primitive to arrays: in the active trace, or executed immediately.

    Operands are not promoted or broadcast. A Python scalar is a literal without axes.
    Raises: ArgumentError naming primitive, position and type for an operand that is not an array.
    """
    return binder().bind(prim, args)


__all__ = [
    "ArgumentType",
    "DifferentiatedNumber",
    "Trace",
    "TracedNumber",
    "Tracer",
    "active_trace",
    "bind",
    "dtype_of_number",
    "is_number",
    "number_array",
    "number_kind",
    "line_of_traceback",
    "trace_flat",
    "user_source",
]
