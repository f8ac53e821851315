"""Bundle adjustment: cameras and points from their images, by Levenberg-Marquardt with a sparse Jacobian.

    python examples/bundle_adjustment.py

Each of 12 cameras sees some of 300 points. A camera has six unknowns (rotation and position), a point three. An
observation depends on one camera and one point, so a row of the Jacobian has 9 elements of 972 that are not zero. The
indices of camera and point are data; the pattern is read from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import fxad as fx
import fxad.numpy as fnp
from fxad import lax


def rotated(turn: fx.Array, x: fx.Array) -> fx.Array:
    """Points, rotated about axes by the lengths of the axes (Rodrigues' formula)."""
    angle = fnp.sqrt(fnp.sum(turn**2, axis=1, keepdims=True) + 1e-16)
    axis = turn / angle
    along = fnp.sum(axis * x, axis=1, keepdims=True)
    return x * fnp.cos(angle) + fnp.cross(axis, x) * fnp.sin(angle) + axis * along * (1 - fnp.cos(angle))


Indices: TypeAlias = npt.NDArray[np.int32]


def images(unknowns: fx.Array, camera: Indices, point: Indices, cameras: int) -> fx.Array:
    """The places of the observations in the images of pinhole cameras."""
    pose = unknowns[: 6 * cameras].reshape(cameras, 6)[camera]
    x = unknowns[6 * cameras :].reshape(-1, 3)[point]
    seen = rotated(pose[:, :3], x) + pose[:, 3:]
    return seen[:, :2] / seen[:, 2:]


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Fits noisy observations from a perturbed start, and returns the errors before and after."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cameras", type=int, default=12)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--seen", type=int, default=6, help="cameras that see a point")
    options = parser.parse_args(argv)
    cameras, points = options.cameras, options.points

    rng = np.random.default_rng(0)
    turns, shifts = 0.2 * rng.normal(size=(cameras, 3)), rng.normal(size=(cameras, 2))
    poses = np.concatenate([turns, shifts, np.full((cameras, 1), 8)], axis=1)
    true = np.concatenate([poses.reshape(-1), rng.normal(size=3 * points)])
    camera = np.concatenate([rng.choice(cameras, options.seen, replace=False) for _ in range(points)]).astype(np.int32)
    point = np.repeat(np.arange(points, dtype=np.int32), options.seen)
    noise = 1e-3
    observed = np.asarray(images(fnp.asarray(true), camera, point, cameras)) + noise * rng.normal(size=(len(camera), 2))

    def residual(unknowns: fx.Array) -> fx.Array:
        return (images(unknowns, camera, point, cameras) - observed).reshape(-1) / noise

    start = fnp.asarray(true + 0.05 * rng.normal(size=true.shape))
    traced = fx.trace(residual, start)
    jacobian = fx.sparse_jacobian(traced)
    pattern = fx.sparsity(traced)
    print(f"Jacobian of {pattern.shape}: {pattern.nnz:,} elements, by {pattern.color().products} products")
    fit = fx.jit(lambda x: lax.levenberg_marquardt(residual, x, jacobian, maxiter=60))
    found, report = fit(start)
    before, after = [float(np.sqrt(np.mean(np.asarray(residual(x)) ** 2))) for x in (start, found)]
    print(f"root mean square error, in standard deviations of the noise: {before:.1f} before, {after:.3f} after")
    print(f"{int(report.iterations)} steps")
    return {"before": before, "after": after, "products": pattern.color().products, "steps": int(report.iterations)}


if __name__ == "__main__":
    main()
