"""What fails inside a tree ends in a sample that trains nothing, or an error, and ends."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time

import pytest
from focus_adapter_slime import make_generate, trees
from focus_adapter_slime import router as requests
from focus_adapter_slime.samples import FACTS

from focus_core import CollectionError, DeadlineError, ExecutionError, GradingError
from tests.adapters.slime.router_kit import arguments
from tests.adapters.slime.slime_double import Sample
from tests.adapters.slime.tree_kit import call, collector_for, sample, slime_state, well_formed

QUICK = {"focus_grace": 5, "focus_request_timeout": 20, "focus_deadline": 30}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Attempts follow each other without a pause."""
    monkeypatch.setattr(requests, "_PAUSE", 0.0)


async def ungraded(env, text):
    raise GradingError("the grader cannot read this")


async def died(env, text):
    raise ExecutionError("the worker process died")


async def crashed(env, text):
    raise SystemExit(3)


async def not_a_number(env, text):
    return float("nan")


async def for_ever(env, text):
    await asyncio.sleep(3600)


FAULTS = {
    "500": (None, "500", {}, "status 500"),
    "400": (None, "400", {}, "status 400"),
    "drop": (None, "drop", {}, "failed 4 times"),
    "timeout": (None, "hang", {"focus_request_timeout": 0.3}, r"within 0\.3 s"),
    "missing": (None, "missing", {}, "no output_token_logprobs"),
    "short": (None, "short", {}, "log probabilities"),
    "nan": (None, "nan", {}, "None"),
    "empty": (None, "empty", {}, "without tokens"),
    "garbage": (None, "garbage", {}, "no JSON"),
    "broken off": (None, "abort", {}, "broke a generation off"),
    "ungraded": (ungraded, None, {}, "cannot read this"),
    "grader death": (died, None, {}, "the worker process died"),
    "exit": (crashed, None, {}, "SystemExit"),
    "nan reward": (not_a_number, None, {}, "nan"),
    "slow grader": (for_ever, None, {"focus_deadline": 0.5}, r"longer than 0\.5 s"),
    "straddle": (None, "bump", {}, "weights were updated"),
}


def hook_of(judge, **options):
    return make_generate(
        lambda policy, problem: collector_for(policy, problem, judge=judge), **options
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_failed_tree_is_a_sample_that_slime_removes(router, name):
    judge, fault, changed, message = FAULTS[name]
    if fault:
        router.faults["all"] = fault
    hook, source = hook_of(judge), sample()
    made = call(hook, arguments(router, **QUICK | changed), source)
    assert len(made) == 1, "a list, as every tree"
    well_formed(made[0], source)
    assert made[0].remove_sample
    assert made[0].status is Sample.Status.FAILED
    assert message.replace("\\", "") in made[0].metadata[FACTS]["removed"]
    assert "raw_reward" not in made[0].metadata
    assert hook.counts["failed_trees"] == 1
    assert hook.counts["samples"] == 0
    assert not requests._SHARED, "no connection is left open"


@pytest.mark.parametrize("name", FAULTS)
def test_or_an_error_if_that_is_asked_for(router, name):
    judge, fault, changed, message = FAULTS[name]
    if fault:
        router.faults["all"] = fault
    args = arguments(router, focus_on_failure="raise", **QUICK | changed)
    with pytest.raises((CollectionError, DeadlineError), match=message):
        call(hook_of(judge), args)
    assert not requests._SHARED


def test_a_critic_gets_nothing_of_a_failed_tree(router):
    found = []
    router.faults[5] = "missing"
    call(hook_of(None, critic_sink=found.extend), arguments(router, **QUICK))
    assert not found


def test_what_is_left_of_a_tree_can_be_kept(router):
    router.faults[3] = "missing"
    args = arguments(router, **QUICK)
    made = call(hook_of(None, allow_partial=True), args)
    assert len(made) > 1
    router.clear()
    router.faults[3] = "missing"
    assert len(call(hook_of(None), arguments(router, focus_allow_partial=True, **QUICK))) > 1
    router.faults["all"] = "missing"
    hook = hook_of(None, allow_partial=True)
    (made,) = call(hook, args)
    assert made.remove_sample
    assert made.status is Sample.Status.FAILED, "nothing was left"


def test_a_straddling_tree_can_be_kept_and_is_counted(router):
    router.faults[2] = "bump"
    hook = hook_of(None)
    made = call(hook, arguments(router, focus_straddle="keep", **QUICK))
    assert len(made) > 1
    assert {tuple(each.weight_versions) for each in made} == {("1", "2")}
    late = {each.metadata[FACTS]["straddling"] for each in made}
    assert late == {hook.counts["straddling_generations"]}
    assert hook.counts["straddling_trees"] == 1
    router.clear()
    router.faults[2] = "bump"
    (made,) = call(hook, arguments(router, **QUICK))
    assert made.remove_sample
    assert hook.counts["straddling_trees"] == 2


def test_a_run_of_failures_ends_the_run(router):
    router.faults["all"] = "missing"
    hook, args = hook_of(None), arguments(router, focus_max_failures=3, **QUICK)
    call(hook, args)
    call(hook, args)
    router.faults.clear()
    call(hook, args)
    router.faults["all"] = "missing"
    call(hook, args)
    call(hook, args)
    with pytest.raises(RuntimeError, match="3 trees in a row failed, the last one with Collection"):
        call(hook, args)


# Aborts


@contextlib.contextmanager
def reached():
    """A grader that says when it is at work, and then waits for ever."""
    event = threading.Event()

    async def judge(env, text):
        event.set()
        await asyncio.sleep(3600)

    yield event, judge


def test_an_abort_is_noticed_while_something_else_is_waited_for(router):
    source = sample()
    with reached() as (event, judge), slime_state() as state:
        hook = hook_of(judge)

        async def go():
            task = asyncio.create_task(hook(arguments(router, **QUICK), source, {}))
            await asyncio.to_thread(event.wait, 30)
            state.aborted = True
            return await task

        (made,) = asyncio.run(asyncio.wait_for(go(), 30))
    well_formed(made, source)
    assert made.remove_sample
    assert made.status is Sample.Status.ABORTED
    assert "called this rollout off" in made.metadata[FACTS]["removed"]
    assert hook.counts == {"trees": 1, "aborted_trees": 1}
    assert not requests._SHARED


@pytest.mark.parametrize("on_failure", ["drop", "raise"])
def test_an_abort_is_never_an_error(router, on_failure):
    """Slime waits for what it called off, and looks at no result."""
    router.faults["all"] = "abort"
    with slime_state() as state:
        state.aborted = True
        hook = hook_of(None)
        args = arguments(router, focus_on_failure=on_failure, focus_max_failures=1, **QUICK)
        (made,) = call(hook, args)
        call(hook, args)
    assert made.status is Sample.Status.ABORTED
    assert hook.counts["aborted_trees"] == 2
    assert not router.requests


def test_what_an_abort_broke_off_is_no_partial_tree(router):
    """Servers answer what they had when Slime stopped them; none of it is trained."""
    with slime_state() as state:
        graded = []

        async def judge(env, text):
            graded.append(text)
            if len(graded) <= 2:
                return 1.0
            state.aborted = True
            raise GradingError("too late")

        (made,) = call(hook_of(judge, allow_partial=True), arguments(router, **QUICK))
    assert made.status is Sample.Status.ABORTED


# Nothing waits for ever


def test_a_thread_that_cannot_be_stopped_is_left_behind(router, caplog):
    release, started = threading.Event(), threading.Event()

    def stuck():
        started.set()
        release.wait(60)
        return 1.0

    async def judge(env, text):
        return await env.execution.run(stuck)

    def collecting(policy, problem):
        collector = collector_for(policy, problem, judge=judge)
        collector.agent.env.execution = None
        return collector

    hook = make_generate(collecting)
    args = arguments(router, focus_deadline=1, focus_grace=0.3)

    async def go():
        began = time.monotonic()
        (made,) = await hook(args, sample(), {})
        took = time.monotonic() - began
        assert started.is_set()
        assert len(trees._LEFT) == 1
        release.set()
        while trees._LEFT:
            await asyncio.sleep(0.01)
        return made, took

    made, took = asyncio.run(asyncio.wait_for(go(), 60))
    assert made.remove_sample
    assert took < 30, "far from the 60 s of the thread"
    assert "cannot be stopped" in caplog.text


def test_a_cancelled_hook_leaves_nothing(router):
    with reached() as (event, judge):
        hook = hook_of(judge)

        async def go():
            task = asyncio.create_task(hook(arguments(router, **QUICK), sample(), {}))
            await asyncio.to_thread(event.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert not requests._SHARED

        asyncio.run(go())


def test_a_sink_that_hangs_is_not_waited_for(router):
    release = threading.Event()

    def sink(records):
        release.wait(60)

    hook = hook_of(None, critic_sink=sink)

    async def go():
        try:
            with pytest.raises(DeadlineError):
                await hook(arguments(router, focus_deadline=3, focus_grace=0.2), sample(), {})
        finally:
            release.set()
        while trees._LEFT:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(go(), 60))


# Several processes

WORKER = """
import asyncio, dataclasses, enum, sys, types
from focus_adapter_slime import make_generate
from focus_core import Agent, Collector, Critic, Fifo, JsonlDirectory, ReplyEnv, Segments

@dataclasses.dataclass
class Sample:
    index: int = 0
    rollout_id: int = None
    prompt: str = "x"
    label: str = ""
    tokens: list = None
    response: str = ""
    response_length: int = 0
    loss_mask: list = None
    rollout_log_probs: list = None
    reward: float = None
    remove_sample: bool = False
    status: object = None
    metadata: dict = None
    Status = enum.Enum("Status", ["COMPLETED", "FAILED", "ABORTED"])

class Letters:
    chat_template, eos_token_id, all_special_ids = "x", 1, (1,)
    def apply_chat_template(self, messages, tokenize=True, **_):
        return [1, 2] if tokenize else str(messages)
    def encode(self, text, add_special_tokens):
        return [3]
    def decode(self, tokens, **_):
        return "x" * 2000 + "".join(chr(97 + token % 26) for token in tokens)

class Single(type):
    _instances = {}

class GenerateState(metaclass=Single):
    pass

Single._instances[GenerateState] = types.SimpleNamespace(aborted=False, tokenizer=Letters())
sys.modules["slime.rollout.sglang_rollout"] = types.SimpleNamespace(GenerateState=GenerateState)

class Parity(ReplyEnv):
    async def grade(self, text):
        return float(len(text) % 2)

def collector_for(policy, problem):
    agent = Agent(policy, Parity(policy.decode, 6), context=Segments(2))
    return Collector(agent, critic=Critic.constant(0.5), search=Fifo(budget=8, max_concurrency=2))

folder, port, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hook = make_generate(collector_for, critic_sink=JsonlDirectory(folder))
args = types.SimpleNamespace(sglang_router_ip="127.0.0.1", sglang_router_port=port)
print("ready", flush=True)
sys.stdin.readline()

async def main():
    trees = await asyncio.gather(*(hook(args, Sample(first + place)) for place in range(4)))
    assert all(not each.remove_sample for tree in trees for each in tree), trees

asyncio.run(main())
print(hook.counts["trees"], flush=True)
"""


def test_eight_processes_write_critic_targets_at_once(router, tmp_path):
    folder = tmp_path / "critic"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(router.port), str(100 * number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        assert [worker.communicate(timeout=120)[0] for worker in workers] == ["4\n"] * 8
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    files = sorted(folder.iterdir())
    assert len(files) == 8 * 4, "one for each tree"
    seen = {}
    for file in files:
        lines = file.read_text().splitlines()
        records = [json.loads(line) for line in lines]
        assert all(len(record["context"]) > 2000 for record in records)
        (tree,) = {record["metadata"]["group_index"] for record in records}
        states = [record["metadata"]["edge"] for record in records]
        assert len(set(states)) == len(states)
        assert None in states, "the root is among them"
        seen[tree] = len(records)
    assert sorted(seen) == sorted(100 * number + place for number in range(8) for place in range(4))
