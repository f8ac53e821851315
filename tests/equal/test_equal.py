"""`fx.equal`: what is proved, what is refuted, and what is not decided."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import pytest

import fxad as fx
import fxad.lax as lax
import fxad.numpy as fnp
from fxad import extend as ex
from fxad.diagnosis.equality import differences
from fxad.diagnosis.equality.field import PrimeFields
from fxad.diagnosis.equality.verdict import Question
from fxad.errors import ArgumentError, DTypeError, ShapeError, SizeError, TreeError
from fxad.primitives.elementwise import ConvertElementType
from fxad.primitives.host_call import HostCall
from fxad.primitives.shape import Reshape, Rev
from tests.equal.twins import twins

X = fx.Spec((3,), "float32")
WIDE = fx.Spec((3,), "float64")
MATRIX = fx.Spec((3, 3), "float64")
COMPLEX = fx.Spec((2,), "complex128")
INTEGER = fx.Spec((), "int32")
TWO = fx.trace(lambda x, y: x, X, X)
UNSIGNED = fx.Spec((2,), "uint8")
MANY = fx.Spec((40,), "float64")
Verdict = fx.Proof | fx.Counterexample | fx.Unknown


def verdict(f: Callable[..., Any], g: Callable[..., Any], *specs: fx.Spec, **options: Any) -> Verdict:
    return fx.equal(fx.trace(f, *specs), fx.trace(g, *specs), **options)


def to(dtype: str) -> ConvertElementType:
    return ConvertElementType(np.dtype(dtype))


f_sin, f_cos = fnp.sin, fnp.cos


def energy(x: Any) -> Any:
    return fnp.sum(x * fnp.exp(2 * x))


PROVED: dict[str, tuple[Any, ...]] = {
    "polynomials": (lambda x, y: (x + y) * (x - y), lambda x, y: x * x - y * y, X, X),
    "quotients": (lambda x, y: x / y, lambda x, y: 1 / (y / x), X, X),
    "a sum of quotients": (lambda x, y: 1 / x + 1 / y, lambda x, y: (x + y) / (x * y), X, X),
    "equal arguments": (lambda x: fnp.exp(x * (x + 1)), lambda x: fnp.exp(x + x * x), X),
    "odd and even functions": (lambda x: fnp.sin(-x) * fnp.cos(-x), lambda x: -(fnp.cos(x) * fnp.sin(x)), X),
    "definitions": (lambda x: lax.rsqrt(x) + fnp.expm1(x), lambda x: 1 / fnp.sqrt(x) - 1 + fnp.exp(x), X),
    "squares": (lambda x: x**2 + x**-1, lambda x: x * x + 1 / x, X),
    "a product of matrices": (lambda x, y: (x @ y).T, lambda x, y: y.T @ x.T, MATRIX, MATRIX),
    "sums in any order": (lambda x: fnp.sum(fnp.sum(x, 1)), lambda x: fnp.sum(x.T.reshape(-1)[::-1]), MATRIX),
    "cumulative sums": (lambda x: fnp.cumsum(x)[-1], fnp.sum, X),
    "the largest in any order": (lambda x: fnp.max(x), lambda x: fnp.maximum(x[2], fnp.maximum(x[1], x[0])), X),
    "max and min": (lambda x, y: fnp.maximum(x, y), lambda x, y: -fnp.minimum(-y, -x), X, X),
    "a maximum taken twice": (lambda x: fnp.maximum(fnp.maximum(x, 0), 0), lambda x: fnp.maximum(0, x), X),
    "operands of two maxima": (
        lambda x, y: fnp.maximum(fnp.maximum(x, y), fnp.maximum(y, fnp.maximum(0, x))),
        lambda x, y: fnp.maximum(fnp.maximum(0, y), x),
        X,
        X,
    ),
    "a comparison": (lambda x, y: fnp.where(x < y, x, y), lambda x, y: fnp.where(x >= y, y, x), X, X),
    "a mask as a factor": (lambda x: fnp.where(x > 0, x, 0), lambda x: x * (x > 0), X),
    "logic": (lambda x, y: ~((x > 0) & (y > 0)), lambda x, y: (y <= 0) | (x <= 0), X, X),
    "a branch": (lambda x: lax.cond(x[0] > 0, f_sin, f_cos, x), lambda x: fnp.where(x[0] > 0, f_sin(x), f_cos(x)), X),
    "complex products": (lambda z, w: fnp.conj(z * w + 1), lambda z, w: 1 + w.conj() * z.conj(), COMPLEX, COMPLEX),
    "complex quotients": (lambda z, w: z / w * fnp.conj(w), lambda z, w: fnp.conj(w) / w * z, COMPLEX, COMPLEX),
    "parts": (lambda z: fnp.real(z) ** 2 + fnp.imag(z) ** 2, lambda z: fnp.real(z * fnp.conj(z)), COMPLEX),
    "a loop": (lambda x: lax.fori_loop(0, 3, lambda k, y: y * x + k, x), lambda x: ((x * x) * x + 1) * x + 2, X),
    "a scan": (lambda x: lax.scan(lambda c, a: (c + a, c * a), 0.0, x)[0], lambda x: fnp.sum(x) * 1.0, X),
    "widths of floats": (lambda x: x.astype("float64").astype("float32") + 1, lambda x: 1 + x, X),
    "conversions of bools": (lambda x: fnp.sum((x > 0).astype("int32")) * x, lambda x: x * fnp.sum(1.0 * (x > 0)), X),
    "padding": (lambda x: (fnp.cos(fnp.pad(x, 1)) - fnp.pad(fnp.cos(x), 1))[0] * x, lambda x: x, X),
    "integers of padding": (lambda x: fnp.pad(x, 1).astype("int32"), lambda x: fnp.pad(x.astype("int32"), 1), X),
    "softmax": (lambda x: fx.nn.softmax(x), lambda x: fnp.exp(x) / fnp.sum(fnp.exp(x)), X),
    "masked scores": (lambda x: fx.nn.softmax(fnp.append(x, -np.inf))[:3], lambda x: fx.nn.softmax(x), X),
    "infinite constants": (lambda x: fnp.maximum(x, -np.inf) + 0 * x, lambda x: x, X),
    "sorted rows": (lambda x: fnp.sort(x.T, 0).T, lambda x: fnp.sort(x, 1), MATRIX),
    "indices": (lambda x: fnp.argmax(x.T, 0), lambda x: fnp.argmax(x, 1), MATRIX),
    "a gather": (lambda x: x[np.array([2, 0])], lambda x: fnp.stack([x[-1], x[0]]), X),
    "a scatter": (lambda x: x.at[np.array([1, 1])].add(x[:2]), lambda x: x.at[1].add(fnp.sum(x[:2])), X),
    "a convolution": (lambda x, y: fnp.convolve(x, y), lambda x, y: fnp.convolve(y, x), X, X),
    "derivatives": (lambda x: fx.grad(energy)(x), lambda x: fnp.exp(2 * x) * (1 + 2 * x), WIDE),
    "diagonals of one matrix": (
        lambda d, b: lax.linalg.tridiagonal_solve(d, d + 3, d, b),
        lambda d, b: lax.linalg.tridiagonal_solve(d, 3 + d, d, b),
        WIDE,
        fx.Spec((3, 1), "float64"),
    ),
    "all integers": (lambda x, n: (n + 1) * (n - 1) * x, lambda x, n: x * (n * n - 1), X, INTEGER),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_equal_programs_are_proved_equal(name: str) -> None:
    f, g, *specs = PROVED[name]
    found = verdict(f, g, *specs)
    assert isinstance(found, fx.Proof), f"{name}: {found}"
    assert found.error >= 60
    assert found


def greatest(x: Any) -> Any:
    return lax.reduce_max(x, axes=(0,))


def least(x: Any) -> Any:
    return lax.reduce_min(x, axes=(0,))


def on_one_device(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    mesh, spec = fx.sharding.Mesh(np.array(fx.devices()[:1]), ("i",)), fx.sharding.PartitionSpec("i")
    return fx.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)


REFUTED: dict[str, tuple[Any, ...]] = {
    "a comparison at a constant that float32 has": (
        lambda x: fnp.where(x > 0.5, 1, 0),
        lambda x: fnp.where(x >= 0.5, 1, 0),
        fx.Spec((4,), "float32"),
    ),
    "a sign": (lambda x, y: x - y, lambda x, y: y - x, X, X),
    "a constant that is off by 1e-12": (lambda x: 0.1 * fnp.sin(x), lambda x: fnp.sin(x) * (0.1 + 1e-13), WIDE),
    "another constant of float32": (lambda x: x * 0.1, lambda x: x * 0.10001, X),
    "an integer of float32": (lambda x: x * 12345, lambda x: x * 12346, X),
    "a fraction of float32": (lambda x: x * 0.25, lambda x: x * (0.25 + 2.0**-13), X),
    "a maximum of fewer": (lambda x, y: fnp.maximum(fnp.maximum(x, y), 0), lambda x, y: fnp.maximum(x, y), X, X),
    "a power of two": (lambda x: x * 2.0**61, lambda x: x * 1.0, WIDE),
    "one element": (lambda x: fnp.sum(x), lambda x: fnp.sum(x[:2]), X),
    "the other branch": (lambda x: fnp.where(x > 0, x, 0), lambda x: fnp.where(x < 0, x, 0), X),
    "a branch that is rare": (lambda x: fnp.where(x[0] > 12.5, x, 0), lambda x: 0 * x, WIDE),
    "one integer of many": (lambda x, n: fnp.where(n == 12345, x, 0), lambda x, n: 0 * x, X, INTEGER),
    "one float of many": (lambda x: fnp.where(x == 12345, 1.0, 0.0), lambda x: 0 * x, X),
    "an axis": (lambda x: fnp.sum(x, 0), lambda x: fnp.sum(x, 1), MATRIX),
    "a transpose": (lambda x: x @ x, lambda x: x @ x.T, MATRIX),
    "the largest": (lambda x: fnp.max(x), lambda x: fnp.min(x), X),
    "the largest, of one number": (
        lambda x: fnp.maximum(x, fnp.maximum(x, x**3)),
        lambda x: fnp.minimum(x, fnp.maximum(x, x**3)),
        fx.Spec((), "float32"),
    ),
    "an index": (lambda x: fnp.argmax(x), lambda x: fnp.argmin(x), X),
    "conjugation": (lambda z: z * z, lambda z: z * fnp.conj(z), COMPLEX),
    "an integer": (lambda x, n: x * n, lambda x, n: x * (n + 1), X, INTEGER),
    "the least of unsigned numbers": (lambda n: fnp.minimum(n[0], n[1]), lambda n: -fnp.max(-n), UNSIGNED),
    "the width of an integer": (lambda n: 1.0 * lax.clz(n), lambda n: 1.0 * lax.clz(n.astype("int64")), INTEGER),
    "a gather of other rows": (
        lambda x, n: x[n, 0],
        lambda x, n: x.reshape(2, 3)[n, 0],
        fx.Spec((3, 2), "float32"),
        fx.Spec((40,), "int32"),
    ),
    "the imaginary part of a transform": (fnp.fft.rfft, lambda x: fnp.fft.rfft(x).real + 0j, fx.Spec((4,), "float32")),
    "random bits": (
        lambda k: fx.random.normal(k, (3,)),
        lambda k: fx.random.normal(k, (3,))[::-1],
        fx.Spec((2,), "uint32"),
    ),
    "an integer that wraps": (lambda n: n + 1 > n, lambda n: n == n, INTEGER),
    "the first of equal elements": (lambda x: fnp.argmax(x), lambda x: 2 - fnp.argmax(x[::-1]), X),
    "equal keys": (lambda x, y: lax.sort((x, y), num_keys=1), lambda x, y: lax.sort((x, y), num_keys=2), MANY, MANY),
    "neighbours of floats": (
        lambda x: 1e6 * (fnp.nextafter(x, x + 1) - x).astype("float64"),
        lambda x: 1e6 * (fnp.nextafter(x.astype("float64"), x.astype("float64") + 1) - x.astype("float64")),
        X,
    ),
    "coefficients of a body that float64 drops": (
        lambda x: on_one_device(lambda y: y + 1e-20 * y[::-1])(x),
        lambda x: on_one_device(lambda y: y * 1.0)(x),
        WIDE,
    ),
    "the least and the greatest of no integers": (greatest, least, fx.Spec((0,), "int32")),
    "a missing step": (lambda x: lax.fori_loop(0, 4, lambda _, y: y * x, x), lambda x: x * x * x * x, X),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUTED)
def test_a_difference_gives_operands_at_which_the_programs_differ(name: str) -> None:
    f, g, *specs = REFUTED[name]
    found = verdict(f, g, *specs)
    assert isinstance(found, fx.Counterexample), f"{name}: {found}"
    assert not found
    results = [fx.tree.leaves(fx.interpret(fx.trace(h, *specs), *found.args))[found.result] for h in (f, g)]
    if "1e-12" not in name:
        assert np.asarray(results[0])[found.index] != np.asarray(results[1])[found.index]
    assert found.left != found.right


UNDECIDED: dict[str, tuple[Any, ...]] = {
    "a comparison at a constant that float32 rounds": (
        lambda x: fnp.where(x > 0.1, 1, 0),
        lambda x: fnp.where(x >= 0.1, 1, 0),
        fx.Spec((4,), "float32"),
    ),
    "bounds inside of bounds": (lambda x: fnp.clip(fnp.clip(x, -1, 1), -1, 1), lambda x: fnp.clip(x, -1, 1), X),
    "a law of exp": (lambda x: fnp.exp(x + 1), lambda x: fnp.exp(x) * fnp.exp(np.float32(1)), X),
    "rounded constants": (lambda x: x * 0.1 * 0.3, lambda x: x * (0.1 * 0.3), WIDE),
    "constants that float32 rounds": (lambda x: x * 0.1 * 0.3, lambda x: x * (0.1 * 0.3), X),
    "constants that bfloat16 rounds": (lambda x: x * 0.1 * 0.3, lambda x: x * 0.03, fx.Spec((3,), "bfloat16")),
    "complex constants that float32 rounds": (
        lambda x: x * (0.1 + 0.2j) * 0.3,
        lambda x: x * (0.03 + 0.06j),
        fx.Spec((2,), "complex64"),
    ),
    "one integer of many": (lambda x, n: fnp.where(n * n * 7 == 1067563, x, 0), lambda x, n: 0 * x, X, INTEGER),
    "a jump that rounding moves": (
        lambda n: fnp.floor(fnp.sqrt(1.0 * n) ** 2),
        lambda n: fnp.where(n < 0, np.nan, 1.0 * n),
        INTEGER,
    ),
    "one float of many": (lambda x: fnp.where(fnp.exp(x) + x == 5.5, 1.0, 0.0), lambda x: 0 * x, X),
    "exp is positive": (lambda x: fnp.where(fnp.exp(x - 1000) > 0, x, 0), lambda x: 1 * x, WIDE),
    "a power that is too small": (lambda x: fnp.sqrt((x * 1e-170) ** 2) * 1e170, lambda x: fnp.sqrt(x * x), WIDE),
    "a sum of signs of powers that are too small": (
        lambda x: fnp.maximum(fnp.sign((((x * x) + 1) * 1e-30) ** 12).sum(), 1),
        lambda x: (0 * x + 1).sum(),
        WIDE,
    ),
    "floats with few digits": (lambda x: fnp.log(fnp.exp(x - 740)), lambda x: x - 740, WIDE),
    "coefficients of a system that float64 drops": (
        lambda x: fx.scipy.linalg.solve_triangular(np.array([[1, 0, 0], [1e-20, 1, 0], [0, 0, 1]]), x, lower=True),
        lambda x: fx.scipy.linalg.solve_triangular(np.eye(3), x, lower=True),
        WIDE,
    ),
    "a quotient by zero": (lambda x: x / (0 * x), lambda x: 0 * x, X),
    "zero by zero": (lambda x: (0 * x) / (0 * x), lambda x: 0 * x, X),
    "constants that are rounded": (lambda x: x * 0.1 + x * 0.2 == x * 0.3, lambda x: x == x, fx.Spec((3,), "float32")),
    "a precision": (
        lambda x: lax.reduce_precision(x, 5, 10),
        lambda x: x.astype("float16").astype("float32"),
        fx.Spec((3,), "float32"),
    ),
    "steps that operands decide": (
        lambda x: lax.while_loop(lambda y: y[0] < 10, lambda y: y + y * y + 1, x),
        lambda x: lax.while_loop(lambda y: y[0] < 10, lambda y: y * y + y + 1, x),
        X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_is_not_decided_is_not_guessed(name: str) -> None:
    f, g, *specs = UNDECIDED[name]
    found = verdict(f, g, *specs)
    assert isinstance(found, fx.Unknown), f"{name}: {found}"
    assert not found


def test_one_normal_form_is_a_proof_at_once() -> None:
    f = fx.trace(lambda x: fnp.sin(x) * fnp.sin(x), X)
    g = fx.trace(fx.jit(lambda x: fnp.sin(x) * fnp.sin(x)), X)
    assert str(fx.equal(f, g)) == "equal as real functions, by identity"
    none = fx.trace(lambda x: lax.reduce_sum(x, axes=()), X)
    assert fx.equal(none, fx.trace(lambda x: x, X), exact="bits")
    zeros = np.array([-0.0, 0, 1], np.float32)
    for out in (fx.interpret(none, zeros), none(zeros)):
        assert np.signbit(np.asarray(out)).tolist() == [True, False, False]
    assert str(fx.equal(f, f, exact="bits")) == "equal as sequences of floating operations, by identity"


def test_bits_ask_for_the_same_operations() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.stack([x, x * 2]), 0) * 3

    def moved(x: Any) -> Any:
        return 3 * fnp.sum(fnp.stack([x[::-1], x[::-1] * 2]).T, 1)[::-1]

    assert isinstance(verdict(f, lambda x: f(x.reshape(3, 1).T[0]), X, exact="bits"), fx.Proof)
    assert isinstance(verdict(f, moved, X), fx.Proof)
    assert isinstance(verdict(f, moved, X, exact="bits"), fx.Unknown)
    # a sum of a column and a sum of a row take their terms in another order
    assert isinstance(verdict(lambda x: fnp.sum(x, 0), lambda x: fnp.sum(x.T, 1), MATRIX), fx.Proof)
    assert isinstance(verdict(lambda x: fnp.sum(x, 0), lambda x: fnp.sum(x.T, 1), MATRIX, exact="bits"), fx.Unknown)
    found = verdict(lambda x: x / 3, lambda x: x * (1 / 3), X, exact="bits")
    assert isinstance(found, fx.Counterexample)
    assert found.of == "bits"
    left, right = [
        np.asarray(fx.interpret(fx.trace(h, X), *found.args)) for h in (lambda x: x / 3, lambda x: x * (1 / 3))
    ]
    assert left[found.index].item() == found.left != found.right == right[found.index].item()


@pytest.mark.parametrize(
    ("f", "g"),
    [
        (lambda x: x + 0.0, lambda x: x),
        (lambda x: x != x, lambda x: x < x),
        (lambda x: fnp.sqrt(x * x), fnp.abs),
        (lambda x: fnp.maximum(x, x[::-1]), lambda x: fnp.where(x > x[::-1], x, x[::-1])),
    ],
)
def test_bits_differ_at_zeros_infinities_and_nans(f: Any, g: Any) -> None:
    found = verdict(f, g, fx.Spec((8,), "float32"), exact="bits")
    assert isinstance(found, fx.Counterexample)
    nans = verdict(lambda x: x * np.nan, lambda x: -x * np.nan, X, exact="bits")
    assert isinstance(nans, fx.Unknown)  # which nan a result is, no operation says


def test_no_program_names_the_primes_of_its_own_proof() -> None:
    """A product with all primes is zero in the fields."""
    f = fx.trace(lambda x: x * 1.0, WIDE)
    question, primes = Question((f.jaxpr, f.jaxpr), ((), ()), [None]), list[int]()
    for _ in range(2):  # the primes of another question, and those of the question with these
        g = fx.trace(lambda x: functools.reduce(lambda y, p: y * float(p), primes, x) * 1.0, WIDE)
        question = Question((f.jaxpr, g.jaxpr), ((), ()), [None])
        found = fx.equal(g, fx.trace(lambda x: 0 * x, WIDE))
        assert isinstance(found, fx.Counterexample)
        primes = list(PrimeFields(4, question.field_seed).primes)
    assert (
        PrimeFields(4, dataclasses.replace(question, seed=1).field_seed).primes
        != PrimeFields(4, question.field_seed).primes
    )
    bound = [Question((f.jaxpr, f.jaxpr), ((x,), ()), []).field_seed for x in (np.zeros(3), np.ones(3))]
    assert bound[0] != bound[1]


def test_a_quotient_by_zero_is_no_evidence() -> None:
    """The sign of an infinity that a comparison reads depends on the sign of a zero."""
    left, right, _ = twins(162241)
    assert isinstance(fx.equal(left, right), fx.Unknown)


def test_operands_of_a_counterexample_are_simple() -> None:
    found = verdict(lambda x, y: x * y + fnp.sin(x), lambda x, y: x * y + fnp.sin(x) + 1, X, X)
    assert isinstance(found, fx.Counterexample)
    assert [x.tolist() for x in found.args] == [[0, 0, 0], [0, 0, 0]]
    assert str(found) == (
        "different: result 0[0] is 0.0 and 1.0 at\n  operand 0: [0.0, 0.0, 0.0]\n  operand 1: [0.0, 0.0, 0.0]"
    )


def test_the_equation_where_the_programs_part_is_named() -> None:
    found = verdict(lambda x: fnp.exp(x + x) * 2, lambda x: fnp.exp(x) * fnp.exp(x) * 2, X)
    assert isinstance(found, fx.Unknown)
    assert found.equation == "equation 0 (exp) of <lambda>"
    assert "test_equal.py" in found.where
    assert str(found) == (
        f"not decided at equation 0 (exp) of <lambda>, {found.where}: the expressions of result 0 differ, and no "
        "difference was found in float64"
    )


def test_a_loop_whose_steps_are_not_known_is_named() -> None:
    found = verdict(*UNDECIDED["steps that operands decide"])
    assert isinstance(found, fx.Unknown)
    assert found.equation.startswith("equation 0 (while) of ")
    assert found.reason == "operands decide the number of steps, which may be more than 256"


def test_at_gives_the_integers_and_the_types_of_functions() -> None:
    def f(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda _, y: y * x, x)

    def g(x: Any, n: Any) -> Any:
        return x * x * x * x

    x = np.ones(3, np.float32)
    found = fx.equal(f, g, at=(x, np.int32(3)))
    assert isinstance(found, fx.Proof)
    assert found.known == (1,)
    assert "\n  for the given values of operands 1\n" in str(found)
    assert isinstance(fx.equal(f, g, at=(x, np.int32(2))), fx.Counterexample)


def test_arrays_that_programs_close_over_are_constants() -> None:
    w, twice = np.arange(3.0, dtype=np.float32), np.arange(3.0, dtype=np.float32) * 2
    f = fx.trace(lambda x: fnp.sin(x) * w, X)
    assert isinstance(fx.equal(f, fx.trace(lambda x: twice * fnp.sin(x) * 0.5, X)), fx.Proof)
    assert isinstance(fx.equal(f, fx.trace(lambda x: twice * fnp.sin(x), X)), fx.Counterexample)
    assert isinstance(fx.equal(f, fx.trace(lambda x: fnp.sin(x) * w.copy(), X)), fx.Proof)


def test_a_proof_says_what_it_assumes() -> None:
    found = verdict(lambda x, n: x * (n + 1).astype("float32"), lambda x, n: x * n + x, X, INTEGER)
    assert isinstance(found, fx.Proof)
    assert found.assumptions == (WRAP, FINITE)
    assert str(found).endswith(f"\n  assuming that {WRAP}\n  assuming that {FINITE}")
    found = verdict(lambda n: (n + 1).astype("complex64"), lambda n: n.astype("complex64") + 1, INTEGER)
    assert isinstance(found, fx.Proof)
    assert found.assumptions == (WRAP, FINITE)


WRAP = "integers did not wrap before they were converted to floats or wider integers"
FINITE = "no operand or computed value is nan or infinite, and -0 is 0"
READS_BITS = "equal real numbers are equal floats where a program reads their bits"


def of_host(x: Any) -> Any:
    return ex.bind(HostCall("signs", (ex.Aval((3,), "bool"),), "pure"), np.uint64(7), x)[0]


ASSUMING: dict[str, tuple[Any, ...]] = {
    "nan": ({FINITE}, lambda x: fnp.where(x != x, 0, x), lambda x: x),
    "inf": ({FINITE}, lambda x: x - x, lambda x: 0 * x),
    "the sign of zero": ({FINITE}, lambda x: x + 0, lambda x: x),
    "not less": ({FINITE}, lambda x: ~(x < 1), lambda x: x >= 1),
    "a row": ({FINITE}, lambda x: fnp.cumsum(x[::-1])[::-1], lambda x: lax.cumsum(x, reverse=True)),
    "x / x": ({FINITE, "no denominator is zero"}, lambda x: x * x / x, lambda x: x),
    "bits": ({FINITE, READS_BITS}, lambda x: fnp.signbit(x + 0), fnp.signbit),
    "bits that a function of the host reads": ({FINITE, READS_BITS}, lambda x: of_host(x + 0), of_host),
    "overflow": ({FINITE}, lambda x: fnp.isfinite(x.astype("float16")), fnp.isfinite),
    "overflow of integers": (
        {FINITE, WRAP, READS_BITS},
        lambda x: fnp.isfinite(x.view("int32").astype("float16")),
        lambda x: fnp.isfinite(x.view("int32").astype("float32")),
    ),
    "a wider dtype": (set(), lambda x: fnp.isfinite(x.astype("float64")), fnp.isfinite),
    "only data movement": (set(), lambda x: fnp.floor(x[::-1]), lambda x: fnp.floor(x)[::-1]),
}


@pytest.mark.parametrize("name", ASSUMING)
def test_a_proof_about_real_numbers_says_which_floats_are_left_out(name: str) -> None:
    assumptions, f, g = ASSUMING[name]
    found = verdict(f, g, X)
    assert isinstance(found, fx.Proof)
    assert set(found.assumptions) == assumptions


@dataclass(frozen=True)
class Hidden:
    value: int = field(repr=False)


@final
@ex.primitive
class Scaled(ex.Unary):
    """A function with a parameter that its text does not show."""

    name: ClassVar[str] = "scaled"
    takes: ClassVar[frozenset[fx.dtypes.DType]] = frozenset({fx.dtypes.float32})
    by: Hidden

    def compute(self, x: ex.NDArray) -> object:
        return np.where(np.abs(x) > 1e6, self.by.value, 1) * x

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        raise NotImplementedError

    def tangent(self, ctx: ex.JvpCtx, x: ex.Atom, y: ex.Atom, t: ex.Tangent) -> ex.Tangent:
        raise NotImplementedError


def test_parameters_differ_also_if_their_text_does_not() -> None:
    def scaled(k: int) -> Callable[[Any], Any]:
        return lambda x: ex.bind(Scaled(Hidden(k)), x)[0]

    f, g = scaled(2), scaled(3)
    assert isinstance(verdict(f, lambda x: f(x * 1), X), fx.Proof)
    assert isinstance(verdict(f, g, X), fx.Unknown)


def test_effects_are_part_of_a_program() -> None:
    def checked(x: Any) -> Any:
        return fx.error_if(x * 2, x[0] > 0, "positive")

    found = verdict(checked, lambda x: x + x, X)
    assert isinstance(found, fx.Unknown)
    assert found.reason == "the effects differ: 1 and 0 calls of the host or checks"
    assert isinstance(verdict(checked, lambda x: checked(x * 1.5) - x, X), fx.Unknown)

    for exact in ("real", "bits"):  # nothing reads the check, and it fails where the program runs
        assert isinstance(verdict(lambda x: (checked(x), x)[1], lambda x: x, X, exact=exact), fx.Unknown)
        twice = lambda x: (checked(x[::-1]), checked(x), checked(x), x)[3]  # noqa: E731
        once = lambda x: (checked(x[::-1]), checked(x), fnp.reshape(x, (3,)))[2]  # noqa: E731
        assert isinstance(verdict(twice, once, X, exact=exact), fx.Proof)
    counted = lambda x: lax.fori_loop(0, 2, lambda k, y: fx.error_if(y, k > 5, "late"), x)  # noqa: E731
    assert isinstance(verdict(counted, lambda x: x, X), fx.Proof)

    def scaled(factor: float, reads: bool) -> Any:
        def f(x: Any) -> Any:
            large = fx.error_if(x, x < 1e6, "small")
            return (lax.reduce_precision(large, 5, 10) if reads else large) * factor

        return f

    for reads in (False, True):  # of a dtype: then the programs run in their own
        different: Any = verdict(scaled(2.0, reads), scaled(1.5, reads), fx.Spec((), "float32"))
        assert isinstance(different, fx.Unknown) or float(different.args[0]) >= 1e6, "a check fails there"

    def step(x: Any) -> Any:
        return fx.error_if(x + 1, x[0] > 5, "large")

    looped = lambda x: lax.fori_loop(0, 2, lambda _, y: step(y), x)  # noqa: E731
    assert isinstance(verdict(looped, lambda x: step(step(x)) * 1.0 + 0, X), fx.Proof)
    assert isinstance(verdict(looped, lambda x: step(x) + 1, X), fx.Unknown)
    assert isinstance(verdict(lambda x: step(x) + step(x), lambda x: 2 * step(x), X), fx.Proof)


def told(dtype: str, *moves: ex.Primitive) -> ex.Jaxpr:
    """A program that tells the host its operand, after some moves."""
    b = ex.Builder()
    (x,) = b.inputs([ex.Aval((4,), dtype)])
    seen: Any = functools.reduce(lambda y, prim: b.one(prim, y), moves, x)
    b(HostCall("told", (), "io"), ex.Lit.of(7, ex.Aval((), "uint64")), seen)
    return b.build([x], "f")


@pytest.mark.parametrize(
    ("dtype", "move"),
    [("float32", Reshape((2, 2))), ("float32", to("float64")), ("int32", to("float32")), ("bool", to("int8"))],
)
def test_effects_differ_in_the_types_of_their_operands(dtype: str, move: ex.Primitive) -> None:
    twice = told(dtype, Rev((0,)), Rev((0,)))
    for exact in ("real", "bits"):
        assert isinstance(fx.equal(told(dtype), twice, exact=exact), fx.Proof)
        assert isinstance(fx.equal(told(dtype), told(dtype, move), exact=exact), fx.Unknown)
    rounded = fx.equal(told("float32"), told("float32", to("float16"), to("float32")))
    assert isinstance(rounded, fx.Proof)
    assert READS_BITS in rounded.assumptions


def test_bits_are_compared_without_effects_and_endless_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "_MAX_STEPS", 50)
    calls = list[object]()

    def f(x: Any) -> Any:
        fx.io_callback(calls.append, (), x)
        return x + x

    assert isinstance(verdict(f, lambda x: f(x) * 1.5 - x, X, exact="bits"), fx.Unknown)
    assert not calls

    def loop(x: Any, k: float) -> Any:  # nested
        return lax.while_loop(lambda y: y < 9, lambda y: lax.while_loop(lambda z: z < 9, lambda z: z * k, y), x)

    scalar = fx.Spec((), "float32")
    assert isinstance(verdict(lambda x: loop(x, 2), lambda x: loop(x, 2) * 1.0 + 0 * x, scalar), fx.Unknown)
    found = verdict(lambda x: loop(x, 2), lambda x: loop(x, 3), scalar, exact="bits")
    assert isinstance(found, fx.Counterexample)


def test_jaxprs_are_compared_like_programs() -> None:
    f, g = fx.trace(lambda x: x + x, X), fx.trace(lambda x: 2 * x, X)
    assert isinstance(fx.equal(f.jaxpr, g.jaxpr), fx.Proof)
    assert isinstance(fx.equal(f.jaxpr, g.jaxpr, seed=5), fx.Proof)


# ------------------------------------------------------------------------------------------------------------ errors


equal: Any = fx.equal  # for arguments of wrong types
ADAPT = "equal compares programs with the same arguments and results; adapt one of them"


@pytest.mark.parametrize(
    ("error", "message", "remedy", "call"),
    [
        (ArgumentError, "equal: exact is 'floats'", 'give "real" or "bits"', lambda f: equal(f, f, exact="floats")),
        (ArgumentError, "equal: seed is -1", "give an int from 0 to 2^64 - 1", lambda f: fx.equal(f, f, seed=-1)),
        (
            ArgumentError,
            "equal: at is an int, not a tuple",
            "give all arguments: at=(x, y)",
            lambda f: equal(f, f, at=3),
        ),
        (
            ArgumentError,
            "equal: at has 2 leaves, the programs take 1",
            "give all arguments of the programs",
            lambda f: fx.equal(f, f, at=(1, 2)),
        ),
        (
            ArgumentError,
            "equal: a function has no types of arguments",
            "equal(trace(f, *specs), ...), or give at=(x, ...)",
            lambda f: fx.equal(f, lambda x: x),
        ),
        (
            ArgumentError,
            "equal: an int is neither a Program nor a function: 3",
            "pass the function itself, or trace(f, *examples)",
            lambda f: equal(f, 3),
        ),
        (
            DTypeError,
            "equal: argument 0 is f32[3] and f64[3]",
            ADAPT,
            lambda f: fx.equal(f, fx.trace(lambda x: x, WIDE)),
        ),
        (
            ShapeError,
            "equal: result 0 is f32[3] and f32[2]",
            ADAPT,
            lambda f: fx.equal(f, fx.trace(lambda x: x[:2], X)),
        ),
        (TreeError, "equal: the programs have 1 and 2 arguments", ADAPT, lambda f: fx.equal(f.jaxpr, TWO.jaxpr)),
        (
            SizeError,
            "equal: argument 0 has a symbolic shape: f32[n]",
            "specialize both programs",
            lambda f: fx.equal(*[fx.trace(lambda x: x, fx.Spec("n")).jaxpr] * 2),
        ),
    ],
)
def test_messages(error: type[Exception], message: str, remedy: str, call: Callable[[Any], object]) -> None:
    f = fx.trace(lambda x: fnp.sin(x), X)
    with pytest.raises(error) as caught:
        call(f)
    assert str(caught.value).startswith(message), str(caught.value)
    assert str(caught.value).endswith(remedy), str(caught.value)


def test_trees_of_programs_must_agree() -> None:
    f, g = fx.trace(lambda x: (x,), X), fx.trace(lambda x: [x], X)
    with pytest.raises(TreeError, match="equal: the trees of the results differ") as caught:
        fx.equal(f, g)
    assert str(caught.value).endswith(ADAPT)


def test_values_at_must_fit() -> None:
    f = fx.trace(lambda n: n + 1, INTEGER)
    with pytest.raises(ArgumentError, match=r"equal: argument 0 is i32\[\], at has .* of shape \(2,\)") as caught:
        fx.equal(f, f, at=(np.arange(2),))
    assert str(caught.value).endswith("give values of the types of the arguments")
    with pytest.raises(ArgumentError, match=r"argument 0 is i32\[\], at has .* with values outside of its range"):
        fx.equal(f, f, at=(np.int64(1) << 40,))
