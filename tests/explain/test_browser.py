"""The page in a real browser.

`apt-get install chromium`, then `python -m pytest -m deep tests/explain/test_browser.py`.

It fits 400 and 1400 pixels, in light and dark, without errors, and its links open what they lead to.
`FXAD_SCREENSHOTS=folder` keeps a picture of each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fxad as fx
from tests.explain import planted

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SCHEMES = {"dark": 0, "light": 1}  # of Chromium's setting

pytestmark = [pytest.mark.deep, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

# Writes what a reader would notice into the title: the width of the page and of the window, colours, pictures, errors.
PROBE = """<script>
addEventListener("load",()=>{const body=getComputedStyle(document.body),root=document.documentElement;
const svg=document.querySelector("svg").getBoundingClientRect();
location.hash=document.querySelector("td a").getAttribute("href");
document.querySelector("th:last-child").click();
document.title=[root.scrollWidth,innerWidth,body.backgroundColor,body.color,Math.round(svg.width),
document.querySelectorAll("section").length,window.problem||"none"].join("|")});
addEventListener("error",e=>{window.problem=e.message});
</script></head>"""


@pytest.fixture(scope="module")
def page() -> str:
    return str(fx.explain(planted.nested_remat()).html())


def chromium(file: Path, width: int, scheme: str, *options: str) -> str:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    scheme_setting = f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"
    command += [f"--window-size={width},2000", scheme_setting, *options, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits(page: str, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(page.replace("</head>", PROBE), encoding="utf-8")
    dom = chromium(file, width, scheme, "--dump-dom", "--virtual-time-budget=2000")
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None
    scroll, window, background, ink, picture, sections, problem = title[1].split("|")
    assert problem == "none"
    assert int(scroll) <= int(window) <= width + 100  # headless windows are at least 500 pixels wide
    assert (brightness(background) > brightness(ink)) == (scheme == "light")
    assert abs(brightness(background) - brightness(ink)) > 150
    assert 0.5 * min(int(window), 900) < int(picture) <= int(window)
    assert int(sections) == 8
    assert 'aria-sort="' in dom
    keep = os.environ.get("FXAD_SCREENSHOTS")
    picture_file = Path(keep or tmp_path) / f"page-{width}-{scheme}.png"
    file.write_text(page, encoding="utf-8")
    chromium(file, width, scheme, f"--screenshot={picture_file}")
    assert picture_file.read_bytes().startswith(b"\x89PNG")


def brightness(colour: str) -> float:
    numbers: list[Any] = re.findall(r"\d+", colour)
    return sum(int(n) for n in numbers[:3]) / 3
