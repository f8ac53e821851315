"""Programs of other libraries: `fxad.interop.jax` brings them from JAX and back. Each module needs its library."""
