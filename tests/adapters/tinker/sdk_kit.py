"""Duck-typed clients of the SDK in this process, with known times and faults on purpose.

What the real ones do is tested against the loopback; these show what is asked of them, and when.
"""

import asyncio
import types

import attrs
import numpy as np
from tinker.types import TensorData

from focus_core import Agent, Collector, Critic, Problem, ReplyEnv, Segments, Selective, Span
from focus_core.records import ActorRecord

PROBLEMS = [Problem("Compute 2+3.", label="5", id="sum"), Problem("Compute 4+4.", id="more")]


def record(tokens=(1, 2, 3, 4), start=2, advantage=1.0, edge=0, logprob=-0.5):
    """One edge that generated everything from ``start`` on."""
    logprobs = [0.0] * start + [logprob] * (len(tokens) - start)
    spans = [Span(start, len(tokens), advantage, edge)]
    return ActorRecord(tokens, logprobs, spans, {"edge": edge})


def merged():
    """Two edges along one path."""
    spans = [Span(1, 2, 1.0, 0), Span(3, 4, -0.5, 1)]
    return ActorRecord([1, 2, 3, 4], [0, -0.5, 0, -0.25], spans, {})


class Future:
    """What ``*_async`` returns up to 0.37: awaited again for the result."""

    def __init__(self, work):
        self.work = work

    def __await__(self):
        return self.work.__await__()


@attrs.define(eq=False)
class Sampler:
    """Says ``reply`` over and over, each token at ``logprob``, after ``seconds``."""

    tokenizer: object
    version: int = 0
    seconds: float = 0.0
    reply: tuple = (20, 21, 22)
    logprob: float = -0.5
    log: list = attrs.field(factory=list)
    answer: object = None
    """Replaces the answer: a function of (prompt, n, params)."""

    def get_tokenizer(self):
        return self.tokenizer

    async def sample_async(self, prompt, num_samples, sampling_params):
        self.log.append((prompt.to_ints(), num_samples, sampling_params))
        await asyncio.sleep(self.seconds)
        if self.answer is not None:
            return self.answer(prompt, num_samples, sampling_params)
        tokens = list(self.reply[: sampling_params.max_tokens])
        return answer(*[(tokens, [self.logprob] * len(tokens), "length")] * num_samples)


def answer(*sequences):
    """A sample response of (tokens, logprobs, stop reason)."""
    names = ("tokens", "logprobs", "stop_reason")
    made = [types.SimpleNamespace(**dict(zip(names, each, strict=True))) for each in sequences]
    return types.SimpleNamespace(sequences=made)


@attrs.define(eq=False)
class Training:
    """A training client; ``log`` says what was submitted and what was finished, in order."""

    tokenizer: object = None
    seconds: float = 0.0
    sampling_seconds: float = 0.0
    gap: float = 0.0
    """Learner minus behaviour log probability."""
    fail: dict = attrs.field(factory=dict)
    """By operation: an exception to raise, or a function that is awaited before it is done."""
    log: list = attrs.field(factory=list)
    losses: list = attrs.field(factory=list)
    adam: list = attrs.field(factory=list)
    samplers: list = attrs.field(factory=list)
    outputs: object = None
    """Replaces the outputs of a forward and backward pass: a function of the data."""
    metrics: dict = attrs.field(factory=lambda: {"loss:sum": 1.5})
    steps: int = 0

    def submit(self, name, seconds, result):
        self.log.append(f"{name} sent")
        fault = self.fail.get(name)

        async def work():
            if callable(fault) and not isinstance(fault, type | Exception):
                await fault()
            elif fault is not None:
                raise fault
            await asyncio.sleep(seconds)
            self.log.append(f"{name} done")
            return result()

        return Future(asyncio.ensure_future(work()))

    async def forward_backward_async(self, data, loss_fn, loss_fn_config=None):
        self.losses.append((loss_fn, loss_fn_config, data))
        made = self.outputs or (lambda data: [self.logprobs(datum) for datum in data])
        return self.submit(
            "forward_backward",
            self.seconds,
            lambda: types.SimpleNamespace(loss_fn_outputs=made(data), metrics=self.metrics),
        )

    def logprobs(self, datum):
        behaviour = datum.loss_fn_inputs.get("logprobs")
        if behaviour is None:
            behaviour = datum.loss_fn_inputs["weights"]
        return {"logprobs": TensorData.from_numpy(behaviour.to_numpy() + np.float32(self.gap))}

    async def optim_step_async(self, params):
        self.adam.append(params)

        def done():
            self.steps += 1
            return types.SimpleNamespace(metrics=None)

        return self.submit("optim_step", 0.0, done)

    async def save_state_async(self, name, ttl_seconds=None):
        path = f"tinker://run/weights/{name}?ttl={ttl_seconds}"
        return self.submit("save_state", 0.0, lambda: types.SimpleNamespace(path=path))

    def save_weights_and_get_sampling_client(self):
        fault = self.fail.get("snapshot")
        if fault is not None:
            raise fault
        self.samplers.append(
            Sampler(self.tokenizer, version=self.steps, seconds=self.sampling_seconds)
        )
        return self.samplers[-1]


class Length(ReplyEnv):
    """Pays the share of tokens that are even."""

    async def grade(self, text):
        return (len(text) % 7) / 7


def collector_for(policy, problem, *, tokens=6, search=None):
    """A small tree: segments of three tokens."""
    env = Length(policy.decode, max_tokens=tokens)
    agent = Agent(policy, env, context=Segments(3))
    search = search or Selective(budget=2, warmup=2, max_concurrency=1)
    return Collector(agent, critic=Critic.constant(0.3), search=search)
