"""`stubs/` is the whole contract with jaxlib: every name in it exists in the installed jaxlib."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke

STUBS = Path(__file__).resolve().parent.parent / "stubs"
FILES = sorted(STUBS.rglob("*.pyi"))


def declared(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yields the dotted names that a stub declares at run time. Protocols exist for types only."""
    for node in body:
        match node:
            case ast.ClassDef(bases=bases) if "Protocol" not in [ast.unparse(b) for b in bases]:
                yield prefix + node.name
                yield from declared(node.body, f"{prefix}{node.name}.")
            case ast.FunctionDef(name="__buffer__"):
                pass  # means that memoryview() accepts it; its C slot has this name from Python 3.12 on
            case ast.FunctionDef():
                yield prefix + node.name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case _:
                pass


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(STUBS).as_posix())
def test_each_name_of_a_stub_exists(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(STUBS).with_suffix("").parts).removesuffix(".__init__"))
    missing = []
    for name in declared(ast.parse(path.read_text(encoding="utf-8")).body):
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    assert missing == [], f"not in {module.__name__}"
