"""Static arguments, drawn: transforming a function with static arguments gives the same program as transforming the
function for those values. Any layers of the stack may declare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import numpy as np
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp

LOOSE: Final[Any] = fx  # the types of drawn stacks are not known to mypy
STATIC: Final = ("flag", "n")
# the parameters in any order that keeps x before y
ORDERS: Final = ("x y flag n", "flag x n y", "x flag n y", "n flag x y", "flag x y n", "x n y flag")


def meaning(x: Any, y: Any, flag: object, n: object) -> Any:
    """The function that all orders of parameters compute. It fails if `flag` is not a bool or `n` not an int."""
    assert isinstance(flag, bool)
    assert isinstance(n, int)
    return fnp.sin(x) ** n * y if flag else x * fnp.exp(y) - n


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "x y flag n": lambda x, y, flag, n: meaning(x, y, flag, n),
    "flag x n y": lambda flag, x, n, y: meaning(x, y, flag, n),
    "x flag n y": lambda x, flag, n, y: meaning(x, y, flag, n),
    "n flag x y": lambda n, flag, x, y: meaning(x, y, flag, n),
    "flag x y n": lambda flag, x, y, n: meaning(x, y, flag, n),
    "x n y flag": lambda x, n, y, flag: meaning(x, y, flag, n),
}
# transformations of a function of scalars; each takes the number of the argument to differentiate, and options
SCALAR: Final[dict[str, Callable[..., Any]]] = {
    "jit": lambda f, k, **o: LOOSE.jit(f, **o),
    "remat": lambda f, k, **o: LOOSE.remat(f, **o),
    "grad": lambda f, k, **o: LOOSE.grad(f, k, **o),
    "jacfwd": lambda f, k, **o: LOOSE.jacfwd(f, argnums=k, **o),
    "jacrev": lambda f, k, **o: LOOSE.jacrev(f, argnums=k, **o),
}
AFTER_VMAP: Final = ("jit", "remat")
DECLARED: Final = ("no", "numbers", "numbers from the end", "names", "both")


@dataclass(frozen=True)
class Stack:
    """Layers from the inside out: a transformation, whether it differentiates with respect to y, and how it declares
    static arguments."""

    order: str
    layers: tuple[tuple[str, bool, str], ...]
    by_keyword: tuple[str, ...]

    def options(self, how: str) -> dict[str, Any]:
        """Returns the options of a transformation that declare the static arguments."""
        names = self.order.split()
        numbers = tuple([names.index(s) for s in STATIC])
        options: dict[str, dict[str, Any]] = {
            "no": {},
            "numbers": {"static_argnums": numbers},
            "numbers from the end": {"static_argnums": tuple([k - len(names) for k in numbers])},
            "names": {"static_argnames": STATIC},
            "both": {"static_argnums": numbers[0], "static_argnames": "n"},
        }
        return options[how]

    def apply(self, f: Callable[..., Any], names: list[str], *, declares: bool) -> Callable[..., Any]:
        """Returns f under the stack; `names` are its parameters."""
        for name, of_y, how in self.layers:
            options = self.options(how) if declares else {}
            if name == "vmap":
                f = LOOSE.vmap(
                    f, tuple([0 if s in "xy" else None for s in names if s not in self.by_keyword]), **options
                )
            else:
                f = SCALAR[name](f, names.index("y" if of_y else "x"), **options)
        return f


@st.composite
def static_stacks(draw: st.DrawFn) -> Stack:
    """Draws a stack of up to four layers, at least one of which declares static arguments."""
    order = draw(st.sampled_from(ORDERS))
    names = [draw(st.sampled_from(sorted(SCALAR))) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        names += ["vmap", *[draw(st.sampled_from(AFTER_VMAP)) for _ in range(draw(st.integers(0, 1)))]]
    hows = [draw(st.sampled_from(DECLARED)) for _ in names]
    if set(hows) == {"no"}:
        hows[draw(st.integers(0, len(hows) - 1))] = draw(st.sampled_from(DECLARED[1:]))
    last = tuple(takewhile(STATIC.__contains__, reversed(order.split())))
    by_keyword = last[: draw(st.integers(0, len(last)))]
    return Stack(
        order,
        tuple([(name, draw(st.booleans()), how) for name, how in zip(names, hows, strict=True)]),
        by_keyword,
    )


@given(static_stacks(), st.booleans(), st.integers(1, 3))
def test_a_stack_with_static_arguments_is_the_stack_for_their_values(stack: Stack, flag: bool, n: int) -> None:
    names = stack.order.split()
    f = stack.apply(FUNCTIONS[stack.order], names, declares=True)
    want: Any = stack.apply(lambda x, y: meaning(x, y, flag, n), ["x", "y"], declares=False)
    x: Any = np.float32(0.4)
    y: Any = np.float32(1.3)
    if any([name == "vmap" for name, _, _ in stack.layers]):
        x, y = np.stack([x, y]), np.stack([y, x])
    values: dict[str, Any] = {"x": x, "y": y, "flag": flag, "n": n}
    args = [values[s] for s in names if s not in stack.by_keyword]
    keywords = {s: values[s] for s in stack.by_keyword}
    np.testing.assert_array_equal(f(*args, **keywords), want(x, y))

    def called(x: Any, y: Any) -> Any:
        given = {**values, "x": x, "y": y}
        return f(*[given[s] for s in names if s not in stack.by_keyword], **keywords)

    assert fx.trace(called, x, y).jaxpr is fx.trace(lambda x, y: want(x, y), x, y).jaxpr
