"""`collapse`: sums over an axis move through linear equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
from fxad import lax, numpy as fnp, testing
from fxad.core.builder import Builder, single_equation
from fxad.core.interpreter import run
from fxad.ir import Atom, HigherOrder, Jaxpr, Primitive, distinct_jaxprs
from fxad.primitives import ALL, elementwise as ew
from fxad.primitives.families import of_family
from fxad.primitives.linalg.family import LinearSystem
from fxad.primitives.shape import BroadcastInDim, ReduceSum
from fxad.testing import Application, Case, calls, cases
from fxad.testing.compare import differ
from fxad.testing.control_steps import branch_step, scan_step, while_step
from fxad.testing.steps import GROWTH_STEPS
from fxad.transforms.jet.along import AXIS_RULES, along
from fxad.transforms.jet.collapse.collapse import collapse
from fxad.transforms.vmap import vmap
from tests.laws.budget import share


def summed(case: Case) -> Case:
    """The program with sums over the first axis of its results, and without other uses of them."""
    program = case.program
    b = Builder.resume(program)
    outs = [b.one(ReduceSum((0,)), a) if a.aval.ndim and a.aval.inexact else a for a in program.outs]
    return Case(b.build(outs), case.args, case.seed, case.smooth)


# Programs of straight lines, and of loops and branches.
PROGRAMS = {
    "lines": cases(differentiable=True),
    "loops": cases(
        differentiable=True, unbounded=True, steps=(*GROWTH_STEPS, *[while_step, scan_step, branch_step] * 4)
    ),
}


@pytest.mark.law
@pytest.mark.parametrize("programs", PROGRAMS)
def test_same_value(programs: str) -> None:
    @share(4)
    @given(PROGRAMS[programs])
    def law(case: Case) -> None:
        testing.check_rewrite(collapse, summed(case), rtol=1e-9, shrinks=False, idempotent=False)

    law()


@pytest.mark.law
@pytest.mark.parametrize("programs", PROGRAMS)
def test_same_value_of_batches(programs: str) -> None:
    """A sum over a mapped axis, as in Laplacians and gradients."""

    @share(4)
    @given(PROGRAMS[programs])
    def law(case: Case) -> None:
        program, args = case.program, case.args
        dims = tuple([0 if a.inexact and k % 2 == case.seed % 2 else None for k, a in enumerate(program.in_avals)])
        batched, out_dims = vmap(program, 3, dims)
        stacks = [
            x if d is None else np.stack([x, np.multiply(x, 0.5), np.multiply(x, 0.25)])
            for x, d in zip(args, dims, strict=True)
        ]
        b = Builder.resume(batched)
        weights = b.one(ew.SIN, b.input(fx.Aval((3,), "float64")))

        def total(a: Atom, d: int) -> Atom:
            if case.seed % 3 and a.aval.dtype in ("float64", "complex128"):
                w = weights if a.aval.dtype == "float64" else b.one(ew.COMPLEX, weights, b.one(ew.COS, weights))
                a = b.one(ew.MUL, a, b.one(BroadcastInDim(a.aval.shape, (d,)), w))
            return b.one(ReduceSum((d,)), a)

        outs = [
            a if d is None or not a.aval.inexact else total(a, d) for a, d in zip(batched.outs, out_dims, strict=True)
        ]
        stacks.append(np.array([0.3, -1.2, 2.0]))
        testing.check_rewrite(collapse, Case(b.build(outs), tuple(stacks)), rtol=1e-9, shrinks=False, idempotent=False)

    law()


WITH_ROW = [k for k in ALL if of_family(AXIS_RULES, k) is not None and not issubclass(k, HigherOrder)]


@pytest.mark.parametrize("kind", WITH_ROW, ids=lambda kind: kind.name)
def test_rows_map_slices(kind: type[Primitive]) -> None:
    """Slice i of the result is the equation of the row, applied to slices i of the operands."""

    @share(4)
    @given(calls(kind, smooth=True))
    def law(application: Application) -> None:
        prim, args = application.prim, application.args
        (whole,) = run(application.program, args)
        for axis in range(whole.ndim):
            found = along(prim, application.avals, axis)
            if found is None:
                continue
            for i in range(whole.shape[axis]):
                slices = [x if at is None else np.take(x, i, at) for x, at in zip(args, found.axes, strict=True)]
                avals = [fx.Aval(x.shape, x.dtype) for x in slices]
                (part,) = run(single_equation(found.prim, avals), slices)
                assert not differ([part], [np.take(whole, i, axis)], slack=1e-12), (prim, found, axis)

    law()


def test_every_row_is_used() -> None:
    """No row says that no axis can be sliced."""
    x, w = fx.Spec((2, 3, 4)), fx.Spec((4, 4))
    moved = {
        "transpose": lambda x, w: fnp.transpose(x, (1, 0, 2)).sum(1),
        "reshape": lambda x, w: x.reshape(2, 12).sum(0),
        "broadcast_in_dim": lambda x, w: fnp.broadcast_to(x, (6, 2, 3, 4)).sum(1),
        "dot_general": lambda x, w: (x @ w).sum(0),
        "concatenate": lambda x, w: fnp.concatenate([x, x], 1).sum(0),
        "pad": lambda x, w: fnp.pad(x, ((0, 0), (1, 2), (0, 0))).sum(0),
        "slice": lambda x, w: x[:, 1:].sum(0),
        "index": lambda x, w: x[:, 1].sum(0),
        "rev": lambda x, w: x[:, ::-1].sum(0),
        "select_n": lambda x, w: fnp.where(fnp.broadcast_to(w[:3, :4] > 0, (2, 3, 4)), x, 0).sum(0),
        "mul": lambda x, w: (x * fnp.broadcast_to(w[:3, :4], (2, 3, 4))).sum(0),
        "div": lambda x, w: (x / 3).sum(0),
        "neg": lambda x, w: (-x).sum(0),
        "reduce_sum": lambda x, w: (x.sum(2) / 2).sum(0),
    }
    for name, f in moved.items():
        after = fx.collapse(fx.trace(f, x, w))
        (at,) = [
            k for k, e in enumerate(after.jaxpr.eqns) if e.prim.name == "reduce_sum" and e.ins[0] is after.jaxpr.ins[0]
        ]
        kept = [e.prim.name for e in after.jaxpr.eqns[:at]]
        assert name not in kept
        assert name in [e.prim.name for e in after.jaxpr.eqns[at:]], str(after)


def test_products_of_all_examples_are_one_product() -> None:
    def total(w: Any, xs: Any) -> Any:
        return fx.vmap(lambda x: x @ w)(xs).sum(0)

    after = fx.collapse(fx.trace(total, fx.Spec((3, 2)), fx.Spec((7, 3)))).jaxpr
    assert [(e.prim.name, e.outs[0].aval.shape) for e in after.eqns] == [("reduce_sum", (3,)), ("dot_general", (2,))]


def test_a_value_that_is_used_elsewhere_is_computed() -> None:
    def both(w: Any, xs: Any) -> tuple[Any, Any]:
        y = xs @ w
        return y.sum(0), y

    program = fx.inline(fx.trace(both, fx.Spec((3, 2)), fx.Spec((7, 3))))
    assert fx.collapse(program).jaxpr is program.jaxpr


def test_the_number_of_equal_slices_may_be_beyond_the_dtype() -> None:
    """70,000 is no float16, but 70,000 times 1e-3 is one."""
    x = np.array([1e-3, 2e-4], np.float16)
    total = fx.collapse(lambda x: fnp.broadcast_to(x, (70_000, 2)).sum(0))(x)
    np.testing.assert_allclose(np.asarray(total, np.float64), 70_000 * x.astype(np.float64), rtol=1e-3)


def test_weights_of_slices_are_kept() -> None:
    def weighted(w: Any, c: Any, xs: Any) -> Any:
        return ((xs @ w) * c[:, None]).sum(0)

    program = fx.trace(weighted, *[fx.Spec(s, "float64") for s in ((3, 2), (7,), (7, 3))])
    after = fx.collapse(program)
    assert [e.outs[0].aval.shape for e in after.jaxpr.eqns if e.prim.name == "dot_general"] == [(2,)]
    rng = np.random.default_rng(0)
    w, c, xs = rng.normal(size=(3, 2)), rng.normal(size=7), rng.normal(size=(7, 3))
    np.testing.assert_allclose(after(w, c, xs), (c[:, None] * (xs @ w)).sum(0), rtol=1e-13)


@pytest.mark.parametrize("mean", [False, True])
def test_gradients_of_examples_become_the_gradient_of_the_batch(mean: bool) -> None:
    """The sum of outer products over examples is one product, so no array has an axis of examples beside two others."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        a, b, c = params
        return ((fnp.tanh(x @ a + b) @ c - y) ** 2).sum()

    def gradient(params: Any, xs: Any, ys: Any) -> Any:
        by_example = fx.vmap(fx.grad(loss), (None, 0, 0))(params, xs, ys)
        return [g.mean(0) if mean else g.sum(0) for g in by_example]

    rng = np.random.default_rng(0)
    shapes = ((3, 8), (8,), (8, 2)), (7, 3), (7, 2)
    args = [[rng.normal(size=s) for s in shapes[0]], *[rng.normal(size=s) for s in shapes[1:]]]
    program = fx.trace(gradient, *args)
    after = fx.collapse(program)
    assert max([v.aval.ndim for e in program.jaxpr.eqns for v in e.outs]) == 3
    assert max([v.aval.ndim for e in after.jaxpr.eqns for v in e.outs]) == 2
    for have, want in zip(fx.interpret(after, *args), fx.interpret(program, *args), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-12)


RNG = np.random.default_rng(2)
LAYERS, X = RNG.normal(size=(4, 5, 5)) / 2, RNG.normal(size=5)


def with_rows(x: Any) -> Any:
    c, ys = lax.scan(lambda c, w: (fnp.tanh(c @ w), fnp.sin(c)), x, LAYERS)
    return c.sum() * ys.sum()


# Programs, and for the equations with bodies of their Laplacians the results that have an axis of directions.
INSIDE: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "scan": (lambda x: lax.scan(lambda c, w: (fnp.tanh(c @ w), None), x, LAYERS)[0].sum(), [1]),
    "scan with rows": (with_rows, [1]),
    "rows alone": (lambda x: lax.scan(lambda c, w: (fnp.tanh(c @ w), fnp.exp(c)), x, LAYERS)[1].sum(), [1]),
    "two carries": (
        lambda x: lax.scan(lambda c, w: ((c[0] @ w + c[1], fnp.sin(c[0] * c[1])), None), (x, x), LAYERS)[0][0].sum(),
        [2],
    ),
    "backwards": (lambda x: lax.scan(lambda c, w: (fnp.tanh(c @ w) + x, None), x, LAYERS, reverse=True)[0][1], [1]),
    "nested": (
        lambda x: lax.scan(lambda c, w: (lax.fori_loop(0, 3, lambda _, d: fnp.tanh(d @ w) + d, c), None), x, LAYERS)[
            0
        ].sum(),
        [1, 1],
    ),
    "while": (
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, fnp.tanh(c[1] @ LAYERS[0])), (0, x))[1].sum(),
        [1],
    ),
    "branches": (lambda x: lax.cond(x[0] > 0, lambda x: fnp.tanh(x), lambda x: fnp.sin(x @ LAYERS[0]), x).sum(), [0]),
    "remat": (lambda x: fx.remat(lambda x: fnp.tanh(fnp.tanh(x @ LAYERS[0]) @ LAYERS[1]))(x).sum(), [0]),
    "map": (lambda x: lax.map(lambda w: fnp.tanh(x @ w), LAYERS).sum(), [0]),
    # the carry is squared, so each step needs it for each direction: its second derivatives are summed alone
    "square": (lambda x: lax.scan(lambda c, w: ((c @ w) ** 2, None), x, LAYERS)[0].sum(), [1]),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", INSIDE)
def test_sums_move_into_bodies(name: str, weighted: bool) -> None:
    """Of the second derivatives in n directions, bodies compute and carry the sum."""
    f, directional = INSIDE[name]
    weights = np.arange(1.0, 6.0) if weighted else None
    program = fx.laplacian(fx.trace(f, X), weights=weights)
    hessian = fx.interpret(fx.jacfwd(fx.jacfwd(fx.trace(f, X))), X)
    want = np.trace(hessian) if weights is None else np.diagonal(hessian) @ weights
    np.testing.assert_allclose(fx.interpret(program, X), want, rtol=1e-9, atol=1e-12)
    n_first = len(X)
    counts = [
        sum([v.aval.shape.count(n_first) == 2 or v.aval.shape == (4, n_first, n_first) for v in e.outs])
        for body in distinct_jaxprs(program.jaxpr)
        for e in body.eqns
        if isinstance(e.prim, HigherOrder)
    ]
    assert sorted(counts) == sorted(directional), str(program)


def test_a_sum_of_a_carry_that_steps_read_stays_outside() -> None:
    """A step that multiplies slices of the carry with each other needs all of them."""

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: c * c[::-1], x).sum(0)

    program = fx.trace(f, fx.Spec((4, 2), "float64"))
    after = fx.collapse(program)
    assert [e.outs[0].aval.shape for e in after.jaxpr.eqns if e.prim.name == "scan"] == [(4, 2)]
    x = RNG.normal(size=(4, 2))
    np.testing.assert_allclose(fx.interpret(after, x), fx.interpret(program, x), rtol=1e-13)


SYSTEMS: dict[str, Callable[[Any], Any]] = {
    "slogdet": lambda m: fnp.linalg.slogdet(m)[1],
    "solve": lambda m: fnp.linalg.solve(fnp.asarray(LAYERS[0, :4, :4]) + fnp.eye(4), m).sum(),
    "triangular": lambda m: fx.scipy.linalg.solve_triangular(fnp.asarray(LAYERS[0, :4, :4]) + 2 * fnp.eye(4), m).sum(),
    "from the right": lambda m: lax.linalg.triangular_solve(
        fnp.asarray(LAYERS[0, :4, :4]) + 2 * fnp.eye(4), m, left_side=False
    ).sum(),
    "inverse": lambda m: fnp.linalg.inv(m)[0, 1],
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SYSTEMS)
def test_sums_move_before_linear_systems(name: str, weighted: bool) -> None:
    """`vmap` puts the right-hand sides of all directions into one matrix. Of second derivatives, there is one."""
    weights = np.arange(1.0, 17.0).reshape(4, 4) if weighted else None

    def f(x: Any) -> Any:
        return SYSTEMS[name](fnp.tanh(x) + 2 * fnp.eye(4, dtype=x.dtype))

    x = RNG.normal(size=(4, 4))
    program = fx.laplacian(fx.trace(f, x), weights=weights)
    hessian = fx.interpret(fx.jacfwd(fx.jacfwd(fx.trace(f, x))), x).reshape(16, 16)
    want = np.diagonal(hessian) @ (np.ones(16) if weights is None else weights.reshape(-1))
    np.testing.assert_allclose(fx.interpret(program, x), want, rtol=1e-9)
    systems = [e for e in program.jaxpr.eqns if isinstance(e.prim, LinearSystem)]
    assert [e.ins[-1].aval.size for e in systems].count(16 * 16) <= 1, str(program)


FACTORS: dict[str, Callable[[Any], Any]] = {
    "conj": fnp.conj,
    "conj of a loop": lambda x: fnp.conj(lax.fori_loop(0, 2, lambda _, c: 2 * c, x)),
    "real": lambda x: fnp.real(x * 1j),
    "imag": lambda x: fnp.imag(fnp.conj(x)),
    "complex": lambda x: lax.complex(fnp.real(x) * 2, fnp.imag(x)),
    "narrower": lambda x: x.astype("complex64"),
    "narrower, of a loop": lambda x: fnp.real(lax.fori_loop(0, 2, lambda _, c: 2 * c, x)).astype("float32"),
    "wider": lambda x: x.astype("complex64").astype("complex128"),
    "as wide": lambda x: fnp.real(x).astype("float16").astype("bfloat16").astype("float64"),
}


@pytest.mark.parametrize("name", FACTORS)
def test_weights_and_types(name: str) -> None:
    """Complex factors do not move before maps that are linear in real ones alone. Others are converted."""
    f = FACTORS[name]

    def weighted(x: Any, w: Any) -> Any:
        y = f(x)
        w = (w if fnp.iscomplexobj(y) else fnp.real(w)).astype(y.dtype)
        return (y * w[:, None]).sum(0)

    x, w = RNG.normal(size=(2, 4, 3)) @ np.eye(3), RNG.normal(size=(2, 4))
    args = x[0] + 1j * x[1], w[0] + 1j * w[1]
    program = fx.trace(weighted, *args)
    np.testing.assert_allclose(
        fx.interpret(fx.collapse(program), *args), fx.interpret(program, *args), rtol=1e-5 if "wi" not in name else 1e-2
    )


def test_weights_that_are_computed_after_a_loop_stay_outside() -> None:
    def f(x: Any) -> Any:
        c, s = lax.fori_loop(0, 3, lambda _, c: (2 * c[0], c[1] + 1.0), (x, x[:, 0]))
        return (c * fnp.sin(s)[:, None]).sum(0)

    program = fx.trace(f, fx.Spec((4, 2), "float64"))
    x = RNG.normal(size=(4, 2))
    np.testing.assert_allclose(fx.interpret(fx.collapse(program), x), fx.interpret(program, x), rtol=1e-13)


def test_a_loop_over_a_linear_map_sums_first() -> None:
    """Both the carry and a constant: nothing inside has the axis."""

    def f(x: Any, y: Any, w: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: c @ w + y, x).sum(0)

    specs = [fx.Spec(s, "float64") for s in ((7, 3), (7, 3), (3, 3))]
    program = fx.trace(f, *specs)
    after = fx.collapse(program)
    (loop,) = [e for e in after.jaxpr.eqns if e.prim.name == "scan"]
    assert {a.aval.shape for a in loop.ins} == {(3,), (3, 3)}
    args = [RNG.normal(size=s.shape) for s in specs]
    np.testing.assert_allclose(fx.interpret(after, *args), fx.interpret(program, *args), rtol=1e-12)


def test_effects_and_dead_equations() -> None:
    def f(x: Any) -> Any:
        fx.debug_print("{}", x[0])
        return (x * 2.0).sum(0)

    program = fx.inline(fx.trace(f, fx.Spec((3,))))
    after: Jaxpr = fx.collapse(program).jaxpr
    assert after.effects == program.jaxpr.effects != frozenset()
