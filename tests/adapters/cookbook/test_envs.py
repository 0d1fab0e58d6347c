"""Cookbook environments as FOCUS's: exact prompts, branching by replay, group rewards, cleanup."""

import asyncio
import copy
import pickle
import re

import pytest
import tinker
from focus_adapter_cookbook import CookbookEnv, DivergenceError, PromptOverflowError
from tinker_cookbook.rl.rollout_limits import RolloutLimits
from tinker_cookbook.rl.types import InitialObservationOverflow

from focus_core import (
    Agent,
    CollectionError,
    Collector,
    Critic,
    Fifo,
    Gaussian,
    Independent,
    Problem,
    Segments,
    Selective,
    Turns,
    UsageError,
)
from focus_core.lanes import export_actor
from focus_core.testing import EnvContract, RandomPolicy
from focus_core.tree.tree import ROOT, TERMINAL
from tests.adapters.cookbook.cookbook_kit import PROMPT, TalkEnv, TalkGroup, worth


class TestContract(EnvContract):
    def subject(self):
        return CookbookEnv(TalkGroup(), self.policy().decode, 4)


class Listening(RandomPolicy):
    """Keeps what it is asked; cannot render, as it must not be asked to."""

    def __init__(self, **options):
        super().__init__(**options)
        self.asked = []

    def prepare(self, messages):
        raise AssertionError("prompts are the environment's own")

    async def generate(self, tokens, params, n=1):
        self.asked.append((list(tokens), params))
        return await super().generate(tokens, params, n)


def collected(group, *, segment=2, most=4, search=None, policy=None, **options):
    """A tree of an environment's; prepared if nothing failed."""
    policy = policy or Listening(end=0.2)
    env = CookbookEnv(group, policy.decode, most, **options)
    collector = Collector(
        Agent(policy, env, context=Segments(segment)),
        critic=Critic.constant(0.5),
        search=search or Selective(budget=20, warmup=10, max_concurrency=3),
        calibration=Gaussian(),
    )

    async def run():
        async with collector:
            return await collector.collect(Problem("", id="p"), key=(0,))

    return asyncio.run(run())


def paths(tree):
    """Actions of each finished rollout, by leaf."""
    found = {}
    for leaf in tree.edges():
        if tree.kind[leaf] == TERMINAL:
            actions, turn = [], []
            for node in tree.path(leaf)[1:]:
                turn += tree.generated(node)[0].tolist()
                if node == leaf or tree.ends_turn(node):
                    actions.append(tuple(turn))
                    turn = []
            found[leaf] = actions
    return found


@pytest.mark.parametrize("forget", [False, True])
def test_prompts_are_observations_token_for_token(forget):
    group, policy = TalkGroup(lambda: TalkEnv(3, forget=forget)), Listening(end=0.2)
    tree = collected(group, policy=policy).tree
    assert tree.prefix(ROOT).tolist() == list(PROMPT)
    for leaf, actions in paths(tree).items():
        sequence, said = list(PROMPT), []
        turns = [node for node in tree.path(leaf)[1:] if tree.ends_turn(node)]
        for node, action in zip(turns, actions, strict=False):
            said.append(action)
            sequence = [*PROMPT, 9, len(said)] if forget else [*sequence, *action, 9]
            assert tree.prefix(node).tolist() == sequence
            assert bool(tree.fresh[node]) is forget


def test_an_action_is_a_whole_turn_however_it_was_cut():
    group = TalkGroup()
    collection = collected(group, segment=3, most=7, search=Independent(12))
    assert not collection.failures
    seen = [pair for env in group.envs for pair in zip(env.seen, env.reasons, strict=True)]
    assert {reason for _, reason in seen} == {"stop", "length"}
    for action, reason in seen:
        assert len(action) == 7 if reason == "length" else action[-1] == 0
        assert 0 not in action[:-1]
        assert len(action) <= 7


def test_every_branch_earns_what_its_own_history_is_worth():
    group = TalkGroup(lambda: TalkEnv(3))
    collection = collected(group, search=Selective(budget=60, warmup=20, max_concurrency=4))
    tree = collection.tree
    assert not collection.failures
    assert sum(len(below) > 1 for below in tree.children()) > 3, "it did branch"
    for leaf, actions in paths(tree).items():
        expected = sum(worth(actions[:count]) for count in (1, 2, 3))
        assert sum(tree.reward[node] for node in tree.path(leaf)) == pytest.approx(expected)
    collection.prepare()
    assert export_actor(collection)


def test_environments_that_did_not_act_are_used_before_others_are_made():
    group = TalkGroup(size=4)
    collection = collected(group, search=Independent(6))
    assert collection.counts["continuations"] == 6
    assert len(group.made) == 2
    assert sum(bool(env.seen) for env in group.envs) == 6


class Drifting(TalkEnv):
    """Its second answer depends on how many environments there were before."""

    born = 0

    def __init__(self, turns=3, *, what="reward"):
        super().__init__(turns)
        type(self).born += 1
        self.number, self.what = type(self).born, what

    async def initial_observation(self):
        if self.what == "prompt":
            self.prompt = [*self.prompt, self.number]
        return await super().initial_observation()

    async def step(self, action, *, extra=None):
        result = await super().step(action, extra=extra)
        if len(self.seen) == 2 and self.what == "reward":
            result.reward += self.number
        if len(self.seen) == 1 and self.what == "observation":
            result.next_observation = tinker.ModelInput.from_ints([self.number])
        if len(self.seen) == 1 and self.what == "stop":
            result.next_stop_condition = [self.number]
        return result


@pytest.mark.parametrize(
    ("what", "step", "said"),
    [
        ("reward", 2, r"replaying action 2 of 2, gave reward .*, then "),
        ("observation", 1, r"replaying action 1 of \d, gave another observation"),
        ("stop", 1, r"replaying action 1 of \d, gave another stop condition"),
        ("prompt", 0, r"a fresh Drifting began with another observation"),
    ],
)
def test_an_environment_that_cannot_be_repeated_is_found_out(what, step, said):
    collection = collected(
        TalkGroup(lambda: Drifting(what=what)),
        search=Fifo(budget=200, max_concurrency=1),
    )
    errors = [failure.error for failure in collection.failures]
    assert errors
    for error in errors:
        assert isinstance(error, DivergenceError)
        assert error.step == step
        assert re.search(said, str(error))
    again = pickle.loads(pickle.dumps(errors[0]))
    assert (str(again), again.step) == (str(errors[0]), errors[0].step)


def test_without_branching_it_does_not_matter():
    group = TalkGroup(lambda: Drifting(what="reward"))
    collection = collected(group, search=Independent(5), branch=False)
    assert not collection.failures
    assert len(collection.returns) == 5


class Copyable(TalkEnv):
    def __copy__(self):
        other = type(self)(self.turns)
        other.seen, other.reasons = list(self.seen), list(self.reasons)
        other.prompt = list(self.prompt)
        return other


@pytest.mark.parametrize("how", ["__copy__", "copy_env"])
def test_what_can_be_copied_is_not_replayed(how):
    steps = []

    def counted(kind):
        class Counted(kind):
            async def step(self, action, *, extra=None):
                steps.append(action)
                return await super().step(action, extra=extra)

        return Counted

    kind = counted(Copyable if how == "__copy__" else TalkEnv)
    options = {} if how == "__copy__" else {"copy_env": copy.deepcopy}
    collection = collected(
        TalkGroup(lambda: kind(3)),
        search=Selective(budget=40, warmup=20, max_concurrency=2),
        **options,
    )
    tree = collection.tree
    assert not collection.failures
    assert any(len(below) > 1 for below in tree.children()[1:])
    ends = sum(tree.ends_turn(node) or tree.kind[node] == TERMINAL for node in tree.edges())
    # A turn that was branched within is the action of each branch; nothing else acts again.
    assert len(steps) == ends
    for leaf, actions in paths(tree).items():
        assert sum(tree.reward[n] for n in tree.path(leaf)) == pytest.approx(
            sum(worth(actions[:count]) for count in (1, 2, 3))
        )


# The group --------------------------------------------------------------------------------------


def ranked(trajectories):
    """Rewards that compare: the longest says most."""
    lengths = [sum(len(t.ac.tokens) for t in one.transitions) for one in trajectories]
    return [(float(length == max(lengths)) * 10, {"length": length}) for length in lengths]


@pytest.mark.parametrize("search", [Independent(5), Selective(budget=20, warmup=10)])
def test_rewards_of_the_group_are_added_once_it_is_whole(search):
    group = TalkGroup(rewards=ranked)
    collection = collected(group, search=search)
    tree, found = collection.tree, paths(collection.tree)
    ((trajectories, envs),) = group.judged
    assert len(trajectories) == len(found)
    for trajectory, env, (leaf, actions) in zip(trajectories, envs, found.items(), strict=True):
        assert env.seen == actions == [tuple(t.ac.tokens) for t in trajectory.transitions]
        assert trajectory.transitions[0].ob.to_ints() == list(PROMPT)
        assert [t.episode_done for t in trajectory.transitions] == [False, True]
        assert trajectory.stop_reason == "completed"
        path = tree.path(leaf)[1:]
        own = [float(p) for node in path for p in tree.generated(node)[1]]
        assert [p for t in trajectory.transitions for p in t.ac.logprobs] == pytest.approx(own)
        said = sum(map(len, actions))
        best = said == max(sum(map(len, each)) for each in found.values())
        total = sum(tree.reward[node] for node in path)
        assert total == pytest.approx(worth(actions[:1]) + worth(actions) + 10 * best)


@pytest.mark.parametrize("rewards", [lambda found: [], lambda found: 1 / 0])
def test_rewards_of_the_group_that_are_none_fail_the_collection(rewards):
    group = TalkGroup(rewards=rewards)
    with pytest.raises(CollectionError, match=r"problem 'p': CookbookEnv\.conclude"):
        collected(group)
    assert group.cleaned


def test_every_group_is_cleaned_up_whatever_happens():
    class Breaking(TalkEnv):
        async def step(self, action, *, extra=None):
            raise OSError("gone")

    for make in (TalkEnv, Breaking):
        group = TalkGroup(make, size=1)
        collected(group)
        assert len(group.cleaned) == len(group.made) > 1


def test_a_failing_cleanup_is_told_after_all_were_tried():
    class Sticky(TalkGroup):
        async def cleanup(self):
            await super().cleanup()
            raise OSError(f"stuck {len(self.cleaned)}")

    group = Sticky(size=1)
    with pytest.raises(OSError, match="stuck 1"):
        collected(group, search=Independent(3))
    assert len(group.cleaned) == 3


def test_each_group_has_a_builder_of_its_own():
    """Some builders forget an earlier group's resources when they make another."""

    class Forgetful(TalkGroup):
        async def make_envs(self):
            self.newest = await super().make_envs()
            return self.newest

        async def cleanup(self):
            for env in self.newest:
                env.freed = True

    group = Forgetful(size=2)
    collected(group, search=Independent(6))
    assert all(env.freed for env in group.envs)


# Limits and what FOCUS cannot take --------------------------------------------------------------


def test_a_prompt_that_is_too_long_is_an_error_of_its_own():
    class Full(TalkEnv):
        async def initial_observation(self):
            return InitialObservationOverflow(-0.1, logs={"why": "5000 tokens"})

    collection = collected(TalkGroup(Full))
    (failure,) = collection.failures
    assert isinstance(failure.error, PromptOverflowError)
    assert "the first prompt is too long (5000 tokens)" in str(failure.error)
    assert not collection.returns


@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [
        ({"max_turns": 2}, "max_turns", 2),
        ({"max_trajectory_tokens": 9}, "max_tokens", None),
        ({"max_sampled_tokens": 6}, "max_sampled_tokens", None),
    ],
)
def test_budgets_of_the_environment_are_kept(limits, reason, turns):
    made = RolloutLimits(**limits)
    group, policy = TalkGroup(lambda: TalkEnv(50, limits=made)), Listening(end=0.2)
    collection = collected(group, policy=policy, search=Independent(8), segment=3)
    assert not collection.failures
    assert collection.environment[f"stop/{reason}"] == [1.0] * 8
    for actions in paths(collection.tree).values():
        sampled = sum(map(len, actions))
        assert turns is None or len(actions) == turns
        assert sampled <= limits.get("max_sampled_tokens", 99)
    for tokens, params in policy.asked:
        assert len(tokens) + params.max_tokens <= limits.get("max_trajectory_tokens", 99)


def test_a_budget_that_the_first_prompt_uses_up_is_told():
    limits = RolloutLimits(max_trajectory_tokens=4)
    (failure,) = collected(TalkGroup(lambda: TalkEnv(limits=limits))).failures
    assert isinstance(failure.error, PromptOverflowError)


def test_stops_are_the_environments_own_at_each_turn():
    class Changing(TalkEnv):
        async def step(self, action, *, extra=None):
            result = await super().step(action, extra=extra)
            result.next_stop_condition = [5]
            return result

    policy = Listening(end=0.01)
    collected(TalkGroup(Changing), policy=policy, search=Independent(4))
    first = {params.stop for tokens, params in policy.asked if 9 not in tokens}
    later = {params.stop for tokens, params in policy.asked if 9 in tokens}
    assert (first, later) == ({(0,)}, {(5,)})


def test_stop_texts_need_a_tokenizer_that_has_them_as_tokens(renderer):
    (failure,) = collected(TalkGroup(lambda: TalkEnv(stop=["<|end|>"]))).failures
    assert "cannot be encoded without a tokenizer" in str(failure.error)
    policy = Listening()
    collected(
        TalkGroup(lambda: TalkEnv(stop=["<|end|>"])), policy=policy, tokenizer=renderer.tokenizer
    )
    assert policy.asked[0][1].stop == (renderer.tokenizer.eos_token_id,)


def test_observations_of_more_than_tokens_are_refused():
    class Seeing(TalkEnv):
        async def initial_observation(self):
            image = tinker.types.ImageChunk(data=b"x", format="png", expected_tokens=3)
            return tinker.ModelInput(chunks=[image]), [0]

    (failure,) = collected(TalkGroup(Seeing)).failures
    assert isinstance(failure.error, UsageError)
    assert "an observation of ImageChunk is not tokens alone" in str(failure.error)


def test_a_system_prompt_cannot_come_before_tokens():
    policy = RandomPolicy()
    env = CookbookEnv(TalkGroup(), policy.decode, 4)
    agent = Agent(policy, env, system_prompt="1", context=Turns(4))
    with pytest.raises(UsageError, match="leave system_prompt out"):
        asyncio.run(agent.first_messages(agent.new_env(None, None), Problem("")))
