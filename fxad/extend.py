"""The interface for primitives and transformations from outside fxad.

A primitive is a class with `@final @primitive`: five rules, and more as bases ask for them (`Linear`, `HigherOrder`,
`HasInverse`, `HasMask`, `HasDefinition`). `bind` applies it to arrays. A transformation is a function from `Jaxpr` to
`Jaxpr` that walks the equations and ends in `Builder.build`; `by_value` memoises it. `fxad.primitives` has the
primitives of fxad, and `fxad.testing` the checkers of laws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import fxad.primitives.elementwise as elementwise
from fxad.api.custom_rule import custom_rule
from fxad.core.builder import Builder, rewrite
from fxad.core.interpreter import run
from fxad.core.layout import (
    PREDICATE,
    Body,
    BranchIndex,
    Carry,
    Constant,
    Count,
    Elements,
    Group,
    InParallel,
    Layout,
    Never,
    Once,
    OneOf,
    Part,
    Sliced,
    Times,
    Unknown,
    UpTo,
    Value,
)
from fxad.core.memo import by_value
from fxad.core.typecheck import layout_problem, typecheck
from fxad.diagnosis.equality.rules import HasDefinition
from fxad.errors import ArgumentError, FxadError, described, shown
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Emit,
    Eqn,
    ForwardCtx,
    HigherOrder,
    Hlo,
    HloValue,
    HloValues,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizeCtx,
    LinearizedBody,
    Lit,
    NDArray,
    Operands,
    Primitive,
    Record,
    SourceLocation,
    Tangent,
    Tangents,
    TransposeCtx,
    Var,
    Zero,
    distinct_jaxprs,
    params,
    primitive,
    record,
    source_location,
)
from fxad.passes import Pass
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import DeclaredProgram, TransformRule
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.linearity import is_linear
from fxad.primitives.shape import broadcast_to_axis, emit_broadcast, emit_reshape, move_axis
from fxad.tracing.array import Array, aval_of, binder
from fxad.tracing.spec import Spec
from fxad.tracing.trace import trace
from fxad.transforms.inversion.rules.contract import (
    ChosenPart,
    HasInverse,
    InverseCtx,
    LogDetRule,
    MaskPart,
    PartialValue,
    Refused,
    ScatteredPart,
    SharePart,
    SolveRule,
    WindowPart,
)
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import HasMask, not_masked
from fxad.transforms.vmap import over_stack


def bind(prim: Primitive, *args: object) -> tuple[Array, ...]:
    """Apply a primitive to arrays: computed immediately, or recorded as an equation in the active trace.

    Operands are not promoted or broadcast. A Python scalar is a literal without axes.
    Raises: ArgumentError for what is not a primitive; naming primitive, position and type for an operand that is not an
            array, or for a layout that does not fit the operands and results.
    """
    if not isinstance(prim, Primitive):
        raise ArgumentError(
            f"bind: {described(prim)} is not a primitive: {shown(prim)}",
            remedy="give an object of a class of primitives",
        )
    if isinstance(prim, HigherOrder):
        _check_layout(prim, args)
    return binder().bind(prim, args)


def _check_layout(prim: HigherOrder, args: tuple[object, ...]) -> None:
    try:
        ins = [aval_of(a) for a in args]
        outs = prim.abstract_eval(*ins)
    except FxadError:  # `bind` raises it, and names the operand or the equation
        return
    problem = layout_problem(prim, ins, outs)
    if problem:
        raise ArgumentError(
            f"{prim.name}: its layout does not fit: {problem}",
            remedy=f"correct {type(prim).__name__}.layout; testing.check_layout compares it with `impl`",
        )


def call(jaxpr: Jaxpr, *args: object) -> tuple[Array, ...]:
    """Return the results of a jaxpr for arrays: run now, or recorded as one equation in the active trace.

    Raises: ArgumentError, ShapeError, DTypeError for operands of other types.
    """
    return bind(Call(jaxpr), *args)


def rule_for(prim: Primitive, transformation: str) -> TransformRule | None:
    """Return the rule that a function states for a transformation (`custom_rule`), given the equation that calls it.

    Return None if there is none. Its programs need no context: the transformation may write them anywhere.

    If the rule raised an error while it was traced, it has no programs, and `error` and `remedy` say why.
    """
    rule = prim.rules.rule_for(transformation) if isinstance(prim, CallWithRules) else None
    if rule is None:
        return None
    assert isinstance(prim, CallWithRules)
    programs = [replace(p, jaxpr=prim.complete(p.jaxpr, over_stack)) for p in rule.programs]
    return replace(rule, programs=tuple(programs))


def emit(ctx: Emit, function: Callable[..., object], *args: Atom) -> Atom:
    """Return the result of a Python function of arrays, written into a program: a rule may be written with
    `fxad.numpy`.

    Raises: ArgumentError for a function that closes over arrays, or does not return one array.
    """
    program = trace(function, *[Spec(a.aval.shape, a.aval.dtype) for a in args])
    if program.bound or len(program.jaxpr.outs) != 1:
        problem = "closes over arrays" if program.bound else f"returns {len(program.jaxpr.outs)} arrays"
        raise ArgumentError(f"emit: {program.name} {problem}", remedy="pass arrays as operands, and return one array")
    env: dict[Atom, Atom] = dict(zip(program.jaxpr.ins, args, strict=True))
    for eqn in program.jaxpr.eqns:
        env.update(zip(eqn.outs, ctx(eqn.prim, *[env.get(a, a) for a in eqn.ins]), strict=True))
    (out,) = program.jaxpr.outs
    return env.get(out, out)


__all__ = [
    "Atom",
    "Atoms",
    "Aval",
    "Avals",
    "BatchCtx",
    "Binary",
    "Body",
    "BranchIndex",
    "Builder",
    "Call",
    "CallWithRules",
    "Carry",
    "ChosenPart",
    "Constant",
    "Cotangent",
    "Cotangents",
    "Count",
    "DeclaredProgram",
    "Dims",
    "Elements",
    "Emit",
    "Eqn",
    "ForwardCtx",
    "Group",
    "HasDefinition",
    "HasInverse",
    "HasMask",
    "HigherOrder",
    "Hlo",
    "HloValue",
    "HloValues",
    "Hole",
    "InParallel",
    "InverseCtx",
    "Jaxpr",
    "JvpCtx",
    "Layout",
    "Lin",
    "Linear",
    "LinearizeCtx",
    "LinearizedBody",
    "Lit",
    "LogDetRule",
    "MaskCtx",
    "MaskPart",
    "NDArray",
    "Never",
    "Once",
    "OneOf",
    "Operands",
    "PREDICATE",
    "Part",
    "PartialValue",
    "Pass",
    "Primitive",
    "Record",
    "Refused",
    "Scan",
    "ScatteredPart",
    "SharePart",
    "SolveRule",
    "Sliced",
    "SourceLocation",
    "Tangent",
    "Tangents",
    "Times",
    "TransformRule",
    "TransposeCtx",
    "Unary",
    "Unknown",
    "UpTo",
    "Value",
    "Var",
    "WindowPart",
    "Zero",
    "bind",
    "broadcast_to_axis",
    "by_value",
    "call",
    "custom_rule",
    "distinct_jaxprs",
    "elementwise",
    "emit",
    "emit_broadcast",
    "emit_reshape",
    "is_linear",
    "move_axis",
    "not_masked",
    "params",
    "primitive",
    "record",
    "rewrite",
    "rule_for",
    "run",
    "source_location",
    "typecheck",
]


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
