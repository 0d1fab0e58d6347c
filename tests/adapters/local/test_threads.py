"""torch's threads wait asleep, so that a neighbour's work does not stop an update."""

import os
import subprocess
import sys

import pytest

LOAD = """
import asyncio, sys
from focus_adapter_local import LocalTrainer

async def load():
    async with LocalTrainer(model=sys.argv[1], lora_rank=1):
        pass

asyncio.run(load())
"""


@pytest.mark.parametrize(("asked", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_openmp_waits_asleep_unless_it_is_told_otherwise(mini, asked, found):
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    free = {name: value for name, value in os.environ.items() if name not in names}
    chosen = {} if asked is None else {"OMP_WAIT_POLICY": asked}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, mini],
        env={**free, **chosen, "OMP_DISPLAY_ENV": "TRUE"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    if "OMP_WAIT_POLICY" not in done.stderr:
        pytest.skip("this torch's OpenMP does not tell")
    assert f"OMP_WAIT_POLICY = '{found}'" in done.stderr
