"""Errors where functions with rules are made, called and inverted: every message whole, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.errors import ArgumentError, DTypeError, FxadError, NotInvertibleError, ParameterError, TreeError
from tests.api.refusals import refused

X = np.ones(3)
ARRAY = "pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__"
COUNTS = np.ones(3, np.int64)


def f(x: Any, n: Any) -> Any:
    return x * n


def unsigned(x: Any, n: Any) -> Any:
    return x * n


vars(unsigned)["__signature__"] = "none"  # a function without `__name__`, as of a C extension


def by_keyword(x: Any, *, k: Any) -> Any:
    return x * k


def both(_: Any, x: Any) -> Any:
    return x


def doubled(x: Any) -> Any:
    return 2 * x


def pair(x: Any, y: Any) -> Any:
    return x, y, y


def ruled(fn: Callable[..., Any] = f, nondiff: tuple[int, ...] = ()) -> Any:
    made: Any = fx.custom_jvp(fn, nondiff_argnums=nondiff)
    made.defjvp(lambda p, t: (p[0], t[0]))
    return made


def stacked() -> Any:
    return fx.custom_vmap(f)


def short() -> Any:
    made: Any = fx.custom_jvp(f)
    made.defjvps(None)
    return made


CASES: list[tuple[Callable[[], object], type[FxadError], str, str]] = [
    (
        lambda: ruled(f, (1,)).defjvps(None),
        ArgumentError,
        "defjvps of f: not with nondiff_argnums",
        "use defjvp",
    ),
    (
        lambda: fx.trace(short(), X, X),
        ArgumentError,
        "defjvps of f: has 1 rules for 2 arguments",
        "give one for each argument, None where its tangent has no effect",
    ),
    (
        lambda: stacked().def_vmap(),
        ParameterError,
        "def_vmap of f: no axis size is given",
        "f.def_vmap(rule) for any size, f.def_vmap(32, 128)(rule) for these",
    ),
    (
        lambda: fx.trace(lambda x: ruled(unsigned)(x, n=x), X),
        ArgumentError,
        "unsigned: has no signature, so its arguments cannot be given by keyword: n",
        "give them by position",
    ),
    (
        lambda: fx.trace(ruled(), X),
        ArgumentError,
        "f: missing a required argument: 'n'",
        "its signature is f(x: 'Any', n: 'Any') -> 'Any'",
    ),
    (
        lambda: fx.trace(lambda x: ruled(by_keyword)(x, k=x), X),
        ArgumentError,
        "by_keyword: has arguments that are given by keyword only: k",
        "rules know arguments by position: make them positional, or give them by functools.partial",
    ),
    (
        lambda: fx.custom_vjp(ruled(f, (1,)), nondiff_argnums=(0,)),
        ArgumentError,
        "custom_vjp: nondiff_argnums (0,) differs from (1,), which f has already",
        "all rules of a function see the same arguments: give nondiff_argnums once",
    ),
    (
        lambda: fx.trace(ruled(f, (5,)), X, X),
        ArgumentError,
        "f: nondiff_argnums has 5, and it is called with 2 arguments",
        "number the arguments from 0",
    ),
    (
        lambda: fx.trace(lambda x: ruled()(x, "one"), X),
        ArgumentError,
        "f: n: a str is not an array: 'one'",
        f"{ARRAY}; name arguments that are no arrays in nondiff_argnums",
    ),
    (
        lambda: fx.inverse(fx.custom_inverse(doubled, lambda y: y / 2, keep=3))(X),
        ArgumentError,
        "definverse of doubled: keep has 3, and its rules are about arguments 0",
        "number positional arguments from 0; those in nondiff_argnums are given to the rule anyway",
    ),
    (
        lambda: fx.inverse(fx.custom_ivjp(doubled, lambda y, ct: (y + ct, (ct,))))(X),
        NotInvertibleError,
        "defivjp of doubled: <lambda>: what it reconstructs depends on the cotangents",
        "return (arguments, cotangents of all arguments), in this order",
    ),
    (
        lambda: fx.inverse(fx.trace(pair, X, X), log_det=True),
        NotInvertibleError,
        "inverse: log_det of pair: its Jacobian is 9 x 3, which has no determinant",
        "return as many numbers as are to be reconstructed",
    ),
    (
        lambda: lax.linear_call(both, both, X, ()),
        TreeError,
        "linear_call: linear_args has no leaf",
        "call the function itself",
    ),
    (
        lambda: lax.linear_call(both, both, None, COUNTS),
        DTypeError,
        "linear_call: linear_args is i64[3], which has no tangent",
        "pass it in residual_args, or convert it",
    ),
]


@pytest.mark.parametrize(("call", "error", "message", "remedy"), CASES, ids=[c[2][:50] for c in CASES])
def test_refusals(call: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    assert refused(call, error, message).remedy == remedy
