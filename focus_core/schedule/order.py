"""Which problem comes when.

An order is a pure function of the position in a run, so that resuming needs no state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs

__all__ = ["Order", "Sequential", "Shuffled"]

Order = Callable[[int, int], int]
"""From a position in the run (0, 1, 2, ... over all batches) and the number of problems to the
index of the problem there. Position ``p`` is in epoch ``p // size``."""


@attrs.frozen
class Sequential:
    """The problems as they come, over and over."""

    def __call__(self, position: int, size: int) -> int:
        """See ``Order``."""
        return position % size


@attrs.define
class Shuffled:
    """Every problem once an epoch, in an order drawn anew for each epoch.

    The order follows from ``seed`` and the epoch alone, under any version of Python: it sorts by
    numbers whose sequence the ``random`` module guarantees.

    Args:
        seed: Of all epochs.
    """

    seed: int = attrs.field(default=0, on_setattr=attrs.setters.frozen)
    _drawn: tuple[tuple[int, int], Sequence[int]] = attrs.field(
        default=((-1, 0), ()), init=False, eq=False, repr=False
    )

    def __call__(self, position: int, size: int) -> int:
        """See ``Order``."""
        epoch, place = divmod(position, size)
        if self._drawn[0] != (epoch, size):  # only to draw an epoch's order once
            self._drawn = (epoch, size), self._draw(epoch, size)
        return self._drawn[1][place]

    def _draw(self, epoch: int, size: int) -> Sequence[int]:
        uniform = random.Random(f"{self.seed},{epoch}").random
        keys = [uniform() for _ in range(size)]
        return sorted(range(size), key=keys.__getitem__)
