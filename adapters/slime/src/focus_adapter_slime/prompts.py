"""A task's problems as the prompt data that Slime reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from focus_core.errors import UsageError
from focus_core.records import Problem

__all__ = ["ID", "INPUT", "LABEL", "METADATA", "prompt_data"]

INPUT, LABEL, METADATA = "prompt", "label", "metadata"
"""Keys of a line, as ``--input-key``, ``--label-key`` and ``--metadata-key`` name them."""
ID = "id"
"""Key of the metadata: the problem's id, which ``problem_of`` reads."""


def prompt_data(problems: Sequence[Problem]) -> str:
    """One JSON line a problem, of which Slime makes a sample and ``problem_of`` the problem again.

    Raises:
        UsageError: A problem holds something that does not come back from JSON as it was, so that
            Slime's trees would be of another problem.
    """
    return "".join(_line(place, problem) for place, problem in enumerate(problems))


def _line(place: int, problem: Problem) -> str:
    metadata = dict(problem.metadata)
    if problem.id is not None:
        if metadata.get(ID, problem.id) != problem.id:
            raise UsageError(
                f"problem {place}: its id is {problem.id!r}, and its metadata says "
                f"{metadata[ID]!r}; a sample of Slime's keeps one of them: rename the metadata's"
            )
        metadata[ID] = problem.id
    row = {INPUT: problem.prompt, LABEL: problem.label, METADATA: metadata}
    for part, value in row.items():
        if not _comes_back(value):
            raise UsageError(
                f"problem {place} ({problem.id}): its {part} is {value!r:.80}, which JSON does not "
                "give back as it was; Slime reads prompts from a file: use problems of text, "
                "numbers, lists and mappings, or a data source and a generate hook of your own"
            )
    return json.dumps(row, allow_nan=False) + "\n"


def _comes_back(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == _lists(value))
    except (TypeError, ValueError, RecursionError):
        return False


def _lists(value: Any) -> Any:
    """Tuples as the lists that they come back as."""
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return value
