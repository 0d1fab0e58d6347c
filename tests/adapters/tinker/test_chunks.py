"""Datums over arrays: byte for byte what the SDK sends for lists, and lists where it does not."""

import numpy as np
import pytest
from focus_adapter_tinker import chunks, to_datum
from hypothesis import given
from hypothesis import strategies as st

from focus_core import ActorRecord, Span

tinker = pytest.importorskip("tinker")


@pytest.fixture
def lists_only(monkeypatch):
    """An SDK that looks at its tokens itself."""

    def refuse(chunk):
        raise TypeError("tokens must be a list")

    monkeypatch.setattr(chunks, "_sent", refuse)
    chunks._arrays_are_taken.cache_clear()
    yield
    chunks._arrays_are_taken.cache_clear()


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40))
def test_the_bytes_on_the_wire_are_those_of_a_list(tokens):
    listed = tinker.types.EncodedTextChunk(tokens=tokens)
    ours = chunks.text_chunk(np.array(tokens, np.int32))
    assert chunks._sent(ours) == chunks._sent(listed)


def test_the_installed_sdk_takes_arrays():
    assert chunks._arrays_are_taken()


def test_tokens_read_like_a_list():
    chunk = chunks.text_chunk(np.array([5, 6, 7], np.int32))
    assert isinstance(chunk, tinker.types.EncodedTextChunk)
    assert chunk.length == 3
    assert tinker.types.ModelInput(chunks=[chunk]).to_ints() == [5, 6, 7]
    assert [type(token) for token in chunk.tokens] == [int, int, int]
    assert (chunk.tokens[0], chunk.tokens[-2:]) == (5, [6, 7])
    assert chunk.tokens == [5, 6, 7]
    assert chunk.tokens != [5, 6]
    assert repr(chunk.tokens) == "[5, 6, 7]"


def test_an_sdk_that_takes_lists_only_gets_lists(lists_only):
    assert not chunks._arrays_are_taken()
    record = ActorRecord([1, 2, 3], [0, -0.5, -0.5], [Span(1, 3, 1.0)])
    (chunk,) = to_datum(record).model_input.chunks
    assert type(chunk.tokens) is list
    assert chunk.tokens == [1, 2]


def test_an_sdk_that_sends_something_else_gets_lists(lists_only, monkeypatch):
    monkeypatch.setattr(chunks, "_sent", lambda chunk: repr(type(chunk.tokens)).encode())
    assert not chunks._arrays_are_taken()
