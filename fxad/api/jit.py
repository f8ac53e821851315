"""`jit`: makes a function that compiles itself (`jitted.py`), or compiles a program at once. Its options, and those of
JAX, are checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from fxad.api.decorator_form import NoFunction, decorator_form
from fxad.api.jit_calls import JitOptions
from fxad.api.jitted import Jitted, StaticJitted
from fxad.api.lift import check_function, check_no_statics
from fxad.api.symbolic_shapes import Shapes
from fxad.errors import ArgumentError, ParameterError, shown
from fxad.execution.donation import Donate, donates_any, parse_donation
from fxad.execution.executable import Executable, Units, check_choice, lower
from fxad.execution.shardings import with_program_shardings
from fxad.operations.arguments import argument_keys, parse_bytes
from fxad.passes import Passes, check_passes
from fxad.runtime import default_device
from fxad.sharding import Shardings, check_shardings
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import Argnames, Argnums, parameters, static_arguments

P = ParamSpec("P")
R = TypeVar("R")


class JaxOptions(TypedDict, total=False):
    """Options of `jit` by JAX's names, and `symbolic`. Shardings are checked when they are read: a prefix is any tree."""

    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Sequence[str] | None
    in_shardings: object
    out_shardings: object
    keep_unused: bool
    inline: bool
    device: None
    backend: str | None
    compiler_options: None
    symbolic: Shapes


class _JitDecorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> Jitted[P, R]: ...


class _StaticDecorator(Protocol):
    def __call__(self, f: Callable[P, R], /) -> StaticJitted[P, R]: ...


@overload
def jit(f: NoFunction, **options: Any) -> Jitted[..., Any]: ...
@overload
def jit(  # type: ignore[overload-overlap]  # a Program is callable, and has an overload of its own
    f: Program[P, R],
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> Executable[P, R]: ...
@overload
def jit(
    f: Callable[P, R],
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> Jitted[P, R]: ...
@overload
def jit(
    f: Callable[P, R],
    *,
    static_argnums: Argnums | None = ...,
    static_argnames: Argnames | None = ...,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> StaticJitted[P, R]: ...
@overload
def jit(
    *,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> _JitDecorator: ...
@overload
def jit(
    *,
    static_argnums: Argnums | None = ...,
    static_argnames: Argnames | None = ...,
    donate: Donate = ...,
    units: Units = ...,
    passes: Passes | None = ...,
    budget: int | str | None = ...,
    **jax_options: Unpack[JaxOptions],
) -> _StaticDecorator: ...
@decorator_form
def jit(
    f: Any,
    *,
    static_argnums: Argnums | None = (),
    static_argnames: Argnames | None = (),
    donate: Donate = (),
    units: Units = "auto",
    passes: Passes | None = None,
    budget: int | str | None = None,
    symbolic: Shapes = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: Shardings = None,
    out_shardings: Shardings = None,
    keep_unused: bool = False,  # noqa: ARG001
    inline: bool = False,  # noqa: ARG001
    device: None = None,
    backend: str | None = None,
    compiler_options: None = None,
) -> Any:
    """Compile a function when it is called, or a `Program` at once.

    Static arguments are hashable values that are passed to the function unchanged. It is compiled for each of them.
    Numbers of other types or bits are others (1 and 1.0, 0.0 and -0.0), also in tuples, frozensets and dataclasses; of
    other classes, objects that are equal are one value.
    Arguments that `f` itself declares static, such as `grad(g, static_argnums=0)`, are static too. A call deletes the
    donated arguments, and its results reuse their memory. Name them by position or name, or map names to tree prefixes
    of bools, as in `donate={"state": (True, False)}`. Without a function, `jit` is a decorator:
    `@jit(static_argnames="n", donate="state")`. `units` and `passes` are those of `lower`.

    `budget` is that of `Lowered.compile`: each executable has at most so many bytes of temporaries, or the call raises with
    the least bytes that were reached. So has an executable of which the function becomes part, and an exported one.

    `symbolic` names sizes of the arguments that are not static, as `in_shapes` of `mask` does. The function is traced
    once for all sizes, and compiled for each. `bucketed` compiles fewer programs.

    `in_shardings` and `out_shardings` divide the arguments that are not static, and the results, among devices. They are
    tree prefixes of `NamedSharding`s, of `PartitionSpec`s of the mesh of `with mesh:`, or of None where XLA decides.
    Without them, arguments that are already divided stay as they are.

    `donate_argnums` and `donate_argnames` are JAX's names for `donate`. Unused arguments are always kept, and XLA inlines
    a call in a trace, so `keep_unused` and `inline` have no effect. Other options of JAX must have their defaults.

    Rule:   the function must be pure: it runs once per types of arguments, and reads the values that it closes over at
            that time. Inside a trace there is no donation: the outer program decides.
    Cost:   see `trace`, `lower`; equal programs share one executable.
    Raises: ParameterError for a `donate` that is not an argument or is static, for invalid `units` or `passes`, and at
            a call for a budget into which nothing fits; ArgumentError for a budget that is no number of bytes;
            DonationWarning, once per types of arguments, for memory that no result can use.
    """
    _check_jax_options(
        device=device,
        backend=None if isinstance(backend, str) and backend == default_device().platform else backend,
        compiler_options=compiler_options,
    )
    static_argnums = () if static_argnums is None else static_argnums  # JAX's defaults
    static_argnames = () if static_argnames is None else static_argnames
    donate = _with_jax_names(donate, donate_argnums, donate_argnames)
    check_choice("jit", units)
    check_passes("jit", passes)
    check_shardings("jit: in_shardings", in_shardings)
    check_shardings("jit: out_shardings", out_shardings)
    if isinstance(f, Program):
        if symbolic is not None:
            raise ArgumentError(
                f"jit of {f.name}: symbolic names sizes of the arguments of a function, and {f.name} is a Program",
                remedy="leave out symbolic: trace(f, Spec('(n, 3)')) gives a program for every size",
            )
        check_no_statics("jit", f, static_argnums, static_argnames)
        f = with_program_shardings(f"jit of {f.name}", f, in_shardings, out_shardings)
        return lower(f, units, passes).compile(donate=donate, budget=budget)
    check_function("jit", f)
    options = JitOptions(
        parse_donation(f"jit of {function_name(f)}", donate, *parameters(f)) if donates_any(donate) else None,
        units,
        passes,
        in_shardings,
        out_shardings,
        symbolic,
        None if budget is None else parse_bytes("jit", budget),
    )
    statics = static_arguments(f"jit of {function_name(f)}", f, static_argnums, static_argnames)
    return Jitted(f, options) if statics is None else StaticJitted(f, static_argnums, static_argnames, options)


_INSTEAD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "device": "put the arguments on the device: device_put(x, device)",
        "backend": "put the arguments on a device of that platform: device_put(x, device)",
        "compiler_options": "lower(trace(f, x)).compile(CompileOptions(...))",
    }
)


def _check_jax_options(**options: object) -> None:
    """Raise ParameterError for an option of JAX that jit does not have."""
    for name, value in options.items():
        if value is not None:
            raise ParameterError(f"jit: {name} is {shown(value)}, which jit does not take", remedy=_INSTEAD[name])


def _with_jax_names(donate: Donate, argnums: object, argnames: object) -> Donate:
    """Return the donation of `donate`, or of JAX's names. Raises: ArgumentError for both."""
    named: list[Any] = []  # `parse_donation` refuses what names no arguments
    for arguments in (argnums, argnames):
        if arguments is not None:
            keys = argument_keys(arguments)
            named += [arguments] if keys is None else keys
    if named and donates_any(donate):
        raise ArgumentError(
            f"jit: donate is {shown(donate)}, and donate_argnums or donate_argnames is given too",
            remedy="name all donated arguments in donate",
        )
    return named or donate
