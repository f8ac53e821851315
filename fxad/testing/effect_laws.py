"""Laws of effects: what a program does is done once and in its order, whatever transformation it went through."""

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
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, NDArray, Primitive, Var
from fxad.primitives.check import Check
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise import LT
from fxad.primitives.host_call import IO, NUMBER, ORDERED, HostCall
from fxad.testing.batching_laws import mapped_dims
from fxad.testing.compare import Values, directions, fail, xla
from fxad.testing.derivative_laws import dots_of, wrt
from fxad.testing.programs import Case
from fxad.testing.transform_laws import called
from fxad.transforms import cse, dce, inline, jvp, linearize, outline, partial_eval, remat, simplify, vjp_fused, vmap

# The tag of a call, and the bytes of the integer that it was given; the tags of ordered calls are even.
Entry: TypeAlias = tuple[int, bytes]
_TAG: Final = Aval((), dtypes.int32)


@final
class Log:
    """What the calls of a program did, in order. Thread-safe; `number` is that of its function."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: list[Entry] = []
        self.number = HOST.number()
        HOST.add(self.number, self, self)

    def __call__(self, tag: NDArray, *values: NDArray) -> Sequence[object]:
        with self._lock:
            self._entries.append((int(tag), b"".join([v.tobytes() for v in values])))
        return (np.asarray(tag),)

    def of(self, runner: object, program: Jaxpr, args: Values) -> tuple[list[Entry], tuple[NDArray, ...]]:
        """What a program does when it runs, and its results."""
        self._entries.clear()
        outs = run(program, args) if runner is run else xla(program, args)
        return list(self._entries), outs


def telling(program: Jaxpr, log: Log, seed: int) -> Jaxpr:
    """The program with calls of `log` and with checks, between its equations and in its bodies."""
    return _told(program, Lit.of(log.number, NUMBER), np.random.default_rng((seed, 23)))


def _told(program: Jaxpr, number: Lit, rng: np.random.Generator) -> Jaxpr:
    b = Builder.like(program)
    env: dict[Atom, Atom] = {}
    for eqn in program.eqns:
        b.extend([Eqn(_inside(eqn.prim, number, rng), eqn.ins, eqn.outs)], env)
        if rng.random() < 0.5:
            env.update(_tell(b, env, eqn, number, rng))
    return b.build(substitute(program.outs, env), program.name)


def _inside(prim: Primitive, number: Lit, rng: np.random.Generator) -> Primitive:
    match prim:
        case Call() | Remat() | Scan() | Cond():
            return prim.with_bodies(tuple([_told(body, number, rng) for body in prim.bodies]))
        case While():
            return prim.with_bodies((prim.cond, _told(prim.body, number, rng)))
        case _:
            return prim


def _tell(b: Builder, env: dict[Atom, Atom], eqn: Eqn, number: Lit, rng: np.random.Generator) -> dict[Atom, Atom]:
    """A call with an integer that is there, and perhaps a check behind what it gives."""
    tag = Lit.of(int(rng.integers(0, 6)), _TAG)
    effect = IO if int(tag.value) % 2 else ORDERED
    whole = [a for a in (*eqn.ins, *eqn.outs) if isinstance(a, Var) and not a.aval.inexact]
    values = [env.get(a, a) for a in whole[:1]]
    (given,) = b(HostCall("log", (_TAG,), effect), number, tag, *values)
    if not eqn.outs or rng.random() < 0.5:
        return {}
    bad = b.one(LT, given, Lit.of(0, _TAG))
    return {eqn.outs[0]: b.one(Check("never", "", ""), bad, env[eqn.outs[0]])}


_REWRITES: Final = (dce, cse, simplify, inline, outline, remat, called)


def check_effects(case: Case, seed: int, *, compiled: bool = False) -> None:
    """The log of a transformed program is that of the program: ordered calls in their order, the others as often.
    Rewritings, jvp, the primal half of linearize, vjp, `remat` under vjp; the linear half does nothing. The halves of
    partial evaluation do it one after the other. What vmap does is, for each example, what the example does."""
    log = Log()
    program, args = telling(case.program, log, seed), case.args
    runner: object = xla if compiled else run
    want, _ = log.of(run, program, args)
    for name, other, operands in _others(case, program):
        have, _ = log.of(runner, other, operands)
        _same(name, have, want, program, other)
    mask = wrt(case)
    split = linearize(program, mask)
    have, outs = log.of(runner, split.primal, args)
    _same("linearize", have, want, program, split.primal)
    have, _ = log.of(runner, split.linear, (*dots_of(case), *outs[len(program.outs) :]))
    _same("the linear half", have, [], program, split.linear)
    _check_halves(log, program, args, want, seed)
    _check_mapped(log, case, program, runner)


def _others(case: Case, program: Jaxpr) -> Iterator[tuple[str, Jaxpr, Values]]:
    args, mask = case.args, wrt(case)
    yield "the program", program, args
    for transform in _REWRITES:
        yield transform.__name__, transform(program), args
    yield "jvp", jvp(program, mask)[0], (*args, *dots_of(case))
    cts = directions([a for a in program.out_avals if a.inexact], 1)
    for f in (program, remat(program), remat(called(remat(program)))):
        yield "vjp", vjp_fused(f, mask), (*args, *cts)


def _same(name: str, have: list[Entry], want: list[Entry], program: Jaxpr, other: Jaxpr) -> None:
    ordered = [[entry for entry in log if entry[0] % 2 == 0] for log in (have, want)]
    if Counter(have) != Counter(want) or ordered[0] != ordered[1]:
        fail(f"{name} does {have}, the program {want}", program, (), other)


def _check_halves(log: Log, program: Jaxpr, args: Values, want: list[Entry], seed: int) -> None:
    known = tuple([bool(k) for k in np.random.default_rng((seed, 29)).integers(0, 2, len(args))])
    halves = partial_eval(program, known)
    first, outs = log.of(run, halves.known, [a for a, k in zip(args, known, strict=True) if k])
    rest = [a for a, k in zip(args, known, strict=True) if not k]
    second, _ = log.of(run, halves.unknown, (*outs[sum(halves.out_known) :], *rest))
    _same("partial_eval", [*first, *second], want, program, halves.unknown)


def _check_mapped(log: Log, case: Case, program: Jaxpr, runner: object) -> None:
    at, args, size = mapped_dims(case), case.args, 2
    rows = [[np.roll(a, i) if d is not None else a for a, d in zip(args, at, strict=True)] for i in range(size)]
    stacked = [np.stack([r[k] for r in rows], d) if d is not None else args[k] for k, d in enumerate(at)]
    batched, _ = vmap(program, size, at)
    have, _ = log.of(runner, batched, stacked)
    for row in rows:
        want = [entry for entry in log.of(run, program, row)[0] if entry[0] % 2 == 0]
        rest = iter(have)
        if not all([entry in rest for entry in want]):
            fail(f"vmap does {have}, an example {want}, in this order", program, row, batched)
