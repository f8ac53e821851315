"""Memory in reverse mode: names for policies, and loops that store a given number of carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from fxad.core import tree
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, ParameterError, described
from fxad.ir import Atom, Jaxpr, Var
from fxad.lax.control.bodies import traced_loop
from fxad.lax.control.scanning import slice_types, static_int
from fxad.operations.arguments import to_int
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.marks import Name
from fxad.primitives.shape import Reshape
from fxad.primitives.slicing import Concatenate, Slice
from fxad.tracing.array import aval_of, binder

C = TypeVar("C")
T = TypeVar("T")
Y = TypeVar("Y")


def checkpoint_name(x: T, name: str) -> T:
    """Return x, a pytree of arrays, with a name by which policies of `remat` select it; the value is the same.

    Raises: ArgumentError for a name that is not a string, and for a leaf that is not an array.
    """
    if not isinstance(name, str):
        raise ArgumentError(
            f"checkpoint_name: the name is {described(name)}, not a str: {name!r:.60}",
            remedy='checkpoint_name(x, "mlp")',
        )
    leaves, structure = tree.flatten(x)
    for a, path in zip(leaves, tree.paths(structure, "x"), strict=True):
        aval_of(a, f"checkpoint_name: {path}")
    return cast(T, structure.unflatten([binder().bind(Name(name), (a,))[0] for a in leaves]))


def checkpointed_scan(
    f: Callable[[C, Any], tuple[C, Y]], init: object, xs: object = None, length: int | None = None, *, budget: int
) -> tuple[C, Y]:
    """`scan`, whose reverse mode stores at most `budget` carries at a time, and the intermediates of one step.

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
    sizes = segments(n, static_int("checkpointed_scan", "budget", budget, 1))
    rest = tree.structure((xs_tree.unflatten(range(len(leaves))),))
    loop = traced_loop("checkpointed_scan", f, init, rest, slices, role="f", start="init", pair=True)
    captured = loop.body.captured
    whole = _nested_scan(loop.body.jaxpr, len(captured), len(loop.init), n, sizes)
    outs = binder().call(whole, [*captured, *loop.init, *leaves])
    at = len(loop.init)
    return cast("tuple[C, Y]", (loop.carry_tree.unflatten(outs[:at]), loop.rest_tree.unflatten(outs[at:])))


def segments(n: int, budget: int) -> tuple[int, ...]:
    """Return lengths of nested segments of n steps, outermost first, such that at most `budget` carries are stored at a
    time.

    Raises: ParameterError for a smaller budget than the least, which it names.
    """
    least = n
    for depth in range(1, max(n, 2).bit_length() + 1):
        sizes = _balanced(n, depth)
        if carries_stored(n, sizes) <= budget:
            return sizes
        least = min(least, carries_stored(n, sizes))
    raise ParameterError(
        f"checkpointed_scan: a budget of {budget} carries is too small for {n} steps",
        remedy=f"at least {least} are needed; a step is computed again for each level of segments",
    )


def _balanced(n: int, depth: int) -> tuple[int, ...]:
    """Return segments with about as many parts on every level."""
    parts, below = max(n, 1), 0  # the least number on each level: parts**depth >= n
    while parts - below > 1:
        middle = (parts + below) // 2
        parts, below = (middle, below) if middle**depth >= n else (parts, middle)
    out, m = [], n
    for _ in range(depth - 1):
        m = -(-m // parts)
        out.append(m)
    return tuple([m for k, m in enumerate(out) if m > 1 and m < (out[k - 1] if k else n)])


def carries_stored(n: int, sizes: Sequence[int]) -> int:
    """Return the largest number of carries stored at a time: on each level one for each part."""
    total = 0
    for m in sizes:
        total += -(-n // m)
        n = m
    return total + n


@by_value
def _nested_scan(body: Jaxpr, n_consts: int, n_carry: int, n: int, sizes: tuple[int, ...]) -> Jaxpr:
    """Return n steps as a program: constants, carry, arrays of n slices -> carry, stacked results."""
    b = Builder()
    avals = body.in_avals
    consts, state = b.inputs(avals[:n_consts]), b.inputs(avals[n_consts : n_consts + n_carry])
    xs = b.inputs([a.with_shape((n, *a.shape)) for a in avals[n_consts + n_carry :]])
    m = sizes[0] if sizes else 1
    inner = _nested_scan(body, n_consts, n_carry, m, sizes[1:]) if sizes else body
    trips, left = divmod(n, m)
    step = Builder.like(inner)
    part = step.build(step(Remat(inner), *inner.ins), f"part_{body.name}")
    blocks = [_row_block(b, x, 0, trips * m, (trips, m)) if sizes else x for x in xs]
    outs: Sequence[Var] = b(Scan(part, trips, False, 1, n_consts, n_carry), *consts, *state, *blocks)
    carry, ys = outs[:n_carry], outs[n_carry:]
    if sizes:
        ys = [b.one(Reshape((trips * m, *y.aval.shape[2:])), y) for y in ys]
    if left:
        tail = _nested_scan(body, n_consts, n_carry, left, tuple([s for s in sizes[1:] if s < left]))
        outs = b(Remat(tail), *consts, *carry, *[_row_block(b, x, trips * m, n, (left,)) for x in xs])
        carry = outs[:n_carry]
        ys = [b.one(Concatenate(0), y, z) for y, z in zip(ys, outs[n_carry:], strict=True)]
    return b.build([*carry, *ys], f"checkpointed_{body.name}")


def _row_block(b: Builder, x: Atom, start: int, stop: int, lead: tuple[int, ...]) -> Atom:
    """Return rows of x, with leading axes `lead` in place of the first."""
    shape = x.aval.shape
    if (start, stop) != (0, shape[0]):
        x = b.one(Slice((start, *[0] * (len(shape) - 1)), (stop, *shape[1:]), (1,) * len(shape)), x)
    return x if x.aval.shape == (*lead, *shape[1:]) else b.one(Reshape((*lead, *shape[1:])), x)
