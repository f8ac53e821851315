# The names of jaxlib that fxad uses, and no others. The Python interface of jaxlib is private and changes between
# versions; tests/test_runtime.py uses each of these names on every supported version.
__version__: str
