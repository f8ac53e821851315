"""The implementation of `fxad.runtime` on jaxlib's private interface: devices, buffers, executables and their cache.

In reading order: a file imports only files above it.

| file | what it is for |
|---|---|
| `jaxlib_types.py` | the objects of jaxlib that fxad passes around; the wrappers around a call, in order |
| `lookups_of_jax.py` | what jaxlib looks up in jax, while jax is not imported |
| `compat.py` | calls of jaxlib that depend on its version |
| `cuda.py` | the plugin for GPUs |
| `client.py` | clients and devices; what to do in a forked child |
| `garbage.py` | the garbage that jaxlib keeps |
| `donated_buffers.py` | a read pins a buffer, a donation or a deletion takes it |
| `failures.py` | the errors of buffers without a value, and of calls that XLA refuses |
| `sharded.py` | arrays and programs on several devices |
| `interruptible.py` | waits that Ctrl-C interrupts; programs that may never end |
| `options.py` | `CompileOptions`, and XLA's options |
| `interpreter_exit.py` | exit waits for computations; `process_state`, which each call reads |
| `host_calls.py` | programs that call the host |
| `dlpack.py` | capsules of DLPack |
| `buffers.py` | transfers between the host and devices, copies, deletion |
| `custom_calls.py` | library routines (LAPACK, cuSOLVER) by name |
| `executable.py` | compilation and execution of one program |
| `disk.py` | a directory of checked files by key |
| `disk_tier.py` | executables in such a directory |
| `explanation.py` | why the cache misses |
| `cache.py` | one executable per program, options and device, in memory and on disk |
| `linked.py` | programs that run as several executables |
| `in_threads.py` | several compilations at once, if the machine has four cores or more |
| `processes.py` | several processes that share their devices |
| `profiler.py` | profiles by XLA |

The last three are imported at their first use. Python's executors, which `in_threads` needs, take 2 ms to import.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
