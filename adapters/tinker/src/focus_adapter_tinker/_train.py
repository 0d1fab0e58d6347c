"""The one-step-asynchronous loop on a training client: the core's schedule, nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from focus_adapter_tinker.client_trainer import ClientTrainer
from focus_adapter_tinker.losses import PPO_CLIP
from focus_adapter_tinker.update import Optimization
from focus_core.env.workspace import Workspace
from focus_core.lanes.sinks import CriticSink
from focus_core.records import Problem, StepReport
from focus_core.schedule import run_schedule
from focus_core.task import CollectorFor

__all__ = ["train"]


async def train(
    training_client: Any,
    *,
    model: str,
    problems: Sequence[Problem],
    collector_for: CollectorFor,
    steps: int,
    learning_rate: float,
    critic_sink: CriticSink | None = None,
    async_depth: Literal[0, 1] = 1,
    profile: str | None = None,
    loss_fn: str = "ppo",
    loss_fn_config: Mapping[str, float] = PPO_CLIP,
    workspace_for: Callable[[Problem], Workspace] | None = None,
    min_abs_advantage: float | None = None,
    allow_partial: bool = False,
    on_step: Callable[[StepReport], None] | None = None,
) -> list[StepReport]:
    """Collect one problem per update from a frozen sampler, train on it, publish a new sampler.

    Every batch trains exactly once, on weights at most ``async_depth`` updates newer than those
    that sampled it. If the loop stops early, outstanding collection is cancelled and awaited; an
    update that was sent is finished first, and one that failed is not retried.

    Args:
        training_client: A ``tinker.TrainingClient``; it stays open.
        model: Name of its base model, for messages.
        problems: One per update, over and over.
        collector_for: Builds the collector of one problem under the current policy.
        steps: Updates to make; one whose batch has nothing to train is skipped, and reported.
        learning_rate: Adam's step size.
        critic_sink: Takes each batch's critic records after its update, in a thread.
        async_depth: 1 overlaps the next collection with the current update; 0 does not.
        profile: How replies are read; see ``TinkerPolicy``.
        loss_fn: ``ppo``, ``importance_sampling``, ``cispo``, ``cross_entropy`` or ``gspo``.
        loss_fn_config: Bounds on the ratio, for the losses that have some.
        workspace_for: Gives each problem the files its environment starts with.
        min_abs_advantage: Leave out actor edges whose advantage is nearer to zero.
        allow_partial: Keep trees with failures.
        on_step: Called with each report.

    Returns:
        One report per update.

    Raises:
        UsageError: The loss or profile cannot be used.
        CollectionError: A tree failed.
        OffPolicyError: Sampler and learner disagree about the same weights.
        TrainerError: Tinker failed; says the step and what may have been applied.
    """
    how = Optimization(
        loss_fn=loss_fn, loss_fn_config=loss_fn_config, adam={"learning_rate": learning_rate}
    )
    trainer = ClientTrainer(client=training_client, model=model, profile=profile, how=how)
    return await run_schedule(
        trainer,
        problems,
        collector_for,
        steps=steps,
        async_depth=async_depth,
        critic_sink=critic_sink,
        workspace_for=workspace_for,
        min_abs_advantage=min_abs_advantage,
        allow_partial=allow_partial,
        on_step=on_step,
    )
