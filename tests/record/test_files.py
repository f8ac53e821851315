"""Files of recorded calls that are damaged, forged, or of another version; the command line."""

from __future__ import annotations

import hashlib
import json
import random
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.diagnosis.record import versions
from fxad.storage.file_format import FileSection, pack, unpack
from tests.processes import run_python
from tests.record.faults import Clipped, clipped

RUN = """
import runpy, sys
sys.argv = ["fxad.replay", *sys.argv[1:]]
sys.stderr = sys.stdout
try:
    runpy.run_module("fxad.replay", run_name="__main__")
except SystemExit as e:
    print(e.code)
"""
X = np.linspace(0.5, 1.5, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    with fx.record(tmp_path):
        fx.jit(lambda x: fnp.sum(fnp.sin(x) * 2))(X)
    return tmp_path / "000000.fxcall"


def test_every_damaged_byte_is_found(file: Path) -> None:
    """Truncated, and with one byte changed, a file is refused, or is another whole file: without its results."""
    data = file.read_bytes()
    choose = random.Random(0)
    for end in [*choose.sample(range(len(data)), 20), len(data) - 1]:
        file.write_bytes(data[:end])
        assert _is_refused(file, end)
    for at in choose.sample(range(len(data)), 30):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert _is_refused(file, at)


def _is_refused(file: Path, at: int) -> bool:
    try:
        (call,) = fx.replay(file)
    except fx.errors.FileFormatError:
        return True
    return call.ended_process  # cut between the sections: the file as it was before the call returned


def forge(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the description of a call, with a correct checksum."""
    _, sections = unpack("test", file.read_bytes(), "fxad call", 2)
    head = json.loads(sections[0].content)
    edit(head)
    new = FileSection("call", json.dumps(head).encode())
    file.write_bytes(b"".join(pack("fxad call", 2, [new, *sections[1:]])))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda h: h.update(operands=[]), "the program has 1 operands, the call 0"),
        (lambda h: h.pop("lines"), "the description does not describe a call: KeyError: 'lines'"),
        (lambda h: h.update(text=99), "the description does not describe a call: IndexError"),
        (lambda h: h.update(parts="x"), "the description does not list the parts of the call"),
        (lambda h: h["parts"][0].update(file="../other"), "the description does not list the parts of the call"),
        (lambda h: h["parts"][0].update(sha256="00"), "the file does not have the part array"),
        (lambda h: h.update(operands=[{"part": 1}]), r"an array f32\[2,3\] has 24 bytes, the part has \d+"),
        (lambda h: h.update(versions=3), "the description does not describe a call: AttributeError"),
    ],
)
def test_forged_descriptions(file: Path, edit: Callable[[dict[str, Any]], object], problem: str) -> None:
    forge(file, edit)
    with pytest.raises(fx.errors.FileFormatError, match=problem):
        fx.replay(file)


def test_files_of_other_kinds_and_later_versions(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(b"fxad call 9" + data[len("fxad call 2") :])
    with pytest.raises(fx.errors.FileFormatError, match=r"is of version 9, this fxad reads versions up to 2"):
        fx.replay(file)
    for content, problem in (
        (
            b"PK\x03\x04",
            "is no recorded call: it does not begin with 'fxad call'(?s:.*)name a file or a folder of fxad.record",
        ),
        (b"fxad call 1\n", "it does not begin with the description of a call"),
        (b"".join(pack("fxad call", 1, [FileSection("call", b"[]")])), "section call is not an object of JSON"),
        (b"".join(pack("fxad call", 1, [FileSection("call", b"{")])), "section call is not JSON"),
    ):
        file.write_bytes(content)
        with pytest.raises(fx.errors.FileFormatError, match=problem):
            fx.replay(file)
    file.unlink()
    with pytest.raises(
        fx.errors.FileFormatError,
        match=r"has no recorded calls(?s:.*)name a folder of fx.record, or a file .fxcall of it",
    ):
        fx.replay(tmp_path)
    with pytest.raises(FileNotFoundError):
        fx.replay(file)


def test_a_damaged_file_does_not_stop_a_later_recording(file: Path, tmp_path: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])
    with fx.record(tmp_path):
        fx.jit(lambda x: fnp.sum(fnp.sin(x) * 2))(X)
    (call,) = fx.replay(tmp_path / "000001.fxcall")
    assert call.same_bits()


def test_a_recording_of_another_version_and_machine(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it can be used; the report says that the bits may differ."""
    here = versions.versions()
    forge(file, lambda h: h["versions"].update(jaxlib="0.4.1", machine="Darwin arm64"))
    (call,) = fx.replay(file)
    assert call.differences == (
        f"jaxlib 0.4.1 there, {here['jaxlib']} here", f"machine Darwin arm64 there, {here['machine']} here",
    )  # fmt: skip
    assert "  differs       jaxlib 0.4.1 there" in str(call)
    assert np.allclose(call.run(), call.interpret())


def test_primitives_from_outside(tmp_path: Path) -> None:
    with fx.record(tmp_path):
        fx.jit(clipped)(fnp.asarray(X))
    with pytest.raises(fx.errors.FileFormatError, match=r"give the class that has this name in primitives=\[...\]"):
        fx.replay(tmp_path)
    (call,) = fx.replay(tmp_path, primitives=[Clipped])
    assert call.same_bits()


def test_the_command_line_goes_on_after_a_call_that_raises(tmp_path: Path) -> None:
    with fx.record(tmp_path):
        with pytest.raises(fx.errors.CheckError):
            np.asarray(fx.jit(lambda x: fx.error_if(x, x > 0, "positive"))(X))
        fx.jit(lambda x: x + 1)(X)
    out = run_python(RUN, tmp_path)
    assert "\nthe program raises the recorded error\n000001.fxcall" in out
    assert out.endswith("the results have the recorded bits\n0\n")


def test_the_command_line(file: Path, tmp_path: Path) -> None:
    out = run_python("import sys, fxad.replay as m, fxad as fx; assert m is fx.replay", file)
    assert out == ""
    out = run_python(RUN, file)
    assert re.fullmatch(
        r"000000.fxcall: <lambda>, 3 equations\n"
        r"  argument      x: f32\[2,3\]\n"
        r"  options       units auto\n"
        r"  outcome       it returned\n"
        r'main @"<lambda>"\(.*\n'
        r"(  %.* = .*  # test_files.py:\d+ in .*\n){3}"
        r"  return %2\n}\n"
        r"compiled and interpreted agree\n"
        r"the results have the recorded bits\n0\n",
        out,
    ), out
    with fx.record(tmp_path / "differs"):
        fx.jit(lambda x: (x + 1e8) - 1e8)(fnp.float32(0.25))
        flags = fx.CompileOptions(flags=(("xla_cpu_enable_fast_math", True),))
        fx.lower(fx.trace(lambda x: fnp.sqrt(x) * 0.0, fx.Spec(()))).compile(flags)(np.float32(-1))
    out = run_python(RUN, tmp_path / "differs", "--tolerance=0.1", "--without-text")
    assert "compiled and interpreted agree\nthe results have the recorded bits\n" in out
    assert re.search(
        r"  options       units auto, xla_cpu_enable_fast_math=True\n"
        r"  outcome       it returned\n"
        r"compiled differs from interpreted\n"
        r"  equation      %1:f32\[\] = mul %0:f32\[\] 0.0:f32\[\]\n"
        r"  traced at     test_files.py:\d+ in .*\n"
        r"  expected      nan\n  actual        -?0.0\n  operand 0     nan\n"
        r"the results have the recorded bits\n1\n$",
        out,
    ), out


def test_the_command_line_refuses_other_files(tmp_path: Path) -> None:
    out = run_python(RUN, tmp_path)
    assert "has no recorded calls" in out
    assert out.endswith("\n2\n")


def test_digests_are_those_of_the_bytes(file: Path) -> None:
    (call,) = fx.replay(file)
    assert call.results == (hashlib.sha256(np.asarray(call.run()).tobytes()).hexdigest(),)


def test_the_command_line_saves_a_call_alone(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fx.record(tmp_path):
        fx.jit(lambda x: fnp.sum(fnp.sin(x) * 2))(X)
    main = runpy.run_module("fxad.replay")["main"]
    (tmp_path / "elsewhere").mkdir()
    one = tmp_path / "elsewhere" / "000001.fxcall"
    assert main([str(file.with_name("000001.fxcall")), "--save", str(one)]) == 0
    (call,) = fx.replay(one)
    assert call.same_bits()
    assert main([str(tmp_path), "--save", str(one)]) == 2
    assert capsys.readouterr().err == "replay: --save is for one call, not for 2\n  remedy        name its file\n"
    one.write_bytes(file.with_name("000001.fxcall").read_bytes())
    assert main([str(one)]) == 2
    assert (
        "the call shares arrays with that of 000000.fxcall, which does not exist\n  remedy" in capsys.readouterr().err
    )
