"""Host calls: values, effects in their order, every transformation."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.core.host_functions import HOST
from fxad.errors import ArgumentError, ExecutionError, FxadError, NotDifferentiableError, ParameterError
from tests.api.refusals import check_refused

X = np.arange(3, dtype=np.float32)
S = fx.Spec((3,))


def sin(x: Any) -> Any:
    return fx.pure_callback(np.sin, S, x)


class Log(list[Any]):
    """A log of the calls that the host received."""

    def __call__(self, *xs: Any) -> None:
        self.append(tuple([x.tolist() for x in xs]))

    def taken(self) -> list[Any]:
        out = list(self)
        self.clear()
        return out


# ------------------------------------------------------------------------------------------------------------- values


def test_values_compiled_eager_interpreted_and_mapped() -> None:
    want = np.sin(X) * 2
    program = fx.trace(lambda x: sin(x) * 2, X)
    for run in (fx.jit(lambda x: sin(x) * 2), program, fx.lower(program).compile()):
        np.testing.assert_array_equal(run(X), want)
    np.testing.assert_array_equal(fx.interpret(program, X), want)
    np.testing.assert_array_equal(sin(X), np.sin(X))
    stack = np.stack([X, X + 1])
    np.testing.assert_array_equal(fx.vmap(sin)(stack), np.sin(stack))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_any_type(dtype: dtypes.DType) -> None:
    for shape in ((), (0, 3), (2,)):
        x, spec = fnp.ones(shape, dtype=dtype), fx.Spec(shape, dtype)
        y = fx.jit(lambda x, spec=spec: fx.pure_callback(lambda a: a, spec, x))(x)
        assert (y.dtype, y.shape) == (x.dtype, shape)
        assert np.asarray(y).tobytes() == np.asarray(x).tobytes()


def test_trees_in_and_out() -> None:
    def host(p: Any, *, k: Any) -> Any:
        return {"sum": p["a"] + k, "both": (p["a"], 3)}

    types = {"sum": S, "both": (S, fx.Spec((), "int32"))}
    out: Any = fx.jit(lambda x: fx.pure_callback(host, types, {"a": x}, k=1.0))(X)
    np.testing.assert_array_equal(out["sum"], X + 1)
    assert int(out["both"][1]) == 3


def test_an_array_that_a_host_function_keeps_does_not_change() -> None:
    kept: list[Any] = []
    fx.jit(lambda x: fx.io_callback(kept.append, None, x * 2))(X)
    for k in range(20):
        fx.jit(lambda x, k=k: x * k)(np.full(3, 9, np.float32)).block_until_ready()
    np.testing.assert_array_equal(kept[0], X * 2)
    assert not kept[0].flags.writeable


def test_vmap_calls_for_each_example_or_once() -> None:
    shapes: list[Any] = []

    def host(x: Any, y: Any) -> Any:
        shapes.append((x.shape, y.shape))
        return x + y

    xs, ys = np.ones((4, 3), np.float32), np.ones((2, 3), np.float32)
    one_by_one, whole = [((3,), (3,))] * 8, [((2, 4, 3), (2, 4, 3))]
    methods: list[tuple[str | None, Any]] = [
        ("sequential", one_by_one), ("sequential_unrolled", one_by_one), (None, one_by_one), ("broadcast_all", whole),
        ("expand_dims", whole),
    ]  # fmt: skip
    for method, want in methods:
        shapes.clear()

        def f(x: Any, y: Any, method: str | None = method) -> Any:
            return fx.pure_callback(host, S, x, y, vmap_method=method)

        out = fx.jit(fx.vmap(fx.vmap(f, in_axes=(0, None)), in_axes=(None, 0)))(xs, ys)
        assert shapes == want
        np.testing.assert_array_equal(out, np.full((2, 4, 3), 2))
    assert fx.vmap(sin)(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_derivatives() -> None:
    with pytest.raises(NotDifferentiableError) as e:
        fx.grad(lambda x: sin(x).sum())(X)
    assert e.value.message == "host_call: sin has no derivative: it runs outside of the program"
    assert e.value.remedy == "give it one with custom_jvp or custom_vjp, or pass its arguments through stop_gradient"
    np.testing.assert_array_equal(fx.grad(lambda x: (sin(fx.stop_gradient(x)) * x).sum())(X), np.sin(X))
    ruled = fx.custom_jvp(sin)
    ruled.defjvp(lambda primals, tangents: (sin(*primals), fnp.cos(primals[0]) * tangents[0]))
    np.testing.assert_allclose(fx.grad(lambda x: ruled(x).sum())(X), np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(fx.vmap(fx.grad(lambda x: ruled(x).sum()))(X[None]), np.cos(X)[None], rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------ effects


def steps(log: Log, ordered: bool = True) -> Callable[[Any], Any]:
    """Host calls before, in and after a scan, a branch and a while loop."""

    def tell(*xs: Any) -> Any:
        return fx.io_callback(log, None, *xs, ordered=ordered)

    def step(c: Any, x: Any) -> Any:
        tell(c, x)
        lax.cond(c > 0, lambda: tell(c), lambda: None)
        return c + x, c

    def f(x: Any) -> Any:
        tell(x)
        last, _ = lax.scan(step, x[0], x)
        last = lax.while_loop(lambda c: c < 5, lambda c: (tell(c), c + 1)[1], last)
        tell(last)
        return last * x.sum()

    return f


ORDER = [([0.0, 1.0, 2.0],), (0.0, 0.0), (0.0, 1.0), (1.0, 2.0), (1.0,), (3.0,), (4.0,), (5.0,)]


def test_ordered_calls_follow_the_program() -> None:
    log = Log()
    program = fx.trace(steps(log), X)
    runs: list[Callable[[Any], Any]] = [
        fx.lower(program).compile(), fx.jit(steps(log)), program, fx.dce(program), fx.cse(program),
        fx.simplify(program), fx.inline(program), lambda x: fx.interpret(program, x), steps(log),
        lambda x: fx.jvp(fx.jit(steps(log)), (x,), (x,))[0],
        fx.lower(fx.trace(lambda x: fx.jit(steps(log))(x), X), units=lambda _: True).compile(),
    ]  # fmt: skip
    for k, run in enumerate(runs):
        run(X)
        assert log.taken() == ORDER, k


def test_effects_are_not_dropped_or_merged() -> None:
    log = Log()

    def f(x: Any) -> Any:
        fx.debug_callback(log, x.sum())
        fx.debug_callback(log, x.sum())
        sin(x)  # a pure call whose result is unused
        return x

    program = fx.trace(f, X)
    small = fx.simplify(fx.cse(fx.dce(program)))
    assert sorted(str(small).count(f'effect="{e}"') for e in ("io", "pure")) == [0, 2]
    fx.jit(small)(X)
    assert log.taken() == [(3.0,)] * 2
    halves = fx.partial_eval(program, known=(False,))
    known, unknown = halves.known, halves.unknown
    assert (str(known).count("host_call"), str(unknown).count('effect="io"')) == (0, 2)


def test_gradients_call_the_host_once() -> None:
    log = Log()

    def f(x: Any) -> Any:
        y = x * x
        fx.debug_callback(log, y)
        return y.sum()

    for run in (fx.grad(f), fx.jit(fx.grad(f)), fx.grad(fx.jit(f)), fx.jacfwd(f)):
        np.testing.assert_array_equal(run(X), 2 * X)
        assert log.taken() == [([0.0, 1.0, 4.0],)]
    for run in (fx.grad(fx.remat(f)), fx.jit(fx.grad(fx.remat(lambda x: fx.remat(f)(x) * 2)))):
        run(X)
        assert log.taken() == [([0.0, 1.0, 4.0],)], "what is recomputed does not happen again"
    np.testing.assert_array_equal(fx.vmap(fx.grad(f))(np.stack([X, X])), np.stack([2 * X, 2 * X]))
    assert log.taken() == [([0.0, 1.0, 4.0],)] * 2


def test_vmap_of_branches_and_loops() -> None:
    log = Log()

    def told(x: Any) -> Any:
        fx.debug_callback(log, x)
        return x

    def f(x: Any) -> Any:
        return lax.cond(x > 0, lambda: told(x), lambda: -x)

    xs = np.array([1, -2, 3], np.float32)
    np.testing.assert_array_equal(fx.vmap(f)(xs), np.abs(xs))
    assert log.taken() == [(1.0,), (3.0,)], "what is not chosen does not happen"

    def g(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 3, lambda c: told(c) + 1, x)

    for mapped in (fx.vmap(g), fx.jit(fx.vmap(g)), lambda xs: lax.map(g, xs)):
        np.testing.assert_array_equal(mapped(xs), [3, 3, 3])
        assert log.taken() == [(1.0,), (2.0,), (-2.0,), (-1.0,), (0.0,), (1.0,), (2.0,)], "each its own steps"


def test_a_mapped_loop_with_effects_takes_any_axis() -> None:
    log = Log()

    def loop(x: Any) -> Any:
        def step(c: Any) -> Any:
            fx.debug_callback(log, c)
            return c + x

        return lax.while_loop(lambda c: c.sum() < 5, step, x)

    x = np.array([[1.0, 4.0], [1.0, 0.0], [1.0, 0.0]], np.float32)
    np.testing.assert_array_equal(fx.jit(fx.vmap(loop, in_axes=1))(x), [[2, 2, 2], [8, 0, 0]])
    assert log.taken() == [([1.0] * 3,), ([4.0, 0.0, 0.0],)]


def test_debug_print(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        fx.debug_print("x={} y={y:.1f}", x, y=x.sum(), ordered=True)
        return x

    assert fx.jit(lambda: fx.debug_print("nothing"))() is None
    fx.jit(f)(X)
    fx.vmap(f)(np.stack([X, X + 1]))
    assert capsys.readouterr().out == "nothing\nx=[0. 1. 2.] y=3.0\nx=[0. 1. 2.] y=3.0\nx=[1. 2. 3.] y=6.0\n"


def test_debug_print_has_the_digits_of_the_dtype(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any, h: Any, z: Any, n: Any) -> None:
        fx.debug_print("{} {h} {:.3f} {z} {}", x, x, n, h=h, z=z)

    args = (np.float32(0.1), np.float16(0.1), np.complex64(0.1j), np.int32(3))
    fx.jit(f)(*args)
    f(*args)
    assert capsys.readouterr().out == "0.1 0.1 0.100 0.1j 3\n" * 2


def test_a_field_in_the_spec_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    values, named = (np.float32(2.5), np.int32(8), 7), {"d": np.int32(3)}
    for fmt in ("{:{}.{d}f} {}", "{0:{1}.{d}f} {2:>{d}}", "{:>{}} {:{d}}"):
        fx.jit(lambda *args, fmt=fmt, **kwargs: fx.debug_print(fmt, *args, **kwargs))(*values, **named)
        assert capsys.readouterr().out == fmt.format(*values, **named) + "\n", fmt
        with pytest.raises(fx.errors.CheckError) as e:
            fx.jit(lambda x, *args, fmt=fmt, **kwargs: fx.error_if(x, x > 0, fmt, x, *args, **kwargs))(*values, **named)
        assert e.value.message == f"error_if: {fmt.format(*values, **named)}"


def test_what_is_no_array_is_told_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> None:
        fx.debug_print("{name:>5} {} {} {at}", x.dtype, x, name="loss", at=x.shape, ordered=True)
        fx.debug_callback(lambda *args: told.append(str(args[0])), ["of", None, x.sum(), "!"], ordered=True)

    told: list[str] = []

    def total(x: Any) -> Any:
        f(x)
        return x.sum()

    calls: list[Any] = [f, fx.jit(f), fx.grad(total)]
    for call in calls:
        call(X)
        assert capsys.readouterr().out == " loss float32 [0. 1. 2.] (array(3, dtype=int32),)\n"
        assert told.pop() == "['of', None, array(3., dtype=float32), '!']"


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Broken:
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no array")


def test_an_exception_of_a_host_function_whose_str_raises() -> None:
    def speechless(x: Any) -> Any:
        raise Speechless

    def broken(x: Any) -> Any:
        return Broken()

    raised = "correct the function: what it raised is the cause of this error, with its own lines"
    gave = "return arrays or numbers: what was raised is the cause of this error, with its own lines"
    for f, said, remedy, cause in (
        (speechless, "raised Speechless, whose __str__ raised RuntimeError", raised, Speechless),
        (broken, "gave a Broken, which makes no array: RuntimeError: no array", gave, RuntimeError),
    ):
        for run in (fx.jit(partial(fx.pure_callback, f, S)), partial(fx.pure_callback, f, S)):
            with pytest.raises(ExecutionError) as e:
                run(X)
            assert e.value.message == f"host_call: {f.__name__} {said}"
            assert isinstance(e.value.__cause__, cause)
            assert e.value.remedy == remedy


# ----------------------------------------------------------------------------------------------------------- lifetime


def test_a_dropped_program_releases_its_function() -> None:
    fx.cache.clear()
    gc.collect()
    before = len(HOST)
    program = fx.trace(sin, X)
    run = fx.jit(program)
    assert len(HOST) == before + 1
    run(X)
    del run, program
    fx.cache.clear()
    gc.collect()
    assert len(HOST) == before


def test_a_linear_function_keeps_its_host_functions_alive() -> None:
    """Regression: a recomputation calls the host in the linear program, and nothing else keeps the function alive."""
    x, t = X[0] + 1, np.float32(2)

    def scaled(x: Any) -> Any:
        return x * fnp.sin(x * fx.pure_callback(lambda n: np.float32(n), fx.Spec(()), np.float32(1.5)))

    def looped(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, scaled(c[1])), (0, x))[1]

    def in_a_branch(x: Any) -> Any:
        return lax.cond(x > 0, fx.remat(scaled), lambda x: x, x)

    for f in (fx.remat(scaled), in_a_branch):
        want = float(fx.jvp(f, (x,), (t,))[1])
        _, pull = fx.vjp(lambda x, f=f: f(x), x)
        gc.collect()
        assert float(pull(t)[0]) == pytest.approx(want)
        _, pull, _aux = fx.vjp(lambda x, f=f: (f(x), x), x, has_aux=True)
        gc.collect()
        assert float(pull(t)[0]) == pytest.approx(want)
    for f in (fx.remat(scaled), in_a_branch, looped):
        want = float(fx.jvp(f, (x,), (t,))[1])
        _, push = fx.linearize(lambda x, f=f: f(x), x)
        gc.collect()
        assert float(push(t)) == pytest.approx(want)
        assert float(fx.jit(lambda push, t: push(t))(push, t)) == pytest.approx(want)


def test_a_call_that_returns_a_pullback_returns_what_it_calls() -> None:
    """A call that returns the number of a host function returns what keeps the function alive."""
    x, ct = X[2] + 1, np.float32(2)

    def new_function() -> Any:
        @fx.custom_vjp
        def power(x: Any) -> Any:
            return x**3

        power.defvjp(lambda x: (x**3, x), lambda x, ct: (ct * fx.pure_callback(lambda v: 3 * v**2, fx.Spec(()), x),))
        return power

    def pullback(f: Any, x: Any) -> Any:
        return fx.vjp(f, x)[1]

    makers: list[Callable[[Any], Any]] = [
        lambda f: fx.jit(partial(pullback, f)),
        lambda f: fx.trace(partial(pullback, f), x),
        lambda f: fx.lower(fx.trace(fx.jit(partial(pullback, f)), x)).compile(),
        lambda f: lambda x: fx.jit(lambda pull, x: (x * 2, pull))(pullback(f, x), x)[1],
        lambda f: lambda x: fx.jit(lambda pull: pull)(fx.jit(partial(pullback, f))(x)),
        lambda f: partial(pullback, f),
        lambda f: lambda x: fx.tree.map(lambda leaf: leaf.copy(), fx.jit(partial(pullback, f))(x)),
    ]
    gc.collect()
    before = len(HOST)
    pulls = [make(new_function())(x) for make in makers]
    gc.collect()  # the functions and the programs, but not what the pullbacks hold
    assert len(HOST) == before + len(makers)
    assert [float(pull(ct)[0]) for pull in pulls] == [54] * len(makers)
    del pulls
    gc.collect()
    assert len(HOST) == before


def test_programs_that_differ_in_the_function_share_an_executable() -> None:
    def made(k: int) -> Any:
        def host(x: Any) -> Any:
            return x + np.float32(k)

        return fx.trace(lambda x: fx.pure_callback(host, S, x), X)

    first, second = made(1), made(2)
    assert first.jaxpr is second.jaxpr
    assert first != second
    before = fx.cache.stats().compilations
    assert [fx.jit(p)(X).tolist() for p in (first, second)] == [[1, 2, 3], [2, 3, 4]]
    assert fx.cache.stats().compilations == before + 1


def test_a_host_function_that_was_freed() -> None:
    traced = fx.trace(sin, X)
    jaxpr, out_tree = traced.jaxpr, traced.out_tree
    takes_number = fx.trace(lambda n, x: x, np.uint64(0), X).in_tree
    program: Any = fx.Program(jaxpr, takes_number, out_tree)
    with pytest.raises(ExecutionError) as e:
        fx.jit(program)(np.uint64(0), X)
    assert e.value.message == "host_call: sin is gone: it is of another process, or nobody holds its program"
    assert e.value.remedy == "keep the program, or trace it again"


# ------------------------------------------------------------------------------------------------------------- errors


def broken(x: Any) -> Any:
    raise ValueError(f"no {x.tolist()}")


untyped: Any = fx
ERRORS: list[tuple[Callable[[], object], type[FxadError], str, str]] = [
    (
        lambda: fx.jit(lambda x: fx.pure_callback(broken, S, x))(X),
        ExecutionError,
        "host_call: broken raised ValueError: no [0.0, 1.0, 2.0]",
        "correct the function: what it raised is the cause of this error, with its own lines",
    ),
    (
        lambda: fx.jit(lambda x: fx.pure_callback(lambda x: x.astype(np.float64), S, x))(X),
        ExecutionError,
        "host_call: <lambda> gave float64[3], it was declared to give f32[3]",
        "correct the result types, or convert what the function returns",
    ),
    (
        lambda: fx.jit(lambda x: fx.pure_callback(lambda x: x[:2], S, x))(X),
        ExecutionError,
        "host_call: <lambda> gave float32[2], it was declared to give f32[3]",
        "correct the result types, or convert what the function returns",
    ),
    (
        lambda: fx.jit(lambda x: fx.pure_callback(lambda x: (x, x), S, x))(X),
        ArgumentError,
        "pure_callback: <lambda> gave another tree than it was declared to give: tree stands against tree[0]",
        "correct the result types, or what the function returns",
    ),
    (
        lambda: untyped.pure_callback(3, S, X),
        ArgumentError,
        "pure_callback: an int is not a function: 3",
        "pass a function of arrays, which runs on the host",
    ),
    (
        lambda: untyped.debug_callback("x", X),
        ArgumentError,
        "debug_callback: a str is not a function: 'x'",
        "pass a function of arrays, which runs on the host",
    ),
    (
        lambda: fx.pure_callback(np.sin, {"a": 3}, X),
        ArgumentError,
        "pure_callback: result_types['a'] is an int, which has no shape and dtype: 3",
        "give a Spec for each array that the function returns",
    ),
    (
        lambda: fx.pure_callback(np.sin, S, X, vmap_method="fast"),
        ParameterError,
        "pure_callback: vmap_method must be 'sequential' or 'broadcast_all', got 'fast'",
        "sequential: an example at a time; broadcast_all: the whole stack at once",
    ),
    (
        lambda: fx.debug_print("{} {}", X),
        ArgumentError,
        "debug_print: '{} {}' takes 2 values, 1 were given",
        "each value has a field, {} or {name}",
    ),
    (
        lambda: fx.debug_print("{a}", b=X),
        ArgumentError,
        "debug_print: '{a}' takes other names: a, b",
        "each value has a field, {} or {name}",
    ),
    (
        lambda: fx.debug_print("{:{:{}}}", X[0], 8, 3),
        ArgumentError,
        "debug_print: '{:{:{}}}' does not format these values: Max string recursion exceeded",
        "a format such as {:.2f} is for one number; {} shows any array",
    ),
    (
        lambda: fx.debug_print("{:{w}}", X[0], v=8),
        ArgumentError,
        "debug_print: '{:{w}}' takes other names: v, w",
        "each value has a field, {} or {name}",
    ),
    (
        lambda: untyped.debug_print(3),
        ArgumentError,
        "debug_print: the format is an int, not a str: 3",
        'debug_print("x is {}", x)',
    ),
]


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), ERRORS, ids=[e[2][:60] for e in ERRORS])
def test_messages(call: Callable[[], object], kind: type[FxadError], message: str, remedy: str) -> None:
    check_refused(call, kind, message, remedy)


def numbered(log: Log) -> Callable[[Any], Any]:
    """Ordered calls whose results the backward pass needs, in a scan and in its branches."""

    def number(n: int, x: Any) -> Any:
        def host(v: Any) -> Any:
            log(v)
            return np.int32(n)

        return fx.io_callback(host, fx.Spec((), "int32"), x, ordered=True)

    def step(c: Any, x: Any) -> Any:
        fx.debug_callback(log, c, ordered=True)
        return lax.cond(number(3, x) > 2, lambda: fnp.sin(c * x) * fnp.astype(number(2, c), "float32"), lambda: c), None

    def f(x: Any) -> Any:
        fx.debug_callback(log, x, ordered=True)
        scale = fnp.astype(number(2, x), "float32")
        return lax.scan(step, x[0] + 1, x)[0] * scale

    return f


def test_effects_in_a_remat_happen_once() -> None:
    log = Log()
    f = numbered(log)
    want = fx.grad(f)(X)
    happened = log.taken()
    assert len(happened) == 2 + 3 * 3
    twice = fx.remat(lambda x: fx.remat(f)(x))
    for run in (fx.grad(fx.remat(f)), fx.grad(twice), lambda x: fx.value_and_grad(fx.remat(f))(x)[1]):
        for how in (run, fx.jit(run), lambda x, run=run: fx.interpret(fx.trace(run, X), x)):
            np.testing.assert_array_equal(how(X), want)
            assert log.taken() == happened
    backward = fx.trace(fx.grad(fx.remat(f)), X).text().rpartition("remat[")[2]
    assert backward.startswith("body=")
    fx.jit(fx.remat(f))(X)
    assert log.taken() == happened
    stack = np.stack([X, X + 1])
    fx.vmap(f)(stack)
    mapped = log.taken()
    fx.jit(fx.vmap(fx.grad(fx.remat(f))))(stack)
    assert log.taken() == mapped


def test_ordered_calls_in_functions_with_rules_and_in_predicates() -> None:
    log = Log()

    def told(x: Any) -> Any:
        fx.debug_callback(log, x, ordered=True)
        return x

    sine = fx.custom_jvp(lambda x: fnp.sin(told(x)))
    sine.defjvp(lambda primals, tangents: (sine(*primals), fnp.cos(primals[0]) * tangents[0]))

    def f(x: Any) -> Any:
        return told(sine(x) * 0 + 2) * sine(x + 1)

    for run in (f, fx.jit(f), fx.jit(fx.grad(f)), fx.jit(fx.grad(fx.remat(f)))):
        run(np.float32(1))
        assert log.taken() == [(1.0,), (2.0,), (2.0,)]

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: told(c) < 3, lambda c: told(c * 10) / 10 + 1, x)

    for run in (loop, fx.jit(loop), lambda x: fx.vmap(loop)(x[None])[0], lambda x: fx.interpret(fx.trace(loop, x), x)):
        assert float(run(np.float32(1))) == 3
        assert log.taken() == [(1.0,), (10.0,), (2.0,), (20.0,), (3.0,)]


def test_an_ordered_call_in_the_predicate_of_a_loop_is_refused() -> None:
    log = Log()

    def loop(x: Any) -> Any:
        def more(c: Any) -> Any:
            fx.debug_callback(log, c, ordered=True)
            return c < 3

        return lax.while_loop(more, lambda c: c + 1, x, max_steps=9)

    with pytest.raises(fx.errors.CompileError) as e:
        fx.jit(loop)(np.float32(0))
    assert e.value.message == "compile: an ordered call of the host inside while has no place in an order"
    assert e.value.remedy == "leave out `ordered`, or call the host outside of it"


def test_an_error_has_the_users_line(nothing_remembered: None) -> None:
    def f(x: Any) -> Any:
        return fx.pure_callback(broken, S, x)  # here

    with pytest.raises(ExecutionError) as e:
        fx.jit(f)(X)
    assert e.value.where.startswith(f"{__file__}:")
    assert e.value.where.endswith(f" in {f.__qualname__}")
    assert isinstance(e.value.__cause__, ValueError)
    none = fx.jit(lambda x: lax.scan(lambda c, _: (fx.pure_callback(broken, S, c), None), x, None, length=0)[0])
    np.testing.assert_array_equal(none(X), X)
