"""Smaller shapes, plainer dtypes, smaller parameters: the types of all values are inferred again.

A size that occurs in a program is replaced everywhere at once, in the types of operands and literals, in parameters and
in bodies, as if the program had been traced over a named size and were specialized. The type rules of the primitives
decide whether the program is well typed at the new size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.sizes.equations import solve_sizes
from fxad.diagnosis.reduce.candidate import Candidate
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Jaxpr, Lit, NDArray, Primitive, Var, distinct_jaxprs, map_parameter, params
from fxad.tracing.program import size_constraints
from fxad.transforms.specialize import size_names, specialize

T = TypeVar("T")
OfInt = Callable[[int], int]
OfType = Callable[[DType], DType]
_NOTHING: Final[Mapping[Var, Atom]] = MappingProxyType({})


def retype(jaxpr: Jaxpr, of_size: OfInt, of_parameter: OfInt, of_dtype: OfType) -> Jaxpr:
    """Return the program with other sizes, integer parameters and dtypes; types are inferred again.

    Raises: any error of a type rule, if the program is not well typed then.
    """
    made: dict[Jaxpr, Jaxpr] = {}

    def of_aval(aval: Aval) -> Aval:
        return Aval([of_size(n) for n in aval.shape], of_dtype(aval.dtype))

    def of_lit(a: Lit) -> Lit:
        aval = of_aval(a.aval)
        if aval.dtype == a.aval.dtype:
            return a.with_shape(aval.shape)
        return Lit.of(_converted(a.value, aval.dtype) if a.size is None else a.size, aval)

    def of_value(value: object) -> object:
        if type(value) is int:
            return of_parameter(value)
        if isinstance(value, Jaxpr):
            return made[value]
        if isinstance(value, Lit):
            return of_lit(value)
        if isinstance(value, Aval):
            return of_aval(value)
        return of_dtype(dtypes.as_dtype(value)) if isinstance(value, np.dtype) else value

    for body in distinct_jaxprs(jaxpr):
        b = Builder()
        env: dict[Atom, Atom] = dict(zip(body.ins, b.inputs([of_aval(a) for a in body.in_avals]), strict=True))
        for eqn in body.eqns:
            prim: Primitive = type(eqn.prim)(*[map_parameter(v, of_value) for _, v in params(eqn.prim)])
            b.source = eqn.source
            outs = b(prim, *[of_lit(a) if isinstance(a, Lit) else env[a] for a in eqn.ins])
            env.update(zip(eqn.outs, outs, strict=True))
        made[body] = b.build([of_lit(a) if isinstance(a, Lit) else env[a] for a in body.outs], body.name)
    return made[jaxpr]


def _converted(x: np.generic, dtype: DType) -> object:
    return np.real(x) if np.iscomplexobj(x) and dtype not in dtypes.COMPLEX else x


def _retyped(c: Candidate, of_size: OfInt, of_parameter: OfInt, of_dtype: OfType) -> Candidate | None:
    try:
        jaxpr = retype(c.jaxpr, of_size, of_parameter, of_dtype)
    except Exception:  # noqa: BLE001  it is not well typed, and a rule may raise anything then
        return None
    if jaxpr is c.jaxpr:
        return None
    values = [None if x is None else _fitted(x, a) for x, a in zip(c.values, jaxpr.in_avals, strict=True)]
    return c.replace(jaxpr, values)


def _fitted(x: NDArray, aval: Aval) -> NDArray:
    """Return the leading part of an array, in the dtype of a type. An index into an axis that got shorter may be too
    large: the rules of primitives clamp it."""
    if x.ndim > aval.ndim:
        x = x[(0,) * (x.ndim - aval.ndim)]
    part = x[tuple([slice(n) for n in aval.shape])]
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(np.real(part) if aval.dtype not in dtypes.COMPLEX else part).astype(aval.dtype)


def _same(n: int) -> int:
    return n


def _same_type(dtype: DType) -> DType:
    return dtype


def _replacing(value: T, by: T) -> Callable[[T], T]:
    """Return the identity, but for one value."""
    return lambda x: by if x == value else x


def sizes_in(jaxpr: Jaxpr) -> list[int]:
    """Return the sizes of axes in a program, the largest first."""
    avals = [v.aval for body in distinct_jaxprs(jaxpr) for v in (*body.ins, *[v for e in body.eqns for v in e.outs])]
    return sorted({n for a in avals for n in a.shape if type(n) is int and n > 1}, reverse=True)


def smaller_shapes(c: Candidate) -> Iterator[Candidate | None]:
    """Yield the candidate with smaller sizes: first all sizes at once, then each of them."""
    if c.jaxpr.symbolic or size_names(c.jaxpr):
        yield from _smaller_symbolic(c)
        return
    yield _scalars(c)
    sizes = sizes_in(c.jaxpr)
    for small in (1, 2):
        if sizes and sizes[0] > small:
            at_most = {n: small for n in sizes if n > small}
            yield _resized(c, at_most)
            distinct = {n: small + k for k, n in enumerate(reversed(sizes)) if n > small + k}
            yield _resized(c, distinct)
    for n in sizes:
        for small in dict.fromkeys([1, 2, 3, n // 8, n // 2, n - 1]):
            if 0 < small < n:
                yield _resized(c, {n: small})
                yield _retyped(c, _scaled(n, small), _scaled(n, small), _same_type)
                yield _retyped(c, _replacing(n, small), _same, _same_type)


def _resized(c: Candidate, sizes: Mapping[int, int]) -> Candidate | None:
    return _retyped(c, lambda n: sizes.get(n, n), lambda n: sizes.get(n, n), _same_type)


def _scaled(n: int, small: int) -> OfInt:
    """Return a function that also replaces multiples of a size, such as that of an axis into which a reshape has merged
    it."""
    return lambda m: m // n * small if type(m) is int and m and m % n == 0 else m


def _scalars(c: Candidate) -> Candidate | None:
    """Return the candidate with scalars in place of all arrays."""
    atoms = (*c.jaxpr.ins, *[a for eqn in c.jaxpr.eqns for a in (*eqn.ins, *eqn.outs)])
    if not any([a.aval.ndim for a in atoms]):
        return None
    try:
        b = Builder()
        env: dict[Atom, Atom] = {v: b.input(v.aval.with_shape(())) for v in c.jaxpr.ins}
        made = _inferred(b, c.jaxpr, env, lambda a: a.with_shape(()))
    except Exception:  # noqa: BLE001  it is not well typed
        return None
    return c.replace(made, [None if x is None else x.ravel()[:1].reshape(()) for x in c.values])


def _inferred(
    b: Builder,
    jaxpr: Jaxpr,
    env: dict[Atom, Atom],
    of_lit: Callable[[Lit], Lit],
    instead: Mapping[Var, Atom] = _NOTHING,
) -> Jaxpr:
    """Return the program over operands of other types; `instead` has values that take the place of others."""
    for eqn in jaxpr.eqns:
        if any([v in instead for v in eqn.outs]):
            env.update({v: env.get(instead[v], instead[v]) for v in eqn.outs if v in instead})
            continue
        b.source = eqn.source
        outs = b(eqn.prim, *[of_lit(a) if isinstance(a, Lit) else env[a] for a in eqn.ins])
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([of_lit(a) if isinstance(a, Lit) else env[a] for a in jaxpr.outs], jaxpr.name)


def bypassed_equations(c: Candidate) -> Iterator[Candidate | None]:
    """Yield the candidate without an equation of one result, whose operand takes the place of the result although it
    has another type, such as that of a reshape."""
    for eqn in reversed(c.jaxpr.eqns):
        for a in dict.fromkeys(eqn.ins):
            if len(eqn.outs) == 1 and a.aval is not eqn.outs[0].aval:
                try:
                    b = Builder.like(c.jaxpr)
                    env: dict[Atom, Atom] = {v: v for v in c.jaxpr.ins}
                    yield c.replace(_inferred(b, c.jaxpr, env, lambda a: a, {eqn.outs[0]: a}))
                except Exception:  # noqa: BLE001  it is not well typed
                    continue


def at_sizes_of_values(c: Candidate) -> Iterator[Candidate | None]:
    """Yield the candidate with the sizes of its operands in place of named sizes."""
    try:
        avals = [Aval(x.shape, x.dtype) for x in c.values if x is not None]
        constraints = size_constraints(avals, c.jaxpr.in_avals, [f"{k}" for k in range(len(avals))])
        yield c.replace(specialize(c.jaxpr, tuple(sorted(solve_sizes("reduce_program", constraints).items()))))
    except Exception:  # noqa: BLE001  the sizes are not determined
        return


def _smaller_symbolic(c: Candidate) -> Iterator[Candidate | None]:
    """Yield the candidate with a number in place of a named size."""
    for name in size_names(c.jaxpr):
        for small in (name.at_least, name.at_least + 1, 1, 2, 3, 4, 8):
            if small < max(name.at_least, 0):
                continue
            try:
                jaxpr = specialize(c.jaxpr, ((name.name, small),))
                values = [
                    x if x is None or a.symbolic else _fitted(x, a)
                    for x, a in zip(c.values, jaxpr.in_avals, strict=True)
                ]
                yield c.replace(jaxpr, values)
            except Exception:  # noqa: BLE001
                continue


# ------------------------------------------------------------------------------------------- dtypes and parameters

_PLAINER: Final[Mapping[DType, tuple[DType, ...]]] = MappingProxyType(
    {
        dtypes.float64: (dtypes.float32,),
        dtypes.float16: (dtypes.float32,),
        dtypes.bfloat16: (dtypes.float32,),
        dtypes.complex128: (dtypes.float32, dtypes.complex64),
        dtypes.complex64: (dtypes.float32,),
        dtypes.int64: (dtypes.int32,),
        dtypes.int16: (dtypes.int32,),
        dtypes.int8: (dtypes.int32,),
        dtypes.uint64: (dtypes.int32, dtypes.uint32),
        dtypes.uint32: (dtypes.int32,),
        dtypes.uint16: (dtypes.int32,),
        dtypes.uint8: (dtypes.int32,),
    }
)


def plainer_dtypes(c: Candidate) -> Iterator[Candidate | None]:
    """Yield the candidate with a plainer dtype in place of another: float32, int32."""
    avals = [v.aval for body in distinct_jaxprs(c.jaxpr) for v in (*body.ins, *[v for e in body.eqns for v in e.outs])]
    for dtype in dict.fromkeys([a.dtype for a in avals]):
        for plainer in _PLAINER.get(dtype, ()):
            yield _retyped(c, _same, _same, _replacing(dtype, plainer))


def smaller_parameters(c: Candidate) -> Iterator[Candidate | None]:
    """Yield the candidate with smaller integers among its parameters, such as the number of steps of a loop."""
    found: dict[int, None] = {}

    def note(value: object) -> object:
        if type(value) is int and value > 1:
            found[value] = None
        return value

    for body in distinct_jaxprs(c.jaxpr):
        for prim in body.prims:
            for _, value in params(prim):
                map_parameter(value, note)
    for n in sorted(found, reverse=True):
        for small in dict.fromkeys([1, 2, 3, n // 2]):
            if small < n:
                yield _retyped(c, _same, _replacing(n, small), _same_type)
