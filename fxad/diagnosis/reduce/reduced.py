"""The result of a reduction: a program with its arguments, as text and as a test in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Any, Final, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.reduce.candidate import Candidate, equations
from fxad.diagnosis.reduce.reading import LinesByOperation, with_operands
from fxad.diagnosis.reduce.source_code import code_of
from fxad.errors import shown
from fxad.ir import NDArray
from fxad.storage.paths import path_to_write
from fxad.support.atomic_file import write_whole
from fxad.tracing.program import P, Program, R_co


@final
@dataclass(frozen=True, slots=True, eq=False)
class Reduced(Program[P, R_co]):
    """A program that `reduce_program` has reduced: `fails(program, program.args)` returns `reason`.

    args:     its arguments, NumPy arrays; None if the reduction had none.
    reason:   the reason for which it fails, and for which the whole program fails.
    minimal:  no step of the search makes it smaller. False if the search ended before.
    stopped:  why the search ended: "minimal", "budget", "interrupted".
    attempts: the calls of `fails`.
    before:   the number of equations of the whole program and of its bodies.
    """

    args: tuple[NDArray, ...] | None = None
    reason: Hashable = None
    stopped: str = "minimal"
    attempts: int = 0
    before: int = 0
    fails: Callable[..., Hashable] | None = None
    lines: LinesByOperation = field(
        default_factory=dict, repr=False
    )  # of the whole program, by the names of primitives

    @property
    def minimal(self) -> bool:
        """Return True if no step of the search makes the program smaller."""
        return self.stopped == "minimal"

    @property
    def equations(self) -> int:
        """The number of equations, those of bodies included."""
        return equations(self.jaxpr)

    def _text(self) -> str:
        args = self.args if self.args is not None else (None,) * len(self.in_avals)
        bound: Any = self.bound
        return with_operands(Candidate(self.jaxpr, (*bound, *args), len(bound), self.args is not None), self.lines)

    def __str__(self) -> str:
        """Return the program with the user's lines, its operands, and the reason."""
        ended = "" if self.minimal else f"; not minimal: {self.stopped}"
        reason = " ".join(str(self.reason).split())
        return f"{self._text()}# fails: {reason}\n# {self.equations} of {self.before} equations{ended}\n"

    def __repr__(self) -> str:
        return f"<Reduced {self.name}: {self.equations} of {self.before} equations, fails: {shown(str(self.reason))}>"

    def as_test(self, path: str | os.PathLike[str]) -> None:
        """Write one pytest file that fails for this reason now, and passes when the fault is gone.

        The file has the program as text, its operands, and a call of `fails`. It imports `fails` from its module. A
        function of a script or a notebook is copied, with the functions and plain values that it reads.

        Raises: ArgumentError if `path` is not a path, and for a `fails` that a file cannot name: a lambda, a function
                in a function; FileFormatError for a folder; OSError.
        """
        absolute = path_to_write("as_test", path)
        assert self.fails is not None
        code = code_of(self.fails, self.jaxpr)
        text = _TEST.format(
            shown=" ".join(str(self.reason).split()).replace("\\", "/").replace('"', "'")[:_WIDTH],
            reason=repr(str(self.reason)),
            imports="".join([f"{line}\n" for line in code.imports]),
            definitions=f"\n\n{code.definitions}\n" if code.definitions else "",
            program=self._text().replace("\\", "\\\\").replace('"""', '\\"\\"\\"'),
            primitives=f", [{', '.join(code.primitives)}]" if code.primitives else "",
            fails=code.fails,
        )
        write_whole(absolute, [text.encode()], 0o666)


_WIDTH: Final = 80  # greatest width of a reason in a docstring
_TEST: Final = '''"""A program that fails: {shown}. Written by fxad.reduce_program."""

from __future__ import annotations

{imports}
TEXT = """\\
{program}"""
REASON = {reason}
{definitions}

def test_reduced() -> None:
    program, args = read_reduced(TEXT{primitives})
    reason = {fails}(program, args)
    assert reason is None, f"it fails: {{reason!r}}; when this test was written: {{REASON!r}}"
'''


def reduced(candidate: Candidate, **fields: Any) -> Reduced[..., Any]:
    """Return the result for a candidate."""
    p = candidate.program()
    return Reduced(p.jaxpr, p.in_tree, p.out_tree, p.bound, p.names, p.name, candidate.args, **fields)
