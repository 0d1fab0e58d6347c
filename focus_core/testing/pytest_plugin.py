"""Fixtures for tests of tasks, trainers and plug-ins, for whoever has pytest and FOCUS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from focus_core.collect import Collection, Collector
    from focus_core.records import Problem
    from focus_core.testing.fakes import RandomPolicy, RecordingTrainer, TextPolicy


@pytest.fixture
def random_policy() -> RandomPolicy:
    """A policy over eight tokens; text and tokens map one to one."""
    from focus_core.testing.fakes import RandomPolicy

    return RandomPolicy()


@pytest.fixture
def text_policy() -> TextPolicy:
    """A policy that reads and writes text."""
    from focus_core.testing.fakes import TextPolicy

    return TextPolicy()


@pytest.fixture
def recording_trainer() -> RecordingTrainer:
    """A trainer that keeps its batches, not entered."""
    from focus_core.testing.fakes import RecordingTrainer

    return RecordingTrainer()


@pytest.fixture
def example_collections() -> Mapping[str, Collection]:
    """Prepared collections of every shape, by name; see ``focus_core.testing``."""
    from focus_core.testing.lane_contract import example_collections

    return example_collections()


@pytest.fixture
def collect_tree() -> Callable[..., Collection]:
    """Collect a problem: ``collect_tree(collector, problem)`` gives a prepared collection.

    Its keyword arguments are those of ``Collector.collect``.
    """

    def collect(collector: Collector, problem: Problem, **options: Any) -> Collection:
        async def main() -> Collection:
            async with collector:
                return await collector.collect(problem, **options)

        return asyncio.run(main()).prepare()

    return collect
