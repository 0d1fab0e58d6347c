"""Rendering and decoding with the cookbook's tokenizers and renderers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tinker
from tinker_cookbook import renderers
from tinker_cookbook.completers import StopCondition
from tinker_cookbook.exceptions import RendererError
from tinker_cookbook.renderers.base import (
    Message,
    ParseTermination,
    RenderContext,
    RenderedMessage,
    Renderer,
    ensure_text,
)
from tinker_cookbook.tokenizer_utils import get_tokenizer

from focus_core.errors import UsageError
from focus_core.policy import PreparedPrompt

__all__ = ["TEMPLATE_RENDERER", "Chat", "TemplateRenderer", "stop_tokens"]

TEMPLATE_RENDERER = "focus/chat_template"
"""Name under which ``get_renderer`` makes a ``TemplateRenderer``."""


class TemplateRenderer(Renderer):  # type: ignore[misc]  # untyped where the SDK is not installed
    """The tokenizer's own chat template as a cookbook renderer, for models it has none for.

    For sampling only: it cannot cut a rendered chat into messages, which supervised examples need.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template and an end token.

    Raises:
        UsageError: The tokenizer lacks either.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        if not getattr(tokenizer, "chat_template", None) or tokenizer.eos_token_id is None:
            raise UsageError(
                f"tokenizer {getattr(tokenizer, 'name_or_path', tokenizer)!r} has no chat template "
                "or no end token; name one of the cookbook's renderers"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the tokenizer's name, as the cookbook's own renderers do."""
        return _loaded, (self.tokenizer.name_or_path,)

    def get_stop_sequences(self) -> list[int]:
        """The end token."""
        return [int(self.tokenizer.eos_token_id)]

    def build_generation_prompt(
        self, messages: list[Message], role: str = "assistant", prefill: str | None = None
    ) -> tinker.ModelInput:
        """The chat, and the opening of the assistant's turn.

        Raises:
            RendererError: Another role than the assistant's is asked for.
        """
        if role != "assistant":
            raise RendererError(f"a chat template opens the assistant's turn, not {role!r}'s")
        chat = [{**message, "content": ensure_text(message["content"])} for message in messages]
        tokens = self.tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        if prefill:
            tokens = [*tokens, *self.tokenizer.encode(prefill, add_special_tokens=False)]
        return tinker.ModelInput.from_ints([int(token) for token in tokens])

    def render_message(self, message: Message, ctx: RenderContext) -> RenderedMessage:
        """Refused.

        Raises:
            RendererError: Always.
        """
        raise RendererError("a chat template renders whole chats; supervised examples need another")

    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        """The text before the end token; malformed without one."""
        ended = bool(response) and response[-1] == self.tokenizer.eos_token_id
        text = self.tokenizer.decode(response[:-1] if ended else response)
        how = ParseTermination.STOP_SEQUENCE if ended else ParseTermination.MALFORMED
        return Message(role="assistant", content=str(text)), how


def _loaded(name: str) -> TemplateRenderer:
    return TemplateRenderer(get_tokenizer(name))


renderers.register_renderer(
    TEMPLATE_RENDERER, lambda tokenizer, _=None: TemplateRenderer(tokenizer)
)


def stop_tokens(stop: StopCondition, tokenizer: Any = None) -> tuple[int, ...]:
    """A cookbook stop condition as token ids.

    Args:
        stop: Token ids, or texts.
        tokenizer: Encodes the texts.

    Raises:
        UsageError: A text that is not one token; FOCUS stops at tokens.
    """
    found = []
    for item in stop:
        if isinstance(item, str):
            ids = [] if tokenizer is None else tokenizer.encode(item, add_special_tokens=False)
            if len(ids) != 1:
                why = f"is {len(ids)} tokens" if ids else "cannot be encoded without a tokenizer"
                raise UsageError(
                    f"the stop text {item!r} {why}, and FOCUS stops at single tokens; use a "
                    f"renderer that does, such as {TEMPLATE_RENDERER!r}"
                )
            item = ids[0]
        found.append(int(item))
    return tuple(found)


class Chat:
    """What a policy needs besides sampling: rendering, decoding, the tokens that end a turn.

    Args:
        renderer: Renders; its tokenizer decodes.
    """

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.tokenizer = renderer.tokenizer
        self.end_tokens = frozenset(stop_tokens(renderer.get_stop_sequences(), self.tokenizer))

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Render up to where the assistant speaks."""
        prompt = self.renderer.build_generation_prompt([dict(message) for message in messages])
        return PreparedPrompt(prompt.to_ints())

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of these tokens, special ones included."""
        return str(self.tokenizer.decode([int(token) for token in tokens]))
