"""`outline` and `reroll` in hard cases: bits, dtypes, effects, threads, programs that hardly repeat."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.core.interpreter import run
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.testing.compare import differ
from fxad.testing.transform_laws import eqns_to_compile
from fxad.transforms import outline
from tests.api.test_outline import bodies, mlp, specs

VALUES = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -2.25, 1e-40]


def outlined_and_checked(program: fx.Program[..., Any], args: Sequence[Any]) -> fx.Program[..., Any]:
    """Returns the outlined program. It and the rolled programs give the same results, bit for bit; outlining is
    idempotent; inlining undoes it."""
    made: fx.Program[..., Any] = fx.outline(program)
    for other in (made, fx.reroll(program), fx.reroll(made), fx.inline(made)):
        assert differ(run(other.jaxpr, args), run(program.jaxpr, args), exact=True) == ""
    assert fx.outline(made).jaxpr is made.jaxpr
    assert fx.inline(made).jaxpr is fx.inline(program).jaxpr
    return made


def layers_of(x: Any, ws: Any) -> Any:
    for w in ws:
        x = fnp.where(x == x, -x * w, x) * (w - w) + x * w
        x = x + fnp.conj(x) * w - w
    return x


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128], ids=str
)
def test_bits_of_floats_are_kept(dtype: Any) -> None:
    with np.errstate(all="ignore"):
        args = [np.asarray(VALUES).astype(dtype) * np.asarray(k, dtype) for k in range(1, 8)]
        made = outlined_and_checked(fx.trace(lambda x, *ws: layers_of(x, ws), *args), args)
    assert list(bodies(made).values()) == [6]


def bits_of(x: Any, ws: Any) -> Any:
    for w in ws:
        x = ~((x ^ w) & (x | w)) ^ (w & x)
        x = (x | w) & ~(x ^ w)
    return x


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.uint32], ids=str)
def test_integers_and_truth_values(dtype: Any) -> None:
    args = [np.arange(8).astype(dtype) + np.asarray(k % 2, dtype) for k in range(7)]
    assert list(bodies(outlined_and_checked(fx.trace(lambda x, *ws: bits_of(x, ws), *args), args)).values()) == [6]


def test_zeros_of_both_signs_are_two_literals() -> None:
    """A value that differs between layers is an operand, also if `==` says that it is equal."""

    def f(x: Any) -> Any:
        for zero in (0.0, -0.0, 0.0, -0.0):
            x = fnp.copysign(fnp.exp(fnp.sin(x)), x * zero + zero) * 2.0 + fnp.cos(x) - fnp.tanh(x)
        return x

    x = np.asarray([1.0, -1.0], np.float32)
    (body,) = bodies(outlined_and_checked(fx.trace(f, x), [x]))
    assert len(body.ins) == 2


def deep(x: Any, ws: Any, last: Any = None) -> Any:
    for w in ws:
        x = fnp.exp(fnp.sin(fnp.tanh(fnp.abs(x) @ w) * 2.0 + x) + 1.0)
    return x if last is None else fnp.exp(fnp.sin(fnp.tanh(fnp.abs(x) @ last) * 2.0) + 1.0)


SQUARE = np.full((4, 4), 0.1, np.float32)


@pytest.mark.parametrize(("layers", "calls"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_few_layers(layers: int, calls: int) -> None:
    """One layer is not outlined, two layers are."""
    program = fx.trace(deep, SQUARE, [SQUARE] * layers)
    made = outlined_and_checked(program, [SQUARE] * (layers + 1))
    assert sum(bodies(made).values()) == calls
    assert (made.jaxpr is program.jaxpr) == (calls == 0)


def test_a_last_layer_of_another_shape_stays() -> None:
    last = np.full((4, 3), 0.1, np.float32)
    program = fx.trace(deep, SQUARE, [SQUARE] * 3, last)
    assert list(bodies(outlined_and_checked(program, [*[SQUARE] * 4, last])).values()) == [3]


def test_a_parameter_that_layers_share_is_an_operand() -> None:
    """The body has one operand for the parameter that all layers share, and one for the state."""
    program = fx.trace(lambda x, w: deep(x, [w] * 5), SQUARE, SQUARE)
    made = outlined_and_checked(program, [SQUARE, SQUARE])
    (body,) = bodies(made)
    assert len(body.ins) == 2


def test_effects_keep_their_order() -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        for k in range(4):
            fx.debug_callback(lambda k, _: seen.append(int(k)), k, x, ordered=True)
            x = fnp.exp(fnp.sin(fnp.tanh(x) * 2.0 + x) + 1.0) - fnp.cos(x)
        return x

    program: fx.Program[..., Any] = fx.trace(f, np.float32(0.5))
    for made in (fx.outline(program), fx.reroll(program)):
        seen.clear()
        compiled: Any = fx.lower(made).compile()
        compiled(np.float32(0.5)).block_until_ready()
        assert seen == [0, 1, 2, 3]


def checked(p: Any, x: Any) -> Any:
    return fx.error_if(x, p.sum() > 100.0, "the layer is broken: {}", p.sum())


def branching(p: Any, x: Any) -> Any:
    return fx.lax.cond(p[0, 0] < 3.0, lambda x: checked(p, x), lambda x: x, x)


def checked_layer(guard: Any) -> Any:
    """The gradient of a network. The first layer has no cotangent for its input, so a shared body would check a
    placeholder."""

    def loss(ps: Any, x: Any) -> Any:
        for p in ps:
            y = fnp.tanh(guard(p, x) @ p + p[0])
            x = x + y * fnp.sin(y) + y
        return (x * x).sum()

    return fx.value_and_grad(fx.remat(loss))


def calling_the_host(ps: Any, x: Any) -> Any:
    """All layers but the first call the host."""
    answers = []
    for k, p in enumerate(ps):
        y = fnp.tanh(x @ p + p[0])
        if k:
            answers.append(fx.pure_callback(answer, fx.Spec((), np.float32), p[0, 0]))
        x = x + y * fnp.sin(y) + fnp.cos(y) * y
    return x, answers


def answer(v: Any) -> Any:
    assert abs(v) < 1, "the program has no such value"
    return v


@pytest.mark.parametrize(
    "f", [checked_layer(checked), checked_layer(branching), calling_the_host], ids=["check", "cond", "host"]
)
def test_equations_that_may_fail_are_not_added_to_calls_that_lack_them(f: Any) -> None:
    """Regression: shared bodies would run such equations on placeholders, where they fail, so they are not shared."""
    rng = np.random.default_rng(0)
    ps = [rng.standard_normal((4, 4)).astype(np.float32) * 0.2 for _ in range(6)]
    program = fx.trace(f, ps, ps[0])
    outlined = fx.outline(program)
    want = fx.tree.leaves(fx.interpret(program, ps, ps[0]))
    for a, b in zip(fx.tree.leaves(fx.interpret(outlined, ps, ps[0])), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert eqns_to_compile(outlined.jaxpr) < eqns_to_compile(program.jaxpr)


def test_threads_get_one_program() -> None:
    flat = fx.value_and_grad(fx.trace(mlp, *specs(7))).jaxpr
    together = Barrier(8)

    def outlined(_: int) -> Jaxpr:
        together.wait()
        return outline(flat)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(outlined, range(8)))
    assert all(m is made[0] for m in made)


def test_before_and_after_grad_and_vmap() -> None:
    """The values are the same in either order."""
    program = fx.trace(mlp, *specs(6))
    rng = np.random.default_rng(0)
    draw = [rng.standard_normal(a.shape).astype(np.float32) for a in program.jaxpr.in_avals]
    want = run(fx.grad(program).jaxpr, draw)
    assert differ(run(fx.grad(fx.outline(program)).jaxpr, draw), want, exact=True) == ""
    assert differ(run(fx.outline(fx.grad(program)).jaxpr, draw), want, exact=True) == ""
    batched = [*draw[:-1], np.stack([draw[-1]] * 3)]
    mapped = run(fx.vmap(program, (None, 0), axis_size=3).jaxpr, batched)
    ways: list[Any] = [
        fx.vmap(fx.outline(program), (None, 0), axis_size=3),
        fx.outline(fx.vmap(program, (None, 0), axis_size=3)),
    ]
    for made in ways:
        assert differ(run(made.jaxpr, batched), mapped, exact=True) == ""
        assert list(bodies(made).values()) == [6]


def test_remat_saves_memory_in_a_linked_run() -> None:
    """A linked run of outlined layers has fewer temporary bytes with `remat` around pairs of layers."""
    width, layers = 512, 8
    w = fx.Spec((width, width), "float32")

    def pair(x: Any, a: Any, b: Any) -> Any:
        return deep(x, [a, b])

    def loss(wrapped: Any, x: Any, ws: Any) -> Any:
        for k in range(0, layers, 2):
            x = wrapped(x, ws[k], ws[k + 1])
        return fnp.mean(x)

    def temp(wrapped: Any) -> int:
        program = fx.grad(fx.trace(lambda x, ws: loss(wrapped, x, ws), w, [w] * layers), 1)
        # forced to be linked: the rule would compile so small a program whole
        lowered: Any = fx.lower(fx.outline(program), units=lambda body: len(body.eqns) > 2)
        assert len(lowered.units.steps) > 4
        return int(lowered.compile().memory().temp_bytes)

    assert temp(fx.remat(pair)) < 0.75 * temp(pair)


def test_equal_bodies_in_a_loop_and_outside_are_one() -> None:
    """A layer in a scan and the same layer before it share a body."""
    ws = [SQUARE] * 4

    def f(x: Any, ws: Any) -> Any:
        x = deep(x, ws)
        return fx.lax.scan(lambda x, _: (deep(x, ws), None), x, None, length=3)[0]

    made = outlined_and_checked(fx.trace(f, SQUARE, ws), [SQUARE] * 5)
    called = {body for body in distinct_jaxprs(made.jaxpr) if body.name == "deep" and len(body.eqns) > 4}
    assert len(called) == 1
    assert eqns_to_compile(made.jaxpr) < 12
