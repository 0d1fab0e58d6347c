"""The trainer ``local``: options, threads and life cycle. Imports torch only when entered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import attrs

from focus_adapter_local._threads import wait_asleep
from focus_adapter_local.adapter import Adapter, check_given, read_adapter
from focus_adapter_local.checkpoint import SavedState, read_state
from focus_adapter_local.items import Item, to_item
from focus_adapter_local.models import ModelFiles, find_model
from focus_core.errors import DataError, FocusError, TrainerError, UsageError
from focus_core.records import ActorRecord, Batch
from focus_core.trainer import RunStatus
from focus_core.utils.concurrency import finish

if TYPE_CHECKING:
    from focus_adapter_local.engine import Engine
    from focus_adapter_local.learner import Learner, LearnerConfig
    from focus_adapter_local.policy import LocalPolicy

__all__ = ["LocalTrainer"]

T = TypeVar("T")

_LOSSES = ("cispo", "cross_entropy", "importance_sampling", "ppo")
_POSITIVE = ("learning_rate", "clip_high_threshold", "eps")
_SHAPE = 32  # rank and alpha of an adapter that nobody gave any
_TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 2.0}
"""Largest |learner - behaviour| at lag 0, in nats, that rounding explains; see the README."""


@attrs.define(kw_only=True, eq=False, slots=False)
class LocalTrainer:
    """Samples and learns in this process.

    Options are checked, and the model's files looked at, on construction; entering loads it.

    Attributes:
        model: ``tiny`` (comes along), ``smollm2`` (extra ``[smollm2]``), or a directory.
        learning_rate: Adam's step size, after warm-up.
        warmup_steps: Updates over which the learning rate rises linearly; 0 starts at the top.
        loss: ``ppo``, ``importance_sampling``, ``cispo`` or ``cross_entropy``.
        clip_low_threshold: Least ratio that ppo and cispo let through.
        clip_high_threshold: Largest ratio that ppo and cispo let through.
        lora_rank: Rank of the adapter on every linear layer; ``None``: 32, or what ``adapter`` or
            the checkpoint has.
        lora_alpha: The adapter's output is scaled by alpha / rank; ``None`` likewise.
        adapter: Directory of a PEFT LoRA adapter to begin from, with its own layers and ranks; a
            checkpoint is one too. ``resume_from`` goes before it.
        seed: Of the adapter's initial weights.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``, ...
        dtype: Of the base model: ``float32``, ``bfloat16`` or ``float64``. The adapter learns in
            float32 or wider.
        beta1: Adam's decay of the gradient's mean.
        beta2: Adam's decay of the gradient's square.
        eps: Adam's epsilon.
        weight_decay: Decoupled (AdamW).
        grad_clip_norm: Largest norm of the whole gradient; 0 does not clip.
        max_batch_tokens: Most tokens, padding included, of one forward and backward pass.
        max_sampling_batch: Most rows sampled at a time; the rest waits in order.
        prefix_cache_tokens: Most tokens whose keys and values a policy keeps for those who
            continue them; 0 keeps none.
        logprob_tolerance: Largest difference between learner and sampler, in nats, that an update
            on the current weights accepts; ``None`` is 1e-3, or 2 in bfloat16.
        threads: CPU threads of each of the two threads that sample and learn; ``None`` is
            torch's own choice.
        checkpoint_dir: Where ``save_state`` writes.
        resume_from: A checkpoint to continue from.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"merges-spans", "resumes"})

    model: str = "tiny"
    learning_rate: float = 1e-4
    warmup_steps: int = 0
    loss: str = "ppo"
    clip_low_threshold: float = 0.8
    clip_high_threshold: float = 1.2
    lora_rank: int | None = None
    lora_alpha: float | None = None
    adapter: str | None = None
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0
    max_batch_tokens: int = 2048
    max_sampling_batch: int = 64
    prefix_cache_tokens: int = 16384
    logprob_tolerance: float | None = None
    threads: int | None = None
    checkpoint_dir: str = "checkpoints"
    resume_from: str | None = None

    _files: ModelFiles = attrs.field(init=False)
    _saved: SavedState | None = attrs.field(init=False, default=None)
    _adapter: Adapter | None = attrs.field(init=False, default=None)
    _pool: ThreadPoolExecutor | None = attrs.field(init=False, default=None)
    _learner: Learner | None = attrs.field(init=False, default=None)
    _engine: Engine | None = attrs.field(init=False, default=None)
    _tokenizer: Any = attrs.field(init=False, default=None)
    _tokenizer_lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        """Refuse what would fail later.

        Raises:
            UsageError: An option is out of range, or does not fit the checkpoint or adapter.
            UnknownNameError: No such model.
            DataError: A file of the model, checkpoint or adapter is missing or unusable.
        """
        self._check_options()
        self._files = find_model(self.model)
        if self.resume_from is not None:
            self._saved = read_state(
                self.resume_from,
                model=self.model,
                lora_rank=self.lora_rank,
                lora_alpha=self.lora_alpha,
            )
            self._adapter = self._saved.adapter
        elif self.adapter is not None:
            self._adapter = read_adapter(self.adapter, self._files)
            given = {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}
            check_given(self._adapter, given)

    def _check_options(self) -> None:
        if self.loss not in _LOSSES:
            raise UsageError(f"loss is {self.loss!r}; it must be one of {', '.join(_LOSSES)}")
        if self.dtype not in _TOLERANCE:
            raise UsageError(f"dtype is {self.dtype!r}; it must be one of {', '.join(_TOLERANCE)}")
        for name in (*_POSITIVE, "max_batch_tokens", "max_sampling_batch"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        for name in ("warmup_steps", "weight_decay", "grad_clip_norm", "prefix_cache_tokens"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be 0 or more")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be in [0, 1)")
        if not 0 <= self.clip_low_threshold <= self.clip_high_threshold:
            raise UsageError(
                f"the clip bounds {self.clip_low_threshold!r} and {self.clip_high_threshold!r} are "
                "bounds on the ratio: 0 <= low <= high, for example 0.8 and 1.2"
            )
        for name in ("lora_rank", "lora_alpha", "threads", "logprob_tolerance"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} is {value!r}; it must be above 0")

    # Life cycle

    async def __aenter__(self) -> LocalTrainer:
        """Load the model in the learner's thread and start the sampler's."""
        if self._pool is not None:
            raise TrainerError("the trainer was entered before; make a new one")
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="focus-learner")
        try:
            await self._in_learner_thread(self._load)
        except BaseException:
            await self.close("errored")
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop both threads and free the model."""
        await self.close("success" if kind is None else "errored")

    async def close(self, status: RunStatus) -> None:
        """Stop sampling (whoever waits gets a ``TrainerError``), wait for the threads, free all.

        Nothing depends on ``status``: there is no session to end elsewhere.
        """
        pool, engine = self._pool, self._engine
        self._engine, self._learner, self._tokenizer = None, None, None
        if engine is not None:
            await finish(asyncio.to_thread(engine.close))
        if pool is not None:
            await finish(asyncio.to_thread(pool.shutdown))

    def _load(self) -> None:
        """Runs in the learner's thread."""
        wait_asleep()
        import torch

        from focus_adapter_local.adapter import load_adapter
        from focus_adapter_local.checkpoint import restore
        from focus_adapter_local.engine import Engine
        from focus_adapter_local.learner import Learner
        from focus_adapter_local.models import load_model

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        loaded = load_model(self._files, device=self.device, dtype=self.dtype)
        try:
            learner = Learner(loaded, self._learner_config())
        except FocusError:
            raise
        except (ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise DataError(
                f"PEFT cannot put a LoRA adapter on it: {error}",
                path=self._files.directory,
                remedy="use a transformer with linear layers",
            ) from error
        if self._saved is not None:
            restore(learner, self._saved)
        elif self._adapter is not None:
            load_adapter(learner, self._adapter)
        self._learner, self._tokenizer = learner, loaded.tokenizer
        self._engine = Engine(
            max_rows=self.max_sampling_batch,
            keep_tokens=self.prefix_cache_tokens,
            threads=self.threads,
        )

    def _learner_config(self) -> LearnerConfig:
        from focus_adapter_local.learner import LearnerConfig
        from focus_adapter_local.losses import LossConfig

        own = {"loss", "adapter", "lora_rank", "lora_alpha"}
        shared = {each.name for each in attrs.fields(LearnerConfig)} - own
        options = {name: getattr(self, name) for name in shared}
        saved = self._saved
        options["adapter"] = self._adapter
        options["lora_rank"] = saved.rank if saved else self.lora_rank or _SHAPE
        options["lora_alpha"] = saved.alpha if saved else self.lora_alpha or float(_SHAPE)
        if self.logprob_tolerance is None:
            options["logprob_tolerance"] = _TOLERANCE[self.dtype]
        loss = LossConfig(
            name=self.loss,
            clip_low_threshold=self.clip_low_threshold,
            clip_high_threshold=self.clip_high_threshold,
        )
        return LearnerConfig(loss=loss, **options)

    # The Trainer protocol

    async def publish_policy(self) -> LocalPolicy:
        """A frozen snapshot; it shares with the learner all weights that LoRA leaves alone.

        Raises:
            TrainerError: The trainer is not running, or torch failed (out of memory).
        """
        from focus_adapter_local.policy import LocalPolicy

        learner = self._entered()
        try:
            snapshot = await self._in_learner_thread(learner.snapshot)
        except RuntimeError as error:
            raise TrainerError(f"the policy cannot be published: {error}") from error
        if self._engine is None:
            raise TrainerError("the trainer was closed while it published a policy")
        return LocalPolicy(snapshot, self._tokenizer, self._engine, self._tokenizer_lock)

    def convert(self, records: Sequence[ActorRecord | Mapping[str, Any]]) -> list[Item]:
        """One item per record, shifted by one position; see ``Item``.

        Raises:
            RecordError: A record breaks its contract, or begins with a generated token.
        """
        return [to_item(record) for record in records]

    async def update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step on ``batch.items``, whole or not at all.

        A cancellation takes effect between micro-batches, and leaves this method only when the
        learner's thread has stopped; from the optimizer step on the update completes.

        Returns:
            ``loss`` (the sum), ``ratio_mean``, ``ratio_max_deviation``, ``clip_fraction``,
            ``logprob_gap`` and ``logprob_gap_max`` (mean and largest |learner - behaviour|, in
            nats), ``kl`` (k3 estimate of KL(behaviour || learner) per token), ``trained_tokens``,
            ``grad_norm`` (before clipping) and ``learning_rate``.

        Raises:
            RecordError: An item breaks its contract, or nothing is trained; nothing was computed.
            OffPolicyError: At lag 0 learner and sampler disagree; nothing was changed.
            TrainerError: The loss or gradient is not finite, or torch failed; nothing was changed.
        """
        learner = self._entered()
        stop = threading.Event()
        on_policy = batch.on_policy
        return await self._in_learner_thread(
            lambda: learner.update(batch.items, on_policy=on_policy, stop=stop), stop
        )

    async def save_state(self, name: str) -> str:
        """Write a checkpoint to ``checkpoint_dir/name``; an older one there is replaced.

        Returns:
            Its path, for ``resume_from``.

        Raises:
            UsageError: The name is not a plain file name.
            TrainerError: It cannot be written.
        """
        from focus_adapter_local.checkpoint import save

        if not name or name in (".", "..") or Path(name).name != name:
            raise UsageError(f"the checkpoint name {name!r} must be a plain file name")
        learner = self._entered()
        directory = Path(self.checkpoint_dir) / name
        options = attrs.asdict(self, filter=lambda field, _: field.init)
        try:
            await self._in_learner_thread(
                lambda: save(learner, directory, model=self.model, options=options)
            )
        except OSError as error:
            raise TrainerError(f"the checkpoint {directory} cannot be written: {error}") from error
        return str(directory)

    # Beyond the protocol

    @property
    def step(self) -> int:
        """Updates completed."""
        return self._entered().step

    async def forward_logprobs(self, items: Sequence[Item]) -> list[Any]:
        """The learner's log probability of each generated target: a float64 array per item."""
        learner = self._entered()
        return await self._in_learner_thread(lambda: learner.forward_logprobs(items))

    def _entered(self) -> Learner:
        if self._learner is None:
            raise TrainerError("the trainer is not running; use it within 'async with'")
        return self._learner

    async def _in_learner_thread(
        self, work: Callable[[], T], stop: threading.Event | None = None
    ) -> T:
        """Run in the one learner thread; a cancellation leaves only when the thread is free."""
        if self._pool is None:
            raise TrainerError("the trainer is not running; use it within 'async with'")
        loop = asyncio.get_running_loop()
        return await finish(
            loop.run_in_executor(self._pool, work), stop.set if stop is not None else None
        )
