"""One optimizer step on a training client: gradients, checks, step; sent once, and shielded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from focus_adapter_tinker import _sdk
from focus_adapter_tinker.attending import Attendant, attended
from focus_adapter_tinker.datums import check_datums, to_datum
from focus_adapter_tinker.losses import PPO_CLIP, check_loss
from focus_adapter_tinker.metrics import disagreement, learner_logprobs, report
from focus_adapter_tinker.spoilt import check_fit, clear, spoil
from focus_adapter_tinker.usage import Usage
from focus_core.errors import OffPolicyError, RecordError, TrainerError
from focus_core.records import ActorRecord, as_actor
from focus_core.utils.concurrency import finish, in_thread

T = TypeVar("T")

__all__ = ["CANCEL_GRACE", "TIMEOUT", "LostUpdate", "Optimization", "update_actor"]

TIMEOUT = 3600.0
"""Seconds after which an update, a snapshot or a save without an answer is given up."""

CANCEL_GRACE = 60.0
"""Seconds that a cancelled update still gets to finish."""


class LostUpdate(TrainerError):
    """No answer came in time: what was sent may still be applied, and the client is not usable."""


@attrs.frozen(kw_only=True)
class Optimization:
    """How to make a step.

    Attributes:
        loss_fn: Tinker's name of the loss.
        loss_fn_config: Its configuration.
        adam: Keywords of ``tinker.AdamParams``.
        timeout: Seconds the step may take.
        logprob_tolerance: Largest mean |learner - behaviour| of a batch on policy, in nats.
        attendant: Looks whether the server is still there.
    """

    loss_fn: str = "ppo"
    loss_fn_config: Mapping[str, float] | None = PPO_CLIP
    adam: Mapping[str, float] = attrs.field(factory=dict)
    timeout: float = TIMEOUT
    logprob_tolerance: float = 0.25
    attendant: Attendant | None = None

    async def finished(self, work: Callable[[asyncio.Timeout], Coroutine[Any, Any, T]]) -> T:
        """Run something that uses ``step``; if cancelled, it is finished first.

        It is given ``timeout`` seconds, of which a cancellation leaves ``CANCEL_GRACE``.
        """
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(self.timeout)

        def hurry() -> None:
            soon, when = loop.time() + CANCEL_GRACE, limit.when()
            if when is not None and soon < when and not limit.expired():
                with contextlib.suppress(RuntimeError):  # the step is over, or has not begun
                    limit.reschedule(soon)

        return await finish(work(limit), hurry)

    async def step(
        self,
        client: Any,
        records: Sequence[ActorRecord],
        datums: Sequence[Any],
        limit: asyncio.Timeout,
        *,
        name: str,
        on_policy: bool,
        usage: Usage | None = None,
    ) -> dict[str, float]:
        """One step, within ``finished``, which nothing cancels.

        Gradients are awaited and checked before the optimizer step is submitted, and its result
        before this returns. Nothing is sent twice.

        Args:
            client: A training client.
            records: What the datums were made of, in the same order.
            datums: What ``to_datum`` made.
            limit: When to give up.
            name: Of the step, for messages.
            on_policy: The client's current weights sampled the records.
            usage: Counts what was answered, also of a step that fails.

        Raises:
            RecordError: Nothing is trained, or something is no datum; nothing was sent.
            OffPolicyError: ``on_policy``, and learner and sampler disagree; no step was sent.
            LostUpdate: No answer in time.
            TrainerError: Anything else that failed; says what may have been applied. Or a step
                before it on this client did, whose gradients this one would apply.
        """
        config = check_loss(self.loss_fn, self.loss_fn_config)
        await in_thread(check_datums, datums)
        if len(records) != len(datums) or not any(record.trained_tokens for record in records):
            raise RecordError(f"{name}: no token is trained; skip the batch instead of updating")
        from tinker import types

        count = (usage or Usage()).count
        check_fit(client, name)
        spoil(client, None)  # until it went through whole
        sent = "its gradients may have been computed, and no optimizer step was sent"
        try:
            async with limit, attended(self.attendant, limit):
                output = await _sdk.call(
                    client, "forward_backward", list(datums), self.loss_fn, config
                )
                trained = sum(datum.model_input.length for datum in datums)
                count(requests=1, trained=trained)
                sent = "its gradients were computed, and no optimizer step was sent"
                metrics, wrong = await in_thread(
                    self._looked_at, records, output, config, on_policy
                )
                if wrong:
                    raise OffPolicyError(f"{name}: {wrong}; {sent}")
                sent = "its optimizer step was sent and may have been applied, or may still be"
                stepped = await _sdk.call(client, "optim_step", types.AdamParams(**self.adam))
                count(requests=1)
        except OffPolicyError as error:
            spoil(client, str(error))
            raise
        except Exception as error:
            lost = isinstance(error, TimeoutError) and limit.expired()
            why = str(error) if isinstance(error, TrainerError) else _sdk.explain(error)
            gone = self.attendant.gone if self.attendant is not None else None
            said = (
                f"{name} got no answer{f': {gone}' if gone else ' in time'}; {sent}"
                if lost
                else f"{name} failed: {why}; {sent}. It is not retried"
            )
            spoil(client, said, lost=lost)
            raise (LostUpdate if lost else TrainerError)(said) from _sdk.cause(error)
        clear(client)
        return {**_numbers(stepped), **metrics}

    def _looked_at(
        self,
        records: Sequence[ActorRecord],
        output: Any,
        config: Mapping[str, float] | None,
        on_policy: bool,
    ) -> tuple[dict[str, float], str | None]:
        """The gradient's numbers, and what is wrong with them."""
        reads = self.loss_fn != "cross_entropy"
        learner = learner_logprobs(records, output.loss_fn_outputs, needed=reads)
        metrics = report(records, learner, output.metrics, config)
        if not (on_policy and reads):
            return metrics, None
        return metrics, disagreement(records, learner, self.logprob_tolerance)


def _numbers(response: Any) -> dict[str, float]:
    """The optimizer's own metrics, which it may not have."""
    found = getattr(response, "metrics", None) or {}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


async def update_actor(
    training_client: Any,
    records: Sequence[Mapping[str, Any] | ActorRecord],
    *,
    learning_rate: float,
    loss_fn: str = "ppo",
    loss_fn_config: Mapping[str, float] = PPO_CLIP,
) -> dict[str, float]:
    """Take one Tinker optimizer step on a batch's actor records, native or plain.

    Gradients are awaited before the optimizer step is submitted, and the optimizer's result before
    this returns, so that a sampler published afterwards holds the updated weights. A cancelled
    update is finished first; a failed one is not retried.

    Args:
        training_client: A ``tinker.TrainingClient``.
        records: Actor records; merged ones only for a loss that is a sum over tokens.
        learning_rate: Adam's step size.
        loss_fn: ``ppo``, ``importance_sampling``, ``cispo``, ``cross_entropy`` or ``gspo``.
        loss_fn_config: Bounds on the ratio, for the losses that have some.

    Returns:
        Tinker's metrics and ``loss``, ``ratio_mean``, ``clip_fraction``, ``logprob_gap``, ``kl``.

    Raises:
        RecordError: A record breaks its contract, or nothing is trained; nothing was sent.
        TrainerError: The update failed; says what may have been applied. After one that failed
            none is made on this client, which may hold its gradients: make a new one.
    """
    check_loss(loss_fn, loss_fn_config)
    native = [as_actor(record) for record in records]
    datums = await in_thread(lambda: [to_datum(record, loss_fn=loss_fn) for record in native])
    how = Optimization(
        loss_fn=loss_fn, loss_fn_config=loss_fn_config, adam={"learning_rate": learning_rate}
    )
    return await how.finished(
        lambda limit: how.step(
            training_client, native, datums, limit, name="the update", on_policy=False
        )
    )
