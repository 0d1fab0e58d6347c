"""The protocol's binary bodies: training requests in, samples and losses out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from focus_adapter_local.items import Item
from focus_adapter_local.losses import LOSSES, LossConfig
from numpy.typing import NDArray

from focus_adapter_tinker.loopback.futures import PROTOBUF, Answer
from focus_core.errors import UsageError
from focus_core.policy import Generation

__all__ = ["TrainingRequest", "losses_answer", "read_training", "samples_answer"]

_MOST_BYTES = 256 * 1024 * 1024
_POLICY_LOSS = ("target_tokens", "logprobs", "advantages")
_INPUTS = dict.fromkeys(LOSSES, _POLICY_LOSS) | {"cross_entropy": ("target_tokens", "weights")}
_CONFIG = {"ppo", "cispo"}
_BOUNDS = {"clip_low_threshold", "clip_high_threshold"}


@attrs.frozen(eq=False)
class TrainingRequest:
    """A decoded ``forward_backward``.

    Attributes:
        model_id: Whose weights.
        seq_id: Its place among the operations of the model.
        forward_only: Without a gradient.
        message: The rest, still to be checked.
    """

    model_id: str
    seq_id: int
    forward_only: bool
    message: Any

    def loss(self) -> LossConfig:
        """Which loss.

        Raises:
            UsageError: The local trainer does not have it, or not this setting.
        """
        name = self.message.loss_fn
        if name not in LOSSES:
            raise UsageError(f"the loopback has no loss {name!r}; it has {', '.join(LOSSES)}")
        config = dict(self.message.loss_fn_config)
        if "loss_fn_config_v2" in self.message.DESCRIPTOR.fields_by_name:
            for key, value in self.message.loss_fn_config_v2.items():
                if value.WhichOneof("value") != "number":
                    raise UsageError(f"the loss setting {key} is {value.text!r}; give a number")
                config[key] = value.number
        unknown = config.keys() - (_BOUNDS if name in _CONFIG else set())
        if unknown:
            raise UsageError(f"the loss {name!r} has no setting {', '.join(sorted(unknown))}")
        return LossConfig(name=name, **config)

    def items(self) -> list[Item]:
        """Every datum as the learner reads it; each target is a generated one.

        Raises:
            UsageError: A datum has other inputs than its loss takes; names it.
        """
        takes = _INPUTS[self.loss().name]
        return [_item(index, datum, takes) for index, datum in enumerate(self.message.data)]


def read_training(body: bytes, *, compressed: bool) -> TrainingRequest:
    """Decode a ``forward_backward`` body.

    Raises:
        UsageError: It is no such message.
    """
    import zstandard
    from google.protobuf.message import DecodeError
    from tinker.proto import tinker_public_pb2 as proto

    message = proto.ForwardBackwardRequest()
    try:
        if compressed:
            body = zstandard.ZstdDecompressor().decompress(body, max_output_size=_MOST_BYTES)
        message.ParseFromString(body)
    except (DecodeError, zstandard.ZstdError) as error:
        raise UsageError(f"the body is no ForwardBackwardRequest: {error}") from error
    return TrainingRequest(message.model_id, message.seq_id, message.forward_only, message)


def _item(index: int, datum: Any, takes: Sequence[str]) -> Item:
    tokens = []
    for chunk in datum.model_input:
        if chunk.WhichOneof("chunk") != "encoded_text":
            raise UsageError(f"datum {index} has an input that is not text, which the model lacks")
        tokens.append(np.frombuffer(chunk.encoded_text.tokens, np.int32))
    inputs = np.concatenate([*tokens, np.zeros(0, np.int32)])
    given = {name: _array(index, name, tensor) for name, tensor in datum.loss_fn_inputs.items()}
    if given.keys() != set(takes):
        raise UsageError(
            f"datum {index} has the loss inputs {', '.join(sorted(given)) or 'none'}, "
            f"but its loss takes {', '.join(takes)}"
        )
    sizes = {name: len(array) for name, array in given.items()} | {"model_input": len(inputs)}
    if len(set(sizes.values())) != 1 or not len(inputs):
        raise UsageError(f"datum {index}: its arrays must be of one length above 0, got {sizes}")
    size = len(inputs)
    return Item(
        input_tokens=inputs,
        target_tokens=given["target_tokens"].astype(np.int32),
        logprobs=given.get("logprobs", np.zeros(size)).astype(np.float32),
        advantages=given["advantages" if "advantages" in given else "weights"].astype(np.float64),
        mask=np.ones(size, bool),
    )


def _array(index: int, name: str, tensor: Any) -> NDArray[Any]:
    from tinker.proto import tinker_public_pb2 as proto

    types: Mapping[int, type] = {proto.DTYPE_FLOAT32: np.float32, proto.DTYPE_INT64: np.int64}
    if tensor.WhichOneof("encoding") == "sparse_csr" or len(tensor.shape) > 1:
        raise UsageError(f"datum {index}: {name} must be a flat, dense array for the loopback")
    if tensor.dtype not in types:
        raise UsageError(f"datum {index}: {name} is neither float32 nor int64")
    return np.frombuffer(tensor.dense, types[tensor.dtype])


def samples_answer(
    generations: Sequence[Generation],
    prompt_logprobs: NDArray[np.float32] | None,
    *,
    fault: str | None = None,
) -> Answer:
    """A ``SampleResponse``.

    Args:
        generations: One per sample.
        prompt_logprobs: Shape (prompt length,), NaN where there is none; ``None``: not asked.
        fault: ``missing_logprobs`` or ``short_logprobs``.
    """
    from tinker.proto import tinker_public_pb2 as proto

    message = proto.SampleResponse()
    for each in generations:
        sequence = message.sequences.add()
        reason = each.stop_reason == "stop"
        sequence.stop_reason = proto.STOP_REASON_STOP if reason else proto.STOP_REASON_LENGTH
        sequence.tokens = np.array(each.tokens, np.int32).tobytes()
        if fault != "missing_logprobs":
            sequence.logprobs = _struck(np.array(each.logprobs, np.float32), fault).tobytes()
    if prompt_logprobs is not None and fault != "missing_logprobs":
        message.prompt_logprobs = _struck(prompt_logprobs, fault).tobytes()
    return Answer(message.SerializeToString(), PROTOBUF)


def losses_answer(
    logprobs: Sequence[NDArray[np.float64]], loss: float, *, fault: str | None = None
) -> Answer:
    """A ``ForwardBackwardOutput``: log probabilities of all targets by datum, and the loss.

    Args:
        logprobs: One array per datum.
        loss: Sum of the token losses.
        fault: ``missing_logprobs`` or ``short_logprobs``.
    """
    from tinker.proto import tinker_public_pb2 as proto

    message = proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    message.metrics["loss:sum"] = loss
    record = message.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=len(logprobs))
    if fault != "missing_logprobs":
        arrays = [_struck(each.astype(np.float32), fault) for each in logprobs]
        field = record.fields["logprobs"]
        field.dtype = proto.DTYPE_FLOAT32
        field.data = b"".join(each.tobytes() for each in arrays)
        ends = np.cumsum([0, *(each.nbytes for each in arrays)], dtype=np.int64)
        field.offsets = ends.tobytes()
    return Answer(message.SerializeToString(), PROTOBUF)


def _struck(array: NDArray[np.float32], fault: str | None) -> NDArray[np.float32]:
    return array[:-1] if fault == "short_logprobs" else array
