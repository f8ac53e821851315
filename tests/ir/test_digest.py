"""The digest is the same in every process, and differs for programs that differ."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from fxad.ir import Jaxpr
from fxad.text import parse, to_text
from tests.ir.strategies import VOCABULARY, programs

ROOT = Path(__file__).resolve().parents[2]

GOLDEN = {
    """main @empty() -> () {
  return
}
""": "a8e2ab59802d02b8e2d5074bbc21b7be12a23fffd913d397ab351698108d5dda",
    """main @identity(%arg0: f32[3,4]) -> (f32[3,4]) {
  return %arg0
}
""": "5c4fadb2f9c5f19cce52c61be7311c891c9a085d6db1cf17dd576825a189b398",
    """main @f(%arg0: f32[3]) -> (f32[3], bf16[0], c64[]) {
  %0: f32[3] = sin %arg0
  %1: f32[3] = mul %0, 0.1:f32[3]
  return %1, 0x7fc1:bf16[0], complex(-0.0, nan):c64[]
}
""": "9ee3d5109b65d0929c662b6aa0542c5525f0c8523dc8544017ad043b7944e854",
    """fn @inner(%arg0: f64[2,3]) -> (f64[3]) {
  %0: f64[3] = reduce_sum[axes=(0,)] %arg0
  return %0
}
main @f(%arg0: f64[2,3]) -> (f64[3]) {
  %0: f64[3] = call[body=@inner] %arg0
  return %0
}
""": "3c7a8ed0c7f0f82a1416b5ee37e9c161807d057a8d5a4d316e70e0c7757f64e3",
}

IN_ANOTHER_PROCESS = """
import sys
from fxad.text import parse
for text in sys.stdin.read().split("\\0"):
    print(parse(text).digest)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("text", GOLDEN, ids=range(len(GOLDEN)))
def test_golden(text: str) -> None:
    """If these change, the key of every executable on disk changes."""
    assert parse(text).digest == GOLDEN[text]


def pythons() -> list[str]:
    """Returns this Python, and others on the path that have fxad's dependencies."""
    found = {sys.executable: None}
    for minor in (11, 12, 13, 14):
        path = shutil.which(f"python3.{minor}")
        command = [path or "", "-c", "import numpy, ml_dtypes"]
        if path and subprocess.run(command, check=False, capture_output=True).returncode == 0:
            found[path] = None
    return list(found)


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_same_in_another_process(seed: str) -> None:
    for python in pythons():
        done = subprocess.run(
            [python, "-c", IN_ANOTHER_PROCESS],
            input="\0".join(GOLDEN),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == list(GOLDEN.values())


def test_names_do_not_change_the_digest() -> None:
    *_, text = GOLDEN
    renamed = text.replace("@inner", '@"<lambda>"').replace("@f", "@g")
    expected = GOLDEN[text]
    assert parse(renamed).digest == expected


@given(programs(), programs())
def test_equal_exactly_when_the_programs_are(a: Jaxpr, b: Jaxpr) -> None:
    assert (a.digest == b.digest) == (a is b)
    assert parse(to_text(a), VOCABULARY).digest == a.digest


def test_literals_with_different_bits_have_different_digests() -> None:
    values = [
        "0.0:f32[]",
        "-0.0:f32[]",
        "nan:f32[]",
        "0x7fc00001:f32[]",
        "0:i32[]",
        "0:u32[]",
        "0.0:f32[1]",
        "0.0:f16[]",
    ]
    digests = {parse(f"main @f() -> ({v.split(':')[1]}) {{\n  return {v}\n}}").digest for v in values}
    assert len(digests) == len(values)
