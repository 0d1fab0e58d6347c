"""What the server serves: one base model, the models trained from it, and sampling sessions."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import attrs
import torch
from focus_adapter_local import checkpoint
from focus_adapter_local.engine import Engine
from focus_adapter_local.learner import Learner
from focus_adapter_local.models import LoadedModel, find_model, load_model
from focus_adapter_local.snapshot import facts_of, share

from focus_adapter_tinker.loopback.futures import Answer, json_answer
from focus_adapter_tinker.loopback.sampling import Sampler, SampleRequest, Weights, request_seed
from focus_adapter_tinker.loopback.stats import Stats
from focus_adapter_tinker.loopback.training import (
    ALPHA,
    TrainedModel,
    Turns,
    adam_config,
    learner_config,
)
from focus_adapter_tinker.loopback.wire import TrainingRequest, losses_answer, samples_answer
from focus_core.errors import UsageError

__all__ = ["Backend", "Options"]

T = TypeVar("T")

_SESSIONS = 16
"""Sampling sessions kept whose weights have no path; one-step-asynchronous training needs two."""

_PATH = re.compile(r"tinker://([A-Za-z0-9:_-]+)/(weights|sampler_weights)/([A-Za-z0-9._-]+)")


@attrs.frozen(kw_only=True)
class Options:
    """How to serve.

    Attributes:
        model: ``tiny``, ``smollm2`` or a directory: the base, whatever name a client gives it.
        state: Directory for checkpoints and the tokenizer.
        device: As the local trainer's.
        dtype: As the local trainer's.
        threads: CPU threads of each of the threads that sample, learn and score.
        max_batch_tokens: Most tokens of one forward and backward pass.
        seed: Makes sampling, and adapters that ask for no seed, reproducible; ``None`` does not.
        patience: Seconds an operation waits for one before it that never arrives.
    """

    model: str
    state: Path
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    max_batch_tokens: int = 2048
    seed: int | None = None
    patience: float = 30.0


class Backend:
    """Trains and samples.

    Args:
        options: How.

    Attributes:
        stats: What was done.
        tokenizer: Directory from which ``AutoTokenizer`` loads the model's tokenizer.
        models: Models being trained, by id.
        sessions: Sampling sessions, by id.

    Raises:
        FocusError: The model cannot be found or loaded.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self._loaded = load_model(
            find_model(options.model), device=options.device, dtype=options.dtype
        )
        base, tokenizer = self._loaded.model, self._loaded.tokenizer
        self.facts = facts_of(base, tokenizer, options.model)
        # The SDK takes "a/b/c", a path of two slashes included, for a variant of the model "a/b".
        self.tokenizer = options.state.resolve() / "models" / "base" / "tokenizer"
        tokenizer.save_pretrained(str(self.tokenizer))
        self.stats = Stats()
        self.models: dict[str, TrainedModel] = {}
        self.sessions: dict[str, tuple[Weights, int]] = {}
        self._opened = 0
        self._saved: dict[str, Weights] = {}
        self._learning = ThreadPoolExecutor(1, "loopback-learner", self._start_thread)
        self._scoring = ThreadPoolExecutor(1, "loopback-scorer", self._start_thread)
        self._engine = Engine(max_rows=64, keep_tokens=16384, threads=options.threads)
        self._sampler = Sampler(base, self.facts, tokenizer, self._engine, self._in_scorer)

    def _start_thread(self) -> None:
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)

    async def _in_learner(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._learning, work)

    async def _in_scorer(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._scoring, work)

    def close(self) -> None:
        """Stop the threads, and wait for what they are doing."""
        self._engine.close()
        for pool in (self._scoring, self._learning):
            pool.shutdown(cancel_futures=True)

    # Training

    async def create_model(self, model_id: str, base_model: str, lora: dict[str, Any]) -> Answer:
        """A new adapter; on every linear layer but the output head, whatever ``train_*`` say."""
        rank = int(lora.get("rank", 32))
        if rank < 1:
            raise UsageError(f"the LoRA rank is {rank}; it must be above 0")
        learner = await self._new_learner(rank, lora.get("seed"))
        self._add_model(model_id, base_model, learner)
        return json_answer(model_id=model_id, type="create_model")

    async def create_from_state(self, model_id: str, body: dict[str, Any]) -> Answer:
        """A new adapter as it was saved, in one request (SDK 0.38)."""
        saved = self.saved_options(str(body.get("path")))
        learner = await self._new_learner(saved["rank"], None)
        await self._in_learner(lambda: self._load(learner, body))
        self._add_model(model_id, body.get("base_model") or saved["base_model"], learner)
        return json_answer(path=body["path"], model_id=model_id, type="load_weights")

    async def _new_learner(self, rank: int, seed: int | None) -> Learner:
        if seed is None:
            own = self.options.seed
            seed = random.getrandbits(31) if own is None else own + len(self.models)
        config = learner_config(rank, int(seed), self.options.max_batch_tokens)
        files, model = self._loaded.files, self._loaded.model

        def make() -> Learner:
            return Learner(LoadedModel(files, share(model), self._loaded.tokenizer), config)

        return await self._in_learner(make)

    def _add_model(self, model_id: str, base_model: str, learner: Learner) -> None:
        turns = Turns(self.options.patience, learner.drop_gradient)
        self.models[model_id] = TrainedModel(model_id, base_model, learner, turns)

    async def in_turn(self, model_id: str, seq_id: int, work: Callable[[TrainedModel], Any]) -> Any:
        """Run one operation of a model in the learner's thread, when its turn comes."""
        model = self.models[model_id]
        async with model.turns.take(seq_id):
            return await self._in_learner(lambda: work(model))

    async def forward_backward(self, request: TrainingRequest, *, fault: str | None) -> Answer:
        """Losses and log probabilities, and unless forward only their gradient, added up."""

        def work(model: TrainedModel) -> Answer:
            items, loss = request.items(), request.loss()
            logprobs, total = model.learner.forward_backward(
                items, loss, backward=not request.forward_only
            )
            tokens = sum(len(item.input_tokens) for item in items)
            self.stats.add(**{"forward" if request.forward_only else "trained": tokens})
            if not request.forward_only:
                self.stats.gradient(request.model_id)
            return losses_answer(logprobs, total, fault=fault)

        answer: Answer = await self.in_turn(request.model_id, request.seq_id, work)
        return answer

    async def optim_step(self, model_id: str, seq_id: int, body: dict[str, Any]) -> Answer:
        """One step with the request's own settings."""

        def work(model: TrainedModel) -> Answer:
            norm = model.learner.optim_step(adam_config(body))
            self.stats.step(model_id)
            return json_answer(metrics={"grad_norm": norm}, type="optim_step")

        answer: Answer = await self.in_turn(model_id, seq_id, work)
        return answer

    # Checkpoints

    def saved_options(self, path: str) -> dict[str, Any]:
        """``base_model`` and ``rank`` of saved training state.

        Raises:
            UsageError: It is no path of such, or was never saved here.
        """
        state = json.loads((self._checkpoint(path) / "state.json").read_text(encoding="utf-8"))
        options: dict[str, Any] = state["options"]
        return options

    def _checkpoint(self, path: str) -> Path:
        found = _PATH.fullmatch(path)
        if found is None or found[2] != "weights":
            raise UsageError(f"{path!r} is no path of saved state: tinker://MODEL/weights/NAME")
        directory = self._directory(found[1], found[3])
        if not directory.is_dir():
            raise UsageError(f"no state was saved at {path!r}")
        return directory

    def _load(self, learner: Learner, body: dict[str, Any]) -> None:
        directory = self._checkpoint(str(body.get("path")))
        saved = checkpoint.read_state(
            directory,
            model=self.options.model,
            lora_rank=learner.config.lora_rank,
            lora_alpha=ALPHA,
        )
        checkpoint.restore(learner, saved, optimizer=bool(body.get("optimizer")))

    def _directory(self, model_id: str, name: str) -> Path:
        if name.startswith("."):
            raise UsageError(f"the checkpoint name {name!r} must not begin with a dot")
        return self.options.state / "checkpoints" / model_id.replace(":", "_") / name

    def _named(self, model_id: str, kind: str, name: str | None, seq_id: int) -> str:
        path = f"tinker://{model_id}/{kind}/{name or f'{seq_id:06d}'}"
        if _PATH.fullmatch(path) is None:
            raise UsageError(f"the checkpoint name {name!r} must be a plain file name")
        return path

    async def save_weights(self, model_id: str, seq_id: int, body: dict[str, Any]) -> Answer:
        """Weights and optimizer, on disk."""

        def work(model: TrainedModel) -> Answer:
            path = self._named(model_id, "weights", body.get("path"), seq_id)
            directory = self._directory(model_id, path.rsplit("/", 1)[1])
            if directory.exists() and not body.get("overwrite"):
                raise UsageError(f"there is already {path}; pass overwrite=True to replace it")
            options = {"base_model": model.base_model, "rank": model.learner.config.lora_rank}
            checkpoint.save(model.learner, directory, model=self.options.model, options=options)
            return json_answer(path=path, type="save_weights")

        answer: Answer = await self.in_turn(model_id, seq_id, work)
        return answer

    async def load_weights(self, model_id: str, seq_id: int, body: dict[str, Any]) -> Answer:
        """Weights, and the optimizer if asked for, from disk."""

        def work(model: TrainedModel) -> Answer:
            self._load(model.learner, body)
            return json_answer(path=body["path"], model_id=model_id, type="load_weights")

        answer: Answer = await self.in_turn(model_id, seq_id, work)
        return answer

    async def save_weights_for_sampler(
        self, model_id: str, seq_id: int, name: str | None, session_id: str
    ) -> Answer:
        """Weights to sample: under a path if ``name`` is given, else as a sampling session."""
        path = None if name is None else self._named(model_id, "sampler_weights", name, seq_id)

        def work(model: TrainedModel) -> Weights:
            changes, version = model.learner.frozen_changes(), model.learner.step
            return Weights(model.base_model, path, changes, version)

        weights: Weights = await self.in_turn(model_id, seq_id, work)
        if path is None:
            self.open_session(session_id, weights)
            return json_answer(sampling_session_id=session_id, type="save_weights_for_sampler")
        self._saved[path] = weights
        return json_answer(path=path, type="save_weights_for_sampler")

    # Sampling

    def open_session(self, session_id: str, weights: Weights) -> None:
        """Open a sampling session; the same one twice is one.

        Weights without a path can be reached through their session only, and no client says
        when it is done with one: the oldest that nobody samples are forgotten.
        """
        if session_id in self.sessions:
            return
        self.sessions[session_id] = (weights, self._opened)
        self._opened += 1
        passing = [
            key for key, (each, _) in self.sessions.items() if each.changes and each.path is None
        ]
        for key in passing[: max(len(passing) - _SESSIONS, 0)]:
            if not self.sessions[key][0].users:
                del self.sessions[key]

    def end_session(self, session_id: str) -> None:
        """Forget the models and sampling sessions of a session that has finished."""
        for ids in (self.models, self.sessions):
            for key in [key for key in ids if key.split(":", 1)[0] == session_id]:
                del ids[key]

    def weights(self, path: str | None, base_model: str | None) -> Weights:
        """What a sampling session asks for.

        Raises:
            UsageError: It names neither, or weights that were not saved for sampling.
        """
        if path is not None:
            if path not in self._saved:
                raise UsageError(f"no weights were saved for sampling at {path!r}")
            return self._saved[path]
        if base_model is None:
            raise UsageError("a sampling session needs a model_path or a base_model")
        return Weights(base_model)

    async def sample(
        self, session_id: str, seq_id: int, body: dict[str, Any], *, fault: str | None
    ) -> Answer:
        """Samples of a sampling session."""
        weights, ordinal = self.sessions[session_id]
        own = self.options.seed
        seed = None if own is None else request_seed(own, ordinal, seq_id)
        request = SampleRequest.read(body, self.facts, seed)
        generations, prompt_logprobs = await self._sampler.sample(weights, request)
        self.stats.add(
            prompt=len(request.tokens), sampled=sum(len(each.tokens) for each in generations)
        )
        return samples_answer(generations, prompt_logprobs, fault=fault)
