"""Side by side with jax, in one process: `python -m benchmarks.bench_lower` prints a table. The package has no jax."""
