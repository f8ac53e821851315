"""The tuple of all primitive classes."""

from __future__ import annotations

from typing import Final

from fxad.ir import Primitive
from fxad.primitives.argmax import ARGMAX
from fxad.primitives.barrier import BARRIER
from fxad.primitives.check import CHECK
from fxad.primitives.collectives import COLLECTIVES
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.control.while_ import While
from fxad.primitives.conv import CONV
from fxad.primitives.cumulative import CUMULATIVE
from fxad.primitives.custom import CUSTOM
from fxad.primitives.dot import DOT
from fxad.primitives.dynamic_slicing import DYNAMIC_SLICING
from fxad.primitives.elementwise import ELEMENTWISE
from fxad.primitives.elementwise.bessel import BESSEL
from fxad.primitives.elementwise.beta import BETA
from fxad.primitives.elementwise.gamma import GAMMA
from fxad.primitives.fft import FFT
from fxad.primitives.fold import FOLD
from fxad.primitives.gather_scatter import GATHER_SCATTER
from fxad.primitives.host_call import HOST_CALLS
from fxad.primitives.implicit import IMPLICIT
from fxad.primitives.index import INDEX
from fxad.primitives.linalg import LINALG
from fxad.primitives.marks import MARKS
from fxad.primitives.random import RANDOM
from fxad.primitives.reduce import REDUCE
from fxad.primitives.reduce_prod import REDUCE_PROD
from fxad.primitives.reduce_window import REDUCE_WINDOW
from fxad.primitives.select_and_scatter import SELECT_AND_SCATTER
from fxad.primitives.shape import SHAPE
from fxad.primitives.sharding_constraint import SHARDING_CONSTRAINT
from fxad.primitives.slicing import SLICING
from fxad.primitives.softmax import SOFTMAX
from fxad.primitives.sort import SORT
from fxad.primitives.top_k import TOP_K

ALL: Final[tuple[type[Primitive], ...]] = (
    *ELEMENTWISE,
    *GAMMA,
    *BESSEL,
    *BETA,
    *SORT,
    *TOP_K,
    *FFT,
    *CUMULATIVE,
    *SHAPE,
    *SLICING,
    *DYNAMIC_SLICING,
    *GATHER_SCATTER,
    *INDEX,
    *REDUCE,
    *REDUCE_PROD,
    *ARGMAX,
    *REDUCE_WINDOW,
    *SELECT_AND_SCATTER,
    *FOLD,
    *SOFTMAX,
    *DOT,
    *LINALG,
    *CONV,
    *BARRIER,
    *MARKS,
    *RANDOM,
    Call,
    Remat,
    Scan,
    Cond,
    While,
    ShardMap,
    *CUSTOM,
    *IMPLICIT,
    *CHECK,
    *HOST_CALLS,
    *COLLECTIVES,
    *SHARDING_CONSTRAINT,
)
