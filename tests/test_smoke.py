"""Tests that depend on the Python version, on jaxlib or on the platform: run on every supported pair of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import run_python

pytestmark = pytest.mark.smoke

PACKAGE = Path(__file__).resolve().parent.parent / "fxad"


def modules() -> list[str]:
    """Every module of the package, by its dotted name."""
    paths = (p.relative_to(PACKAGE.parent).with_suffix("") for p in sorted(PACKAGE.rglob("*.py")))
    return [".".join(p.parts).removesuffix(".__init__") for p in paths]


def test_every_module_imports_and_jax_stays_out() -> None:
    """In a process of its own: the import of each module works without modules that other imports loaded."""
    lines = [f"import {m}" for m in modules() if not m.startswith("fxad.interop.jax")]  # this one imports jax
    lines += ["import sys", "assert not {'jax'} & set(sys.modules)"]
    run_python("\n".join(lines))
