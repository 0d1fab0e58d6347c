"""A task's problems, written for Slime, are the same problems when a hook sees them."""

import json
import re

import pytest
from focus_adapter_slime.prompts import ID, INPUT, LABEL, METADATA, prompt_data
from focus_adapter_slime.trees import problem_of

from focus_core import Problem, UsageError
from focus_core.plugins.manager import load
from focus_core.task import defaults_of
from tests.adapters.slime.slime_double import Sample

MESSAGES = [{"role": "system", "content": "Sé breve."}, {"role": "user", "content": "1+1\n?"}]


def read_back(text):
    """What Slime's data set makes of a prompt file, at the sample that the hook gets."""
    rows = [json.loads(line) for line in text.splitlines()]
    return [
        Sample(index=n, prompt=row[INPUT], label=row[LABEL], metadata=row.get(METADATA) or {})
        for n, row in enumerate(rows)
    ]


@pytest.mark.parametrize(
    "problem",
    [
        Problem("Solve.", r"\boxed{5}", id="linear", metadata={"level": 3, "tags": ["a"]}),
        Problem(MESSAGES, {"answer": [1, 2.5, None]}, id=7),
        Problem([5, 6, 7], id="tokens"),
        Problem("a\u2028b\x85c", "\U0001f600", id="separators"),
        Problem("x", id="same", metadata={"id": "same"}),
    ],
    ids=lambda p: str(p.id),
)
def test_a_problem_comes_back(problem):
    text = prompt_data([problem])
    assert text.count("\n") == 1
    assert len(text.splitlines()) == 1, "Slime reads a file line by line"
    (back,) = map(problem_of, read_back(text))
    assert (back.prompt, back.label, back.id) == (problem.prompt, problem.label, problem.id)
    assert dict(back.metadata) == {**problem.metadata, ID: problem.id}


def test_without_an_id_a_problem_goes_by_its_number():
    first, second = map(problem_of, read_back(prompt_data([Problem("a"), Problem("b")])))
    assert (first.id, second.id) == (0, 1)
    assert dict(first.metadata) == {}


@pytest.mark.parametrize("name", ["arithmetic", "math"])
def test_problems_of_our_tasks_come_back(name):
    task = load().make("task", name, {})
    problems = [task.problems(defaults_of(task).source)[n] for n in range(5)]
    found = map(problem_of, read_back(prompt_data(problems)))
    for problem, back in zip(problems, found, strict=True):
        assert (back.prompt, back.label, back.id) == (problem.prompt, problem.label, problem.id)


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (Problem("a", object(), id="p"), "problem 0 (p): its label is <object"),
        (Problem("a", {1: 2}), "its label is {1: 2}, which JSON does not"),
        (Problem("a", float("nan")), "its label is nan"),
        (Problem(b"a"), "its prompt is b'a'"),
        (Problem("a", metadata={"x": {3}}), "its metadata is {'x': {3}}"),
        (Problem("a", id="p", metadata={"id": "q"}), "its id is 'p', and its metadata says 'q'"),
    ],
)
def test_what_would_come_back_otherwise_is_refused(problem, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        prompt_data([problem])
