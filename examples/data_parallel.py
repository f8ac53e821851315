"""Data-parallel training: each of 8 devices has all parameters and a part of the batch.

    python examples/data_parallel.py

The loss of a batch is the mean of the losses of its parts: one `pmean`. The gradient needs nothing else. A parameter
that every device reads has the sum of their gradients, so `grad` adds one `psum` for each parameter.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import characters
from characters import Params
from side_by_side import compare

import fxad as fx
from fxad import lax, random
from fxad.sharding import NamedSharding, PartitionSpec as P, make_mesh


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Train on 8 devices and on one; returns the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args(argv)
    fx.set_cpu_devices(8)  # with accelerators, leave this line out
    mesh = make_mesh((8,), ("data",))

    def loss(params: Params, text: fx.Array) -> fx.Array:
        """On one device: `text` is its part of the batch."""
        return lax.pmean(characters.loss(params, text), "data")

    parallel = fx.shard_map(loss, mesh, in_specs=(P(), P("data")), out_specs=P())
    params = characters.initial(random.key(0))
    return compare(parallel, characters.loss, params, NamedSharding(mesh, P()), options.steps)


if __name__ == "__main__":
    main()
