"""Tracers, and the trace that records their operations.

One kind of tracer, one builder per trace, held in a context variable: threads and asyncio tasks do not see each other's
(docs/adr/0045). Transformations are no interpreters on a stack: they run on finished programs. `fxad.tracing.context`
keeps the enclosing mapped axes and the order of differentiation, for rules that are traced for these only.

A `Tracer` is an array: a type and a variable. `fxad.tracing.traced_numbers` has its one subclass, for Python numbers of
unknown value. Here such a number is a tracer with a `number_type`, which becomes an array where an operation takes it.
`fxad.tracing.trace_function` runs a function in a new trace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Final, Literal, NoReturn, SupportsIndex, cast, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.frames import CalledFrames
from fxad.core.numbers import NUMBER_ARGUMENTS, PYTHON_NUMBERS
from fxad.errors import (
    INTERNAL_FILES,
    NEEDS_STATIC,
    DTypeError,
    FxadError,
    LeakedTracerError,
    TracerError,
)
from fxad.ir import (
    Atom,
    Aval,
    Calls,
    Eqn,
    Jaxpr,
    Lit,
    NDArray,
    Primitive,
    Source,
    Var,
    new_eqn,
    result_vars,
    source_location,
    source_text,
)
from fxad.operations import elementwise, promotion
from fxad.operations.arguments import contained_array
from fxad.operations.number_types import NumberType
from fxad.operations.promotion import NumberKind
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import whole_remat
from fxad.runtime import Device, default_device
from fxad.sharding import Shard, Sharding
from fxad.support.tables import headed
from fxad.tracing.array import (
    EAGER,
    Array,
    Binder,
    Operation,
    _binder,
    argument_number,
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


is_internal: Final = _InternalFiles()


def user_source(depth: int) -> Source:
    """Return code and offset of the innermost frame that is not fxad's own. It is at least `depth` frames up, where the
    search begins: a greater depth saves time only."""
    return _source(sys._getframe(depth))


def _source(frame: FrameType) -> Source:
    while is_internal[frame.f_code.co_filename]:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


_MOST_CALLS: Final = 8  # An equation notes no more calls of the user's code than this.
_MOST_FRAMES: Final = 64  # To find them, no more frames are walked than this: theirs, and those of fxad between them.


def _calls_of(frame: FrameType, base: FrameType | None) -> Calls:
    """Return the calls of the user's functions that lead from `base` to a frame, from the inside out."""
    calls: list[tuple[CodeType, int]] = []
    caller = frame.f_back
    for _ in range(_MOST_FRAMES):
        if caller is None or caller is base or len(calls) == _MOST_CALLS:
            break
        if not is_internal[(code := caller.f_code).co_filename]:
            calls.append((code, caller.f_lasti))
        caller = caller.f_back
    return tuple(calls)


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
            self._refuse(
                f"to_device: {device}", "a program runs on the devices of its arguments: move them, or its results"
            )
        return self

    @property
    def literal(self) -> Lit | None:
        """The constant that it is in the program; None for a variable."""
        return self._var if isinstance(self._var, Lit) else None

    @property
    def number_type(self) -> NumberType | None:
        """The type of a traced number, a `TracedNumber`; None for an array."""
        return None

    def settled(self) -> Tracer:
        return self

    def beside(self, dtype: dtypes.DType) -> Tracer:
        """Return what an operation takes beside an array of `dtype`: an array is taken as it is, a traced number is
        converted."""
        return self

    def as_type(self, dtype: dtypes.DType) -> Tracer:
        """Return what `astype` converts to a dtype: an array as it is, a traced number as an array of that dtype."""
        return self

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
        return encloses(self._trace, active_trace())

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise self._without_value(what, remedy)

    def _lack(self, name: str, remedy: str) -> NoReturn:
        """Raise the error for a property of values, which is missing: `self` has no such attribute."""
        error = self._without_value(name, remedy)
        raise TracerAttributeError(error.message, remedy=remedy) if type(error) is TracerError else error

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
        if not encloses(self._trace, active):
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
        self._lack("sharding", "look at the sharding of the arguments, before the function is traced")

    @property
    def addressable_shards(self) -> tuple[Shard[Array], ...]:
        self._lack("addressable_shards", "look at the parts of the arguments, before the function is traced")

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
class TracerAttributeError(TracerError, AttributeError):
    """A property of arrays that only values have. Code that asks with `hasattr` or `getattr` goes on without it."""


@final
class Outside(Enum):
    """The source location of code that the traced function has not called."""

    OUTSIDE = 0


OUTSIDE: Final = Outside.OUTSIDE


class Trace:
    """A trace in progress: a `Binder` that adds equations to one builder.

    A trace is in force for code if two things hold: the variable `_binder` of the context has it, or a trace inside of
    it; and the code runs on top of `frames.base`, the frame that calls the traced function, in its thread. The variable
    alone is not enough: a copy of the context outlives the trace, see `core/frames`. `active_trace` asks both.
    """

    __slots__ = (
        "_with_tangents", "builder", "calls", "captured", "copies", "elements", "frames", "name", "outer",
        "scalar_operands", "scope",
    )  # fmt: skip

    def __init__(self, name: str, base: FrameType, outer: Trace | None) -> None:
        self.name = name
        self.outer = outer
        self.scope: str = "" if outer is None else outer.scope  # the names of `named_scope` around the running code
        # The copies of arrays that others can write to. A trace and those inside of it share them.
        self.copies: Copies = copies_in_scope() if outer is None else outer.copies
        # Numbers that are arguments of a traced function, as arrays. The key is the id of the number, and a dtype. The
        # value is the number, which keeps the id unique, and the array, which is captured. A trace and those inside of
        # it share the arrays, so each of them has one operand for a number, however often it is read.
        self.elements: dict[tuple[int, dtypes.DType], tuple[object, NDArray]] = {} if outer is None else outer.elements
        # The scalars of NumPy that are arguments of a traced function, by id: each is an operand, where any other is a
        # literal. `pass_through.with_passed_values` enters them; they have no class of their own, as numbers have.
        self.scalar_operands: dict[int, np.generic] = {} if outer is None else outer.scalar_operands
        self.frames = CalledFrames(base)  # only code that the tracing function called adds equations
        # The lines of the callers of `frames.last`, up to the base. While that frame runs, its callers stand still, so
        # they are walked once for all of its equations.
        self.calls: Calls = ()
        self.builder = Builder()
        # id -> (captured object, its operand); the reference to the object keeps the id unique
        self.captured: dict[int, tuple[object, Var]] = {}
        self._with_tangents: tuple[int, set[Atom]] = 0, set()  # of so many equations; see `values_with_tangents`

    @property
    def alive(self) -> bool:
        """Return True until the trace ends."""
        return self.frames.base is not None

    def source(self) -> Source | Outside:
        """Return the user's line that is running; OUTSIDE for code that the traced function has not called."""
        # 0 is this frame; 1 is a method of a trace, or `active_trace`, which is neither the user's nor the base
        frame, base = sys._getframe(2), self.frames.base
        while is_internal[(code := frame.f_code).co_filename]:
            if frame is base:  # no frame of the user above it: the traced function belongs to fxad
                return _source(frame)
            caller = frame.f_back
            if caller is None:
                return OUTSIDE
            frame = caller
        if frame is not self.frames.last:
            if frame not in self.frames:
                return OUTSIDE
            self.calls = _calls_of(frame, base)
        if self.calls or self.scope:
            return code, frame.f_lasti, self.scope, self.calls
        return code, frame.f_lasti

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
            elif type(a) in PYTHON_NUMBERS or is_traced_number(a) or is_scalar(a):
                atom, scalars = None, True
            else:
                atom = self.lift(operation_name(op, static), argument_number(op, k), a)
            if like is None and atom is not None:
                like = atom.aval
            atoms.append(atom)
        b = self.builder
        operands: list[Any] = self._with_scalars(op, args, static, atoms, like) if scalars else atoms
        b.source = source  # a number that is converted there has its own line
        start = len(b.eqns)
        try:
            outs = op(b, *operands, *static)
        except FxadError as e:
            b.rollback(start)
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
        else:  # a scalar has no axes; an elementwise operation broadcasts its literal
            like = like.with_shape(())
        operands = list(atoms)
        for k, x in enumerate(args):
            if atoms[k] is not None:
                continue
            if isinstance(x, Tracer):
                array = x.as_type(cast("dtypes.DType", static[0])) if op is elementwise.astype else x.beside(like.dtype)
                operands[k] = self.lift(operation_name(op, static), argument_number(op, k), array)
                continue
            scalar = cast("promotion.Scalar", x)  # all others are atoms
            try:
                if type(x) in NUMBER_ARGUMENTS:
                    operands[k] = self.number_operand(scalar, promotion.scalar_dtype(scalar, like.dtype))
                else:
                    operands[k] = promotion.scalar_literal(scalar, like)
            except DTypeError as e:
                raise promotion.argument(
                    e, f"{operation_name(op, static)}: argument {argument_number(op, k)}"
                ) from None
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
            if value.number_type is not None:
                value = value.settled()
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
        if not encloses(value._trace, self.outer):
            raise value.leaked(what, f"it is used in {self.name}")

    def _located(self, e: FxadError, op: str, atoms: Sequence[Atom], source: Source) -> FxadError:
        return e.located(equation=f"{op} {' '.join(map(repr, atoms))}", where=source_text(source))

    def variable_of(self, value: object) -> Var | None:
        """Return the variable of a tracer of this trace; None for a literal and for every other value."""
        atom = value._var if isinstance(value, Tracer) and value._trace is self else None
        return atom if isinstance(atom, Var) else None

    @property
    def operands(self) -> list[Var]:
        """The operands so far, without the constants that were captured."""
        constants = {var for value, var in self.captured.values() if not isinstance(value, Tracer)}
        return [v for v in self.builder.ins if v not in constants]

    def values_with_tangents(self, add: Callable[[set[Atom], Sequence[Eqn], Sequence[Var]], None]) -> set[Atom]:
        """Return the operands and results so far that have a tangent if all operands have one. `add` adds them to the
        set of an earlier call, for the equations since then and the operands."""
        eqns, (n, with_tangents) = self.builder.eqns, self._with_tangents
        add(with_tangents, eqns[n:], self.operands)
        self._with_tangents = len(eqns), with_tangents
        return with_tangents


def is_traced_number(x: object) -> bool:
    """Return True for a Python number whose value is not known."""
    return isinstance(x, Tracer) and x.number_type is not None


def number_kind(x: object) -> NumberKind:
    """Return the kind of a number, also of a traced one."""
    if isinstance(x, Tracer) and x.number_type is not None:
        return x.number_type.kind
    return promotion.scalar_kind(cast("promotion.Scalar", x))


def encloses(outer: Trace, trace: Trace | None) -> bool:
    """Return True if `outer` is a trace or one of those around it."""
    while trace is not None and trace is not outer:
        trace = trace.outer
    return trace is not None


def active_trace() -> Trace | None:
    """Return the trace to which the calling code adds equations, if there is one: see `Trace`. It also takes a trace
    that has ended out of the variable, which nobody else does."""
    trace = current_binder()
    while isinstance(trace, Trace) and trace.source() is OUTSIDE:
        if not trace.alive and trace is current_binder():
            _binder.set(trace.outer)  # a copied context, or an interruption, has left it there
        trace = trace.outer
    return trace if isinstance(trace, Trace) else None


def bind(prim: Primitive, *args: object) -> tuple[Array, ...]:
    """Bind one primitive to arrays: in the active trace, or executed immediately.

    Operands are not promoted or broadcast. A Python scalar is a literal without axes.
    Raises: ArgumentError naming primitive, position and type for an operand that is not an array.
    """
    return binder().bind(prim, args)
