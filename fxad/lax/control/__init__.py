"""Control flow as functions: branches and loops over pytrees, with JAX's names and argument orders."""
