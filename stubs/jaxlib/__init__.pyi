# What fxad uses of jaxlib, and nothing else. jaxlib's Python surface is private and moves: a name that is not here
# is not used, and each of these is exercised by tests/test_runtime.py on every supported version.
__version__: str
