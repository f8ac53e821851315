"""Bodies that attract each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models.library import Library, Model, Tree


def bodies(steps: int = 200, count: int = 64, dt: float = 1e-3, softening: float = 1e-2) -> Model:
    """The final positions of bodies after leapfrog steps in `scan`, as a function of initial positions, velocities and
    masses."""

    def pull(library: Library, x: Any, mass: Any) -> Any:
        apart = x[None] - x[:, None]
        square = library.np.sum(apart**2, axis=-1) + softening
        return library.np.sum(apart * (mass * square**-1.5)[..., None], axis=1)

    def loss(library: Library, params: Tree, x: Any, y: Any) -> Any:
        mass = params["mass"]

        def leap(state: Any, _: Any) -> tuple[Any, None]:
            place, speed, force = state
            speed = speed + 0.5 * dt * force
            place = place + dt * speed
            force = pull(library, place, mass)
            return (place, speed + 0.5 * dt * force, force), None

        start = params["place"], params["speed"], pull(library, params["place"], mass)
        (place, speed, _), _ = library.lax.scan(leap, start, None, length=steps)
        return library.np.mean((place - x) ** 2) + library.np.mean((speed - y) ** 2)

    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    params = {"place": drawn(count, 3), "speed": drawn(count, 3), "mass": abs(drawn(count)) / count}
    return Model(f"{count} bodies, {steps} leapfrog steps", loss, params, drawn(count, 3), drawn(count, 3))
