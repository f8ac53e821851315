"""Benchmarks beside jax, in one process: `python -m benchmarks.bench_lower` prints a table. The package itself does not
import jax."""
