"""`Program[P, R]`: a jaxpr with its pytrees and bound operands; a call of it, whose arguments must fit.

The types keep the user's signature: `trace(f, ...)` of `f: (Params, Array) -> Array` is
`Program[[Params, Array], Array]`, and so are its executable and, with other results, its transforms.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields
from functools import partial
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    final,
    overload,
)

import numpy as np

from fxad import dtypes
from fxad.core import printing
from fxad.core.dataclasses import dataclass
from fxad.core.exact_key import exact_key
from fxad.core.passes import Passes
from fxad.core.sizes.equations import Constraint, solve_sizes
from fxad.core.sizes.size import Size
from fxad.core.trees import tree
from fxad.core.trees.tree import Accessor, Structure
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, TreeError
from fxad.ir import Aval, Jaxpr, NDArray, distinct_jaxprs
from fxad.operations import promotion
from fxad.operations.number_types import CallType
from fxad.runtime import DEFAULT_OPTIONS, CompileOptions
from fxad.support.absent import absent_attribute
from fxad.support.tables import Table, headed, preformatted
from fxad.tracing.array import Array, Eager, aval_of, binder
from fxad.tracing.spec import ArgInfo, Spec
from fxad.tracing.traced_numbers import TracedNumber
from fxad.transforms.specialize import specialize
from fxad.units.plan import UnitsChoice

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class ProgramProtocol(Protocol[P, R_co]):
    """The protocol of `Program`, for overloads: mypy infers the types in `Concatenate` from the `__call__` of a
    protocol, but not from the parameters of a class."""

    @property
    def jaxpr(self) -> Jaxpr:
        """The program as a value."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it."""


class Argument(NamedTuple):
    """An argument of a program."""

    key: int | str  # the position, or the name of a keyword argument
    name: str  # in messages: `params`, `args[1]`
    tree: Structure
    leaves: range  # their indices among the leaves of all arguments


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program(Generic[P, R_co]):
    """A traced function as a value: `jaxpr`, the trees of its arguments and results, and the arrays it closed over.

    `bound` are the values of the leading operands of `jaxpr`: arrays, or tracers of an enclosing trace. They are
    not hashed by content: two programs are equal when jaxpr and trees are equal and they bind the same objects
    (docs/adr/0003). Calling a program runs it; inside a trace it adds one `call` equation.
    """

    jaxpr: Jaxpr
    in_tree: Structure
    out_tree: Structure
    bound: tuple[object, ...] = ()
    names: tuple[str, ...] = field(default=())  # of the positional arguments, for messages; not part of the value
    name: str = "main"  # likewise

    @classmethod
    def of(cls, program: Program[Any, Any], **changes: Any) -> Self:
        """Return an object of this class with the fields of a program; `changes` gives other values for some, and the
        fields that a subclass adds."""
        return cls(**{f.name: getattr(program, f.name) for f in fields(Program)} | changes)

    def _key(self) -> tuple[object, ...]:
        return self.jaxpr, self.in_tree, self.out_tree, tuple([id(b) for b in self.bound])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program) or self._key() != other._key():
            return False
        # equal structures may have other orders of the keys of dicts
        return exact_key((self.in_tree, self.out_tree)) == exact_key((other.in_tree, other.out_tree))

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the argument leaves."""
        return self.jaxpr.in_avals[len(self.bound) :]

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """Types of the result leaves."""
        return self.jaxpr.out_avals

    @property
    def args_tree(self) -> Structure:
        """The tree of the positional arguments, a tuple."""
        return self.in_tree.child(0)

    @property
    def kwargs_tree(self) -> Structure:
        """The tree of the keyword arguments, a dict."""
        return self.in_tree.child(1)

    @property
    def positional_arguments(self) -> list[Argument]:
        """The positional arguments, in order."""
        return self.arguments[: self.args_tree.num_children]

    @property
    def arguments(self) -> list[Argument]:
        """The positional arguments, then the keyword arguments."""
        args, kwargs = self.args_tree, self.kwargs_tree
        keys: list[tuple[int | str, str]] = [(k, positional_name(self.names, k)) for k in range(args.num_children)]
        keys += [(name, name) for name in kwargs.entries()]
        arguments, first = [], 0
        for (key, name), part in zip(keys, (*args.children(), *kwargs.children()), strict=True):
            end = first + part.num_leaves
            arguments.append(Argument(key, name, part, range(first, end)))
            first = end
        return arguments

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the argument leaves, as in `params['w']`."""
        return tuple([argument_path(a, self.names) for a in self.in_tree.accessors()])

    @property
    def args_info(self) -> Any:
        """The types of the arguments: a tree ((positional), {keyword}) of `Spec`s."""
        return tree.unflatten(self.in_tree, [Spec(a.shape, a.dtype) for a in self.in_avals])

    def args_info_with_donation(self, donate: Collection[int]) -> Any:
        """Return `args_info` with an `ArgInfo` for each type: whether the operand is among the operands `donate`."""
        first = len(self.bound)
        infos = [ArgInfo(a.shape, a.dtype, first + k in donate) for k, a in enumerate(self.in_avals)]
        return tree.unflatten(self.in_tree, infos)

    @property
    def out_info(self) -> Any:
        """The types of the results: a tree of `Spec`s."""
        return tree.unflatten(self.out_tree, [Spec(a.shape, a.dtype) for a in self.out_avals])

    def operand_path(self, operand: int) -> str:
        """Return the name of an operand of the jaxpr in messages."""
        k = operand - len(self.bound)
        return f"argument {self.paths[k]}" if k >= 0 else f"closed-over array {operand}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(absent_attribute("Program", name), name=name, obj=self)

    def text(self) -> str:
        """Return the program as text; `fxad.text.parse` reads it back."""
        return printing.program(distinct_jaxprs(self.jaxpr), name=self.name)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self.jaxpr.eqns)} equations, {len(self.in_avals)} argument leaves>"

    def _repr_html_(self) -> str:
        arguments = [("argument", path, str(a)) for path, a in zip(self.paths, self.in_avals, strict=True)]
        paths = [accessor.codify("") for accessor in self.out_tree.accessors()]
        results = [("result", path, str(a)) for path, a in zip(paths, self.out_avals, strict=True)]
        text = f"<details open><summary>text</summary>{preformatted(self.text())}</details>"
        return headed(repr(self)[1:-1], Table(("", "", "type"), (*arguments, *results)).html(), text)

    @overload
    def replace(self, jaxpr: Jaxpr, *, name: str = "") -> Program[P, R_co]: ...
    @overload
    def replace(
        self, jaxpr: Jaxpr, *, in_tree: Structure | None = None, out_tree: Structure | None = None, name: str = ""
    ) -> Program[..., Any]: ...
    def replace(
        self, jaxpr: Jaxpr, *, in_tree: Structure | None = None, out_tree: Structure | None = None, name: str = ""
    ) -> Program[..., object]:
        """Return the program with another jaxpr over the same bound operands; the trees are the same unless they are
        given."""
        ins = self.in_tree if in_tree is None else in_tree  # an empty tree is falsy
        outs = self.out_tree if out_tree is None else out_tree
        return Program.of(self, jaxpr=jaxpr, in_tree=ins, out_tree=outs, name=name or self.name)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self._run(flatten_arguments(self, args, kwargs))

    def call_flat(self, leaves: Sequence[object]) -> R_co:
        """Call with arguments that are flattened already. Raises: ShapeError, DTypeError, ArgumentError."""
        return self._run(fit_leaves(self, leaves))

    def _run(self, leaves: Sequence[object]) -> R_co:
        check_bound(self)
        jaxpr = self.jaxpr
        if jaxpr.symbolic:
            jaxpr = specialize_to_arguments(self, leaves)
        active, operands = binder(), [*self.bound, *leaves]
        if isinstance(active, CallObserver):
            program = self if jaxpr is self.jaxpr else self.replace(jaxpr)
            outs = active.observe(
                program, operands, CompileChoices(), partial(active.call, jaxpr, operands, self.operand_path, self.name)
            )
        else:
            outs = active.call(jaxpr, operands, self.operand_path, self.name)
        return cast(R_co, self.out_tree.unflatten(outs))  # the tree is that of the results of type R


class CompileChoices(NamedTuple):
    """How a program is compiled: the choice of units, the passes (None: the default pipeline), and the options."""

    units: UnitsChoice = "none"
    passes: Passes | None = None
    options: CompileOptions = DEFAULT_OPTIONS


class CallObserver(Eager):
    """A binder that observes the calls of compiled programs outside of traces: of programs, executables and functions
    of `jit`. A block puts it in force (`tracing.array.binding`). Calls are slower in the block, and not outside."""

    @abstractmethod
    def observe(
        self,
        program: Program[..., object],
        operands: Sequence[object],
        how: CompileChoices,
        run: Callable[[], Sequence[T]],
    ) -> Sequence[T]:
        """Call `run`, which runs the program, and return its results. `operands` are the arrays that the program closes
        over, and the leaves of its arguments. `run` may delete them."""


def specialize_to_arguments(program: Program[..., object], leaves: Sequence[object]) -> Jaxpr:
    """Return the program of symbolic shape, for the sizes of its arguments. Raises: ShapeError."""
    if all([aval_of(x) is aval for x, aval in zip(leaves, program.in_avals, strict=True)]):
        return program.jaxpr  # the call is inside a program of the same sizes
    return specialize_to_types(program, [aval_of(x) for x in leaves])


def specialize_to_types(program: Program[..., object], avals: Sequence[CallType]) -> Jaxpr:
    """Return the program of symbolic shape, for the sizes of types. Raises: ShapeError."""
    values = solve_sizes(program.name, size_constraints(avals, program.in_avals, program.paths))
    return specialize(program.jaxpr, tuple(sorted(values.items())))


def size_constraints(avals: Sequence[CallType], symbolic: Sequence[CallType], paths: Sequence[str]) -> list[Constraint]:
    """Return the constraints of the axes of arguments, for `solve_sizes`: an axis of a `symbolic` type has its size in
    `avals`."""
    return [
        (size, n, f"size {axis} of argument {path}")
        for aval, want, path in zip(avals, symbolic, paths, strict=True)
        for axis, (size, n) in enumerate(zip(want.shape, aval.shape, strict=True))
    ]


def argument_path(accessor: Accessor, names: Sequence[str]) -> str:
    """Return `args[0]['w']` as `params['w']`, `kwargs['scale']` as `scale`."""
    kind, argument, *rest = accessor
    root = positional_name(names, argument.entry) if kind.entry == 0 else str(argument.entry)
    return root + "".join([e.codify("") for e in rest])


def positional_name(names: Sequence[str], k: int) -> str:
    """Return the name of positional argument `k` in messages: that of its parameter, or `args[k]`."""
    return names[k] if k < len(names) else f"args[{k}]"


def function_name(fn: object) -> str:
    """Return the name of a function or a program, as in `loss`; that of the class for another callable object."""
    inner = getattr(fn, "func", fn)  # functools.partial
    if isinstance(inner, Program):
        return inner.name
    return str(getattr(inner, "__name__", type(inner).__name__))


# ------------------------------------------------------------------------------------------------------- arguments


def flatten_arguments(program: Program[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> list[Any]:
    """Return the argument leaves of a call, checked against the program's types; Python scalars converted to them.

    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the argument's path.
    """
    return fit_leaves(program, leaves_of_call(program, args, kwargs))


def leaves_of_call(program: Program[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> list[Any]:
    """Return the argument leaves of a call. An array of float0 stands for None: JAX's tangent of an integer.

    Raises: TreeError, ArgumentError if the arguments have another structure than those of the program.
    """
    leaves, in_tree = tree.flatten((args, kwargs))
    if in_tree == program.in_tree:
        return leaves
    if any([is_float0(x) for x in leaves]):
        without_float0 = tree.unflatten(in_tree, [None if is_float0(x) else x for x in leaves])
        present, in_tree_without_float0 = tree.flatten(without_float0)
        if in_tree_without_float0 == program.in_tree:
            return present
    raise tree_error(program, in_tree, len(args), kwargs)


def is_float0(x: object) -> bool:
    """Return True for an array of JAX's dtype of the tangents of integers."""
    return isinstance(x, np.ndarray) and x.dtype == dtypes.float0


def numpy_operands(
    program: Program[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[Jaxpr, list[NDArray]]:
    """Return the jaxpr for the arguments of a call, of their sizes if it is symbolic, and its operands as NumPy arrays.

    Raises: as `flatten_arguments` and `check_bound`.
    """
    check_bound(program)
    leaves = flatten_arguments(program, args, kwargs)
    jaxpr = specialize_to_arguments(program, leaves) if program.jaxpr.symbolic else program.jaxpr
    return jaxpr, [np.asarray(x) for x in (*program.bound, *leaves)]


def fit_leaves(program: Program[..., object], leaves: Sequence[object]) -> list[Any]:
    """Argument leaves, checked against the program's types; Python scalars converted to them."""
    return [
        x if isinstance(x, Array) and x.aval is a and type(x) is not TracedNumber else fit_leaf(program, k, x, a)
        for k, (x, a) in enumerate(zip(leaves, program.in_avals, strict=True))
    ]


def fit_leaf(program: Program[..., object], k: int, value: object, aval: Aval) -> object:
    """Return a leaf that is not an Array of exactly the type: a scalar is converted, anything else must have the type.

    Cost: paths are computed for messages only: it takes time linear in the number of leaves.
    """
    if type(value) is TracedNumber and aval.shape == () and value.number_type.dtype_beside(aval.dtype) is aval.dtype:
        if _has_64_bit_array(program):
            value.meet_64_bits()
        return value.in_dtype(aval.dtype)
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic) and aval.shape == ():
        try:
            scalar_dtype = promotion.scalar_dtype(value, aval.dtype)
        except DTypeError as e:
            raise promotion.argument(e, _argument_label(program, k)) from None
        if scalar_dtype is aval.dtype:
            return promotion.scalar_element(value, aval.dtype)
        raise DTypeError(
            f"{_argument_label(program, k)} is the Python {type(value).__name__} {value!r}, it was traced as {aval}",
            remedy="trace again with a scalar of this kind, or use jit, which does so by itself",
        )
    try:
        actual = aval_of(value)
    except FxadError:
        actual = aval_of(value, _argument_label(program, k))
    if actual is aval or (aval.symbolic and _may_match(actual, aval)):
        return value
    path = _argument_label(program, k)
    remedy = _direction_remedy(next(a.name for a in program.arguments if k in a.leaves))
    if actual.shape != aval.shape:
        raise ShapeError(
            f"{path} has shape {actual.shape}, it was traced with {aval.shape}",
            remedy=remedy or "trace again for the other shape, or use jit, which does so by itself",
        )
    raise DTypeError(
        f"{path} has dtype {actual.dtype.name}, it was traced with {aval.dtype.name}",
        remedy=remedy or f"convert it with astype('{aval.dtype.name}'), or trace again; nothing is converted silently",
    )


def check_bound(program: Program[..., object]) -> None:
    """Check that the arrays that a program closes over have the types with which it was traced: the arrays of a
    pullback, which is a pytree, and those that `closure_convert` gives may come back as others.

    Raises: ShapeError, DTypeError.
    """
    for k, (x, aval) in enumerate(zip(program.bound, program.jaxpr.in_avals, strict=False)):  # the first operands
        if isinstance(x, Array) and x.aval is aval:
            continue
        label = f"{program.name}: closed-over array {k}"
        actual = aval_of(x, label)
        if actual is aval or (aval.symbolic and _may_match(actual, aval)):
            continue
        error = ShapeError if actual.shape != aval.shape else DTypeError
        raise error(
            f"{label} is {actual}, it was traced as {aval}",
            remedy="give the arrays that the program had, or others of their types; vmap takes stacked ones",
        )


def _has_64_bit_array(program: Program[..., object]) -> bool:
    """Return True if a number that is an argument of a program may meet an array of 64 bits there: if an operand is
    one. Which equations read the number is not asked, so its tangent may have 64 bits where 32 would do.

    An operand f64[] may be a Python number too, which is no array. It counts if a result has its type.
    """
    avals = [a for a in program.jaxpr.in_avals if a.dtype.itemsize >= 8]
    return any([a.shape or a in program.out_avals for a in avals])


def _may_match(actual: Aval, aval: Aval) -> bool:
    """Return True if a type may be `aval` for some values of its sizes."""
    if actual.dtype is not aval.dtype or actual.ndim != aval.ndim:
        return False
    return all([type(n) is Size or m == n for m, n in zip(actual.shape, aval.shape, strict=True)])


def _argument_label(program: Program[..., object], k: int) -> str:
    return f"{program.name}: argument {program.paths[k]}"


def tree_error(program: Program[..., object], in_tree: Structure, n_args: int, kwargs: dict[str, object]) -> FxadError:
    """Return the error for arguments whose structure `in_tree` differs from that of the program."""
    difference = tree_difference(program, in_tree, n_args, kwargs)
    return difference.error(f"{program.name}: {difference.text}", remedy=difference.remedy)


class TreeDifference(NamedTuple):
    """How the arguments of a call differ in structure from those of a program: the text, and the error that says so."""

    text: str
    error: type[FxadError]
    remedy: str


def tree_difference(
    program: Program[..., object], in_tree: Structure, n_args: int, kwargs: dict[str, object]
) -> TreeDifference:
    """Return the first difference of arguments of the structure `in_tree` from those of a program of another one."""
    remedy = "trace again for other arguments, or use jit, which does so by itself"
    if program.args_tree.num_children != n_args:
        expected = count_text(program.args_tree.num_children, "positional argument")
        return TreeDifference(
            f"takes {expected}, {n_args} {'was' if n_args == 1 else 'were'} given",
            ArgumentError,
            f"the program has the arguments {', '.join([a.name for a in program.arguments])}; {remedy}",
        )
    keyword_names = program.kwargs_tree.entries()
    if sorted(keyword_names) != sorted(kwargs):
        return TreeDifference(
            f"takes {_keywords(keyword_names)}, {_keywords(kwargs)} were given",
            ArgumentError,
            "a program takes by keyword what it was traced with by keyword; defaults are part of its code",
        )
    args, keywords = in_tree.children()
    pairs = zip(program.arguments, (*args.children(), *keywords.children()), strict=True)
    argument, actual = next((a, actual) for a, actual in pairs if a.tree != actual)
    if argument.tree.type is None and actual.type in (list, tuple, type(None)):
        aval = program.in_avals[argument.leaves[0]]
        remedy = f"give one array {aval}: lists, tuples and None are pytrees, and numpy.asarray makes arrays of lists"
    return TreeDifference(
        f"argument {argument.name} is {tree.shape_text(actual)}, it was traced as {tree.shape_text(argument.tree)}",
        TreeError,
        _direction_remedy(argument.name) or remedy,
    )


@final
class TangentsName(str):
    """The name of an argument of a derivative program that is tangents. A parameter of a user's function may have an
    equal name, which is a str."""

    __slots__ = ()


@final
class SeriesName(str):
    """The name of an argument of a derivative program that is the coefficients of a series."""

    __slots__ = ()


@final
class CotangentName(str):
    """The name of an argument of a derivative program that is a cotangent."""

    __slots__ = ()


_DIRECTION_REMEDIES: Final[Mapping[type[str], str]] = MappingProxyType(
    {
        TangentsName: "tangents have the tree, shapes and dtypes of the arguments, with None for integers and bools",
        SeriesName: "series has an entry for each order, with the tree, shapes and dtypes of the arguments, and None "
        "for integers and bools; JAX has an entry for each argument: use fxad.experimental.jet.jet",
        CotangentName: "a cotangent has the tree, shapes and dtypes of the results, with None for integers and bools",
    }
)


def _direction_remedy(name: str) -> str:
    """Return the remedy for a wrong argument that is a direction; empty for other arguments."""
    return _DIRECTION_REMEDIES.get(type(name), "")


def count_text(n: int, one: str, many: str = "") -> str:
    """Return `1 argument`, `2 arguments`."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def _keywords(names: Collection[str]) -> str:
    return f"the keyword arguments {', '.join(sorted(names))}" if names else "no keyword arguments"
