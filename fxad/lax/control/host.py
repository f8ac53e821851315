"""Python functions called at run time: for their values (`pure_callback`), or for their effects.

A call of a program with host calls is synchronous: it returns when the program has run, and raises the exceptions of
the functions.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar, final, overload

import numpy as np

from fxad.core.exact_key import exact_key
from fxad.core.host_functions import HOST
from fxad.core.trees import tree
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.ir import Aval, NDArray
from fxad.lax.placement import place_like_operands
from fxad.operations.arguments import flag
from fxad.primitives.host_call import IO, ORDERED, PURE, HostCall
from fxad.runtime import hold_host_function
from fxad.tracing.array import Array, asarray, aval_of, binder, is_scalar
from fxad.tracing.context import reuse_in_replay
from fxad.tracing.pass_through import passes_through
from fxad.tracing.program import function_name
from fxad.tracing.spec import Spec
from fxad.tracing.tracer import Tracer, active_trace

K = TypeVar("K")
R = TypeVar("R")

# For each `vmap_method`, True if the function takes whole stacks. A function for "expand_dims" takes arguments whose
# mapped axes have size 1 or the whole size: it takes those of the whole size.
_TAKES_STACKS: Final = MappingProxyType(
    {None: False, "sequential": False, "sequential_unrolled": False, "expand_dims": True, "broadcast_all": True}
)


# A `Spec` stands for an Array, also in the usual containers. Any other tree, such as one of examples, has the type of
# the results.
# fmt: off
@overload
def pure_callback(f: Callable[..., object], result_types: Spec, /, *args: object, vmap_method: str | None = "sequential", **kwargs: object) -> Array: ...
@overload
def pure_callback(f: Callable[..., object], result_types: tuple[Spec, Spec], /, *args: object, vmap_method: str | None = "sequential", **kwargs: object) -> tuple[Array, Array]: ...
@overload
def pure_callback(f: Callable[..., object], result_types: tuple[Spec, ...], /, *args: object, vmap_method: str | None = "sequential", **kwargs: object) -> tuple[Array, ...]: ...
@overload
def pure_callback(f: Callable[..., object], result_types: list[Spec], /, *args: object, vmap_method: str | None = "sequential", **kwargs: object) -> list[Array]: ...
@overload
def pure_callback(f: Callable[..., object], result_types: dict[K, Spec], /, *args: object, vmap_method: str | None = "sequential", **kwargs: object) -> dict[K, Array]: ...
@overload
def pure_callback(f: Callable[..., object], result_types: R, /, *args: object, vmap_method: str | None = "sequential", **kwargs: object) -> R: ...
# fmt: on
def pure_callback(
    f: Callable[..., object],
    result_types: object,
    /,
    *args: object,
    vmap_method: str | None = "sequential",
    **kwargs: object,
) -> object:
    """Return the results of a Python function of NumPy arrays, inside a program. For computations that only the host
    can do.

    `result_types` is a tree of `Spec`s (or anything with `shape` and `dtype`): the types of the results of `f`. Under
    vmap `f` is called for one example after the other ("sequential"), or once with stacks ("broadcast_all": all
    arguments and results have the mapped axes in front). JAX's "sequential_unrolled" and None are "sequential",
    "expand_dims" is "broadcast_all".

    Rule:   `f` must be pure: it may be called several times, or not at all. It has no derivative; define one with
            `custom_jvp`.
    Raises: ExecutionError for exceptions of `f`, and for results of other types; ParameterError for an unknown
            `vmap_method`.
    """
    whole = _TAKES_STACKS.get(vmap_method) if vmap_method is None or isinstance(vmap_method, str) else None
    if whole is None:
        raise ParameterError(
            f"pure_callback: vmap_method must be 'sequential' or 'broadcast_all', got {shown(vmap_method)}",
            remedy="sequential: an example at a time; broadcast_all: the whole stack at once",
        )
    return _bind_host_call("pure_callback", f, result_types, args, kwargs, PURE, whole)


# As for `pure_callback`.
# fmt: off
@overload
def io_callback(f: Callable[..., object], result_types: Spec, /, *args: object, ordered: bool = False, **kwargs: object) -> Array: ...
@overload
def io_callback(f: Callable[..., object], result_types: tuple[Spec, Spec], /, *args: object, ordered: bool = False, **kwargs: object) -> tuple[Array, Array]: ...
@overload
def io_callback(f: Callable[..., object], result_types: tuple[Spec, ...], /, *args: object, ordered: bool = False, **kwargs: object) -> tuple[Array, ...]: ...
@overload
def io_callback(f: Callable[..., object], result_types: list[Spec], /, *args: object, ordered: bool = False, **kwargs: object) -> list[Array]: ...
@overload
def io_callback(f: Callable[..., object], result_types: dict[K, Spec], /, *args: object, ordered: bool = False, **kwargs: object) -> dict[K, Array]: ...
@overload
def io_callback(f: Callable[..., object], result_types: R, /, *args: object, ordered: bool = False, **kwargs: object) -> R: ...
# fmt: on
def io_callback(
    f: Callable[..., object], result_types: object, /, *args: object, ordered: bool = False, **kwargs: object
) -> object:
    """Return the results of a Python function with side effects: it is called each time that this equation runs.

    `result_types` is as in `pure_callback`, or None for no results. Calls with `ordered` happen in program order, also
    through `scan`, `cond` and `while_loop`.

    Rule:   never dropped or merged. Under vmap it is called for each example in turn, and once for all if no argument
            is mapped; a `while_loop` with a mapped predicate runs one example after the other. Under grad it is called
            once, in the forward pass: `remat` stores its results and does not call it again.
    Raises: ExecutionError for exceptions of `f`.
    """
    return _bind_host_call("io_callback", f, result_types, args, kwargs, _effect("io_callback", ordered), False)


def debug_callback(f: Callable[..., object], /, *args: object, ordered: bool = False, **kwargs: object) -> None:
    """Call a Python function with run-time values; its result is dropped.

    Rule: that of `io_callback`. Derivatives ignore it. Texts and other arguments that are no arrays are passed as they
          are.
    """
    _check_callable("debug_callback", f)
    _call_for_effects("debug_callback", f, function_name(f), args, kwargs, ordered)


def debug_print(fmt: str, /, *args: object, ordered: bool = False, **kwargs: object) -> None:
    """Print values at run time: `debug_print("loss {} at {step}", loss, step=i)`. Texts and other values that are no
    arrays are printed as they are.

    Raises: ArgumentError, while tracing, if `fmt` or its fields do not fit the arguments.
    """
    numbered = numbered_format("debug_print", fmt, len(args), kwargs)
    try_format("debug_print", fmt, numbered, (*args, *kwargs.values()))

    def show(*args: object, **kwargs: object) -> None:
        # one write, which does nothing if there is no standard output
        print(format_values(numbered, (*args, *kwargs.values())) + "\n", end="", flush=True)  # noqa: T201

    _call_for_effects("debug_print", show, "show", args, kwargs, ordered)


def _call_for_effects(
    what: str, f: Callable[..., object], name: str, args: object, kwargs: object, ordered: bool
) -> None:
    """Call a function with run-time values, and with the arguments that are no arrays."""
    leaves, structure = tree.flatten((args, kwargs))
    passed_on = [_is_no_array(x) for x in leaves]

    def with_arrays(*arrays: object) -> None:
        rest = iter(arrays)
        own, named = tree.unflatten(
            structure, [x if fixed else next(rest) for x, fixed in zip(leaves, passed_on, strict=True)]
        )
        f(*own, **named)

    with_arrays.__name__ = name
    arrays = tuple([x for x, fixed in zip(leaves, passed_on, strict=True) if not fixed])
    _bind_host_call(what, with_arrays, None, arrays, {}, _effect(what, ordered), False)


def _is_no_array(x: object) -> bool:
    """Return True for a value that is passed on as it is. A number is an operand, also one that is traced."""
    return passes_through(x) and not is_scalar(x) and not isinstance(x, Array)


def _effect(op: str, ordered: bool) -> str:
    return ORDERED if flag(op, "ordered", ordered) else IO


@final
class _Formatter(string.Formatter):
    """`str.format`, except for numbers in 0-d arrays, which NumPy prints with the digits of a Python float, and for
    values that are not known while tracing, whose types are printed."""

    def format_field(self, value: object, format_spec: str) -> str:
        if isinstance(value, Tracer):
            return str(value.aval)
        if "[]" in format_spec:  # the type of a value in the spec is not known, as in "{:{width}}"
            return self.format_field(value, "")
        if not format_spec and isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
            return str(np.asarray(value)[()])
        text: str = super().format_field(value, format_spec)
        return text


def format_values(numbered: str, values: Sequence[object]) -> str:
    """Format host values by a format that `numbered_format` returned."""
    return _Formatter().vformat(numbered, values, {})


def try_format(what: str, fmt: str, numbered: str, values: Sequence[object]) -> None:
    """Raise ArgumentError where a format does not take values of these types, as the host is given them."""

    def blank(x: object) -> object:
        if _is_no_array(x):
            return x
        aval = aval_of(x, what)
        return np.broadcast_to(np.zeros((), aval.dtype), aval.shape)  # takes no memory for any shape

    try:
        format_values(numbered, tree.map(blank, values))
    except (AttributeError, LookupError, TypeError, ValueError) as e:
        raise ArgumentError(
            f"{what}: {shown(fmt)} does not format these values: {e}",
            remedy="a format such as {:.2f} is for one number; {} shows any array",
        ) from None


def numbered_format(what: str, fmt: object, n: int, named: Collection[str]) -> str:
    """Return a format for `n` values and the named ones after them, with a number in each field: unnamed fields count
    up. A field in the spec of another is one too.

    For two values and one that is named d, "{:.{d}f} of {}" becomes "{0:.{2}f} of {1}".

    Raises: ArgumentError for what is not a format, and where its fields are not those of the values.
    """
    if not isinstance(fmt, str):
        raise ArgumentError(
            f"{what}: the format is {described(fmt)}, not a str: {shown(fmt)}", remedy='debug_print("x is {}", x)'
        )
    places = {name: n + k for k, name in enumerate(named)}
    names: list[str] = []

    def with_numbers(fmt: str) -> str:
        out = []
        for text, field, spec, conversion in string.Formatter().parse(fmt):
            out.append(text.replace("{", "{{").replace("}", "}}"))
            if field is None:
                continue
            name = field.partition(".")[0].partition("[")[0]
            names.append(name)
            place = places.get(name, name) if name else names.count("") - 1
            out.append(f"{{{place}{field[len(name) :]}{'!' + conversion if conversion else ''}")
            out.append(f":{with_numbers(spec)}}}" if spec else "}")
        return "".join(out)

    try:
        numbered = with_numbers(fmt)
    except ValueError as e:
        raise ArgumentError(f"{what}: {shown(fmt)} is not a format: {e}", remedy="write {{ and }} for braces") from None
    wanted = max([names.count(""), *[int(k) + 1 for k in names if k.isdecimal()]])
    missing = sorted({k for k in names if k and not k.isdecimal()} ^ {*named})
    if wanted != n or missing:
        difference = f"{wanted} values, {n} were given" if wanted != n else f"other names: {', '.join(missing)}"
        raise ArgumentError(f"{what}: {shown(fmt)} takes {difference}", remedy="each value has a field, {} or {name}")
    return numbered


def _bind_host_call(
    what: str, f: Callable[..., object], types: R, args: object, kwargs: object, effect: str, whole: bool
) -> R:
    _check_callable(what, f)
    leaves, in_tree = tree.flatten((args, kwargs))
    specs, out_tree = tree.flatten(types)
    results = tuple([_result_aval(what, x, k, out_tree) for k, x in enumerate(specs)])

    def on_leaves(*leaves: NDArray) -> Sequence[object]:
        args, kwargs = tree.unflatten(in_tree, leaves)
        leaves_out, shape = tree.flatten(f(*args, **kwargs))
        if shape != out_tree:
            difference = tree.difference(out_tree, shape)
            raise ArgumentError(
                f"{what}: {function_name(f)} gave another tree than it was declared to give: {difference}",
                remedy="correct the result types, or what the function returns",
            )
        return leaves_out

    def new_number() -> Array:
        number = HOST.number()
        array = asarray(np.uint64(number))  # in a trace the program binds it, and keeps the function alive
        HOST.add(number, on_leaves, hold_host_function(array._buffer))
        return array

    # a rule that is traced again must call the same function object
    number = reuse_in_replay((what, getattr(f, "__code__", f), results, exact_key((in_tree, out_tree))), new_number)
    prim = HostCall(function_name(f), results, effect, whole=whole)
    outs: Sequence[Array]
    if active_trace() is None:
        outputs = [asarray(x) for x in prim.impl(np.asarray(number), *[np.asarray(asarray(x)) for x in leaves])]
        outs = place_like_operands(what, leaves, outputs)
    else:
        outs = binder().bind(prim, (number, *leaves))
    out: R = tree.unflatten(out_tree, outs)
    return out


def _check_callable(what: str, f: object) -> None:
    if not callable(f):
        raise ArgumentError(
            f"{what}: {described(f)} is not a function: {shown(f)}",
            remedy="pass a function of arrays, which runs on the host",
        )


def _result_aval(what: str, x: Any, k: int, out_tree: tree.Structure) -> Aval:
    try:
        return Aval(x.shape, x.dtype)
    except AttributeError:
        path = tree.paths(out_tree, "result_types")[k]
        raise ArgumentError(
            f"{what}: {path} is {described(x)}, which has no shape and dtype: {shown(x)}",
            remedy="give a Spec for each array that the function returns",
        ) from None
