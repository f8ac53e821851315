"""`record`: a block that writes each call of a compiled program to a file.

The file of a call is written before the call runs, and again with its results. So a call that ends the process leaves
its program and its arguments. Both times the file is replaced atomically.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeVar, final

import numpy as np

from fxad import runtime
from fxad.core.builder import Builder, rewrite
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.diagnosis.record.call_file import SUFFIX, CallWriter, written_parts
from fxad.diagnosis.record.stand_ins import statistics_of
from fxad.diagnosis.record.versions import versions
from fxad.errors import ArgumentError, FileFormatError, FxadError, first_line
from fxad.ir import (
    Atom,
    Aval,
    Eqn,
    Jaxpr,
    NDArray,
    distinct_jaxprs,
    map_parameter,
    params,
)
from fxad.operations.arguments import parse_bytes
from fxad.primitives.check import Check
from fxad.storage.encoding import check_no_host_call, encode_without_arrays
from fxad.storage.file_format import FileSection
from fxad.storage.paths import absolute_path
from fxad.storage.source_lines import lines_section
from fxad.support.atomic_file import remove_abandoned, write_new, write_whole
from fxad.tracing.array import Array, asarray, binding, current_binder
from fxad.tracing.program import CallObserver, CompileChoices, Program
from fxad.tracing.tracer import active_trace

T = TypeVar("T")

_LIMIT: Final = "16 MiB"
_CONTAINERS: Final = (tuple, list, dict, type(None), None)  # None: a leaf


@final
@dataclass(frozen=True, slots=True, eq=False)
class Skipped:
    """A call that was not recorded, and the reason."""

    program: str
    reason: str

    def __str__(self) -> str:
        return f"{self.program}: {self.reason}"


@final
class Recording:
    """The calls that a block of `record` has written so far. Its `str` is a report."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.files: list[str] = []
        self.skipped: list[Skipped] = []
        self.stand_ins: list[str] = []  # arrays that were not stored, and results, as texts

    def __str__(self) -> str:
        calls = f"{len(self.files)} call{'s' * (len(self.files) != 1)}"
        lines = [f"recorded {calls} in {self.folder}"]
        lines += [f"  not stored    {text}" for text in self.stand_ins]
        lines += [f"  not recorded  {text}" for text in self.skipped]
        return "\n".join(lines)

    __repr__ = __str__


@contextmanager
def record(path: str | os.PathLike[str], *, limit: int | str = _LIMIT) -> Iterator[Recording]:
    """Return a context. Inside it, each call of a compiled program is written to a file in the folder `path`.

    These are calls of programs, of executables and of functions of `jit`, outside of traces, in this thread or task. A
    file has the program, the arguments, the options, SHA-256 of the results, the versions of the packages and XLA's
    flags. An array that an earlier file of the folder has is not stored again. In place of an array of more than
    `limit` bytes, its shape, dtype, statistics and a seed are stored; the report, `str` of the value of the context,
    lists these. It also lists calls that no file can hold, because the program calls Python functions.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fx.record(folder):
    ...         y = fx.jit(fnp.sin)(fnp.ones(3))
    ...     (call,) = fx.replay(folder)
    >>> call.program.name, call.same_bits()
    ('sin', True)

    Raises: ArgumentError inside a trace, for what is no path, and for a limit that is no number of bytes;
            FileFormatError if `path` is a file; OSError at a call that cannot be written, before it runs. If only its
            results cannot be written, the report says so.
    Cost:   each call waits for its arguments and its results, and writes its file twice. Nothing outside of the block.
    """
    if active_trace() is not None:
        raise ArgumentError("record: a trace is active, and calls in it are equations", remedy="record the outer call")
    folder = absolute_path("record", path, "folder")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise FileFormatError(f"record: {folder} is a file", remedy="name a folder: each call gets a file in it")
    recording = Recording(folder, parse_bytes("record", limit))
    os.makedirs(folder, exist_ok=True)
    remove_abandoned(folder)
    outer = current_binder()
    observer = _Observer(recording, outer if isinstance(outer, CallObserver) else None)
    with binding(observer):
        yield recording


@final
class _Observer(CallObserver):
    """Writes the files of calls. `outer` observes them too: that of the block around."""

    __slots__ = ("_last", "_next", "_outer", "_recording", "_written")

    def __init__(self, recording: Recording, outer: CallObserver | None) -> None:
        super().__init__()
        self._recording, self._outer = recording, outer
        self._next, self._written = written_parts(recording.folder)
        self._last: tuple[Program[..., object], list[FileSection]] | None = None  # the program of the last call

    def _sections_of(self, program: Program[..., object]) -> list[FileSection]:
        """Return the sections of a program: those of the last call if it had the same program, as in a loop."""
        if self._last is None or self._last[0] is not program:
            self._last = program, sections_of(program)
        return self._last[1]

    def _written_as_next(self, content: list[bytes]) -> str:
        """Write the next file of the folder, and return its path. Other recordings may write to the folder too."""
        while True:
            path = os.path.join(self._recording.folder, f"{self._next:06}{SUFFIX}")
            self._next += 1
            try:
                write_new(path, content, 0o666)
            except FileExistsError:
                continue
            return path

    def observe(
        self,
        program: Program[..., object],
        operands: Sequence[object],
        how: CompileChoices,
        run: Callable[[], Sequence[T]],
    ) -> Sequence[T]:
        outer = self._outer

        def observed() -> Sequence[T]:
            return run() if outer is None else outer.observe(program, operands, how, run)

        try:
            check_no_host_call("record", program)
            values = [on_host(x, a) for x, a in zip(operands, program.jaxpr.in_avals, strict=True)]
        except FxadError as e:  # it calls Python functions, or an operand was deleted, which the call says
            self._recording.skipped.append(Skipped(program.name, e.message.removeprefix("record: ")))
            return observed()
        writer = CallWriter(self._written)
        description, left_out = describe_call(
            writer, program, self._sections_of(program), values, how, versions(), self._recording.limit
        )
        description["divided"] = {program.operand_path(k): n for k, x in enumerate(operands) if (n := _devices(x)) > 1}
        path = self._written_as_next(writer.file(description, None))
        name = os.path.basename(path)
        self._recording.files.append(path)
        self._recording.stand_ins += [f"{name}: {text}" for text in left_out]
        try:
            outs = observed()
        except Exception as e:
            self._write_results(path, writer.file(description, {"error": error_text(e)}))
            raise
        finally:
            writer.note_written(name, self._written)
        self._write_results(path, writer.file(description, _results(outs, program.out_avals)))
        return outs

    def _write_results(self, path: str, content: list[bytes]) -> None:
        """Write a file again, with the results. On an error, as of a full disk, the report says so: the call has made
        its results, and a file without them is there."""
        try:
            write_whole(path, content, 0o666)
        except OSError as e:
            self._recording.stand_ins.append(f"{os.path.basename(path)}: the results: {e.strerror}")


@by_value
def without_folders(jaxpr: Jaxpr) -> Jaxpr:
    """Return a program whose checks name the files of the user without their folders."""
    made: dict[object, Jaxpr] = {}

    def shortened(value: object) -> object:
        return made[value] if isinstance(value, Jaxpr) else value

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
        changed = {n: new for n, v in params(eqn.prim) if (new := map_parameter(v, shortened)) is not v and new != v}
        if isinstance(eqn.prim, Check):
            changed["where"] = _FOLDER.sub("", eqn.prim.where)
        return b(replace(eqn.prim, **changed), *ins) if changed else None

    bodies = distinct_jaxprs(jaxpr)
    if not any([isinstance(prim, Check) for body in bodies for prim in body.prims]):
        return jaxpr
    for body in bodies:
        made[body] = rewrite(body, rule)
    return made[jaxpr]


_FOLDER: Final = re.compile(r"^.*[/\\](?=[^/\\]*:\d+ in )")


def sections_of(program: Program[..., object]) -> list[FileSection]:
    """Return the description of a program, its text, and the user's lines."""
    program = program.replace(without_folders(program.jaxpr))
    described = encode_without_arrays("record", _with_bound_as_argument(with_plain_trees(program)), {})
    return [*described, lines_section(program.jaxpr, os.path.basename)]


def describe_call(
    writer: CallWriter,
    program: Program[..., object],
    program_sections: Sequence[FileSection],
    values: Sequence[NDArray],
    how: CompileChoices,
    versions_of_call: Mapping[str, str],
    limit: int | None,
) -> tuple[dict[str, object], list[str]]:
    """Return the description of a call, whose parts the writer collects, and the arrays that are not stored, as texts.
    `values` are those of the closed-over arrays, then of the argument leaves. `versions_of_call` are those of the
    process that made the call."""
    operands: list[object] = []
    left_out = []
    for k, x in enumerate(values):
        if limit is None or x.nbytes <= limit:
            operands.append({"part": writer.add("array", np.ascontiguousarray(x).tobytes())})
        else:
            statistics = statistics_of(x)
            seed = int(digest_of(x)[:12], 16)
            operands.append(
                {
                    "statistics": [[s.mean, s.deviation, s.least, s.greatest, *s.special] for s in statistics],
                    "seed": seed,
                }
            )
            aval = program.jaxpr.in_avals[k]
            left_out.append(f"{program.operand_path(k)}, {aval}: {'; '.join(map(str, statistics))}; seed {seed}")
    units = [without_folders(body).digest for body in how.units] if isinstance(how.units, tuple) else how.units
    options = how.options
    return {
        "name": program.name,
        **{s.name: writer.add(s.name, s.content) for s in program_sections},
        "operands": operands,
        "paths": [program.operand_path(k) for k in range(len(values))],
        "units": units,
        "passes": None if how.passes is None else [p.name for p in how.passes],
        "donate": list(options.donate),
        "optimization_level": options.optimization_level,
        "flags": [[name, value] for name, value in options.flags],
        "versions": dict(versions_of_call),
    }, left_out


def with_plain_trees(program: Program[..., object]) -> Program[..., object]:
    """Return the program with its arguments, or its results, as leaves if they are in containers other than tuples,
    lists and dicts: the file is read where their classes are not known."""
    if not _is_plain(program.in_tree):
        ins: Structure = tree.structure(((0,) * len(program.in_avals), {}))
        program = Program.of(program, in_tree=ins, names=program.paths)
    if not _is_plain(program.out_tree):
        outs = tree.structure((0,) * len(program.out_avals))
        program = Program.of(program, out_tree=outs)
    return program


def _with_bound_as_argument(program: Program[..., object]) -> Program[..., object]:
    """Return the program with one more argument, the tuple of the arrays that it closes over, before the others."""
    args, kwargs = tree.unflatten(program.in_tree, [0] * len(program.in_avals))
    ins = tree.structure((((0,) * len(program.bound), *args), kwargs))
    return Program.of(program, in_tree=ins, bound=())


def _is_plain(structure: Structure) -> bool:
    return structure.type in _CONTAINERS and all([_is_plain(c) for c in structure.children()])


def on_host(x: object, aval: Aval) -> NDArray:
    """Return a copy of an operand or a result as a NumPy array of its type."""
    if isinstance(x, bool | int | float | complex):
        return np.array(x, aval.dtype)
    return np.array(x if isinstance(x, np.ndarray) else asarray(x))


def _devices(x: object) -> int:
    """Return the number of devices that have parts of an array."""
    return len(x.sharding.device_set) if isinstance(x, Array) and runtime.is_sharded(x._buffer) else 1


def digest_of(x: NDArray) -> str:
    """Return SHA-256 of the bits of an array."""
    return hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()


def _results(outs: Sequence[object], avals: Sequence[Aval]) -> dict[str, object]:
    """Return the description of the results. An error of the computation is one: the user gets it with the results."""
    try:
        values = [on_host(x, a) for x, a in zip(outs, avals, strict=True)]
    except FxadError as e:
        return {"error": error_text(e)}
    return {"sha256": [digest_of(x) for x in values]}


def error_text(e: Exception) -> str:
    """Return an error as the text that a file has."""
    return f"{type(e).__name__}: {first_line(e)}"
