"""Faults in a cache directory: killed writers, full disks, removed permissions, many writers at once."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.support.atomic_file import UNFINISHED, write_whole
from fxad.xla.disk import SUFFIX, Directory, DiskEntry
from tests.cache.processes import process, started, warnings_of

pytestmark = pytest.mark.smoke

X = np.arange(4, dtype=np.float32)
OLD, NEW = DiskEntry({"n": 1}, b"old" * 100), DiskEntry({"n": 2}, b"new" * 200)


# ----------------------------------------------------------------------------------------------------------- killed

# One process forks a writer for each point at which it is killed: the n-th call of a function, before or after it, or
# in the middle of a write. It prints the entry that a reader finds.
_KILLED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from fxad.xla.disk import Directory, DiskEntry

old, new = DiskEntry({"n": 1}, b"old" * 100), DiskEntry({"n": 2}, b"new" * 200)

def die(name, n, when):
    real, calls = getattr(os, name), [0]
    def patched(*args, **kwargs):
        calls[0] += 1
        if calls[0] == n and when == "middle":
            real(args[0], bytes(args[1])[: len(args[1]) // 2])
        if calls[0] == n and when != "after":
            os.kill(os.getpid(), signal.SIGKILL)
        out = real(*args, **kwargs)
        if calls[0] == n:
            os.kill(os.getpid(), signal.SIGKILL)
        return out
    setattr(os, name, patched)

POINTS = [("write", n, when) for n in range(1, 6) for when in ("before", "middle", "after")]
POINTS += [(name, 1, when) for name in ("fsync", "replace") for when in ("before", "after")]
POINTS += [("fsync", 2, "before"), ("fsync", 2, "after")]
for point in POINTS:
    home = f"{sys.argv[-1]}/{'-'.join(map(str, point))}"
    Directory(home, 10000).write("key", old)
    child = os.fork()
    if child == 0:
        die(*point)
        Directory(home, 10000).write("key", new)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, point
    d = Directory(home, 10000)
    found = d.read("key")
    assert found in (old, new), point
    assert d.write("key", new) and d.read("key") == new
    print("new" if found == new else "old", len(os.listdir(home)))
"""


def test_a_writer_killed_at_any_point_leaves_the_old_entry_or_the_new(tmp_path: Path) -> None:
    lines = process(tmp_path / "unused", f"import sys; sys.argv.append({str(tmp_path)!r})\n{_KILLED}").splitlines()
    # 5 parts are written, synced and moved into place; the new entry is there only after that, with no other file
    assert lines == ["old 2"] * 15 + ["old 2"] * 2 + ["old 2", "new 1"] + ["new 1"] * 2


def test_after_a_process_was_killed_while_it_stores_the_next_one_compiles(tmp_path: Path) -> None:
    run = "import numpy as np, fxad as fx; print(fx.jit(lambda x: x * 5.0)(np.ones(2)).tolist(), end=' ')\n"
    kill = "import os, signal; os.replace = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
    count = "print(fx.cache.stats().compilations, fx.cache.stats().disk_hits)"
    assert process(tmp_path / "cache", kill + run + count, -signal.SIGKILL) == ""
    assert len(list((tmp_path / "cache").glob(f"*{UNFINISHED}"))) == 1
    assert process(tmp_path / "cache", run + count) == "[5.0, 5.0] 1 0"
    assert process(tmp_path / "cache", run + count) == "[5.0, 5.0] 0 1"


# ------------------------------------------------------------------------------------------------------- full, rights


def broken(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, refuse)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("name", ["open", "write", "fsync", "replace"])
def test_a_disk_that_refuses_is_a_warning(
    tmp_path: Path, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is correct, the old entry is intact, and no other file remains."""
    d = Directory(tmp_path / "cache", 10_000)
    assert d.write("key", OLD)
    with monkeypatch.context() as patch:
        broken(name, number, patch)
        messages = warnings_of(lambda: [d.write("key", NEW), d.write("other", NEW)])
    assert messages == [f"cache: {d.path} cannot be written: {os.strerror(number)}; nothing is stored"]
    assert d.read("key") == OLD
    assert d.read("other") is None
    assert len(list(Path(d.path).iterdir())) == 1


def test_a_full_disk_does_not_fail_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken("fsync", errno.ENOSPC, monkeypatch)
    with fx.cache.private(dir=tmp_path / "cache") as mine:
        assert len(warnings_of(lambda: fx.jit(lambda x: x * 6.5)(X))) == 1
        assert fx.jit(lambda x: x * 6.5)(X).tolist() == [0, 6.5, 13, 19.5]
        stats = mine.stats()
    assert (stats.compilations, stats.hits, stats.disk_writes) == (1, 1, 0)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """A real limit of the system: the file cannot grow beyond 4,096 bytes."""
    code = """
import resource, warnings
import numpy as np, fxad as fx
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    out = fx.jit(lambda x: x * 5.0)(np.ones(2)).tolist()
print(out, fx.cache.stats().disk_writes, [str(w.message).rpartition("cache ")[2] for w in told])
"""
    home = tmp_path / "cache"
    expected = "[5.0, 5.0] 0 ['cannot be written: File too large; nothing is stored']"
    assert process(home, code) == expected
    assert list(home.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where nobody may")
def test_a_directory_that_is_read_only_is_read(tmp_path: Path) -> None:
    read_only(tmp_path / "cache", lambda home: home.chmod(0o500))


def test_a_directory_on_a_read_only_system_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def freeze(home: Path) -> None:
        broken("utime", errno.EROFS, monkeypatch)
        broken("replace", errno.EROFS, monkeypatch)

    read_only(tmp_path / "cache", freeze)


def read_only(home: Path, freeze: Callable[[Path], None]) -> None:
    with fx.cache.private(dir=home):
        fx.jit(lambda x: x * 7.5)(X)
    freeze(home)
    with fx.cache.private(dir=home) as mine:
        fx.jit(lambda x: x * 7.5)(X)
        assert mine.stats().disk_hits == 1
        assert len(warnings_of(lambda: fx.jit(lambda x: x * 8.5)(X))) == 1


def test_a_directory_removed_while_in_use_is_made_again(tmp_path: Path) -> None:
    home = tmp_path / "cache"
    with fx.cache.private(dir=home) as mine:
        for k in range(3):
            assert fx.jit(lambda x, k=k: x * (k + 0.5))(X).tolist()[1] == k + 0.5
            shutil.rmtree(home)
        assert (mine.stats().compilations, mine.stats().disk_writes) == (3, 3)


def test_a_directory_that_becomes_writable_by_others(tmp_path: Path) -> None:
    d = Directory(tmp_path / "cache", 10_000)
    Path(d.path).chmod(0o777)
    (message,) = warnings_of(lambda: d.write("key", OLD))
    assert message.startswith(f"cache: {d.path} can be written by others (mode 777); nothing is stored")
    assert list(Path(d.path).iterdir()) == []


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    d = Directory(tmp_path / "cache", 10_000)
    Path(d.path).rmdir()
    Path(d.path).write_text("")
    assert len(warnings_of(lambda: [d.read("key"), d.write("key", OLD)])) == 2
    assert d.stats() == (0, 0)
    d.clear()


# ------------------------------------------------------------------------------------------------------- processes


def test_processes_that_write_the_same_entries(tmp_path: Path) -> None:
    """Four processes use ten keys in a tier with room for half of them. Each reads nothing, or a whole entry."""
    code = """
import os, random
from fxad.xla.disk import Directory, DiskEntry
d = Directory(os.environ["FXAD_CACHE_DIR"], 40_000)
random.seed(os.getpid())
for _ in range(200):
    n = random.randrange(10)
    if random.random() < 0.5:
        assert d.write(f"key {n}", DiskEntry({"n": n}, bytes([n]) * 7_000))
    else:
        found = d.read(f"key {n}")
        assert found in (None, DiskEntry({"n": n}, bytes([n]) * 7_000))
"""
    home = tmp_path / "cache"
    running = [started(home, code) for _ in range(4)]
    for p in running:
        _, problem = p.communicate(timeout=300)
        assert p.returncode == 0, problem
    assert {f.suffix for f in home.iterdir()} == {SUFFIX}
    assert Directory(home, 40_000).stats()[1] <= 40_000 + 3 * 7_100


def test_processes_that_compile_the_same_programs(tmp_path: Path) -> None:
    code = """
import numpy as np, fxad as fx
print(*[fx.jit(lambda x: x * k)(np.ones(2)).tolist() for k in (2.0, 3.0)], fx.cache.stats().misses)
"""
    running = [started(tmp_path / "cache", code) for _ in range(3)]
    assert [p.communicate(timeout=300)[0] for p in running] == ["[2.0, 2.0] [3.0, 3.0] 2\n"] * 3
    assert len(list((tmp_path / "cache").iterdir())) == 2


# ------------------------------------------------------------------------------------------------------ whole files


def test_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(str(path), [b"one ", memoryview(bytes(range(2))), b""], 0o600)
    assert path.read_bytes() == b"one \0\1"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        write_whole(str(tmp_path / "not" / "there"), [b""], 0o600)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["n" * 250, "é" * 125])
def test_the_longest_names_of_files(tmp_path: Path, name: str) -> None:
    """Regression: the name of the temporary file was too long for the system."""
    write_whole(str(tmp_path / name), [b"one"], 0o600)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, b"one")]
