"""A user's function gets keyword arguments with any names through each transformation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
from fxad import tree

LOOSE: Final[Any] = fx
X: Final[Any] = np.arange(1, 4, dtype=np.float32)
Given = Mapping[str, Any]


def parameters(f: Callable[..., object]) -> set[str]:
    """Returns the names of parameters that a caller can pass by keyword."""
    ways = inspect.signature(f).parameters.values()
    return {p.name for p in ways if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


# The parameters of public functions, and of functions that they return.
NAMES: Final = sorted({
    "self", "args", "kwargs", "fn", "held", "results", "cotangent", "leaves", "what", "owner",
    *[name for f in map(partial(getattr, fx), dir(fx)) if inspect.isfunction(f) for name in parameters(f)],
})  # fmt: skip
GIVEN: Final[Given] = {name: np.float32(k + 1) for k, name in enumerate(NAMES)}


def total(x: Any, /, **given: Any) -> Any:
    return (x * sum([(k + 1) * given[name] for k, name in enumerate(sorted(given))])).sum()


def scaled(x: Any, /, **given: Any) -> Any:
    """A function with an inverse."""
    return x * sum([(k + 1) * given[name] for k, name in enumerate(sorted(given))])


def called(transform: Callable[..., Any]) -> Callable[..., Any]:
    return lambda f, given: transform(f)(X, **given)


# Each transforms a function and calls the result with keyword arguments.
PASSED_ON: Final[dict[str, Callable[..., Any]]] = {
    **{
        name: called(getattr(LOOSE, name))
        for name in (
            "jit",
            "grad",
            "value_and_grad",
            "jacfwd",
            "jacrev",
            "hessian",
            "remat",
            "checkpoint",
            "dce",
            "cse",
            "simplify",
            "inline",
            "outline",
            "reroll",
            "named_call",
        )
    },
    "jit, traced": lambda f, given: LOOSE.jit(f).trace(X, **given)(X, **given),
    "jit, lowered": lambda f, given: LOOSE.jit(f).lower(X, **given).compile()(X, **given),
    "jit, eval_shape": lambda f, given: np.zeros(LOOSE.jit(f).eval_shape(X, **given).shape),
    "jit of a static argument": lambda f, given: LOOSE.jit(lambda n, x, /, **k: f(x, **k) * n, static_argnums=0)(
        2, X, **given
    ),
    "make_jaxpr": lambda f, given: LOOSE.make_jaxpr(f)(X, **given)(X, **given),
    "vmap": lambda f, given: LOOSE.vmap(f)(X, **{k: np.full(3, v) for k, v in given.items()}),
    "pmap": lambda f, given: LOOSE.pmap(f)(X[:1], **{k: np.full(1, v) for k, v in given.items()}),
    "soft_pmap": lambda f, given: LOOSE.soft_pmap(f)(X, **{k: np.full(3, v) for k, v in given.items()}),
    "jvp of values": lambda f, given: LOOSE.jvp(f)((X,), (X,), **given),
    "grad of a complex function": lambda f, given: LOOSE.grad(f, holomorphic=True)(
        X.astype(np.complex64), **{k: v.astype(np.complex64) for k, v in given.items()}
    ),
}
# These take keyword arguments themselves; all other names reach the function.
AT_ONCE: Final[dict[str, Callable[..., Any]]] = {
    "jvp": lambda f, given: LOOSE.jvp(f, (X,), (X,), **given),
    "linearize": lambda f, given: LOOSE.linearize(f, X, **given)[1](X),
    "vjp": lambda f, given: LOOSE.vjp(f, X, **given)[1](np.float32(1)),
    "eval_shape": lambda f, given: np.zeros(LOOSE.eval_shape(f, X, **given).shape),
    "explain_nan": lambda f, given: np.isnan(
        LOOSE.explain_nan(lambda x, /, **k: f(x, **k) * np.nan, X, **given).nan.at
    ),
    "interpret": lambda f, given: LOOSE.interpret(LOOSE.make_jaxpr(f)(X, **given), X, **given),
    "trace": lambda f, given: LOOSE.trace(f, X, **given)(X, **given),
}


@pytest.mark.parametrize("name", [*PASSED_ON, *AT_ONCE])
def test_a_keyword_argument_has_any_name(name: str) -> None:
    result = {**PASSED_ON, **AT_ONCE}[name]
    own = parameters(getattr(fx, name)) if name in AT_ONCE else set()
    given = {k: v for k, v in GIVEN.items() if k not in own}
    assert len(given) > len(GIVEN) - 6
    have, want = result(total, given), result(lambda x: total(x, **given), {})
    for a, b in zip(tree.leaves(have), tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_inverse_takes_keyword_arguments_of_any_name() -> None:
    inverse: Any = fx.inverse(scaled)
    np.testing.assert_allclose(inverse(scaled(X, **GIVEN), **GIVEN), X, rtol=1e-6)
    given = {k: v for k, v in GIVEN.items() if k != "keep"}
    np.testing.assert_array_equal(LOOSE.invertible(scaled, keep=[*given])(X, **given), scaled(X, **given))
    assert LOOSE.reconstruction_error(scaled, X, keep=[*given], **given) < 1e-6


def test_a_method_with_its_own_derivative_takes_self_by_keyword() -> None:
    f: Any = fx.custom_jvp(lambda x, self: x * self)
    f.defjvp(lambda primals, tangents: (primals[0] * primals[1], tangents[0] * 7.0))
    assert fx.grad(f)(1.0, self=2.0) == 7.0
