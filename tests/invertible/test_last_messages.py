"""Messages of inverses that no other test pins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.errors import ArgumentError, NotInvertibleError, ParameterError, TreeError
from fxad.ir import Aval, Jaxpr
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import DeclaredProgram, Function, Rules, TransformRule
from fxad.primitives.elementwise import NEG

X = np.linspace(0.1, 1, 3)


@pytest.mark.parametrize("argnums", [3, 1, -1, (1,), 1.5])
def test_integer_arguments_are_not_determined(argnums: Any) -> None:
    with pytest.raises(ArgumentError) as e:
        fx.inverse(fnp.tanh, argnums=argnums)(X)
    assert e.value.message == f"inverse: the types of arguments {argnums} of tanh cannot be told from its results"
    assert e.value.remedy == "trace it on examples first: inverse(trace(tanh, *examples), ...)"


def test_an_inverse_returns_the_arguments_that_are_not_kept() -> None:
    f = fx.custom_inverse(lambda x, w: x * w, lambda y, w: (y / w, w), keep="w")
    with pytest.raises(TreeError) as e:
        fx.inverse(f)(X, X)
    assert e.value.message == "definverse of <lambda>: <lambda> returns (*, *), <lambda> takes *"
    assert e.value.remedy == "return the argument that is not kept, or a tuple of them in order"


def body(n: int) -> Jaxpr:
    b = Builder()
    ins = b.inputs((Aval((3,), "float32"),) * n)
    return b.build([b.one(NEG, x) for x in ins], "neg")


def test_rules_that_do_not_fit() -> None:
    one, two = body(1), body(2)
    inverse = DeclaredProgram("inverse", two, (1,), (0,))
    rules = Rules(further=(TransformRule("inverse", (inverse,), whole=True),))
    with pytest.raises(ParameterError) as e:
        CallWithRules(Function(one, rules=rules)).abstract_eval(*one.in_avals)
    assert e.value.message == f"call_with_rules: inverse {two.name} takes (f32[3], f32[3]), expected (f32[3])"


def as_float(k: Any) -> Any:
    return k.astype("float64") * 2.0


def by_branch(x: Any) -> Any:
    return lax.cond(x[0] > 0, lambda x: x * 2, lambda x: x * 3, x)


def by_steps(x: Any) -> Any:
    return lax.while_loop(lambda x: x[0] < 5, lambda x: x * 2, x)


@pytest.mark.parametrize(
    ("f", "x", "hint"),
    [
        (as_float, np.arange(3, dtype=np.int32), "return the integer or the bool too"),
        (by_branch, X, "compute the predicate from values that are not reconstructed"),
        (by_steps, X, "take a number of steps that is known: fori_loop or scan"),
    ],
)
def test_remedies(f: Any, x: Any, hint: str) -> None:
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(f, x))
    rest = "hold the argument (argnums), or give the function that is not inverted a custom_inverse"
    assert e.value.remedy == f"{hint}; or {rest}"
    assert e.value.equation
    assert e.value.where.endswith(f"in {f.__name__}")
