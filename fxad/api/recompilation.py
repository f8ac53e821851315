"""Why a call of a jitted function compiles: the reason in the log and in the `RecompilationWarning`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.core.exact_key import exact_key
from fxad.tracing.program import Program, tree_difference


def recompilation_reason(program: Program[..., object], compiled: Sequence[Program[..., object]]) -> str:
    """Return the reason for a recompilation, as a line of the log: the difference between a program and the nearest of
    those that are compiled."""
    if not compiled:
        arguments = ", ".join([f"{path} {a}" for path, a in zip(program.paths, program.in_avals, strict=True)][:_SHOWN])
        return f"called for the first time, with {arguments or 'no arguments'}{_more(len(program.in_avals))}"
    same_tree = [other for other in compiled if other.in_tree == program.in_tree]
    if not same_tree:
        keywords = dict.fromkeys(program.kwargs_tree.entries())
        return tree_difference(compiled[-1], program.in_tree, program.args_tree.num_children, keywords).text
    changes = min([_changes(program, other) for other in reversed(same_tree)], key=len)
    if not changes:
        if all([exact_key(program.in_tree) != exact_key(other.in_tree) for other in same_tree]):
            return "the keys of a dict have another order"
        return "the argument types are not new: it closes over other values, or other maps are around it"
    return f"{', '.join(changes[:_SHOWN])}{_more(len(changes))}"


_SHOWN: Final = 3


def _more(n: int) -> str:
    return f" and {n - _SHOWN} more" if n > _SHOWN else ""


def _changes(program: Program[..., object], other: Program[..., object]) -> list[str]:
    leaves = zip(program.paths, program.in_avals, other.in_avals, strict=True)
    return [f"{path} is {now}, it was {before}" for path, now, before in leaves if now != before]
