"""The Python blocks of pages run and print what the pages show; links resolve; generated pages are up to date."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import keyword
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.primitives import ALL

ROOT = Path(__file__).resolve().parent.parent
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
DOCTESTED = [p for p in sorted((ROOT / "fxad").rglob("*.py")) if ">>> " in p.read_text(encoding="utf-8")]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.smoke
@pytest.mark.about_cpus
@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in p.read_text(encoding="utf-8")], ids=name)
def test_blocks_run_and_print_what_the_page_says(page: Path) -> None:
    if "\nimport jax\n" in page.read_text(encoding="utf-8"):
        pytest.importorskip("jax")
    outputs = runpy.run_path(str(ROOT / "docs" / "outputs.py"))
    assert page.read_text(encoding="utf-8") == outputs["refreshed"](page), "run `python docs/outputs.py` on the page"


@pytest.mark.parametrize("path", DOCTESTED, ids=name)
def test_docstrings_run(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    assert doctest.testmod(module).failed == 0


# names of jax and LAPACK, of users' rules, in formulas and in examples
NOT_OF_FXAD = {
    "active", "axis_env", "disassemble_into_single_device_arrays", "en", "fxad_getrf_f64", "jax_enable_x64",
    "lapack_dgetrf_ffi", "loss", "name_1", "out_batched", "shutdown_timeout", "with_logs", "x_dot",
}  # fmt: skip


def defined(module: ast.Module) -> Iterator[str]:
    """Yields the names that a module defines or reads, without parameters and local variables; and its strings, such as
    names of primitives."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name
            case ast.alias():
                yield from (*node.name.split("."), node.asname or "")
            case _:
                pass


def unknown_names(node: ast.AST, known: set[str], parameters: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yields the names in docstrings of functions that are neither known nor parameters."""
    for child in ast.iter_child_nodes(node):
        inside = parameters
        if isinstance(child, ast.FunctionDef):
            inside = parameters | {n.arg for n in ast.walk(child.args) if isinstance(n, ast.arg)}
            names = re.findall(r"`([a-z_][a-z_0-9]*)`", ast.get_docstring(child) or "")
            yield from [f"{child.name}: {name}" for name in names if name not in inside and name not in known]
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # docstrings stand in statements
            yield from unknown_names(child, known, inside)


def test_docstrings_name_parameters_that_exist() -> None:
    paths = sorted((ROOT / "fxad").rglob("*.py"))
    modules = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    known = {*NOT_OF_FXAD, *keyword.kwlist, *[part for path in paths for part in path.with_suffix("").parts]}
    known.update(name for module in modules for name in defined(module))
    assert [found for module in modules for found in unknown_names(module, known)] == []


MODULES = (
    "custom_batching custom_derivatives debug distributed extend flatten_util image lax lax.linalg nn nn.initializers "
    "numpy numpy.fft numpy.linalg ops optim passes random scipy.fft scipy.integrate scipy.interpolate scipy.linalg "
    "scipy.ndimage scipy.optimize scipy.signal scipy.special scipy.stats sharding testing text tree tree_util"
)


def public_functions() -> Iterator[tuple[str, object]]:
    """Yield the functions and methods of the public modules, with their names."""
    for module in [fx, *[importlib.import_module(f"fxad.{m}") for m in MODULES.split()]]:
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            members = vars(value) if inspect.isclass(value) else {name: value}
            yield from [
                (f"{module.__name__}.{name}: {member}", f)
                for member, f in members.items()
                if inspect.isfunction(f) and f.__module__.startswith("fxad") and not member.startswith("_")
            ]


def test_public_docstrings_begin_with_a_verb_in_the_imperative() -> None:
    """ruff's D401 refuses "Returns", "The" and "A". Formulas, names in backquotes and plurals are refused here."""
    docs = {name: f.__doc__ for name, f in public_functions() if f.__doc__}
    assert len(docs) > 1000
    verb = re.compile(r"\s*[A-Z][a-z]*([^\Ws]|ss),?\s")
    wrong = {name: doc.split(".")[0] for name, doc in docs.items() if not verb.match(doc)}
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def named(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


FILE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|pyi|md|toml|json|svg))`")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A path is that from the top level, or the end of one below `fxad/`."""
    paths = {m[1] for m in FILE.finditer(page.read_text(encoding="utf-8"))}
    sources = [p.relative_to(ROOT).as_posix() for p in (ROOT / "fxad").rglob("*.py")]
    assert not [p for p in paths if not (ROOT / p).exists() and not any(s.endswith(f"/{p}") for s in sources)]


def test_files_that_the_configuration_names_exist() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert not [p for p in patterns if next(ROOT.glob(p), None) is None]


def test_each_name_of_numpy_exists_or_is_left_out_with_a_reason() -> None:
    page = (ROOT / "docs" / "numpy-coverage.md").read_text(encoding="utf-8")
    here = set(dir(fnp))
    left_out, _, others = page.partition("## Different on purpose")
    names = {n for line in left_out.splitlines() if line.startswith("| `") for n in named(line.split("|")[1])}
    assert names & here == set()
    assert names <= {*dir(np), "row_stack", "float128", "complex256"}, "what NumPy does not have cannot be left out"
    if np.lib.NumpyVersion(np.__version__) < "2.5.0":
        assert set(np.__all__) - here - names == set()
    for line in others.splitlines():
        if line.startswith(("| `lax`", "| `random`", "| `nn`")):
            _, path, left, _, _ = line.split("|")
            module = importlib.import_module(f"fxad.{named(path).pop()}")
            assert [n for n in sorted(named(left)) if hasattr(module, n)] == []


def test_decisions_are_indexed() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    records = sorted(p.name for p in folder.glob("[0-9]*.md"))
    assert [r for r in records if f"({r})" not in index] == []
    assert len({r[:4] for r in records}) == len(records), "each has a number of its own"


def test_a_decision_is_a_page() -> None:
    records = (ROOT / "docs" / "adr").glob("[0-9]*.md")
    long = {p.name: n for p in records if (n := len(p.read_text(encoding="utf-8").splitlines())) > 60}
    assert long == {}, "context, decision, what was measured, what would change it: git keeps the rest"


def test_overloads_of_derivatives_are_fresh() -> None:
    writer = runpy.run_path(str(ROOT / "docs" / "overloads.py"))
    for path, text in writer["files"]().items():
        assert path.read_text(encoding="utf-8") == text, "run `python docs/overloads.py`"


def test_rule_matrix_is_fresh() -> None:
    """Without drawn cells, which take half a minute. CI checks those with `docs/generate.py --check`."""
    generator = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    lines = (ROOT / "docs" / "rule-matrix.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if re.match(r"\| `\w+` \|", line)]
    assert len(rows) == len(ALL)
    for cls, line in zip(ALL, rows, strict=True):
        assert line.startswith(generator["stated"](cls)), f"run `make docs`: {cls.__name__}"
        assert generator["field_of"](cls, "Rule") in line, f"run `make docs`: {cls.__name__}"


def test_rule_matrix_has_lines_for_primitives_with_bodies_and_functions() -> None:
    page = (ROOT / "docs" / "rule-matrix.md").read_text(encoding="utf-8")
    lines = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert "the first `n_linear` operands together, by `adjoint`" in lines["linear_call"]
    assert "b, by `adjoint` where there is one" in lines["linear_solve"]
    assert "own: refused; Zero, where its results are integers or bools" in lines["host_call"]


def test_rule_matrix_has_no_empty_cell() -> None:
    page = (ROOT / "docs" / "rule-matrix.md").read_text(encoding="utf-8")
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line.startswith("|")]
    assert len(rows) > 150
    assert {len(r) for r in rows} == {13}
    assert [r[0] for r in rows if not all(cell.strip() not in ("", "—") for cell in r)] == []


def test_the_list_of_code_for_gpus_is_fresh() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(ROOT / "docs" / "gpu.py"))["refreshed"](page), "run `python docs/gpu.py`"
