"""The user's line, and the equation, of an instruction of optimised HLO.

XLA keeps the location of an operation as metadata. It adds instructions without a line: copies, tuples, updates of
loops. Such an instruction has the line of the value that it moves.
"""

from __future__ import annotations

from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.diagnosis.explain.equations import Equations, ExplainedEquation
from fxad.diagnosis.explain.hlo import AssignedBuffer, HloModule, Instruction
from fxad.ir import Jaxpr, SourceLocation

_MOST_STEPS: Final = 400  # greatest distance from an instruction to one with a line
TRANSPOSED: Final = "transpose_"  # the names of transposed programs begin so
# parts of the names of programs that reverse mode makes
_REVERSE: Final = ("grad_", "jacrev_", "backward_", "hessian_", "vjp_", TRANSPOSED)
_MOVES: Final = frozenset({"copy", "bitcast", "convert", "reshape", "transpose", "copy-start", "copy-done"})


@final
@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """Where a value comes from. `instruction` is the one that computes it."""

    instruction: Instruction
    line: SourceLocation | None
    equation: ExplainedEquation | None


@final
class Origins:
    """The origins of the instructions of a module."""

    __slots__ = (
        "_again", "_callers", "_computation_of", "_equations", "_found", "_module", "_transposed", "_users",
        "has_derivative",
    )  # fmt: skip

    def __init__(self, module: HloModule, equations: Equations) -> None:
        self._module, self._equations = module, equations
        self.has_derivative = any([part in body.name for body in equations.bodies for part in _REVERSE])
        self._callers: dict[int, Instruction] = {}
        self._users: dict[int, list[Instruction]] = {}
        self._transposed: dict[int, bool] = {}  # by the number of a computation
        self._found: dict[tuple[int, tuple[int, ...]], ValueOrigin] = {}
        self._computation_of: dict[int, int] = {}
        self._again = _lines_that_return(equations)
        for number, computation in module.computations.items():
            for i in computation.instructions:
                self._computation_of[i.id] = number
                for k in i.operands:
                    self._users.setdefault(k, []).append(i)
                for c in i.called:
                    self._callers.setdefault(c, i)

    def of_buffer(self, buffer: AssignedBuffer) -> ValueOrigin:
        """Return the origin of a buffer."""
        return self.of(buffer.instruction, buffer.index)

    def of(self, number: int, index: tuple[int, ...] = ()) -> ValueOrigin:
        """Return the origin of an instruction, or of an element of its tuple."""
        key = number, index
        if key not in self._found:
            at = self._traced(number, index) or self._of_users(number) or self._module.by_id[number]
            equation = self._equations.find(at.operation, at.line, at.type)
            line = at.line or (equation.line if equation is not None else None)
            self._found[key] = ValueOrigin(at, line, equation)
        return self._found[key]

    def in_derivative(self, i: Instruction) -> bool:
        """Return True if an instruction is in a transposed program, or in a loop that runs one."""
        if TRANSPOSED in (i.operation or self.of(i.id).instruction.operation):
            return True
        number = self._computation_of[i.id]
        if number == self._module.entry:
            return False
        if number not in self._transposed:
            inside = self._module.computations[number].instructions
            self._transposed[number] = any([TRANSPOSED in other.operation for other in inside])
        return self._transposed[number]

    def policy_of(self, equation: ExplainedEquation) -> str:
        """Return the policy of `remat` that keeps a result of an equation; empty if there is none."""
        return self._equations.policy_of(equation)

    def returns_to(self, line: SourceLocation) -> bool:
        """Return True if a body has equations of a line, then others, then again some of this line, as a derivative
        has. All equations of one call of a library function, such as an optimiser, have one line of the user, and
        stand together."""
        return (line.file, line.line) in self._again

    def _has_line(self, i: Instruction) -> bool:
        return i.line is not None or self._equations.find(i.operation, None, i.type) is not None

    def _traced(self, number: int, index: tuple[int, ...]) -> Instruction | None:
        """Return the instruction with a line that computes a value, by a search through those that move it."""
        seen = {(number, index)}
        stack = [(number, index)]
        fallback: Instruction | None = None
        while stack and len(seen) < _MOST_STEPS:
            k, path = stack.pop()
            i = self._module.by_id.get(k)
            if i is None:
                continue
            nearer = self._sources(i, path)
            if not nearer and i.operation and self._has_line(i):
                return i
            if fallback is None and i.operation and self._has_line(i):
                fallback = i
            for source in reversed(nearer):
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        return fallback

    def _sources(self, i: Instruction, path: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
        """Return the values that an instruction moves, the best first; none if it computes one and has a line."""
        computations, operands = self._module.computations, i.operands
        match i.opcode:
            case "tuple":
                return [(operands[path[0]], path[1:])] if path else [(k, ()) for k in operands]
            case "get-tuple-element":
                return [(operands[0], (i.place, *path))]
            case "while":
                body = computations[i.called[0]].root if path else 0
                return [(body, path), (operands[0], path)] if path else []
            case "call" | "async-start" | "fusion":
                return [(computations[i.called[0]].root, path)] if i.called else []
            case "conditional":
                return [(computations[c].root, path) for c in i.called]
            case "parameter":
                caller = self._callers.get(self._computation_of[i.id])
                if caller is None:
                    return []
                if caller.opcode == "while":
                    body = computations[caller.called[0]].root
                    return [(body, path), (caller.operands[0], path)] if path else []
                return [(caller.operands[i.place], path)] if i.place < len(caller.operands) else []
            case "dynamic-update-slice" | "scatter":
                return [(operands[-1] if i.opcode == "scatter" else operands[1], ()), (operands[0], ())]
            case _ if i.opcode in _MOVES and operands and i.line is None:
                return [(operands[0], path)]
            case _ if i.line is None and not i.operation:
                return [(k, ()) for k in operands]
            case _:
                return []

    def _of_users(self, number: int) -> Instruction | None:
        """Return the first instruction with a line that reads a value, also through others."""
        seen, queue = {number}, [number]
        for k in queue:
            for user in self._users.get(k, ()):
                if user.operation and self._has_line(user):
                    return user
                if user.id not in seen and len(seen) < _MOST_STEPS:
                    seen.add(user.id)
                    queue.append(user.id)
        return None


def _lines_that_return(equations: Equations) -> frozenset[tuple[str, int]]:
    """Return the lines whose equations stand in several places of one body."""
    out: set[tuple[str, int]] = set()
    left: set[tuple[str, int]] = set()
    body: Jaxpr | None = None
    here: tuple[str, int] | None = None
    for e in equations:
        if e.body is not body:
            body, here, left = e.body, None, set()
        line = None if e.line is None else (e.line.file, e.line.line)
        if line == here:
            continue
        if here is not None:
            left.add(here)
        if line is not None and line in left:
            out.add(line)
        here = line
    return frozenset(out)
