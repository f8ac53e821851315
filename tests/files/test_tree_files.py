"""Trees of arrays in safetensors files: the same bits, written whole or not at all, and clear errors for other
files."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
from collections import OrderedDict, namedtuple
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, optim
from fxad.errors import ArgumentError, DTypeError, ExecutionError, FileFormatError, FxadError, ShapeError
from fxad.storage import arrays as files
from fxad.storage.arrays import load, save
from tests.processes import run_python


@fx.tree.dataclass
class Layer:
    w: Any
    b: Any


Pair = namedtuple("Pair", "x y")  # noqa: PYI024  what is tested


def bits(x: Any) -> bytes:
    return np.asarray(x).tobytes()


def same(got: Any, expected: Any) -> None:
    assert fx.tree.structure(got) == fx.tree.structure(expected)
    for x, y in zip(fx.tree.leaves(got), fx.tree.leaves(expected), strict=True):
        assert isinstance(x, fx.Array)
        assert (x.shape, x.dtype, bits(x)) == (y.shape, y.dtype, bits(y))


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"^tree.save: the name '\\ud800.w' of a leaf is no text of Unicode\n") as e:
        save(tmp_path / "a.safetensors", {"\ud800": {"w": 1.0}})
    assert e.value.remedy == "rename the keys on its path: a surrogate alone is no character"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)], ids=str)
def test_every_dtype_and_shape_keeps_its_bits(tmp_path: Path, dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    path = tmp_path / "a.safetensors"
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(0).integers(0, 2 if dtype == dtypes.bool_ else 256, count, np.uint8)
    x = fnp.asarray(raw.view(dtype).reshape(shape))
    save(path, {"x": x, "y": [x]})
    same(load(path), {"x": x, "y": [x]})
    same(load(path, {"y": [fx.Spec(shape, dtype)]}), {"y": [x]})


def test_the_library_of_the_format_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save(path, {"layers": [Layer(fnp.ones((2, 3)), fnp.zeros(3, "bfloat16"))]})
    read = safetensors.numpy.load_file(path)
    assert {k: (v.shape, v.dtype.name) for k, v in read.items()} == {
        "layers.0.w": ((2, 3), "float32"),
        "layers.0.b": ((3,), "bfloat16"),
    }


def test_a_file_of_another_writer_is_a_dict(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    b = np.arange(4).astype(ml_dtypes.float8_e5m2)
    safetensors.numpy.save_file({"model.w": np.ones((2, 2), "f"), "model.b": b}, path, {"format": "pt"})
    same(load(path), {"model.w": fnp.ones((2, 2)), "model.b": fnp.asarray(b)})
    same(load(path, {"model": {"w": np.zeros((2, 2), "f")}}), {"model": {"w": fnp.ones((2, 2))}})


TREES: dict[str, Any] = {
    "an array": fnp.arange(3),
    "nothing": None,
    "no leaves": {"a": (), "b": None},
    "mixed": {"a": [fnp.ones(1), (fnp.zeros(2),)], "b": OrderedDict(x=Pair(fnp.ones(2), Layer(fnp.ones(2), None)))},
    "the state of an optimiser": optim.adam(0.1).init({"w": fnp.ones((2, 2)), "b": [fnp.ones(2)]}),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_trees_come_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.safetensors"
    save(path, TREES[name])
    same(load(path), TREES[name])
    same(load(path, TREES[name]), TREES[name])


def test_different_keys_with_equal_paths_are_distinguished(tmp_path: Path) -> None:
    tree = {"a.b": fnp.ones(1), "a": {"b": fnp.zeros(1)}, "__metadata__": fnp.ones(3)}
    save(tmp_path / "a", tree)
    same(load(tmp_path / "a"), tree)


@fx.tree_util.register_pytree_with_keys_class
class Alike:
    """A class that gives both children the same key."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        return [(fx.tree_util.GetAttrKey("part"), part) for part in self.parts], None

    @classmethod
    def tree_unflatten(cls, _: None, parts: Any) -> Alike:
        return cls(*parts)


ZEROS, ONES, TWOS = np.zeros(2, "f"), np.ones(2, "f"), np.full(2, 2, "f")
SPEC = fx.Spec((2,))


@pytest.mark.parametrize(
    ("tree", "parts", "names"),
    [
        ({"a": {"b": ZEROS}, "a.b": ONES}, [{"a.b": ONES}, {"a": {"b": ZEROS}}], ["a.b", r"a\.b"]),
        ({"a": [ZEROS], "a.0": ONES}, [{"a.0": ONES}, {"a": [ZEROS]}, {"a": {"0": ZEROS}}], ["a.0", r"a\.0"]),
        ({1: ZEROS, "1": ONES}, [{1: ZEROS}, {"1": ONES}], ["1", "1#2"]),
        ({"": ZEROS, "value": ONES}, [{"": ZEROS}, {"value": ONES}], ["value", "value#2"]),
        ({r"a\.b": TWOS, "a": {"b": ZEROS}, "a.b": ONES}, [{r"a\.b": TWOS}], ["a.b", r"a\.b", r"a\.b#2"]),
        ({"a.b": [ZEROS], "c": ONES}, [{"a": {"b": [ZEROS]}}, {"a.b.0": ZEROS}], ["a.b.0", "c"]),
        ([Layer(ZEROS, ONES)], [{"0": {"b": ONES}}, {"0.w": ZEROS}], ["0.b", "0.w"]),
        ({"x": Alike(ZEROS, ONES), "y": TWOS}, [{"x": Alike(ZEROS, ONES)}], ["x.part", "x.part#2", "y"]),
    ],
)  # fmt: skip
def test_a_part_of_a_saved_tree_is_found(tmp_path: Path, tree: Any, parts: list[Any], names: list[str]) -> None:
    path = tmp_path / "a"
    save(path, tree)
    assert sorted(safetensors.numpy.load_file(path)) == names
    for part in [tree, *parts]:
        same(load(path, fx.tree.map(lambda _: SPEC, part)), fx.tree.map(fnp.asarray, part))


def test_files_with_the_names_of_earlier_versions_are_read(tmp_path: Path) -> None:
    head: dict[str, Any] = {
        "version": 1,
        "tree": {"dict": [["a", {"dict": [["b", "*"]]}], ["a.b", "*"], ["c", {"class": "gone:Class", "data": None,
                 "entries": ["w", {"attribute": "b"}],
                 "children": ["*", {"namedtuple": "gone:Pair", "children": ["*"]}]}],
                 ["d", {"deque": [None, "*"], "maxlen": None}], ["e", {"defaultdict": [[{"float": "0x1p0"}, "*"]]}]]},
        "names": ["a.b", "a.b#2", "c.w", "c.b.0", "d.1", "e.1.0"],
        "dtypes": {},
    }  # fmt: skip
    arrays = {name: np.full(2, k, "f") for k, name in enumerate(head["names"])}
    safetensors.numpy.save_file(arrays, tmp_path / "a", {"fxad": json.dumps(head)})
    parts: list[tuple[Any, int]] = [
        ({"a": {"b": SPEC}}, 0), ({"a.b": SPEC}, 1), ({"a.b#2": SPEC}, 1), ({"c": {"w": SPEC}}, 2),
        ({"c": {"b": [SPEC]}}, 3), ({"d": {1: SPEC}}, 4), ({"e": {1: SPEC}}, 5), ({"e": {1.0: SPEC}}, 5),
    ]  # fmt: skip
    for like, number in parts:
        same(load(tmp_path / "a", like), fx.tree.map(lambda _, k=number: fnp.full(2, k, "float32"), like))


def test_ambiguous_leaves_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    choose = "load the file without `like=`, and choose among its arrays"
    save(path, {"a.b": {"c": ZEROS}, "a": {"b.c": ONES}})
    e = failure(lambda: load(path, {"a": {"b": {"c": SPEC}}}))
    assert (type(e), e.message, e.remedy) == (
        FileFormatError,
        f"tree.load: {path}: 1 leaf of like (like['a']['b']['c']) may be each of 2 arrays (a.b\\.c, a\\.b.c)",
        choose,
    )
    save(path, {"a.b": ONES})
    e = failure(lambda: load(path, {"a": {"b": SPEC}, "a.b": SPEC}))
    assert e.message == f"tree.load: {path} has no like['a']['b']; it has a.b"
    safetensors.numpy.save_file({"a.b": ONES}, path)
    e = failure(lambda: load(path, {"a": {"b": SPEC}, "a.b": SPEC}))
    assert (e.message, e.remedy) == (
        f"tree.load: {path}: 2 leaves of like (like['a']['b'], like['a.b']) may be each of 1 array (a.b)",
        choose,
    )
    same(load(path), {"a.b": fnp.asarray(ONES)})
    described = {"class": "gone:Class", "entries": ["w"], "children": []}
    for tree, problem in [
        (described, "'gone:Class' has 1 keys and 0 children"),
        ([], "[] describes no pytree"),
        ({"dict": [["w"]]}, "[['w']] describes no keys and values"),
        ("*", "the tree has 1 leaves and 2 names"),
    ]:
        head = {"version": 1, "tree": tree, "names": ["a.b", "c"], "dtypes": {}}
        safetensors.numpy.save_file({"a.b": ONES, "c": ONES}, path, {"fxad": json.dumps(head)})
        e = failure(lambda: load(path, {"a.b": SPEC}))
        assert (type(e), e.message) == (FileFormatError, f"tree.load: {path}: {problem}")


def test_numbers_and_numpy_arrays_become_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    save(path, {"n": 3, "x": 0.5, "c": columns, "strided": columns[:, ::2]})
    got = load(path)
    names = {"n": "int32", "x": "float32", "c": "float64", "strided": "float64"}
    assert {k: v.dtype.name for k, v in got.items()} == names
    np.testing.assert_array_equal(np.asarray(got["c"]), columns)
    np.testing.assert_array_equal(np.asarray(got["strided"]), columns[:, ::2])


def test_training_goes_on_where_it_stopped_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    optimiser = optim.adam(0.1)
    w = fnp.ones(3)
    state = optimiser.init(w)
    for _ in range(3):
        updates, state = optimiser.update(w, state, w)
        w = optim.apply_updates(w, updates)
    save(path, {"w": w, "state": state})
    code = (
        "import sys, fxad.optim; from fxad.storage.arrays import load; import numpy as np;"
        " t = load(sys.argv[1]); w = np.asarray(t['w']).tobytes().hex();"
        " print(type(t['state']).__name__, w, 'jax' in sys.modules)"
    )
    assert run_python(code, path).split() == ["AdamState", bits(w).hex(), "False"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    save(path, {"x": fnp.ones(3)})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(path, {"x": fnp.zeros(3)})
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["a.safetensors"]
    same(load(path), {"x": fnp.ones(3)})


def failure(call: Any) -> FxadError:
    with pytest.raises(FxadError) as caught:
        call()
    return caught.value


def test_leaves_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save(path, {"w": fnp.ones((2, 3)), "b": fnp.zeros(3)})
    what = f"tree.load: {path}"
    remedy = "give `like=` a tree of the structure that was saved, or a part of it"
    e = failure(lambda: load(path, {"w": fnp.ones((3, 2))}))
    assert (type(e), e.message, e.remedy) == (ShapeError, f"{what}: w has shape (2, 3), like has (3, 2)", remedy)
    e = failure(lambda: load(path, {"w": fx.Spec((2, 3), "float64")}))
    assert (type(e), e.message) == (DTypeError, f"{what}: w has dtype float32, like has float64")
    e = failure(lambda: load(path, {"w": SimpleNamespace(shape=6, dtype="float32")}))
    assert (type(e), e.message) == (ShapeError, f"{what}: w has shape (2, 3), like has 6")
    e = failure(lambda: load(path, {"w": np.ones((2, 3), ">f4")}))
    assert (type(e), e.message) == (DTypeError, f"{what}: w has dtype float32, like has >f4")
    e = failure(lambda: load(path, {"w": 0, "v": [1, 2, 3, 4]}))
    assert (type(e), e.message) == (FileFormatError, f"{what} has no v.0, v.1, v.2 and 1 more; it has b, w")
    e = failure(lambda: save(path, {"w": [fnp.ones(2), "text"]}))
    assert (type(e), e.message, e.remedy) == (
        ArgumentError,
        "tree.save: tree['w'][1] is a str, not an array: 'text'",
        "save a tree of arrays and numbers",
    )
    for leaf, kind, problem in (
        (np.ones(2, ">f4"), DTypeError, "dtype('>f4') is not a dtype of fxad"),
        (np.array([None]), DTypeError, "dtype('O') is not a dtype of fxad"),
        (2**40, DTypeError, "1099511627776 does not fit in int32"),
        (np.ma.array([1.0]), ArgumentError, "a masked array is not taken: its mask would be lost"),
    ):
        e = failure(lambda leaf=leaf: save(path, {"w": leaf}))
        assert (type(e), e.message) == (kind, f"tree.save: tree['w']: {problem}")
    e = failure(lambda: fx.trace(lambda x: save(path, [x]), fnp.ones(2)))
    assert type(e) is ArgumentError
    assert e.message.startswith("tree.save: tree[0] is ")
    assert e.remedy == "save values: call tree.save eagerly"
    deleted = fnp.ones(2) + 1
    deleted.delete()
    e = failure(lambda: save(path, {"w": deleted}))
    assert (type(e), e.message) == (ExecutionError, "tree.save: tree['w']: the array is deleted")
    e = failure(lambda: save("", {}))
    assert e.message == "tree.save: '' is not the path of a file"
    e = failure(lambda: load(tmp_path))
    assert e.message == f"tree.load: {tmp_path} is not a regular file"
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert failure(lambda: load(tmp_path / "pipe")).message == f"tree.load: {tmp_path / 'pipe'} is not a regular file"


def with_head(path: Path, head: object) -> None:
    """Writes a file with other metadata."""
    save_file = safetensors.numpy.save_file
    save_file({"x": np.ones(3, "f")}, path, {"fxad": head if isinstance(head, str) else json.dumps(head)})


GOOD: dict[str, Any] = {"version": 1, "tree": {"dict": [["x", "*"]]}, "names": ["x"], "dtypes": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"version": 0}, {"version": None}, {"version": True}, {"names": []}, {"names": ["y"]},
        {"names": "x"}, {"names": [3]}, {"names": None}, {"tree": "*"}, {"tree": {"class": "os:system"}},
        {"tree": 3}, {"tree": None}, {"dtypes": {"x": "complex128"}}, {"dtypes": {"x": "float32"}},
        {"dtypes": {"x": "nonsense"}}, {"dtypes": []}, {"dtypes": {"x": 3}},
    ],
    ids=str,
)  # fmt: skip
def test_forged_metadata_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "a"
    with_head(path, GOOD)
    same(load(path), {"x": fnp.ones(3)})
    with_head(path, GOOD | change)
    if change == {"tree": "*"}:
        same(load(path), fnp.ones(3))
    else:
        assert isinstance(failure(lambda: load(path)), FxadError)
    with_head(path, "[" * 100_000)
    assert failure(lambda: load(path)).message == f"tree.load: {path}: its metadata do not describe a tree"


@given(st.randoms(use_true_random=False))
def test_damaged_files_are_errors_of_fxad_or_trees(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    path = tmp_path_factory.mktemp("forged") / "a"
    save(path, {"w": fnp.ones((2, 3)), "f": fnp.ones(2, "float8_e5m2"), "c": fnp.ones(2, "complex128")})
    content = bytearray(path.read_bytes())
    size = struct.unpack("<Q", content[:8])[0]
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(4)
        at = rng.randrange(min(8 + size, len(content)) if kind < 2 else len(content))
        if kind == 0:
            content[at] = rng.randrange(256)
        elif kind == 1:
            content[at : at + rng.randrange(20)] = rng.randbytes(rng.randrange(20))
        elif kind == 2:
            del content[at:]
        else:
            content[:8] = struct.pack("<Q", rng.choice([0, 1, size - 1, size + 1, 2**63, 2**64 - 1]))
        if not content:
            break
    path.write_bytes(content)
    with suppress(FxadError):
        load(path)


def test_refusals_in_full(tmp_path: Path) -> None:
    wrote = "name a file of the safetensors format, as fxad.tree.save writes it"
    path = tmp_path / "tree"
    where = os.path.abspath(path)
    refused: list[tuple[str, str]] = []

    def told(**changed: object) -> None:
        arrays = {"a": np.zeros(3, np.uint8)}
        head = {"version": 1, "names": ["a"], "dtypes": {}, "tree": json.loads(whole), **changed}
        safetensors.numpy.save_file(arrays, path, metadata={files._METADATA: json.dumps(head)})
        e = failure(lambda: load(path))
        refused.append((e.message, e.remedy))

    save(path, [np.zeros(3, np.uint8)])
    with safetensors.safe_open(path, "numpy") as file:
        whole = json.dumps(json.loads(file.metadata()[files._METADATA])["tree"])
    told(version=99)
    told(names=3)
    told(names=["a", "b"])
    told(dtypes={"a": "float8_e5m2"})
    assert refused == [
        (
            f"tree.load: {where} was written by a version of fxad that writes version 99, this one reads 1",
            "install a later fxad",
        ),
        (f"tree.load: {where}: its metadata do not describe a tree", wrote),
        (f"tree.load: {where}: the tree has 1 leaves and 2 names", wrote),
        (f"tree.load: {where}: a is not the bytes of a float8_e5m2 array", wrote),
    ]
    entry = json.dumps({"a": {"dtype": "F8_E8M0", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(struct.pack("<Q", len(entry)) + entry + b"\0")
    other = failure(lambda: load(path))
    assert other.message == f"tree.load: {where}: a has dtype F8_E8M0, which fxad does not have"
    folder = failure(lambda: load(tmp_path))
    assert folder.message == f"tree.load: {os.path.abspath(tmp_path)} is not a regular file"
    assert folder.remedy == wrote


def test_a_folder_is_not_written(tmp_path: Path) -> None:
    program = fx.trace(lambda x: x + 1, np.float32(1))
    for case, name in ((lambda: fx.save(program, tmp_path), "save"), (lambda: save(tmp_path, {}), "tree.save")):
        e = failure(case)
        assert (type(e), e.message, e.remedy) == (
            FileFormatError,
            f"{name}: {tmp_path} is a folder",
            "name a file in it",
        )
    new = os.path.join(tmp_path, "new", "")
    for case, name in ((lambda: fx.save(program, new), "save"), (lambda: save(new, {}), "tree.save")):
        assert failure(case).message == f"{name}: {tmp_path / 'new'} is a folder"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a" * 255, "\u00e9" * 127, "\udcff"], ids=["long", "two bytes", "no UTF-8"])
def test_every_name_of_a_file_is_taken(tmp_path: Path, name: str) -> None:
    program = fx.trace(lambda x: x + 1, np.float32(1))
    fx.save(program, tmp_path / name)
    assert fx.load(tmp_path / name) == program
    save(tmp_path / name, {"w": fnp.ones(3)})
    same(load(tmp_path / name), {"w": fnp.ones(3)})
    assert os.listdir(tmp_path) == [name]


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    for path, error in ((tmp_path / "none" / "a", FileNotFoundError), (tmp_path / ("a" * 256), OSError)):
        with pytest.raises(error) as e:
            save(path, {"w": fnp.ones(3)})
        assert isinstance(e.value, OSError)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left on device") as e:
        save(tmp_path / "a", {})
    assert (e.value.errno, e.value.filename) == (28, str(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="files have no such modes")
def test_files_have_the_mode_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    save(tmp_path / "tree", {"w": fnp.ones(3)})
    fx.save(fx.trace(lambda x: x + 1, np.float32(1)), tmp_path / "program")
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
