"""Which part of a text each of its tokens wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["Pieces"]

Decode = Callable[[Sequence[int]], str]


class Pieces:
    """Cuts decoded texts into one piece a token, such that the pieces join to the text.

    A token may end inside a character (bytes of UTF-8); its piece then holds the characters it
    finished, often none, and the token that completes the character gets it. Where a tokenizer
    decodes each token as it would alone, that is all there is to do; otherwise growing
    prefixes are decoded, from the last token after which the text was whole.

    Args:
        decode: Tokens to text.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._alone: dict[int, str] = {}

    def __call__(self, tokens: Sequence[int]) -> tuple[list[str], list[int]]:
        """The pieces of these tokens, and the places of those that end inside a character."""
        if not tokens:
            return [], []
        text = self._decode(tokens)
        alone = [self._one(token) for token in tokens]
        if "".join(alone) == text:
            return alone, []
        return self._grow(tokens, text)

    def _one(self, token: int) -> str:
        piece = self._alone.get(token)
        if piece is None:
            piece = self._alone[token] = self._decode([token])
        return piece

    def _grow(self, tokens: Sequence[int], text: str) -> tuple[list[str], list[int]]:
        pieces: list[str] = []
        inside: list[int] = []
        first = whole = 0  # the window tokens[first:] starts with one piece that is known
        before = ""  # decoded tokens[first:whole]
        base = done = 0  # characters of the text up to ``whole``, and given out
        for place in range(len(tokens)):
            window = self._decode(tokens[first : place + 1])
            grown = window[len(before) :]
            if window.startswith(before) and text.startswith(grown, base):
                stop = base = base + len(grown)
                first, whole = whole, place + 1
                before = self._decode(tokens[first:whole])
            else:
                alike = _alike(grown, text[base : base + len(grown)])
                stop = max(done, base + alike)
                if place + 1 < len(tokens):
                    inside.append(place)
            pieces.append(text[done:stop])
            done = stop
        pieces[-1] += text[done:]
        return pieces, inside


def _alike(one: str, other: str) -> int:
    """Length of the common prefix."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
