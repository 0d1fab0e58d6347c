"""How torch's threads wait for each other: asleep, before torch is imported."""

from __future__ import annotations

import os

__all__ = ["wait_asleep"]

_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def wait_asleep() -> None:
    """Let OpenMP's threads sleep where they wait, unless the environment says how they wait.

    By default GNU's spin for milliseconds while the threads of all pools are no more than the
    cores. Beside other processes the one waited for is often not running, and each of an update's
    thousands of waits then costs a turn of the scheduler: a replay, which has one pool where live
    training has two, took 10 to 25 times as long. OpenMP reads this when torch is first imported.
    """
    if not any(name in os.environ for name in _CHOSEN):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
