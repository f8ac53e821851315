"""The mistakes of somebody who is new: each message says what to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, optim
from fxad.errors import FxadError

W, X = np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)
untyped: Any = fx
numbers: Any = fnp
operations: Any = lax
samplers: Any = fx.random
STATIC = "it is static: leave it out and close over it, or name its argument in static_argnames of jit, grad, vmap, ..."


def loss(w: Any, x: Any) -> Any:
    return fnp.sum(fnp.tanh(x @ w))


PROGRAM: Any = fx.trace(loss, W, X)


@dataclass
class Model:
    w: Any

    def __call__(self, x: Any) -> Any:
        return x @ self.w


def pytree(name: str) -> str:
    return (
        f"make {name} a pytree, by @fxad.tree.dataclass or fxad.tree.register; or close over the object, or name its"
        " argument in static_argnames of jit, grad, vmap, ..."
    )


DTYPE = "this argument is a dtype, such as 'float32'; a shape is one tuple, as in zeros((2, 3))"
LIST = "make it one: fxad.numpy.asarray(...)"
STATE = "write `update(gradients, state, params)`: `init` returns the first state, `update` the next ones"
AGAIN = "trace again for other arguments, or use jit, which does so by itself"

MISTAKES: list[tuple[Callable[[], Any], str, str]] = [
    # programs
    (
        lambda: PROGRAM(W),
        "loss: takes 2 positional arguments, 1 was given",
        f"the program has the arguments w, x; {AGAIN}",
    ),
    (
        lambda: PROGRAM(W.tolist(), X),
        "loss: argument w is [[*, *], [*, *], [*, *]], it was traced as *",
        "give one array f32[3,2]: lists, tuples and None are pytrees, and numpy.asarray makes arrays of lists",
    ),
    (
        lambda: PROGRAM(None, X),
        "loss: argument w is None, it was traced as *",
        "give one array f32[3,2]: lists, tuples and None are pytrees, and numpy.asarray makes arrays of lists",
    ),
    # arguments that are no arrays
    (lambda: fx.jit(loss)("w", X), "jit of loss: argument w: a str is not an array: 'w'", STATIC),
    (lambda: fx.vmap(loss)(W, np.sin), "vmap of loss: argument x: ", STATIC),
    (lambda: fx.grad(loss)(Model(W), X), "trace of loss: argument w: a Model is not an array: Model(", pytree("Model")),
    (lambda: fx.trace(loss, {"w": Model(W)}, X), "trace of loss: argument w['w']: a Model is ", pytree("Model")),
    (lambda: fx.nn.softmax(numbers.asarray), "softmax: argument 0: a function is not an array: ", ""),
    (lambda: numbers.sum([1.0, 2.0]), "sum: argument 0: a list is not an array: [1.0, 2.0]", LIST),
    # shapes, dtypes, keys in the wrong place
    (lambda: numbers.zeros(3, 3), "dtype: 3 is not a dtype of fxad", DTYPE),
    (lambda: untyped.Spec(3, 2), "dtype: 2 is not a dtype of fxad", DTYPE),
    (lambda: untyped.nn.initializers.normal(fx.random.key(0), (3,)), "dtype: (3,) is not a dtype of fxad", DTYPE),
    (
        lambda: samplers.normal((3,)),
        "random.normal: takes a key first, got (3,)",
        "random.normal(fxad.random.key(seed), ...), then split it",
    ),
    (
        lambda: samplers.uniform(None, (3,)),
        "random.uniform: takes a key first, got None",
        "random.uniform(fxad.random.key(seed), ...), then split it",
    ),
    # arrays
    (
        lambda: numbers.concatenate([W[0], W]),
        "concatenate: ranks must be equal and not 0: array 0 f32[2], array 1 f32[3,2]",
        "give a list of arrays, with as many axes each; stack joins them along a new axis",
    ),
    (
        lambda: numbers.concatenate([W, X]),
        "concatenate: shapes differ beside axis 0: operand 0 f32[3,2], operand 1 f32[4,3]",
        "all sizes must be equal, except along the axis that is joined",
    ),
    (
        lambda: numbers.stack([W, X]),
        "stack: shapes differ: array 0 f32[3,2], array 1 f32[4,3]",
        "give arrays of one shape; concatenate joins arrays along an axis that they have",
    ),
    (
        lambda: numbers.asarray([[1, 2], [3]]),
        "asarray: the rows of nested lists must have one length",
        "fill the rows up; mask computes with ragged sizes",
    ),
    (
        lambda: fnp.linalg.inv(W),
        "inv: argument 0 must be square matrices, got 3 by 2 in f32[3,2]",
        "numpy.linalg has lstsq, pinv and svd for matrices that are not square",
    ),
    (
        lambda: operations.select(W > 0, W, 0),
        "select_n: shapes differ: selector bool[3,2], case 0 i32[]",
        "give one shape to all; fxad.numpy.where broadcasts",
    ),
    (
        lambda: fnp.max(fnp.zeros(0)),
        "max: axis 0 of f32[0] is empty and has no max",
        "give initial=, which is the result of none",
    ),
    (
        lambda: numbers.ones(3).at.__setitem__(0, 1),
        "at: an array is immutable",
        "x.at[index].set(value) gives a new array",
    ),
    # optimisers
    *[
        (
            lambda o=o: o.update(o.init(W), W),
            f"{name}: update takes an ndarray for the state, not a {name.removesuffix('w').title()}State",
            STATE,
        )
        for name, o in (
            ("sgd", optim.sgd(0.1)),
            ("momentum", optim.momentum(0.1)),
            ("adam", optim.adam(0.1)),
            ("adamw", optim.adamw(0.1)),
            ("lion", optim.lion(0.1)),
            ("lbfgs", optim.lbfgs(0.1)),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "message", "remedy"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_message_says_what_to_write(mistake: Callable[[], Any], message: str, remedy: str) -> None:
    with pytest.raises(FxadError) as e:
        mistake()
    assert e.value.message.startswith(message)
    assert e.value.remedy == remedy if remedy else e.value.remedy


def test_a_shape_in_place_of_an_array_is_noted() -> None:
    with pytest.raises(TypeError, match="unsupported operand") as e:
        untyped.trace(loss, (3, 2), (4, 3))
    assert e.value.__notes__ == [
        f"{name} is a pytree of {shape}; fx.Spec({shape}) is an array of this shape"
        for name, shape in (("w", (3, 2)), ("x", (4, 3)))
    ]
    assert fx.trace(lambda n: n[0] + n[1], (3, 2)).jaxpr.eqns, "a pytree of numbers is none the less an argument"


LAYERS = (
    "a layer is a function of its parameters, such as x @ params.w + params.b, and parameters are any pytree, such as a"
    " class with @fxad.tree.dataclass; fxad.interop.jax.from_jax takes models of flax and equinox"
)
LOWERED = "fx.lower(program) has text(), stages and compile(); what compile() returns has memory() and cost()"


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (fx, "tree_map", "fxad.tree has map, leaves, flatten, unflatten, ..."),
        (fx.random, "seed", "a sampler has no state: make a key, random.key(seed)"),
        (fx.nn, "Linear", LAYERS),
        (fnp, "cat", "fnp.concatenate"),
        (PROGRAM, "compile", LOWERED),
        (PROGRAM, "shape", "program.in_avals and program.out_avals are the types of arguments and results"),
        (numbers.ones(3).at, "set", "an index comes first, as in x.at[index].set(value)"),
    ],
)  # fmt: skip
def test_names_of_other_packages(owner: Any, name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as e:
        getattr(owner, name)
    assert str(e.value).endswith(f" has no attribute {name!r}: {instead}")


def test_programs_of_stages_are_shown_as_programs() -> None:
    _, backward = fx.vjp(loss, W, X)
    assert repr(backward) == "<Program vjp_loss: 5 equations, 1 argument leaves>"
    assert repr(fx.jit(loss).trace(W, X)) == repr(PROGRAM)
