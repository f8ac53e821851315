"""Files may come from anybody: mutated bytes with correct checksums give an fxad error, or an equal program.

Ordinary runs take a small share of the mutations, `make deep` the rest. They run in a child process, so a crash is the
failure of one test and names the mutation. No program that is read is run.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, CacheWarning, FileFormatError, FxadError
from fxad.storage import exported, programs as files
from fxad.storage.file_format import FileSection, pack, unpack
from fxad.storage.tree_structure import structure_from_json
from fxad.support.atomic_file import checksum
from fxad.text import parse, to_text
from fxad.xla.disk import MAGIC, Directory, DiskEntry
from tests.files.classes import Layer, Pair

pytestmark = pytest.mark.smoke

X = np.arange(3, dtype=np.float32)
DEEP: Final = 20_000
HOSTILE: Final[list[Any]] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 10**300, 1.5, -0.0, float("nan"), float("inf"),
    "", "\0", "x", "*", "../../etc", "builtins:eval", "os:system", "fxad:numpy", "é" * 3000, "\ud800", ":", "a..b:c",
    [], [[]], [None], [-1], [0, 0], [2**70], ["*"], [["a", "*"], ["a", "*"]], [[{"list": []}, "*"]],
    {}, {"a": {}}, {"tuple": []}, {"list": ["*"] * 3}, {"dict": [[{"list": []}, "*"]]}, {"dict": [[{}, "*"]]},
    {"deque": ["*"], "maxlen": -1}, {"deque": ["*"], "maxlen": 2**70}, {"deque": ["*"], "maxlen": 0},
    {"defaultdict": [], "factory": "eval"}, {"defaultdict": [], "factory": []}, {"tuple": "abc"}, {"tuple": {"a": 1}},
    {"namedtuple": "tests.files.classes:Pair", "fields": ["left", "right"], "children": ["*"]},
    {"class": "tests.files.classes:Layer", "data": {"list": []}, "entries": ["w", "b"], "children": ["*", "*"]},
    {"float": "nan"}, {"complex": [1]}, {"bytes": "0"}, {"dtype": "object"},
]  # fmt: skip
WORDS: Final = [
    b"0", b"-1", b"9" * 19, b"9" * 300, b"nan", b"-inf", b"f32", b"f32[]", b"f32[0,4611686018427387904]", b"%0",
    b"%arg0", b"@f", b'"', b"(", b")", b"((((", b"[", b"]", b"{", b"}", b"=", b",", b"\0", b"\xff", b"\n", b"#",
    b"none", b"true", b"0x7fc00000", b"complex(1.0, nan)", b"return", b"main", b"fn", b"host_call", b"scan", b"->",
    b"while", b"cond",
]  # fmt: skip


def program() -> fx.Program[..., Any]:
    held = np.array([True, False, True])

    def f(params: Any, x: Any, *, k: Any) -> Any:
        last, ys = lax.scan(lambda c, v: (c + v, fnp.sin(v) * c), k, x)
        y = fx.lax.cond(last > 0, lambda: x @ params["layer"].w, lambda: x * 2.0)
        return Pair(fnp.where(held, y, ys), [fnp.linalg.cholesky(params["layer"].w).sum(), None])

    layer = Layer(w=np.eye(3, dtype=np.float32), b=X, kind="dense", sizes=(3, 3))
    return fx.trace(f, {"layer": layer}, X, k=np.float32(1))


# ---------------------------------------------------------------------------------------------------------- mutations


def bytes_of(random: Random, data: bytes) -> bytes:
    """Returns bytes with a few mutations: flipped, replaced, inserted, moved, removed or truncated."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(out) + 1)
        match random.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << random.randrange(8)
            case 1:
                word = random.choice(WORDS)
                out[at : at + random.choice((0, 1, len(word)))] = word
            case 2:
                del out[at : at + random.randrange(1, 20)]
            case 3:
                start = random.randrange(len(out) + 1)
                out[at : at + random.choice((0, 10))] = out[start : start + random.randrange(80)]
            case 4:
                out[at:at] = random.choice((b"(", b"[", b'{"tuple":[', b"-", b'"', b"0")) * random.choice((3, 99, 9999))
            case _:
                if random.random() < 0.2:
                    del out[at:]
    return bytes(out)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every field of a description."""
    if path:
        yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*path, key))


def fields_of(random: Random, data: bytes) -> bytes:
    """Returns JSON with a field replaced, removed, or duplicated."""
    head = copy.deepcopy(json.loads(data))
    *path, last = random.choice(list(places(head)))
    inside = head
    for key in path:
        inside = inside[key]
    if random.random() < 0.1:
        del inside[last]
    elif random.random() < 0.1:
        old = json.dumps(inside[last])
        inside[last] = "PLACE"
        return json.dumps(head).replace('"PLACE"', "[" * 500 + old + "]" * 500).encode()
    else:
        inside[last] = random.choice(HOSTILE)
    text = json.dumps(head)
    return (text[:-1] + ', "name": "again"}' if random.random() < 0.05 else text).encode()


def sections_of(random: Random, data: bytes, kind: str) -> bytes:
    """Returns sections with one of them mutated, repeated or removed, and correct checksums; or mutated bytes."""
    if random.random() < 0.2:
        return bytes_of(random, data)
    version, sections = unpack("test", data, kind, 2)
    k = random.choice((0, 0, 0, *range(len(sections))))
    chosen = sections[k]
    choice = random.random()
    if choice < 0.05:
        sections.insert(k, random.choice(sections))
    elif choice < 0.1:
        del sections[k]
    else:
        content = (fields_of if k == 0 and random.random() < 0.8 else bytes_of)(random, chosen.content)
        sections[k] = FileSection(chosen.name, content)
        if k == 1 and random.random() < 0.7:  # the digest of the mutated text
            try:
                jaxpr = parse(content.decode())
            except (FxadError, UnicodeDecodeError):
                pass
            else:
                head = {**json.loads(sections[0].content), "digest": jaxpr.digest}
                sections[0] = FileSection("program", json.dumps(head).encode())
    return b"".join(pack(kind, version, sections))


# --------------------------------------------------------------------------------------------------------------- laws

Law = Callable[[int], None]


def exporting() -> Law:
    whole = program()
    data = fx.lower(whole).export()
    types = whole.in_avals, whole.out_avals

    def law(seed: int) -> None:
        made = fx.load_exported(sections_of(Random(seed), data, exported.KIND))
        if made.digest == whole.jaxpr.digest:  # the declared types are those of the program
            assert (made._run.program.in_avals, made._run.program.out_avals) == types

    return law


def loading() -> Law:
    whole = program()
    path = Path(tempfile.mkdtemp()) / "program"
    fx.save(whole, path)
    data = path.read_bytes()

    def law(seed: int) -> None:
        path.write_bytes(sections_of(Random(seed), data, files.KIND))
        found = fx.load(path)
        fx.save(found, path)
        again = fx.load(path)
        assert again.jaxpr is found.jaxpr
        assert str((again.in_tree, again.out_tree)) == str((found.in_tree, found.out_tree))  # nan is not equal to nan
        assert (again.name, again.names, len(again.bound)) == (found.name, found.names, len(found.bound))
        assert len(found.in_avals) + len(found.bound) == len(found.jaxpr.ins)
        assert all([isinstance(p, str) for p in (*found.paths, found.name, *found.names)])

    return law


def parsing() -> Law:
    text = to_text(program().jaxpr).encode()

    def law(seed: int) -> None:
        random = Random(seed)
        found = parse(bytes_of(random, text).decode("utf-8", random.choice(("replace", "surrogateescape"))))
        fx.typecheck(found)
        assert parse(to_text(found)) is found

    return law


def caching() -> Law:
    home = Path(tempfile.mkdtemp())
    home.chmod(0o700)
    facts = {"seconds": 1.5, "targets": ["fxad_potrf_f32"], "text": 300}
    head = json.dumps({"key": "key", **facts}, sort_keys=True).encode()

    def law(seed: int) -> None:
        random, d = Random(seed), Directory(home, 10**7)
        mutated = (fields_of if random.random() < 0.7 else bytes_of)(random, head)
        length = random.choice((len(mutated), len(mutated), 0, 2**63, 2**64 - 1))
        body = length.to_bytes(8, "little") + mutated + b"payload"
        whole = MAGIC + checksum([body]) + body
        path = Path(d.file("key"))
        path.write_bytes(bytes_of(random, whole) if random.random() < 0.2 else whole)
        path.chmod(0o600)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            found = d.read("key")
        assert found is None or isinstance(found, DiskEntry)

    return law


LAWS: Final[dict[str, Callable[[], Law]]] = {
    "load_exported": exporting, "load": loading, "parse": parsing, "cache": caching,
}  # fmt: skip


def main(name: str, first: int, last: int) -> None:
    """Runs mutations of one law. The first failure ends the process."""
    law = LAWS[name]()
    for seed in range(first, last):
        sys.stderr.write(f"{seed}\r")  # the last seed that is printed names a crash
        sys.stderr.flush()
        try:
            law(seed)
        except FxadError as e:
            assert e.message, seed  # noqa: PT017
        except BaseException:
            traceback.print_exc()
            raise SystemExit(f"seed {seed}") from None


def check(name: str, first: int, last: int) -> None:
    code = f"from tests.files.test_forged import main; main({name!r}, {first}, {last})"
    with tempfile.TemporaryDirectory(prefix="fxad-forged-") as home:  # a crashed process does not remove its files
        environment = {**os.environ, "FXAD_CACHE_DIR": "", "TMPDIR": home}
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment, errors="replace"
        )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])


@pytest.mark.parametrize(("name", "n"), [("load_exported", 40), ("load", 150), ("parse", 150), ("cache", 150)])
def test_mutations_are_refused_or_equal(name: str, n: int) -> None:
    check(name, 0, n)


@pytest.mark.deep
@pytest.mark.parametrize("name", LAWS)
def test_many_mutations_are_refused_or_equal(name: str) -> None:
    check(name, 1000, 1000 + (DEEP // 10 if name == "load_exported" else DEEP))


# ------------------------------------------------------------------------------------------------ what is no such file


def refused(path: object) -> FxadError:
    with pytest.raises(FxadError) as e:
        fx.load(path)  # type: ignore[arg-type]
    assert e.value.remedy
    return e.value


def test_reading_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        assert refused(path).message == f"load: {path} is not a regular file"


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    """Regression: `fx.save(p, "/dev/null")` as root replaced /dev/null by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tree_save: Any = fx.tree.save
    for name, save in (
        ("save", lambda path: fx.save(program(), path)),
        ("tree.save", lambda path: tree_save(path, {"a": 1})),
    ):
        with pytest.raises(FxadError) as e:
            save(pipe)
        assert e.value.message == f"{name}: {pipe} is not a regular file"
        assert pipe.is_fifo()


class NoPath:
    """A path whose name is a number."""

    def __fspath__(self) -> Any:
        return 3

    def __repr__(self) -> str:
        return "a NoPath"


def test_objects_that_are_no_paths_are_refused(tmp_path: Path) -> None:
    cases = [
        ("a\0b", "'a\\x00b'"),
        ("a\ud800", "'a\\ud800'"),
        ("", "''"),
        (3, "3"),
        (None, "None"),
        (b"a\0", "b'a\\x00'"),
        (NoPath(), "a NoPath"),
    ]
    for path, shown in cases:
        e = refused(path)
        assert (type(e), e.message) == (ArgumentError, f"load: {shown} is not the path of a file")
        with pytest.raises(ArgumentError) as saved:
            fx.save(program(), path)  # type: ignore[arg-type]
        assert saved.value.message == f"save: {shown} is not the path of a file"
    with pytest.raises(OSError, match="File name too long"):
        fx.load("x" * 5000)


@pytest.mark.parametrize("number", ["0", "-1", "01", "1.0", "9" * 300, "", " ", "\u00b2"])
def test_versions_are_whole_numbers_from_1(tmp_path: Path, number: str) -> None:
    path = tmp_path / "f"
    path.write_text(f"fxad program {number}\n")
    shown = "is not what fxad wrote: it does not begin with 'fxad program' and a version"
    assert refused(path).message == f"load: {path} {shown}"


def test_a_large_file_of_another_kind_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(200 * 10**9)
    assert refused(path).message.startswith(f"load: {path} is not what fxad wrote")


@pytest.mark.parametrize("begin", [b"", MAGIC])
def test_a_large_entry_of_the_cache_is_a_miss(tmp_path: Path, begin: bytes) -> None:
    d = Directory(tmp_path / "cache", 10**6)
    path = Path(d.file("key"))
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(200 * 10**9)
    path.chmod(0o600)
    with pytest.warns(CacheWarning) as warned:
        assert d.read("key") is None
    message = f"cache: {path} has 200000000000 bytes, more than an entry can have; it is compiled again"
    assert [str(w.message) for w in warned] == [message]


def described(**entries: Any) -> str:
    """Returns the message for an exported program with changed fields in its description."""
    version, sections = unpack("test", fx.lower(fx.trace(lambda x: x + HELD, X)).export(), exported.KIND, 1)
    head = {**json.loads(sections[0].content), **entries}
    content = json.dumps(head).encode()
    data = b"".join(pack(exported.KIND, version, [FileSection("program", content), *sections[1:]]))
    with pytest.raises(FileFormatError) as e:
        fx.load_exported(data)
    assert e.value.remedy
    return re.sub(r"byte \d+", "byte N", e.value.message).removeprefix("load_exported: the program")


HELD: Final = np.ones(3, np.float32)
DAMAGED: Final = " is damaged: byte N: "


def arguments(tree: Any) -> Any:
    return {"tuple": [{"tuple": [tree]}, {"dict": []}]}


def test_descriptions_that_do_not_fit() -> None:
    section = f"{DAMAGED}section program:"
    assert described(names=[3]) == f"{section} names has 3"
    assert described(name=3) == f"{section} name is 3"
    assert described(arrays=["pickle"]) == f"{section} arrays has 'pickle'"
    assert described(donate=[0]) == f"{section} donate is [0], the operands are 1 to 1"  # closed-over arrays
    assert described(donate=[2**70]) == f"{section} donate is [{2**70}], the operands are 1 to 1"
    assert described(platforms=[[]]) == f"{section} platforms is [[]]"
    assert described(digest="0") == f"{DAMAGED}the text is that of another program than its digest names"
    assert described(results=[]) == ": results: [] describes no pytree"
    assert described(results={"tuple": ["*"] * 2}) == f"{DAMAGED}the trees do not fit the program"
    keyword = {"tuple": [{"tuple": []}, {"dict": [[3, "*"]]}]}
    assert described(arguments=keyword) == f"{DAMAGED}the trees do not fit the program"


def test_impossible_trees_are_refused() -> None:
    cases: list[tuple[Any, str]] = [
        ({"deque": ["*"], "maxlen": -1}, "a deque of 1 has maxlen -1"),
        ({"deque": ["*"], "maxlen": 2**70}, f"a deque of 1 has maxlen {2**70}"),
        ({"deque": ["*"], "maxlen": True}, "a deque of 1 has maxlen True"),
        ({"deque": ["*"], "maxlen": 0}, "a deque of 1 has maxlen 0"),
        ({"defaultdict": [["a", "*"]], "factory": "eval"}, "'eval' makes no values of a defaultdict"),
        ({"dict": [[{"list": ["a"]}, "*"]]}, "{'list': ['a']} is not a key"),
        ({"dict": [["a", "*"], ["a", None]]}, "[['a', '*'], ['a', None]] has a key twice"),
        ({"dict": [[1.5, "*"]]}, "1.5 is not a value"),
        ({"namedtuple": 3, "fields": [], "children": []}, "3 is not the name of a class"),
        (
            {"namedtuple": "tests.files.classes:Pair", "fields": ["left", "right"], "children": ["*"]},
            "tests.files.classes:Pair has 2 fields, here are 1",
        ),
    ]
    for tree, problem in cases:
        assert described(arguments=arguments(tree)) == f": arguments: {problem}"


def test_a_tree_that_is_nested_too_deeply() -> None:
    nest: Any = "*"
    for _ in range(5000):
        nest = {"list": [nest]}
    with pytest.raises(FileFormatError, match=r"^load: f: the tree is nested too deeply\n"):
        structure_from_json(nest, "load: f", imports=False)


def test_a_text_that_calls_the_host_is_not_loaded() -> None:
    program = fx.trace(lambda x: fx.pure_callback(lambda v: v, fx.Spec((3,)), x), X)
    text, digest = to_text(program.jaxpr).encode(), program.jaxpr.digest
    head = {"name": "f", "names": [], "arguments": arguments("*"), "results": "*", "digest": digest, "arrays": []}
    n = len(program.jaxpr.ins)
    head["arguments"] = {"tuple": [{"tuple": ["*"] * n}, {"dict": []}]}
    head |= {"platforms": ["cpu"], "donate": []}
    sections = [FileSection("program", json.dumps(head).encode()), FileSection("text", text)]
    with pytest.raises(FileFormatError, match=r"the text calls '<lambda>', a Python function of some process"):
        fx.load_exported(b"".join(pack(exported.KIND, 1, sections)))
