"""Tracing: closed-over values, results, the scope of tracers, and references after a trace has ended."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, tree
from fxad.errors import DTypeError, LeakedTracerError, ShapeError
from fxad.ir import Jaxpr, Primitive
from fxad.lax.control import branching, looping
from fxad.tracing import tracer
from fxad.tracing.context import tracing_repeatedly
from fxad.tracing.trace import parameter_names
from fxad.tracing.tracer import TracerAttributeError
from tests.api.refusals import X, clean, refused

A = fx.asarray(X)


def names(jaxpr: Jaxpr) -> list[str]:
    return [e.prim.name for e in jaxpr.eqns]


# ------------------------------------------------------------------------------------------------------- closures


def test_arrays_closed_over_are_bound_once_each() -> None:
    table = np.ones(3, np.float32)
    program = fx.trace(lambda x: x + table + A + table, X)
    assert program.bound[0].tolist() == table.tolist()  # type: ignore[attr-defined]
    assert program.bound[1] is A
    assert len(program.bound) == 2
    assert program(X).tolist() == fx.lower(program).compile()(X).tolist() == [2, 4, 6]
    assert program == program.replace(program.jaxpr)
    assert program != fx.trace(lambda x: x + np.ones(3, np.float32) + A + table, X)


class Lent:
    """An array of another library that offers DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def jitted(f: Any) -> Any:
    return fx.jit(f)


FUNCTIONS: dict[str, Any] = {
    "trace": lambda f: fx.trace(f, X),
    "trace of jit": lambda f: fx.trace(fx.jit(f), X),
    "trace in jit": lambda f: fx.jit(lambda x: fx.trace(f, X)(x)).trace(X),
    "jit.trace": lambda f: jitted(f).trace(X),
    "jit.lower": lambda f: jitted(f).lower(X).program,
    "gradient": lambda f: fx.grad(fx.trace(f, X)),
    "map": lambda f: fx.vmap(fx.trace(f, fx.Spec(())), axis_size=3),
}


@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=list(FUNCTIONS))
def test_a_later_write_to_a_closed_over_array_changes_nothing(make: Any) -> None:
    table, halves = np.array([1.0, 2.0, 4.0], np.float32), np.zeros((2, 3), ml_dtypes.bfloat16)
    frozen = table[:]
    frozen.flags.writeable = False  # NumPy allows writes to `table`
    lent: Any = Lent(table)

    def f(x: Any) -> Any:
        return fnp.sum(x * table) + fnp.sum(frozen) + fnp.sum(halves) + fnp.sum(fnp.multiply(x, lent))

    program = make(f)
    args = [np.ones(a.shape, a.dtype) for a in program.in_avals]
    before = [np.array(x) for x in tree.leaves(program(*args))]
    table[:], halves[:] = 7, 7
    for found in (program(*args), jitted(program)(*args), fx.interpret(program, *args)):
        for x, y in zip(tree.leaves(found), before, strict=True):
            np.testing.assert_array_equal(x, y)
    assert not any([b.flags.writeable for b in program.bound if isinstance(b, np.ndarray)])


def test_a_number_beside_an_array_of_another_library_has_its_dtype() -> None:
    lent: Any = Lent(np.array([1.0, 3.0]))
    functions: list[Any] = [lambda: fnp.multiply(lent, 0.1), lambda: fnp.multiply(0.1, lent)]
    for f in functions:
        for found in (f(), fx.jit(f)()):
            np.testing.assert_array_equal(np.asarray(found), [0.1, 3 * 0.1])


WAYS: dict[str, Any] = {
    "eager": lambda f, x: f(x),
    "trace": lambda f, x: fx.trace(f, x)(x),
    "jit": lambda f, x: fx.jit(f)(x),
    "map": lambda f, x: fx.vmap(f)(x[None])[0],
    "derivative": lambda f, x: fx.jvp(f, (x,), (x,))[0],
    "loop": lambda f, x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
    "jit in a loop": lambda f, x: lax.scan(lambda c, _: (fx.jit(f)(c), None), x, None, length=1)[0],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("offer", [lambda array: array, Lent], ids=["numpy", "dlpack"])
def test_a_write_between_two_uses_of_an_array(way: Any, offer: Any) -> None:
    table = np.zeros(3, np.float32)
    lent = offer(table)

    def f(x: Any) -> Any:
        for k in (1, 10, 100):
            table[:] = k
            x = fnp.add(fnp.add(x, lent), lent)
        table[:] = -1
        return x

    assert way(f, X).tolist() == [222, 223, 224]


def test_uses_of_an_array_between_two_writes_are_one_operand() -> None:
    table = np.zeros((3, 2), np.float32)[:, 0]

    def f(x: Any) -> Any:
        y = x + table + fx.jit(lambda x: x * table)(x)
        table[:] = 1
        return y + table

    assert len(fx.trace(f, X).bound) == 2


@pytest.mark.parametrize("offer", [lambda array: array, Lent], ids=["numpy", "dlpack"])
def test_functions_of_one_equation_share_the_copy_of_an_array(monkeypatch: pytest.MonkeyPatch, offer: Any) -> None:
    table, small = offer(np.ones(3, np.float32)), np.ones(3, np.float32)
    operands: list[object] = []

    def bind(prim: Primitive, *args: Any) -> Any:
        operands[:] = [x for x in args if x is not A and np.ndim(x) == 1]
        return tracer.bind(prim, *args)

    monkeypatch.setattr(branching, "bind", bind)
    monkeypatch.setattr(looping, "bind", bind)
    branches = [lambda x: x + table, lambda x: x - small + table, lambda x: x * table]
    assert lax.switch(1, branches, A).tolist() == A.tolist()
    assert len(operands) == 2
    lax.while_loop(lambda x: fnp.sum(x * table) < 100, lambda x: x + table, A)
    assert len(operands) == 2
    assert operands[0] is operands[1]


def test_a_repeated_trace_takes_the_same_copy_of_an_array() -> None:
    table = np.ones(3, np.float32)
    block, rewind = tracing_repeatedly()
    programs = []
    with block:
        for value in (1, 1, 2):
            table[:] = value
            rewind()
            programs.append(fx.trace(lambda x: x + table, X))
    assert programs[0] == programs[1] != programs[2]


def test_an_array_in_the_other_byte_order_is_refused_with_what_converts_it() -> None:
    swapped = np.arange(3, dtype=">f4")
    with pytest.raises(DTypeError) as e:
        fx.trace(lambda x: x + swapped, X)
    assert e.value.remedy == 'give x.astype(x.dtype.newbyteorder("="))'
    assert fx.trace(lambda x: x + swapped.astype(swapped.dtype.newbyteorder("=")), X)(A).tolist() == [0, 2, 4]


def test_an_array_of_a_failed_operation_is_no_operand() -> None:
    def f(x: Any) -> Any:
        for operation in (fnp.add, lax.add):
            with pytest.raises(ShapeError):
                operation(x, np.ones(5, np.float32))
        return x * 2

    assert fx.trace(f, X).bound == ()


def test_the_parts_of_a_tracer_are_refused() -> None:
    """An attribute, so `hasattr` is False."""
    for f in (lambda x: x.addressable_shards, lambda x: x.addressable_data(0)):
        message = "addressable_shards: Tracer<f32[3]> of <lambda> has no value while the function is traced"
        refused(lambda f=f: fx.trace(f, X), TracerAttributeError, message)  # type: ignore[misc]


def test_programs_may_be_keys_of_weak_tables() -> None:
    program = fx.trace(lambda x: x * 2, X)
    lowered = fx.lower(program)
    table = weakref.WeakKeyDictionary[Any, int]()
    for key in (program, lowered, lowered.compile(), fx.make_mesh((1,), ("i",))):
        table[key] = 1
        assert key in table
    del key, lowered
    gc.collect()
    assert list(table) == [program]


def test_equal_functions_are_one_program() -> None:
    assert fx.trace(lambda x: fnp.sin(x) * 2, X).jaxpr is fx.trace(lambda y: fnp.sin(y) * 2, A).jaxpr
    assert fx.trace(lambda x: x * 2, X).jaxpr is not fx.trace(lambda x: x * 2.5, X).jaxpr
    spec = fx.Spec((3,), "float32")
    assert fx.trace(lambda x: x * 2, spec).jaxpr is fx.trace(lambda x: x * 2, X).jaxpr


def test_a_large_array_is_copied_once() -> None:
    big = np.ones(2_500_000, np.float32)  # 10 MB
    tracemalloc.start()
    try:
        program = fx.trace(lambda x: (x * big).sum(), np.float32(2))
        peak = tracemalloc.get_traced_memory()[1]
        gradient = fx.grad(program)
        fx.vmap(program, axis_size=2)
        more = tracemalloc.get_traced_memory()[1] - peak
    finally:
        tracemalloc.stop()
    assert 10_000_000 <= peak < 11_000_000
    assert more < 1_000_000
    assert gradient.bound[0] is program.bound[0]


def test_static_arguments_by_closure() -> None:
    def power(n: int) -> Any:
        return fx.trace(functools.partial(lambda n, x: x**n, n), X)

    assert power(2).jaxpr is power(2).jaxpr
    assert power(3)(X).tolist() == [0, 1, 8]


def test_outer_tracers_two_levels_deep() -> None:
    def outer(a: Any) -> Any:
        def middle(b: Any) -> Any:
            def inner(c: Any) -> Any:
                return (a * b * c).sum()

            return fx.grad(inner)(b).sum()  # d/dc abc = ab

        return fx.grad(middle)(a).sum()  # d/db sum(ab) = a

    for run in (fx.grad(outer), fx.jit(fx.grad(fx.jit(outer))), fx.grad(fx.remat(outer))):
        assert run(X).tolist() == [1, 1, 1]
    assert fx.vmap(fx.grad(fx.jit(outer)))(np.stack([X, X])).tolist() == [[1, 1, 1]] * 2


def test_jit_in_grad_in_vmap_over_an_outer_tracer() -> None:
    got = fx.vmap(lambda a: fx.grad(fx.jit(lambda b: (a * b * b).sum()))(X))(X)
    np.testing.assert_allclose(got, 2 * np.outer(X, X))


# ---------------------------------------------------------------------------------------------------------- calls


def test_a_jitted_function_called_twice_is_one_sub_program() -> None:
    @fx.jit
    def h(x: Any) -> Any:
        return fnp.sin(x) * x

    program = fx.trace(lambda x: (h(x) + h(2 * x)).sum(), X)
    calls = [e.prim for e in program.jaxpr.eqns if e.prim.name == "call"]
    assert len(calls) == 2
    assert calls[0] is calls[1] or calls[0] == calls[1]
    backward = [e.prim for e in fx.grad(program).jaxpr.eqns if e.prim.name == "call"]
    assert len(backward) == 4
    assert len(set(backward)) == 2


def test_a_program_called_in_a_trace_is_a_call() -> None:
    p = fx.trace(lambda x: fnp.sin(x) * 2, X)
    assert names(fx.trace(lambda x: p(x) + p(x), X).jaxpr) == ["call", "call", "add"]


def test_callables_of_all_kinds_are_traced() -> None:
    class Scale:
        def __init__(self, k: float) -> None:
            self.k = k

        def __call__(self, x: Any) -> Any:
            return x * self.k

    for f in (
        lambda x: x * 2.0,
        Scale(2.0),
        Scale(2.0).__call__,
        functools.partial(lambda k, x: x * k, 2.0),
        functools.partial(lambda x, k: x * k, k=2.0),
        fx.jit(lambda x: x * 2.0),
    ):
        assert fx.trace(f, X)(X).tolist() == fx.jit(f)(X).tolist() == [0, 2, 4]
        assert fx.grad(lambda x, f=f: f(x).sum())(X).tolist() == [2, 2, 2]
    assert fx.trace(Scale(2.0), X).name == "Scale"
    assert fx.trace(functools.partial(lambda k, x: x, 2), X).paths == ("x",)


def test_results_of_every_kind() -> None:
    program = fx.trace(lambda x: (x, 1, 2.5, True, 1j, A, X, x, None, np.float64(3), fnp.zeros(2)), X)
    got = program(X)
    kinds = ["float32", "int32", "float32", "bool", "complex64", "float32", "float32", "float32", "float64", "float32"]
    assert [x.dtype.name for x in tree.leaves(got)] == kinds
    again = fx.lower(program).compile()(X)
    for a, b in zip(tree.leaves(got), tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert got[8] is None
    assert np.asarray(fx.trace(lambda: 1.5)()) == 1.5


def test_keyword_arguments_and_defaults() -> None:
    def f(a: Any, b: Any = 2.0, *, k: Any = 1.0) -> Any:
        return (a * b * k).sum()

    assert fx.trace(f, X, k=3.0)(X, k=4).item() == 24
    assert fx.jit(f)(X, k=A).item() == fx.jit(f)(X, k=X).item() == 10
    assert fx.grad(f)(X, k=3.0).tolist() == [6, 6, 6]
    assert fx.hessian(f)(X, k=3.0).shape == (3, 3)
    assert fx.vmap(f)(X, k=X).tolist() == [0, 2, 8]
    assert fx.interpret(fx.trace(f, X, k=3.0), X, k=3.0) == 18
    assert fx.grad(fx.remat(f))(X, k=3.0).tolist() == [6, 6, 6]
    executable = fx.lower(fx.trace(f, X, k=A)).compile()
    assert executable(X, k=X).item() == 10


# --------------------------------------------------------------------------------------------------------- leaks


def leak() -> Any:
    kept: list[Any] = []

    def leaky(a: Any) -> Any:
        kept.append(a * 2)
        return a

    fx.trace(leaky, X)
    return kept[0]


@pytest.mark.usefixtures("nothing_remembered")
def test_a_leaked_tracer_says_where_it_was_made() -> None:
    t = leak()
    code = leak.__code__.co_filename
    line = leak.__code__.co_firstlineno + 4
    made = f"Tracer<f32[3]>, made at {code}:{line} in leak.<locals>.leaky, whose trace has ended"
    here = "no function is being traced here"
    program = fx.trace(lambda x: x * 0.7654321, X)  # an equal program of another test would give it its name
    for fn, message in (
        (lambda: t + 1, f"add: argument 0 is {made}; {here}"),
        (lambda: 1 - t, f"sub: argument 1 is {made}; {here}"),
        (lambda: fnp.sin(t), f"sin: argument 0 is {made}; {here}"),
        (lambda: fx.lax.add(t, t), f"add: argument 0 is {made}; {here}"),
        (lambda: fnp.asarray(t), f"asarray: argument 0 is {made}; {here}"),
        (lambda: fnp.array([t, 1]), f"asarray: argument 0 is {made}; {here}"),
        (lambda: fnp.reshape(t, (3, 1)), f"reshape: argument 0 is {made}; {here}"),
        (lambda: fx.device_put({"a": [t]}), f"device_put: x['a'][0] is {made}; {here}"),
        (lambda: fx.device_put(t, fx.devices()[0]), f"device_put: x is {made}; {here}"),
        (lambda: t.copy(), f"copy: argument 0 is {made}; {here}"),
        (lambda: fx.trace(lambda x: fnp.asarray(t), X), f"asarray: argument 0 is {made}; it is used in <lambda>"),
        (lambda: t[0], f"getitem: argument 0 is {made}; {here}"),
        (lambda: bool(t), f"bool: the array is {made}; it has no value"),
        (lambda: np.sin(t), f"numpy.sin: the array is {made}; it has no value"),
        (lambda: program(t), f"<lambda>: argument 0 is {made}; {here}"),
        (lambda: fx.lower(program).compile()(t), f"<lambda>: argument x is {made}; a compiled program wants values"),
        (
            lambda: fx.jit(lambda x: x * 0.7654321)(t),
            f"<lambda>: argument x is {made}; a compiled program wants values",
        ),
        (lambda: fx.trace(lambda x: x + t, X), f"add: argument 1 is {made}; it is used in <lambda>"),
        (lambda: fx.trace(lambda x: (x, t), X), f"<lambda>: result 1 is {made}; it is used in <lambda>"),
    ):
        refused(fn, LeakedTracerError, message)


def test_a_tracer_of_a_finished_sibling_trace_is_refused() -> None:
    def sibling(a: Any) -> Any:
        kept = []
        fx.trace(lambda b: kept.append(b), a)
        return a + kept[0]

    e = refused(
        lambda: fx.trace(sibling, X),
        LeakedTracerError,
        "add: argument 1 is Tracer<f32[3]>, an argument of <lambda>, whose trace has ended; it is used in sibling",
    )
    assert e.where.endswith("in test_a_tracer_of_a_finished_sibling_trace_is_refused.<locals>.sibling")


def test_another_thread_has_no_trace() -> None:
    problems: list[LeakedTracerError] = []

    def work(a: Any) -> None:
        try:
            a + 1
        except LeakedTracerError as e:
            problems.append(e)

    def f(a: Any) -> Any:
        thread = threading.Thread(target=work, args=(a,))
        thread.start()
        thread.join()
        return a

    fx.trace(f, X)
    assert problems[0].message == (
        "add: argument 0 is Tracer<f32[3]>, an argument of f, which is being traced elsewhere;"
        " no function is being traced here"
    )
    assert problems[0].caller.endswith("in test_another_thread_has_no_trace.<locals>.work")


def test_a_program_that_closes_over_a_dead_tracer() -> None:
    kept: list[Any] = []

    def f(a: Any) -> Any:
        kept.append(fx.trace(lambda b: b * a, X))
        kept.append(fx.vjp(lambda b: fnp.sin(b) * a, a)[1])
        return a

    fx.trace(f, X)
    calls: list[Callable[[], Any]] = [lambda: kept[0](X), lambda: kept[1](X), lambda: fx.interpret(kept[0], X)]
    for fn in calls:
        with pytest.raises(
            LeakedTracerError, match=r"an argument of f, whose trace has ended|made at .* whose trace has"
        ):
            fn()
        clean()


# ------------------------------------------------------------------------------------------ threads, tasks, failures


def scaled(k: int) -> str:
    def f(x: Any) -> Any:
        return fnp.sin(x * k) + k

    return str(fx.trace(f, X))


def test_threads_trace_at_once() -> None:
    found: dict[int, str] = {}
    barrier = threading.Barrier(8)

    def work(k: int) -> None:
        barrier.wait()
        found[k] = scaled(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {k: scaled(k) for k in range(8)}
    clean()


def test_tasks_and_generators_trace_at_once() -> None:
    async def task(k: int) -> str:
        await asyncio.sleep(0)
        text = scaled(k)
        await asyncio.sleep(0)
        return text

    async def main() -> list[str]:
        return await asyncio.gather(*[task(k) for k in range(8)])

    assert asyncio.run(main()) == [scaled(k) for k in range(8)]

    def generate(x: Any) -> Iterator[Any]:
        for k in range(3):
            yield x * k

    assert fx.trace(lambda x: sum(generate(x), x), X)(X).tolist() == [0, 4, 8]
    each = (fx.trace(lambda x, k=k: x * k, X) for k in range(3))
    assert [p(X).tolist() for p in each] == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]


def test_an_exception_leaves_nothing_behind() -> None:
    held = fx.asarray(np.ones(5, np.float32))
    gone = weakref.ref(held)

    def deep(x: Any) -> Any:
        y = x * held.sum()  # noqa: F821

        def inner(z: Any) -> Any:
            raise KeyError("mine")

        return fx.grad(inner)(y)

    with pytest.raises(KeyError, match="mine"):
        fx.jit(deep)(X)
    clean()
    del held, deep
    gc.collect()
    assert gone() is None


def test_endless_recursion_is_the_users_and_leaves_nothing() -> None:
    def f(x: Any) -> Any:
        return again(x)

    again = fx.jit(f)
    with pytest.raises(RecursionError):
        again(X)
    clean()


# --------------------------------------------------------------------------------------------------------- garbage


def test_dropped_programs_are_collected() -> None:
    big = np.ones(1000, np.float32)
    program = fx.trace(lambda x: (x * big).sum() * 12345, np.float32(2))  # noqa: F821
    refs: list[Callable[[], Any]] = [weakref.ref(program.jaxpr), weakref.ref(big), weakref.ref(fx.grad(program).jaxpr)]
    del program, big
    gc.collect()
    assert [r() for r in refs] == [None, None, None]


def test_a_program_is_freed_with_its_last_reference() -> None:
    """Without the garbage collector. Nothing that is made from a program refers back to it."""
    gc.collect()
    gc.disable()
    try:
        program = fx.trace(lambda x: fnp.sum(fnp.sin(fnp.tanh(x)) * 76543), X.astype(np.float32))
        gradient = fx.grad(program)
        lowered = fx.lower(gradient)
        assert len(lowered.units.units) == 1
        refs = [weakref.ref(p.jaxpr) for p in (program, gradient)]
        del program, gradient, lowered
        assert [r() for r in refs] == [None, None]
    finally:
        gc.enable()


def test_a_dropped_executable_frees_its_constants_and_a_cleared_cache_its_program() -> None:
    table = fx.asarray(np.ones(1000, np.float32))
    executable = fx.lower(fx.trace(lambda x: (x * table).sum() * 54321, np.float32(2))).compile()  # noqa: F821
    assert executable(np.float32(2)).item() == 2000 * 54321
    constant, code = weakref.ref(table), weakref.ref(executable.program.jaxpr)
    del executable, table
    gc.collect()
    assert constant() is None
    fx.cache.clear()
    gc.collect()
    assert code() is None


def test_the_names_of_parameters_are_those_of_the_signature() -> None:
    def wrapper(*args: Any) -> Any:
        return args

    wrapper.__wrapped__ = lambda a, b: (a, b)  # type: ignore[attr-defined]  # what functools.wraps sets

    def named(a: Any, b: Any = 0, /, c: Any = 1, *rest: Any, d: Any = 2, **others: Any) -> Any:
        local = a
        return local, b, c, rest, d, others

    for f in (named, wrapper, lambda: 0, lambda *a: a, functools.partial(named, 1), type("T", (), {"m": named})().m):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = tuple([p.name for p in inspect.signature(f).parameters.values() if p.kind in kinds])
        assert parameter_names(f) == names


def test_a_plain_function_is_traced_without_looking_at_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `inspect.signature` took a third of the time of a short trace."""
    monkeypatch.setattr(inspect, "signature", lambda f: pytest.fail(f"the signature of {f} is looked at"))
    assert fx.trace(lambda x: x + 1, X).names == ("x",)


def test_the_arguments_of_a_program() -> None:
    def f(params: Any, *xs: Any, scale: Any, none: Any = None) -> Any:
        return params["w"] * scale + sum(xs)

    program = fx.trace(f, {"b": 1.0, "w": 2.0}, 3.0, 4.0, scale=5.0, none=None)
    found = [(a.key, a.name, list(a.leaves)) for a in program.arguments]
    assert found == [
        (0, "params", [0, 1]), (1, "args[1]", [2]), (2, "args[2]", [3]), ("none", "none", []), ("scale", "scale", [4]),
    ]  # fmt: skip
    assert program.positional_arguments == program.arguments[:3]
    assert [a.tree for a in program.arguments] == [*program.args_tree.children(), *program.kwargs_tree.children()]
