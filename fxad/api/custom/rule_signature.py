"""Rules of all kinds are traced with these: the signature of a call, errors of rules, checks of their results.

A `Signature` has the types of the arguments and results of one call. A rule is traced from it (`traced_rule`), as a
function of leaves; what it returns is put into the order of the leaves, and its types are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.api.lift import tangent_tree
from fxad.api.symbolic_zeros import SymbolicZero
from fxad.core.dataclasses import dataclass
from fxad.core.exact_key import exact_key
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, TreeError, mismatch
from fxad.ir import Aval, Flags, Jaxpr, Zero
from fxad.lax.control.traced_functions import TracedFunction, traced_body
from fxad.lax.creation import splat
from fxad.operations.number_types import NumberType
from fxad.operations.promotion import NumberKind
from fxad.tracing.array import Array, aval_of, is_scalar
from fxad.tracing.program import argument_path, count_text, function_name, positional_name
from fxad.tracing.trace import argument_type, check_signature, parameter_names
from fxad.tracing.traced_numbers import ArgumentType, is_number
from fxad.tracing.tracer import Tracer, number_kind

UserRule: TypeAlias = Callable[..., Any]  # the types of its arguments are those of the user's function
_NO_RESULTS: Final = tree.structure(())


@final
@dataclass(frozen=True, slots=True, eq=False)
class PassedNumbers:
    """The ints and bools among the leaves of an argument, which have no tangents. `structure` is that of the argument,
    `rest` the argument with None in place of them. `values` has them, and None for the other leaves."""

    structure: Structure
    passed: tuple[bool, ...]
    values: tuple[object, ...]
    rest: object

    @staticmethod
    def of(argument: object) -> PassedNumbers | None:
        """Those of an argument; None if there are none."""
        leaves, structure = tree.flatten(argument)
        passed = tuple([is_number(x) and number_kind(x) < NumberKind.FLOATING for x in leaves])
        if not any(passed):
            return None
        values = tuple([x if fixed else None for x, fixed in zip(leaves, passed, strict=True)])
        rest = tree.unflatten(structure, [None if fixed else x for x, fixed in zip(leaves, passed, strict=True)])
        return PassedNumbers(structure, passed, values, rest)

    def without_cotangents(self, what: str, name: str, bar: object) -> object:
        """Return a cotangent of the argument with None for the numbers. Raises: DTypeError for a cotangent of one of
        them."""
        leaves = tree.flatten_up_to(self.structure, bar)
        if leaves is None:
            return bar
        for k, (x, fixed, value) in enumerate(zip(leaves, self.passed, self.values, strict=True)):
            if fixed and not is_absent_direction(x, aval_of(value)):
                path = tree.paths(self.structure, name)[k]
                raise DTypeError(
                    f"{what} returns a cotangent of {path}, which is {aval_of(value)} and has none",
                    remedy="return None for it; an array of float0, or of zeros, is taken too",
                )
        given = zip(leaves, self.passed, strict=True)
        return tree.unflatten(self.structure, [None if fixed else x for x, fixed in given])

    def same(self, other: PassedNumbers) -> bool:
        """Return True for equal numbers at the same places. Traced numbers are equal if they are one object."""
        pairs = zip(self.values, other.values, strict=False)
        return self.structure == other.structure and all([
            x is y or (is_scalar(x) and is_scalar(y) and exact_key(x) == exact_key(y)) for x, y in pairs
        ])  # fmt: skip

    def fill(self, rest: object) -> object:
        """Return the argument, given its other leaves in a tree with None in place of the numbers."""
        other_leaves = tree.flatten_up_to(self.structure, rest) or ()
        return tree.unflatten(
            self.structure,
            [v if fixed else x for fixed, v, x in zip(self.passed, self.values, other_leaves, strict=True)],
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The arguments of a call, and its results after the function is traced: trees and types, and the paths of the
    leaves for messages.

    `in_types` are the types of the arguments. When the function is traced, `in_avals` are those of the operands, which a
    number has too. `passed_numbers` are the ints and bools of an argument, by position: the function and its rules get
    them as they are, and `in_tree` has None in place of them. `names` are those of all arguments. `nondiff` are the
    values of those in `nondiff_argnums`, by position. Rules are about the others: `in_tree` is the tree of their tuple.
    """

    name: str
    names: tuple[str, ...]
    nondiff: Mapping[int, object]
    in_tree: Structure
    in_types: tuple[Aval | NumberType, ...]
    in_avals: tuple[Aval, ...]
    in_paths: tuple[str, ...]
    passed_numbers: Mapping[int, PassedNumbers]
    out_tree: Structure = _NO_RESULTS
    out_avals: tuple[Aval, ...] = ()

    @staticmethod
    def of(
        fun: object, nondiff_argnums: Sequence[int], args: Sequence[object], all_arrays: bool = False
    ) -> tuple[Signature, list[object]]:
        """Return the signature of a call, and the leaves of the arguments that rules are about. `all_arrays`: ints and
        bools are arrays too, for a rule that returns them or takes stacks of them. Raises: ArgumentError."""
        name, names, n = function_name(fun), parameter_names(fun), len(args)
        if nondiff_argnums and nondiff_argnums[-1] >= n:
            raise ArgumentError(
                f"{name}: nondiff_argnums has {nondiff_argnums[-1]}, and it is called with {count_text(n, 'argument')}",
                remedy="number the arguments from 0",
            )
        names = tuple([positional_name(names, k) for k in range(n)])
        positions = [k for k in range(n) if k not in nondiff_argnums]
        numbers = {} if all_arrays else {k: passed for k in positions if (passed := PassedNumbers.of(args[k]))}
        leaves, in_tree = tree.flatten(tuple([numbers[k].rest if k in numbers else args[k] for k in positions]))
        accessors = tree.call_structure(in_tree).accessors()
        paths = tuple([argument_path(a, [names[k] for k in positions]) for a in accessors])
        types = tuple([_type_of(x, f"{name}: {p}") for x, p in zip(leaves, paths, strict=True)])
        avals = tuple([t.aval if isinstance(t, NumberType) else t for t in types])
        nondiff = {k: args[k] for k in nondiff_argnums}
        return Signature(name, names, nondiff, in_tree, types, avals, paths, numbers), leaves

    def traced_as(self, body: Jaxpr, out_tree: Structure) -> Signature:
        """Return the signature after the function was traced. `body` has captured operands first."""
        in_avals = body.in_avals[len(body.ins) - len(self.in_avals) :]
        types = tuple([
            t.with_operand(a.dtype) if isinstance(t, NumberType) else t
            for t, a in zip(self.in_types, in_avals, strict=True)
        ])  # fmt: skip
        return replace(self, in_types=types, in_avals=in_avals, out_tree=out_tree, out_avals=body.out_avals)

    def takes(self, call: Signature) -> bool:
        """Return True if this function, which was traced, takes the arguments of a call.

        traced with                     called with      taken if
        array                           array            the types are equal
        number, of an operand f32[]     array            it is f32[], so it can be the operand
        number, of an operand f32[]     number           they are of one kind; if the dtype of the second one is
                                                         decided already (`fixed`), it is float32
        array                           number           never

        An array serves for a number, because the number was traced as an operand.
        """
        types = zip(self.in_types, self.in_avals, call.in_types, strict=True)
        return all([
            t is taken
            or (taken is aval if isinstance(taken, Aval) else isinstance(t, NumberType) and t.takes(taken))
            for t, aval, taken in types
        ])  # fmt: skip

    @property
    def nondiff_values(self) -> tuple[object, ...]:
        """The values of the arguments in `nondiff_argnums`, in order."""
        return tuple(self.nondiff.values())

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of the arguments that rules are about."""
        return tuple([k for k in range(len(self.names)) if k not in self.nondiff])

    def arguments(self, leaves: Sequence[object]) -> list[object]:
        """Return all arguments, from the leaves of those that rules are about."""
        rule_arguments = iter(self.primals(leaves))
        return [self.nondiff[k] if k in self.nondiff else next(rule_arguments) for k in range(len(self.names))]

    def primals(self, leaves: Sequence[object]) -> tuple[object, ...]:
        """Return the arguments that rules are about, from their leaves."""
        values: tuple[object, ...] = tree.unflatten(self.in_tree, leaves)
        return tuple([
            self.passed_numbers[k].fill(x) if k in self.passed_numbers else x
            for k, x in zip(self.positions, values, strict=True)
        ])  # fmt: skip

    @property
    def sets_of_results(self) -> list[Flags | None]:
        """The sets of results for which a rule of cotangents with `symbolic_zeros` is traced, as marks of leaves, the
        smallest first, and None for all results. The sets are each proper subset of up to three results that
        have cotangents; of more results, each alone. Results without a cotangent are in all sets."""
        leaves = [k for k, a in enumerate(self.out_avals) if a.inexact]
        sizes = range(1, len(leaves)) if len(leaves) <= 3 else (1,)
        sets = [subset for size in sizes for subset in combinations(leaves, size)]
        return [*[tuple([k in subset or k not in leaves for k in range(len(self.out_avals))]) for subset in sets], None]

    @property
    def out_paths(self) -> tuple[str, ...]:
        """Paths of the results."""
        return tuple(tree.paths(self.out_tree, "result"))

    def marks(self, body: Jaxpr, perturbed: Sequence[bool]) -> tuple[bool, ...]:
        """Mask of leaves as marks of the operands of the function: captured ones come first."""
        return (*[False] * (len(body.ins) - len(perturbed)), *perturbed)


def _type_of(x: object, what: str) -> Aval | NumberType:
    try:
        return argument_type(x, what)
    except ArgumentError as e:
        raise ArgumentError(
            e.message, remedy=f"{e.remedy}; name arguments that are no arrays in nondiff_argnums"
        ) from None


class ExpectedResults(NamedTuple):
    """Adjacent results of a rule: their paths in the function and their types. In the messages of errors, `verb` stands
    between the type of a result and its path: "returns f32[2] as tangent of result[0]"."""

    verb: str
    paths: Sequence[str]
    avals: Sequence[Aval]


def inexact(avals: Sequence[Aval]) -> tuple[Aval, ...]:
    """Return the types that have tangents."""
    return tuple([a for a in avals if a.inexact])


def with_none(
    structure: Structure, avals: Sequence[Aval], values: Sequence[object], perturbed: Sequence[bool] | None = None
) -> Any:
    """Return the tree of tangents: None for a leaf that has none. `values` are those of the leaves marked in
    `perturbed`; the others are symbolic zeros."""
    tangents = iter(values)
    has_tangent = [a.inexact for a in avals] if perturbed is None else perturbed
    pairs = zip(avals, has_tangent, strict=True)
    return tree.unflatten(
        structure, [next(tangents) if m else SymbolicZero(a) if a.inexact else None for a, m in pairs]
    )


def traced(
    what: str, fn: Callable[..., object], flat: Callable[..., object], avals: Sequence[ArgumentType]
) -> TracedFunction:
    """Trace `flat`, a function of leaves, under the name of `fn`."""
    flat.__name__ = function_name(fn)
    return traced_body(what, flat, tree.structure((0,) * len(avals)), avals)


def traced_rule(
    what: str,
    fn: Callable[..., object],
    flat: Callable[..., object],
    avals: Sequence[ArgumentType],
    *expected: ExpectedResults,
) -> TracedFunction:
    """Return `traced`, with checks of the expected results. Further results are residuals.

    Raises: ShapeError, DTypeError.
    """
    body = traced(what, fn, flat, avals)
    expected_avals = [a for group in expected for a in group.avals]
    body = body.typed([*expected_avals, *[None] * (len(body.numbers) - len(expected_avals))])
    types = iter(body.jaxpr.out_avals)
    for verb, paths, group in expected:
        check_types(what, verb, paths, group, list(islice(types, len(group))))
    return body


def check_takes(role: str, sig: Signature, fn: UserRule, arguments: Sequence[str]) -> None:
    """Raise ArgumentError for a rule that cannot be called with these arguments."""
    called = f"it is called with ({', '.join(arguments)}), "
    check_signature(fn, f"{role} of {sig.name}: {function_name(fn)}", arguments, {}, called)


# -------------------------------------------------------------------------------------------------- rules that raise


@final
class RuleError(Exception):
    """A user's rule raised an error while it was traced. `message` and `remedy` are those of the error of its uses."""

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(error)
        cause = error.message if isinstance(error, FxadError) else str(error)
        self.message = f"{what} raised {type(error).__name__}" + (f": {cause}" if cause else "")
        self.remedy = (error.remedy if isinstance(error, FxadError) else "") or "give a rule that covers this case"


def call_rule(what: str, rule: Callable[..., object], *args: object) -> object:
    """Call a user's rule. `what` names the rule in messages. Raises: RuleError if the rule raises an error."""
    try:
        return rule(*args)
    except Exception as e:
        raise RuleError(what, e) from e


# -------------------------------------------------------------------------------------------------------------- checks


def pair(what: str, wanted: str, value: object) -> tuple[Any, Any]:
    """Return a value that must be a pair. Raises: TreeError."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TreeError(
            f"{what} returns {tree.shape_text(tree.structure(value))}, not a pair {wanted}",
            remedy=f"return a tuple of two: {wanted}",
        )
    return value[0], value[1]


def results_in_order(what: str, sig: Signature, out: object) -> list[Any]:
    """Return the leaves of the results of a rule. Raises: TreeError if they have another structure than the
    function's."""
    leaves, actual = tree.flatten(out)
    if actual != sig.out_tree:
        raise TreeError(
            f"{what} returns results {tree.shape_text(actual)}, {sig.name} returns {tree.shape_text(sig.out_tree)}",
            remedy="a rule gives the results of its function, in the same tree",
        )
    for x, path in zip(leaves, sig.out_paths, strict=True):
        aval_of(x, f"{what}: {path}")
    return leaves


def directions(
    what: str, role: str, structure: Structure, avals: Sequence[Aval], paths: Sequence[str], value: object, of: str
) -> list[object]:
    """Return the leaves of a tree of tangents (or cotangents) that belong to leaves with tangents; zeros for None. A
    cotangent of an argument with one leaf may be that of the leaf.

    Raises: TreeError where it has another structure than `structure`; DTypeError for a tangent of what has none.
    """
    if value is None or (isinstance(value, SymbolicZero) and structure.type is not None):
        return [splat(Zero(a).instantiate()) for a in avals if a.inexact]
    leaves = tree.flatten_up_to(structure, value)
    if leaves is None and role == "cotangent" and structure.num_leaves == 1:
        leaves = tree.leaves(value)  # as in JAX: one leaf needs no structure
        leaves = leaves if len(leaves) == 1 and leaves[0] is value else None
    if leaves is None or any([x is not None and tree.structure(x).num_nodes != 1 for x in leaves]):
        actual, expected = tree.structure(value), tangent_tree(structure, avals)
        raise TreeError(
            f"{what} returns the {role} {tree.shape_text(actual)}, it must be {tree.shape_text(expected)} as {of}",
            remedy=f"a {role} has the structure of {of}, with None for integers and bools, or where it vanishes",
        )
    out: list[object] = []
    for x, aval, path in zip(leaves, avals, paths, strict=True):
        if aval.inexact:
            zero = x is None or isinstance(x, SymbolicZero)
            if not zero:
                aval_of(x, f"{what}: {role} of {path}")
            out.append(splat(Zero(aval).instantiate()) if zero else x)
        elif not is_absent_direction(x, aval):
            raise DTypeError(
                f"{what} returns a {role} of {path}, which is {aval} and has none",
                remedy="return None for it; an array of float0, or of zeros, is taken too",
            )
    return out


def is_absent_direction(x: object, aval: Aval) -> bool:
    """Return True for what stands for the tangent, or the cotangent, of an integer of the type `aval`, which has none:
    None, an array of float0, and constant zeros of its shape."""
    if x is None or isinstance(x, SymbolicZero):
        return True
    if isinstance(x, Tracer):
        literal = x.literal
        return literal is not None and x.shape == aval.shape and not any(literal.bits)
    if not isinstance(x, Array | np.ndarray | np.generic | bool | int | float):
        return False
    value = np.asarray(x)
    return value.shape == aval.shape and (value.dtype == dtypes.float0 or not value.any())


def check_types(what: str, verb: str, paths: Sequence[str], wants: Sequence[Aval], actual: Sequence[Aval]) -> None:
    """Raise ShapeError, DTypeError for the first type that is not as wanted."""
    for path, expected, returned in zip(paths, wants, actual, strict=True):
        if returned is not expected:
            error = mismatch(returned, expected)
            raise error(
                f"{what} returns {returned} {verb} {path}, which is {expected}",
                remedy=f"return {expected} there"
                + ("" if error is ShapeError else f": astype('{expected.dtype.name}')"),
            )
