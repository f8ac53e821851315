"""`jit` and the compile cache: one compilation per value in all threads, and the results of the plain function."""

from __future__ import annotations

import copy
import functools
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import tree
from fxad.api.directional import ResidualProgram, bind_trailing
from fxad.api.jitted import TracedProgram
from fxad.errors import ArgumentError, ShapeError
from fxad.tracing import program as program_module
from fxad.tracing.program import Program
from tests.api.refusals import X, refused


def compilations(fn: Callable[[], object]) -> int:
    before = fx.cache.stats().compilations
    fn()
    return fx.cache.stats().compilations - before


# Programs that a test compiles must not be in the cache from another test.
_fresh = iter(range(10_000, 20_000))


def fresh() -> float:
    return next(_fresh) + 0.5


# ----------------------------------------------------------------------------------------------- number of compilations

LOOPS: dict[str, Callable[[float], Any]] = {
    "a rebound lambda": lambda c: fx.jit(lambda x: x * c)(X),
    "a partial": lambda c: fx.jit(functools.partial(lambda k, x: x * k * c, 2))(X),
    "grad of a callable": lambda c: fx.grad(lambda x: (fnp.sin(x) * c).sum())(X),
    "vmap of a callable": lambda c: fx.vmap(lambda x: x * c)(X),
    "a program called": lambda c: fx.trace(lambda x: x * c, X)(X),
    "a program compiled": lambda c: fx.lower(fx.trace(lambda x: x * c, X)).compile()(X),
    "a default": lambda c: fx.jit(lambda x, w=X: x * c * w)(X),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_function_called_in_a_loop_is_compiled_once(loop: str) -> None:
    c = fresh()
    assert compilations(lambda: [LOOPS[loop](c) for _ in range(5)]) == 1


def test_constants_are_not_compiled_in() -> None:
    c = fresh()
    arrays = [np.full(3, k, np.float32) for k in range(5)]
    assert compilations(lambda: [fx.jit(lambda x: x * c * a)(X) for a in arrays]) == 1


def test_one_compilation_for_arguments_of_equal_types() -> None:
    c = fresh()
    f = fx.jit(lambda x, k: x * k * c)
    array = fx.asarray(X)
    assert compilations(lambda: [f(X, 1.0), f(array, 2.0), f(array, np.float32(3)), f(X, k=1.0)]) == 1
    assert compilations(lambda: f(X[:2], 1.0)) == 1
    assert compilations(lambda: f(X.astype(np.float64), 1.0)) == 1


def test_32_threads_compile_once() -> None:
    c = fresh()
    f = fx.jit(lambda x: fnp.sin(x) * c)
    barrier = threading.Barrier(32)
    found: list[list[float]] = []

    def work() -> None:
        barrier.wait()
        found.append(f(X).tolist())

    threads = [threading.Thread(target=work) for _ in range(32)]

    def run() -> None:
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    assert compilations(run) == 1
    assert len(found) == 32
    assert all([row == found[0] for row in found])


def test_after_clear_it_is_compiled_again() -> None:
    c = fresh()
    assert compilations(lambda: fx.jit(lambda x: x * c)(X)) == 1
    fx.cache.clear()
    assert compilations(lambda: fx.jit(lambda x: x * c)(X)) == 1
    assert fx.cache.stats().entries == 1
    assert "ms" in fx.cache.explain()


# ------------------------------------------------------------------------------------------------------------ methods


def test_a_method_reads_its_instance_at_each_call() -> None:
    class Scale:
        def __init__(self, k: float) -> None:
            self.k = k

        @fx.jit
        def __call__(self, x: Any) -> Any:
            return x * self.k

    s, c = Scale(2.0), fresh()
    assert s(X).tolist() == [0, 2, 4]
    s.k = c
    assert s(X).tolist() == [0, c, 2 * c]
    assert compilations(lambda: [s(X) for _ in range(3)]) == 0
    assert fx.trace(lambda x: s(x) + s(x), X)(X).tolist() == [0, 2 * c, 4 * c]
    assert fx.grad(lambda x: s(x).sum())(X).tolist() == [c, c, c]


def test_a_method_of_a_pytree_takes_it_as_an_argument() -> None:
    traced = []

    @tree.dataclass
    class Layer:
        w: Any

        @fx.jit
        def apply(self, x: Any) -> Any:
            traced.append(1)
            return x * self.w

    assert Layer(X).apply(X).tolist() == [0, 1, 4]
    assert Layer(2 * X).apply(X).tolist() == [0, 2, 8]
    assert len(traced) == 1
    gradient = fx.grad(lambda layer: layer.apply(X).sum())(Layer(X))
    assert gradient.w.tolist() == X.tolist()


# -------------------------------------------------------------------------------------------------------------- calls


def test_a_jitted_function_has_the_name_and_signature_of_its_function() -> None:
    @fx.jit
    def named(a: Any, *rest: Any, k: Any = 1.0) -> Any:
        """Documented."""
        return (a * k, *rest)

    found: Any = named
    assert (found.__name__, found.__doc__, repr(found)) == ("named", "Documented.", "<jit named>")
    got = named(X, (1, None), {"s": True}, k=2)
    assert got[0].tolist() == [0, 2, 4]
    assert tree.map(lambda x: x.item(), got[1:]) == ((1, None), {"s": True})
    assert named.lower(X).program.jaxpr is named.trace(X).jaxpr
    assert named.trace(fx.Spec((3,))).in_avals[0].shape == (3,)
    assert fx.jit(fx.trace(lambda x: x + 1, X))(X).tolist() == [1, 2, 3]
    assert np.asarray(fx.jit(lambda: 2.5)()) == 2.5


def test_closed_over_values_are_read_when_a_function_is_traced() -> None:
    table = np.ones(3, np.float32)
    f = fx.jit(lambda x: x + table)
    assert f(X).tolist() == [1, 2, 3]
    table[:] = 5
    assert f(X).tolist() == [1, 2, 3]
    assert fx.jit(lambda x: x + table)(X).tolist() == [5, 6, 7]


def test_a_call_after_a_failed_call_works() -> None:
    bad = True

    def f(x: Any) -> Any:
        if bad:
            return x + fnp.ones(5)
        return x + 1

    g = fx.jit(f)
    refused(lambda: g(X), ShapeError, "add: shapes (3,) and (5,) do not broadcast: axis -1 has sizes 3 and 5")
    bad = False
    assert g(X).tolist() == [1, 2, 3]


def test_paths_are_computed_for_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call with NumPy arrays and scalars prints no paths: that would cost time for each leaf."""
    asked: list[object] = []
    real = program_module.argument_path

    def spelled(accessor: Any, names: tuple[str, ...]) -> str:
        asked.append(accessor)
        return real(accessor, names)

    monkeypatch.setattr(program_module, "argument_path", spelled)
    leaves = [np.full(3, k, np.float32) for k in range(20)]
    program = fx.trace(lambda xs, scale: sum(xs[1:], xs[0]) * scale, leaves, 2.0)
    run = fx.lower(program).compile()
    assert np.array_equal(run(leaves, 3.0), np.full(3, 570, np.float32))
    assert np.array_equal(program(leaves, 3.0), np.full(3, 570, np.float32))
    assert asked == []
    with pytest.raises(fx.errors.ShapeError, match=r"argument xs\[19\] has shape \(2,\)"):
        run([*leaves[:19], np.ones(2, np.float32)], 3.0)
    assert asked


# ------------------------------------------------------------------------------------------------- pickles and copies


@fx.jit
def decorated(x: fx.Array) -> fx.Array:
    return 2 * x


@fx.jit(static_argnums=1)
def decorated_with_statics(x: fx.Array, n: int) -> fx.Array:
    return n * x


class Holder:
    @fx.jit
    def decorated_method(self, x: fx.Array) -> fx.Array:
        return x


@pytest.mark.parametrize("jitted", [decorated, decorated_with_statics, Holder.decorated_method], ids=repr)
def test_a_decorated_function_is_pickled_by_name(jitted: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps({"f": jitted}, protocol))["f"] is jitted


def _plain(x: fx.Array) -> fx.Array:
    return x


def _plain_with_statics(x: fx.Array, n: int) -> fx.Array:
    return n * x


@pytest.mark.parametrize(
    ("jitted", "name"),
    [
        (fx.jit(_plain), "_plain"),
        (fx.jit(lambda x: x), "<lambda>"),
        (fx.jit(functools.partial(_plain_with_statics, n=2)), "_plain_with_statics"),
        (fx.jit(_plain_with_statics, static_argnums=1), "_plain_with_statics"),
        (Holder().decorated_method, "decorated_method"),
    ],
)
def test_pickling_another_jitted_function_says_what_to_do_instead(
    jitted: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", ModuleType("cloudpickle"))  # that it is imported changes nothing
    with pytest.raises(ArgumentError) as e:
        pickle.dumps(jitted)
    assert e.value.message == (
        f"pickle: <jit {name}> is compiled for the devices of this process, and no module has it under its name"
    )
    assert e.value.remedy == (
        "pickle the function and call jit on it there; or define it with @jit, and it is pickled by name."
        " Or hand over the bytes of jitted.lower(*args).export()"
    )


def test_a_copy_of_a_jitted_function_is_the_function() -> None:
    jitted, statics = fx.jit(_plain), fx.jit(_plain_with_statics, static_argnums=1)
    x = fnp.asarray(X)
    jitted(x), statics(x, 2)  # after a call they hold objects of jaxlib, which cannot be copied
    assert copy.copy(jitted) is copy.deepcopy([jitted])[0] is jitted
    assert copy.copy(statics) is copy.deepcopy([statics])[0] is statics
    # a transformation of a copy knows the static arguments
    mapped = fx.vmap(copy.deepcopy(statics), in_axes=(0, None))
    assert np.asarray(mapped(x[None], 3)).tolist() == [[0, 3, 6]]


def test_calls_with_equal_leaves_in_other_trees_are_apart() -> None:
    """Positional arrays are found by their types alone; a tuple of one has the same leaf."""
    f = fx.jit(lambda a, b: a[0] - b if isinstance(a, tuple) else a * b)
    x, y = fnp.asarray(np.float32(2)), fnp.asarray(np.float32(5))
    for _ in range(3):
        assert [float(f(x, y)), float(f((x,), y)), float(f(x, b=y))] == [10, -3, 10]


def test_what_is_made_of_a_program_keeps_all_its_fields() -> None:
    """A field that `Program` gets is carried on, too."""
    traced = fx.trace(lambda x, y: x * y, X, X)
    trees = {"in_tree": traced.in_tree, "out_tree": traced.out_tree}
    values: dict[str, Any] = {"jaxpr": traced.jaxpr, **trees, "bound": (), "names": ("a", "b"), "name": "product"}
    assert {f.name for f in fields(Program)} == {*values}, "give a value here that is not the default"
    program: Any = Program(**values)
    residual: ResidualProgram[..., Any] = ResidualProgram.of(program)
    leaves, structure = fx.tree.flatten(residual)
    made = [program.replace(program.jaxpr), residual, fx.tree.unflatten(structure, leaves), TracedProgram.of(program)]
    for other in made:
        assert {f.name: getattr(other, f.name) for f in fields(Program)} == values
    partial: Any = bind_trailing(Program.of(program, in_tree=fx.tree.structure(((0, (0,)), {}))), [X])
    assert (partial.name, partial.names, partial.out_tree) == ("product", ("a", "b"), traced.out_tree)


def test_a_write_to_a_closed_over_array_changes_no_call() -> None:
    """The values of closed-over arrays are read once for each set of argument types."""
    weight, x = np.ones(3, np.float32), np.ones(3, np.float32)
    scaled = fx.jit(lambda x: x * weight)
    before = scaled(x)
    weight[:] = 5
    ways: list[Callable[[Any], Any]] = [
        scaled, fx.jit(lambda x: scaled(x)), scaled.lower(x).compile(), scaled.trace(x), fx.trace(scaled, x),
    ]  # fmt: skip
    for way in ways:
        np.testing.assert_array_equal(np.asarray(way(x)), np.asarray(before))
