"""pyright accepts the blocks of the pages, the examples, and the programs that mypy accepts: what an editor shows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typed_programs import ROOT, write_pages

pytestmark = pytest.mark.pyright


def diagnostics(folder: Path) -> list[dict[str, object]]:
    """The output of one run for all files of a folder."""
    (folder / "pyrightconfig.json").write_text(
        json.dumps({"pythonVersion": "3.11", "typeCheckingMode": "standard", "extraPaths": [str(ROOT), "examples"]}),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 30
    diagnostics: list[dict[str, object]] = found["generalDiagnostics"]
    return diagnostics


def test_pyright(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    (tmp_path / "pages").mkdir()
    origin = {f"pages/{name}": page.relative_to(ROOT) for name, page in write_pages(tmp_path / "pages").items()}
    for folder in (ROOT / "examples", ROOT / "tests" / "typing" / "accept"):
        (tmp_path / folder.name).mkdir()
        for path in folder.glob("*.py"):
            shutil.copy(path, tmp_path / folder.name)
            origin[f"{folder.name}/{path.name}"] = path.relative_to(ROOT)
    (tmp_path / "planted.py").write_text("import fxad as fx\n\nfx.jit(lambda x: x)(1, 2)\n", encoding="utf-8")
    origin["planted.py"] = Path("planted.py")
    errors = []
    for d in diagnostics(tmp_path):
        file = Path(str(d["file"]))
        line = d["range"]["start"]["line"]  # type: ignore[index]  # as pyright writes it
        revealed_unknown = d["severity"] == "information" and "Unknown" in str(d["message"])
        if d["severity"] == "error" or revealed_unknown:
            at = origin[file.relative_to(tmp_path.resolve()).as_posix()]
            errors.append(f"{at}:{line + 1}: {d['message']}")
    assert [e.partition(": ")[0] for e in errors] == ["planted.py:3"], errors
