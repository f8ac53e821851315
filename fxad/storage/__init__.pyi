from . import exported as exported
