"""Calls, loops, branches, segments, solves and functions of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, Final

import jax
import numpy as np
import numpy.typing as npt

from fxad import lax, runtime
from fxad.api.rewrite import remat
from fxad.interop.jax.equations import Equation, JaxType, JaxValue, Rows, array, arrays, plain_aval, unchanged
from fxad.ir import NDArray
from fxad.lax.control import host
from fxad.tracing.array import binder
from fxad.tracing.spec import Spec
from fxad.transforms.memory import policies


def _split_operands(args: Sequence[JaxValue], *sizes: int) -> list[Sequence[JaxValue]]:
    """Return the operands in groups of these sizes, and the rest."""
    places = [0, *accumulate(sizes), len(args)]
    return [args[a:b] for a, b in pairwise(places)]


def _called(eqn: Equation) -> Any:
    """Return the jaxpr that a call applies. Its parameter has two names."""
    return eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]


def _is_inlined(inline: Any) -> bool:
    """Return True if JAX inlines a call itself. From 0.11 on, `inline` names who does it: JAX or XLA."""
    return inline is True or getattr(inline, "name", "").startswith("JAX_")


def _call(eqn: Equation, *args: JaxValue) -> list[JaxValue]:
    p, called = eqn.params, _called(eqn)
    if not hasattr(called, "jaxpr") or _is_inlined(p.get("inline")):
        return eqn.run(called, args)
    return eqn.translation.call(called, args, str(p.get("name", eqn.name)))


def _fxad_program(eqn: Equation, *args: JaxValue) -> object:
    """Return a program that `to_jax` gave to JAX: itself."""
    return binder().call(eqn.params["jaxpr"], args)


def _inlined(eqn: Equation, *args: JaxValue) -> list[JaxValue]:
    return eqn.run(_called(eqn), args)


def _scan_sizes(eqn: Equation) -> tuple[int, int]:
    """Return the numbers of constants and of carried values. From 0.11 on, JAX states them as a tree of the
    operands."""
    p = eqn.params
    if "ft_in" not in p:
        return p["num_consts"], p["num_carry"]
    consts, carry, _ = p["ft_in"].unpack()
    return len(consts), len(carry)


def _scan(eqn: Equation, *args: JaxValue) -> tuple[JaxValue, ...]:
    p, body = eqn.params, eqn.function(eqn.params["jaxpr"])
    m, n = _scan_sizes(eqn)
    consts, init, xs = _split_operands(args, m, n)

    def step(carry: tuple[JaxValue, ...], x: tuple[JaxValue, ...]) -> tuple[tuple[JaxValue, ...], tuple[JaxValue, ...]]:
        outs = body(*consts, *carry, *x)
        return outs[:n], outs[n:]

    carry, ys = lax.scan(step, arrays(init), arrays(xs), p["length"], p["reverse"], p["unroll"] or 1)
    return (*carry, *ys)


def _while(eqn: Equation, *args: JaxValue) -> tuple[JaxValue, ...]:
    p = eqn.params
    test, body = eqn.function(p["cond_jaxpr"]), eqn.function(p["body_jaxpr"])
    of_test, of_body, init = _split_operands(args, p["cond_nconsts"], p["body_nconsts"])
    stack = tuple(p["cond_jaxpr"].out_avals[0].shape)

    def more(carry: tuple[JaxValue, ...]) -> JaxValue:
        (running,) = test(*of_test, *carry)
        return lax.reduce_or(running, range(len(stack)))

    def step(carry: tuple[JaxValue, ...]) -> tuple[JaxValue, ...]:
        after = body(*of_body, *carry)
        if not stack:
            return after
        (running,) = test(*of_test, *carry)  # the examples of a stack end one by one
        return tuple([_select_running(running, new, old) for new, old in zip(after, carry, strict=True)])

    return lax.while_loop(more, step, arrays(init))


def _select_running(running: JaxValue, new: JaxValue, old: JaxValue) -> JaxValue:
    return lax.select(lax.broadcast_in_dim(running, new.shape, range(running.ndim)), new, old)


def _cond(eqn: Equation, index: JaxValue, *args: JaxValue) -> object:
    branches = eqn.params["branches"]
    if isinstance(index, np.generic):  # of `platform_dependent`
        return eqn.run(branches[min(max(int(index), 0), len(branches) - 1)], args)
    return lax.switch(index, [eqn.function(branch) for branch in branches], *args)


def _platform_index(eqn: Equation) -> np.generic:
    """Return the index of the platform on which fxad runs by default."""
    platform = runtime.default_device().platform
    of_branches = enumerate(eqn.params["platforms"])  # None: any platform
    branches = [k for k, platforms in of_branches if platforms is None or platform in platforms]
    if not branches:
        raise eqn.refuse(f"it has no branch for {platform}", "give platform_dependent a default")
    return np.int32(branches[0])


# -------------------------------------------------------------------------------------------------------- segments

# JAX's policies without parameters
_POLICIES: Final = (
    (jax.checkpoint_policies.nothing_saveable, policies.nothing),
    (jax.checkpoint_policies.everything_saveable, policies.everything),
    (jax.checkpoint_policies.dots_saveable, policies.dots),
    (jax.checkpoint_policies.dots_with_no_batch_dims_saveable, policies.dots_without_batch_dims),
)


def _policy(eqn: Equation, policy: Any) -> policies.Policy:
    if policy is None:
        return policies.nothing
    for theirs, ours in _POLICIES:
        if policy is theirs or policy == theirs:
            return ours
    match _maker_and_contents(policy):
        case "SaveOnlyTheseNames" | "save_only_these_names", [saved]:
            return policies.names(*sorted(saved))
        case "SaveAnyNamesButThese" | "save_any_names_but_these", [left_out]:
            return policies.names_except(*sorted(left_out))
        case "save_from_both_policies", [first, second]:
            return _policy(eqn, first) | _policy(eqn, second)
        case _:
            raise eqn.refuse(
                f"its policy is {getattr(policy, '__qualname__', type(policy).__name__)}",
                "use one of jax.checkpoint_policies that stores values by name or by kind",
            )


def _maker_and_contents(policy: Any) -> tuple[str, list[Any]]:
    """Return the function or class of JAX that made a policy, and what the policy holds."""
    if hasattr(policy, "__closure__"):
        return policy.__qualname__.partition(".")[0], [c.cell_contents for c in policy.__closure__ or ()]
    return type(policy).__name__, list(getattr(policy, "__dict__", {}).values())


def _remat(eqn: Equation, *args: JaxValue) -> object:
    p = eqn.params
    if p["differentiated"]:  # the backward pass, as JAX has split it already
        return eqn.run(p["jaxpr"], args)

    def segment(*xs: JaxValue) -> tuple[JaxValue, ...]:
        return arrays(eqn.run(p["jaxpr"], xs))

    return remat(segment, policy=_policy(eqn, p["policy"]))(*arrays(args))


# ---------------------------------------------------------------------------------------------------- linear maps


def _over(
    function: Callable[..., tuple[JaxValue, ...]], consts: Sequence[JaxValue]
) -> Callable[..., tuple[JaxValue, ...]]:
    """Return a function of a tuple, from one that takes constants and the items of the tuple."""
    return lambda xs: function(*consts, *xs)


def _linear_solve(eqn: Equation, *args: JaxValue) -> object:
    sizes, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    *consts, b = _split_operands(args, *sizes)
    maps: list[Any] = [None if j is None else _over(eqn.function(j), c) for j, c in zip(jaxprs, consts, strict=True)]
    matvec, _, solve, transpose_solve = maps
    n = len(b)
    has_aux = len(eqn.outs) > n

    def parted(results: tuple[JaxValue, ...]) -> tuple[tuple[JaxValue, ...], tuple[JaxValue, ...]]:
        return results[:n], results[n:]

    def applied(fn: Callable[..., tuple[JaxValue, ...]]) -> Callable[..., object]:
        if not has_aux:
            return lambda _, rhs: fn(rhs)
        return lambda _, rhs: parted(fn(rhs))

    linear_solve: Callable[..., Any] = lax.custom_linear_solve
    result = linear_solve(
        matvec,
        arrays(b),
        applied(solve),
        applied(transpose_solve) if transpose_solve else None,
        symmetric=False,
        has_aux=has_aux,
    )
    return (*result[0], *result[1]) if has_aux else result


def _linear_call(eqn: Equation, *args: JaxValue) -> object:
    p = eqn.params
    consts, residuals, linear = _split_operands(args, p["num_callee_consts"], p["num_res"])
    callee = eqn.function(p["callee"])

    def adjoint(res: tuple[JaxValue, ...], cts: tuple[JaxValue, ...]) -> tuple[JaxValue, ...]:
        with eqn.reading():
            transposed, consts_of_transpose = p["transpose_thunk"]()
            values = [eqn.translation.constant(c) for c in consts_of_transpose]
            return eqn.function(transposed)(*values, *res[len(consts) :], *cts)

    return lax.linear_call(lambda res, xs: callee(*res, *xs), adjoint, arrays((*consts, *residuals)), arrays(linear))


# ----------------------------------------------------------------------------------------------------------- host


def _specs_of(avals: Sequence[JaxType]) -> tuple[Spec, ...]:
    return tuple([Spec(a.shape, a.dtype) for a in map(plain_aval, avals)])


def _on_host(callback: Callable[..., Iterable[npt.ArrayLike]]) -> Callable[..., tuple[NDArray, ...]]:
    def called(*xs: object) -> tuple[NDArray, ...]:
        return tuple([np.asarray(r) for r in callback(*xs)])

    called.__name__ = getattr(getattr(callback, "callback_func", callback), "__name__", "callback")
    return called


def _pure_callback(eqn: Equation, *args: JaxValue) -> object:
    p = eqn.params
    method = "broadcast_all" if p["vmap_method"] in ("broadcast_all", "expand_dims") else "sequential"
    return host.pure_callback(_on_host(p["callback"]), _specs_of(p["result_avals"]), *args, vmap_method=method)


def _io_callback(eqn: Equation, *args: JaxValue) -> object:
    p = eqn.params
    return host.io_callback(_on_host(p["callback"]), _specs_of(p["result_avals"]), *args, ordered=p["ordered"])


def _debug_callback(eqn: Equation, *args: JaxValue) -> tuple[JaxValue, ...]:
    p = eqn.params
    host.debug_callback(p["callback"], *args, ordered="Ordered" in type(p["effect"]).__name__)
    return ()


def _debug_print(eqn: Equation, *args: JaxValue) -> tuple[JaxValue, ...]:
    p = eqn.params
    fixed, rest = dict(p["static_args"]), iter(args)
    n = p["in_tree"].num_leaves
    leaves = [fixed[k] if k in fixed else next(rest) for k in range(n)]
    positional, named = jax.tree.unflatten(p["in_tree"], leaves)
    if p["has_placeholders"]:
        host.debug_print(p["fmt"], *positional, ordered=p["ordered"], **named)
    else:
        host.debug_print(" ".join([p["fmt"], *["{}"] * len(positional)]), *positional, ordered=p["ordered"], **named)
    return ()


CONTROL: Final[Rows] = MappingProxyType({
    "jit": _call,
    "pjit": _call,
    "closed_call": _call,
    "core_call": _call,
    "call": _call,
    "fxad_call": _fxad_program,
    "fxad_linear_call": _fxad_program,
    "eval_jaxpr": _inlined,
    "composite": _inlined,
    "program_order": _inlined,  # it says in which order XLA schedules the equations
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "platform_index": _platform_index,
    "remat2": _remat,
    "checkpoint": _remat,
    "name": lambda eqn, x: lax.checkpoint_name(array(x), eqn.params["name"]),
    "custom_linear_solve": _linear_solve,
    "linear_call": _linear_call,
    "pure_callback": _pure_callback,
    "io_callback": _io_callback,
    "debug_callback": _debug_callback,
    "debug_print": _debug_print,
    # one device: these say where values are
    "device_put": unchanged,
    "sharding_constraint": unchanged,
    "layout_constraint": unchanged,
    "relayout": unchanged,
    "reshard": unchanged,
})  # fmt: skip
