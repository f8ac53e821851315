"""Data-parallel training: each of 8 devices has all parameters and a part of the batch.

    python examples/data_parallel.py

The loss of a batch is the mean of the losses of its parts: one `pmean`. The gradient with respect to a parameter that
every device reads is the sum over devices, so `grad` adds one `psum` for each parameter. No other code is needed.

The picture. Left: the loss on 8 devices lies on the loss on one device. Right: the bytes that a device sends in each
step, which `fx.comm` reads from the program.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import characters
from characters import Params
from pictures import add_option
from side_by_side import compare

import fxad as fx
from fxad import lax, random
from fxad.sharding import NamedSharding, PartitionSpec as P, make_mesh


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains on 8 devices and on one, and returns the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=20)
    add_option(parser)
    options = parser.parse_args(argv)
    fx.set_cpu_devices(8)  # with accelerators, leave this line out
    mesh = make_mesh((8,), ("data",))

    def loss(params: Params, text: fx.Array) -> fx.Array:
        """Return the loss on one device, whose part of the batch is `text`."""
        return lax.pmean(characters.loss(params, text), "data")

    parallel = fx.shard_map(loss, mesh, in_specs=(P(), P("data")), out_specs=P())
    params = characters.initial(random.key(0))
    return compare(parallel, characters.loss, params, NamedSharding(mesh, P()), options)


if __name__ == "__main__":
    main()
