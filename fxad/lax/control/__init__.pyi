from .associative import associative_scan as associative_scan
from .branching import cond as cond, platform_dependent as platform_dependent, switch as switch
from .checkpoints import checkpoint_name as checkpoint_name, checkpointed_scan as checkpointed_scan
from .looping import while_loop as while_loop
from .scanning import fori_loop as fori_loop, map as map, scan as scan
