"""`error_if` under every transformation: where it raises, and where it must not."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.errors import ArgumentError, CheckError, DTypeError, FxadError
from fxad.primitives.check import calls_host
from fxad.text import parse
from tests.api.refusals import check_refused

X = np.array([4.0, 1.0], np.float32)
BAD = np.array([4.0, -1.0], np.float32)


def root(x: Any) -> Any:
    x = fx.error_if(x, x < 0, "negative: {} of {n:.2f}", x.min(), n=x.sum())
    return fnp.sqrt(x)


def total(x: Any) -> Any:
    return root(x).sum()


def line_of(f: Callable[..., object], inside: str) -> int:
    """Returns the number of the line of a function that contains a text."""
    code = f.__code__
    lines = Path(code.co_filename).read_text(encoding="utf-8").splitlines()
    return next(k for k in range(code.co_firstlineno, len(lines)) if inside in lines[k]) + 1


RUNS: list[Callable[[Any], Any]] = [
    root,
    fx.jit(root),
    lambda x: fx.trace(root, X)(x),
    lambda x: fx.interpret(fx.trace(root, X), x),
    lambda x: fx.lower(fx.trace(root, X)).compile()(x),
    lambda x: fx.jit(root, donate=0)(fnp.asarray(x)),
    fx.jit(fx.grad(total)),
    fx.jit(fx.value_and_grad(total)),
    fx.jit(fx.grad(fx.remat(total))),
    fx.jit(fx.grad(lambda x: (fx.error_if(x, x < 0, "negative: -1.0 of 3.00") * 2).sum())),  # unused value
    lambda x: fx.jvp(root, (x,), (x,))[1],
    lambda x: fx.jit(fx.hessian(total))(x),
    lambda x: fx.simplify(fx.cse(fx.dce(fx.inline(fx.outline(fx.trace(root, X))))))(x),
    lambda x: fx.lower(fx.trace(lambda x: fx.jit(root)(fx.jit(root)(x) ** 2), X), units=lambda _: True).compile()(x),
    fx.jit(lambda x: lax.scan(lambda c, _: (root(c) ** 2, None), x, None, length=3)[0]),
    fx.jit(fx.grad(lambda x: lax.scan(lambda c, _: (root(c) ** 2, None), x, None, length=3)[0].sum())),
    fx.jit(lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: root(c) + 9, x)),
    fx.jit(lambda x: lax.cond(x[0] > 0, root, lambda x: x, x)),
]


@pytest.mark.parametrize("k", range(len(RUNS)))
def test_it_raises_where_the_predicate_holds(k: int) -> None:
    RUNS[k](X)
    with pytest.raises(CheckError) as e:
        np.asarray(RUNS[k](BAD))
    assert e.value.message == "error_if: negative: -1.0 of 3.00"
    assert re.fullmatch(r"error_if\(f32\[2\]; bool\[2\]\)", e.value.equation)
    assert e.value.where.startswith(f"{__file__}:")
    RUNS[k](X)


@pytest.mark.parametrize(("bound", "start", "fails"), [(0, 7, False), (4, 0, False), (5, 0, True), (4, 7, True)])
def test_the_predicate_of_a_bounded_loop(bound: int, start: float, fails: bool) -> None:
    """Regression: `interpret` and `vmap` differed. The predicate runs after the last step too, and not at all without
    steps."""

    def loop(v: Any) -> Any:
        return lax.while_loop(lambda c: fx.error_if(c, c > 4, "large") < 9, lambda c: c + 1, v, max_steps=bound)

    def mapped(v: Any) -> Any:
        return fx.vmap(loop)(v[None])[0]

    x = np.float32(start)
    for f in (loop, mapped, lambda v: fx.value_and_grad(loop)(v)[0], lambda v: fx.jvp(loop, (v,), (v,))[0]):
        for run in (f, fx.jit(f), lambda v, f=f: fx.interpret(fx.trace(f, v), v)):
            if fails:
                with pytest.raises(CheckError, match="large"):
                    np.asarray(run(x))
            else:
                np.testing.assert_array_equal(np.asarray(run(x)), start + bound)


def test_the_message(nothing_remembered: None) -> None:
    with pytest.raises(CheckError) as e:
        fx.jit(root)(BAD)
    assert str(e.value) == (
        "error_if: negative: -1.0 of 3.00\n"
        "  equation      error_if(f32[2]; bool[2])\n"
        f"  traced at     {__file__}:{line_of(root, 'error_if')} in root"
    )


def test_under_vmap_the_error_names_the_example() -> None:
    def f(x: Any) -> Any:
        return fx.error_if(x, x < 0, "no {}", x) * 2

    np.testing.assert_array_equal(fx.vmap(f)(X), 2 * X)
    for run, x, message in (
        (fx.vmap(f), BAD, "error_if: no -1.0 (in example 1)"),
        (fx.jit(fx.vmap(fx.vmap(f))), BAD[None], "error_if: no -1.0 (in example [0, 1])"),
        (fx.jit(fx.vmap(fx.grad(f))), BAD, "error_if: no -1.0 (in example 1)"),
        (fx.jit(fx.grad(lambda x: fx.vmap(f)(x).sum())), BAD, "error_if: no -1.0 (in example 1)"),
        (fx.vmap(lambda x: fx.error_if(x, fnp.asarray(BAD) < 0, "no") + 1), X, "error_if: no"),
    ):
        with pytest.raises(CheckError, match=rf"^{re.escape(message)}\n"):
            run(x)


def test_checks_in_branches_and_steps_that_do_not_run_pass() -> None:
    def branch(x: Any) -> Any:
        return lax.cond(x < 0, lambda: -x, lambda: fx.error_if(x, x < 0, "in a branch that is not taken") + 0)

    def nested(x: Any) -> Any:
        """A check in a call in a scan in a branch."""
        step = fx.jit(lambda c: fx.error_if(c, c < 0, "in a branch that is not taken"))
        return lax.cond(x < 0, lambda: -x, lambda: lax.scan(lambda c, _: (step(c), None), x, None, length=2)[0])

    def three(x: Any) -> Any:
        bad = [lambda x: fx.error_if(x, x > -1, "0"), lambda x: fx.error_if(x, x < 0, "1"), lambda x: -x]
        return lax.switch(fnp.astype(x, "int32") + 1, bad[:1] + bad[1:], x) * 0 + abs(x)

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 3, lambda c: fx.error_if(c, c >= 3, "after the last step") + 1, x)

    def bounded(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 3, lambda c: fx.error_if(c, c >= 3, "after") + 1, x, max_steps=9)

    x = np.array([-1.0, 1.0, 2.0], np.float32)
    for f, want in ((branch, [1, 1, 2]), (nested, [1, 1, 2]), (loop, [3, 3, 3]), (bounded, [3, 3, 3])):
        for run in (fx.vmap(f), fx.jit(fx.vmap(f)), lambda x, f=f: fx.jit(fx.vmap(fx.vmap(f)))(x[None])[0]):
            np.testing.assert_array_equal(run(x), want)
    for f in (branch, nested, bounded):
        for slope in (fx.vmap(fx.grad(f)), fx.jit(fx.grad(lambda x, f=f: fx.vmap(f)(x).sum()))):
            assert slope(x).shape == (3,)
    empty = fx.jit(fx.grad(lambda x: lax.scan(lambda c, _: (root(c), None), x, None, length=0)[0].sum()))
    np.testing.assert_array_equal(empty(BAD), [1, 1])
    np.testing.assert_array_equal(fx.vmap(three)(np.array([-1.0, 0.0, 1.0], np.float32) * 0 + 1), [1, 1, 1])


def test_checks_in_branches_and_loops_are_made_for_each_example() -> None:
    def branch(x: Any) -> Any:
        return lax.cond(x < 0, lambda: fx.error_if(x, x < -1, "below {}", x), lambda: x)

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 3, lambda c: fx.error_if(c, c > 2, "above {}", c) + 1, x)

    x = np.array([1.0, -1.0, -2.0], np.float32)
    with pytest.raises(CheckError, match=r"^error_if: below -2.0 \(in example 2\)\n"):
        fx.jit(fx.vmap(branch))(x)
    with pytest.raises(CheckError, match=r"^error_if: above 2.5 \(in example 1\)\n"):
        fx.jit(fx.vmap(loop))(np.array([1.0, 0.5], np.float32))


def test_a_check_in_a_function_with_a_rule_is_made_for_one_example_after_the_other() -> None:
    ruled = fx.custom_jvp(lambda x: fx.error_if(x, x < 0, "in a branch that is not taken") * 2)
    ruled.defjvp(lambda primals, tangents: (ruled(*primals), 2 * tangents[0]))

    def f(x: Any) -> Any:
        return lax.cond(x < 0, lambda: -x, lambda: ruled(x))

    x = np.array([-1.0, 1.0], np.float32)
    np.testing.assert_array_equal(fx.jit(fx.vmap(f))(x), [1, 2])
    np.testing.assert_array_equal(fx.jit(fx.vmap(fx.grad(f)))(x), [-1, 2])
    with pytest.raises(CheckError, match=r"^error_if: in a branch"):
        fx.jit(ruled)(np.float32(-1))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_any_type_and_tree(dtype: dtypes.DType) -> None:
    for shape in ((), (0, 3), (2,)):
        tree = {"a": fnp.ones(shape, dtype=dtype), "b": (fnp.zeros(2), None)}
        out: Any = fx.jit(lambda t, p: fx.error_if(t, p, "no"))(tree, np.zeros(0, bool))
        assert np.asarray(out["a"]).tobytes() == np.asarray(tree["a"]).tobytes()
        assert out["b"][1] is None
        with pytest.raises(CheckError, match=r"^error_if: no\n"):
            fx.jit(lambda t, p: fx.error_if(t, p, "no"))(tree, np.array([False, True]))


def test_known_predicates_raise_while_tracing_or_add_no_equation() -> None:
    with pytest.raises(CheckError, match=r"^error_if: at once"):
        fx.trace(lambda x: fx.error_if(x, True, "at once"), X)
    with pytest.raises(CheckError, match=r"^error_if: at once f32\[2\] \(types of"):
        fx.trace(lambda x: fx.error_if(x, np.array([False, True]), "at once {}", x), X)
    program = fx.trace(lambda x: fx.error_if(x, False, "never"), X)
    assert not program.jaxpr.eqns
    assert fx.error_if(X, np.zeros((0,), bool), "never") is X


def test_dce_and_cse_remove_unused_and_equal_checks() -> None:
    def f(x: Any) -> Any:
        fx.error_if(x, x < 0, "unused")
        return x * 2

    program = fx.trace(f, X)
    assert "check" in program.text()
    assert "check" not in fx.dce(program).text()
    with pytest.raises(CheckError, match="unused"):  # it is part of the program until then
        fx.jit(f)(BAD)
    with pytest.raises(CheckError, match="unused"):
        fx.interpret(program, BAD)
    twice = fx.trace(lambda x: (root(x), root(x)), X)
    assert twice.text().count("= check") == 2
    assert fx.cse(twice).text().count("= check") == 1


def test_messages_are_data(tmp_path: Path, nothing_remembered: None) -> None:
    program = fx.trace(root, X)
    assert parse(program.text()) is program.jaxpr
    fx.save(program, tmp_path / "root.fxad")
    loaded: Any = fx.load(tmp_path / "root.fxad")
    assert loaded == program
    with pytest.raises(CheckError) as e:
        fx.jit(fx.vmap(fx.grad(lambda x: loaded(x).sum())))(np.stack([X, BAD]))
    assert e.value.message == "error_if: negative: -1.0 of 3.00 (in example 1)"
    assert e.value.where == f"{__file__}:{line_of(root, 'error_if')} in root"


def test_equal_blocks_with_different_messages_keep_them(nothing_remembered: None) -> None:
    def f(x: Any, p: Any) -> Any:
        for _ in range(3):
            x = fnp.sin(fnp.cos(x) * fnp.exp(-x))
        x = fx.error_if(x, p == 1, "the first")
        for _ in range(3):
            x = fnp.sin(fnp.cos(x) * fnp.exp(-x))
        return fx.error_if(x, p == 2, "the second")

    program = fx.trace(f, X, np.int32(0))
    small = fx.outline(program)
    runs: list[Callable[..., Any]] = [fx.jit(f), small, fx.lower(small, units=lambda _: True).compile()]
    for run in runs:
        run(X, np.int32(0))
        for p, message in ((1, "the first"), (2, "the second")):
            with pytest.raises(CheckError) as e:
                run(X, np.int32(p))
            assert e.value.message == f"error_if: {message}"
            assert e.value.where == f"{__file__}:{line_of(f, message)} in {f.__qualname__}"


def test_threads_get_their_own_error() -> None:
    run = fx.jit(lambda x: fx.error_if(x, x % 2 == 1, "odd {}", x) * 2)

    def one(k: int) -> str:
        try:
            return str(int(run(np.int32(k))))
        except CheckError as e:
            return e.message

    want = [f"error_if: odd {k}" if k % 2 else str(2 * k) for k in range(320)]
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(one, range(320))) == want


def test_nested() -> None:
    """vmap of a scan of branches with a check, inside the gradient of a remat."""

    def step(c: Any, x: Any) -> Any:
        c = lax.cond(x < 0, lambda: c, lambda: fnp.sin(fx.error_if(c, x > 5, "step with {}", x)) * x)
        return c, c

    def f(x: Any) -> Any:
        return fx.vmap(lambda xs: lax.scan(step, xs[0], xs)[0])(x).sum()

    x = np.array([[1.0, -6.0, 2.0], [0.5, 3.0, -7.0]], np.float32)
    want = fx.jit(fx.grad(f))(x)
    np.testing.assert_array_equal(fx.jit(fx.grad(fx.remat(f)))(x), want)
    x[1, 2] = 7.0
    cases: list[tuple[Callable[[Any], Any], Any]] = [
        (fx.grad(f), x), (fx.grad(fx.remat(f)), x), (fx.vmap(fx.grad(fx.remat(f))), x[None]),
    ]  # fmt: skip
    for run, given in cases:
        with pytest.raises(CheckError, match=r"^error_if: step with 7.0 \(in example (1|\[0, 1\])\)"):
            fx.jit(run)(given)


def test_a_program_with_checks_is_not_exported() -> None:
    program = fx.trace(root, X)
    assert calls_host(program.jaxpr)
    with pytest.raises(ArgumentError) as e:
        fx.lower(program).export()
    assert e.value.message == "export: root calls the host where a check fails"
    assert e.value.remedy == "leave checks out of what does not run here, on a CPU"


untyped: Any = fx
ERRORS: list[tuple[Callable[[], object], type[FxadError], str, str]] = [
    (
        lambda: fx.error_if(X, X, "no"),
        DTypeError,
        "error_if: pred is f32[2], not a bool",
        "compare: x != 0; for nan, isnan(x)",
    ),
    (
        lambda: fx.error_if(X, np.float32(np.nan), "no"),
        DTypeError,
        "error_if: pred is f32[], not a bool",
        "compare: x != 0; for nan, isnan(x)",
    ),
    (
        lambda: fx.error_if((), True, "no"),
        ArgumentError,
        "error_if: () has no arrays",
        "give what the program goes on with",
    ),
    (
        lambda: untyped.error_if(X, True, 3),
        ArgumentError,
        "error_if: the message is an int, not a str: 3",
        'error_if(x, x < 0, "negative: {}", x)',
    ),
    (
        lambda: fx.error_if(X, True, "{}", X, X),
        ArgumentError,
        "error_if: '{}' takes 1 values, 2 were given",
        "each value has a field, {} or {name}",
    ),
    (lambda: fx.error_if(X, True, "{} {x:>5.1f}!", 7, x=X[0]), CheckError, "error_if: 7   4.0!", ""),
    (lambda: fx.error_if(X, True, "{1} {0[1]} {{}}", X, 7), CheckError, "error_if: 7 1.0 {}", ""),
    (
        lambda: fx.jit(lambda x: fx.error_if(x, True, "{:.2f} {n:.1f} {{}}", x.sum(), n=7))(X),
        CheckError,
        "error_if: f32[] 7.0 {} (types of values that are not known while tracing)",
        "",
    ),
    (
        lambda: fx.jit(lambda n: fx.error_if(X, True, "{:{w}} {w}", 7, w=n))(np.int32(3)),
        CheckError,
        "error_if: 7 i32[] (types of values that are not known while tracing)",
        "",
    ),
    (lambda: fx.error_if(X, True, "100 % {of} it"), CheckError, "error_if: 100 % {of} it", ""),
]


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), ERRORS, ids=[e[2] for e in ERRORS])
def test_messages(call: Callable[[], object], kind: type[FxadError], message: str, remedy: str) -> None:
    check_refused(call, kind, message, remedy)
