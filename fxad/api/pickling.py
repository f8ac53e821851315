"""How decorated functions are pickled: by their name where pickle finds them under it, else by value."""

from __future__ import annotations

import sys
from types import FrameType


def importable_name(f: object) -> str | None:
    """Return the name by which pickle finds a decorated function in its module, as for a function after `@jit`; None if
    the module has another object under that name, or is a script of which the unpickling process has no copy."""
    name: object = getattr(f, "__qualname__", None)
    module = str(getattr(f, "__module__", None))
    value: object = sys.modules.get(module)
    if not isinstance(name, str) or (module == "__main__" and pickles_by_value()):
        return None
    for part in name.split("."):
        value = getattr(value, part, None)
    return name if value is f else None


def pickles_by_value() -> bool:
    """Return True if the pickler that is running pickles functions by value: one of cloudpickle or dill, or of the copies
    that joblib and ray have. An object cannot ask for the pickler, but both are written in Python, on the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not {"cloudpickle", "dill"}.isdisjoint(frame.f_globals.get("__name__", "").split(".")):
            return True
        frame = frame.f_back
    return False
