"""Generates the list in `docs/gpu.md`: lines that depend on the platform, or are for GPUs only, and never ran on a GPU.

python docs/gpu.py            write it
python docs/gpu.py --check    exit 1 if it is stale
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- list: python docs/gpu.py -->\n", "<!-- end of the list -->\n"
PLATFORMS = {"cpu", "cuda", "gpu"}
# Functions that have run on a GPU, by the commands of the page.
RAN = {
    "fxad/lower.py": {"lower_jaxpr"},
    "fxad/primitives/host_call.py": {"custom_call"},
    "fxad/primitives/linalg/lapack.py": {"lapack_call"},
    "fxad/xla/buffers.py": {"dlpack_device", "to_buffer", "to_numpy", "transfer", "_import"},
    "fxad/xla/client.py": {"_Clients._make"},
    "fxad/xla/jaxlib_types.py": {"OneDeviceSharding.__init__"},
    "fxad/xla/cuda.py": {"_Plugin.load", "cuda_client", "cuda_library"},
    "fxad/xla/custom_calls.py": {"_Targets.provide", "implements", "are_portable"},
    "fxad/xla/disk_tier.py": {"CompilerConfiguration.of"},
    "fxad/xla/executable.py": {"XlaExecutable._wrapped", "XlaExecutable.memory"},
    "fxad/xla/host_calls.py": {"compile_with_callbacks"},
    "fxad/xla/interpreter_exit.py": {"_Work._wait"},
    "fxad/xla/options.py": {"xla_options"},
    "fxad/xla/processes.py": {"Processes.connect"},
    "fxad/xla/sharded.py": {"MeshSharding.__init__"},
    "fxad/storage/exported.py": {"_platforms", "_missing_on", "export"},
}


def _names_platform(node: ast.expr) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return any([isinstance(p, ast.Constant) and p.value in PLATFORMS for p in parts])


def _decides(node: ast.AST) -> bool:
    """Return True for a comparison with a platform, a use of its stored result, and names of CUDA."""
    match node:
        case ast.Compare():
            return any([_names_platform(side) for side in (node.left, *node.comparators)])
        case ast.Attribute(value=ast.Call(), attr="on_host", ctx=ast.Load()):
            return True
        case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Load()):
            return "cuda" in name.lower()
        case _:
            return False


def lines_of(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a file that depend on the platform: their number, their function, and their text."""
    text = path.read_text(encoding="utf-8")
    found: dict[int, str] = {}

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}" if function else node.name
        if _decides(node):
            found.setdefault(int(getattr(node, "lineno", 0)), function)
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(text), "")
    source = text.splitlines()
    yield from [(line, found[line], source[line - 1].strip()) for line in sorted(found)]


def table() -> str:
    """Return the list, as a table."""
    rows = ["| file and line | in | code |", "|---|---|---|"]
    for path in sorted((ROOT / "fxad").rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for line, function, code in lines_of(path):
            if function in RAN.get(where, ()):
                continue
            shown = code.replace("|", "\\|")
            rows.append(f"| [{where}:{line}](../{where}#L{line}) | `{function or 'module'}` | `{shown}` |")
    return "\n".join(rows) + "\n"


def refreshed(page: str) -> str:
    """Return the page with the current list."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the list, or checks it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    old = PAGE.read_text(encoding="utf-8")
    fresh = refreshed(old)
    if parser.parse_args(argv).check:
        print("docs/gpu.md is fresh" if old == fresh else "docs/gpu.md is stale: run `python docs/gpu.py`")
        return int(old != fresh)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
