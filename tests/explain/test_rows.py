"""The rows of a page: they sum to what XLA reports, and almost all of them have a line of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from benchmarks.models.adbench import bundle, lstm, mixture
from benchmarks.models.dynamics import bodies
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import mlp, residual, rnn, transformer, transformer_block
from fxad import lax
from tests.processes import run_python


def gradient(model: Model) -> Any:
    program = fx.trace(lambda p, x, y: model.loss(OURS, p, x, y), model.params, model.x, model.y)
    return fx.lower(fx.value_and_grad(program)).compile()


def check_rows(executable: Any) -> Any:
    """The rows of memory sum to the temporaries, and 95 % of the bytes and flops have a line of a user's file."""
    page = fx.explain(executable)
    assert sum(r.bytes for r in page.memory) == executable.memory().temp_bytes
    size = sum(r.bytes for r in page.memory if r.bytes > 0)
    known = sum(r.bytes for r in page.memory if r.bytes > 0 and r.line is not None)
    assert known >= 0.95 * size, [(r.bytes, r.reason) for r in page.memory if r.line is None]
    flops = sum(r.flops for r in page.time)
    assert sum(r.flops for r in page.time if r.line is not None) >= 0.95 * flops
    assert {r.reason for r in page.time} <= {"estimated"}
    assert not any(r.line is not None and "/fxad/fxad/" in r.line.file for r in page.memory)
    assert len(page.html().encode()) <= 2**20
    return page


SMALL: tuple[Callable[[], Model], ...] = (
    lambda: mlp(layers=6, width=64, batch=64),
    lambda: rnn(steps=20, hidden=32, batch=16, scanned=True),
    lambda: bodies(steps=10, count=32),
)
BENCHMARKS: tuple[Callable[[], Model], ...] = (
    mlp, transformer_block, transformer, rnn, lambda: rnn(1000, scanned=True), mixture, bundle, lstm, bodies, residual,
)  # fmt: skip


@pytest.mark.parametrize("make", SMALL, ids=["mlp", "rnn in scan", "n-body"])
def test_rows_of_a_gradient_add_up(make: Callable[[], Model]) -> None:
    check_rows(gradient(make()))


@pytest.mark.deep
@pytest.mark.parametrize("make", BENCHMARKS, ids=lambda make: make.__name__)
def test_rows_of_benchmark_models_add_up(make: Callable[[], Model]) -> None:
    """`python -m pytest -m deep tests/explain/test_rows.py`: half a minute."""
    check_rows(gradient(make()))


def test_rows_of_a_helper_name_the_lines_that_call_it() -> None:
    def helper(x: Any) -> Any:
        return fnp.sin(x)

    def inner(x: Any, _: Any) -> tuple[Any, None]:
        return helper(helper(x)), None

    def calling(x: Any) -> Any:
        y = helper(x)
        return lax.scan(inner, y, None, length=3)[0]

    page = fx.explain(fx.trace(calling, fx.Spec((64, 64), np.float32)))
    first = helper.__code__.co_firstlineno
    rows = [r for r in page.time if r.line is not None and r.line.line == first + 1]
    called = {(line.line - first, r.runs): share for r in rows for line, share in r.callers}
    assert called == {(4, 3): 1.0, (7, 1): 1.0}
    assert f"test_rows.py:{first + 1} in helper" in page.text()
    assert f"test_rows.py:{first + 4} in inner 86 %, test_rows.py:{first + 7} in calling 14 %" in page.text()


def network(w: Any, x: Any) -> Any:
    for _ in range(4):
        x = fx.remat(lambda x: fnp.tanh(x @ w))(x)
    return fnp.sum(x * x)


def test_rows_of_vmap_of_a_gradient_of_remat_add_up() -> None:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(32, 32)).astype(np.float32), rng.normal(size=(8, 16, 32)).astype(np.float32)
    program = fx.trace(fx.vmap(fx.grad(network), in_axes=(None, 0)), w, x)
    page = check_rows(fx.lower(program).compile())
    assert any("computed again for the derivative, by remat" in r.reason for r in page.memory)


def test_rows_of_units_add_up() -> None:
    """A program of several executables: values wait between them, and the rest may be negative."""
    program = fx.grad(fx.trace(network, fx.Spec((32, 32), np.float32), fx.Spec((16, 32), np.float32)))
    outlined = fx.outline(program)
    executable: Any = fx.lower(outlined, units=lambda body: len(body.eqns) > 1).compile()
    page = fx.explain(executable)
    assert sum(r.bytes for r in page.memory) == executable.memory().temp_bytes
    assert len(executable.parts) == len(executable.lowered.units.units)
    assert "Units" in page.html()


def test_values_of_a_loop_have_the_line_that_computes_them() -> None:
    def rolled(w: Any, x: Any) -> Any:
        def step(x: Any, _: Any) -> tuple[Any, None]:
            return fnp.tanh(x @ w), None

        return fnp.sum(lax.scan(step, x, None, length=50)[0])

    program = fx.grad(fx.trace(rolled, fx.Spec((16, 16), np.float32), fx.Spec((8, 16), np.float32)))
    page = check_rows(fx.lower(program).compile())
    stacked = [r for r in page.memory if r.bytes == 50 * 8 * 16 * 4 and not r.reason.startswith("not in use")]
    assert len(stacked) == 2
    for row in stacked:
        assert row.line is not None
        assert row.line.line == rolled.__code__.co_firstlineno + 2
        assert row.reason.startswith("a residual: stored until the derivative of test_rows.py:")


def test_a_policy_is_the_reason() -> None:
    def kept(w: Any, x: Any) -> Any:
        def layer(x: Any) -> Any:
            return fnp.tanh(fx.checkpoint_name(x @ w, "product"))

        for _ in range(3):
            x = fx.checkpoint(layer, policy=fx.ad_checkpoint.checkpoint_policies.save_only_these_names("product"))(x)
        return fnp.sum(x)

    program = fx.grad(fx.trace(kept, fx.Spec((32, 32), np.float32), fx.Spec((16, 32), np.float32)))
    reasons = {r.reason for r in check_rows(fx.lower(program).compile()).memory}
    assert any(r.startswith("stored: policy ") and "product" in r for r in reasons), reasons


def test_rows_of_an_imported_program_have_its_lines() -> None:
    jnp = pytest.importorskip("jax.numpy")
    from_jax = pytest.importorskip("fxad.interop.jax").from_jax

    def imported(w: Any, x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ w)
        return (x * x).sum()

    spec = fx.Spec((32, 32), np.float32), fx.Spec((16, 32), np.float32)
    program = from_jax(imported, *spec)
    page = check_rows(fx.lower(fx.grad(program)).compile())
    first = imported.__code__.co_firstlineno
    assert {r.line.line for r in page.memory if r.line is not None} <= {first + 2, first + 3}


def branches(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: fnp.sin(x) @ x, lambda x: fnp.cos(x) @ x @ x, x)


def nested_loops(x: Any) -> Any:
    def outer(c: Any, _: Any) -> tuple[Any, Any]:
        return lax.scan(lambda d, _: (fnp.sin(d @ x), None), c, None, length=4)[0], c.sum()

    return lax.scan(outer, x, None, length=3)[0].sum()


def unbounded(x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 10, lambda c: fnp.tanh(c @ c) + 1, x)


def with_library(x: Any) -> Any:
    return fnp.linalg.cholesky(x @ x.T + 8 * fnp.eye(32)).sum()


def without_equations(x: Any) -> Any:
    return x


PROGRAMS: tuple[Callable[[Any], Any], ...] = (
    branches, fx.grad(nested_loops), unbounded, fx.grad(with_library), without_equations,
)  # fmt: skip


@pytest.mark.parametrize("f", PROGRAMS, ids=["cond", "nested scans", "while", "cholesky", "no equations"])
def test_rows_of_programs_with_bodies_add_up(f: Callable[[Any], Any]) -> None:
    check_rows(fx.lower(fx.trace(f, fx.Spec((32, 32), np.float32))).compile())


def test_rows_of_a_program_on_several_devices_add_up() -> None:
    code = """
import numpy as np, fxad as fx, fxad.numpy as fnp
from fxad import lax
fx.set_cpu_devices(2)
mesh = fx.make_mesh((2,), ("i",))
f = fx.shard_map(lambda x: lax.psum(fnp.tanh(x @ x.T), "i"), mesh=mesh, in_specs=fx.P("i"), out_specs=fx.P())
executable = fx.lower(fx.trace(f, fx.Spec((16, 8), np.float32))).compile()
page = fx.explain(executable)
print(sum([r.bytes for r in page.memory]) == executable.memory().temp_bytes, len(page.html()) > 1000)
"""
    assert run_python(code).split() == ["True", "True"]
