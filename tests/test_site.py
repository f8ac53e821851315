"""The site: it is built without a warning, and each page fits into windows of 400 and 1400 pixels.

    pip install -e '.[dev,site]' && python -m pytest -m browser tests/test_site.py

The second part needs Chromium. `.ci/run` builds the site.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[1]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (400, 1400)
PAGES = (
    *("index", "tutorial", "tutorial-sparse", "asked-in-jax", "reference/fxad", "reference/fxad.optim"),
    *("gallery/index", "gallery/explained_transformer", "gallery/flax_model", "benchmarks/history"),
)
HEADLESS = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=9000", "--dump-dom")
# Frames of both widths show a page; what is wider than its frame is named in the text of the page.
FRAMES = """<body><script>
const widths = %s, page = "%s";
for (const width of widths) {
  const frame = document.createElement("iframe");
  Object.assign(frame, { width, height: 900, src: page });
  frame.onload = () => {
    const line = document.createElement("p");
    line.textContent = `${width} shows ${frame.contentDocument.documentElement.scrollWidth}`;
    document.body.append(line);
  };
  document.body.append(frame);
}
</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
                          capture_output=True, text=True, check=False, cwd=ROOT)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.browser
def test_links_lead_somewhere(site: Path) -> None:
    """No page reads anything from the network, and the files that pages name exist."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        for target in re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="([^"#]+)"', text):
            if "://" not in target and page.name != "404.html":
                assert (page.parent / target).exists(), (page.name, target)
            else:
                assert page.name == "404.html" or 'rel="canonical"' in text, (page.name, target)


@pytest.mark.browser
def test_the_gallery_has_pictures(site: Path) -> None:
    pictures = [*(site / "gallery").glob("*.svg"), site / "benchmarks" / "history.svg"]
    assert len(pictures) == 9
    for picture in pictures:
        assert ET.parse(picture).getroot().tag.endswith("svg")
        page = picture.with_suffix(".html").read_text("utf-8")
        assert f'src="{picture.name}"' in page
        assert "The picture" in page or picture.stem == "history", "a page says what is seen"
    assert sum([path.stat().st_size for path in pictures]) < 2**20


@pytest.mark.browser
def test_a_notebook_has_the_blocks_of_its_page(site: Path) -> None:
    """The cells are the blocks of the page, in order, and the page links to the notebook."""
    pages = {"index": ROOT / "README.md", **{path.stem: path for path in (ROOT / "docs").glob("*.md")}}
    notebooks = {path.stem: path for path in (site / "notebooks").glob("*.ipynb")}
    runs = {name for name, path in pages.items() if "```python" in path.read_text("utf-8")}
    assert runs - {"contributing"} <= set(notebooks)
    for name in runs:
        blocks = re.findall(r"^```python\n(.*?)\n```", pages[name].read_text("utf-8"), re.MULTILINE | re.DOTALL)
        cells = json.loads(notebooks[name].read_text("utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert code == [block.strip("\n") for block in blocks], name
        assert f"notebooks/{name}.ipynb" in (site / f"{name}.html").read_text("utf-8")


@pytest.mark.browser
def test_every_public_name_has_an_entry(site: Path) -> None:
    """Names are those of the stubs and of `__all__`. Signatures are in the page, and types link to their classes."""
    for page in (site / "reference").glob("fxad*.html"):
        text, module = page.read_text("utf-8"), importlib.import_module(page.stem)
        for name in getattr(module, "__all__", None) or dir(module):
            if not (
                name.startswith("_") or isinstance(getattr(module, name), ModuleType) or page.stem == "fxad.errors"
            ):
                assert f'id="{page.stem}.{name}"' in text, (page.stem, name)
    reference = (site / "reference" / "fxad.html").read_text("utf-8")
    assert reference.count("autorefs-internal") > 200, "links to types"
    grad = reference[reference.index('id="fxad.grad"') :]
    parts = "holomorphic", '<details class="doc-overloads">', "Return the gradient"
    assert sorted(parts, key=grad.index) == list(parts), "the signature, then the overloads, folded, then the text"


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_into_the_window(site: Path, page: str) -> None:
    frames = site / "frames.html"
    frames.write_text(FRAMES % (list(WIDTHS), f"{page}.html"), "utf-8")
    done = subprocess.run([str(BROWSER), *HEADLESS, "--allow-file-access-from-files", frames.as_uri()],
                          capture_output=True, text=True, check=False, timeout=120)  # fmt: skip
    shown = {int(a): int(b) for a, b in re.findall(r"<p>(\d+) shows (\d+)</p>", done.stdout)}
    assert set(shown) == set(WIDTHS), done.stderr[-1000:]
    assert [(width, wide) for width, wide in shown.items() if wide > width] == []


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_search_works_from_the_folder(site: Path) -> None:
    done = subprocess.run([str(BROWSER), *HEADLESS, (site / "tutorial.html").as_uri() + "?q=hessian"],
                          capture_output=True, text=True, check=False, timeout=120)  # fmt: skip
    assert re.search(r"\d+ matching documents", done.stdout)
    first = re.search(r'href="([^"]+)"[^>]*md-search-result__link', done.stdout)
    assert first is not None
    assert "reference/fxad.html" in first[0], "the name itself, before the pages that speak of it"
