"""Errors of mask and related functions for bad input: the whole message, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import (
    ArgumentError,
    CheckError,
    DTypeError,
    FxadError,
    ParameterError,
    ShapeError,
    SizeError,
    TreeError,
)
from fxad.lower import lower_jaxpr

X = np.ones((4, 3), "float32")
V = np.ones(4, "float32")
FITTING = "one size for each axis; _ is the size that the array has"
AGREEING = "a name stands for one number: give arrays, or padding, whose sizes agree"
INTEGER = "give an int, or an array of one integer"
MAPPED = "sizes of a batch are mapped: vmap(lambda x, n: masked(x, sizes={'n': n}))(xs, lengths)"
NAMED = "give each size that in_shapes names, and no other"


def f(x: Any) -> Any:
    return x * 2


def g(x: Any, y: Any) -> Any:
    return x + y


def third(x: Any, y: Any, z: Any) -> Any:
    return z * 2


def on_the_host(x: Any) -> Any:
    return fx.pure_callback(np.cumsum, fx.Spec(x.shape, x.dtype), x)


def program() -> fx.Program[..., Any]:
    return fx.trace(f, fx.Spec("(n, 3)"))


def own_sizes(x: Any, *, sizes: Any) -> Any:
    return x * sizes


SIZES_TAKEN = "mask: own_sizes takes a keyword argument named sizes, as its masked form does"


def masked(f: Callable[..., Any], *shapes: str) -> object:
    return fx.mask(f, shapes)(*[V] * len(shapes), sizes={"n": 2, **({"k": 2} if "k" in shapes else {})})


CASES: list[tuple[Callable[[], object], type[FxadError], str, str]] = [
    (
        lambda: fx.mask(program(), ("n",)),
        ArgumentError,
        "mask: f is a Program, whose shapes are known",
        "leave out in_shapes, or pass the function",
    ),
    (
        lambda: fx.mask(f),
        ArgumentError,
        "mask: the shapes of f are not known",
        "mask(f, in_shapes=...) for a function; padding=... is for a Program",
    ),
    (
        lambda: fx.mask(program(), padding={"k": 3}),
        ArgumentError,
        "mask: k is not a size of f, which has n",
        "give the sizes that its shapes name",
    ),
    (
        lambda: fx.mask(program(), padding={"n": cast("int", 2.5)}),
        ArgumentError,
        "mask: the padding of n is 2.5, not an int",
        "give the largest size, as an int",
    ),
    (
        lambda: fx.mask(third, ("n", "m", "n-m"))(V, V[:3], V[:1], sizes={"n": 2, "m": 1}),
        ShapeError,
        "mask of third: size 0 of argument z is 1, but -m + n is up to 4: m up to 3, n up to 4",
        "pad each argument to its largest size",
    ),
    (
        lambda: fx.mask(third, ("_", "m", "n-m"))(V, V[:3], V[:1], sizes={"n": 2, "m": 1}),
        ShapeError,
        "mask of third: size 0 of argument z is 1, which does not determine the largest sizes in -m + n",
        "give each named size alone in some shape, as in 'n'",
    ),
    (
        lambda: fx.mask(third, ("n", "m", "n-m"))(V, V, V, sizes={"n": 2, "m": 3}),
        ShapeError,
        "mask of third: size 0 of argument z is -m + n, which is -1 for m = 3, n = 2",
        "give sizes for which each dimension is 0 or more",
    ),
    (
        lambda: fx.mask(fx.trace(f, fx.Spec("n>=4")), padding={"n": 2}),
        ShapeError,
        "mask: the padding of n is 2, and f assumes n >= 4",
        "give the largest size that is to be padded",
    ),
    (
        lambda: fx.mask(program(), padding=cast("Any", ["n"])),
        ArgumentError,
        "mask: the padding is a list, not a mapping of names to sizes: ['n']",
        'padding={"n": 32}',
    ),
    (
        lambda: fx.mask(program(), padding={"n": 2**31}),
        ShapeError,
        "mask: the padding of n is 2147483648, and sizes are i32[]",
        "give a number less than 2**31",
    ),
    (
        lambda: fx.mask(fx.trace(fnp.count_nonzero, fx.Spec("(n, m)")), padding={"n": 2**16, "m": 2**16}),
        ShapeError,
        "mask: m*n is 4294967296, and a program of symbolic shape counts with int32",
        "trace the function at these sizes",
    ),
    (
        lambda: fx.mask(program(), padding={"n": -1}),
        ShapeError,
        "mask: the padding of n is -1, and f assumes n >= 0",
        "give the largest size that is to be padded",
    ),
    *[
        (call, ArgumentError, SIZES_TAKEN, "rename that argument, or pass it by position")
        for call in (
            lambda: fx.mask(fx.trace(own_sizes, fx.Spec("n"), sizes=2.0), padding={"n": 3}),
            lambda: fx.mask(fx.trace(own_sizes, fx.Spec("n"), sizes=2.0)),
            lambda: fx.mask(own_sizes, ("n",)),
        )
    ],
    (
        lambda: fx.mask(program())(V, sizes={"n": 2}),
        ShapeError,
        "mask of f: argument x is f32[4], its shape should be (n, 3)",
        FITTING,
    ),
    (
        lambda: fx.mask(program())(X.astype("int32"), sizes={"n": 2}),
        DTypeError,
        "mask of f: argument x has dtype int32, not float32",
        "convert it with astype; nothing is converted silently",
    ),
    (
        lambda: fx.mask(program())(X, X, sizes={"n": 2}),
        TreeError,
        "mask of f: the arguments are ((*, *), {}), the program takes ((*,), {})",
        "a masked program takes the arguments of the program, padded, and sizes",
    ),
    (
        lambda: fx.mask(g, ("n",))(V, V, sizes={"n": 2}),
        ArgumentError,
        "mask of g: in_shapes has 1 entry for 2 positional arguments",
        "give one entry per positional argument; None for an array without named sizes",
    ),
    (
        lambda: fx.mask(f, ("n",))(X, sizes={"n": 2}),
        ShapeError,
        "mask of f: in_shapes says (n,) for argument x, which is f32[4,3]",
        FITTING,
    ),
    (
        lambda: fx.mask(f, ("(n, 2)",))(X, sizes={"n": 2}),
        ShapeError,
        "mask of f: in_shapes says 2 for size 1 of argument x, which is 3",
        FITTING,
    ),
    (
        lambda: fx.mask(g, ("n", "n"))(V, np.ones(5, "float32"), sizes={"n": 2}),
        ShapeError,
        "mask of g: size 0 of argument y is 5, but n is 4: n = 4 by size 0 of argument x",
        AGREEING,
    ),
    (
        lambda: fx.mask(f, ("2*n+1",))(V, sizes={"n": 1}),
        ShapeError,
        "mask of f: size 0 of argument x is 4, which is not 2*n + 1 for any n >= 0",
        AGREEING,
    ),
    (
        lambda: fx.mask(f, ("n",))(V, sizes=cast("Any", 3)),
        ArgumentError,
        "mask of f: sizes is an int, not a mapping of names to sizes: 3",
        'sizes={"n": n}',
    ),
    (
        lambda: fx.mask(lambda x, y: (x, y), ("n", "m"))(V, V),
        ArgumentError,
        "mask of <lambda>: the sizes are missing: m, n",
        'sizes={"n": n}',
    ),
    (lambda: fx.mask(f, ("n",))(V, sizes={}), ArgumentError, "mask of f: the size n is missing", 'sizes={"n": ...}'),
    (
        lambda: fx.mask(f, ("n",))(V, sizes={"n": 2, "m": 1}),
        ArgumentError,
        "mask of f: m is not a size of its shapes, which have n",
        NAMED,
    ),
    (
        lambda: fx.mask(f, ("n",))(V, sizes={"n": 5}),
        ShapeError,
        "mask of f: the size n is 5, the padded arguments hold 0 to 4",
        "pad the arguments to the largest size",
    ),
    (
        lambda: fx.mask(f, ("n>=2",))(V, sizes={"n": 1}),
        ShapeError,
        "mask of f: the size n is 1, the padded arguments hold 2 to 4",
        "give a size of 2 or more",
    ),
    (
        lambda: fx.mask(f, ("n",))(V, sizes={"n": 2.5}),
        ArgumentError,
        "mask of f: the size n is a float, not an integer: 2.5",
        INTEGER,
    ),
    (
        lambda: fx.mask(f, ("n",))(V, sizes={"n": np.float32(2)}),
        ArgumentError,
        "mask of f: the size n is np.float32(2.0), not an integer",
        INTEGER,
    ),
    (
        lambda: fx.mask(f, ("n",))(V, sizes={"n": fnp.asarray(2.0)}),
        ShapeError,
        "mask of f: the size n is f32[], not a single integer",
        INTEGER,
    ),
    (
        lambda: fx.mask(f, ("n",))(V, sizes={"n": [1, 2]}),
        ArgumentError,
        "mask of f: the size n is a list, not an integer: [1, 2]",
        MAPPED,
    ),
    (
        lambda: fx.mask(f, ("n",))(V, sizes={"n": fnp.asarray([1, 2])}),
        ShapeError,
        "mask of f: the size n is i32[2], not a single integer",
        MAPPED,
    ),
    (
        lambda: fx.mask(lambda x: {"y": x[1:]}, ("n>=1",), {"y": "n"})(V, sizes={"n": 2}),
        ShapeError,
        "mask of <lambda>: Output shapes should be (n,) but are (n - 1,), at result['y']",
        "correct out_shapes, or leave it out",
    ),
    (
        lambda: fx.shapecheck(lambda x: x, ("n",), "n - 1"),
        ShapeError,
        "shapecheck of <lambda>: Output shapes should be (n - 1,) but are (n,)",
        "correct out_shapes, or leave it out",
    ),
    (
        lambda: fx.shapecheck(lambda x: x[2::3], ("2*n",), "2*n//3"),
        ShapeError,
        "shapecheck of <lambda>: Output shapes (2*n//3,) could not be shown equal to ((2*max(0, n - 1) + 2)//3,)",
        "write the sizes in this other form, or leave out out_shapes",
    ),
    (
        lambda: fx.shapecheck(f, ("(n, _)",)),
        ArgumentError,
        "shapecheck: '(n, _)' has a size '_', and there is no array",
        "give the number",
    ),
    (
        lambda: fx.mask(on_the_host, ("n>=1",))(V, sizes={"n": 2}),
        SizeError,
        "mask: host_call is not masked: the host takes arrays of the true size, which a padded program does not have",
        "mask the functions around it, or specialize the program to each size",
    ),
    (
        lambda: masked(lambda x: fnp.split(x, 2)[0], "n"),
        ShapeError,
        "split: axis 0 of size n does not divide into 2 equal parts",
        "name the size as a multiple, as in '2*n'",
    ),
    (
        lambda: masked(lambda x: x.reshape((-1, 2)), "n"),
        ShapeError,
        "reshape: f32[n] has n elements, which do not fill shape (-1, 2)",
        "name the size as a multiple, as in '2*n'",
    ),
    (
        lambda: masked(lambda x, y: x[:: y.shape[0]], "k", "n"),
        SizeError,
        "size: n > 0 is not decided by n >= 0",
        "state an assumption where the size is named, as in 'n>=1', or use fxad.numpy on the value of the size",
    ),
    (
        lambda: masked(lambda x: sum(x), "n"),
        SizeError,
        "iter: axis 0 of f32[n] has no number of elements here",
        "lax.scan, lax.map and vmap go over an axis of any size",
    ),
    (
        lambda: masked(lambda x: x / len(x), "n"),
        SizeError,
        "len: axis 0 of f32[n] has no number of elements here",
        "x.shape[0] is a size, with which you can calculate",
    ),
    (
        lambda: lower_jaxpr(program().jaxpr),
        SizeError,
        "lower: a value of type f32[n,3] has no fixed size",
        "specialize the program, or mask it, before it is lowered",
    ),
    (
        lambda: fx.jit(program(), symbolic="n"),
        ArgumentError,
        "jit of f: symbolic names sizes of the arguments of a function, and f is a Program",
        "leave out symbolic: trace(f, Spec('(n, 3)')) gives a program for every size",
    ),
    (
        lambda: fx.bucketed(f, ("n",), least=0),
        ParameterError,
        "bucketed: least is 0 and growth 2.0",
        "least is at least 1, growth more than 1, and finite",
    ),
    (
        lambda: fx.bucketed(f, ("n",), growth=float("inf")),
        ParameterError,
        "bucketed: least is 8 and growth inf",
        "least is at least 1, growth more than 1, and finite",
    ),
    (
        lambda: fx.padded_size(30, growth=1),
        ParameterError,
        "padded_size: least is 8 and growth 1.0",
        "least is at least 1, growth more than 1, and finite",
    ),
    (
        lambda: list(fx.ragged_batches([V], 2, least=0)),
        ParameterError,
        "ragged_batches: least is 0 and growth 2.0",
        "least is at least 1, growth more than 1, and finite",
    ),
    (
        lambda: fx.padded_size(-1),
        ParameterError,
        "padded_size: n is -1",
        "give a number of elements",
    ),
    (
        lambda: list(fx.ragged_batches([V], 2, length=lambda _: -1)),
        ParameterError,
        "ragged_batches: the result of length is -1",
        "return a number of elements",
    ),
    (
        lambda: fx.ragged_batches([V], 2, length=cast("Any", 3)),
        ArgumentError,
        "ragged_batches: length must be a function, got an int: 3",
        "give something that can be called",
    ),
    (
        lambda: fx.ragged_batches(cast("Any", 3), 2),
        ArgumentError,
        "ragged_batches: examples is an int: 3",
        "give a sequence of trees",
    ),
    (
        lambda: fx.mask(f, "(n,)", check=cast("Any", 3)),
        ArgumentError,
        "mask: check must be True or False, got an int: 3",
        "it is static: a Python value, which cannot come from a traced array",
    ),
    (
        lambda: fx.mask(lambda x, mode: x, ("(n,)", None))(V, "fast", sizes={"n": 2}),
        ArgumentError,
        "mask of <lambda>: argument mode: a str is not an array: 'fast'",
        "it is static: leave it out and close over it, or name its argument in static_argnames of jit, grad, vmap, ...",
    ),
    (
        lambda: fx.ragged_batches([V], 0),
        ParameterError,
        "ragged_batches: batch_size is 0",
        "give a number from 1 on",
    ),
    (
        lambda: list(fx.ragged_batches([(V, 1.0, X), (V, 2.0, X[:, :2])], 2)),
        ShapeError,
        "ragged_batches: example[2] is float32[4,3] in one example and float32[4,2] in another",
        "examples differ in their length only",
    ),
    (
        lambda: list(fx.ragged_batches([V, V.astype("float64")], 2)),
        ShapeError,
        "ragged_batches: example is float32[4] in one example and float64[4] in another",
        "examples differ in their length only",
    ),
    (
        lambda: list(fx.ragged_batches([(X, V), (X, V[:3])], 2, ragged=True)),
        ShapeError,
        "ragged_batches: example[1] is float32[3] in an example of length 4",
        "give False in ragged for an array whose first axis does not have the length",
    ),
    (
        lambda: list(fx.ragged_batches([(X, V)], 2, ragged=(True, 1))),
        TreeError,
        "ragged_batches: ragged: (True, 1) is not a tree prefix of (*, *)",
        "give one entry for the whole tree, or a tree whose entries stand for whole subtrees",
    ),
    (
        lambda: list(fx.ragged_batches([(X, V)], 2, ragged=False)),
        ArgumentError,
        "ragged_batches: an example has no ragged array with axes",
        "give length=",
    ),
    (
        lambda: list(fx.ragged_batches([1.0], 2)),
        ArgumentError,
        "ragged_batches: an example has no array with axes",
        "give length=",
    ),
    (
        lambda: list(fx.ragged_batches([V], 2, length=lambda _: "long")),  # type: ignore[arg-type, return-value]
        ArgumentError,
        "ragged_batches: the result of length must be an integer, got a str: 'long'",
        "it is static: a Python value, which cannot come from a traced array",
    ),
    (
        lambda: fx.specialize(program(), n=-1),
        ShapeError,
        "specialize: n is -1, the program assumes n >= 0",
        "trace it with a weaker assumption, if it has a meaning there",
    ),
    (
        lambda: fx.specialize(cast("Any", 3), n=1),
        ArgumentError,
        "specialize: takes a Program, got 3",
        "trace the function first: specialize(trace(f, *examples), n=...)",
    ),
    (
        lambda: fx.specialize(program(), n=cast("int", "3")),
        ArgumentError,
        "specialize: n is '3', not an int",
        "give a number of elements",
    ),
]


@pytest.mark.parametrize(("use", "error", "message", "remedy"), CASES, ids=[c[2][:60] for c in CASES])
def test_message(use: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        use()
    assert caught.value.message == message or (message.endswith(": ") and caught.value.message.startswith(message))
    assert caught.value.remedy == remedy


def test_values_of_sizes_are_checked_when_the_program_runs() -> None:
    checked = fx.mask(f, ("n>=1",), check=True)
    masked = fx.jit(lambda x, n: checked(x, sizes={"n": n}))
    assert masked(V, fnp.asarray(3)).shape == (4,)
    for n in (7, 0, -1):
        with pytest.raises(CheckError) as caught:
            masked(V, fnp.asarray(n))
        assert caught.value.message == f"error_if: mask of f: the size n is {n}, the padded arguments hold 1 to 4"
    ragged = fx.vmap(lambda x, n: checked(x, sizes={"n": n}))
    assert ragged(np.stack([V, V]), np.array([1, 4], np.int32)).shape == (2, 4)
    for run in (ragged, fx.jit(ragged)):
        with pytest.raises(CheckError) as caught:
            run(np.stack([V, V]), np.array([1, 5], np.int32))
        assert caught.value.message == (
            "error_if: mask of f: the size n is 5, the padded arguments hold 1 to 4 (in example 1)"
        )


# Each case: what Python code computes from a size, the size, and the answer or the error. `==` compares expressions.
ASKED: list[tuple[str, Callable[[Any], object], str, object]] = [
    ("//", lambda n: n // 2, "n", "n//2"),
    ("%", lambda n: n % 2, "n", "n - 2*(n//2)"),
    ("divmod", lambda n: divmod(2 * n, 2), "n", "(n, 0)"),
    ("max", lambda n: max(n, 0), "n", "n"),
    ("min", lambda n: min(n, 4), "n>=5", "4"),
    ("abs", lambda n: abs(n - 1), "n>=1", "n - 1"),
    ("round", round, "n", "n"),
    ("sum", lambda n: sum((n, 1, n)), "n", "2*n + 1"),
    ("sorted", lambda n: sorted((n + 1, n)), "n", "[n, n + 1]"),
    ("text", lambda n: f"{n} {n + 1!r} {n:>3}", "n", "n n + 1   n"),
    ("equal", lambda n: (n == 3, n + 1 == 1 + n, n in (3, n)), "n", "(False, True, True)"),
    ("truth", lambda n: not n + 1, "n", "False"),
    ("truth of a negative size", lambda n: bool(-n - 1), "n", "True"),
    ("truth decided by an assumption", lambda n: n or 1, "n>=1", "n"),
    ("truth undecided", bool, "n", ("whether n is 0 is not decided by n >= 0", "n>=1")),
    ("not", lambda n: not n - 2, "n", ("whether n - 2 is 0 is not decided by n >= 0", "n>=3")),
    ("or", lambda n: n or 1, "n", ("whether n is 0 is not decided by n >= 0", "n>=1")),
    ("any", lambda n: any((0, n)), "n", ("whether n is 0 is not decided by n >= 0", "n>=1")),
    ("all", lambda n: all((1, n - 1)), "n>=1", ("whether n - 1 is 0 is not decided by n >= 1", "n>=2")),
    ("hash", lambda n: {n: 1}[n + 0], "n", "1"),
    (">", lambda n: n > 3, "n", ("n > 3 is not decided by n >= 0", "n>=4")),
    ("max undecided", lambda n: max(n, 3), "n>=1", ("n < 3 is not decided by n >= 1", "n>=3")),
    ("of two", lambda n: 2 * n >= 7, "n", ("2*n >= 7 is not decided by n >= 0", "n>=4")),
    ("range", lambda n: list(range(n)), "n", ("n has no value while the program is of symbolic shape", None)),
    ("int", int, "n", ("n has no value while the program is of symbolic shape", None)),
    ("float", float, "n", ("n has no value while the program is of symbolic shape", None)),
    ("list", lambda n: [0] * n, "n", ("n has no value while the program is of symbolic shape", None)),
    ("np.zeros", lambda n: np.zeros((n,)), "n", ("n has no value while the program is of symbolic shape", None)),
    ("half", lambda n: n / 2, "n", ("n / 2 is not a size", None)),
    ("root", lambda n: n**0.5, "n", ("n ** 0.5 is not a size", None)),
]


@pytest.mark.parametrize(("ask", "shape", "answer"), [case[1:] for case in ASKED], ids=[case[0] for case in ASKED])
def test_python_operations_on_a_size(ask: Callable[[Any], object], shape: str, answer: object) -> None:
    def asking(x: Any) -> Any:
        actual.append(str(ask(x.shape[0])))
        return x

    actual: list[str] = []
    if isinstance(answer, str):
        fx.trace(asking, fx.Spec(shape))
        assert actual == [answer]
        return
    assert isinstance(answer, tuple)
    with pytest.raises(SizeError) as caught:
        fx.trace(asking, fx.Spec(shape))
    assert caught.value.message == f"size: {answer[0]}"
    assert "test_bad_input.py" in caught.value.where
    assert answer[1] is None or f"as in '{answer[1]}'" in (caught.value.remedy or "")


def test_a_comparison_that_no_assumption_decides() -> None:
    with pytest.raises(SizeError) as caught:
        fx.trace(lambda x: x if x.shape[0] % 2 > 0 else -x, fx.Spec("n"))
    assert (caught.value.remedy or "").startswith("no assumption decides it: specialize the program, or mask it, to")
    with pytest.raises(SizeError, match="as in 'n>=201'"):
        fx.trace(lambda x: x[200], fx.Spec("n"))


@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        (lambda n, m: n > m, "name one size by the other, as in 'n+k' for m"),
        (lambda n, m: n * m > 7, "state an assumption where the size is named, as in 'm>=3, n>=3'"),
        (lambda n, m: n + m > 7, "state an assumption where the size is named, as in 'm>=8'"),
    ],
)
def test_remedies_for_a_comparison_that_is_not_decided(ask: Callable[[Any, Any], bool], remedy: str) -> None:
    def asking(x: Any, y: Any) -> Any:
        return x if ask(x.shape[0], y.shape[0]) else y

    with pytest.raises(SizeError) as caught:
        fx.trace(asking, fx.Spec("n"), fx.Spec("m"))
    assert caught.value.remedy == f"{remedy}, or use fxad.numpy on the value of the size"
    stated = ("m", "n+m+1") if "+k" in remedy else ("m>=8", "n>=3")
    fx.trace(asking, *[fx.Spec(f"{part}") for part in reversed(stated)])


def test_the_users_line_is_named() -> None:
    with pytest.raises(SizeError) as caught:
        fx.mask(on_the_host, ("n>=2",))(V, sizes={"n": 2})
    assert "test_bad_input.py" in caught.value.where
    assert "host_call" in caught.value.equation
