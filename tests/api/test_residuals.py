"""`residuals` and plans: the table of stored values, edited and applied; `partial_eval` of functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, policies
from fxad.api.symbolic_zeros import SymbolicZero
from fxad.core.builder import Builder
from fxad.transforms import linearize, partial_eval

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

RNG = np.random.default_rng(1)
X, W = [RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]


def loss(x: Any, w: Any) -> Any:
    h = fnp.tanh(x @ w)
    h = fx.checkpoint_name(fnp.exp(h), "hidden")
    return fnp.sum(fnp.sin(h) @ w)


def rows(table: Any) -> list[tuple[str, str, str]]:
    return [(r.made_by, r.read_by, r.decided_by) for r in table]


def test_the_table() -> None:
    program = fx.trace(loss, X, W)
    table = fx.residuals(program)
    assert rows(table) == [
        ("argument x", "dot_general", "argument"),
        ("argument w", "dot_general", "argument"),
        ("sech2", "mul", "no policy"),
        ("exp", "mul", "no policy"),
        ("sin", "dot_general", "no policy"),
        ("cos", "mul", "no policy"),
    ]
    assert table.bytes == 4 * 64
    assert [r.bytes for r in table] == [64] * 6
    where = table[3].where
    assert where is not None
    assert where.file == __file__
    text = str(table).splitlines()
    assert text[0].split() == ["bytes", "type", "made", "by", "where", "read", "by", "decided", "by"]
    assert text[4].split() == ["3", "64", "f32[4,4]", "exp", f"test_residuals.py:{where.line}", "mul", "no", "policy"]
    assert text[-1] == "256 bytes beside the arguments"


def test_with_respect_to_some_arguments() -> None:
    program = fx.trace(loss, X, W)
    first = fx.residuals(program, argnums=0)
    assert rows(first)[0] == ("argument w", "dot_general", "argument")
    assert len(first) == 4, "w, and what tanh, exp and sin need"
    assert fx.residuals(program, argnums=(0, 1)) == fx.residuals(program)


def test_a_value_that_only_the_transpose_of_a_linear_call_reads_is_stored() -> None:
    def scaled(x: Any) -> Any:
        mask = fnp.exp(x)

        def back(mask: Any, ct: Any) -> Any:
            return fnp.where(mask > 1.0, ct, 0.0)

        return fnp.sum(lax.linear_call(lambda _, t: t, back, mask, fnp.sin(x)))

    wants = [("exp", "linear_call", "no policy"), ("cos", "mul", "no policy")]
    assert rows(fx.residuals(fx.trace(scaled, X))) == wants
    looped = fx.trace(lambda x: lax.scan(lambda c, x: (c + scaled(x), None), x[0, 0], x)[0], X)
    assert [r[0] for r in rows(fx.residuals(looped))] == ["exp", "cos"]


def test_a_plan() -> None:
    program = fx.trace(loss, X, W)
    table = fx.residuals(program)
    plan = table.without(2, 4, 5)
    assert plan.bytes == 64
    assert str(plan).count("plan: computed again") == 3
    assert plan.keep(2, 4, 5) == table
    lean = fx.remat(program, plan=plan)
    after = fx.residuals(lean)
    assert rows(after)[2:] == [("exp", "sin", "plan")]
    assert after.bytes == 64
    want = fx.interpret(fx.grad(program, argnums=(0, 1)), X, W)
    got = fx.interpret(fx.grad(lean, argnums=(0, 1)), X, W)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert fx.residuals(fx.remat(program, plan=table.without(2, 3, 4, 5))).bytes == 0
    inner = fx.remat(program, policy=policies.names("hidden"))
    assert rows(fx.residuals(inner))[2:] == [("name 'hidden'", "sin", "names('hidden')")]


def test_wrong_plans_are_refused() -> None:
    program, other = fx.trace(loss, X, W), fx.trace(lambda x: fnp.sum(x * x), X)
    table = fx.residuals(program)
    untyped: Any = fx
    for call, message in (
        (lambda: table.without(0), "residuals: row 0 is an argument of loss"),
        (lambda: table.without("sin"), "residuals: 'sin' is not the number of a row"),  # type: ignore[arg-type]
        (lambda: table.keep(True), "residuals: True is not the number of a row"),
        (lambda: table.without(9), "residuals: row 9 does not exist: there are 6"),
        (lambda: fx.remat(other, plan=table), "remat: the plan is for another program"),
        (lambda: untyped.remat(loss, plan=table), "remat: a plan is for a Program, got <function loss"),
        (lambda: untyped.remat(program, plan=[1]), "remat: plan is a list, not what residuals(program) gives"),
        (
            lambda: fx.remat(program, plan=table, policy=policies.dots),
            "remat: both a plan and the policy dots are given",
        ),
        (lambda: untyped.residuals(loss), "residuals: takes a Program, got <function loss"),
    ):
        with pytest.raises(fx.errors.ArgumentError) as caught:
            call()
        assert message in caught.value.message


def test_residuals_inside_loops_and_calls() -> None:
    def looped(x: Any) -> Any:
        step = fx.remat(lambda h: fx.checkpoint_name(fnp.cbrt(h @ W), "h"), policy=policies.names("h"))
        return fnp.sum(lax.scan(lambda h, _: (fnp.exp(step(h)), None), x, None, length=5)[0])

    table = fx.residuals(fx.trace(looped, X))
    assert [r.aval.shape for r in table if r.made_by == "name 'h'"] == [(5, 4, 4)]
    called = fx.residuals(fx.trace(fx.jit(loss), X, W))
    assert rows(called) == rows(fx.residuals(fx.trace(loss, X, W)))


# ------------------------------------------------------------------------------------------------ partial evaluation


def test_two_halves() -> None:
    def f(a: Any, b: Any, *, scale: float) -> Any:
        inner = fx.jit(lambda a, b: (fnp.exp(a), fnp.exp(a) * b))
        e, product = inner(a["x"], b)
        return {"known": e, "mixed": product * scale, "none": fnp.cos(b), "same": a["x"], "literal": 1.0}

    program = fx.trace(f, {"x": X}, W, scale=2.0)
    halves = fx.partial_eval(program, (True, False))
    first, residuals = halves.known({"x": X})
    assert [name for name, v in first.items() if v is not None] == ["known", "same", "literal"]
    assert [r.name for r in halves.residuals] == ["exp %1"]
    assert str(halves.residuals[0].aval) == "f32[4,4]"
    assert halves.residuals[0].where is not None
    rest = halves.unknown(residuals, W, scale=2.0)
    want = program({"x": X}, W, scale=2.0)
    for name, v in want.items():
        (found,) = [h[name] for h in (first, rest) if h[name] is not None]
        np.testing.assert_array_equal(found, v)
    assert halves.known.names == ("a",)
    assert halves.unknown.names == ("residuals", "b")
    assert "exp" not in halves.unknown.text()
    assert "exp" in halves.known.text()
    assert "cos" not in halves.known.text()


def test_named_residuals_and_bound_values() -> None:
    big = fnp.asarray(W)
    program = fx.trace(lambda a, b: fx.checkpoint_name(fnp.sin(a @ big), "features") @ b, X, W)
    halves = fx.partial_eval(program, [True, False])
    assert [r.name for r in halves.residuals] == ["features"]
    _, residuals = halves.known(X)
    np.testing.assert_array_equal(halves.unknown(residuals, W), program(X, W))
    grad = fx.grad(lambda b: fnp.sum(halves.unknown(residuals, b)))(W)
    np.testing.assert_allclose(grad, fx.grad(lambda b: fnp.sum(program(X, b)))(W), rtol=1e-5)


def test_all_and_nothing_known() -> None:
    program = fx.trace(loss, X, W)
    everything = fx.partial_eval(program, (True, True))
    assert everything.unknown.jaxpr.eqns == ()
    np.testing.assert_array_equal(everything.known(X, W)[0], program(X, W))
    nothing = fx.partial_eval(program, (False, False))
    assert nothing.known.jaxpr.eqns == ()
    np.testing.assert_array_equal(nothing.unknown((), X, W), program(X, W))


def test_what_is_refused() -> None:
    program = fx.trace(loss, X, W)
    untyped: Any = fx
    with pytest.raises(fx.errors.ArgumentError) as caught:
        fx.partial_eval(program, (True,))
    assert caught.value.message == "partial_eval: known has 1 entries, loss takes 2 positional arguments"
    with pytest.raises(fx.errors.ArgumentError) as caught:
        untyped.partial_eval(loss, (True, False))
    assert "partial_eval: takes a Program, got <function loss" in caught.value.message


def test_known_values_that_the_unknown_half_does_not_read_are_no_residuals() -> None:
    program = fx.trace(lambda a, b: (fnp.sin(fnp.exp(a)), b + 1), X, W)
    halves = partial_eval(program.jaxpr, (True, False))
    assert halves.residuals == ()
    assert halves.out_known == (True, False)
    assert len(halves.unknown.eqns) == 1
    b = Builder()
    v = b.input(program.jaxpr.in_avals[0])
    empty = partial_eval(b.build((v,), "identity"), (True,))
    assert (empty.known.outs, empty.unknown.outs) == ((v,), ())


def test_arguments_without_a_tangent_cost_nothing() -> None:
    """The derivative with respect to one argument has no equations and no residuals for the others."""

    def many(*xs: Any) -> Any:
        total = fnp.sin(xs[0])
        for x in xs[1:]:
            total = total * fnp.exp(x) + fnp.tanh(x)
        return fnp.sum(total)

    xs = [X + k for k in range(6)]
    program = fx.trace(many, *xs)
    one = linearize(program.jaxpr, (True, *[False] * 5)).linear
    closed = fx.trace(lambda x: many(x, *[1.0] * 5), X)
    assert [e.prim.name for e in one.eqns] == [e.prim.name for e in linearize(closed.jaxpr, (True,)).linear.eqns]
    assert [r.made_by for r in fx.residuals(program, argnums=0)] == ["cos", *["exp"] * 5]
    counts = [len(fx.grad(program, argnums=k).jaxpr.eqns) for k in ((0,), (0, 1), tuple(range(6)))]
    assert counts[0] < counts[1] < counts[2]


def test_residuals_of_a_rule_that_closes_over_a_value() -> None:
    # Regression: the table was refused, because it also differentiated with respect to closed-over values
    scale, w = fnp.asarray(X), fnp.asarray(W)

    def scaled(x: Any) -> Any:
        return fnp.sin(x) * scale

    ruled = fx.custom_jvp(lambda x: scaled(x))
    ruled.defjvp(lambda primals, tangents: fx.jvp(scaled, primals, tangents))
    program = fx.trace(lambda x: fnp.sum(fnp.exp(ruled(x) @ w)), X)
    table = fx.residuals(program)
    assert [(r.made_by, r.read_by) for r in table] == [
        ("closed-over array 0", "mul"),
        ("closed-over array 1", "dot_general"),
        ("mul", "dot_general"),
        ("cos", "mul"),
        ("exp", "mul"),
    ]
    lean = fx.remat(program, plan=table.without(2, 3, 4))
    assert fx.residuals(lean).bytes < table.bytes
    np.testing.assert_array_equal(fx.grad(lean)(X), fx.grad(program)(X))


def test_a_function_that_is_used_twice_has_the_lines_of_both_uses() -> None:
    def twice(x: Any) -> Any:
        a = nn.softplus(x * 1.375)
        return nn.softplus(a).sum()

    def looped(x: Any) -> Any:
        y = lax.scan(lambda c, _: (fnp.sin(c) * 1.375, None), x, length=3)[0]
        return lax.scan(lambda c, _: (fnp.sin(c) * 1.375, None), y, length=5)[0].sum()

    for f in (twice, looped):
        lines = [r.lines[0].line - f.__code__.co_firstlineno for r in fx.residuals(fx.trace(f, X)) if not r.is_argument]
        assert lines == [1] * (len(lines) // 2) + [2] * (len(lines) // 2)
    at = looped.__code__.co_firstlineno
    cells = [line.split() for line in str(fx.residuals(fx.trace(looped, X))).splitlines()]
    assert any([f"test_residuals.py:{at + 2}" in row and f"{at + 1}" in row and ">" in row for row in cells])


def test_residuals_are_those_of_the_rule_for_the_used_results() -> None:
    """Regression: the table was that of a program which uses all results of a function with rules."""

    @fx.custom_vjp
    def both(x: Any) -> Any:
        return fnp.sin(x), fnp.cos(x)

    def bwd(x: Any, cts: Any) -> Any:
        if not isinstance(cts[1], SymbolicZero):
            raise NotImplementedError("only the first result has a derivative")
        return (cts[0] * fnp.exp(x),)

    both.defvjp(lambda x: (both(x.value), x.value), bwd, symbolic_zeros=True)
    program: Any = fx.trace(lambda x: fnp.sum(both(x)[0] * x), fx.Spec((3,)))
    table = fx.residuals(program)
    x = np.array([0.5, 1.0, 2.0], np.float32)
    want = np.asarray(fx.grad(program)(x))
    np.testing.assert_array_equal(np.asarray(fx.grad(fx.remat(program, plan=table))(x)), want)
