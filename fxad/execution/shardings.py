"""`in_shardings` and `out_shardings` of a program.

They are apart from `fxad.sharding`, which knows no `Program`.
"""

from __future__ import annotations

from typing import ParamSpec, TypeVar

from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError
from fxad.primitives.sharding_constraint import with_shardings
from fxad.sharding import NamedSharding, PartitionSpec, Shardings, flatten_shardings, sharding_in_program
from fxad.tracing.context import resolve_sharding
from fxad.tracing.program import Program

P = ParamSpec("P")
R = TypeVar("R")


def with_program_shardings(what: str, program: Program[P, R], ins: Shardings, outs: Shardings) -> Program[P, R]:
    """Return the program with its arguments and results divided.

    Raises: ArgumentError, TreeError; ShapeError and AxisNameError naming argument, axis and sizes.
    """
    if ins is None and outs is None:
        return program
    args, kwargs = program.args_tree, program.kwargs_tree
    prefix = tuple(ins) if isinstance(ins, list) else ins
    if isinstance(prefix, tuple) and not isinstance(prefix, PartitionSpec) and len(prefix) != args.num_children:
        raise ArgumentError(
            f"{what}: in_shardings has {len(prefix)} entries for {args.num_children} arguments",
            remedy="give one NamedSharding per argument, or one for all",
        )
    leaves = [*_resolved(prefix, args, f"{what}: in_shardings"), *[None] * kwargs.num_leaves]
    results = _resolved(outs, program.out_tree, f"{what}: out_shardings")
    paths = tree.paths(program.out_tree, "result")
    where_in = [
        None if s is None else sharding_in_program(what, s, a, f"argument {p}")
        for s, a, p in zip(leaves, program.in_avals, program.paths, strict=True)
    ]
    where_out = [
        None if s is None else sharding_in_program(what, s, a, p)
        for s, a, p in zip(results, program.out_avals, paths, strict=True)
    ]
    jaxpr = with_shardings(program.jaxpr, (*[None] * len(program.bound), *where_in), tuple(where_out))
    return program.replace(jaxpr)


def _resolved(prefix: Shardings, structure: Structure, what: str) -> list[NamedSharding | None]:
    leaves = flatten_shardings(prefix, structure, what)
    return [None if s is None else resolve_sharding(what, s) for s in leaves]
