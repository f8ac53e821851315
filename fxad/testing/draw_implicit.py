"""Draws applications of `linear_solve` and `root` whose solutions have a closed form."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Atom, Aval, Jaxpr, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.elementwise.family import FLOAT32_OR_64
from fxad.primitives.implicit import LinearSolve, Root
from fxad.testing.applications import DrawnOperands, DrawOperands, dtype_of
from fxad.testing.values import ORDINARY, Domain, shapes
from fxad.transforms import transpose

_COUNT: Final = Aval((), dtypes.int32)
_BOTH: Final = (True, True, False)


def _linear_solve(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    """Return (b, c; m) with A = [[p, 0], [m, q]], p = 3 + sin m and q = 3 + cos m: x = b / p, y = (c - m x) / q; then
    2, 7."""
    aval = Aval(draw(shapes(2)), dtype_of(draw, FLOAT32_OR_64, smooth))
    b = Builder()
    x, y, m, p, q = _with_diagonal(b, aval)
    matvec = b.build((b.one(ew.MUL, x, p), b.one(ew.ADD, b.one(ew.MUL, y, q), b.one(ew.MUL, x, m))), "matvec")
    b = Builder()
    of_x, of_y, m, p, q = _with_diagonal(b, aval)
    x = b.one(ew.DIV, of_x, p)
    y = b.one(ew.DIV, b.one(ew.SUB, of_y, b.one(ew.MUL, x, m)), q)
    solve = b.build((x, y), "solve")
    adjoint = (transpose(matvec, _BOTH), transpose(solve, _BOTH)) if smooth or draw(st.booleans()) else ()
    aux = (*solve.outs, Lit.of(2, aval), Lit.of(7, _COUNT)) if draw(st.booleans()) else solve.outs
    solve = solve.with_outs(aux)
    return LinearSolve(matvec, solve, adjoint), [(aval, ORDINARY)] * 3


def _with_diagonal(b: Builder, aval: Aval) -> tuple[Atom, ...]:
    x, y, m = b.inputs((aval, aval, aval))
    three = Lit.of(3, aval)
    return x, y, m, b.one(ew.ADD, b.one(ew.SIN, m), three), b.one(ew.ADD, b.one(ew.COS, m), three)


def _root(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    """Return (c; x, n) -> (asinh c, n), where sinh x = c."""
    aval = Aval(draw(shapes(2)), dtype_of(draw, FLOAT32_OR_64, smooth))
    b = Builder()
    c, x, _ = b.inputs((aval, aval, _COUNT))
    equation = b.build((b.one(ew.SUB, b.one(ew.SINH, x), c),), "equation")
    b = Builder()
    c, x, n = b.inputs((aval, aval, _COUNT))
    solve = b.build((b.one(ew.ASINH, c), n), "solve")
    b = Builder()
    _, x, _ = b.inputs((aval, aval, _COUNT))
    at = b.build((b.one(ew.COSH, x),), "at")
    system = [_over(prim, aval) for prim in (ew.MUL, ew.DIV)] * draw(st.sampled_from([2] if smooth else [1, 2]))
    return Root(equation, solve, at, tuple(system), 1), [(aval, ORDINARY)] * 2 + [(_COUNT, Domain(whole=(-1, 3)))]


def _over(prim: Primitive, aval: Aval) -> Jaxpr:
    b = Builder()
    y, slope, _ = b.inputs((aval, aval, aval))
    return b.build((b.one(prim, y, slope),), "map")


OWN: Final[Mapping[type[Primitive], DrawOperands]] = MappingProxyType({LinearSolve: _linear_solve, Root: _root})
