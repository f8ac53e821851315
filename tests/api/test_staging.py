"""Functions and stages with JAX's names work as in JAX, under transformations too."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.custom_batching import sequential_vmap
from fxad.errors import ArgumentError, DTypeError, LeakedTracerError, ParameterError, ShapeError, TracerError
from fxad.ir import source_location
from fxad.stages import ArgInfo, Compiled, Lowered, Traced
from tests.api.refusals import check_refused

X = fnp.asarray([[1.0, 2.0], [3.0, 4.0]])
loose: Any = fx  # calls that mypy refuses


# ---------------------------------------------------------------------------------------------------------- stages


def test_stages() -> None:
    f = fx.jit(lambda x, *, y: {"out": (x @ y).sum()})
    traced = f.trace(X, y=fx.Spec((2, 2)))
    assert isinstance(traced, Traced)
    assert isinstance(traced, fx.Program)
    assert traced.fun_name == "<lambda>"
    info = ArgInfo((2, 2), "float32")
    assert traced.args_info == ((info,), {"y": info})
    assert traced.out_info == {"out": fx.Spec(())}
    lowered = traced.lower()
    assert isinstance(lowered, Lowered)
    assert lowered.as_text() == lowered.text() == f.lower(X, y=X).as_text()
    compiled = lowered.compile(compiler_options={"xla_cpu_enable_fast_math": False})
    assert isinstance(compiled, Compiled)
    assert "HloModule" in compiled.as_text()
    for stage in (lowered, compiled):
        assert stage.args_info == traced.args_info
        assert stage.out_info == traced.out_info
        assert stage.in_tree == traced.in_tree
        assert stage.out_tree == traced.out_tree
        assert set(stage.cost_analysis()) == {"flops", "bytes accessed", "transcendentals"}
    memory = compiled.memory_analysis()
    assert (memory.argument_size_in_bytes, memory.output_size_in_bytes) == (32, 4)
    assert memory.temp_size_in_bytes == compiled.memory().temp_bytes
    assert float(compiled(X, y=X)["out"]) == 54
    assert traced == fx.trace(lambda x, *, y: {"out": (x @ y).sum()}, X, y=X)


def test_stages_with_static_arguments_and_donation() -> None:
    f = fx.jit(lambda x, n: x * n, static_argnames="n", donate_argnums=0)
    lowered = f.trace(X, n=3).lower()
    assert lowered.donate == lowered.donate_argnums == lowered.compile().donate_argnums == (0,)
    assert lowered.args_info == f.trace(X, n=3).args_info == ((ArgInfo((2, 2), donated=True),), {})
    two = fx.jit(lambda x, y: (x["a"] + X, y)).lower({"a": X}, X)
    for stage, donated in ((two, (False, False)), (two.compile(donate=0), (True, False))):
        (x, y), _ = stage.args_info
        assert (x["a"].donated, y.donated) == donated
    assert fx.eval_shape(f, *lowered.args_info[0], 3) == fx.Spec((2, 2))
    assert f.eval_shape(X, n=3) == fx.Spec((2, 2))
    x = X + 0
    y = f(x, n=3)
    assert x.is_deleted()
    f.clear_cache()
    assert np.array_equal(np.asarray(f(X + 0, n=3)), np.asarray(y))
    g = fx.jit(lambda state, x: state + x, donate_argnames=("state",))
    state = X + 0
    g(state, X)
    assert state.is_deleted()
    g.clear_cache()
    assert np.array_equal(np.asarray(g(X + 0, X)), 2 * np.asarray(X))


def test_a_function_is_traced_again_after_clear_cache() -> None:
    factor = 2.0
    f = fx.jit(lambda x: x * factor)
    assert float(f(1.0)) == 2
    assert float(f(fx.asarray(1.0))) == 2
    factor = 3.0
    assert float(f(fx.asarray(1.0))) == 2  # the executable of that time has the old value
    f.clear_cache()
    assert float(f(fx.asarray(1.0))) == 3
    assert float(f(1.0)) == 3


def test_eval_shape_and_make_jaxpr() -> None:
    def f(x: Any, n: int) -> Any:
        return {"y": x**n, "s": (x.sum(), x.astype("int8"))}

    want = {"y": fx.Spec((3,)), "s": (fx.Spec(()), fx.Spec((3,), "int8"))}
    assert fx.eval_shape(lambda x: f(x, 2), fx.ShapeDtypeStruct((3,), "float32")) == want
    assert fx.eval_shape(fx.trace(lambda x: f(x, 2), fx.Spec((3,)))) == want
    program, shapes = fx.make_jaxpr(f, static_argnums=1, return_shape=True)(fx.Spec((3,)), 2)
    assert shapes == want
    assert program.jaxpr is fx.trace(lambda x: f(x, 2), fx.Spec((3,))).jaxpr
    assert fx.make_jaxpr(fnp.sin)(1.0).jaxpr.eqns[0].prim.name == "sin"
    assert fx.typeof(np.ones((2, 3), "int8")) is fx.Spec((2, 3), "int8").aval
    named = SimpleNamespace(shape=(3,), dtype=np.dtype("float32"))  # of another library
    assert fx.eval_shape(lambda x: f(x, 2), named) == want
    assert fx.make_jaxpr(lambda x: f(x, 2))(named).jaxpr is program.jaxpr
    assert fx.linear_transpose(lambda x: 2 * x, named)(np.ones(3, np.float32))[0].tolist() == [2, 2, 2]


def test_specs() -> None:
    spec = fx.ShapeDtypeStruct((2, 3), fnp.int8)
    assert (spec.ndim, spec.size, len(spec)) == (2, 6, 2)
    with pytest.raises(TypeError, match="unsized"):
        len(fx.Spec(()))
    assert spec.update(shape=(4,)) == fx.Spec((4,), "int8")
    assert spec.update(dtype=float) == fx.Spec((2, 3))
    assert fx.Spec.like(np.ones((2, 3), np.float32)) == fx.Spec.like(fnp.ones((2, 3))) == fx.Spec((2, 3))
    assert (fx.Spec.like(spec), fx.Spec.like(1.5)) == (spec, fx.Spec(()))
    assert fx.Spec.like(SimpleNamespace(shape=[2], dtype="int8")) == fx.Spec((2,), "int8")
    with pytest.raises(ArgumentError, match=r"^Spec.like: a str is not an array: 'x'"):
        fx.Spec.like("x")


# --------------------------------------------------------------------------------------- functions that are pytrees


def test_results_of_vjp_and_linearize_are_pytrees() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x)

    pull = fx.jit(lambda x: fx.vjp(f, x)[1])(X)
    np.testing.assert_allclose(np.asarray(pull(X)[0]), np.cos(X) * np.asarray(X), rtol=1e-6)
    assert [leaf.shape for leaf in fx.tree.leaves(pull)] == [(2, 2)]
    push = fx.jit(lambda x: fx.linearize(f, x)[1])(X)
    np.testing.assert_allclose(np.asarray(push(X)), np.cos(X) * np.asarray(X), rtol=1e-6)
    # mapped, and in a carry
    pulls = fx.vmap(lambda x: fx.vjp(f, x)[1])(X)
    np.testing.assert_allclose(
        np.asarray(fx.vmap(lambda p, c: p(c)[0])(pulls, X)), np.cos(X) * np.asarray(X), rtol=1e-6
    )
    carried, _ = lax.scan(lambda p, _: (fx.tree.map(lambda r: r * 2, p), None), pull, length=2)
    np.testing.assert_allclose(np.asarray(carried(X)[0]), 4 * np.cos(X) * np.asarray(X), rtol=1e-6)


def test_has_aux_of_jvp_and_linearize() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y, {"n": 2 * x, "k": 3}

    jvp: Any = fx.jvp
    out, dot, aux = jvp(f, (3.0, 2.0), (1.0, 0.0), has_aux=True)
    assert (float(out), float(dot), float(aux["n"]), int(aux["k"])) == (6, 2, 6, 3)
    linearize: Any = fx.linearize
    out, push, aux = linearize(f, 3.0, 2.0, has_aux=True)
    assert (float(out), float(push(1.0, 0.0)), float(aux["n"])) == (6, 2, 6)
    for call in (
        lambda: fx.jvp(lambda x: x, (1.0,), (1.0,), has_aux=True),
        lambda: fx.linearize(lambda x: x, 1.0, has_aux=True),
    ):
        with pytest.raises(ArgumentError, match="has_aux=True, but <lambda> returns") as e:
            call()
        assert e.value.remedy == "return a pair (result, auxiliary results)"
    with pytest.raises(ArgumentError) as e:
        loose.jvp(fx.trace(f, 1.0, 1.0), (1.0, 1.0), (1.0, 1.0), has_aux=True)
    assert e.value.message == "jvp: a Program is transformed without has_aux"
    assert e.value.remedy == "its result has the tangents of all results"


def test_closure_convert() -> None:
    converted, arrays = fx.closure_convert(lambda y: (y * X).sum(), 2.0)
    assert len(arrays) == 1
    assert float(converted(3.0, *arrays)) == 30
    assert float(fx.grad(lambda a: converted(1.0, a))(X)[0, 0]) == 1
    with pytest.raises(ArgumentError) as e:
        converted(3.0)
    assert e.value.message == "closure_convert: <lambda> takes 1 argument and 1 array, got 1"
    assert e.value.remedy == "call converted(*args, *arrays) with the arrays that closure_convert returned"


CALLS_OF_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda p: p(X),
    "jit": lambda p: fx.jit(p)(X),
    "jit of a call": lambda p: fx.jit(lambda q, x: q(x))(p, X),
    "vmap": lambda p: fx.vmap(p)(np.stack([X, X])),
    "lower": lambda p: loose.lower(p).compile()(X),
    "interpret": lambda p: fx.interpret(p, X),
    "jaxpr": lambda p: fx.grad(lambda x: fnp.sum(p(x)[0]))(X),
}


@pytest.mark.parametrize("call", CALLS_OF_PROGRAMS)
def test_arrays_that_are_closed_over_keep_their_types(call: str) -> None:
    """XLA takes any buffer of as many bytes: integers would be read as floats."""
    run = CALLS_OF_PROGRAMS[call]
    _, pullback = fx.vjp(lambda x: fnp.sin(x) * X, X)
    run(pullback)
    run(fx.tree.map(np.asarray, pullback))
    for change, error, found in (
        (lambda r: np.asarray(r).astype("int32"), DTypeError, rf"i32\[{X.shape[0]},"),
        (lambda r: fnp.asarray(r).reshape(-1), ShapeError, rf"f32\[{X.size}\]"),
        (lambda r: fnp.stack([r, r]), ShapeError, r"f32\[2,"),
    ):
        with pytest.raises(error, match=rf"closed-over array 0 is {found}.*it was traced as f32\[") as e:
            run(fx.tree.map(change, pullback))
        assert (
            e.value.remedy == "give the arrays that the program had, or others of their types; vmap takes stacked ones"
        )


def test_closure_convert_takes_arrays_of_the_same_types() -> None:
    converted, (array,) = fx.closure_convert(lambda y: y * X, 2.0)
    with pytest.raises(DTypeError, match=r"closed-over array 0 is i32"):
        converted(3.0, array.astype("int32"))
    with pytest.raises(ArgumentError, match="closed-over array 0: a str is not an array"):
        converted(3.0, "x")


def test_linear_transpose() -> None:
    assert [float(x) for x in fx.linear_transpose(lambda x, y: 3 * x + 2 * y, 1.0, 1.0)(2.0)] == [6, 4]


# ------------------------------------------------------------------------------------------------ rules in one function


def test_custom_gradient() -> None:
    @fx.custom_gradient
    def f(x: Any, y: Any) -> Any:
        scale = fnp.cos(x)  # stored for the backward pass
        return x * y, lambda g: (10 * g * scale, g * y)

    assert float(f(2.0, 3.0)) == 6
    want = 10 * np.cos(2.0), 3.0
    slopes: Any = fx.grad(f, (0, 1))
    for grad in (slopes, fx.jit(slopes)):
        np.testing.assert_allclose(np.array([float(g) for g in grad(2.0, 3.0)]), np.array(want), rtol=1e-6)
    slope: Any = fx.grad(f)
    mapped = fx.vmap(slope)(fnp.asarray([2.0, 0.0]), fnp.asarray([1.0, 1.0]))
    np.testing.assert_allclose(np.asarray(mapped), [want[0], 10], rtol=1e-6)
    one = fx.custom_gradient(lambda x: (x, lambda g: 5 * g))
    assert float(fx.grad(one)(1.0)) == 5
    with pytest.raises(ArgumentError) as e:
        fx.custom_gradient(lambda x: x)(1.0)
    assert e.value.message == ("custom_gradient of <lambda>: it returns a float, not a pair (results, function)")
    assert e.value.remedy == "return the results, and a function from their cotangent to those of the arguments"


def test_sequential_vmap(capfd: pytest.CaptureFixture[str]) -> None:
    @sequential_vmap
    def f(x: Any, y: Any) -> Any:
        fx.debug.print("{}", x)
        return {"s": x + y}

    out = fx.vmap(f, (0, None))(fnp.arange(3.0), 10.0)["s"]
    assert np.asarray(out).tolist() == [10, 11, 12]
    assert capfd.readouterr().out.split() == ["0.0", "1.0", "2.0"]


# ------------------------------------------------------------------------------------------------------ ways to run


def test_disable_jit() -> None:
    seen = []

    @fx.jit
    def f(x: Any) -> Any:
        seen.append(isinstance(x, fx.Array) and "Array(" in repr(x))
        return x * 2 + X[0]

    with fx.disable_jit():
        out = f(X)
        static = fx.jit(lambda x, n: x * n if float(x.sum()) > 0 else x, static_argnums=1)(X, 3)
        with fx.disable_jit(False):
            f(X)
        assert float(fx.grad(lambda x: (f(x) * x).sum())(X)[0, 0]) == 5  # traced, as in JAX
    assert np.array_equal(np.asarray(out), np.asarray(f(X)))
    assert np.array_equal(np.asarray(static), 3 * np.asarray(X))
    assert seen[0] is True
    assert seen[1] is False
    with pytest.raises(ArgumentError) as e, fx.disable_jit("yes"):  # type: ignore[arg-type]
        pass
    assert e.value.message == "disable_jit: disable is a str, not a bool: 'yes'"
    assert e.value.remedy == "disable_jit(True)"


def test_ensure_compile_time_eval() -> None:
    @fx.jit
    def f(x: Any) -> Any:
        with fx.ensure_compile_time_eval():
            table = fnp.arange(3.0) * 2
            assert float(table[1]) == 2
        return x + table

    assert np.asarray(f(1.0)).tolist() == [1, 3, 5]
    with pytest.raises(LeakedTracerError):
        with_tracer(1.0)


@fx.jit
def with_tracer(x: Any) -> Any:
    with fx.ensure_compile_time_eval():
        return x + 1


def test_checkpoint() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(fnp.sin(x))

    for how in (
        {},
        {"prevent_cse": False},
        {"prevent_cse": (True,)},
        {"prevent_cse": [{"x": False}]},
        {"policy": fx.checkpoint_policies.everything_saveable},
    ):
        assert float(fx.grad(fx.checkpoint(f, **how))(1.0)) == float(fx.grad(f)(1.0))
    g = fx.checkpoint(lambda x, n: x**n, static_argnums=(1,))
    assert float(fx.grad(g)(2.0, 3)) == 12
    with pytest.raises(ArgumentError) as e:
        fx.checkpoint(f, prevent_cse="no")
    assert e.value.message == "remat: prevent_cse is a str, not a bool: 'no'"
    with pytest.raises(ArgumentError, match="remat: prevent_cse is an int, not a bool: 1"):
        fx.checkpoint(f, prevent_cse=(True, 1))
    assert e.value.remedy == "leave it out: a recompute is always real"


def test_names() -> None:
    named = fx.named_call(lambda x: x + 1, name="layer")
    assert fx.trace(named, 1.0).name == "layer"
    with fx.named_scope("block"):
        assert int(named(1)) == 2
    with pytest.raises(ArgumentError) as e, fx.named_scope(3):  # type: ignore[arg-type]
        pass
    assert e.value.message == "named_scope: the name is an int, not a str: 3"
    assert e.value.remedy == "give a str"
    with pytest.raises(ArgumentError) as e:
        loose.named_call(named, name=3)
    assert e.value.message == "named_call: the name is an int, not a str: 3"
    assert e.value.remedy == "give a str"


def scopes(program: Any) -> list[str]:
    return [getattr(source_location(e.source), "scope", "") for e in program.jaxpr.eqns]


def test_scopes_are_in_sources_and_not_in_the_program() -> None:
    @fx.named_scope("inner")
    def double(x: Any) -> Any:
        return x * 2

    def f(x: Any) -> Any:
        with fx.named_scope("outer"):
            x = double(fnp.sin(x))
            try:
                with fx.named_scope("failing"):
                    raise ValueError
            except ValueError:
                x = fnp.cos(x)
        return fnp.tan(x)

    program = fx.trace(f, X)
    assert scopes(program) == ["outer", "outer/inner", "outer", ""]
    assert "outer/inner/mul" in fx.lower(program, units="none").module.locations
    (call,) = fx.trace(lambda x: fx.named_scope("all")(fx.jit(lambda y: fnp.sin(y) + 5))(x), X).jaxpr.eqns
    body = call.prim.body  # type: ignore[attr-defined]
    assert [getattr(source_location(e.source), "scope", "") for e in body.eqns] == ["all", "all"]
    assert fx.trace(lambda x: fnp.tan(fnp.cos(fnp.sin(x) * 2)), X).jaxpr is program.jaxpr


def test_an_error_names_the_scope() -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("block"):
            return x @ fnp.ones(7)

    with pytest.raises(ShapeError) as e:
        fx.trace(f, X)
    assert str(e.value.where).endswith("<locals>.f, block")


def test_eval_shape_of_a_program_checks_its_arguments() -> None:
    program = fx.trace(lambda x: {"y": x + 1}, X)
    assert fx.eval_shape(program) == fx.eval_shape(program, fx.Spec((2, 2))) == {"y": fx.Spec((2, 2))}
    with pytest.raises(ShapeError) as e:
        fx.eval_shape(program, fx.Spec((3, 2)))
    assert e.value.message == "<lambda>: argument x has shape (3, 2), it was traced with (2, 2)"


def test_checkpoint_takes_static_arguments_by_name() -> None:
    power = fx.checkpoint(lambda x, n: x**n if isinstance(n, int) else 0 * x, static_argnames="n")
    assert float(fx.grad(power)(2.0, n=3)) == 12


# --------------------------------------------------------------------------------------------------------- debugging


def test_debug(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    @fx.jit
    def f(x: Any) -> Any:
        fx.debug.print("x is {x}", x=x)
        fx.debug.callback(lambda v: told.append(float(v)), x)
        return x

    f(2.0).block_until_ready()
    assert told == [2]
    assert capfd.readouterr().out == "x is 2.0\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("c\n"))
    stopped: list[dict[str, Any]] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stopped.append(sys._getframe(1).f_locals))
    shown: Any = fx.debug.breakpoint
    fx.jit(lambda x: (shown(x=x), x)[1])(3.0).block_until_ready()
    fx.debug.breakpoint(x=fnp.asarray(4.0))
    assert [float(s["values"]["x"]) for s in stopped] == [3, 4]


# ------------------------------------------------------------------------------------------------ values and segments


def test_values() -> None:
    t = {"a": X, "b": 3}
    assert fx.block_until_ready(t) is t
    got = fx.device_get(t)
    assert type(got["a"]) is np.ndarray
    assert got["b"] == 3
    assert fx.default_backend() == fx.devices()[0].platform


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_segments(name: str, dtype: str) -> None:
    if dtype == "bool" and name in {"sum", "prod"}:
        return
    data = np.array([[1, 2], [3, 0], [5, 6], [7, 8], [9, 1]]).astype(dtype)
    ids = np.array([0, 2, 0, -1, 7])
    segment = getattr(fx.ops, f"segment_{name}")
    reduce = getattr(np, name)
    for out in (segment(data, ids, 3), fx.jit(lambda d, i: segment(d, i, num_segments=3))(data, ids)):
        assert np.array_equal(np.asarray(out)[0], reduce(data[[0, 2]], axis=0))
        assert np.array_equal(np.asarray(out)[2], data[1])
        assert out.dtype == dtype
        empty = {"sum": 0, "prod": 1}.get(name)
        if empty is not None:
            assert (np.asarray(out)[1] == empty).all()
    jax = pytest.importorskip("jax")
    theirs = getattr(jax.ops, f"segment_{name}")(data, ids, 3)
    assert np.array_equal(np.asarray(segment(data, ids, 3)), np.asarray(theirs))


def test_segments_by_default_and_their_gradient() -> None:
    assert fx.ops.segment_sum(np.ones(3), np.array([0, 4, 1])).shape == (5,)
    g = fx.grad(lambda x: (fx.ops.segment_sum(x, np.array([0, 1, 0]), 2) * fnp.asarray([2.0, 3.0])).sum())
    assert np.asarray(g(fnp.ones(3))).tolist() == [2, 3, 2]


REFUSED: list[tuple[Callable[[], object], type[Exception], str, str]] = [
    (lambda: loose.jit(abs, backend="tpu"), ParameterError, "jit: backend is 'tpu', which jit does not take",
     "put the arguments on a device of that platform: device_put(x, device)"),
    (lambda: loose.jit(abs, device=3), ParameterError, "jit: device is 3, which jit does not take",
     "put the arguments on the device: device_put(x, device)"),
    (lambda: loose.jit(fnp.sin).lower(X).compile(compiler_options=3), ArgumentError,
     "compile of sin: compiler_options is an int: 3",
     "give a dict of XLA's flags and their values"),
    (lambda: loose.jit(abs, compiler_options={}), ParameterError,
     "jit: compiler_options is {}, which jit does not take",
     "lower(trace(f, x)).compile(CompileOptions(...))"),
    (lambda: loose.jit(abs, donate=0, donate_argnums=0), ArgumentError,
     "jit: donate is 0, and donate_argnums or donate_argnames is given too", "name all donated arguments in donate"),
    (lambda: loose.make_jaxpr(abs, axis_env=[("i", 2)]), ParameterError, "make_jaxpr: axis_env is [('i', 2)]",
     "map over the named axis: make_jaxpr(vmap(f, axis_name=...))"),
    (lambda: fx.linear_transpose(abs, 1.0, reduce_axes=("i",)), ParameterError,
     "linear_transpose: reduce_axes is ('i',)", "sum over the named axis in the function: lax.psum"),
    (lambda: loose.Spec((2,), sharding=3), ParameterError, "Spec: sharding is 3; a type has none",
     "put the argument where it belongs: device_put(x, sharding)"),
    (lambda: fx.ops.segment_sum(X, fnp.zeros(2)), DTypeError,
     "segment_sum: segment_ids are f32[2], not integers", "convert them with astype"),
    (lambda: fx.ops.segment_sum(X, np.arange(3)), ShapeError,
     "segment_sum: segment_ids are i64[3], data is f32[2,2]", "give a number for each row of data"),
    (lambda: fx.ops.segment_sum(X, np.arange(2), -1), ParameterError,
     "segment_sum: num_segments is -1", "give an int from 0 on"),
    (lambda: fx.jit(lambda ids: fx.ops.segment_sum(X, ids))(np.arange(2)), TracerError,
     ("segment_sum: the size of the result depends on the values of Tracer<i64[2]>, which a traced function does not"
      " have"), "give num_segments: the number of rows of the result"),
    (lambda: fx.ops.segment_sum(X, np.arange(2), 2, mode="clip"), ParameterError, "segment_sum: mode 'clip'",
     'numbers out of range are dropped: leave it out, or "drop"'),
    (lambda: fx.ops.segment_max(X.astype("complex64"), np.arange(2), 2), DTypeError,
     "segment_max: takes real numbers, got complex64", "pass the real part"),
    (lambda: fx.random.key(0, impl="rbg"), ParameterError, "random.key: the generator 'rbg' does not exist",
     "use 'threefry2x32', the only one"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    check_refused(*REFUSED[k])


def test_an_operation_with_a_traced_number_has_its_own_line_and_scope() -> None:
    def f(x: Any, n: Any) -> Any:
        m = n * 2
        with fx.named_scope("scaled"):
            return x * m

    program = fx.trace(f, fx.Spec((3,)), 3)
    (multiplied,) = [e for e in program.jaxpr.eqns if e.prim.name == "mul" and e.outs[0].aval.shape]
    assert getattr(source_location(multiplied.source), "scope", "") == "scaled"
