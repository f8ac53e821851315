"""The program as a value: equations, jaxprs, and the rules of primitives.

All classes are frozen and compared by value. `fxad.core.atoms` defines types, variables and literals, which this module
exports. `Jaxpr` is hash-consed like them: a cache key that contains a program costs a pointer, and unreferenced
programs are collected.
"""

from __future__ import annotations

import hashlib
import weakref
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import Field, FrozenInstanceError, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, Protocol, TypeAlias, TypeVar, final

from fxad.core import printing
from fxad.core.atoms import (
    BOOL_SCALAR as BOOL_SCALAR,
    INT32_SCALAR as INT32_SCALAR,
    Atom as Atom,
    Aval as Aval,
    Cotangent as Cotangent,
    Hole as Hole,
    Lin as Lin,
    Lit as Lit,
    NDArray as NDArray,
    Shape as Shape,
    Tangent as Tangent,
    Var as Var,
    Zero as Zero,
    as_lin as as_lin,
    as_shape as as_shape,
    instantiated as instantiated,
    known_operands as known_operands,
    literal_number as literal_number,
    operand_var as operand_var,
    result_vars as result_vars,
)
from fxad.core.dataclasses import dataclass
from fxad.core.declaration import (
    Abstract,
    Record as Record,
    has_no_jaxpr,
    primitive as primitive,
    primitive_family as primitive_family,
    record as record,
)
from fxad.core.flags import Flags as Flags
from fxad.core.hlo import Hlo as Hlo, HloValue as HloValue, Region as Region
from fxad.core.layout import Layout as Layout
from fxad.core.source_info import (
    Calls as Calls,
    Source as Source,
    SourceLocation as SourceLocation,
    source_location as source_location,
    source_locations as source_locations,
    source_text as source_text,
)
from fxad.core.weak import WeakTable
from fxad.dtypes import DType
from fxad.errors import ArgumentError
from fxad.support.absent import absent_attribute
from fxad.support.tables import headed, preformatted

T = TypeVar("T")
_set: Final = object.__setattr__


@final
class _EagerName(str):
    """The type of `EAGER_NAME`, which the name of a user's function does not have: that may be `eager` too."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return str, (str(self),)


# The name of the program of one eager operation. It has no lines, and no function of the user.
EAGER_NAME: Final = _EagerName("eager")

# ------------------------------------------------------------------------------------------------------- equations


@final
@dataclass(frozen=True, slots=True)
class Eqn:
    """One equation: `outs = prim(ins)`. Its source location is not part of its value.

    Equal programs are one object, with the sources of the function that was traced first, so a source may be that of an
    equal function.
    """

    prim: Primitive
    ins: tuple[Atom, ...]
    outs: tuple[Var, ...]
    source: Source = field(default=None, compare=False, repr=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(absent_attribute("Eqn", name), name=name, obj=self)

    def __reduce__(self) -> tuple[object, ...]:
        return Eqn, (self.prim, self.ins, self.outs, source_location(self.source))

    def __copy__(self) -> Eqn:
        return self

    def __deepcopy__(self, memo: object) -> Eqn:
        return self

    def __str__(self) -> str:
        """Return the equation as in program text, with bodies by their names."""
        return printing.equation(self, printing.labels(jaxprs_in_params(self.prim)))


class _Unfrozen:
    """An equation while it is made: the fields of `Eqn`, without its `__setattr__`."""

    __slots__ = ("prim", "ins", "outs", "source")


def new_eqn(prim: Primitive, ins: Atoms, outs: tuple[Var, ...], source: Source) -> Eqn:
    """Return `Eqn(prim, ins, outs, source)` in two fifths of the time. Every pass calls it for every equation."""
    unfrozen: Any = _Unfrozen()  # no `__init__`, and no tuple of the fields: each takes a fifth of the time
    unfrozen.prim = prim
    unfrozen.ins = ins
    unfrozen.outs = outs
    unfrozen.source = source
    unfrozen.__class__ = Eqn
    eqn: Eqn = unfrozen
    return eqn


@final
class _Bucket(list[weakref.ref["Jaxpr"]]):
    """The programs with one structural hash, oldest first. A program refers to its bucket; the bucket refers to the
    programs weakly."""

    __slots__ = ("__weakref__",)

    def find(self, ins: tuple[Var, ...], eqns: tuple[Eqn, ...], outs: Atoms) -> Jaxpr | None:
        """Return the first live program with these parts, or None."""
        for ref in tuple(self):
            program = ref()
            if program is not None and program.ins == ins and program.outs == outs and program.eqns == eqns:
                return program
        return None


def _take_name_and_lines(eager: Jaxpr, name: str, eqns: tuple[Eqn, ...]) -> None:
    """Give the program of an eager operation, which has no lines, the name and the lines of an equal program, which may
    be those of a function. Neither is part of the value: `eqns` are equal to those that they replace."""
    _set(eager, "name", name)
    _set(eager, "eqns", eqns)


_jaxprs: Final[WeakTable[int, _Bucket]] = WeakTable()


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False, weakref_slot=True)
class Jaxpr:
    """A program: operands, equations in binding order, results.

    Canonical: `ins[k].index == -1-k`; results of equations are numbered 0, 1, 2, ... in order. So alpha-equivalent
    programs are equal, and equal programs are one object (`is`). A `Builder` makes such programs. The constructor
    neither numbers nor checks: it is for programs whose equations are numbered already, such as one with other results.

    Names and lines are not part of the value. So equal programs share those of the function that was traced first, and
    a message about one function may name another, which computes the same. Those of eager operations give way.

    Law: `Jaxpr(j.ins, j.eqns, j.outs) is j`; `pickle.loads(pickle.dumps(j)) is j`; `copy.deepcopy(j) is j`.
    """

    ins: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outs: tuple[Atom, ...]
    name: str  # of the user's function, for messages and metadata; not part of the value
    _hash: int
    # Results that have the lifetime of the program: those of transforms under (function, arguments), see
    # `fxad.core.memo.by_value`, and those of this module, which it cannot import, under a name, see `once`.
    _memo: dict[Hashable, Any]
    _bucket: _Bucket

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(absent_attribute("Jaxpr", name), name=name, obj=self)

    def __new__(cls, ins: tuple[Var, ...], eqns: tuple[Eqn, ...], outs: Atoms, name: str = "main") -> Jaxpr:
        h = hash((ins, outs, tuple([(e.prim, e.ins) for e in eqns])))
        bucket = _jaxprs.get(h)
        interned = None if bucket is None else bucket.find(ins, eqns, outs)
        if interned is not None:
            if interned.name is EAGER_NAME:
                _take_name_and_lines(interned, name, eqns)
            return interned
        if bucket is None:
            bucket = _jaxprs.put(h, _Bucket())
        self = object.__new__(cls)
        _set(self, "ins", ins)
        _set(self, "eqns", eqns)
        _set(self, "outs", outs)
        _set(self, "name", name)
        _set(self, "_hash", h)
        _set(self, "_memo", {})
        _set(self, "_bucket", bucket)
        # Threads may run this concurrently, without a lock. Of equal programs, the first live one in the bucket is
        # canonical: entries before it are dead, and stay dead.
        bucket.append(weakref.ref(self, bucket.remove))
        return bucket.find(ins, eqns, outs) or self

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

    def with_outs(self, outs: Iterable[Atom]) -> Jaxpr:
        """Return the program with other results, which are values of it."""
        return Jaxpr(self.ins, self.eqns, tuple(outs), self.name)

    @property
    def symbolic(self) -> bool:
        """Return True if the type of an operand has a dimension that is not a number."""
        return once(self, "symbolic", lambda jaxpr: any([v.aval.symbolic for v in jaxpr.ins]))

    @property
    def prims(self) -> tuple[Primitive, ...]:
        """The primitives of the equations, each object once. A program repeats few of them, so questions about them
        take less time than questions about equations."""
        return once(self, "prims", lambda jaxpr: tuple({id(e.prim): e.prim for e in jaxpr.eqns}.values()))

    @property
    def effects(self) -> frozenset[str]:
        """Effects of all equations; empty for a pure program."""
        return once_from_bodies(self, "effects", lambda jaxpr: frozenset().union(*[p.effects for p in jaxpr.prims]))

    @property
    def free_axes(self) -> FreeAxes:
        """The named axes, with their sizes, that collectives of the program use and no map in the program binds."""
        return once_from_bodies(self, "free axes", lambda jaxpr: frozenset().union(*[p.free_axes for p in jaxpr.prims]))

    def __reduce__(self) -> tuple[object, ...]:
        # bodies first, in one list: pickle recurses, and must not recur into nested bodies
        return _unpickled, (tuple([_pickled(jaxpr) for jaxpr in distinct_jaxprs(self)]),)

    def __copy__(self) -> Jaxpr:
        return self

    def __deepcopy__(self, memo: object) -> Jaxpr:
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the program's text, without the user's names, and with bodies named by their digests.

        Law: equal for equal programs in every process, Python version and machine; computed once per program.
        """
        return once_from_bodies(self, "digest", _digest)

    def __str__(self) -> str:
        """Return the program as text, exact; `fxad.text.parse` reads it back."""
        return printing.program(distinct_jaxprs(self))

    def __repr__(self) -> str:
        signature = f"({', '.join(map(str, self.in_avals))}) -> ({', '.join(map(str, self.out_avals))})"
        return f"<Jaxpr {self.name}{signature}, {len(self.eqns)} equations>"

    def _repr_html_(self) -> str:
        return headed(repr(self)[1:-1], preformatted(str(self)))


def once(jaxpr: Jaxpr, key: str, compute: Callable[[Jaxpr], T]) -> T:
    """Return `compute(jaxpr)`, computed once and stored on the program under `key`. Of two threads each may compute it:
    their results are equal, and no caller compares them by identity, as those of `by_value` are compared."""
    if key not in jaxpr._memo:
        jaxpr._memo[key] = compute(jaxpr)
    result: T = jaxpr._memo[key]
    return result


def once_from_bodies(jaxpr: Jaxpr, key: str, compute: Callable[[Jaxpr], T]) -> T:
    """Return `compute(jaxpr)`, which reads its result for the bodies, computed once. It is computed for bodies first,
    because deep nesting must not recur."""
    if key not in jaxpr._memo:
        for inner in jaxprs_without_memo(jaxpr, key):
            inner._memo[key] = compute(inner)
    result: T = jaxpr._memo[key]
    return result


def _digest(jaxpr: Jaxpr) -> str:
    digests: dict[object, str] = {body: f"@{body._memo['digest']}" for body in subjaxprs(jaxpr)}
    return hashlib.sha256(printing.function_text(jaxpr, "fxad 1 ", digests).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------ parameters and bodies


# The types of parameters of a primitive: hashable and exact in text. No arrays, callables, dicts or lists.
# A float parameter is a `Lit`, so that it is compared by bits.
Param: TypeAlias = "int | bool | str | None | DType | Jaxpr | Lit | Aval | Record | tuple[Param, ...]"


def params(prim: Primitive | Record) -> tuple[tuple[str, Param], ...]:
    """Return the static parameters of a primitive, or the fields of a record: names and values, in the order of the
    class."""
    return tuple((f.name, getattr(prim, f.name)) for f in fields(prim))


def map_parameter(
    value: object, fn: Callable[[object], object], replace_record: Callable[[Record], Record | None] = lambda _: None
) -> object:
    """Return a parameter with `fn` applied to the values in its tuples and records. Records are not checked again.
    `replace_record` may give another record for one."""
    if type(value) is tuple:
        return tuple([map_parameter(v, fn, replace_record) for v in value])
    if not isinstance(value, Record):
        return fn(value)
    if (replacement := replace_record(value)) is not None:
        return replacement
    copy = object.__new__(type(value))
    for name, v in params(value):
        _set(copy, name, map_parameter(v, fn, replace_record))
    return copy


def jaxprs_in_params(prim: Primitive | Record) -> tuple[Jaxpr, ...]:
    """Return the programs among the parameters of a primitive or a record, in the order of its fields."""
    return jaxprs_in(tuple([value for _, value in params(prim)]))


def jaxprs_in(parameter: Param) -> tuple[Jaxpr, ...]:
    """Return the programs in a parameter, in order."""
    out: list[Jaxpr] = []
    stack = [parameter]
    while stack:
        value = stack.pop()
        if isinstance(value, Jaxpr):
            out.append(value)
        elif isinstance(value, tuple):
            stack.extend(reversed(value))
        elif isinstance(value, Record):
            stack.extend([v for _, v in reversed(params(value))])
    return tuple(out)


def distinct_jaxprs(jaxpr: Jaxpr) -> tuple[Jaxpr, ...]:
    """Return the distinct programs nested in `jaxpr`, each after its own bodies; `jaxpr` itself is last.

    Cost: linear in the distinct equations, for any depth of nesting and any sharing of bodies.
    """
    return jaxprs_without_memo(jaxpr, None)


def all_prims(jaxpr: Jaxpr) -> list[Primitive]:
    """Return the primitives of `jaxpr` and of the programs nested in it. A primitive may occur several times."""
    return [prim for body in distinct_jaxprs(jaxpr) for prim in body.prims]


def jaxprs_without_memo(jaxpr: Jaxpr, key: Hashable) -> tuple[Jaxpr, ...]:
    """Return the programs of `distinct_jaxprs(jaxpr)` whose memo has no entry for `key` (None: all), and `jaxpr`
    itself, last. If a program has the entry, its bodies are assumed to have it too."""
    visited: dict[Jaxpr, None] = {}
    stack: list[tuple[Jaxpr, Iterator[Jaxpr]]] = [(jaxpr, iter(subjaxprs(jaxpr)))]
    while stack:
        top, bodies = stack[-1]
        inner = next((b for b in bodies if b not in visited and key not in b._memo), None)
        if inner is None:
            visited[top] = None
            stack.pop()
        else:
            stack.append((inner, iter(subjaxprs(inner))))
    return tuple(visited)


def subjaxprs(jaxpr: Jaxpr) -> tuple[Jaxpr, ...]:
    """Return the distinct bodies in the equations. The result is memoised, because every pass calls
    `distinct_jaxprs`."""
    return once(jaxpr, "subjaxprs", _find_subjaxprs)


def _find_subjaxprs(jaxpr: Jaxpr) -> tuple[Jaxpr, ...]:
    names = {kind: [n for n, _ in params(p)] for kind, p in {type(p): p for p in jaxpr.prims}.items()}
    with_bodies = [p for p in jaxpr.prims if not has_no_jaxpr(p, names[type(p)])]
    return tuple(dict.fromkeys([body for prim in with_bodies for body in jaxprs_in_params(prim)]))


# ------------------------------------------------------------------------------------------------------------- pickling


@final
class _PickledJaxpr:
    """The pickled form of a program. Its bodies are in this form too. A program has one such object, so pickle writes a
    shared body once."""

    __slots__ = ("eqns", "ins", "jaxpr", "name", "outs")

    def __init__(
        self, ins: tuple[Var, ...], eqns: tuple[_PickledEqn, ...], outs: Atoms, name: str, jaxpr: Jaxpr | None
    ) -> None:
        self.ins, self.eqns, self.outs, self.name = ins, eqns, outs, name
        self.jaxpr = jaxpr  # set by unpickling

    def __reduce__(self) -> tuple[object, ...]:
        return _PickledJaxpr, (self.ins, self.eqns, self.outs, self.name, None)


# The pickled form of an equation with bodies: class and parameters of the primitive, operands, results, location.
_PickledHigherOrder: TypeAlias = tuple[
    type["Primitive"], tuple[object, ...], tuple[Atom, ...], tuple[Var, ...], SourceLocation | None
]
_PickledEqn: TypeAlias = Eqn | _PickledHigherOrder


def _pickled(jaxpr: Jaxpr) -> _PickledJaxpr:
    """Return the pickled form of a program whose bodies have been converted already."""
    pickled: _PickledJaxpr | None = jaxpr._memo.get("pickled")
    if pickled is None:
        eqns = (
            tuple([_pickled_eqn(e) if jaxprs_in_params(e.prim) else e for e in jaxpr.eqns])
            if subjaxprs(jaxpr)
            else jaxpr.eqns
        )
        pickled = jaxpr._memo.setdefault("pickled", _PickledJaxpr(jaxpr.ins, eqns, jaxpr.outs, jaxpr.name, None))
    return pickled


def _pickled_eqn(eqn: Eqn) -> _PickledHigherOrder:
    values = tuple([map_parameter(value, _pickled_if_jaxpr) for _, value in params(eqn.prim)])
    return type(eqn.prim), values, eqn.ins, eqn.outs, source_location(eqn.source)


def _unpickled(records: tuple[_PickledJaxpr, ...]) -> Jaxpr:
    """Return the last of the pickled programs. Each program comes after its bodies."""
    for pickled in records:
        if pickled.jaxpr is None:
            eqns = [e if isinstance(e, Eqn) else _unpickled_eqn(*e) for e in pickled.eqns]
            pickled.jaxpr = Jaxpr(pickled.ins, tuple(eqns), pickled.outs, pickled.name)
    last = records[-1].jaxpr
    assert last is not None
    return last


def _unpickled_eqn(
    kind: type[Primitive],
    values: tuple[object, ...],
    ins: Atoms,
    outs: tuple[Var, ...],
    location: SourceLocation | None,
) -> Eqn:
    prim = kind(*[map_parameter(value, _unpickled_if_jaxpr) for value in values])
    return Eqn(prim, ins, outs, location)


def _pickled_if_jaxpr(value: object) -> object:
    return _pickled(value) if isinstance(value, Jaxpr) else value


def _unpickled_if_jaxpr(value: object) -> object:
    return value.jaxpr if isinstance(value, _PickledJaxpr) else value


# ---------------------------------------------------------------------------------------- the interfaces of rules

# The types in the signatures of rules. A tuple has one entry per operand or result.
Atoms: TypeAlias = tuple[Atom, ...]
Avals: TypeAlias = Sequence[Aval]
Tangents: TypeAlias = tuple[Tangent, ...]
Cotangents: TypeAlias = tuple[Cotangent, ...]
Operands: TypeAlias = tuple[Atom | Hole, ...]  # of a transposed equation: a `Hole` is a linear operand
Dims: TypeAlias = tuple[int | None, ...]  # batch axes; None: not batched
HloValues: TypeAlias = Sequence[HloValue]
FreeAxes: TypeAlias = frozenset[tuple[str, int]]  # names and sizes of mapped axes
# Given flags that mark the results that are stored: the primitive that reads them instead of recomputing them, or None.
# The docstring of `use_stored_results` in `transforms/ad/linearize.py` has an example.
Resume: TypeAlias = Callable[[Flags], "Primitive | None"]
# Prunes a body: returns it with only the results marked, without unread operands, and flags that mark the operands that
# are left.
Prune: TypeAlias = Callable[[Jaxpr, Flags], tuple[Jaxpr, Flags]]


class Emit(Protocol):
    """The interface of a builder in rules: it adds equations."""

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        """Add an equation, and return its results."""

    def one(self, prim: Primitive, *args: Atom) -> Var:
        """Add an equation with a single result, and return it."""


class Batching(Emit, Protocol):
    """The interface to `vmap` for rules that batch a body."""

    def batched(self, body: Jaxpr, size: int, in_dims: Dims, out_dims: Dims, axis: str | None = None) -> Jaxpr:
        """Return `vmap` of a body over an axis that is not the mapped axis of the context, with all batch axes
        given."""


class BatchCtx(Batching, Protocol):
    """The context of a batching rule: it adds equations to the batched program, and batches bodies."""

    @property
    def size(self) -> int:
        """Size of the mapped axis."""

    @property
    def axis(self) -> str | None:
        """Name of the mapped axis, if collectives of the program run over it; else None."""

    @property
    def spmd(self) -> tuple[str, ...]:
        """The axes of a mesh that divide the mapped axis, the slowest first."""

    @property
    def devices(self) -> bool:
        """Return True if devices run the indices of the mapped axis."""

    def recur(self, body: Jaxpr, in_dims: Dims, out_dims: Dims | None = None) -> tuple[Jaxpr, Dims]:
        """Batch a body. Return the batched body and the batch axis of each result (None: not batched)."""

    def rule_of_size(self, rule: Jaxpr, declared: int) -> Jaxpr | None:
        """Return a batching rule at the size of the mapped axis. The rule was traced for any size, and calls it
        `declared`: a named size that the rule binds. None if the rule takes larger sizes only."""

    def with_fresh_size(self, rule: Jaxpr, declared: int) -> tuple[int, Jaxpr]:
        """Return the size that a batching rule for any size binds, and the rule. The size is renamed if that of the
        mapped axis has the same name in it: in a map over `n` examples, a rule that binds `n` binds `m`."""


class DerivativeCtx(Batching, Protocol):
    """The part that both contexts of jvp rules have: they add equations to two programs.

    A call of the context adds an equation to the primal program, which contains no tangents. `lin` adds one to the
    linear program: the equation must be linear in its `Lin` operands taken together. It may read primal values, which
    become residuals. So mypy rejects a tangent in a non-linear equation.
    """

    def lin(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangents:
        """Add an equation to the linear program. If all linear operands are `Zero`, the results are `Zero` and no
        equation is added. A `Zero` beside a `Lin` becomes an array of zeros."""

    def lin_one(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangent:
        """Add an equation with a single result as `lin` does; return the result."""

    def add(self, a: Tangent, b: Tangent) -> Tangent:
        """Sum of two tangents of one type; no equation if one is `Zero`."""

    def recur_fused(self, body: Jaxpr, nonzero: Flags) -> tuple[Jaxpr, Flags]:
        """Forward mode of a body. The new body takes the operands, then the tangents of those marked. It returns the
        results, then the tangents of those that the returned flags mark."""


class ForwardCtx(DerivativeCtx, Protocol):
    """The context of a jvp rule in forward mode: the two programs are one."""

    @property
    def separate(self) -> Literal[False]:
        """False: the two programs are one."""


class LinearizeCtx(DerivativeCtx, Protocol):
    """The context of a jvp rule in `linearize`: the two programs are separate."""

    @property
    def separate(self) -> Literal[True]:
        """True: the two programs are separate."""

    def recur(self, body: Jaxpr, nonzero: Flags) -> LinearizedBody:
        """Linearize a body with respect to the operands marked in `nonzero`."""

    def lin_remat(
        self,
        prim: Primitive,
        operands: Sequence[Lin | Atom],
        results: Atoms,
        resumed: Resume,
    ) -> Tangents:
        """Return `lin` of a rematerialization: an equation that recomputes primal `results`. When the whole program is
        linearized, some of these may be residuals anyway. `resumed` gets flags that mark them, and returns the
        primitive that takes them as further operands instead of recomputing them, or None."""


# The context of a jvp rule. Rules of primitives with bodies read `ctx.separate`: mypy then knows which it is.
JvpCtx: TypeAlias = ForwardCtx | LinearizeCtx


@final
@dataclass(frozen=True, slots=True)
class LinearizedBody:
    """A linearized program or body. `primal`: operands -> results, then residuals. `linear`: nonzero tangents of
    operands, then residuals -> nonzero tangents of results. `out_nonzero` marks the results whose tangent is not a
    symbolic zero.

    These are the halves of forward mode when the operands are known and the tangents are not, in the terms of partial
    evaluation; `linearize` computes them in one pass.
    """

    primal: Jaxpr
    linear: Jaxpr
    n_res: int
    out_nonzero: Flags

    @property
    def n_tangents(self) -> int:
        """The number of tangents that `linear` takes."""
        return len(self.linear.ins) - self.n_res


class TransposeCtx(Emit, Protocol):
    """The context of a transpose rule: it adds equations to the transposed program, and transposes bodies."""

    def recur(self, body: Jaxpr, linear: Flags) -> Jaxpr:
        """Transpose a body that is linear in the operands marked. The new body takes the cotangents of all results,
        then the operands not marked. It returns the cotangents of the marked operands, all instantiated."""


# ------------------------------------------------------------------------------------------------------ primitives

_PURE: Final[frozenset[str]] = frozenset()
_NO_AXES: Final[FreeAxes] = frozenset()


class Primitive(metaclass=Abstract):
    """An operation of the language. A leaf is `@final @primitive`, with its static parameters as typed fields.

    The five rules that every primitive has are abstract methods, so mypy rejects a primitive without one. They take and
    return tuples, with one entry per operand or result.
    """

    __slots__ = ()

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]  # every leaf is a dataclass

    @property
    def effects(self) -> frozenset[str]:
        """The side effects of the operation; empty if it is pure. dce, cse and reordering keep an equation with effects
        in its place."""
        return _PURE

    @property
    def free_axes(self) -> FreeAxes:
        """The named axes, with their sizes, over which the operation communicates; empty for most primitives."""
        return _NO_AXES

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{n}={v!r}' for n, v in params(self)])})"

    @abstractmethod
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        """Return the types of the results. Raises: ShapeError, DTypeError, ArgumentError with operation, difference and
        values."""

    @abstractmethod
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        """Return the results, computed with NumPy. Pure; the reference for tests and `interpret`. Results have the
        dtypes and shapes of `abstract_eval`. The operands may be read-only, and must not be modified."""

    @abstractmethod
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        """Add StableHLO operations that compute the results."""

    @abstractmethod
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        """Batch the equation. `dims[i]` is the batch axis of `args[i]` (None: not batched); at
        least one operand is batched, or the equation uses the mapped axis. Return the results and their batch axes."""

    @abstractmethod
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        """Return the results and their tangents. The tangents of operands of integer or bool type are `Zero`, and those
        of such results must be. At least one tangent is not `Zero`. Raises: NotDifferentiableError with the reason."""


class Linear(Primitive):
    """A primitive that is linear in some of its operands, and can be transposed with respect to them."""

    __slots__ = ()

    @abstractmethod
    def linear_in(self, flags: Flags) -> bool:
        """Return True if the equation is linear in the marked operands taken together, with the others held fixed."""

    @abstractmethod
    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        """Return the cotangents of the operands that are a `Hole`; None for the others. At least one of `cts` is not
        `Zero`. A cotangent has exactly the type of its operand."""


class LinearMap(Linear):
    """A primitive that is linear in all of its operands together. It maps their tangents to those of its results."""

    __slots__ = ()

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(self, *tangents)

    def linear_in(self, flags: Flags) -> bool:
        return all(flags)


class HigherOrder(Primitive):
    """A primitive that carries bodies. A body is a parameter of type `Jaxpr` (or a tuple of them)."""

    __slots__ = ()

    @property
    def effects(self) -> frozenset[str]:
        return frozenset().union(*[body.effects for body in self.bodies])

    @property
    def free_axes(self) -> FreeAxes:
        return frozenset().union(*[body.free_axes for body in self.bodies])

    @property
    @abstractmethod
    def bodies(self) -> tuple[Jaxpr, ...]:
        """The bodies, in the order of the parameters: those of `layout.bodies`, without making the layout."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The relation of the bodies to operands and results, and the number of their runs, in order of `bodies`."""

    @abstractmethod
    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Primitive:
        """Return the same primitive with other bodies, which have the same operand and result types."""

    def rebuild(self, bodies: tuple[Jaxpr, ...], operands: tuple[int, ...], results: tuple[int, ...]) -> Primitive:
        """Return the same primitive with other bodies, which may have other operands and results. A pass that removes
        or adds operands or results calls it.

        `operands` and `results` are the sizes that the groups of the layout then have: `operands[g]` is that of group
        g. Groups marked `fixed` keep their size. Override it if a parameter counts members of a group, and compute that
        parameter from the sizes. Without it, `with_bodies` must give a primitive with groups of these sizes, as it does
        if the layout computes them from the bodies.

        Raises: ArgumentError if `with_bodies` gives other sizes.
        """
        prim = self.with_bodies(bodies)
        layout = prim.layout if isinstance(prim, HigherOrder) else None
        if layout is not None:
            for what, sizes, groups in (("operands", operands, layout.operands), ("results", results, layout.results)):
                if (actual := tuple([g.size for g in groups])) != sizes:
                    raise ArgumentError(
                        f"{self.name}: `rebuild` is missing: groups of {what} must get the sizes {sizes},"
                        f" and `with_bodies` gives {actual}",
                        remedy=f"define {type(self).__name__}.rebuild(self, bodies, operands, results), and compute the"
                        " parameters that count members of a group from these sizes",
                    )
        return prim

    def without_results(self, eqn: Eqn, used: Flags, prune: Prune) -> Eqn | None:
        """Return `eqn`, an equation of this primitive, without unused results and the operands that only these need. A
        primitive with rules overrides this method. Return None if the layout suffices to do it."""
        return None
