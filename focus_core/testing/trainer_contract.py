"""The contract of trainers: what an update, a snapshot and a checkpoint promise."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from focus_core.errors import FocusError, OffPolicyError
from focus_core.plugins.options import options_of
from focus_core.policy import Generation, Policy
from focus_core.records import ActorRecord, Batch
from focus_core.testing._looking import form, require_methods, require_settable
from focus_core.testing._records import batch, credited, record
from focus_core.testing._sampling import draw, first_logprobs, tokens_of
from focus_core.testing.base import (
    Broken,
    Contract,
    NotApplicable,
    contract,
    require,
    scratch_directory,
)
from focus_core.trainer import RunStatus

__all__ = ["TrainerContract"]

Probabilities = dict[tuple[int, int], float]
"""Log probability of a next token, by prompt and token."""


class TrainerContract(Contract):
    """What every trainer keeps.

    Inherit it in a pytest module::

        class TestMyTrainer(TrainerContract):
            def subject(self, **options):
                return MyTrainer(learning_rate=0.1, **options)

    ``subject`` gives a fresh trainer, not entered. Where it has the capability ``resumes`` it is
    also given ``checkpoint_dir`` and ``resume_from``; without, its initial weights are always the
    same.

    Attributes:
        updates: Updates after which a credited token must be more likely, a discredited one less.
        tolerance: Difference of log probabilities, in nats, that rounding explains.
        samples: Draws with which probabilities are looked up.
    """

    updates: int = 3
    tolerance: float = 1e-3
    samples: int = 256

    def subject(self, **options: Any) -> Any:
        """A fresh trainer with these options."""
        raise NotImplementedError(f"{type(self).__name__} needs a method subject(**options)")

    def messages(self) -> Sequence[Any]:
        """A chat its policies can render and reply to."""
        return [{"role": "user", "content": "1 2"}]

    def surroundings(self) -> contextlib.AbstractContextManager[None]:
        """An empty directory."""
        return scratch_directory()

    # Life cycle

    @contract()
    def test_has_the_methods(self) -> None:
        """A trainer is entered, publishes, converts, updates, saves and closes."""
        awaited = {"__aenter__", "__aexit__", "publish_policy", "update", "save_state", "close"}
        require_methods(self.subject(), "Trainer", (*sorted(awaited), "convert"), awaited=awaited)

    @contract()
    def test_options_can_be_set(self) -> None:
        """Every option of the trainer can be given with --set."""
        require_settable(self.spec.load() if self.spec else type(self.subject()), "trainer")

    @contract()
    def test_capabilities_are_those_registered(self) -> None:
        """The flags of the spec are the flags of the trainer."""
        if self.spec is None:
            raise NotApplicable("only for what a plug-in registers")
        registered, own = self.spec.capabilities, self.capabilities()
        require(
            registered == own,
            f"the spec says {sorted(registered)}, the trainer's capabilities are {sorted(own)}; "
            "write the same in both",
        )

    @contract()
    async def test_closes_twice(self) -> None:
        """Whatever the status, a trainer can be closed, again, and then left."""
        statuses: tuple[RunStatus, ...] = ("success", "errored", "interrupted")
        for status in statuses:
            async with self.subject() as trainer:
                await trainer.close(status)
                await trainer.close(status)

    # Conversion

    @contract()
    async def test_convert_is_pure(self) -> None:
        """Converting changes no record and gives the same items each time, in threads as well."""
        async with self.subject() as trainer:
            records = await self._random_records(await trainer.publish_policy())
            before = [each.to_dict() for each in records]
            first = form(list(trainer.convert(records)))
            require(
                [each.to_dict() for each in records] == before,
                "convert() changed the records it was given; copy what you change",
            )
            threads = [asyncio.to_thread(trainer.convert, records) for _ in range(4)]
            for items in await asyncio.gather(*threads):
                require(
                    form(list(items)) == first,
                    "convert() made other items of the same records; it runs in threads, one per "
                    "tree, and must not keep state",
                )

    @contract()
    async def test_convert_keeps_order(self) -> None:
        """One item per record comes in the records' order, and none of none."""
        async with self.subject() as trainer:
            records = await self._random_records(await trainer.publish_policy())
            require(len(trainer.convert([])) == 0, "convert([]) gave items of no record")
            items = list(trainer.convert(records))
            if len(items) != len(records):
                raise NotApplicable(f"{len(records)} records make {len(items)} items")
            require(
                form(list(trainer.convert(records[::-1]))) == form(items[::-1]),
                "convert() does not keep the order of the records",
            )

    # Updates

    @contract()
    async def test_an_update_follows_the_advantage(self) -> None:
        """What had a positive advantage gets more likely, what had a negative one less."""
        async with self.subject() as trainer:
            policy = await trainer.publish_policy()
            prompt = self._prompt(policy)
            counts, first = await first_logprobs(policy, prompt, self.samples)
            if len(counts) < 2:
                raise NotApplicable("the first policy has one thing to say")
            (good, _), (bad, _) = counts.most_common(2)
            for step in range(self.updates):
                said = await draw(policy, prompt, self.samples, seed=100 * step)
                records = [
                    *credited(prompt, said, good, 1.0),
                    *credited(prompt, said, bad, -1.0),
                ]
                await trainer.update(batch(trainer, records, step))
                policy = await trainer.publish_policy()
            _, last = await first_logprobs(policy, prompt, self.samples)
            for token, sign in ((good, 1.0), (bad, -1.0)):
                change = last.get(token, -math.inf) - first[token]
                require(
                    change * sign > 0.0,
                    f"after {self.updates} updates with advantage {sign:+.0f} the log probability "
                    f"of token {token} changed by {change:+.3g}; an update ascends advantage * "
                    "log probability, and publish_policy() gives the updated weights",
                )

    @contract()
    async def test_metrics_are_finite(self) -> None:
        """An update reports finite numbers by name; at lag 0 the ratio it reports is 1."""
        async with self.subject() as trainer:
            records = await self._random_records(await trainer.publish_policy())
            metrics = await trainer.update(batch(trainer, records, 0))
            require(isinstance(metrics, Mapping), f"update() returned {metrics!r}; return metrics")
            for name, value in metrics.items():
                require(
                    isinstance(value, int | float) and math.isfinite(value),
                    f"the metric {name} is {value!r}; metrics are finite numbers",
                )
            ratio = metrics.get("ratio_mean", 1.0)
            require(
                abs(ratio - 1.0) <= max(0.01, self.tolerance),
                f"at lag 0 ratio_mean is {ratio:.4f}; learner and sampler disagree about the same "
                "weights: compare their tokens, templates and precision",
            )

    @contract()
    async def test_older_batches_train(self) -> None:
        """A batch sampled one update ago trains: runs overlap collection and update."""
        async with self.subject() as trainer:
            policy = await trainer.publish_policy()
            records = await self._random_records(policy)
            await trainer.update(batch(trainer, records, 0))
            metrics = await trainer.update(
                batch(trainer, await self._random_records(policy, seed=50), 1, lag=1)
            )
            require(
                all(math.isfinite(value) for value in metrics.values()),
                f"an update at lag 1 reports {dict(metrics)}",
            )

    @contract()
    async def test_replayed_batches_train(self) -> None:
        """A replayed batch trains: what sampled it had other weights than this learner."""
        async with self.subject() as trainer:
            policy = await trainer.publish_policy()
            records = await self._foreign_records(policy, nats=0.5)
            try:
                await trainer.update(batch(trainer, records, 0, replayed=True))
            except OffPolicyError as error:
                raise Broken(
                    f"a replayed batch raised {error!r}; compare log probabilities where "
                    "batch.on_policy is true, not where the lag is 0"
                ) from error

    @contract()
    async def test_off_policy_is_noticed(self) -> None:
        """At lag 0 foreign behaviour log probabilities raise OffPolicyError before they train.

        A loss that does not read them excuses this one.
        """
        async with self.subject() as trainer:
            policy = await trainer.publish_policy()
            prompt = self._prompt(policy)
            before = await self._probabilities(policy, [prompt])
            records = await self._foreign_records(policy, nats=3.0)
            try:
                await trainer.update(batch(trainer, records, 0))
            except OffPolicyError:
                after = await self._probabilities(await trainer.publish_policy(), [prompt])
                self._same(before, after, "an update that raised OffPolicyError changed the policy")
            else:
                raise Broken(
                    "an update at lag 0 took log probabilities that are 3 nats off; compare the "
                    "learner's with the record's, and raise OffPolicyError before the step"
                )

    @contract()
    async def test_no_advantage_no_change(self) -> None:
        """Tokens with advantage 0 leave the policy as it is.

        A loss with a term of its own (KL, entropy) excuses this one.
        """
        async with self.subject() as trainer:
            policy = await trainer.publish_policy()
            prompt = self._prompt(policy)
            before = await self._probabilities(policy, [prompt])
            said = await draw(policy, prompt, 8, max_tokens=2)
            records = [record(prompt, [(generation, 0.0)]) for generation in said]
            await trainer.update(batch(trainer, records, 0))
            after = await self._probabilities(await trainer.publish_policy(), [prompt])
            self._same(before, after, "a batch without advantages changed the policy")

    @contract()
    async def test_nothing_and_nonsense_do_not_train(self) -> None:
        """An empty batch does nothing or is refused; items convert did not make are refused."""
        async with self.subject() as trainer:
            policy = await trainer.publish_policy()
            records = await self._random_records(policy)
            with contextlib.suppress(FocusError):
                await trainer.update(batch(trainer, [], 0))
            strange = Batch(
                index=0, behavior_step=0, learner_step=0, actor=records, items=[object()]
            )
            with _raises("update() took an item that convert() did not make; check items first"):
                await trainer.update(strange)
            prompts = [self._prompt(policy)]
            self._same(
                await self._probabilities(policy, prompts),
                await self._probabilities(await trainer.publish_policy(), prompts),
                "an update that was empty or failed changed the policy",
            )

    @contract()
    async def test_a_cancelled_update_is_whole_or_nothing(self) -> None:
        """After a cancelled update the trainer publishes and trains as before."""
        async with self.subject() as trainer:
            records = await self._random_records(await trainer.publish_policy())
            update = asyncio.ensure_future(trainer.update(batch(trainer, records, 0)))
            await asyncio.sleep(0)
            update.cancel()
            await asyncio.gather(update, return_exceptions=True)
            records = await self._random_records(await trainer.publish_policy())
            await trainer.update(batch(trainer, records, 1))

    # Snapshots and checkpoints

    @contract()
    async def test_published_policies_are_frozen(self) -> None:
        """An update changes no policy that was published before; the next one has a new version."""
        async with self.subject() as trainer:
            old = await trainer.publish_policy()
            prompt, version = self._prompt(old), old.version
            before = await self._probabilities(old, [prompt])
            await trainer.update(batch(trainer, await self._random_records(old), 0))
            new = await trainer.publish_policy()
            self._same(
                before,
                await self._probabilities(old, [prompt]),
                "an update changed a policy that was published before it; give each a copy",
            )
            require(
                old.version == version and new.version != version,
                f"the policies before and after an update are both version {new.version!r}; "
                "different weights never share one",
            )

    @contract()
    async def test_sampling_goes_on_during_an_update(self) -> None:
        """A published policy samples the same while an update runs."""
        async with self.subject() as trainer:
            policy = await trainer.publish_policy()
            records, prompt = await self._random_records(policy), self._prompt(policy)
            before = await self._probabilities(policy, [prompt])
            _, during = await asyncio.gather(
                trainer.update(batch(trainer, records, 0)), self._probabilities(policy, [prompt])
            )
            self._same(before, during, "sampling during an update saw weights change")

    @contract(needs="resumes")
    async def test_a_saved_state_resumes(self) -> None:
        """Resumed, a trainer publishes the weights it saved, and its next update is the same."""
        options = {"checkpoint_dir": "checkpoints"}
        async with self.subject(**options) as trainer:
            policy = await trainer.publish_policy()
            prompts = [self._prompt(policy)]
            await trainer.update(batch(trainer, await self._random_records(policy), 0))
            reference = await trainer.save_state("one")
            policy = await trainer.publish_policy()
            saved = await self._probabilities(policy, prompts)
            records = await self._random_records(policy, seed=50)
            await trainer.update(batch(trainer, records, 1))
            later = await self._probabilities(await trainer.publish_policy(), prompts)
        require(isinstance(reference, str), f"save_state() returned {reference!r}; return text")
        async with self.subject(**options, resume_from=reference) as trainer:
            policy = await trainer.publish_policy()
            self._same(
                saved,
                await self._probabilities(policy, prompts),
                "resumed from its checkpoint, the policy is not the one that was saved",
            )
            await trainer.update(batch(trainer, records, 1))
            self._same(
                later,
                await self._probabilities(await trainer.publish_policy(), prompts),
                "the first update after resuming differs; save the optimizer's state as well",
            )

    @contract(needs="merges-spans")
    async def test_merged_records_train_as_single_ones(self) -> None:
        """One sequence with two spans has the gradient of the two records it stands for."""
        resumes = "resumes" in self.capabilities()
        options = {"checkpoint_dir": "checkpoints"} if resumes else {}
        async with self.subject(**options) as trainer:
            policy = await trainer.publish_policy()
            prompt = self._prompt(policy)
            first = next(g for g in await draw(policy, prompt, 64) if g.stop_reason == "length")
            longer = [*prompt, *tokens_of([first])[0]]
            (second,) = await draw(policy, longer, 1, max_tokens=2)
            if resumes:  # another learner may begin with other weights
                options["resume_from"] = await trainer.save_state("start")
        single = [record(prompt, [(first, 1.0)]), record(longer, [(second, -0.5)])]
        both = [record(prompt, [(first, 1.0), (second, -0.5)])]

        async def trained(records: list[ActorRecord]) -> Probabilities:
            async with self.subject(**options) as learner:
                await learner.update(batch(learner, records, 0))
                return await self._probabilities(await learner.publish_policy(), [prompt, longer])

        found = await trained(single), await trained(both)
        if _gap(*found) > self.tolerance:
            self._same(found[0], await trained(single), self._not_reproducible(resumes))
        self._same(
            *found,
            "a merged record trained otherwise than its edges; sum the loss over tokens, each with "
            "its own advantage, or drop the capability 'merges-spans'",
        )

    # What they share

    def _prompt(self, policy: Policy) -> list[int]:
        return [int(token) for token in policy.prepare(self.messages()).tokens]

    async def _foreign_records(self, policy: Policy, *, nats: float) -> list[ActorRecord]:
        """Records whose log probabilities another policy might have given."""
        prompt = self._prompt(policy)
        said = await draw(policy, prompt, 8, max_tokens=2)
        foreign = [
            Generation(g.tokens, [value - nats for value in g.logprobs], g.stop_reason)
            for g in said
        ]
        return [record(prompt, [(generation, 1.0)]) for generation in foreign]

    async def _random_records(self, policy: Policy, seed: int = 0) -> list[ActorRecord]:
        """Some records of one prompt, with advantages of both signs."""
        prompt = self._prompt(policy)
        said = await draw(policy, prompt, 6, max_tokens=4, seed=seed)
        return [
            record(prompt, [(generation, advantage)], edge)
            for edge, (generation, advantage) in enumerate(
                zip(said, (1.0, -1.0, 0.5, -0.25, 0.75, -0.5), strict=True)
            )
        ]

    async def _probabilities(self, policy: Policy, prompts: Sequence[list[int]]) -> Probabilities:
        found = {}
        for place, prompt in enumerate(prompts):
            _, logprobs = await first_logprobs(policy, prompt, self.samples)
            found.update({(place, token): value for token, value in logprobs.items()})
        return found

    def _not_reproducible(self, resumes: bool) -> str:
        """What to mend when two learners make different policies of the same records."""
        if resumes:
            return "resumed twice from one saved state, the same records trained to two policies"
        seed = "seed" in options_of(self.spec.load() if self.spec else type(self.subject()))
        return (
            "two fresh trainers made different policies of the same records, so merged and single "
            "records cannot be compared; "
            + ("set trainer.seed, so that all" if seed else "let all fresh trainers")
            + " begin with the same weights"
        )

    def _same(self, one: Probabilities, other: Probabilities, otherwise: str) -> None:
        gap = _gap(one, other)
        require(gap <= self.tolerance, f"{otherwise} (log probabilities differ by {gap:.3g})")


def _gap(one: Probabilities, other: Probabilities) -> float:
    """Largest difference where both know the log probability."""
    return max((abs(one[key] - other[key]) for key in one.keys() & other.keys()), default=math.inf)


@contextlib.contextmanager
def _raises(otherwise: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        return
    raise Broken(otherwise)
