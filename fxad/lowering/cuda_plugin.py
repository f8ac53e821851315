"""jaxlib's plugin for CUDA, where one is installed. It is imported at its first use, after `fxad.lowering.jaxlib`."""

from jaxlib.plugin_support import import_from_plugin

__all__ = ["import_from_plugin"]
