"""Calls of the functions of NumPy and SciPy at edge operands: nans, infinities, ties, one triangle, empty arrays,
selectors at and beyond the ends, integers and bools, each word of an option. `test_edges.py` makes them.
"""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

nan, inf = np.nan, np.inf
f8 = np.float64


class Call(NamedTuple):
    """A call of a function, which is named by its module and name."""

    name: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]


def a(*values: Any, dtype: Any = f8) -> Any:
    return np.array(values, dtype)


def put(x: Any, **places: Any) -> Any:
    """Returns a copy with values at places: `r0c1=nan` is row 0, column 1."""
    x = x.copy()
    for place, value in places.items():
        row, column = place[1:].split("c")
        x[int(row), int(column)] = value
    return x


# ------------------------------------------------------------------------------------------------------------ operands

X = a(1.5, -2, 0.25, 3, -0.5, 7, 2.5, -4, 1, 6.5, -3.25, 0.75).reshape(3, 4)
XN = put(X, r0c1=nan, r2c0=nan)
ROW = X.copy()
ROW[1] = nan
XI = put(X, r0c1=inf, r2c0=-inf)
XIN = put(X, r0c1=inf, r0c0=-inf, r1c2=nan, r2c3=inf)
TIES = a(2, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3).reshape(3, 4)
ZEROS = a(-0.0, 0, -0.0, 0, 0, -0.0, 1, -1, -0.0, -0.0, -0.0, -0.0).reshape(3, 4)
I = np.array([[3, -1, 2, 2], [0, 5, -7, 2], [2, 2, 1, -1]], np.int32)
U8 = np.array([[250, 3, 0, 255], [9, 9, 1, 2], [7, 200, 100, 3]], np.uint8)
I8 = np.array([[-128, 127, 0, 5], [-1, 100, 100, 3], [7, -7, 7, 7]], np.int8)
U64 = np.array([[2**64 - 1, 2**63, 0, 5], [1, 2, 2, 3], [7, 7, 7, 9]], np.uint64)
B = np.array([[1, 0, 1, 1], [0] * 4, [1] * 4], bool)
C = X + 1j * X[::-1, ::-1]
CN = put(C, r0c1=complex(nan, 1), r1c2=complex(1, nan))
CT = (TIES + 1j * TIES[::-1]).astype(np.complex64)
CI = put(put(C, r0c1=complex(inf, -1), r1c2=complex(-inf, inf)), r2c0=complex(inf, 2))
E03, E30, E0 = np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(0)
ONE, S = np.array([[2.5]]), np.array(2.5)
W3 = np.arange(24.0).reshape(2, 3, 4) % 7 - 3
MATRICES = [X, XN, ROW, XI, XIN, TIES, ZEROS, I, U8, I8, U64, B, C, CN, E03, E30, ONE, S, W3]
V, VN, VI, VT = a(3, 1, 2, 5, 4), a(3, nan, 2, nan, 4), a(3, inf, -inf, inf, 4), a(2, 1, 2, 1, 2)
IV, UV, BV = I.ravel()[:5], U8.ravel()[:5], B.ravel()[:5]
VECTORS = [V, VN, VI, VT, a(nan), a(nan, nan), a(1), E0, IV, UV, BV, I8.ravel()[:5], U64.ravel()[:5]]
CV = a(1 + 2j, complex(nan, 1), complex(1, nan), complex(inf, 0), -1j, dtype=complex)
LINE = a(0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e300, -1e300, 1e-20, inf, -inf, nan, 709.9, -745.2, 171.7, np.pi)
WHOLE = [np.array([0, 1, -1, 7, -7, 12345, -100]), np.array([0, 1, 255, 128], np.uint8), np.array([True, False])]
WHOLE += [np.array([0, 1, -1, -128, 127], np.int8), np.array([0, 2**63, 2**64 - 1, 5], np.uint64), IV]
PLANE = np.array([complex(p, q) for p in (0, 1, -1, inf, nan, 0.5, 30) for q in (0, 1, -1, inf, nan, 0.5, 30)])
AXES: Final = [None, 0, 1, -1, -2, 2, -3]
TUPLES: Final = [*AXES, (0, 1), (), (0, -1), (0, 0)]
FLAGS: Final = [False, True]
LEFT_OUT: Final = object()  # a keyword that is not given
MASKS = [LEFT_OUT, LEFT_OUT, B, np.zeros((3, 4), bool), np.array(False), B[0]]

# matrices: general, definite, Hermitian; with one triangle of nans; singular; in batches
A = np.random.default_rng(0).normal(size=(3, 3))
AC = A + 1j * A[::-1] ** 2
SPD, SPDC = A @ A.T + 3 * np.eye(3), AC @ AC.conj().T + 3 * np.eye(3)
IM = np.array([[2, 1, 0], [1, 3, 1], [0, 1, 4]], np.int32)
BATCH = np.random.default_rng(1).normal(size=(2, 3, 3)) + 2 * np.eye(3)
TALL = np.random.default_rng(2).normal(size=(4, 3))


def half(m: Any, lower: bool) -> Any:
    """Returns a matrix of which one triangle alone has values."""
    return np.where(np.tri(3, dtype=bool) if lower else np.tri(3, dtype=bool).T, m, nan)


SQUARE = [A, SPD, AC, IM, IM.astype(np.uint8), BATCH, np.zeros((0, 0)), np.array([[2.0]]), TALL, V]
HALVES = {low: [SPD, SPDC, half(SPD, low), half(SPDC, low), AC, IM, BATCH] for low in FLAGS}
RIGHT = [V[:3], np.ones((3, 2)), IV[:3], a(1j, 2, 3, dtype=complex), np.zeros((3, 0)), np.ones((2, 3)), E0, np.ones(4)]


# --------------------------------------------------------------------------------------------------------------- table

CALLS: Final[dict[str, list[Call]]] = {}


def add(names: str, *positional: Sequence[Any], most: int = 120, **keywords: Sequence[Any]) -> None:
    """Adds the calls of functions with all combinations of the arguments, `most` of them at random."""
    for name in names.split():
        choices = [*positional, *keywords.values()]
        total = int(np.prod([len(c) for c in choices], dtype=float))
        rng = random.Random(name)
        combinations: Iterator[tuple[Any, ...]] = itertools.product(*choices)
        drawn = combinations if total <= most else (tuple(rng.choice(c) for c in choices) for _ in range(most))
        for values in drawn:
            given = dict(zip(keywords, values[len(positional) :], strict=True))
            kept = {k: v for k, v in given.items() if v is not LEFT_OUT}
            CALLS.setdefault(name, []).append(Call(name, values[: len(positional)], kept))


def many(module: str, names: str) -> str:
    return " ".join([f"{module}.{n}" for n in names.split()])


def _pairs(v: Any) -> tuple[Any, Any]:
    x, y = np.meshgrid(v, v)
    return x.ravel(), y.ravel()


def _ufuncs(arity: int) -> str:
    fnp = importlib.import_module("fxad.numpy")
    found = [n for n in sorted(dir(fnp)) if isinstance(f := getattr(np, n, None), np.ufunc) and f.nin == arity]
    return many("numpy", " ".join(found))


add(_ufuncs(1), [LINE, LINE[np.abs(LINE) != 1e300].astype(np.float32), *WHOLE, PLANE, E0])
add(many("numpy", "angle i0 imag iscomplex isneginf isposinf isreal nan_to_num real sinc"), [LINE, *WHOLE, PLANE, E0])
for one in [LINE, *WHOLE, PLANE[:9], E0]:
    x, y = _pairs(one)
    add(_ufuncs(2), [x], [y])
add(_ufuncs(2), [I[0]], [U8[0], X[0], B[0]])
x, y = _pairs(PLANE)
ORDERED = many("numpy", "less less_equal greater greater_equal maximum minimum fmax fmin")
add(ORDERED, [x, x.astype(np.complex64)], [y, y.real, y.astype(np.complex64)])
add("numpy.round numpy.around", [LINE, *WHOLE, PLANE, a(2.675, 15, 25, 123456.789)], decimals=[0, 2, -1, -3, 20])
add("numpy.isclose numpy.allclose", [LINE, I], [LINE, I], equal_nan=FLAGS, rtol=[1e-5, 0.0, inf], atol=[1e-8, 1.0])
add("numpy.array_equal numpy.array_equiv", [XN, X, I, CN, E0], [XN, X, I, CN, V, E0])
add("numpy.clip", [LINE, I, XN], [None, -1, 0.5, nan, 3], [None, 2, -5])

add(many("numpy", "sum prod nansum nanprod"), MATRICES, axis=TUPLES, keepdims=FLAGS, where=MASKS, initial=[LEFT_OUT, 2])
NANS = "nanmax nanmin"
add(many("numpy", f"max min amax amin ptp {NANS}"), MATRICES, axis=TUPLES, keepdims=FLAGS)
add(many("numpy", f"max min amax amin ptp {NANS}"), [CT, CI], axis=TUPLES, keepdims=FLAGS)
add(many("numpy", f"max min {NANS}"), [CT, CI], axis=TUPLES, where=MASKS, initial=[2, 1 + 3j, -inf])
add(many("numpy", f"max min {NANS}"), MATRICES, axis=TUPLES, keepdims=FLAGS, where=MASKS, initial=[2, -inf, 100, -3])
add(many("numpy", "mean nanmean any all"), MATRICES, axis=TUPLES, keepdims=FLAGS, where=MASKS)
add(many("numpy", "var std nanvar nanstd"), MATRICES, axis=TUPLES, keepdims=FLAGS, where=MASKS, ddof=[LEFT_OUT, 0, 1])
add(many("numpy", "argmax argmin nanargmax nanargmin"), MATRICES, axis=AXES, keepdims=FLAGS)
add(many("numpy", "count_nonzero median nanmedian"), MATRICES, axis=TUPLES, keepdims=FLAGS)
CONTINUOUS = (
    "averaged_inverted_cdf interpolated_inverted_cdf hazen weibull linear median_unbiased normal_unbiased midpoint"
)
METHODS = [*CONTINUOUS.split(), "inverted_cdf", "closest_observation", "lower", "higher", "nearest"]
Q = [0.5, 0.0, 1.0, 0.3, a(0, 0.1, 0.25, 0.5, 0.9, 1), E0, a(0.2, 0.7).reshape(1, 2)]
add("numpy.quantile numpy.nanquantile", MATRICES, Q, axis=AXES, method=METHODS, keepdims=FLAGS, most=300)
P = [50, 0, 100, 30.0, a(0, 10, 25, 50, 100)]
add("numpy.percentile numpy.nanpercentile", MATRICES, P, axis=TUPLES, method=METHODS, keepdims=FLAGS, most=200)
WEIGHTS = [np.where(B, 2.0, 1), np.ones((3, 4)), a(1, 2, 0, 1), a(0, 0, 0, 1), a(1, 0, 2), I[0] ** 2, np.ones(3)]
add(
    "numpy.quantile numpy.nanquantile", [X, XN, ROW, XI, TIES, I, U8], [0.5, 0.0, 1.0, a(0, 0.2, 0.75, 1)],
    axis=AXES, method=["inverted_cdf"], keepdims=FLAGS, weights=WEIGHTS, most=300,
)  # fmt: skip
add("numpy.average", [X, XN, XI, I, U8, C, W3], axis=TUPLES, weights=[None, *WEIGHTS], returned=FLAGS, keepdims=FLAGS)
add(many("numpy", "cumsum cumprod nancumsum nancumprod"), MATRICES, axis=AXES)
add(many("numpy", "cumulative_sum cumulative_prod"), MATRICES, axis=AXES, include_initial=FLAGS)

add("numpy.sort numpy.argsort", [*MATRICES, *VECTORS, CV], axis=AXES, kind=["stable"])
add("numpy.sort_complex", [*MATRICES, *VECTORS, CV])
add(
    "numpy.lexsort",
    [(V, VT), (VN, VT), (VT, VN), (VI, VI), (VT,), XN, I, (CV, VT), (VT, CV)],
    axis=[LEFT_OUT, 0, -1, 1],
)
SORTED = [np.sort(v) for v in [*VECTORS, VN, I8.ravel(), U64.ravel()]]
WANTED = [
    a(0, 1, 2, 5, nan, inf, -inf, 2.5),
    np.array([1, 2, 300, -1]),
    S,
    E0,
    U8,
    a(2**63, dtype=np.uint64),
    I8[:, :1],
]
add("numpy.searchsorted", SORTED, WANTED, side=["left", "right"], most=300)
CS = a(-1 + 2j, -1j, 1 - 1j, 1 - 1j, 1 + 2j, 1 + 2j, 3, complex(inf, 0), dtype=complex)
add(
    "numpy.searchsorted",
    [CS, CS.astype(np.complex64), CS[:0], CS.real],
    [CS, CS.real, CS[::-1].reshape(2, 4), a(1 + 1j, 7, -9j, complex(nan, 1), dtype=complex), IV],
    side=["left", "right"],
)
add("numpy.searchsorted", [V, VN, VT], [a(1, 2, nan, inf)], ["left", "right"], [np.argsort(V), np.array([0, 1])])
EDGES = [a(1, 2, 3), a(3, 2, 1), a(1, 1, 2), a(2, 2, 1), a(1), E0, a(-inf, 0, inf), IV[:1], a(1, 1, 1)]
add("numpy.digitize", [a(0, 1, 2, 3, nan, inf, -inf, 2.5), I, U8, S], EDGES, right=FLAGS)
EAGER: Final = (
    "unique unique_all unique_counts unique_inverse unique_values nonzero argwhere flatnonzero extract compress"
)
EAGER_SETS: Final = "intersect1d union1d setdiff1d setxor1d bincount trim_zeros roots histogram_bin_edges"
add("numpy.unique", [*MATRICES, *VECTORS, CV], FLAGS, FLAGS, FLAGS, axis=[None, 0, -1, 3], equal_nan=FLAGS)
add(many("numpy", "unique_all unique_counts unique_inverse unique_values"), [*MATRICES, *VECTORS])
add(many("numpy", "intersect1d union1d setdiff1d setxor1d isin"), [*VECTORS, X], [*VECTORS, XN, S])
add("numpy.isin", VECTORS, VECTORS, invert=FLAGS, assume_unique=FLAGS)

add("numpy.reshape", MATRICES, [(4, 3), -1, (-1, 2), (0, 3), (-1, -1), (5, -1), ()], order=["C", "F"])
add("numpy.ravel", MATRICES, order=["C", "F"])
add("numpy.flip", MATRICES, axis=TUPLES)
add(many("numpy", "fliplr flipud atleast_1d atleast_2d atleast_3d transpose matrix_transpose"), [*MATRICES, V])
add("numpy.rot90", MATRICES, k=[0, 1, -1, 2, 5, -6], axes=[(0, 1), (1, 0), (-1, 0), (0, 0), (0, 3)])
add("numpy.roll", MATRICES, [0, 1, -1, 5, -17, (1, 2), (1,)], axis=TUPLES)
add("numpy.swapaxes", [X, W3, S], [0, -1, 1, 3], [0, -1, -3, 2])
add("numpy.moveaxis", [X, W3], [0, -1, (0, 1), (0, -2), (0, 0), 3], [0, -1, (1, 0), (-1, -2), (0,)])
add("numpy.rollaxis", [X, W3], [0, 1, -1, 2, -3], [0, 1, 2, 3, -1, -2, 4])
add("numpy.squeeze", [X[None, :, None], ONE, S, X], axis=[None, 0, -1, 2, (0, 2), (0, 0), 7])
add("numpy.expand_dims", [X, S], [0, -1, 2, -3, (0, 1), (0, -1), (0, 0), 5])
add("numpy.repeat", MATRICES, [0, 1, 2, -1, True], axis=AXES)
add("numpy.tile", [X, S, E0, V], [0, 2, (2, 1), (1, 2, 1), (), (0, 2), -1])
add("numpy.resize", [X, S, E0, V, I], [(2, 2), 5, 30, (0,), (), (-1, 2), (2, 7)])
add(
    "numpy.split numpy.array_split",
    [X, V, W3],
    [1, 2, 3, [1], [1, 3], [3, 1], [-1], [0, 99], 0, -1],
    axis=[0, 1, -1, 5],
)
add(many("numpy", "hsplit vsplit dsplit"), [X, V, W3, S], [1, 2, 3, [1], [3, 1], [-1], 0])
JOINED = [[X, X], [X, I], [X[0], V], [I, U8], [E03, E03], [B, I8], [X], [], [S, S], [X, C], [V, V]]
add(many("numpy", "concatenate concat stack"), JOINED, axis=[0, -1, 1, 4])
add(many("numpy", "hstack vstack dstack column_stack block"), JOINED)
add("numpy.append", [X, V, E0, I], [X, V, XN, S, I, E0], axis=[None, 0, -1, 1])
add("numpy.diag numpy.diagflat", [X, V, S, E0, ONE, XN, I, W3], k=[0, 1, -1, 3, -3, 9, -9])
add("numpy.diagonal numpy.trace", [X, W3, XN, V, E03, I, U8], [0, 1, -1, 3, 9], [0, -1, 1], [1, 0, -2])
add("numpy.tril numpy.triu", [*MATRICES, V], k=[0, 1, -1, 3, -3, 9, -9])
add("numpy.tri numpy.eye", [0, 3], [None, 4, 0], [0, 1, -1, 5, -5])
add("numpy.tril_indices numpy.triu_indices", [0, 3, 4], k=[0, 1, -1, 5, -5], m=[None, 0, 2, 5])
add("numpy.fill_diagonal", [X, W3, np.ones((2, 2, 2)), np.ones((9, 2)), I], [0, a(1, 2), nan], wrap=FLAGS)
add("numpy.meshgrid", [V, S, E0], [VT, S], indexing=["xy", "ij", "yx"], sparse=FLAGS)
add("numpy.ix_", [IV, BV, E0, X], [np.array([0, 1]), np.array([True, True])])

PLACES = [0, -1, 2, -3, 11, 12, -13, np.array([0, 2, -1]), np.array([[1, 1], [0, 2]]), np.array([0, 1], np.uint8)]
add("numpy.take", [X, XN, I, V, S, C, B], PLACES, axis=[None, 0, 1, -1, 3], mode=[LEFT_OUT, "clip", "wrap"], most=300)
ALONG = [np.array([[0], [2], [-1]]), np.array([[0, 1, 2, -1]]), np.array([0, 3, -5]), np.array([0, 1], np.uint8)]
add("numpy.take_along_axis", [X, XN, I, V], ALONG, axis=[0, 1, -1, None, 3])
CHOICES = [[a(1, 2, 3), a(4, 5, 6), a(7, 8, nan)], [1, V[:3], I[0, :3]], [IV[:3], UV[:3], BV[:3]]]
add("numpy.choose", [np.array([0, 1, 2]), np.array([0, 5, -1]), np.array([[0], [1]])], CHOICES, mode=["clip", "wrap"])
add("numpy.compress", [BV[:3], BV[:1], BV[:0], IV[:3]], [X, V, XN, I], axis=[None, 0, 1, -1, 4])
add("numpy.extract", [X > 0, XN, np.zeros((3, 4), bool), V > 0], [X, I, XN, V, B])
add("numpy.place", [X, I, XN], [X > 0, XN, X[0] > 0], [a(1, 2), nan, E0, a(9.5)])
add("numpy.where", [X > 0, XN, I, np.array(True), E0, C, U8], [X, XN, I, 2, nan, V], [X, C, B, 3, -0.0, I8], most=200)
add(many("numpy", "nonzero argwhere flatnonzero"), [*MATRICES, *VECTORS, CV])
add("numpy.select", [[X > 0, X < -1], [np.array(True), X > 1]], [[X, -X], [I, X]], default=[LEFT_OUT, 0, nan, 7])
add("numpy.put", [X, I, V], [0, -1, np.array([0, 2, 2]), np.array([-3, 1])], [a(1, 2), nan, S], mode=[LEFT_OUT, "clip"])
add("numpy.put_along_axis", [X, I, V], ALONG, [nan, X[:, :1], 7], axis=[0, 1, -1, None])
AT = [(np.array([0, 2, 5, -1]), np.array([0, 3, 4, -5])), (np.array([0, 2]), np.array([0, 3])), (np.array([4, 5]),)]
add("numpy.ravel_multi_index", AT, [(3, 4), (5,), (2, 3, 4)], mode=["clip", "wrap"], order=["C", "F"])
add("numpy.unravel_index", [np.array([0, 5, 11]), 3, np.array([[1, 2]]), IV[:0]], [(3, 4), (2, 3, 4), (12,)])
WHERE = [0, -1, 2, 5, -6, [0, 2], [0, 0], [-1, 4], slice(1, 3), slice(None, None, -2), slice(10, 2), [9]]
add("numpy.delete", [V, X, VN, I, E0], WHERE, axis=[None, 0, 1, -1, 4], most=200)
add("numpy.insert", [V, X, I, E0], WHERE, [9, a(7, 8), X[:, 0], IV[:2]], axis=[None, 0, 1, -1, 4], most=300)

BINS = [10, 3, 1, 0, -1, a(0, 1, 2, 3), a(0, 0, 1), a(-inf, 0, inf), np.array([0, 1, 5])]
NAMED = ["auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt", "foo"]
MANY = np.arange(40.0) % 11
RANGES = [LEFT_OUT, LEFT_OUT, (0, 3), (2, 2), (3, 0), (0, nan), (-1, inf), (1, 4)]
add("numpy.histogram", [V, VT, a(1), E0, X, I, U8, MANY], bins=BINS, range=RANGES, density=FLAGS, most=300)
add("numpy.histogram_bin_edges", [V, VT, E0, I, MANY], bins=[*BINS, *NAMED], range=[LEFT_OUT, (0, 3), (2, 2), (1, 4)])
BY = [a(1, 2, 0, 3, 1), a(1, nan, 2, 1, 1), a(1, -1, 2, 1, 1), IV, BV, np.ones(4)]
add("numpy.histogram", [V, VT, VN, IV], [3, a(0, 1, 2, 3), 1], [(0, 5)], density=FLAGS, weights=BY)
add("numpy.histogram2d", [V, VT], [VT, V], [3, (2, 3), a(0, 1, 2, 3)], [LEFT_OUT, [[0, 3], [0, 3]]][1:], density=FLAGS)
COUNTED = [np.array([0, 1, 1, 3]), IV[:0], np.array([0, -1]), UV[1:3], BV[:3], V, U64[1:]]
add("numpy.bincount", COUNTED, weights=[LEFT_OUT, None, a(1, 2, 3, nan), a(1, 2, 3)], minlength=[0, 3, 6, -1])
XP = [a(1, 2, 3), a(1, 2, 2), a(1, 1, 2), a(1), E0, a(1, 1, 1), np.array([1, 2, 3])]
FP = [a(10, 20, 30), a(nan, 20, 30), a(10, inf, 30), a(1), a(1 + 1j, 2, 3j, dtype=complex), IV[:3], a(inf, inf, inf)]
ON = [a(0, 1, 1.5, 2, 3, 4, nan, inf, -inf, 2.5), np.array([0, 1, 2, 5]), S, E0]
add("numpy.interp", ON, XP, FP, left=[LEFT_OUT, -1.0, nan], right=[LEFT_OUT, 99.0], most=300)
GRID = [LEFT_OUT, 0, 1, -1, (0, 1), 3]
add(
    "numpy.gradient",
    [X, XN, XI, I, U8, V, C, W3, S],
    [1, 2.0, a(0, 1, 3), a(0, 1, 3, 4)],
    axis=GRID,
    edge_order=[1, 2, 3],
)
add("numpy.gradient", [X, XN, I, C], axis=GRID, edge_order=[1, 2, 3])
STEPS = [None, a(0, 1, 3), a(0, 1, 3, 4), a(3, 2, 1, 0), X, I[0], a(0, 0, 1, nan)]
add(
    "numpy.trapezoid scipy.integrate.trapezoid",
    [X, XN, XI, I, V, C, E0, a(1)],
    STEPS,
    dx=[1.0, 2.5, nan],
    axis=[-1, 0, 1, 3],
)
add("numpy.diff", MATRICES, [0, 1, 2, 5, -1], axis=[-1, 0, 1, 3], prepend=[LEFT_OUT, 0, X[:, :1]], append=[LEFT_OUT, 5])
add("numpy.ediff1d", [X, V, VN, VI, I, E0, a(1)], to_end=[LEFT_OUT, None, a(1, 2), nan], to_begin=[LEFT_OUT, None, -5])
OBSERVED = [X, XN, XI, TIES, I, U8, B, C, V, ONE, S, a(1)]
add("numpy.cov", OBSERVED, y=[LEFT_OUT, X, V, I], rowvar=FLAGS, bias=FLAGS, ddof=[LEFT_OUT, None, 0, 1])
add("numpy.corrcoef", OBSERVED, y=[LEFT_OUT, X, V, I], rowvar=FLAGS)
COUNTS = [None, np.array([1, 2, 0, 3]), np.array([2, 2, 1, 1])]
add("numpy.cov", [X, XN, I, V[:4]], ddof=[LEFT_OUT, 0, 2], fweights=COUNTS, aweights=[None, a(1, 2, 0.5, 0), I[0] ** 2])
SHORT = [V, VN, VI, a(1, 2), I[0], U8[0], B[0], C[0], E0]
MODES = ["full", "same", "valid", "foo"]
add("numpy.convolve numpy.correlate", SHORT, [V, a(1, 2), I[1], U8[1], B[2], C[1], E0], mode=MODES, most=200)
PADDED = [X, XN, XI, V, I, U8, E0, ONE, C]
WIDTHS = [0, 1, 2, (1, 2), ((1, 2), (0, 3)), 9, -1, ((0, 0),)]
add("numpy.pad", PADDED, WIDTHS, ["constant"], constant_values=[LEFT_OUT, 7, (1, 2), ((1, 2), (3, 4))])
add("numpy.pad", PADDED, WIDTHS, ["edge", "wrap", "foo"])
add("numpy.pad", PADDED, WIDTHS, ["linear_ramp"], end_values=[LEFT_OUT, 7, (1, 2), ((1, 2), (3, 4))])
add("numpy.pad", PADDED, WIDTHS, ["reflect", "symmetric"], reflect_type=[LEFT_OUT, "even", "odd", "foo"])
LENGTHS = [LEFT_OUT, None, 1, 2, (1, 3), ((1, 2), (2, 9)), 0]
add("numpy.pad", PADDED, WIDTHS, ["maximum", "mean", "median", "minimum"], stat_length=LENGTHS)
POLYNOMIALS = [a(1, 2, 3), a(2), a(1, nan), np.array([1, 2, 3]), a(1, 1j, 2, dtype=complex), a(1, -3, 2), UV]
add(many("numpy", "polyadd polysub"), POLYNOMIALS, POLYNOMIALS)
add("numpy.polymul", POLYNOMIALS, [p for p in POLYNOMIALS if not np.isnan(p).any()])
add("numpy.polyder", POLYNOMIALS, m=[0, 1, 2, 9, -1])
add("numpy.polyint", POLYNOMIALS, m=[1, 2, -1], k=[LEFT_OUT, None, 3, a(1, 2)])
add("numpy.polyval", POLYNOMIALS, [X, XIN, I, C])
add("numpy.poly", [*POLYNOMIALS, IM])
add("numpy.roots", [*POLYNOMIALS[:3], E0, a(0, 0, 1), a(1, 0, 0), XN])
add(
    "numpy.polyfit", [a(0, 1, 2, 3), IV[:4], a(0, 1)], [a(1, 3, 2, 5), I[0]], [0, 1, 2, -1], w=[LEFT_OUT, a(1, 2, 1, 0)]
)
add("numpy.vander", [V, VN, I[0], UV[[0, 1, 4]], S, X, E0, C[0]], N=[LEFT_OUT, None, 0, 1, 3, -1], increasing=FLAGS)
add(many("numpy", "bartlett blackman hamming hanning"), [0, 1, 2, 5, 8, -3])
add("numpy.kaiser", [0, 1, 2, 5, -3], [0.0, 2.5, -3.0, nan])
ENDS = [f8(0), f8(1), a(1, 2), f8(nan), 3]
add("numpy.linspace", ENDS, [1.0, f8(5), a(5, nan)], num=[0, 1, 2, 5, -1], endpoint=FLAGS, axis=[LEFT_OUT, -1])
add(
    "numpy.logspace",
    [f8(0), a(1, 2)],
    [f8(3), a(2, nan)],
    num=[0, 1, 2, 5, -1],
    endpoint=FLAGS,
    base=[LEFT_OUT, 2.0, 0.5],
)
add("numpy.geomspace", [f8(1), a(1, 2), f8(-1), f8(-8)], [f8(1000), a(2, 32), f8(-2)], num=[0, 1, 2, 4], endpoint=FLAGS)
add("numpy.arange", [0, 5, -3, f8(1)], [5, 0, -4, 2.5], [1, -1, 2, 0])
add(
    "numpy.unwrap",
    [V, VN, VI, X * 3, I, E0],
    discont=[LEFT_OUT, None, 1.0, 4.0],
    axis=[0, -1, 3],
    period=[LEFT_OUT, 4, 4.0],
)
add("numpy.packbits", [B, U8, I, BV, BV[:0], X], axis=[None, 0, 1, -1, 4], bitorder=["big", "little", "foo"])
add(
    "numpy.unpackbits",
    [U8, UV, I],
    axis=[None, 0, 1, -1, 4],
    count=[LEFT_OUT, None, 3, -3, 99, 0, -99],
    bitorder=["big", "little"],
)
add("numpy.trim_zeros", [a(0, 0, 1, 0, 2, 0), a(0, 0), E0, I[1], a(1), ZEROS], trim=["fb", "f", "b", "x"])
LEFT = [X, XN, XI, XIN, I, U8, B, C, V, VN, E03, E30, S, W3, E0, V[:4], I8]
PRODUCTS = "dot inner outer vdot kron matmul vecdot matvec vecmat"
add(many("numpy", PRODUCTS), LEFT, [X.T, X, XIN.T, I.T, U8.T, B.T, C.T, V, VI, E03, S, V[:4], W3])
CONTRACTED = [0, 1, 2, 3, (0, 0), ((0, 1), (0, 1)), ((0, 1), (1, 0)), ([0], [1]), ((0, 0), (0, 0)), (-1, -1)]
add("numpy.tensordot numpy.linalg.tensordot", [X, W3, XN], [X, W3, XI.T], axes=CONTRACTED)
add("numpy.cross", [V[:3], VN[:3], X[:, :3], I[0, :3]], [V[:3], VI[:3], X[:, :3], I[1, :3]], axis=[LEFT_OUT, 0, -1, 1])
FACTORS = [X[:, :3], XN[:, :3], XI[:, :3], I[:, :3], U8[:, :3], B[:, :3]]
add("numpy.einsum", ["ij,jk", "ij,jk->ik", "ij,ij->i", "...j,jk->...k", "ij,kj->ik"], FACTORS, FACTORS)
add("numpy.einsum", ["ii", "ii->i", "ij->ji", "ij->", "i...->..."], [*FACTORS, C[:, :3]])

# ----------------------------------------------------------------------------------------------- matrices, transforms

add(many("numpy.linalg", "det inv slogdet cond matrix_rank pinv svdvals"), SQUARE)
add("numpy.linalg.cond", SQUARE, p=[None, 1, -1, 2, -2, inf, -inf, "fro", "nuc", 3])
add("numpy.linalg.solve", SQUARE, RIGHT)
add("numpy.linalg.cholesky", [SPD, SPDC, IM], upper=FLAGS)
add("numpy.linalg.eigvalsh", [SPD, SPDC, IM, TALL], UPLO=["L", "U", "X"])
add("numpy.linalg.svd", [*SQUARE, E03], full_matrices=FLAGS, compute_uv=[False])
add("numpy.linalg.qr", [*SQUARE, E03], mode=["reduced", "complete", "r", "foo"])
add("numpy.linalg.lstsq", [A, TALL, AC], [V[:3], np.ones(4), np.ones((4, 2))], rcond=[LEFT_OUT, None, 1e-3, -1.0])
add("numpy.linalg.matrix_power", SQUARE, [0, 1, 2, 3, -1, -3, 2.0])
ORDERS = [LEFT_OUT, None, 0, 1, 2, -1, -2, 3, 0.5, inf, -inf, "fro", "nuc", "foo"]
NORMED = [V, VN, VI, A, TALL, I, U8, B, C, E0, E03, W3, S, I8, U64, a(1e200, 1e200), a(0, 0)]
add(
    "numpy.linalg.norm", NORMED, ord=ORDERS, axis=[LEFT_OUT, None, 0, -1, (0, 1), (-1, -2), 5], keepdims=FLAGS, most=300
)
add("numpy.linalg.vector_norm", NORMED, ord=ORDERS[3:11], axis=[LEFT_OUT, None, 0, -1, (0, 1)], keepdims=FLAGS)
add("numpy.linalg.matrix_norm", [A, TALL, I, U8, C, W3, V], ord=ORDERS, keepdims=FLAGS)
add("numpy.linalg.diagonal numpy.linalg.trace", [A, W3, V, IM], offset=[0, 1, -1, 9, -9])
add(many("numpy.linalg", "cross vecdot matmul"), [V[:3], A, VN[:3], I[:, :3]], [V[:3], A, VI[:3], U8[:, :3]])
SIGNALS = [V, X, I, U8, B, C, S, a(1), W3]
for n in (None, 1, 3, 4, 7, 0):
    names = many("numpy.fft", "fft ifft rfft irfft hfft ihfft")
    add(names, SIGNALS, [n], axis=[-1, 0, 1, 3], norm=[None, "ortho", "forward", "foo"], most=30)
SIZES, OVER = [LEFT_OUT, None, (2, 3), (4, 5), (3,), (0, 2)], [LEFT_OUT, (0, 1), (-1, 0), (0,), (1, 2), None, (7,)]
ALL = many("numpy.fft", "fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn")
add(ALL, [X, I, C, W3, S], s=SIZES, axes=OVER, norm=[LEFT_OUT, "ortho", "forward"])
add("numpy.fft.fftfreq numpy.fft.rfftfreq", [1, 2, 5, 8, -1], d=[1.0, 0.5, -2.0])
add("numpy.fft.fftshift numpy.fft.ifftshift", [V, X, I, W3, E0], axes=[LEFT_OUT, None, 0, -1, (0, 1), 7])

for lower in FLAGS:
    add("scipy.linalg.cholesky", HALVES[lower][:4], lower=[lower])
    add("scipy.linalg.eigh", HALVES[lower], lower=[lower], eigvals_only=[True])
    add("scipy.linalg.solve", HALVES[lower], RIGHT, lower=[lower], assume_a=["sym", "her", "foo"])
    add("scipy.linalg.solve", HALVES[lower][:4], RIGHT, lower=[lower], assume_a=["pos"])
    kinds = [0, 1, 2, "N", "T", "C", 3]
    add("scipy.linalg.solve_triangular", HALVES[lower], RIGHT, trans=kinds, lower=[lower], unit_diagonal=FLAGS)
add("scipy.linalg.solve", SQUARE, RIGHT)
add(many("scipy.linalg", "det inv lu_factor expm"), SQUARE)
add("scipy.linalg.lu", SQUARE, permute_l=FLAGS)
add("scipy.linalg.qr", SQUARE, mode=["full", "economic", "r", "foo"], pivoting=FLAGS)
add("scipy.linalg.svd", SQUARE, full_matrices=FLAGS, compute_uv=[False])
add("scipy.linalg.hessenberg scipy.linalg.schur", [A, IM, BATCH, TALL])
add("scipy.linalg.polar", [A, AC, TALL, TALL.T], side=["right", "left", "foo"])
add("scipy.linalg.block_diag", [A, V, S, E0, I], [A, V, IM, E03])
add(many("scipy.linalg", "circulant companion fiedler fiedler_companion"), [V, VN, I[0], C[0], a(1), a(1, 1, 2)])
add("scipy.linalg.hankel scipy.linalg.toeplitz", [V, VN, I[0], U8[0], C[0]], [None, V, C[0], I[0], a(7)])
add("scipy.linalg.leslie", [V, I[0], U8[0], a(1), X], [V[:4], I[0, :3], a(0.5), E0])
add(many("scipy.linalg", "hadamard hilbert invhilbert"), [1, 2, 4, 3, 8])
add("scipy.linalg.helmert", [2, 4, 0], full=FLAGS)
add("scipy.linalg.convolution_matrix", [V, I[0], C[0], a(1, 2)], [1, 2, 5, 8, 0], mode=MODES)
RANGE = [(0, 0), (1, 2), (0, 3), (-1, 1), (2, 1), (0, 9)]
ON_DIAGONAL, BESIDE = [V[:4], IV[:4]], [a(0.5, 0.25, -1), a(1, 2)]
add("scipy.linalg.eigh_tridiagonal", ON_DIAGONAL, BESIDE, eigvals_only=[True], select=["i"], select_range=RANGE)
add("scipy.linalg.eigh_tridiagonal", ON_DIAGONAL, BESIDE, eigvals_only=[True], select=["a", "foo"])

PLANAR = [X[:2, :2], I[:2, :2], U8[:3, :3], XN[:2], W3[0], ONE]
add(
    "scipy.signal.convolve scipy.signal.correlate",
    SHORT[3:],
    [V, a(1, 2), I[1], U8[1], C[1], E0, X],
    MODES,
    ["auto", "direct"],
)
add("scipy.signal.fftconvolve", [X, I, U8, C], PLANAR[:3], mode=MODES)
BEYOND = ["fill", "wrap", "symm", "foo"]
add("scipy.signal.convolve2d", [X, XN, I, U8, V, ONE], PLANAR, MODES, BEYOND, [0, 2.5, nan], most=200)
add("scipy.signal.correlate2d", [X, XN, I, U8, V], PLANAR, MODES, BEYOND, [0, 2.5, nan], most=200)
add("scipy.signal.detrend", [V, X, I, U8, W3, C], axis=[-1, 0, 1, 5], type=["constant", "foo"], bp=[LEFT_OUT, 0])
TYPES = [1, 2, 3, 4, 5]
for n in (None, 1, 2, 3, 7, 0):
    names = many("scipy.fft", "dct idct")
    add(names, [V, X, I, U8, E0, S, W3, C], TYPES, [n], [-1, 0, 5], [None, "ortho", "forward", "foo"], most=60)
add(
    "scipy.fft.dctn scipy.fft.idctn",
    [V, X, I, W3],
    TYPES,
    s=SIZES,
    axes=[LEFT_OUT, None, (0, 1), (0,)],
    norm=[None, "ortho"],
)
COORDINATES = [
    [a(0, 0.5, 1, 1.4, 2, -1, 3, -0.6, 10, -10), a(0, 1, 2.6, 3, 3.3, -1, 1, 2, 20, -20)],
    np.array([[0, 1, 2], [0, -1, 7]]),
]
BORDERS = ["nearest", "mirror", "reflect", "grid-wrap", "grid-constant", "grid-mirror", "foo"]
add("scipy.ndimage.map_coordinates", [X, I, U8], COORDINATES, order=[0, 1], mode=BORDERS, cval=[2.5, 7])
add(
    "scipy.stats.rankdata",
    [*VECTORS, *MATRICES],
    method=["average", "min", "max", "dense", "ordinal", "foo"],
    axis=AXES[:4],
)
add("scipy.stats.mode", [X, TIES, I, U8, V, VT], axis=[None, 0, -1, 4], keepdims=FLAGS)
add(
    "scipy.stats.sem",
    [X, XN, XI, I, U8, V],
    axis=[None, 0, -1],
    ddof=[0, 1, 2],
    nan_policy=["propagate", "foo"],
    keepdims=FLAGS,
)
POINTS = X.T[:, :2]
add("scipy.cluster.vq.vq", [POINTS, I.T[:, :2], V], [POINTS[:2], POINTS[[0, 0]], V[:2], POINTS[:, :1]])

# ---------------------------------------------------------------------------------------------------- scipy.special

SPECIAL = "dawsn digamma entr erf erfc erfcinv erfcx erfinv exp1 expi expit fresnel gamma gammaln gammasgn i0e i1e"
SPECIAL += " log_ndtr logit ndtr ndtri psi sici factorial"
REALS = a(
    0, 1, -1, 0.5, -0.5, 1.5, 2, -3, -2.5, 1e-300, 1e-20, 1e-8, 1e8, inf, -inf, nan, 20.5, -20.5, 171, 0.99, 40, -700
)
add(many("scipy.special", SPECIAL), [REALS[~np.isneginf(REALS)], np.array([0, 1, 2, 5, -1]), UV[:3], BV, E0])
GRIDS, FINITE = _pairs(REALS), _pairs(REALS[np.isfinite(REALS)])
TWO = "boxcox boxcox1p gammainc gammaincc owens_t xlog1py xlogy"
add(many("scipy.special", TWO), [GRIDS[0]], [GRIDS[1]])
TWO = "beta betaln kl_div rel_entr comb"  # at infinities SciPy has nan for some limits, and inf for some nans
add(many("scipy.special", TWO), [FINITE[0]], [FINITE[1]])
add("scipy.special.poch", [FINITE[0]], [np.where((np.abs(FINITE[1]) < 1e-9) | (np.abs(FINITE[1]) > 99), 2, FINITE[1])])
add(many("scipy.special", TWO), [np.array([0, 1, 3, 7])], [np.array([2, 0, 1, 9])])
add(
    "scipy.special.comb",
    [np.array([5, 0, 3, 60]), a(5, 2.5, 3, 60)],
    [np.array([2, 0, 5, 30]), a(2, 1, -1, 30)],
    repetition=FLAGS,
)
ORDER = np.repeat(np.array([0, 1, 2, 5]), REALS.size)
add("scipy.special.expn scipy.special.polygamma", [ORDER], [np.tile(REALS, 4)])
SHARES = [
    g.ravel()
    for g in np.meshgrid(
        a(0, 0.5, 1, 30, inf, nan, 1e-10), a(0, 0.5, 1, 3, inf, nan), a(0, 1, 0.5, 0.01, -0.1, 1.1, nan)
    )
]
add("scipy.special.betainc", *[[g] for g in SHARES])
SUMMED = [X, XN, XI, XIN, I, B, E30, S, a(-inf, -inf), a(inf, inf), a(inf, -inf), X * 500]
SCALES = [LEFT_OUT, None, X, -X, np.zeros((3, 4)), 2.0, -1.0]
add("scipy.special.logsumexp", SUMMED, axis=TUPLES, b=SCALES, keepdims=FLAGS, return_sign=FLAGS, most=300)
add("scipy.special.softmax scipy.special.log_softmax", [X, XN, I, B, S, a(-inf, 1), X * 500], axis=TUPLES)


# ------------------------------------------------------------------------------------------- what differs, and why


class Difference(NamedTuple):
    """Calls of functions whose result is another one than that of NumPy or SciPy, with the reason."""

    names: str
    where: Callable[[Call], bool]
    reason: str


def _any(call: Call, test: Callable[[Any], Any]) -> bool:
    """Returns True if the test holds of an array among the arguments."""
    arrays = [x for x in [*call.args, *call.keywords.values()] if isinstance(x, np.ndarray)]
    return any(bool(np.any(test(x))) for x in arrays)


def _integer(call: Call) -> bool:
    return _any(call, lambda x: x.dtype.kind in "iub")


def _not_finite(call: Call) -> bool:
    return _any(call, lambda x: x.dtype.kind in "fc" and not np.isfinite(x).all())


def _always(_: Call) -> bool:
    return True


# functions of values: the size of their result is not known while a function is traced
ON_VALUES: Final = f"{EAGER} {EAGER_SETS} isin put"


def _complex_infinite(call: Call) -> bool:
    return _not_finite(call) and _any(call, lambda x: x.dtype.kind == "c")


_DIFFERENCES: Final = [
    Difference(
        many("numpy", "conj conjugate reciprocal rint round around"),
        _integer,
        "bools and integers keep their dtype, 1 / x of integers is floating; int8 of a bool and float16 are NumPy's",
    ),
    Difference(
        "numpy.reciprocal",
        lambda c: _any(c, lambda x: x.dtype.kind == "c"),
        "0 of a complex infinity with another infinity or nan, where NumPy has nan",
    ),
    Difference(
        many("numpy", "quantile percentile"),
        lambda c: c.args[0].dtype == np.int8,
        "NumPy adds neighbours in int8, which wraps",
    ),
    Difference(
        "numpy.histogram",
        lambda c: bool(np.isnan(np.asarray(c.keywords.get("weights", 0), float)).any()),
        "NumPy takes differences of a cumulative sum, so a weight of nan also counts in later bins",
    ),
    Difference("numpy.spacing", _integer, "of the dtype that integers become, float32"),
    Difference(
        many("numpy", "expm1 sign sinc i0"),
        _not_finite,
        "limits, where NumPy has nan; the sign of a complex number with nan is nan",
    ),
    Difference(
        "numpy.nanmin numpy.nanmax",
        lambda c: _any(c, lambda x: x.dtype.kind == "c"),
        "a complex nan loses its other part",
    ),
    Difference(
        many("numpy", "quantile nanquantile percentile nanpercentile"),
        _not_finite,
        "between equal infinities no nan is formed",
    ),
    Difference(
        "numpy.nanquantile numpy.nanpercentile",
        lambda c: isinstance(c.args[1], np.ndarray),
        "NumPy misplaces the axes of q for empty arrays and several axes",
    ),
    Difference(
        many("numpy", "quantile nanquantile percentile nanpercentile"),
        lambda c: c.args[0].dtype == bool or c.args[0].size == 1,
        "of bools, methods that interpolate are floating; of one element NumPy keeps integers",
    ),
    Difference("numpy.searchsorted", lambda c: len(c.args) == 4, "an order that does not sort"),
    Difference("numpy.unique_values", _always, "sorted here, in any order in NumPy from 2.3 on"),
    Difference(
        many("numpy", "intersect1d union1d setxor1d setdiff1d isin"),
        lambda c: _any(c, lambda x: x.dtype == np.uint64),
        "exact here; NumPy compares uint64 with signed integers in float64",
    ),
    Difference("numpy.histogram2d", _always, "counts are integers here"),
    Difference(
        "numpy.histogram",
        lambda c: "weights" in c.keywords and c.keywords["weights"].dtype == bool,
        "bools are counted; NumPy refuses some",
    ),
    Difference(
        "numpy.convolve numpy.correlate numpy.einsum", _complex_infinite, "parts of products of complex infinities"
    ),
    Difference(
        "numpy.convolve numpy.correlate numpy.polymul",
        _not_finite,
        "zeros beyond the ends times a nan or an infinity are nan",
    ),
    Difference("numpy.poly numpy.roots", _always, "complex, as eigenvalues are"),
    Difference("numpy.ldexp numpy.float_power", _integer, "integers become float32"),
    Difference("numpy.linalg.lstsq", _always, "residuals are always there; `numpy_resid` leaves them out"),
    Difference(
        "numpy.fft.fft2 numpy.fft.ifft2 numpy.fft.fftn numpy.fft.ifftn",
        lambda c: np.ndim(c.args[0]) == 0,
        "complex, though no axis is transformed",
    ),
    Difference(
        "scipy.stats.rankdata",
        lambda c: c.keywords["method"] != "average" or c.args[0].dtype.kind == "c",
        "whole ranks are integers",
    ),
    Difference(
        "scipy.special.logsumexp",
        lambda c: "b" in c.keywords or not c.args[0].size,
        "-inf, of sign 0, for no elements and for factors of 0",
    ),
    Difference(
        "scipy.special.softmax scipy.special.log_softmax", _not_finite, "nan where the greatest element is infinite"
    ),
]
DIFFERENCES: Final[dict[str, list[Difference]]] = {
    name: [d for d in _DIFFERENCES if name in d.names.split()] for d in _DIFFERENCES for name in d.names.split()
}
