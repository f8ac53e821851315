"""The tokens of a program's text.

A text is cut by one call of a regular expression, in C: a token is a string and no more, for there are twenty of them
in an equation, and programs are read at each start of a process. Which kind a token is follows from its letters, and
where it stands is found again when a message has to say so.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_NAMED: Final = (
    ("newline", r"\n"),
    ("type", r"[a-z][a-z0-9]*\[[A-Za-z0-9_,+*^()>-]*\]"),
    ("size", r"\{[A-Za-z0-9_,+*^()>-]+\}"),
    ("variable", r"%\w+"),
    ("label", rf"@(?:[A-Za-z_]\w*|{_STRING})(?:\#[0-9]+)?"),
    ("string", _STRING),
    ("number", r"-?(?:0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)|-inf"),
    ("word", r"[A-Za-z_]\w*"),
    ("mark", r"->|[()\[\]{}=:,]"),
)
_KIND: Final = re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in _NAMED), re.ASCII)
# A string that does not end is one token, up to the end of its line, and of no kind: to look for its end once more from
# each of its characters would be quadratic.
_TOKEN: Final = re.compile(
    rf"(?:[ \t\r]|\#[^\n]*)*({'|'.join(form.replace(_STRING, _STRING + '?') for _, form in _NAMED)}|.|\Z)", re.ASCII
)


def tokens(text: str) -> list[str]:
    """The tokens, without blanks and comments; what is none is a token of its own, and the last ones are empty.

    Cost: linear in the text, 0.2 us a token.
    """
    return [*_TOKEN.findall(text), ""]


def token_kind(token: str) -> str:
    """`newline`, `type`, `size`, `variable`, `label`, `string`, `number`, `word`, `mark`, `end`; `bad` for others."""
    match = _KIND.fullmatch(token)
    return "end" if not token else "bad" if match is None else match.lastgroup or "bad"


def token_offset(text: str, at: int) -> int:
    """Where the token number `at` stands in a text."""
    return next((m.start(1) for m in islice(_TOKEN.finditer(text), at, None)), len(text))
