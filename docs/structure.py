"""Counts properties of the code: `make structure`.

They are signs for a reader, not limits. A worse line of code is not worth a better count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fxad"

# Primitives with bodies. Code outside their own files that tests for one of them uses more than its layout.
WITH_BODIES = (
    "Applied", "Call", "CallWithRules", "Cond", "Fold", "LinearCall", "LinearSolve", "NamedCall", "Reduce",
    "ReduceWindow", "Remat", "Root", "Scan", "While",
)  # fmt: skip
OWN_FILES = ("primitives/",)
_NAMES = "|".join(WITH_BODIES)
SWITCH = re.compile(rf"isinstance\([^()]*,\s*\(?[\w.| ]*\b({_NAMES})\b|\bcase ({_NAMES})\(")
RENAMING = re.compile(r"env\.get\((\w+), \1\) for \1 in \w+\.ins")


def sources() -> dict[str, str]:
    """Return the files of the package, by their paths in it."""
    return {p.relative_to(PACKAGE).as_posix(): p.read_text(encoding="utf-8") for p in sorted(PACKAGE.rglob("*.py"))}


def matches(pattern: re.Pattern[str], files: dict[str, str]) -> dict[str, int]:
    """Return how often a pattern occurs in each file that contains it."""
    return {name: n for name, text in files.items() if (n := len(pattern.findall(text)))}


def shared_names(files: dict[str, str]) -> list[tuple[str, int]]:
    """Return names of module-level functions that four or more modules define."""
    names: Counter[str] = Counter()
    for text in files.values():
        names.update({f.name.lstrip("_") for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)})
    return [(name, n) for name, n in names.most_common() if n >= 4]


def report() -> str:
    """Yield the counts, a line each."""
    files = sources()
    outside = {name: text for name, text in files.items() if not name.startswith(OWN_FILES)}
    switches, loops = matches(SWITCH, outside), matches(RENAMING, files)
    lines = {name: text.count("\n") for name, text in files.items()}
    packages: Counter[str] = Counter()
    for name, n in lines.items():
        packages[name.split("/")[0].removesuffix(".py")] += n
    every = "\n".join(files.values())
    rows = [
        ("lines", f"{sum(lines.values()):,} in {len(files)} files"),
        ("largest packages", ", ".join([f"{name} {n:,}" for name, n in packages.most_common(8)])),
        ("modules at the top of the package", ", ".join([n for n in files if "/" not in n and n != "__init__.py"])),
        (
            "switches over primitives with bodies, outside primitives/",
            f"{sum(switches.values())} in {len(switches)} files: "
            + ", ".join([f"{name} {n}" for name, n in sorted(switches.items(), key=lambda x: -x[1])[:6]]),
        ),
        ("loops that rename operands", f"{sum(loops.values())} in {len(loops)} files"),
        ("function names shared by four or more modules", ", ".join([f"{n} {k}" for n, k in shared_names(files)])),
        ("Any", str(len(re.findall(r"\bAny\b", every)))),
        ("cast", str(len(re.findall(r"\bcast\(", every)))),
        ("type: ignore", str(len(re.findall(r"type:\s*ignore", every)))),
    ]
    return "\n".join([f"{name}: {value}" for name, value in rows])


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
