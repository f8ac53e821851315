"""Each primitive rejects wrong operands and parameters with an error of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError, FxadError
from fxad.ir import Aval, Jaxpr, Primitive
from fxad.primitives import ALL
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.testing import Application, calls
from tests.laws.budget import share


def parameters(kind: type[Primitive]) -> list[str]:
    """Returns the names of the parameters of a class."""
    return [f.name for f in dataclasses.fields(kind)]


every = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
with_parameters = pytest.mark.parametrize("kind", [k for k in ALL if parameters(k)], ids=lambda kind: kind.name)


def error_of_the_type_rule(prim: Primitive, avals: tuple[Aval, ...]) -> FxadError | None:
    """Returns the error of the type rule for operands, or None."""
    error = raised(lambda: prim.abstract_eval(*avals))
    assert error is None or error.message.startswith(f"{prim.name}: "), error
    return error


def raised(f: Callable[[], object]) -> FxadError | None:
    """Returns the error of fxad that a function raises, or None. Other errors propagate."""
    try:
        f()
    except FxadError as e:
        return e
    return None


def replaced(avals: tuple[Aval, ...], k: int, aval: Aval) -> tuple[Aval, ...]:
    return (*avals[:k], aval, *avals[k + 1 :])


def reshaped(aval: Aval) -> Iterator[Aval]:
    """Yields types with another rank or with other sizes."""
    s = aval.shape
    for shape in ((), (1, *s), (*s, 2), (0, *s), s[1:], s[:-1], tuple([n + 1 for n in s]), (0,) * len(s), (3,) * 6):
        yield aval.with_shape(shape)


@every
def test_operands(kind: type[Primitive]) -> None:
    @share(8)
    @given(calls(kind), st.data())
    def law(application: Application, data: st.DataObject) -> None:
        prim, avals = application.prim, application.avals
        error_of_the_type_rule(prim, ())
        error_of_the_type_rule(prim, (*avals, avals[0] if avals else Aval((), "float32")))
        for k, aval in enumerate(avals):
            error_of_the_type_rule(prim, (*avals[:k], *avals[k + 1 :]))
            for dtype in dtypes.ALL:
                error = error_of_the_type_rule(prim, replaced(avals, k, aval.with_dtype(dtype)))
                assert error is None or isinstance(error, TypeError) or dtype.itemsize != aval.dtype.itemsize, error
            for other in reshaped(aval):
                error_of_the_type_rule(prim, replaced(avals, k, other))

    law()


def test_a_wrong_number_of_operands_is_an_argument_error() -> None:
    free = {"select_n", "sort", "concatenate", "optimization_barrier", "dynamic_slice", "dynamic_update_slice"}
    for kind in ALL:
        if kind.name not in free and not parameters(kind):
            with pytest.raises(ArgumentError, match=rf"^{kind.name}: takes \d operands?, got 7"):
                kind().abstract_eval(*[Aval((), "float32")] * 7)


WRONG = (1.5, "abc", None, [1.0], object(), float, np.float32, np.datetime64("2020-01-01"), {1: 2}, b"ab", 1j)


@with_parameters
def test_parameters(kind: type[Primitive]) -> None:
    @share(12)
    @given(calls(kind))
    def law(application: Application) -> None:
        prim, avals = application.prim, application.avals
        for name in parameters(kind):
            value = getattr(prim, name)
            for wrong in WRONG:
                error = raised(partial(dataclasses.replace, prim, **{name: wrong}))
                if error is None:  # a str or None in place of a parameter
                    error_of_the_type_rule(dataclasses.replace(prim, **{name: wrong}), avals)
                else:
                    assert isinstance(error, ArgumentError)
                    assert error.message.startswith(f"{prim.name}: {name} must be "), error
            if type(value) in (int, tuple) and not isinstance(value, Jaxpr):
                again = dataclasses.replace(prim, **{name: foreign(value)})
                assert again == prim
                assert repr(again) == repr(prim)

    law()


def foreign(value: object) -> object:
    """Returns a parameter with NumPy integers for ints and lists for tuples."""
    if type(value) is int:
        return np.int64(value)
    return [foreign(v) for v in value] if isinstance(value, tuple) else value


def test_a_bool_is_not_an_axis() -> None:
    for kind in ALL:
        if parameters(kind) == ["axis"]:
            with pytest.raises(ArgumentError, match=rf"^{kind.name}: axis must be int, got a bool: True"):
                kind(axis=True)  # type: ignore[call-arg]


def test_a_wrong_dtype_is_a_dtype_error() -> None:
    for kind in ALL:
        if issubclass(kind, Unary | Binary | Compare) and not parameters(kind):
            for dtype in set(dtypes.ALL) - kind.takes:
                with pytest.raises(DTypeError, match=rf"^{kind.name}: "):
                    kind().abstract_eval(*[Aval((2,), dtype)] * (1 if issubclass(kind, Unary) else 2))
