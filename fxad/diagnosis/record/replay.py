"""`replay`: recorded calls as values, which run again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from fxad.api.reference import interpret
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.diagnosis.record.call_file import (
    FIRST_VERSION,
    SUFFIX,
    CallFile,
    CallWriter,
    read_call,
    recorded_names,
    sequence,
)
from fxad.diagnosis.record.recording import describe_call, digest_of, sections_of
from fxad.diagnosis.record.stand_ins import Statistics, stand_in
from fxad.diagnosis.record.versions import differences, versions
from fxad.errors import ArgumentError, FileFormatError, FxadError
from fxad.execution.executable import Executable, Lowered, lower
from fxad.ir import Aval, Jaxpr, NDArray, Source, SourceLocation
from fxad.passes import PIPELINE, Passes, check_passes, run_passes
from fxad.runtime import CompileOptions
from fxad.storage.decoding import decode
from fxad.storage.paths import absolute_path, path_to_write
from fxad.storage.source_lines import LINES, sources_of_section, text_digest
from fxad.support.atomic_file import write_whole
from fxad.text import OwnPrimitives, Vocabulary, vocabulary
from fxad.tracing.program import CompileChoices, Program, count_text, fit_leaves
from fxad.units.cost_rule import selected_bodies

_KNOWN: Final = MappingProxyType({p.name: p for passes in PIPELINE for p in passes})


@final
@dataclass(frozen=True, slots=True, eq=False)
class CallOptions:
    """The options of a recorded call. `units` is "auto", "none", or the digests of the bodies that are units. `passes`
    are names; None is the default pipeline."""

    units: str | tuple[str, ...]
    passes: tuple[str, ...] | None
    options: CompileOptions

    def choices(self, jaxpr: Jaxpr, given: Passes) -> CompileChoices:
        """Return the options for the program. `given` are passes that fxad does not have."""
        passes: Passes | None = None
        if self.passes is not None:
            known = {**_KNOWN, **{p.name: p for p in given}}
            missing = [name for name in self.passes if name not in known]
            if missing:
                raise ArgumentError(
                    f"run: the call was compiled with the pass {missing[0]!r}, a function of its process",
                    remedy="give it: fx.replay(path, passes=(my_pass,)); call.interpret() needs no pass",
                )
            passes = tuple([known[name] for name in self.passes])
        if isinstance(self.units, tuple):
            digests = frozenset(self.units)
            return CompileChoices(
                selected_bodies(run_passes(jaxpr, passes or ()), lambda body: body.digest in digests),
                passes,
                self.options,
            )
        return CompileChoices("auto" if self.units == "auto" else "none", passes, self.options)

    def __str__(self) -> str:
        words = [f"units {self.units if isinstance(self.units, str) else f'of {len(self.units)} bodies'}"]
        words += [] if self.passes is None else [f"passes {', '.join(self.passes) or 'none'}"]
        level, flags, donate = self.options.optimization_level, self.options.flags, self.options.donate
        words += [] if level is None else [f"optimization level {level}"]
        words += [f"{name}={value}" for name, value in flags]
        words += [f"donated operands {', '.join(map(str, donate))}"] if donate else []
        return ", ".join(words)


@final
@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """A call that `record` has written. Its `str` is a report.

    `args` and `kwargs` are the arguments, NumPy arrays in the trees of the call. `results` are SHA-256 of the leaves of
    the results; None if the call raised `error`, or did not end because its process ended. `versions` are those of the
    recording, and `differences` lists in what this process differs: its results may have other bits. `stand_ins` names
    the operands that were too large to store: they have the statistics of the recorded arrays, and other elements.
    """

    path: str
    program: Program[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: CallOptions
    results: tuple[str, ...] | None
    error: str
    versions: Mapping[str, str]
    stand_ins: tuple[str, ...]
    divided: Mapping[str, int]  # operands that were divided, and the number of devices
    passes: Passes = ()  # that were given to `replay`

    @property
    def differences(self) -> tuple[str, ...]:
        """The differences between the process of the recording and this one: `jaxlib 0.10.2 there, 0.12.0.1 here`."""
        divided = [f"{path} divided among {n} devices there, whole here" for path, n in self.divided.items()]
        return *differences(self.versions, versions()), *divided

    @property
    def operands(self) -> list[NDArray]:
        """The operands of the program: the arrays that it closes over, then the leaves of the arguments."""
        leaves, _ = tree.flatten((self.args, dict(self.kwargs)))
        return [np.asarray(x) for x in (*self.program.bound, *fit_leaves(self.program, leaves))]

    @property
    def lowered(self) -> Lowered[..., Any]:
        """The program with the units and passes of the call."""
        choices = self.options.choices(self.program.jaxpr, self.passes)
        units = choices.units
        return lower(self.program, (lambda body: body in units) if isinstance(units, tuple) else units, choices.passes)

    def compile(self) -> Executable[..., Any]:
        """Compile the program with the options of the call. Raises: ArgumentError if it was compiled with a pass that
        fxad does not have."""
        return self.lowered.compile(self.options.options)

    def run(self) -> Any:
        """Compile the program with the options of the call, and return the results of the call.

        Law:    on the same machine, with the same versions and flags, their bits are those of the recorded call.
        Raises: what the recorded call raises; ArgumentError if it was compiled with a pass that fxad does not have.
        """
        return self.compile()(*self.args, **self.kwargs)

    def interpret(self) -> Any:
        """Return the results of the call by the interpreter, without XLA."""
        return interpret(self.program, *self.args, **self.kwargs)

    def same_bits(self) -> bool:
        """Run the call. Return True if its results have the recorded bits.

        Raises: ArgumentError for a call without recorded results, and for one whose arguments were not stored.
        """
        if self.results is None:
            raise ArgumentError(
                f"same_bits: {self._name} has no recorded results: {self.outcome}",
                remedy="compare with the interpreter: fx.bisect(call)",
            )
        if self.stand_ins:
            raise ArgumentError(
                f"same_bits: {self._name} has stand-ins for {', '.join(self.stand_ins)}, so it has other results",
                remedy="record with a larger limit; or compare with the interpreter: fx.bisect(call)",
            )
        leaves, _ = tree.flatten(self.run())
        return [digest_of(np.asarray(x)) for x in leaves] == list(self.results)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the call to one file that needs no other, to attach it to a report. Raises: OSError."""
        absolute = path_to_write("RecordedCall.save", path)
        writer = CallWriter({})
        how = self.options.choices(self.program.jaxpr, self.passes)
        description, _ = describe_call(
            writer, self.program, sections_of(self.program), self.operands, how, self.versions, None
        )
        description["divided"] = dict(self.divided)
        if self.stand_ins:
            description["stand_ins"] = list(self.stand_ins)
        results: dict[str, object] | None = None if self.results is None else {"sha256": list(self.results)}
        if self.error:
            results = {"error": self.error}
        write_whole(absolute, writer.file(description, results), 0o666)

    @property
    def ended_process(self) -> bool:
        """Return True if the recorded call neither returned nor raised: its process ended, or Ctrl-C ended the call."""
        return self.results is None and not self.error

    @property
    def outcome(self) -> str:
        """How the recorded call ended, as a text."""
        if self.error:
            return f"it raised {self.error}"
        if self.ended_process:
            return "the process ended or was interrupted in the call, or could not write the results"
        return "it returned"

    @property
    def _name(self) -> str:
        return f"the call of {self.program.name} in {os.path.basename(self.path)}"

    def __str__(self) -> str:
        equations = count_text(len(self.program.jaxpr.eqns), "equation")
        types = zip(self.program.paths, self.program.in_avals, strict=True)
        lines = [
            f"{os.path.basename(self.path)}: {self.program.name}, {equations}",
            *[f"  argument      {path}: {aval}" for path, aval in types],
            f"  options       {self.options}",
            f"  outcome       {self.outcome}",
            *[f"  stand-in      {text}" for text in self.stand_ins],
            *[f"  differs       {text}" for text in self.differences],
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<RecordedCall of {self.program.name}: {os.path.basename(self.path)}>"


def replay(path: str | os.PathLike[str], *, primitives: OwnPrimitives = (), passes: Passes = ()) -> list[RecordedCall]:
    """Return the calls that `record` has written to a folder, in order; or the one call of a file.

    `primitives` are classes of primitives from outside fxad that the programs use, `passes` the user's passes that they
    were compiled with. Reading a file runs no code of it.

    Raises: FileFormatError with the byte offset for a file that is damaged, forged, of a later version or of another
            kind, for a folder without calls, and for a call that shares arrays with a file that is not there;
            ArgumentError if `path` is no path; ParameterError for what is no pass; OSError.
    """
    absolute = absolute_path("replay", path)
    check_passes("replay", passes)
    known = vocabulary("replay", primitives)
    if not os.path.isdir(absolute):
        return [_read(absolute, known, passes)]
    names = recorded_names(absolute)
    if not names:
        raise FileFormatError(
            f"replay: {absolute} has no recorded calls", remedy=f"name a folder of fx.record, or a file {SUFFIX} of it"
        )
    return [_read(os.path.join(absolute, name), known, passes) for name in names]


def _read(path: str, known: Vocabulary, passes: Passes) -> RecordedCall:
    file = read_call(f"replay: {path}", path)
    try:
        return _call(path, file, known, passes)
    except FxadError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as e:
        file.damaged(f"the description does not describe a call: {type(e).__name__}: {e}")


def _call(path: str, file: CallFile, known: Vocabulary, passes: Passes) -> RecordedCall:
    head = file.description
    sections = [file.parts[head["program"]], file.parts[head["text"]]]
    sources = _sources(file)
    program, _ = decode(file.what, sections, False, known, sources)
    avals = program.jaxpr.in_avals
    entries = sequence(head["operands"])
    if len(entries) != len(avals):
        file.damaged(f"the program has {len(avals)} operands, the call {len(entries)}")
    values = [_operand(file, entry, aval) for entry, aval in zip(entries, avals, strict=True)]
    paths = [str(p) for p in sequence(head["paths"])]
    made = [paths[k] for k, entry in enumerate(entries) if "part" not in entry]
    (bound, *args), kwargs = tree.unflatten(program.in_tree, values)
    ins = tree.structure((tuple(args), kwargs))
    program = Program.of(program, in_tree=ins, bound=tuple(bound), name=str(head["name"]))
    results = file.results
    return RecordedCall(
        path,
        program,
        tuple(args),
        kwargs,
        _options(head),
        None if results is None or "sha256" not in results else tuple(map(str, results["sha256"])),
        "" if results is None else str(results.get("error", "")),
        {str(k): str(v) for k, v in head["versions"].items()},
        (*made, *map(str, sequence(head.get("stand_ins")))),
        {str(path): int(n) for path, n in head.get("divided", {}).items()},
        passes,
    )


def _options(head: Mapping[str, Any]) -> CallOptions:
    units, passes = head["units"], head["passes"]
    flags = tuple([(name, value) for name, value in head["flags"]])
    options = CompileOptions(tuple(head["donate"]), head["optimization_level"], flags)
    return CallOptions(
        str(units) if isinstance(units, str) else tuple(map(str, units)),
        None if passes is None else tuple(map(str, passes)),
        options,
    )


def _operand(file: CallFile, entry: Mapping[str, Any], aval: Aval) -> NDArray:
    if "part" not in entry:
        statistics = tuple([Statistics(s[0], s[1], s[2], s[3], (s[4], s[5], s[6])) for s in entry["statistics"]])
        return stand_in(aval, statistics, int(entry["seed"]))
    content = file.parts[entry["part"]].content
    if len(content) != aval.nbytes:
        file.damaged(f"an array {aval} has {aval.nbytes} bytes, the part has {len(content)}")
    return np.frombuffer(content, aval.dtype).reshape(aval.shape)


def _sources(file: CallFile) -> Iterable[Source]:
    """Return the lines of the equations, in the order of the text of the program."""
    part = file.parts[file.description[LINES]]
    if file.version > FIRST_VERSION:
        return sources_of_section(file.what, part)
    # the first version: a line for each place, with escapes for tabs and newlines, then the place of each equation
    *table, _, numbers = part.content.decode().split("\n")
    lines = [_source(line) for line in table]
    return [lines[int(k)] for k in numbers.split()]


def _source(line: str) -> Source:
    if not line:
        return None
    place, function, scope = [
        part.encode("latin-1", "backslashreplace").decode("unicode_escape") for part in line.split("\t")
    ]
    file, _, number = place.rpartition(":")
    return SourceLocation(file, int(number), function, scope, (), text_digest([]))
