from .ad.jacobian import jacfwd as jacfwd, jacrev as jacrev
from .ad.jvp import jvp as jvp
from .ad.linearize import linearize as linearize
from .ad.partial_eval import partial_eval as partial_eval
from .ad.transpose import transpose as transpose
from .ad.vjp import Vjp as Vjp, grad as grad, value_and_grad as value_and_grad, vjp as vjp, vjp_fused as vjp_fused
from .cleanup import dce as dce, prune as prune
from .cleanup.cse import cse as cse
from .cleanup.inline import inline as inline
from .cleanup.simplify import simplify as simplify
from .inversion.invertible import invertible as invertible
from .inversion.merge_invertible import merge_invertible as merge_invertible
from .memory.remat import remat as remat
from .memory.residuals import residuals as residuals, with_planned_residuals as with_planned_residuals
from .memory_plans.plan import memory_passes as memory_passes
from .outlining.outline import outline as outline
from .outlining.outline_before_ad import outline_before_ad as outline_before_ad
from .outlining.reroll import reroll as reroll
