"""The share of JAX's names used by installed packages that exist in fxad at JAX's path.

python benchmarks/coverage.py --site SITE_PACKAGES [package ...]

Reads the source of packages, finds every use of a public name of jax (an import, an attribute of a module of jax), and
looks the name up in fxad at the same path: `jax.numpy.sum` is `fxad.numpy.sum`. A call counts as bound if its arguments
bind to the signature of fxad's function. A file is covered if every name exists and every call binds. jax must be
installed, because it defines the public names. The packages are not imported.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import final

PACKAGES = (
    "flax", "equinox", "optax", "diffrax", "numpyro", "haiku", "blackjax", "jaxopt", "chex", "distrax", "optimistix",
    "lineax", "jmp", "rlax", "brax", "gpjax", "tensorflow_probability",
)  # fmt: skip

# Names that are excluded, each with the reason.
LEFT_OUT = {
    "jax._src": "private",
    "jax.interpreters": "JAX's own interpreters",
    "jax.core": "JAX's own representation of programs",
    "jax.extend": "JAX's own internals, for extensions of JAX",
    "jax.lib": "JAX's binding to jaxlib",
    "jax.api_util": "JAX's own internals",
    "jax.experimental.hijax": "JAX's own internals, experimental",
    "jax.experimental.cur_qdd": "JAX's own internals, experimental",
    "jax.experimental.serialize_executable": "JAX's own executables",
    "jax.example_libraries": "examples that JAX ships, not an interface",
    "jax.config": "flags of the process; fxad has none",
    "jax.experimental.pallas": "kernels in Pallas",
    "jax.experimental.mosaic": "kernels in Mosaic",
    "jax.experimental.jax2tf": "export to TensorFlow",
    "jax.experimental.host_callback": "removed from JAX",
    "jax.experimental.multihost_utils": "several hosts",
    "jax.experimental.compilation_cache": "flags of JAX's cache",
    "jax.experimental.layout": "memory layouts of XLA",
    "jax.experimental.sparse": "an experimental array type",
    "jax.experimental.array_serialization": "JAX's own checkpoint format",
    "jax.experimental.colocated_python": "Python on TPU hosts",
    "jax.experimental.topologies": "descriptions of machines that are not there",
    "jax.experimental.enable_x64": "a flag of the process; 64-bit types are always there",
    "jax.experimental.disable_x64": "a flag of the process; 64-bit types are always there",
    "jax.enable_x64": "a flag of the process; 64-bit types are always there",
    "jax.numpy_dtype_promotion": "a flag of the process",
    "jax.numpy_rank_promotion": "a flag of the process",
    "jax.default_matmul_precision": "a flag of the process; contractions take precision=",
    "jax.transfer_guard": "a flag of the process",
    "jax.check_tracer_leaks": "a flag of the process",
    "jax.checking_leaks": "a flag of the process",
    "jax.debug_nans": "a flag of the process",
    "jax.debug_infs": "a flag of the process",
    "jax.log_compiles": "a flag of the process",
    "jax.legacy_prng_key": "a flag of the process",
    "jax.default_prng_impl": "a flag of the process",
    "jax.threefry_partitionable": "a flag of the process",
    "jax.softmax_custom_jvp": "a flag of the process",
    "jax.custom_derivatives.linear_call": "an internal of JAX's derivatives",
    "jax.custom_derivatives.zero_from_primal": "an internal of JAX's derivatives",
    "jax.monitoring": "JAX's own telemetry",
    "jax.version": "JAX's own version",
    "jax.util": "removed from JAX",
    "jax.linear_util": "removed from JAX",
    "jax.ad_checkpoint.print_saved_residuals": "fxad.residuals returns a table",
}  # fmt: skip


def left_out(name: str) -> bool:
    """Returns True if a name is excluded, or private."""
    parts = name.split(".")
    if any(p.startswith("_") for p in parts) or name.endswith("_p"):  # private, and JAX's primitive objects
        return True
    return any(".".join(parts[:k]) in LEFT_OUT for k in range(1, len(parts) + 1))


@final
@dataclass
class Use:
    """A use of a name in a file; the call, if it is called there."""

    name: str
    file: str
    line: int
    call: ast.Call | None = None
    partial: bool = False


class Reader(ast.NodeVisitor):
    """Finds the uses of jax in one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[str, str] = {}  # local name -> dotted name of jax
        self.uses: list[Use] = []

    def visit_Import(self, node: ast.Import) -> None:
        for a in node.names:
            if a.name == "jax" or a.name.startswith("jax."):
                self.names[a.asname or "jax"] = a.name if a.asname else "jax"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None or not (node.module == "jax" or node.module.startswith("jax.")):
            return
        for a in node.names:
            whole = f"{node.module}.{a.name}"
            self.names[a.asname or a.name] = whole
            if not isinstance(public(whole), ModuleType):
                self.found(whole, node)

    def dotted(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None

    def found(self, whole: str, node: ast.AST, call: ast.Call | None = None, partial: bool = False) -> None:
        name = shortened(whole)
        if name is not None:
            exact = name == whole
            self.uses.append(Use(name, self.file, getattr(node, "lineno", 0), call if exact else None, partial))

    def visit_Call(self, node: ast.Call) -> None:
        whole = self.dotted(node.func)
        if whole is not None:
            self.found(whole, node, node)
        else:
            inner = self.dotted(node.args[0]) if node.args and named_partial(node.func) else None
            if inner is not None:
                rest = ast.Call(node.func, node.args[1:], node.keywords)
                self.found(inner, node, rest, partial=True)
                for child in [*node.args[1:], *node.keywords]:
                    self.visit(child)
                return
            self.visit(node.func)
        for child in [*node.args, *node.keywords]:
            self.visit(child)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        whole = self.dotted(node)
        if whole is None:
            self.visit(node.value)
        else:
            self.found(whole, node)

    def visit_Name(self, node: ast.Name) -> None:
        whole = self.names.get(node.id)
        if whole is not None and isinstance(node.ctx, ast.Load) and not isinstance(public(whole), ModuleType):
            self.found(whole, node)


def named_partial(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "partial") or (
        isinstance(node, ast.Attribute) and node.attr == "partial"
    )


_MISSING = object()
_known: dict[str, object] = {}


def public(name: str, root: str = "jax") -> object:
    """Returns the value of a dotted name, with the package `root` in place of jax, or `_MISSING`."""
    key = f"{root}:{name}"
    if key not in _known:
        _known[key] = _look_up(name, root)
    return _known[key]


def _look_up(name: str, root: str) -> object:
    parts = name.split(".")
    value: object = import_module(root)
    path = root
    for p in parts[1:]:
        path = f"{path}.{p}"
        try:
            value = getattr(value, p)
        except Exception:  # noqa: BLE001  deprecated names raise what they like
            if not isinstance(value, ModuleType):
                return _MISSING
            try:
                value = import_module(path)
            except ImportError:
                return _MISSING
    return value


def shortened(whole: str) -> str | None:
    """Returns the part of a dotted name that is a public name of jax: up to the first that is not a module."""
    parts = whole.split(".")
    for k in range(2, len(parts) + 1):
        name = ".".join(parts[:k])
        if left_out(name):
            return None
        value = public(name)
        if value is _MISSING:
            return None
        if not isinstance(value, ModuleType):
            return name
    return None


def binds(use: Use) -> str:
    """Returns why a call does not bind to fxad's function, or "" if it does or if that is unknown."""
    assert use.call is not None
    fn = public(use.name, "fxad")
    if not callable(fn):
        return "not callable"
    if any(isinstance(a, ast.Starred) for a in use.call.args) or any(k.arg is None for k in use.call.keywords):
        partial = True
    else:
        partial = use.partial
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return ""
    args = [a for a in use.call.args if not isinstance(a, ast.Starred)]
    named = {k.arg: k.value for k in use.call.keywords if k.arg is not None}
    try:
        (signature.bind_partial if partial else signature.bind)(*args, **named)
    except TypeError as e:
        return str(e)
    return ""


def sources(site: Path, package: str) -> Iterator[Path]:
    at = site / package
    if at.is_dir():
        yield from (Path(d) / f for d, _, files in os.walk(at) for f in files if f.endswith(".py"))
    elif at.with_suffix(".py").exists():
        yield at.with_suffix(".py")


@final
@dataclass
class Coverage:
    """The result for a package."""

    uses: list[Use] = field(default_factory=list)
    files: set[str] = field(default_factory=set)

    def report(self, most: int) -> str:
        there = [u for u in self.uses if public(u.name, "fxad") is not _MISSING]
        calls = [u for u in there if u.call is not None]
        unbound = [(u, why) for u in calls if (why := binds(u))]
        bad = {u.file for u in self.uses if public(u.name, "fxad") is _MISSING} | {u.file for u, _ in unbound}
        using = {u.file for u in self.uses}
        names = {u.name for u in self.uses}
        lines = [
            f"names  {share(sum(public(n, 'fxad') is not _MISSING for n in names), len(names))}",
            f"uses   {share(len(there), len(self.uses))}",
            f"calls  {share(len(calls) - len(unbound), len(calls))} of those whose name exists bind",
            f"files  {share(len(using - bad), len(using))} find every name and bind every call",
            "",
            "missing names, by uses:",
        ]
        absent = Counter(u.name for u in self.uses if public(u.name, "fxad") is _MISSING)
        lines += [f"{n:6} {name}" for name, n in absent.most_common(most)]
        reasons = Counter((u.name, reason) for u, reason in unbound)
        lines += ["", "calls that do not bind:", *[f"{n:6} {a}: {t}" for (a, t), n in reasons.most_common(most)]]
        return "\n".join(lines)


def share(part: int, whole: int) -> str:
    return f"{part:6} of {whole:6}  {100 * part / max(whole, 1):5.1f} %"


def main() -> None:
    """Prints the coverage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--site", type=Path, default=Path(inspect.getfile(ast)).parent / "site-packages")
    parser.add_argument("--most", type=int, default=40)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    total = Coverage()
    each: defaultdict[str, Coverage] = defaultdict(Coverage)
    for package in args.packages:
        for path in sources(args.site, package):
            reader = Reader(str(path))
            try:
                reader.visit(ast.parse(path.read_text(encoding="utf-8")))
            except (SyntaxError, UnicodeDecodeError):
                continue
            for found in (total, each[package]):
                found.uses += reader.uses
    for package, found in each.items():
        using = {u.file for u in found.uses}
        there = sum(public(u.name, "fxad") is not _MISSING for u in found.uses)
        print(f"{package:24} {len(using):4} files  uses {share(there, len(found.uses))}")
    print(total.report(args.most))


if __name__ == "__main__":
    main()
