"""Equality is identity: equal types, atoms and programs are one object, however they are made."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from fxad import dtypes, ir
from fxad.core import atoms
from fxad.core.builder import Builder
from fxad.errors import ArgumentError, DTypeError, ShapeError, TypecheckError
from fxad.ir import Aval, Eqn, Jaxpr, Linear, Lit, Primitive, Source, SourceLocation, Var, params, source_location
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, MUL, SIN
from fxad.primitives.shape import ReduceSum
from tests.ir.strategies import literals, programs

T = TypeVar("T")

F3 = Aval((3,), "float32")


def chain(n: int, name: str = "main", size: int = 3) -> Jaxpr:
    """sin of sin of ..., n times."""
    b = Builder()
    x = b.input(Aval((size,), "float32"))
    for _ in range(n):
        x = b.one(SIN, x)
    return b.build([x], name)


class TestAval:
    def test_one_object_however_it_is_made(self) -> None:
        made = [
            Aval((3, 4), "float32"),
            Aval([3, 4], np.float32),
            Aval((np.int64(3), 4), np.dtype("float32")),  # type: ignore[arg-type]  # NumPy's ints are sizes too
            Aval((n for n in (3, 4)), "f32"),
            Aval((3, 4), np.dtype("float32", metadata={"a": 1})),
            F3.with_shape([3, 4]),
            Aval((3, 4), "int8").with_dtype(float),
        ]
        assert all(a is made[0] for a in made)
        assert made[0] is not Aval((4, 3), "float32")
        assert made[0] is not Aval((3, 4), "float16")

    def test_shapes_and_dtypes_are_normalised(self) -> None:
        shapes: list[Any] = [(True, 2), (np.int8(1), np.uint64(2)), [1, 2]]
        for shape in shapes:
            aval = Aval(shape, np.float64)
            assert aval.shape == (1, 2)
            assert [type(n) for n in aval.shape] == [int, int]
            assert aval.dtype is dtypes.float64

    def test_derived(self) -> None:
        one: Any = 3
        assert Aval(one, "float32") == Aval((3,), "float32")
        a = Aval((3, 0, 4), "complex64")
        assert (a.ndim, a.size, a.nbytes, a.inexact, str(a)) == (3, 0, 0, True, "c64[3,0,4]")
        assert (Aval((), "int32").size, Aval((), "int32").inexact, repr(Aval((), "int32"))) == (1, False, "i32[]")

    @pytest.mark.parametrize(
        "shape", [3.5, (1.5,), "ab", ([1],), (None,), (-1,), (2**63,), (np.array([1, 2]),)], ids=str
    )
    def test_bad_shape(self, shape: Any) -> None:
        with pytest.raises(ShapeError, match=r"^shape: "):
            Aval(shape, "float32")

    def test_an_array_that_nothing_can_hold(self) -> None:
        """Regression: XLA crashed for it. NumPy raised an error of its own, also for one without elements."""
        for shape, dtype in (((2**31, 2**29), "float64"), ((2**40, 0, 2**40), "bool"), ((2**62,), "float16")):
            with pytest.raises(
                ShapeError, match=r"^shape: \[.*\] of \w+ has 2\*\*63 bytes or more\n(.*\n)*  remedy "
            ) as e:
                Aval(shape, dtype)
            assert e.value.message.startswith(f"shape: {list(shape)} of {dtype} ")
            assert e.value.remedy == "give smaller sizes: no device holds such an array, not even for a moment"
        assert Aval((2**31, 2**29), "float32").nbytes == 2**62

    @pytest.mark.parametrize("dtype", [None, "f99", ">f4", object, "datetime64[s]", [("a", "f4")], "i4,,", 3], ids=str)
    def test_bad_dtype(self, dtype: object) -> None:
        with pytest.raises(DTypeError, match="is not a dtype of fxad"):
            Aval((), dtype)

    def test_frozen(self) -> None:
        for made, name in [(F3, "shape"), (Var(0, F3), "index"), (Lit.of(1, F3), "bits"), (chain(1), "name")]:
            with pytest.raises(FrozenInstanceError):
                setattr(made, name, ())
            assert not hasattr(made, "__dict__")


class TestVar:
    def test_one_object(self) -> None:
        assert Var(5, F3) is Var(5, Aval((3,), "float32"))
        assert Var(5, F3) is not Var(5, Aval((4,), "float32"))
        assert type(Var(np.int64(987), F3).index) is int  # type: ignore[arg-type]  # NumPy's ints index too

    def test_names(self) -> None:
        assert [str(Var(k, F3)) for k in (-1, -3, 0, 7)] == ["%arg0", "%arg2", "%0", "%7"]
        assert repr(Var(-1, F3)) == "%arg0:f32[3]"


class TestLit:
    def test_compared_by_bits(self) -> None:
        assert Lit.of(0.0, F3) is not Lit.of(-0.0, F3)
        assert Lit.of(np.nan, F3) is Lit.of(np.nan, F3)
        assert Lit.of(np.nan, F3) is not Lit(b"\x01\0\xc0\x7f", F3)
        assert Lit.of(1, Aval((), "int32")) is not Lit.of(1, Aval((), "int64"))
        assert Lit.of(1, Aval((), "uint8")) is not Lit.of(True, Aval((), "bool"))
        assert Lit.of(1, F3) is not Lit.of(1, Aval((4,), "float32"))

    def test_conversion_is_that_of_numpy(self) -> None:
        assert Lit.of(-1, Aval((), "uint8")).value == 255
        assert Lit.of(2**80 + 5, Aval((), "int32")).value == 5
        for dtype in dtypes.INEXACT:  # ints that no dtype of NumPy holds
            for n in (2**70, -(2**63) - 1, -(10**400), 10**400):
                real = min(max(n, -(2.0**1023)), 2.0**1023) * (2 if abs(n) > 2**1023 else 1)
                assert Lit.of(n, Aval((), dtype)) is Lit.of(real, Aval((), dtype))
        assert Lit.of(2**80, F3).value == np.float32(2**80)
        assert Lit.of(np.float64(0.1), F3).value == np.float32(0.1)
        assert Lit.of(ml_dtypes.bfloat16(1.5), F3).value == 1.5
        assert Lit.of(np.array(2), Aval((), "bool")).value
        assert Lit.of(1e300, F3).value == np.inf
        for n in (2**24 + 1, 2**53 + 1, -(2**62) - 2**38 - 1, 10**30):
            assert Lit.of(n, F3).value == np.asarray(n).astype(np.float32)
            assert Lit.of(n, Aval((), "float64")).value == np.asarray(n).astype(np.float64)

    def test_array_fills_the_type_with_one_element_of_memory(self) -> None:
        x = Lit.of(1.5, Aval((2**20, 2**20), "float32")).array
        assert (x.shape, x.dtype, x.strides) == ((2**20, 2**20), dtypes.float32, (0, 0))
        assert not x.flags.writeable

    @given(literals())
    def test_value_and_bits_agree(self, lit: Lit) -> None:
        assert lit.value.tobytes() == lit.bits
        assert lit.with_shape((7,)).with_shape(lit.aval.shape) is lit

    @pytest.mark.parametrize("value", ["1.0", None, [1], np.zeros(1), b"1", object()], ids=lambda v: type(v).__name__)
    def test_not_a_scalar(self, value: object) -> None:
        with pytest.raises(ArgumentError, match=r"(?m)^literal: .* is not a scalar$"):
            Lit.of(value, F3)

    def test_errors(self) -> None:
        with pytest.raises(DTypeError, match=r"(?m)^literal: 1j is complex, f32\[3\] is not$"):
            Lit.of(1j, F3)
        with pytest.raises(TypecheckError, match=r"(?m)^literal: 3 bytes given for one element of f32\[3\]$"):
            Lit(b"abc", F3)
        with pytest.raises(TypecheckError, match="is not a bool"):
            Lit(b"\2", Aval((), "bool"))


class TestJaxpr:
    def test_alpha_equivalent_programs_are_one(self) -> None:
        j = chain(4, "first")
        assert chain(4, "second") is j
        assert j.name == "first"
        assert Jaxpr(j.ins, j.eqns, j.outs) is j
        assert chain(5) is not j

    def test_source_is_not_identity(self) -> None:
        programs = []
        sources: list[Source] = [None, (chain.__code__, 0), SourceLocation("model.py", 42, "attend")]
        for source in sources:
            b = Builder()
            x = b.input(F3)
            b.source = source
            programs.append(b.build([b.one(SIN, x)]))
        assert all(j is programs[0] for j in programs)

    def test_bodies_and_parameters_are_identity(self) -> None:
        def calling(n: int) -> Jaxpr:
            b = Builder()
            return b.build(b(Call(chain(n)), b.input(F3)))

        def summing(axes: tuple[int, ...]) -> Jaxpr:
            b = Builder()
            return b.build(b(ReduceSum(axes), b.input(Aval((3, 3), "float32"))))

        assert calling(2) is calling(2)
        assert calling(2) is not calling(3)
        assert summing((0,)) is summing((0,))
        assert summing((0,)) is not summing((1,))

    def test_order_of_operands_is_identity(self) -> None:
        found = set()
        for swap in (False, True):
            b = Builder()
            x, y = b.inputs([F3, F3])
            found.add(b.build([b.one(ADD, *((y, x) if swap else (x, y)))]))
        assert len(found) == 2

    def test_repr(self) -> None:
        assert repr(chain(2, "f", size=776)) == "<Jaxpr f(f32[776]) -> (f32[776]), 2 equations>"

    def test_an_unreferenced_program_is_collected(self) -> None:
        def dead(make: Callable[[], object]) -> bool:
            ref = weakref.ref(make())
            gc.collect()
            return ref() is None

        assert dead(lambda: chain(3, size=777))
        assert dead(lambda: Lit.of(777.5, F3))
        assert dead(lambda: Aval((777, 7, 7), "float16"))

    def test_tables_do_not_grow(self) -> None:
        def sizes() -> tuple[int, int, int]:
            gc.collect()
            chain(1, size=778)  # entries of freed objects are removed when a new object is made
            n_lits, n_jaxprs = len(atoms._lits), len(ir._jaxprs)
            gc.collect()
            return n_lits, n_jaxprs, len(atoms._avals)

        def scaled(k: int) -> Jaxpr:
            b = Builder()
            x = b.input(Aval((71_000 + k, 3), "float32"))  # no other test has this type
            return b.build([b.one(MUL, x, Lit.of(k, x.aval))])

        sizes()  # frees the objects of other tests
        before = sizes()
        held = [scaled(k) for k in range(100)]
        assert sizes() == tuple([n + 100 for n in before])
        held.clear()
        assert sizes() == before

    def test_derived_results_live_with_the_program(self) -> None:
        j = chain(2, size=779)
        j._memo["derived"] = chain(3, size=779)
        ref = weakref.ref(j._memo["derived"])
        gc.collect()
        assert ref() is not None
        del j
        gc.collect()
        assert ref() is None


class TestCopies:
    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_pickle_gives_back_the_same_object(self, protocol: int) -> None:
        j = chain(2)
        for made in [F3, Var(-1, F3), Lit.of(-0.0, F3), Lit.of(np.nan, F3), j, SIN, Aval((0,), "bfloat16")]:
            assert pickle.loads(pickle.dumps(made, protocol)) is made

    def test_pickled_equations_keep_their_source(self) -> None:
        code = chain.__code__
        eqn = Eqn(SIN, (Var(-1, F3),), (Var(0, F3),), (code, 0))
        again = pickle.loads(pickle.dumps(eqn))
        assert again == eqn
        assert again.source == source_location((code, 0))

    @given(programs())
    def test_pickle_of_any_program(self, j: Jaxpr) -> None:
        assert pickle.loads(pickle.dumps(j)) is j

    def test_pickle_of_bodies_nested_deeply(self) -> None:
        j = chain(1)
        for _ in range(300):
            b = Builder()
            j = b.build(b(Call(j), b.input(F3)))
        assert pickle.loads(pickle.dumps(j)) is j

    def test_the_pickle_of_a_freed_program_gives_an_equal_one(self) -> None:
        data, text = pickle.dumps(chain(3, size=780)), str(chain(3, size=780))
        gc.collect()
        assert str(pickle.loads(data)) == text

    def test_copies_are_the_object(self) -> None:
        j = chain(2)
        for made in [F3, Var(-1, F3), Lit.of(1, F3), j, SIN, j.eqns[0]]:
            assert copy.copy(made) is made
            assert copy.deepcopy(made) is made
        prim = ReduceSum((0, 1))
        assert copy.deepcopy(prim) == prim == pickle.loads(pickle.dumps(prim))


class TestPrimitives:
    def test_a_primitive_without_parameters_is_a_singleton(self) -> None:
        assert type(SIN)() is SIN
        assert params(SIN) == ()
        with pytest.raises((AttributeError, TypeError)):
            SIN.name = "cos"  # type: ignore[misc]  # what is tested

    def test_primitives_with_equal_parameters_are_equal(self) -> None:
        assert ReduceSum((0,)) == ReduceSum((0,))
        assert hash(ReduceSum((0,))) == hash(ReduceSum((0,)))
        assert ReduceSum((0,)) != ReduceSum((1,))
        assert params(ReduceSum((0,))) == (("axes", (0,)),)


class TestThreads:
    def race(self, make: Callable[[], T], threads: int = 8) -> list[T]:
        """Returns the results of `threads` threads that start at the same time."""
        barrier, made = threading.Barrier(threads), list[T]()

        def run() -> None:
            barrier.wait()
            made.append(make())

        workers = [threading.Thread(target=run) for _ in range(threads)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(timeout=60)
        assert len(made) == threads, "a thread hangs"
        return made

    def test_racing_threads_get_one_object(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for k in range(20):

                def make(k: int = k) -> tuple[Jaxpr, Lit]:
                    return chain(5, size=2000 + k), Lit.of(k + 0.25, Aval((2000 + k,), "float32"))

                made = self.race(make)
                assert len({(id(j), id(lit)) for j, lit in made}) == 1
        finally:
            sys.setswitchinterval(interval)

    def test_garbage_collection_during_interning(self) -> None:
        """The garbage collector calls into the tables at any allocation, in any thread, whichever locks it holds."""
        threshold = gc.get_threshold()
        gc.set_threshold(5)
        try:

            def churn() -> bool:
                one = True
                for k in range(40):
                    j = chain(2, size=3000 + k % 3)
                    cycle: list[object] = [j, Lit.of(k, j.ins[0].aval)]
                    cycle.append(cycle)
                    one &= chain(2, size=3000 + k % 3) is j
                return one

            assert all(self.race(churn))
        finally:
            gc.set_threshold(*threshold)


def test_isinstance_uses_no_abc_registry() -> None:
    """`isinstance` uses no ABC registry, so it costs as much as for plain classes. Abstract classes cannot be
    instantiated."""
    assert isinstance(ADD, Primitive)
    assert isinstance(ADD, Linear)
    Linear.register(int)
    assert not isinstance(3, Linear)
    assert not issubclass(int, Linear)
    with pytest.raises(TypeError, match="abstract"):
        Linear()  # type: ignore[abstract]


def test_a_function_with_the_name_of_eager_operations_keeps_it() -> None:
    def build(name: str) -> Jaxpr:
        b = Builder()
        return b.build((b.one(SIN, b.one(MUL, x := b.input(Aval((7,), dtypes.float32)), x)),), name)

    user = build("eag" + "er")
    assert build("other") is user
    assert user.name == "eager"
    del user
    operation = build(ir.EAGER_NAME)
    assert pickle.loads(pickle.dumps(ir.EAGER_NAME)) == "eager"
    assert build("other") is operation
    assert operation.name == "other"


def test_the_primitives_of_a_program_are_the_distinct_ones_of_its_equations() -> None:
    b = Builder()
    x = b.input(Aval((2,), dtypes.float32))
    for _ in range(3):
        x = b.one(MUL, b.one(SIN, x), x)
    assert b.build((x,)).prims == (SIN, MUL)
    assert Builder().build(()).prims == ()
