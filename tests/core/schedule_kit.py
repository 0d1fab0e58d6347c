"""A scripted world for the schedule: a clock that jumps, and parts whose times and faults are set.

Time is virtual: whenever nothing is ready, it jumps to the next timer. So a run with durations in
minutes takes milliseconds and its order is exact. Work handed to threads runs in the loop, after
``thread_seconds`` (a number, or a function of the work's name), whether or not anybody still waits
for it, as a real thread would.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections import Counter

from focus_core import (
    Agent,
    Collector,
    Critic,
    Generation,
    Independent,
    PreparedPrompt,
    Problem,
    Transition,
    run_schedule,
)

PROBLEMS = [Problem(str(i), id=f"p{i}") for i in range(3)]


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, thread_seconds=0.0):
        self.now = 0.0
        self.thread_seconds = thread_seconds
        self.threads = 0
        self.complaints = []
        super().__init__(_Jumping(self))
        self.set_exception_handler(lambda loop, context: self.complaints.append(context))

    def time(self):
        return self.now

    def run_in_executor(self, executor, function, *args):
        future = self.create_future()

        def work():
            self.threads -= 1
            try:
                result, error = function(*args), None
            except BaseException as caught:
                result, error = None, caught
            if not future.cancelled():
                future.set_exception(error) if error else future.set_result(result)

        self.threads += 1
        seconds = self.thread_seconds
        if callable(seconds):  # to_thread runs context.run(sendable, function)
            seconds = seconds(function.args[1].__name__)
        self.call_later(seconds, work)
        return future


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop):
        super().__init__()
        self.loop = loop

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("deadlock: no task is ready and no timer is set")
        self.loop.now += timeout
        return super().select(0)


def run_virtual(main, *, thread_seconds=0.0):
    """Run a coroutine function; whatever way it ends, it leaves no task and no thread behind."""

    async def checked():
        loop = asyncio.get_running_loop()
        try:
            return await main()
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left: {left}"
            assert not loop.threads, f"{loop.threads} threads left"

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(thread_seconds)) as runner:
        loop = runner.get_loop()
        try:
            return runner.run(checked())
        finally:
            gc.collect(1)  # a lost task complains when it is freed
            assert not loop.complaints, loop.complaints


class Injected(Exception):
    """A fault; its argument is the point it was set at."""


class World:
    """Trainer, task and sink of one run, and the log of everything that happened.

    ``log`` holds (time, what, ...) tuples. A fault is set at a point: ``(what, number)`` such as
    ``("update", 1)`` or ``("step", 0, 1)`` (batch 0, tree 1); the log says when it went off.

    Args:
        collect: Seconds of the tree at (batch, place).
        update, publish, save, measure: Seconds of the call with that number.
        faults: Points that raise.
        skips: Batches without a training signal.
        unwind: Seconds that cancelled work takes to end.
    """

    def __init__(
        self,
        *,
        collect=lambda batch, place: 1.0,
        update=lambda batch: 1.0,
        publish=lambda count: 0.0,
        save=lambda count: 0.0,
        measure=lambda count: 0.0,
        faults=(),
        skips=(),
        unwind=0.0,
        per_step=1,
        start_batch=0,
    ):
        self.seconds = {"update": update, "publish": publish, "save": save, "evaluate": measure}
        self.collect, self.faults, self.skips = collect, set(faults), set(skips)
        self.unwind, self.per_step, self.start_batch = unwind, per_step, start_batch
        self.log, self.policies, self.batches, self.delivered = [], [], [], []
        self.updates_done, self.seeds = 0, []
        self.count = Counter()

    # The script ---------------------------------------------------------------------------

    def note(self, *event):
        self.log.append((asyncio.get_running_loop().time(), *event))

    def point(self, *point):
        """Raise if a fault is set here."""
        if point in self.faults:
            self.note("fault", point)
            raise Injected(point)

    async def spend(self, seconds, *point):
        self.note(*point, "begins")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(self.unwind)
            self.note(*point, "cancelled")
            raise
        self.point(*point)
        self.note(*point, "ends")

    async def call(self, what):
        """One numbered call of something that takes a while."""
        number = self.count[what]
        self.count[what] += 1
        await self.spend(self.seconds[what](number), what, number)
        return number

    def when(self, *event):
        """The time of the only such event."""
        (time,) = [t for t, *rest in self.log if tuple(rest) == event]
        return time

    def times(self, what, how):
        """The times of such events, by their numbers."""
        return {e[2:-1]: e[0] for e in self.log if e[1] == what and e[-1] == how}

    def order(self):
        return [tuple(rest) for _, *rest in self.log]

    # Trainer ------------------------------------------------------------------------------

    capabilities = frozenset()

    async def publish_policy(self):
        await self.call("publish")
        self.policies.append(Policy(self, self.updates_done))
        return self.policies[-1]

    def convert(self, records):
        stamps = {(r.metadata["training"]["batch"], r.metadata["group_index"]) for r in records}
        for stamp in stamps:
            self.point("convert", *stamp)
        return [record.to_dict() for record in records]

    async def update(self, batch):
        assert all(not p.closed for p in self.policies if p.users), "a policy in use was closed"
        await self.spend(self.seconds["update"](batch.index), "update", batch.index)
        self.batches.append(batch)
        self.updates_done += 1
        return {"loss": 0.5}

    async def save_state(self, name):
        await self.call("save")
        return name

    # Task ---------------------------------------------------------------------------------

    def collector_for(self, policy, problem):
        number = self.count["tree"]
        self.count["tree"] += 1
        batch, place = divmod(number, self.per_step)
        batch += self.start_batch
        self.note("tree", batch, place, policy.version, problem.id)
        self.point("collector_for", batch, place)
        return Collector(
            Agent(policy, Env(self, policy, batch, place)),
            critic=Critic.constant(0.5),
            search=Independent(1),
        )

    # The rest -----------------------------------------------------------------------------

    def sink(self, records):
        batch = records[0]["metadata"]["training"]["batch"]
        self.point("sink", batch)
        self.note("sink", batch)
        self.delivered.append(records)

    async def evaluate(self, policy):
        assert not policy.closed
        policy.users += 1
        try:
            number = await self.call("evaluate")
        finally:
            policy.users -= 1
        return {"eval/number": number, "eval/version": policy.version}

    def saved(self, reference, progress):
        self.point("saved", progress.batch)
        self.note("saved", reference, progress)

    def on_step(self, report):
        self.point("on_step", report.batch)
        self.note("on_step", report.batch)

    def schedule(self, steps, **options):
        """``run_schedule`` in this world, not yet awaited."""
        options = {"critic_sink": self.sink, "on_step": self.on_step, **options}
        return run_schedule(
            self,
            options.pop("problems", PROBLEMS),
            self.collector_for,
            steps=steps,
            problems_per_step=self.per_step,
            **options,
        )

    def run(self, steps, *, thread_seconds=0.0, **options):
        """Run to the end in virtual time."""

        async def main():
            try:
                return await self.schedule(steps, **options)
            finally:
                self.note("returned")

        return run_virtual(main, thread_seconds=thread_seconds)

    def check_end(self):
        """What holds however a run ended."""
        for policy in self.policies:
            assert policy.closed == 1, f"policy {policy.version} was closed {policy.closed} times"
            assert policy.users == 0
        assert self.order()[-1] == ("returned",)
        batches = [records[0]["metadata"]["training"]["batch"] for records in self.delivered]
        assert len(set(batches)) == len(batches), "records were delivered twice"
        trained = [batch.index for batch in self.batches]
        assert trained == sorted(set(trained)), "a batch was trained twice, or out of order"
        begun = {e[:-1] for e in self.order() if e[-1] == "begins"}
        over = {e[:-1] for e in self.order() if e[-1] in ("ends", "cancelled")}
        faulty = {e[1] for e in self.order() if e[0] == "fault"}
        assert begun <= over | faulty, f"begun and never over: {begun - over - faulty}"


class Policy:
    """Says "1 0"; knows whether it is in use."""

    def __init__(self, world, version):
        self.world, self.version = world, version
        self.closed = self.users = 0

    def prepare(self, messages):
        return PreparedPrompt([5, 6])

    def decode(self, tokens):
        assert not self.closed, f"policy {self.version} was closed while in use"
        return " ".join(map(str, tokens))

    async def generate(self, tokens, params, n=1):
        assert not self.closed, f"policy {self.version} was closed while in use"
        self.world.seeds.append(params.seed)
        return [Generation([1, 0], [-0.5, -0.25], "stop")] * n

    async def aclose(self):
        assert not self.users, f"policy {self.version} was closed while in use"
        self.closed += 1
        self.world.note("close", self.version)
        self.world.point("close", self.version)


class Env:
    """One transition that takes the tree's seconds; no signal in a batch to be skipped."""

    forkable = False

    def __init__(self, world, policy, batch, place):
        self.world, self.policy, self.batch, self.place = world, policy, batch, place

    def reset(self, problem):
        return ({"role": "user", "content": problem.prompt},)

    async def step(self, reply):
        world = self.world
        self.policy.users += 1
        try:
            seconds = world.collect(self.batch, self.place)
            await world.spend(seconds, "step", self.batch, self.place)
        finally:
            self.policy.users -= 1
        return Transition(0.5 if self.batch in world.skips else 1.0, done=True)


def cause(error):
    """The injected fault behind an error, if any."""
    while error is not None and not isinstance(error, Injected):
        error = error.__cause__
    return error


def steps_of(reports):
    """Batch, behaviour step, learner step and lag of each report."""
    return [(r.batch, r.behavior_step, r.learner_step, r.policy_lag) for r in reports]


def constant(seconds):
    """A duration that depends on nothing."""
    return lambda *_: seconds


def trees(world):
    return [e[1:] for e in world.order() if e[0] == "tree"]
