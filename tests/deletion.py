"""Deletes a plug-in from a copy of the repository: its package, its files in `fxad/api` and `fxad/testing`, its tests,
and what the tables of exports and passes say of it.

Only the files in `TABLES` may name a plug-in. There, an import of a deleted module is removed, and so is each element
of a tuple, list or dict that needs it, each base of a class, and each function of the module. Any other use is an
error.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

ROOT: Final = Path(__file__).resolve().parent.parent

# Files that gather names: exports, the default pipeline, the class of functions with rules, the steps of random stacks.
TABLES: Final = (
    "fxad/__init__.py", "fxad/__init__.pyi", "fxad/transforms/__init__.py", "fxad/transforms/__init__.pyi",
    "fxad/passes.py", "fxad/explain.py", "fxad/extend.py", "fxad/api/custom_function.py",
    "fxad/testing/__init__.py", "fxad/testing/__init__.pyi", "fxad/testing/stacks.py", "fxad/testing/mask_stacks.py",
    "fxad/testing/effect_laws.py", "fxad/testing/law.py", "fxad/testing/transform_laws.py",
)  # fmt: skip


@final
@dataclass(frozen=True)
class PlugIn:
    """The files of a plug-in, as patterns of paths."""

    package: str
    api: tuple[str, ...]
    testing: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    parent: str = "transforms"

    @property
    def patterns(self) -> tuple[str, ...]:
        return (f"fxad/{self.parent}/{self.package}", *self.api, *self.testing, *self.tests)


PLUG_INS: Final[Mapping[str, PlugIn]] = MappingProxyType(
    {
        p.package: p
        for p in (
            PlugIn(
                "inversion",
                ("fxad/api/inverse.py", "fxad/api/inverse_rules.py"),
                ("fxad/testing/inverse_*.py", "fxad/testing/inversions.py"),
                ("tests/invertible",),
            ),
            PlugIn(
                "mask",
                ("fxad/api/mask.py", "fxad/api/buckets.py"),
                ("fxad/testing/mask_*.py", "fxad/testing/ragged_cases.py"),
                ("tests/mask", "tests/laws/test_mask_laws.py"),
            ),
            PlugIn(
                "spmd",
                ("fxad/api/soft_pmap.py", "fxad/api/comm.py"),
                ("fxad/testing/spmd_laws.py",),
                ("tests/spmd",),
            ),
            PlugIn(
                "jet",
                (
                    "fxad/api/jet.py",
                    "fxad/api/operators.py",
                    "fxad/api/operator_programs.py",
                    "fxad/experimental/jet.py",
                ),
                ("fxad/testing/jet_laws.py",),
                ("tests/jet",),
            ),
            PlugIn(
                "outlining",
                ("fxad/api/outline.py",),
                ("fxad/testing/outline_laws.py",),
                ("tests/api/test_outline*.py", "tests/laws/test_outline*.py"),
            ),
            PlugIn(
                "memory_plans",
                ("fxad/api/budget.py",),
                ("fxad/testing/budget_laws.py",),
                ("tests/api/test_*_budget.py", "tests/laws/test_budget_laws.py"),
            ),
            PlugIn("equality", (), ("fxad/testing/equality_*.py",), ("tests/equal",), parent="diagnosis"),
            PlugIn(
                "precision",
                ("fxad/api/precision.py",),
                ("fxad/testing/precision_laws.py",),
                ("tests/precision",),
            ),
            PlugIn("sparse", ("fxad/api/sparse",), ("fxad/testing/sparse_laws.py",), ("tests/sparse",)),
            PlugIn("record", ("fxad/diagnosis/bisect", "fxad/replay.py"), tests=("tests/record",), parent="diagnosis"),
            PlugIn("reduce", (), ("fxad/testing/reduced_*.py",), ("tests/reduce",), parent="diagnosis"),
            PlugIn("explain", ("fxad/explain.py",), (), ("tests/explain",), "diagnosis"),
        )
    }
)


def copy_without(names: AbstractSet[str], to: Path, root: Path = ROOT) -> None:
    """Copies the package and its tests to a folder, without some plug-ins."""
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for folder in ("fxad", "tests", "stubs"):
        shutil.copytree(root / folder, to / folder, ignore=ignore)
    shutil.copy(root / "pyproject.toml", to)
    deleted = set[str]()
    for pattern in [p for name in sorted(names) for p in PLUG_INS[name].patterns]:
        found = sorted(to.glob(pattern))
        assert found, f"no file is {pattern}"
        for path in found:
            deleted |= {module_of(p.relative_to(to)) for p in [path, *path.rglob("*.py")]}
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    exports = dict[str, set[str]]()
    for table in TABLES:
        path = to / table
        if path.exists():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            edit = _Edit(module_of(Path(table)), deleted, exports)
            edit.run(tree)
            path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")


def module_of(path: Path) -> str:
    """Returns the dotted name of a module or package."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@final
class _Edit(ast.NodeTransformer):
    """Removes what needs deleted modules from one file. `exports` gets the names that a package loses."""

    def __init__(self, module: str, deleted: AbstractSet[str], exports: dict[str, set[str]]) -> None:
        self.module, self.deleted, self.exports = module, deleted, exports
        self.gone = set[str]()  # names of this module

    def run(self, tree: ast.Module) -> None:
        self._remove_imports(tree)
        self.exports[self.module] = {*self.gone}
        before = -1
        while len(self.gone) != before:  # a function that calls a removed one is removed
            before = len(self.gone)
            for node in list(tree.body):
                if isinstance(node, ast.FunctionDef) and self._needs_deleted(node):
                    tree.body.remove(node)
                    self.gone.add(node.name)
        self.visit(tree)
        left = [ast.unparse(node) for node in tree.body if self._needs_deleted(node)]
        assert not left, f"{self.module} needs what is deleted: {left[0]:.300}"

    def _remove_imports(self, tree: ast.Module) -> None:
        for parent in [n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.If)]:
            for node in [n for n in parent.body if isinstance(n, ast.ImportFrom)]:
                source = self._source(node)
                gone = [a for a in node.names if self._is_deleted(source, a.name)]
                self.gone |= {a.asname or a.name for a in gone}
                node.names = [a for a in node.names if a not in gone]
                if not node.names:
                    parent.body.remove(node)

    def _source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module.split(".")[: 1 - node.level or None]  # a table with relative imports is an `__init__`
        return ".".join([*package, *([node.module] if node.module else [])])

    def _is_deleted(self, source: str, name: str) -> bool:
        return source in self.deleted or f"{source}.{name}" in self.deleted or name in self.exports.get(source, ())

    def _needs_deleted(self, node: ast.AST) -> bool:
        return any(map(self._is_gone, ast.walk(node)))

    def _is_gone(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.gone
            case ast.Attribute(value=ast.Name(id=package), attr=name):  # `transforms.outline`
                return name in self.exports.get(f"fxad.{package}", ())
            case _:
                return False

    def _stays(self, node: ast.expr | None) -> bool:
        """An element stays if it needs nothing that is deleted, and is not the name of it."""
        if node is None:
            return True
        if isinstance(node, ast.Constant):
            return node.value not in self.deleted and node.value not in self.gone
        if isinstance(node, ast.Tuple | ast.List | ast.Dict):
            return True  # its elements are judged
        return not self._needs_deleted(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        node.elts = [e for e in node.elts if self._stays(e)]
        return self.generic_visit(node)

    def visit_List(self, node: ast.List) -> ast.AST:
        node.elts = [e for e in node.elts if self._stays(e)]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        pairs = [(k, v) for k, v in zip(node.keys, node.values, strict=True) if self._stays(k) and self._stays(v)]
        node.keys, node.values = [k for k, _ in pairs], [v for _, v in pairs]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.bases = [b for b in node.bases if self._stays(b)]
        return self.generic_visit(node)
