"""Named sizes replaced by numbers: the program of one size, from the program of every size.

The result is the program that tracing at these sizes gives, so far as the traced function adds the same equations for
every size. So equations that tracing would simplify there, such as a reshape to the same shape, are simplified here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, final

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.polynomials import SizeName, names_of
from fxad.core.sizes.size import Size, bound_size, dimension, maximum, substitute_sizes
from fxad.errors import ArgumentError, ShapeError, shown
from fxad.ir import Atom, Atoms, Aval, Eqn, Jaxpr, Lit, Param, Primitive, Record, map_parameter, params, subjaxprs
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.custom_rules import BatchRule
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.gather_scatter import Gather
from fxad.primitives.index import Index, check_positions
from fxad.primitives.shape import BroadcastInDim, Reshape, Rev
from fxad.primitives.slicing import Slice, tight_slice

SizeValues = tuple[tuple[str, int], ...]  # names of sizes with ints, or other sizes, in order


@by_value
def specialize(jaxpr: Jaxpr, values: SizeValues) -> Jaxpr:
    """Return the program with named sizes replaced by ints or by other sizes.

    Law:    the results are those of the program that is traced at those sizes. It is this program, where the traced
            function uses its sizes in shapes and as values, and chooses no equations by them. Many functions do for an
            axis of 0 or 1 elements, a few for other sizes: docs/tutorial-mask.md names them.
    Raises: ShapeError if a dimension would be negative, or too large for int32.
    """
    sizes = dict(values)
    if not any([n.name in sizes for n in _all_names(jaxpr)]):
        return jaxpr
    check_positions("specialize", jaxpr, lambda size: substitute_sizes(size, sizes))
    return _Specializer(values).program(jaxpr)


@final
class _Specializer(Builder):
    """The builder of one program at the sizes `values`. A type and an operation are specialized once."""

    __slots__ = ("_avals", "_operations", "_sizes", "_values")

    def __init__(self, values: SizeValues) -> None:
        super().__init__()
        self._values = values
        self._sizes = dict(values)
        self._avals: dict[Aval, Aval] = {}
        self._operations: dict[Primitive, Primitive] = {}

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        """Return the program at the sizes."""
        ins = self.inputs([self._aval(v.aval) for v in jaxpr.ins])
        env: dict[Atom, Atom] = dict(zip(jaxpr.ins, ins, strict=True))
        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outs, self._add(eqn, self._atoms(eqn.ins, env)), strict=True))
        return self.build(self._atoms(jaxpr.outs, env), jaxpr.name)

    def _atoms(self, atoms: Atoms, env: Mapping[Atom, Atom]) -> Atoms:
        return tuple([self._lit(a) if isinstance(a, Lit) else env[a] for a in atoms])

    def _add(self, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        """Add the equation that tracing at the sizes adds, if any. Return its results."""
        outs = tuple([self._aval(v.aval) for v in eqn.outs])
        if _became_trivial(eqn, ins, outs):
            return ins[:1]
        if _reads_nothing(eqn, ins, outs):
            return (Lit.zero(outs[0]),)
        prim = self._operation(eqn.prim)
        if isinstance(prim, Slice):
            prim = _traced_slice(prim, eqn, outs[0].shape)
        elif isinstance(prim, Rev) and (single := _single_axes(eqn, outs[0].shape)):
            prim = Rev(tuple([k for k in prim.axes if k not in single]))
            if not prim.axes:
                return ins
        self.source = eqn.source
        results = self(prim, *ins)
        types = tuple([v.aval for v in results])
        assert types == outs, f"specialize: {prim.name} gives other types than of symbolic shape"
        return results

    # ------------------------------------------------------------------------------------ types, literals, parameters

    def _aval(self, aval: Aval) -> Aval:
        specialized = self._avals.get(aval)
        if specialized is None:
            shape = tuple([substitute_sizes(n, self._sizes) for n in aval.shape])
            specialized = self._avals[aval] = Aval(shape, aval.dtype)
        return specialized

    def _lit(self, a: Lit) -> Lit:
        aval = self._aval(a.aval)
        return a.with_shape(aval.shape) if a.size is None else Lit.of(substitute_sizes(a.size, self._sizes), aval)

    def _operation(self, prim: Primitive) -> Primitive:
        specialized = self._operations.get(prim)
        if specialized is None:
            parameters = [map_parameter(value, self._param, self._rule) for _, value in params(prim)]
            specialized = self._operations[prim] = type(prim)(*parameters)
        return specialized

    def _param(self, value: object) -> object:
        if type(value) is Size:
            return substitute_sizes(value, self._sizes)
        if isinstance(value, Jaxpr):
            return specialize(value, self._values)
        if isinstance(value, Aval):
            return self._aval(value)
        return self._lit(value) if isinstance(value, Lit) else value

    def _rule(self, record: Record) -> Record | None:
        """Specialize a rule for any size; None for other records, whose fields are specialized.

        The rule keeps the size that it binds, and a size of that name in the values is another one. For example, a rule
        that binds n becomes

            values        rule
            m = 3         the rule at m = 3
            n = 3         the rule itself
            m = n + 1     the rule with another name for its n, at m = n + 1
        """
        if not (isinstance(record, BatchRule) and record.any_size):
            return None
        (name,) = names_of(record.size)
        others = tuple([(k, value) for k, value in self._values if k != name.name])
        size, body = with_fresh_size(record.body, record.size, [n for _, value in others for n in names_of(value)])
        return replace(record, size=size, body=specialize(body, others))


# The functions below make the equation that tracing at the known sizes would add.


def _single_axes(eqn: Eqn, shape: Sequence[int]) -> list[int]:
    """Return the axes of a result whose symbolic size is 1 in `shape`."""
    return [k for k, n in enumerate(eqn.outs[0].aval.shape) if type(n) is Size and shape[k] == 1]


def _traced_slice(prim: Slice, eqn: Eqn, shape: Sequence[int]) -> Slice:
    """Return a slice with known sizes and the result `shape`, for the equation `eqn` of symbolic shape. Along an axis
    with a symbolic stride, it ends at its last element."""
    assert isinstance(eqn.prim, Slice)
    axes = [k for k, stride in enumerate(eqn.prim.strides) if type(stride) is Size]
    limits = list(prim.limits)
    for k in axes:
        limits[k] = prim.starts[k] + maximum((shape[k] - 1) * prim.strides[k] + 1, 0)
    single = [*_single_axes(eqn, shape), *[k for k in axes if shape[k] == 1]]
    return tight_slice(Slice(prim.starts, tuple(limits), prim.strides), single)


# Tracing adds no equation of these where they change nothing.
_REMOVED_IF_TRIVIAL: Final = (BroadcastInDim, Reshape, Slice)


def _became_trivial(eqn: Eqn, ins: Atoms, outs: tuple[Aval, ...]) -> bool:
    """Return True if the result has the type of the operand at these sizes only."""
    return (
        isinstance(eqn.prim, _REMOVED_IF_TRIVIAL) and ins[0].aval is outs[0] and eqn.ins[0].aval is not eqn.outs[0].aval
    )


# A literal where the result of these is empty: the axis that they index, or that their padding cuts, may be empty too.
_LITERAL_IF_EMPTY: Final = (ConvGeneralDilated, DynamicSlice, Gather, Index)


def _reads_nothing(eqn: Eqn, ins: Atoms, outs: tuple[Aval, ...]) -> bool:
    """Return True if an equation reads nothing at these sizes: its result is empty, although it is not for all sizes.
    The update of a part also writes nothing."""

    def emptied(symbolic: Aval, aval: Aval) -> bool:
        return 0 in aval.shape and 0 not in symbolic.shape

    if isinstance(eqn.prim, DynamicUpdateSlice):  # the transpose of an index
        return emptied(eqn.outs[0].aval, outs[0]) and emptied(eqn.ins[1].aval, ins[1].aval)
    return isinstance(eqn.prim, _LITERAL_IF_EMPTY) and emptied(eqn.outs[0].aval, outs[0])


def size_names(jaxpr: Jaxpr) -> tuple[SizeName, ...]:
    """Return the named sizes in a program, in order, without those that its rules bind."""
    return tuple([n for n in _all_names(jaxpr) if not n.bound])


def rule_of_size(rule: Jaxpr, declared: int, size: int) -> Jaxpr | None:
    """Return a rule that binds the size `declared`, at `size`. None if that may be too small."""
    (name,) = names_of(declared)
    return specialize(rule, ((name.name, size),)) if at_least(size, name.at_least) else None


def with_fresh_size(rule: Jaxpr, declared: int, names: Sequence[SizeName]) -> tuple[int, Jaxpr]:
    """Return the size that a rule for any size binds, and the rule: renamed if it is among `names`."""
    (name,) = names_of(declared)
    if name.name not in [n.name for n in names]:
        return declared, rule
    used_names = {n.name for n in (*names, *_all_names(rule))}
    size = next(n for k in count() for n in [bound_size(k, name.at_least)] if names_of(n)[0].name not in used_names)
    return size, specialize(rule, ((name.name, size),))


@by_value
def _all_names(jaxpr: Jaxpr) -> tuple[SizeName, ...]:
    """Return the named sizes in a program, in order.

    Cost: each distinct body is looked at once.
    """
    names: set[SizeName] = set()

    def add(value: Param) -> None:
        if type(value) is Size:
            names.update(value.names)
        elif type(value) is tuple:
            for v in value:
                add(v)
        elif isinstance(value, Record):
            for _, v in params(value):
                add(v)
        elif isinstance(value, Lit):
            names.update(names_of(value.size))
            add(value.aval)
        elif isinstance(value, Aval) and value.symbolic:
            add(value.shape)

    atoms = [*jaxpr.ins, *[a for eqn in jaxpr.eqns for a in (*eqn.ins, *eqn.outs)], *jaxpr.outs]
    for literal_or_type in dict.fromkeys([a if isinstance(a, Lit) else a.aval for a in atoms]):
        add(literal_or_type)
    for prim in dict.fromkeys(jaxpr.prims):
        for _, value in params(prim):
            add(value)
    for body in subjaxprs(jaxpr):
        names.update(_all_names(body))
    return tuple(sorted(names, key=lambda n: (n.name, n.at_least)))


def check_sizes(what: str, declared: Sequence[SizeName], values: dict[str, object]) -> SizeValues:
    """Return values of sizes, in order. Raises: ArgumentError, ShapeError."""
    least = {n.name: max([m.at_least for m in declared if m.name == n.name]) for n in declared}
    for name, value in values.items():
        if name not in least:
            raise ArgumentError(
                f"{what}: {name} is not a size of the program, which has {', '.join(sorted(least)) or 'none'}",
                remedy="give the sizes that its shapes name",
            )
        if type(value) is Size:
            continue
        if not hasattr(type(value), "__index__") or isinstance(value, bool):
            raise ArgumentError(f"{what}: {name} is {shown(value)}, not an int", remedy="give a number of elements")
        if int(value) < least[name]:  # type: ignore[call-overload]  # it has `__index__`
            raise ShapeError(
                f"{what}: {name} is {value}, the program assumes {name} >= {least[name]}",
                remedy="trace it with a weaker assumption, if it has a meaning there",
            )
    return tuple(sorted([(n, dimension(v)) for n, v in values.items()]))
