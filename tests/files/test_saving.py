"""What happens to files: links, homes, folders that are missing, killed writers, classes of scripts and of fxad."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import optim, tree
from fxad.support import atomic_file

X = np.arange(3.0, dtype=np.float32)
PROGRAM = fx.trace(lambda x: x * 2, X)
SAVES: dict[str, tuple[Callable[[Any], None], Callable[[Any], Any]]] = {
    "tree": (lambda path: tree.save(path, {"x": X}), tree.load),
    "program": (lambda path: fx.save(PROGRAM, path), fx.load),
}


@pytest.mark.parametrize("kind", SAVES)
def test_saving_through_a_link_writes_the_file(kind: str, tmp_path: Path) -> None:
    save, load = SAVES[kind]
    (tmp_path / "folder").mkdir()
    link, target = tmp_path / "latest", tmp_path / "folder" / "file"
    link.symlink_to(target)
    for _ in range(2):  # the link leads nowhere at first
        save(link)
        assert link.is_symlink()
        assert target.is_file()
        assert not target.is_symlink()
        load(link)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder", "latest"]


@pytest.mark.parametrize("kind", SAVES)
def test_the_home_of_the_user(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, load = SAVES[kind]
    monkeypatch.setenv("HOME", str(tmp_path))
    save("~/file")
    load(Path("~") / "file")
    assert (tmp_path / "file").is_file()


@pytest.mark.parametrize("kind", SAVES)
def test_a_folder_that_is_missing_is_named(kind: str, tmp_path: Path) -> None:
    save, _ = SAVES[kind]
    with pytest.raises(FileNotFoundError) as e:
        save(tmp_path / "missing" / "file")
    assert e.value.filename == str(tmp_path / "missing")
    assert e.value.errno == errno.ENOENT
    (tmp_path / "a file").touch()
    with pytest.raises(NotADirectoryError) as other:
        save(tmp_path / "a file" / "file")
    assert other.value.filename == str(tmp_path / "a file")


_KILLED = """
import os, signal, sys
import numpy as np, fxad as fx
from fxad import tree
setattr(os, sys.argv[3], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
if sys.argv[1] == "tree":
    tree.save(sys.argv[2], {"x": np.ones(3)})
else:
    fx.save(fx.trace(lambda x: x * 2, np.ones(3)), sys.argv[2])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("kind", "call"), [*[(kind, "fsync") for kind in SAVES], ("tree", "write"), ("tree", "replace")]
)
def test_files_of_a_killed_writer_are_removed_by_the_next_one(kind: str, call: str, tmp_path: Path) -> None:
    """Regression: the library of the format wrote a temporary file of its own."""
    save, _ = SAVES[kind]
    subprocess.run([sys.executable, "-c", _KILLED, kind, str(tmp_path / "step-1"), call], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".unfinished")
    living = tmp_path / left.name.replace(left.name.split(".")[1], str(os.getpid()))
    foreign = tmp_path / f"step-1.{left.name.split('.')[1]}.{'0' * 16}.unfinished"
    old = tmp_path / f"step-1.{os.getpid()}.{'1' * 16}.unfinished"
    other = tmp_path / "notes.unfinished"
    for path in (living, foreign, old, other):
        path.touch()
    os.utime(old, (0, 0))
    save(tmp_path / "step-2")
    assert {p.name for p in tmp_path.iterdir()} == {"step-2", living.name, foreign.name, other.name}


def test_a_failed_write_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), unfinished[0])

    unfinished: list[str] = []
    real = atomic_file._write_parts

    def write(path: str, **kwargs: Any) -> None:
        unfinished.append(path)
        real(path, **kwargs)

    monkeypatch.setattr(atomic_file, "_write_parts", write)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as e:
        fx.save(PROGRAM, tmp_path / "p")
    assert e.value.filename == str(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------------- classes

_OPTIMISER = """
import sys
from fxad import tree
assert "fxad.optim" not in sys.modules and "fxad.optim.optimizers" not in sys.modules
state = tree.load(sys.argv[1])
print(type(state).__module__, type(state["state"]).__name__)
"""


def test_classes_of_fxad_are_found_in_a_new_process(tmp_path: Path) -> None:
    state = optim.adam(1e-3).init({"w": fnp.ones(3)})
    tree.save(tmp_path / "t", {"state": state})
    subprocess.run([sys.executable, "-c", _OPTIMISER, str(tmp_path / "t")], check=True, capture_output=True)


_SCRIPT = """
import sys, warnings
import numpy as np, fxad as fx
from fxad import tree

@tree.dataclass
class Params:
    w: object

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tree.save(sys.argv[1] + "/t", [Params(np.ones(3)), Params(np.ones(2))])
    fx.save(fx.trace(lambda p: p.w, Params(np.ones(3))), sys.argv[1] + "/p")
for w in caught:
    print(w.category.__name__, w.filename, w.message)
"""


def test_a_class_of_a_script_is_a_warning(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    expected = (
        "StorageWarning <string> {}: the class __main__:Params is found only where a class of this name is in the"
        " script that runs; define it in a module that the scripts import"
    )
    assert {*run} == {expected.format("tree.save"), expected.format("save")}


# ------------------------------------------------------------------------------------------------------- programs


def test_the_types_of_a_program() -> None:
    program = fx.trace(lambda p, *, scale: {"y": p["x"] * scale}, {"x": X}, scale=X)
    spec = fx.Spec((3,))
    assert program.args_info == (({"x": spec},), {"scale": spec})
    assert program.out_info == {"y": spec}
    assert fx.jit(lambda x: x).trace(X).out_info == spec
