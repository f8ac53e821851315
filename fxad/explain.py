"""The command `python -m fxad.explain FILE` (`fxad.diagnosis.explain.command`), with what it takes from other plug-ins:
recorded calls, and the rounding errors of a call."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import cast

from fxad.api.precision import rounding_errors
from fxad.diagnosis.explain import explain
from fxad.diagnosis.explain.command import main
from fxad.diagnosis.record.replay import replay

if __name__ == "__main__":
    sys.exit(main(recordings=[replay], tables=[rounding_errors]))
# `fx.explain` stays the function after `import fxad.explain`: Python sets as attribute what this table has.
sys.modules[__name__] = cast(ModuleType, explain)
