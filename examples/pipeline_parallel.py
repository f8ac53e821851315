"""Pipeline-parallel training: each of 8 devices has one of 8 layers.

    python examples/pipeline_parallel.py

The batch is divided into microbatches. In each step of a `scan`, a device computes its layer and passes the result to
the next device with `ppermute`. After 7 steps all devices work, each on another microbatch. The gradient is that of the
`scan`: it runs the steps in reverse, and the transpose of a `ppermute` passes cotangents to the device before.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import characters
from characters import Params
from pictures import add_option
from side_by_side import compare

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, random
from fxad.sharding import NamedSharding, make_mesh

P: Any = fx.P  # a tree of specs has the structure of the parameters, but not their types
STAGES, MICROBATCHES = 8, 8
DIVISION = Params(characters=P(), blocks=P("stage"), head=P())


def loss(params: Params, text: fx.Array) -> fx.Array:
    """Return the loss on one device: `params.blocks` has its layer alone, `text` is the whole batch."""
    stage = lax.axis_index("stage")
    block = fx.tree.map(lambda leaf: leaf[0], params.blocks)
    text = text.reshape(MICROBATCHES, -1, text.shape[1])
    inputs = params.characters[text[:, :, :-1]]

    def tick(handed: fx.Array, time: fx.Array) -> tuple[fx.Array, fx.Array]:
        """One layer on each device. The first device takes the next microbatch, the others the result of the device
        before."""
        fresh = inputs[fnp.minimum(time, MICROBATCHES - 1)]
        y, _ = characters.layer(fnp.where(stage == 0, fresh, handed), block)
        return lax.ppermute(y, "stage", [(k, k + 1) for k in range(STAGES - 1)]), y

    ticks = fnp.arange(MICROBATCHES + STAGES - 1)
    _, outputs = lax.scan(fx.remat(tick), fnp.zeros_like(inputs[0]), ticks)
    scores = nn.log_softmax(nn.standardize(outputs[STAGES - 1 :]) @ params.head)
    value = -fnp.mean(fnp.take_along_axis(scores, text[:, :, 1:, None], axis=-1))
    # the results of the last device are the output of the model
    return lax.psum(fnp.where(stage == STAGES - 1, value, 0.0), "stage")


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains on 8 devices and on one, and returns the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=10)
    add_option(parser)
    options = parser.parse_args(argv)
    fx.set_cpu_devices(STAGES)  # with accelerators, leave this line out
    mesh = make_mesh((STAGES,), ("stage",))
    parallel = fx.shard_map(loss, mesh, in_specs=(DIVISION, P()), out_specs=P())
    places = fx.tree.map(lambda spec: NamedSharding(mesh, spec), DIVISION, is_leaf=lambda x: isinstance(x, fx.P))
    params = characters.initial(random.key(0), layers=STAGES)
    return compare(parallel, characters.loss, params, places, options)


if __name__ == "__main__":
    main()
