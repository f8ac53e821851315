"""From a jaxpr of JAX to a program of fxad: the table of all rows, and the walk over equations."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, final

import jax
import numpy as np
from jax.extend import core

from fxad.api.custom_function import CustomFunction
from fxad.api.vmap import vmap
from fxad.core.trees import classes as tree_classes
from fxad.errors import PACKAGE, ArgumentError, FxadError, TranslationError, described, shown
from fxad.interop.jax.control import CONTROL
from fxad.interop.jax.custom_rules import CUSTOM_RULES
from fxad.interop.jax.elementwise import ELEMENTWISE
from fxad.interop.jax.equations import (
    ClosedJaxpr,
    EqnTranslation,
    Equation,
    JaxEqn,
    JaxValue,
    JaxVar,
    Manual,
    OpenJaxpr,
    Rows,
    array,
    has_value,
    is_key,
    plain_aval,
)
from fxad.interop.jax.foreign import FOREIGN, foreign
from fxad.interop.jax.keys import KEYS
from fxad.interop.jax.linalg import LINALG
from fxad.interop.jax.parallel import PARALLEL
from fxad.interop.jax.refusals import REFUSED
from fxad.interop.jax.structural import STRUCTURAL
from fxad.ir import Aval, Jaxpr, Source, new_eqn, source_location
from fxad.tracing.array import Array, asarray, binder
from fxad.tracing.program import Program, function_name
from fxad.tracing.spec import Spec
from fxad.tracing.trace import parameter_names, trace_for_call
from fxad.tracing.trace_function import trace_flat
from fxad.tracing.tracer import active_trace

# The translation of each primitive, by its name in JAX.
ROWS: Final[Rows] = MappingProxyType({
    **ELEMENTWISE, **STRUCTURAL, **LINALG, **CONTROL, **CUSTOM_RULES, **KEYS, **PARALLEL, **FOREIGN,
})  # fmt: skip

# Rows that handle the trailing axis of the words of keys. Others are mapped over it.
_KEY_ROWS: Final = frozenset({*CONTROL, *CUSTOM_RULES, *KEYS, "shard_map"})
# Frames of these are not the user's.
_INTERNAL: Final = (PACKAGE, *[os.path.dirname(str(m.__file__)) + os.sep for m in (jax, np, contextlib)])
# Parameters that select an accuracy or a sharding. fxad has neither.
_REFUSED_PARAMETERS: Final = ("accuracy", "out_sharding")


@final
class Translation:
    """The translation of one program. Each constant, jaxpr and function with custom rules is translated once."""

    def __init__(self) -> None:
        self.functions: dict[object, CustomFunction[..., object] | None] = {}
        self.manual: Manual | None = None
        # by identity; the reference to the object keeps the id unique
        self._programs: dict[int, tuple[object, Jaxpr, tuple[object, ...]]] = {}
        self._constants: dict[int, tuple[object, Array]] = {}
        self._failed: FxadError | None = None

    @contextlib.contextmanager
    def within(self, manual: Manual | None) -> Iterator[None]:
        """Return a block that translates equations of the body of a `shard_map`, and of rules of its equations."""
        outer, self.manual = self.manual, manual
        try:
            yield
        finally:
            self.manual = outer

    def constant(self, value: object) -> JaxValue:
        """Return an array of JAX as a value: each becomes one operand."""
        entry = self._constants.get(id(value))
        if entry is None:
            entry = self._constants[id(value)] = value, concrete(value)
        return entry[1]

    def call(self, closed: ClosedJaxpr, args: Sequence[JaxValue], name: str) -> list[JaxValue]:
        """Bind a closed jaxpr of JAX as one call. Each jaxpr is translated once."""
        places = [k for k, v in enumerate(closed.jaxpr.invars) if has_value(v.aval)]
        results = [k for k, v in enumerate(closed.jaxpr.outvars) if has_value(v.aval)]
        entry = self._programs.get(id(closed))
        if entry is None:

            def flat(xs: Sequence[Array]) -> Sequence[object]:
                operands: list[JaxValue] = [None] * len(closed.jaxpr.invars)
                for k, x in zip(places, xs, strict=True):
                    operands[k] = x
                outs = self.run(closed.jaxpr, [self.constant(c) for c in closed.consts], operands)
                return [outs[k] for k in results]

            avals = [plain_aval(closed.jaxpr.invars[k].aval) for k in places]
            entry = self._programs[id(closed)] = closed, *trace_flat(flat, avals, name)
        _, jaxpr, bound = entry
        outs: list[JaxValue] = [None] * len(closed.jaxpr.outvars)
        for k, y in zip(results, binder().call(jaxpr, [*bound, *[args[k] for k in places]]), strict=True):
            outs[k] = y
        return outs

    def run(self, jaxpr: OpenJaxpr, consts: Sequence[JaxValue], args: Sequence[JaxValue]) -> list[JaxValue]:
        """Add the equations of a jaxpr of JAX to the active trace. Return the values of its results."""
        # The constants are first. From 0.11 on, the jaxprs of custom rules have theirs among `invars`.
        variables, known = [*jaxpr.constvars, *jaxpr.invars], [*consts, *args]
        values: dict[JaxVar, JaxValue] = dict(zip(variables, known, strict=True))

        def read(atom: Any) -> JaxValue:
            return self._literal(atom) if isinstance(atom, core.Literal) else values[atom]

        for eqn in jaxpr.eqns:
            values.update(zip(eqn.outvars, self._equation(eqn, [read(a) for a in eqn.invars]), strict=True))
        return [read(a) for a in jaxpr.outvars]

    def _literal(self, atom: Any) -> JaxValue:
        if not has_value(atom.aval):
            return None
        if is_key(atom.aval) or atom.aval.shape:
            return self.constant(atom.val)
        return np.asarray(atom.val, atom.aval.dtype)[()]

    def _equation(self, eqn: JaxEqn, args: list[JaxValue]) -> Sequence[JaxValue]:
        where = _source_of_equation(eqn)
        outs = [v.aval for v in eqn.outvars]
        if outs and not any(map(has_value, outs)):
            return [None] * len(outs)
        ins = tuple([a.aval for a in eqn.invars])
        equation = Equation(eqn.primitive.name, eqn.params, ins, tuple(outs), eqn.primitive, self)
        trace = active_trace()
        start = len(trace.builder.eqns) if trace is not None else 0
        try:
            results = _translated(equation, args)
        except FxadError as e:
            if self._failed is not e and where is not None:  # the innermost equation says where
                self._failed, e.where = e, str(source_location(where))
            raise
        if trace is not None and where is not None:
            eqns = trace.builder.eqns
            eqns[start:] = [new_eqn(e.prim, e.ins, e.outs, where) for e in eqns[start:]]
        return results


def _is_requested(parameter: object) -> bool:
    """Return False for a sharding that divides nothing, as JAX writes it in `shard_map`."""
    return not hasattr(parameter, "spec") or any([entry is not None for entry in parameter.spec])


def _translated(eqn: Equation, args: list[JaxValue]) -> list[JaxValue]:
    """Return the results of an equation."""
    if eqn.name in REFUSED:
        raise eqn.refuse(REFUSED[eqn.name])
    row = ROWS.get(eqn.name, foreign)
    for name in _REFUSED_PARAMETERS:
        if eqn.params.get(name) is not None and _is_requested(eqn.params[name]):
            raise eqn.refuse(f"{name} is {eqn.params[name]}", f"leave {name} out")
    keys = [is_key(a) for a in eqn.ins]
    if eqn.name not in _KEY_ROWS and any(keys):
        results = vmap(partial(_listed, row, eqn), in_axes=[-1 if k else None for k in keys], out_axes=-1)(*args)
    else:
        results = _listed(row, eqn, *args)
    for k, (y, aval) in enumerate(zip(results, eqn.outs, strict=True)):
        if has_value(aval) and plain_aval(y) is not plain_aval(aval):
            raise eqn.refuse(f"result {k} is {plain_aval(y)} in fxad and {plain_aval(aval)} in JAX", "report this")
    return results


def _listed(row: EqnTranslation, eqn: Equation, *args: JaxValue) -> list[JaxValue]:
    with eqn.reading():
        results = row(eqn, *args)
    return list(results) if isinstance(results, tuple | list) else [results]


def _source_of_equation(eqn: JaxEqn) -> Source:
    """Return the user's line of an equation of JAX: the innermost that is neither JAX's nor fxad's."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return None
    for code, offset in zip(*traceback.raw_frames(), strict=True):
        if not code.co_filename.startswith(_INTERNAL):
            return code, offset
    return None


def concrete(value: object) -> Array:
    """Return an array of JAX with a value, as an array of fxad: no copy on one device. Keys become their words."""
    if isinstance(value, jax.core.Tracer):
        raise TranslationError(
            f"from_jax: the function closes over {value}, which a transformation of JAX is tracing",
            remedy="pass it as an argument, or call from_jax outside jit, grad and vmap of JAX",
        )
    if is_key(value):
        value = jax.random.key_data(value)
    if isinstance(value, jax.Ref):
        raise TranslationError(
            f"from_jax: the function closes over {value}, which changes in place",
            remedy="a program of fxad is pure: pass the array, and return the new one",
        )
    return asarray(value)


# ------------------------------------------------------------------------------------------------------- programs


def from_jax(f: Callable[..., object], /, *examples: object, **kwargs: object) -> Program[..., Any]:
    """Translate a function of JAX into a program of fxad, from example values or `Spec`s.

    The program can be transformed, stored and run without JAX. A key of JAX is its words, u32[2]. A function with rules
    of its own keeps them, `checkpoint` becomes `remat`, and a call stays a call. Lines are those of `f`.

    Law:    value, gradient, batch and Hessian-vector product are those of `f`.
    Raises: TranslationError for a primitive that fxad does not have, or that this version of JAX writes otherwise,
            naming it and the user's line; what `f` raises.
    """
    if not callable(f):
        raise ArgumentError(f"from_jax: {described(f)} is not a function: {shown(f)}", remedy="from_jax(f, *examples)")
    positional, named = jax.tree.map(_example, (examples, kwargs), is_leaf=lambda x: isinstance(x, Array))
    closed, shapes = jax.make_jaxpr(f, return_shape=True)(*positional, **named)
    in_tree, out_tree = jax.tree.structure((positional, named)), jax.tree.structure(shapes)
    register_nodes(in_tree)
    register_nodes(out_tree)
    translation = Translation()

    def translated(*args: object, **kwargs: object) -> Any:
        consts = [translation.constant(c) for c in closed.consts]
        outs = translation.run(closed.jaxpr, consts, jax.tree.leaves((args, kwargs)))
        return jax.tree.unflatten(out_tree, list(map(array, outs)))

    translated.__name__ = function_name(f)
    specs = [Spec(a.shape, a.dtype) for a in map(plain_aval, closed.in_avals)]
    args, keywords = jax.tree.unflatten(in_tree, specs)
    program = trace_for_call(translated, args, keywords)
    return Program(
        program.jaxpr, program.in_tree, program.out_tree, program.bound, parameter_names(f), function_name(f)
    )


def _example(x: object) -> object:
    """Return an example as JAX takes it."""
    if not isinstance(x, Spec | Array):
        return x
    aval: Aval = x.aval
    if aval.symbolic:
        raise ArgumentError(
            f"from_jax: {aval} has sizes that are not numbers", remedy="translate for the sizes that are needed"
        )
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def register_nodes(structure: Any) -> None:
    """Make containers of fxad of the classes that JAX knows as containers, such as modules and states."""
    data = structure.node_data()
    if data is not None and not tree_classes.is_container(data[0]):
        tree_classes.register(data[0], _flattened, _unflattened)
    for child in structure.children():
        register_nodes(child)


def _flattened(x: object) -> tuple[Sequence[object], object, Sequence[int]]:
    children, structure = jax.tree.flatten(x, is_leaf=lambda y: y is not x)
    return children, structure, range(len(children))


def _unflattened(structure: object, children: Iterable[object]) -> object:
    return jax.tree.unflatten(structure, list(children))
