"""The task: guess a secret word in a few turns, told each time how many letters are right."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import attrs

from focus_core import (
    Agent,
    Collector,
    Critic,
    GradingError,
    Policy,
    Problem,
    Reply,
    SamplingParams,
    Segments,
    Selective,
    TaskDefaults,
    Transition,
    UsageError,
)


def right_letters(guess: str, word: str) -> int:
    """How many letters stand in their place."""
    return sum(a == b for a, b in zip(guess, word, strict=False))


class CodewordsEnv:
    """One secret word.

    Args:
        decode: The policy's ``decode``.
        guesses: Turns the policy has.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], guesses: int) -> None:
        self.decode = decode
        self.guesses = guesses
        self.word = ""
        self.said: tuple[int, ...] = ()
        self.tried: tuple[str, ...] = ()

    def reset(self, problem: Problem) -> Sequence[Any]:
        """The question."""
        self.word, self.said, self.tried = problem.label, (), ()
        return ({"role": "user", "content": problem.prompt},)

    async def step(self, reply: Reply) -> Transition:
        """Judge a guess when the turn is over or long enough."""
        self.said = (*self.said, *reply.tokens)
        if reply.stop_reason == "length" and len(self.said) < len(self.word):
            return Transition()
        guess = self.decode(self.said)[: len(self.word)]
        self.said, self.tried = (), (*self.tried, guess)
        right = right_letters(guess, self.word)
        metrics = {"right_letters": right / len(self.word)}
        if guess == self.word:
            return Transition(1.0 / len(self.tried), done=True, metrics=metrics)
        if len(self.tried) == self.guesses:
            return Transition(0.0, done=True, metrics=metrics)
        said = {"role": "user", "content": f"{right} right"}
        return Transition(messages=(said,), metrics=metrics)

    def snapshot(self) -> Any:
        """All that a continuation needs."""
        return self.word, self.said, self.tried

    def restore(self, state: Any) -> None:
        """Continue from there."""
        self.word, self.said, self.tried = state


@attrs.frozen
class Codewords:
    """Secret words.

    Args:
        words: How many.
        letters: Of which they are made.
        length: Letters of a word.
        guesses: Turns the policy has for each.
        seed: Chooses the words.
    """

    words: int = attrs.field(default=12, validator=attrs.validators.ge(1))
    letters: str = "abcd"
    length: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    guesses: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    seed: int = 0

    name: ClassVar[str] = "codewords"
    defaults: ClassVar[TaskDefaults] = TaskDefaults(source="all", problems_per_step=12)

    def problems(self, source: str) -> Sequence[Problem]:
        """All words; there is no other source."""
        if source != "all":
            raise UsageError(f"no words {source!r}; there is only the source 'all'")
        draw = random.Random(self.seed)
        return [
            Problem(
                f"Word {number}: {self.length} letters.",
                "".join(draw.choices(self.letters, k=self.length)),
                id=f"word-{number}",
            )
            for number in range(self.words)
        ]

    def collector_for(self, policy: Policy, problem: Problem) -> Collector:
        """A small tree: a letter a transition."""
        agent = Agent(
            policy,
            CodewordsEnv(policy.decode, self.guesses),
            context=Segments(1),
            sampling=SamplingParams(max_tokens=1),
        )
        return Collector(
            agent,
            critic=Critic.constant(0.3),
            search=Selective(budget=12, warmup=12, max_concurrency=4),
        )

    def validate(self) -> None:
        """Every word is the one guess that is all right."""
        for problem in self.problems("all"):
            wrong = problem.label[:-1] + ("b" if problem.label[-1] == "a" else "a")
            for guess, expected in ((problem.label, True), (wrong, False)):
                if (right_letters(guess, problem.label) == self.length) is not expected:
                    raise GradingError(f"{problem.id}: {guess!r} was not judged {expected}")
