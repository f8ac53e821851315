"""Errors for bad input: class, message, the user's line and a remedy; no trace stays active."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import errors, lax
from fxad.errors import (
    ArgumentError,
    DTypeError,
    FxadError,
    NotDifferentiableError,
    ParameterError,
    ShapeError,
    TracerError,
    TreeError,
)
from tests.api.refusals import X, refused

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

S = np.float32(2)
I = np.int32(1)

# ------------------------------------------------------------------------------------------- tracers without a value


def test_an_if_on_a_tracer() -> None:
    def absolute(x: Any) -> Any:
        if x.sum() > 0:
            return x
        return -x

    e = refused(
        lambda: fx.trace(absolute, X),
        TracerError,
        "bool: Tracer<bool[]> of absolute has no value while the function is traced",
    )
    line = absolute.__code__.co_firstlineno + 1
    assert e.where == f"{__file__}:{line} in test_an_if_on_a_tracer.<locals>.absolute"
    assert e.remedy == "use fxad.numpy.where or fxad.lax.cond in place of if, while, and, or"
    assert isinstance(e, TypeError)


USES: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("bool", "bool[]", lambda x: (x > 1) and x),
    ("bool", "f32[]", lambda x: not x),
    ("bool", "bool[]", lambda x: max(x, 1.0)),
    ("bool", "bool[]", lambda x: x in [1.0, 2.0]),
    ("float", "f32[]", lambda x: float(x)),
    ("float", "f32[]", lambda x: math.sin(x)),
    ("int", "f32[]", lambda x: int(x)),
    ("complex", "f32[]", lambda x: complex(x)),
    ("item", "f32[]", lambda x: x.item()),
    ("tolist", "f32[]", lambda x: x.tolist()),
    ("pickle", "f32[]", lambda x: pickle.dumps(x)),
    ("__dlpack__", "f32[]", lambda x: np.from_dlpack(x)),
    ("numpy", "f32[]", lambda x: np.asarray(x)),
    ("numpy", "f32[]", lambda x: np.array([x, x])),
    ("numpy", "f32[]", lambda x: x.numpy()),
    ("numpy.sin", "f32[]", lambda x: np.sin(x)),
    ("numpy.add", "f32[]", lambda x: np.add(x, x)),
    ("numpy.sum", "f32[]", lambda x: np.sum(x)),
    ("numpy.mean", "f32[]", lambda x: np.mean(x)),
    ("numpy.concatenate", "f32[]", lambda x: np.concatenate([X, x])),
    ("numpy.where", "bool[]", lambda x: np.where(x > 0, 1, 2)),
]


@pytest.mark.parametrize(("what", "aval", "use"), USES, ids=[f"{w}-{k}" for k, (w, _, _) in enumerate(USES)])
def test_uses_that_need_a_value(what: str, aval: str, use: Callable[[Any], Any]) -> None:
    message = f"{what}: Tracer<{aval}> of <lambda> has no value while the function is traced"
    e = refused(lambda: fx.trace(lambda x: use(x), S), TracerError, message)
    assert f":{use.__code__.co_firstlineno} in " in e.where


@pytest.mark.parametrize("use", [lambda i: range(i), lambda i: [1, 2][i], lambda i: hex(i)])
def test_a_tracer_is_no_index_of_a_python_sequence(use: Callable[[Any], Any]) -> None:
    message = "index: Tracer<i32[]> of <lambda> has no value while the function is traced"
    refused(lambda: fx.trace(lambda i: use(i), I), TracerError, message)


def test_what_a_tracer_does_without_a_value() -> None:
    def f(x: Any) -> Any:
        assert f"{x} {x!r} {x:>9}" == "Tracer<f32[3]> Tracer<f32[3]> Tracer<f32[3]>"
        assert (len(x), x.shape, x.ndim, x.size, np.shape(x), np.ndim(x), np.size(x)) == (3, (3,), 1, 3, (3,), 1, 3)
        assert copy.deepcopy(x) is x
        assert x.block_until_ready() is x
        first, *_ = x
        return X + x * np.float32(2) + np.add(X, x) + sum(x) + first + X[:, None].T @ x

    assert fx.trace(f, X)(X).tolist() == [8, 13, 18]


def test_an_array_is_not_assigned_to() -> None:
    def f(x: Any) -> Any:
        x[0] = 1.0
        return x

    message = "setitem: an array is immutable: f32[3]"
    assert (
        "in test_an_array_is_not_assigned_to.<locals>.f" in refused(lambda: fx.jit(f)(X), ArgumentError, message).where
    )
    refused(lambda: f(fx.asarray(X)), ArgumentError, message)


# --------------------------------------------------------------------------------- arguments and results of wrong types

NOT_ARRAYS: list[tuple[Any, str]] = [
    ("s", "a str is not an array: 's'"),
    (b"s", "a bytes is not an array: b's'"),
    ({1}, "a set is not an array: {1}"),
    (print, "a builtin_function_or_method is not an array: <built-in function print>"),
]


@pytest.mark.parametrize(("value", "message"), NOT_ARRAYS, ids=[type(v).__name__ for v, _ in NOT_ARRAYS])
def test_arguments_that_are_no_arrays(value: Any, message: str) -> None:
    program = fx.trace(lambda a: a, {"u": [S]})
    executable = fx.lower(program).compile()
    bad = {"u": [value]}
    refused(lambda: fx.trace(lambda a: a, bad), ArgumentError, f"trace of <lambda>: argument a['u'][0]: {message}")
    refused(lambda: fx.jit(lambda a: a)(bad), ArgumentError, f"jit of <lambda>: argument a['u'][0]: {message}")
    refused(lambda: fx.vmap(lambda a: a)(bad), ArgumentError, f"vmap of <lambda>: argument a['u'][0]: {message}")
    refused(lambda: fx.grad(lambda a: a)(bad), ArgumentError, f"trace of <lambda>: argument a['u'][0]: {message}")
    refused(lambda: program(bad), ArgumentError, f"<lambda>: argument a['u'][0]: {message}")
    refused(lambda: executable(bad), ArgumentError, f"<lambda>: argument a['u'][0]: {message}")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("s", "is a str, not an array: 's'"),
        ({1, 2}, "is a set, not an array: {1, 2}"),
        (print, "is a builtin_function_or_method, not an array: <built-in function print>"),
    ],
)
def test_results_that_are_no_arrays(value: Any, message: str) -> None:
    for fn in (
        lambda: fx.trace(lambda x: {"u": (x, value)}, X),
        lambda: fx.jit(lambda x: {"u": (x, value)})(X),
        lambda: fx.vjp(lambda x: {"u": (x, value)}, X),
    ):
        refused(fn, ArgumentError, f"trace of <lambda>: result['u'][1] {message}")


def test_generators_and_coroutines_are_no_results() -> None:
    def generator(x: Any) -> Any:
        yield x

    with pytest.raises(ArgumentError) as e:
        fx.trace(generator, X)
    assert e.value.message.startswith("trace of generator: result is a generator, not an array: <generator object")


@pytest.mark.parametrize("dtype", ["O", "<U1", "M8[D]", ">f4", "g"])
def test_objects_that_are_no_dtypes(dtype: str) -> None:
    array = np.zeros(3, dtype)
    told = f"{array.dtype!r} is not a dtype of fxad"
    refused(lambda: fx.trace(lambda a: a, [array]), DTypeError, f"trace of <lambda>: argument a[0]: {told}")
    refused(lambda: fx.trace(lambda a: (a, array), X), DTypeError, f"<lambda>: result 1: {told}")
    refused(lambda: fx.trace(lambda a: a + array, X), DTypeError, f"add: argument 1: {told}")
    refused(lambda: fx.asarray(X) + array, DTypeError, f"add: argument 1: {told}")


def test_numbers_that_do_not_fit() -> None:
    for what, fn in (
        ("<lambda>: argument a", lambda: fx.jit(lambda a: a)(2**40)),
        ("<lambda>: result 0", lambda: fx.trace(lambda: 2**40)),
        ("add: argument 1", lambda: fx.trace(lambda a: a + 2**40, I)),
        ("<lambda>: argument a", lambda: fx.trace(lambda a: a, I)(2**40)),
        ("add: argument 1", lambda: fx.asarray(I) + 2**40),
        ("sin: argument 0", lambda: fx.lax.sin(2**40)),
        ("sin: argument 0", lambda: fx.trace(lambda: fx.lax.sin(2**40))),
    ):
        refused(fn, DTypeError, f"{what}: 1099511627776 does not fit in int32")
    refused(lambda: fx.lax.sin(2**200), DTypeError, "sin: argument 0: an int of 201 bits does not fit in int32")
    refused(lambda: fx.asarray(X) + 10**400, DTypeError, "add: argument 1: an int of 1329 bits does not fit in float32")


def test_a_masked_array_would_lose_its_mask() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    message = "asarray: argument 0: a masked array is not taken: its mask would be lost"
    refused(lambda: fx.asarray(masked), ArgumentError, message)
    refused(lambda: fx.asarray(masked[1]), ArgumentError, message)  # `numpy.ma.masked`
    refused(lambda: fx.asarray(masked.view(OwnMaskedArray)), ArgumentError, message)


def test_an_int_that_does_not_fit_names_the_argument() -> None:
    program = fx.trace(lambda x: x, fx.Spec((), "int8"))
    for call in (program, fx.lower(program).compile()):
        message = "<lambda>: argument x: 1000 does not fit in int8"
        refused(lambda call=call: call(1000), DTypeError, message)  # type: ignore[misc]


def test_conversions_of_asarray() -> None:
    large = fx.asarray(2**40, "int64")
    assert int(large) == 2**40
    assert large.dtype == np.int64
    assert fx.asarray(2**70, "bfloat16").tolist() == 2.0**70
    message = "asarray: argument 0: 300 does not fit in uint8"
    refused(lambda: fx.asarray(300, "uint8"), DTypeError, message)
    message = "asarray: c64[] to float32 would drop the imaginary part"
    assert refused(lambda: fx.asarray(1j, "float32"), DTypeError, message).remedy == "use x.real or abs"
    complex_row = np.ones(2, np.complex128)
    message = "asarray: c128[2] to int32 would drop the imaginary part"
    refused(lambda: fx.asarray(complex_row, "int32"), DTypeError, message)
    assert fx.asarray(complex_row, "bool").tolist() == [True, True]


def test_an_array_without_a_view_is_copied_or_refused() -> None:
    narrow = fx.asarray(X, "bfloat16")
    assert np.asarray(narrow).tolist() == X.tolist()
    refused(lambda: narrow.__array__(copy=False), ParameterError, "numpy: bf16[3] has no view in NumPy, only a copy")
    assert fx.asarray(X).__array__(copy=False).tolist() == X.tolist()


class OwnMaskedArray(np.ma.MaskedArray[Any, Any]):
    """A subclass, as pandas and others have."""


# The functions of `fxad.lax` that take arrays only, and their argument names.
ARRAYS = {
    name: [p for p, q in inspect.signature(fn).parameters.items() if q.annotation == "ArrayLike"]
    for name, fn in [(n, getattr(lax, n)) for n in dir(lax)]
    if inspect.isfunction(fn) and not name.startswith("_")
}
ELEMENTWISE = [n for n, p in ARRAYS.items() if p and len(inspect.signature(getattr(lax, n)).parameters) == len(p)]


# Two functions pass their arguments on in another order. The error names the position in the operation that it names.
ORDER = {"clamp": (1, 0, 2), "select": (0, 2, 1)}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_function_of_lax_names_position_and_type(name: str) -> None:
    fn: Callable[..., Any] = getattr(lax, name)
    n = len(ARRAYS[name])
    for k in range(n):
        args = [X] * n
        bad = ["s" if i == k else a for i, a in enumerate(args)]
        for run in (lambda: fn(*bad), lambda: fx.trace(lambda x: fn(*bad), X)):
            with pytest.raises(ArgumentError) as e:
                run()
            place = ORDER.get(name, range(n))[k]
            assert e.value.message.endswith(f": argument {place}: a str is not an array: 's'"), e.value.message


def test_there_are_functions_of_lax_to_check() -> None:
    assert len(ELEMENTWISE) > 40


def test_operators_return_not_implemented_for_unknown_types() -> None:
    """An operator returns NotImplemented, so another class may take part. Otherwise Python raises its usual
    TypeError."""

    class Other:
        def __radd__(self, x: Any) -> str:
            return "mine"

    assert fx.asarray(X) + Other() == "mine"
    refused = "unsupported operand type"
    for bad, message in (("s", refused), (None, refused), ([1.0], r"add: a list is not an array: \[1.0\]")):
        with pytest.raises(TypeError, match=message):
            fx.asarray(X) + bad  # type: ignore[operator]
        with pytest.raises(TypeError, match=message):
            fx.trace(lambda x, bad=bad: x + bad, X)


# -------------------------------------------------------------------------------------- calls that do not fit a program


def pair(a: Any, b: Any, *, k: Any = 1.0) -> Any:
    return (a["u"] * b * k).sum()


CALLS: list[tuple[type[FxadError], str, Callable[[Any], Any]]] = [
    (ArgumentError, "pair: takes 2 positional arguments, 1 was given", lambda f: f({"u": X}, k=1.0)),
    (ArgumentError, "pair: takes 2 positional arguments, 3 were given", lambda f: f({"u": X}, X, X, k=1.0)),
    (ArgumentError, "pair: takes the keyword arguments k, no keyword arguments were given", lambda f: f({"u": X}, X)),
    (
        ArgumentError,
        "pair: takes the keyword arguments k, the keyword arguments j, k were given",
        lambda f: f({"u": X}, X, k=1.0, j=2.0),
    ),
    (TreeError, "pair: argument a is {'v': *}, it was traced as {'u': *}", lambda f: f({"v": X}, X, k=1.0)),
    (TreeError, "pair: argument b is (*, *), it was traced as *", lambda f: f({"u": X}, (X, X), k=1.0)),
    (TreeError, "pair: argument k is None, it was traced as *", lambda f: f({"u": X}, X, k=None)),
    (ShapeError, "pair: argument a['u'] has shape (2,), it was traced with (3,)", lambda f: f({"u": X[:2]}, X, k=1.0)),
    (ShapeError, "pair: argument k has shape (3,), it was traced with ()", lambda f: f({"u": X}, X, k=X)),
    (ShapeError, "pair: argument b has shape (), it was traced with (3,)", lambda f: f({"u": X}, 1.0, k=1.0)),
    (
        DTypeError,
        "pair: argument b has dtype int32, it was traced with float32",
        lambda f: f({"u": X}, X.astype(np.int32), k=1.0),
    ),
    (
        DTypeError,
        "pair: argument k has dtype float64, it was traced with float32",
        lambda f: f({"u": X}, X, k=np.float64(1)),
    ),
    (DTypeError, "pair: argument k is the Python complex 1j, it was traced as f32[]", lambda f: f({"u": X}, X, k=1j)),
]


@pytest.mark.parametrize(("error", "message", "call"), CALLS, ids=range(len(CALLS)))
def test_calls_that_do_not_fit(error: type[FxadError], message: str, call: Callable[[Any], Any]) -> None:
    program = fx.trace(pair, {"u": X}, X, k=1.0)
    executable = fx.lower(program).compile()
    refused(lambda: call(program), error, message)
    refused(lambda: call(executable), error, message)
    inside = refused(lambda: fx.trace(lambda x: call(program), X), error, message)
    assert inside.where


def test_calls_that_do_not_fit_a_function() -> None:
    def f(a: Any, b: Any, *, k: Any = 1.0) -> Any:
        return a

    remedy = "its signature is f(a: 'Any', b: 'Any', *, k: 'Any' = 1.0) -> 'Any'"
    loose: Any = fx  # calls that mypy refuses too
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: loose.trace(f, X), "trace of f: missing a required argument: 'b'"),
        (lambda: loose.jit(f)(X), "trace of f: missing a required argument: 'b'"),
        (lambda: loose.grad(f)(X, X, X), "trace of f: too many positional arguments"),
        (lambda: loose.vmap(f)(X, X, j=X), "trace of f: got an unexpected keyword argument 'j'"),
        (lambda: loose.vjp(f), "trace of f: missing a required argument: 'a'"),
        (lambda: loose.linearize(f, X), "trace of f: missing a required argument: 'b'"),
        (lambda: loose.jvp(f, (X,), (X,)), "trace of f: missing a required argument: 'b'"),
    ]
    for fn, message in calls:
        assert refused(fn, ArgumentError, message).remedy == remedy

    def wrong_inside(x: Any) -> Any:
        return f(x)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        fx.trace(wrong_inside, X)


def test_a_compiled_program_is_not_traced() -> None:
    executable = fx.lower(fx.trace(lambda a: a * 2, X)).compile()
    message = "<lambda>: argument a is Tracer<f32[3]>; a compiled program is not traced"
    refused(lambda: fx.trace(lambda x: executable(x), X), ArgumentError, message)
    refused(lambda: fx.grad(executable)(X), ArgumentError, message)
    assert fx.trace(lambda x: executable(X) + x, X)(X).tolist() == [0, 3, 6]  # with values it runs
    message = "compile: <lambda> closes over Tracer<f32[3]> of an enclosing trace"
    refused(lambda: fx.trace(lambda x: fx.lower(fx.trace(lambda y: x * y, X)).compile()(X), X), ArgumentError, message)


# ---------------------------------------------------------------------------------------- objects that are no functions


@pytest.mark.parametrize(
    "name",
    [
        "grad",
        "value_and_grad",
        "jacfwd",
        "jacrev",
        "hessian",
        "jvp",
        "vjp",
        "linearize",
        "vmap",
        "remat",
        "dce",
        "cse",
        "simplify",
        "inline",
        "jit",
    ],
)
def test_an_int_in_place_of_a_function(name: str) -> None:
    message = f"{name}: an int is neither a Program nor a function: 3"
    refused(lambda: getattr(fx, name)(3), ArgumentError, message)


def test_an_int_in_place_of_a_program() -> None:
    refused(lambda: fx.trace(3), ArgumentError, "trace: an int is not a function: 3")  # type: ignore[call-overload]
    refused(lambda: fx.lower(3), ArgumentError, "lower: takes a Program, got 3")  # type: ignore[arg-type]
    message = "transpose: an int is neither a Program nor a function: 3"
    refused(lambda: fx.transpose(3), ArgumentError, message)  # type: ignore[arg-type]
    refused(lambda: fx.interpret(3), ArgumentError, "interpret: takes a Program, got 3")  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------------- the errors


def test_every_error_is_a_builtin_too() -> None:
    leaves = [
        e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, FxadError) and e is not FxadError
    ]
    assert len(leaves) >= 14
    for e in leaves:
        assert FxadError in e.__mro__[1:3]  # a leaf, or a case of one
        assert issubclass(e, ValueError | TypeError | RuntimeError | OSError | NameError)
    assert issubclass(errors.AxisError, IndexError)


def test_the_form_of_a_message() -> None:
    e = fx.errors.ShapeError("op: a differs", remedy="do b", equation="c = op d", where="model.py:42 in attend")
    assert str(e) == (
        "op: a differs\n  equation      c = op d\n  traced at     model.py:42 in attend\n  remedy        do b"
    )
    here = ParameterError("op: a differs", remedy="do b")
    assert str(here) == f"op: a differs\n  called at     {here.caller}\n  remedy        do b"
    assert here.caller.endswith("in test_the_form_of_a_message")
    assert str(pickle.loads(pickle.dumps(e))) == str(e)
    assert e.located(equation="other", where="other") is e
    assert e.equation == "c = op d"


def test_an_error_inside_a_nested_trace_names_the_innermost_line() -> None:
    def inner(y: Any) -> Any:
        return y + fnp.ones(4)

    def outer(x: Any) -> Any:
        return fx.grad(lambda y: inner(y).sum())(x)

    e = refused(
        lambda: fx.jit(outer)(X), ShapeError, "add: shapes (3,) and (4,) do not broadcast: axis -1 has sizes 3 and 4"
    )
    assert e.where == f"{__file__}:{inner.__code__.co_firstlineno + 1} in {inner.__qualname__}"


def test_grad_of_an_integer_result_is_refused() -> None:
    def f(x: Any) -> Any:
        y = x.sum()
        return y.astype("int32")

    refused(lambda: fx.grad(f)(X), NotDifferentiableError, "grad: f returns i32[], not a real floating scalar")


def test_the_line_of_the_use_comes_before_that_of_an_equal_body() -> None:
    def twice(x: Any) -> Any:
        y = lax.scan(lambda c, _: (lax.while_loop(lambda c: c > 1, lambda c: c * 0.34375, c), None), x, length=2)[0]
        y = fx.stop_gradient(y)
        return lax.scan(
            lambda c, _: (lax.while_loop(lambda c: c > 1, lambda c: c * 0.34375, c), None), y * x, length=2
        )[0]

    with pytest.raises(fx.errors.NotDifferentiableError) as e:
        fx.grad(twice)(2.0)
    first = twice.__code__.co_firstlineno + 1
    body = f"{__file__}:{first} in {twice.__qualname__}.<locals>.<lambda>"
    assert (e.value.around, e.value.where) == ((f"{__file__}:{first + 2} in {twice.__qualname__}",), body)
    assert f"\n  traced at     {e.value.around[0]}\n  in a body at  {body}\n  remedy " in str(e.value)


@pytest.mark.parametrize("traced", [False, True])
def test_frames_of_numpy_are_not_the_users(traced: bool) -> None:
    """Regression: an eager call said NumPy's own line."""

    def rows() -> object:
        return np.apply_along_axis(fnp.linalg.cholesky, 0, np.ones((3, 3)))

    with pytest.raises(FxadError) as e:
        fx.trace(rows) if traced else rows()
    line = rows.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} in {rows.__code__.co_qualname}" in str(e.value)
    assert "numpy/" not in str(e.value)
