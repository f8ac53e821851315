"""The pages of the site that are not files in `docs`: a hook of mkdocs, which `mkdocs.yml` names.

- the start page, from README.md;
- a page for each example, with its text, its source, and the picture that it draws: the gallery;
- the page of the benchmarks' history;
- a page for each public module, with the definition of each name, which mkdocstrings writes;
- a page for each source file that pages link to;
- a notebook for each page that runs, made from the same source by jupytext.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import posixpath
import re
import runpy
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import griffe
import jupytext
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
PUBLIC: Final = (
    *("fxad", "fxad.numpy", "fxad.numpy.fft", "fxad.numpy.linalg", "fxad.lax", "fxad.lax.linalg", "fxad.random"),
    *("fxad.nn", "fxad.nn.initializers", "fxad.optim", "fxad.tree", "fxad.sharding", "fxad.distributed"),
    *(
        "fxad.debug",
        "fxad.passes",
        "fxad.text",
        "fxad.extend",
        "fxad.testing",
        "fxad.image",
        "fxad.errors",
        "fxad.interop.jax",
        "fxad.scipy.fft",
    ),
    *("fxad.scipy.integrate", "fxad.scipy.interpolate", "fxad.scipy.linalg", "fxad.scipy.ndimage"),
    *("fxad.scipy.optimize", "fxad.scipy.signal", "fxad.scipy.special", "fxad.scipy.stats"),
)
# The pages of `docs` in the order in which they are shown. mkdocs reports a page that is in none of the parts.
PARTS: Final = {
    "Learn": "tutorial tutorial-tree tutorial-numpy tutorial-lax tutorial-random tutorial-derivatives tutorial-running"
    " tutorial-compiling tutorial-caching tutorial-memory tutorial-loops tutorial-nn tutorial-optim tutorial-training"
    " tutorial-sparse tutorial-series tutorial-precision tutorial-mask tutorial-devices tutorial-testing"
    " tutorial-own-primitive tutorial-own-transformation",
    "How to": "coming-from-jax asked-in-jax when-something-is-wrong reduce equal explain jax-names",
    "Explanation": "architecture glossary memory benchmarks benchmarks-oldest benchmarks/history gpu known-faults",
}
TABLES: Final = ("rule-matrix.md", "numpy-coverage.md")
TOP: Final = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
# The examples that draw pictures, with the arguments for a quick run. They are run while the pages are made.
PICTURES: Final = {
    "optimal_control": "--intervals 300",
    "helmholtz": "--steps 40 --points 300",
    "reduced_fault": "",
    "explained_transformer": "--page {folder}/explained_transformer.page.html",
    "limited_simulator": "--limit 1MiB",
    "sentences": "--steps 200",
    "data_parallel": "--steps 10",
    "flax_model": "",
}
# Examples import these.
HELPERS: Final = ("pictures", "side_by_side")
# The weights of pages in the search, by the start of a page's path.
SEARCH: Final = {
    "reference/": {"boost": 4},
    "adr/": {"boost": 0.5},
    "changelog": {"boost": 0.5},
    "source/": {"exclude": True},
}
# A link to a file outside of `docs`: it leads to the page that is made for the file.
_LINK: Final = re.compile(r"(\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the order of all pages."""
    _DRAWN.start()

    def add(path: str, content: str) -> None:
        files.append(File.generated(config, path, content=content))

    for page, name in TOP.items():
        add(page, (ROOT / name).read_text("utf-8"))
    examples = sorted((ROOT / "examples").glob("*.py"))
    for path in examples:
        add(f"gallery/{path.stem}.md", _example(path))
        add(f"gallery/{path.name}", path.read_text("utf-8"))
    for name in [*[f"{example}.svg" for example in PICTURES], "explained_transformer.page.html"]:
        files.append(File.generated(config, f"gallery/{name}", abs_src_path=str(_DRAWN.folder / name)))
    add("gallery/index.md", _gallery(examples))
    add("benchmarks/history.md", _history())
    files.append(File.generated(config, "benchmarks/history.svg", abs_src_path=str(_DRAWN.folder / "history.svg")))
    for name in PUBLIC:
        add(f"reference/{name}.md", _reference(name))
    rows = [f"| [`{name}`]({name}.md) | {_summary(importlib.import_module(name))} |" for name in PUBLIC]
    add("reference/index.md", "\n".join(["# Reference", "", "| module | |", "|---|---|", *rows, ""]))
    decisions = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    config.nav = [
        {"fxad": [*TOP]},
        *[{part: [f"{page}.md" for page in pages.split()]} for part, pages in PARTS.items()],
        {"Reference": ["reference/index.md", *[{name: f"reference/{name}.md"} for name in PUBLIC], *TABLES]},
        {
            "Gallery": [
                "gallery/index.md",
                *[{p.stem.replace("_", " "): f"gallery/{p.stem}.md"} for p in examples if p.stem not in HELPERS],
                {"code that examples share": [f"gallery/{name}.md" for name in HELPERS]},
            ]
        },
        {"Decisions": ["adr/README.md", *[f"adr/{name}" for name in decisions]]},
    ]
    for page in [*files.documentation_pages()]:
        text = page.content_string
        if "```python" in text and "/" not in page.src_uri:
            # commands for a shell are to be read: as cells, "Run all" would run them
            notebook = jupytext.writes(jupytext.reads(text.replace("```sh\n", "```text\n"), fmt="md"), fmt="ipynb")
            add(f"notebooks/{Path(page.src_uri).stem}.ipynb", notebook)
        for linked in _linked(text, page.src_uri):
            if files.get_file_from_path(_made(linked)) is None and (ROOT / linked).is_file():
                language = {".py": "python", ".pyi": "python"}.get(Path(linked).suffix, "text")
                source = (ROOT / linked).read_text("utf-8")
                add(_made(linked), f"# `{linked}`\n\n````{language}\n{source}\n````\n")
    return files


def on_env(env: Any, **_: Any) -> Any:
    """Wait for the pictures: the files are copied next."""
    _DRAWN.wait()
    return env


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Turn links to files of the repository into links to their pages, and add the link to the notebook."""
    here = page.file.src_uri

    def link(match: re.Match[str]) -> str:
        path = _repository_path(match[2], here)
        if path is None or files.get_file_from_path(_made(path)) is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(_made(path), posixpath.dirname(here) or '.')}{match[3]}"

    for start, search in SEARCH.items():
        if here.startswith(start):
            page.meta["search"] = search
    notebook = f"notebooks/{Path(here).stem}.ipynb"
    text = _outside_of_code(markdown, lambda part: _LINK.sub(link, part))
    if here.count("/") == 0 and files.get_file_from_path(notebook) is not None:
        head, _sep, rest = text.partition("\n")
        text = f"{head}\n\n[This page as a notebook]({notebook}){{ download }}\n{rest}"
    return text


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Read the script of the offline search from the site: it needs no network."""
    script = posixpath.relpath("frame-worker.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", script)


class _Pictures:
    """Runs the examples that draw, one after another, beside the build."""

    def start(self) -> None:
        self._home = tempfile.TemporaryDirectory()
        self.folder = Path(self._home.name)
        pool = ThreadPoolExecutor(1)
        self._runs: list[Future[None]] = [pool.submit(self._draw, "history", "-m benchmarks.history")]
        for example, arguments in PICTURES.items():
            self._runs.append(pool.submit(self._draw, example, f"examples/{example}.py {arguments}"))

    def _draw(self, name: str, program: str) -> None:
        command = [sys.executable, *program.format(folder=self.folder).split(), "--plot", f"{self.folder / name}.svg"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            raise RuntimeError(f"{program} ends with {done.returncode}:\n{done.stderr[-2000:]}")

    def wait(self) -> None:
        """Wait for all pictures. Raises: RuntimeError with the output of an example that fails."""
        for run in self._runs:
            run.result()


_DRAWN: Final = _Pictures()


def _outside_of_code(markdown: str, change: Any) -> str:
    parts = re.split(r"(^(`{3,}).*?^\2$)", markdown, flags=re.MULTILINE | re.DOTALL)
    # the pattern has two groups: text, block, fence, text, ...
    return "".join([change(part) if k % 3 == 0 else part for k, part in enumerate(parts) if k % 3 != 2])


def _repository_path(target: str, page: str) -> str | None:
    """Return the path, in the repository, of the file that a link of a page names; None for addresses."""
    if "://" in target or target.startswith(("#", "mailto:")):
        return None
    folder = "" if page in TOP else posixpath.join("docs", posixpath.dirname(page))
    return posixpath.normpath(posixpath.join(folder, target))


def _linked(text: str, page: str) -> set[str]:
    found = {_repository_path(match[2], page) for match in _LINK.finditer(text)}
    return {path for path in found if path is not None and not path.startswith("docs/")}


def _made(path: str) -> str:
    """Return the page of the site for a file of the repository."""
    for page, name in TOP.items():
        if path == name:
            return page
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".py"):
        return f"gallery/{Path(path).stem}.md"
    return f"source/{path}.md"


def _example(path: Path) -> str:
    source = path.read_text("utf-8")
    doc = ast.get_docstring(ast.parse(source)) or path.stem
    title, _, rest = doc.partition("\n")
    shown = f"![what the example draws]({path.stem}.svg)\n\n" if path.stem in PICTURES else ""
    page = "[The page that it writes](explained_transformer.page.html)\n\n" * (path.stem == "explained_transformer")
    file = f"[{path.name}]({path.name}){{ download }}"
    return (
        f"# {title.rstrip('.')}\n\n{shown}{_indented_as_code(rest)}\n\n{page}{file}\n\n"
        # the search finds its text and not its code
        f'<div data-search-exclude markdown="block">\n\n```python title="examples/{path.name}"\n{source}```\n\n</div>\n'
    )


def _indented_as_code(text: str) -> str:
    return re.sub(r"(?m)^    (python .*)$", r"```sh\n\1\n```", text)


def _gallery(examples: list[Path]) -> str:
    titles = {}
    for path in examples:
        titles[path.stem] = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or path.stem).splitlines()[0]
    cards = [f"- [![{name}]({name}.svg)]({name}.md)\n\n    [{titles[name]}]({name}.md)\n" for name in PICTURES]
    more = [(name, title) for name, title in titles.items() if name not in (*PICTURES, *HELPERS)]
    rows = [f"| [{name.replace('_', ' ')}]({name}.md) | {title} |" for name, title in more]
    return "\n".join([
        *("# Gallery", "", "The tests run each example. The pictures were drawn when this site was built.", ""),
        *('<div class="grid cards" markdown>', "", *cards, "</div>", "", "| more examples | |", "|---|---|", *rows, ""),
    ])  # fmt: skip


def _history() -> str:
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "history.py"))
    columns, *rows = [row.split(",") for row in benchmark["HISTORY"].read_text("utf-8").split()]
    table = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
    meanings = [f"- `{name}`: {text}" for name, text in benchmark["FIGURES"].items()]
    text = "A line is added by `make history`. Times are CPU times, the best of several turns."
    parts = [
        "# Benchmarks by commit",
        "",
        text,
        "",
        "![each figure, by commit](history.svg)",
        "",
        '<div class="figures" markdown>',
        "",
        *table,
        "",
        "</div>",
        "",
        *meanings,
    ]
    return "\n".join([*parts, "", "See also the [comparison with JAX](../benchmarks.md).", ""])


def _summary(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


class Docstrings(griffe.Extension):
    """Examples in docstrings, as blocks of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _with_examples(obj.docstring.value)


def _with_examples(text: str) -> str:
    """Turn paragraphs of `>>>` into blocks of code, and the lines of `Law:`, `Cost:` and `Raises:` into paragraphs."""
    text = re.sub(r"(?m)^(Law|Cost|Raises|Type|Rule):", r"\n**\1:**", text)
    return re.sub(r"(?ms)^( *)>>> .*?(?=\n\s*\n|\Z)", _as_block, text)


def _as_block(match: re.Match[str]) -> str:
    lines = [line.removeprefix(match[1]) for line in match[0].splitlines()]
    return "\n".join(["", "```pycon", *lines, "```"])


def _reference(name: str) -> str:
    module = importlib.import_module(name)
    names = sorted(_names(module), key=str.lower)
    parts = [f"# `{name}`", "", _with_examples(inspect.getdoc(module) or ""), ""]
    for member in names:
        parts += _member(name, member, getattr(module, member))
    return "\n".join(parts)


def _names(module: ModuleType) -> set[str]:
    """Return the public names of a module; those of `fxad.errors` are its classes."""
    if module.__name__ == "fxad.errors":
        return {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
                and isinstance(value, type)}  # fmt: skip
    return set(getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")])


def _member(module: str, name: str, value: Any) -> list[str]:
    """Return the entry of a public name: its definition, which mkdocstrings finds, or its signature and docstring."""
    if isinstance(value, ModuleType) or name.startswith("_"):
        return []
    home, own = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if str(home).startswith("fxad") and _is_defined(home, own):
        options = ["    options:", f"      heading: {name}", f"      toc_label: {name}"]
        return [f'<a id="{module}.{name}"></a>', "", f"::: {home}.{own}", *options, ""]
    text = _with_examples(inspect.getdoc(value) or "") if callable(value) else f"Value: `{value!r}`"[:200]
    try:
        signature = f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        signature = name
    return [f"## `{name}` {{ #{module}.{name} }}", "", f"```python\n{signature}\n```", "", text, ""]


def _is_defined(home: str, name: str) -> bool:
    """Return whether the source of a module defines the name, at its top level."""
    found = inspect.getsourcefile(importlib.import_module(home))
    return found is not None and name in _definitions(found)


def _definitions(path: str, known: dict[str, set[str]] = {}) -> set[str]:  # noqa: B006
    if path not in known:
        body = ast.parse(Path(path).read_text("utf-8")).body
        known[path] = {s.name for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    return known[path]
