"""How a policy's turn is cut into transitions."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import attrs

from focus_core.policy import SamplingParams

__all__ = ["Context", "Segments", "Turns"]


@runtime_checkable
class Context(Protocol):
    """How much the policy says in one transition."""

    def transition_tokens(self, sampling: SamplingParams) -> int:
        """Most tokens of one transition."""
        ...


@attrs.frozen
class Segments:
    """A transition is one segment of at most ``tokens`` tokens; it ends early at a stop token.

    A turn goes on over as many segments as the environment allows, token for token, and every
    segment's end is a state that can be branched.

    Args:
        tokens: Length of a segment.
    """

    tokens: int = attrs.field(default=256, validator=attrs.validators.ge(1))

    def transition_tokens(self, sampling: SamplingParams) -> int:
        """The segment's length, or less if sampling allows less."""
        return min(self.tokens, sampling.max_tokens)


@attrs.frozen
class Turns:
    """A transition is one whole turn, up to its stop token; only the ends of turns are branched.

    What a turn cut at ``max_tokens`` means is the environment's to say: given the same limit, it
    takes the turn as it stands; with a larger one, the turn goes on in another transition.

    Args:
        max_tokens: Length limit of a turn.
    """

    max_tokens: int = attrs.field(default=1024, validator=attrs.validators.ge(1))

    def transition_tokens(self, sampling: SamplingParams) -> int:
        """The turn's limit, or less if sampling allows less."""
        return min(self.max_tokens, sampling.max_tokens)
