"""The argument of a translation row: an equation of JAX, and the errors that refuse it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol, TypeAlias, final

import jax
import numpy as np

from fxad import dtypes, lax
from fxad.core.dataclasses import dataclass
from fxad.errors import FxadError, TranslationError
from fxad.ir import Aval, Lit, Shape
from fxad.lax.creation import splat
from fxad.tracing.array import Array

# A value of a jaxpr while it is translated. A scalar of NumPy is a literal; None has no value: tokens, float0.
JaxValue: TypeAlias = Any

# A `shard_map` of JAX: its mesh, and whether it checks over which axes values vary.
Manual: TypeAlias = tuple[Any, bool]

# The classes of JAX are private, so these protocols declare the attributes that the translation reads.


class JaxType(Protocol):
    """A type, or an array, of JAX. A token has neither attribute."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def dtype(self) -> Any:
        """The dtype; of keys, JAX's own."""


class JaxVar(Protocol):
    """A variable of JAX. A literal also has `val`."""

    aval: JaxType


class JaxEqn(Protocol):
    """An equation of JAX."""

    primitive: Any
    params: Mapping[str, Any]
    invars: Sequence[JaxVar]
    outvars: Sequence[JaxVar]
    source_info: Any


class OpenJaxpr(Protocol):
    """A jaxpr of JAX."""

    constvars: Sequence[JaxVar]
    invars: Sequence[JaxVar]
    outvars: Sequence[JaxVar]
    eqns: Sequence[JaxEqn]


class ClosedJaxpr(Protocol):
    """A jaxpr of JAX with the values of its constants."""

    jaxpr: OpenJaxpr
    consts: Sequence[object]


class Translates(Protocol):
    """The running translation. `functions` are the functions with custom rules; a key identifies each. `manual` is the
    `shard_map` whose body is translated."""

    functions: dict[object, Any]
    manual: Manual | None

    def within(self, manual: Manual | None) -> AbstractContextManager[None]:
        """Return a block that translates equations of the body of a `shard_map`, and of rules of its equations."""

    def run(self, jaxpr: OpenJaxpr, consts: Sequence[JaxValue], args: Sequence[JaxValue]) -> list[JaxValue]:
        """Add the equations of a jaxpr of JAX to the active trace. Return the values of its results."""

    def call(self, closed: ClosedJaxpr, args: Sequence[JaxValue], name: str) -> list[JaxValue]:
        """Bind a closed jaxpr of JAX as one call. Each jaxpr is translated once."""

    def constant(self, value: object) -> JaxValue:
        """Return an array of JAX as a value: each becomes one operand."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """An equation of JAX: the name of its primitive, its parameters, JAX's types of its operands and results."""

    name: str
    params: Mapping[str, Any]
    ins: tuple[JaxType, ...]
    outs: tuple[JaxType, ...]
    primitive: Any
    translation: Translates

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        return tuple(self.outs[0].shape)

    @property
    def dtype(self) -> dtypes.DType:
        """The dtype of the first result."""
        return plain_aval(self.outs[0]).dtype

    def fitted(self, *xs: JaxValue) -> list[JaxValue]:
        """Return operands in the shape of the first result: equations of JAX take scalars, and axes of one element."""
        return [_broadcast(x, self.shape) for x in xs]

    def run(self, jaxpr: ClosedJaxpr | OpenJaxpr, args: Sequence[JaxValue]) -> list[JaxValue]:
        """Return the results of a jaxpr in a parameter, in the active trace. One that is not closed has no
        constants."""
        closed: Any = jaxpr  # a protocol with attributes cannot be tested by `isinstance`
        if hasattr(closed, "jaxpr"):
            return self.run_open(closed.jaxpr, closed.consts, args)
        return self.translation.run(closed, (), args)

    def function(self, jaxpr: ClosedJaxpr | OpenJaxpr) -> Callable[..., tuple[JaxValue, ...]]:
        """Return the function that runs a jaxpr in a parameter and returns arrays."""

        def translated(*args: JaxValue) -> tuple[JaxValue, ...]:
            return arrays(self.run(jaxpr, args))

        return translated

    def run_open(self, jaxpr: OpenJaxpr, consts: Sequence[object], args: Sequence[JaxValue]) -> list[JaxValue]:
        """Return the results of a jaxpr whose constants are arrays of JAX, in the active trace."""
        return self.translation.run(jaxpr, [self.translation.constant(c) for c in consts], args)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a block that reads the parameters.

        Raises: TranslationError if JAX writes them otherwise than the block reads them; what functions of users raise.
        """
        try:
            yield
        except FxadError:
            raise
        except Exception as e:
            if not _raised_here(e):
                raise
            raise self.refuse(
                f"JAX {jax.__version__} writes it otherwise than fxad reads it: {type(e).__name__}: {e}",
                "install a version of JAX with which fxad is tested: pip install 'fxad[jax]'",
            ) from e

    def refuse(self, why: str, remedy: str = "") -> TranslationError:
        """Return the error for an equation that has no translation."""
        return TranslationError(
            f"from_jax: {self.name}: {why}",
            remedy=remedy or "write this part with other functions, or give it to fxad as a primitive of your own",
        )


def _raised_here(error: Exception) -> bool:
    """Return True if a module of this package raised an error: not the user, and not JAX, which removes its frames
    from a traceback and leaves a note or a cause."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or hasattr(error, "__notes__") or error.__cause__ is not None:
        return False
    return traceback.tb_frame.f_globals.get("__package__") == __package__


# Translates an equation, given its operands. Return its result, or the sequence of its results.
EqnTranslation: TypeAlias = Callable[..., object]
Rows: TypeAlias = Mapping[str, EqnTranslation]  # by the name of the primitive in JAX


def is_key(x: object) -> bool:
    """Return True for keys of JAX, and their types."""
    return hasattr(x, "dtype") and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def has_value(aval: JaxType) -> bool:
    """Return True for types of JAX that have values in fxad: not for tokens and tangents of integers."""
    return hasattr(aval, "dtype") and aval.dtype != jax.dtypes.float0


def plain_aval(aval: JaxType) -> Aval:
    """Return the type in fxad of a type of JAX. A key is its words."""
    if is_key(aval):
        return Aval((*aval.shape, *aval.dtype._impl.key_shape), dtypes.uint32)
    return Aval(tuple(aval.shape), np.dtype(aval.dtype))


def _broadcast(x: JaxValue, shape: Shape) -> JaxValue:
    if x.shape == shape:
        return x
    if isinstance(x, np.generic):
        return splat(Lit.of(x, Aval(shape, x.dtype)))
    dims = [k for k in range(x.ndim) if x.shape[k] == shape[k]]
    return lax.broadcast_in_dim(lax.squeeze(x, [k for k in range(x.ndim) if k not in dims]), shape, dims)


def array(x: JaxValue) -> Array:
    """Return a value as an array: literals too."""
    return splat(Lit.of(x, Aval((), x.dtype))) if isinstance(x, np.generic) else x


def arrays(xs: Iterable[JaxValue]) -> tuple[Array, ...]:
    """Return values as arrays; None stays, which has no value."""
    return tuple(map(array, xs))


# ---------------------------------------------------------------------------------------------------- keys of tables


def jaxpr_key(value: Any) -> tuple[object, ...]:
    """Return a key of a jaxpr of JAX, or of the parameters of an equation: its text, and what the text leaves out."""
    return str(value), *_not_in_text(value)


def _not_in_text(value: Any) -> Iterator[object]:
    """Yield the values of constants, the functions of the host that a jaxpr calls, and the values of parameters of
    users' classes."""
    if isinstance(value, tuple | list | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _not_in_text(part)
    elif hasattr(value, "eqns"):
        for eqn in value.eqns:
            yield from _not_in_text(eqn.params)
        yield from map(_constant_key, getattr(value, "consts", ()))
    elif hasattr(value, "callback_func"):
        yield value.callback_func
    elif type(value).__module__.partition(".")[0] not in _TEXT_SAYS_ALL:
        yield value


# The packages whose classes are written with their values, or are traced anew each time
_TEXT_SAYS_ALL: Final = ("jax", "jaxlib", "numpy", "builtins")


def _constant_key(x: Any) -> object:
    if isinstance(x, jax.core.Tracer) or is_key(x):
        return id(x)
    array = np.asarray(x)
    return array.shape, array.dtype, array.tobytes()


# ------------------------------------------------------------------------------------------------------ common rows


def with_params(fn: Callable[..., object], *names: str, **fixed: object) -> EqnTranslation:
    """Return the row of a function that takes the operands, and parameters of the equation by the names that they have
    in JAX.

    `with_params(lax.cumsum, "axis", "reverse")` calls `lax.cumsum(x, axis=..., reverse=...)`.
    """
    return lambda eqn, *xs: fn(*xs, **{name: eqn.params[name] for name in names}, **fixed)


def unchanged(eqn: Equation, *xs: JaxValue) -> tuple[Array, ...]:
    """Return the operands: the row of an operation that changes nothing."""
    return arrays(xs)
