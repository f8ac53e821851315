"""The tokens of a program's text.

One call of a regular expression splits a text, in C. A token is a plain string, because an equation has twenty of
them, and programs are read at each start of a process. The kind of a token follows from its characters. Its offset is
computed only for messages.
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
# Any character that begins no token is a token of kind `bad`. So is an unterminated string, up to the end of its line:
# the `?` makes its closing quote optional. As characters, each would search for the end of the string: quadratic time.
_TOKEN: Final = re.compile(
    rf"(?:[ \t\r]|\#[^\n]*)*({'|'.join(form.replace(_STRING, _STRING + '?') for _, form in _NAMED)}|.|\Z)", re.ASCII
)


def tokens(text: str) -> list[str]:
    """Return the tokens, without blanks and comments. Any other character is a token of kind `bad`. The last tokens are
    empty.

    Cost: linear in the text, 0.2 us a token.
    """
    return [*_TOKEN.findall(text), ""]


def token_kind(token: str) -> str:
    """Return `newline`, `type`, `size`, `variable`, `label`, `string`, `number`, `word`, `mark`, `end`; `bad` for
    others."""
    if not token:
        return "end"
    match = _KIND.fullmatch(token)
    return "bad" if match is None else match.lastgroup or "bad"


def token_offset(text: str, at: int) -> int:
    """Return the offset in a text of the token with index `at`."""
    return next((m.start(1) for m in islice(_TOKEN.finditer(text), at, None)), len(text))
