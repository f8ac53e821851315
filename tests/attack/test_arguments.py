"""Every public function with wrong arguments returns a result or raises an error of fxad. Flags accept bools only."""

from __future__ import annotations

import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import tree
from fxad.errors import ArgumentError, FxadError, shown
from fxad.sharding import PartitionSpec as Spec
from tests.api.refusals import check_refused
from tests.attack.public import MODULES, Function, P, functions
from tests.laws.budget import some

X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Silent:
    """An object without a text."""

    def __repr__(self) -> str:
        raise ValueError("no text")


HOSTILE: Final[tuple[Any, ...]] = (
    "no", "", b"ab", object(), len, int, {}, {7}, [[1], [1, 2]], np.ones(2), np.datetime64("2020-01-01"), 2**80, 10**30,
    -1, float("nan"), 1j, (1, "a"), [None], np.array("a"), (), (1, 1, 1, 1, 1), ((1, 2),), np.ones((2, 0)), True,
    Silent(),
)  # fmt: skip
HERE: Final = str(Path(__file__).parent)
SECONDS: Final = 30  # the most seconds that a call may take


class Hanging(BaseException):
    """The call does not end."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def traced(f: Function, /, **changed: object) -> None:
    """Traces the call, without a compilation."""
    fx.trace(lambda: (f.run(**changed), None)[1])


def comes_from_the_given_function(e: BaseException) -> bool:
    """Returns True if the error comes from a function that is an argument, or from the call of it."""
    frames = traceback.extract_tb(e.__traceback__)
    call = max(k for k, frame in enumerate(frames) if frame.name == "run" and frame.filename.startswith(HERE))
    return any(frame.filename.startswith(HERE) for frame in frames[call + 1 :]) or "<lambda>()" in str(e)


def flaw(f: Function, name: str, value: object) -> str:
    """Returns the problem of a call with one wrong argument, or ""."""
    parameter = f.parameters[name]
    if "Callable" in str(parameter.annotation) and callable(value):
        return ""  # a function may raise any error
    given = (value,) if parameter.kind is P.VAR_POSITIONAL else value
    try:
        with limited():
            traced(f, **{name: given})
    except FxadError:
        return ""
    except Hanging:
        return "does not end"
    except Exception as e:
        return "" if comes_from_the_given_function(e) else f"raises {type(e).__name__}: {e}"
    flag = str(parameter.annotation) in ("bool", "bool | None")
    return "is taken as a flag" if flag and type(value) is not bool else ""


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
@pytest.mark.parametrize("part", range(2))
def test_a_wrong_argument_raises_only_errors_of_fxad(module: Any, part: int) -> None:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns about such arguments
        for f in functions(module)[part::2]:
            for name in f.given:
                values = some(HOSTILE, 4, f"{f}({name})")
                found += [f"{f}({name}={shown(w, 40)}) {what}" for w in values if (what := flaw(f, name, w))]
    assert not found


# ---------------------------------------------------------------------------- a Python number in place of an array


def of_others(f: Function, /, **changed: object) -> tuple[fx.Program[..., Any], dict[str, Any]]:
    """Return the program of a call with arguments that are known, in its other arrays, and these."""
    arrays = {n: v for n, v in f.given.items() if n not in changed and isinstance(v, np.ndarray)}
    return fx.trace(lambda arrays: f.run(**{**arrays, **changed}), arrays), arrays


def differs_from_an_array(f: Function, name: str, /, **changed: object) -> str:
    """Return the difference of a call with a number from that with an array without axes, or ""."""
    given = f.given[name]
    number = 2 if given.dtype.kind == "i" else 2.0
    try:
        have, arrays = of_others(f, **changed, **{name: number})
        want, _ = of_others(f, **changed, **{name: np.asarray(number, given.dtype)})
    except FxadError:
        return ""  # it takes none of the two
    if [a.shape for a in have.out_avals] != [a.shape for a in want.out_avals]:
        return f"{have.out_avals} for {want.out_avals}"
    pairs = zip(tree.leaves(fx.interpret(have, arrays)), tree.leaves(fx.interpret(want, arrays)), strict=True)
    same = all([np.allclose(x, y, 1e-5, 1e-6, equal_nan=True) for x, y in pairs])
    return "" if same else "other values"


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_a_number_is_an_array_without_axes(module: Any) -> None:
    """Regression: `tensordot(x, 2.0, axes=0)` of a tracer was that of x with an array of its shape."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for f in functions(module):
            names = [n for n, v in f.given.items() if isinstance(v, np.ndarray) and v.ndim and v.dtype.kind in "fi"]
            ways: list[dict[str, Any]] = [{}, {"axes": 0}] if "axes" in f.parameters else [{}]
            for n in names:
                found += [f"{f}({n}, {way}): {what}" for way in ways if (what := differs_from_an_array(f, n, **way))]
    assert not found


# ------------------------------------------------------------------------- NumPy's integers and arrays for Python's


def others(value: object) -> list[object]:
    """Returns the same value in other types that NumPy and JAX accept."""
    if type(value) is bool:
        return [np.bool_(value), np.array(value)]
    if type(value) is int:
        return [np.int64(value), np.array(value), fnp.asarray(value)]
    if isinstance(value, tuple) and value and {*map(type, value)} == {int}:
        return [list(value), np.array(value), tuple([np.int32(v) for v in value])]
    return []


STATIC: Final = ("int", "bool", "Axes", "Shape", "Size", "Parts")


# Flags of transformations, and of functions outside of the modules of NumPy and `lax`.
FLAGS: Final[dict[str, Any]] = {
    "grad: has_aux": lambda v: fx.grad(fnp.sum, has_aux=v),
    "value_and_grad: has_aux": lambda v: fx.value_and_grad(fnp.sum, has_aux=v),
    "jacfwd: has_aux": lambda v: fx.jacfwd(fnp.sin, has_aux=v),
    "jacrev: has_aux": lambda v: fx.jacrev(fnp.sin, has_aux=v),
    "hessian: has_aux": lambda v: fx.hessian(fnp.sum, has_aux=v),
    "jvp: has_aux": lambda v: fx.jvp(fnp.sin, (X,), (X,), has_aux=v),
    "vjp: has_aux": lambda v: fx.vjp(fnp.sin, X, has_aux=v),
    "linearize: has_aux": lambda v: fx.linearize(fnp.sin, X, has_aux=v),
    "inverse: log_det": lambda v: fx.inverse(fnp.sin, log_det=v),
    "shard_map of sin: check_vma": lambda v: fx.shard_map(fnp.sin, {"i": 1}, Spec("i"), Spec("i"), check_vma=v),
    "io_callback: ordered": lambda v: fx.io_callback(lambda: None, None, ordered=v),
    "debug_print: ordered": lambda v: fx.debug_print("", ordered=v),
    "all_gather: tiled": lambda v: fx.vmap(lambda a: fx.lax.all_gather(a, "i", tiled=v), axis_name="i")(X),
    "psum_scatter: tiled": lambda v: fx.vmap(lambda a: fx.lax.psum_scatter(a, "i", tiled=v), axis_name="i")(X),
    "all_to_all: tiled": lambda v: fx.vmap(lambda a: fx.lax.all_to_all(a, "i", 0, 0, tiled=v), axis_name="i")(X),
}
# Other arguments of such functions. Regression: some values raised an error of Python or NumPy.
WORDS: Final[dict[str, Any]] = {
    "lower": lambda v: fx.lower(fx.trace(fnp.sin, X), units=v),
    "jit": lambda v: fx.jit(fnp.sin, units=v),
    "trace": lambda v: fx.trace(fnp.sin, X, axis_env=v),
    "pure_callback": lambda v: fx.pure_callback(np.sin, fx.Spec((3,), "float32"), X[0], vmap_method=v),
    "set_cpu_devices": lambda v: fx.set_cpu_devices(v),
    "parse": lambda v: fx.text.parse(v),
    "tree": lambda v: fx.tree.map(fnp.sin, {"a": X}, is_leaf=v),
}


MESH: Final = fx.sharding.make_mesh((1,), ("i",))
WHERE: Final = fx.NamedSharding(MESH, Spec())
# The beginning of a message for each argument. Regression: the argument accepted any value, or raised an error of
# Python.
KINDS: Final[dict[str, Any]] = {
    "grad of sum: static_argnums is": lambda v: fx.grad(fnp.sum, static_argnums=v)(X),
    "jit of sum: static_argnums is": lambda v: fx.jit(fnp.sum, static_argnums=v)(X),
    "remat of sum: static_argnames is": lambda v: fx.remat(fnp.sum, static_argnames=v)(X),
    "grad: reduce_axes is": lambda v: fx.grad(fnp.sum, reduce_axes=v)(X),
    "tree.map: f is": lambda v: fx.tree.map(v, X),
    "tree.map_with_path: f is": lambda v: fx.tree.map_with_path(v, X),
    "tree.reduce: function is": lambda v: fx.tree.reduce(v, X),
    "tree.unflatten: treedef is": lambda v: fx.tree.unflatten(v, [X]),
    "tree.flatten_up_to: structure is": lambda v: fx.tree.flatten_up_to(v, X),
    "tree.transpose: outer_treedef is": lambda v: fx.tree.transpose(v, None, X),
    "tree.paths: structure is": lambda v: fx.tree.paths(v),
    "make_mesh: ": lambda v: fx.make_mesh((1,), ("i",), devices=v),
    "make_array_from_callback: sharding is": lambda v: fx.make_array_from_callback((3,), v, lambda i: X[0][i]),
    "make_array_from_callback: data_callback must be": lambda v: fx.make_array_from_callback((3,), WHERE, v),
    "make_array_from_callback: shape": lambda v: fx.make_array_from_callback(v, WHERE, lambda i: X[0][i]),
    "picture: ": lambda v: fx.sharding.picture(v, (3,)),
    "devices: platform is": lambda v: fx.devices(v),
    "local_devices: process_index": lambda v: fx.local_devices(v),
    "device_count: backend is": lambda v: fx.device_count(v),
    "pmap: ": lambda v: fx.pmap(fnp.sin, devices=v)(X),
    "load: primitives": lambda v: fx.text.parse("", v),
    "typecheck: ": lambda v: fx.typecheck(v),
    "padded_size: n must be": lambda v: fx.padded_size(v),
    "bucketed: growth must be": lambda v: fx.bucketed(fnp.sin, ["n"], growth=v),
    "exponential_decay: decay_rate must be": lambda v: fx.optim.exponential_decay(0.1, 3, v),
    "cosine_decay_schedule: decay_steps must be": lambda v: fx.optim.cosine_decay_schedule(0.1, v),
    "warmup_cosine_decay_schedule: warmup_steps must be": lambda v: fx.optim.warmup_cosine_decay_schedule(0, 1, v, 9),
    "piecewise_constant_schedule: boundaries_and_scales is": lambda v: fx.optim.piecewise_constant_schedule(0.1, v),
    "join_schedules: schedules must be": lambda v: fx.optim.join_schedules(v, []),
    "minimize: fun must be": lambda v: fx.scipy.optimize.minimize(v, X[0], method="BFGS"),
    "RegularGridInterpolator: points": lambda v: fx.scipy.interpolate.RegularGridInterpolator(v, X[0]),
    "resize: antialias must be": lambda v: fx.image.resize(X, (2, 2), "linear", v),
}


@pytest.mark.parametrize("which", KINDS)
def test_an_argument_of_another_kind_is_named(which: str) -> None:
    values: tuple[Any, ...] = (object(), 1j, np.ones((3, 3)), np.datetime64("2020-01-01"))
    for value in values:
        if which in ("make_mesh: ", "load: primitives", "join_schedules: schedules must be") and np.ndim(value):
            continue  # a sequence with an item that is rejected
        if which == "RegularGridInterpolator: points" and np.ndim(value):
            continue
        with pytest.raises(FxadError) as e:
            KINDS[which](value)
        assert e.value.message.startswith(which.replace("load", "parse"))


def test_sizes_that_do_not_grow_are_refused() -> None:
    for least, growth in ((0, 2.0), (8, 1.0), (8, float("nan"))):
        with pytest.raises(FxadError, match=r"^padded_size: least is"):
            fx.padded_size(100, least, growth)  # regression: it did not end


def test_a_reduction_returns_a_scalar_for_each_operand() -> None:
    computations: list[Any] = [lambda a, b: None, lambda a, b: (a, b)]
    for computation in computations:
        calls: list[Any] = [
            lambda f=computation: fx.lax.reduce(X, np.float32(0), f, (0,)),
            lambda f=computation: fx.lax.reduce_window(X, np.float32(0), f, (2, 2), (1, 1), "VALID"),
        ]
        for call in calls:
            with pytest.raises(FxadError, match=r"computation <lambda> returns .*, and the operands are "):
                call()


class FailingExport:
    """An object whose DLPack export raises."""

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("not now")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_an_object_whose_dlpack_export_raises() -> None:
    lent: Any = FailingExport()
    kind: Any = fx.Array
    with pytest.raises(ArgumentError) as e:
        fnp.add(lent, 1)
    assert e.value.message == "add: argument 0: the __dlpack__ of a FailingExport raises BufferError: not now"
    with pytest.raises(ArgumentError, match="is not an array"):
        fnp.asarray(kind)


def test_impossible_sizes_are_refused_at_once() -> None:
    calls: list[Any] = [
        lambda: fnp.fromiter([1], "float32", 2**40),
        lambda: fnp.diag_indices(3, 2**40),
        lambda: fnp.polyint(X[0], 2**40),
        lambda: fx.scipy.linalg.pascal(2**40),
        lambda: fx.scipy.linalg.pascal(-1),
        lambda: fx.scipy.linalg.invhilbert(2**20),
        lambda: fx.scipy.special.bernoulli(2**40),
        lambda: fx.lax.conv_general_dilated_patches(np.ones((1, 1, 4, 4)), (2**40, 2**40), (1, 1), "VALID"),
    ]
    for call in calls:
        with limited(), pytest.raises(FxadError):
            call()
    assert fx.trace(lambda x: fnp.resize(x, 2**30), X).out_avals[0].shape == (2**30,)
    numbers = np.asarray(fx.scipy.special.bernoulli(300))
    want = np.array([-2.0938006e38, 0, np.inf, -np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(numbers[[64, 65, 66, 68, 300]], want)
    np.testing.assert_array_equal(np.asarray(fx.scipy.linalg.pascal(5, "lower"))[4], [1, 4, 6, 4, 1])
    np.testing.assert_array_equal(np.asarray(fnp.resize(X, (3, 7))), np.resize(X, (3, 7)))


def test_decimals_beyond_the_dtype() -> None:
    x = np.array([1.25, -7.5, 0], np.float32)
    for decimals in (39, 400, 2**31):
        np.testing.assert_array_equal(np.asarray(fnp.round(x, decimals)), x)
        np.testing.assert_array_equal(np.asarray(fnp.round(x, -decimals)), [0, 0, 0])


@pytest.mark.parametrize("which", FLAGS)
def test_a_flag_of_a_transformation_is_a_bool(which: str) -> None:
    values: tuple[Any, ...] = ("no", 1, None, [], np.ones(2))
    for value in values:
        with pytest.raises(ArgumentError) as e:
            FLAGS[which](value)
        assert e.value.message.startswith(f"{which} must be True or False, got ")


@pytest.mark.parametrize("which", WORDS)
def test_wrong_options_are_refused(which: str) -> None:
    values: tuple[Any, ...] = (np.ones(2), [1], 2.5, b"ab")
    for value in values:
        with pytest.raises(FxadError) as e:
            WORDS[which](value)
        assert e.value.message.startswith(which)


def of_two(a: Any, b: Any) -> Any:
    return (a * b).sum()


def or_twice(flag: bool, x: Any) -> Any:
    return x.sum() * 2 if flag else x.sum()


gradient: Any = fx.grad  # the overloads of grad do not accept all types of argnums

# Arguments that are numbers of arguments, or sizes: given as one integer, and as several.
NUMBERS: Final[dict[str, Any]] = {
    "grad": lambda k, ks: (gradient(of_two, argnums=k)(X, X), gradient(of_two, argnums=ks)(X, X)),
    "grad of a program": lambda k, _: gradient(fx.trace(of_two, X, X), argnums=k)(X, X),
    "holomorphic": lambda k, _: fx.grad(of_two, argnums=k, holomorphic=True)(X + 0j, X + 0j),
    "jacfwd": lambda k, ks: (fx.jacfwd(of_two, argnums=k)(X, X), fx.jacfwd(of_two, argnums=ks)(X, X)),
    "hessian": lambda k, _: fx.hessian(of_two, argnums=k)(X[0], X[0]),
    "linearize": lambda _, ks: fx.linearize(of_two, X, X, argnums=ks)[1](X),
    "transpose": lambda k, _: fx.transpose(fx.trace(lambda a: 2 * a, X), argnums=k)(X),
    "inverse": lambda k, _: fx.inverse(fx.trace(lambda a, b: a + b, X, X), argnums=k)(X, X),
    "jit": lambda k, ks: (fx.jit(or_twice, static_argnums=k)(True, X), fx.jit(or_twice, static_argnums=ks)(True, X)),
    "remat": lambda k, _: fx.remat(or_twice, static_argnums=k)(True, X),
    "vmap": lambda k, _: fx.vmap(or_twice, in_axes=(None, k), static_argnums=k)(True, X),
    "pmap": lambda k, ks: (
        fx.pmap(or_twice, in_axes=(None, 0), static_broadcasted_argnums=k)(True, X[:1]),
        fx.soft_pmap(lambda v: v, devices=k + 1)(X),
        fx.pmap(lambda v: v, donate_argnums=ks)(fx.asarray(X[:1])),
    ),
    "custom_jvp": lambda _, ks: fx.custom_jvp(or_twice, nondiff_argnums=ks).nondiff_argnums,
    "def_vmap": lambda k, _: bool(fx.custom_vmap(lambda v: v).def_vmap(k + 3)),
    "definverse": lambda k, _: bool(fx.custom_inverse(lambda a, b: a + b).definverse(lambda r, a: (a, r - a), keep=k)),
    "remat of a budget": lambda k, _: fx.remat(fx.trace(lambda v: fnp.sin(v).sum(), X), budget=k + 10**6)(X),
    "lbfgs": lambda k, _: bool(fx.optim.lbfgs(memory_size=k + 3)),
    "hsplit": lambda k, _: fnp.hsplit(X, k + 2),
    "unwrap": lambda k, _: fnp.unwrap(np.array([1, 7, 2]), period=k + 6).dtype.itemsize,
    "minimize": lambda k, _: (
        fx.scipy.optimize.minimize(of_two, X[0], (X[0],), method="BFGS", options={"maxiter": k + 1}).nit
    ),
    "axis_env": lambda k, _: fx.trace(lambda v: fx.lax.psum(v, "i"), X, axis_env={"i": k + 2}).jaxpr.digest,
    "shard_map": lambda k, _: fx.shard_map(lambda v: v, {"i": k + 1}, Spec("i"), Spec("i"))(X),
}


@pytest.mark.parametrize("which", NUMBERS)
def test_a_number_of_an_argument_may_have_any_integer_type(which: str) -> None:
    want = NUMBERS[which](0, (0,))
    for k, ks in ((np.int64(0), [np.uint8(0)]), (np.array(0), np.array([0])), (fx.asarray(np.int32(0)), range(1))):
        found = NUMBERS[which](k, ks)
        assert fx.tree.structure(found) == fx.tree.structure(want)
        for a, b in zip(fx.tree.leaves(found), fx.tree.leaves(want), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_donate_takes_integers_of_numpy() -> None:
    numbers: tuple[Any, ...] = (np.int64(0), np.array([0]), (np.uint8(0),))
    for k in numbers:
        x, y = fx.asarray(X) + 0, fx.asarray(X) + 0
        fx.jit(lambda a: a + 1, donate=k)(x)
        fx.jit(lambda a: a + 1, donate_argnums=k)(y)
        assert x.is_deleted()
        assert y.is_deleted()


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_an_integer_argument_may_have_any_integer_type(module: Any) -> None:
    refused = []
    for f in functions(module):
        for name, value in f.given.items():
            kind = str(f.parameters[name].annotation)
            if f.parameters[name].kind is P.VAR_POSITIONAL or not any(part in kind for part in STATIC):
                continue
            for other in others(value):
                try:
                    traced(f, **{name: other})
                except FxadError as e:
                    refused.append(f"{f}({name}={other!r}): {e.message}")
    assert not refused


def _own(value: Any) -> Any:
    return value  # typed as Any


def _rows(*entries: str) -> fx.NamedSharding:
    return fx.NamedSharding(fx.make_mesh((1,), ("i",)), fx.P(*entries))


# The whole message of errors whose beginning the laws above check.
MESSAGES: Final[dict[str, tuple[Any, str]]] = {
    "piecewise_constant_schedule: boundaries_and_scales is an int: 3": (
        lambda: fx.optim.piecewise_constant_schedule(0.1, _own(3)),
        "give a dict: {100: 0.1}",
    ),
    "pascal: n is -1, and the matrix is computed on the host": (
        lambda: fx.scipy.linalg.pascal(-1),
        "give 0 to 4,096",
    ),
    "minimize: options is an int, not a mapping": (
        lambda: fx.scipy.optimize.minimize(fnp.sum, X[0], method="BFGS", options=_own(3)),
        "use a dict",
    ),
    "welch: window is f64[], not a vector": (
        lambda: fx.scipy.signal.welch(X, window=np.array(1.0)),
        "give one value for each place",
    ),
    "bernoulli: n is 1099511627776, and the numbers are computed on the host": (
        lambda: fx.scipy.special.bernoulli(2**40),
        "give less",
    ),
    "picture: an int is not a sharding: 3": (lambda: fx.sharding.picture(_own(3), (3,)), "give x.sharding"),
    "NamedSharding: mesh is a dict: {'i': 1}": (
        lambda: fx.NamedSharding(_own({"i": 1}), fx.P("i")),
        "use make_mesh",
    ),
    "NamedSharding: spec is a tuple: ('i',)": (
        lambda: fx.NamedSharding(fx.make_mesh((1,), ("i",)), _own(("i",))),
        "give a PartitionSpec; PartitionSpec() is the whole array on each device",
    ),
    "SingleDeviceSharding: an int is not a device: 3": (
        lambda: fx.sharding.SingleDeviceSharding(_own(3)),
        "use fxad.devices()",
    ),
    "make_array_from_process_local_data: local_data: PartitionSpec('i') has 1 entries, f32[] has 0 axes": (
        lambda: fx.make_array_from_process_local_data(_rows("i"), 1.0),
        "give at most one entry for each axis",
    ),
    "make_array_from_process_local_data: local_data: PartitionSpec('j') names axis 'j', the mesh has 'i'": (
        lambda: fx.make_array_from_process_local_data(_rows("j"), X),
        "name axes of the mesh",
    ),
    "make_array_from_process_local_data: local_data: PartitionSpec('i', 'i') names axis 'i' twice": (
        lambda: fx.make_array_from_process_local_data(_rows("i", "i"), X),
        "divide one axis by it",
    ),
    "make_array_from_process_local_data: sharding is an int: 3": (
        lambda: fx.make_array_from_process_local_data(_own(3), X),
        "give NamedSharding(mesh, spec)",
    ),
    "make_array_from_process_local_data: global_shape must be a sequence, got an int: 3": (
        lambda: fx.make_array_from_process_local_data(_rows("i"), X, _own(3)),
        "give a tuple or a list",
    ),
    "devices: platform is an int: 3": (lambda: fx.devices(_own(3)), 'give a name: "cpu", "cuda"'),
    "add: argument 0: the __dlpack__ of a FailingExport raises BufferError: not now": (
        lambda: fnp.add(_own(FailingExport()), 1),
        "give np.asarray of it",
    ),
    "typecheck: an int is not a jaxpr: 3": (lambda: fx.typecheck(_own(3)), "give program.jaxpr"),
    "diag_indices: ndim is 65": (lambda: fnp.diag_indices(3, 65), "arrays have 0 to 64 axes"),
    "polyint: order 1,001 is above 1,000": (lambda: fnp.polyint(X[0], 1001), "integrate fewer times"),
    "conv_general_dilated_patches: a window has 90,000 places": (
        lambda: fx.lax.conv_general_dilated_patches(np.ones((1, 1, 4, 4)), (300, 300), (1, 1), [(300, 300)] * 2),
        "give one of at most 65,536",
    ),
    "make_array_from_callback: sharding is an int: 3": (
        lambda: fx.make_array_from_callback((3,), _own(3), lambda i: X[0][i]),
        "give NamedSharding(mesh, spec)",
    ),
    "tree.map: f is an int, not a function: 3": (lambda: fx.tree.map(_own(3), X), "give something that can be called"),
    "tree.paths: structure is an int, not a structure: 3": (
        lambda: fx.tree.paths(_own(3)),
        "give what tree.structure returns",
    ),
    "tree.unflatten: leaves is an int, not a sequence: 3": (
        lambda: fx.tree.unflatten(fx.tree.structure([1]), _own(3)),
        "give a list",
    ),
    "tree.map_with_path: f is an int: 3": (lambda: fx.tree.map_with_path(_own(3), X), "give a function"),
    "tree: is_leaf_takes_path is an int: 3": (
        lambda: fx.tree.leaves_with_path(X, is_leaf_takes_path=_own(3)),
        "give True or False",
    ),
    "tree.keystr: an int is not a path, or a str not a separator": (
        lambda: fx.tree.keystr(_own(3)),
        "give a tuple of keys, and a str",
    ),
    "parse: primitives is an int: 3": (
        lambda: fx.text.parse("", _own(3)),
        "give classes: primitives=[MyPrimitive]",
    ),
    "reduce: computation <lambda> returns (), and the operands are *": (
        lambda: fx.lax.reduce(X, np.float32(0), _own(lambda a, b: ()), (0,)),
        "return one scalar for each operand",
    ),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_and_the_remedy(message: str) -> None:
    call, remedy = MESSAGES[message]
    check_refused(call, FxadError, message, remedy)
