"""Every fault at every request of a three-step run: it succeeds whole, or says what it lost.

The table in the documentation says in words what ``OUTCOMES`` does.
"""

import asyncio
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from focus_adapter_tinker import TinkerTrainer
from focus_adapter_tinker import trainer as trainer_module

from focus_core import CollectionError, FocusError, Problem, TrainerError, run_schedule
from tests.adapters.tinker.sdk_kit import collector_for

WHOLE, STOPPED = "succeeds", "stops"
TRAINING = ("forward_backward", "optim_step", "save_weights_for_sampler", "save_weights")
OUTCOMES = {
    # The SDK submits again what was not received, under the same number, so it is done once; and
    # it asks again for a result.
    **{
        (route, kind): WHOLE
        for route in (*TRAINING, "asample")
        for kind in ("429", "500", "drop", "lost", "timeout:1", "slow:1")
    },
    **{(f"{route}.result", "500"): WHOLE for route in (*TRAINING, "asample")},
    # A result that fails, or is gone, is asked for again by nobody; but a sample is drawn anew.
    **{(route, "fail"): STOPPED for route in (*TRAINING, "asample")},
    **{(f"{route}.result", "410"): STOPPED for route in TRAINING},
    ("asample.result", "410"): WHOLE,
    ("asample", "missing_logprobs"): STOPPED,
    ("asample", "short_logprobs"): STOPPED,
    ("forward_backward", "short_logprobs"): STOPPED,
    ("forward_backward", "missing_logprobs"): STOPPED,
}
"""By route and kind."""

POSITIONS = {
    "forward_backward": (1, 2, 3),
    "optim_step": (1, 2, 3),
    "save_weights_for_sampler": (1, 2),
    "save_weights": (1,),
    "asample": (1, 3, 5),
}
SAYS = {
    "forward_backward": r"the update of step {step} on batch {step} failed.*no optimizer step",
    "optim_step": r"the update of step {step} on batch {step} failed.*may have been applied",
    "save_weights_for_sampler": r"publishing the policy of step {step} failed",
    "save_weights": r"saving the state 'end' failed",
    "asample": r"sampling failed|no log probabilities|log probabilities",
}


def run(server):
    """Three updates and a saved state; returns the counts of this run alone."""

    async def main():
        before = server.stats()
        trainer = TinkerTrainer(
            model="m", base_url=server.base_url, seed=0, update_timeout=60, sample_timeout=60
        )
        async with trainer:
            reports = await run_schedule(
                trainer, [Problem("Compute 2+3.")], collector_for, steps=3, seed=0
            )
            await trainer.save_state("end")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others
        after = server.stats()
        return reports, {
            "steps": len(after["steps"]) - len(before["steps"]),
            "trained": after["trained_tokens"] - before["trained_tokens"],
            "counted": sum(row["trained"] for _, row in trainer.usage._rows),
        }

    return asyncio.run(main())


def steps_of(server):
    return len(server.stats()["steps"])


CASES = [
    (route, kind, position)
    for route, kind in OUTCOMES
    for position in POSITIONS[route.removesuffix(".result")]
]


@pytest.mark.parametrize(("route", "kind", "position"), CASES)
def test_a_run_succeeds_whole_or_says_what_was_lost(server, route, kind, position, monkeypatch):
    monkeypatch.setattr(trainer_module, "_CLOSING", 5.0)
    threads = set(threading.enumerate())
    before = steps_of(server)
    server.inject(f"{route}:{position}={kind}")
    try:
        if OUTCOMES[route, kind] == WHOLE:
            reports, counts = run(server)
            assert [report.policy_lag for report in reports] == [0, 1, 1]
            assert counts["steps"] == 3
            assert counts["trained"] == counts["counted"], "each batch trains exactly once"
        else:
            with pytest.raises(FocusError) as caught:
                run(server)
            known = isinstance(caught.value, TrainerError | CollectionError)
            name = route.removesuffix(".result")
            pattern = SAYS[name].format(step=position - 1)
            assert known, caught.value
            assert re.search(pattern, str(caught.value)), caught.value
            assert steps_of(server) - before <= 3
        assert any(server.stats()["faults"].values()), "the fault struck"
    finally:
        server.heal()
    left = [t for t in set(threading.enumerate()) - threads if t.name == "focus-tinker"]
    assert not left


def test_no_answer_at_all_ends_in_the_stated_time(server):
    """A server that takes an update and never answers."""
    server.inject("forward_backward:2-=timeout")
    try:

        async def main():
            trainer = TinkerTrainer(model="m", base_url=server.base_url, seed=0, update_timeout=3)
            async with trainer:
                await run_schedule(
                    trainer, [Problem("Compute 2+3.")], collector_for, steps=3, seed=0
                )

        with pytest.raises(TrainerError, match="the update of step 1 on batch 1 got no answer"):
            asyncio.run(asyncio.wait_for(main(), 60))
    finally:
        server.heal()


def test_the_key_is_in_nothing_that_a_failing_run_leaves(server, tmp_path):
    """Neither in its directory, nor in what it prints, nor in its processes' titles."""
    key = "tml-hush-1f6b2c"
    server.inject("optim_step:1-=fail")
    environment = {**os.environ, "TINKER_API_KEY": key, "TINKER_BASE_URL": server.base_url}
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "focus_core", "train", "--task", "arithmetic"),
                *("--trainer", "tinker", "--model", "m", "--steps", "2", "--run-dir", "run"),
                *("--set", "search.budget=2", "--set", "search.warmup=2"),
                *("--record", "recording"),
            ],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        titles = Path(f"/proc/{process.pid}/cmdline")
        title = titles.read_bytes() if titles.exists() else b""
        out, err = process.communicate(timeout=300)
    finally:
        server.heal()
    assert process.returncode == 1, err
    assert b"the update of step 0 on batch 0 failed" in err
    left = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert left
    for text in (out, err, title, *left):
        assert key.encode() not in text
