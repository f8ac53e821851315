"""Control flow as functions: branches and loops over pytrees, with JAX's names and argument orders."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.lax.control.associative import associative_scan as associative_scan
    from fxad.lax.control.branching import cond as cond, switch as switch
    from fxad.lax.control.checkpoints import checkpoint_name as checkpoint_name, checkpointed_scan as checkpointed_scan
    from fxad.lax.control.looping import while_loop as while_loop
    from fxad.lax.control.scanning import fori_loop as fori_loop, map_ as map_, scan as scan
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.lax.control.associative": "associative_scan",
            "fxad.lax.control.branching": "cond switch",
            "fxad.lax.control.checkpoints": "checkpoint_name checkpointed_scan",
            "fxad.lax.control.looping": "while_loop",
            "fxad.lax.control.scanning": "fori_loop map_ scan",
        },
    )
