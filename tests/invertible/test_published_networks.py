"""Reversible networks and flows, in the forms of their public implementations.

These forms are what inversion is for (docs/adr/0098). A rule of a primitive that none of them uses is a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.scipy import special
from fxad.testing import Inversion, check_inverse
from fxad.testing.derivative_laws import check_same_derivatives
from fxad.transforms.inversion.invertible import invertible

RNG = np.random.default_rng(1)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape) * 0.4


def residual(x: Any, w: Any) -> Any:
    return nn.relu(x @ w[0]) @ w[1]


def revnet(x: Any, w: Any) -> Any:
    """Gomez, Ren, Urtasun and Grosse, The reversible residual network (2017): split, two blocks, concatenate."""
    a, b = fnp.split(x, 2, axis=-1)
    for k in range(2):
        a = a + residual(b, w[k])
        b = b + residual(a, w[k])
    return fnp.concatenate([a, b], axis=-1)


def squeeze(x: Any, block: int = 2) -> Any:
    """Space to depth."""
    n, h, w, c = x.shape
    x = fnp.reshape(x, (n, h // block, block, w // block, block, c))
    return fnp.reshape(fnp.transpose(x, (0, 1, 3, 2, 4, 5)), (n, h // block, w // block, c * block * block))


def i_revnet(x: Any, w: Any) -> Any:
    """Jacobsen, Smeulders and Oyallon, i-RevNet (2018): squeezes, padded channels, and halves that change places."""
    x = fnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)))
    a, b = x[..., :2], x[..., 2:]
    for k in range(2):
        a, b = squeeze(a) if k == 0 else a, squeeze(b) if k == 0 else b
        a, b = b, a + residual(b, w[k])
    return fnp.concatenate((a, b), axis=-1)


def actnorm(x: Any, scale: Any, bias: Any) -> Any:
    return (x + bias) * fnp.exp(scale)


def glow(x: Any, p: Any) -> Any:
    """Kingma and Dhariwal, Glow (2018): actnorm, a 1 x 1 convolution by P L U, and an affine coupling."""
    perm, lower, upper, log_s, scale, bias, w = p
    n = x.shape[-1]
    x = actnorm(x, scale, bias)
    left = fnp.tril(lower, -1) + fnp.eye(n)
    right = fnp.triu(upper, 1) + fnp.diag(fnp.exp(log_s))
    x = x @ (perm @ left @ right)
    a, b = fnp.split(x, 2, axis=-1)
    s, t = fnp.split(fnp.tanh(a @ w), 2, axis=-1)
    return fnp.concatenate([a, (b + t) * nn.sigmoid(s + 2.0)], axis=-1)


def glow_factor_out(x: Any, w: Any) -> Any:
    """The levels of Glow and Real NVP: half of the channels leave, the other half goes on."""
    first = []
    for k in range(2):
        a, b = fnp.split(x, 2, axis=-1)
        first.append(a * fnp.exp(fnp.tanh(b @ w[k, : b.shape[-1], : a.shape[-1]])))
        x = b
    return (*first, x)


def permuted(x: Any, w: Any) -> Any:
    """Fixed permutations and reversals between couplings (Real NVP, MAF)."""
    order = np.array([2, 0, 3, 1])
    x = x[:, order]
    a, b = x[:, :2], x[:, 2:]
    x = fnp.hstack([a, b * fnp.exp(fnp.tanh(a @ w)) + a @ w])
    return fnp.flip(x, axis=-1)


def autoregressive(z: Any, w: Any) -> Any:
    """Papamakarios, Pavlakou and Murray, Masked autoregressive flow (2017): sampling, column by column."""
    columns: list[Any] = []
    for i in range(z.shape[1]):
        before = fnp.stack([*columns, fnp.zeros_like(z[:, i])], axis=-1)
        mu, alpha = before @ w[0, : i + 1, i], fnp.tanh(before @ w[1, : i + 1, i])
        columns.append(z[:, i] * fnp.exp(alpha) + mu)
    return fnp.stack(columns, axis=-1)


def activations(x: Any, w: Any) -> Any:
    """Elementwise flows: scales, sinh-arcsinh, sigmoid and logit."""
    x = x * fnp.exp(w)
    x = fnp.sinh(fnp.arcsinh(x) * 1.2 + 0.1)
    return special.logit(0.05 + 0.9 * nn.sigmoid(x))


def leapfrog(state: Any, w: Any) -> Any:
    q, p = state

    def step(_: Any, carry: Any) -> Any:
        q, p = carry
        p = p - 0.5 * fnp.sin(q * w)
        q = q + p
        return q, p - 0.5 * fnp.sin(q * w)

    return lax.fori_loop(0, 4, step, (q, p))


def reversible_scan(x: Any, w: Any) -> Any:
    """RevNet blocks over stacked parameters."""

    def block(halves: Any, w: Any) -> Any:
        a, b = halves
        a = a + fnp.tanh(b @ w)
        return (a, b + fnp.tanh(a @ w)), None

    return lax.scan(block, (x[0], x[1]), w)[0]


def looped_blocks(x: Any, w: Any) -> Any:
    """Reformer and RevNet code wraps each block."""
    for k in range(3):
        x = fx.invertible(lambda x, w: reversible_scan(x, w), keep="w")(x, w[k][None])
    return x


PLU = (
    np.eye(4)[[2, 0, 3, 1]],
    drawn(4, 4),
    drawn(4, 4),
    drawn(4),
    drawn(4),
    drawn(4),
    drawn(2, 4),
)  # fmt: skip
NETWORKS: list[tuple[Callable[..., Any], Any, Any, bool]] = [
    (revnet, drawn(3, 8), drawn(2, 2, 4, 4), True),
    (i_revnet, drawn(1, 2, 2, 3), drawn(2, 2, 8, 8), False),
    (glow, drawn(2, 2, 4), PLU, True),
    (glow_factor_out, drawn(3, 8), drawn(2, 8, 8), True),
    (permuted, drawn(3, 4), drawn(2, 2), True),
    (autoregressive, drawn(3, 4), drawn(2, 4, 4), True),
    (activations, drawn(3, 4), drawn(4), True),
    (leapfrog, (drawn(5), drawn(5)), drawn(5), True),
    (reversible_scan, (drawn(2, 4), drawn(2, 4)), drawn(3, 4, 4), True),
    (looped_blocks, (drawn(2, 4), drawn(2, 4)), drawn(3, 4, 4), False),
]


@pytest.mark.parametrize(("f", "x", "w", "measured"), NETWORKS, ids=[f.__name__ for f, *_ in NETWORKS])
def test_networks(f: Callable[..., Any], x: Any, w: Any, measured: bool) -> None:
    """The operands, the log-determinant and the gradients agree with those of the plain program."""
    case = Inversion.of(f, x, w, keep="w" if "w" in f.__code__.co_varnames[:2] else "p", measured=measured)
    check_inverse(case)
    check_same_derivatives(case.case, invertible(case.program, case.kept), 1e-6)
