"""Messages of samplers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fxad as fx
from fxad import random
from fxad.core.builder import Builder
from fxad.errors import FxadError
from fxad.ir import Aval
from fxad.primitives.random import THREEFRY2X32

KEY = random.key(0)
LOGITS = np.zeros((2, 3), np.float32)

REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    # keys
    (lambda: random.normal(0), TypeError, "random.normal: takes a key, got 0"),
    (lambda: random.normal(np.zeros(2, np.float32)), TypeError, "random.normal: a key is u32[2], got f32[2]"),
    (
        lambda: random.normal(np.zeros((3, 2), np.uint32)),
        ValueError,
        "random.normal: takes one key, u32[2], got keys u32[3,2]",
    ),
    (lambda: random.split(np.zeros(3, np.uint32)), ValueError, "random.split: a key is u32[2], got u32[3]"),
    (lambda: random.split("a"), TypeError, "random.split: key: a str is not an array: 'a'"),  # type: ignore[arg-type]
    (lambda: random.key_data(LOGITS), TypeError, "random.key_data: keys are u32[...,2], got f32[2,3]"),
    (
        lambda: random.wrap_key_data(np.zeros(3, np.uint32)),
        ValueError,
        "random.wrap_key_data: keys are u32[...,2], got u32[3]",
    ),
    # seeds
    (lambda: random.key(KEY), ValueError, "random.key: a seed is one integer, got u32[2]"),
    (lambda: random.key(1.5), TypeError, "random.key: a seed is an integer, got 1.5"),
    (lambda: random.key(True), TypeError, "random.key: a seed is an integer, got True"),
    (lambda: random.key(np.float32(1)), TypeError, "random.key: a seed is an integer, got f32[]"),
    (lambda: random.key(2**64), ValueError, "random.key: the seed 18446744073709551616 has more than 64 bits"),
    (lambda: random.fold_in(KEY, 1.5), TypeError, "random.fold_in: data is an integer, got 1.5"),
    (lambda: random.fold_in(KEY, 2**32), ValueError, "random.fold_in: data 4294967296 has more than 32 bits"),
    (lambda: random.fold_in(KEY, -1), ValueError, "random.fold_in: data -1 is below 0"),
    (lambda: random.fold_in(KEY, KEY), ValueError, "random.fold_in: data is one integer, got u32[2]"),
    (lambda: random.fold_in(KEY, np.float32(1)), TypeError, "random.fold_in: data is an integer, got f32[]"),
    # shapes
    (lambda: random.split(KEY, -1), ValueError, "random.split: shape: (-1,) has a negative size"),
    (lambda: random.uniform(KEY, (2, -1)), ValueError, "random.uniform: shape: (2, -1) has a negative size"),
    (
        lambda: random.uniform(KEY, (2.5,)),  # type: ignore[arg-type]
        ValueError,
        "random.uniform: shape: (2.5,) is not a sequence of integers",
    ),
    (
        lambda: random.uniform(KEY, (2,), minval=np.zeros(3, np.float32)),
        ValueError,
        "random.uniform: minval of shape (3,) does not broadcast to the shape (2,) of the result",
    ),
    (
        lambda: random.gamma(KEY, np.ones(3, np.float32), ()),
        ValueError,
        "random.gamma: a of shape (3,) does not broadcast to the shape () of the result",
    ),
    (
        lambda: random.chisquare(KEY, np.ones(3, np.float32), ()),
        ValueError,
        "random.chisquare: df of shape (3,) does not broadcast to the shape () of the result",
    ),
    (
        lambda: random.t(KEY, np.ones(3, np.float32), ()),
        ValueError,
        "random.t: df of shape (3,) does not broadcast to the shape () of the result",
    ),
    (
        lambda: random.generalized_normal(KEY, np.ones(3, np.float32)),
        ValueError,
        "random.generalized_normal: p of shape (3,) does not broadcast to the shape () of the result",
    ),
    (
        lambda: random.beta(KEY, np.ones(3, np.float32), np.ones(2, np.float32)),
        ValueError,
        "random.beta: shapes (3,) and (2,) do not broadcast: axis -1 has sizes 3 and 2",
    ),
    (
        lambda: random.dirichlet(KEY, 1.0),
        ValueError,
        "random.dirichlet: alpha must have at least one axis, got shape ()",
    ),
    (
        lambda: random.multivariate_normal(KEY, np.zeros(2, np.float32), np.eye(3, dtype=np.float32)),
        ValueError,
        "random.multivariate_normal: cov must be 2 by 2, as mean is, got shape (3, 3)",
    ),
    (
        lambda: random.multivariate_normal(KEY, 0.0, np.eye(3, dtype=np.float32)),
        ValueError,
        "random.multivariate_normal: mean must be a vector or a stack of them, got shape ()",
    ),
    (
        lambda: random.multinomial(KEY, np.ones(3), np.ones((2, 2))),
        ValueError,
        "random.multinomial: n of shape (3,) does not broadcast to the shape (2,) of the result",
    ),
    # dtypes
    (
        lambda: random.uniform(KEY, (), "int32"),
        TypeError,
        "random.uniform: dtype must be float16, bfloat16, float32 or float64, got int32",
    ),
    (
        lambda: random.normal(KEY, (), "bool"),
        TypeError,
        "random.normal: dtype must be float16, bfloat16, float32, float64, complex64 or complex128, got bool",
    ),
    (lambda: random.bits(KEY, (), "int32"), TypeError, "random.bits: dtype must be an unsigned integer, got int32"),
    (
        lambda: random.randint(KEY, (), 0, 3, "float32"),
        TypeError,
        "random.randint: dtype must be an integer dtype, got float32",
    ),
    (lambda: random.randint(KEY, (), 0.5, 3), TypeError, "random.randint: minval must be an integer, got f32[]"),
    (
        lambda: random.uniform(KEY, (), maxval=1j),
        TypeError,
        "random.uniform: maxval is complex64, which does not convert to float32",
    ),
    (lambda: random.bernoulli(KEY, 1), TypeError, "random.bernoulli: p must be floating, got i32[]"),
    (
        lambda: random.categorical(KEY, np.zeros(3, np.int32)),
        TypeError,
        "random.categorical: logits must be floating, got i32[3]",
    ),
    (lambda: random.rademacher(KEY, (), "uint8"), TypeError, "random.rademacher: dtype must have a -1, got uint8"),
    # choices
    (lambda: random.bernoulli(KEY, mode="up"), TypeError, "random.bernoulli: mode must be 'low' or 'high', got 'up'"),
    (lambda: random.gumbel(KEY, mode="up"), TypeError, "random.gumbel: mode must be 'low' or 'high', got 'up'"),
    (
        lambda: random.multivariate_normal(KEY, np.zeros(1), np.eye(1), method="lu"),
        TypeError,
        "random.multivariate_normal: method must be 'cholesky', 'eigh' or 'svd', got 'lu'",
    ),
    (
        lambda: random.categorical(KEY, LOGITS, shape=(4, 2), replace=False),
        ValueError,
        "random.categorical: 4 draws without replacement of 3 categories",
    ),
    (
        lambda: random.categorical(KEY, np.zeros((2, 0), np.float32)),
        ValueError,
        "random.categorical: logits f32[2,0] have no category along axis 1",
    ),
    (
        lambda: random.choice(KEY, 3, (4,), replace=False),
        ValueError,
        "random.choice: 4 draws without replacement of 3 elements",
    ),
    (lambda: random.choice(KEY, 0, (1,)), ValueError, "random.choice: there is nothing to choose 1 elements from"),
    (
        lambda: random.choice(KEY, 3, p=np.ones(2, np.float32)),
        ValueError,
        "random.choice: p must have one weight for each of 3 elements, got f32[2]",
    ),
    (
        lambda: random.permutation(KEY, 2.5),
        TypeError,
        "random.permutation: x must be an int or an array with axes, got 2.5",
    ),
    (lambda: random.permutation(KEY, -1), ValueError, "random.permutation: x must not be negative, got -1"),
    (lambda: random.ball(KEY, 0), ValueError, "random.ball: d must be a positive int, got 0"),
    (
        lambda: random.orthogonal(KEY, -2),
        ValueError,
        "random.orthogonal: n must be an int that is not negative, got -2",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_refused(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, FxadError)
    assert caught.value.message == message


def test_the_cipher_takes_four_words_of_one_shape() -> None:
    word, other = Aval((2,), "uint32"), Aval((3,), "uint32")
    for avals, message in (
        ((word,) * 3, "threefry2x32: takes 4 operands, got 3"),
        ((word, word, word, Aval((2,), "int32")), "threefry2x32: takes uint32 operands, got i32[2] as counter word 1"),
        ((word, word, other, word), "threefry2x32: shapes differ: key word 0 u32[2], counter word 0 u32[3]"),
    ):
        b = Builder()
        with pytest.raises(FxadError) as caught:
            b(THREEFRY2X32, *b.inputs(avals))
        assert caught.value.message == message


def test_a_traced_count_is_refused() -> None:
    with pytest.raises(TypeError, match="has no value while the function is traced"):
        fx.trace(lambda n: random.permutation(KEY, n), fx.Spec((), "int32"))
