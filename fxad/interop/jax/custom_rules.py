"""Functions of JAX with rules of their own become functions of fxad with these rules.

A rule is translated when fxad traces it. A rule that calls its own function finds the function that was made for it:
the table of a translation has one for each rule, types and program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar, final

import jax
import numpy as np

from fxad import lax
from fxad.api.custom_function import CustomFunction, custom_jvp, custom_vjp
from fxad.api.symbolic_zeros import SymbolicZero
from fxad.core.dataclasses import dataclass
from fxad.interop.jax.equations import Equation, JaxType, JaxValue, Rows, array, arrays, is_key, jaxpr_key, plain_aval
from fxad.tracing.context import named_axes_around

P = ParamSpec("P")
T = TypeVar("T")


def _users_function(rule: Any) -> object:
    """Return the user's function behind a rule, which JAX wraps in functions of its own."""
    inner = getattr(rule, "f", rule)
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)) if _is_wrapper(inner) else {}
    for name in _WRAPPED:
        if name in cells:
            return _users_function(cells[name].cell_contents)
    return inner


# The variables in which JAX's wrappers of rules hold what they wrap
_WRAPPED: Final = ("fn", "jvp", "jvp_jaxpr_fun", "fwd", "fwd_jaxpr_thunk")


def _is_wrapper(fn: object) -> bool:
    return getattr(fn, "__module__", "").endswith((".partial_eval", ".custom_derivatives")) and hasattr(fn, "__code__")


def _in_maps(eqn: Equation, rule: Callable[[], T]) -> T:
    """Return the result of a rule of JAX, called in a map over the mesh of the `shard_map` around its equation, and
    over the other named axes around this trace: there JAX finds the axes of collectives, and their types."""
    mesh, checked = eqn.translation.manual or (None, False)
    of_mesh = () if mesh is None else mesh.axis_names
    axes = [(name, size) for name, size in named_axes_around() if name not in of_mesh]
    results: list[T] = []

    def call() -> tuple[()]:
        results.append(rule())
        return ()

    inside: Callable[[], tuple[()]] = call
    if mesh is not None:
        inside = jax.shard_map(call, mesh=mesh, in_specs=(), out_specs=(), check_vma=checked)
    if mesh is not None or axes:
        jax.make_jaxpr(inside, axis_env=axes)()
    else:
        call()
    return results[0]


def _function_of_rule(
    eqn: Equation, rule: object, make: Callable[[], CustomFunction[..., tuple[JaxValue, ...]]]
) -> CustomFunction[..., tuple[JaxValue, ...]]:
    """Return the function of a rule. Equal equations share one."""
    types, called = tuple([str(a) for a in eqn.ins]), eqn.params["call_jaxpr"]
    key = (
        eqn.name,
        _users_function(rule),
        types,
        eqn.params["num_consts"],
        jaxpr_key(called),
        eqn.translation.manual,
    )
    function = eqn.translation.functions.get(key)
    if function is None:
        function = eqn.translation.functions[key] = make()
    return function


def _in_context_of(eqn: Equation) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator of a rule, which is translated later: in the body of the `shard_map` that its equation is
    in."""
    manual = eqn.translation.manual

    def decorate(rule: Callable[P, T]) -> Callable[P, T]:
        @wraps(rule)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            with eqn.translation.within(manual), eqn.reading():
                return rule(*args, **kwargs)

        return called

    return decorate


def _call_function(eqn: Equation) -> Callable[..., tuple[JaxValue, ...]]:
    closed = eqn.params["call_jaxpr"]

    def function(*args: JaxValue) -> tuple[JaxValue, ...]:
        return arrays(eqn.run(closed, args))

    name = closed.jaxpr.debug_info.func_src_info.split(" ")[0]
    function.__name__ = name if name.isidentifier() else "custom"
    return function


def _custom_jvp(eqn: Equation, *args: JaxValue) -> object:
    """Return a function with a rule for tangents. JAX holds the rule as `jvp_jaxpr_fun`.

    Called with a mask of the tangents that are zero, it traces the rule to a jaxpr. The jaxpr takes the primals and the
    other tangents, and returns the results and their nonzero tangents. A mask of the zero ones comes with it.
    """
    p, n = eqn.params, eqn.params["num_consts"]

    def make() -> CustomFunction[..., tuple[JaxValue, ...]]:
        function = custom_jvp(_call_function(eqn))

        @_in_context_of(eqn)
        def rule(primals: Sequence[JaxValue], tangents: Sequence[JaxValue]) -> tuple[object, object]:
            live = tangents[n:]
            symbolic = p["symbolic_zeros"]
            is_zero = [isinstance(t, SymbolicZero) or (symbolic and t is None) for t in live]
            jaxpr, consts, zeros = _in_maps(eqn, lambda: p["jvp_jaxpr_fun"].call_wrapped(*is_zero))
            nonzero = [t for t, zero in zip(live, is_zero, strict=True) if not zero]
            outs = eqn.run_open(jaxpr, consts, (*primals[n:], *nonzero))
            moved = iter(outs[len(zeros) :])
            results = arrays(outs[: len(zeros)])
            return results, tuple(
                [_tangent(y, None if z else next(moved)) for y, z in zip(results, zeros, strict=True)]
            )

        rule.__name__ = f"{function.fun.__name__}_jvp"
        function.defjvp(rule, symbolic_zeros=p["symbolic_zeros"])
        return function

    return _function_of_rule(eqn, p["jvp_jaxpr_fun"], make)(*arrays(args))


def _tangent(y: JaxValue, tangent: JaxValue) -> JaxValue:
    """Return a tangent of a result; None for integers."""
    if not plain_aval(y).inexact:
        return None
    return lax.full(y.shape, 0, y.dtype) if tangent is None else array(tangent)


def _custom_vjp(eqn: Equation, *args: JaxValue) -> object:
    """Return a function with a rule for cotangents. JAX holds the rule as two functions.

    - `fwd_jaxpr_thunk`, called with a mask of the operands that have cotangents, traces `fwd` to a jaxpr. This returns
      the residuals, then the results. A residual that is an operand is left out: `out_trees` has its number among all
      operands of the equation. The `num_consts` constants come first, and the jaxpr takes the operands after them.
    - `bwd` takes the residuals and the cotangents of the results, and returns the cotangents of the operands. It is any
      Python function of JAX, so `make_jaxpr` traces it for the types of each call. A zero is an array of float0 there.
    """
    p, n = eqn.params, eqn.params["num_consts"]
    avals = eqn.ins[n:]
    residual_avals: list[JaxType] = []  # JAX's types of the residuals of `fwd`, which is traced before `bwd`

    def make() -> CustomFunction[..., tuple[JaxValue, ...]]:
        function = custom_vjp(_call_function(eqn))

        @_in_context_of(eqn)
        def fwd(*primals: JaxValue) -> tuple[tuple[JaxValue, ...], tuple[object, ...]]:
            perturbed = [plain_aval(a).inexact for a in avals]
            if p["symbolic_zeros"]:
                perturbed = [m and x.perturbed for m, x in zip(perturbed, primals[n:], strict=True)]
                primals = tuple([x.value for x in primals])
            jaxpr, consts = _in_maps(eqn, lambda: p["fwd_jaxpr_thunk"].call_wrapped(*perturbed))
            outs = eqn.run_open(jaxpr, consts, primals[n:])
            _, res_tree, forwards = p["out_trees"]()
            rest = iter(outs)
            residuals = [primals[k] if k is not None else next(rest) for k in forwards]
            assert len(residuals) == res_tree.num_leaves
            types = iter([v.aval for v in jaxpr.outvars])
            residual_avals[:] = [eqn.ins[k] if k is not None else next(types) for k in forwards]
            # `bwd` may branch on a residual that is True or False in every call
            return arrays(rest), tuple([_flag(r) for r in residuals])

        @_in_context_of(eqn)
        def bwd(residuals: Sequence[JaxValue], cotangents: Sequence[JaxValue]) -> tuple[JaxValue, ...]:
            fixed = [r.value if isinstance(r, _Flag) else None for r in residuals] + [None] * len(cotangents)
            like = (*residual_avals, *eqn.outs)  # the shapes of cotangents that are zero
            specs = [_spec(x, a) for x, a in zip((*residuals, *cotangents), like, strict=True)]
            zeros: list[bool] = []

            def flat(*xs: object) -> list[object]:
                dynamic = iter(xs)
                values = [
                    f if f is not None else next(dynamic) if s is not None else np.zeros(o.shape, jax.dtypes.float0)
                    for f, s, o in zip(fixed, specs, like, strict=True)
                ]
                outs = _cotangents(p["bwd"].call_wrapped(*values))
                zeros[:] = [type(ct).__name__ in ("Zero", "SymbolicZero") for ct in outs]
                return [ct for ct, zero in zip(outs, zeros, strict=True) if not zero]

            types = [s for s in specs if s is not None]
            closed = _in_maps(eqn, lambda: jax.make_jaxpr(flat)(*types))
            values = [x for x, s in zip((*residuals, *cotangents), specs, strict=True) if s is not None]
            nonzero = iter(eqn.run(closed, values))
            return (*[None] * n, *[None if zero else next(nonzero) for zero in zeros])

        fwd.__name__, bwd.__name__ = f"{function.fun.__name__}_fwd", f"{function.fun.__name__}_bwd"
        function.defvjp(fwd, bwd, symbolic_zeros=p["symbolic_zeros"])
        return function

    return _function_of_rule(eqn, p["bwd"], make)(*arrays(args))


def _cotangents(result: Any) -> list[Any]:
    """Return the cotangents that `bwd` returns: a list. From 0.11 on, JAX returns a pair of it and the values that
    `bwd` logs, which only callers of `with_logs` read."""
    cotangents: list[Any] = result if isinstance(result, list) else result[0]
    return cotangents


@final
@dataclass(frozen=True, slots=True)
class _Flag:
    """A residual that is the same in every call."""

    value: bool


def _flag(x: JaxValue) -> JaxValue:
    return _Flag(bool(x)) if isinstance(x, np.bool_) else x


def _spec(x: JaxValue, like: JaxType) -> JaxType | None:
    """JAX's type of a value: `like`, with the axes over which it varies, but for keys, whose values are their words.
    None for a flag, and for a symbolic zero."""
    if x is None or isinstance(x, _Flag):
        return None
    spec: JaxType = jax.ShapeDtypeStruct(x.shape, x.dtype) if is_key(like) else like
    return spec


def _custom_vmap(eqn: Equation, *args: JaxValue) -> object:
    """Return the function, batched by its program: a rule that gives the same values needs no other."""
    return eqn.run(eqn.params["call"], args)


CUSTOM_RULES: Final[Rows] = MappingProxyType({
    "custom_jvp_call": _custom_jvp,
    "custom_vjp_call": _custom_vjp,
    "custom_vmap_call": _custom_vmap,
})  # fmt: skip
