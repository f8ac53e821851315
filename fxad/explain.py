"""The command `python -m fxad.explain FILE` (`fxad.diagnosis.explain.command`)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import cast

from fxad.diagnosis.explain import explain
from fxad.diagnosis.explain.command import main

if __name__ == "__main__":
    sys.exit(main())
# `fx.explain` stays the function after `import fxad.explain`: Python sets as attribute what this table has.
sys.modules[__name__] = cast(ModuleType, explain)
