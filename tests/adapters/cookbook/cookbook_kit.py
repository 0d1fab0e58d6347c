"""Doubles for the cookbook: an environment of tokens that talks back, its group, a completer."""

import asyncio
import math
import random

import tinker
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, StepResult

PROMPT = (1, 2, 3)


class TalkEnv(Env):
    """Answers each action with token 9; after ``turns`` actions it is over.

    The reward of an action is the share of even tokens in all that was said, so that it depends on
    the whole history. Each observation extends the sequence before it, unless ``forget`` says
    that it starts anew.
    """

    def __init__(self, turns=2, *, forget=False, stop=(0,), limits=None):
        self.turns, self.forget, self.stop = turns, forget, list(stop)
        self.rollout_limits = limits
        self.seen, self.reasons = [], []
        self.prompt = list(PROMPT)

    async def initial_observation(self):
        return tinker.ModelInput.from_ints(self.prompt), self.stop

    async def step(self, action, *, extra=None):
        await asyncio.sleep(0)
        self.seen.append(tuple(action))
        self.reasons.append(extra["stop_reason"])
        self.prompt = [*PROMPT, 9, len(self.seen)] if self.forget else [*self.prompt, *action, 9]
        done = len(self.seen) == self.turns
        return StepResult(
            reward=worth(self.seen),
            episode_done=done,
            next_observation=tinker.ModelInput.from_ints(self.prompt),
            next_stop_condition=self.stop,
            metrics={"said": len(action), **({"stop/completed": 1.0} if done else {})},
            logs={"last": str(action)},
        )


def worth(actions):
    """Share of even tokens."""
    said = [token for action in actions for token in action]
    return sum(token % 2 == 0 for token in said) / len(said)


class TalkGroup(EnvGroupBuilder):
    """Groups of an environment; counts what it makes and cleans up."""

    def __init__(self, make=TalkEnv, size=2, rewards=None):
        self.make, self.size, self.rewards = make, size, rewards
        self.made, self.cleaned, self.judged = [], [], []

    async def make_envs(self):
        self.made.append([self.make() for _ in range(self.size)])
        return self.made[-1]

    async def compute_group_rewards(self, trajectory_group, env_group):
        self.judged.append((trajectory_group, env_group))
        if self.rewards is None:
            return await super().compute_group_rewards(trajectory_group, env_group)
        return self.rewards(trajectory_group)

    async def cleanup(self):
        self.cleaned.append(len(self.made))

    @property
    def envs(self):
        """All that were made."""
        return [env for group in self.made for env in group]


class Uniform(TokenCompleter):
    """Says tokens of a vocabulary with equal probability."""

    temperature = 1.0

    def __init__(self, tokens=range(8), seed=0, longest=1000):
        self.tokens, self.longest = list(tokens), longest
        self.random = random.Random(seed)
        self.asked = []

    async def __call__(self, model_input, stop, *, max_tokens=None):
        self.asked.append((model_input.to_ints(), stop, max_tokens))
        await asyncio.sleep(0)
        return self.say(stop, min(self.longest, max_tokens or self.longest))

    def say(self, stop, most):
        said = []
        while len(said) < most and not (said and said[-1] in stop):
            said.append(self.random.choice(self.tokens))
        logprob = -math.log(len(self.tokens))
        return TokensWithLogprobs(
            said, [logprob] * len(said), "stop" if said[-1] in stop else "length"
        )


class Unbounded(Uniform):
    """Does not take ``max_tokens``, as some completers do not."""

    async def __call__(self, model_input, stop):
        self.asked.append((model_input.to_ints(), stop, None))
        return self.say(stop, self.longest)
