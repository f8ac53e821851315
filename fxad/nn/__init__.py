"""Functions of neural networks. Values and derivatives are finite where the textbook form overflows."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.nn import initializers
    from fxad.nn.activations import (
        celu,
        elu,
        gelu,
        glu,
        hard_sigmoid,
        hard_silu,
        hard_swish,
        hard_tanh,
        identity,
        leaky_relu,
        log1mexp,
        log_sigmoid,
        mish,
        relu,
        relu6,
        selu,
        sigmoid,
        silu,
        soft_sign,
        softplus,
        sparse_plus,
        sparse_sigmoid,
        squareplus,
        swish,
        tanh,
    )
    from fxad.nn.attention import dot_product_attention
    from fxad.nn.layers import dropout, embedding
    from fxad.nn.normalisations import log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize
    from fxad.nn.norms import BatchStats, batch_norm, group_norm, layer_norm, rms_norm
    from fxad.nn.pooling import avg_pool, max_pool, min_pool, pool
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.nn.activations": (
                "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log1mexp "
                "log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid "
                "squareplus swish tanh"
            ),
            "fxad.nn.attention": "dot_product_attention",
            "fxad.nn.layers": "dropout embedding",
            "fxad.nn.normalisations": "log_softmax logmeanexp logsumexp one_hot softmax standardize",
            "fxad.nn.norms": "BatchStats batch_norm group_norm layer_norm rms_norm",
            "fxad.nn.pooling": "avg_pool max_pool min_pool pool",
        },
        "initializers",
    )

__all__ = [
    "BatchStats", "avg_pool", "batch_norm", "celu", "dot_product_attention", "dropout", "elu", "embedding", "gelu",
    "glu", "group_norm", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity", "initializers",
    "layer_norm", "leaky_relu", "log1mexp", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "max_pool",
    "min_pool", "mish", "one_hot", "pool", "relu", "relu6", "rms_norm", "selu", "sigmoid", "silu", "soft_sign",
    "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "standardize", "swish", "tanh",
]  # fmt: skip
