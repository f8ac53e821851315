"""Programs of fxad as functions of JAX.

A program is one equation of JAX, of one of two primitives: `fxad_call`, and `fxad_linear_call` for a program that is
linear in its first operands. Each rule of them is a transformation of fxad. So JAX differentiates and maps by fxad's
rules, to any order, and compiles the module that fxad lowers. Decision: docs/adr/0065.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from fxad.api.lift import bind_static_arguments
from fxad.core.trees import tree
from fxad.errors import ArgumentError, DTypeError, ShapeError, TranslationError, described, shown
from fxad.interop.jax.arrays import as_jax
from fxad.interop.jax.equations import is_key
from fxad.ir import Aval, Jaxpr
from fxad.lower import lower_jaxpr
from fxad.runtime import custom_call_targets, register_targets
from fxad.tracing.array import Array
from fxad.tracing.program import Program, function_name, tree_error
from fxad.tracing.spec import Spec
from fxad.tracing.static_args import static_arguments
from fxad.tracing.trace import trace_for_call
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.vmap import vmap

CALL: Final = core.Primitive("fxad_call")
LINEAR_CALL: Final = core.Primitive("fxad_linear_call")

# ------------------------------------------------------------------------------------------- the rules of both


def _types(*_: object, jaxpr: Jaxpr, **__: object) -> list[object]:
    return [jax.core.ShapedArray(a.shape, a.dtype) for a in jaxpr.out_avals]


def _lowered(ctx: Any, *args: object, jaxpr: Jaxpr, **_: object) -> Any:
    """Return a call of the program's StableHLO, which becomes a function of JAX's module."""
    platform, *others = ctx.module_context.platforms
    module = lower_jaxpr(jaxpr, platform)
    if any([lower_jaxpr(jaxpr, other).body != module.body for other in others]):
        raise TranslationError(
            f"to_jax of {jaxpr.name}: its StableHLO differs on {', '.join([platform, *others])}",
            remedy="export it for one platform at a time",
        )
    register_targets(custom_call_targets(module.body), platform)
    source = mlir.ir.Module.parse(module.source(), ctx.module_context.context)
    results = list(mlir.ir.SymbolTable(source.operation)["main"].type.results)
    name = mlir.merge_mlir_modules(ctx.module_context.module, f"fxad_{jaxpr.name}", source)
    callee = {"callee": mlir.ir.FlatSymbolRefAttr.get(name)}
    return mlir.ir.Operation.create("func.call", results=results, operands=args, attributes=callee).results


def _bound(prim: Any) -> object:
    """Return the implementation of a primitive outside a trace: JAX compiles and runs it."""
    return jax.jit(prim.bind, static_argnames=("jaxpr", "n_linear"))


def _mapped(prim: Any) -> Callable[..., object]:
    def batch(args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: Jaxpr, **params: object) -> object:
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        body, out_dims = vmap(jaxpr, size, tuple(dims))
        return prim.bind(*args, jaxpr=body, **params), out_dims

    return batch


for _prim in (CALL, LINEAR_CALL):
    _prim.multiple_results = True
    _prim.def_abstract_eval(_types)
    _prim.def_impl(_bound(_prim))
    mlir.register_lowering(_prim, _lowered)
    batching.primitive_batchers[_prim] = _mapped(_prim)


# ------------------------------------------------------------------------------------------------- derivatives


def _tangents(
    jaxpr: Jaxpr, primals: Sequence[object], tangents: Sequence[object], perturbed: Sequence[bool]
) -> tuple[list[object], list[object]]:
    """Return results and tangents with respect to the operands that are marked."""
    split = linearize(jaxpr, tuple(perturbed))
    n = len(jaxpr.outs)
    outs = CALL.bind(*primals, jaxpr=split.primal)
    perturbed_tangents = [t for t, m in zip(tangents, perturbed, strict=True) if m]
    linear_outs = iter(())
    if any(split.out_nonzero):
        linear_outs = iter(
            LINEAR_CALL.bind(*perturbed_tangents, *outs[n:], jaxpr=split.linear, n_linear=len(perturbed_tangents))
        )
    results = outs[:n]
    pairs = zip(results, split.out_nonzero, strict=True)
    return results, [next(linear_outs) if nonzero else _zero(y) for y, nonzero in pairs]


def _zero(y: object) -> object:
    return ad.Zero(jax.typeof(y).to_tangent_aval())


def _jvp(primals: Sequence[object], tangents: Sequence[object], *, jaxpr: Jaxpr) -> tuple[list[object], list[object]]:
    return _tangents(jaxpr, primals, tangents, [type(t) is not ad.Zero for t in tangents])


def _linear_jvp(
    primals: Sequence[object], tangents: Sequence[object], *, jaxpr: Jaxpr, n_linear: int
) -> tuple[list[object], list[object]]:
    """Return the tangents: in the linear operands, the map itself, so that it can be transposed; in the others, its
    derivative."""
    perturbed = [type(t) is not ad.Zero for t in tangents]
    results = LINEAR_CALL.bind(*primals, jaxpr=jaxpr, n_linear=n_linear)
    out_tangents = [_zero(y) for y in results]
    if any(perturbed[:n_linear]):
        dense = [ad.instantiate_zeros(t) for t in tangents[:n_linear]]
        out_tangents = LINEAR_CALL.bind(*dense, *primals[n_linear:], jaxpr=jaxpr, n_linear=n_linear)
    if any(perturbed[n_linear:]):
        others = [False] * n_linear + perturbed[n_linear:]
        out_tangents = list(map(ad.add_tangents, out_tangents, _tangents(jaxpr, primals, tangents, others)[1]))
    return results, out_tangents


def _transpose_rule(cotangents: Sequence[object], *args: object, jaxpr: Jaxpr, n_linear: int) -> list[object]:
    linear = [ad.is_undefined_primal(a) for a in args]
    if any(linear[n_linear:]):
        raise TranslationError(
            "to_jax: a linear program is transposed in an operand in which it is not linear",
            remedy="differentiate the function itself, in reverse mode",
        )
    adjoint = transpose(jaxpr, tuple([k < n_linear for k in range(len(args))]))
    dense = map(ad.instantiate_zeros, cotangents)
    bars = LINEAR_CALL.bind(*dense, *args[n_linear:], jaxpr=adjoint, n_linear=len(cotangents))
    return [bar if a else None for bar, a in zip(bars, linear[:n_linear], strict=True)] + [None] * len(args[n_linear:])


ad.primitive_jvps[CALL] = _jvp
ad.primitive_jvps[LINEAR_CALL] = _linear_jvp
ad.primitive_transposes[LINEAR_CALL] = _transpose_rule

# --------------------------------------------------------------------------------------------------- functions


def to_jax(f: Callable[..., object], /) -> Callable[..., Any]:
    """Return a program, or a function of fxad, as a function of JAX: it takes and returns arrays of JAX.

    JAX can call it, and jit, differentiate and map it. Derivatives and batches are fxad's own: JAX calls the programs
    that fxad's `linearize`, `transpose` and `vmap` return. A function is traced for the types of each call, and for the
    values of arguments that it declares static.

    Law:    value, gradient, batch and Hessian-vector product are those of `f`; `to_jax(from_jax(g))` is `g`.
    Raises: TranslationError for a program that calls the host, or runs on several devices; where it is called:
            TreeError, ShapeError, DTypeError for arguments of other types.
    """
    if isinstance(f, Program):
        return _callable_of(f)
    if not callable(f):
        raise ArgumentError(
            f"to_jax: {described(f)} is neither a Program nor a function: {shown(f)}", remedy="to_jax(trace(f, ...))"
        )

    statics = static_arguments(f"to_jax of {function_name(f)}", f)

    @wraps(f, updated=())
    def traced(*args: object, **kwargs: object) -> object:
        g, args, kwargs = bind_static_arguments("to_jax", f, statics, args, kwargs)
        examples, named = jax.tree.map(_spec, (args, kwargs), is_leaf=lambda x: isinstance(x, Array))
        return _callable_of(trace_for_call(g, examples, named))(*args, **kwargs)

    return traced


def _spec(x: Any) -> object:
    """Return an argument of JAX as an example for fxad: an array of JAX as its type, any other value as it is."""
    if is_key(x):
        x = jax.random.key_data(x)
    return Spec(x.shape, x.dtype) if isinstance(x, jax.Array) else x


def _callable_of(program: Program[..., object]) -> Callable[..., object]:
    jaxpr = program.jaxpr
    _check_translatable(program.name, jaxpr)
    bound = [as_jax(x) for x in program.bound]

    def called(*args: object, **kwargs: object) -> object:
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != program.in_tree:
            raise tree_error(program, in_tree, len(args), kwargs)
        operands = [_operand(program, k, x) for k, x in enumerate(leaves)]
        return program.out_tree.unflatten(CALL.bind(*bound, *operands, jaxpr=jaxpr))

    called.__name__ = function_name(program) if program.name == "main" else program.name
    return called


def _check_translatable(name: str, jaxpr: Jaxpr) -> None:
    """Raise TranslationError, ArgumentError, DTypeError."""
    if jaxpr.symbolic:
        raise ArgumentError(f"to_jax of {name}: it has sizes that are not numbers", remedy="specialize the program")
    if jaxpr.free_axes:
        names = ", ".join(sorted([n for n, _ in jaxpr.free_axes]))
        raise TranslationError(
            f"to_jax of {name}: the axes {names} are bound by nothing", remedy="map the program over them in fxad"
        )
    module = lower_jaxpr(jaxpr)
    if module.host:
        raise TranslationError(
            f"to_jax of {name}: {module.host[0][0].name} calls the host, which a module of JAX cannot",
            remedy="leave callbacks and checks out of what JAX calls",
        )
    if module.sharding is not None:
        raise TranslationError(
            f"to_jax of {name}: it runs on {module.sharding.devices} devices", remedy="use jax.shard_map around it"
        )
    for aval in (*jaxpr.in_avals, *jaxpr.out_avals):
        if jax.dtypes.canonicalize_dtype(aval.dtype) != aval.dtype:
            raise DTypeError(
                f"to_jax of {name}: {aval} has 64 bits, and JAX is set to 32",
                remedy='jax.config.update("jax_enable_x64", True), or trace with 32 bits',
            )


def _operand(program: Program[..., object], k: int, x: Any) -> object:
    """Return an argument of JAX, of the type that the program takes."""
    aval = program.in_avals[k]
    if isinstance(x, Array):  # a tracer of fxad is refused there
        x = as_jax(x)
    elif is_key(x):
        x = jax.random.key_data(x)
    elif isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
        x = jnp.asarray(x, aval.dtype) if _holds(aval, x) else jnp.asarray(x)
    elif isinstance(x, np.ndarray | np.generic):
        x = jnp.asarray(x)
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        raise ArgumentError(
            f"to_jax({program.name}): argument {program.paths[k]} is {described(x)}, not an array: {shown(x)}",
            remedy="pass an array of JAX or fxad, or a number",
        )
    if tuple(x.shape) != aval.shape:
        raise ShapeError(
            f"to_jax({program.name}): argument {program.paths[k]} has shape {tuple(x.shape)}, it was traced with "
            f"{aval.shape}",
            remedy="trace again for the other shape",
        )
    if x.dtype != aval.dtype:
        raise DTypeError(
            f"to_jax({program.name}): argument {program.paths[k]} has dtype {x.dtype}, it was traced with "
            f"{aval.dtype.name}",
            remedy=f"convert it with astype('{aval.dtype.name}'), or trace again; nothing is converted silently",
        )
    return x


def _holds(aval: Aval, x: complex) -> bool:
    """Return True if a Python number is of the kind of a dtype, or of a narrower one."""
    kinds = "b" if isinstance(x, bool) else "iufcV" if isinstance(x, int) else "fcV" if isinstance(x, float) else "c"
    return aval.dtype.kind in kinds
