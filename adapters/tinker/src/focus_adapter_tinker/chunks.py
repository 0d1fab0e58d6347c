"""Tokens of a datum without a Python object for each: an array in the place of the SDK's list.

The SDK's models take lists, and its serializer turns them into an int32 array again. A chunk whose
tokens are a sequence over such an array skips both. That is off the SDK's label, so it is tried
out first: where the bytes on the wire are not the same, lists are used.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_core.tree.prefix import TokenArray

__all__ = ["text_chunk"]

_LOG = logging.getLogger(__name__)


class _Ids(TokenArray):
    """An int32 array that reads like a list of ints."""

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[np.int32]) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self._array, dtype) if not copy else np.array(self._array, dtype)

    def __len__(self) -> int:
        return len(self._array)


def text_chunk(tokens: NDArray[np.int32]) -> Any:
    """A ``tinker.types.EncodedTextChunk`` of these tokens, int32, shape (T,)."""
    from tinker import types

    if _arrays_are_taken():
        return _off_label(tokens)
    return types.EncodedTextChunk(tokens=tokens.tolist())


def _off_label(tokens: NDArray[np.int32]) -> Any:
    from tinker import types

    return types.EncodedTextChunk.model_construct(tokens=_Ids(tokens), type="encoded_text")


@functools.cache
def _arrays_are_taken() -> bool:
    """Whether the installed SDK sends the same bytes for an array as for a list."""
    from tinker import types

    tokens = np.array([0, 1, 255, 256, 2**31 - 1], np.int32)
    try:
        listed, off_label = [
            _sent(chunk)
            for chunk in (types.EncodedTextChunk(tokens=tokens.tolist()), _off_label(tokens))
        ]
    except Exception as error:  # another SDK: it is an optimization
        _LOG.debug("this version of the SDK takes lists only: %s", error)
        return False
    return listed == off_label


def _sent(chunk: Any) -> bytes:
    """What a gradient's request with this chunk is on the wire."""
    from tinker import types
    from tinker.proto.request_conv import forward_backward_request_to_proto

    column = types.TensorData.from_numpy(np.zeros(chunk.length, np.float32))
    datum = types.Datum(
        model_input=types.ModelInput(chunks=[chunk]), loss_fn_inputs={"advantages": column}
    )
    request = types.ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(data=[datum], loss_fn="ppo"),
        model_id="m",
        seq_id=1,
    )
    message = forward_backward_request_to_proto(request)
    return bytes(message.SerializeToString(deterministic=True))
