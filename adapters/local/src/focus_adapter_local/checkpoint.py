"""Checkpoints: a PEFT adapter, Adam's moments and a few numbers. No pickles, written whole.

::

    NAME/
    ├── adapter_config.json         PEFT's: load it with PeftModel.from_pretrained(base, NAME)
    ├── adapter_model.safetensors
    ├── optimizer.safetensors       exp_avg.PARAMETER and exp_avg_sq.PARAMETER
    └── state.json                  format, step, model, options
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from focus_adapter_local.adapter import (
    CONFIG,
    WEIGHTS,
    Adapter,
    misfit,
    read_adapter,
    read_json,
    read_tensors,
)
from focus_core.errors import DataError, UsageError
from focus_core.utils.lock import hold

if TYPE_CHECKING:
    from focus_adapter_local.learner import Learner

__all__ = ["SavedState", "read_state", "restore", "save"]

_FORMAT = 1
_OPTIMIZER = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")
_UNFINISHED = re.compile(r"\.(.+)\.(new|old)-\d+", re.DOTALL)


@attrs.frozen(kw_only=True)
class SavedState:
    """What ``state.json`` says.

    Attributes:
        directory: The checkpoint.
        step: Updates completed when it was saved.
        rank: Of its adapter.
        alpha: Of its adapter.
        adapter: What a run that began from an adapter gave it its layers and ranks by; ``None``:
            the trainer's own.
    """

    directory: Path
    step: int
    rank: int
    alpha: float
    adapter: Adapter | None = None


def read_state(
    directory: str | Path, *, model: str, lora_rank: int | None, lora_alpha: float | None
) -> SavedState:
    """Check that a checkpoint is whole and fits, without loading it; ``None`` takes what it has.

    Raises:
        DataError: A file is missing or unreadable, or of another format.
        UsageError: It was saved by a run with another model or another adapter shape.
    """
    path = Path(directory)
    _mend(path.parent)
    if not path.is_dir():
        raise DataError(
            "is no directory",
            path=path,
            remedy="give a checkpoint's directory, such as RUN/checkpoints/step-000010",
        )
    state = read_json(path / "state.json", "use another checkpoint")
    if state.get("format") != _FORMAT:
        raise DataError(
            f"is {state.get('format')!r}; this version reads {_FORMAT}",
            path=path / "state.json",
            field="format",
            remedy="use the version that saved it",
        )
    for name in (WEIGHTS, _OPTIMIZER):
        if not (path / name).is_file():
            raise DataError("is missing", path=path / name, remedy="use another checkpoint")
    adapter = read_json(path / CONFIG, "use another checkpoint")
    theirs = (state.get("model"), adapter.get("r"), adapter.get("lora_alpha"))
    for option, saved, now in zip(
        ("model", "lora_rank", "lora_alpha"), theirs, (model, lora_rank, lora_alpha), strict=True
    ):
        if now is not None and saved != now:
            raise UsageError(
                f"{path} was saved with {option} {saved!r}, but this run has {now!r}; "
                f"give the same {option}"
            )
    step = state.get("step")
    if not isinstance(step, int) or step < 0:
        raise DataError(f"is {step!r}", path=path / "state.json", field="step")
    rank, alpha = theirs[1:]
    if type(rank) is not int or not isinstance(alpha, int | float):
        raise DataError(f"has r {rank!r} and lora_alpha {alpha!r}", path=path / CONFIG)
    began = (state.get("options") or {}).get("adapter")
    return SavedState(
        directory=path,
        step=step,
        rank=rank,
        alpha=alpha,
        adapter=read_adapter(path, None) if began else None,
    )


def save(learner: Learner, directory: Path, *, model: str, options: Mapping[str, Any]) -> None:
    """Write a checkpoint beside its place, then move it there; an older one is replaced.

    Raises:
        OSError: It cannot be written; what was there before is still there.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    directory.parent.mkdir(parents=True, exist_ok=True)
    _mend(directory.parent)
    fresh = directory.with_name(f".{directory.name}.new-{os.getpid()}")
    fresh.mkdir()
    held = hold(fresh)
    try:
        # "auto" would ask a hub whether the base model's vocabulary was changed.
        learner.model.save_pretrained(str(fresh), save_embedding_layers=False)
        (fresh / "README.md").unlink(missing_ok=True)  # PEFT's empty model card
        moments = {
            f"{moment}.{name}": state[moment].cpu()
            for name, parameter in learner.parameters.items()
            if (state := learner.optimizer.state.get(parameter))
            for moment in _MOMENTS
        }
        save_file(moments, str(fresh / _OPTIMIZER))
        state = {"format": _FORMAT, "step": learner.step, "model": model, "options": options}
        (fresh / "state.json").write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        for path in (*fresh.iterdir(), fresh):
            _flush(path)
        _replace(fresh, directory)
        _flush(directory.parent)
    except SafetensorError as error:  # how safetensors says that the disk is full
        raise OSError(str(error)) from error
    finally:
        os.close(held)
        shutil.rmtree(fresh, ignore_errors=True)


def _mend(folder: Path) -> None:
    """Finish what processes that were killed while saving had begun.

    What was replaced when its replacement was not in place yet is put back, the rest is removed;
    what another process is writing, it holds.
    """
    for path in folder.glob(".*"):
        found = _UNFINISHED.fullmatch(path.name)
        if not found or not path.is_dir():
            continue
        with contextlib.suppress(OSError):
            held = hold(path)
            try:
                whole = folder / found[1]
                if found[2] == "old" and not whole.exists():
                    path.rename(whole)
                else:
                    shutil.rmtree(path)
            finally:
                os.close(held)


def _flush(path: Path) -> None:
    """Have it on disk, for whoever refers to it after a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(fresh: Path, directory: Path) -> None:
    if not directory.exists():
        fresh.rename(directory)
        return
    held = hold(directory)
    try:
        old = directory.with_name(f".{directory.name}.old-{os.getpid()}")
        directory.rename(old)
        fresh.rename(directory)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        os.close(held)


def restore(learner: Learner, saved: SavedState, *, optimizer: bool = True) -> None:
    """Put the learner where it was when the checkpoint was saved.

    Args:
        learner: Of the same model and adapter shape.
        saved: What ``read_state`` returned.
        optimizer: ``False`` takes the weights only, and starts Adam afresh.

    Raises:
        DataError: The tensors do not fit the model.
    """
    import torch
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    remedy = "use another checkpoint"
    weights = read_tensors(saved.directory / WEIGHTS)
    ours = get_peft_model_state_dict(learner.model, save_embedding_layers=False)
    if wrong := misfit(weights, ours):
        raise DataError(wrong, path=saved.directory / WEIGHTS, remedy=remedy)
    if not optimizer:
        set_peft_model_state_dict(learner.model, weights)
        learner.optimizer.state.clear()
        learner.step = 0
        return
    moments = read_tensors(saved.directory / _OPTIMIZER)
    expected = {
        f"{moment}.{name}": parameter
        for name, parameter in learner.parameters.items()
        for moment in _MOMENTS
    }
    if moments and (wrong := misfit(moments, expected)):
        raise DataError(wrong, path=saved.directory / _OPTIMIZER, remedy=remedy)
    set_peft_model_state_dict(learner.model, weights)
    learner.optimizer.state.clear()
    for name, parameter in learner.parameters.items() if moments else ():
        state = learner.optimizer.state[parameter]
        state["step"] = torch.tensor(float(saved.step))
        for moment in _MOMENTS:
            state[moment] = moments[f"{moment}.{name}"].to(parameter.device)
    learner.step = saved.step
