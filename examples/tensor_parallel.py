"""Tensor-parallel training: the heads and hidden units of each layer are divided among the devices.

    python examples/tensor_parallel.py

8 devices form a mesh of 2 x 4. A row of the mesh has half of the batch. Each of its 4 devices has one head and a
quarter of the hidden units. A matrix that computes heads is divided by columns, and the matrix after it by rows. So
each device computes a part of a sum, and a layer has two `psum`: after attention, and after the network. Their
transposes are the collectives of the backward pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import characters
from characters import HEADS, LAYERS, WIDTH, Block, Params
from pictures import add_option
from side_by_side import compare

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, random
from fxad.sharding import NamedSharding, make_mesh

P: Any = fx.P  # a tree of specs has the structure of the parameters, but not their types


def by_head(params: Params) -> Params:
    """Return the parameters with an axis for the heads, which can be divided: [layer, WIDTH, 3, HEADS, size of a
    head]."""
    b = params.blocks
    heads = b.query_key_value.reshape(LAYERS, WIDTH, 3, HEADS, WIDTH // HEADS)
    return Params(params.characters, Block(heads, b.near, b.out, b.up, b.down), params.head)


DIVISION = Params(
    characters=P(),
    blocks=Block(
        query_key_value=P(None, None, None, "model"),
        near=P(None, "model"),
        out=P(None, "model"),
        up=P(None, None, "model"),
        down=P(None, "model"),
    ),
    head=P(),
)


def layer(x: fx.Array, block: Block) -> tuple[fx.Array, None]:
    """Return a layer on one device: `block` has its heads and hidden units, `x` is whole."""
    query, key, value = fnp.moveaxis(fnp.tensordot(nn.standardize(x), block.query_key_value, 1), 2, 0)
    here = fnp.arange(x.shape[1])
    bias = block.near[:, fnp.abs(here[:, None] - here)]
    attended = nn.dot_product_attention(query, key, value, bias, is_causal=True)
    x = x + lax.psum(attended.reshape(*x.shape[:2], -1) @ block.out, "model")
    return x + lax.psum(nn.gelu(nn.standardize(x) @ block.up) @ block.down, "model"), None


def loss(params: Params, text: fx.Array) -> fx.Array:
    """Return the loss of `characters`, with the layers above."""
    x, _ = lax.scan(layer, params.characters[text[:, :-1]], params.blocks)
    scores = nn.log_softmax(nn.standardize(x) @ params.head)
    return lax.pmean(-fnp.mean(fnp.take_along_axis(scores, text[:, 1:, None], axis=-1)), "data")


def plain(params: Params, text: fx.Array) -> fx.Array:
    """Return the same loss on one device."""
    b = params.blocks
    whole = Block(b.query_key_value.reshape(LAYERS, WIDTH, 3 * WIDTH), b.near, b.out, b.up, b.down)
    return characters.loss(Params(params.characters, whole, params.head), text)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains on 8 devices and on one, and returns the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=20)
    add_option(parser)
    options = parser.parse_args(argv)
    fx.set_cpu_devices(8)  # with accelerators, leave this line out
    mesh = make_mesh((2, 4), ("data", "model"))
    parallel = fx.shard_map(loss, mesh, in_specs=(DIVISION, P("data")), out_specs=P())
    places = fx.tree.map(lambda spec: NamedSharding(mesh, spec), DIVISION, is_leaf=lambda x: isinstance(x, fx.P))
    return compare(parallel, plain, by_head(characters.initial(random.key(0))), places, options)


if __name__ == "__main__":
    main()
