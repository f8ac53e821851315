"""jaxlib's look-ups of classes of jax, while jax is not imported.

jaxlib takes an array apart in C++, and looks there for two kinds of classes of jax:

- classes of shardings, each time. It would import jax where that is installed, which takes a second. It does without
  them where jax is not installed, so here such an import fails, for this one call.
- `jax.core.ShapedArray`, once in a process. If this import fails, arrays that jaxlib makes for jax later have no type.
  So jaxlib finds a stand-in, which makes types of jax's class once jax is imported.

C code imports by the `__import__` of the running Python function. The functions in this file have one of their own, so
no other thread sees a difference, except during the one look-up of `ShapedArray`: the C API reads the module from
`sys.modules`, where the stand-in is for the duration of one call.

Needed by jaxlib 0.10.2 to 0.12.0.1. This file ends with the first jaxlib that takes arrays apart without jax.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from types import FunctionType, ModuleType
from typing import Final, TypeVar, cast, final

from fxad.ir import NDArray, Shape
from fxad.xla.jaxlib_types import Buffer

F = TypeVar("F", bound=Callable[..., object])


@final
class _TypesOfJax:
    """The stand-in for `jax.core.ShapedArray`: makes types of jax's class if jax is imported, and None otherwise.

    jaxlib remembers them by shape, dtype and `weak_type`. Arrays of fxad are weakly typed for it, so that arrays of jax
    do not get their None.
    """

    def __call__(self, shape: Shape, dtype: object, weak_type: bool = False) -> object:
        jaxs = getattr(sys.modules.get("jax._src.core"), "ShapedArray", None)
        return None if jaxs is None else jaxs(shape, dtype, weak_type)


_STAND_IN: Final = ModuleType("jax.core")
vars(_STAND_IN)["ShapedArray"] = _TypesOfJax()


def _import(
    name: str,
    of: Mapping[str, object] | None = None,
    local: Mapping[str, object] | None = None,
    names: Sequence[str] | None = (),
    level: int = 0,
) -> object:
    """Import a module for the functions below. Raises: ModuleNotFoundError for jax, unless it is imported already."""
    if name.partition(".")[0] == "jax" and "jax" not in sys.modules:
        if sys.modules.get(name) is _STAND_IN:
            return _STAND_IN
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return builtins.__import__(name, of, local, names or (), level)


def _imports_no_jax(f: F) -> F:
    """Return the same function, whose imports, also those of C functions that it calls, are by `_import`."""
    code = cast(FunctionType, f)
    scope = {**code.__globals__, "__builtins__": {**vars(builtins), "__import__": _import}}
    return cast(F, FunctionType(code.__code__, scope, code.__name__, code.__defaults__))


@_imports_no_jax
def arrays_of(array: Buffer) -> list[Buffer]:
    """Return the parts of an array on several devices. Not thread-safe at the first call for an array."""
    return array._arrays


@_imports_no_jax
def read(array: Buffer) -> tuple[NDArray, bool]:
    """Return the value of an array on one device, on the host, and whether it is a copy."""
    return array._single_device_array_to_np_array_did_copy()


def find_types_of_jax(array: Buffer) -> None:
    """Let jaxlib find the stand-in, by taking apart the first array of a process.

    It happens in a thread of its own: signals interrupt the main thread, and the module must not stay.
    """
    if "jax" not in sys.modules:
        thread = Thread(target=_find_types_of_jax, args=(array,))
        thread.start()
        thread.join()


def _find_types_of_jax(array: Buffer) -> None:
    sys.modules["jax.core"] = _STAND_IN
    try:
        arrays_of(array)
    finally:
        if sys.modules.get("jax.core") is _STAND_IN:
            del sys.modules["jax.core"]
