"""A Tinker sampling client as the core's ``Policy``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from focus_adapter_tinker import _sdk
from focus_adapter_tinker.attending import Attendant, attended
from focus_adapter_tinker.usage import Usage
from focus_core.errors import DeadlineError, FocusError, GenerationError, TrainerError
from focus_core.policy import Generation, SamplingParams
from focus_core.tokenizer import (
    ChatTokenizer,
    Reading,
    check_room,
    read_profile,
    sampled,
    stop_ids,
)
from focus_core.tree.prefix import Prefix

__all__ = ["TinkerPolicy", "load_tokenizer"]

SAMPLE_TIMEOUT = 1800.0
"""Seconds after which a sampling request without an answer is called off."""


class TinkerPolicy(ChatTokenizer):
    """Samples a frozen snapshot of weights through its sampling client.

    The tokenizer renders chats and decodes; sampled tokens are never encoded again. The profile is
    checked on it here, before the first sample.

    Args:
        sampling_client: A ``tinker.SamplingClient``; it stays with its owner.
        model: Name of the model, for messages.
        profile: How replies are read: ``token_chunk`` (the default), ``chat``, ``hermes`` or
            ``qwen-xml``.
        tokenizer: The model's; by default the sampling client's own, loaded here, which may take
            a request and block.
        version: Names the snapshot.
        context_length: Most tokens of prompt and reply together; ``None``: unlimited.
        timeout: Seconds a request may take.
        usage: Counts what is asked for.
        reading: What ``read_profile`` found, so that a tokenizer is checked once.
        attendant: Looks whether the server is still there.

    Attributes:
        end_tokens: Ids that end a turn: the tokenizer's end of text, and what its chat template
            writes after a finished reply.

    Raises:
        UsageError: The tokenizer does not fit the profile.
    """

    takes_prefix = True
    takes_stop_strings = True
    samples_together = "unseeded"  # Tinker does not say that samples of one seed differ

    def __init__(
        self,
        sampling_client: Any,
        *,
        model: str | None = None,
        profile: str | None = None,
        tokenizer: Any = None,
        version: int | str = 0,
        context_length: int | None = None,
        timeout: float = SAMPLE_TIMEOUT,
        usage: Usage | None = None,
        reading: Reading | None = None,
        attendant: Attendant | None = None,
    ) -> None:
        named = model or "of the sampling client"
        tokenizer = tokenizer or load_tokenizer(sampling_client, named)
        super().__init__(tokenizer, reading or read_profile(tokenizer, profile, named))
        self.version = version
        self.context_length = context_length
        self._client: Any = sampling_client
        self._timeout = timeout
        self._attendant = attendant
        self._usage = usage or Usage()

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """Sample ``n`` continuations in one request.

        Tinker's log probabilities ignore temperature, ``top_p`` and ``top_k``: train on samples
        drawn at 1, 1 and 0, the defaults. Waiting requests are retried by the SDK.
        Stop strings are not sent, as Tinker takes either strings or ids: a sample is cut here, with
        the token that completes one, and what was sampled beyond it is paid for.

        Raises:
            GenerationError: The prompt is empty or fills the context; or the answer has no log
                probabilities, too few, or some that are not finite, or holds no token or
                one that the tokenizer lacks.
            DeadlineError: No answer in time.
            TrainerError: The request failed, or the policy was closed.
        """
        if self._client is None:
            raise TrainerError(f"policy {self.version} was closed; sample the newest one")
        length = len(tokens)
        room = check_room(length, params, n, self.context_length)
        response = await self._ask(_model_input(tokens), params, room, n)
        # Counted before anything is found wrong with it: it was asked for and answered.
        self._usage.sampled(
            prompt=length, sampled=sum(len(each.tokens) for each in response.sequences), n=n
        )
        if len(response.sequences) != n:
            raise GenerationError(
                f"Tinker returned {len(response.sequences)} sequences, {n} were asked for"
            )
        found = []
        for sequence in response.sequences:
            reason = str(sequence.stop_reason)
            made = sampled(list(sequence.tokens), sequence.logprobs, reason, room, "Tinker")
            found.append(self.accept(made, params, "Tinker"))
            await asyncio.sleep(0)  # many long ones would hold the loop
        return found

    async def _ask(self, prompt: Any, params: SamplingParams, room: int, n: int) -> Any:
        from tinker import types

        # Naming stop tokens turns the server's implicit ones off, so all of them are named.
        asked = types.SamplingParams(
            max_tokens=room,
            seed=params.seed,
            stop=stop_ids(params, self.end_tokens),
            temperature=params.temperature,
            top_k=params.top_k or -1,
            top_p=params.top_p,
        )
        try:
            async with asyncio.timeout(self._timeout) as limit, attended(self._attendant, limit):
                return await _sdk.sample(self._client, prompt, n, asked)
        except FocusError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                if self._attendant is not None and self._attendant.gone:
                    raise TrainerError(f"sampling failed: {self._attendant.gone}") from None
                raise DeadlineError(
                    f"Tinker gave no sample within {self._timeout:g} s; it was called off"
                ) from _sdk.cause(error)
            raise TrainerError(f"sampling failed: {_sdk.explain(error)}") from _sdk.cause(error)

    async def aclose(self) -> None:
        """Sample no more; the client stays with its owner."""
        self._client = None


def load_tokenizer(sampling_client: Any, model: str) -> Any:
    """The tokenizer of a sampling client; may take a request, and block.

    Raises:
        TrainerError: It cannot be loaded.
    """
    try:
        return sampling_client.get_tokenizer()
    except Exception as error:
        raise TrainerError(
            f"the tokenizer of model {model!r} cannot be loaded: {_sdk.explain(error)}"
        ) from _sdk.cause(error)


def _model_input(tokens: Sequence[int]) -> Any:
    """Tokens as Tinker takes them; the chunks of a tree's prefixes are made once for the tree."""
    from tinker import types

    if not isinstance(tokens, Prefix):
        return types.ModelInput.from_ints([int(token) for token in tokens])
    chunks = []
    for node, part in tokens.chunks():
        if not len(part):  # a state that adds no token; a server may refuse an empty chunk
            continue
        if node not in tokens.cache:
            tokens.cache[node] = types.EncodedTextChunk(tokens=part.tolist())
        chunks.append(tokens.cache[node])
    return types.ModelInput(chunks=chunks)
