"""Every error of the modules below says what to do, and every piece of its text and of its remedy stands in some test.

This is the net, not the pin: the tests that meet an error compare its message whole. A message that is new, or that was
changed without its test, is caught here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import fxad as fx
from fxad import errors

# Public functions of arrays are not among them: the laws of tests/attack and tests/interfaces check their refusals.
NOT: Final = (
    "numpy/",
    "nn/",
    "random/",
    "operations/",
    "lax/",
    "primitives/",
    "testing/",
    "text/",
    "core/",
)
BUT: Final = (
    "lax/control/", "lax/implicit/", "lax/linear.py", "primitives/custom", "primitives/implicit.py",
    "primitives/linear_call.py", "primitives/control/", "primitives/host_call.py",
    "operations/arguments.py",
)  # fmt: skip
RAISED: Final = {n for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, errors.FxadError)} - {
    "CheckError"  # the user's own words
}
ROOT: Final = Path(fx.__file__).parent
EDGES: Final = " \n.,:;()[]{}'\"`"


@pytest.fixture(name="raised", scope="module")
def _raised() -> list[tuple[str, ast.Call]]:
    return list(errors_made())


def errors_made() -> Iterator[tuple[str, ast.Call]]:
    """The errors that are made in these modules, and where; constants of their module stand in place of their names."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(NOT) and not name.startswith(BUT):
            continue
        module = ast.parse(path.read_text())
        constants = {
            n.target.id: n.value
            for n in module.body
            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and n.value is not None
        }
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _makes(node.func.id, node):
                for k in node.keywords:
                    k.value = constants.get(k.value.id, k.value) if isinstance(k.value, ast.Name) else k.value
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def _makes(name: str, call: ast.Call) -> bool:
    """Whether a call makes an error: of a class by its name, or of one that was chosen before."""
    return name in RAISED or (name not in vars(errors) and "remedy" in [k.arg for k in call.keywords])


def pieces(node: ast.expr) -> list[str]:
    """The text in an expression, without what is filled in and without its edges."""
    found = [n.value.strip(EDGES) for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [text for text in found if len(text) > 3]


def written() -> str:
    """The text of all tests; strings that go on in the next line are joined, escapes are taken out."""
    tests = Path(__file__).parent
    whole = "\n".join([p.read_text() for p in sorted(tests.rglob("*.py")) if p != Path(__file__)])
    return re.sub(r"""["']\s*\n\s*[rf]{0,2}["']""", "", whole).replace("\\", "")


def test_every_error_says_what_to_do(raised: list[tuple[str, ast.Call]]) -> None:
    silent = [where for where, call in raised if "remedy" not in [k.arg for k in call.keywords]]
    assert not silent


def test_every_piece_of_a_message_stands_in_a_test(raised: list[tuple[str, ast.Call]]) -> None:
    tests, unpinned = written(), list[str]()
    for where, call in raised:
        parts = [*call.args[:1], *[k.value for k in call.keywords if k.arg == "remedy"]]
        unpinned += [f"{where}: {text}" for part in parts for text in pieces(part) if text not in tests]
    assert not unpinned
    assert len(raised) > 150, "the modules are found"
