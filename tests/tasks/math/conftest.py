"""Where the shared cases and problems are, and a pool that every test leaves without processes."""

import json
from pathlib import Path

import pytest
from focus_task_math import GradingPool

SHARED = Path(__file__).parents[4] / "shared"


def shared_lines(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


@pytest.fixture(scope="session")
def math500():
    return shared_lines("data/math500-a.jsonl")


@pytest.fixture(scope="session")
def grading_cases():
    return shared_lines("cases/grading.jsonl") + shared_lines("cases/grading-2.jsonl")


@pytest.fixture
def pool():
    with GradingPool() as pool:
        pool.grade(r"\boxed{1}", "1")  # workers are warm from here on
        yield pool
