"""A cookbook completer as a policy."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import tinker
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.renderers.base import Renderer

from focus_adapter_cookbook.chat import Chat
from focus_core.errors import GenerationError, UsageError
from focus_core.policy import Generation, SamplingParams
from focus_core.tokenizer import stop_ids
from focus_core.utils.concurrency import all_of

__all__ = ["CompleterPolicy"]


class CompleterPolicy(Chat):
    """Samples with any ``TokenCompleter``, the cookbook's own or another's.

    A completer samples as it was made: temperature, and what else it has, are its own. One that
    takes no ``max_tokens`` samples to its own limit, and what is beyond the request's is cut off:
    the first tokens of a longer sample are a sample of that many tokens. A seed is not used.

    Args:
        completer: What samples; it must return log probabilities.
        renderer: Renders and decodes.
        version: Names the snapshot behind the completer.
        context_length: Most tokens of prompt and reply together; ``None``: unlimited.
    """

    def __init__(
        self,
        completer: TokenCompleter,
        renderer: Renderer,
        *,
        version: int | str = 0,
        context_length: int | None = None,
    ) -> None:
        super().__init__(renderer)
        self.completer = completer
        self.version = version
        self.context_length = context_length
        parameters = inspect.signature(completer).parameters
        self._bounded = "max_tokens" in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> Sequence[Generation]:
        """Sample ``n`` continuations, all at a time.

        Raises:
            UsageError: The request's temperature is not the completer's, or it asks for ``top_p``
                or ``top_k``.
            GenerationError: No log probabilities, another number of them than of tokens, or no
                token at all.
        """
        own = getattr(self.completer, "temperature", 1.0)
        if params.temperature != own or params.top_p != 1.0 or params.top_k != 0:
            raise UsageError(
                f"{type(self.completer).__name__} samples at temperature {own}, from all tokens; "
                f"temperature={params.temperature}, top_p={params.top_p}, top_k={params.top_k} "
                "cannot be asked of it: make the completer so, or leave them out"
            )
        prompt = [int(token) for token in tokens]
        stop = stop_ids(params, self.end_tokens)
        return await all_of(self._one(prompt, stop, params.max_tokens) for _ in range(n))

    async def _one(self, prompt: list[int], stop: list[int], most: int) -> Generation:
        given = tinker.ModelInput.from_ints(prompt)
        if self._bounded:
            said = await self.completer(given, stop, max_tokens=most)
        else:
            said = await self.completer(given, stop)
        name = type(self.completer).__name__
        if said.maybe_logprobs is None:
            raise GenerationError(
                f"{name} returned no log probabilities, without which nothing can be trained; use "
                "one that gives them"
            )
        if len(said.maybe_logprobs) != len(said.tokens):
            raise GenerationError(
                f"{name} returned {len(said.tokens)} tokens but {len(said.maybe_logprobs)} log "
                "probabilities"
            )
        if not said.tokens and said.stop_reason == "length":
            raise GenerationError(f"{name} returned no token, and says that it was cut")
        cut = len(said.tokens) > most
        return Generation(
            list(said.tokens[:most]),
            list(said.maybe_logprobs[:most]),
            "length" if cut else said.stop_reason,
        )
