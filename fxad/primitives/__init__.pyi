from .manifest import ALL as ALL
