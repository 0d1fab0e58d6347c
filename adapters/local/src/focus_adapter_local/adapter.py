"""A PEFT adapter as a beginning: what its directory says, and whether it fits a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from focus_adapter_local.models import ModelFiles
from focus_core.errors import DataError, UsageError

if TYPE_CHECKING:
    from focus_adapter_local.learner import Learner

__all__ = [
    "CONFIG",
    "WEIGHTS",
    "Adapter",
    "check_given",
    "check_targets",
    "load_adapter",
    "misfit",
    "read_adapter",
    "read_json",
    "read_tensors",
]

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_SHAPE = (
    *("r", "lora_alpha", "target_modules", "exclude_modules", "use_rslora", "fan_in_fan_out"),
    *("layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern"),
    "target_parameters",
)
"""What decides which weights an adapter has, and what it adds to the base."""
_IDLE = (
    *("auto_mapping", "base_model_name_or_path", "bias", "inference_mode", "init_lora_weights"),
    *("lora_dropout", "megatron_core", "peft_type", "peft_version", "qalora_group_size"),
    *("revision", "runtime_config", "task_type"),
)
"""What changes nothing once the weights are there, or is checked by itself."""
_MUST = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "orthogonal"),  # others change the base
}
_EDGE = 2**20  # bytes at either end of a file of weights that are compared


@attrs.frozen(kw_only=True)
class Adapter:
    """A directory that ``PeftModel.save_pretrained`` wrote.

    Attributes:
        directory: Where it is.
        shape: Arguments of ``LoraConfig``, as ``adapter_config.json`` has them.
    """

    directory: Path
    shape: Mapping[str, Any]


def read_adapter(directory: str | Path, files: ModelFiles | None) -> Adapter:
    """Check that it is a LoRA adapter of this model, as far as its small files say.

    Args:
        directory: Of ``adapter_config.json`` and ``adapter_model.safetensors``.
        files: The base model; ``None`` takes any.

    Raises:
        DataError: A file is missing or unreadable, or asks for more than plain LoRA.
        UsageError: It was trained on another base model.
    """
    path = Path(directory).expanduser()
    if not path.is_dir():
        raise DataError(
            "is no directory", path=path, remedy="give what PEFT's save_pretrained() wrote"
        )
    config = read_json(path / CONFIG, "give what PEFT's save_pretrained() wrote")
    for name, good in _MUST.items():
        value = config.get(name, good[0])
        if not any(type(value) is type(each) and value == each for each in good):
            raise DataError(
                f"is {value!r}; only {', '.join(map(repr, good))} can be trained on",
                path=path / CONFIG,
                field=name,
                remedy="save the adapter as plain LoRA",
            )
    for name, value in config.items():
        if value and name not in _SHAPE and name not in _IDLE:
            raise DataError(
                f"is {str(value)[:60]!r}; the local trainer trains plain LoRA, without it",
                path=path / CONFIG,
                field=name,
                remedy="save the adapter as plain LoRA",
            )
    rank = config.get("r", 8)  # as PEFT does
    if type(rank) is not int or rank < 1:
        raise DataError(
            f"is {rank!r}; a rank is an integer from 1",
            path=path / CONFIG,
            field="r",
            remedy="save the adapter again",
        )
    if not (path / WEIGHTS).is_file():
        pickled = (path / "adapter_model.bin").exists()
        raise DataError(
            "is missing" + (", and a pickled one (.bin) can run code when loaded" * pickled),
            path=path / WEIGHTS,
            remedy="save the adapter with save_pretrained(), which writes safetensors",
        )
    if files is not None:
        _check_base(config.get("base_model_name_or_path"), files, path)
    return Adapter(directory=path, shape={k: config[k] for k in _SHAPE if config.get(k)})


def _check_base(base: Any, files: ModelFiles, path: Path) -> None:
    """Refuse an adapter of another model: by its weights if they are here, else by its name."""
    if not base:
        return
    theirs, ours = Path(str(base)).expanduser(), files.directory
    if theirs.is_dir():
        same = theirs.samefile(ours) or _weights(theirs) == _weights(ours)
    else:
        name = theirs.name.lower()
        hub = "models--" + str(base).replace("/", "--").lower()
        same = name in (ours.resolve().name.lower(), files.name.lower()) or hub in (
            part.lower() for part in ours.resolve().parts
        )
    if not same:
        raise UsageError(
            f"the adapter {path} was trained on the base model {str(base)!r}, and this run's model "
            f"is {files.name!r}; give --model {base}, or, if it is a copy of that model, write its "
            f"path into base_model_name_or_path of {path / CONFIG}"
        )


def _weights(directory: Path) -> Sequence[tuple[str, int, bytes, bytes]]:
    """Of each file of weights its name, size, beginning and end."""
    found = []
    for file in sorted([*directory.glob("*.safetensors"), *directory.glob("*.gguf")]):
        size = file.stat().st_size
        with file.open("rb") as opened:
            first = opened.read(_EDGE)
            opened.seek(max(0, size - _EDGE))
            found.append((file.name, size, first, opened.read(_EDGE)))
    return found


def check_given(adapter: Adapter, given: Mapping[str, float | None]) -> None:
    """Refuse options that say otherwise than the adapter: ``lora_rank`` and ``lora_alpha``.

    Raises:
        UsageError: Names the option, both values, and what to do.
    """
    for option, key in (("lora_rank", "r"), ("lora_alpha", "lora_alpha")):
        wanted, has = given[option], adapter.shape.get(key, 8)
        if wanted is not None and wanted != has:
            raise UsageError(
                f"the adapter {adapter.directory} has {option} {has!r}, but this run has "
                f"{wanted!r}; leave {option} out, or give {has!r}"
            )


def check_targets(model: Any, adapter: Adapter) -> None:
    """Refuse layers by name that the model lacks.

    Raises:
        UsageError: Names the layers.
    """
    targets = adapter.shape.get("target_modules")
    if not isinstance(targets, list):
        return
    names = [name for name, _ in model.named_modules()]
    lacking = [
        each
        for each in targets
        if not any(name == each or name.endswith(f".{each}") for name in names)
    ]
    if lacking:
        raise UsageError(
            f"the adapter {adapter.directory} has the target_modules {', '.join(sorted(lacking))}, "
            "which this model lacks; give the base model that it was trained on"
        )


def load_adapter(learner: Learner, adapter: Adapter) -> None:
    """Put the adapter's weights in; Adam starts afresh, at step 0.

    Raises:
        DataError: They cannot be read, or do not fit the model's layers; names the first.
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    file = adapter.directory / WEIGHTS
    weights = read_tensors(file)
    ours = get_peft_model_state_dict(learner.model, save_embedding_layers=False)
    if wrong := misfit(weights, ours):
        raise DataError(wrong, path=file, remedy="give the base model that it was trained on")
    set_peft_model_state_dict(learner.model, weights)


def misfit(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str | None:
    """What is wrong with a file's tensors for a model's, or ``None``."""
    for name in sorted(theirs.keys() | ours.keys()):
        if name not in ours:
            return f"has {name}, for which the adapter on this model has no place"
        if name not in theirs:
            return f"lacks {name}, which the adapter on this model has"
        saved, here = tuple(theirs[name].shape), tuple(ours[name].shape)
        if saved != here:
            return f"does not fit the model's layers: {name} has shape {saved}, here it is {here}"
    return None


def read_tensors(path: Path, remedy: str = "use another checkpoint") -> dict[str, Any]:
    """Tensors of a safetensors file, by name.

    Raises:
        DataError: It cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(str(path))
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot be read: {error}", path=path, remedy=remedy) from error
    return tensors


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """An object of a JSON file.

    Raises:
        DataError: It cannot be read, or is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path, remedy=remedy) from error
    except ValueError as error:
        raise DataError(f"is damaged: {error}", path=path, remedy=remedy) from error
    if not isinstance(content, dict):
        raise DataError("is not a JSON object", path=path, remedy=remedy)
    return content
