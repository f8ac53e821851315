"""Primitives that other packages, or classes of JAX, define: their implementation is translated, with JAX's derivative
as the rule."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

import jax

from fxad.api.custom_function import CustomFunction, custom_jvp
from fxad.interop.jax.equations import (
    Equation,
    JaxEqn,
    JaxValue,
    OpenJaxpr,
    Rows,
    array,
    arrays,
    has_value,
    jaxpr_key,
    plain_aval,
    with_params,
)
from fxad.numpy.numbers import frexp, ldexp


def foreign(eqn: Equation, *args: JaxValue) -> object:
    """Return the results of a primitive that is in no table.

    Raises: TranslationError if its implementation cannot be traced.
    """
    params = eqn.params.get(_DEFINITION) or jaxpr_key(eqn.params)
    key = ("foreign", eqn.primitive, params, tuple(map(str, eqn.ins)))
    function = eqn.translation.functions.get(key)
    if function is None:
        function = eqn.translation.functions[key] = _function_of_primitive(eqn)
    return function(*arrays(args))


def _function_of_primitive(eqn: Equation) -> CustomFunction[..., tuple[JaxValue, ...]]:
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in eqn.ins]
    try:
        closed = jax.make_jaxpr(lambda *xs: _implementation(eqn)(*xs, **eqn.params))(*specs)
    except Exception as e:
        raise eqn.refuse("fxad does not know this primitive, and its implementation cannot be traced") from e
    if _mentions(closed.jaxpr, eqn):
        raise eqn.refuse("fxad does not know this primitive")

    def value(*xs: JaxValue) -> tuple[JaxValue, ...]:
        return arrays(eqn.run(closed, xs))

    value.__name__ = eqn.name if eqn.name.isidentifier() else "foreign"
    function = custom_jvp(value)

    def rule(primals: Sequence[JaxValue], tangents: Sequence[JaxValue]) -> tuple[object, object]:
        perturbed = [t is not None for t in tangents]

        def forward(xs: list[object], perturbed_tangents: list[object]) -> object:
            def applied(*live: object) -> object:
                moved, fixed = iter(live), iter(xs)
                outs = eqn.primitive.bind(
                    *[next(moved) if m else x for x, m in zip(fixed, perturbed, strict=True)], **eqn.params
                )
                return list(outs) if isinstance(outs, tuple | list) else [outs]

            return jax.jvp(applied, [x for x, m in zip(xs, perturbed, strict=True) if m], perturbed_tangents)

        perturbed_tangents = [t for t in tangents if t is not None]
        traced = jax.make_jaxpr(forward)(specs, [s for s, m in zip(specs, perturbed, strict=True) if m])
        outs = eqn.run(traced, (*primals, *perturbed_tangents))
        results = arrays(outs[: len(eqn.outs)])
        rates = zip(results, outs[len(eqn.outs) :], strict=True)
        return results, tuple([array(t) if plain_aval(y).inexact else None for y, t in rates])

    rule.__name__ = f"{value.__name__}_jvp"
    function.defjvp(rule)
    return function


def _implementation(eqn: Equation) -> Any:
    """Return the function of JAX that computes the results in terms of other primitives."""
    return eqn.primitive.to_lojax if _DEFINITION in eqn.params else eqn.primitive.impl


def _mentions(jaxpr: OpenJaxpr, eqn: Equation) -> bool:
    """Return True if a jaxpr of JAX applies the primitive of an equation, at any depth."""
    inner = [
        p.jaxpr if hasattr(p, "jaxpr") else p
        for e in jaxpr.eqns
        for value in e.params.values()
        for p in (value if isinstance(value, tuple | list) else (value,))
        if hasattr(p, "jaxpr") or hasattr(p, "eqns")
    ]
    return any([_same_primitive(e, eqn) for e in jaxpr.eqns]) or any([_mentions(j, eqn) for j in inner])


def _same_primitive(a: JaxEqn, b: Equation) -> bool:
    return a.primitive is b.primitive and a.params.get(_DEFINITION) == b.params.get(_DEFINITION)


# ------------------------------------------------------------------------------------------- primitives with a class

# The parameter of `call_hi_primitive` that is a primitive itself: an object of a class
_DEFINITION: Final = "_prim"
# Classes of JAX that take bits apart, where nobody sees that the derivative is linear
_CLASSES: Final[Rows] = MappingProxyType({
    "Ldexp": with_params(ldexp),
    "Frexp": with_params(frexp),
})  # fmt: skip


def _of_class(eqn: Equation, *args: JaxValue) -> object:
    if not all(map(has_value, (*eqn.ins, *eqn.outs))):
        raise eqn.refuse("it has values of a type of the user")
    definition = type(eqn.params[_DEFINITION])
    own = definition.__module__.partition(".")[0] == "jax"
    return (_CLASSES.get(definition.__name__, foreign) if own else foreign)(eqn, *args)


FOREIGN: Final[Rows] = MappingProxyType({"call_hi_primitive": _of_class})
