"""`save` and `load`: the program, its trees and its arrays, bit for bit; and errors for other files."""

from __future__ import annotations

import collections
import gc
import json
import os
import re
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyrsistent
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, tree
from fxad.errors import ArgumentError, FileFormatError
from fxad.storage.file_format import FileSection, pack, unpack
from fxad.storage.tree_structure import structure_from_json, structure_to_json
from fxad.support.atomic_file import FOLLOWING, open_file
from fxad.testing import programs
from fxad.tracing.program import Program
from tests.cache.processes import process
from tests.files.classes import Boxed, Layer, Pair, Record

X = np.arange(3, dtype=np.float32)
GOLDEN = Path(__file__).parent / "data" / "program-v1.fxad"


def there_and_back(program: Any, path: Path) -> Any:
    fx.save(program, path / "program.fxad")
    return fx.load(path / "program.fxad")


def same(a: Any, b: Any) -> None:
    """The programs are equal, and their closed-over arrays have the same bits."""
    assert b.jaxpr is a.jaxpr
    assert (b.in_tree, b.out_tree, b.names, b.name) == (a.in_tree, a.out_tree, a.names, a.name)
    assert len(a.bound) == len(b.bound)
    for x, y in zip(a.bound, b.bound, strict=True):
        assert type(x) is type(y)
        assert (np.asarray(x).dtype, np.asarray(x).shape) == (np.asarray(y).dtype, np.asarray(y).shape)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


# ---------------------------------------------------------------------------------------------------- there and back


def loss(params: Any, x: Any, *, scale: float = 1.0) -> Any:
    for layer in params["layers"]:
        x = fnp.tanh(x @ layer.w + layer.b)
    return {"loss": (x * x).sum() * scale, "last": (x, None)}


def network() -> Program[..., Any]:
    layers = [Layer(w=np.ones((3, 3), np.float32), b=X) for _ in range(2)]
    return fx.trace(loss, {"layers": layers}, X, scale=2.0)


def test_a_loaded_program_is_the_program(tmp_path: Path) -> None:
    program = network()
    loaded = there_and_back(program, tmp_path)
    same(program, loaded)
    assert loaded == program
    args = ({"layers": [Layer(w=0.1 * np.eye(3, dtype=np.float32), b=X)] * 2}, X)
    assert loaded(*args, scale=0.5)["loss"].tolist() == program(*args, scale=0.5)["loss"].tolist()


def test_a_loaded_program_can_be_transformed(tmp_path: Path) -> None:
    program: Any = fx.trace(lambda p, x: (fnp.sin(x) * p["w"]).sum(), {"w": X}, X)
    loaded = there_and_back(program, tmp_path)
    assert fx.grad(loaded) == fx.grad(program)
    assert fx.vmap(loaded, axis_size=2) == fx.vmap(program, axis_size=2)
    assert fx.lower(loaded).text() == fx.lower(program).text()
    assert fx.grad(loaded)({"w": X}, X)["w"].tolist() == pytest.approx(np.sin(X).tolist())
    run: Any = fx.lower(fx.grad(fx.remat(loaded))).compile()
    assert run({"w": X}, X)["w"].shape == (3,)


def test_a_saved_program_loads_after_the_original_was_freed(tmp_path: Path) -> None:
    fx.save(fx.trace(lambda x: fnp.cos(x) * 3.125, X), tmp_path / "f")
    gc.collect()
    assert fx.load(str(tmp_path / "f"))(X).tolist() == pytest.approx((np.cos(X) * 3.125).tolist())


def test_an_executable_is_saved_as_its_program(tmp_path: Path) -> None:
    program = fx.trace(lambda x: x * 2.0, X)
    assert there_and_back(fx.lower(program).compile(), tmp_path) == program


@given(programs())
def test_every_program(jaxpr: fx.Jaxpr) -> None:
    n = len(jaxpr.ins)
    program: Program[..., Any] = Program(jaxpr, tree.structure(((0,) * n, {})), tree.structure([0] * len(jaxpr.outs)))
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"fxad-{os.getpid()}.fxad"
    try:
        fx.save(program, path)
        assert fx.load(path) == program
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0, 3)], ids=str)
@pytest.mark.parametrize("holder", [fx.asarray, lambda x: x], ids=["fxad", "numpy"])
def test_arrays_closed_over(tmp_path: Path, dtype: Any, shape: tuple[int, ...], holder: Any) -> None:
    size = int(np.prod(shape))
    bits = np.random.default_rng(0).bytes(size * dtype.itemsize)
    value = np.frombuffer(bits, dtype).reshape(shape) if dtype != dtypes.bool_ else np.ones(shape, np.bool_)
    table = holder(value.T)  # not contiguous
    program = fx.trace(lambda x: (x, table), X)
    assert len(program.bound) == 1
    same(program, there_and_back(program, tmp_path))


def test_special_values_closed_over(tmp_path: Path) -> None:
    table = np.array([np.nan, -0.0, np.inf, -np.inf, 5e-324])
    loaded = there_and_back(fx.trace(lambda x: (x, fx.asarray(table) + 0 * x[0]), np.ones(1)), tmp_path)
    assert [b.tobytes() for b in map(np.asarray, loaded.bound)] == [table.tobytes()]
    shared = fx.trace(lambda x: table * x + table, np.ones(5))
    assert len(there_and_back(shared, tmp_path).bound) == 1


# -------------------------------------------------------------------------------------------------------------- trees

TREES: list[Any] = [
    0,
    None,
    (),
    [],
    {},
    (1, [2, {"a": 3, "b": None}], ()),
    {1: 2, (1, "a"): 3, False: {None: 4}},
    {2.5: 1, -0.0: 2, 1j: 3, b"bits": 4},
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(list, {"x": 1}),
    collections.defaultdict(None, {}),
    collections.deque([1, (2,)]),
    collections.deque([1, 2], maxlen=3),
    Pair(1, Pair(2, [3])),
    Layer(w=1, b={"c": 2}),
    Layer(w=1, b=None, kind="conv", sizes=(1, (2.5, np.dtype("float32"), None, True), b"\0", 1 + 2j, "")),
    Boxed([1, 2], ("label", 3)),
    pyrsistent.pmap({"a": 1, "b": pyrsistent.v(2, 3)}),
    Record(x=1, y={"z": 2}),
]


@pytest.mark.parametrize("example", TREES, ids=[f"{k}-{type(t).__name__}" for k, t in enumerate(TREES)])
def test_trees(example: Any) -> None:
    structure = tree.structure(example)
    described = structure_to_json(structure)
    assert structure_from_json(json.loads(json.dumps(described)), "f", imports=False) == structure


def test_trees_of_arguments_and_results(tmp_path: Path) -> None:
    for example in TREES:
        filled = tree.map(lambda _: X, example)
        program = fx.trace(lambda t: (t, 1.0), filled)
        same(program, there_and_back(program, tmp_path))


def refused(error: type[Exception], work: Callable[[], object]) -> Any:
    assert issubclass(FileFormatError, ValueError)
    with pytest.raises(error) as e:
        work()
    found: Any = e.value
    return found


def test_classes_that_cannot_be_found_again(tmp_path: Path) -> None:
    class Inner(NamedTuple):
        a: Any

    e = refused(ArgumentError, lambda: fx.save(fx.trace(lambda p: p.a, Inner(X)), tmp_path / "f"))
    where = f"{__name__}:test_classes_that_cannot_be_found_again.<locals>.Inner"
    assert e.message == f"save: the class {where} cannot be found again under its name"
    assert e.remedy == "define it at the top of a module: a file holds the name of a class, not its code"
    assert list(tmp_path.iterdir()) == []


def test_static_data_that_cannot_be_saved(tmp_path: Path) -> None:
    layer = Layer(w=X, b=X, sizes=np.sin)
    e = refused(ArgumentError, lambda: fx.save(fx.trace(lambda p: p.w, layer), tmp_path / "f"))
    assert e.message == ("save: what Layer keeps beside its children has <ufunc 'sin'>, which a file cannot hold")
    assert e.remedy == "None, bools, numbers, strings, bytes, dtypes and tuples of these are what a file holds"
    d: Any = collections.defaultdict(lambda: 0, {"a": X})
    e = refused(ArgumentError, lambda: fx.save(fx.trace(lambda p: p["a"], d), tmp_path / "f"))
    assert re.fullmatch("save: a defaultdict makes its values with <function .*, which a file cannot hold", e.message)
    assert e.remedy == "use one of list, dict, tuple, set, int, float, complex, str, bool, or a dict"


def rebuilt(described: Any, imports: bool = False) -> Any:
    return refused(FileFormatError, lambda: structure_from_json(described, "load: f", imports))


def test_classes_are_looked_up_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_imported.py").write_text(
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\nprint('imported')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    described: Any = {"namedtuple": "never_imported:Pair", "fields": ["a"], "children": ["*"]}
    e = rebuilt(described)
    assert e.message == "load: f: the class never_imported:Pair of a pytree is in a module that is not imported"
    assert e.remedy == "import never_imported first, or let load import it: load(path, trusted=True)"
    assert "never_imported" not in sys.modules
    assert structure_from_json(described, "load: f", imports=True).num_leaves == 1
    assert "never_imported" in sys.modules
    described["namedtuple"] = "no_such_module:Pair"
    remedy = "install what has the module, and put it on sys.path"
    message = "load: f: the class no_such_module:Pair of a pytree cannot be imported: No module named 'no_such_module'"
    e = rebuilt(described, imports=True)
    assert (e.message, e.remedy) == (message, remedy)


def test_classes_that_have_changed() -> None:
    here = "tests.files.classes"
    changed = "define the class as it was when the program was saved, or save the program again"
    e = rebuilt({"class": f"{here}:Gone", "children": []})
    assert e.message == f"load: f: the class {here}:Gone of a pytree does not exist"
    assert e.remedy == changed
    e = rebuilt({"namedtuple": f"{here}:Pair", "fields": ["left"], "children": ["*"]})
    assert e.message == f"load: f: {here}:Pair is not the namedtuple of the fields ['left'] that was saved"
    assert e.remedy == changed
    e = rebuilt({"class": f"{here}:Plain", "data": None, "entries": [], "children": []})
    assert e.message == f"load: f: the class {here}:Plain is not a pytree here"
    assert e.remedy == "register it with fxad.tree, as when it was saved"
    old = {"class": f"{here}:Layer", "data": {"tuple": ["dense", {"tuple": []}]}, "entries": ["w"], "children": ["*"]}
    e = rebuilt(old)
    assert e.message == f"load: f: the class {here}:Layer has changed: its children were ('w',), they are ('w', 'b')"
    assert e.remedy == changed
    old |= {"entries": ["w", "bias"], "children": ["*", "*"]}
    e = rebuilt(old)
    assert (
        e.message
        == f"load: f: the class {here}:Layer has changed: its children were ('w', 'bias'), they are ('w', 'b')"
    )
    assert e.remedy == changed


MALFORMED: list[tuple[Any, str]] = [
    (3, "3 describes no pytree"),
    ({"children": []}, "{'children': []} describes no pytree"),
    ({"tuple": 3}, "3 is not a list"),
    ({"dict": [["a"]]}, "[['a']] describes no keys and values"),
    ({"dict": [[["a"], "*"]]}, "['a'] is not a value"),
    ({"dict": [[{"float": "x"}, "*"]]}, "{'float': 'x'} is not a value"),
]


@pytest.mark.parametrize(("described", "problem"), MALFORMED)
def test_malformed_parts_of_a_tree_are_named(described: Any, problem: str) -> None:
    e = rebuilt(described)
    assert e.message == f"load: f: {problem}"
    assert e.remedy == "take another copy of what was saved, or save the program again"


@pytest.mark.parametrize(
    "name", ["builtins:dict", "collections:deque", "os:system", "builtins:eval", "", ":", "os:path.join"]
)
def test_other_names_are_not_called(name: str) -> None:
    for kind in ({"class": name, "data": {"list": ["a"]}, "entries": ["a"]}, {"namedtuple": name, "fields": None}):
        rebuilt({**kind, "children": ["*"]})


@pytest.mark.parametrize(
    "described",
    [3, "x", [], {}, {"tuple": 3}, {"dict": [3]}, {"dict": [[1]]}, {"dict": [[[1], "*"]]}, {"what": 1}, True],
)
def test_descriptions_of_no_tree_are_refused(described: Any) -> None:
    assert rebuilt(described).message.startswith("load: f: ")


@pytest.mark.parametrize("key", [{"float": "x"}, {"bytes": "x"}, {"dtype": "x"}, {"complex": ["0x1p0"]}, {}, []])
def test_descriptions_of_no_key_are_refused(key: Any) -> None:
    assert rebuilt({"dict": [[key, "*"]]}).message == f"load: f: {key!r} is not a value"


# ------------------------------------------------------------------------------------------------------------- files


def test_the_file_can_be_read_by_people(tmp_path: Path, nothing_remembered: None) -> None:
    fx.save(fx.trace(lambda x: fnp.sin(x) * 2.0, X), tmp_path / "f")
    lines = (tmp_path / "f").read_text().splitlines()
    assert lines[0] == "fxad program 2"
    assert lines[1].startswith("program ")
    assert "main @<lambda>(%arg0: f32[3]) -> (f32[3]) {" in [re.sub('"', "", line) for line in lines]
    assert any(["sin %arg0" in line for line in lines])
    assert ' "equations": [0, 0]' in lines


def test_objects_that_cannot_be_saved_are_refused(tmp_path: Path) -> None:
    e = refused(ArgumentError, lambda: fx.save(np.sin, tmp_path / "f"))
    assert e.message == "save: an ufunc is not a program: <ufunc 'sin'>"
    remedy = "trace the function first: save(trace(f, *examples), path); for arrays, fxad.tree.save(path, tree)"
    assert e.remedy == remedy

    def outer(x: Any) -> Any:
        inner = fx.trace(lambda y: y + x, X)
        fx.save(inner, tmp_path / "f")

    e = refused(ArgumentError, lambda: fx.trace(outer, X))
    assert e.message == "save: <lambda> closes over Tracer<f32[3]> of an enclosing trace"
    assert e.remedy == "a file holds values: save the program of the whole function"


def test_programs_with_functions_of_the_host(tmp_path: Path) -> None:
    def note(x: Any) -> Any:
        return x

    program = fx.trace(lambda x: fx.trace(lambda y: fx.pure_callback(note, fx.Spec((3,)), y), X)(x), X)
    e = refused(ArgumentError, lambda: fx.save(program, tmp_path / "f"))
    assert e.message == "save: <lambda> calls the Python function note, which a file cannot hold"
    assert e.remedy == "save the parts around it"
    assert "host_call" in e.equation


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = network()
    fx.save(program, tmp_path / "f")

    def refuse(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        fx.save(fx.trace(lambda x: x, X), tmp_path / "f")
    assert fx.load(tmp_path / "f") == program
    assert len(list(tmp_path.iterdir())) == 1


# One process forks a writer for each system call at which it is killed, before or after the call. An existing file is
# the old program or the new one afterwards. A new file is absent or complete.
_KILLED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np, fxad as fx

x = np.arange(3, dtype=np.float32)
old, new = fx.trace(lambda v: v * 2, x), fx.trace(lambda v: v * 3 + x, x)

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

POINTS = [("write", 1, when) for when in ("before", "middle", "after")]
POINTS += [(name, 1, when) for name in ("fsync", "replace") for when in ("before", "after")]
for there in (True, False):
    for point in POINTS:
        path = f"{sys.argv[-1]}/{'-'.join(map(str, point))}-{there}"
        if there:
            fx.save(old, path)
        child = os.fork()
        if child == 0:
            die(*point)
            fx.save(new, path)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, point
        if not os.path.exists(path):
            print("none", end=" ")
        else:
            found = fx.load(path).jaxpr
            print("old" if found is old.jaxpr else "new" if found is new.jaxpr else "half", end=" ")
"""


def test_a_process_killed_while_it_saves_leaves_no_half_file(tmp_path: Path) -> None:
    found = process(tmp_path / "unused", f"import sys; sys.argv.append({str(tmp_path)!r})\n{_KILLED}").split()
    # the file exists after it was moved into place, and not before
    assert found == [*["old"] * 6, "new", *["none"] * 6, "new"]


def test_missing_files_are_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fx.load(tmp_path / "not there")
    with pytest.raises(FileNotFoundError):
        fx.save(network(), tmp_path / "not" / "there")


AGAIN = "take another copy of the file, or save the program again"
WRITTEN = "load reads what fxad.save wrote, load_exported what export wrote"
REMEDIES = {
    "is damaged: byte ": AGAIN,
    "is damaged: its sections are ": AGAIN,
    "is not what fxad wrote: it does not begin with 'fxad program' and a version": WRITTEN,
    "is of version ": "install a newer fxad, or save the program again with this one",
}


def test_every_flipped_byte_is_detected(tmp_path: Path) -> None:
    """The error names the section and the position, or the file loads as the saved program."""
    path, table = tmp_path / "f", np.array([1.5, -2.0], np.float32)
    program = fx.trace(lambda x: x * table, np.ones(2, np.float32))
    fx.save(program, path)
    whole = path.read_bytes()
    for k in range(len(whole)):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 4]) + whole[k + 1 :])
        e = refused(FileFormatError, lambda: fx.load(path))
        (remedy,) = [text for kind, text in REMEDIES.items() if e.message.startswith(f"load: {path} {kind}")]
        assert e.remedy == remedy
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        assert str(path) in refused(FileFormatError, lambda: fx.load(path)).message
    path.write_bytes(whole + b"\n")
    refused(FileFormatError, lambda: fx.load(path))
    path.write_bytes(whole)
    same(program, fx.load(path))


def test_messages_say_what_and_where(tmp_path: Path) -> None:
    path = tmp_path / "f"
    fx.save(fx.trace(lambda x: x * 2.0, X), path)
    whole = path.read_bytes()
    at = whole.index(b"mul")
    text = whole.index(b"main ")

    def message(content: bytes) -> str:
        path.write_bytes(content)
        e = refused(FileFormatError, lambda: fx.load(path))
        return str(e.message).removeprefix(f"load: {path} ")

    assert message(whole.replace(b"mul", b"add")) == (
        f"is damaged: byte {text}: section text does not have the checksum of its heading"
    )
    assert message(whole[:at]).startswith(f"is damaged: byte {text}: section text has ")
    assert message(b"PK\3\4") == "is not what fxad wrote: it does not begin with 'fxad program' and a version"
    assert message(whole.replace(b"program 2", b"program 3", 1)) == "is of version 3, this fxad reads versions up to 2"
    assert message(whole.replace(b"\ntext ", b"\ntext!", 1)).endswith("the heading of a section is malformed")
    assert message(b"fxad program 1\n") == "is damaged: its sections are none"
    assert message(whole.replace(b"program 2", b"program 1", 1)) == "is damaged: its sections are program, text, lines"
    assert message(whole[: whole.rindex(b"lines ")]) == "is damaged: its sections are program, text"
    _, sections = unpack("test", whole, "fxad program", 2)
    for content, problem in (
        (b"{}", "section lines does not list lines: KeyError('files')"),
        (b'{"files": [], "lines": [[0, 1, "f", "", []]], "equations": []}', "0 is no number from 0 to -1"),
        (b'{"files": [["f", 1]], "lines": [], "equations": []}', "1 is no text"),
        (b'{"files": [], "lines": [], "equations": []}', "section lines has 0 lines, the program 1 equations"),
    ):
        changed = pack("fxad program", 2, [*sections[:-1], FileSection("lines", content)])
        assert problem in message(b"".join(changed))


def message_of_a_changed_file(
    path: Path, change: Callable[[dict[str, Any]], None], text: bytes = b"", arrays: int = 0
) -> str:
    """Returns the message for a file with correct checksums and changed contents."""
    fx.save(fx.trace(lambda x: x * 2.0, X), path)
    whole = path.read_bytes()
    head = json.loads(whole[whole.index(b"{") : whole.index(b"\n}") + 2])
    change(head)
    body = text or unpack("test", whole, "fxad program", 2)[1][1].content
    sections = [FileSection("program", json.dumps(head).encode()), FileSection("text", body)]
    path.write_bytes(b"".join(pack("fxad program", 1, sections + [FileSection("array", bytes(4))] * arrays)))
    e = refused(FileFormatError, lambda: fx.load(path))
    return re.sub(r"byte \d+", "byte N", str(e.message).removeprefix(f"load: {path}"))


def test_files_that_contradict_themselves(tmp_path: Path) -> None:
    path = tmp_path / "f"

    def no_change(head: dict[str, Any]) -> None:
        pass

    assert (
        message_of_a_changed_file(path, no_change, b"main @f( {")
        == ": line 1, column 10: expected a value as in '%0', got '{'"
    )
    assert message_of_a_changed_file(path, no_change, b"\xff") == " is damaged: byte N: the text is not UTF-8"
    assert message_of_a_changed_file(path, lambda head: head.update(digest="0")) == (
        " is damaged: byte N: the text is that of another program than its digest names"
    )
    assert (
        message_of_a_changed_file(path, lambda head: head.pop("names"))
        == " is damaged: byte N: section program: names is None"
    )
    assert message_of_a_changed_file(path, lambda head: head.pop("results")) == (
        " is damaged: byte N: section program does not describe a program"
    )
    assert (
        message_of_a_changed_file(path, no_change, arrays=1) == " is damaged: byte N: 0 arrays are named, there are 1"
    )
    assert message_of_a_changed_file(path, lambda head: head["arrays"].append("numpy"), arrays=1) == (
        " is damaged: byte N: an array f32[3] has 12 bytes, here are 4"
    )
    trees: list[Any] = ["*", {"tuple": []}, {"tuple": [{"tuple": ["*", "*"]}, {"dict": []}]}]
    for tree_of in trees:
        problem = message_of_a_changed_file(path, lambda head, t=tree_of: head.update(arguments=t))  # type: ignore[misc]
        assert problem == " is damaged: byte N: the trees do not fit the program"


# -------------------------------------------------------------------------------------------------------- versions


def golden() -> Program[..., Any]:
    """The program in data/program-v1.fxad, which fxad 0.1.0 wrote. The file is never written again."""
    table = np.array([0.5, -0.0, np.nan], np.float32)

    def f(params: Any, x: Any, *, k: Any) -> Any:
        hidden = fnp.tanh(params["layer"].w @ x) + fx.lax.cond(k > 0, lambda: x, lambda: x * 2.0)
        return Pair(hidden * table, [fnp.sum(hidden), None])

    layer = Layer(w=np.ones((3, 3), np.float32), b=X, kind="dense", sizes=(3, 3))
    return fx.trace(f, {"layer": layer}, X, k=np.int32(1))


def test_version_1_loads() -> None:
    same(golden(), fx.load(GOLDEN))


def test_version_1_is_written(tmp_path: Path) -> None:
    """If the format changes, it needs a new version, and a reader for the old one. Version 2 adds lines."""
    # in a process of its own: another test may keep equal programs with other names alive
    save = f"from tests.files.test_files import fx, golden; fx.save(golden(), {str(tmp_path / 'f')!r}, lines=False)"
    process(tmp_path / "unused", save)
    assert (tmp_path / "f").read_bytes() == GOLDEN.read_bytes()


def test_unreadable_files_are_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = "name a file that fxad.save wrote"
    with pytest.raises(FileFormatError, match="is not a regular file") as e:
        fx.load(tmp_path)
    assert e.value.remedy == wrote
    path = tmp_path / "program"
    fx.save(fx.trace(lambda x: x + 1, np.float32(1)), path)

    class Full(FileIO):
        def readall(self) -> bytes:
            raise MemoryError

    monkeypatch.setattr("fxad.storage.paths.open_file", lambda path, flags: Full(path))
    with pytest.raises(FileFormatError) as e:
        fx.load(path)
    assert e.value.message == f"load: {path} has {path.stat().st_size} bytes, and there is no memory for them"
    assert e.value.remedy == wrote


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interruption_at_any_instruction_leaks_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "program"
    fx.save(fx.trace(lambda x: x + 1, np.float32(1)), path)
    held = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(50):
        at = open_file(str(path), FOLLOWING)
        del at  # as after an exception before its first use
    gc.collect()
    assert not held or len(os.listdir("/proc/self/fd")) == held
