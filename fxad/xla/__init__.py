"""Rooms behind `fxad.runtime`: devices, buffers, executables and their cache, on jaxlib's private surface."""
