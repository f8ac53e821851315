"""The implementation of `fxad.runtime` on jaxlib's private interface: devices, buffers, executables and their cache."""
