"""Named sizes from the shapes of arguments: linear equations, one unknown at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.polynomials import Monomial, SizeName, names_of, size_of_terms, terms_of
from fxad.core.sizes.size import Size, substitute_sizes
from fxad.errors import ShapeError

Constraint: TypeAlias = tuple[int, int, str]  # a dimension, its actual value, and its path, for messages


def solve_sizes(what: str, constraints: Iterable[Constraint]) -> dict[str, int]:
    """Return the values of the named sizes for which each dimension has its actual value. A value may be a size of
    another program.

    Raises: ShapeError that names two constraints for a name with two values, a dimension that differs, or a name that
            no dimension determines.
    """
    values: dict[str, int] = {}
    origin: dict[str, str] = {}
    unsolved = [constraint for constraint in constraints if type(constraint[0]) is Size]
    while unsolved:
        postponed: list[Constraint] = []
        for size, actual, path in unsolved:
            name = _first_unsolved(size, values)
            if name is None:
                expected = substitute_sizes(size, values)
                if expected == actual:
                    continue
                reasons = ", ".join([f"{n.name} = {values[n.name]} by {origin[n.name]}" for n in names_of(size)])
                raise ShapeError(f"{what}: {path} is {actual}, but {size} is {expected}: {reasons}", remedy=_AGREEING)
            linear = _as_linear(size, name, values)
            if linear is None:
                postponed.append((size, actual, path))
                continue
            coefficient, rest = linear
            value = (actual - rest) // coefficient
            if value * coefficient != actual - rest or (type(value) is int and not at_least(value, name.at_least)):
                raise ShapeError(
                    f"{what}: {path} is {actual}, which is not {size} for any {name.name} >= {name.at_least}",
                    remedy=_AGREEING,
                )
            values[name.name], origin[name.name] = value, path
        if len(postponed) == len(unsolved):
            size, actual, path = postponed[0]
            raise ShapeError(
                f"{what}: {path} is {actual}, which does not determine the sizes in {size}",
                remedy="give each named size alone in some shape, as in 'n'",
            )
        unsolved = postponed
    return values


_AGREEING: Final = "a name stands for one number: give arrays, or padding, whose sizes agree"


def _first_unsolved(size: int, values: Mapping[str, int]) -> SizeName | None:
    """Return the first name without a value."""
    return next((n for n in names_of(size) if n.name not in values), None)


def _as_linear(size: int, name: SizeName, values: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the coefficient of a name in a size, and the rest of the size, in which all names have values. None for a
    size of another form."""
    terms = terms_of(substitute_sizes(size, values))
    alone: Monomial = ((name, 1),)
    rest = size_of_terms(Size, {m: c for m, c in terms.items() if m != alone})
    if alone not in terms or any([n.name == name.name for n in names_of(rest)]) or _first_unsolved(rest, values):
        return None
    return terms[alone], rest
