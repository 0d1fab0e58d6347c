"""The servers behind Slime's router as the core's ``Policy``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from focus_adapter_slime.errors import AbortedError
from focus_adapter_slime.router import Router
from focus_core.errors import GenerationError, StaleBatchError
from focus_core.policy import Generation, SamplingParams
from focus_core.tokenizer import (
    ChatTokenizer,
    Reading,
    check_room,
    read_profile,
    sampled,
    stop_ids,
)
from focus_core.utils.concurrency import all_of

__all__ = ["RouterPolicy", "Straddle"]

Straddle = Literal["refuse", "keep"]


class RouterPolicy(ChatTokenizer):
    """Samples through ``POST {url}/generate``; one for each tree.

    Token ids and log probabilities are those of the answer; nothing is encoded again. The weights
    behind the router may be updated at any time, so it notes the version each generation was
    sampled from.

    Args:
        url: The router, without a path.
        tokenizer: Renders chats and decodes.
        model: Name of the model, for messages.
        profile: How replies are read: ``token_chunk`` (the default), ``chat``, ``hermes`` or
            ``qwen-xml``.
        reading: What ``read_profile`` found, so that a tokenizer is checked once.
        context_length: Most tokens of prompt and reply together; ``None``: the servers' own.
        straddle: What becomes of a generation that was sampled from other weights than the first:
            ``"refuse"`` fails its continuation, ``"keep"`` keeps it.
        seeded: Send the seeds of requests; the servers must run deterministic inference.
        timeout: Seconds a request may take.
        retries: Attempts after the first, of requests that were not taken up.
        requests: Most requests at a time in one event loop.
        headers: Sent with every request.
        aborting: Whether the rollout is being called off.
        lock: Held while the tokenizer is in use, as it is not thread-safe; for those who share one.

    Attributes:
        end_tokens: Ids that end a turn.
        weight_versions: Generations by the version of the weights that sampled them.
        straddling: Generations sampled from other weights than the first.

    Raises:
        UsageError: The tokenizer does not fit the profile.
    """

    takes_stop_strings = True

    def __init__(
        self,
        url: str,
        tokenizer: Any,
        *,
        model: str = "of the router",
        profile: str | None = None,
        reading: Reading | None = None,
        context_length: int | None = None,
        straddle: Straddle = "refuse",
        seeded: bool = False,
        timeout: float = 600.0,
        retries: int = 3,
        requests: int = 512,
        headers: Mapping[str, str] | None = None,
        aborting: Callable[[], bool] = lambda: False,
        lock: threading.Lock | None = None,
    ) -> None:
        super().__init__(tokenizer, reading or read_profile(tokenizer, profile, model), lock)
        self.context_length = context_length
        self.weight_versions: Counter[str] = Counter()
        self.straddling = 0
        self._straddle = straddle
        self._seeded = seeded
        self._router = Router(
            url,
            timeout=timeout,
            retries=retries,
            requests=requests,
            headers=headers or {},
            aborting=aborting,
        )

    @property
    def version(self) -> str:
        """The weights that the first generation was sampled from; ``"unknown"`` before it."""
        return next(iter(self.weight_versions), "unknown")

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """Sample ``n`` continuations, one request each; the servers share the prompt's cache.

        SGLang's log probabilities are of the distribution after temperature and before ``top_p``
        and ``top_k``: train on samples drawn at Slime's ``--rollout-temperature``, 1 and 0.

        Raises:
            GenerationError: The prompt is empty or fills the context; or the answer has no log
                probabilities, too few, or some that are not finite, or holds no token.
            AbortedError: The rollout was called off, or the servers broke the generation off.
            StaleBatchError: It was sampled from other weights than the first, and that is refused.
            DeadlineError: No answer in time.
            TrainerError: The request failed, or the policy was closed.
        """
        prompt = [int(token) for token in tokens]
        room = check_room(len(prompt), params, n, self.context_length)
        return await all_of(self._one(prompt, params, room, place) for place in range(n))

    async def _one(
        self, prompt: list[int], params: SamplingParams, room: int, place: int
    ) -> Generation:
        sampling: dict[str, Any] = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k or -1,
            "max_new_tokens": room,
            "stop_token_ids": stop_ids(params, self.end_tokens),
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "spaces_between_special_tokens": False,
        }
        if self._seeded and params.seed is not None:
            sampling["sampling_seed"] = (params.seed + place) % 2**31  # SGLang's seeds are int32
        answer = await self._router.post(
            "/generate",
            {"input_ids": prompt, "sampling_params": sampling, "return_logprob": True},
        )
        generation, version = read_answer(answer, room)
        if version is not None:
            self._note(version)
        return self.accept(generation, params, "the router")

    def _note(self, version: str) -> None:
        """Count a generation's weights.

        Raises:
            StaleBatchError: They are not the first one's, and that is refused.
        """
        first = next(iter(self.weight_versions), version)
        self.weight_versions[version] += 1
        if version == first:
            return
        self.straddling += 1
        if self._straddle == "refuse":
            raise StaleBatchError(
                f"the weights were updated while this tree was sampled: it began with version "
                f"{first!r}, and this generation is of version {version!r}; set focus_straddle: "
                "keep to train on such trees"
            )

    async def aclose(self) -> None:
        """Sample no more."""
        await self._router.aclose()


def read_answer(answer: Any, room: int) -> tuple[Generation, str | None]:
    """What ``/generate`` answered, checked, and the version of the weights, if it says.

    Args:
        answer: Parsed JSON.
        room: Tokens asked for.

    Raises:
        GenerationError: It cannot be trained on.
        AbortedError: The generation was broken off.
    """
    meta = answer.get("meta_info") if isinstance(answer, Mapping) else None
    if not isinstance(meta, Mapping):
        raise GenerationError(f"the router's answer has no meta_info: {str(answer)[:200]}")
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, Mapping) else reason
    if kind == "abort":
        said = reason.get("message") if isinstance(reason, Mapping) else None
        raise AbortedError(f"the servers broke a generation off: {said or 'aborted'}")
    entries = meta.get("output_token_logprobs")
    if entries is None:
        raise GenerationError(
            "the router returned no output_token_logprobs; its servers must answer "
            "return_logprob=true"
        )
    try:
        logprobs, tokens = [entry[0] for entry in entries], [entry[1] for entry in entries]
    except (TypeError, IndexError, KeyError) as error:
        raise GenerationError(
            f"output_token_logprobs must hold [log probability, token id, ...]: {error}"
        ) from error
    _check_complete(answer, meta, tokens)
    generation = sampled(tokens, logprobs, kind, room, "the router")
    version = meta.get("weight_version")
    return generation, None if version is None else str(version)


def _check_complete(answer: Mapping[str, Any], meta: Mapping[str, Any], tokens: list[Any]) -> None:
    """Refuse log probabilities of fewer tokens than were sampled, where the answer tells."""
    count, ids = meta.get("completion_tokens"), answer.get("output_ids")
    if count is not None and count != len(tokens):
        raise GenerationError(
            f"the router sampled {count} tokens and returned {len(tokens)} log probabilities"
        )
    if ids and list(ids) != tokens[: len(ids)]:  # some servers leave the stop token out of the ids
        raise GenerationError(
            f"the router's output_ids ({len(ids)}) and the tokens of its output_token_logprobs "
            f"({len(tokens)}) are not the same"
        )
