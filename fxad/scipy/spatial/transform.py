"""Rotations in three dimensions, as in `scipy.spatial.transform`.

Formulas: M. D. Shuster, A survey of attitude representations (1993); Bernardes and Viollet, Quaternion to Euler angles
conversion: A direct, general and computationally efficient method (2022), for `as_euler`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, final

from fxad import dtypes, numpy as fnp, random
from fxad.core.trees import classes as tree_classes
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.numpy import linalg
from fxad.numpy.composites import jit_composite
from fxad.operations.arguments import flag, to_int
from fxad.operations.promotion import optional_dtype
from fxad.scipy.arguments import reals
from fxad.tracing.array import Array, ArrayLike

_SMALL: Final = 1e-6  # a series serves below this square of an angle, or of its sine: its next term is below 1e-18
_POLE: Final = 1e-7  # SciPy's tolerance for the middle angle of `as_euler`


@final
@tree_classes.dataclass
class Rotation:
    """Rotations, as unit quaternions (x, y, z, w). Make them with `from_quat`, `from_matrix`, `from_rotvec`, ....

    Type:   `quat` (..., 4): one rotation has no axis before the last one. A pytree, whose leaf is `quat`.
    Rule:   differentiable everywhere, also at the identity, apart from `magnitude` there.
    """

    quat: Array

    # ------------------------------------------------------------------------------------------------- constructors

    @staticmethod
    def from_quat(quat: ArrayLike, *, scalar_first: bool = False) -> Rotation:
        """Rotations of quaternions of any norm but 0: (..., 4), the real part last, or first. 0 gives nan."""
        (q,) = _vectors("from_quat", 4, quat)
        return Rotation(_normalized(fnp.roll(q, -1, -1) if flag("from_quat", "scalar_first", scalar_first) else q))

    @staticmethod
    def from_matrix(matrix: ArrayLike) -> Rotation:
        """Rotations of orthogonal matrices with determinant 1: (..., 3, 3). They are not made orthogonal."""
        (m,) = _vectors("from_matrix", 3, matrix)
        if m.ndim < 2 or m.shape[-2] != 3:
            raise ShapeError(f"from_matrix: takes matrices of 3 by 3, got {m.aval}", remedy="give an array (..., 3, 3)")
        return Rotation(jit_composite(_from_matrix, m))

    @staticmethod
    def from_rotvec(rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations about the direction of vectors, by their length: (..., 3), in radians or degrees."""
        (v,) = _vectors("from_rotvec", 3, rotvec)
        v = fnp.deg2rad(v) if flag("from_rotvec", "degrees", degrees) else v
        return Rotation(jit_composite(_from_rotvec, v))

    @staticmethod
    def from_mrp(mrp: ArrayLike) -> Rotation:
        """Rotations of modified Rodrigues parameters, tan(angle / 4) times the axis: (..., 3)."""
        (v,) = _vectors("from_mrp", 3, mrp)
        square = fnp.sum(v * v, -1, keepdims=True)
        return Rotation(fnp.concatenate([2 * v, 1 - square], -1) / (1 + square))

    @staticmethod
    def from_euler(seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations about up to three axes: "xyz" about fixed axes, "XYZ" about axes that turn along.

        Type:   angles (..., k) for k axes; for one axis also a number.
        Raises: ParameterError for other axes; ShapeError.
        """
        axes, intrinsic = _axes("from_euler", seq, (1, 2, 3))
        (array,) = reals("from_euler", angles)
        array = array[None] if array.ndim == 0 and len(axes) == 1 else array
        if array.ndim == 0 or array.shape[-1] != len(axes):
            raise ShapeError(
                f"from_euler: {seq!r} takes angles of shape (..., {len(axes)}), got {array.aval}",
                remedy="give one angle for each axis",
            )
        half = (fnp.deg2rad(array) if flag("from_euler", "degrees", degrees) else array) / 2
        total: Array | None = None
        for k, axis in enumerate(axes):
            parts = [fnp.zeros_like(half[..., k])] * 3
            parts[axis] = fnp.sin(half[..., k])
            one = fnp.stack([*parts, fnp.cos(half[..., k])], -1)
            total = one if total is None else _product(total, one) if intrinsic else _product(one, total)
        assert total is not None
        return Rotation(total)

    @staticmethod
    def identity(num: int | None = None, dtype: object = None) -> Rotation:
        """Return the rotation that changes nothing, or `num` of them. `dtype` is float32 by default."""
        kind = optional_dtype(dtype) or dtypes.float32
        one = fnp.asarray([0, 0, 0, 1]).astype(kind)
        return Rotation(one if num is None else fnp.tile(one, (to_int("identity", "num", num), 1)))

    @staticmethod
    def random(key: Array, num: int | None = None) -> Rotation:
        """Return a rotation, or `num` of them, of the uniform distribution, from a key of `fxad.random`."""
        shape = () if num is None else (to_int("random", "num", num),)
        return Rotation(_normalized(random.normal(key, (*shape, 4))))

    @staticmethod
    def concatenate(rotations: Sequence[Rotation]) -> Rotation:
        """Rotations in a row; each argument has at most one axis of rotations."""
        for k, r in enumerate(rotations):
            if not isinstance(r, Rotation):
                raise ArgumentError(f"concatenate: argument {k}: {described(r)} is not a Rotation", remedy="from_quat")
        return Rotation(fnp.concatenate([fnp.atleast_2d(r.quat) for r in rotations]))

    # -------------------------------------------------------------------------------------------------- other forms

    def as_quat(self, canonical: bool = False, *, scalar_first: bool = False) -> Array:
        """Return unit quaternions, the real part last, or first. With `canonical` the first component of w, x, y, z
        that is not 0 is positive."""
        q = self.quat
        if flag("as_quat", "canonical", canonical):
            q = jit_composite(_canonical, q)
        return fnp.roll(q, 1, -1) if flag("as_quat", "scalar_first", scalar_first) else q

    def as_matrix(self) -> Array:
        """Orthogonal matrices (..., 3, 3)."""
        return jit_composite(_as_matrix, self.quat)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes times angles, of 0 to pi: (..., 3)."""
        v = jit_composite(_as_rotvec, self.quat)
        return fnp.rad2deg(v) if flag("as_rotvec", "degrees", degrees) else v

    def as_mrp(self) -> Array:
        """Return modified Rodrigues parameters: (..., 3), of length 1 at most."""
        w = self.quat[..., 3:]
        return fnp.where(w < 0, -1, 1) * self.quat[..., :3] / (1 + fnp.abs(w))

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles about three axes (..., 3): "xyz" about fixed axes, "XYZ" about axes that turn along.

        Rule:   the middle angle is in [0, pi] if the first and the last axis are the same, else in [-pi/2, pi/2]. At
                the ends of this range the last angle is set to 0.
        Raises: ParameterError for other axes, or an axis twice in a row.
        """
        axes, intrinsic = _axes("as_euler", seq, (3,))
        angles = jit_composite(_as_euler, self.quat, axes, intrinsic)
        return fnp.rad2deg(angles) if flag("as_euler", "degrees", degrees) else angles

    # ---------------------------------------------------------------------------------------------------- operations

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Vectors (..., 3), turned, or turned back. The axes before the last one broadcast with those of rotations."""
        (v,) = _vectors("apply", 3, vectors)
        m = self.as_matrix()
        m = fnp.matrix_transpose(m) if flag("apply", "inverse", inverse) else m
        return fnp.matmul(m, v[..., None], precision="highest")[..., 0]

    def inv(self) -> Rotation:
        """Return the inverse rotations."""
        return Rotation(self.quat * fnp.asarray([-1, -1, -1, 1]).astype(self.quat.dtype))

    def magnitude(self) -> Array:
        """Angles, of 0 to pi."""
        return 2 * fnp.arctan2(linalg.norm(self.quat[..., :3], axis=-1), fnp.abs(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """Return the rotation with the least weighted sum of squared distances of matrices, along the only axis of
        rotations.

        Source: Markley et al., Averaging quaternions (2007): the eigenvector of the sum of q q^T
        """
        q = fnp.atleast_2d(self.quat)
        weighted = q if weights is None else q * reals("mean", weights)[0].astype(q.dtype)[..., None]
        sums = fnp.einsum("...ni,...nj->...ij", weighted, q, precision="highest")
        return Rotation(linalg.eigh(sums).eigenvectors[..., -1])

    def approx_equal(self, other: Rotation, atol: float = 1e-8, degrees: bool = False) -> Array:
        """Return True where the angle between rotations is less than `atol`."""
        angle = (self * other.inv()).magnitude()
        return (fnp.rad2deg(angle) if flag("approx_equal", "degrees", degrees) else angle) < atol

    def __mul__(self, other: Rotation) -> Rotation:
        """Return the rotation by `other`, and then by this one."""
        if not isinstance(other, Rotation):
            return NotImplemented
        return Rotation(_normalized(_product(self.quat, other.quat)))

    def __pow__(self, n: float) -> Rotation:
        """Return the rotation by n times the angle."""
        return Rotation.from_rotvec(n * self.as_rotvec())

    def __getitem__(self, index: object) -> Rotation:
        """Return the rotations at an index of the axes before the last one. Raises: ArgumentError for one rotation."""
        if self.single:
            raise ArgumentError("Rotation: one rotation has no elements", remedy="use it as it is")
        return Rotation(self.quat[index])

    def __len__(self) -> int:
        """Return the number of rotations along the first axis. Raises: ArgumentError for one rotation."""
        if self.single:
            raise ArgumentError("Rotation: one rotation has no length", remedy="use its `single`")
        return len(self.quat)

    @property
    def single(self) -> bool:
        """True for one rotation, without axes."""
        return self.quat.ndim == 1


@final
@tree_classes.dataclass
class Slerp:
    """Spherical linear interpolation: between two rotations the angular velocity is constant.

    `Slerp(times, rotations)(t)` are the rotations at times t, of any shape. Beyond the first and the last time the
    nearest velocity goes on.

    Type:   times (n,), strictly increasing, n at least 2; n rotations. A pytree.
    Rule:   differentiable in times and rotations.
    Raises: ShapeError.
    """

    times: Array
    rotations: Rotation

    def __post_init__(self) -> None:
        given: object = self.rotations
        if not isinstance(given, Rotation):
            raise ArgumentError(f"Slerp: rotations: {described(given)} is not a Rotation", remedy="Rotation.from_quat")
        shape = fnp.shape(self.times)
        if len(shape) != 1 or shape[0] < 2 or self.rotations.quat.shape[:-1] != shape:
            raise ShapeError(
                f"Slerp: times of shape {shape} for rotations of shape {self.rotations.quat.shape[:-1]}",
                remedy="give a vector of two times or more, and as many rotations",
            )

    @staticmethod
    def init(times: ArrayLike, rotations: Rotation) -> Slerp:
        """`Slerp(times, rotations)`, as JAX writes it."""
        return Slerp(fnp.asarray(times), rotations)

    def __call__(self, times: ArrayLike) -> Rotation:
        """Return the rotations at times."""
        known, wanted = reals("Slerp", self.times, times)
        place = fnp.clip(fnp.searchsorted(known, wanted) - 1, 0, known.shape[0] - 2)
        start, end = self.rotations[place], self.rotations[place + 1]
        share = (wanted - known[place]) / (known[place + 1] - known[place])
        turn = (start.inv() * end).as_rotvec()
        return start * Rotation.from_rotvec(share[..., None].astype(turn.dtype) * turn)


# --------------------------------------------------------------------------------------------------------- quaternions


def _vectors(name: str, size: int, *args: ArrayLike) -> list[Array]:
    """Real arrays whose last axis has a size. Raises: ShapeError."""
    arrays = reals(name, *args)
    for x in arrays:
        if x.ndim == 0 or x.shape[-1] != size:
            raise ShapeError(
                f"{name}: takes arrays of shape (..., {size}), got {x.aval}",
                remedy=f"the last axis has {size} elements",
            )
    return arrays


def _axes(name: str, seq: str, counts: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Axes by number, and True if they turn along. Raises: ParameterError."""
    valid = isinstance(seq, str) and len(seq) in counts and (set(seq) <= set("xyz") or set(seq) <= set("XYZ"))
    if not valid or any([a == b for a, b in pairwise(seq)]):
        raise ParameterError(
            f"{name}: axes {shown(seq, 40)}", remedy='use letters such as "xyz" or "ZXZ", no axis twice in a row'
        )
    return tuple(["xyz".index(c) for c in seq.lower()]), seq.isupper()


def _normalized(q: Array) -> Array:
    return q / linalg.norm(q, axis=-1, keepdims=True)


def _product(p: Array, q: Array) -> Array:
    """Hamilton's product."""
    u, v, a, b = p[..., :3], q[..., :3], p[..., 3:], q[..., 3:]
    return fnp.concatenate([a * v + b * u + fnp.cross(u, v), a * b - fnp.sum(u * v, -1, keepdims=True)], -1)


def _canonical(q: Array) -> Array:
    x, y, z, w = [q[..., k : k + 1] for k in range(4)]
    first = fnp.where(w != 0, w, fnp.where(x != 0, x, fnp.where(y != 0, y, z)))
    return fnp.where(first < 0, -q, q)


def _from_rotvec(v: Array) -> Array:
    """sin(a / 2) / a and cos(a / 2) for the angle a, as functions of its square: smooth at 0."""
    square = fnp.sum(v * v, -1, keepdims=True)
    small = square < _SMALL
    angle = fnp.sqrt(fnp.where(small, 1, square))
    factor = fnp.where(small, 0.5 - square / 48 + square * square / 3840, fnp.sin(angle / 2) / angle)
    real = fnp.where(small, 1 - square / 8 + square * square / 384, fnp.cos(angle / 2))
    return fnp.concatenate([factor * v, real], -1)


def _as_rotvec(q: Array) -> Array:
    """Return the angle 2 asin(s) divided by s = |(x, y, z)|, as a function of its square: smooth at 0."""
    q = fnp.where(q[..., 3:] < 0, -q, q)
    v, w = q[..., :3], q[..., 3:]
    square = fnp.sum(v * v, -1, keepdims=True)
    small = square < _SMALL
    sine = fnp.sqrt(fnp.where(small, 1, square))
    factor = fnp.where(small, 2 + square / 3 + 3 * square * square / 20, 2 * fnp.arctan2(sine, w) / sine)
    return factor * v


def _as_matrix(q: Array) -> Array:
    x, y, z, w = [q[..., k] for k in range(4)]
    rows = (
        (x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w),
    )
    return fnp.stack([fnp.stack(row, -1) for row in rows], -2)


def _from_matrix(m: Array) -> Array:
    """Four times the products of each component with all components; those of the greatest one are normalized."""
    at = [[m[..., i, j] for j in range(3)] for i in range(3)]
    trace = at[0][0] + at[1][1] + at[2][2]
    candidates = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts = {i: 1 - trace + 2 * at[i][i], j: at[j][i] + at[i][j], k: at[k][i] + at[i][k], 3: at[k][j] - at[j][k]}
        candidates.append(fnp.stack([parts[n] for n in range(4)], -1))
    differences = [at[2][1] - at[1][2], at[0][2] - at[2][0], at[1][0] - at[0][1]]
    candidates.append(fnp.stack([*differences, 1 + trace], -1))
    greatest = fnp.argmax(fnp.stack([at[0][0], at[1][1], at[2][2], trace], -1), -1)
    chosen = candidates[3]
    for k in range(3):
        chosen = fnp.where((greatest == k)[..., None], candidates[k], chosen)
    return _normalized(chosen)


def _as_euler(q: Array, axes: tuple[int, ...], intrinsic: bool) -> Array:
    i, j, k = axes[::-1] if intrinsic else axes
    symmetric = i == k
    k = 3 - i - j if symmetric else k
    sign = (i - j) * (j - k) * (k - i) // 2
    if symmetric:
        a, b, c, d = q[..., 3], q[..., i], q[..., j], sign * q[..., k]
    else:
        x, y, z, w = q[..., i], q[..., j], sign * q[..., k], q[..., 3]
        a, b, c, d = w - y, x + z, y + w, z - x
    middle = 2 * fnp.arctan2(fnp.hypot(c, d), fnp.hypot(a, b))
    lowest, highest = fnp.abs(middle) <= _POLE, fnp.abs(middle - math.pi) <= _POLE
    at_pole = lowest | highest
    half_sum, half_difference = fnp.arctan2(b, a), fnp.arctan2(d, c)
    # SciPy's first angle is that of the first axis that is turned about
    alone = fnp.where(lowest, 2 * half_sum, 2 * half_difference * (1 if intrinsic else -1))
    first, third = half_sum - half_difference, half_sum + half_difference
    angles = [third, middle, first] if intrinsic else [first, middle, third]
    angles[0], angles[2] = fnp.where(at_pole, alone, angles[0]), fnp.where(at_pole, 0, angles[2])
    if not symmetric:
        last = 0 if intrinsic else 2
        angles[last] = angles[last] * sign
        angles[1] = angles[1] - math.pi / 2
    return fnp.stack([_wrapped(x) for x in angles], -1)


def _wrapped(x: Array) -> Array:
    return fnp.where(x < -math.pi, x + 2 * math.pi, fnp.where(x > math.pi, x - 2 * math.pi, x))


__all__ = ["Rotation", "Slerp"]
