"""A budget of bytes holds for the executable: by `compile`, by `jit`, and for what contains a `remat` with a budget."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
import fxad.text
from fxad import lax, optim
from fxad.errors import ArgumentError, ParameterError
from fxad.ir import Jaxpr
from fxad.primitives.marks import least_budget, without_budgets
from fxad.transforms.memory_plans.flat_program import flat_program

X, W = np.full((32, 64), 0.1, np.float32), np.full((64, 64), 0.01, np.float32)
SHARES = (0.75, 0.5, 0.35, 0.25)


def layers(ws: Any, x: Any) -> Any:
    for w in ws:
        x = fnp.sin(fnp.tanh(x @ w)) + x
    return fnp.sum(x)


def steps(ws: Any, x: Any) -> Any:
    def step(h: Any, _: None) -> Any:
        h = fnp.sin(fnp.tanh(h @ ws[0])) + h
        return h, fnp.sum(h)

    return fnp.sum(lax.scan(step, x, None, length=100)[1])


def parameters(depth: int) -> list[Any]:
    return [W * np.float32(k + 1) for k in range(depth)]


def bytes_of(executable: Any) -> int:
    return int(executable.memory().temp_bytes)


@pytest.mark.parametrize("f", [layers, steps])
def test_budgets_hold_for_what_is_compiled_and_are_monotone(f: Any) -> None:
    ws = parameters(12 if f is layers else 1)
    program = fx.trace(fx.value_and_grad(f), ws, X)
    executable = fx.lower(program).compile()
    plain, value = bytes_of(executable), fx.tree.leaves(executable(ws, X))
    assert fx.lower(program).compile(budget=plain).text() == executable.text()
    before = [plain, plain]
    for share in SHARES:
        limit = int(share * plain)
        marked = fx.trace(fx.value_and_grad(fx.remat(f, budget=limit)), ws, X)
        held = []
        for lean in (fx.lower(program).compile(budget=limit), fx.lower(marked).compile()):
            held.append(bytes_of(lean))
            for a, b in zip(fx.tree.leaves(lean(ws, X)), value, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5)
        assert max(held) <= limit
        assert all([now <= then for now, then in zip(held, before, strict=True)])
        before = held


def test_the_budget_of_a_jitted_function_holds_in_a_trace_and_in_an_exported_program() -> None:
    ws, g = parameters(12), fx.grad(layers)
    limit = bytes_of(fx.jit(g).lower(ws, X).compile()) // 2
    exported = fx.jit(g, budget=limit).lower(ws, X).export()
    outer = fx.jit(fx.grad(fx.jit(layers, budget=limit))).lower(ws, X).compile()
    for executable in (fx.load_exported(exported), outer):
        assert bytes_of(executable) <= limit


def test_what_nothing_fits_into_and_what_is_no_number_of_bytes_is_refused() -> None:
    program = fx.trace(fx.grad(layers), parameters(4), X)
    with pytest.raises(ParameterError) as caught:
        fx.lower(program).compile(budget=100)
    assert caught.value.message.startswith(
        "compile of grad_layers: no plan fits into 100 bytes of temporaries: the least that was reached is "
    )
    assert caught.value.remedy.startswith("give a larger budget, or make these values smaller: ")
    assert "f32[32,64] (" in caught.value.remedy
    least = int(caught.value.message.rpartition(" is ")[2].partition(" bytes")[0].replace(",", ""))
    assert bytes_of(fx.lower(program).compile(budget=least)) == least
    for what, call in (
        ("compile of grad_layers", lambda: fx.lower(program).compile(budget="a lot")),
        ("jit", lambda: fx.jit(layers, budget="a lot")),
        ("remat", lambda: fx.remat(layers, budget="a lot")),
    ):
        with pytest.raises(ArgumentError) as refused:
            call()
        assert refused.value.message == f"{what}: the budget is a str, not a number of bytes: 'a lot'"
        assert refused.value.remedy == 'give an int >= 0, or a text such as "64 MiB" or "1.5 GB"'


def test_jit_keeps_to_a_budget() -> None:
    ws = parameters(12)
    x = fnp.asarray(X)
    limit = bytes_of(fx.lower(fx.trace(fx.grad(layers), ws, X)).compile()) // 3
    run: Any = fx.jit(fx.grad(layers), budget=limit)
    for a, b in zip(run(ws, x), fx.grad(layers)(ws, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)
    assert bytes_of(run.lower(ws, x).compile()) <= limit
    assert bytes_of(fx.jit(fx.trace(fx.grad(layers), ws, X), budget=limit)) <= limit
    with pytest.raises(ParameterError, match="compile of grad_layers: no plan fits into 9 bytes of temporaries"):
        fx.jit(fx.grad(layers), budget=9)(ws, x)


SHARED: dict[str, Any] = {"ws": parameters(12), "x": np.concatenate([X] * 8), "xs": np.stack([X, 2 * X])}


def in_grad_of_both(f: Any) -> tuple[Any, tuple[Any, ...], Any]:
    return fx.grad(f, argnums=(0, 1)), (SHARED["ws"], SHARED["x"]), ()


def in_map(f: Any) -> tuple[Any, tuple[Any, ...], Any]:
    return fx.vmap(fx.grad(f), (None, 0)), (SHARED["ws"], SHARED["xs"]), ()


def in_training_step(f: Any) -> tuple[Any, tuple[Any, ...], Any]:
    optimiser = optim.adam(1e-3)

    def step(ws: Any, state: Any, x: Any) -> Any:
        value, gradient = fx.value_and_grad(lambda ws: f(ws, x) + fnp.sum(fnp.cos(ws[0])))(ws)
        updates, state = optimiser.update(gradient, state, ws)
        return optim.apply_updates(ws, updates), state, value

    return step, (SHARED["ws"], optimiser.init(SHARED["ws"]), SHARED["x"]), ("ws", "state")


def in_branch(f: Any) -> tuple[Any, tuple[Any, ...], Any]:
    def either(ws: Any, x: Any) -> Any:
        return lax.cond(fnp.sum(x) > 0, lambda: f(ws, x), lambda: fnp.sum(x))

    return fx.value_and_grad(either), (SHARED["ws"], SHARED["x"]), ()


@pytest.mark.parametrize("within", [in_grad_of_both, in_map, in_training_step, in_branch])
def test_remat_gives_its_budget_to_what_it_becomes_part_of(within: Any) -> None:
    whole, args, donate = within(layers)
    plain: Any = fx.lower(fx.trace(whole, *args)).compile(donate=donate)
    limit = int(0.6 * bytes_of(plain))
    lean: Any = fx.lower(fx.trace(within(fx.remat(layers, budget=limit))[0], *args)).compile(donate=donate)
    assert bytes_of(lean) <= limit

    def results(run: Any) -> list[Any]:
        return fx.tree.leaves(run(*fx.tree.map(lambda a: fnp.asarray(np.array(a)), args)))

    for a, b in zip(results(lean), results(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_an_optimiser_updates_a_parameter_as_soon_as_its_gradient_is_there() -> None:
    """So a budget may be less than the bytes of all gradients, which the step as it is written holds at its end."""
    whole, args, _ = in_training_step(layers)
    program = fx.trace(whole, *args)
    gradients = W.nbytes * len(SHARED["ws"])

    def held(jaxpr: Jaxpr) -> int:
        """The most bytes of matrices that are computed, and read later."""
        last = {a: k for k, e in enumerate(jaxpr.eqns) for a in e.ins}
        spans = [(k, last.get(v, k)) for k, e in enumerate(jaxpr.eqns) for v in e.outs if v.aval.shape == W.shape]
        return W.nbytes * max([len([1 for start, end in spans if start < k < end]) for k in range(len(jaxpr.eqns))])

    flat = flat_program(program.jaxpr)
    assert held(fx.inline(program).jaxpr) >= gradients
    assert held(flat) <= 6 * W.nbytes


def test_a_mark_of_a_budget_stays_through_transformations_and_text() -> None:
    def total(x: Any) -> Any:
        return fnp.sum(fnp.sin(x))

    f: Any = fx.remat(total, budget="1 kB")
    program: Any = fx.trace(f, X)
    for marked in (
        program,
        fx.grad(program),
        fx.trace(fx.vmap(fx.grad(f)), np.stack([X, X])),
        fx.simplify(fx.dce(fx.cse(fx.grad(program)))),
    ):
        assert "budget[limit=1000]" in marked.text()
        assert fx.text.parse(marked.text()) is marked.jaxpr
    assert least_budget(fx.grad(program).jaxpr) == 1000
    assert least_budget(without_budgets(program.jaxpr)) is None


def small(name: str, sizes: tuple[int, ...]) -> tuple[Any, tuple[Any, ...]]:
    pytest.importorskip("jax")  # the networks of the benchmarks are written for both libraries
    blocks = import_module("benchmarks.models.blocks")
    ours = import_module("benchmarks.models.library").OURS
    network, way = getattr(blocks, name)(*sizes), blocks.Way()
    if network.xs is None:
        return lambda layers, x: network.loss(ours, way, layers, x, None), (network.layers, network.start)
    return lambda layers, xs: network.loss(ours, way, layers, network.start, xs), (network.layers, network.xs)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        pytest.param("transformer", (6, 32, 2, 16, 8), marks=pytest.mark.deep),
        pytest.param("convolutional", (8, 8, 12, 8), marks=pytest.mark.deep),
        ("recurrent", (300, 16, 16)),
    ],
    ids=("transformer", "conv", "rnn"),
)
def test_networks_keep_to_budgets(name: str, sizes: tuple[int, ...]) -> None:
    f, args = small(name, sizes)
    plain = bytes_of(fx.lower(fx.trace(fx.value_and_grad(f), *args)).compile())
    before = plain
    for share in SHARES:
        limit = int(share * plain)
        held = bytes_of(fx.lower(fx.trace(fx.value_and_grad(fx.remat(f, budget=limit)), *args)).compile())
        assert held <= min(limit, before)
        before = held
