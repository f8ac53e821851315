"""Programs in a process of their own, which may crash or hang.

The parent writes the runs as recorded calls to a folder. The child replays them in order, and writes the results of
each to a file. So the first run without results is the one that ended the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from fxad import runtime
from fxad.core.trees import tree
from fxad.diagnosis.record.call_file import SUFFIX, CallWriter
from fxad.diagnosis.record.recording import describe_call, sections_of
from fxad.diagnosis.record.replay import replay
from fxad.diagnosis.record.versions import versions
from fxad.errors import ArgumentError, first_line
from fxad.ir import Jaxpr, NDArray, distinct_jaxprs
from fxad.storage.encoding import check_no_host_call
from fxad.storage.file_format import FileSection, pack, unpack
from fxad.support.atomic_file import write_whole
from fxad.text import PRIMITIVES
from fxad.tracing.program import CompileChoices, Program

# The results of a run, or the kind of its failure and a message.
_RunOutcome: TypeAlias = "list[NDArray] | tuple[str, str]"

_KIND: Final = "fxad results"
_READY: Final = ".ready"
TIME_LIMIT: Final = "time limit"  # the kind of a failure
_RESULTS: Final = ".results"
_START_SECONDS: Final = 60.0  # time for the start of a child, beside the time of its runs
_PROGRAM: Final = "import sys; from fxad.diagnosis.bisect.child import main; main(sys.argv[1], sys.argv[2])"


def run_in_child(
    runs: Sequence[tuple[Jaxpr, Sequence[NDArray]]],
    choices: CompileChoices,
    device: runtime.Device | None,
    seconds: float,
) -> Iterator[_RunOutcome]:
    """Yield the results of each run, up to the first that fails, and its failure."""
    with tempfile.TemporaryDirectory(prefix="fxad-bisect-") as folder:
        written: dict[str, str] = {}
        for k, (jaxpr, operands) in enumerate(runs):
            file = f"{k:06}{SUFFIX}"
            writer = CallWriter(written)
            program = program_of(jaxpr)
            description, _ = describe_call(writer, program, sections_of(program), operands, choices, versions(), None)
            write_whole(os.path.join(folder, file), writer.file(description, None), 0o600)
            writer.note_written(file, written)
        ended = _end_of(folder, "" if device is None else str(device), _START_SECONDS + seconds * len(runs), seconds)
        for k, (jaxpr, _) in enumerate(runs):
            path = os.path.join(folder, f"{k:06}{_RESULTS}")
            if not os.path.exists(path):
                yield ended
                return
            found = _read(path, jaxpr)
            yield found
            if isinstance(found, tuple):
                return


def check_for_child(jaxpr: Jaxpr) -> None:
    """Raise ArgumentError for a program that another process cannot run: it calls Python functions, or has primitives
    from outside fxad."""
    check_no_host_call("bisect", program_of(jaxpr))
    for body in distinct_jaxprs(jaxpr):
        for eqn in body.eqns:
            if PRIMITIVES.get(eqn.prim.name) is not type(eqn.prim):
                raise ArgumentError(
                    f"bisect: a child process does not have the primitive {eqn.prim.name}, which is from outside fxad",
                    remedy="leave out time_limit: the program runs in this process",
                ).located(equation=str(eqn))


def runs_alone(jaxpr: Jaxpr) -> bool:
    """Return True if another process can run a program."""
    try:
        check_for_child(jaxpr)
    except ArgumentError:
        return False
    return True


def program_of(jaxpr: Jaxpr) -> Program[..., object]:
    """Return the program of a jaxpr, whose arguments are its operands."""
    ins = tree.structure(((0,) * len(jaxpr.ins), {}))
    return Program(jaxpr, ins, tree.structure((0,) * len(jaxpr.outs)), (), (), jaxpr.name)


def _end_of(folder: str, device: str, most: float, seconds: float) -> tuple[str, str]:
    """Run a child. Return how it ended."""
    paths = os.pathsep.join([p for p in sys.path if p])  # the child finds the same packages
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, folder, device],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        code = _wait(process, folder, most, seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code is None:
        return TIME_LIMIT, f"the run took more than {seconds:g} s"
    if code < 0:
        return _signal_name(-code), "the process was ended by a signal"
    return f"exit status {code}", "the process ended itself"


def _wait(process: subprocess.Popen[bytes], folder: str, most: float, seconds: float) -> int | None:
    """Return the exit status of a child; None if a run takes more than `seconds`, or the start too long."""
    done = -1
    left = _START_SECONDS
    while most > 0:
        step = min(0.05, left)
        try:
            return process.wait(step)
        except subprocess.TimeoutExpired:
            most, left = most - step, left - step
        count = len([name for name in os.listdir(folder) if name.endswith((_RESULTS, _READY))])
        if count != done:
            done, left = count, seconds if count else _START_SECONDS
        elif left <= 0:
            return None
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read(path: str, jaxpr: Jaxpr) -> _RunOutcome:
    with open(path, "rb") as file:
        _, sections = unpack("bisect", file.read(), _KIND, 1)
    if sections[:1] and sections[0].name == "error":
        kind, _, message = sections[0].content.decode().partition("\n")
        return kind, message
    avals = jaxpr.out_avals
    return [np.frombuffer(s.content, a.dtype).reshape(a.shape) for s, a in zip(sections, avals, strict=True)]


def main(folder: str, device: str) -> None:
    """Replay the calls of a folder, in a child."""
    named = {str(d): d for d in runtime.devices()}
    write_whole(os.path.join(folder, _READY), [], 0o600)
    for call in replay(folder):
        lowered = call.lowered
        try:
            run = lowered.compile(call.options.options, device=named.get(device))
            leaves, _ = tree.flatten(run(*call.args))
            arrays = [np.ascontiguousarray(np.asarray(x)).tobytes() for x in leaves]
            sections = [FileSection("array", content) for content in arrays]
        except Exception as e:  # noqa: BLE001  the parent compares errors
            sections = [FileSection("error", f"{type(e).__name__}\n{first_line(e)}".encode())]
        path = call.path.removesuffix(SUFFIX) + _RESULTS
        write_whole(path, pack(_KIND, 1, sections), 0o600)
        if sections[:1] and sections[0].name == "error":
            return
