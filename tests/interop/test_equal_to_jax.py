"""`from_jax` and `to_jax` by `fx.equal`: programs are proved equal, at all operands. Nothing is compiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad.testing import Case, cases
from tests.interop.jax_laws import jax
from tests.laws.budget import share

interop = pytest.importorskip("fxad.interop.jax")
from_jax, to_jax = interop.from_jax, interop.to_jax
jnp = jax.numpy
A, V = fx.Spec((3, 4), "float32"), fx.Spec((4,), "float32")
I, W = fx.Spec((3, 4), "int32"), fx.Spec((4, 4), "float32")

# functions of an array module, and the types of their operands
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[fx.Spec, ...]]] = {
    "polynomial": (lambda xp, x, y: (x + y) * (x - y) ** 3 / (1 + x * x), (A, A)),
    "elementwise": (lambda xp, x: xp.sin(x) * xp.exp(-x) + xp.tanh(x) / xp.sqrt(1 + x * x), (A,)),
    "logarithms": (lambda xp, x, y: xp.log1p(x) + xp.expm1(y) + xp.log(x) * xp.cos(y), (A, A)),
    "maxima": (lambda xp, x, y: xp.maximum(x, y) + xp.max(x, axis=1, keepdims=True) * xp.min(y), (A, A)),
    "masks": (lambda xp, x, y: xp.where(x > y, x, xp.where(y >= 0, y, 1.0)), (A, A)),
    "clip": (lambda xp, x: xp.clip(x, -1, 2) * xp.abs(x), (A,)),
    "means": (lambda xp, x: xp.mean(x, axis=0) + xp.sum(x * x) - xp.prod(x[0]), (A,)),
    "variance": (lambda xp, x: xp.var(x, axis=1), (A,)),
    "products": (lambda xp, x, w, v: (x @ w) @ v + xp.einsum("ij,jk->i", x, w), (A, W, V)),
    "outer": (lambda xp, x, y: xp.outer(x, y) + xp.tensordot(x, y, 1), (V, V)),
    "shapes": (lambda xp, x: xp.concatenate([x.T.reshape(2, 6), xp.flip(x.reshape(2, 6), 1)], axis=0), (A,)),
    "slices": (lambda xp, x: x[1:, ::2] * x[:-1, 1::2] + xp.roll(x, 1, 1)[:2, :2], (A,)),
    "padding": (lambda xp, x: xp.pad(x, ((1, 0), (2, 1)), constant_values=3.0), (A,)),
    "cumulative": (lambda xp, x: xp.cumsum(x, axis=1) + xp.cumprod(x, axis=0), (A,)),
    "sorted": (lambda xp, x: xp.sort(x, axis=0) * xp.argmax(x, axis=1)[:, None], (A,)),
    "updates": (lambda xp, x: x.at[1].set(2.0).at[:, 0].add(x[:, 1]), (A,)),
    "integers": (lambda xp, n, x: (n * n + 3 * n - 1) * x, (I, A)),
    "complex": (lambda xp, x, y: xp.real((x + 1j * y) * xp.conj(y + 1j * x)), (A, A)),
    "inverse functions": (lambda xp, x: xp.arctan(x) + xp.arcsinh(x) + xp.cbrt(x), (A,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_jax_is_the_function_of_fxad(name: str) -> None:
    f, specs = FUNCTIONS[name]
    ours, theirs = fx.trace(partial(f, fnp), *specs), from_jax(partial(f, jnp), *specs)
    found = fx.equal(ours, theirs)
    assert isinstance(found, fx.Proof), found


@pytest.mark.parametrize("name", ["polynomial", "elementwise", "masks", "products", "slices", "updates"])
def test_a_gradient_of_jax_is_that_of_fxad(name: str) -> None:
    f, specs = FUNCTIONS[name]

    def loss(xp: Any, grad: Callable[..., Any], *args: Any) -> Any:
        return grad(lambda *xs: xp.sum(f(xp, *xs)), tuple(range(len(specs))))(*args)

    ours, theirs = fx.trace(partial(loss, fnp, fx.grad), *specs), from_jax(partial(loss, jnp, jax.grad), *specs)
    found = fx.equal(ours, theirs)
    assert isinstance(found, fx.Proof), found


def test_another_function_is_found() -> None:
    found = fx.equal(fx.trace(lambda x: fnp.var(x, 1), A), from_jax(lambda x: jnp.var(x, 1, ddof=1), A))
    assert isinstance(found, fx.Counterexample)


@pytest.mark.law
def test_programs_come_back_from_jax() -> None:
    """Programs, their batches and their tangents, which JAX asks for."""

    @share(4)
    @given(cases())
    def law(case: Case) -> None:
        ins: Any = ((0,) * len(case.args), {})
        program: Any = fx.Program(
            case.program, fx.tree.structure(ins), fx.tree.structure((0,) * len(case.program.outs))
        )
        specs = [fx.Spec(x.shape, x.dtype) for x in case.args]
        stacks = [fx.Spec((2, *x.shape), x.dtype) for x in case.args]
        with jax.enable_x64(True):
            try:
                theirs = to_jax(program)
            except fx.errors.TranslationError as e:
                if re.search("calls the host|it runs on 1 devices", e.message):
                    return
                raise
            pairs = [(program, from_jax(theirs, *specs), case.args)]
            if specs:
                batch = tuple([np.stack([x, x]) for x in case.args])
                pairs.append((fx.trace(fx.vmap(program), *stacks), from_jax(jax.vmap(theirs), *stacks), batch))
        for ours, back, at in pairs:
            found = fx.equal(ours, back, at=tuple(at))
            assert not isinstance(found, fx.Counterexample), f"{found}\n{ours.jaxpr}\n{back.jaxpr}"

    law()
