"""Laws of units: the results do not depend on which parts of a program are compiled separately."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fxad import runtime
from fxad.core.builder import Builder, subprogram, substitute
from fxad.core.interpreter import run
from fxad.ir import Atom, Eqn, Jaxpr, Lit, NDArray, Var
from fxad.passes import plan_of
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.testing.compare import differ, fail, program_tolerance
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.transforms.costs import CHEAP_TO_RECOMPUTE, SIGMOIDS
from fxad.units.cost_rule import selected_bodies
from fxad.units.min_cut_recompute import plain, recompute_operands
from fxad.units.pieces import Pieces, partition
from fxad.units.plan import UnitPlan, UnitsChoice


def split_into_calls(program: Jaxpr, seed: int, segments: float = 0.2) -> Jaxpr:
    """Return the program with random stretches of its equations as calls, `segments` of them `remat`, and some
    nested."""
    rng = np.random.default_rng(seed)
    b = Builder.like(program)
    env: dict[Atom, Atom] = {}
    at = 0
    while at < len(program.eqns):
        stretch = program.eqns[at : at + int(rng.integers(1, 6))]
        at += len(stretch)
        if rng.random() < 0.3:
            b.extend(stretch, env)
            continue
        body, ins = _stretch_body(stretch, literals=bool(rng.random() < 0.5))
        if rng.random() < 0.3:
            body = split_into_calls(body, seed + 1, segments)
        prim = Remat(body, bool(rng.random() < 0.5)) if rng.random() < segments else Call(body)
        outs = b(prim, *substitute(ins, env))
        env.update(zip([v for e in stretch for v in e.outs], outs, strict=True))
    return b.build(substitute(program.outs, env), program.name)


def _stretch_body(stretch: tuple[Eqn, ...], *, literals: bool) -> tuple[Jaxpr, list[Atom]]:
    """Return a stretch as a program, and the values it reads. With `literals` constants are operands too."""
    produced = {v for e in stretch for v in e.outs}
    read: list[Atom] = [a for e in stretch for a in e.ins if a not in produced and (literals or isinstance(a, Var))]
    read = list(dict.fromkeys(read))
    return subprogram(stretch, read, [v for e in stretch for v in e.outs], "stretch"), read


def arbitrary_units(program: Jaxpr, seed: int) -> UnitsChoice:
    """Return a random choice of units among the calls of a program. It depends only on the value of their bodies."""
    return selected_bodies(program, lambda body: bool(int(body.digest[:8], 16) >> seed % 31 & 1) or seed % 3 == 0)


@law
def check_units(case: Case, seed: int, *, stretches: bool = True) -> None:
    """Check a random choice of units: `check_linkage`; two linked runs give the interpreter's results and leave the
    operands unchanged. `stretches`: the program is first split into random calls."""
    program = split_into_calls(case.program, seed) if stretches else case.program
    plan = plan_of(program, arbitrary_units(program, seed))
    check_linkage(plan, program)
    (device, *_) = runtime.devices("cpu")
    linked = runtime.link(plan, device)
    before = [np.asarray(a, order="C") for a in case.args]
    buffers = [runtime.to_buffer(a, v, device) for a, v in zip(before, program.in_avals, strict=True)]
    actual = tuple(map(runtime.to_numpy, linked.execute(buffers)))
    again = tuple(map(runtime.to_numpy, linked.execute(buffers)))
    if problem := differ(actual, run(program, case.args), slack=program_tolerance(program, case.args)):
        fail(f"a linked run differs from the interpreter: {problem}\n{plan}", program, case.args)
    if problem := differ(actual, again, exact=True):
        fail(f"a second run differs: {problem}\n{plan}", program, case.args)
    if problem := differ(tuple(map(runtime.to_numpy, buffers)), before, exact=True):
        fail(f"a run changed its operands: {problem}\n{plan}", program, case.args)
    stats = linked.memory()
    if stats.peak_bytes < stats.argument_bytes + stats.output_bytes - stats.alias_bytes or stats.temp_bytes < 0:
        fail(f"impossible memory figures {stats}\n{plan}", program)


@law
def check_recompute(case: Case, seed: int) -> int:
    """Check for random pieces: with fewer stored values between pieces, the results are equal bit for bit, equal
    pieces stay equal, and no piece runs more costly equations. Return the number of changed bodies."""
    program = split_into_calls(case.program, seed)
    units = arbitrary_units(program, seed)
    assert not isinstance(units, str)
    pieces = partition(program, units)
    new = recompute_operands(pieces)
    if problem := differ(run_pieces(pieces, case.args), run_pieces(new, case.args), exact=True):
        fail(f"recomputed pieces differ: {problem}", program, case.args)
    bodies: dict[Jaxpr, Jaxpr] = {}
    for a, b in zip(pieces.pieces, new.pieces, strict=True):
        if bodies.setdefault(a.body, b.body) is not b.body:
            fail(f"equal pieces became different ones:\n{a.body}\n{b.body}", program)
        if again := _costly_eqns(b.body) - _costly_eqns(a.body):
            fail(f"{again} is computed again:\n{a.body}\n{b.body}", program)
    return sum([a is not b for a, b in bodies.items()])


def _costly_eqns(body: Jaxpr) -> Counter[str]:
    """Return the number of costly equations of a body."""
    return Counter([e.prim.name for e in plain(body).eqns if not isinstance(e.prim, (*CHEAP_TO_RECOMPUTE, *SIGMOIDS))])


def run_pieces(pieces: Pieces, args: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    """Run pieces one after the other and return their results."""
    env: dict[Atom, NDArray] = dict(zip(pieces.ins, args, strict=True))
    for p in pieces.pieces:
        ins = tuple([np.asarray(a.array) if isinstance(a, Lit) else env[a] for a in p.ins])
        env.update(zip(p.outs, run(p.body, ins), strict=True))
    return tuple([env[a] for a in pieces.outs])


def check_linkage(plan: UnitPlan, program: Jaxpr) -> None:
    """Check that a plan is consistent: types match; a value is read while it is live, donated when it dies, and freed
    once; no operand is donated or returned; every result has its own slot; the byte counts are those of the live
    values. On devices they are those of the parts, which are not checked."""
    n_in = len(program.ins) + len(plan.constants)
    live = set(range(n_in))
    n_slots = n_in
    if (plan.in_avals, plan.out_avals) != (program.in_avals, program.out_avals):
        fail(f"the plan has other types\n{plan}", program)
    for k, step in enumerate(plan.steps):
        unit = plan.units[step.unit]
        if tuple([plan.slots[s] for s in step.ins]) != unit.body.in_avals or not live.issuperset(step.ins):
            fail(f"step {k} reads a slot that is not live\n{plan}", program)
        donated = [step.ins[p] for p in unit.donate]
        if not set(donated) <= set(step.frees) or any([step.ins.count(s) > 1 or s < n_in for s in donated]):
            fail(f"step {k} donates a slot that it may not donate\n{plan}", program)
        outs = range(n_slots, n_slots + len(unit.body.outs))
        n_slots += len(outs)
        live.update(outs)
        if not runs_on_devices(program) and sum([plan.slots[s].nbytes for s in live]) != step.live_bytes:
            fail(f"step {k} has other bytes\n{plan}", program)
        if not live.issuperset(step.frees) or any([s < n_in or s in plan.outs for s in step.frees]):
            fail(f"step {k} frees a slot that is not live, or is an operand or a result\n{plan}", program)
        live.difference_update(step.frees)
    if live != {*range(n_in), *plan.outs} or len(set(plan.outs)) < len(plan.outs) or any([s < n_in for s in plan.outs]):
        fail(f"the live slots at the end are not the operands and results\n{plan}", program)
    if len(plan.units) < len(set(plan.units)) or {s.unit for s in plan.steps} != set(range(len(plan.units))):
        fail(f"a unit occurs twice, or is not used\n{plan}", program)
