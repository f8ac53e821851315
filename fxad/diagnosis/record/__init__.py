"""Calls of compiled programs as files: `fxad.record` writes them, `fxad.replay` reads them.

recording     the block that observes calls, and writes a file for each
call_file     the format of a file: a call, its program, its arrays, its results
stand_ins     statistics of a large array, and an array that is made of them
versions      the versions and XLA flags that a result depends on
replay        a recorded call as a value, which runs again
"""
