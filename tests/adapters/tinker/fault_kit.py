"""Three-step runs against a loopback with faults on: what they did there, and what they left."""

import asyncio
import functools
import os
import sys
import threading
import time
from pathlib import Path

import attrs
from focus_adapter_tinker import TinkerTrainer
from focus_adapter_tinker import trainer as trainer_module

from focus_core import Independent, Problem, run_schedule
from tests.adapters.tinker.sdk_kit import collector_for

STEPS = 3
LIMIT = 600.0
"""Stated time that the route under test may take, in seconds of the run's own clock."""
_NEVER = 1e6
_JUMP = LIMIT + 100.0
_GUARD = 60.0


@attrs.frozen
class Ended:
    """How a run ended.

    Attributes:
        error: What it raised, if it did.
        said: That and its notes, as a user reads them.
        lags: Policy lag of each report.
        gradients: That the server computed.
        steps: Of the optimizer that it made: how many gradients each one had.
        trained: Tokens that it trained on, and that the run counted.
        routes: Requests by route.
        struck: How often the faults struck.
        state: Path of the saved state.
        open_sessions: Left unfinished on the server.
    """

    error: Exception | None
    said: str
    lags: list
    gradients: int
    steps: list
    trained: tuple
    routes: dict
    struck: int
    state: str | None
    open_sessions: int


class Clocked(asyncio.SelectorEventLoop):
    """A loop whose clock a test can put forward; the SDK has a loop of its own."""

    ahead = 0.0

    def time(self):
        """Seconds."""
        return super().time() + self.ahead


def hurried_sdk(monkeypatch, longest=8.0):
    """The SDK waits a moment where it would wait up to ``longest`` seconds before it retries."""
    sleep = asyncio.sleep

    def shorter(delay, result=None):
        asked_by = sys._getframe(1).f_globals.get("__name__", "")
        if asked_by.partition(".")[0] in ("tinker", "anyio") and delay <= longest:
            delay = min(delay, 0.02)
        return sleep(delay, result)

    monkeypatch.setattr(asyncio, "sleep", shorter)
    for name in ("INITIAL_RETRY_DELAY", "MAX_RETRY_DELAY"):
        monkeypatch.setattr(f"tinker._base_client.{name}", 0.02)
    monkeypatch.setattr(trainer_module, "_CLOSING", 2.0)


def three_steps(server, *faults, resume_from=None, patient="sample", no_answer=False, first=False):
    """One run, with these faults; heals the server, and sees that nothing is left behind.

    ``no_answer`` puts the clock past ``LIMIT`` as soon as a fault struck; whatever is ``patient``
    ("sample" or "update") has no limit. The ``first`` run of a process leaves the SDK's thread.
    """
    before, threads, children = server.stats(), set(threading.enumerate()), _children()
    trainer = TinkerTrainer(
        model="m",
        base_url=server.base_url,
        seed=0,
        lora_rank=1,
        resume_from=resume_from,
        update_timeout=_NEVER if patient == "update" else LIMIT,
        sample_timeout=_NEVER if patient == "sample" else LIMIT,
    )
    server.inject(*faults)
    try:
        with asyncio.Runner(loop_factory=Clocked) as runner:
            error, reports, state = runner.run(_watched(server, trainer, no_answer))
        struck = sum(server.stats()["faults"].values())
    finally:
        server.heal()
        if not first:
            _nothing_is_left(server, threads, children)
    after = server.stats()
    asked = {name: n - before["routes"].get(name, 0) for name, n in after["routes"].items()}
    new = [end for key, end in after["sessions"].items() if key not in before["sessions"]]
    notes = getattr(error, "__notes__", ())
    return Ended(
        error=error,
        said="\n".join([str(error), *notes]),
        lags=[report.policy_lag for report in reports],
        gradients=after["gradients"] - before["gradients"],
        steps=[row["gradients"] for row in after["steps"][len(before["steps"]) :]],
        trained=(
            after["trained_tokens"] - before["trained_tokens"],
            sum(row["trained"] for _, row in trainer.usage._rows),
        ),
        routes={name: n for name, n in asked.items() if n},
        struck=struck,
        state=state,
        open_sessions=new.count(None),
    )


async def _watched(server, trainer, no_answer):
    reports = []

    async def run():
        async with trainer:
            await run_schedule(
                trainer,
                [Problem("Compute 2+3.")],
                functools.partial(collector_for, tokens=3, search=Independent(1)),
                steps=STEPS,
                seed=0,
                on_step=reports.append,
            )
            return await trainer.save_state("end")

    task = asyncio.create_task(run())
    while no_answer and not task.done():
        if any((await asyncio.to_thread(server.stats))["faults"].values()):
            asyncio.get_running_loop().ahead += _JUMP
            break
        await asyncio.sleep(0.01)
    done, _ = await asyncio.wait([task], timeout=_GUARD)
    if not done:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert done, "the run hangs"
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, "tasks are left"
    error = task.exception()
    return error, reports, None if error else task.result()


def _nothing_is_left(server, threads, children):
    """No thread, process or pending result once the server answers again."""
    end = time.monotonic() + _GUARD
    while True:
        new = set(threading.enumerate()) - threads
        pending = server.stats()["pending"]
        if (not new and not pending) or time.monotonic() > end:
            break
        time.sleep(0.02)
    assert not new, "threads are left"
    assert not pending, "results are still being computed"
    assert _children() == children, "processes are left"


def _children():
    tasks = Path(f"/proc/{os.getpid()}/task")
    if not tasks.exists():
        return set()
    return {pid for each in tasks.glob("*/children") for pid in each.read_text().split()}
