"""The language of shapes, for users and in the text of programs: `(n, 2*m+1, _)`, `n>=1`, `div(n,2)`.

The text of a size is read back as the same size, with its assumptions: `read_size(exact_text(size)) is size`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar, final

from fxad.core.sizes.polynomials import SizeName, terms_of
from fxad.core.sizes.size import NAME, RESERVED, maximum, minimum, named_size, size_of
from fxad.errors import ArgumentError, shown

T = TypeVar("T")

_BOUND: Final = re.compile(r"_axis[0-9]{1,3}")
_TOKENS: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]+|>=|//|\*\*|[-+*^(),>%]|.)")
_MOST_FACTORS: Final = 200  # of all terms of a size in a text


def _is_number(token: str) -> bool:
    return token.isascii() and token.isdigit()  # `isdigit` admits other digits, such as a superscript two


@final
class Reader:
    """Reads the language of shapes: `(n, 2*m+1, _)`.

    A scope holds the assumptions of one set of shapes: if one of them states `n>=1`, this holds for n in all of them.
    Without a scope each mention of a name states its own assumption, as in exact text.
    """

    __slots__ = ("at", "scope", "text", "tokens")

    def __init__(self, text: str, scope: dict[str, int] | None = None) -> None:
        self.text = text
        self.tokens = _TOKENS.findall(text.strip()) + [""]
        self.at = 0
        self.scope = scope

    def fail(self, problem: str) -> NoReturn:
        raise ArgumentError(
            f"shape: {shown(self.text, 200)}: {problem}",
            remedy="write sizes as polynomials, separated by commas: '(n, 2*m+1, 3)', 'n>=1', '_' for a fixed size",
        )

    def accept(self, token: str) -> bool:
        matches: bool = self.tokens[self.at] == token
        self.at += matches
        return matches

    def take(self, token: str) -> None:
        if not self.accept(token):
            got = self.tokens[self.at]
            self.fail(f"expected {token!r}, got {repr(got) if got else 'the end'}")

    def shape(self) -> tuple[int | None, ...]:
        """Return a whole text: `(n, _)`, `n, 3`, `n`, ``. None stands for `_`."""
        return self._whole(self._sizes)

    def single_size(self) -> int:
        """Return a whole text that is one size."""
        return self._whole(self.sum)

    def _whole(self, read: Callable[[], T]) -> T:
        """Return the result of `read`, which must take the whole text."""
        try:
            out = read()
        except RecursionError:
            self.fail("a size is nested too deeply")
        if self.tokens[self.at]:
            self.fail(f"{self.tokens[self.at]!r} is not part of a size")
        return out

    def _sizes(self) -> tuple[int | None, ...]:
        if not self.tokens[0]:
            return ()
        closing = self.accept("(") if self.tokens[0] == "(" and self._outer() else False
        out: list[int | None] = []
        end = ")" if closing else ""
        while self.tokens[self.at] != end:
            out.append(None if self.accept("_") else self.sum())
            if not self.accept(","):
                break
        if closing:
            self.take(")")
        return tuple(out)

    def _outer(self) -> bool:
        """Return True if the first parenthesis closes at the end of the text."""
        depth = 0
        for k, token in enumerate(self.tokens):
            depth += (token == "(") - (token == ")")
            if depth == 0:
                return self.tokens[k + 1 :] == [""]
        return False

    def sum(self) -> int:
        out = -self.product() if self.accept("-") else self.product()
        while self.tokens[self.at] in ("+", "-"):
            out = self._checked(out + self.product() if self.accept("+") else self._minus(out))
        return out

    def _checked(self, size: int) -> int:
        """Return a short size with coefficients of 64 bits: the time to read a text must be linear in it."""
        terms = terms_of(size)
        if sum([max(len(mono), 1) for mono in terms]) > _MOST_FACTORS:
            self.fail(f"a size has more than {_MOST_FACTORS} factors")
        if any([c.bit_length() > 63 for c in terms.values()]):
            self.fail("a size is too large")
        return size

    def _times(self, a: int, b: int) -> int:
        if len(terms_of(a)) * len(terms_of(b)) > _MOST_FACTORS:
            self.fail(f"a size has more than {_MOST_FACTORS} factors")
        return self._checked(a * b)

    def _minus(self, out: int) -> int:
        self.take("-")
        return out - self.product()

    def product(self) -> int:
        out = self.power()
        while self.tokens[self.at] in ("*", "//", "%"):
            token = self.tokens[self.at]
            self.at += 1
            by = self.power()
            if token != "*" and by == 0:
                self.fail("division by 0")
            out = self._times(out, by) if token == "*" else self._checked(out // by if token == "//" else out % by)
        return out

    def power(self) -> int:
        if self.accept("-"):
            return -self.power()
        out = self.atom()
        if self.accept("^") or self.accept("**"):
            token = self.tokens[self.at]
            if not _is_number(token) or int(token) > 64:
                self.fail("a power is a small number")
            self.at += 1
            base, out = out, 1
            for _ in range(int(token)):
                out = self._times(out, base)
        return out

    def atom(self) -> int:
        token = self.tokens[self.at]
        if self.accept("("):
            out = self.sum()
            self.take(")")
            return out
        if _is_number(token):
            if len(token) > 19:
                self.fail("a size is too large")
            self.at += 1
            return int(token)
        return self._function() if token in ("bits", "div", "max", "min") else self._named()

    def _function(self) -> int:
        """Return `div(n,2)`."""
        function = self.tokens[self.at]
        self.at += 1
        self.take("(")
        a = self.sum()
        if function == "bits":
            self.take(")")
            return a.bit_length()
        self.take(",")
        b = self.sum()
        self.take(")")
        if function == "div" and b == 0:
            self.fail("division by 0")
        return a // b if function == "div" else maximum(a, b) if function == "max" else minimum(a, b)

    def _named(self) -> int:
        """Return `n`, `n>=1`."""
        token = self.tokens[self.at]
        bound = self.scope is None and _BOUND.fullmatch(token)
        if not (bound or NAME.fullmatch(token)) or token in RESERVED:
            self.fail(f"expected a size, got {repr(token) if token else 'the end'}")
        self.at += 1
        low = self.scope.get(token, 0) if self.scope is not None else 0
        sign = self.tokens[self.at]
        if sign in (">", ">="):
            number = self.tokens[self.at + 1]
            if not _is_number(number) or len(number) > 18:
                self.fail(f"{token} {sign} is followed by a number")
            self.at += 2
            low = max(low, int(number) + (sign == ">"))
            if self.scope is not None:
                self.scope[token] = low
        return size_of(SizeName(token, low)) if bound else named_size(token, low)


def read_size(text: str) -> int:
    """Return the size of an exact text. Raises: ArgumentError."""
    return Reader(text).single_size()


def read_shapes(texts: Sequence[str]) -> list[tuple[int | None, ...]]:
    """Return the shapes of texts that share their assumptions."""
    scope: dict[str, int] = {}
    for text in texts:
        Reader(text, scope).shape()
    return [Reader(text, scope).shape() for text in texts]
