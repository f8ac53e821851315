"""Mixed precision: a program whose equations compute in a narrower floating dtype, except those that a policy keeps.

Operands and results of the program keep their types. A value is converted where an equation needs it in the other
dtype, once for each dtype. Operations that copy elements take the dtype of what they copy.

Calls and recomputations pass values in the dtype that these have. Loops, branches, maps and functions with rules keep
the types of their operands and results, and convert inside: so a carry keeps its precision from step to step, and the
values of the body that reverse mode stores have the narrower dtype.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.layout import PREDICATE
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.dtypes import DType
from fxad.ir import Atom, Atoms, Eqn, Flags, HigherOrder, Jaxpr, Lit, Primitive
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.cumulative import CumLogSumExp, CumProd, CumSum, LinearRecurrence
from fxad.primitives.elementwise.convert import BitcastConvertType, ConvertElementType, ReducePrecision
from fxad.primitives.elementwise.exponential import Exp, Exp2, Expm1, Log, Log1p, Log2, Log10
from fxad.primitives.elementwise.powers import Hypot, Pow, Rsqrt
from fxad.primitives.elementwise.select import Nextafter
from fxad.primitives.elementwise.trigonometric import Acos, Asin, Cosh, Sinh, Tan
from fxad.primitives.fold import Fold
from fxad.primitives.host_call import HostCall
from fxad.primitives.implicit import LinearSolve, Root
from fxad.primitives.linalg.family import Matrixwise
from fxad.primitives.random import GammaSample
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.reduce_window import ReduceWindowSum
from fxad.primitives.shape import ReduceSum
from fxad.primitives.softmax import LogSoftmax, Softmax
from fxad.transforms.memory.policies import Policy, decided
from fxad.transforms.precision.local_errors import copies
from fxad.transforms.precision.retype import Types, converted, evaluated, unit_roundoff

# Sums of many terms, functions with a large range or slope: PyTorch's autocast computes these in float32.
_SENSITIVE: Final = (
    Acos, Asin, Cosh, CumLogSumExp, CumProd, CumSum, Exp, Exp2, Expm1, Hypot, LinearRecurrence, Log, Log10, Log1p,
    Log2, LogSoftmax, Pow, ReduceProd, ReduceSum, ReduceWindowSum, Rsqrt, Sinh, Softmax, Tan,
)  # fmt: skip
# Operations whose meaning depends on the dtype, and solvers, which stop by tolerances of their dtype.
_BOUND_TO_DTYPE: Final = (
    BitcastConvertType, Fold, GammaSample, HostCall, LinearSolve, Matrixwise, Nextafter, ReducePrecision, Root,
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Sensitive(Policy):
    """Keeps sums and products of many terms, softmax, exponentials, logarithms and powers, which lose digits or leave
    the range in 16 bits; and single numbers, such as losses, which cost nothing.

    Source: the list of operations that PyTorch's autocast computes in float32.
    """

    def keeps(self, eqn: Eqn) -> bool:
        return isinstance(eqn.prim, _SENSITIVE) or all([v.aval.size == 1 for v in eqn.outs])

    def __str__(self) -> str:
        return "sensitive_operations"


sensitive_operations: Final = Sensitive()


@final
@dataclass(frozen=True, slots=True)
class Decisions:
    """Which equations compute in the narrower dtype, and which do not, by the digest of their program and their number.
    Those that are not decided have no rounding error: they compute in the dtype of their operands."""

    cast: frozenset[tuple[str, int]]
    kept: frozenset[tuple[str, int]]


KeptOperations: TypeAlias = Policy | Decisions


@by_value
def cast(jaxpr: Jaxpr, dtype: DType, keep: KeptOperations = sensitive_operations) -> Jaxpr:
    """Return the program with its equations in `dtype` where their floating values are wider, except those that `keep`
    selects.

    Law:  operands and results have the same types; idempotent if `keep` selects by the operation; `cast(f, dtype,
          everything)` computes what f does.
    Cost: linear in the distinct equations.
    """
    low = _types(dtype)
    body = cast_body(jaxpr, low, keep, (False,) * len(jaxpr.ins))
    b = Builder.like(jaxpr)
    outs = b.inline(body.jaxpr, jaxpr.ins)
    b.source = None
    results = [converted(b, a, t.dtype) for a, t in zip(outs, jaxpr.out_avals, strict=True)]
    return dce(b.build(results, f"cast_{jaxpr.name}"))


def _types(dtype: DType) -> Types:
    """Return the floating dtypes with more significant bits, each with `dtype`."""
    roundoff = unit_roundoff(dtype)
    order = [d for d in dtypes.ALL if d in dtypes.FLOATING]
    return tuple([(d, dtype) for d in order if unit_roundoff(d) < roundoff])


@final
@dataclass(frozen=True, slots=True)
class CastBody:
    """A body in mixed precision. `low` marks the results that have the narrower dtype."""

    jaxpr: Jaxpr
    low: Flags


@by_value
@with_enough_stack
def cast_body(jaxpr: Jaxpr, types: Types, keep: KeptOperations, ins_low: Flags) -> CastBody:
    """Return a program in mixed precision, over operands of which those marked have the narrower dtype."""
    caster = _Caster(jaxpr, types, keep)
    for v, is_low in zip(jaxpr.ins, ins_low, strict=True):
        caster.add_operand(v, is_low)
    for k, eqn in enumerate(jaxpr.eqns):
        caster.add(k, eqn)
    b, outs = caster.b, [caster.computed(a) for a in jaxpr.outs]
    low = tuple([a.aval.dtype != v.aval.dtype for a, v in zip(outs, jaxpr.outs, strict=True)])
    return CastBody(b.build(outs, jaxpr.name), low)


@final
class _Caster:
    """Adds the equations of one program. `forms` has each value in the dtypes in which it exists, the first one that in
    which it was computed."""

    __slots__ = ("b", "digest", "forms", "keep", "low", "types")

    def __init__(self, jaxpr: Jaxpr, types: Types, keep: KeptOperations) -> None:
        self.b, self.keep, self.types, self.low = Builder(), keep, types, dict(types)
        self.digest = jaxpr.digest if isinstance(keep, Decisions) else ""
        self.forms: dict[Atom, dict[DType, Atom]] = {}

    def add_operand(self, v: Atom, is_low: bool) -> None:
        """Add an operand of the program."""
        dtype = self.low[v.aval.dtype] if is_low else v.aval.dtype
        self.forms[v] = {dtype: self.b.input(v.aval.with_dtype(dtype))}

    def computed(self, a: Atom) -> Atom:
        """Return a value in the dtype in which it was computed."""
        return next(iter(self.forms[a].values())) if a in self.forms else a

    def is_low(self, a: Atom) -> bool:
        """Return True for a value that was computed in the narrower dtype."""
        return self.computed(a).aval.dtype != a.aval.dtype

    def in_dtype(self, a: Atom, low: bool) -> Atom:
        """Return a value in the narrower dtype, or in its own."""
        dtype = self.low.get(a.aval.dtype, a.aval.dtype) if low else a.aval.dtype
        if a not in self.forms:
            return converted(self.b, a, dtype)
        forms = self.forms[a]
        if dtype not in forms:
            forms[dtype] = converted(self.b, self.computed(a), dtype)
        return forms[dtype]

    def decision(self, k: int, eqn: Eqn) -> bool | None:
        """Return True for an equation that computes in the narrower dtype, False for one that stays in its own, None
        for one that computes in the dtype of its operands."""
        if copies(eqn.prim):
            return None
        if isinstance(self.keep, Decisions):
            key = self.digest, k
            if key in self.keep.cast:
                return True
            return False if key in self.keep.kept else None
        return not decided(self.keep, eqn)

    def add(self, k: int, eqn: Eqn) -> None:
        """Add an equation."""
        self.b.source = eqn.source
        outs = self._outs(k, eqn)
        for v, out in zip(eqn.outs, outs, strict=True):
            self.forms[v] = {out.aval.dtype: out}

    def _outs(self, k: int, eqn: Eqn) -> Atoms:
        """Return the results of an equation, in the narrower dtype if it is decided so. Without a decision, it computes
        in the narrower dtype if all its variables are narrow, and its literals are the same numbers there."""
        b, prim = self.b, eqn.prim
        if isinstance(prim, Call | Remat):
            body = cast_body(prim.body, self.types, self.keep, tuple([self.is_low(a) for a in eqn.ins]))
            return b(prim.with_bodies((body.jaxpr,)), *[self.computed(a) for a in eqn.ins])
        if isinstance(prim, HigherOrder) and not isinstance(prim, _BOUND_TO_DTYPE):
            return b.copy(eqn, self._in_own_dtype(eqn), self._with_cast_bodies(prim))
        if isinstance(prim, ConvertElementType):
            return b(prim, self.computed(eqn.ins[0]))
        changes = any([v.aval.dtype in self.low for v in eqn.outs])
        if changes and not isinstance(prim, _BOUND_TO_DTYPE) and not prim.effects:
            floating = [a for a in eqn.ins if a.aval.dtype in self.low]
            decision = self.decision(k, eqn)
            low = bool(floating) and decision is not False
            if decision is None:
                variables = [a for a in floating if not isinstance(a, Lit)]
                low = bool(variables) and all([self.is_low(a) for a in variables])
                low = low and (copies(prim) or all([self._exact(a) for a in floating if isinstance(a, Lit)]))
            if low and all([self._representable(a) for a in floating if isinstance(a, Lit)]):
                outs = self._low_outs(eqn)
                if outs is not None:
                    return outs
        return b.copy(eqn, self._in_own_dtype(eqn))

    def _in_own_dtype(self, eqn: Eqn) -> Atoms:
        return tuple([self.in_dtype(a, low=False) for a in eqn.ins])

    def _low_outs(self, eqn: Eqn) -> Atoms | None:
        """Return the results in the narrower dtype; None if the operation does not take it."""
        avals = [a.aval.with_dtype(self.low.get(a.aval.dtype, a.aval.dtype)) for a in eqn.ins]
        probe = Builder()
        if evaluated(probe, eqn.prim, probe.inputs(avals), [v.aval for v in eqn.outs], self.types) is None:
            return None
        ins = tuple([self.in_dtype(a, low=True) for a in eqn.ins])
        return evaluated(self.b, eqn.prim, ins, [v.aval for v in eqn.outs], self.types)

    def _representable(self, a: Lit) -> bool:
        """Return True for a literal that is neither infinite nor zero in the narrower dtype, if it is not before."""
        if a.size is not None:
            return False
        with np.errstate(all="ignore"):
            before = np.asarray(a.value, np.float64)
            after = np.asarray(a.value).astype(self.low[a.aval.dtype]).astype(np.float64)
        return bool(np.isinf(before) == np.isinf(after)) and bool((before == 0) == (after == 0))

    def _exact(self, a: Lit) -> bool:
        """Return True for a literal that is the same number in the narrower dtype."""
        with np.errstate(all="ignore"):
            return a.size is None and bool(np.asarray(a.value).astype(self.low[a.aval.dtype]) == np.asarray(a.value))

    def _with_cast_bodies(self, prim: HigherOrder) -> Primitive:
        """Return a primitive over bodies in mixed precision, which keep the types of operands and results. What decides
        whether a loop goes on is not changed."""
        bodies = []
        for body in prim.layout.bodies:
            decides = body.results == (PREDICATE,)
            bodies.append(body.jaxpr if decides else _with_same_types(body.jaxpr, self.types, self.keep))
        return prim.with_bodies(tuple(bodies))


@by_value
def _with_same_types(jaxpr: Jaxpr, types: Types, keep: KeptOperations) -> Jaxpr:
    """Return a body in mixed precision with the same operand and result types."""
    body = cast_body(jaxpr, types, keep, (False,) * len(jaxpr.ins))
    if not any(body.low):
        return body.jaxpr
    b = Builder.resume(body.jaxpr)
    outs = [converted(b, a, t.dtype) for a, t in zip(body.jaxpr.outs, jaxpr.out_avals, strict=True)]
    return b.build(outs, jaxpr.name)
