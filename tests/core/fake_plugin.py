"""A task and a trainer for tests of the command line; installed as ``focus_fake``."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

import attrs

from focus_core import (
    Agent,
    Collector,
    Critic,
    DataError,
    ObserverSpec,
    Problem,
    Segments,
    Selective,
    TaskDefaults,
    TaskSpec,
    TrainerError,
    TrainerSpec,
    UsageError,
    hookimpl,
)
from focus_core.testing import CountdownEnv, RandomPolicy, RecordingTrainer


def mark(path: str | None, word: str) -> None:
    """Say in a file that something begins."""
    if path:
        with open(path, "a") as file:
            file.write(word + "\n")


class Env(CountdownEnv):
    """Counts down, slowly or wrongly if told to."""

    def __init__(self, task: Countdown, problem: Problem) -> None:
        super().__init__(task.steps)
        self.task, self.problem = task, problem

    async def step(self, reply: Any) -> Any:
        if self.task.bug_in in (self.problem.id, "every"):
            raise KeyError("a bug in the environment")
        if self.task.seconds:
            mark(self.task.mark, "collect")
            await asyncio.sleep(self.task.seconds)
        return await super().step(reply)


@attrs.define
class Countdown:
    """The task."""

    steps: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    segment_tokens: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    level: Literal["easy", "hard"] = "easy"
    sizes: tuple[int, ...] = (1, 2)
    seconds: float = 0.0
    bug_in: str | None = None
    mark: str | None = None
    name = "countdown"
    defaults = TaskDefaults(source="4", eval_source="3", eval_problems=2)

    def problems(self, source: Any) -> list[Problem]:
        """``source`` counts them, or names a file with one a line."""
        if str(source).isdigit():
            lines = [str(1 + i % 3) for i in range(int(source))]
        else:
            try:
                lines = Path(source).read_text().split()
            except OSError as error:
                raise DataError(
                    str(error.strerror), path=source, remedy="give a file of numbers"
                ) from error
        return [Problem(line, id=f"c{i}") for i, line in enumerate(lines)]

    def collector_for(self, policy: Any, problem: Problem) -> Collector:
        """A small tree."""
        return Collector(
            Agent(policy, Env(self, problem), context=Segments(self.segment_tokens)),
            critic=Critic.constant(0.5),
            search=Selective(budget=4, warmup=4, max_concurrency=1),
        )

    def validate(self) -> None:
        """Nothing to prove."""


class Blind(Countdown):
    """The same, with nothing to measure on."""

    name = "blind"
    defaults = TaskDefaults(source="4")


class Fake(RecordingTrainer):
    """The trainer; checkpoints are files that hold the number of updates."""

    def __init__(
        self,
        *,
        model: str = "none",
        learning_rate: float = 1e-4,
        seed: int = 0,
        checkpoint_dir: str | None = None,
        resume_from: str | None = None,
        seconds: float = 0.0,
        bug_at: int | None = None,
        fail_at: int | None = None,
        kill_at: int | None = None,
        close_fails: bool = False,
        child: bool = False,
        opening: float = 0.0,
        mark: str | None = None,
    ) -> None:
        super().__init__(policy=lambda step: RandomPolicy(version=step, seed=step))
        if learning_rate <= 0.0:
            raise ValueError(f"learning_rate is {learning_rate}; it must be above 0")
        self.checkpoint_dir, self.resume_from, self.seed = checkpoint_dir, resume_from, seed
        self.seconds, self.bug_at, self.fail_at, self.mark = seconds, bug_at, fail_at, mark
        self.close_fails, self.opening, self.kill_at = close_fails, opening, kill_at
        self.child: asyncio.subprocess.Process | bool = child
        self.updates = 0

    async def __aenter__(self) -> Fake:
        mark(self.mark, "opening")
        await asyncio.sleep(self.opening)
        if self.resume_from is not None:
            try:
                self.updates = json.loads(Path(self.resume_from).read_text())["updates"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{self.resume_from} is not a saved state") from error
        if self.child:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "import time; time.sleep(100)"
            )
            mark(self.mark, f"child {self.child.pid}")
        mark(self.mark, "open")
        return self

    async def publish_policy(self) -> RandomPolicy:
        self.policies.append(RandomPolicy(version=self.updates, seed=self.updates))
        return self.policies[-1]

    async def update(self, batch: Any) -> Any:
        if self.updates == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.updates == self.bug_at:
            raise KeyError("a bug in the trainer")
        if self.updates == self.fail_at:
            raise TrainerError("the disk is full")
        if self.seconds:
            mark(self.mark, "update")
            await asyncio.sleep(self.seconds)
        self.updates += 1
        return await super().update(batch)

    async def save_state(self, name: str) -> str:
        path = Path(self.checkpoint_dir or ".") / f"{name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"updates": self.updates}))
        except OSError as error:
            raise TrainerError(f"{path} cannot be written: {error.strerror}") from error
        return str(path)

    async def close(self, status: Any) -> None:
        await super().close(status)
        if isinstance(self.child, asyncio.subprocess.Process) and self.child.returncode is None:
            self.child.kill()
            await self.child.wait()
        mark(self.mark, f"close {status}")
        if self.close_fails:
            raise TrainerError("the connection is lost")


class Watcher:
    """An observer that fails if told to."""

    @hookimpl
    def focus_step_finished(self, event: Any) -> None:
        if "DASHBOARD_DOWN" in os.environ:
            raise RuntimeError("the dashboard is down")


@hookimpl
def focus_tasks() -> list[TaskSpec]:
    return [
        TaskSpec("countdown", "count down", "focus_fake:Countdown"),
        TaskSpec("blind", "count down unmeasured", Blind),
        TaskSpec("unmade", "has no factory", "focus_fake:Missing"),
        TaskSpec("needy", "needs a module", "focus_fake:Countdown", requires=("no_such_module",)),
    ]


@hookimpl
def focus_trainers() -> list[TrainerSpec]:
    return [
        TrainerSpec("fake", "records batches", "focus_fake:Fake", capabilities={"resumes"}),
        TrainerSpec("forgetful", "saves nothing", RecordingTrainer),
        TrainerSpec(
            "heavy",
            "needs a lot",
            "focus_fake:Fake",
            requires=("no_such_module",),
            install="pip install focus-fake[heavy]",
        ),
    ]


@hookimpl
def focus_observers() -> list[ObserverSpec]:
    return [ObserverSpec("watcher", "fails at every step", Watcher)]
