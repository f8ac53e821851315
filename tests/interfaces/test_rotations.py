"""`fxad.scipy.spatial.transform` against SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Theirs, Slerp as TheirSlerp

import fxad as fx
from fxad.errors import ArgumentError, ParameterError, ShapeError
from fxad.scipy.spatial.transform import Rotation, Slerp
from tests.api.refusals import check_refused

RNG = np.random.default_rng(3)
Q, V, TIMES = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3)), np.arange(6.0)
T = np.array([0, 0.5, 2, 4.75, 5])
ORDERS = ("xyz", "zyx", "xzy", "zxz", "yxy", "XYZ", "ZYX", "YXZ", "ZXZ", "XYX")
them: Any = Theirs  # its types are narrower than the values that it accepts
slerp: Any = Slerp


def by_angles(order: str) -> Callable[[Any], Any]:
    return lambda r: r.as_euler(order)


def from_angles(order: str) -> Callable[[Any], Any]:
    return lambda r: r.from_euler(order, V[:, : len(order)])


NAMES: dict[str, Callable[[Any], Any]] = {
    "matrix": lambda r: r.as_matrix(),
    "vector": lambda r: r.as_rotvec(),
    "degrees": lambda r: r.as_rotvec(degrees=True),
    "mrp": lambda r: r.as_mrp(),
    "quat": lambda r: r.as_quat(),
    "canonical": lambda r: r.as_quat(canonical=True),
    "scalar first": lambda r: r.as_quat(scalar_first=True),
    "apply": lambda r: r.apply(V),
    "apply to one": lambda r: r.apply(V[0]),
    "inverse": lambda r: r.apply(V, inverse=True),
    "inv": lambda r: r.inv().as_quat(),
    "magnitude": lambda r: r.magnitude(),
    "mean": lambda r: r.mean().as_matrix(),
    "weighted mean": lambda r: r.mean(np.arange(6.0)).as_matrix(),
    "product": lambda r: (r * r[::-1]).as_matrix(),
    "power": lambda r: (r**1.7).as_matrix(),
    "one": lambda r: r[2].as_matrix(),
    **{f"euler {o}": by_angles(o) for o in ORDERS},
    "euler in degrees": lambda r: r.as_euler("zxz", degrees=True),
}


def test_forms_and_operations() -> None:
    ours = fx.jit(lambda q: {name: f(Rotation.from_quat(q)) for name, f in NAMES.items()})(Q)
    for name, f in NAMES.items():
        np.testing.assert_allclose(ours[name], f(Theirs.from_quat(Q)), rtol=1e-12, atol=1e-14, err_msg=name)


def test_constructors() -> None:
    matrices = Theirs.from_quat(Q).as_matrix()
    calls: dict[str, Callable[[Any], Any]] = {
        "matrix": lambda r: r.from_matrix(matrices),
        "vector": lambda r: r.from_rotvec(V),
        "vector in degrees": lambda r: r.from_rotvec(90 * V, degrees=True),
        "tiny vector": lambda r: r.from_rotvec(1e-5 * V),
        "mrp": lambda r: r.from_mrp(V),
        "scalar first": lambda r: r.from_quat(Q, scalar_first=True),
        "identity": lambda r: r.identity(),
        "identities": lambda r: r.identity(3),
        "rows": lambda r: r.concatenate([r.from_quat(Q), r.from_quat(Q[0])]),
        "slerp": lambda r: (slerp if r is Rotation else TheirSlerp)(TIMES, r.from_quat(Q))(T),
        "slerp at a time": lambda r: (Slerp.init if r is Rotation else TheirSlerp)(TIMES, r.from_quat(Q))(2.25),
        **{f"euler {o}": from_angles(o) for o in (*ORDERS, "x", "zx", "ZX")},
        "one angle": lambda r: r.from_euler("y", 30.0, degrees=True),
    }
    ours = fx.jit(lambda: {name: f(Rotation).as_matrix() for name, f in calls.items()})()
    for name, f in calls.items():
        tolerance = 1e-6 if "identit" in name or name == "one angle" else 1e-12  # float32 by default
        np.testing.assert_allclose(ours[name], f(Theirs).as_matrix(), rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("axis", range(4))
def test_from_matrix_by_each_component(axis: int) -> None:
    """Near half turns about each axis, and near the identity, another component is the greatest."""
    quat = np.full(4, 0.1)
    quat[axis] = 1
    theirs = Theirs.from_quat(quat)
    np.testing.assert_allclose(Rotation.from_matrix(theirs.as_matrix()).as_matrix(), theirs.as_matrix(), atol=1e-14)


def test_angles_at_the_poles() -> None:
    for order in ORDERS:
        ends = (0, np.pi) if order[0] == order[2] else (-np.pi / 2, np.pi / 2)
        for middle in ends:
            angles = np.array([0.3, middle, 0.5])
            found = Rotation.from_euler(order, angles).as_euler(order)
            assert found[2] == 0
            with pytest.warns(UserWarning, match="Gimbal lock"):
                wanted = them.from_euler(order, angles).as_euler(order)
            np.testing.assert_allclose(found, wanted, atol=1e-7)


def test_derivatives_at_the_identity() -> None:
    """sin(a/2)/a and its inverse are smooth functions of the square of the angle a."""
    rotation: Any = Rotation

    def there_and_back(v: Any) -> Any:
        return rotation.from_rotvec(v).as_rotvec()

    def real_part(v: Any) -> Any:
        return rotation.from_rotvec(v).as_quat()[3]

    def turned(v: Any) -> Any:
        return rotation.from_rotvec(v).apply(V[0])

    zero = np.zeros(3)
    turn = fx.jit(fx.jacrev(there_and_back))
    np.testing.assert_allclose(turn(zero), np.eye(3))
    np.testing.assert_allclose(turn(V[0]), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(fx.jit(fx.hessian(real_part))(zero), -np.eye(3) / 4, atol=1e-12)
    np.testing.assert_allclose(fx.jit(fx.jacfwd(turned))(zero), np.cross(np.eye(3), V[0]).T, atol=1e-12)


def test_it_is_a_tree() -> None:
    rotations = Rotation.from_quat(Q)
    np.testing.assert_allclose(fx.vmap(lambda r: r.as_matrix())(rotations), rotations.as_matrix(), atol=1e-14)
    assert len(rotations) == 6
    assert not rotations.single
    assert rotations[0].single
    assert Rotation.random(fx.random.key(0), 5).as_matrix().shape == (5, 3, 3)
    assert bool(rotations.approx_equal(rotations[::1]).all())


def test_refusals() -> None:
    one = Rotation.identity()
    several: Any = Rotation
    check_refused(
        lambda: several.from_euler("xyX", V),
        ParameterError,
        "from_euler: axes 'xyX'",
        'use letters such as "xyz" or "ZXZ", no axis twice in a row',
    )
    check_refused(
        lambda: Rotation.from_quat(V),
        ShapeError,
        "from_quat: takes arrays of shape (..., 4), got f64[6,3]",
        "the last axis has 4 elements",
    )
    check_refused(
        lambda: Rotation.from_matrix(V),
        ShapeError,
        "from_matrix: takes matrices of 3 by 3, got f64[6,3]",
        "give an array (..., 3, 3)",
    )
    check_refused(
        lambda: Rotation.from_euler("xy", V),
        ShapeError,
        "from_euler: 'xy' takes angles of shape (..., 2), got f64[6,3]",
        "give one angle for each axis",
    )
    check_refused(lambda: one[0], ArgumentError, "Rotation: one rotation has no elements", "use it as it is")
    check_refused(lambda: len(one), ArgumentError, "Rotation: one rotation has no length", "use its `single`")
    check_refused(
        lambda: several.concatenate([one, Q]),
        ArgumentError,
        "concatenate: argument 1: an ndarray is not a Rotation",
        "from_quat",
    )
    check_refused(
        lambda: Slerp.init(TIMES[:2], Rotation.from_quat(Q)),
        ShapeError,
        "Slerp: times of shape (2,) for rotations of shape (6,)",
        "give a vector of two times or more, and as many rotations",
    )
    strange: Any = Slerp
    check_refused(
        lambda: strange(TIMES, Q), ArgumentError, "Slerp: rotations: an ndarray is not a Rotation", "Rotation.from_quat"
    )
