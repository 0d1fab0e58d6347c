"""What an environment may have beside reset and step: its prompt as tokens, bounds, endings."""

import asyncio

import pytest

from focus_core import (
    Agent,
    CollectionError,
    Collector,
    Critic,
    Independent,
    Problem,
    Segments,
    Transition,
    Turns,
    UsageError,
)
from focus_core.lanes import export_actor
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.tree.tree import ROOT, TERMINAL


class Exact:
    """Two turns, prompted with tokens that no template would make."""

    first, second = (7, 7), (6,)

    def reset(self, problem):
        self.turns = 0
        return [{"role": "user", "content": "for people", "tokens": self.first}]

    async def step(self, reply):
        self.turns += 1
        if self.turns == 2:
            return Transition(1.0, done=True)
        told = {"role": "user", "content": "for people", "tokens": self.second}
        return Transition(messages=(told,))


class Extending(Exact):
    @property
    def second(self):
        return (*self.first, 4, 0, 9)


@pytest.mark.parametrize("env", [Exact, Extending])
def test_a_message_with_tokens_is_the_prompt(scripted, collect, env):
    policy = scripted([4, 0], [5, 0])
    collection = collect(
        Collector(
            Agent(policy, env(), context=Turns(4)),
            critic=Critic.constant(0.5),
            search=Independent(1),
        )
    )
    second = [7, 7, 4, 0, 9] if env is Extending else [6]
    assert policy.prompts == [[7, 7], second]
    tree = collection.tree
    assert bool(tree.fresh[1]) is (env is Exact)
    records = export_actor(collection.prepare())
    assert [record.tokens.tolist() for record in records] == [[7, 7, 4, 0], [*second, 5, 0]]


def test_a_system_prompt_cannot_come_before_tokens(scripted):
    agent = Agent(scripted(), Exact(), system_prompt="6")
    with pytest.raises(UsageError, match="Exact gives its prompt as tokens"):
        asyncio.run(agent.first_messages(agent.env, Problem("1")))


def test_room_and_stop_bound_a_transition(scripted, collect):
    class Bounded(CountdownEnv):
        stop = (5,)

        @property
        def room(self):
            return self.left

    policy = scripted([4] * 3, [4] * 2, [4])
    agent = Agent(policy, Bounded(3), context=Segments(9))
    collection = collect(Collector(agent, critic=Critic.constant(0.5), search=Independent(1)))
    assert not collection.failures
    assert [params.max_tokens for params in policy.params] == [3, 2, 1]
    assert {params.stop for params in policy.params} == {(5,)}


def test_a_reset_may_be_awaited(collect):
    class Slow(CountdownEnv):
        async def reset(self, problem):
            await asyncio.sleep(0)
            return super().reset(problem)

    agent = Agent(RandomPolicy(), Slow(2), context=Segments(2))
    collection = collect(Collector(agent, critic=Critic.constant(0.5)))
    assert not collection.failures
    assert collection.tree.messages[ROOT] == ({"role": "user", "content": "5"},)


class Judged(CountdownEnv):
    """Compares its rollouts, and can be closed."""

    def __init__(self, steps, more):
        super().__init__(steps)
        self.more, self.seen, self.closed = more, [], 0

    async def conclude(self, rollouts):
        self.seen += rollouts
        return self.more(rollouts)

    async def aclose(self):
        self.closed += 1


def judged(collect, more, **options):
    env = Judged(3, more)
    agent = Agent(RandomPolicy(end=0.2), env, context=Segments(2))
    critic = Critic.constant(0.5)
    return env, lambda: collect(
        Collector(agent, critic=critic, search=Independent(4)), key=(0,), **options
    )


def test_what_comparing_rollouts_adds_is_in_their_returns(collect):
    _, alone = judged(collect, lambda rollouts: [0.0] * len(rollouts))
    env, run = judged(collect, lambda rollouts: range(len(rollouts)))
    before, after = alone(), run()
    assert env.closed == 1
    assert [r.reward for r in env.seen] == after.returns
    assert after.returns == [value + place for place, value in enumerate(before.returns)]
    tree = after.tree
    changed = [n for n in tree.edges() if tree.reward[n] != before.tree.reward[n]]
    assert all(tree.kind[node] == TERMINAL for node in changed)
    assert len(changed) == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (lambda rollouts: [1.0], r"gave \[1\.0\] for 4 rollouts; one number each"),
        (lambda rollouts: [float("nan")] * 4, "one number each"),
        (lambda rollouts: 1 / 0, "ZeroDivisionError"),
        (lambda rollouts: ["x"] * 4, "ValueError"),
    ],
)
def test_a_comparison_that_says_nothing_fails_the_collection(collect, more, said):
    env, run = judged(collect, more)
    with pytest.raises(CollectionError, match=rf"problem 'p': Judged\.conclude.*{said}"):
        run()
    assert env.closed == 1


def test_a_collection_without_a_finished_rollout_compares_none(collect):
    class Breaking(Judged):
        async def step(self, reply):
            raise OSError("gone")

    env = Breaking(3, lambda rollouts: 1 / 0)
    agent = Agent(RandomPolicy(), env, context=Segments(2))
    collection = collect(Collector(agent, critic=Critic.constant(0.5)))
    assert collection.failures
    assert (env.seen, env.closed) == ([], 1)


def test_a_failing_close_still_frees_the_execution(collect):
    class Sticky(Judged):
        async def aclose(self):
            raise OSError("stuck")

    env = Sticky(2, lambda rollouts: [0.0] * len(rollouts))
    collector = Collector(
        Agent(RandomPolicy(), env, context=Segments(2)), critic=Critic.constant(0.5)
    )
    with pytest.raises(OSError, match="stuck"):
        collect(collector)
    assert collector._execution is None
