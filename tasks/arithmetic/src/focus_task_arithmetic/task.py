"""The task: one sum, one reply, reward 1 if its boxed integer is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from focus_task_arithmetic.generate import LEVELS, SPLITS, Question, questions
from focus_task_arithmetic.grading import grade

__all__ = ["ArithmeticEnv", "ArithmeticTask"]


class ArithmeticEnv(ReplyEnv):
    """Grades a whole reply against an integer.

    A reply cut at ``max_tokens`` is over as well; without a closed box it earns 0.

    Args:
        answer: The right one; it stays here, out of the prompt.
        decode: The policy's ``decode``.
        max_tokens: Length limit of the reply, in tokens.
    """

    def __init__(
        self, answer: int, decode: Callable[[Sequence[int]], str], max_tokens: int = 80
    ) -> None:
        super().__init__(decode, max_tokens)
        self.answer = answer

    async def grade(self, text: str) -> float:
        """1.0 for the right integer in the last closed box, else 0.0."""
        return float(grade(text, self.answer))


@attrs.frozen
class ArithmeticTask:
    """Sums and differences, generated; no data needed.

    Args:
        levels: Of the questions, keys of ``LEVELS``; several take turns.
        seed: Of the training problems. The held-out ones are the same for every seed.
        count: Problems of each split.
        segment_tokens: Tokens of a transition; each segment's end is a state to branch from.
        max_tokens: Length limit of a reply.
        critic: What the constant critic predicts for an unfinished reply.
        max_transitions: A reply of so many segments is cut there: not graded, without an outcome.
            By default none is that ``max_tokens`` allows.
    """

    levels: tuple[int, ...] = attrs.field(default=(3, 4, 5), converter=tuple)
    seed: int = 0
    count: int = attrs.field(default=2000, validator=attrs.validators.ge(1))
    segment_tokens: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    max_tokens: int = attrs.field(default=80, validator=attrs.validators.ge(1))
    critic: float = attrs.field(
        default=0.3, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)]
    )
    max_transitions: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )

    name: ClassVar[str] = "arithmetic"

    @levels.validator
    def _known(self, _: object, levels: tuple[int, ...]) -> None:
        if not levels or not set(levels) <= set(LEVELS):
            raise UsageError(f"levels={levels!r}: choose among {min(LEVELS)} to {max(LEVELS)}")

    @property
    def defaults(self) -> TaskDefaults:
        """Trains on ``train``, measures on ``heldout``."""
        return TaskDefaults(
            source="train", eval_source="heldout", eval_problems=256, problems_per_step=16
        )

    def problems(self, source: str | None = None) -> Sequence[Problem]:
        """The problems of a split: ``train`` (or ``None``), ``tune`` or ``heldout``.

        Raises:
            UsageError: No such split, or its levels have fewer than ``count`` questions.
        """
        split = "train" if source is None else source
        if split not in SPLITS:
            raise UsageError(f"no problems {source!r}; the splits are {', '.join(SPLITS)}")
        try:
            found = questions(split, self.levels, self.count, self.seed if split == "train" else 0)
        except ValueError as error:
            raise UsageError(f"{error}, with task.count") from error
        return [_problem(question) for question in found]

    def collector_for(self, policy: Policy, problem: Problem) -> Collector:
        """A collector with an environment that holds this problem's answer only.

        Raises:
            UsageError: The problem's label is no integer.
        """
        try:
            answer = int(problem.label)
        except (TypeError, ValueError):
            raise UsageError(
                f"problem {problem.id!r}: the label {problem.label!r} must be an integer"
            ) from None
        agent = Agent(
            policy,
            ArithmeticEnv(answer, policy.decode, self.max_tokens),
            context=Segments(self.segment_tokens),
            max_transitions=self.max_transitions,
        )
        return Collector(
            agent,
            critic=Critic.constant(self.critic),
            search=Selective(budget=16, warmup=16, max_concurrency=4),
        )

    def validate(self) -> None:
        """Prove on every split that the grader accepts the answer and no other.

        Raises:
            GradingError: It does not.
        """
        for split in SPLITS:
            for question in questions(split, self.levels, 20):
                answer = question.answer
                for said, expected in ((answer, True), (answer + 1, False), (-answer - 1, False)):
                    if grade(f"so \\boxed{{{said}}}", answer) is not expected:
                        raise GradingError(
                            f"{question}: the answer {said} was not graded {expected}"
                        )


def _problem(question: Question) -> Problem:
    text = str(question)
    return Problem(
        f"Compute {text}. Box the answer.",
        str(question.answer),
        id=text,
        metadata={"operands": len(question.terms), "split": question.split},
    )
