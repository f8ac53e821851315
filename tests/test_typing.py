"""mypy's output for programs that use fxad: the types that it reveals, and the errors that it reports.

A line of `typing/accept` may end in `# R: type`, which is what `reveal_type` shows, without module names. A line of
`typing/reject` may end in `# E: message`, which is a part of the error. mypy must report no other errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import mypy.api
import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "tests" / "typing").glob("*/*.py"))
OUTPUT_LINE = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)$")
EXPECTED = re.compile(r"# (?P<kind>[ER]): (?P<text>.*)$")
MODULES = re.compile(r"\b(?:[a-z_][a-z0-9_]*\.)+(?=[A-Za-z_])")


@pytest.fixture(scope="module")
def mypy_output() -> dict[tuple[str, int], list[str]]:
    """Returns the output of mypy by file name and line, for all files in one run, which reads the package once."""
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--no-pretty", "--no-error-summary"]
    out, err, _ = mypy.api.run([*options, *map(str, FILES)])
    assert not err
    found: dict[tuple[str, int], list[str]] = {}
    for line in out.splitlines():
        m = OUTPUT_LINE.match(line)
        assert m is not None, line
        if m["kind"] == "error" or m["text"].startswith("Revealed type"):
            found.setdefault((Path(m["file"]).name, int(m["line"])), []).append(m["text"])
    return found


def expectations(path: Path) -> Iterator[tuple[int, str, str]]:
    for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if m := EXPECTED.search(line):
            yield n, m["kind"], m["text"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_mypy(path: Path, mypy_output: dict[tuple[str, int], list[str]]) -> None:
    expected = {n: (kind, text) for n, kind, text in expectations(path)}
    given = {n: texts for (file, n), texts in mypy_output.items() if file == path.name}
    assert given.keys() - expected.keys() == set(), {n: given[n] for n in given.keys() - expected.keys()}
    for n, (kind, text) in expected.items():
        there = given.get(n, [])
        if kind == "R":
            there = [MODULES.sub("", t.removeprefix("Revealed type is ").strip('"')) for t in there]
            assert there == [text], f"{path.name}:{n}"
        else:
            assert len(there) == 1, f"{path.name}:{n}: {there}"
            assert text in there[0], f"{path.name}:{n}"


def test_names_are_distinct() -> None:
    """The output of mypy is stored by file name."""
    assert len({p.name for p in FILES}) == len(FILES)
