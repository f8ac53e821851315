"""Casts by policies and by plans, plans that hold for the compiled program, and loss scaling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax, nn, optim, policies
from fxad.ir import distinct_jaxprs
from fxad.transforms.precision.cast import cast

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 16, 16)).astype(np.float32) / 4
A = RNG.normal(size=(8, 16)).astype(np.float32)


def network(w: Any, x: Any) -> Any:
    """A scan of recomputed layers, a branch, softmax and a loss."""

    def layer(w: Any, x: Any) -> Any:
        h = fnp.tanh(x @ w)
        return h + x * 0.5

    def step(c: Any, w: Any) -> Any:
        return fx.remat(layer)(w, c), fnp.sum(c)

    c, ys = lax.scan(step, x, w)
    c = lax.cond(ys[0] > 1e6, lambda c: c * 2.0, lambda c: fnp.sin(c), c)
    return fnp.sum(nn.softmax(c) * c) + fnp.sum(ys)


PROGRAM = fx.trace(network, fx.Spec(W.shape, "float32"), fx.Spec(A.shape, "float32"))


def dtypes_of(program: Any, primitive: str) -> set[str]:
    """Returns the dtypes of the results of a primitive, in all bodies."""
    eqns = [eqn for body in distinct_jaxprs(program.jaxpr) for eqn in body.eqns]
    return {str(v.aval.dtype) for eqn in eqns if eqn.prim.name == primitive for v in eqn.outs}


def test_products_are_cast_and_sensitive_operations_kept() -> None:
    mixed = fx.cast(PROGRAM, "bfloat16")
    assert mixed.in_avals == PROGRAM.in_avals
    assert mixed.out_avals == PROGRAM.out_avals
    assert dtypes_of(mixed, "dot_general") == dtypes_of(mixed, "tanh") == {"bfloat16"}
    assert dtypes_of(mixed, "softmax") == dtypes_of(mixed, "reduce_sum") == {"float32"}
    assert dtypes_of(mixed, "scan") == {"float32"}  # carries keep their dtype
    assert dtypes_of(mixed, "remat") == {"bfloat16"}
    exact, found = [float(fx.interpret(f, W, A)) for f in (PROGRAM, mixed)]
    assert 0 < abs(found / exact - 1) < 1e-2


@pytest.mark.parametrize(
    ("keep", "narrow", "wide"),
    [
        (~policies.dots, ["dot_general"], ["tanh", "sin", "softmax"]),
        (policies.nothing, ["dot_general", "tanh", "softmax", "reduce_sum"], []),
        (fx.sensitive_operations | policies.where(lambda eqn: eqn.prim.name == "tanh"), ["sin"], ["tanh", "softmax"]),
    ],
)
def test_a_policy_says_what_is_kept(keep: Any, narrow: list[str], wide: list[str]) -> None:
    mixed = fx.cast(PROGRAM, "bfloat16", keep=keep)
    assert {d for name in narrow for d in dtypes_of(mixed, name)} == {"bfloat16"}
    assert {d for name in wide for d in dtypes_of(mixed, name)} <= {"float32"}


def test_names_are_kept() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(fx.checkpoint_name(fnp.cos(x), "kept"))

    program = fx.trace(f, fx.Spec((3,), "float32"))
    mixed = fx.cast(program, "float16", keep=policies.nothing)
    assert dtypes_of(mixed, "sin") == {"float16"}


def test_casts_compose_with_transformations_and_are_values() -> None:
    mixed = fx.cast(PROGRAM, "bfloat16")
    assert fx.cast(PROGRAM, "bfloat16").jaxpr is mixed.jaxpr is fx.cast(mixed, dtypes.bfloat16).jaxpr
    exact = np.asarray(fx.grad(PROGRAM)(W, A))
    gradient = np.asarray(fx.jit(fx.grad(mixed))(W, A))
    assert gradient.dtype == np.float32
    assert 0 < np.linalg.norm(gradient - exact) < 3e-2 * np.linalg.norm(exact)
    batch = np.asarray(fx.interpret(fx.trace(fx.vmap(mixed, (None, 0)), W, np.stack([A, A])), W, np.stack([A, A])))
    assert np.allclose(batch, float(fx.interpret(mixed, W, A)), rtol=1e-2)
    of_function = fx.cast(network, "bfloat16")(W, A)
    assert float(of_function) == float(mixed(W, A))


def test_values_that_reverse_mode_stores_are_narrow() -> None:
    def layers(w: Any, x: Any) -> Any:
        for k in range(3):
            x = nn.gelu(x @ w[k]) + x
        return fnp.sum(x)

    program = fx.trace(layers, W, A)
    stored = [fx.residuals(f, argnums=0).bytes for f in (program, fx.cast(program, "bfloat16"))]
    assert stored[1] <= 0.7 * stored[0], stored


def test_literals_and_operations_that_do_not_fit_are_kept() -> None:
    def f(x: Any) -> Any:
        return fnp.where(x > 0, x, -1e9), x * 1e-30, x * 2.0, fnp.linalg.cholesky(x @ x.T + fnp.eye(3))

    program = fx.trace(f, fx.Spec((3, 3), "float32"))
    mixed = fx.cast(program, "float16", keep=policies.nothing)
    assert dtypes_of(mixed, "select_n") == dtypes_of(mixed, "cholesky") == {"float32"}
    assert dtypes_of(mixed, "mul") == {"float32", "float16"}
    assert np.asarray(fx.interpret(mixed, -np.eye(3, dtype=np.float32))[0]).min() == np.float32(-1e9)


def test_a_loop_decides_in_its_own_dtype() -> None:
    program = fx.trace(lambda x: lax.while_loop(lambda c: c < 10.0, lambda c: c * 1.0625, x), fx.Spec((), "float32"))
    mixed = fx.cast(program, "bfloat16", keep=policies.nothing)
    assert {str(e.ins[0].aval.dtype) for b in distinct_jaxprs(mixed.jaxpr) for e in b.eqns if e.prim.name == "lt"} == {
        "float32"
    }
    assert float(fx.interpret(mixed, 1.0)) >= 10


def test_rules_are_cast_with_their_function() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x) * x

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * (fnp.cos(x) * x + fnp.sin(x)),))
    program = fx.trace(lambda x: fnp.sum(f(x)), fx.Spec((4,), "float32"))
    mixed = fx.cast(program, "bfloat16")
    assert dtypes_of(mixed, "sin") == {"bfloat16"}
    x = np.linspace(0.1, 1.0, 4, dtype=np.float32)
    exact = np.asarray(fx.grad(program)(x))
    assert 0 < np.abs(np.asarray(fx.grad(mixed)(x)) - exact).max() < 3e-2


# ---------------------------------------------------------------------------------------------------------------- plans


def cancelling(x: Any) -> Any:
    y = fnp.sin(x) * 1.1
    z = (y + 100.0) - 100.0
    return fnp.sum(fnp.tanh(z) * fnp.cos(x))


V = np.linspace(0.0, 1.0, 64, dtype=np.float32)
CANCELLING = fx.trace(cancelling, fx.Spec((64,), "float32"))


def test_a_plan_holds_for_the_compiled_program() -> None:
    plan = fx.plan_precision(CANCELLING, V, tolerance=1e-2)
    assert plan.error is not None
    assert 0 < plan.error <= plan.tolerance == 1e-2
    mixed = fx.cast(CANCELLING, plan.dtype, keep=plan)
    exact, found = float(CANCELLING(V)), float(mixed(V))
    assert abs(found / exact - 1) == pytest.approx(plan.error, rel=1e-3, abs=1e-7)
    kept = {row.equation.split(" = ")[1].split()[0] for row in plan if not row.cast}
    assert kept == {"add", "sub"}  # 100 + y loses what y is about
    assert {"sin", "cos", "tanh", "mul"} <= {r.equation.split(" = ")[1].split()[0] for r in plan if r.cast}
    text = str(plan)
    assert "kept" in text
    assert "bfloat16" in text
    assert "measured" in text
    assert "<table>" in plan._repr_html_()
    assert all([row.line is not None for row in plan])


def test_a_small_tolerance_keeps_everything() -> None:
    plan = fx.plan_precision(CANCELLING, V, tolerance=1e-9)
    assert plan.error == 0
    assert not any([row.cast for row in plan])


def smaller_root(b: Any) -> Any:
    return (-b + fnp.sqrt(b * b - 4)) / 2


def variance(x: Any) -> Any:
    return fnp.mean(x * x) - fnp.mean(x) ** 2


def area(a: Any, b: Any, c: Any) -> Any:
    s = (a + b + c) / 2
    return fnp.sqrt(s * (s - a) * (s - b) * (s - c))


FAR: Any = 100 + np.linspace(-1, 1, 64, dtype=np.float32)


@pytest.mark.parametrize(
    ("f", "args"),
    [(smaller_root, (np.float32(1234.5),)), (variance, (FAR,)), (area, (*map(np.float32, (9, 4.53, 4.53)),))],
)
def test_equations_without_a_rounding_error_compute_in_the_dtype_of_their_operands(f: Any, args: Any) -> None:
    """A quotient by 2 is exact, and no row of a plan: it must not round its operand either."""
    program = fx.trace(f, *args)
    plan = fx.plan_precision(program, *args, tolerance=1e-2)
    mixed, exact = (float(fx.lower(p).compile()(*args)) for p in (fx.cast(program, "bfloat16", keep=plan), program))
    assert plan.error is not None
    assert abs(mixed / exact - 1) == pytest.approx(plan.error, rel=1e-3, abs=1e-7)
    assert plan.error <= 1e-2
    assert fx.cast(program, "bfloat16", keep=plan.keep(*range(len(plan)))).jaxpr is program.jaxpr


def test_an_exact_equation_follows_its_operands() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.sin(-fnp.maximum(fnp.sin(x) / 4, 0.1)))

    x = np.linspace(0, 1, 8, dtype=np.float32)
    program = fx.trace(f, x)
    plan = fx.plan_precision(program, x, tolerance=1e-2)
    everything = fx.cast(program, "bfloat16", keep=plan.cast(*range(len(plan))))
    assert dtypes_of(everything, "div") == {"bfloat16"}
    assert dtypes_of(everything, "max") == {"float32"}  # 0.1 is another number in bfloat16


def test_a_program_whose_results_differ_has_no_plan() -> None:
    state = iter(range(1000))

    def f(x: Any) -> Any:
        return fnp.sin(x) + fx.pure_callback(lambda x: x + np.float32(next(state)), x, x)

    with pytest.raises(fx.errors.ParameterError) as e:
        fx.plan_precision(fx.trace(f, np.float32(1)), np.float32(1), tolerance=1e-3)
    assert e.value.message.startswith("plan_precision: two runs of f for the same arguments differ by ")
    assert e.value.remedy == "leave out functions of the host that return other values in each call"


def test_results_that_are_not_numbers_have_a_plan() -> None:
    program = fx.trace(lambda x: fnp.log(x), fx.Spec((3,), "float32"))
    plan = fx.plan_precision(program, np.array([-1, 2, 3], np.float32), tolerance=1e-2)
    assert plan.error is not None
    assert plan.error <= 1e-2


def test_plans_are_edited_and_measured_again() -> None:
    plan = fx.plan_precision(CANCELLING, V, tolerance=1e-2)
    k = next(k for k, row in enumerate(plan) if not row.cast)
    edited = plan.cast(k).keep(0)
    assert edited.error is None
    assert edited[k].cast
    assert not edited[0].cast
    assert edited[k].reason == "edited"
    assert "not measured" in repr(edited)
    with pytest.raises(fx.errors.ParameterError, match="more than 1e-05"):
        fx.plan_precision(CANCELLING, V, tolerance=1e-5, plan=edited)
    kept = plan.keep(*range(len(plan)))
    assert fx.plan_precision(CANCELLING, V, tolerance=1e-5, plan=kept).error == 0
    assert fx.cast(CANCELLING, "bfloat16", keep=kept).jaxpr is cast(
        CANCELLING.jaxpr, dtypes.bfloat16, policies.everything
    )


def test_plans_reach_into_bodies() -> None:
    def scanned(w: Any, x: Any) -> Any:
        return fnp.sum(lax.scan(lambda c, w: (fnp.tanh(c @ w), None), x, w)[0] ** 2)

    program = fx.trace(scanned, W, A)
    plan = fx.plan_precision(program, W, A, tolerance=3e-2)
    assert plan.error is not None
    assert plan.error <= 3e-2
    assert dtypes_of(fx.cast(program, plan.dtype, keep=plan), "dot_general") == {"bfloat16"}


# --------------------------------------------------------------------------------------------------------- loss scaling


def test_the_scale_follows_the_gradients() -> None:
    scaler = optim.loss_scale(4.0, growth_interval=2, factor=2.0)
    state = scaler.init()
    good, bad = {"w": fnp.ones(2, "float16")}, {"w": fnp.asarray([np.inf, 1.0], "float16")}
    scales = []
    for gradients in (good, good, good, bad, good, good):
        unscaled, finite, state = scaler.update(gradients, state)
        assert unscaled["w"].dtype == np.float32
        assert bool(finite) == (gradients is good)
        scales.append(float(state.scale))
    assert scales == [4, 8, 8, 4, 4, 8]
    unscaled, _, _ = optim.loss_scale(8.0, growth_interval=None).update(good, optim.loss_scale(8.0).init())
    assert unscaled["w"].tolist() == [0.125, 0.125]


def test_a_scaled_loss_has_gradients_that_do_not_underflow() -> None:
    def loss(w: Any) -> Any:
        return fnp.sum(w * fnp.asarray(2.0**-13, "float16") * fnp.asarray(2.0**-13, "float16"))

    scaler = optim.loss_scale(2.0**12)
    w, state = fnp.ones(3, "float16"), scaler.init()

    def step(w: Any, state: Any) -> Any:
        gradients, finite, state = scaler.update(fx.grad(lambda w: scaler.scaled(loss(w), state))(w), state)
        return gradients, optim.keep_if(finite, w - 1.0, w), state

    gradients, moved, _ = fx.jit(step)(w, state)
    assert gradients.tolist() == [2.0**-26] * 3
    assert moved.tolist() == [0.0] * 3
    assert fx.grad(loss)(w).tolist() == [0.0] * 3
    overflowed, same, after = fx.jit(step)(w, optim.LossScaleState(fnp.asarray(2.0**60, "float32"), state.steps))
    assert same.tolist() == [1.0] * 3
    assert float(after.scale) == 2.0**59
    assert not np.isfinite(np.asarray(overflowed)).all()
