"""The contract of observers: hooks that fit, told a whole run, changing and holding up nothing."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import math
import time
from collections.abc import Sequence
from typing import Any

import attrs

from focus_core.agent.agent import Agent
from focus_core.agent.context import Segments
from focus_core.collect import Collector
from focus_core.critic import Critic
from focus_core.errors import PluginError
from focus_core.hookspecs import Hooks, hookimpl, new_manager
from focus_core.plugins.events import PolicyEvaluated, RunFinished, RunStarted
from focus_core.plugins.observers import Observers
from focus_core.policy import Policy
from focus_core.records import Problem
from focus_core.schedule import run_schedule
from focus_core.search import Selective
from focus_core.testing._looking import form
from focus_core.testing.base import (
    Broken,
    Contract,
    NotApplicable,
    contract,
    require,
    scratch_directory,
)
from focus_core.testing.fakes import CountdownEnv, RandomPolicy, RecordingTrainer

__all__ = ["ObserverContract", "example_events"]

RUN_HOOKS = tuple(
    name
    for name in vars(Hooks)
    if name.startswith("focus_") and "event" in getattr(Hooks, name).__annotations__
)
"""Names of the hooks a run calls."""


class _Recorder:
    """Keeps every event of a run."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []


def _keeping(hook: str) -> Any:
    def keep(self: _Recorder, event: Any) -> None:
        self.events.append((hook, event))

    return hookimpl(keep)


for _hook in RUN_HOOKS:
    setattr(_Recorder, _hook, _keeping(_hook))


def example_events() -> Sequence[tuple[str, Any]]:
    """The hooks and events of a run of two updates, from start to end, made anew."""
    return copy.deepcopy(_events())


@functools.cache
def _events() -> Sequence[tuple[str, Any]]:
    recorder = _Recorder()

    def collector_for(policy: Policy, problem: Problem) -> Collector:
        return Collector(
            Agent(policy, CountdownEnv(), context=Segments(3)),
            critic=Critic.constant(0.5),
            search=Selective(budget=4, warmup=4, max_concurrency=1),
        )

    reports = asyncio.run(
        run_schedule(
            RecordingTrainer(policy=lambda step: RandomPolicy(version=step)),
            [Problem("5 6", "x", id="p")],
            collector_for,
            steps=2,
            critic_sink=lambda records: None,
            seed=0,
            observers=Observers([recorder]),
        )
    )
    config = {"task": "countdown", "trainer": "recording", "steps": 2, "settings": {}}
    start = RunStarted(config=config, steps=2, directory="run")
    scores = {"eval/sampled": 0.5, "eval/sampled_low": 0.4, "eval/sampled_high": 0.6}
    measured = PolicyEvaluated(learner_step=0, metrics=scores)
    first, *later = recorder.events
    return (
        ("focus_run_started", start),
        first,
        ("focus_policy_evaluated", measured),
        *later,
        ("focus_run_finished", RunFinished(status="success", reports=reports)),
    )


class ObserverContract(Contract):
    """What every observer keeps.

    Inherit it in a pytest module::

        class TestMyObserver(ObserverContract):
            def subject(self):
                return MyObserver()

    Attributes:
        longest_hold: Seconds one event may take: a run waits meanwhile.
    """

    longest_hold: float = 0.5

    def surroundings(self) -> contextlib.AbstractContextManager[None]:
        """An empty directory, where an observer may write."""
        return scratch_directory()

    @contract()
    def test_hooks_fit(self) -> None:
        """An observer has hooks of a run, marked with hookimpl, taking ``event`` or nothing."""
        observer = self.subject()
        name = type(observer).__name__
        try:
            Observers([observer])
        except PluginError as error:
            raise Broken(f"{error}; the hooks are {', '.join(RUN_HOOKS)}") from error
        named = [each for each in dir(observer) if each.startswith("focus_")]
        marked = [each for each in named if hasattr(getattr(observer, each), "focus_impl")]
        unmarked = sorted(set(named) - set(marked))
        require(
            not unmarked, f"{name}.{', '.join(unmarked)} is never called; decorate it with hookimpl"
        )
        require(marked, f"{name} observes nothing; give it one of {', '.join(RUN_HOOKS)}")
        stray = sorted(set(marked) - set(RUN_HOOKS))
        require(
            not stray,
            f"{name}.{', '.join(stray)} registers something and belongs in the plug-in module",
        )

    @contract()
    def test_takes_a_whole_run(self) -> None:
        """Every event of a run is taken without an error, and a second run by another observer."""
        for _ in range(2):
            self._tell(example_events())

    @contract()
    def test_takes_a_run_that_ends_early(self) -> None:
        """A run that failed or was interrupted before its first step ends without an error."""
        start = example_events()[0]
        for status in ("errored", "interrupted"):
            end = RunFinished(status=status, reports=[])
            self._tell([start, ("focus_run_finished", end)])

    @contract()
    def test_events_stay_as_they_were(self) -> None:
        """An observer changes nothing of what it is told: the run goes on with it."""
        events = example_events()
        before = [form(event) for _, event in events]
        with contextlib.suppress(Broken):  # an error is another contract's
            self._tell(events)
        for (hook, event), was in zip(events, before, strict=True):
            require(
                form(event) == was, f"{hook} changed the event it was told; copy what you change"
            )

    @contract()
    def test_does_not_hold_the_run(self) -> None:
        """No event takes long: a run waits for its observers."""
        held = math.inf
        for _ in range(3):
            with contextlib.suppress(Broken):  # an error is another contract's
                held = min(held, self._tell(example_events()))
        if held == math.inf:
            raise NotApplicable("the observer fails")
        require(
            held < self.longest_hold,
            f"an event took {held:.2f} s; hand slow work to a thread and return",
        )

    def _tell(self, events: Sequence[tuple[str, Any]]) -> float:
        """Tell a fresh observer; returns the seconds its slowest hook took."""
        manager = new_manager()
        manager.register(self.subject())
        longest = 0.0
        for hook, event in events:
            began = time.perf_counter()
            try:
                getattr(manager.hook, hook)(event=event)
            except Exception as error:
                raise Broken(
                    f"{hook} raised {type(error).__name__}: {error} on "
                    f"{attrs.asdict(event, recurse=False)!r:.160}; an observer that fails is "
                    "logged and ignored, and its work is lost"
                ) from error
            longest = max(longest, time.perf_counter() - began)
        return longest
