"""Transformations: pure functions from jaxpr to jaxpr, memoised by value.

`inverse` and the table of inverse rules are not exported here. Import them from their files.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.core.dce import dce as dce, prune as prune
    from fxad.transforms.ad.jacobian import jacfwd as jacfwd, jacrev as jacrev
    from fxad.transforms.ad.jvp import jvp as jvp
    from fxad.transforms.ad.linearize import linearize as linearize
    from fxad.transforms.ad.partial_eval import partial_eval as partial_eval
    from fxad.transforms.ad.transpose import transpose as transpose
    from fxad.transforms.ad.vjp import (
        Vjp as Vjp,
        grad as grad,
        value_and_grad as value_and_grad,
        vjp as vjp,
        vjp_fused as vjp_fused,
    )
    from fxad.transforms.cleanup.cse import cse as cse
    from fxad.transforms.cleanup.inline import inline as inline
    from fxad.transforms.cleanup.simplify import simplify as simplify
    from fxad.transforms.inversion.invertible import invertible as invertible
    from fxad.transforms.inversion.merge_invertible import merge_invertible as merge_invertible
    from fxad.transforms.memory.remat import remat as remat
    from fxad.transforms.memory.residuals import planned as planned, residuals as residuals
    from fxad.transforms.memory_plans.rematerialize import rematerialize as rematerialize
    from fxad.transforms.outlining.outline import outline as outline
    from fxad.transforms.outlining.outline_before_ad import outline_before_ad as outline_before_ad
    from fxad.transforms.outlining.reroll import reroll as reroll
    from fxad.transforms.specialize import specialize as specialize
    from fxad.transforms.vmap import vmap as vmap
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.transforms.inversion.invertible": "invertible",
            "fxad.transforms.inversion.merge_invertible": "merge_invertible",
            "fxad.transforms.memory_plans.rematerialize": "rematerialize",
            "fxad.transforms.cleanup.cse": "cse",
            "fxad.core.dce": "dce prune",
            "fxad.transforms.outlining.outline_before_ad": "outline_before_ad",
            "fxad.transforms.cleanup.inline": "inline",
            "fxad.transforms.ad.jacobian": "jacfwd jacrev",
            "fxad.transforms.ad.jvp": "jvp",
            "fxad.transforms.ad.linearize": "linearize",
            "fxad.transforms.outlining.outline": "outline",
            "fxad.transforms.ad.partial_eval": "partial_eval",
            "fxad.transforms.memory.remat": "remat",
            "fxad.transforms.outlining.reroll": "reroll",
            "fxad.transforms.memory.residuals": "planned residuals",
            "fxad.transforms.cleanup.simplify": "simplify",
            "fxad.transforms.ad.transpose": "transpose",
            "fxad.transforms.ad.vjp": "Vjp grad value_and_grad vjp vjp_fused",
            "fxad.transforms.specialize": "specialize",
            "fxad.transforms.vmap": "vmap",
        },
    )
