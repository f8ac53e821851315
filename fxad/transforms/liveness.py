"""Estimates the bytes of temporaries that XLA needs: liveness, with the model of `fxad.transforms.fusion`.

A cheap equation is computed in the kernel of each of its readers, so its result takes no memory, and its operands live
until the last reader. A result is in memory if a kernel reads it there: a product, a loop, a branch, a recomputation.
What a recomputation reads and returns is counted while it is live inside.
Operands of the program are memory of the caller, and results have memory of their own. Neither is counted.

For example, of

    0: a = x @ w    1: b = 2 * a    2: c = b + 1    3: d = c @ w        (result: d)

a is in memory from equation 0 to 2, because b is fused into c, and c reads a. The product d reads c in memory, so c is
there from 2 to 3. The peak is during equation 2: the bytes of a and c. `_spans` visits the equations backwards:

    equation        read in memory until    read by fused readers until    in memory
    3: d = c @ w    c: 3, w: 3
    2: c = b + 1                            b: 2                           c: 2 to 3, because d reads it there
    1: b = 2 * a                            a: 2, not 1: b is fused        not b: only fused readers
    0: a = x @ w    x: 0                                                   a: 0 to 2, because it has its own kernel
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, final

from fxad.core.builder import Builder, producing_eqns
from fxad.core.dataclasses import dataclass
from fxad.core.flags import select_by_flags
from fxad.core.layout import Sliced, Times, UpTo
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Aval, Eqn, Flags, HigherOrder, Jaxpr, Lit, Var
from fxad.primitives.control.call import callee
from fxad.primitives.control.remat import Remat
from fxad.transforms.fusion import Flat, Fusions


@final
@dataclass(frozen=True, slots=True)
class Live:
    """A value that is in memory at the peak: its type, and the equation that computes it."""

    aval: Aval
    eqn: Eqn


@final
@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that are in memory at one time, and the values that take them, the largest first."""

    bytes: int
    values: tuple[Live, ...]


_Spans: TypeAlias = dict[Atom, int]


@final
@dataclass(frozen=True, slots=True)
class _CountedBody:
    """A program that runs during an equation. `ins` marks the operands that no later equation reads, `outs` the
    results that are temporaries. Both are counted in the body, while they are live there."""

    jaxpr: Jaxpr
    ins: Flags
    outs: Flags

    @property
    def bytes(self) -> int:
        return _most_bytes(self.jaxpr, self.ins, self.outs)


def peak_bytes(jaxpr: Jaxpr) -> int:
    """Return the estimated bytes of temporaries. Cost: linear in the distinct equations, with calls inlined."""
    return _program(jaxpr).bytes


def peak(jaxpr: Jaxpr) -> Peak:
    """Return the estimate, and the values that are in memory at the peak, also those of the body that runs then."""
    return _peak_of(_program(jaxpr))


def _program(jaxpr: Jaxpr) -> _CountedBody:
    """Return a program whose operands and results are not counted: they are memory of the caller."""
    return _CountedBody(jaxpr, (False,) * len(jaxpr.ins), (False,) * len(jaxpr.outs))


@by_value
def _most_bytes(jaxpr: Jaxpr, ins: Flags, outs: Flags) -> int:
    flat = _without_calls(jaxpr)
    return max(_bytes_in_memory(flat, *_spans(flat, ins, outs)), default=0)


def _peak_of(body: _CountedBody) -> Peak:
    flat = _without_calls(body.jaxpr)
    begin, end = _spans(flat, body.ins, body.outs)
    live, eqns = _bytes_in_memory(flat, begin, end), flat.eqns
    if not live:
        return Peak(0, ())
    peak = max(range(len(live)), key=live.__getitem__)
    inner = max(_bodies(eqns[peak], peak, begin, end), key=lambda body: body.bytes, default=None)
    within = _counted_within(eqns[peak], inner)
    producer = producing_eqns(eqns)
    values = [
        Live(v.aval, producer[v]) for v, k in begin.items() if v in producer and k <= peak <= end[v] and v not in within
    ]
    values += _peak_of(inner).values if inner is not None else ()
    return Peak(live[peak], tuple(sorted(values, key=lambda value: -value.aval.nbytes)))


def _without_calls(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without calls, and without `remat` equations that only matter for differentiation."""

    def opens(eqn: Eqn, _ins: Atoms) -> Jaxpr | None:
        prim = eqn.prim
        # after differentiation, a `remat` that is not opaque is a plain call; functions with rules stay, as bodies
        return prim.body if isinstance(prim, Remat) and not prim.opaque else callee(eqn)

    if not any([isinstance(prim, HigherOrder) for prim in jaxpr.prims]):
        return jaxpr
    b = Builder.like(jaxpr)
    return b.build(b.inline_calls(jaxpr, jaxpr.ins, opens), jaxpr.name)


def _bodies(eqn: Eqn, k: int, begin: _Spans, end: _Spans) -> Sequence[_CountedBody]:
    """Return the programs that run during equation k."""
    prim = eqn.prim
    if isinstance(prim, Remat):
        # XLA plans the branch that a recomputation is lowered to as a part of the program around it: an operand lives
        # until its last use inside, and a result begins where it is computed inside
        first = {a: i for i, a in reversed([*enumerate(eqn.ins)])}
        ins = tuple([a in begin and end[a] == k and first[a] == i for i, a in enumerate(eqn.ins)])
        return [_CountedBody(prim.body, ins, tuple([v in begin for v in eqn.outs]))]
    if not isinstance(prim, HigherOrder):
        return ()
    layout = prim.layout
    return [_program(layout.bodies[i].jaxpr) for i in layout.running]


def _counted_within(eqn: Eqn, body: _CountedBody | None) -> set[Atom]:
    """Return the operands and results of an equation that are counted in its body."""
    if body is None or not isinstance(eqn.prim, Remat):
        return set()
    return {*select_by_flags(eqn.ins, body.ins), *select_by_flags(eqn.outs, body.outs)}


def _bytes_in_memory(flat: Jaxpr, begin: _Spans, end: _Spans) -> list[int]:
    """Return the bytes in memory while each equation runs."""
    eqns = flat.eqns
    born, dead = [0] * len(eqns), [0] * (len(eqns) + 1)
    for v, k in begin.items():
        born[k] += v.aval.nbytes
        dead[end[v] + 1] += v.aval.nbytes
    out, live = [], 0
    for k, eqn in enumerate(eqns):
        live += born[k] - dead[k]
        bodies = _bodies(eqn, k, begin, end)
        within = [b.bytes - sum([a.aval.nbytes for a in _counted_within(eqn, b)]) for b in bodies]
        out.append(live + max(within, default=0) + _sliced_bytes(eqn))
    return out


def _sliced_bytes(eqn: Eqn) -> int:
    """Return the bytes of the slices of a step that are copied: bodies within the step read or compute them."""
    if not isinstance(eqn.prim, HigherOrder):
        return 0
    layout, total = eqn.prim.layout, 0
    for k in layout.running:
        if not isinstance(layout.bodies[k].runs, Times | UpTo):  # the rows of a `while` are not counted
            continue
        step = _without_calls(layout.bodies[k].jaxpr)
        within = [e for e in step.eqns if isinstance(e.prim, HigherOrder)]
        read, computed = {a for e in within for a in e.ins}, {v for e in within for v in e.outs}
        in_roles = [layout.operand_roles[p] for p in layout.operand_indices(k)]
        out_roles = [layout.result_roles[p] for p in layout.result_indices(k) if p is not None]
        slices = [a for a, role in zip(step.ins, in_roles, strict=True) if type(role) is Sliced and a in read]
        slices += [a for a, role in zip(step.outs, out_roles, strict=True) if type(role) is Sliced and a in computed]
        total += sum([a.aval.nbytes for a in slices])
    return total


def _spans(flat: Jaxpr, ins: Flags, outs: Flags) -> tuple[_Spans, _Spans]:
    """Return the first and the last equation during which each value is in memory. Other values are not in memory:
    they are memory of the caller, views, or fused into their readers.

    The equations are visited backwards, so that the readers of a value come before the equation that computes it:

    - A value that its readers compute again (`Fusions`) takes no memory for them: its operands live until the last of
      these. It is in memory until the last reader that needs it there, if there is one.
    - If a view is a result of the program, its operand has the memory of that result.
    """
    program = Flat(flat)
    fusions, number = Fusions(program), program.values
    results: set[Atom] = {a for a in flat.outs if not isinstance(a, Lit)}
    operands = {*flat.ins}
    temporaries = {*select_by_flags(flat.outs, outs)} - operands
    begin: _Spans = {}
    end: _Spans = {}
    read_in_memory: dict[Atom, int] = {}  # the last equation that reads a value in memory
    read_fused: dict[Atom, int] = {}  # the last one of a kernel that computes a value again, if it is not in memory
    for k in reversed(range(len(flat.eqns))):
        eqn = flat.eqns[k]
        own_kernel = fusions.has_own_kernel(eqn.prim)
        view = not own_kernel and fusions.is_view(eqn.prim, number[eqn.outs[0]])
        if view and eqn.outs[0] in results:
            results.update(eqn.ins)
            if eqn.outs[0] in temporaries:
                temporaries.discard(eqn.outs[0])
                temporaries.update([a for a in eqn.ins if isinstance(a, Var) and a not in operands])
        read_until = k
        for v in eqn.outs:
            last, last_fused = read_in_memory.get(v, -1), read_fused.get(v, -1)
            if own_kernel or number[v] in fusions.stored:
                last = max(last, last_fused)
            else:
                read_until = max(read_until, last_fused)
            if v in temporaries:
                begin[v], end[v] = k, len(flat.eqns) - 1
            elif last >= 0 and not view and v not in results:
                begin[v], end[v] = k, last
        for a in {*eqn.ins}:
            if not isinstance(a, Var):
                continue
            if own_kernel and fusions.reads_in_memory(eqn.prim, number[a]):
                read_in_memory[a] = max(read_in_memory.get(a, -1), k)
                continue
            read_fused[a] = max(read_fused.get(a, -1), read_until)
            if view and eqn.outs[0] in read_in_memory:  # who reads a view in memory reads its operand there
                read_in_memory[a] = max(read_in_memory.get(a, -1), read_in_memory[eqn.outs[0]])
    for a in select_by_flags(flat.ins, ins):
        last = max(read_in_memory.get(a, -1), read_fused.get(a, -1))
        if last >= 0:
            begin[a], end[a] = 0, last
    return begin, end
