"""Laws of effects: every transformation preserves the effects of a program, their number and their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder, substitute
from fxad.core.host_functions import HOST
from fxad.core.interpreter import run
from fxad.core.layout import PREDICATE, InParallel
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Lit, NDArray, Primitive, Var
from fxad.primitives.check import Check
from fxad.primitives.elementwise.logic import LT
from fxad.primitives.host_call import IO, NUMBER, ORDERED, HostCall
from fxad.testing.batching_laws import mapped_dims
from fxad.testing.compare import HostArrays, fail, random_cotangents, xla
from fxad.testing.derivative_laws import differentiable_flags, random_directions
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.transform_laws import as_one_call
from fxad.testing.values import examples, stack
from fxad.transforms import cse, dce, inline, jvp, linearize, outline, partial_eval, remat, simplify, vjp_fused
from fxad.transforms.vmap import vmap

# The tag of a call, and the bytes of the integer that it was given; the tags of ordered calls are even.
LogEntry: TypeAlias = tuple[int, bytes]
_TAG: Final = Aval((), dtypes.int32)


@final
class EffectLog:
    """The log of the calls of a program, in order. Thread-safe; `number` identifies its function."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: list[LogEntry] = []
        self.number = HOST.number()
        HOST.add(self.number, self, self)

    def __call__(self, tag: NDArray, *values: NDArray) -> Sequence[object]:
        with self._lock:
            self._entries.append((int(tag), b"".join([v.tobytes() for v in values])))
        return (np.asarray(tag),)

    def of(self, runner: object, program: Jaxpr, args: HostArrays) -> tuple[list[LogEntry], tuple[NDArray, ...]]:
        """Run a program; return its log and its results."""
        self._entries.clear()
        outs = run(program, args) if runner is run else xla(program, args)
        return list(self._entries), outs


def with_logged_calls(program: Jaxpr, log: EffectLog, seed: int) -> Jaxpr:
    """Return the program with calls of `log` and with checks, added between its equations and in its bodies."""
    return _log_jaxpr(program, Lit.of(log.number, NUMBER), np.random.default_rng((seed, 23)))


def _log_jaxpr(program: Jaxpr, number: Lit, rng: np.random.Generator, *, parallel: bool = False) -> Jaxpr:
    b = Builder.like(program)
    env: dict[Atom, Atom] = {}
    for eqn in program.eqns:
        b.extend([Eqn(_log_bodies(eqn.prim, number, rng, parallel=parallel), eqn.ins, eqn.outs)], env)
        if rng.random() < 0.5:
            env.update(_bind_log_call(b, env, eqn, number, rng, parallel=parallel))
    return b.build(substitute(program.outs, env), program.name)


def _log_bodies(prim: Primitive, number: Lit, rng: np.random.Generator, *, parallel: bool) -> Primitive:
    """Add calls to the bodies that run. A predicate gets none: it is evaluated once more than the body. A body that
    runs in parallel, and the bodies in it, get no ordered calls: independent runs have no order, and `compile` refuses
    them."""
    if not isinstance(prim, HigherOrder) or not prim.layout.transparent:
        return prim
    layout = prim.layout
    logged = {
        k: _log_jaxpr(body.jaxpr, number, rng, parallel=parallel or isinstance(body.runs, InParallel))
        for k, body in enumerate(layout.bodies)
        if k in layout.running and body.results != (PREDICATE,)
    }
    return prim.with_bodies(tuple([logged.get(k, body.jaxpr) for k, body in enumerate(layout.bodies)]))


def _bind_log_call(
    b: Builder, env: dict[Atom, Atom], eqn: Eqn, number: Lit, rng: np.random.Generator, *, parallel: bool
) -> dict[Atom, Atom]:
    """Add a call with an existing integer, and sometimes a check of its result."""
    tag = Lit.of(int(rng.integers(0, 6)) | parallel, _TAG)
    effect = IO if int(tag.value) % 2 else ORDERED
    whole = [a for a in (*eqn.ins, *eqn.outs) if isinstance(a, Var) and not a.aval.inexact]
    values = [env.get(a, a) for a in whole[:1]]
    (logged,) = b(HostCall("log", (_TAG,), effect), number, tag, *values)
    if not eqn.outs or rng.random() < 0.5:
        return {}
    bad = b.one(LT, logged, Lit.of(0, _TAG))
    return {eqn.outs[0]: b.one(Check("never", "", ""), bad, env[eqn.outs[0]])}


_REWRITES: Final = (dce, cse, simplify, inline, outline, remat, as_one_call)


@law
def check_effects(case: Case, seed: int, *, compiled: bool = False) -> None:
    """Check that the log of a transformed program equals that of the program: ordered calls in order, the others in any
    order.

    Covers rewrites, jvp, the primal half of linearize, vjp, and `remat` under vjp. The linear half has no effects. The
    halves of partial evaluation have the effects of the program when run one after the other. The log of vmap contains,
    for each example, the log of that example.
    """
    log = EffectLog()
    program, args = with_logged_calls(case.program, log, seed), case.args
    runner: object = xla if compiled else run
    expected, _ = log.of(run, program, args)
    for name, other, operands in _transformed_programs(case, program):
        actual, _ = log.of(runner, other, operands)
        _check_log(name, actual, expected, program, other)
    flags = differentiable_flags(case)
    split = linearize(program, flags)
    actual, outs = log.of(runner, split.primal, args)
    _check_log("linearize", actual, expected, program, split.primal)
    actual, _ = log.of(runner, split.linear, (*random_directions(case), *outs[len(program.outs) :]))
    _check_log("the linear half", actual, [], program, split.linear)
    _check_halves(log, program, args, expected, seed)
    _check_mapped(log, case, program, runner)


def _transformed_programs(case: Case, program: Jaxpr) -> Iterator[tuple[str, Jaxpr, HostArrays]]:
    args, flags = case.args, differentiable_flags(case)
    yield "the program", program, args
    for transform in _REWRITES:
        yield transform.__name__, transform(program), args
    yield "jvp", jvp(program, flags)[0], (*args, *random_directions(case))
    cts = random_cotangents(program, 1)
    for f in (program, remat(program), remat(as_one_call(remat(program)))):
        yield "vjp", vjp_fused(f, flags), (*args, *cts)


def _check_log(name: str, actual: list[LogEntry], expected: list[LogEntry], program: Jaxpr, other: Jaxpr) -> None:
    ordered = [[entry for entry in log if entry[0] % 2 == 0] for log in (actual, expected)]
    if Counter(actual) != Counter(expected) or ordered[0] != ordered[1]:
        fail(f"{name} does {actual}, the program {expected}", program, (), other)


def _check_halves(log: EffectLog, program: Jaxpr, args: HostArrays, expected: list[LogEntry], seed: int) -> None:
    known = tuple([bool(k) for k in np.random.default_rng((seed, 29)).integers(0, 2, len(args))])
    halves = partial_eval(program, known)
    first, outs = log.of(run, halves.known, [a for a, k in zip(args, known, strict=True) if k])
    rest = [a for a, k in zip(args, known, strict=True) if not k]
    second, _ = log.of(run, halves.unknown, (*outs[sum(halves.out_known) :], *rest))
    _check_log("partial_eval", [*first, *second], expected, program, halves.unknown)


def _check_mapped(log: EffectLog, case: Case, program: Jaxpr, runner: object) -> None:
    at, args, size = mapped_dims(case), case.args, 2
    rows = examples(args, at, size)
    batched, _ = vmap(program, size, at)
    actual, _ = log.of(runner, batched, stack(rows, at))
    for row in rows:
        expected = [entry for entry in log.of(run, program, row)[0] if entry[0] % 2 == 0]
        rest = iter(actual)
        if not all([entry in rest for entry in expected]):
            fail(f"vmap does {actual}, an example {expected}, in this order", program, row, batched)
