"""The functions Slime calls to generate: a tree for each sample; in evaluation one rollout."""

from __future__ import annotations

import functools
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from focus_adapter_slime.host import Host, open_host
from focus_adapter_slime.policy import RouterPolicy
from focus_adapter_slime.samples import FACTS, RETURN, removed_sample, to_sample, to_samples
from focus_adapter_slime.trees import (
    Streak,
    called_off,
    check_sampling,
    collect_tree,
    number_of,
    problem_of,
    whole_rollout,
)
from focus_adapter_slime.versions import is_aborting
from focus_core.collect import Collection, Collector
from focus_core.env.workspace import Workspace
from focus_core.errors import UsageError
from focus_core.lanes import export_actor, export_critic, export_merged
from focus_core.lanes.sinks import CriticSink
from focus_core.records import ActorRecord, Problem
from focus_core.run.evaluate import unbranched
from focus_core.task import CollectorFor
from focus_core.tree.rollout import Rollout
from focus_core.utils.concurrency import doing, in_thread

__all__ = ["GenerateHook", "make_evaluate", "make_generate"]

_LOG = logging.getLogger("focus_adapter_slime")


class GenerateHook(Protocol):
    """What Slime calls as a custom generate function.

    ``sampling_params`` is accepted and neither read (but for its seed) nor changed: the agent's
    own sampling settings hold.
    """

    async def __call__(self, args: Any, sample: Any, sampling_params: Any = None) -> Any:
        """The samples to train on, or the one that was evaluated."""
        ...


def make_generate(
    collector_for: CollectorFor,
    *,
    profile: str | None = None,
    critic_sink: CriticSink | None = None,
    workspace_for: Callable[[Problem], Workspace] | None = None,
    min_abs_advantage: float | None = None,
    allow_partial: bool = False,
) -> GenerateHook:
    """Build the function for ``--custom-generate-function-path``.

    For each sample it makes the router's policy, wraps the sample as a ``Problem``, collects one
    tree with a fresh collector, hands critic records to the sink, and returns the actor records as
    samples: always a list, of one sample or more. Called for evaluation it does what
    ``make_evaluate`` does. A tree that fails becomes one sample that Slime removes from training,
    with the reason in its metadata, or an error (``focus_on_failure``); a tree that Slime calls off
    always becomes such a sample. ``counts`` of the function says how many there were.

    Args:
        collector_for: From policy and problem to the collector of that problem's tree.
        profile: How replies are read; ``focus_profile`` by default.
        critic_sink: Takes each tree's critic records, in a thread.
        workspace_for: Gives each problem the files its environment starts with.
        min_abs_advantage: Leave out edges whose advantage is nearer to zero.
        allow_partial: Keep a tree with failed continuations.
    """
    hook = _Hook(
        collector_for,
        profile,
        critic_sink,
        workspace_for,
        min_abs_advantage,
        allow_partial,
        training=True,
    )

    async def generate(
        args: Any, sample: Any, sampling_params: Any = None, evaluation: bool = False
    ) -> Any:
        if evaluation:
            return await hook.evaluate(args, sample, sampling_params)
        return await hook.generate(args, sample, sampling_params)

    generate.counts = hook.counts  # type: ignore[attr-defined]
    return generate


def make_evaluate(
    collector_for: CollectorFor,
    *,
    profile: str | None = None,
    workspace_for: Callable[[Problem], Workspace] | None = None,
) -> GenerateHook:
    """Build a generate function for evaluation: one unbranched rollout, one sample.

    The sample's reward is the outcome: the sum of the rollout's rewards, also of one that was cut,
    whose status is then ``truncated``. A rollout that failed has no outcome: its reward is NaN, so
    that no mean takes it for a zero, unless ``focus_on_failure`` raises.

    Args:
        collector_for: Gives the agent; its search and critic are not used.
        profile: How replies are read; ``focus_profile`` by default.
        workspace_for: Gives each problem the files its environment starts with.
    """
    hook = _Hook(collector_for, profile, None, workspace_for, None, False, training=False)

    async def evaluate(
        args: Any, sample: Any, sampling_params: Any = None, evaluation: bool = True
    ) -> Any:
        if not evaluation:
            raise UsageError(
                "this function evaluates and gives nothing to train on; put the one of "
                "make_generate into --custom-generate-function-path"
            )
        return await hook.evaluate(args, sample, sampling_params)

    evaluate.counts = hook.counts  # type: ignore[attr-defined]
    return evaluate


@attrs.define(eq=False)
class _Hook:
    """One task's function, whatever it is called for."""

    collector_for: CollectorFor
    profile: str | None
    critic_sink: CriticSink | None
    workspace_for: Callable[[Problem], Workspace] | None
    min_abs_advantage: float | None
    allow_partial: bool
    training: bool = attrs.field(kw_only=True)
    counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _host: Host | None = attrs.field(default=None, init=False)
    _streak: Streak | None = attrs.field(default=None, init=False)

    async def _open(self, args: Any, sample: Any) -> tuple[Host, Streak]:
        if self._host is None or self._host.args is not args:
            host = await open_host(args, sample, profile=self.profile, training=self.training)
            if self._host is None or self._host.args is not args:
                self._host, self._streak = host, Streak(host.settings.max_failures)
        assert self._streak is not None  # set with the host
        return self._host, self._streak

    def _collector(self, policy: RouterPolicy, problem: Problem) -> Collector:
        with doing(f"collector_for made the collector of problem {problem.id}"):
            collector = self.collector_for(policy, problem)
        if not isinstance(collector, Collector):
            raise UsageError(f"collector_for returned {type(collector).__name__}, not a Collector")
        return collector

    async def generate(self, args: Any, sample: Any, sampling_params: Any) -> list[Any]:
        """One tree, as samples."""
        host, streak = await self._open(args, sample)
        problem, policy = problem_of(sample), host.policy(sample)
        self.counts["trees"] += 1
        try:
            collector = self._collector(policy, problem)
            check_sampling(collector, args)
            collection = await self._collected(host, collector, problem, sample, sampling_params)
            if isinstance(collection, Exception):
                return [self._removed(host, streak, sample, collection)]
        finally:
            await policy.aclose()
            if policy.straddling:
                self.counts["straddling_trees"] += 1
                self.counts["straddling_generations"] += policy.straddling
        streak.succeeded()
        if self.critic_sink is not None:
            await called_off(
                in_thread(_keep_critic, self.critic_sink, collection),
                deadline=host.settings.deadline,
                grace=host.settings.grace,
                aborting=lambda: False,
            )
        export = export_merged if host.settings.merge else export_actor
        samples, trained = await in_thread(_samples, export, collection, sample, host.decoder)
        self.counts["samples"] += trained
        self.counts["empty_trees"] += not trained
        returns = collection.returns
        for made in samples:
            if hasattr(made, "weight_versions"):
                made.weight_versions = list(policy.weight_versions)
            if returns:
                made.metadata[RETURN] = sum(returns) / len(returns)
            if policy.straddling:
                made.metadata[FACTS]["straddling"] = policy.straddling
        return samples

    async def _collected(
        self, host: Host, collector: Collector, problem: Problem, sample: Any, params: Any
    ) -> Collection | Exception:
        """A prepared collection, or why there is none."""
        settings = host.settings
        partial = self.allow_partial or settings.allow_partial
        least = self.min_abs_advantage
        try:
            collection = await called_off(
                collect_tree(
                    collector,
                    problem,
                    group_index=number_of(sample),
                    key=host.key(sample, params),
                    workspace=self.workspace_for(problem) if self.workspace_for else None,
                    fail_fast=not partial,
                ),
                deadline=settings.deadline,
                grace=settings.grace,
                aborting=is_aborting,
            )
            if collection.failures and not any(collection.tree.edges()):
                partial = False  # nothing is left of it
            prepare = functools.partial(
                collection.prepare,
                min_abs_advantage=settings.min_abs_advantage if least is None else least,
                allow_partial=partial and not is_aborting(),
            )
            return await in_thread(prepare)
        except Exception as error:  # the user's environment, policy, critic or recipe
            return error

    def _removed(self, host: Host, streak: Streak, sample: Any, error: Exception) -> Any:
        """A failed tree's sample.

        Raises:
            Exception: The failure itself, if the settings say so or too many failed in a row.
        """
        aborted = is_aborting()
        self.counts["aborted_trees" if aborted else "failed_trees"] += 1
        reason = f"{type(error).__name__}: {error}"
        if not aborted:
            if host.settings.on_failure == "raise":
                raise error
            _LOG.warning("sample %s is left out: %s", getattr(sample, "index", None), reason)
            streak.failed(error)
        status = "ABORTED" if aborted else "FAILED"
        return removed_sample(sample, host.decoder, type(sample), reason, status=status)

    async def evaluate(self, args: Any, sample: Any, sampling_params: Any) -> Any:
        """One rollout, as one sample."""
        host, streak = await self._open(args, sample)
        problem, policy = problem_of(sample), host.policy(sample)
        self.counts["evaluations"] += 1
        try:
            collector = unbranched(
                self._collector(policy, problem), 1, host.settings.eval_temperature
            )
            found = await self._collected(host, collector, problem, sample, sampling_params)
        finally:
            await policy.aclose()
        if isinstance(found, Exception):
            made = self._removed(host, streak, sample, found)
            made.reward = math.nan
            return made
        streak.succeeded()
        tree = found.tree
        leaf = max(tree.edges())
        rollout = Rollout(tree, leaf)
        made = to_sample(whole_rollout(found, leaf), sample, host.decoder, type(sample))
        if hasattr(made, "weight_versions"):
            made.weight_versions = list(policy.weight_versions)
        if not rollout.done and hasattr(type(sample), "Status"):
            made.status = type(sample).Status.TRUNCATED
        return made


def _keep_critic(sink: CriticSink, collection: Collection) -> None:
    with doing(f"the critic records of problem {collection.problem.id} were handed on"):
        sink([record.to_dict() for record in export_critic(collection)])


def _samples(
    export: Callable[[Collection], Sequence[ActorRecord]],
    collection: Collection,
    source: Any,
    decoder: Any,
) -> tuple[list[Any], int]:
    """A tree's samples, and how many of them train."""
    records = export(collection)
    return to_samples(records, source, decoder, type(source)), len(records)
