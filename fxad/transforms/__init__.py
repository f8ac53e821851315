"""Transformations: one file each, pure functions from jaxpr to jaxpr, memoised by value.

`inverse` and `invertible`, with their table of rules, are imported from their files by who runs programs backwards.
"""

from typing import TYPE_CHECKING

from fxad.later import later

if TYPE_CHECKING:
    from fxad.transforms.chaining import joined as joined
    from fxad.transforms.chains import chained as chained
    from fxad.transforms.cse import cse as cse
    from fxad.transforms.dce import dce as dce
    from fxad.transforms.dce import prune as prune
    from fxad.transforms.in_calls import in_calls as in_calls
    from fxad.transforms.inline import inline as inline
    from fxad.transforms.jacobian import jacfwd as jacfwd
    from fxad.transforms.jacobian import jacrev as jacrev
    from fxad.transforms.jvp import jvp as jvp
    from fxad.transforms.linearize import linearize as linearize
    from fxad.transforms.outline import outline as outline
    from fxad.transforms.partial_eval import partial_eval as partial_eval
    from fxad.transforms.remat import remat as remat
    from fxad.transforms.reroll import reroll as reroll
    from fxad.transforms.residuals import planned as planned
    from fxad.transforms.residuals import residuals as residuals
    from fxad.transforms.simplify import simplify as simplify
    from fxad.transforms.transpose import transpose as transpose
    from fxad.transforms.vjp import Vjp as Vjp
    from fxad.transforms.vjp import grad as grad
    from fxad.transforms.vjp import value_and_grad as value_and_grad
    from fxad.transforms.vjp import vjp as vjp
    from fxad.transforms.vjp import vjp_fused as vjp_fused
    from fxad.transforms.vmap import vmap as vmap
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "fxad.transforms.chaining": "joined",
            "fxad.transforms.chains": "chained",
            "fxad.transforms.cse": "cse",
            "fxad.transforms.dce": "dce prune",
            "fxad.transforms.in_calls": "in_calls",
            "fxad.transforms.inline": "inline",
            "fxad.transforms.jacobian": "jacfwd jacrev",
            "fxad.transforms.jvp": "jvp",
            "fxad.transforms.linearize": "linearize",
            "fxad.transforms.outline": "outline",
            "fxad.transforms.partial_eval": "partial_eval",
            "fxad.transforms.remat": "remat",
            "fxad.transforms.reroll": "reroll",
            "fxad.transforms.residuals": "planned residuals",
            "fxad.transforms.simplify": "simplify",
            "fxad.transforms.transpose": "transpose",
            "fxad.transforms.vjp": "Vjp grad value_and_grad vjp vjp_fused",
            "fxad.transforms.vmap": "vmap",
        },
        "policies",
    )
