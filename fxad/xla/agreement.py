"""Processes that are connected run the same programs: each program is compared before its first run.

A collective waits for the other processes. If one of them runs another program, it would wait for ever, or exchange
values that do not belong together. So before the first run of a program with collectives, a process publishes its
digest in the store of jaxlib's distributed service, and reads those of the others.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from time import monotonic
from typing import Final, TypeAlias, final

from fxad.core.single_flight import FLIGHTS
from fxad.errors import ExecutionError
from fxad.lowering.jaxlib import _jax

Group: TypeAlias = tuple[int, ...]  # the numbers of the processes whose devices run a program

PATIENCE: Final = 10.0  # seconds; a process that comes later finds the digest of this one
_SLICE: Final = 0.25  # seconds between two chances for signal handlers


@final
class Agreement:
    """Compares the programs of this process with those of the others. Thread-safe.

    The programs of a group of processes are numbered in the order of their first runs. A program that was evicted from
    the cache and compiled again is not compared again.
    """

    __slots__ = ("_agreed", "_client", "_counts", "_process")

    def __init__(self, client: _jax.DistributedRuntimeClient, process: int) -> None:
        self._client, self._process = client, process
        self._agreed: dict[tuple[Group, str], bool] = {}
        self._counts: dict[Group, count[int]] = {}

    def __call__(self, name: str, where: str, digest: str, group: Group) -> None:
        """Compare a program with that of the others. Raises: ExecutionError if one of them runs another program."""
        key = group, digest
        FLIGHTS.do((self, key), partial(self._agreed.get, key), partial(self._compare, name, where, digest, group))

    def _compare(self, name: str, where: str, digest: str, group: Group) -> bool:
        place = next(self._counts.setdefault(group, count()))
        path = f"fxad/programs/{'-'.join(map(str, group))}/{place}"
        self._client.key_value_set(f"{path}/{self._process}", f"{digest} {name}")
        end = monotonic() + PATIENCE
        for other in group:
            theirs = None if other == self._process else self._published(f"{path}/{other}", end)
            if theirs is not None and theirs[0] != digest:
                (a, first), (b, second) = sorted([(self._process, (digest, name)), (other, theirs)])
                raise ExecutionError(
                    f"{name}: processes {a} and {b} run different programs: {first[1]} (digest {first[0][:8]}) and"
                    f" {second[1]} (digest {second[0][:8]})",
                    where=where,
                    remedy="run the same programs in the same order in all processes; give values that differ between"
                    " processes as arguments",
                )
        return self._agreed.setdefault((group, digest), True)

    def _published(self, key: str, end: float) -> tuple[str, str] | None:
        """The digest and the name of the program of another process; None if it has not come until `end`.

        Then that process finds the digest of this one. If it has ended, the collective raises the error.
        """
        while True:
            left = max(end - monotonic(), 0.0)
            try:
                digest, _, name = self._client.blocking_key_value_get(
                    key, max(int(1000 * min(left, _SLICE)), 1)
                ).partition(" ")
            except _jax.JaxRuntimeError as e:
                if not left or "DEADLINE_EXCEEDED" not in str(e):
                    return None
            else:
                return digest, name
