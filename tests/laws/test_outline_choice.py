"""`outline` chooses stretches that save at least half of what the best choice saves. The best one is found by
exhaustive search, among stretches that stand twice in a row somewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from hypothesis import given, strategies as st

from fxad.support.constants import BODY_EQUATIONS, CALL_EQUATIONS, VALUE_EQUATIONS
from fxad.testing.transform_laws import eqns_to_compile
from fxad.transforms import outline
from tests.laws.budget import share
from tests.laws.words import program

OPERAND_AND_RESULT = 2 * VALUE_EQUATIONS  # a stretch of a word takes one value and returns one
AT_LEAST = 0.5


@st.composite
def words(draw: st.DrawFn) -> list[int]:
    """Words of up to 26 letters: a few pieces in any order, with single letters between some of them."""
    pieces = draw(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=9), min_size=1, max_size=3))
    order = draw(st.lists(st.integers(0, len(pieces)), min_size=2, max_size=8))
    word: list[int] = []
    for k, which in enumerate(order):
        word += pieces[which] if which < len(pieces) else [20 + k]
    return word[:26]


def most_saved(word: Sequence[int]) -> float:
    """Returns the most equations that calls could save: the maximum over all sets of up to three stretches that stand
    twice in a row somewhere."""
    stretches = [s for s in repeated(word) if stands_twice_in_a_row(word, s) and saved_alone(word, s) > 0]
    chosen = (some for n in (1, 2, 3) for some in combinations(stretches, n))
    return max([0.0, *[saved_by(word, some) for some in chosen]])


def repeated(word: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the stretches that occur in two places or more."""
    n = len(word)
    found = [tuple(word[i : i + k]) for k in range(2, n // 2 + 1) for i in range(n - k + 1)]
    return [s for s in dict.fromkeys(found) if len(list(starts(word, s))) > 1]


def stands_twice_in_a_row(word: Sequence[int], stretch: tuple[int, ...]) -> bool:
    """Returns True if a stretch occurs twice in a row. `outline` does not look for others."""
    twice = (*stretch, *stretch)
    return any([tuple(word[at : at + len(twice)]) == twice for at in range(len(word) - len(twice) + 1)])


def starts(word: Sequence[int], stretch: tuple[int, ...]) -> Iterator[int]:
    """Yields the places of a stretch, without overlaps."""
    at = 0
    while at <= len(word) - len(stretch):
        if tuple(word[at : at + len(stretch)]) == stretch:
            yield at
            at += len(stretch)
        else:
            at += 1


def saved_alone(word: Sequence[int], stretch: tuple[int, ...]) -> float:
    """Returns the equations that one stretch saves."""
    return saved_by(word, (stretch,))


def saved_by(word: Sequence[int], stretches: Sequence[tuple[int, ...]]) -> float:
    """Returns the equations that calls of these stretches save: dynamic programming over the letters, from the end."""
    after = [0.0] * (len(word) + 1)
    for at in range(len(word) - 1, -1, -1):
        after[at] = after[at + 1]
        for s in stretches:
            if tuple(word[at : at + len(s)]) == s:
                after[at] = max(after[at], len(s) - CALL_EQUATIONS - OPERAND_AND_RESULT + after[at + len(s)])
    return after[0] - sum([len(s) + BODY_EQUATIONS for s in stretches])


@share(1)
@given(words())
def test_the_choice_saves_half_of_the_most_that_is_possible(word: list[int]) -> None:
    """The measure is that of `outline`: a call, an operand of a call and a body have a cost. The choice may be worse by
    the cost of one body."""
    jaxpr = program(word)
    saved = eqns_to_compile(jaxpr) - eqns_to_compile(outline(jaxpr))
    assert saved >= AT_LEAST * most_saved(word) - BODY_EQUATIONS


def test_the_exhaustive_search_finds_known_optima() -> None:
    """The exhaustive search finds known optima: a repetition of four letters, and two stretches that alternate."""
    assert most_saved([0, 1, 2, 3] * 6) == 20 - 6 * (CALL_EQUATIONS + OPERAND_AND_RESULT) - BODY_EQUATIONS
    a, b = [0, 1, 2, 3, 0, 0, 1], [3, 3, 2, 2, 1, 1, 3]
    assert most_saved([*a, *a, *b, 9, *b, *b]) > saved_alone([*a, *a, *b, 9, *b, *b], tuple(a))
    assert most_saved([*a, *b, *a, 9, *b, *a]) == 0  # none stands twice in a row
