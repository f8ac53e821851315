"""Programs as words: each letter is an operation on the result of the one before. Repeated letters are all the
structure that `outline` can find."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice
from types import MappingProxyType
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr, Primitive, Var
from fxad.primitives import elementwise as ew

FEW: Final = (ew.SIN, ew.COS, ew.TANH, ew.EXP, ew.LOG, ew.NEG, ew.ABS, ew.SQRT, ew.FLOOR, ew.CEIL)


def program(letters: Iterable[int], aval: Aval | None = None, few: Sequence[Primitive] = FEW) -> Jaxpr:
    """Returns the program of a word: letter k is the k-th function of `few`, or a power."""
    b = Builder()
    v: Var = b.input(aval or Aval((1000,), dtypes.float32))
    for letter in letters:
        v = b.one(few[letter] if letter < len(few) else ew.IntegerPow(letter), v)
    return b.build([v])


def fibonacci(n: int) -> list[int]:
    """0 1 0 0 1 0 1 0 ...: many squares, and no fourth power."""
    a, b = [0], [0, 1]
    while len(b) < n:
        a, b = b, b + a
    return b[:n]


def thue_morse(n: int) -> list[int]:
    """0 1 1 0 1 0 0 1 ...: squares of many lengths, and no cube."""
    return [i.bit_count() & 1 for i in range(n)]


def defects(n: int) -> list[int]:
    """A period of 10, in which one letter in 50 is wrong."""
    draw, word = random.Random(0), [i % 10 for i in range(n)]
    for _ in range(n // 50):
        word[draw.randrange(n)] = draw.randrange(10)
    return word


def chance(letters: int) -> Callable[[int], list[int]]:
    """Letters drawn at random."""

    def word(n: int) -> list[int]:
        draw = random.Random(1)
        return [draw.randrange(letters) for _ in range(n)]

    return word


def nested(n: int) -> list[int]:
    """Six letters four times and two more; this five times and three more; this repeated."""
    inner = [0, 1, 2, 3, 4, 5] * 4 + [6, 7]
    return (n // 143 + 1) * (inner * 5 + [8, 9, 8])[:n]


def growing(n: int) -> list[int]:
    """0 1, 0 0 1, 0 0 0 1, ...: runs of growing length."""
    return list(islice((letter for k in count(1) for letter in [0] * k + [1]), n))


def unequal(n: int) -> list[int]:
    """No letter occurs twice."""
    return list(range(10, n + 10))


WORDS: Final = MappingProxyType[str, Callable[[int], list[int]]](
    {
        "layers": lambda n: [k % 6 for k in range(n)],
        "one letter": lambda n: [0] * n,
        "nothing twice": unequal,
        "everything twice": lambda n: unequal(n // 2) * 2,
        "nested": nested,
        "defects": defects,
        "growing": growing,
        "fibonacci": fibonacci,
        "thue morse": thue_morse,
        "two letters": chance(2),
        "ten letters": chance(10),
        "thousand letters": chance(1000),
    }
)
