"""`Program[P, R]`: a jaxpr with its trees and bound operands; and what it becomes, `Lowered` and `Executable`.

The types keep the user's signature: `trace(f, ...)` of `f: (Params, Array) -> Array` is
`Program[[Params, Array], Array]`, and so are its executable and, with other results, its transforms.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast, final

import numpy as np

from fxad import dtypes, runtime, tree
from fxad.array import DEFAULT_OPTIONS, Array, arrays, aval_of, binder, load, put
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, TreeError
from fxad.ir import Aval, Jaxpr, place
from fxad.lower import LoweredModule, lower_jaxpr
from fxad.operations import promotion
from fxad.runtime import CompileOptions, CostStats, MemoryStats
from fxad.trace import trace_flat, user_source
from fxad.tree import Structure

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@final
@dataclass(frozen=True, slots=True)
class Spec:
    """The type of an argument where there is no example: `Spec((32, 64), "float32")`."""

    shape: tuple[int, ...]
    dtype: dtypes.DType

    def __init__(self, shape: Iterable[int], dtype: object = "float32") -> None:
        aval = Aval(shape, dtype)
        object.__setattr__(self, "shape", aval.shape)
        object.__setattr__(self, "dtype", aval.dtype)

    @property
    def aval(self) -> Aval:
        """The type in the IR."""
        return Aval(self.shape, self.dtype)


class Traced(Protocol[P, R_co]):
    """A `Program`, seen structurally. For overloads: mypy finds the types behind `Concatenate` in the calls of
    a protocol, and not in the parameters of a class."""

    @property
    def jaxpr(self) -> Jaxpr:
        """The program as a value."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Program(Generic[P, R_co]):
    """A traced function as a value: `jaxpr`, the trees of its arguments and results, and what it closed over.

    `bound` are the values of the leading operands of `jaxpr`: arrays, or tracers of an enclosing trace. They are held,
    never copied or hashed by content: two programs are equal when jaxpr and trees are equal and they bind the same
    objects (docs/adr/0003). Calling a program runs it; inside a trace it adds one `call` equation.
    """

    jaxpr: Jaxpr
    in_tree: Structure
    out_tree: Structure
    bound: tuple[object, ...] = ()
    names: tuple[str, ...] = field(default=())  # of the positional arguments, for messages; not part of the value
    name: str = "main"  # likewise

    def _key(self) -> tuple[object, ...]:
        return self.jaxpr, self.in_tree, self.out_tree, tuple([id(b) for b in self.bound])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self._key() == other._key()

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
    def paths(self) -> tuple[str, ...]:
        """Paths of the argument leaves, as in `params['w']`."""
        return tuple([_argument_path(a, self.names) for a in self.in_tree.accessors()])

    def text(self) -> str:
        """The program as text; `fxad.text.parse` reads it back."""
        return str(self.jaxpr)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self.jaxpr.eqns)} equations, {len(self.in_avals)} argument leaves>"

    def replace(self, jaxpr: Jaxpr, *, in_tree: Structure | None = None, out_tree: Structure | None = None) -> Any:
        """The program with another jaxpr over the same bound operands. The caller knows the types."""
        return Program(jaxpr, in_tree or self.in_tree, out_tree or self.out_tree, self.bound, self.names, jaxpr.name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        leaves = flatten_arguments(self, args, kwargs)
        outs = binder().call(self.jaxpr, [*self.bound, *leaves])
        return cast(R_co, self.out_tree.unflatten(outs))


def _argument_path(accessor: Any, names: tuple[str, ...]) -> str:
    """`args[0]['w']` as `params['w']`, `kwargs['scale']` as `scale`."""
    kind, where, *rest = accessor
    if kind.entry == 0:
        k = where.entry
        root = names[k] if k < len(names) else f"args[{k}]"
    else:
        root = str(where.entry)
    return root + "".join([e.codify("") for e in rest])


def parameter_names(fn: object) -> tuple[str, ...]:
    """Names of a function's positional parameters; empty when they cannot be known."""
    try:
        found = inspect.signature(fn).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ()
    return tuple([p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def name_of(fn: object) -> str:
    """The function's name, as in `loss`; the class's for a callable object."""
    inner = getattr(fn, "func", fn)  # functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__))


def spec_of(value: object, what: str) -> Aval:
    """The type of an example argument or a `Spec`. Raises: ArgumentError."""
    return value.aval if isinstance(value, Spec) else aval_of(value, what)


def trace(f: Callable[P, R], /, *args: object, **kwargs: object) -> Program[P, R]:
    """Trace a function into a program, from example values or `Spec`s; pytrees of either.

    Arrays that `f` closes over become bound operands; Python scalars in it are literals.

    Law:    equal functions on equal types give equal jaxprs: `trace(f, x).jaxpr is trace(f, y).jaxpr`.
    Cost:   one run of `f` on tracers.
    Raises: ArgumentError for an argument or result that is not an array (with its path); what `f` raises.
    """
    if not callable(f):
        raise ArgumentError(f"trace: a {type(f).__qualname__} is not a function: {f!r}")
    name, names = name_of(f), parameter_names(f)
    leaves, in_tree = tree.flatten((args, kwargs))
    try:
        avals = [spec_of(x, "") for x in leaves]
    except FxadError:
        for x, a in zip(leaves, in_tree.accessors(), strict=True):
            spec_of(x, f"trace of {name}: argument {_argument_path(a, names)}")
        raise
    return trace_tree(f, in_tree, avals, name, names)


def trace_tree(
    f: Callable[..., Any], in_tree: Structure, avals: Sequence[Aval], name: str, names: tuple[str, ...]
) -> Program[Any, Any]:
    """Trace a function whose flattened argument types are known."""
    out_tree: Structure | None = None

    def flat(tracers: list[Array]) -> Sequence[object]:
        nonlocal out_tree
        args, kwargs = tree.unflatten(in_tree, tracers)
        leaves, out_tree = tree.flatten(f(*args, **kwargs))
        _check_results(name, leaves, out_tree)
        return leaves

    jaxpr, bound = trace_flat(flat, avals, name)
    assert out_tree is not None
    return Program(jaxpr, in_tree, out_tree, bound, names, name)


_RESULTS: Final = (Array, np.ndarray, np.generic, bool, int, float, complex)


def _check_results(name: str, leaves: Sequence[object], out_tree: Structure) -> None:
    for k, leaf in enumerate(leaves):
        if not isinstance(leaf, _RESULTS):
            path = out_tree.accessors()[k].codify("result")
            raise ArgumentError(
                f"trace of {name}: {path} is a {type(leaf).__qualname__}, not an array: {leaf!r}",
                remedy="return arrays, Python numbers, or pytrees of them; register a class with fxad.tree.dataclass",
            )


# ------------------------------------------------------------------------------------------------------- arguments


def flatten_arguments(program: Program[Any, Any], args: tuple[object, ...], kwargs: dict[str, object]) -> list[Any]:
    """The argument leaves of a call, checked against the program's types; Python scalars converted to them.

    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the argument's path.
    """
    leaves, in_tree = tree.flatten((args, kwargs))
    if in_tree != program.in_tree:
        raise _tree_error(program, in_tree, len(args), kwargs)
    return [
        x if isinstance(x, Array) and x.aval is a else fit(program, k, x, a)
        for k, (x, a) in enumerate(zip(leaves, program.in_avals, strict=True))
    ]


def fit(program: Program[Any, Any], k: int, value: object, aval: Aval) -> object:
    """A leaf that is not an Array of exactly the type: a scalar is converted, anything else must have the type."""
    path = f"{program.name}: argument {program.paths[k]}"
    where = str(place(user_source(3)) or "")
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic) and aval.shape == ():
        if promotion.scalar_dtype(value, aval.dtype) is aval.dtype:
            return np.asarray(value, aval.dtype)
        raise DTypeError(f"{path} is the Python {type(value).__name__} {value!r}, it was traced as {aval}", where=where)
    found = aval_of(value, path)
    if found is aval:
        return value
    if found.shape != aval.shape:
        raise ShapeError(
            f"{path} has shape {found.shape}, it was traced with {aval.shape}",
            remedy="trace again for the other shape, or use jit, which does so by itself",
            where=where,
        )
    raise DTypeError(
        f"{path} has dtype {found.dtype.name}, it was traced with {aval.dtype.name}",
        remedy=f"convert it with astype('{aval.dtype.name}'), or trace again; nothing is converted silently",
        where=where,
    )


def _tree_error(program: Program[Any, Any], found: Structure, n_args: int, kwargs: dict[str, object]) -> FxadError:
    positional, keywords = program.in_tree.children()
    where = str(place(user_source(3)) or "")
    if positional.num_children != n_args:
        return ArgumentError(
            f"{program.name}: takes {positional.num_children} positional arguments, {n_args} were given", where=where
        )
    known = keywords.entries()
    if sorted(known) != sorted(kwargs):
        return ArgumentError(
            f"{program.name}: takes the keyword arguments {sorted(known)}, {sorted(kwargs)} were given", where=where
        )
    expected, got = tree.structure(()), tree.structure(())
    for k, (a, b) in enumerate(zip(positional.children(), found.children()[0].children(), strict=True)):
        if a != b:
            name = program.names[k] if k < len(program.names) else f"args[{k}]"
            return TreeError(
                f"{program.name}: argument {name} is {tree.shape_text(b)}, it was traced as {tree.shape_text(a)}",
                where=where,
            )
    for k2, a, b in zip(known, keywords.children(), found.children()[1].children(), strict=True):
        if a != b:
            return TreeError(
                f"{program.name}: argument {k2} is {tree.shape_text(b)}, it was traced as {tree.shape_text(a)}",
                where=where,
            )
    return TreeError(f"{program.name}: {tree.difference(expected, got)}", where=where)


# ------------------------------------------------------------------------------------------------- lowered programs


@final
@dataclass(frozen=True, slots=True)
class Lowered(Generic[P, R_co]):
    """A program as StableHLO. `compile()` makes it run."""

    program: Program[P, R_co]
    module: LoweredModule

    def text(self) -> str:
        """StableHLO text; byte-identical for equal programs."""
        return self.module.text()

    def compile(self, options: CompileOptions = DEFAULT_OPTIONS) -> Executable[P, R_co]:
        """Compile with XLA; an equal program compiled before with equal options is not compiled again.

        Raises: CompileError with XLA's message and the program's name.
        """
        return Executable(self.program, load(self.program.jaxpr, options))

    def __str__(self) -> str:
        return self.text()


def lower(program: Program[P, R]) -> Lowered[P, R]:
    """Lower a program to StableHLO: a pure function of the program, one function per distinct sub-program."""
    if not isinstance(program, Program):
        raise ArgumentError(
            f"lower: takes a Program, got {program!r}", remedy="trace the function first: lower(trace(f, *examples))"
        )
    return Lowered(program, lower_jaxpr(program.jaxpr))


@final
class Executable(Generic[P, R_co]):
    """A compiled program. Takes NumPy arrays, Python scalars, fxad arrays and anything with `__dlpack__`.

    Rule:   arguments must have exactly the types of the program; nothing is converted silently.
    Cost:   a call returns before the work is done.
    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the argument's path; ExecutionError.
    """

    __slots__ = ("_avals", "_bound", "_execute", "_flat", "_loaded", "_out_avals", "_unflatten", "program")

    def __init__(self, program: Program[P, R_co], loaded: runtime.LoadedProgram) -> None:
        self.program = program
        self._loaded = loaded
        self._execute = loaded.execute
        self._avals = program.in_avals
        self._out_avals = program.out_avals
        self._bound = [(b if isinstance(b, Array) else put(b, aval_of(b)))._buffer for b in _values(program)]
        self._flat = program.in_tree == tree.structure((tuple([0] * len(self._avals)), {}))
        self._unflatten: Callable[[Any], Any] | None = program.out_tree.unflatten
        if program.out_tree == _LEAF:
            self._unflatten = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if self._flat and not kwargs:
            try:
                avals = tuple(map(_aval_of, args))
            except AttributeError:
                avals = ()
            if avals == self._avals:  # `run`, spelled out: a call costs 4 us, a Python function 0.1
                outs = self._execute([*self._bound, *map(_buffer_of, args)])
                if self._unflatten is None:
                    return Array(self._out_avals[0], outs[0])  # type: ignore[return-value]
                return self._unflatten(arrays(self._out_avals, outs))  # type: ignore[no-any-return]
        leaves = self.match(args, kwargs)
        if leaves is not None:
            return self.run(leaves, self._avals)
        leaves, found = tree.flatten((args, kwargs))
        if found != self.program.in_tree:
            raise _tree_error(self.program, found, len(args), kwargs)
        return self.run(leaves, type_of_arrays(leaves))

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the argument leaves."""
        return self._avals

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The leaves of a call whose tree is the program's and whose leaves are Arrays of its types; else None.

        Following a known structure is 7 times as fast as finding one (100 leaves in a dict: 3 us).
        """
        leaves = tree.follow(self.program.in_tree, (args, kwargs))
        return leaves if leaves is not None and type_of_arrays(leaves) == self._avals else None

    def run(self, leaves: Sequence[Any], avals: tuple[Aval, ...] | None) -> R_co:
        """Call with the argument leaves; `avals` are their types, known when all are Arrays (`type_of_arrays`)."""
        if avals == self._avals:
            buffers = [*self._bound, *map(_buffer_of, leaves)]
        else:
            given = [self._convert(k, x, a) for k, (x, a) in enumerate(zip(leaves, self._avals, strict=True))]
            buffers = [*self._bound, *given]
        outs = self._execute(buffers)
        if self._unflatten is None:
            return Array(self._out_avals[0], outs[0])  # type: ignore[return-value]
        return self._unflatten(arrays(self._out_avals, outs))  # type: ignore[no-any-return]

    def _convert(self, k: int, value: object, aval: Aval) -> runtime.Buffer:
        if isinstance(value, Array) and type(value) is not Array:
            raise ArgumentError(
                f"{self.program.name}: argument {self.program.paths[k]} is {value!r}; a compiled program is not traced",
                remedy="call the Program, or the function, inside a trace; compile the outer program",
            )
        leaf = fit(self.program, k, value, aval)
        if isinstance(leaf, Array):
            return leaf._buffer
        return put(leaf, aval)._buffer

    def memory(self) -> MemoryStats:
        """Bytes of arguments, results, aliases, temporaries and the peak, as XLA planned them."""
        return runtime.memory(self._loaded)

    def cost(self) -> CostStats:
        """Flops, bytes accessed and transcendentals, as XLA counts them."""
        return runtime.cost(self._loaded)

    def __repr__(self) -> str:
        return f"<Executable {self.program.name}>"


_LEAF: Final = tree.structure(0)

# The hot path of a call loops in C: over 100 leaves that is 3 us instead of 15.
_aval_of: Final = attrgetter("_aval")
_buffer_of: Final = attrgetter("_buffer")


def type_of_arrays(leaves: Sequence[Any]) -> tuple[Aval, ...] | None:
    """The types of leaves that are all Arrays with a value; None if any is something else."""
    try:
        return tuple(map(_aval_of, leaves))
    except AttributeError:
        return None


def _values(program: Program[Any, Any]) -> tuple[object, ...]:
    for b in program.bound:
        if isinstance(b, Array) and type(b) is not Array:
            raise ArgumentError(
                f"compile: {program.name} closes over {b!r} of an enclosing trace",
                remedy="call the program inside that trace instead, and compile the outer one",
            )
    return program.bound
