"""The rest of fxad works without its plug-ins: they are deleted from a copy, in which tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deletion import PLUG_INS, copy_without

# Tests of the whole package that name no plug-in: every module is imported; programs, lowering, the runtime, files.
SHORT = ("tests/test_smoke.py", "tests/test_lower.py", "tests/ir/test_digest.py")
LONG = (*SHORT, "tests/test_runtime.py", "tests/test_stubs.py", "tests/api/test_export.py")
_RUN = """
import sys, fxad, pytest
assert fxad.__file__.startswith(sys.argv[1]), fxad.__file__
sys.exit(pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]))
"""


def run_tests(folder: Path, files: Sequence[str]) -> None:
    """Runs tests of a copy of the repository in a process of their own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", _RUN, str(folder), *files]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-5000:]}{done.stderr[-2000:]}"


def test_the_rest_works_without_any_plug_in(tmp_path: Path) -> None:
    copy_without(frozenset(PLUG_INS), tmp_path)
    run_tests(tmp_path, SHORT)


@pytest.mark.plug_ins
@pytest.mark.parametrize("name", sorted(PLUG_INS))
def test_the_rest_works_without_a_plug_in(name: str, tmp_path: Path) -> None:
    copy_without(frozenset({name}), tmp_path)
    run_tests(tmp_path, LONG)


def test_what_still_needs_a_deleted_plug_in_is_found(tmp_path: Path) -> None:
    """A table that uses a plug-in in another way than as an entry is an error of the deletion."""
    copy_without(frozenset(), tmp_path)
    passes = tmp_path / "fxad/passes.py"
    passes.write_text(passes.read_text(encoding="utf-8") + "\nCHECKED = outline(None)\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"fxad\.passes needs what is deleted: CHECKED = outline\(None\)"):
        copy_without(frozenset({"outlining"}), tmp_path / "again", passes.parent.parent)
