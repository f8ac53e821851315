"""Taylor mode under the name and with the convention of `jax.experimental.jet`: series are derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

from fxad.api.jet import jet as taylor
from fxad.core import tree
from fxad.errors import ArgumentError, shown
from fxad.operations.arguments import flag

__all__ = ["jet"]


def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    *,
    factorial_scaled: bool = True,
    **kwargs: object,
) -> tuple[Any, Any]:
    """Return the value of `fun` and the derivatives of `fun(x(t))` in t at 0.

    `series` has an entry for each argument: the list of the derivatives of x(t), of orders 1, 2, ...; all lists have one
    length. The result has such a list in place of each leaf of the value. With `factorial_scaled=False` both are Taylor
    coefficients, as in `fx.jet`: derivatives divided by factorials.

    Raises: ArgumentError for lists of different lengths, or empty ones; as `fx.jet`.
    """
    scaled = flag("jet", "factorial_scaled", factorial_scaled)
    if not isinstance(primals, Sequence) or not isinstance(series, Sequence) or len(primals) != len(series):
        raise ArgumentError(
            f"jet: primals are {shown(primals)} and series are {shown(series)}, not two sequences of one length",
            remedy="give the list of derivatives of each argument: jet(f, (x, y), ((x_1, x_2), (y_1, y_2)))",
        )
    lengths = {len(terms) for terms in series}
    if len(lengths) != 1 or lengths == {0}:
        raise ArgumentError(
            f"jet: the series have the lengths {[len(terms) for terms in series]}",
            remedy="give as many derivatives of each argument, at least one; the order is their number",
        )
    (order,) = lengths

    def divided(term: Any, k: int) -> Any:
        return tree.map(lambda c: c / factorial(k) if k > 1 and scaled else c, term)

    coefficients = tuple([tuple([divided(terms[k - 1], k) for terms in series]) for k in range(1, order + 1)])
    out, higher = taylor(fun, tuple(primals), coefficients, **kwargs)
    leaves, structure = tree.flatten(out)
    rows = [tree.flatten_up_to(structure, c) for c in higher]
    terms = [
        [None if row[i] is None else row[i] * factorial(k) if k > 1 and scaled else row[i] for k, row in enumerate(rows, 1)]
        for i in range(len(leaves))
    ]
    return out, tree.unflatten(structure, terms)
