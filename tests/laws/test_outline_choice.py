"""How good the choice of stretches is: what it saves, beside the most that any choice of stretches that follow
themselves could, found by trying all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from hypothesis import given, strategies as st

from fxad.core.constants import BODY_EQUATIONS, CALL_EQUATIONS, VALUE_EQUATIONS
from fxad.testing.transform_laws import eqns_to_compile
from fxad.transforms import outline
from tests.laws.budget import share
from tests.laws.words import program

HANDED = 2 * VALUE_EQUATIONS  # a stretch of a word takes one value and gives one
AT_LEAST = 0.5


@st.composite
def words(draw: st.DrawFn) -> list[int]:
    """Words of up to 26 letters: a few pieces, in any order, and letters of their own between some."""
    pieces = draw(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=9), min_size=1, max_size=3))
    order = draw(st.lists(st.integers(0, len(pieces)), min_size=2, max_size=8))
    word: list[int] = []
    for k, which in enumerate(order):
        word += pieces[which] if which < len(pieces) else [20 + k]
    return word[:26]


def best(word: Sequence[int]) -> float:
    """The most that calls could save: of every set of up to three stretches that follow themselves somewhere, each
    standing wherever that pays."""
    stretches = [s for s in repeated(word) if follows_itself(word, s) and most(word, s) > 0]
    chosen = (some for n in (1, 2, 3) for some in combinations(stretches, n))
    return max([0.0, *[placed(word, some) for some in chosen]])


def repeated(word: Sequence[int]) -> list[tuple[int, ...]]:
    """The stretches that stand in two places or more."""
    n = len(word)
    found = [tuple(word[i : i + k]) for k in range(2, n // 2 + 1) for i in range(n - k + 1)]
    return [s for s in dict.fromkeys(found) if len(list(starts(word, s))) > 1]


def follows_itself(word: Sequence[int], stretch: tuple[int, ...]) -> bool:
    """Returns True if two places of a stretch are next to each other: other stretches are not looked for."""
    twice = (*stretch, *stretch)
    return any([tuple(word[at : at + len(twice)]) == twice for at in range(len(word) - len(twice) + 1)])


def starts(word: Sequence[int], stretch: tuple[int, ...]) -> Iterator[int]:
    """Places of a stretch, none in another."""
    at = 0
    while at <= len(word) - len(stretch):
        if tuple(word[at : at + len(stretch)]) == stretch:
            yield at
            at += len(stretch)
        else:
            at += 1


def most(word: Sequence[int], stretch: tuple[int, ...]) -> float:
    """What a stretch saves alone."""
    return placed(word, (stretch,))


def placed(word: Sequence[int], stretches: Sequence[tuple[int, ...]]) -> float:
    """What calls of these stretches save, each used wherever it saves most: letter by letter, from the end."""
    after = [0.0] * (len(word) + 1)
    for at in range(len(word) - 1, -1, -1):
        after[at] = after[at + 1]
        for s in stretches:
            if tuple(word[at : at + len(s)]) == s:
                after[at] = max(after[at], len(s) - CALL_EQUATIONS - HANDED + after[at + len(s)])
    return after[0] - sum([len(s) + BODY_EQUATIONS for s in stretches])


@share(1)
@given(words())
def test_the_choice_saves_half_of_what_any_could(word: list[int]) -> None:
    """By the measure that the choice goes by, in which a call, a value handed over and a body cost something; but for
    the cost of a body."""
    jaxpr = program(word)
    saved = eqns_to_compile(jaxpr) - eqns_to_compile(outline(jaxpr))
    assert saved >= AT_LEAST * best(word) - BODY_EQUATIONS


def test_all_that_can_be_tried_is() -> None:
    """The reference finds what is known: six times four letters; two stretches, one in the other's gaps."""
    assert best([0, 1, 2, 3] * 6) == 20 - 6 * (CALL_EQUATIONS + HANDED) - BODY_EQUATIONS
    a, b = [0, 1, 2, 3, 0, 0, 1], [3, 3, 2, 2, 1, 1, 3]
    assert best([*a, *a, *b, 9, *b, *b]) > most([*a, *a, *b, 9, *b, *b], tuple(a))
    assert best([*a, *b, *a, 9, *b, *a]) == 0  # none follows itself
