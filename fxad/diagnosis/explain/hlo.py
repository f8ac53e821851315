"""Reads two messages of XLA: the optimised module with its schedule, and the assignment of buffers to memory.

Source: `xla/service/hlo.proto`, `xla/xla_data.proto` of OpenXLA, for the numbers of the fields. protobuf skips the
        fields that are not declared here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from fxad.core.dataclasses import dataclass
from fxad.ir import SourceLocation

# A field: its number, and "int", "text" or the name of a message. A type in brackets is repeated.
_Field: TypeAlias = tuple[int, str]
_MESSAGES: Final[Mapping[str, Mapping[str, _Field]]] = MappingProxyType(
    {
        "Module": {
            "name": (1, "text"),
            "computations": (3, "[Computation]"),
            "entry": (6, "int"),
            "schedule": (7, "Schedule"),
            "frames": (17, "Frames"),
        },
        "Computation": {
            "name": (1, "text"),
            "instructions": (2, "[Instruction]"),
            "id": (5, "int"),
            "root": (6, "int"),
        },
        "Instruction": {
            "name": (1, "text"),
            "opcode": (2, "text"),
            "shape": (3, "Shape"),
            "metadata": (7, "Metadata"),
            "parameter": (9, "int"),
            "tuple_index": (13, "int"),
            "id": (35, "int"),
            "operands": (36, "[int]"),
            "called": (38, "[int]"),
        },
        "Shape": {"type": (2, "int"), "dimensions": (3, "[int]"), "parts": (4, "[Shape]")},
        "Metadata": {"name": (2, "text"), "file": (3, "text"), "line": (4, "int"), "frame": (15, "int")},
        "Schedule": {"sequences": (1, "[Entry]")},
        "Entry": {"key": (1, "int"), "value": (2, "Sequence")},
        "Sequence": {"ids": (1, "[int]")},
        "Frames": {
            "files": (1, "[text]"),
            "functions": (2, "[text]"),
            "locations": (3, "[Location]"),
            "frames": (4, "[Frame]"),
        },
        "Location": {"file": (1, "int"), "function": (2, "int"), "line": (3, "int")},
        "Frame": {"location": (1, "int"), "parent": (2, "int")},
        "Assignment": {"buffers": (1, "[Buffer]"), "allocations": (3, "[Allocation]")},
        "Buffer": {"id": (1, "int"), "size": (2, "int"), "defined": (3, "Definition")},
        "Definition": {"index": (3, "[int]"), "instruction": (4, "int")},
        "Allocation": {
            "index": (1, "int"),
            "size": (2, "int"),
            "thread_local": (3, "int"),
            "parameter": (5, "int"),
            "live_out": (7, "int"),
            "assigned": (9, "[Assigned]"),
            "constant": (12, "int"),
        },
        "Assigned": {"buffer": (1, "int"), "offset": (2, "int"), "size": (3, "int")},
    }
)

_PACKAGE: Final = "fxad.explain"


def _message_class(name: str) -> Any:
    """Return the class of a message. The pool is private: TensorFlow has messages of the same names in the common
    one."""
    file = FileDescriptorProto(name="fxad/explain.proto", package=_PACKAGE, syntax="proto3")
    of = FieldDescriptorProto
    for message, members in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for member, (number, kind) in members.items():
            scalar = kind.strip("[]")
            field = declared.field.add(
                name=member,
                number=number,
                type={"int": of.TYPE_INT64, "text": of.TYPE_BYTES}.get(scalar, of.TYPE_MESSAGE),
                label=of.LABEL_REPEATED if kind != scalar else of.LABEL_OPTIONAL,
            )
            if field.type == of.TYPE_MESSAGE:
                field.type_name = f".{_PACKAGE}.{scalar}"
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_module_class: Final = _message_class("Module")
_assignment_class: Final = _message_class("Assignment")

ELEMENT_TYPES: Final[Mapping[int, str]] = MappingProxyType({
    1: "bool", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 15: "c64", 16: "bf16", 18: "c128",
})  # fmt: skip


@final
@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """An instruction of optimised HLO. `type` is the type of its result in the form of fxad, empty for a tuple, whose
    elements have the types `parts`. `name` is its name in XLA. `operation` is the path of functions and the primitive
    that it comes from, `line` the line of the user; both may be unknown. `place` is the position of a parameter, or of
    an element of a tuple."""

    id: int
    name: str
    opcode: str
    type: str
    parts: tuple[str, ...]
    operation: str
    line: SourceLocation | None
    place: int
    operands: tuple[int, ...]
    called: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """A computation: its instructions in the order of the schedule, and its root."""

    instructions: tuple[Instruction, ...]
    root: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class HloModule:
    """An optimised module, as XLA runs it."""

    computations: Mapping[int, Computation]
    entry: int
    by_id: Mapping[int, Instruction]


def read_module(data: bytes) -> HloModule:
    """Return the module of a serialized `HloModuleProto`. Raises: ValueError if it is none."""
    proto = _parsed(_module_class, data)
    places = _lines(proto.frames)
    order = {entry.key: list(entry.value.ids) for entry in proto.schedule.sequences}
    computations: dict[int, Computation] = {}
    by_id: dict[int, Instruction] = {}
    for c in proto.computations:
        here = {i.id: _instruction(i, places) for i in c.instructions}
        by_id.update(here)
        scheduled = order.get(c.id) or list(here)
        computations[c.id] = Computation(tuple([here[k] for k in scheduled if k in here]), c.root)
    return HloModule(computations, proto.entry, by_id)


def _parsed(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as e:
        raise ValueError(str(e)) from e


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _instruction(i: Any, places: list[SourceLocation | None]) -> Instruction:
    metadata, shape = i.metadata, i.shape
    line = places[metadata.frame] if 0 < metadata.frame < len(places) else None
    if line is None and metadata.file:
        line = SourceLocation(_text(metadata.file), metadata.line, "")
    return Instruction(
        i.id,
        _text(i.name),
        _text(i.opcode),
        _type(shape),
        tuple([_type(part) for part in shape.parts]),
        _text(metadata.name),
        line,
        i.tuple_index or i.parameter,
        tuple(i.operands),
        tuple(i.called),
    )


def _type(shape: Any) -> str:
    element = ELEMENT_TYPES.get(shape.type, "")
    return f"{element}[{','.join(map(str, shape.dimensions))}]" if element else ""


def _lines(frames: Any) -> list[SourceLocation | None]:
    """Return the line of each frame, by its number, which begins at 1."""
    files, functions = [[_text(t) for t in texts] for texts in (frames.files, frames.functions)]
    places: list[SourceLocation | None] = [None]
    for frame in frames.frames:
        at = frames.locations[frame.location - 1]
        function = functions[at.function - 1] if at.function else ""
        places.append(SourceLocation(files[at.file - 1], at.line, function) if at.file else None)
    return places


@final
@dataclass(frozen=True, slots=True, eq=False)
class AssignedBuffer:
    """A value in memory: the instruction that defines it, with the path in its tuple, and its place in an allocation of
    temporaries."""

    id: int
    instruction: int
    index: tuple[int, ...]
    allocation: int
    offset: int
    size: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The temporaries of a program: allocations with their sizes, and the buffers in them. `defined` has, for each
    instruction that defines buffers, their paths in its tuple; None for a buffer that is no temporary."""

    sizes: Mapping[int, int]
    buffers: tuple[AssignedBuffer, ...]
    defined: Mapping[int, Mapping[tuple[int, ...], AssignedBuffer | None]]

    @property
    def bytes(self) -> int:
        """The bytes of all temporaries."""
        return sum(self.sizes.values())


def read_assignment(data: bytes) -> Assignment:
    """Return the temporaries of a serialized `BufferAssignmentProto`: allocations that are neither operands, results
    nor constants. Raises: ValueError if it is none."""
    proto = _parsed(_assignment_class, data)
    at = {b.id: (b.defined.instruction, tuple(b.defined.index)) for b in proto.buffers}
    defined: dict[int, dict[tuple[int, ...], AssignedBuffer | None]] = {}
    for instruction, index in at.values():
        defined.setdefault(instruction, {})[index] = None
    sizes: dict[int, int] = {}
    buffers: list[AssignedBuffer] = []
    for allocation in proto.allocations:
        if allocation.parameter or allocation.live_out or allocation.constant or allocation.thread_local:
            continue
        sizes[allocation.index] = allocation.size
        for a in allocation.assigned:
            if a.buffer in at:
                instruction, index = at[a.buffer]
                buffer = AssignedBuffer(a.buffer, instruction, index, allocation.index, a.offset, a.size)
                buffers.append(buffer)
                defined[instruction][index] = buffer
    return Assignment(sizes, tuple(buffers), defined)
