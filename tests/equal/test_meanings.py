"""Where the meaning of primitives comes from: fxad's own, and those from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.diagnosis.equality.decide import decide
from fxad.diagnosis.equality.domain import ProofDomain, Symbolic
from fxad.diagnosis.equality.rules import apply
from fxad.diagnosis.equality.verdict import Counterexample, Proof, Question, Unknown
from fxad.dtypes import FLOATING, DType
from fxad.errors import ArgumentError
from fxad.extend import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Builder,
    Cotangent,
    Dims,
    Emit,
    Eqn,
    HasDefinition,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Tangent,
    Unary,
    Zero,
    bind,
    primitive,
    rewrite,
)
from fxad.ir import LinearMap
from fxad.primitives.elementwise import ADD, DIV, MUL, NEG, Mul, Neg, Sub
from fxad.primitives.families import LinearInOne
from fxad.primitives.sort import Sort
from fxad.testing import Case, check_equal, check_rewrite, transform_laws
from fxad.text import parse

X = fx.Spec((3,), "float64")


@final
@primitive
class Softsign(Unary, HasDefinition):
    """x / (1 + |x|)."""

    name: ClassVar[str] = "softsign"
    hlo_name: ClassVar[str] = "stablehlo.negate"
    takes: ClassVar[frozenset[DType]] = FLOATING

    def compute(self, x: NDArray) -> object:
        return x / (1 + np.abs(x))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return Zero(y.aval)

    def definition(self, *avals: Aval) -> Jaxpr:
        return fx.trace(lambda x: x / (1 + fnp.abs(x)), fx.Spec(avals[0].shape, avals[0].dtype)).jaxpr


@final
@primitive
class Opaque(Unary):
    """A function of which only `impl` is stated."""

    name: ClassVar[str] = "opaque"
    hlo_name: ClassVar[str] = "stablehlo.negate"
    takes: ClassVar[frozenset[DType]] = FLOATING

    def compute(self, x: NDArray) -> object:
        return x / (2 + np.abs(x))

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return Zero(y.aval)


@final
@primitive
class SecondDifference(LinearMap, LinearInOne):
    """x[k - 1] - 2 x[k] + x[k + 1], with zeros around."""

    name: ClassVar[str] = "second_difference"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        padded: Any = np.pad(args[0], 1)
        return (padded[2:] - 2 * padded[1:-1] + padded[:-2],)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return args

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        raise NotImplementedError

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(self, ct)


def test_a_primitive_from_outside_that_is_a_program_is_that_program() -> None:
    f = fx.trace(lambda x: bind(Softsign(), x)[0] * 2, X)
    assert isinstance(fx.equal(f, fx.trace(lambda x: 2 / (1 + fnp.abs(x)) * x, X)), Proof)
    found = fx.equal(f, fx.trace(lambda x: 2 / (1 + fnp.abs(x)) * x + x, X))
    assert isinstance(found, Counterexample)


def test_of_another_primitive_equal_operands_give_equal_results() -> None:
    f = fx.trace(lambda x: bind(Opaque(), x * x - 1)[0], X)
    assert isinstance(fx.equal(f, fx.trace(lambda x: bind(Opaque(), (x + 1) * (x - 1))[0], X)), Proof)
    assert isinstance(fx.equal(f, fx.trace(lambda x: bind(Opaque(), x * x + 1)[0], X)), Counterexample)
    same = fx.trace(lambda x: (x * x - 1) / (2 + fnp.abs(x * x - 1)), X)
    found = fx.equal(f, same)
    assert isinstance(found, Unknown)
    assert found.equation == "equation 4 (abs) of <lambda>"


def test_a_linear_primitive_from_outside_is_evaluated_by_its_impl() -> None:
    f = fx.trace(lambda x: bind(SecondDifference(), 3 * x)[0], X)
    g = fx.trace(lambda x: 3 * fnp.stack([x[1] - 2 * x[0], x[0] - 2 * x[1] + x[2], x[1] - 2 * x[2]]), X)
    assert isinstance(fx.equal(f, g), Proof)
    wrong = fx.trace(lambda x: 3 * fnp.stack([x[1] - 2 * x[0], x[0] - 2 * x[1] - x[2], x[1] - 2 * x[2]]), X)
    assert isinstance(fx.equal(f, wrong), Counterexample)


def test_a_quotient_of_integers_is_not_linear() -> None:
    """Also by a divisor that divides the digits of the operand, as 2 does for one seed of 4,096."""
    domain, aval = ProofDomain(3), Aval((), "int32")
    n = Symbolic(domain.field.of_integers(np.array(6, np.int32)))
    (half,) = apply(domain, DIV, [n, np.array(2, np.int32)], (aval, aval), (aval,))
    assert isinstance(half, Symbolic)
    assert not (half.residues == 3).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_functions_of_rows_do_not_depend_on_where_the_rows_lie(axis: int) -> None:
    domain = ProofDomain(3)
    aval = Aval((2, 4), "float32")
    x = domain.variable(0, aval)
    along = apply(domain, Sort(1, 1), [x], (aval,), (aval,))[0]
    turned = x.like(np.moveaxis(x.residues, 0, 1))
    (other,) = apply(domain, Sort(0, 1), [turned], (aval.with_shape((4, 2)),), (aval.with_shape((4, 2)),))
    assert isinstance(along, Symbolic)
    assert isinstance(other, Symbolic)
    assert (np.moveaxis(other.residues, 0, 1) == along.residues).all()


def squared(times: int, first: float, last: float) -> Jaxpr:
    lines = [f"  %0: f64[] = mul %arg0, {first}:f64[]"]
    lines += [f"  %{k}: f64[] = mul %{k - 1}, %{k - 1}" for k in range(1, times + 1)]
    lines += [f"  %{times + 1}: f64[] = mul %{times}, {last}:f64[]", f"  return %{times + 1}"]
    return parse("main @f(%arg0: f64[]) -> (f64[]) {\n" + "\n".join(lines) + "\n}\n")


def test_the_bound_of_the_error_grows_with_the_degree() -> None:
    """So more primes are taken, and in the end the programs are not decided."""
    errors = []
    for times in (1, 30, 40):
        found = decide(Question((squared(times, -1.0, 1.0), squared(times, 1.0, 1.0)), ((), ()), [None]))
        assert isinstance(found, Proof)
        errors.append(found.error)
    assert errors[0] > 150
    assert min(errors) >= 60
    found = decide(Question((squared(60, -1.0, 1.0), squared(60, 1.0, 1.0)), ((), ()), [None]))
    assert isinstance(found, Unknown)
    assert found.reason.startswith("the degree of the expressions is too high: the bound of the error is 2^")


# ------------------------------------------------------------------------------------------------- passes of users


def subtract_by_adding(jaxpr: Jaxpr) -> Jaxpr:
    """A pass that keeps the meaning: x - y becomes -y + x."""

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Atoms | None:
        floating = isinstance(eqn.prim, Sub) and ins[0].aval.inexact
        return (b.one(ADD, b.one(NEG, ins[1]), ins[0]),) if floating else None

    return rewrite(jaxpr, rule)


def scale_differently(jaxpr: Jaxpr) -> Jaxpr:
    """A pass that rounds in another way: x * y becomes ((-4 x) * y) / -4."""

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Atoms | None:
        if not isinstance(eqn.prim, Mul) or not ins[0].aval.inexact:
            return None
        factor = Lit.of(-5.0, ins[0].aval)
        return (b.one(DIV, b.one(MUL, b.one(MUL, ins[0], factor), ins[1]), factor),)

    return rewrite(jaxpr, rule)


def drop_negations(jaxpr: Jaxpr) -> Jaxpr:
    """A pass that is wrong."""
    return rewrite(jaxpr, lambda b, eqn, ins: ins if isinstance(eqn.prim, Neg) and ins[0].aval.inexact else None)


def one_case() -> Case:
    program = fx.trace(lambda x, y: fnp.sin(-x) * 3 - y, X, X).jaxpr
    return Case(program, (np.linspace(0.1, 1, 3), np.linspace(1, 2, 3)))


def test_passes_of_users_are_checked_without_tolerances() -> None:
    check_rewrite(subtract_by_adding, one_case(), exact=True, shrinks=False)
    check_rewrite(scale_differently, exact=True, shrinks=False, idempotent=False)


def test_a_wrong_pass_is_found_with_operands() -> None:
    with pytest.raises(AssertionError, match="the programs are not equal: different: result") as caught:
        check_rewrite(drop_negations, one_case(), exact=True)
    assert "operand 0: " in str(caught.value)


@pytest.mark.parametrize(
    ("what", "other"),
    [
        (r"operands differ: \(f64\[3\], f64\[3\]\) and \(f64\[3\]\)", lambda: fx.trace(lambda x: x, X).jaxpr),
        (r"results differ: \(f64\[3\]\) and \(f64\[1\]\)", lambda: fx.trace(lambda x, y: x[:1], X, X).jaxpr),
    ],
)
def test_a_pass_that_changes_types_is_found(what: str, other: Callable[[], Jaxpr]) -> None:
    with pytest.raises(AssertionError, match=f"the types of the {what}"):
        check_rewrite(lambda _: other(), one_case(), exact=True)


def test_programs_are_checked_with_the_integers_of_a_case() -> None:
    f = fx.trace(lambda x, n: fnp.where(n > 3, x, x + 1), fx.Spec((), "float64"), fx.Spec((), "int32")).jaxpr
    g = fx.trace(lambda x, n: x * 1.0, fx.Spec((), "float64"), fx.Spec((), "int32")).jaxpr
    assert check_equal(f, g, (np.array(0.5), np.array(4, np.int32)))
    with pytest.raises(AssertionError, match="the programs are not equal"):
        check_equal(f, g, (np.array(0.5), np.array(3, np.int32)))
    h = fx.trace(lambda x, n: fnp.exp(x) * fnp.exp(x), fx.Spec((), "float64"), fx.Spec((), "int32")).jaxpr
    k = fx.trace(lambda x, n: fnp.exp(2 * x), fx.Spec((), "float64"), fx.Spec((), "int32")).jaxpr
    assert not check_equal(h, k, (np.array(0.5), np.array(3, np.int32)))


def test_without_the_plug_in_the_check_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform_laws, "_EXACT_CHECKS", ())
    with pytest.raises(ArgumentError, match=r"check_rewrite: fxad\.equal is not installed") as caught:
        check_rewrite(subtract_by_adding, one_case(), exact=True, shrinks=False)
    assert str(caught.value).endswith("leave out exact=True")
