"""The reason for a recompilation, as one log line: the difference between the new argument types and known ones."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.tracing.program import Program, tree_error


def recompilation_reason(program: Program[..., object], known: Sequence[Program[..., object]]) -> str:
    """Describe the difference between a program and the nearest known one: leaves of other types, or another tree."""
    if not known:
        arguments = ", ".join([f"{path} {a}" for path, a in zip(program.paths, program.in_avals, strict=True)][:_SHOWN])
        return f"called for the first time, with {arguments or 'no arguments'}{_more(len(program.in_avals))}"
    same_tree = [other for other in known if other.in_tree == program.in_tree]
    if not same_tree:
        keywords = dict.fromkeys(program.kwargs_tree.entries())
        error = tree_error(known[-1], program.in_tree, program.args_tree.num_children, keywords)
        return error.message.partition(": ")[2]
    changes = min([_changes(program, other) for other in reversed(same_tree)], key=len)
    if not changes:
        return "what it closes over, or what is mapped around it, is another"
    return f"{', '.join(changes[:_SHOWN])}{_more(len(changes))}"


_SHOWN = 3


def _more(n: int) -> str:
    return f" and {n - _SHOWN} more" if n > _SHOWN else ""


def _changes(program: Program[..., object], other: Program[..., object]) -> list[str]:
    leaves = zip(program.paths, program.in_avals, other.in_avals, strict=True)
    return [f"{path} is {now}, it was {before}" for path, now, before in leaves if now != before]
