"""The core's ``Trainer`` around a training client that somebody else opened and will close."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import attrs

from focus_adapter_tinker import _sdk
from focus_adapter_tinker.datums import to_datum
from focus_adapter_tinker.losses import SUMS, check_loss
from focus_adapter_tinker.policy import SAMPLE_TIMEOUT, TinkerPolicy, load_tokenizer
from focus_adapter_tinker.profiles import Reading, read_profile
from focus_adapter_tinker.update import LostUpdate, Optimization
from focus_adapter_tinker.usage import Usage
from focus_core.errors import RecordError, TrainerError
from focus_core.records import ActorRecord, Batch
from focus_core.trainer import RunStatus

__all__ = ["ClientTrainer"]


@attrs.define(kw_only=True, eq=False)
class ClientTrainer:
    """Publishes, updates and saves through one training client.

    Attributes:
        client: A ``tinker.TrainingClient``; closing this trainer leaves it open.
        model: Name of the model, for messages.
        profile: As for ``TinkerPolicy``.
        how: How to make a step.
        sample_timeout: Seconds a sampling request may take.
        context_length: Most tokens of prompt and reply together; ``None``: unlimited.
        checkpoint_ttl: Seconds Tinker keeps a saved state; ``None``: for ever.
        usage: Counts requests and tokens.
        step: Updates completed.
    """

    client: Any
    model: str
    profile: str | None = None
    how: Optimization = attrs.field(factory=Optimization)
    sample_timeout: float = SAMPLE_TIMEOUT
    context_length: int | None = None
    checkpoint_ttl: int | None = None
    usage: Usage = attrs.field(factory=Usage)
    step: int = attrs.field(default=0, init=False)
    _tokenizer: Any = attrs.field(default=None, init=False)
    _reading: Reading | None = attrs.field(default=None, init=False)
    _spoilt: str | None = attrs.field(default=None, init=False)
    _lost: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Refuse a loss that cannot be trained with, before anything is collected."""
        check_loss(self.how.loss_fn, self.how.loss_fn_config)

    @property
    def capabilities(self) -> frozenset[str]:
        """Records of a path are merged for losses that are sums over tokens."""
        return frozenset({"merges-spans"} if self.how.loss_fn in SUMS else ())

    async def __aenter__(self) -> ClientTrainer:
        """Nothing to open."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The client stays with its owner."""

    async def publish_policy(self) -> TinkerPolicy:
        """A snapshot of the learner, which the SDK makes with a blocking call: in a thread.

        Raises:
            TrainerError: It could not be made, or an update got no answer before.
            UsageError: The model's tokenizer does not fit the profile.
        """
        self._usable("publish a policy")
        try:
            async with _sdk.within(
                self.how.timeout, f"publishing the policy of step {self.step} failed"
            ):
                sampler = await _sdk.in_thread(self._snapshot, self.how.timeout)
        except _sdk.NoAnswerError:
            self._lost = True  # the thread still uses the client
            raise
        assert self._reading is not None  # the thread read it
        self.usage.count(requests=1)
        return TinkerPolicy(
            sampler,
            model=self.model,
            tokenizer=self._tokenizer,
            reading=self._reading,
            version=self.step,
            context_length=self.context_length,
            timeout=self.sample_timeout,
            usage=self.usage,
        )

    def _snapshot(self) -> Any:
        sampler = _sdk.resolved(self.client.save_weights_and_get_sampling_client())
        if self._reading is None:
            self._tokenizer = load_tokenizer(sampler, self.model)
            self._reading = read_profile(self._tokenizer, self.profile, self.model)
        return sampler

    def convert(self, records: Sequence[ActorRecord | Mapping[str, Any]]) -> list[Any]:
        """One Tinker datum per record."""
        return [to_datum(record, loss_fn=self.how.loss_fn) for record in records]

    async def update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step on ``batch.items``; see ``Optimization.step``.

        Raises:
            OffPolicyError: Learner and sampler disagree about the same weights.
            TrainerError: The update failed, or one before it did: its gradients may lie with
                Tinker, and the next step would apply them.
        """
        self._usable("update")
        name = f"the update of step {batch.learner_step} on batch {batch.index}"
        if self._spoilt is not None:
            raise TrainerError(
                f"{name} is not made, as Tinker may hold gradients of one that failed "
                f"({self._spoilt}); go on from a saved state"
            )

        async def whole(limit: asyncio.Timeout) -> dict[str, float]:
            try:
                metrics = await self.how.step(
                    self.client,
                    batch.actor,
                    batch.items,
                    limit,
                    name=name,
                    on_policy=batch.on_policy,
                )
            except RecordError:
                raise  # nothing was sent
            except Exception as error:
                self._spoilt, self._lost = str(error), isinstance(error, LostUpdate)
                raise
            self.step = batch.learner_step + 1
            trained = sum(datum.model_input.length for datum in batch.items)
            self.usage.count(requests=2, trained=trained)
            return {**metrics, **self.usage.close_row(str(batch.index))}

        return await self.how.finished(whole)

    async def save_state(self, name: str) -> str:
        """Weights and optimizer, kept by Tinker; returns the path that resumes from them.

        Raises:
            TrainerError: It was not saved, or not in time.
        """
        self._usable("save the state")

        async def save(limit: asyncio.Timeout) -> str:
            try:
                async with _sdk.within(
                    limit,
                    f"saving the state {name!r} of step {self.step} failed, "
                    "though it may have been saved",
                ):
                    saved = await _sdk.call(
                        self.client, "save_state", name, ttl_seconds=self.checkpoint_ttl
                    )
            except _sdk.NoAnswerError:
                self._lost = True  # what was cancelled would hold up every later call
                raise
            return str(saved.path)

        path = await self.how.finished(save)
        self.usage.count(requests=1)
        return path

    async def close(self, status: RunStatus) -> None:
        """The client's owner ends its session."""

    def _usable(self, what: str) -> None:
        if self._lost:
            raise TrainerError(
                f"cannot {what}: an update got no answer, and the training client waits for it; "
                "go on from a saved state"
            )
