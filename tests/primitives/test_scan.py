"""The laws of scan: loops of every length and direction, residuals, linear scans, dead code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, DTypeError, FxadError, NotLinearError, ParameterError, ShapeError
from fxad.ir import Atom, Aval, Jaxpr, Lit, NDArray, Zero
from fxad.lower import lower_jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.loop_residuals import counters, drop_cheap_residuals, loop_invariants
from fxad.primitives.control.loop_steps import Steps
from fxad.primitives.control.remat import Remat, is_opaque, without_opaque
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise import ADD, EXP, GT, MUL, NEG, SIN, SQUARE, SUB, ConvertElementType
from fxad.primitives.shape import BroadcastInDim, ReduceSum
from fxad.transforms import cse, dce, inline, jvp, linearize, simplify, transpose, vjp_fused
from fxad.transforms.vmap import vmap
from tests.api.refusals import check_refused
from tests.primitives.harness import check, check_derivative, eqns, floats, pairing, program, same, xla

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

V, I = Aval((3,), "float64"), Aval((), "int32")
ONE = Lit.of(1, I)


def step() -> Jaxpr:
    """(w, h, i, x) -> (sin(exp(w) * h + x), i + 1), (h' * x, h, i, 2, exp(w))."""
    b = Builder()
    w, h, i, x = b.inputs((V, V, I, V))
    e = b.one(EXP, w)
    new = b.one(SIN, b.one(ADD, b.one(MUL, e, h), x))
    return b.build((new, b.one(ADD, i, ONE), b.one(MUL, new, x), h, i, Lit.of(2, V), e), "step")


def operands(n: int) -> tuple[NDArray, ...]:
    return floats(3), floats(3) / 2, np.asarray(3, np.int32), floats(n, 3)


def linear_step() -> Jaxpr:
    """(w, h, x) -> h / 2 + w - x, h + x: linear in all operands together."""
    b = Builder()
    w, h, x = b.inputs((V, V, V))
    new = b.one(SUB, b.one(ADD, b.one(MUL, h, Lit.of(0.5, V)), w), x)
    return b.build((new, b.one(ADD, h, x)), "linear")


@pytest.mark.parametrize(("n", "reverse", "unroll"), [(0, False, 1), (1, True, 1), (3, False, 1), (4, True, 3)])
def test_laws(n: int, reverse: bool, unroll: int) -> None:
    check(Scan(step(), n, reverse, unroll, 1, 2), *operands(n))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("unroll", [1, 2, 3, 7, 9])
def test_unrolling_changes_no_value(n: int, reverse: bool, unroll: int) -> None:
    args = operands(n)
    p = program(Scan(step(), n, reverse, unroll, 1, 2), V, V, I, Aval((n, 3), "float64"))
    same(xla(p, *args), run(p, args))


def test_loops_of_one_trip_and_none_are_no_loops() -> None:
    for n, unroll, loops in [(0, 1, 0), (1, 1, 0), (5, 5, 0), (5, 8, 0), (5, 1, 1), (5, 2, 1)]:
        p = program(Scan(step(), n, False, unroll, 1, 2), V, V, I, Aval((n, 3), "float64"))
        assert lower_jaxpr(p).source().count("stablehlo.while") == loops


def test_values_without_elements_bool_results_and_no_slices() -> None:
    none, flag = Aval((0,), "float32"), Aval((), "bool")
    b = Builder()
    e, n = b.inputs((none, I))
    body = b.build((b.one(NEG, e), b.one(ADD, n, ONE), b.one(GT, n, ONE), e), "body")
    args = (np.zeros(0, np.float32), np.asarray(0, np.int32))
    p = program(Scan(body, 4, False, 1, 0, 2), none, I)
    assert p.out_avals[2:] == (flag.with_shape((4,)), none.with_shape((4, 0)))
    same(xla(p, *args), run(p, args))
    np.testing.assert_array_equal(run(p, args)[2], [False, False, True, True])
    check(Scan(body, 2, True, 1, 0, 2), *args)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex128", "int8"])
def test_dtypes(dtype: str) -> None:
    a = Aval((2,), dtype)
    b = Builder()
    h, x = b.inputs((a, a))
    body = b.build((b.one(ADD, h, x), b.one(MUL, h, x)), "body")
    args = (np.asarray([1, 2]).astype(a.dtype), np.asarray([[1, 2], [3, 0], [2, 1]]).astype(a.dtype))
    check(Scan(body, 3, False, 1, 0, 1), *args)


def nested() -> Jaxpr:
    """(w, h, x) -> a scan over x, whose body is `step` without its counter."""
    b = Builder()
    w, h, x = b.inputs((V, V, V))
    inner = b.build((b.one(SIN, b.one(ADD, b.one(MUL, w, h), x)), h), "inner")
    b = Builder()
    w, h, xs = b.inputs((V, V, V.with_shape((2, 3))))
    last, ys = b(Scan(inner, 2, True, 1, 1, 1), w, h, xs)
    return b.build((last, b.one(ReduceSum((0,)), ys)), "outer")


def test_nested_scans() -> None:
    check(Scan(nested(), 2, False, 1, 1, 1), floats(3), floats(3), floats(2, 2, 3))


def test_a_scan_of_remat_and_remat_of_a_scan() -> None:
    b = Builder()
    w, h, x = b.inputs((V, V, V))
    inner = b.build((b.one(SIN, b.one(ADD, b.one(MUL, w, h), x)), h), "inner")
    b = Builder()
    body = b.build(b(Remat(inner), *b.inputs((V, V, V))), "body")
    args = (floats(3), floats(3), floats(3, 3))
    check(Scan(body, 3, False, 1, 1, 1), *args)
    check(Remat(program(Scan(inner, 3, False, 1, 1, 1), V, V, V.with_shape((3, 3)))), *args)
    # the backward scan recomputes a step: only the carry before each step is stored
    split = linearize(program(Scan(body, 3, False, 1, 1, 1), V, V, V.with_shape((3, 3))), (True, True, True))
    assert [a.aval for a in split.primal.outs[2:]] == [V, V.with_shape((3, 3)), V.with_shape((3, 3))]
    assert set(split.primal.outs[2:]) <= {*split.primal.ins, *split.primal.eqns[0].outs}


def test_second_order() -> None:
    b = Builder()
    w, h, x = b.inputs((V, V, V))
    body = b.build((b.one(SIN, b.one(ADD, b.one(MUL, w, h), x)), b.one(MUL, h, x)), "body")
    p = program(Scan(body, 3, False, 1, 1, 1), V, V, V.with_shape((3, 3)))
    args = (floats(3), floats(3), floats(3, 3))
    first = vjp_fused(p, (True, True, False))
    cts = (floats(3), floats(3, 3))
    check_derivative(first, (True, True, True, True, False), *args, *cts)
    forward, _ = jvp(p, (True, False, True))
    check_derivative(forward, (True, True, True, False, False), *args, floats(3), floats(3, 3))
    batched, dims = vmap(first, 2, (0, None, 0, None, 0))
    rows = [np.stack([a, a * 2]) for a in (args[0], args[2], cts[1])]
    have = run(batched, (rows[0], args[1], rows[1], cts[0], rows[2]))
    for k, scale in enumerate((1, 2)):
        want = run(first, (args[0] * scale, args[1], args[2] * scale, cts[0], cts[1] * scale))
        same(tuple([a if d is None else np.take(a, k, d) for a, d in zip(have, dims, strict=True)]), want, 1e-9)


# ---------------------------------------------------------------------------------------------------------- residuals


def rnn() -> tuple[Jaxpr, tuple[Aval, ...]]:
    """exp(h * w + x), with the carry as result: the derivative needs w, and h before and after each step."""
    b = Builder()
    w, h, x = b.inputs((V, V, V))
    new = b.one(EXP, b.one(ADD, b.one(MUL, h, w), x))
    body = b.build((new, new), "cell")
    return program(Scan(body, 5, False, 1, 1, 1), V, V, V.with_shape((5, 3))), (V, V, V.with_shape((5, 3)))


def test_residuals_of_a_recurrent_net_are_the_weight_and_the_carry() -> None:
    p, _ = rnn()
    split = linearize(p, (True, True, True))
    (scan,) = split.primal.eqns
    residuals = split.primal.outs[2:]
    # the constant is the operand itself; the derivative of exp is read from the stacked results
    assert residuals[0] is split.primal.ins[0]
    assert set(residuals[1:]) == {scan.outs[1], scan.outs[2]}
    assert len(scan.outs) == 3


def test_slices_of_operands_are_not_stored_twice() -> None:
    b = Builder()
    h, x = b.inputs((V, V))
    body = b.build((b.one(MUL, h, x),), "product")
    split = linearize(program(Scan(body, 4, False, 1, 0, 1), V, V.with_shape((4, 3))), (True, False))
    assert split.primal.outs[1:] == (split.primal.ins[1],)
    assert len(split.primal.eqns[0].outs) == 1


def test_loop_invariants_are_computed_outside_of_the_loop() -> None:
    b = Builder()
    w, h = b.inputs((V, V))
    e = b.one(EXP, b.one(SIN, w))
    body = b.build((b.one(MUL, e, h),), "decay")
    split = linearize(program(Scan(body, 4, False, 1, 1, 1), V, V), (False, True))
    assert eqns(split.primal) == ["sin", "exp", "scan"]
    scan = split.primal.eqns[2].prim
    assert isinstance(scan, Scan)
    assert eqns(scan.body) == ["mul"]
    assert split.primal.outs[1:] == split.primal.eqns[1].outs


def test_literals_stay_literals() -> None:
    b = Builder()
    w, h = b.inputs((V, V))
    body = b.build((b.one(MUL, h, b.one(SIN, w)),), "decay")
    b = Builder()
    h = b.input(V)
    p = b.build(b(Scan(body, 4, False, 1, 1, 1), Lit.of(2.0, V), h), "p")
    split = linearize(p, (True,))
    assert [a.shape for a in split.primal.out_avals[1:]] == [(3,)]  # sin(2), which all rules round in the same way
    b = Builder()
    h, x = b.inputs((V, V))
    product = b.build((b.one(MUL, h, x),), "product")
    b = Builder()
    h = b.input(V)
    p = b.build(b(Scan(product, 4, False, 1, 0, 1), h, Lit.of(3.0, V.with_shape((4, 3)))), "p")
    split = linearize(p, (True,))
    assert split.n_res == 0
    same(run(split.linear, (floats(3),)), (81 * floats(3),))


@pytest.mark.parametrize("reverse", [False, True])
def test_counters_are_not_stored(reverse: bool) -> None:
    b = Builder()
    h, i = b.inputs((V, I))
    t = b.one(BroadcastInDim((3,), ()), b.one(ConvertElementType(dtypes.float64), i))
    body = b.build((b.one(MUL, h, t), b.one(ADD, i, Lit.of(2, I))), "body")
    assert counters(Steps(body, 0, 2)) == {body.ins[1]: Lit.of(2, I)}
    p = program(Scan(body, 4, reverse, 1, 0, 2), V, I)
    split = linearize(p, (True, False))
    assert eqns(split.primal)[-1] == "scan"
    assert len(split.primal.eqns[-1].outs) == 2
    assert [str(a) for a in split.primal.out_avals[2:]] == ["i32[4]"]
    check(Scan(body, 4, reverse, 1, 0, 2), floats(3), np.asarray(-1, np.int32))
    # in reverse from an unknown count they are stored
    check(Scan(body, 4, reverse, 1, 0, 2, True), np.asarray(2, np.int32), floats(3), np.asarray(-1, np.int32))


def test_cheap_values_are_recomputed_from_smaller_ones() -> None:
    wide = Aval((3, 3), "float64")
    b = Builder()
    h, x = b.inputs((wide, V))
    s = b.one(BroadcastInDim((3, 3), (0,)), b.one(SIN, x))
    body = b.build((b.one(MUL, h, s),), "body")
    p = program(Scan(body, 4, False, 1, 0, 1), wide, V.with_shape((4, 3)))
    split = linearize(p, (True, False))
    assert [str(a) for a in split.primal.out_avals[1:]] == ["f64[4,3]"]
    check(Scan(body, 4, False, 1, 0, 1), floats(3, 3), floats(4, 3))


def test_a_square_keeps_its_operand_only() -> None:
    b = Builder()
    h, x = b.inputs((V, V))
    new = b.one(ADD, b.one(SQUARE, h), b.one(MUL, h, x))
    body = b.build((new,), "body")
    split = linearize(program(Scan(body, 4, False, 1, 0, 1), V, V.with_shape((4, 3))), (True, True))
    assert sorted([str(a) for a in split.primal.out_avals[1:]]) == [
        "f64[4,3]",
        "f64[4,3]",
    ]  # h before each step, and xs
    check(Scan(body, 4, False, 1, 0, 1), floats(3) / 3, floats(4, 3) / 3)


def test_arithmetic_on_broadcasts_is_not_recomputed() -> None:
    wide = Aval((3, 3), "float64")
    b = Builder()
    h, x = b.inputs((wide, V))
    rows, columns = [b.one(BroadcastInDim((3, 3), (k,)), x) for k in (0, 1)]
    d = b.one(SUB, rows, columns)
    body = b.build((b.one(MUL, b.one(MUL, h, d), d),), "body")
    split = linearize(program(Scan(body, 4, False, 1, 0, 1), wide, V.with_shape((4, 3))), (True, False))
    assert [str(a) for a in split.primal.out_avals[1:]] == ["f64[4,3,3]"]


@pytest.mark.parametrize(("unroll", "opaque"), [(1, False), (4, True)])
def test_recomputation_is_opaque_in_unrolled_steps(unroll: int, opaque: bool) -> None:
    b = Builder()
    inner = b.build((b.one(SIN, b.one(SIN, b.input(V))),), "inner")
    b = Builder()
    body = b.build(b(Call(program(Remat(inner), V)), b.input(V)), "body")
    scan = Scan(body, 4, False, unroll, 0, 1)
    backward = vjp_fused(program(scan, V), (True,))
    first, second = [e.prim for e in backward.eqns if isinstance(e.prim, Scan)]
    assert not is_opaque(first.body)
    assert is_opaque(second.body) is opaque
    assert not is_opaque(without_opaque(second.body))
    check(scan, floats(3))


def test_bytes_of_residuals_never_grow() -> None:
    for body, nonzero in ((step(), (True, True, False, True)), (dead(), (True,) * 5), (nested(), (True,) * 3)):
        split = linearize(body, nonzero)
        n = len(body.outs)
        for free in (frozenset[Atom](), frozenset[Atom](body.ins)):
            before, after = [
                sum([a.aval.size * a.aval.dtype.itemsize for a in set(s.primal.outs[n:]) - free])
                for s in (split, drop_cheap_residuals(split, n, free))
            ]
            assert after <= before


def test_loop_invariants() -> None:
    found = loop_invariants(Steps(step(), 1, 2))
    assert [e.prim for e in found.eqns] == [EXP]
    assert found.values == {step().ins[0], step().eqns[0].outs[0]}


def test_a_loop_without_a_bound_stays_in_a_loop_that_may_take_no_step() -> None:
    """It may have no end for operands with which the program does not run it."""

    def halved(w: Any) -> Any:
        return fx.lax.while_loop(lambda v: v > 1, lambda v: v / 2, w)

    def f(x: Any, w: Any, n: Any) -> Any:
        return fx.lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * halved(w), s[1] + 1), (x, 0), max_steps=4)[0]

    gradient = fx.grad(fx.trace(f, *[fx.Spec((), t) for t in ("float32", "float32", "int32")]))
    assert fx.interpret(gradient, np.float32(3), np.float32("inf"), np.int32(0)) == 1
    assert fx.interpret(gradient, np.float32(3), np.float32(12), np.int32(2)) == 0.75**2


# ------------------------------------------------------------------------------------------------------ linear scans


def test_linear_where_all_results_are() -> None:
    scan = Scan(linear_step(), 3, False, 1, 1, 1)
    assert scan.linear_in((True, True, True))
    assert not scan.linear_in((True, False, True))  # affine: the first carry is not zero
    assert not Scan(step(), 3, False, 1, 1, 2).linear_in((False, True, False, True))


def test_transposing_twice() -> None:
    p = program(Scan(linear_step(), 3, False, 1, 1, 1), V, V, V.with_shape((3, 3)))
    args = (floats(3), floats(3), floats(3, 3))
    back = transpose(p, (True, True, True))
    (scan, *_) = [e.prim for e in back.eqns if isinstance(e.prim, Scan)]
    assert scan.reverse
    same(run(transpose(back, (True, True)), args), run(p, args))


def test_zero_cotangents_are_neither_carried_nor_sliced() -> None:
    p = program(Scan(linear_step(), 3, False, 1, 1, 1), V, V, V.with_shape((3, 3)))
    only = Jaxpr(p.ins, p.eqns, p.outs[:1], "only")
    back = transpose(only, (True, True, True))
    (scan,) = [e.prim for e in back.eqns if isinstance(e.prim, Scan)]
    # carry: the sum for w, and the cotangent of h; no slices, because no stacked result has a cotangent
    assert (scan.n_consts, scan.n_carry, len(scan.body.ins)) == (0, 2, 2)


def test_counters_of_a_linear_scan_are_computed_first() -> None:
    b = Builder()
    h, i, x = b.inputs((V, I, V))
    t = b.one(BroadcastInDim((3,), ()), b.one(ConvertElementType(dtypes.float64), i))
    body = b.build((b.one(ADD, b.one(MUL, h, t), x), b.one(ADD, i, ONE), b.one(MUL, h, t)), "body")
    scan = Scan(body, 3, True, 1, 0, 2)
    assert scan.linear_in((True, False, True))
    p = program(scan, V, I, V.with_shape((3, 3)))
    p = Jaxpr(p.ins, p.eqns, (p.outs[0], p.outs[2]), "p")
    back = transpose(p, (True, False, True))
    first, rows, start = floats(3), floats(3, 3), np.asarray(2, np.int32)
    ys = run(p, (first, start, rows))
    cts = (floats(3) * 2, floats(3, 3) * 3)
    bars = run(back, (*cts, start))
    np.testing.assert_allclose(pairing(cts, ys), pairing((first, rows), bars))
    same(xla(back, *cts, start), bars)


def test_a_carry_that_is_not_linear_is_refused() -> None:
    p = program(Scan(linear_step(), 3, False, 1, 1, 1), V, V, V.with_shape((3, 3)))
    with pytest.raises(NotLinearError, match=r"(?m)^transpose: scan is not linear in operands \[0, 2\]$"):
        transpose(p, (True, False, True))


# ------------------------------------------------------------------------------------------------------------ dead code


def dead() -> Jaxpr:
    """(w, h, k, x, z) -> (h * w, k), (x + k, z): k is unchanged, and only the last result depends on z."""
    b = Builder()
    w, h, k, x, z = b.inputs((V, V, V, V, V))
    return b.build((b.one(MUL, h, w), k, b.one(ADD, x, k), b.one(SIN, z)), "body")


def test_dce_removes_dead_results_carries_and_operands() -> None:
    xs = V.with_shape((2, 3))
    p = program(Scan(dead(), 2, False, 1, 1, 2), V, V, V, xs, xs)
    slim = dce(Jaxpr(p.ins, p.eqns, p.outs[2:3], "p"))
    (eqn,) = slim.eqns
    assert isinstance(eqn.prim, Scan)
    # k is a constant now; h, w and z are removed
    assert (eqn.prim.n_consts, eqn.prim.n_carry) == (1, 0)
    assert eqn.ins == (slim.ins[2], slim.ins[3])
    assert dce(slim) is slim
    args = (floats(3), floats(3), floats(3), floats(2, 3), floats(2, 3))
    same(run(slim, args), run(p, args)[2:3])


def test_a_carry_that_another_one_needs_stays() -> None:
    b = Builder()
    _, h, k = b.inputs((V, V, V))
    body = b.build((b.one(SIN, h), b.one(NEG, k), k), "chain")
    p = program(Scan(body, 3, False, 1, 0, 3), V, V, V)
    slim = dce(Jaxpr(p.ins, p.eqns, p.outs[:1], "p"))
    prim = slim.eqns[0].prim
    assert isinstance(prim, Scan)
    assert (prim.n_consts, prim.n_carry) == (1, 2)  # k is unused, but no step computes it
    args = (floats(3), floats(3) + 1, floats(3) + 2)
    same(run(slim, args), run(p, args)[:1])
    assert dce(p) is p


def test_literal_operands_move_into_the_body() -> None:
    b = Builder()
    h = b.input(V)
    p = b.build(b(Scan(linear_step(), 2, False, 1, 1, 1), Lit.of(2, V), h, Lit.of(3, V.with_shape((2, 3)))), "p")
    slim = dce(p)
    assert slim.eqns[0].ins == (h,)
    same(run(slim, (floats(3),)), run(p, (floats(3),)))


def test_simplify_removes_loops_without_steps_and_unchanged_carries() -> None:
    xs = V.with_shape((2, 3))
    p = program(Scan(dead(), 0, False, 1, 1, 2), V, V, V, V.with_shape((0, 3)), V.with_shape((0, 3)))
    assert simplify(p).outs[:2] == p.ins[1:3]
    assert not simplify(p).eqns
    b = Builder()
    h, k, x = b.inputs((V, V, V))
    body = b.build((b.one(MUL, h, x), k, x, Zero(V).instantiate()), "body")
    p = program(Scan(body, 2, False, 1, 0, 2), V, V, xs)
    slim = simplify(p)
    assert slim.outs[1:] == (p.ins[1], p.ins[2], Zero(xs).instantiate())
    assert simplify(slim) is slim
    args = (floats(3), floats(3), floats(2, 3))
    same(run(slim, args), run(p, args))


def test_inline_and_cse_go_into_bodies() -> None:
    b = Builder()
    inner = b.build((b.one(SIN, b.input(V)),), "inner")
    b = Builder()
    h, x = b.inputs((V, V))
    body = b.build((b.one(ADD, b.one(Call(inner), h), b.one(Call(inner), h)), x), "body")
    p = program(Scan(body, 2, False, 1, 0, 1), V, V.with_shape((2, 3)))
    for transformed, names in ((inline(p), ["sin", "sin", "add"]), (cse(p), ["call", "add"])):
        prim = transformed.eqns[0].prim
        assert isinstance(prim, Scan)
        assert eqns(prim.body) == names


def test_a_counter_is_not_batched() -> None:
    p = program(Scan(step(), 3, False, 1, 1, 2), V, V, I, V.with_shape((3, 3)))
    batched, dims = vmap(p, 2, (None, 0, None, None))
    assert dims == (0, None, 1, 1, None, None, None)
    assert batched.eqns[-1].prim.name == "scan"
    assert len(batched.eqns) == 1


# --------------------------------------------------------------------------------------------------------- messages

FITTING = "give what the bodies take, or trace the function again; nothing is converted silently"
TOGETHER = "the bodies of one equation belong together: trace the function again"


@pytest.mark.parametrize(
    ("scan", "avals", "error", "message", "remedy"),
    [
        (
            Scan(linear_step(), 2, False, 1, 1, 1),
            (V, V),
            ArgumentError,
            "scan: linear takes 3 operands, got 2",
            FITTING,
        ),
        (
            Scan(linear_step(), 2, False, 1, 1, 1),
            (I, V, V),
            DTypeError,
            "scan: constant 0 of linear is i32[], its body takes f64[3]",
            FITTING,
        ),
        (
            Scan(linear_step(), 2, False, 1, 1, 1),
            (V, I, V),
            DTypeError,
            "scan: carry 0 of linear is i32[], its body takes f64[3]",
            FITTING,
        ),
        (
            Scan(linear_step(), 2, False, 1, 1, 1),
            (V, V, V),
            ShapeError,
            "scan: xs 0 of linear is f64[3], its body takes 2 slices f64[3]",
            FITTING,
        ),
        (
            Scan(linear_step(), -1, False, 1, 1, 1),
            (V, V, V),
            ParameterError,
            "scan: length is -1, less than 0",
            "give an int from 0 on",
        ),
        (
            Scan(linear_step(), 2, False, 0, 1, 1),
            (V, V, V),
            ParameterError,
            "scan: unroll is 0, less than 1",
            "give an int from 1 on",
        ),
        (
            Scan(linear_step(), 2, False, 1, 1, 3),
            (V, V, V),
            ParameterError,
            "scan: 1 constants and 3 carries do not fit linear, of 3 operands and 2 results",
            TOGETHER,
        ),
        (
            Scan(step(), 2, False, 1, 0, 2),
            (V, V, I, V),
            ShapeError,
            "scan: step takes f64[3] for carry 1 and gives i32[]",
            TOGETHER,
        ),
    ],
)
def test_messages(scan: Scan, avals: tuple[Aval, ...], error: type[FxadError], message: str, remedy: str) -> None:
    check_refused(lambda: scan.abstract_eval(*avals), error, message, remedy)
