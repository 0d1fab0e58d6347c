"""A collection with a fault at any await."""

import asyncio

from focus_core import (
    Agent,
    Collector,
    Critic,
    Independent,
    Problem,
    Segments,
)
from focus_core.testing import CountdownEnv, RandomPolicy

NEVER = 3600


class Faulty:
    """Counts calls, and at the chosen ones raises, hangs or answers something else."""

    def __init__(self, faults):
        self.faults = faults
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        fault = self.faults.get(self.calls)
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            await asyncio.sleep(fault)


class Policy(RandomPolicy):
    def __init__(self, faults=None, **options):
        super().__init__(**{"end": 0.0, "seed": 1, **options})
        self.fault = Faulty(faults or {})

    async def generate(self, tokens, params, n=1):
        await self.fault()
        return await super().generate(tokens, params, n)


class Environment(CountdownEnv):
    fault = None

    async def step(self, reply):
        if self.fault is not None:
            await self.fault()
        return await super().step(reply)


def make(*, generation=None, step=None, prediction=None, steps=3, **options):
    """A collector with faults at the given calls of each kind."""
    env = Environment(steps)
    env.fault = Faulty(step or {})
    asked = Faulty(prediction or {})

    async def fn(text):
        await asked()
        return 0.5

    options.setdefault("search", Independent(3, max_concurrency=1))
    agent = Agent(Policy(generation), env, context=Segments(1))
    return Collector(agent, critic=Critic.from_fn(fn), **options)


def grow(collector, **options):
    """Collect, and hold that nothing this started still runs."""

    async def run():
        before = asyncio.all_tasks()
        async with collector:
            collection = await collector.collect(Problem("5", id="p"), **options)
            assert asyncio.all_tasks() == before, "tasks are left"
        return collection

    return asyncio.run(asyncio.wait_for(run(), 5))


def alive(collection):
    return [list(collection.tree.launch)[edge] for edge in collection.tree.edges()]
