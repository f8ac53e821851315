"""Rounding errors by equation: within a factor of ten of the true error on kernels that lose digits, and in bodies.

Deeply, 20 arguments of each kernel: python -m pytest -m deep tests/precision/test_rounding_errors.py
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, scipy
from fxad.core.interpreter import run
from fxad.ir import HigherOrder, Jaxpr
from fxad.testing.precision_laws import interpreted_table
from fxad.transforms.precision.rounding import weighted_errors
from fxad.transforms.precision.taps import SumRequest
from tests.precision.kernels import KERNELS, InArrays, InMpmath, Kernel

SCALAR = fx.Spec((), "float32")
FACTOR = 10.0
NEARLY_ALL = 0.95
OF_AN_ULP = 0.05  # an error below this part of a unit in the last place is none


def measured(kernel: Kernel, dtype: str, n: int) -> tuple[int, list[str]]:
    """Returns the number of tables that are within the factor, and the others in words. The shadow run must find the
    error itself, to two digits."""
    in_arrays, in_mpmath = InArrays(dtype), InMpmath(dtype)
    program = fx.trace(lambda *args: kernel.f(in_arrays, *args), *[fx.Spec((), dtype)] * len(kernel.ranges))
    good, wrong = 0, []
    for args in kernel.arguments(n, dtype):
        (y,) = run(program.jaxpr, args)
        with mpmath.workprec(300):
            exact = kernel.f(in_mpmath, *[mpmath.mpf(float(a)) for a in args])
            error = abs(float(exact - mpmath.mpf(float(y))))
        ulp = abs(float(np.spacing(y)))
        shadow = fx.shadow(program, *args)
        assert abs(shadow.error - error) <= 0.02 * error + 1e-6 * ulp, (kernel.name, args, shadow.error, error)
        table = interpreted_table(program.jaxpr, args)
        if error / FACTOR <= table.error <= error * FACTOR or max(error, table.error) < OF_AN_ULP * ulp:
            good += 1
        else:
            wrong.append(f"{kernel.name}{tuple(map(float, args))} in {dtype}: {table.error:.3g}, true {error:.3g}")
    return good, wrong


@pytest.mark.parametrize(("dtype", "every"), [("float32", 1), ("float64", 3)])
def test_tables_of_kernels_are_within_a_factor_of_ten(dtype: str, every: int) -> None:
    found = [measured(kernel, dtype, 1) for kernel in KERNELS[::every]]
    wrong = [text for _, texts in found for text in texts]
    assert len(wrong) <= (1 - NEARLY_ALL) * len(found), wrong


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tables_of_kernels_at_many_arguments(dtype: str) -> None:
    found = [measured(kernel, dtype, 20) for kernel in KERNELS]
    wrong = [text for _, texts in found for text in texts]
    assert len(wrong) <= (1 - NEARLY_ALL) * 20 * len(KERNELS), wrong


def cancelling(b: Any) -> Any:
    root = fnp.sqrt(b * b - 4)
    return root - b


def test_the_compiled_table_is_the_interpreted_one() -> None:
    program = fx.trace(cancelling, SCALAR)
    table = fx.rounding_errors(program, 1000.0)
    interpreted = interpreted_table(program.jaxpr, [np.asarray(1000.0, np.float32)])
    assert [row.path for row in table] == [row.path for row in interpreted]
    assert table.error == pytest.approx(interpreted.error, rel=0.05)
    # error = exact result - result of the program, signed
    exact = -4 / (np.sqrt(1e6 - 4) + 1000)
    computed = float(fx.interpret(program, 1000.0))
    assert sum([row.signed for row in table]) == pytest.approx(exact - computed, rel=0.01)


def test_rows_name_lines_and_causes() -> None:
    table = fx.rounding_errors(fx.trace(cancelling, SCALAR), 1000.0)
    worst = table.worst[0]
    assert (worst.primitive, worst.dtype, worst.inside) == ("sqrt", "float32", ())
    line = cancelling.__code__.co_firstlineno + 1
    assert worst.line is not None
    assert worst.line.line == line
    assert worst.where == worst.line
    (cancelled,) = [row for row in table if row.causes]
    assert (cancelled.primitive, cancelled.causes) == ("sub", ("cancellation of 6 digits",))
    assert cancelled.digits == pytest.approx(np.log10(1000 / 0.002), abs=0.5)
    by_line = table.by_line()
    assert by_line[0][0] == worst.line
    assert by_line[0][1] == pytest.approx(worst.error)
    text = str(table)
    assert "sqrt" in text
    assert "cancellation of 6 digits" in text
    assert "of the results" in text
    assert "<table>" in table._repr_html_()
    assert table[0] is table.rows[0]
    assert list(table[0:1]) == list(table.rows[0:1])
    assert len(table) == len(table.rows)
    assert table.relative == pytest.approx(table.error / table.size)


def in_bodies(x: Any) -> Any:
    """A loop, an unbounded loop, a branch, a recomputation, a function with a rule, and a call."""

    @fx.custom_jvp
    def squared(x: Any) -> Any:
        return x * x * 1.1

    @squared.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return squared(*primals), 2.2 * primals[0] * tangents[0]

    def step(c: Any, x: Any) -> Any:
        return c * 0.99 + fnp.sin(x), fnp.exp(c)

    c, ys = lax.scan(step, x[0], x)
    c = lax.while_loop(lambda c: c > 0.5, lambda c: c * 0.9, c)
    c = lax.cond(c > 0, lambda c: c * 3.3, lambda c: c / 1.1, c)
    c = fx.remat(lambda c: fnp.tanh(c) * 1.7)(c)
    return squared(c) + fx.jit(fnp.sum)(fnp.log(ys))


X = np.linspace(0.1, 1.3, 20, dtype=np.float32)


def test_errors_in_bodies_add_up_to_the_error_of_the_shadow_run() -> None:
    program = fx.trace(in_bodies, fx.Spec((20,), "float32"))
    table = interpreted_table(program.jaxpr, [X])
    found = fx.shadow(program, X)
    assert table.error == pytest.approx(found.error, rel=0.02)
    labels = {label for row in table for label in row.inside}
    for of in ("scan", "while", "cond", "remat", "call"):
        assert any([of in label for label in labels]), (of, labels)
    assert [row.error for row in table if "branch 0 of cond" in row.inside] == [0.0]  # it does not run


@pytest.mark.parametrize("transform", [fx.grad, lambda f: fx.vmap(f), lambda f: fx.jit(fx.grad(f))])
def test_transformed_programs_have_tables(transform: Any) -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.sin(x) * fnp.exp(x) - 1.0)

    x = X[:6].reshape(2, 3)
    program = fx.trace(transform(f), fx.asarray(x))
    table, found = interpreted_table(program.jaxpr, [x]), fx.shadow(program, x)
    assert found.error / FACTOR <= table.error <= found.error * FACTOR


def test_a_map_over_devices_has_a_table() -> None:
    mesh = fx.make_mesh((1,), ("i",), devices=fx.devices()[:1])
    mapped = fx.shard_map(lambda x: lax.psum(fnp.sin(x) * 1.1, "i"), mesh=mesh, in_specs=fx.P("i"), out_specs=fx.P())
    program = fx.trace(lambda x: fnp.sum(mapped(x)), fx.Spec((4,), "float32"))
    table, found = fx.rounding_errors(program, X[:4]), fx.shadow(program, X[:4])
    assert {"sin", "mul"} <= {row.primitive for row in table}
    assert found.error / FACTOR <= table.error <= found.error * FACTOR


def test_complex_results_have_errors() -> None:
    program = fx.trace(lambda z: fnp.exp(z) * z - 1.0, fx.Spec((5,), "complex64"))
    z = (X[:5] + 1j * X[5:10]).astype(np.complex64)
    table, found = interpreted_table(program.jaxpr, [z]), fx.shadow(program, z)
    assert found.error / FACTOR <= table.error <= found.error * FACTOR


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_programs_are_measured_as_written(dtype: str) -> None:
    """XLA may compute a chain of bfloat16 operations in float32; the table is compiled without that."""
    program = fx.trace(lambda x: fnp.sin(x) * x - x, fx.Spec((), dtype))
    table, found = fx.rounding_errors(program, 0.7), fx.shadow(program, 0.7)
    assert found.error / FACTOR <= table.error <= found.error * FACTOR
    assert table.relative > 1e-4


def vanishing(x: Any) -> Any:
    return x * x * 1e30


def bessel_minus_one(x: Any) -> Any:
    return scipy.special.i0e(x) - 1.0


def test_overflow_and_underflow_are_named() -> None:
    program = fx.trace(lambda x: fnp.log(fnp.exp(x)), SCALAR)
    table, found = fx.rounding_errors(program, 100.0), fx.shadow(program, 100.0)
    assert ("exp", ("overflow",)) in [(r.primitive, r.causes) for r in found]
    assert table.error == np.inf
    assert "overflow" in str(table)
    assert ("exp", ("overflow",)) in [(r.primitive, r.causes) for r in table]
    tiny = fx.shadow(fx.trace(vanishing, SCALAR), 1e-30)
    assert [r.causes for r in tiny if r.causes] == [("underflow",)]


def test_an_infinite_derivative_is_no_overflow() -> None:
    def root(x: fx.Array) -> fx.Array:
        return fnp.sqrt(x * x - x * x)

    def oscillating(x: fx.Array) -> fx.Array:
        return fnp.sin(1 / x)

    table = fx.rounding_errors(fx.trace(root, SCALAR), 1.1)
    assert table.error == np.inf
    assert {r.causes for r in table if r.primitive in ("mul", "sub")} == {("infinite derivative",)}
    infinite = fx.rounding_errors(fx.trace(oscillating, SCALAR), 0.0)
    assert ("div", ("not finite",)) in [(r.primitive, r.causes) for r in infinite]


@pytest.mark.parametrize(("dtype", "x"), [("float32", 1e25), ("float16", 1e3)])
def test_an_overflow_that_ends_in_a_finite_result_is_named(dtype: str, x: float) -> None:
    """The derivative of 1 / y by an infinite y is 0, so the adjoint says that its error does not matter."""
    program = fx.trace(lambda x: x / (x * x), fx.Spec((), dtype))
    table = fx.rounding_errors(program, np.asarray(x, dtype))
    assert table.error == np.inf
    assert ("mul", ("overflow",)) in [(r.primitive, r.causes) for r in table]
    harmless = fx.trace(lambda x: 1.0 - 1 / (1 + x * x), fx.Spec((), dtype))
    table = fx.rounding_errors(harmless, np.asarray(x, dtype))
    assert table.relative < 1e-2
    assert not [r.causes for r in table if "overflow" in r.causes]


def test_an_overflow_that_no_result_reads_is_none() -> None:
    program = fx.trace(lambda x: fnp.where(x > 50, x * 1.1, fnp.exp(x)), SCALAR)
    table = fx.rounding_errors(program, 100.0)
    assert table.error < 1e-4
    assert not any([row.causes for row in table])


def test_digits_lost_inside_a_sum_are_named() -> None:
    large = np.random.default_rng(0).normal(size=500).astype(np.float32) * 1e6
    x = np.concatenate([large, -large[::-1], np.ones(3, np.float32)])
    table = interpreted_table(fx.trace(fnp.sum, fx.Spec(x.shape, "float32")).jaxpr, [x])
    (row,) = table
    assert row.primitive == "reduce_sum"
    assert "lost inside" in row.causes[0], row


def test_an_exact_program_has_no_error() -> None:
    program = fx.trace(lambda x: fnp.max(-x[::-1].reshape(2, 2) * 2.0), fx.Spec((4,), "float32"))
    table = fx.rounding_errors(program, X[:4])
    assert len(table) == 0
    assert table.error == 0
    assert table.relative == 0


def test_a_call_of_the_host_is_not_measured() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fx.pure_callback(np.sin, fx.Spec((), "float32"), x)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return f(*primals), fnp.cos(primals[0]) * tangents[0]

    def scaled(x: Any) -> Any:
        return f(x) * 1.1

    table = fx.rounding_errors(fx.trace(scaled, SCALAR), 0.5)
    unknown = [row for row in table if row.causes == ("not measured",)]
    assert len(unknown) == 1
    assert np.isnan(unknown[0].error)
    assert 0 < table.error < 1e-6
    assert "without 1 unknown" in repr(table)


def test_a_solver_is_one_equation() -> None:
    """The error of a solver is that of its result, not those of its steps."""
    a = np.diag(np.arange(1.0, 5.0)).astype(np.float32)
    program = fx.trace(lambda b: fnp.sum(lax.custom_linear_solve(
        lambda x: fnp.asarray(a) @ x, b, lambda matvec, b: b / fnp.arange(1.0, 5.0), symmetric=True
    )), fx.Spec((4,), "float32"))  # fmt: skip
    table = interpreted_table(program.jaxpr, [*[np.asarray(x) for x in program.bound], X[:4]])
    assert "linear_solve" in {row.primitive for row in table}


def hilbert_system(b: Any) -> Any:
    n = fnp.arange(5.0, dtype=b.dtype)
    return fnp.sum(fnp.linalg.solve(1.0 / (n[:, None] + n + 1.0), b))


def log_determinant(b: Any) -> Any:
    return fnp.linalg.slogdet(fnp.outer(b, b) + fnp.eye(5, dtype=b.dtype))[1]


@pytest.mark.parametrize("f", [hilbert_system, log_determinant])
def test_factors_of_a_matrix_take_part_in_the_error_of_its_solver(f: Any) -> None:
    """The derivative of a solver is by the matrix, and not by its factors; the factors have errors too."""
    b = X[:5]
    program = fx.trace(f, fx.Spec((5,), "float32"))
    table, found = interpreted_table(program.jaxpr, [b]), fx.shadow(program, b)
    exact = float(fx.interpret(fx.trace(f, fx.Spec((5,), "float64")), b.astype(np.float64)))
    error = abs(exact - float(fx.interpret(program, b)))
    assert found.error == pytest.approx(error, rel=0.1)
    assert error / FACTOR <= table.error <= error * FACTOR


def test_errors_behind_stop_gradient_count() -> None:
    def shifted(x: Any) -> Any:
        return fnp.sum(x) + fx.jit(fx.stop_gradient)(fnp.sum(fnp.sin(x) * 1e4))

    program = fx.trace(shifted, fx.Spec((6,), "float32"))
    table, found = interpreted_table(program.jaxpr, [X[:6]]), fx.shadow(program, X[:6])
    assert table.error == pytest.approx(found.error, rel=0.05)
    assert not table.stopped

    def stepped(x: Any) -> Any:
        return fnp.sum(x * 1.1) + fnp.sum(fnp.nextafter(fx.stop_gradient(x * 1.1), x))

    table = fx.rounding_errors(fx.trace(stepped, fx.Spec((6,), "float32")), X[:6])
    assert table.stopped
    assert "without those behind stop_gradient" in repr(table)


def test_equations_of_equal_bodies_are_rows_of_each_use() -> None:
    layer = fx.jit(lambda x: fnp.sin(x) * 1.1)
    table = interpreted_table(fx.trace(lambda x: layer(layer(x)), SCALAR).jaxpr, [np.asarray(0.4, np.float32)])
    assert [row.path for row in table] == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]


def test_the_program_is_unchanged_and_the_pass_is_made_once() -> None:
    program = fx.trace(cancelling, SCALAR)
    before: Jaxpr = program.jaxpr
    first, second = fx.rounding_errors(program, 3.0), fx.rounding_errors(program, 4.0)
    assert program.jaxpr is before
    assert first.jaxpr is second.jaxpr is before
    misses = fx.cache.stats().misses
    fx.rounding_errors(program, 5.0)
    assert fx.cache.stats().misses == misses


def test_a_shadow_run_in_double_double_finds_errors_of_float64() -> None:
    program = fx.trace(cancelling, fx.Spec((), "float64"))
    found = fx.shadow(program, 1000.0)
    with mpmath.workprec(200):
        exact = mpmath.sqrt(mpmath.mpf(1000) ** 2 - 4) - 1000 - mpmath.mpf(float(fx.interpret(program, 1000.0)))
    assert found.error == pytest.approx(abs(float(exact)), rel=1e-6)
    assert found.approximate == ()
    assert "sub" in str(found)
    assert "<table>" in found._repr_html_()
    assert found.relative == pytest.approx(found.error / found.size)
    (cancelled,) = [row for row in found if row.causes]
    assert cancelled.line is not None
    assert "cancellation" in cancelled.causes[0]
    bessel = fx.shadow(fx.trace(bessel_minus_one, fx.Spec((), "float64")), 0.5)
    assert bessel.approximate
    assert "in 64 bits:" in str(bessel)


def test_an_absolute_value_of_zero_passes_errors_on() -> None:
    """The difference cancels to 0, where the derivative of abs is 0: the error of the results is that of the root."""

    def root(b: Any, c: Any) -> Any:
        return fnp.log(fnp.abs(fnp.sqrt(b * b - 4 * c) - b) / 2 + 1e-4)

    b, c = np.float32(12345.6), np.float32(0.7)
    table = fx.rounding_errors(fx.trace(root, b, c), b, c)
    wide = float(root(np.float64(b), np.float64(c)))
    true = abs(float(root(b, c)) - wide) / abs(wide)
    assert true > 1e-3
    assert true / 10 < table.relative < 10 * true
    assert any("cancellation" in cause for r in table for cause in map(str, r.causes))


def test_one_adjoint_pass() -> None:
    """Each product runs forward, once more in float64, and once in the adjoint, which has no products for the weights:
    fewer than the gradient has."""

    def network(w: Any, x: Any) -> Any:
        for k in range(4):
            x = fnp.tanh(x @ w[k])
        return fnp.sum(x * x)

    program = fx.trace(network, fx.Spec((4, 8, 8), np.float32), fx.Spec((4, 8), np.float32))

    def products(jaxpr: fx.Jaxpr) -> int:
        inner = [products(body) for prim in jaxpr.prims if isinstance(prim, HigherOrder) for body in prim.bodies]
        return sum(inner) + sum(prim.name == "dot_general" for prim in jaxpr.prims)

    assert products(fx.grad(program, argnums=(0, 1)).jaxpr) == 12
    assert products(weighted_errors(program.jaxpr, SumRequest(squares=False))) == 11
