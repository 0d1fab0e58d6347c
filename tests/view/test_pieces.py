"""Pieces of text: they join to it, and each token has what it wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_core.view.pieces import Pieces

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def from_bytes(tokens):
    """A tokenizer of bytes."""
    return bytes(tokens).decode(errors="replace")


def words(tokens):
    """Decodes with a blank between two tokens."""
    return " ".join(map(str, tokens))


def sentences(tokens):
    """Strips the blank that starts a text, as sentencepiece does."""
    return "".join(f" w{token}" if token % 3 else "x" for token in tokens).removeprefix(" ")


@given(texts)
def test_whole_characters_belong_to_the_byte_that_ends_them(text):
    tokens = list(text.encode())
    pieces, inside = Pieces(from_bytes)(tokens)
    expected, ends = [], []
    for character in text:
        size = len(character.encode())
        expected += [""] * (size - 1) + [character]
        ends += [*range(len(expected) - size, len(expected) - 1)]
    assert pieces == expected
    # A replacement character in the text itself reads like bytes that are not whole yet.
    assert inside == ends or "\ufffd" in text


@given(st.lists(st.integers(0, 255), max_size=40))
def test_broken_bytes_still_join_to_the_text(tokens):
    pieces, inside = Pieces(from_bytes)(tokens)
    assert "".join(pieces) == from_bytes(tokens)
    assert len(pieces) == len(tokens)
    assert inside == sorted(set(inside))
    assert all(0 <= place < len(tokens) - 1 for place in inside)


@pytest.mark.parametrize("decode", [words, sentences])
@given(tokens=st.lists(st.integers(0, 500), max_size=40))
def test_decoders_that_do_not_concatenate(decode, tokens):
    pieces, inside = Pieces(decode)(tokens)
    prefixes = [decode(tokens[: place + 1]) for place in range(len(tokens))]
    assert ["".join(pieces[: place + 1]) for place in range(len(tokens))] == prefixes
    assert inside == []


def test_tokens_of_several_bytes_that_split_characters():
    vocabulary = {1: b"a\xe3", 2: b"\x81", 3: b"\x82b", 4: b"\xf0\x9f\x98", 5: b"\x80!"}
    decode = lambda tokens: b"".join(vocabulary[t] for t in tokens).decode(errors="replace")  # noqa: E731
    assert Pieces(decode)([1, 2, 3, 4, 5]) == (["a", "", "あb", "", "😀!"], [0, 1, 3])
    # Cut off, the text itself ends in a replacement character, which the first token began.
    assert Pieces(decode)([1, 2]) == (["a\ufffd", ""], [])


def test_decoding_is_linear_in_the_tokens():
    decoded = []

    def counted(tokens):
        decoded.append(len(tokens))
        return from_bytes(tokens)

    tokens = list(("é" + "x" * 9).encode() * 100)
    Pieces(counted)(tokens)
    assert sum(decoded) < 8 * len(tokens)
