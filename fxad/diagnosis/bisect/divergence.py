"""`Divergence`: where two runs of a program first differ, as a text and as a test."""

from __future__ import annotations

import base64
import os
import zlib
from dataclasses import field
from typing import Final, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError
from fxad.ir import Jaxpr, NDArray, SourceLocation
from fxad.storage.paths import path_to_write
from fxad.support.atomic_file import write_whole
from fxad.support.tables import preformatted
from fxad.text import to_text
from fxad.transforms.locate import innermost

_SHOWN: Final = 4  # greatest number of operands whose values are shown
_WRITTEN: Final = 16  # greatest number of elements that a test writes out


@final
@dataclass(frozen=True, slots=True, eq=False)
class Divergence:
    """Where two runs of a program first differ. Its `str` is a report over several lines.

    `stage` is "pass", "unit", "link", "equation" or "program", and `stage_name` the name of the pass, the unit or the
    link. `equation` is the equation, `lines` are the user's lines, those of the equations around it first, and `inside`
    the bodies around it, with the number of the step of a loop. `program` shows the difference on `operands`: it has
    the fewest equations that do, or it is the program before the pass. `alone` is False if these equations show it only
    in the whole program. `expected` and `actual` are a result of the reference and of the candidate, and `at` is the
    index at which they differ most. If the candidate has no results, `failure` says why. `values` are the operands of
    the equation, if they are not those of the program. `runs` counts the runs of the candidate. `interrupted` is True
    if the search was interrupted before it found the equation.
    """

    stage: str
    program: Jaxpr
    operands: tuple[NDArray, ...]
    candidate: str = ""
    reference: str = ""
    stage_name: str = ""
    equation: str = ""
    lines: tuple[SourceLocation, ...] = ()
    inside: tuple[str, ...] = ()
    expected: NDArray | None = None
    actual: NDArray | None = None
    at: tuple[int, ...] = ()
    failure: str = ""
    alone: bool = True
    values: tuple[NDArray, ...] = ()
    runs: int = 0
    interrupted: bool = False
    # the arguments of `bisect` behind the operands that show it again, as code; None if code cannot say them
    call: str | None = field(default=None, repr=False)

    @property
    def where(self) -> SourceLocation | None:
        """The line of the equation itself."""
        return innermost(self.lines)

    def __str__(self) -> str:
        lines = [f"{self.candidate} differs from {self.reference}"]
        lines += [f"  {self.stage:12}  {self.stage_name}"] if self.stage_name else []
        lines += [f"  equation      {self.equation}"] if self.equation else []
        for label, line in zip(("traced at", *["in a body at"] * len(self.lines)), self.lines, strict=False):
            lines.append(f"  {label:12}  {line}")
        lines += [f"  inside        {', '.join(self.inside)}"] if self.inside else []
        before = len(self.program.eqns) - 1
        if self.stage in ("equation", "unit") and self.equation and before:
            lines.append(f"  together      with {before} equation{'s' * (before > 1)} before it; alone it agrees")
        lines += [] if self.alone else ["  context       these equations differ only in the whole program"]
        lines += ["  interrupted   a smaller part was not searched for"] if self.interrupted else []
        lines += [f"  failure       {self.failure}"] if self.failure else []
        for label, x in (("expected", self.expected), ("actual", self.actual)):
            lines += [] if x is None else [f"  {label:12}  {self._value(x)}"]
        for k, x in enumerate((self.values or self.operands)[:_SHOWN]):
            lines.append(f"  operand {k}     {self._value(x)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def _value(self, x: NDArray) -> str:
        """Return a value as text: the element that differs most, if the value has the shape of the result."""
        shape = None if self.actual is None else self.actual.shape
        name = f"{x.dtype.name}{list(x.shape)}"
        if x.shape == shape and self.at:
            return f"{x[self.at]!s} at {list(self.at)} of {name}"
        if not x.ndim:
            return f"{x!s}"
        text = np.array2string(x, threshold=8, edgeitems=2, max_line_width=10_000).replace("\n", "")
        return text if len(text) < 100 else f"{text[:97]}... {name}"

    def as_test(self, path: str | os.PathLike[str]) -> None:
        """Write a test for pytest to a file: the program as text, its operands, and the comparison. It fails now, and
        passes when the fault is gone. It needs no file but those of fxad and of the pass.

        Raises: ArgumentError after an interrupted search, and for what such a test cannot show: a difference that only
                the whole program has, one between two programs, or one after a pass that no module has under its
                name; OSError.
        """
        absolute = path_to_write("as_test", path)
        if self.interrupted:
            raise ArgumentError("as_test: the search was interrupted", remedy="let fx.bisect run to its end")
        if self.call is None:
            place = f"{self.stage} {self.stage_name or self.equation}".strip()
            raise ArgumentError(
                f"as_test: no program shows this difference alone, in another process; it is in the {place}",
                remedy="define the pass by `def` in a module; with primitives from outside fxad, write"
                " fx.reduce_program(program, testing.compiled_differs, args).as_test(path); or write fx.bisect of both"
                " programs into a test",
            )
        text = _TEST.format(
            report=_quoted(str(self)),
            program=_quoted(to_text(self.program, source=True)),
            operands="\n".join([f"    {_code(x)}," for x in self.operands]),
            call=self.call.strip(),
            device=_DEVICE if "reference=device(" in self.call else "",
        )
        write_whole(absolute, [text.encode()], 0o666)


_TEST: Final = '''"""{report}
"""

import base64
import contextlib  # noqa: F401
import importlib  # noqa: F401
import zlib

import ml_dtypes  # noqa: F401  its dtypes have names in NumPy
import numpy as np
import pytest  # noqa: F401

import fxad as fx
from fxad.text import parse

PROGRAM = """
{program}"""


def array(dtype, shape, data):
    return np.frombuffer(zlib.decompress(base64.b85decode(data)), dtype).reshape(shape)


OPERANDS = [
{operands}
]
{device}

def test_the_program_has_the_results_of_the_reference():
    divergence = fx.bisect(parse(PROGRAM), *OPERANDS{call})
    assert divergence is None, divergence
'''


_DEVICE: Final = """

def device(platform, number):
    if platform == "cpu" and number:
        with contextlib.suppress(fx.errors.ParameterError):  # the CPU is in use with another number of devices
            fx.set_cpu_devices(number + 1)
    found = [d for d in fx.devices(platform) if d.id == number]
    if not found:
        pytest.skip(f"this process has no device {platform}:{number}: run this file alone")
    return found[0]
"""


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _code(x: NDArray) -> str:
    """Return an array as code, with the same bits."""
    if x.size <= _WRITTEN and x.dtype.isbuiltin == 1 and x.dtype.kind in "biuf" and np.isfinite(x).all():
        return f"np.array({x.tolist()!r}, {x.dtype.name!r}).reshape({x.shape!r})"
    data = base64.b85encode(zlib.compress(np.ascontiguousarray(x).tobytes(), 9)).decode()
    return f"array({x.dtype.name!r}, {x.shape!r}, {data!r})"
