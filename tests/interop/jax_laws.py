"""The laws of `from_jax` and `to_jax`: a translated function agrees with the function."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
from tests.laws.budget import quick

jax = pytest.importorskip("jax")

# Tests compare the results of JAX, and not its speed. These options make XLA compile in half of the time.
QUICK: Final = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def jit_of_jax(f: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit`, compiled quickly in ordinary runs."""
    return jax.jit(f, compiler_options=QUICK if quick() else None)  # type: ignore[no-any-return]


def package(name: str) -> Any:
    """Returns a package on JAX. The test is skipped if it is not installed, unless FXAD_PEERS is "required"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jaxopt warns at its import that it is no longer maintained
        return import_module(name) if os.environ.get("FXAD_PEERS") == "required" else pytest.importorskip(name)


def close(found: Any, wanted: Any, what: str) -> None:
    """The leaves of two trees agree, up to the rounding of some operations of their dtype."""
    ours, theirs = fx.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(ours) == len(theirs), what
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        x, y = np.asarray(a), np.asarray(b)
        assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{what}: result {k}"
        if y.dtype.kind not in "fcV":
            np.testing.assert_array_equal(x, y, f"{what}: result {k}")
            continue
        wide = np.complex128 if y.dtype.kind == "c" else np.float64
        x, y = x.astype(wide), y.astype(wide)
        finite = np.abs(y[np.isfinite(y)])
        eps = float(fx.numpy.finfo(a.dtype).eps)
        atol = 2.0**9 * eps * max(1.0, float(finite.max()) if finite.size else 1.0)
        np.testing.assert_allclose(x, y, rtol=2**9 * eps, atol=atol, err_msg=f"{what}: result {k}")


def floating(x: Any) -> bool:
    return bool(np.asarray(x).dtype.kind in "fV")


def agree(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    args: Sequence[Any],
    *,
    orders: int = 2,
    stack: bool = True,
    wrt: Sequence[int] | None = None,
    by: Any = fx,
) -> None:
    """`ours` agrees with `theirs`, a function of JAX: in value, gradient, Hessian-vector product and batch.

    `by` transforms `ours`: fxad, or JAX."""
    theirs = jax.jit(theirs)  # eager operations round 16-bit values more often
    both: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
    moving = [k for k, a in enumerate(args) if wrt is None and all(map(floating, jax.tree.leaves(a)))]
    moving = [k for k in moving if jax.tree.leaves(args[k])] if wrt is None else list(wrt)
    outs = jax.tree.leaves(jax.eval_shape(theirs, *args))
    at = tuple([args[k] for k in moving])
    if moving and orders and any(y.dtype.kind in "fV" for y in outs):
        draw = np.random.default_rng(1)
        weights = [draw.normal(size=y.shape).astype(y.dtype) if y.dtype.kind in "fV" else None for y in outs]

        def scalar(leaves: Callable[[Any], list[Any]], f: Callable[..., Any]) -> Callable[..., Any]:
            def loss(*xs: Any) -> Any:
                full = list(args)
                for k, x in zip(moving, xs, strict=True):
                    full[k] = x
                pairs = zip(leaves(f(*full)), weights, strict=True)
                terms = [(y * w).sum().astype("float32") for y, w in pairs if w is not None]
                return sum(terms[1:], terms[0])

            return loss

        mine, other = scalar(by.tree.leaves, ours), scalar(jax.tree.leaves, theirs)
        numbers = tuple(range(len(moving)))
        gradient, gradient_of_jax = by.grad(mine, argnums=numbers), jax.grad(other, argnums=numbers)
        both["gradient"] = gradient, gradient_of_jax
        if orders > 1:
            direction = [draw.normal(size=np.shape(x)).astype(np.asarray(x).dtype) for x in jax.tree.leaves(at)]

            def along(leaves: Callable[[Any], list[Any]], g: Callable[..., Any]) -> Callable[..., Any]:
                def product(*xs: Any) -> Any:
                    terms = [(y * d).sum().astype("float32") for y, d in zip(leaves(g(*xs)), direction, strict=True)]
                    return sum(terms[1:], terms[0])

                return product

            ours_twice = by.grad(along(jax.tree.leaves, gradient), argnums=numbers)
            theirs_twice = jax.grad(along(jax.tree.leaves, gradient_of_jax), argnums=numbers)
            both["Hessian-vector product"] = ours_twice, theirs_twice
    stacked = jax.tree.map(lambda x: np.stack([np.asarray(x), np.flip(np.asarray(x))]), tuple(args)) if stack else None
    batches = by.vmap(lambda *xs: ours(*xs)), jax.vmap(theirs)

    def results(side: int) -> Callable[..., Any]:
        """Computes all values to compare in one program, because XLA's compilations take most of the time."""

        def run(args: Any, at: Any, stacked: Any) -> dict[str, Any]:
            found = {"value": (ours, theirs)[side](*args), **{what: pair[side](*at) for what, pair in both.items()}}
            return found if stacked is None else {**found, "batch": batches[side](*stacked)}

        return run

    jit = fx.jit if by is fx else jit_of_jax
    have, want = jit(results(0))(args, at, stacked), jit_of_jax(results(1))(args, at, stacked)
    for what in want:
        close(have[what], want[what], what)
