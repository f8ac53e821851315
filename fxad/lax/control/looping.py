"""`while_loop`: a loop whose number of steps is known at run time."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, SupportsIndex, TypeVar, cast, overload

from fxad import dtypes
from fxad.core.trees import tree
from fxad.errors import DTypeError, ParameterError, ShapeError, TreeError, shown
from fxad.ir import BOOL_SCALAR
from fxad.lax.control.host_values import HostLeaf, HostTree
from fxad.lax.control.traced_functions import TracedFunction, traced_body, traced_loop
from fxad.primitives.control.while_ import While
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.context import sharing_copies
from fxad.tracing.tracer import bind

T = TypeVar("T")


# A number or an array of NumPy is an Array inside the functions, also in a container.
# fmt: off
@overload
def while_loop(cond_fun: Callable[[Array], object], body_fun: Callable[[Array], ArrayLike], init_val: HostLeaf, *, max_steps: int | None = None) -> Array: ...
@overload
def while_loop(cond_fun: Callable[[T], object], body_fun: Callable[[T], T], init_val: T, *, max_steps: int | None = None) -> T: ...
@overload
def while_loop(cond_fun: Callable[[T], object], body_fun: Callable[[T], T], init_val: HostTree, *, max_steps: int | None = None) -> T: ...
# fmt: on
def while_loop(
    cond_fun: Callable[[Any], object],
    body_fun: Callable[[Any], object],
    init_val: object,
    *,
    max_steps: int | None = None,
) -> Any:
    """Apply `body_fun` to a carry, starting with `init_val`, while `cond_fun` of the carry is true.

    The carry is any pytree of arrays; it keeps its structure, shapes and dtypes. A bare Python number in `init_val`
    takes the dtype of the arrays that `body_fun` combines it with. Both functions may close over arrays and tracers.
    They are traced; `body_fun` is traced again if a number changed its dtype.

    `max_steps` bounds the loop: it ends after that many steps even if the predicate holds, under every transformation.
    The predicate is computed after the last step too.

    Rule:   under vmap each example stops when its own predicate is false, and then keeps its carry bit for bit. Forward
            mode (jvp, jacfwd) always works. Reverse mode (grad, vjp) needs `max_steps`, unless the differentiated value
            depends on the loop only through integers.
    Cost:   reverse mode stores the residuals of a step that are not cheap to recompute: memory for `max_steps` times
            these, however many steps run, and once for loop invariants. Its time depends on the steps that run.
    Raises: TreeError, ShapeError, DTypeError naming the leaf of the carry that changes, and both types.
    """
    steps = _limit(max_steps)
    with sharing_copies():
        loop = traced_loop("while_loop", body_fun, init_val, tree.structure(()), ())
        cond = traced_body("while_loop: cond_fun", cond_fun, tree.structure((init_val,)), loop.carry_avals)
    _check_predicate(cond)
    prim = While(cond.jaxpr, loop.body.jaxpr, len(cond.captured), len(loop.body.captured), steps)
    outs = bind(prim, *cond.captured, *loop.body.captured, *loop.init)
    return loop.carry_tree.unflatten(outs)


def _limit(max_steps: int | None) -> int | None:
    if max_steps is None:
        return None
    try:
        steps = index(cast("SupportsIndex", None if isinstance(max_steps, bool) else max_steps))
    except TypeError:
        raise ParameterError(
            f"while_loop: max_steps is {shown(max_steps)}, not an int", remedy="the bound is static: a Python int"
        ) from None
    if not 0 <= steps < 1 << 31:
        raise ParameterError(f"while_loop: max_steps is {steps}", remedy="give a number of steps from 0 to 2**31 - 1")
    return steps


def _check_predicate(cond: TracedFunction) -> None:
    what = f"while_loop: cond_fun {cond.name} returns"
    if cond.out_tree.type is not None:
        raise TreeError(f"{what} {tree.shape_text(cond.out_tree)}, not one bool", remedy="return a single predicate")
    (aval,) = cond.jaxpr.out_avals
    if aval.dtype is not dtypes.bool_:
        raise DTypeError(f"{what} {aval}, not a bool", remedy="compare: x != 0")
    if aval is not BOOL_SCALAR:
        raise ShapeError(f"{what} {aval}, a bool for each element", remedy="reduce it with any() or all()")
