"""The cost of a call in Python frames, and the references that a call leaves."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.runtime import process_state
from tests.python_calls import python_calls

ONE = fx.asarray(np.arange(4, dtype=np.float32))
OTHER = fx.asarray(np.ones(3, np.float32))
TREE = {"a": [ONE, OTHER], "b": (ONE,)}


@pytest.fixture(autouse=True)
def without_committed_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process where other tests have committed an array to a device, a call also checks where its operands are."""
    monkeypatch.setattr(process_state, "any_committed", False)


def frames(call: Callable[[], object]) -> list[str]:
    """Returns the Python functions that a second call enters, without the lambda around it."""
    call()
    return python_calls(call)[1:]


def compiled(f: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    return fx.lower(fx.trace(f, *args)).compile()


@pytest.mark.parametrize("made", [compiled, lambda f, *_: fx.jit(f)], ids=["executable", "jit"])
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: x + 1, (ONE,)),
        (lambda x, y: x * y, (ONE, ONE)),
        (lambda x, y, z: x * y + z, (ONE, ONE, ONE)),
        (lambda x, y: (x + y, x - y), (ONE, ONE)),
        (lambda x: x + ONE, (ONE,)),
        (lambda t: {"c": [t["a"][0] + t["b"][0]], "d": t["a"][1] * 2}, (TREE,)),
    ],
)
def test_a_call_is_one_frame(made: Callable[..., Any], f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    run = made(f, *args)
    takes_a_tree = args == (TREE,)
    assert frames(lambda: run(*args)) == (["call", "check", "launch"] if takes_a_tree else ["call", "launch"])
    for given in (args, fx.tree.map(np.asarray, args)):  # the usual call, and one of another path
        assert all(map(np.array_equal, fx.tree.leaves(run(*given)), fx.tree.leaves(f(*args))))


def test_an_operation_of_one_array_is_three_frames() -> None:
    x = fx.asarray(np.arange(37, dtype=np.float32))  # a shape of its own: other tests name the program of `sin`
    assert frames(lambda: fnp.sin(x)) == ["sin", "apply_op", "launch"]
    assert np.array_equal(np.asarray(fnp.sin(x)), np.asarray(fx.jit(fnp.sin)(x)))
    assert np.array_equal(np.asarray(fnp.cos(x)), np.asarray(fx.jit(fnp.cos)(x)))  # the same operation


def test_a_jitted_function_called_with_alternating_types_is_rarely_respecialised() -> None:
    f = fx.jit(lambda x: x + 1)
    fast_paths = set()
    for _ in range(64):
        f(ONE), f(OTHER)
        fast_paths.add(f.__call__)
    assert len(fast_paths) < 10
    for _ in range(300):
        f(ONE)
    assert frames(lambda: f(ONE)) == ["call", "launch"]


def test_numpy_arrays_and_keywords_are_accepted_beside_the_fast_path() -> None:
    f = fx.jit(lambda x, y: x * 2 - y)
    expected = np.arange(4) * 2 - 1
    one = np.ones(4, np.float32)
    given: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((ONE, one), {}),
        ((ONE,), {"y": one}),
        ((np.asarray(ONE), one), {}),
        ((), {"y": one, "x": ONE}),
    ]
    for args, named in given:
        assert np.array_equal(np.asarray(f(*args, **named)), expected)
    traced = fx.trace(lambda x: f(x, x) + f(ONE, ONE), ONE)
    assert str(traced.jaxpr).count("call[") == 2, traced.jaxpr


@pytest.mark.parametrize("made", [compiled, lambda f, *_: fx.jit(f)], ids=["executable", "jit"])
def test_arguments_are_flattened_once(made: Callable[..., Any]) -> None:
    """For NumPy arrays, for other types than those of the call before, and inside a trace."""

    def passes_over(call: Callable[[], object]) -> int:
        return sum([name in ("flatten", "follow") for name in frames(call)])

    arrays = fx.tree.map(np.asarray, TREE)
    run = made(lambda t: t["a"][0] + t["b"][0], TREE)
    assert passes_over(lambda: run(arrays)) == 1
    if made is not compiled:
        shorter = {"a": [OTHER, OTHER], "b": (OTHER,)}
        run(shorter), run(TREE), run(shorter)
        assert max([passes_over(lambda t=t: run(t)) for t in (TREE, shorter)]) == 1  # type: ignore[misc]
        inside: list[int] = []

        def outer(t: Any) -> Any:
            inside.append(passes_over(lambda: run(t)))
            return run(t)

        fx.trace(outer, TREE)
        assert inside == [1]


def test_a_program_without_arguments_refuses_one() -> None:
    run = compiled(lambda: fnp.ones(3))
    assert run().shape == (3,)
    with pytest.raises(fx.errors.ArgumentError, match="takes 0 positional arguments, 1 was given"):
        run(ONE)


def test_an_executable_has_a_signature() -> None:
    run = compiled(lambda x: x + 1, ONE)
    assert str(inspect.signature(run)) == "(*args, **kwargs)"
    assert callable(run)


def test_the_class_array_takes_no_values() -> None:
    with pytest.raises(TypeError, match=r"Array\(\) takes no arguments"):
        fx.Array([1.0])  # type: ignore[call-arg]


@pytest.mark.parametrize("made", [compiled, lambda f, *_: fx.jit(f)], ids=["executable", "jit"])
def test_executables_and_closures_are_freed_without_the_garbage_collector(made: Callable[..., Any]) -> None:
    closed_over = fx.asarray(np.ones(4, np.float32))
    held = weakref.ref(closed_over)
    run = made(lambda x, k=closed_over: x + k, ONE)
    run(ONE)
    gc.collect()
    gc.disable()
    try:
        del closed_over, run
        assert held() is None
    finally:
        gc.enable()
