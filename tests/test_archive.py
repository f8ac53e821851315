"""fxad in an archive, as compiled modules and stubs of packages only, compiled in another folder."""

from __future__ import annotations

import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

import fxad as fx

_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import fxad as fx, numpy as np, fxad.numpy as fnp
assert fx.__file__.startswith(sys.argv[1]), fx.__file__
fx.cache.configure(dir=sys.argv[2])

def f(x):
    return fnp.dot(x, fnp.ones((4, 3)))

try:
    fx.jit(f)(np.ones((2, 3)))
except fx.errors.ShapeError as e:
    print(e.where)
try:
    fx.tree.map(3, {})
except fx.errors.ArgumentError as e:
    print(e.caller)
fx.jit(f)(np.ones((2, 4)))
print(fx.cache.stats().disk_hits)
"""


def test_compiled_modules_in_an_archive(tmp_path: Path) -> None:
    package, archive = Path(fx.__file__).parent, tmp_path / "fxad.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package.parent)
            compiled = py_compile.compile(str(path), str(tmp_path / "m.pyc"), dfile=f"/elsewhere/{name.as_posix()}")
            assert compiled is not None
            file.write(compiled, name.with_suffix(".pyc").as_posix())
        for path in sorted(package.rglob("__init__.pyi")):  # data of the packages: what they export
            file.write(path, path.relative_to(package.parent).as_posix())
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    for hits in (0, 1):
        run = subprocess.run(
            [sys.executable, str(script), str(archive), str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": ""},
        )
        lines = run.stdout.splitlines()
        assert lines[0] == f"{script}:9 in f"
        assert lines[1].startswith(f"{script}:16 in <module>")
        assert int(lines[2]) >= hits
        assert run.stderr == ""
