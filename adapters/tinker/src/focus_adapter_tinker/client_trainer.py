"""The core's ``Trainer`` around a training client that somebody else opened and will close."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import attrs

from focus_adapter_tinker import _sdk
from focus_adapter_tinker.datums import to_datum
from focus_adapter_tinker.losses import SUMS, check_loss
from focus_adapter_tinker.policy import SAMPLE_TIMEOUT, TinkerPolicy, load_tokenizer
from focus_adapter_tinker.spoilt import check_answers, spoil
from focus_adapter_tinker.update import Optimization
from focus_adapter_tinker.usage import Usage
from focus_core.errors import OffPolicyError, TrainerError
from focus_core.records import ActorRecord, Batch
from focus_core.tokenizer import Reading, read_profile
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
        saved: Path of the newest saved state; ``None``: there is none.
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
    saved: str | None = None
    step: int = attrs.field(default=0, init=False)
    _tokenizer: Any = attrs.field(default=None, init=False)
    _reading: Reading | None = attrs.field(default=None, init=False)

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
        doing = f"publishing the policy of step {self.step} failed"
        with self._going_on("publish a policy"), self._unless_lost():
            async with _sdk.within(
                self.how.timeout, doing, self.how.attendant
            ):  # late, a thread still uses the client
                sampler = await _sdk.in_thread(self._snapshot, self.how.timeout)
        assert self._reading is not None  # the thread read it
        return TinkerPolicy(
            sampler,
            model=self.model,
            tokenizer=self._tokenizer,
            reading=self._reading,
            version=self.step,
            context_length=self.context_length,
            timeout=self.sample_timeout,
            usage=self.usage,
            attendant=self.how.attendant,
        )

    def _snapshot(self) -> Any:
        _sdk.mask_logs()
        sampler = _sdk.resolved(self.client.save_weights_and_get_sampling_client())
        self.usage.count(requests=1)  # answered, whatever is wrong with the tokenizer
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
        name = f"the update of step {batch.learner_step} on batch {batch.index}"

        async def whole(limit: asyncio.Timeout) -> dict[str, float]:
            metrics = await self.how.step(
                self.client,
                batch.actor,
                batch.items,
                limit,
                name=name,
                on_policy=batch.on_policy,
                usage=self.usage,
            )
            self.step = batch.learner_step + 1
            return {**metrics, **self.usage.close_row(batch.index)}

        with self._going_on("update"):
            return await self.how.finished(whole)

    async def save_state(self, name: str) -> str:
        """Weights and optimizer, kept by Tinker; returns the path that resumes from them.

        Raises:
            TrainerError: It was not saved, or not in time.
        """

        async def save(limit: asyncio.Timeout) -> str:
            doing = f"saving the state {name!r} of step {self.step} failed"
            doing += ", though it may have been saved"
            with self._unless_lost():  # what was cancelled would hold up every later call
                async with _sdk.within(limit, doing, self.how.attendant):
                    saved = await _sdk.call(
                        self.client, "save_state", name, ttl_seconds=self.checkpoint_ttl
                    )
            self.usage.count(requests=1)
            self.saved = str(saved.path)
            return self.saved

        with self._going_on("save the state"):
            return await self.how.finished(save)

    async def close(self, status: RunStatus) -> None:
        """The client's owner ends its session."""

    @contextlib.contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """Refuse to wait for ever, and note on what fails where one could go on from."""
        try:
            check_answers(self.client, what)
            yield
        except (TrainerError, OffPolicyError) as error:
            error.add_note(
                "no state was saved to go on from"
                if self.saved is None
                else f"the newest state to go on from is {self.saved}"
            )
            raise

    @contextlib.contextmanager
    def _unless_lost(self) -> Iterator[None]:
        try:
            yield
        except _sdk.NoAnswerError as error:
            spoil(self.client, str(error), lost=True)
            raise
