"""Trees of Slime's samples in tests: an environment with known rewards, and its collectors."""

import asyncio
import contextlib
import sys
import types

import attrs

from focus_core import Agent, Collector, Critic, Fifo, ReplyEnv, Segments
from tests.adapters.slime.slime_double import Sample


class Parity(ReplyEnv):
    """1 for a reply with an even number of characters; ``judge`` may do something else."""

    def __init__(self, decode, max_tokens=12, judge=None):
        super().__init__(decode, max_tokens)
        self.judge = judge

    async def grade(self, text):
        if self.judge is not None:
            return await self.judge(self, text)
        return float(len(text) % 2 == 0)


def collector_for(policy, problem, *, judge=None, search=None, **changed):
    """Two segments or so of four tokens, every state branched twice."""
    agent = Agent(policy, Parity(policy.decode, judge=judge), context=Segments(4))
    collector = Collector(
        agent, critic=Critic.constant(0.5), search=search or Fifo(budget=8, max_concurrency=2)
    )
    return attrs.evolve(collector, **changed)


def sample(index=5, sample_type=Sample, **values):
    """What Slime's data source gives."""
    values = {"group_index": 1, "index": index, "prompt": "Say.", "label": "x"} | values
    return sample_type(**values)


def call(hook, args, given=None, params=None, *, seconds=60, **named):
    """Call a hook as Slime does, and not for ever."""
    coroutine = hook(args, sample() if given is None else given, params or {}, **named)
    return asyncio.run(asyncio.wait_for(coroutine, seconds))


def well_formed(made, source):
    """What Slime's conversion and logger need of every sample."""
    assert type(made.reward) is float
    assert made.status is not Sample.Status.PENDING
    assert made.response_length >= 1
    assert len(made.tokens) > made.response_length, "a prompt of one token or more"
    assert len(made.loss_mask) == len(made.rollout_log_probs) == made.response_length
    assert set(made.loss_mask) <= {0, 1}
    assert (made.index, made.group_index) == (source.index, source.group_index)
    assert made.rollout_id == source.index
    assert made.metadata is not source.metadata
    if made.remove_sample:
        assert not any(made.loss_mask)
        assert made.metadata["focus"]["removed"]


@contextlib.contextmanager
def slime_state(tokenizer=None):
    """Slime's own rollout state, as if its loop ran in this process; yields it."""

    class Single(type):
        _instances = {}  # noqa: RUF012

    class GenerateState(metaclass=Single):
        pass

    state = GenerateState()
    state.aborted, state.tokenizer = False, tokenizer
    Single._instances[GenerateState] = state
    module = types.ModuleType("slime.rollout.sglang_rollout")
    module.GenerateState = GenerateState
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield state
    finally:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before
