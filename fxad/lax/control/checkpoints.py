"""Memory in reverse mode: names for policies, and loops that store a given number of carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from fxad.core.trees import tree
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.lax.control.host_values import HostLeaf, HostTree
from fxad.lax.control.scanning import slice_types
from fxad.lax.control.traced_functions import traced_loop
from fxad.operations.arguments import to_count, to_int
from fxad.primitives.control.scan import Scan
from fxad.primitives.marks import Name
from fxad.tracing.array import Array, ArrayLike, aval_of, binder
from fxad.transforms.memory.nested_scan import balanced, carries_stored, nested_scan
from fxad.transforms.memory.policies import nothing

C = TypeVar("C")
X = TypeVar("X")
T = TypeVar("T")
Y = TypeVar("Y")


def checkpoint_name(x: T, name: str) -> T:
    """Return x, a pytree of arrays, with a name by which policies of `remat` select it; the value is the same.

    Raises: ArgumentError for a name that is not a string, and for a leaf that is not an array.
    """
    if not isinstance(name, str):
        raise ArgumentError(
            f"checkpoint_name: the name is {described(name)}, not a str: {shown(name)}",
            remedy='checkpoint_name(x, "mlp")',
        )
    leaves, structure = tree.flatten(x)
    for a, path in zip(leaves, tree.paths(structure, "x"), strict=True):
        aval_of(a, f"checkpoint_name: {path}")
    return cast(T, structure.unflatten([binder().bind(Name(name), (a,))[0] for a in leaves]))


# as for `scan`
# fmt: off
@overload
def checkpointed_scan(f: Callable[[Array, None], tuple[ArrayLike, Y]], init: HostLeaf, xs: None = None, length: int | None = None, *, budget: int) -> tuple[Array, Y]: ...
@overload
def checkpointed_scan(f: Callable[[C, None], tuple[C, Y]], init: C, xs: None = None, length: int | None = None, *, budget: int) -> tuple[C, Y]: ...
@overload
def checkpointed_scan(f: Callable[[Array, Array], tuple[ArrayLike, Y]], init: HostLeaf, xs: HostLeaf, length: int | None = None, *, budget: int) -> tuple[Array, Y]: ...
@overload
def checkpointed_scan(f: Callable[[Array, X], tuple[ArrayLike, Y]], init: HostLeaf, xs: X, length: int | None = None, *, budget: int) -> tuple[Array, Y]: ...
@overload
def checkpointed_scan(f: Callable[[C, Array], tuple[C, Y]], init: C, xs: HostLeaf, length: int | None = None, *, budget: int) -> tuple[C, Y]: ...
@overload
def checkpointed_scan(f: Callable[[C, X], tuple[C, Y]], init: C, xs: X, length: int | None = None, *, budget: int) -> tuple[C, Y]: ...
@overload
def checkpointed_scan(f: Callable[[C, X], tuple[C, Y]], init: HostTree, xs: object = None, length: int | None = None, *, budget: int) -> tuple[C, Y]: ...
@overload
def checkpointed_scan(f: Callable[[C, X], tuple[C, Y]], init: C, xs: HostTree, length: int | None = None, *, budget: int) -> tuple[C, Y]: ...
# fmt: on
def checkpointed_scan(
    f: Callable[[Any, Any], tuple[object, object]],
    init: object,
    xs: object = None,
    length: int | None = None,
    *,
    budget: int,
) -> tuple[Any, Any]:
    """Return `scan`, whose reverse mode stores at most `budget` carries at a time, and the intermediates of one step.

    The steps are divided into nested segments, each a `remat` of a `scan` of smaller ones. Depth d needs a budget of
    about d * n^(1/d) and computes each step d more times. The smallest depth that fits is used: a budget of n gives one
    recomputation, 2 sqrt(n) two, and 2 log2(n) log2(n) of them.

    Law:    same values and, in exact arithmetic, the same gradients as `scan`; any length, also a prime.
    Raises: as `scan`; ParameterError for a budget that is too small for the number of steps, with the least sufficient
            one.
    Source: Griewank and Walther, Evaluating Derivatives (2008), chapter 12: multi-level checkpointing.
    """
    length = None if length is None else to_int("checkpointed_scan", "length", length)
    leaves, xs_tree = tree.flatten(xs)
    n, slices = slice_types("checkpointed_scan", leaves, xs_tree, length)
    sizes = segments(n, to_count("checkpointed_scan", "budget", budget, 1))
    rest = tree.tuple_structure(xs_tree)
    loop = traced_loop("checkpointed_scan", f, init, rest, slices, role="f", start="init", pair=True)
    captured = loop.body.captured
    body = loop.body.jaxpr
    whole = nested_scan(Scan(body, n, False, 1, len(captured), len(loop.init)), sizes, nothing)
    return loop.results(binder().call(whole, [*captured, *loop.init, *leaves]))


def segments(n: int, budget: int) -> tuple[int, ...]:
    """Return lengths of nested segments of n steps, outermost first, such that at most `budget` carries are stored at a
    time.

    Raises: ParameterError for a smaller budget than the least, which it names.
    """
    least = n
    for depth in range(1, max(n, 2).bit_length() + 1):
        sizes = balanced(n, depth)
        if carries_stored(n, sizes) <= budget:
            return sizes
        least = min(least, carries_stored(n, sizes))
    raise ParameterError(
        f"checkpointed_scan: a budget of {budget} carries is too small for {n} steps",
        remedy=f"at least {least} are needed; a step is computed again for each level of segments",
    )
