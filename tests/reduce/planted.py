"""Programs of hundreds to thousands of equations with nested bodies, each with a planted fault, and predicates.

A fault is a wrong rule of a primitive, a pass that changes a value, a wrong link between two calls, a flag of XLA, a
nan, a crash, memory or time. `fault(seed)` draws a kind, a size and a program. Its predicate sees the fault by its
effect, as a user does, and does not look for the planted primitive.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeAlias, final

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, extend as ex, lax
from fxad.core.builder import Builder, rewrite
from fxad.core.interpreter import run
from fxad.diagnosis.reduce.child import in_child
from fxad.dtypes import DType
from fxad.ir import Atom, Eqn, Jaxpr, Lit, NDArray, distinct_jaxprs
from fxad.passes import plan_of
from fxad.primitives import elementwise as ew
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan import Scan
from fxad.primitives.slicing import Slice
from fxad.transforms.map_bodies import map_bodies

Fails: TypeAlias = Callable[[Any, Any], Hashable]
Plant: TypeAlias = Callable[[Any], Any]

# --------------------------------------------------------------------------------------------- primitives with a fault


@final
@ex.primitive
class Squash(ex.Unary):
    """x / (1 + x^2), with a fault in one of its rules."""

    name: ClassVar[str] = "squash"
    takes: ClassVar[frozenset[DType]] = frozenset({dtypes.float32, dtypes.float64})
    fault: str

    def compute(self, x: Any) -> object:
        return x / (1 + x * x)

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        (one,) = hlo.op("stablehlo.exponential", hlo.op("stablehlo.subtract", [*args, *args], ins), outs)
        squares = hlo.op("stablehlo.multiply", [*args, *args], outs)
        below = hlo.op("stablehlo.add", [one, one if self.fault == "lower" else squares[0]], outs)
        return hlo.op("stablehlo.divide", [*args, *below], outs)

    def batch(self, ctx: ex.BatchCtx, args: ex.Atoms, dims: ex.Dims) -> tuple[ex.Atoms, ex.Dims]:  # type: ignore[misc]  # the planted fault
        (x,) = args
        return ctx(self, ctx.one(ew.NEG, x) if self.fault == "batch" else x), dims

    def tangent(self, ctx: ex.JvpCtx, x: ex.Atom, y: ex.Atom, t: ex.Tangent) -> ex.Tangent:
        square = ctx.one(ew.MUL, y, y)
        one = Lit.of(1, x.aval)
        below = ctx.one(ew.ADD, one, ctx.one(ew.MUL, x, x))
        slope = ctx.one(ew.SUB, ctx.one(ew.DIV, one, below), ctx.one(ew.MUL, Lit.of(2, x.aval), square))
        return ctx.lin_one(ew.MUL, t, one if self.fault == "jvp" else slope)


@final
@ex.primitive
class Twice(ex.Unary, ex.Linear):
    """2 x, with a wrong transpose."""

    name: ClassVar[str] = "twice"
    takes: ClassVar[frozenset[DType]] = frozenset({dtypes.float32, dtypes.float64})

    def compute(self, x: NDArray) -> object:
        return 2 * x

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        return hlo.op("stablehlo.add", [*args, *args], outs)

    def tangent(self, ctx: ex.JvpCtx, x: ex.Atom, y: ex.Atom, t: ex.Tangent) -> ex.Tangent:
        return ctx.lin_one(self, t)

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return all(flags)

    def transpose(self, ctx: ex.TransposeCtx, cts: ex.Cotangents, args: ex.Operands) -> tuple[Any, ...]:
        (ct,) = cts
        return (ct,)


def squash(fault: str) -> Plant:
    return lambda x: ex.bind(Squash(fault), x)[0]


def twice(x: Any) -> Any:
    return ex.bind(Twice(), x)[0]


# ----------------------------------------------------------------------------------------------------------- programs

ELEMENTWISE: Final[tuple[Callable[..., Any], ...]] = (
    lambda x, y: fnp.sin(x) + y * 0.5,
    lambda x, y: fnp.tanh(x) * fnp.cos(y),
    lambda x, y: x * 0.7 - y * 0.2,
    lambda x, y: fnp.exp(x * 0.1) * 0.3,
    lambda x, y: fnp.log(x * x + 1.5),
    lambda x, y: fnp.sqrt(y * y + 1.0) - x,
    lambda x, y: nested_mean(x) + y,
    lambda x, y: x[::-1] * 0.9,
    lambda x, y: fnp.cumsum(x) * 0.2,
    lambda x, y: fnp.concatenate([x[1:], y[:1]]),
    lambda x, y: fnp.reshape(fnp.reshape(x, (2, -1)).T, (-1,)),
)


def nested_mean(x: Any) -> Any:
    return fnp.broadcast_to(fnp.mean(x), x.shape)


@final
class Grown:
    """A random program, as a function: blocks of operations on vectors, until there are enough."""

    def __init__(self, seed: int, size: int, plant: Plant, top: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.size, self.plant, self.top = size, plant, top
        self.n = int(self.rng.choice([4, 6, 8]))
        self.weights = self.rng.standard_normal((self.n, self.n)) / self.n
        self.at = sorted(self.rng.uniform(0.1, 0.9, int(self.rng.integers(1, 4))))

    def block(self, x: Any, y: Any, length: int) -> Any:
        for _ in range(length):
            x, y = y, ELEMENTWISE[self.rng.integers(len(ELEMENTWISE))](x, y)
        return fnp.tanh(x + y)

    def nested(self, x: Any, y: Any, depth: int, planted: bool) -> Any:
        """A block in bodies, `depth` deep; the fault is in the innermost one."""
        kind = int(self.rng.integers(5)) if depth else -1
        length = int(self.rng.integers(2, 7))

        def inner(x: Any, y: Any) -> Any:
            return self.nested(self.block(x, y, length), y, depth - 1, planted)

        if kind == -1:
            z = self.block(x, y, length)
            return z + self.plant(z * 0.1 + self.x) * 3.0 if planted else z
        if kind == 0:
            return lax.scan(lambda c, w: (inner(c, w), fnp.sum(c)), x, fnp.stack([x, y, x * 0.5]))[0]
        if kind == 1:
            return lax.cond(fnp.int32(1) > 0, inner, lambda x, y: x - y, x, y)
        if kind == 2:
            return fx.remat(inner)(x, y)
        if kind == 3:
            return fx.jit(inner)(x, y)
        return lax.fori_loop(0, 3, lambda k, c: inner(c, y), x)

    def __call__(self, x: Any, w: Any) -> Any:
        self.x = x  # what is planted depends on it directly: a long chain would hide the fault in the results
        done, total = 0, fnp.sum(x) * 0.0
        y = x * 0.5
        marks = [int(self.size * a / 1.3) for a in self.at]
        while done * 1.3 < self.size:
            planted = bool(marks and done >= marks[0])
            if planted:
                marks.pop(0)
            if planted or self.rng.random() < 0.15:
                depth = int(self.rng.integers(1, 4))
                z = self.nested(x, y, 0 if planted and self.top else depth, planted)
                done += 25
            elif self.rng.random() < 0.2:
                z = fnp.tanh(w @ x)
                done += 3
            else:
                z = self.block(x, y, 8)
                done += 20
            total = total + fnp.mean(z)
            x, y = y, z
        return total

    @property
    def program(self) -> fx.Program[..., Any]:
        return fx.trace(self, fx.Spec((self.n,), "float64"), fx.Spec((self.n, self.n), "float64"))

    @property
    def args(self) -> tuple[NDArray, ...]:
        return self.rng.uniform(0.2, 1.0, self.n), self.weights


# --------------------------------------------------------------------------------------------------------- predicates


def leaves(results: Any) -> list[Any]:
    return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]


def values(program: Any, args: Any) -> list[Any]:
    return list(run(program.jaxpr, [np.asarray(x) for x in (*program.bound, *args)]))


def differ(have: list[Any], want: list[Any], tolerance: float) -> bool:
    """Both are finite, and some differ."""
    pairs = [(a, b) for a, b in zip(have, want, strict=True) if a.dtype in dtypes.INEXACT]
    if not all([np.isfinite(a).all() and np.isfinite(b).all() for a, b in pairs]):
        return False
    return any([np.max(np.abs(a - b), initial=0) > tolerance * (1 + np.max(np.abs(b), initial=0)) for a, b in pairs])


def tangents_of(args: Any) -> list[Any]:
    return [
        np.cos(np.arange(x.size)).reshape(x.shape).astype(x.dtype) if x.dtype in dtypes.INEXACT else None for x in args
    ]


def wrong_jvp(program: Any, args: Any) -> Hashable:
    directions = tangents_of(args)
    if all([t is None for t in directions]):
        return None
    (_, have) = fx.interpret(fx.jvp(program), tuple(args), tuple(directions))

    def at(h: float) -> list[Any]:
        return values(
            program, [x if t is None else x + np.asarray(h, x.dtype) * t for x, t in zip(args, directions, strict=True)]
        )

    if any([x.dtype in dtypes.INEXACT and x.dtype != dtypes.float64 for x in (*args, *values(program, args))]):
        return None
    want = [(b - a) / 2e-5 for a, b in zip(at(-1e-5), at(1e-5), strict=True) if a.dtype in dtypes.INEXACT]
    return "tangent" if differ([x for x in leaves(have) if x is not None and x.dtype != object], want, 1e-4) else None


def wrong_transpose(program: Any, args: Any) -> Hashable:
    directions = tangents_of(args)
    moving = [t for t in directions if t is not None]
    outs = values(program, args)
    if not moving or not all([y.dtype in dtypes.FLOATING for y in outs]):
        return None
    (_, dy) = fx.interpret(fx.jvp(program), tuple(args), tuple(directions))
    cts = [np.sin(1 + np.arange(y.size)).reshape(y.shape).astype(y.dtype) for y in outs]
    pulled = fx.interpret(fx.vjp(program), tuple(args), cts[0] if len(cts) == 1 else tuple(cts))
    pulled = pulled[1] if len(pulled) == 2 else pulled
    back = [np.asarray(g) for g in pulled if g is not None]
    left = sum([float(np.sum(a * b)) for a, b in zip(leaves(dy), cts, strict=True)])
    right = sum([float(np.sum(a * b)) for a, b in zip(moving, back, strict=True)])
    return "adjoint" if np.isfinite([left, right]).all() and abs(left - right) > 1e-4 * (1 + abs(left)) else None


def wrong_batch(program: Any, args: Any) -> Hashable:
    if not args:
        return None
    rows = [tuple([x * s if x.dtype in dtypes.INEXACT else x for x in args]) for s in (1.0, 0.5)]
    rows = [tuple([np.asarray(x, a.dtype) for x, a in zip(row, args, strict=True)]) for row in rows]
    stacked = [np.stack(xs) for xs in zip(*rows, strict=True)]
    have = leaves(fx.interpret(fx.trace(fx.vmap(program), *stacked), *stacked))
    want = [np.stack(ys) for ys in zip(*[values(program, row) for row in rows], strict=True)]
    return "batch" if differ(have, want, 1e-5) else None


def wrong_lowering(program: Any, args: Any) -> Hashable:
    have = leaves(fx.lower(program).compile(fx.CompileOptions(optimization_level=0))(*args))
    return "compiled" if differ(have, values(program, args), 1e-5) else None


def wrong_flags(program: Any, args: Any) -> Hashable:
    """XLA's fast math has no nans: it takes isnan for false."""
    fast = leaves(fx.lower(program).compile(fx.CompileOptions(flags=(("xla_cpu_enable_fast_math", True),)))(*args))
    return "flags" if differ(fast, values(program, args), 1e-5) else None


def gives_nan(program: Any, args: Any) -> Hashable:
    return "nan" if any([np.isnan(x).any() for x in values(program, args) if x.dtype in dtypes.INEXACT]) else None


def after(faulty: Callable[[Jaxpr], Jaxpr], program: Any, args: Any) -> Hashable:
    changed = faulty(program.jaxpr)
    return "pass" if differ(list[Any](run(changed, [*program.bound, *args])), values(program, args), 1e-5) else None


def _pass(rule: Callable[[dict[Atom, Eqn], Builder, Eqn, tuple[Atom, ...]], Any]) -> Callable[[Jaxpr], Jaxpr]:
    def transform(jaxpr: Jaxpr) -> Jaxpr:
        jaxpr = map_bodies(jaxpr, transform)
        made: dict[Atom, Eqn] = {v: e for e in jaxpr.eqns for v in e.outs}
        return rewrite(jaxpr, lambda b, e, ins: rule(made, b, e, ins))

    return transform


def _drops(made: dict[Atom, Eqn], b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Any:
    """x * x + c -> x * x: an addition to a square is dropped."""
    square = made.get(e.ins[0]) if e.prim is ew.ADD else None
    if square is not None and square.prim is ew.MUL and square.ins[0] is square.ins[1]:
        return [ins[0]]
    return None


def _swaps(made: dict[Atom, Eqn], b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Any:
    """sqrt(a) - x -> x - sqrt(a)."""
    if e.prim is ew.SUB and e.ins[0] in made and made[e.ins[0]].prim is ew.SQRT:
        return b(ew.SUB, ins[1], ins[0])
    return None


def _folds(made: dict[Atom, Eqn], b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Any:
    """log(x * x + c): the literal is folded wrongly."""
    if (
        e.prim is ew.LOG
        and e.ins[0] in made
        and made[e.ins[0]].prim is ew.ADD
        and isinstance(made[e.ins[0]].ins[1], Lit)
    ):
        return b(ew.LOG, b.one(ew.ADD, ins[0], Lit.of(1, ins[0].aval)))
    return None


drops, swaps, folds = _pass(_drops), _pass(_swaps), _pass(_folds)


def pass_drops(program: Any, args: Any) -> Hashable:
    return after(drops, program, args)


def pass_swaps(program: Any, args: Any) -> Hashable:
    return after(swaps, program, args)


def pass_folds(program: Any, args: Any) -> Hashable:
    return after(folds, program, args)


def linked(jaxpr: Jaxpr, operands: list[Any], crosswise: bool) -> list[Any]:
    """Run a program by units, each called function one of them. The fault: two results of a unit that have one type are
    linked crosswise."""
    plan = plan_of(jaxpr, tuple([e.prim.body for e in jaxpr.eqns if isinstance(e.prim, Call)]))
    values = [*operands, *[np.asarray(c.array) for c in plan.constants]]
    for step in plan.steps:
        body = plan.units[step.unit].body
        outs = run(body, [values[k] for k in step.ins])
        swapped = crosswise and len(outs) == 2 and body.out_avals[0] is body.out_avals[1]
        values += outs[::-1] if swapped else outs
    return [values[k] for k in plan.outs]


def wrong_links(program: Any, args: Any) -> Hashable:
    operands = [*program.bound, *args]
    have, want = [linked(program.jaxpr, operands, crosswise) for crosswise in (True, False)]
    return "links" if differ(have, want, 1e-5) else None


def one_step_less(jaxpr: Jaxpr) -> Jaxpr:
    """Run a loop that carries a value for one step less, by a body that keeps the carry in the last step."""
    jaxpr = map_bodies(jaxpr, one_step_less)

    def rule(b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Any:
        prim = e.prim
        if not isinstance(prim, Scan) or prim.upto or prim.length < 2 or prim.n_carry != 1 or len(e.outs) != 1:
            return None
        n = prim.n_consts + prim.n_carry
        xs = [b.one(Slice((1,) + (0,) * (a.aval.ndim - 1), a.aval.shape, (1,) * a.aval.ndim), a) for a in ins[n:]]
        return b(replace(prim, length=prim.length - 1), *ins[:n], *xs)

    return rewrite(jaxpr, rule)


def wrong_loop(program: Any, args: Any) -> Hashable:
    return after(one_step_less, program, args)


def looped(x: Any) -> Any:
    return lax.scan(lambda c, w: (fnp.sin(c) * 0.5 + w, None), x, fnp.stack([x * 0.5, x, x * 2.0, x * x]))[0]


def looped_for_long(x: Any) -> Any:
    """The same fault in a loop with a body of 200 equations."""

    def body(c: Any, w: Any) -> tuple[Any, None]:
        y = c
        for k in range(50):
            y = fnp.tanh(y * 0.3 + fnp.cos(w) * (0.1 * k))
        return fnp.sin(c) * 0.5 + w + y, None

    return lax.scan(body, x, fnp.stack([x * 0.5, x, x * 2.0, x * x]))[0]


def merge_arcs(jaxpr: Jaxpr) -> Jaxpr:
    """Take every arctan of a program for the first of its type: two distant equations are needed to see it."""
    jaxpr = map_bodies(jaxpr, merge_arcs)
    first: dict[object, Atom] = {}

    def rule(b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Any:
        if e.prim is not ew.ATAN:
            return None
        made = first.get(e.outs[0].aval)
        if made is None:
            (made,) = b.copy(e, ins)
            first[e.outs[0].aval] = made
        return [made]

    return rewrite(jaxpr, rule)


def wrong_merge(program: Any, args: Any) -> Hashable:
    return after(merge_arcs, program, args)


def two_results(x: Any) -> Any:
    a, b = fx.jit(lambda x: (fnp.sin(x) * 2.0, x * x * 0.5))(x)
    return a - b * 0.25


def _has_pattern(jaxpr: Jaxpr) -> bool:
    """An equation `squash` of a value that tanh computed."""
    for body in distinct_jaxprs(jaxpr):
        made: dict[Atom, Eqn] = {v: e for e in body.eqns for v in e.outs}
        if any(
            [isinstance(e.prim, Squash) and getattr(made.get(e.ins[0]), "prim", None) is ew.TANH for e in body.eqns]
        ):
            return True
    return False


def crash(program: Any, args: Any) -> Hashable:
    """As a compiler that ends the process for a pattern."""
    if _has_pattern(program.jaxpr):
        os.kill(os.getpid(), signal.SIGSEGV)
    return None


def takes_memory(program: Any, args: Any) -> Hashable:
    """Runs the program; the process that does may hold `MEMORY` bytes more."""
    values(program, args)
    return None


def outer(x: Any) -> Any:
    big = fnp.broadcast_to(x[:, None, None], (x.shape[0], 256, 1024)) * 2.0
    return fnp.sum(big, axis=(1, 2)) * 1e-6


def takes_time(program: Any, args: Any) -> Hashable:
    """As a pass that takes time exponential in the nesting of calls of squash."""
    steps = sum([isinstance(e.prim, Squash) for body in distinct_jaxprs(program.jaxpr) for e in body.eqns])
    for _ in range(10_000_000 if steps else 0):
        np.zeros(1)
    return None


def log_of_negative(x: Any) -> Any:
    return fnp.log(fnp.sin(x) - 5.0)


def refused_chain(program: Any, args: Any) -> Hashable:
    """As a compiler that refuses a sinh of a value that depends on an arctan, however far it is."""
    for body in distinct_jaxprs(program.jaxpr):
        after_arctan: set[Atom] = set()
        for e in body.eqns:
            depends = not after_arctan.isdisjoint(e.ins)
            if depends and e.prim is ew.SINH:
                return "refused"
            if depends or e.prim is ew.ATAN:
                after_arctan.update(e.outs)
    return None


def distant(x: Any) -> Any:
    y = fnp.arctan(x)
    for k in range(60):
        y = fnp.tanh(y * 0.9) + x * (0.01 * k)
    return fnp.sinh(y * 0.1)


def two_arcs(x: Any) -> Any:
    y = fnp.arctan(x)
    for _ in range(20):
        y = fnp.tanh(y) + x * 0.1
    return fnp.arctan(y * 0.5)


def growing(x: Any) -> Any:
    """A square in each of 12 steps is infinite at the end, and the difference of infinities is nan."""
    y = lax.fori_loop(0, 12, lambda k, c: c * c, x + 2.0)
    return fnp.tanh(y - y)


def zero_by_zero(x: Any) -> Any:
    zero = x - x
    return fnp.where(fnp.isnan(zero / zero), x * 2.0, x)


# -------------------------------------------------------------------------------------------------------------- faults


@final
@dataclass(frozen=True)
class Kind:
    """A kind of fault: what is planted, the predicate, the reason, the largest program, and the primitives of which the
    reduced program must have one."""

    plant: Plant
    fails: Fails
    reason: str
    most: int
    needs: tuple[str, ...]
    child: float = 0.0
    memory: int | None = None
    top: bool = False  # it is planted in no body


MEMORY: Final = 12_000_000
KINDS: Final[dict[str, Kind]] = {
    "jvp": Kind(squash("jvp"), wrong_jvp, "tangent", 3000, ("squash",)),
    "transpose": Kind(twice, wrong_transpose, "adjoint", 3000, ("twice",)),
    "batch": Kind(squash("batch"), wrong_batch, "batch", 4000, ("squash",)),
    "lowering": Kind(squash("lower"), wrong_lowering, "compiled", 600, ("squash",)),
    "drops": Kind(lambda x: fnp.sqrt(x * x + 1.0), pass_drops, "pass", 5000, ("add",)),
    "swaps": Kind(lambda x: fnp.sqrt(x * x + 1.0) - x, pass_swaps, "pass", 5000, ("sqrt",)),
    "folds": Kind(lambda x: fnp.log(x * x + 1.5), pass_folds, "pass", 5000, ("log",)),
    "loop": Kind(looped, wrong_loop, "pass", 5000, ("scan",)),
    "long loop": Kind(looped_for_long, wrong_loop, "pass", 5000, ("scan",)),
    "distant": Kind(distant, refused_chain, "refused", 5000, ("sinh",)),
    "merge": Kind(two_arcs, wrong_merge, "pass", 5000, ("atan",)),
    "overflow": Kind(growing, gives_nan, "nan", 5000, ("scan", "sub", "mul")),
    "links": Kind(two_results, wrong_links, "links", 5000, ("call",), top=True),
    "flags": Kind(zero_by_zero, wrong_flags, "flags", 400, ("is_nan", "ne", "select", "div")),
    "nan": Kind(log_of_negative, gives_nan, "nan", 5000, ("log", "sqrt", "div")),
    "crash": Kind(lambda x: squash("")(fnp.tanh(x)), crash, "signal SIGSEGV", 4000, ("squash",), 20.0),
    "memory": Kind(
        outer, takes_memory, f"more than {MEMORY} bytes", 3000, ("broadcast_in_dim", "mul", "reduce_sum"), 20.0, MEMORY
    ),
    "time": Kind(squash(""), takes_time, "no result within 0.5 s", 2000, ("squash",), 0.5),
}


@final
@dataclass(frozen=True)
class Fault:
    """A program with a planted fault."""

    kind: str
    program: fx.Program[..., Any]
    args: tuple[NDArray, ...]
    fails: Fails
    reason: str
    needs: tuple[str, ...]


def fault(seed: int, kind: str | None = None, least: int = 300, most: int | None = None) -> Fault:
    """Return the fault of a seed; equal seeds give equal programs."""
    rng = np.random.default_rng(seed)
    name = kind or sorted(KINDS)[seed % len(KINDS)]
    chosen = KINDS[name]
    size = int(np.exp(rng.uniform(np.log(least), np.log(most or chosen.most))))
    fails = in_child(chosen.fails, chosen.child, chosen.memory) if chosen.child else chosen.fails
    for attempt in range(5):  # now and then nothing of the fault is left in the results
        grown = Grown(seed + 1000 * attempt, size, chosen.plant, top=chosen.top)
        program, args = grown.program, grown.args
        if fails(program, args) == chosen.reason:
            return Fault(name, program, args, fails, chosen.reason, chosen.needs)
    raise AssertionError(f"no program with the fault {name} fails, seed {seed}")
