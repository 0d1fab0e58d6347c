"""The task: one problem, one reply, reward 1 if its boxed answer is the reference's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from focus_core import (
    Agent,
    Collector,
    Critic,
    GradingError,
    Policy,
    Problem,
    ReplyEnv,
    Segments,
    Selective,
    TaskDefaults,
    UsageError,
)
from focus_task_math.grading.pool import DEFAULT_TIMEOUT, agrade, grade
from focus_task_math.problems import load_problems

__all__ = ["SAMPLE", "MathEnv", "MathTask"]

SAMPLE = Path(__file__).with_name("sample.jsonl")
"""A dozen problems of our own, for trying things out."""


class MathEnv(ReplyEnv):
    """Grades a whole reply against a reference answer.

    Args:
        label: The reference solution (its last closed box counts) or bare answer; it stays here,
            out of the prompt.
        decode: The policy's ``decode``.
        max_tokens: Length limit of the reply, in tokens.
        timeout: Limit of a verdict, in seconds.

    Raises:
        UsageError: The label is no text.
    """

    def __init__(
        self,
        label: str,
        decode: Callable[[Sequence[int]], str],
        max_tokens: int = 2048,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        if not isinstance(label, str):
            raise UsageError(
                f"the problem's label is {label!r}; it must be the text of a reference solution"
            )
        super().__init__(decode, max_tokens)
        self.label = label
        self.timeout = timeout

    async def grade(self, text: str) -> float:
        """1.0 for the right answer, else 0.0.

        Raises:
            GradingError: The reply could not be graded.
        """
        verdict = await agrade(text, self.label, self.timeout)
        if verdict.correct is None:
            raise GradingError(f"not graded: {verdict.reason}")
        return float(verdict.correct)


@attrs.frozen
class MathTask:
    """Mathematics problems with a boxed answer.

    Args:
        segment_tokens: Tokens of a transition; each segment's end is a state to branch from.
        max_tokens: Length limit of a reply; by default eight segments, so that a search budget in
            transitions reaches the end of a reply whatever the segment.
        system_prompt: What the policy is told before the problem.
        timeout: Limit of a verdict, in seconds.
        max_transitions: A reply of so many segments is cut there: not graded, without an outcome.
            By default none is that ``max_tokens`` allows.
    """

    segment_tokens: int = attrs.field(default=256, validator=attrs.validators.ge(1))
    max_tokens: int = attrs.field(validator=attrs.validators.ge(1))
    system_prompt: str = (
        "Solve the problem step by step. Put the final answer, and nothing else, in \\boxed{}."
    )
    timeout: float = attrs.field(default=DEFAULT_TIMEOUT, validator=attrs.validators.gt(0))
    max_transitions: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )

    name: ClassVar[str] = "math"

    @max_tokens.default
    def _eight_segments(self) -> int:
        return 8 * self.segment_tokens

    @property
    def defaults(self) -> TaskDefaults:
        """The sample is the source where none is named."""
        return TaskDefaults(source=str(SAMPLE))

    def problems(
        self, source: str | Path, *, strict: bool = False, skip_bad_rows: bool = False
    ) -> Sequence[Problem]:
        """Read MATH records; see ``load_problems``.

        Raises:
            DataError: The source cannot be used; names file, line, field and remedy.
        """
        return load_problems(source, strict=strict, skip_bad_rows=skip_bad_rows)

    def collector_for(self, policy: Policy, problem: Problem) -> Collector:
        """A collector with an environment that holds this problem's label only."""
        agent = Agent(
            policy,
            MathEnv(problem.label, policy.decode, self.max_tokens, self.timeout),
            system_prompt=self.system_prompt,
            context=Segments(self.segment_tokens),
            max_transitions=self.max_transitions,
        )
        return Collector(
            agent,
            critic=Critic.constant(0.5),
            search=Selective(budget=32, warmup=16, max_concurrency=4),
        )

    def validate(self) -> None:
        """Prove on the sample that the grader accepts every gold and no other problem's.

        Raises:
            GradingError: It does not.
        """
        problems = load_problems(SAMPLE)
        for index, problem in enumerate(problems):
            other = problems[index - 1]
            for completion, expected in ((problem.label, True), (other.label, False)):
                verdict = grade(completion, problem.label, self.timeout)
                if verdict.correct is not expected:
                    raise GradingError(
                        f"problem {problem.id!r}: the answer {verdict.answer!r} was graded "
                        f"{verdict.correct} ({verdict.reason}), not {expected}"
                    )
