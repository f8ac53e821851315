"""The disk tier: executables that are found by later processes, in a directory whose entries are checked before use."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import runtime
from fxad.errors import CacheError, ParameterError
from fxad.support.atomic_file import checksum
from fxad.xla import custom_calls, disk_tier
from fxad.xla.disk import MAGIC, SUFFIX, Directory, DiskEntry
from tests.cache.processes import process, warnings_of

pytestmark = pytest.mark.smoke

X = np.arange(4, dtype=np.float32)
DEVICE = runtime.default_device()
KEY = "program of a test"
STORED = DiskEntry({"seconds": 1.5}, b"payload" * 3)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def small() -> fx.Program[..., Any]:
    return fx.trace(lambda x: fnp.sin(x) * 1.75, X)


def entries(home: Path) -> list[Path]:
    return sorted(home.glob(f"*{SUFFIX}"))


def ran(home: Path, program: fx.Program[..., Any] | None = None) -> runtime.CacheStats:
    """Runs a program with an empty cache over a directory. Checks the result and returns the counters."""
    with fx.cache.private(dir=home) as mine:
        out = (program or small())(X)
        if program is None:
            assert np.allclose(out, np.sin(X) * 1.75)
        return mine.stats()


def counts(stats: runtime.CacheStats) -> tuple[int, int, int]:
    return stats.compilations, stats.disk_hits, stats.disk_writes


# ------------------------------------------------------------------------------------------------ there and back


def test_a_second_cache_finds_what_the_first_compiled(home: Path) -> None:
    assert counts(ran(home)) == (1, 0, 1)
    second = ran(home)
    assert counts(second) == (0, 1, 0)
    assert second.misses == 1
    assert second.seconds == 0
    assert second.seconds_saved > 0
    assert second.bytes > 65536


def test_what_is_found_is_what_was_compiled(home: Path) -> None:
    program = fx.trace(lambda x: fnp.tanh(x @ x.T).sum(), np.ones((8, 8), np.float32))
    found = []
    for _ in range(2):
        with fx.cache.private(dir=home):
            executable = fx.lower(program).compile()
        found.append((executable.memory(), executable.cost(), executable._loaded.hlo()))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]


def test_a_program_with_lapack_is_found_in_another_process(home: Path) -> None:
    code = """
import numpy as np, fxad as fx, fxad.numpy as fnp
out = fx.jit(fnp.linalg.cholesky)(4 * np.eye(3))
print(out.tolist() == (2 * np.eye(3)).tolist(), fx.cache.stats().compilations, fx.cache.stats().disk_hits)
"""
    assert [process(home, code), process(home, code)] == ["True 1 0", "True 0 1"]


_SECOND = """
import numpy as np, fxad as fx, fxad.numpy as fnp
import fxad.execution.executable, fxad.xla.executable

def refuse(*args):
    raise AssertionError("lowered or compiled")

if {second}:
    assert fxad.xla.executable.lower_jaxpr and fxad.xla.executable.compile_module
    fxad.execution.executable.lower_jaxpr = fxad.xla.executable.lower_jaxpr = refuse
    fxad.xla.executable.compile_module = refuse

def loss(w, x):
    for k in range(3):
        x = fnp.tanh(x @ w["layers"][k])
    return (x * x).sum()

w = {{"layers": [np.full((4, 4), 0.1 * k, np.float32) for k in range(3)]}}
x = np.ones((2, 4), np.float32)
first = fx.jit(fx.grad(loss))(w, x)
again = fx.lower(fx.grad(fx.trace(loss, w, x))).compile()(w, x)
eager = fnp.sin(x) + 1.0
print(*[np.asarray(a).tobytes().hex() for a in fx.tree.leaves([first, again, eager])])
assert (fx.cache.stats().compilations == 0) is {second}
"""


def test_a_second_process_neither_lowers_nor_compiles(home: Path) -> None:
    """Up to the first result, which has the same bits."""
    assert process(home, _SECOND.format(second=False)) == process(home, _SECOND.format(second=True))


# twelve layers and their gradient, enough for "auto" to make units
_UNITS = """
import hashlib, numpy as np, fxad as fx, fxad.numpy as N

def loss(params, x):
    for w, s in params:
        h = (x - x.mean(-1, keepdims=True)) / N.sqrt(((x - x.mean(-1, keepdims=True)) ** 2).mean(-1, keepdims=True) + 1)
        x = x + N.tanh(h * s @ w) / (1 + N.exp(-x)) * N.cos(h)
    return N.mean(x * x)

layer = np.linspace(-1, 1, 128 * 128, dtype=np.float32).reshape(128, 128), np.ones(128, np.float32)
args = [layer] * 18, np.linspace(0, 1, 64 * 128, dtype=np.float32).reshape(64, 128)
program = fx.value_and_grad(fx.trace(loss, *args))
plan = fx.lower(program).units
assert len(plan.steps) > len(plan.units) > 1, plan
value, gradient = fx.jit(fx.value_and_grad(loss))(*args)
for x in (value, *[y for layer in gradient for y in layer]):
    print(hashlib.sha256(np.asarray(x).tobytes()).hexdigest())
stats = fx.cache.stats()
assert stats.compilations + stats.disk_hits == len(plan.units)
assert stats.compilations == (0 if {second} else len(plan.units))
"""


def test_a_second_process_compiles_no_unit(home: Path) -> None:
    """A program with units: each unit is found, and the results have the same bits."""
    first = process(home, _UNITS.format(second=False))
    assert len(first.splitlines()) == 37
    assert process(home, _UNITS.format(second=True)) == first


# -------------------------------------------------------------------------------------------------------------- key


def key(**options: Any) -> str:
    return disk_tier.key_of(small().jaxpr, fx.CompileOptions(**options), "s")


def test_the_key_is_the_digest_and_what_compiles() -> None:
    text = disk_tier.key_of(small().jaxpr, fx.CompileOptions(), disk_tier.CompilerConfiguration().of(DEVICE))
    lines = [line.split(" ")[0] for line in text.splitlines()]
    assert lines == ["program", "options", "lowering", "jaxlib", "platform", "device", "processor", "XLA_FLAGS"]
    assert small().jaxpr.digest in text
    assert "jaxlib 0." in text
    assert key() == disk_tier.key_of(fx.trace(lambda y: fnp.sin(y) * 1.75, X).jaxpr, fx.CompileOptions(), "s")
    assert key() != key(donate=(0,))
    assert key() != key(flags=(("xla_cpu_enable_fast_math", True),))


@pytest.mark.parametrize("what", ["lowering", "jaxlib", "platform", "device", "processor", "XLA_FLAGS"])
def test_entries_of_other_configurations_are_not_found(home: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each jaxlib, processor and version of fxad has its own entries in the directory. All are kept."""
    real = disk_tier.CompilerConfiguration().of(DEVICE)
    assert counts(ran(home)) == (1, 0, 1)
    other = re.sub(rf"^{what} .*$", f"{what} another", real, flags=re.MULTILINE)
    assert other != real
    monkeypatch.setattr(disk_tier.CompilerConfiguration, "of", lambda self, device: other)
    assert counts(ran(home)) == (1, 0, 1)
    assert counts(ran(home)) == (0, 1, 0)
    monkeypatch.undo()
    assert counts(ran(home)) == (0, 1, 0)
    assert len(entries(home)) == 2


@pytest.mark.parametrize("source", ["primitives/dot.py", "units/compile_time.py", "transforms/costs.py", "dtypes.py"])
def test_the_sources_that_lower_are_in_the_key(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source.replace("/", os.sep)
    before = disk_tier._digest_of_sources()
    assert before == disk_tier._digest_of_sources()
    read = disk_tier.read
    monkeypatch.setattr(disk_tier, "read", lambda path: read(path) + (b"#" if path.endswith(source) else b""))
    assert disk_tier._digest_of_sources() != before


def test_the_processor_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    info = "processor : 0\nmodel name\t: A\nflags\t\t: sse avx2\ncpu MHz : 1\n\nprocessor : 1\n"
    found = set()
    for text in (info, info.replace("MHz : 1", "MHz : 2"), info.replace("avx2", "avx512f")):
        monkeypatch.setattr(Path, "read_text", lambda p, text=text, **_: text)
        found.add(disk_tier.processor())
    assert len(found) == 2

    def missing(path: Path, **_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert len(disk_tier.processor()) == 64


def test_the_name_of_the_processor_is_read_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's `platform.processor` runs `uname`, which took 5 ms in every second process."""

    def asked() -> str:
        raise AssertionError("platform.processor was asked")

    monkeypatch.setattr("platform.processor", asked)
    if Path("/proc/cpuinfo").exists():
        assert len(disk_tier.processor()) == 64


def test_options_have_their_own_entries(home: Path) -> None:
    program, found = small(), []
    for _ in range(2):
        with fx.cache.private(dir=home) as mine:
            fx.lower(program).compile()
            fx.lower(program).compile(fx.CompileOptions(optimization_level=1))
            found.append(counts(mine.stats()))
    assert found == [(2, 0, 2), (0, 2, 0)]
    assert len(entries(home)) == 2


def test_donation_is_stored(home: Path) -> None:
    program, found = fx.trace(lambda x: x + 1.0, X), []
    for _ in range(2):
        with fx.cache.private(dir=home) as mine:
            run = fx.lower(program).compile(donate=0)
            x = fx.asarray(X)
            assert run(x).tolist() == [1, 2, 3, 4]
            assert x._buffer.is_deleted()
            found.append(counts(mine.stats()))
    assert found == [(1, 0, 1), (0, 1, 0)]


# ---------------------------------------------------------------------------------------------------- the directory


def test_the_directory_and_its_files_are_the_users_own(home: Path) -> None:
    ran(home / "deep" / "er")
    assert (home / "deep" / "er").stat().st_mode & 0o777 == 0o700
    assert [f.stat().st_mode & 0o777 for f in entries(home / "deep" / "er")] == [0o600]


def test_a_directory_others_can_write_to_is_refused(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    before = fx.cache.stats()
    for make in (lambda: fx.Cache(dir=home), lambda: fx.cache.configure(dir=home, max_bytes=1)):
        with pytest.raises(CacheError) as e:
            make()
        assert e.value.message == f"cache: {home} can be written by others (mode 777)"
        assert e.value.remedy == "use a directory of your own that nobody else can write to: chmod 700"
        assert isinstance(e.value, OSError)
    assert fx.cache.stats() == before


def test_a_directory_of_somebody_else_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(CacheError) as e:
        fx.Cache(dir=home)
    assert e.value.message == f"cache: {home} belongs to user {me}"


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError) as e:
        fx.Cache(dir=tmp_path / "file" / "cache")
    assert e.value.message == f"cache: {tmp_path / 'file' / 'cache'} cannot be used: Not a directory"


def test_a_wrong_directory_in_the_environment_is_a_warning(home: Path) -> None:
    code = """
import warnings, numpy as np, fxad as fx
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    fx.jit(lambda x: x * 3.0)(np.ones(3)); fx.jit(lambda x: x * 4.0)(np.ones(3))
print([str(w.message) for w in told], told[0].filename if told else "")
"""
    assert process(home, code) == "[]"
    assert len(entries(home)) == 2
    home.chmod(0o722)
    assert process(home, code) == (
        f"['cache: {home} can be written by others (mode 722) (FXAD_CACHE_DIR); nothing is stored. "
        "use a directory of your own that nobody else can write to: chmod 700'] <string>"
    )
    # a setting that names no directory does not use the wrong one again
    assert process(home, code + "fx.cache.configure(max_bytes=2**20)").startswith("['cache: ")


def test_flags_in_the_environment_that_are_no_text(home: Path, tmp_path: Path) -> None:
    """Regression: a compilation raised a UnicodeEncodeError."""
    code = """
import os
os.environb[b"XLA_FLAGS"] = b"--xla_dump_to=" + os.fsencode(os.environ["FXAD_CACHE_DIR"]) + b"-\\xff"
import numpy as np, fxad as fx
print(fx.jit(lambda x: x * 3.0)(np.ones(2)).tolist(), fx.cache.stats().disk_writes)
"""
    assert process(home, code) == "[3.0, 3.0] 1"


def test_home_is_written_as_users_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Directory("~/cache", 1000).path == str(tmp_path / "cache")


def test_the_home_of_an_unknown_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a directory of that name was made in the working directory."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CacheError) as e:
        Directory("~no_such_user/cache", 1000)
    assert e.value.message == ("cache: ~no_such_user/cache cannot be used: there is no home directory of ~no_such_user")
    assert e.value.remedy == (
        "name a directory that you may make and write to; one in the working directory is ./~no_such_user/cache"
    )
    assert not [*tmp_path.iterdir()]
    assert Directory("./~no_such_user/cache", 1000).path == str(tmp_path / "~no_such_user" / "cache")


def test_budgets_are_numbers(home: Path) -> None:
    with pytest.raises(ParameterError) as e:
        fx.Cache(dir=home, disk_bytes=-1)
    assert e.value.message == "cache: disk_bytes must be a number of bytes, got -1"


def test_configure_changes_what_it_names(home: Path) -> None:
    mine = fx.Cache()
    with mine.use():
        small()(X)
        mine.configure(dir=home)
        mine.clear()
        small()(X)
        assert mine.stats().disk_writes == 1
        mine.configure(disk_bytes=10)
        mine.clear()
        small()(X)
        assert mine.stats().disk_hits == 1  # the directory has not changed
        mine.configure(dir=None)
        mine.clear()
        small()(X)
        assert counts(mine.stats()) == (1, 0, 0)
        mine.configure(dir=home)
        mine.clear(disk=True)
        assert entries(home) == []


def test_the_least_recently_used_entries_are_removed_beyond_the_limit(home: Path) -> None:
    d = Directory(home, 100_000)
    for k in range(40):
        assert d.write(f"key {k}", DiskEntry({}, bytes([k]) * 5_000))
        d.read("key 0")
        for age, path in enumerate([d.file(f"key {n}") for n in range(k)]):
            if age and os.path.exists(path):
                os.utime(path, (age, age))
    number, size = d.stats()
    assert 80_000 < size <= 100_000
    assert number == len(entries(home))
    assert d.read("key 0") is not None
    assert d.read("key 39") is not None
    assert d.read("key 1") is None


def test_an_entry_larger_than_the_limit_is_not_stored(home: Path) -> None:
    d = Directory(home, 1000)
    assert d.write("small", DiskEntry({}, b"x"))
    assert not d.write("large", DiskEntry({}, bytes(1000)))
    assert d.read("small") is not None


def test_unfinished_files_are_removed_after_some_time(home: Path) -> None:
    d = Directory(home, 10_000)
    d.write("a", STORED)
    old, new = (Path(f"{d.file(name)}.4711.0af1.unfinished") for name in ("old", "new"))
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (1, 1))
    d = Directory(home, 10_000)
    d.write("b", STORED)
    assert (old.exists(), new.exists()) == (False, True)
    d.clear()
    assert list(home.iterdir()) == []


def test_an_entry_may_be_cleared_while_it_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d = Directory(home, 10_000)
    written: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: Directory(home, 10_000).clear())
        assert warnings_of(lambda: written.append(d.write("a", STORED))) == []
    assert (written, list(home.iterdir())) == ([False], [])
    assert d.write("a", STORED)


def test_foreign_files_stay(home: Path) -> None:
    home.mkdir()
    digest = "0123456789abcdef" * 4
    mine = [home / name for name in ("mine.txt", "program.fxad", "program.fxad.12.ab.unfinished", f"{digest}.fxad.txt")]
    for file in mine:
        file.write_text("precious" * 100)
        os.utime(file, (1, 1))
    d = Directory(home, 700)
    d.write("a", STORED)
    d.write("b", STORED)
    assert d.stats()[0] == 2
    d.clear()
    assert sorted(home.iterdir()) == sorted(mine)


def test_programs_that_are_saved_among_the_entries_stay(home: Path) -> None:
    ran(home)
    fx.save(small(), home / "mine.fxad")
    fx.Cache(dir=home).clear(disk=True)
    assert fx.load(home / "mine.fxad").jaxpr is small().jaxpr
    assert entries(home) == [home / "mine.fxad"]


@pytest.mark.parametrize(
    ("path", "shown"), [("", "''"), ("a\0b", r"'a\x00b'"), (b"cache", "b'cache'"), (5, "5"), (True, "True")]
)
def test_objects_that_are_no_paths_are_refused(home: Path, path: Any, shown: str) -> None:
    mine = fx.Cache(dir=home)
    for make in (lambda: fx.Cache(dir=path), lambda: mine.configure(dir=path)):
        with pytest.raises(ParameterError) as e:
            make()
        assert e.value.message == f"cache: dir must be the path of a directory, got {shown}"
        assert e.value.remedy == "name one of your own, or give None for none"


# ----------------------------------------------------------------------------------------------------------- damage


def test_every_flipped_byte_is_detected(home: Path) -> None:
    """A flipped bit in magic, checksum, length, header, key or payload of a small entry is detected."""
    Directory(home, 10_000).write(KEY, STORED)
    (path,) = entries(home)
    whole = path.read_bytes()
    for k in range(len(whole)):
        for flip in (1, 128):
            path.write_bytes(whole[:k] + bytes([whole[k] ^ flip]) + whole[k + 1 :])
            (message,) = warnings_of(lambda: nothing(Directory(home, 10_000).read(KEY)))
            problem = "is not an entry of the cache" if k < len(MAGIC) else "is damaged"
            assert message == f"cache: {path} {problem}; it is compiled again"
    path.write_bytes(whole)
    assert Directory(home, 10_000).read(KEY) == STORED


def nothing(value: object) -> None:
    assert value is None


def test_every_other_length_is_detected(home: Path) -> None:
    Directory(home, 10_000).write(KEY, STORED)
    (path,) = entries(home)
    whole = path.read_bytes()
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        assert len(warnings_of(lambda: nothing(Directory(home, 10_000).read(KEY)))) == 1
    path.write_bytes(whole + b"\0")
    assert len(warnings_of(lambda: nothing(Directory(home, 10_000).read(KEY)))) == 1


def forged(home: Path, head: bytes, payload: bytes = b"") -> str:
    """Writes an entry with any contents and a correct checksum. Returns the warning of a read."""
    d = Directory(home, 10_000)
    body = len(head).to_bytes(8, "little") + head + payload
    Path(d.file(KEY)).write_bytes(MAGIC + checksum([body]) + body)
    os.chmod(d.file(KEY), 0o600)
    (message,) = warnings_of(lambda: nothing(d.read(KEY)))
    return message.removeprefix(f"cache: {d.file(KEY)} ").removesuffix("; it is compiled again")


def test_foreign_entries_are_misses(home: Path) -> None:
    assert forged(home, json.dumps({"key": "of another"}).encode()) == "is the entry of another program"
    for head in (b"", b"{", b"[]", b"3", b"{}", b"\xff", b"[" * 5000):
        assert forged(home, head) == "is not an entry that this version of fxad reads"


@pytest.mark.parametrize("fact", ["seconds", "text", "targets"])
@pytest.mark.parametrize("value", [None, "x", float("inf"), [[]]])
def test_an_entry_with_wrong_facts_is_never_an_error(home: Path, fact: str, value: object) -> None:
    ran(home)
    d = Directory(home, 10**7)
    key = disk_tier.key_of(small().jaxpr, fx.CompileOptions(), disk_tier.CompilerConfiguration().of(DEVICE))
    entry = d.read(key)
    assert entry is not None
    d.write(key, DiskEntry({**entry.header, fact: value}, entry.payload))
    found: list[runtime.CacheStats] = []
    warnings_of(lambda: found.append(ran(home)))
    assert found[0].misses == 1


def test_an_entry_that_xla_refuses_is_compiled_again(home: Path) -> None:
    ran(home)
    text = disk_tier.key_of(small().jaxpr, fx.CompileOptions(), disk_tier.CompilerConfiguration().of(DEVICE))
    d = Directory(home, 10**6)
    for header in ({}, {"seconds": 1, "targets": [], "text": 3}, {"seconds": "x", "targets": 3, "text": []}):
        d.write(text, DiskEntry(header, b"no executable"))
        found: list[runtime.CacheStats] = []
        (message,) = warnings_of(lambda: found.append(ran(home)))
        assert message.startswith(f"cache: {d.file(text)} is refused: ")
        assert counts(found[0]) == (1, 0, 1)
        assert counts(ran(home)) == (0, 1, 0)


def test_an_executable_with_a_damaged_byte_is_never_run(home: Path) -> None:
    ran(home)
    (path,) = entries(home)
    whole = path.read_bytes()
    for k in np.linspace(0, len(whole) - 1, 24).astype(int).tolist():
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :])
        found: list[runtime.CacheStats] = []
        assert len(warnings_of(lambda: found.append(ran(home)))) == 1
        assert counts(found[0]) == (1, 0, 1)


def test_a_link_or_a_folder_in_place_of_an_entry_is_a_miss(home: Path, tmp_path: Path) -> None:
    d = Directory(home, 10_000)
    d.write(KEY, STORED)
    path = Path(d.file(KEY))
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "cannot be read" in warnings_of(lambda: nothing(Directory(home, 10_000).read(KEY)))[0]
    others: list[Callable[[], None]] = [path.mkdir, lambda: os.mkfifo(path)]
    for other in others:
        path.unlink() if path.is_symlink() else path.rmdir()
        other()
        assert "is not a file" in warnings_of(lambda: nothing(Directory(home, 10_000).read(KEY)))[0]


def test_an_entry_others_can_write_to_is_a_miss(home: Path) -> None:
    Directory(home, 10_000).write(KEY, STORED)
    (path,) = entries(home)
    path.chmod(0o666)
    (message,) = warnings_of(lambda: nothing(Directory(home, 10_000).read(KEY)))
    assert message == f"cache: {path} can be written by others (mode 666); it is compiled again"


def test_one_warning_for_each_kind_of_trouble(home: Path) -> None:
    d = Directory(home, 10_000)
    for name in "abc":
        d.write(name, STORED)
    for path in entries(home):
        path.write_bytes(b"x")
    assert len(warnings_of(lambda: [d.read(name) for name in "abc"])) == 1


# ----------------------------------------------------------------------------------------------------------- threads


def test_threads_share_a_directory(home: Path) -> None:
    d = Directory(home, 50_000)
    problems = itertools.count()

    def work(k: int) -> None:
        for n in range(40):
            name = f"key {n % 5}"
            d.write(name, DiskEntry({"n": n % 5}, bytes([n % 5]) * 3000))
            found = d.read(name)
            if found is not None and found.payload != bytes([n % 5]) * 3000:
                next(problems)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert next(problems) == 0
    assert d.stats()[0] == 5


# ------------------------------------------------------------------------------------------- what cannot be stored


def test_executables_that_call_back_into_this_process_are_not_stored(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert custom_calls.are_portable(["fxad_getrf_f64", "fxad_potrf_f32"])
    for targets in (["fxad_callback_3"], ["xla_ffi_python_cpu_callback"], ["fxad_getrf_f64", "mine"], ["fxad"]):
        assert not custom_calls.are_portable(targets)
    monkeypatch.setattr(custom_calls, "custom_call_targets", lambda source: frozenset({"xla_ffi_python_cpu_callback"}))
    assert counts(ran(home)) == (1, 0, 0)
    assert entries(home) == []


def test_executables_that_xla_cannot_serialize_are_not_stored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxad.xla.disk_tier.serialized", lambda program: b"")
    assert counts(ran(home)) == (1, 0, 0)


def test_primitives_from_outside_are_not_stored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(small().jaxpr.eqns[0].prim), "__module__", "somebody.elses")
    program = fx.trace(lambda x: fnp.sin(x) * 2.25, X)
    assert not disk_tier.is_storable(program.jaxpr)
    assert counts(ran(home, program)) == (1, 0, 0)


@pytest.mark.parametrize("effect", ["pure", "debug", "ordered", "inside"])
def test_programs_with_functions_of_the_host(home: Path, effect: str) -> None:
    """They run again and again, and in the next process, which compiles them."""
    seen: list[float] = []
    four: Any = fx.Spec((4,))

    def note(x: Any) -> Any:
        seen.append(float(np.sum(x)))
        return x

    def f(x: Any) -> Any:
        if effect == "pure":
            return fx.pure_callback(note, four, fnp.sin(x)) * 2.0
        if effect == "inside":
            twice = fx.lax.scan(lambda s, _: (fx.pure_callback(note, four, s * 2.0), None), x, None, length=2)
            return twice[0]
        fx.debug_callback(note, x, ordered=effect == "ordered")
        return x * 2.0

    for _ in range(2):
        program = fx.trace(f, X)
        with fx.cache.private(dir=home) as mine:
            fx.lower(program).compile()(X).block_until_ready()
            assert counts(mine.stats()) == (1, 0, 0)
            assert mine.stats().bytes > 65536
    wanted, end = 4 if effect == "inside" else 2, time.monotonic() + 60
    while len(seen) < wanted and time.monotonic() < end:  # an effect may come after the results
        time.sleep(0.01)
    assert len(seen) == wanted
    assert entries(home) == []


_UPGRADED = """
import os, sys, warnings
sys.path.insert(0, {root!r})
import fxad as fx, numpy as np
assert fx.__file__.startswith({root!r})
fx.cache.configure(dir={home!r})
if {upgrade}:
    path = os.path.join({root!r}, "fxad", "primitives", "dot.py")
    with open(path + ".new", "w") as new, open(path) as old:
        new.write(old.read() + "# a later version\\n")
    os.replace(path + ".new", path)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fx.jit(lambda x: x * 3)(np.ones(3))
    fx.jit(lambda x: x * 4)(np.ones(3))
print([str(w.message) for w in caught], fx.cache.stats().disk_writes, fx.cache.stats().disk_hits)
"""


def test_a_process_that_runs_while_the_package_is_upgraded_stores_nothing(tmp_path: Path, home: Path) -> None:
    root = str(tmp_path / "site")
    shutil.copytree(Path(fx.__file__).parent, Path(root) / "fxad")

    def run(upgrade: bool) -> str:
        text = _UPGRADED.format(root=root, home=str(home), upgrade=upgrade)
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip()

    assert run(upgrade=True) == f"[{disk_tier._CHANGED!r}] 0 0"
    assert run(upgrade=False) == "[] 2 0"
    assert run(upgrade=False) == "[] 0 2"
