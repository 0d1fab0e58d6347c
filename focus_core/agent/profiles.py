"""How a model's replies are read, and proof on its tokenizer before anything is sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from focus_core.env.dialects import DIALECTS
from focus_core.errors import UnknownNameError, UsageError

__all__ = ["PROFILES", "Reading", "decode", "read_profile", "render"]

_CHAT = ({"role": "user", "content": "1 2"},)
_MARK = "QZX7"
"""Stands for a reply while a template is read; no template writes it."""


@attrs.frozen
class Reading:
    """What was found out about a tokenizer.

    Attributes:
        end_tokens: Ids that end an assistant's turn.
    """

    end_tokens: frozenset[int]


PROFILES: Mapping[str, tuple[str, ...]] = {
    "token_chunk": (),
    "chat": (),
    **dict.fromkeys(DIALECTS, ("<tool_call>", "</tool_call>")),
}
"""Tags that a tokenizer must have as one token each, by profile.

``token_chunk`` reads replies as chunks of tokens, of a model used without tools; ``chat`` as whole
turns of one; the others are the core's tool dialects, by name.
"""

_THINKING = ("<think>", "</think>")


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

    prompt = render(tokenizer, _CHAT, fail)
    if not prompt:
        raise fail("its chat template renders a message to no token")
    template = str(getattr(tokenizer, "chat_template", "") or "")
    thinks = [tag for tag in _THINKING if tag in template]
    for tag in (*tags, *thinks):
        ids = _ids(tokenizer, tag)
        if len(ids) != 1:
            raise fail(f"its tokenizer writes {tag} as {len(ids)} tokens; it must be one")
    ends = _end_tokens(tokenizer, fail)
    if not ends:
        raise fail("its tokenizer has no end token, so no turn would end")
    return Reading(ends)


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Text of these tokens, special ones included, spaces as they are."""
    text: str = tokenizer.decode(
        [int(token) for token in tokens],
        skip_special_tokens=False,
        clean_up_tokenization_spaces=False,
    )
    return text


def render(tokenizer: Any, messages: Sequence[Any], fail: Callable[[str], Exception]) -> list[int]:
    """A chat up to where the assistant speaks, as tokens.

    Raises:
        Exception: What ``fail`` makes of a template that is missing or refuses the messages.
    """
    try:
        tokens = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except Exception as error:  # a template can raise anything
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise fail(f"its chat template refuses the messages: {said}") from error
    return [int(token) for token in tokens]


def _ids(tokenizer: Any, text: str) -> list[int]:
    return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]


def _end_tokens(tokenizer: Any, fail: Callable[[str], Exception]) -> frozenset[int]:
    """The tokenizer's end of text, and what its template writes right after a finished reply."""
    given = getattr(tokenizer, "eos_token_id", None)
    ends = set(given if isinstance(given, list | tuple) else [] if given is None else [given])
    chat = [*_CHAT, {"role": "assistant", "content": _MARK}]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=False)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise fail(f"its chat template refuses a finished reply: {said}") from error
    _, found, tail = str(text).rpartition(_MARK)
    special = {int(token) for token in getattr(tokenizer, "all_special_ids", ())}
    if found and tail:
        after = _ids(tokenizer, tail)
        if after and after[0] in special:
            ends.add(after[0])
    return frozenset(int(token) for token in ends)
