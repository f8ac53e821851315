"""Every error of the modules below has a remedy, and every piece of its text and of its remedy occurs in some test.

Other tests compare messages whole. This test finds a new or changed message that no test contains.
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

# Public functions of arrays are excluded: the laws of tests/attack and tests/interfaces check their errors.
EXCLUDED: Final = (
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
INCLUDED: Final = (
    "lax/control/", "lax/implicit/", "lax/linear.py", "primitives/custom", "primitives/implicit.py",
    "primitives/linear_call.py", "primitives/control/", "primitives/host_call.py",
    "operations/arguments.py",
)  # fmt: skip
RAISED: Final = {n for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, errors.FxadError)} - {
    "CheckError"  # its text comes from the user
}
ROOT: Final = Path(fx.__file__).parent
EDGES: Final = " \n.,:;()[]{}'\"`"


@pytest.fixture(name="raised", scope="module")
def _raised() -> list[tuple[str, ast.Call]]:
    return list(errors_made())


def errors_made() -> Iterator[tuple[str, ast.Call]]:
    """Yields the errors that these modules make, and where. Constants of a module replace their names."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(EXCLUDED) and not name.startswith(INCLUDED):
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
    """Returns True if a call makes an error: by the name of an error class, or of a variable for one."""
    return name in RAISED or (name not in vars(errors) and "remedy" in [k.arg for k in call.keywords])


def pieces(node: ast.expr) -> list[str]:
    """Returns the constant parts of a message, without punctuation at their ends."""
    found = [n.value.strip(EDGES) for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [text for text in found if len(text) > 3]


def text_of_all_tests() -> str:
    """Returns the text of all tests. String literals on consecutive lines are joined, and backslashes are removed."""
    tests = Path(__file__).parent
    whole = "\n".join([p.read_text() for p in sorted(tests.rglob("*.py")) if p != Path(__file__)])
    return re.sub(r"""["']\s*\n\s*[rf]{0,2}["']""", "", whole).replace("\\", "")


def test_every_error_has_a_remedy(raised: list[tuple[str, ast.Call]]) -> None:
    silent = [where for where, call in raised if "remedy" not in [k.arg for k in call.keywords]]
    assert not silent


def test_every_piece_of_a_message_occurs_in_a_test(raised: list[tuple[str, ast.Call]]) -> None:
    tests, unpinned = text_of_all_tests(), list[str]()
    for where, call in raised:
        parts = [*call.args[:1], *[k.value for k in call.keywords if k.arg == "remedy"]]
        unpinned += [f"{where}: {text}" for part in parts for text in pieces(part) if text not in tests]
    assert not unpinned
    assert len(raised) > 150, "the modules are found"


def test_messages_show_values_of_users_by_shown() -> None:
    """`{value!r:.60}` calls the user's `__repr__`, which may raise; `errors.shown` names the type then."""
    files = sorted(Path(fx.__file__).parent.rglob("*.py"))
    assert [path.name for path in files if re.search(r"![rs]:\.\d", path.read_text(encoding="utf-8"))] == []
