"""`check_grads`: the derivatives of a function, compared with central differences, to any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fxad.api.directional import jvp, vjp
from fxad.api.jit import jit
from fxad.core.trees import tree
from fxad.errors import ParameterError
from fxad.ir import NDArray
from fxad.tracing.array import Array, asarray, is_scalar

T = TypeVar("T")
Tolerance: TypeAlias = "float | Mapping[Any, float] | None"  # by dtype, in a mapping


def check_grads(
    f: Callable[..., object],
    args: tuple[object, ...],
    order: int,
    modes: str | Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Compare derivatives of `f` at `args` with central differences, in forward and reverse mode, up to an order.

    Raises: AssertionError where they differ by more than the tolerances (default 1e-2, in 64 bits 1e-5), numbers or
            mappings from dtypes to numbers;
            ParameterError for another mode than "fwd" or "rev".
    """
    modes = (modes,) if isinstance(modes, str) else modes
    unknown = [m for m in modes if m not in ("fwd", "rev")]
    if unknown:
        raise ParameterError(f"check_grads: mode {unknown[0]!r}", remedy='modes are "fwd" and "rev"')
    args = _arrays(args)
    if "fwd" in modes:
        check_jvp(f, partial(jvp, f), args, atol, rtol, eps)
        if order > 1:
            directions = _random_like(args, 1)
            check_grads(lambda *xs: jvp(f, xs, directions)[1], args, order - 1, ("fwd",), atol, rtol, eps)
    if "rev" in modes:
        check_vjp(f, partial(vjp, f), args, atol, rtol, eps)
        if order > 1:
            bar = _random_like(f(*args), 2)
            check_grads(lambda *xs: vjp(f, *xs)[1](bar), args, order - 1, ("rev",), atol, rtol, eps)


def check_jvp(
    f: Callable[..., object],
    f_jvp: Callable[..., Any],
    args: tuple[object, ...],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Compare the tangent of `f` at `args` along a direction with a central difference. `f_jvp(primals, tangents)`
    gives it, as `partial(fx.jvp, f)` does. Raises: AssertionError, with `err_msg`."""
    args = _arrays(args)
    directions = _random_like(args, 0)
    tangent = f_jvp(args, directions)[1]
    _close("jvp", tangent, _difference(f, args, directions, eps), atol, rtol, message=err_msg)


def check_vjp(
    f: Callable[..., object],
    f_vjp: Callable[..., Any],
    args: tuple[object, ...],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Compare `<y_bar, difference>` with `<pull(y_bar), x_dot>` at `args`. `f_vjp(*args)` gives the results and `pull`,
    as `partial(fx.vjp, f)` does. Raises: AssertionError, with `err_msg`."""
    args = _arrays(args)
    directions = _random_like(args, 0)
    out, pull = f_vjp(*args)
    bar = _random_like(out, 2)
    left, right = _dot(bar, _difference(f, args, directions, eps)), _dot(pull(bar), directions)
    _close("vjp", right, left, atol, rtol, _wide(tree.leaves(args)), err_msg)


def _arrays(args: tuple[object, ...]) -> tuple[object, ...]:
    """Return the arguments with arrays in place of Python numbers, of 64 bits if another argument has 64: results of
    numbers alone are not traced as float32, and a cotangent has the dtype of the trace."""
    args = tuple(args)
    wide = bool(_wide([x for x in tree.leaves(args) if not is_scalar(x)]))
    dtypes_of = {float: np.float64, complex: np.complex128} if wide else {}
    return tree.map(lambda x: asarray(x, dtypes_of.get(type(x))) if is_scalar(x) else x, args)


def _random_like(values: T, seed: int) -> T:
    """Return a direction: standard normal numbers for floating leaves, None for the others, which have no tangent."""
    rng = np.random.default_rng(seed)
    leaves, structure = tree.flatten(values)
    direction: T = tree.unflatten(structure, [_direction(asarray(x), rng) for x in leaves])
    return direction


def _direction(x: Array, rng: np.random.Generator) -> NDArray | None:
    if not x.aval.inexact:
        return None
    value: npt.NDArray[np.inexact] = rng.standard_normal(x.shape)
    if x.dtype.kind == "c":
        value = value + 1j * rng.standard_normal(x.shape)
    return value.astype(x.dtype)


def _difference(
    f: Callable[..., object], args: tuple[object, ...], directions: tuple[object, ...], eps: float | None
) -> list[npt.NDArray[np.inexact]]:
    leaves, structure = tree.flatten(args)
    step = eps or (1e-5 if _wide(leaves) else 1e-2)
    flat = tree.flatten_up_to(structure, directions)
    assert flat is not None
    run = jit(f)  # one program, and not one for each operation

    def at(distance: float) -> list[npt.NDArray[np.inexact]]:
        shifted = [
            x if d is None else (np.asarray(x) + distance * d).astype(np.asarray(x).dtype)
            for x, d in zip(leaves, flat, strict=True)
        ]
        return [np.asarray(y) for y in tree.leaves(run(*tree.unflatten(structure, shifted)))]

    return [(a - b) / (2 * step) for a, b in zip(at(step), at(-step), strict=True)]


def _wide(leaves: Sequence[object]) -> bool:
    """Return True if all floating leaves have 64-bit parts."""
    kinds = [np.asarray(x).dtype for x in leaves]
    return all([d in (np.float64, np.complex128) for d in kinds if d.kind not in "iub"])


def _dot(x: object, y: object) -> object:
    """Return the real part of the product: a function of complex numbers with real values has no other."""
    pairs = zip(tree.leaves(x), tree.leaves(y), strict=True)
    return np.real(sum([np.sum(np.asarray(a, complex) * np.asarray(b)) for a, b in pairs]))


def _close(
    what: str,
    ours: object,
    differences: object,
    atol: Tolerance,
    rtol: Tolerance,
    wide: bool | None = None,
    message: str = "",
) -> None:
    for a, b in zip(tree.leaves(ours), tree.leaves(differences), strict=True):
        default = 1e-5 if (_wide([a]) if wide is None else wide) else 1e-2
        np.testing.assert_allclose(
            np.asarray(a),
            np.asarray(b),
            atol=_tolerance(atol, np.asarray(a).dtype, default),
            rtol=_tolerance(rtol, np.asarray(a).dtype, default),
            err_msg=f"check_grads: the {what} differs from the central difference{message and ': '}{message}",
        )


def _tolerance(given: Tolerance, dtype: np.dtype[Any], default: float) -> float:
    """Return the tolerance for a dtype; a mapping has some dtypes, and the others have the default."""
    if isinstance(given, Mapping):
        return {np.dtype(k): v for k, v in given.items()}.get(dtype, default)
    return default if given is None else given
