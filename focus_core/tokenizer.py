"""How a tokenizer and its chat template are read: the half that all policies share."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from focus_core.env.dialects import DIALECTS
from focus_core.errors import GenerationError, UnknownNameError, UsageError
from focus_core.policy import Generation, PreparedPrompt, SamplingParams, check_generation
from focus_core.tree.tree import Ids

__all__ = [
    "PROFILES",
    "ChatTokenizer",
    "Reading",
    "check_room",
    "decode",
    "known_ids",
    "read_profile",
    "sampled",
    "stop_ids",
    "stop_texts",
    "turn_ends",
]

_LOG = logging.getLogger(__name__)
_MARK = "QZX7"
"""Stands for a text while a template is read; no template writes it."""
_CHAT = ({"role": "user", "content": "1 2"},)
_WITH_SYSTEM = ({"role": "system", "content": _MARK}, *_CHAT)
_SURROGATE = re.compile("[\ud800-\udfff]")
_THINKING = ("<think>", "</think>")

PROFILES: Mapping[str, tuple[str, ...]] = {
    "token_chunk": (),
    "chat": (),
    **dict.fromkeys(DIALECTS, ("<tool_call>", "</tool_call>")),
}
"""Tags that a tokenizer must have as one token each, by profile.

``token_chunk`` reads replies as chunks of tokens, of a model used without tools; ``chat`` as whole
turns of one; the others are the core's tool dialects, by name.
"""


@attrs.frozen
class Reading:
    """What was found out about a tokenizer.

    Attributes:
        end_tokens: Ids that end an assistant's turn: the end of text, and what the template writes
            after a finished reply.
        known: Ids that it has; ``None``: it does not say.
    """

    end_tokens: frozenset[int]
    known: frozenset[int] | None = attrs.field(default=None, repr=False)


def read_profile(tokenizer: Any, profile: str | None, model: str) -> Reading:
    """Check that a tokenizer can do what a profile needs, and find how turns end.

    Args:
        tokenizer: Of transformers, or one that works alike.
        profile: One of ``PROFILES``; ``None`` is ``token_chunk``.
        model: For messages.

    Raises:
        UnknownNameError: No such profile.
        UsageError: The tokenizer does not fit; names the profile, the model and what is wrong.
    """
    name = (profile or "token_chunk").replace("_", "-")
    tags = {key.replace("_", "-"): found for key, found in PROFILES.items()}.get(name)
    if tags is None:
        raise UnknownNameError(f"no profile {profile!r}; there are {', '.join(sorted(PROFILES))}")

    def fail(what: str) -> UsageError:
        return UsageError(
            f"profile {name.replace('-', '_')!r} does not fit model {model!r}: {what}"
        )

    prompt = _render(tokenizer, _CHAT, fail)
    if not prompt:
        raise fail("its chat template renders a message to no token")
    template = str(getattr(tokenizer, "chat_template", "") or "")
    thinks = [tag for tag in _THINKING if tag in template]
    for tag in (*tags, *thinks):
        ids = _ids(tokenizer, tag)
        if len(ids) != 1:
            raise fail(f"its tokenizer writes {tag} as {len(ids)} tokens; it must be one")
    ends = turn_ends(tokenizer, model, fail)
    if not ends:
        raise fail("its tokenizer has no end token, so no turn would end")
    return Reading(ends, known_ids(tokenizer))


def known_ids(tokenizer: Any) -> frozenset[int] | None:
    """Every id that a tokenizer has; ``None`` if it does not say.

    A model may have embeddings for more: vocabularies are padded to round numbers.
    """
    vocabulary = getattr(tokenizer, "get_vocab", None)
    return None if vocabulary is None else frozenset(int(each) for each in vocabulary().values())


def turn_ends(
    tokenizer: Any, model: str, fail: Callable[[str], Exception] = UsageError
) -> frozenset[int]:
    """Ids that end a turn: the end of text, and what the template writes after a finished reply.

    A template that ends its turns with something that is no token of its own (ChatML on a base
    model that lacks ``<|im_end|>``) is warned of: turns then end only at the end of text.

    Raises:
        Exception: What ``fail`` makes of a template that refuses a finished reply.
    """
    given = getattr(tokenizer, "eos_token_id", None)
    ends = set(given if isinstance(given, list | tuple) else [] if given is None else [given])
    chat = [*_CHAT, {"role": "assistant", "content": _MARK}]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=False)
    except Exception as error:  # a template can raise anything
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise fail(f"its chat template refuses a finished reply: {said}") from error
    _, found, tail = str(text).rpartition(_MARK)
    tail = tail.strip() if found else ""
    if not tail:
        return frozenset(int(each) for each in ends)
    own = {int(each) for each in getattr(tokenizer, "all_special_ids", ())}
    own |= {int(each) for each in getattr(tokenizer, "added_tokens_decoder", ())}
    after = _ids(tokenizer, tail)
    if after and after[0] not in own | ends and not decode(tokenizer, after[:1]).strip():
        del after[0]  # some tokenizers put a piece for a space before what comes first
    if after and after[0] in own | ends:
        ends.add(after[0])
    else:
        _LOG.warning(
            "the chat template of model %r ends a turn with %r, which is no token of its "
            "tokenizer's own: turns end only at its end of text (%s), which this model may never "
            "write; use a tokenizer that has the token, or another template",
            model,
            tail[:40],
            getattr(tokenizer, "eos_token", None) or "it has none",
        )
    return frozenset(int(each) for each in ends)


def decode(tokenizer: Any, tokens: Ids) -> str:
    """Text of these tokens, special ones included, spaces as they are."""
    text: str = tokenizer.decode(
        [int(token) for token in tokens],
        skip_special_tokens=False,
        clean_up_tokenization_spaces=False,
    )
    return text


class ChatTokenizer:
    """A tokenizer with its chat template, and what a policy does with it: all but sampling.

    Where the template has no place for a system message (it refuses one, or leaves it out), its
    text comes before the user's first one, after which an empty line stands.

    Args:
        tokenizer: Of transformers, or one that works alike.
        reading: What is known of it.
        lock: Held while it is in use, as it is not thread-safe; for those who share one.

    Attributes:
        end_tokens: Ids that end a turn.
    """

    def __init__(
        self, tokenizer: Any, reading: Reading, lock: threading.Lock | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.end_tokens = reading.end_tokens
        self._lock = lock or threading.Lock()
        self._known = reading.known
        self._folds: bool | None = None

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Render with the chat template, up to where the assistant speaks.

        The template writes the begin token where the model wants one; none is added.

        Raises:
            UsageError: The template refuses these messages, or they hold half a character.
        """
        with self._lock:
            if len(messages) > 1 and _role(messages[0]) == "system" and self._lacks_system():
                messages = _folded(messages)
            return PreparedPrompt(_render(self.tokenizer, messages, UsageError))

    def _lacks_system(self) -> bool:
        if self._folds is None:
            try:
                text = self.tokenizer.apply_chat_template(
                    list(_WITH_SYSTEM), tokenize=False, add_generation_prompt=True
                )
                self._folds = _MARK not in str(text)
            except Exception:  # a template can raise anything
                self._folds = True
        return self._folds

    def decode(self, tokens: Ids) -> str:
        """Text of these tokens, special ones included, spaces as they are."""
        with self._lock:
            return decode(self.tokenizer, tokens)

    def check_known(self, tokens: Ids, who: str) -> None:
        """Refuse tokens that have no text, of a model with a padded vocabulary.

        Raises:
            GenerationError: One is not in the tokenizer.
        """
        if self._known is not None and not self._known.issuperset(tokens):
            token = next(each for each in tokens if each not in self._known)
            raise GenerationError(
                f"{who} sampled token {token}, which the model's tokenizer does not have: it is "
                "padding of the model's vocabulary, or the tokenizer is another model's"
            )

    def accept(self, generation: Generation, params: SamplingParams, who: str) -> Generation:
        """A sampler's answer, cut at the first stop string asked for.

        Raises:
            GenerationError: It holds a token that the tokenizer lacks.
        """
        self.check_known(generation.tokens, who)
        return self.cut(generation, stop_texts(params))

    def stopped(self, tokens: Ids, texts: Sequence[str]) -> bool:
        """Whether the tokens' text holds one of these."""
        text = self.decode(tokens) if texts else ""
        return any(each in text for each in texts)

    def cut(self, generation: Generation, texts: Sequence[str]) -> Generation:
        """Up to and with the token that completes the first of these texts, as it was sampled."""
        tokens = generation.tokens
        if not self.stopped(tokens, texts):
            return generation
        count = next(n for n in range(1, len(tokens) + 1) if self.stopped(tokens[:n], texts))
        return Generation(tokens[:count], generation.logprobs[:count], "stop")


def stop_texts(params: SamplingParams) -> tuple[str, ...]:
    """The stop strings among what ends a generation."""
    return tuple(each for each in params.stop if isinstance(each, str))


def stop_ids(params: SamplingParams, ends: Sequence[int] | frozenset[int]) -> list[int]:
    """The ids among what ends a generation, and these; ascending."""
    return sorted({*ends, *(each for each in params.stop if not isinstance(each, str))})


def check_room(length: int, params: SamplingParams, n: int, context_length: int | None) -> int:
    """Most tokens that a request may sample.

    Args:
        length: Of its prompt, in tokens.
        params: How to sample.
        n: Continuations asked for.
        context_length: Most tokens of prompt and reply together; ``None``: unlimited.

    Raises:
        GenerationError: ``n`` is below one, or the prompt is empty or fills the context.
    """
    if n < 1:
        raise GenerationError(f"n is {n}; ask for at least one continuation")
    if not length:
        raise GenerationError("the prompt is empty; a model continues at least one token")
    limit = params.max_tokens
    room = limit if context_length is None else min(limit, context_length - length)
    if room < 1:
        raise GenerationError(
            f"a prompt of {length} tokens leaves no room in the model's context of {context_length}"
        )
    return room


def sampled(tokens: Any, logprobs: Any, stop_reason: Any, room: int, who: str) -> Generation:
    """What a sampler gave, checked.

    Raises:
        GenerationError: It holds no token, or cannot be trained on; ``check_generation``.
    """
    if not len(tokens):
        raise GenerationError(f"{who} returned a sequence without tokens")
    generation = Generation(tokens, logprobs, stop_reason)
    check_generation(generation, max_tokens=room)
    return generation


def _render(tokenizer: Any, messages: Sequence[Any], fail: Callable[[str], Exception]) -> list[int]:
    try:
        tokens = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except Exception as error:  # a template can raise anything
        for message in messages:
            content = message.get("content", "") if isinstance(message, Mapping) else ""
            if found := _SURROGATE.search(str(content)):
                raise fail(
                    f"a message holds half a character ({found.group()!a}), which no tokenizer "
                    "takes; mend the text"
                ) from error
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise fail(f"the model's chat template refuses the messages: {said}") from error
    return [int(token) for token in tokens]


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _folded(messages: Sequence[Any]) -> list[Any]:
    """The chat with the system's text before the user's first, where that follows."""
    system, user, *rest = messages
    said = user.get("content") if _role(user) == "user" else None
    text = system.get("content")
    if not isinstance(text, str) or not isinstance(said, str | list):
        return list(messages)
    if isinstance(said, list):  # of parts
        content: Any = [{"type": "text", "text": f"{text}\n\n"}, *said]
    else:
        content = f"{text}\n\n{said}" if text else said
    return [{**user, "content": content}, *rest]


def _ids(tokenizer: Any, text: str) -> list[int]:
    return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]
