"""Questions by level and split, the same on every machine and under every Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, cast

import attrs

__all__ = ["LEVELS", "SPLITS", "Level", "Question", "Split", "questions", "split_of"]

Split = Literal["train", "tune", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "tune", "heldout")
"""To learn from, to choose settings by, and to report on."""

_SHARES: tuple[Split, ...] = ("train",) * 6 + ("tune",) * 2 + ("heldout",) * 2


@attrs.frozen
class Level:
    """How hard a question is.

    Attributes:
        operands: How many numbers it has.
        largest: They lie between 1 and this.
    """

    operands: int
    largest: int

    def __len__(self) -> int:
        """How many different questions there are."""
        return cast("int", self.largest**self.operands * 2 ** (self.operands - 1))

    def __getitem__(self, index: int) -> Question:
        """The question with this number, below ``len``."""
        if not 0 <= index < len(self):
            raise IndexError(f"question {index} of {len(self)}")
        index, first = divmod(index, self.largest)
        terms = [first + 1]
        for _ in range(self.operands - 1):
            index, digit = divmod(index, 2 * self.largest)
            size, minus = divmod(digit, 2)
            terms.append(-(size + 1) if minus else size + 1)
        return Question(tuple(terms))


@attrs.frozen
class Question:
    """A sum to work out.

    Attributes:
        terms: Its numbers with their signs; the first one is positive.
    """

    terms: tuple[int, ...]

    def __str__(self) -> str:
        """As it is written: ``7+5-3``."""
        return "".join(f"{term:+d}" for term in self.terms).lstrip("+")

    @property
    def answer(self) -> int:
        """What it comes to."""
        return sum(self.terms)

    @property
    def split(self) -> Split:
        """Where it belongs, whatever it was made for."""
        return split_of(str(self))


LEVELS: dict[int, Level] = {
    **{operands - 1: Level(operands, 9) for operands in range(2, 10)},
    **{operands + 7: Level(operands, 99) for operands in range(2, 6)},
}
"""1 to 8: two to nine numbers up to 9. 9 to 12: two to five numbers up to 99."""


def split_of(text: str) -> Split:
    """The split of a question as written: 60% train, 20% tune, 20% heldout, by its hash alone.

    So no seed, level or count can bring a held-out question into training.
    """
    return _SHARES[_number("split", text) % len(_SHARES)]


def questions(split: Split, levels: Sequence[int], count: int, seed: int = 0) -> list[Question]:
    """Different questions of some levels, in an order that the seed decides.

    The levels take turns by chance, each as likely as the others while it lasts.

    Args:
        split: Whose questions.
        levels: Keys of ``LEVELS``.
        count: How many.
        seed: Another one gives others, of the same split.

    Raises:
        ValueError: A level or split does not exist, or the levels have fewer questions than that.
    """
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}; there are: {', '.join(SPLITS)}")
    unknown = [level for level in levels if level not in LEVELS]
    if unknown or not levels:
        raise ValueError(f"levels are {tuple(levels)}; choose among {min(LEVELS)} to {max(LEVELS)}")
    drawn: set[tuple[int, int]] = set()
    found: list[Question] = []
    most = sum(len(LEVELS[level]) for level in set(levels))
    draw = 0
    while len(found) < count and len(drawn) < most:
        number = _number("draw", seed, draw)
        draw += 1
        number, place = divmod(number, len(levels))
        level = levels[place]
        index = number % len(LEVELS[level])
        if (level, index) in drawn:
            continue
        drawn.add((level, index))
        question = LEVELS[level][index]
        if question.split == split:
            found.append(question)
    if len(found) < count:
        raise ValueError(
            f"the levels {tuple(levels)} have {len(found)} {split} questions, not {count}; "
            "add a level or ask for fewer"
        )
    return found


def _number(*key: object) -> int:
    """128 bits that depend on the key alone."""
    text = "/".join(map(str, key)).encode()
    return int.from_bytes(
        hashlib.blake2b(text, digest_size=16, person=b"arithmetic").digest(), "big"
    )
