"""The laws of while: types, values, bounds, rows, batching, derivative, residuals, dead code."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.core.builder import Builder, single_equation
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, DTypeError, FxadError, NotDifferentiableError, ParameterError, ShapeError
from fxad.ir import Atom, Aval, Jaxpr, Lit, Zero
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise import ADD, COS, EXP, GT, LT, MUL, NEG, SIN, SQRT, SUB
from fxad.primitives.host_call import ORDERED, HostCall
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.shape import ReduceSum
from fxad.testing.effect_laws import EffectLog
from fxad.text import parse, to_text
from fxad.transforms import cse, dce, simplify, transpose, vjp
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program, same, xla

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

I = Aval((), "int32")
S = Aval((), "float64")
V = Aval((3,), "float64")
ONE = Lit.of(1, I)


def until(*carry: Aval) -> Jaxpr:
    """limit, step, carry -> step < limit."""
    b = Builder()
    limit, step, *_ = b.inputs((I, I, *carry))
    return b.build((b.one(LT, step, limit),), "more")


def waves(*, rows: bool = False) -> Jaxpr:
    """w, step, x -> step + 1, sin(x) cos(w); and the rows sin(x), step."""
    b = Builder()
    w, step, x = b.inputs((V, I, V))
    sine = b.one(SIN, x)
    outs: list[Atom] = [b.one(ADD, step, ONE), b.one(MUL, sine, b.one(COS, w))]
    return b.build([*outs, *([sine, step] if rows else [])], "waves")


def at(k: int) -> np.ndarray:
    return np.asarray(k, np.int32)


def expected(limit: int, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    for _ in range(limit):
        x = np.sin(x) * np.cos(w)
    return x


@pytest.mark.parametrize("bound", [None, 0, 1, 4, 9])
@pytest.mark.parametrize("limit", [-1, 0, 1, 4, 7])
def test_meaning(bound: int | None, limit: int) -> None:
    p = program(While(until(V), waves(), 1, 1, bound), I, V, I, V)
    w, x = floats(3) + 1, floats(3)
    steps = max(0, limit if bound is None else min(limit, bound))
    want = (at(steps), expected(steps, w, x))
    same(run(p, (at(limit), w, at(0), x)), want)
    same(xla(p, at(limit), w, at(0), x), want)


@pytest.mark.parametrize("bound", [0, 1, 4])
@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("rows", [False, True])
def test_laws(bound: int, limit: int, rows: bool) -> None:
    check(While(until(V), waves(rows=rows), 1, 1, bound), at(limit), floats(3) + 1, at(0), floats(3))


def test_rows_of_steps_not_taken_are_zero() -> None:
    p = program(While(until(V), waves(rows=True), 1, 1, 4), I, V, I, V)
    w, x = floats(3) + 1, floats(3)
    for found in (run(p, (at(2), w, at(0), x)), xla(p, at(2), w, at(0), x)):
        same(found[2:], (np.stack([np.sin(x), np.sin(expected(1, w, x)), 0 * x, 0 * x]), np.array([0, 1, 0, 0], "i4")))


def test_without_a_carry() -> None:
    """The predicate never changes, so the loop takes no steps or all."""
    b = Builder()
    (limit,) = b.inputs((I,))
    more = b.build((b.one(LT, limit, ONE),))
    p = program(While(more, Jaxpr((), (), (Lit.of(2, I),)), 1, 0, 3), I)
    for limit_at, row in ((0, 2), (1, 0)):
        same(run(p, (at(limit_at),)), (np.full(3, row, np.int32),))
        same(xla(p, at(limit_at)), (np.full(3, row, np.int32),))


# ----------------------------------------------------------------------------------------------------------- batching


def test_a_predicate_that_is_not_mapped_stays_a_scalar() -> None:
    batched, dims = vmap(program(While(until(V), waves(), 1, 1, None), I, V, I, V), 2, (None, 0, None, None))
    (eqn,) = batched.eqns[-1:]
    assert isinstance(eqn.prim, While)
    assert [a.shape for a in eqn.prim.carry] == [(), (2, 3)]
    assert dims == (None, 0)


def test_each_example_stops_independently() -> None:
    p = program(While(until(V), waves(), 1, 1, None), I, V, I, V)
    limits = np.array([3, 0, 5, 1], np.int32)
    w, x = floats(3) + 1, floats(4, 3)
    batched, dims = vmap(p, 4, (0, None, None, 0))
    assert dims == (0, 0)
    want = limits, np.stack([expected(int(n), w, row) for n, row in zip(limits, x, strict=True)])
    same(run(batched, (limits, w, at(0), x)), want)
    same(xla(batched, limits, w, at(0), x), want)


def test_the_carry_of_an_example_that_has_stopped_is_frozen_bit_for_bit() -> None:
    """Further steps would give nan, infinities and -0.0. The carry of the last step is kept, bit for bit."""
    b = Builder()
    limit, step, x = b.inputs((I, I, S))
    grown = b.one(MUL, b.one(EXP, b.one(EXP, x)), b.one(SQRT, b.one(SUB, Lit.of(1, S), x)))
    body = b.build((b.one(ADD, step, ONE), grown), "grow")
    b = Builder()
    limit, step, *_ = b.inputs((I, I, S))
    more = b.build((b.one(LT, step, limit),))
    n = 4
    loop = While(more, _without_limit(body), 1, 0, None)
    batched, _ = vmap(program(loop, I, I, S), n, (0, None, 0))
    limits = np.array([0, 5, 0, 1], np.int32)
    nan = np.frombuffer(np.uint64(0x7FF8000000000123).tobytes(), np.float64)[0]
    start = np.array([nan, 0.1, -0.0, 0.5])
    for _, found in (run(batched, (limits, at(0), start)), xla(batched, limits, at(0), start)):
        bits = found.view(np.uint64)
        np.testing.assert_array_equal(bits[[0, 2]], start.view(np.uint64)[[0, 2]])
        np.testing.assert_allclose(found[3], np.exp(np.exp(0.5)) * np.sqrt(0.5))


def _without_limit(body: Jaxpr) -> Jaxpr:
    b = Builder()
    args = b.inputs(body.in_avals[1:])
    return b.build(b.inline(body, (Lit.of(0, I), *args)), body.name)


def test_an_inner_loop_ends_for_examples_that_have_stopped() -> None:
    """The inner loop counts down to 0 from the carry. It would not end for a negative carry: 5 - 2 - 2 - 2 = -1."""
    b = Builder()
    (x,) = b.inputs((I,))
    inner_more = b.build((b.one(LT, Lit.of(0, I), b.one(MUL, x, x)),), "not_zero")
    b = Builder()
    (x,) = b.inputs((I,))
    inner = While(inner_more, b.build((b.one(SUB, x, ONE),), "down"), 0, 0, None)
    b = Builder()
    (x,) = b.inputs((I,))
    more = b.build((b.one(GT, x, Lit.of(0, I)),), "positive")
    b = Builder()
    (x,) = b.inputs((I,))
    (zero,) = b(inner, x)
    body = b.build((b.one(SUB, b.one(ADD, x, zero), Lit.of(2, I)),), "outer")
    batched, _ = vmap(program(While(more, body, 0, 0, None), I), 3, (0,))
    starts = np.array([5, -7, 12], np.int32)
    for found in (run(batched, (starts,)), xla(batched, starts)):
        same(found, (np.array([-1, -7, 0], np.int32),))
    batched, _ = vmap(program(While(more, body, 0, 0, None), I), 0, (0,))  # without examples the loop takes no step
    for found in (run(batched, (starts[:0],)), xla(batched, starts[:0])):
        same(found, (starts[:0],))


def test_steps_after_the_end_reach_no_derivative() -> None:
    """x -> sqrt(x) - 1 while x > 1/2: at the end x = 0, where sqrt has an infinite derivative."""
    b = Builder()
    (x,) = b.inputs((S,))
    more = b.build((b.one(GT, x, Lit.of(0.5, S)),), "more")
    b = Builder()
    (x,) = b.inputs((S,))
    body = b.build((b.one(SUB, b.one(SQRT, x), Lit.of(1, S)),), "root")
    one = program(While(more, body, 0, 0, 6), S)
    batched, _ = vmap(one, 3, (0,))
    b = Builder()
    xs = b.input(Aval((3,), "float64"))
    total = b.build((b.one(ReduceSum((0,)), *b.inline(batched, (xs,))),))
    both = vjp(total, (True,))
    xs_at = np.array([1.0, 9.0, 0.0])
    value, *residuals = run(both.forward, (xs_at,))
    (bars,) = run(both.backward, (np.asarray(1.0), *residuals))
    same((value, bars), (np.asarray(np.sqrt(2.0) - 1), np.array([0.5, 1 / 6 * 0.5 / np.sqrt(2.0), 1.0])))


# ---------------------------------------------------------------------------------------------------- differentiation


def test_without_a_bound_there_is_no_reverse_mode() -> None:
    p = program(While(until(V), waves(), 1, 1, None), I, V, I, V)
    w, x, dot = floats(3) + 1, floats(3), floats(3) + 2
    forward, nonzero = jvp(p, (False, False, False, True))
    assert nonzero == (False, True)
    up, down = expected(3, w, x + 1e-6 * dot), expected(3, w, x - 1e-6 * dot)
    same(run(forward, (at(3), w, at(0), x, dot))[2:], ((up - down) / 2e-6,), 1e-8)
    split = linearize(p, (False, False, False, True))
    assert split.out_nonzero == (False, True)
    assert split.primal.eqns == p.eqns  # the operands are the residuals: no value of a step is stored
    *_, x_out, limit, w_again, start, x_again = run(split.primal, (at(3), w, at(0), x))
    same((x_out,), (expected(3, w, x),))
    residuals = (limit, w_again, start, x_again)
    same(run(split.linear, (dot, *residuals)), ((up - down) / 2e-6,), 1e-8)
    with pytest.raises(NotDifferentiableError) as caught:
        vjp(p, (False, False, False, True))
    assert caught.value.message == (
        "while: reverse mode goes backward through the steps, and the number of steps has no bound that is "
        "known before the loop runs"
    )
    assert caught.value.remedy == (
        "give while_loop max_steps, or fori_loop bounds that are Python ints, or use scan or forward mode "
        "(jvp, jacfwd, linearize)"
    )
    assert " = while " in caught.value.equation  # and not the equation of its tangents, `linear_call`
    without_adjoint = single_equation(LinearCall(single_equation(NEG, (V,), "twice"), None, 1), (V,), "f")
    with pytest.raises(NotDifferentiableError, match="linear_call: twice is given without an adjoint") as caught:
        vjp(without_adjoint, (True,))
    assert caught.value.remedy == "give its transpose as the adjoint; lax.linear_call derives it"


def test_reverse_mode_beside_a_loop_without_a_bound_with_zero_cotangents() -> None:
    """Reverse mode of a result that does not depend on the loop."""
    b = Builder()
    limit, w, start, x = b.inputs((I, V, I, V))
    b(While(until(V), waves(), 1, 1, None), limit, w, start, x)
    p = b.build((b.one(MUL, x, w),))
    both = vjp(p, (False, True, False, True))
    weights, values, ct = floats(3) + 1, floats(3), floats(3) + 2
    value, *residuals = run(both.forward, (at(3), weights, at(0), values))
    same((value, *run(both.backward, (ct, *residuals))), (values * weights, ct * values, ct * weights))


def test_the_linear_program_of_a_loop_without_a_bound_has_no_effects() -> None:
    """The linear program runs the loop again, without its effects."""
    log = EffectLog()
    b = Builder()
    w, step, x = b.inputs((V, I, V))
    b(HostCall("log", (I,), ORDERED), Lit.of(log.number, Aval((), "uint64")), Lit.of(0, I), step)
    body = b.build(b.inline(waves(), (w, step, x)), "waves")
    p = program(While(until(V), body, 1, 1, None), I, V, I, V)
    split = linearize(p, (False, True, False, True))
    args = (at(2), floats(3), at(0), floats(3))
    assert len(log.of(run, p, args)[0]) == 2
    entries, outs = log.of(run, split.primal, args)
    assert len(entries) == 2
    assert log.of(run, split.linear, (floats(3), floats(3), *outs[2:]))[0] == []


def test_a_loop_without_tangents_is_not_changed() -> None:
    """w decides only the number of steps, an integer, so its tangent does not reach the result."""
    b = Builder()
    _, step, x = b.inputs((V, I, V))
    fixed = b.build((b.one(ADD, step, ONE), b.one(MUL, x, x)), "fixed")
    p = program(While(until(V), fixed, 1, 1, None), I, V, I, V)
    split = linearize(p, (False, True, False, False))
    assert split.out_nonzero == (False, False)
    assert split.primal.eqns == p.eqns


def test_a_carry_that_stays_keeps_its_tangent_without_a_bound() -> None:
    b = Builder()
    step, x = b.inputs((I, V))
    stays = b.build((b.one(ADD, step, ONE), x), "stays")
    p = program(While(until(V), stays, 1, 0, None), I, I, V)
    split = linearize(p, (False, False, True))
    assert split.linear.eqns == ()
    assert split.linear.outs == split.linear.ins


def test_residuals_of_reverse_mode() -> None:
    """Rows for sin(x) and its derivative cos(x). cos(w) and sin(w) are computed once, outside. The backward scan has as
    many steps."""
    p = program(While(until(V), waves(), 1, 1, 5), I, V, I, V)
    split = linearize(p, (False, True, False, True))
    loop = split.primal.eqns[-1].prim
    assert isinstance(loop, While)
    assert eqns(loop.body).count("cos") == 1
    rows = sorted([str(a) for a in loop.rows])
    assert rows == ["f64[3]", "f64[3]"]
    stacks = [a for a in split.primal.out_avals[2:] if a.shape[:1] == (5,)]
    assert sorted(map(str, stacks)) == ["f64[5,3]", "f64[5,3]"]
    (scan,) = [e.prim for e in split.linear.eqns if isinstance(e.prim, Scan)]
    assert (scan.length, scan.upto) == (5, True)


def test_second_order() -> None:
    p = program(While(until(V), waves(), 1, 1, 4), I, V, I, V)
    (first, _) = jvp(p, (False, False, False, True))
    split = linearize(first, (False, False, False, True, False))
    w, x, u, v = floats(3) + 1, floats(3), floats(3) + 2, floats(3) - 1
    outs = run(split.primal, (at(2), w, at(0), x, u))
    tangents = run(split.linear, (v, *outs[3:]))

    def slope(t: float) -> np.ndarray:
        return run(first, (at(2), w, at(0), x + t * v, u))[2]

    same(tangents[1:], ((slope(1e-6) - slope(-1e-6)) / 2e-6,), 1e-8)


# ---------------------------------------------------------------------------------------------------------- rewriting


def loop_of_three() -> Jaxpr:
    """Carries: step, x, y, z. y needs x, x needs itself, z needs all."""
    b = Builder()
    w, step, x, y, z = b.inputs((V, I, V, V, V))
    outs = [b.one(ADD, step, ONE), b.one(SIN, x), b.one(MUL, x, y), b.one(ADD, b.one(MUL, y, w), z)]
    body = b.build(outs, "three")
    return program(While(until(V, V, V), body, 1, 1, None), I, V, I, V, V, V)


@pytest.mark.parametrize(
    ("used", "carries", "operands"), [((3,), 4, 6), ((2,), 3, 4), ((1,), 2, 3), ((0,), 1, 2), ((1, 2), 3, 4)]
)
def test_dce_removes_dead_carries(used: tuple[int, ...], carries: int, operands: int) -> None:
    p = loop_of_three()
    slim = dce(Jaxpr(p.ins, p.eqns, tuple([p.outs[k] for k in used])))
    (eqn,) = slim.eqns
    assert (len(eqn.outs), len(eqn.ins)) == (carries, operands)
    assert dce(slim) is slim
    args = (at(3), floats(3), at(0), floats(3), floats(3) + 1, floats(3) - 1)
    same(run(slim, args), tuple([run(p, args)[k] for k in used]))
    same(xla(slim, *args), tuple([run(p, args)[k] for k in used]))


def test_dce_removes_a_dead_loop() -> None:
    p = loop_of_three()
    assert dce(Jaxpr(p.ins, p.eqns, p.ins[:1])).eqns == ()


def test_dce_removes_dead_rows() -> None:
    p = program(While(until(V), waves(rows=True), 1, 1, 4), I, V, I, V)
    (eqn,) = dce(Jaxpr(p.ins, p.eqns, p.outs[3:])).eqns
    assert isinstance(eqn.prim, While)
    assert (eqn.prim.carry, eqn.prim.rows) == ((I,), (I,))


def test_a_carry_that_stays_is_a_constant_when_its_result_is_dead() -> None:
    b = Builder()
    step, x, y = b.inputs((I, V, V))
    body = b.build((b.one(ADD, step, ONE), b.one(MUL, x, y), y))
    b = Builder()
    step, x, y = b.inputs((I, V, V))
    more = b.build((b.one(LT, step, Lit.of(3, I)),))
    b = Builder()
    x, y = b.inputs((V, V))
    outs = b(While(more, body, 0, 0, None), Lit.of(0, I), x, y)
    p = b.build(outs)
    assert simplify(p).outs[2] == p.ins[1]
    (eqn,) = dce(Jaxpr(p.ins, p.eqns, outs[1:2])).eqns
    assert isinstance(eqn.prim, While)
    assert (eqn.prim.n_body, eqn.prim.carry) == (1, (I, V))
    same(run(dce(Jaxpr(p.ins, p.eqns, outs[1:2])), (floats(3), floats(3) + 1)), (floats(3) * (floats(3) + 1) ** 3,))


def test_simplify_replaces_a_loop_without_steps_by_its_operands() -> None:
    never = Jaxpr(until(V).ins, (), (Lit.of(False, Aval((), dtypes.bool_)),))
    for loop in (While(never, waves(), 1, 1, None), While(until(V), waves(rows=True), 1, 1, 0)):
        p = simplify(program(loop, I, V, I, V))
        assert p.eqns == ()
        assert p.outs[:2] == p.ins[2:]
        assert all([a == Zero(a.aval).instantiate() for a in p.outs[2:]])


def test_equal_loops_merge() -> None:
    b = Builder()
    ins = b.inputs((I, V, I, V))
    loop = While(until(V), waves(), 1, 1, None)
    assert eqns(cse(b.build((*b(loop, *ins), *b(loop, *ins))))) == ["while"]


def test_text() -> None:
    for bound in (None, 3):
        p = program(While(until(V), waves(), 1, 1, bound), I, V, I, V)
        assert parse(to_text(p)) is p
        assert f"while[cond=@more, body=@waves, n_cond=1, n_body=1, max_steps={bound or 'none'}] %arg0" in to_text(p)


FITTING = "give what the bodies take, or trace the function again; nothing is converted silently"
TOGETHER = "the bodies of one equation belong together: trace the function again"


@pytest.mark.parametrize(
    ("prim", "avals", "error", "message", "remedy"),
    [
        (While(until(V), waves(), 1, 1), (I, V, I), ArgumentError, "while: takes 4 operands, got 3", FITTING),
        (
            While(until(V), waves(), 1, 1),
            (I, V, I, S),
            ShapeError,
            "while: operand 3 (carry 1) is f64[], its bodies take f64[3]",
            FITTING,
        ),
        (
            While(until(V), waves(), 1, 1),
            (V, V, I, V),
            ShapeError,
            "while: operand 0 (constant 0 of cond) is f64[3], its bodies take i32[]",
            FITTING,
        ),
        (
            While(until(V), waves(), 1, 1),
            (I, V, S, V),
            DTypeError,
            "while: operand 2 (carry 0) is f64[], its bodies take i32[]",
            FITTING,
        ),
        (
            While(until(V), waves(), 1, 1, -1),
            (I, V, I, V),
            ParameterError,
            "while: max_steps is -1",
            "give a number of steps >= 0",
        ),
        (
            While(until(V), waves(), 9, 1),
            (),
            ParameterError,
            "while: 9 constants of 3 operands of cond, 1 constants of 3 operands of body",
            TOGETHER,
        ),
        (
            While(until(V), waves(rows=True), 1, 1),
            (I, V, I, V),
            ParameterError,
            "while: body returns 2 rows beside the carry, so max_steps must be given",
            "give max_steps, or return the carry alone",
        ),
        (
            While(until(V), waves(), 1, 2),
            (),
            ShapeError,
            "while: body takes the carry (f64[3]) and returns (i32[], f64[3])",
            TOGETHER,
        ),
        (
            While(until(V, V), waves(), 1, 1),
            (),
            ShapeError,
            "while: cond takes the carry (i32[], f64[3], f64[3]), body (i32[], f64[3])",
            TOGETHER,
        ),
        (
            While(waves(), waves(), 1, 1),
            (),
            DTypeError,
            "while: cond returns (i32[], f64[3]), not a bool without axes",
            "let cond return one comparison",
        ),
    ],
)
def test_messages(prim: While, avals: tuple[Aval, ...], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        prim.abstract_eval(*avals)
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


def test_the_tangents_of_a_loop_that_takes_no_step_are_transposed() -> None:
    """They are the tangents of the operands. The loop, which is not linear, does not run."""
    b = Builder()
    x = b.input(V)
    step = b.build((b.one(SIN, x),), "step")
    b = Builder()
    more = b.build((b.one(LT, b.one(ReduceSum((0,)), b.input(V)), Lit.of(9, S)),), "more")
    pushed, _ = jvp(program(While(more, step, 0, 0, 0), V), (True,))
    tangents = Jaxpr(pushed.ins, pushed.eqns, pushed.outs[1:], "tangents")
    bar, value = floats(3), floats(3)
    same(run(transpose(tangents, (False, True)), (bar, value)), (bar,))
