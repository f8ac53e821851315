"""Messages for static arguments, in full, and the values that these arguments accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.lax as lax
import fxad.numpy as fnp
from fxad import dtypes
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.numpy.composites import jit_composite

X = np.arange(12, dtype=np.float32).reshape(3, 4)
STATIC: Final = "it is static: a Python value, which cannot come from a traced array"
ARRAY: Final = "pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__"
WIDER: Final = "no integer dtype holds it; give a float"
WHOLE: Final = np.arange(3, dtype=np.int32)
NUMBERS: Final = lax.ScatterDimensionNumbers((0,), (0,), (0,))
loose_spec: Any = fx.Spec
loose_lax: Any = lax  # calls that mypy rejects too
loose_numpy: Any = fnp


def scaled(x: fx.Array, factors: tuple[list[int], ...]) -> fx.Array:
    return x * factors[0][0]


class Endless:
    def __jax_array__(self) -> Endless:
        return self


ENDLESS: Final[Any] = Endless()

REFUSED: Final[tuple[tuple[Callable[[], object], type[FxadError], str, str], ...]] = (
    (
        lambda: loose_lax.cumsum(X, 0, "no"),
        ArgumentError, "cumsum: reverse must be True or False, got a str: 'no'", STATIC,
    ),
    (
        lambda: loose_lax.cumsum(X, 0, np.ones(2)),
        ArgumentError, "cumsum: reverse must be True or False, got an ndarray: array([1., 1.])", STATIC,
    ),
    (
        lambda: loose_numpy.median(X, overwrite_input=""),
        ArgumentError, "median: overwrite_input must be True or False, got a str: ''", STATIC,
    ),
    (
        lambda: loose_numpy.asarray(X, order=np.ones(2)),
        ParameterError, "asarray: order array([1., 1.]); arrays have no layout", "leave it out",
    ),
    (
        lambda: loose_numpy.reshape(X, -1, order=np.ones(2)),
        ParameterError, "reshape: order array([1., 1.]); arrays have no layout", 'use "C" or "F"',
    ),
    (
        lambda: jit_composite(scaled, X, ([2],)),
        ArgumentError, "scaled: factors is a tuple: ([2],)",
        "pass an array, or a static value: a number, a str, a tuple of these",
    ),
    (
        lambda: loose_numpy.sum(X, keepdims=1),
        ArgumentError, "sum: keepdims must be True or False, got an int: 1", STATIC,
    ),
    (lambda: loose_numpy.tril(X, 1.5), ArgumentError, "tril: k must be an integer, got a float: 1.5", STATIC),
    (
        lambda: lax.multigammaln(X, 10**30),
        ParameterError, "multigammaln: d is an int of 100 bits", "sizes and positions have 64 bits",
    ),
    (
        lambda: loose_numpy.meshgrid(X, indexing=3),
        ParameterError, "meshgrid: indexing 3", 'use "xy" or "ij"',
    ),
    (
        lambda: loose_numpy.isclose(X, X, rtol="a"),
        ArgumentError, "isclose: rtol must be a real number, got a str: 'a'", STATIC,
    ),
    (
        lambda: loose_numpy.rot90(X, 1, "ab"),
        ArgumentError, "rot90: axes must be a sequence, got a str: 'ab'", "give a tuple or a list",
    ),
    (
        lambda: loose_lax.scatter_apply(fnp.asarray(X), np.zeros((1, 1), int), "f", NUMBERS),
        ArgumentError, "scatter_apply: func must be a function, got a str: 'f'", "give something that can be called",
    ),
    (
        lambda: fnp.array_repr(X, precision=-1),
        ArgumentError, "array_repr: the arguments are refused: ValueError: precision must be >= 0",
        "give what NumPy takes",
    ),
    (
        lambda: fnp.asarray(2**31),
        DTypeError, "asarray: argument 0: 2147483648 does not fit in int32",
        "int64 holds it: make it asarray(number, dtype='int64'), or convert the array beside it",
    ),
    *[
        (
            lambda call=call, through=through: through(call)(fnp.asarray([1], "int8")),
            DTypeError, f"{where}: 300 does not fit in int8",
            "int16 holds it: make it asarray(number, dtype='int16'), or convert the array beside it",
        )
        for through in (lambda f: f, fx.jit)
        for where, call in (
            ("where: argument 1", lambda x: fnp.where(x > 0, 300, x)),
            ("where: argument 2", lambda x: fnp.where(x > 0, x, 300)),
            ("clip: argument 1", lambda x: fnp.clip(x, 300)),
            ("clip: argument 2", lambda x: x.clip(max=300)),
            ("select: default", lambda x: fnp.select([x > 0], [x], 300)),
            ("select: choicelist[0]", lambda x: fnp.select([x > 0, x > 0], [300, x])),
        )
    ],
    *[
        (call, ArgumentError, f"{where}: a list is not an array: [True]", "make it one: fxad.numpy.asarray(...)")
        for where, call in (
            ("where: argument 0", lambda: loose_numpy.where([True], X, X)),
            ("where: argument 2", lambda: loose_numpy.where(X > 0, X, [True])),
            ("select: condlist[1]", lambda: loose_numpy.select([X > 0, [True]], [X, X])),
            ("select: choicelist[1]", lambda: loose_numpy.select([X > 0, X > 0], [X, [True]])),
            ("select: default", lambda: loose_numpy.select([X > 0], [X], [True])),
            ("ragged_dot: group_sizes", lambda: loose_lax.ragged_dot(X, X[None].mT, [True])),
            ("newton: x0", lambda: loose_lax.newton(fnp.sin, [True], fx.jacfwd(fnp.sin))),
        )
    ],
    (
        lambda: fx.asarray(X) + ENDLESS,
        ArgumentError, "Endless.__jax_array__: returns an Endless, not an array",
        "return an array: of fxad, of NumPy or of JAX",
    ),
    (
        lambda: loose_spec(("n", 3)),
        ShapeError, "shape: ('n', 3) is not a sequence of integers",
        'a shape with names is one text: "n, 3"',
    ),
    (
        lambda: fnp.zeros((0,))[0],
        AxisError, "getitem: index 0 is out of range for axis 0 with size 0",
        "an axis of size 0 has no indices; where an index is a tracer, reads clip and updates drop",
    ),
    (
        lambda: fx.asarray(X)[3],
        AxisError, "getitem: index 3 is out of range for axis 0 with size 3",
        "static indices run from -3 to 2; where an index is a tracer, reads clip and updates drop",
    ),
    (
        lambda: lax.sin(2**80),
        DTypeError, "sin: argument 0: 1208925819614629174706176 does not fit in int32", WIDER,
    ),
    *[
        (call, DTypeError, f"{what}: 1208925819614629174706176 does not fit in int32", WIDER)
        for what, call in (
            ("asarray: argument 0", lambda: fx.asarray(2**80)),
            ("asarray: argument 0", lambda: fnp.asarray(2**80)),
            ("asarray: an element", lambda: fnp.array([1, 2**80])),
            ("device_put: x['w']", lambda: fx.device_put({"w": 2**80})),
            ("isin: argument 1", lambda: fnp.isin(WHOLE, 2**80)),
            ("gcd: argument 0", lambda: fnp.gcd(2**80, 4)),
            ("sum: initial", lambda: fnp.sum(WHOLE, initial=2**80)),
            ("at: the value", lambda: fx.asarray(WHOLE).at[0].set(2**80)),
            ("reduce: initial value 0", lambda: lax.reduce(WHOLE, 2**80, lax.add, (0,))),
        )
    ],
    (
        lambda: loose_lax.scan(lambda c, _: (c, None), 1.0, None, int),
        ArgumentError, "scan: length is a type, not an int: <class 'int'>", "length is static: a Python int",
    ),
    (
        lambda: loose_lax.cg("a string", X[0]),
        ArgumentError, "cg: A: a str is not an array: 'a string'", ARRAY,
    ),
    (
        lambda: dtypes.complex_of(dtypes.int32),
        DTypeError, "complex: parts must be float32 or float64, got int32", "convert the parts with astype",
    ),
    (
        lambda: fnp.asarray(np.ma.masked_array([1.0], [True])),
        ArgumentError, "asarray: argument 0: a masked array is not taken: its mask would be lost", "use filled()",
    ),
    (
        lambda: loose_numpy.asarray(X).__array__(np.float64, copy=False),
        ParameterError, "numpy: float32 does not become <class 'numpy.float64'> without a copy", "leave `copy` out",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message", "remedy"), REFUSED, ids=range(len(REFUSED)))
def test_messages(call: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(FxadError) as e:
        call()
    assert (type(e.value), e.value.message, e.value.remedy) == (error, message, remedy)


def test_a_python_type_is_a_dtype_by_type_and_by_name() -> None:
    for python in (bool, int, float, complex):
        assert fnp.zeros(2, python).dtype is fnp.zeros(2, python.__name__).dtype
        assert fx.Spec((2,), python).dtype is fx.Spec((2,), python.__name__).dtype


def test_multigammaln_of_many_dimensions() -> None:
    a = np.array([40.0, 60.5])
    for d in (2, 16, 17, 40):
        terms: Any = sum([np.asarray(lax.lgamma(a - j / 2)) for j in range(d)])
        want = d * (d - 1) / 4 * np.log(np.pi) + terms
        np.testing.assert_allclose(np.asarray(lax.multigammaln(a, d)), want, rtol=1e-12)
