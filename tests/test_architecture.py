"""Rules of the architecture that the import contracts in pyproject.toml cannot state."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import nn
from fxad.xla.disk_tier import lowering_sources
from fxad.xla.interpreter_exit import _CALLERS

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "fxad").rglob("*.py"))


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Returns the parsed modules. They are parsed at the first use, because every test process collects this file."""
    return {p: ast.parse(p.read_text(encoding="utf-8")) for p in FILES}


TOP_LEVEL = {
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md", "SECURITY.md",
    "mkdocs.yml", "pyproject.toml",
    "benchmarks", "docs", "examples", "fxad", "stubs", "tests",
}  # fmt: skip
JAXLIB_MODULES = ("fxad/lower", "fxad/runtime", "fxad/xla")
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base"}

MAX_IGNORES = 45
# Tables that change after import. Each is a cache: only speed depends on its contents.
CACHES = {("fxad/tracing/tracer.py", "is_internal")}
# Modules that may name `Any`: they use jaxlib, or take trees apart, which types cannot express.
TREE_MODULES = (
    "fxad/api/",
    "fxad/diagnosis/record/",
    "fxad/diagnosis/bisect/",
    "fxad/diagnosis/equality/",
    "fxad/tracing/array.py",
    "fxad/operations/conversions.py",
    "fxad/core/atoms.py",
    "fxad/execution/dispatch.py",
    "fxad/execution/executable.py",
    "fxad/execution/shardings.py",
    "fxad/interop/",
    "fxad/storage/arrays.py",
    "fxad/storage/decoding.py",
    "fxad/storage/encoding.py",
    "fxad/storage/exported.py",
    "fxad/storage/programs.py",
    "fxad/ir.py",
    "fxad/testing/gradient_checks.py",
    "fxad/lax/control/",
    "fxad/lax/implicit/",
    "fxad/tracing/program.py",
    "fxad/tracing/trace.py",
    "fxad/tracing/static_args.py",
    "fxad/storage/tree_structure.py",
    "fxad/tracing/traced_numbers.py",
    "fxad/tracing/tracer.py",
    "fxad/core/trees/",
    "fxad/diagnosis/reduce/",
)
# SciPy is imported by name in fxad/transforms/sparse, so its matrices have no type; NumPy's structured arrays have none
# messages of protobuf and JSON have no types
MESSAGES = ("fxad/diagnosis/explain/hlo.py", "fxad/diagnosis/explain/profiles.py")
ANY_MODULES = (
    *JAXLIB_MODULES, *TREE_MODULES, *MESSAGES, "fxad/optim/", "fxad/transforms/sparse/", "fxad/api/sparse/",
    "fxad/transforms/precision/shadow.py",
)  # fmt: skip


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    """Yields the line and full dotted name of everything that a module imports."""
    if tree not in _imported:
        _imported[tree] = list(_imports(tree))
    return _imported[tree]


_imported: dict[ast.AST, list[tuple[int, str]]] = {}


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{a.name}") for a in node.names)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_top_level() -> None:
    built = {"build", "dist", "venv", "__pycache__"}
    there = {p.name for p in ROOT.iterdir() if not p.name.startswith(".") and p.suffix != ".egg-info"} - built
    assert there <= TOP_LEVEL, "the top level is fixed; see docs/architecture.md"


def test_every_package_has_a_layer() -> None:
    """The import contract checks only modules that it names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c["layers"] for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    named = {part.strip(" ()").split(".")[1] for layer in layers for part in layer.split("|")}
    packages = {p.relative_to(ROOT / "fxad").parts[0].removesuffix(".py") for p in FILES} - {"__init__"}
    assert packages - named == set()
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert {p for p in packages if f"`{p}`" not in page} == set(), "docs/architecture.md has a line for every package"


def test_tables_of_packages_name_transformations_and_folders_of_tests() -> None:
    transformations = {p.relative_to(ROOT / "fxad/transforms").parts[0].removesuffix(".py") for p in FILES
                       if p.is_relative_to(ROOT / "fxad/transforms")} - {"__init__"}  # fmt: skip
    assert _names_in_table("| in `transforms` |", 1) == {*transformations, "transforms"}
    folders = _names_in_table("| in `transforms` |", 3) | _names_in_table("| package | concept | tests |", 3)
    assert {folder for folder in folders if not (ROOT / folder).exists()} == set()


def _classes_asked_for(node: ast.AST) -> list[ast.Name]:
    """Return the names in `isinstance(x, ...)` and `type(x) is ...`."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
            return [n for n in ast.walk(kinds) if isinstance(n, ast.Name)]
        case ast.Compare(left=ast.Call(func=ast.Name(id="type"))):
            return [n for n in node.comparators if isinstance(n, ast.Name)]
        case _:
            return []


def test_primitives_with_bodies_are_asked_for_where_the_table_says() -> None:
    """Other code reads their layouts (docs/architecture.md, "What must stay true", 7)."""
    classes = {"Call", "Remat", "Cond", "Scan", "While", "ShardMap"}
    # these translate programs to other forms and make equations of functions
    apart = {"primitives", "testing", "interop", "text", "lax"}
    asked = {
        (name(p).removeprefix("fxad/").removesuffix(".py"), c.id)
        for p, t in trees().items()
        if p.relative_to(ROOT / "fxad").parts[0] not in apart
        for node in ast.walk(t)
        for c in _classes_asked_for(node)
        if c.id in classes
    }
    rows = [line.split("|")[1:3] for line in (ROOT / "docs/architecture.md").read_text(encoding="utf-8").splitlines()
            if line.startswith("   | `")]  # fmt: skip
    listed = {(file, c) for classes_of, files in rows
              for file in re.findall(r"`([^`]+)`", files) for c in re.findall(r"`([^`]+)`", classes_of)}  # fmt: skip
    assert asked <= listed
    assert {file for file, _ in listed} == {file for file, _ in asked}


# JAX has `tree_util.Partial`, `partial_eval` returns the other; a run of a loop and a verdict may be unknown, and both
# are public; MLIR has functions, and users have functions with rules.
TWO_MEANINGS = {"Function", "Partial", "Unknown"}


def test_a_name_is_that_of_one_class() -> None:
    """A private class is not named as another one, with or without the underscore."""
    modules: dict[str, set[str]] = {}
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name.lstrip("_"), set()).add(name(path))
    assert {c: sorted(paths) for c, paths in modules.items() if len(paths) > 1 and c not in TWO_MEANINGS} == {}


def test_only_the_translation_imports_jax() -> None:
    """Benchmarks use `jax` for comparison; `fxad.interop.jax` translates its programs."""
    found = [
        f"{name(p)}:{n}"
        for p, t in trees().items()
        for n, m in imports(t)
        if m.split(".")[0] == "jax" and not name(p).startswith("fxad/interop/jax/")
    ]
    assert found == []


def test_tests_run_without_jax() -> None:
    """Tests import jax and `fxad.interop.jax` by `pytest.importorskip`, so users and CI may run them without jax."""
    found = [
        f"{p.relative_to(ROOT)}:{n}"
        for p in sorted((ROOT / "tests").rglob("*.py"))
        if re.search(r"^\s*(import|from) +(jax|fxad\.interop)\b", text := p.read_text(encoding="utf-8"), re.MULTILINE)
        for n, m in imports(ast.parse(text))
        if m.split(".")[0] == "jax" or m.startswith("fxad.interop.jax")
    ]
    assert found == []


def test_only_some_modules_import_jaxlib() -> None:
    found = [
        f"{name(p)}:{n}"
        for p, t in trees().items()
        for n, m in imports(t)
        if m.split(".")[0] == "jaxlib" and not name(p).startswith(JAXLIB_MODULES)
    ]
    assert found == [], "only lower and runtime use jaxlib"


def test_no_function_local_imports() -> None:
    indented = re.compile(r"^[ \t]+(import|from) ", re.MULTILINE)
    suspects = {p: t for p, t in trees().items() if indented.search(p.read_text(encoding="utf-8"))}
    found = {f"{name(p)}:{n} in {f.name}" for p, t in suspects.items() for f in functions(t) for n, _ in imports(f)}
    assert found == set()


def test_no_module_imports_the_public_interface() -> None:
    """`fxad/__init__.py` is above every module: `from fxad import grad` in a module would be a cycle."""
    modules = {p.stem for p in (ROOT / "fxad").glob("*.py")} | {p.name for p in (ROOT / "fxad").iterdir() if p.is_dir()}
    found = [
        f"{name(p)}:{n} {m}"
        for p, t in trees().items()
        if p != ROOT / "fxad" / "__init__.py"
        for n, m in imports(t)
        if m.split(".")[0] == "fxad" and (m == "fxad" or m.split(".")[1] not in modules)
    ]
    assert found == []


def test_one_import_points_upwards() -> None:
    """An import by name is invisible to the import contracts. `x.__array_namespace__()` must return `fxad.numpy`, which
    is a layer above arrays. The packages with lazy exports import their own files."""
    found = [
        (name(p), ast.literal_eval(node.args[0]))
        for p, t in trees().items()
        for node in ast.walk(t)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
        and isinstance(node.args[0], ast.Constant)
        and str(node.args[0].value).startswith("fxad")
    ]
    assert found == [("fxad/operations/conversions.py", "fxad.numpy")]


def test_no_tools_that_erase_types() -> None:
    """`functools.lru_cache`, `cache` and `singledispatch` lose the types of the functions that they wrap."""
    banned = {"functools.lru_cache", "functools.cache", "functools.singledispatch", "functools.singledispatchmethod"}
    found = [f"{name(p)}:{n} {m}" for p, t in trees().items() for n, m in imports(t) if m in banned]
    assert found == []


def test_only_some_modules_name_any() -> None:
    found = [
        f"{name(p)}:{n}"
        for p, t in trees().items()
        for n, m in imports(t)
        if m == "typing.Any" and not name(p).startswith(ANY_MODULES)
    ]
    assert found == []


def test_no_mutable_registries() -> None:
    """A table is immutable (`MappingProxyType`, tuple, frozenset), or a known cache."""
    displays = ast.Dict | ast.DictComp | ast.List | ast.ListComp | ast.Set | ast.SetComp
    found = [
        (name(p), ast.unparse(target))
        for p, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, displays)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if ast.unparse(target) != "__all__"
    ]
    assert set(found) - CACHES == set()


# Of the standard library and of `core`: what is made by them changes.
CHANGING = {
    "ContextVar", "LRUCache", "RLock", "Scoped", "SingleFlight", "WeakKeyTable", "WeakTable", "count", "cycle", "deque",
    "dict", "set",
}  # fmt: skip
INTERNED = {"Aval"}  # one object for equal values: what it remembers is a part of the value


def _made_by(value: ast.expr | None) -> str:
    """Return the name of the class or function whose call an expression is."""
    function = value.func if isinstance(value, ast.Call) else None
    while isinstance(function, ast.Subscript):
        function = function.value
    return ast.unparse(function).rpartition(".")[2] if function else "dict" if isinstance(value, ast.Dict) else ""


def _assignments(node: ast.AST) -> list[tuple[str, str]]:
    """Return each target of an assignment, as text, with what makes its value."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return [(ast.unparse(e), _made_by(node.value)) for e in parts]


def _changes(c: ast.ClassDef) -> bool:
    """Return True if instances keep tables, or a method changes them."""
    if {ast.unparse(b).partition("[")[0].rpartition(".")[2] for b in c.bases} & {"local", "dict"}:
        return True
    return any(
        target.startswith("self.") and (method.name not in ("__init__", "__new__") or made in CHANGING)
        for method in functions(c)
        for node in ast.walk(method)
        for target, made in _assignments(node)
    )


def test_the_table_of_what_changes_is_complete() -> None:
    classes = [c for tree in trees().values() for c in tree.body if isinstance(c, ast.ClassDef)]
    changing = CHANGING | {c.name for c in classes if _changes(c)} - INTERNED
    found = {
        f"{name(p).removeprefix('fxad/').removesuffix('.py')}.{target}"
        for p, tree in trees().items()
        if "testing" not in p.parts
        for node in tree.body
        for target, made in _assignments(node)
        if made in changing
    }
    assert found == _names_in_table("| what it is |", 2)


def _names_in_table(head: str, column: int) -> set[str]:
    """Return the names in a column of a table of the architecture page."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page[page.index(head) :].partition("\n\n")[0]
    return {entry for row in table.splitlines() for entry in re.findall(r"`([^`]+)`", row.split("|")[column])}


def _foreign_writes(f: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a function writes attributes of a frozen object, or to the `__dict__` of an object, that it has
    not made and that is not its own."""
    made = {"self", *[g.name for g in functions(f)]}
    made |= {t for n in ast.walk(f) for t, m in _assignments(n) if m == "__new__"}
    written = set[str]()
    for n in ast.walk(f):
        if isinstance(n, ast.Call) and ast.unparse(n.func) in ("_set", "object.__setattr__"):
            written.add(ast.unparse(n.args[0]))
        targets = [n.func] if isinstance(n, ast.Call) else n.targets if isinstance(n, ast.Assign) else []
        for text in map(ast.unparse, targets):
            if ".__dict__[" in text or ".__dict__.setdefault" in text:
                written.add(text.partition(".__dict__")[0])
    return not written <= made


def test_the_table_of_what_changes_on_values_is_complete() -> None:
    writing = re.compile(r"object\.__setattr__|\.__dict__(\[|\.setdefault)")
    found = {
        f"{name(p).removeprefix('fxad/').removesuffix('.py')}.{f.name}"
        for p, tree in trees().items()
        if writing.search(p.read_text(encoding="utf-8"))
        for f in functions(tree)
        if _foreign_writes(f)
    }
    assert found == _names_in_table("| on | what |", 3)


def test_every_module_is_named_after_a_concept() -> None:
    assert [
        name(p) for p in FILES if VAGUE_NAMES & {part.removesuffix(".py") for part in p.parts[len(ROOT.parts) :]}
    ] == []


def test_ignores_are_few() -> None:
    """A `type: ignore` marks a place that the types do not cover. The limit is only ever lowered."""
    count = sum(len(re.findall(r"#\s*type:\s*ignore", p.read_text(encoding="utf-8"))) for p in FILES)
    assert count <= MAX_IGNORES


def test_no_stubs_and_no_notes() -> None:
    """No stubs and no TODO notes: a missing feature is an error with a reason, or an issue."""
    words = re.compile(r"raise NotImplementedError|\b(TODO|FIXME|XXX)\b")
    found = [
        f"{name(p)}:{n}"
        for p in FILES
        for n, line in enumerate(p.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert found == []


def steps_of(path: str) -> list[tuple[str, str]]:
    """Returns files and functions of a path in docs/architecture.md."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition(f"## The path of `{path}`\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| \d+ \| `(fxad/[\w/]+\.py)` \| `(\w+)` \|", section, re.MULTILINE)


def _of_layers() -> None:
    def deep(ws: list[fx.Array], x: fx.Array) -> fx.Array:
        for w in ws:
            centred = x - fnp.mean(x, axis=-1, keepdims=True)
            x = x + nn.softmax(centred / fnp.sqrt(1e-5 + fnp.mean(centred * centred, axis=-1, keepdims=True)) @ w)
        return fnp.mean(x * x)

    ws = [fx.asarray(np.eye(264, dtype=np.float32)) for _ in range(14)]
    fx.jit(fx.grad(deep))(ws, ws[0])


def _outside_of_jit() -> None:
    fx.grad(lambda x: fnp.sum(fnp.sin(x) * x))(np.arange(3.0))


def _of_values() -> None:
    ir = fx.trace(lambda x: fnp.sum(fnp.sin(x) * x), np.arange(3.0))
    fx.lower(fx.grad(fx.remat(ir))).compile()


@pytest.mark.parametrize(
    ("path", "run"),
    [
        ("grad(f)(x)", _outside_of_jit),
        ("lower(grad(remat(ir))).compile()", _of_values),
        ("jit(grad(f))(x)", _of_layers),
    ],
)
def test_the_path_of_a_call_is_that_of_the_architecture_page(path: str, run: Callable[[], None]) -> None:
    """The functions that the page lists are entered in that order."""
    steps = steps_of(path)
    assert 10 <= len(steps) <= 15
    wanted, entered = set(steps), list[tuple[str, str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            file = frame.f_code.co_filename.rpartition("/fxad/")[2]
            if (step := (f"fxad/{file}", frame.f_code.co_name)) in wanted:
                entered.append(step)

    with fx.cache.private():
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    rest = iter(entered)
    missing = [step for step in steps if step not in rest]  # each `in` continues in the iterator behind the last match
    assert missing == []


def test_the_picture_has_each_package_once_in_the_order_of_imports() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = page.partition("## Packages\n\n```\n")[2].partition("```")[0]
    rows = [row.partition("│")[0].split() for row in picture.splitlines()]
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = [c["layers"] for c in config["tool"]["importlinter"]["contracts"] if c["id"] == "layers"]
    places: dict[str, list[int]] = {}
    for k, layer in enumerate(layers):
        for module in re.findall(r"fxad\.(\w+)", layer):
            places.setdefault(module, []).append(k)
    drawn = [package for row in rows for package in row]
    packages = [p.parent.name for p in (ROOT / "fxad").glob("*/__init__.py")]
    assert sorted({*packages} - {*drawn}) == []
    assert len({*drawn}) == len(drawn)
    for above, below in itertools.pairwise(rows):
        assert max([k for p in above for k in places[p]]) < min([k for p in below for k in places[p]]), (above, below)


def test_no_derivative_calls_an_optimisation() -> None:
    """Optimisations are passes (fxad/passes.py). Derivatives use `dce` and `inline` only to leave out equations that
    they do not need."""
    optimisations = ("outlining", "inversion", "cleanup.cse", "cleanup.simplify")
    found = [
        f"{name(p)}:{n} {m}"
        for p, t in trees().items()
        if name(p).startswith("fxad/transforms/ad/")
        for n, m in imports(t)
        if m.startswith(tuple([f"fxad.transforms.{o}" for o in optimisations]))
    ]
    assert found == []


def test_stored_executables_depend_on_all_sources_of_the_lowering() -> None:
    """A change of a module that `fxad.lower` imports, directly or not, changes the keys of stored executables; so does
    one of the choice of XLA's flags, `fxad.units.compile_time`."""
    reached, waiting = set[Path](), [ROOT / "fxad/lower.py", ROOT / "fxad/units/compile_time.py"]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            for node in ast.walk(trees()[path]):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fxad"):
                    names = [node.module or "", *[f"{node.module}.{a.name}" for a in node.names]]
                    files = [ROOT / f"{n.replace('.', '/')}{end}" for n in names for end in (".py", "/__init__.py")]
                    waiting += [file for file in files if file in trees() and file != ROOT / "fxad/__init__.py"]
    assert ROOT / "fxad/core/builder.py" in reached
    assert reached <= {Path(path) for path in lowering_sources()}


def test_the_table_of_the_runtime_names_its_files_in_the_order_of_imports() -> None:
    package = ROOT / "fxad/xla"
    docstring = ast.get_docstring(trees()[package / "__init__.py"]) or ""
    files = re.findall(r"^\| `(\w+)\.py` \|", docstring, re.MULTILINE)
    assert sorted(files) == sorted([p.stem for p in package.glob("*.py") if p.stem != "__init__"])
    for k, name in enumerate(files):
        imported = re.findall(
            r"^from fxad\.xla\.(\w+) import", (package / f"{name}.py").read_text("utf-8"), re.MULTILINE
        )
        assert set(imported) <= set(files[:k]), f"{name}.py imports a file that stands below it"


def test_interpreter_exit_knows_the_files_that_call_xla() -> None:
    """At exit, a thread in one of these files may be inside XLA: see `fxad.xla.interpreter_exit`."""
    calling = [p for p in FILES if re.search(r"consume_with_handlers\(|execute_sharded", p.read_text(encoding="utf-8"))]
    assert len(calling) > 4
    assert [p for p in calling if not str(p).startswith(_CALLERS)] == []
    assert [c for c in _CALLERS if not Path(c).exists()] == []


def test_frozen_slotted_classes_take_the_dataclass_of_fxad() -> None:
    standard = [
        p for p in FILES if re.search(r"^from dataclasses import .*\bdataclass\b", p.read_text("utf-8"), re.MULTILINE)
    ]
    frozen = [p for p in standard if "@dataclass(frozen=True, slots=True" in p.read_text("utf-8")]
    assert frozen == []
