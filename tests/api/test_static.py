"""Static arguments of `jit` and `trace`: values for which a program is traced."""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any, Self, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, tree
from fxad.errors import ArgumentError, AxisError, FxadError, ParameterError, ShapeError, TracerError
from tests.api.refusals import X, check_refused

TRACES: list[object] = []


def power(x: Any, n: int, negate: bool = False) -> Any:
    TRACES.append(n)
    y = x**n
    return -y if negate else y


def traced(call: Any) -> int:
    TRACES.clear()
    call()
    return len(TRACES)


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1, 2)},
        {"static_argnums": (-1, -2)},
        {"static_argnames": ("n", "negate")},
        {"static_argnums": 1, "static_argnames": "negate"},
    ],
    ids=str,
)
def test_by_number_or_by_name(options: Any) -> None:
    f = fx.jit(power, **options)
    np.testing.assert_array_equal(f(X, 2), X**2)
    np.testing.assert_array_equal(f(X, n=3), X**3)
    np.testing.assert_array_equal(f(X, 2, True), -(X**2))
    np.testing.assert_array_equal(f(x=X, n=2, negate=True), -(X**2))
    np.testing.assert_array_equal(f(fnp.asarray(X), 2, negate=True), -(X**2))


def test_traced_once_per_value() -> None:
    f = fx.jit(power, static_argnames=("n", "negate"))
    assert traced(lambda: [f(X, n) for n in (2, 3, 2, 3, 2)]) == 2
    assert traced(lambda: [f(X[:2], 2), f(X[:1], 2), f(X[:2], 2)]) == 2


def test_equal_values_of_different_types_have_different_programs() -> None:
    f = fx.jit(lambda x, k: x * 0 + (2 if isinstance(k, bool) else 1 if isinstance(k, int) else 0), static_argnums=1)
    assert [f(1.0, k).item() for k in (True, 1, 1.0, True)] == [2, 1, 0, 2]
    g = fx.jit(lambda x, pair: x * 0 + float(np.copysign(1.0, pair[0])), static_argnames="pair")
    assert [g(1.0, pair=(zero,)).item() for zero in (0.0, -0.0, 0.0)] == [1, -1, 1]


@dataclasses.dataclass(frozen=True)
class Config:
    scale: Any
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Larger(Config):
    pass


@dataclasses.dataclass(frozen=True)
class OwnEquality:
    scale: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality)

    def __hash__(self) -> int:
        return 0


@dataclasses.dataclass(frozen=True)
class OwnHash:
    scale: Any

    def __hash__(self) -> int:
        return 0


@tree.dataclass
class Leaves:
    scale: Any


class Measure(float):
    unit: str

    def __new__(cls, value: float, unit: str) -> Self:
        self = super().__new__(cls, value)
        self.unit = unit
        return self

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]  # of a subclass
        return float(self), self.unit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measure) and float(self) == float(other) and self.unit == other.unit

    def __hash__(self) -> int:
        return hash(float(self))


BFLOAT16 = dtypes.bfloat16.type
NAN = float("nan")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Config(1), Config(1.0)),
        (Config(0.0), Config(-0.0)),
        (Config(1), Larger(1)),
        (Config((Config(1),)), Config((Config(True),))),
        (Leaves(1), Leaves(1.0)),
        (frozenset({0.0}), frozenset({-0.0})),
        (frozenset({(1, "a")}), frozenset({(1.0, "a")})),
        (Config(frozenset({1})), Config(frozenset({True}))),
        (BFLOAT16(0.0), BFLOAT16(-0.0)),
        (np.longdouble(0.0), np.longdouble(-0.0)),
        (NAN, -NAN),
        (np.float32(NAN), np.float32(-NAN)),
        (complex(1, NAN), complex(1, -NAN)),
        (BFLOAT16(NAN), BFLOAT16(-NAN)),
        (Config(NAN), Config(-NAN)),
        (np.datetime64("2020", "Y"), np.datetime64("2020-01-01", "D")),
        (Measure(0.0, "m"), Measure(-0.0, "m")),
        (Measure(1.0, "m"), Measure(1.0, "s")),
    ],
    ids=repr,
)
def test_values_that_contain_different_bits_have_different_programs(a: Any, b: Any) -> None:
    f = fx.jit(power_of_one, static_argnums=1)
    assert traced(lambda: [f(X, k) for k in (a, b, copy.deepcopy(a), copy.deepcopy(b))]) == 2


def power_of_one(x: Any, k: object) -> Any:
    TRACES.append(k)
    return x


def test_a_program_is_made_for_the_dtype_in_a_dataclass() -> None:
    f = fx.jit(lambda x, c: x * c.scale, static_argnums=1)
    x = np.asarray([2], "int32")
    assert [f(x, c).dtype.name for c in (Config(1), Config(1.0))] == ["int32", "float32"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Config(1, "a"), Config(1, "b")),  # the field is not part of the comparison
        (Config(float("nan")), Config(float("nan"))),
        (OwnEquality(1), OwnEquality(2)),  # the user's `__eq__`
        (OwnHash([1]), OwnHash([1])),  # a field that is not hashable
    ],
    ids=repr,
)
def test_values_that_share_one_program(a: Any, b: Any) -> None:
    f = fx.jit(power_of_one, static_argnums=1)
    assert traced(lambda: [f(X, k) for k in (a, b)]) == 1


def test_arrays_in_a_dataclass_with_its_own_hash() -> None:
    """Its generated equality cannot tell whether arrays are equal, so each instance has its program."""
    f = fx.jit(lambda x, c: x * c.scale, static_argnums=1)
    for scale in (1, 2):
        np.testing.assert_array_equal(f(X, OwnHash(scale * np.ones(3, np.float32))), scale * X)


def test_any_hashable_value() -> None:
    f = fx.jit(lambda activation, x: activation(x), static_argnums=0)
    np.testing.assert_array_equal(f(fnp.negative, X), -X)
    np.testing.assert_array_equal(f(fnp.square, X), X**2)
    g = fx.jit(lambda x, shape, mode=None: fnp.broadcast_to(x, shape), static_argnames=["shape", "mode"])
    assert g(1.0, shape=(2, 3), mode=None).shape == (2, 3)


def test_functions_that_take_anything() -> None:
    f = fx.jit(lambda *args, **kwargs: args[0] * args[1] + kwargs["k"], static_argnums=1, static_argnames="k")
    np.testing.assert_array_equal(f(X, 2, k=3), 2 * X + 3)


@pytest.mark.parametrize(
    "transform",
    [
        fx.jit, fx.remat, lambda f, **k: fx.jit(fx.remat(f, **k), **k),
        lambda f, **k: lambda x, **named: fx.value_and_grad(f, **k)(x, **named)[0],
        lambda f, **k: lambda x, **named: fx.trace(f, x, **named, **k)(x, y=named["y"]),
    ],
)  # fmt: skip
def test_a_function_sees_the_order_of_its_keywords(transform: Any) -> None:
    """Regression: the static ones came first, in the order of their names, and an earlier call decided."""

    def digits(x: Any, **named: Any) -> Any:
        return x * sum([v * 10**k for k, v in enumerate(named.values())])

    f = transform(digits, static_argnames=("p", "q"))
    y = np.float32(2)
    for named in (
        {"p": 1, "q": 3, "y": y},
        {"q": 3, "p": 1, "y": y},
        {"q": 3, "y": y, "p": 1},
        {"p": 1, "y": y, "q": 3},
    ):
        assert float(f(np.float32(1), **named)) == digits(1, **named)


def test_in_programs_and_transformations() -> None:
    f = fx.jit(power, static_argnames="n")
    np.testing.assert_array_equal(fx.grad(lambda x: f(x, 3).sum())(X), 3 * X**2)
    np.testing.assert_array_equal(fx.vmap(lambda x: f(x, n=2))(X), X**2)
    np.testing.assert_array_equal(fx.jit(lambda x: f(x, 2) + f(x, 2))(X), 2 * X**2)
    assert f.trace(X, 2).jaxpr is fx.jit(power, static_argnums=1).trace(X, n=2).jaxpr
    assert "stablehlo.multiply" in f.lower(fx.Spec((3,)), 2).text()


def test_trace() -> None:
    program = fx.trace(power, X, n=2, negate=True, static_argnames=("n", "negate"))
    assert program.jaxpr is fx.trace(lambda x: -(x**2), X).jaxpr
    assert program.names == ("x",)
    np.testing.assert_array_equal(program(X), -(X**2))
    assert fx.trace(power, X, 2, static_argnames="n").jaxpr is fx.trace(lambda x: x**2, X).jaxpr


def test_decorator_and_methods() -> None:
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = by

        @functools.partial(cast("Any", fx.jit), static_argnames="n")
        def power(self, x: Any, n: int) -> Any:
            return self.by * x**n

        @fx.jit(static_argnums=0)
        def scale(self, x: Any) -> Any:
            return self.by * x

    @tree.dataclass
    class Line:
        slope: Any

        @fx.jit(static_argnums=2)
        def at(self, x: Any, n: int) -> Any:
            return self.slope * x**n

    np.testing.assert_array_equal(Scaled(2.0).power(X, 2), 2 * X**2)
    np.testing.assert_array_equal(Scaled(2.0).power(X, n=3), 2 * X**3)
    np.testing.assert_array_equal(Scaled(3.0).scale(X), 3 * X)
    np.testing.assert_array_equal(Line(np.float32(2)).at(X, 2), 2 * X**2)


def test_errors_name_the_arguments_as_the_function_does() -> None:
    with pytest.raises(ArgumentError, match=r"^jit of f: argument y: a str is not"):
        fx.jit(lambda_named_f, static_argnames="n")(X, 2, "y")


def lambda_named_f(x: Any, n: int, y: Any) -> Any:
    return x


lambda_named_f.__name__ = "f"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: fx.jit(power, static_argnames="n")(X, [1]),  # type: ignore[arg-type]
            ArgumentError,
            "jit of power: static argument n is a list, which is not hashable: [1]",
        ),
        (
            lambda: fx.jit(power, static_argnums=0)(fnp.asarray(1.0), 2),
            ArgumentError,
            "jit of power: static argument x is an Array, which is not hashable: Array(1., dtype=float32)",
        ),
        (
            lambda: fx.trace(power, X, n={}, static_argnames="n"),
            ArgumentError,
            "trace of power: static argument n is a dict, which is not hashable: {}",
        ),
        (
            lambda: fx.jit(power, static_argnames=("n", "m")),
            ParameterError,
            "jit of power: static_argnames has 'm', which is no parameter of the function",
        ),
        (
            lambda: fx.jit(power, static_argnums=3),
            ParameterError,
            "jit of power: static_argnums has 3, the function takes 3 positional arguments",
        ),
        (
            lambda: fx.jit(lambda *xs: xs[0], static_argnums=-1),
            ParameterError,
            "jit of <lambda>: static_argnums has -1, and the function takes any number of arguments",
        ),
        (
            lambda: fx.jit(power, static_argnums="n"),  # type: ignore[arg-type]
            ParameterError,
            "jit of power: static_argnums is 'n', not an int or a sequence of them",
        ),
        (
            lambda: fx.jit(power, static_argnames=1),  # type: ignore[call-overload]
            ParameterError,
            "jit of power: static_argnames is 1, not a name or a sequence of them",
        ),
        (
            lambda: fx.jit(fx.trace(lambda x: x, X), static_argnums=0),
            ArgumentError,
            "jit: <lambda> is a Program, which has no static arguments",
        ),
    ],
)
def test_messages(call: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        call()
    assert e.value.message == message


def test_an_if_on_a_flag_says_how_to_make_it_static() -> None:
    def f(x: Any, flag: Any) -> Any:
        return x if flag else -x

    with pytest.raises(TracerError) as e:
        fx.jit(f)(X, flag=True)
    assert e.value.remedy == (
        "use fxad.numpy.where or fxad.lax.cond in place of if, while, and, or;"
        " a flag that is no data can be made static: jit(f, static_argnames=...)"
    )
    np.testing.assert_array_equal(fx.jit(f, static_argnames="flag")(X, flag=False), -X)


# --------------------------------------------------------------------------------------- static arguments compose


def signed(square: bool, x: Any) -> Any:
    return x * x if square else -x


LOOSE: Any = fx  # for lambdas, whose types mypy does not find

# a scalar function of (bool, scalar), and its slope in the second
COMPOSED: dict[str, Any] = {
    "jit of remat": lambda f: fx.jit(fx.grad(fx.remat(f), 1), static_argnums=0),
    "jit of remat by name": lambda f: fx.jit(fx.grad(fx.remat(f), 1), static_argnames="square"),
    "remat of jit": lambda f: fx.grad(fx.remat(fx.jit(f, static_argnums=0)), 1),
    "jit of jit": lambda f: fx.grad(fx.jit(fx.jit(f), static_argnums=0), argnums=1),
    "jit of grad of jit": lambda f: fx.jit(fx.grad(fx.jit(f, static_argnums=0), argnums=-1)),
    "grad": lambda f: fx.grad(f, 1, static_argnums=0),
    "value_and_grad": lambda f: lambda b, x: fx.value_and_grad(f, (1,), static_argnames="square")(b, x)[1][0],
    "jacfwd": lambda f: fx.jacfwd(f, 1, static_argnums=0),
    "jacrev": lambda f: fx.jit(fx.jacrev(fx.cse(f), 1), static_argnums=-2),
    "remat": lambda f: fx.grad(fx.remat(f, static_argnums=0), 1),
    "remat as a decorator": lambda f: fx.grad(fx.remat(static_argnums=0)(f), 1),
    "invertible": lambda f: fx.grad(fx.invertible(f, keep=1, static_argnums=0), 1),
    "vmap": lambda f: lambda b, x: fx.vmap(fx.grad(fx.jit(f, static_argnums=0), 1), (None, 0))(b, x[None])[0],
    "vmap by name": lambda f: lambda b, x: fx.vmap(fx.grad(f, 1), static_argnames="square")(b, x[None])[0],
    "jit of vmap": lambda f: lambda b, x: fx.jit(fx.vmap(fx.grad(f, 1), (None, 0)), static_argnums=0)(b, x[None])[0],
    "grad of vmap": lambda f: (
        lambda b, x: fx.grad(
            lambda b, x: fx.vmap(fx.jit(f, static_argnums=0), (None, 0))(b, x).sum(), 1, static_argnums=0
        )(b, x[None])[0]
    ),
    "jvp": lambda f: lambda b, x: fx.jvp(f, (b, x), (None, fnp.ones_like(x)), static_argnums=0)[1],
    "jvp of jit": lambda f: lambda b, x: fx.jvp(fx.jit(f, static_argnums=0))((b, x), (None, fnp.ones_like(x)))[1],
    "vjp": lambda f: lambda b, x: fx.vjp(f, b, x, static_argnums=0)[1](fnp.ones_like(x))[1],
    "linearize": lambda f: lambda b, x: fx.linearize(f, b, x, static_argnums=0, argnums=1)[1](fnp.ones_like(x)),
    "trace of jit": lambda f: lambda b, x: fx.grad(fx.trace(fx.jit(f, static_argnums=0), b, x))(x),
    "partial": lambda f: lambda b, x: fx.grad(functools.partial(fx.jit(f, static_argnums=0), b))(x),
    "static after a partial": lambda f: (
        lambda b, x: LOOSE.grad(functools.partial(LOOSE.jit(lambda y, b, x: f(b, x) + y * 0, static_argnums=1), x), 1)(
            b, x
        )
    ),
    "jit of a partial of remat": lambda f: (
        lambda b, x: LOOSE.jit(
            functools.partial(LOOSE.remat(lambda y, b, x: LOOSE.grad(f, 1, static_argnums=0)(b, x)), x),
            static_argnums=0,
        )(b, x)
    ),
}


@pytest.mark.parametrize("composed", COMPOSED.values(), ids=[k.replace(" ", "_") for k in COMPOSED])
def test_static_arguments_compose(composed: Any) -> None:
    f = composed(signed)
    x = fnp.asarray(3.0)
    assert [float(f(b, x)) for b in (True, False, True)] == [6.0, -1.0, 6.0]


def test_a_second_derivative() -> None:
    cube = fx.jit(lambda n, x: x**n if isinstance(n, int) else x, static_argnums=0)
    assert fx.grad(fx.grad(cube, argnums=1), argnums=1)(3, 2.0).item() == 12.0
    assert fx.hessian(cube, 1)(3, 2.0).item() == 12.0


def test_static_arguments_by_keyword_and_by_default() -> None:
    f = fx.grad(fx.jit(power, static_argnames=("n", "negate")))
    assert [f(2.0, 3).item(), f(2.0, n=3).item(), f(2.0, n=3, negate=True).item()] == [12.0, 12.0, -12.0]
    np.testing.assert_array_equal(fx.vmap(power, static_argnames=("n", "negate"))(X, n=2, negate=True), -(X**2))


def test_transposed_and_inverted() -> None:
    f = fx.jit(lambda n, x: x * n if isinstance(n, int) else x, static_argnums=0)
    assert fx.transpose(f, 3, fx.Spec(()), argnums=1)(2.0, None).item() == 6.0
    assert fx.inverse(f, 1)(fnp.asarray(6.0), 3).item() == 2.0
    assert fx.reconstruction_error(f, 3, fnp.asarray(6.0), keep=()) < 1e-6


def test_a_method_of_a_jitted_function() -> None:
    class Model:
        by = 2.0

        @functools.partial(cast("Any", fx.jit), static_argnums=(0, 1))
        def loss(self, square: bool, x: Any) -> Any:
            return self.by * signed(square, x)

        slope = fx.grad(loss, argnums=2)

    assert LOOSE.grad(Model().loss, argnums=1)(True, 3.0).item() == 12.0
    assert LOOSE.jit(Model().slope)(True, 3.0).item() == 12.0


def test_static_arguments_copied_by_functools_wraps_are_ignored() -> None:
    inner = fx.remat(signed, static_argnums=0)

    @functools.wraps(inner)
    def outer(x: Any) -> Any:
        return inner(True, x)

    del outer.__dict__["__wrapped__"]
    assert fx.grad(outer)(3.0).item() == 6.0


def test_one_program_for_each_static_value() -> None:
    traces: list[bool] = []

    def f(square: bool, x: Any) -> Any:
        traces.append(square)
        return signed(square, x)

    g = fx.jit(fx.remat(f), static_argnums=0)
    for b in (True, False, True, False):
        g(b, 3.0)
    assert traces == [True, False]


@pytest.mark.parametrize(
    ("call", "error", "message", "remedy"),
    [
        (
            lambda: fx.grad(fx.jit(signed, static_argnums=0))(True, 3.0),
            ArgumentError,
            "grad: argnums 0 chooses square, which is a static argument",
            "choose others: argnums=...; a static argument is a value that the program is made for",
        ),
        (
            lambda: fx.linearize(signed, True, 3.0, argnums=(1, -2), static_argnums=0),
            ArgumentError,
            "linearize: argnums (1, -2) chooses square, which is a static argument",
            "choose others: argnums=...; a static argument is a value that the program is made for",
        ),
        (
            lambda: fx.vmap(signed, (None, 0), static_argnums=0)(cast("Any", [True]), X),
            ArgumentError,
            "vmap of signed: static argument square is a list, which is not hashable: [True]",
            "give a tuple in place of a list; an array is no static argument: leave it traced",
        ),
        (
            lambda: fx.remat(signed, static_argnums=2),
            ParameterError,
            "remat of signed: static_argnums has 2, the function takes 2 positional arguments",
            "number them from 0, or give static_argnames",
        ),
        (
            lambda: fx.grad(fx.trace(fnp.sum, X), static_argnums=0),
            ArgumentError,
            "grad: sum is a Program, which has no static arguments",
            "grad the function, or give them to trace as static_argnames",
        ),
    ],
)
def test_messages_of_compositions(call: Any, error: type[FxadError], message: str, remedy: str) -> None:
    check_refused(call, error, message, remedy)


# ------------------------------------------------- settings beside arrays: a bool, a string, a function


def chosen(w: Any, x: Any, how: Any = True, f: Any = None) -> Any:
    y = fnp.sum(w * x) if how is True or how == "sum" else fnp.max(w * x)
    return y if f is None else f(y)


@pytest.mark.parametrize("derivative", [fx.grad, fx.jacfwd, fx.jacrev, fx.hessian])
@pytest.mark.parametrize("how", [True, False, "sum", "max"])
def test_derivatives_take_other_arguments_of_any_type(derivative: Any, how: Any) -> None:
    w, x = np.array([1, 5, 2], np.float32), np.array([2, 1, 3], np.float32)
    wanted = derivative(lambda w: chosen(w, x, how))(w)
    np.testing.assert_array_equal(derivative(chosen)(w, x, how), wanted)
    np.testing.assert_array_equal(derivative(chosen)(w, x, how=how), wanted)
    np.testing.assert_array_equal(fx.jit(lambda w: derivative(chosen, argnums=-3)(w, x, how))(w), wanted)
    both: Any = fx.value_and_grad
    value, gradient = both(chosen, (0, 1))(w, x, how, fnp.sin)
    assert value == fnp.sin(chosen(w, x, how))
    assert len(gradient) == 2


def test_vmap_takes_unmapped_arguments_of_any_type() -> None:
    w, x = np.ones((4, 3), np.float32), np.arange(3, dtype=np.float32)
    for how in (True, "max"):
        wanted = fx.vmap(lambda w: chosen(w, x, how))(w)
        np.testing.assert_array_equal(fx.vmap(chosen, (0, None, None))(w, x, how), wanted)
        np.testing.assert_array_equal(fx.vmap(chosen, (0, None, None, None))(w, x, how, abs), wanted)
        np.testing.assert_array_equal(fx.vmap(lambda s: chosen(*s), ((0, None, None),))((w, x, how)), wanted)


def test_maps_over_devices_take_unmapped_arguments_of_any_type() -> None:
    def scaled(x: fx.Array, how: str) -> fx.Array:
        return 2 * x if how == "twice" else x

    maps: tuple[Any, ...] = (fx.pmap, fx.soft_pmap)
    for over_devices in maps:
        assert over_devices(scaled, in_axes=(0, None))(X[None], "twice").tolist() == [(2 * X).tolist()]


def test_static_arguments_do_not_rename_other_arguments() -> None:
    with pytest.raises(ShapeError, match=r"4: axis 0 of w, .* 3: axis 0 of x"):
        fx.vmap(chosen, (0, 0, None))(np.ones((4, 3)), np.ones((3, 3)), True)


def test_differentiated_and_mapped_arguments_are_arrays() -> None:
    derivative: Any = fx.grad
    with pytest.raises(FxadError):
        derivative(chosen, 2)(X, X, True)
    with pytest.raises(FxadError):
        fx.vmap(chosen, (0, None, 0))(X, X, "sum")


# ------------------------------------------------- numbers that a function needs as values


def windowed(x: Any, n: Any, table: Any) -> Any:
    y = fnp.sum(x, axis=n) if n > -3 else x  # an axis and a condition
    return fnp.sum(fnp.concatenate([y, fnp.ones(n + 3)]) ** 2) + fnp.sum(x[table])  # a shape and a mask


@pytest.mark.parametrize("n", [-1, np.int64(-2), -3])
def test_a_number_reaches_a_function_that_needs_its_value(n: Any) -> None:
    x, table = np.arange(3, dtype=np.float32), np.array([False, True, True])
    stack = np.stack([np.ones((3, 3), np.float32), np.arange(9, dtype=np.float32).reshape(3, 3)])
    derivatives: list[Any] = [fx.grad, fx.jacfwd, fx.hessian]
    for derivative in derivatives:
        row = stack[1] if n != -3 else x
        wanted = derivative(lambda x: windowed(x, n, table))(row)
        np.testing.assert_array_equal(derivative(windowed)(row, n, table), wanted)
        np.testing.assert_array_equal(derivative(windowed)(row, table=table, n=n), wanted)
        np.testing.assert_array_equal(fx.jit(lambda x: derivative(windowed)(x, n, table))(row), wanted)
    examples = stack if n != -3 else stack[0]
    mapped = fx.vmap(windowed, (0, None, None))(examples, n, table)
    np.testing.assert_array_equal(mapped, fx.vmap(lambda x: windowed(x, n, table))(examples))


def test_one_program_serves_all_numbers_that_are_not_needed_as_values() -> None:
    seen = []

    def scaled(x: Any, n: Any) -> Any:
        seen.append(n)
        return fnp.sum(x * n)

    X = np.ones(3, np.float32)
    before = fx.cache.stats().misses
    for n in (2, 3, 4):
        assert fx.vmap(scaled, (0, None))(X, n).tolist() == [n] * 3
    assert fx.cache.stats().misses <= before + 1
    assert seen == [2, 3, 4]


def test_errors_show_the_value_of_a_number() -> None:
    with pytest.raises(AxisError, match="sum: axis 4 is out of range"):
        fx.vmap(lambda x, n: fnp.sum(x, axis=n), (0, None))(np.ones((2, 3)), 4)
    with pytest.raises(TracerError, match="has no value while the function is traced"):  # of an array of fxad
        fx.vmap(lambda x, n: x if n > 2 else -x, (0, None))(np.ones((2, 3)), fnp.asarray(4))


@pytest.mark.parametrize("error", [TypeError, AttributeError, ValueError, TracerError])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_function_that_fails_runs_once(depth: int, error: type[Exception]) -> None:
    runs = []

    def failing(x: Any, n: Any) -> Any:
        runs.append(n)
        raise error("bug")

    for transform in (lambda f: fx.vmap(f, (0, None)), fx.grad, lambda f: fx.vmap(fx.remat(f), (0, None))):
        runs.clear()
        f: Any = failing
        for _ in range(depth):
            f = transform(f)
        with pytest.raises(error, match="bug") as e:
            f(np.ones((2,) * depth, np.float32), 3)
        assert e.traceback[-1].name == "failing"
        assert runs == [3]
