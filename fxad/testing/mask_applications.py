"""Applications of one primitive over masked sizes: sizes of operands and parameters of a drawn application are replaced
by named sizes, where its types allow it. Some operands are literals, whose value is the size.

@given(ragged_applications(Sort))
def test_mask_of_sort(case):
    check_mask(case)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType
from typing import Final, TypeAlias

from hypothesis import assume, strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import named_size
from fxad.core.typecheck import typecheck
from fxad.errors import FxadError, SizeError
from fxad.ir import Aval, HigherOrder, Jaxpr, Lit, Param, Primitive, params
from fxad.primitives.cumulative import CumMax, CumMin
from fxad.primitives.elementwise import ELEMENTWISE
from fxad.primitives.fold import FOLD
from fxad.primitives.gather_scatter import Gather, ScatterFamily
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.lu import LuPivotsToPermutation
from fxad.primitives.linalg.solve import Det, Slogdet, Solve
from fxad.primitives.linalg.svd import Svd
from fxad.testing.calls import SPECS
from fxad.testing.ragged_cases import RaggedCase
from fxad.testing.values import SEEDS, Domain
from fxad.transforms.specialize import specialize
from fxad.transforms.vmap import vmap

# A place in a parameter: its name and the indices into its tuples.
_MaskPlace: TypeAlias = tuple[str, tuple[int, ...]]
# The operands that are literals, by their position, and their value.
_Literals: TypeAlias = Mapping[int, int]

# signs and phases of vectors are conventions, which the number of rows may change
_VECTORS: Final = (Eigh, Svd, Eig)
# operands of these hold places, which must exist
_PLACES: Final = (LuPivotsToPermutation, Solve, Det, Slogdet, CumMax, CumMin)


@st.composite
def ragged_applications(
    draw: st.DrawFn,
    kind: type[Primitive],
    *,
    smooth: bool = False,
    examples: bool | None = None,
    literals: bool = True,
) -> RaggedCase:
    """Draw applications of a primitive of which at least one size is masked. `examples`: a stack of masked length of
    ordinary applications; False: sizes of the application itself; None: either. `literals`: operands may be literals
    whose value is a size."""
    prim, operands = SPECS[kind](draw, smooth)
    avals, domains = [a for a, _ in operands], tuple([d for _, d in operands])
    own = not issubclass(kind, HigherOrder) or issubclass(kind, FOLD)
    stacked = not own if examples is None else examples
    if examples is None and own:
        stacked = draw(st.integers(0, 3)) == 0
    values: dict[str, int] = {}
    if stacked:
        program, padding, values["n"] = *_stacked(draw, _program(prim, avals)), draw(st.sampled_from([3, 2, 0, 1]))
        values["n"] = max(values["n"], padding[0][2])
    else:
        program, padding, sized = _symbolic(draw, prim, avals, domains if literals else ())
        domains = tuple([d for i, d in enumerate(domains) if i not in sized])
        for name, most, least in padding:
            values[name] = draw(st.sampled_from([most - 1, most, least, *range(least, most)]))
    for at in (values, {n: most for n, most, _ in padding}, {n: least for n, _, least in padding}):
        try:
            specialize(program, tuple(sorted(at.items())))
        except FxadError:  # a window may not fit into every size
            assume(False)
    padded_sizes = tuple([(name, most) for name, most, _ in padding])
    return RaggedCase(program, padded_sizes, values, draw(SEEDS), smooth, domains)


def _program(prim: Primitive, avals: Sequence[Aval], literals: _Literals = MappingProxyType({})) -> Jaxpr:
    b = Builder()
    outs = b(prim, *[Lit.of(literals[i], a) if i in literals else b.input(a) for i, a in enumerate(avals)])
    return b.build(outs[:1] if isinstance(prim, _VECTORS) else outs, prim.name)


def _stacked(draw: st.DrawFn, program: Jaxpr) -> tuple[Jaxpr, list[tuple[str, int, int]]]:
    dims = tuple([draw(st.sampled_from([0, a.ndim, None])) for a in program.in_avals])
    dims = dims if any([d is not None for d in dims]) else (0,) * len(dims)
    assume(dims)
    try:
        return vmap(program, named_size("n"), dims, (0,) * len(program.outs))[0], [("n", 3, 0)]
    except SizeError:
        return vmap(program, named_size("n", 1), dims, (0,) * len(program.outs))[0], [("n", 3, 1)]


def _symbolic(
    draw: st.DrawFn, prim: Primitive, avals: Sequence[Aval], domains: Sequence[Domain]
) -> tuple[Jaxpr, list[tuple[str, int, int]], _Literals]:
    """Return the application with one or two of its sizes replaced. An operand whose domain contains the first of them
    may become a literal of this size."""
    sizes = sorted({n for a in (*avals, *_program(prim, avals).out_avals) for n in a.shape if n > 0})
    assume(sizes)
    padding: list[tuple[str, int, int]] = []
    program: Jaxpr | None = None
    sized: dict[int, int] = {}
    promised = _last_places(prim, avals)
    fixed = isinstance(prim, _PLACES) or bool(promised)
    for name in ("n", "m")[: draw(st.sampled_from([1, 1, 2]))]:
        if not sizes:
            break
        k = sizes.pop(draw(st.integers(0, len(sizes) - 1)))
        least = k if fixed else draw(st.sampled_from([0, 1, k]))
        may_be_sized = [] if program else [i for i, d in enumerate(domains) if _contains(avals[i], d, k)]
        chosen = draw(st.sampled_from([None, *may_be_sized]))
        literals = sized if chosen is None else {chosen: k}
        replaced = _replaced(draw, prim, avals, k, named_size(name, least), literals)
        if replaced is None and not fixed and least != k:
            least = k
            replaced = _replaced(draw, prim, avals, k, named_size(name, least), literals)
        if replaced is not None:
            prim, avals, program = replaced
            sized = {i: named_size(name, least) if v is k else v for i, v in literals.items()}
            padding.append((name, k + draw(st.integers(1, 2)), least))
    assume(program is not None)
    assert program is not None
    assume(all([at_least(now - n, 0) for now, n in zip(_last_places(prim, avals), promised, strict=True)]))
    if isinstance(prim, Gather | ScatterFamily) and (prim.unique_indices or prim.indices_sorted):
        assume(all([at_least(1 - n, 0) for n in avals[1].shape[:-1]]))  # promised of one window, and not of more
    return program, padding, sized


def _contains(aval: Aval, domain: Domain, number: int) -> bool:
    """Return True if an operand may be an array of this number, of a type that has sizes as values."""
    low, high = (domain.low, domain.high) if aval.inexact else domain.whole or (number, number)
    return aval.dtype in dtypes.NUMERIC and not domain.ridge and low <= number <= high


def _last_places(prim: Primitive, avals: Sequence[Aval]) -> list[int]:
    """Return the last place of a window along each axis that is indexed, where indices are promised to be in bounds."""
    if not isinstance(prim, Gather | ScatterFamily) or prim.mode != "promise_in_bounds":
        return []
    full = avals[0].shape
    windows = prim.slice_sizes if isinstance(prim, Gather) else prim.sizes(full, avals[2].shape)
    return [full[a] - windows[a] for a in prim.windows.index_map]


def _replaced(
    draw: st.DrawFn, prim: Primitive, avals: Sequence[Aval], k: int, size: int, literals: _Literals
) -> tuple[Primitive, list[Aval], Jaxpr] | None:
    """Return the application with `size` for some of the sizes k, so that it is the given one where `size` is k."""
    axes = [(i, a) for i, aval in enumerate(avals) for a, n in enumerate(aval.shape) if n is k or n == k]
    drawn = [p for p in axes if draw(st.booleans())]
    original = _program(prim, avals, literals)
    sized = {i: size if v is k else v for i, v in literals.items()}
    name = str(size)
    for chosen in (drawn, axes, *[[p] for p in axes], []):
        types = [_with_axes(aval, [a for i, a in chosen if i == j], size) for j, aval in enumerate(avals)]
        for made in _candidates(prim, k, size):
            try:
                program = _program(made, types, sized)
                typecheck(program)
                back = specialize(program, ((name, k),))
            except (FxadError, TypeError, ValueError, IndexError, AssertionError):
                continue
            if back is original and program is not original:
                return made, types, program
    return None


def _with_axes(aval: Aval, axes: Sequence[int], size: int) -> Aval:
    return aval.with_shape(tuple([size if a in axes else n for a, n in enumerate(aval.shape)]))


def _candidates(prim: Primitive, k: int, size: int) -> Iterator[Primitive]:
    """Return the primitive with some parameters in terms of the size: fewer replacements first."""
    yield prim
    if isinstance(prim, ELEMENTWISE):  # exponents and widths are no sizes
        return
    places = [p for name, value in params(prim) for p in _ints(name, value) if _in_terms(p[1], k, size) is not None]
    most = len(places) if len(places) <= 6 else 1
    for count in [*range(1, most + 1), *([len(places)] if most == 1 and len(places) > 1 else [])]:
        for chosen in combinations(places, count):
            made: dict[str, Param] = {}
            for (name, at), value in chosen:
                old = made.get(name, getattr(prim, name))
                made[name] = _put(old, at, _in_terms(value, k, size))
            yield replace(prim, **made)


def _ints(name: str, value: Param, at: tuple[int, ...] = ()) -> Iterator[tuple[_MaskPlace, int]]:
    if type(value) is int:
        yield (name, at), value
    elif type(value) is tuple:
        for i, v in enumerate(value):
            yield from _ints(name, v, (*at, i))


def _in_terms(value: int, k: int, size: int) -> int | None:
    """Return k as the size, numbers near it and multiples of it as sums and multiples of the size."""
    if value == k:
        return size
    if value == k - 1 and value > 0:
        return size - 1
    return size * (value // k) if value > k > 1 and value % k == 0 else None


def _put(value: Param, at: tuple[int, ...], new: int | None) -> Param:
    if not at:
        return new
    assert isinstance(value, tuple)
    return tuple([_put(v, at[1:], new) if i == at[0] else v for i, v in enumerate(value)])


__all__ = ["ragged_applications"]
