"""Recomputation of elementwise results in a program that is compiled as a whole.

The backward pass of `y = tanh(z)` and a product reads `z`, for the derivative of `tanh`, and `y`, for the gradient of
the matrix. XLA stores both, but `z` determines `y`. `recompute_elementwise` computes `y` again for the backward
pass. It uses the estimate of `peak.py`:

- A value is idle if it is in memory at the peak, and is computed and read before it, and read again after it.
- An idle value is computed again if elementwise equations compute it from values that are in memory until then anyway.
- One of these equations may be a function, as `tanh`, if an equation after the peak reads the value in memory. For
  example, a layer of `y = z * logistic(z)` stores `z` and `logistic(z)`, and computes `y` again by a product.

The equations after the peak read the result of a `remat`, which applies these equations. It is opaque, so XLA does not
merge it with the first computation. Its last operand is a value that its first reader reads too, usually a cotangent,
and the lowering makes the other operands depend on it (`Hlo.opaque_call`). So XLA does not compute it earlier.

>>> import fxad as fx, fxad.numpy as fnp
>>> def loss(ws, x):
...     for w in ws:
...         x = fnp.tanh(x @ w)
...     return fnp.sum(x)
>>> square = fx.Spec((256, 256))
>>> program = fx.grad(fx.trace(loss, [square] * 6, square)).jaxpr
>>> again = [eqn.prim.body for eqn in recompute_elementwise(program).eqns if isinstance(eqn.prim, Remat)]
>>> len(again)
5
>>> print(again[0])  # %arg1 is the cotangent
main @again(%arg0: f32[256,256], %arg1: f32[256,256]) -> (f32[256,256]) {
  %0: f32[256,256] = tanh %arg0
  return %0
}
<BLANKLINE>

Source: recomputation of activations: Rota Bulò, Porzi and Kontschieder, In-Place Activated BatchNorm for
        Memory-Optimized Training of DNNs (2018). docs/adr/0097 has the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

from fxad.core.builder import Builder, subprogram
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, Var, distinct_jaxprs
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.primitives.fusion import ARITHMETIC, MOVES, POINTWISE, VIEWS
from fxad.primitives.marks import Keep, Mark
from fxad.primitives.shape import Transpose
from fxad.support.constants import (
    FUNCTION_MS,
    MAX_FORMULA,
    MOST_REMATERIALIZED,
    REMATERIALIZED_BYTES,
    REMATERIALIZED_PART,
)
from fxad.transforms.costs import Fusion, compile_cost
from fxad.transforms.map_bodies import map_bodies
from fxad.transforms.memory_plans.peak import bytes_in_memory, spans, without_calls


def recompute_elementwise(
    jaxpr: Jaxpr,
    donate: tuple[int, ...] = (),
    least_bytes: int = REMATERIALIZED_BYTES,
    least_part: float = REMATERIALIZED_PART,
) -> Jaxpr:
    """Return the program with idle values computed again, also in the bodies of its loops and branches, with calls
    inlined; the same program if there is nothing to gain. Operands in `donate` may be overwritten. Only values of
    `least_bytes` are computed again, and only if they are `least_part` of the estimated temporaries.

    Law:  the same results, bit for bit.
    Cost: linear in the equations, with calls inlined. A program with more than `MOST_REMATERIALIZED` is left as it is.
    """
    bodies = distinct_jaxprs(jaxpr)  # innermost first, so that no recursion is deep
    is_large = any([v.aval.nbytes >= least_bytes for body in bodies for e in body.eqns for v in e.outs])
    if not is_large or _inlined_equations(bodies) > MOST_REMATERIALIZED or runs_on_devices(jaxpr):
        return jaxpr
    for body in bodies:
        _rematerialized(body, donate if body is jaxpr else (), least_bytes, least_part)
    return _rematerialized(jaxpr, donate, least_bytes, least_part) or jaxpr


def _inlined_equations(bodies: Iterable[Jaxpr]) -> int:
    """Return the most equations of a body, with calls inlined. `bodies`: innermost first. A call counts too: nested
    calls of an empty body may be 2^40."""
    count: dict[Jaxpr, int] = {}
    for body in bodies:
        inner = [count[b] for e in body.eqns if isinstance(e.prim, HigherOrder) for b in e.prim.bodies]
        count[body] = len(body.eqns) + sum(inner)
    return max(count.values(), default=0)


@by_value
def _rematerialized(jaxpr: Jaxpr, donate: tuple[int, ...], least_bytes: int, least_part: float) -> Jaxpr | None:
    """Return the rewritten program; None if it does not change: the memo of a program must not refer to it."""
    flat = without_calls(jaxpr)
    inner = map_bodies(flat, lambda body: _rematerialized(body, (), least_bytes, least_part) or body)
    begin, end = spans(inner, (False,) * len(inner.ins), (False,) * len(inner.outs))
    live = bytes_in_memory(inner, begin, end)
    peak = max(range(len(live)), key=live.__getitem__, default=0)
    formulas = _Choice(inner, begin, end, peak, donate, least_bytes).formulas if live else {}
    saved = sum([v.aval.nbytes for v in formulas])
    if saved and saved >= least_part * live[peak]:
        return _Rewriter(inner, begin, peak, formulas).program()
    return None if inner is flat else inner


@final
@dataclass(frozen=True, slots=True)
class _Formula:
    """The equations that compute a value, in order, and the values that they read."""

    eqns: tuple[Eqn, ...]
    leaves: tuple[Atom, ...]


@final
class _Choice:
    """Choose the values that are computed again. `formulas` has them, in the order of their definition."""

    __slots__ = ("_always", "_begin", "_end", "_producer", "formulas")

    def __init__(
        self,
        flat: Jaxpr,
        begin: Mapping[Atom, int],
        end: Mapping[Atom, int],
        peak: int,
        donate: tuple[int, ...],
        least_bytes: int,
    ) -> None:
        self._begin, self._end = begin, end
        self._producer: dict[Atom, Eqn] = {e.outs[0]: e for e in flat.eqns if len(e.outs) == 1}
        self.formulas: dict[Var, _Formula] = {}
        last = {a: k for k, e in enumerate(flat.eqns) for a in e.ins}
        given = {flat.ins[k] for k in donate}
        # values that are in memory to the end, and donated operands that an equation after the peak reads
        self._always = {a for a in (*flat.ins, *flat.outs) if a not in given or last.get(a, 0) > peak}
        read_at_peak = {*flat.eqns[peak].ins}
        marked = {a for e in flat.eqns if isinstance(e.prim, Keep) for a in e.ins}  # the user stores these
        in_memory = _read_in_memory(flat.eqns[peak + 1 :])
        for eqn in flat.eqns[:peak]:
            for v in eqn.outs:
                is_idle = v in begin and end[v] > peak and v not in read_at_peak and v not in marked
                if is_idle and v.aval.nbytes >= least_bytes:
                    formula = self._formula(v, v in in_memory)
                    if formula is not None:
                        self.formulas[v] = formula

    def _formula(self, value: Var, with_function: bool) -> _Formula | None:
        """Return the formula of a value from values that are in memory as long as it is; None if there is none of at
        most `MAX_FORMULA` equations, or without a function."""
        needed: dict[Atom, Eqn] = {}
        leaves: dict[Atom, None] = {}
        functions = 0
        stack: list[Atom] = [value]
        while stack:
            a = stack.pop()
            if isinstance(a, Lit) or a in needed or a in leaves:
                continue
            if a is not value and a not in self.formulas:
                if a in self._always or self._end.get(a, -1) >= self._end[value]:
                    leaves[a] = None
                    continue
                if a in self._begin:
                    return None
            eqn = self._producer.get(a)
            if eqn is None or not _is_elementwise(eqn):
                return None
            functions += _is_function(eqn)
            needed[a] = eqn
            if functions > with_function or len(needed) > MAX_FORMULA:
                return None
            stack += eqn.ins
        eqns = sorted(needed.values(), key=lambda e: e.outs[0].index)
        return _Formula(tuple(eqns), tuple(leaves)) if leaves else None


def _is_elementwise(eqn: Eqn) -> bool:
    prim = eqn.prim
    if not isinstance(prim, POINTWISE) or isinstance(prim, Mark) or prim.effects:
        return False
    return isinstance(prim, _INSTRUCTIONS) or compile_cost(type(prim))[1] <= FUNCTION_MS


def _is_function(eqn: Eqn) -> bool:
    return not isinstance(eqn.prim, _INSTRUCTIONS)


_INSTRUCTIONS: Final = (*ARITHMETIC, *VIEWS, *MOVES)


def _read_in_memory(eqns: Sequence[Eqn]) -> set[Atom]:
    """Return the values that kernels among the equations read, as they are or transposed."""
    out: set[Atom] = set()
    for eqn in reversed(eqns):
        fusion = Fusion.KERNEL if isinstance(eqn.prim, HigherOrder) else compile_cost(type(eqn.prim))[0]
        moves = fusion is Fusion.VIEW or isinstance(eqn.prim, Transpose)
        if fusion is Fusion.KERNEL or (moves and not out.isdisjoint(eqn.outs)):
            out.update(eqn.ins)
    return out


@final
class _Rewriter:
    """Rewrites a program: the equations after its peak read values that are computed again.

    `again` has these values: for a value with a formula, the result of its `remat`, and copies of the equations that
    are fused into their readers and read such a value.
    """

    __slots__ = ("again", "begin", "builder", "env", "flat", "formulas", "index", "peak", "reads_formula")

    def __init__(self, flat: Jaxpr, begin: Mapping[Atom, int], peak: int, formulas: Mapping[Var, _Formula]) -> None:
        self.flat, self.begin, self.peak, self.formulas = flat, begin, peak, formulas
        self.builder = Builder.like(flat)
        self.env: dict[Atom, Atom] = {v: v for v in flat.ins}
        self.again: dict[Atom, Atom] = {}
        self.index: dict[Atom, int] = {v: k for k, e in enumerate(flat.eqns) for v in e.outs}
        self.reads_formula: set[Atom] = {*formulas}
        for eqn in flat.eqns[: peak + 1]:
            if len(eqn.outs) == 1 and eqn.outs[0] not in begin and not self.reads_formula.isdisjoint(eqn.ins):
                self.reads_formula.update(eqn.outs)

    def program(self) -> Jaxpr:
        """Return the rewritten program."""
        latest: Var | None = None  # a value that was computed after the peak
        for k, eqn in enumerate(self.flat.eqns):
            ins = tuple([self.env.get(a, a) for a in eqn.ins])
            if k > self.peak and not self.reads_formula.isdisjoint(eqn.ins):
                after = next((a for a in eqn.ins if self.index.get(a, -1) > self.peak and a.aval.size), latest)
                if after is not None:
                    ins = tuple([self._computed_again(a, after) for a in eqn.ins])
            self.env.update(zip(eqn.outs, self.builder.copy(eqn, ins), strict=True))
            if k >= self.peak and eqn.outs and eqn.outs[0].aval.size:
                latest = eqn.outs[0]
        return self.builder.build([self.env.get(a, a) for a in self.flat.outs], self.flat.name)

    def _computed_again(self, a: Atom, after: Atom) -> Atom:
        """Return the value for readers after the peak, computed no earlier than the value `after`."""
        if a not in self.reads_formula:
            return self.env.get(a, a)
        if a not in self.again:
            formula = self.formulas.get(a) if isinstance(a, Var) else None
            if formula is not None:
                body = subprogram(formula.eqns, (*formula.leaves, after), (a,), "again")
                operands = [self.env[leaf] for leaf in (*formula.leaves, after)]
                (self.again[a],) = self.builder(Remat(body, True), *operands)
            else:
                eqn = self.flat.eqns[self.index[a]]
                ins = tuple([self._computed_again(x, after) for x in eqn.ins])
                (self.again[a],) = self.builder.copy(eqn, ins)
        return self.again[a]
