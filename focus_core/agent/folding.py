"""A context that folds a long chat into a summary and goes on from that."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from focus_core.agent.context import Context, Segments
from focus_core.env.execution import Execution, call
from focus_core.errors import FoldError
from focus_core.policy import SamplingParams

__all__ = ["Folding"]

REQUEST = (
    "The conversation is about to be cut. Write a summary to go on from: what was asked, what has "
    "been found out or done, and what remains to do. Only the summary will be left."
)
RESUME = "The conversation so far was cut. Go on from the summary."


@attrs.frozen(kw_only=True)
class Folding:
    """Folds the chat when it grows too long: the policy summarizes it, and goes on from that.

    When a trigger fires at a state, ``request`` is put to the policy there, and the next
    transition is its summary: trained like any other, with no step of the environment, whose
    state stays as it is. The state after it begins a fresh sequence of the chat's first messages,
    the summary as the assistant's message, and ``resume``; it can be branched, as can the state
    before. (Assistant and user go on taking turns, as strict chat templates demand.)

    A turn may be folded before it ends: its text is put into the chat as it stands, and the
    policy begins another turn after the fold. An environment's ``folded()`` tells it so; without
    that method it joins the tokens of both, as ``ReplyEnv`` does, which grades the whole.

    A fold also happens when the policy's ``context_length`` would be full after one more
    transition and the summary. An empty summary, or a fold after which the prompt would fire the
    trigger again, is a failure (``FoldError``).

    Args:
        inner: How turns are cut into transitions.
        max_tokens: Fold where the next request would send this many tokens or more.
        max_turns: Fold where this many turns have ended since the start or the last fold.
        request: What the policy is asked, as a user's message.
        summary_tokens: Length limit of the summary; one that reaches it is used as it stands.
        resume: What the policy is told after the fold, as a user's message.
        keep: How many first messages stay; ``None``: those the rollout began with.
        summarize: From the chat to the summary, sync (in a worker thread) or async, instead of
            the policy: the fold then happens where the trigger fires, without a transition.
        penalty: Subtracted from the reward of the fold's edge: of the summary, or with
            ``summarize`` of the transition that fired the trigger.
    """

    inner: Context = attrs.field(factory=Segments)
    max_tokens: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )
    max_turns: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )
    request: str = REQUEST
    summary_tokens: int = attrs.field(default=512, validator=attrs.validators.ge(1))
    resume: str = RESUME
    keep: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(0))
    )
    summarize: Callable[[Sequence[Any]], str | Awaitable[str]] | None = None
    penalty: float = attrs.field(
        default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(math.inf)]
    )

    def transition_tokens(self, sampling: SamplingParams) -> int:
        """As the inner context."""
        return self.inner.transition_tokens(sampling)

    def summary_room(self, sampling: SamplingParams) -> int:
        """Most tokens of a summary."""
        return min(self.summary_tokens, sampling.max_tokens)

    def too_long(
        self, length: int, sampling: SamplingParams, context_length: int | None, request: int
    ) -> bool:
        """Whether a prompt fires the trigger.

        Args:
            length: The prompt's, in tokens.
            sampling: How the policy is sampled.
            context_length: The policy's, ``None`` if unlimited.
            request: Tokens that asking for a summary adds.
        """
        if self.max_tokens is not None and length >= self.max_tokens:
            return True
        ahead = self.transition_tokens(sampling)
        if self.summarize is None:
            ahead += request + self.summary_room(sampling)
        return context_length is not None and length + ahead > context_length

    def asked(self, chat: Sequence[Any]) -> tuple[Any, ...]:
        """The chat that asks for a summary."""
        return (*chat, {"role": "user", "content": self.request})

    def folded(self, first: Sequence[Any], chat: Sequence[Any], summary: Any) -> tuple[Any, ...]:
        """The chat after a fold.

        Args:
            first: The messages the rollout began with.
            chat: The messages to fold.
            summary: What remains of them.

        Raises:
            FoldError: The summary is no text, or empty.
        """
        if not isinstance(summary, str) or not summary.strip():
            raise FoldError(
                f"the summary is {summary!r}; one without text cannot be gone on from: raise "
                "summary_tokens, or let a function summarize"
            )
        kept = chat[: len(first) if self.keep is None else self.keep]
        return (
            *kept,
            {"role": "assistant", "content": summary},
            {"role": "user", "content": self.resume},
        )

    async def summary(self, chat: Sequence[Any], execution: Execution) -> str:
        """What the user's function makes of the chat."""
        assert self.summarize is not None  # the caller asked
        text: str = await call(execution, self.summarize, chat)
        return text
