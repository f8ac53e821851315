"""The constants of `fxad.numpy`."""

import math
from typing import Final

from fxad.operations.conversions import API_VERSIONS

e: Final = math.e
euler_gamma: Final = 0.57721566490153286
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None
pi: Final = math.pi
__array_api_version__: Final = API_VERSIONS[-1]
