"""The environment of one MATH problem, and the agent that acts in it.

As a program it lets a model of Tinker try the problems of a file, once each, without training:

    python math_quickstart.py --model MODEL --problem-file problems.jsonl
"""

import argparse
import asyncio
import inspect
import sys
import threading

from focus_adapter_tinker import explain
from focus_task_math import MathEnv, load_problems

from focus_core import Agent, Collector, FocusError, Independent, Segments
from focus_core.recipes import GroupCentered

PROMPT = "Solve the problem step by step, and put the final answer into \\boxed{}."
SEGMENT, REPLY = 256, 2048
"""Tokens of a transition, after which the search may branch, and of a whole reply."""


def make_agent(policy, solution, decode, *, execution=None):
    """An agent whose environment alone knows the reference solution."""
    return Agent(
        policy,
        MathEnv(solution, decode, max_tokens=REPLY),
        system_prompt=PROMPT,
        context=Segments(SEGMENT),
        execution=execution,
    )


async def resolved(made):
    """A client, whether the SDK makes it at once (up to 0.37) or gives a future of it."""
    return await made if inspect.isawaitable(made) else made


async def close(service, status, seconds=10):
    """End the session with how the run went, unless that takes too long; SDK 0.25 has no such call.

    What went wrong before is what the user should hear of, so a server that is gone is only named.
    """
    if not hasattr(service, "close"):
        return
    told = []

    def end():
        try:
            told.append(service.close(status).result())
        except Exception as error:
            print(f"the session was not ended: {explain(error)}", file=sys.stderr)
            told.append(None)

    thread = threading.Thread(target=end, daemon=True)  # the SDK may wait for much longer
    thread.start()
    await asyncio.to_thread(thread.join, seconds)
    if not told:
        print(f"the session was not ended: no answer within {seconds} s", file=sys.stderr)


def run(program):
    """Run a program whose mistakes and failures are told on one line, without the API key."""
    from tinker import TinkerError

    try:
        asyncio.run(program)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except (FocusError, TinkerError) as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        print(f"error: {explain(error)}{notes}", file=sys.stderr)
        sys.exit(1)


async def main(args):
    """One rollout of each problem; prints what the environment paid."""
    import tinker
    from focus_adapter_tinker import TinkerPolicy

    service = tinker.ServiceClient()
    status = "errored"
    try:
        sampler = await resolved(
            await asyncio.to_thread(service.create_sampling_client, base_model=args.model)
        )
        policy = await asyncio.to_thread(TinkerPolicy, sampler, model=args.model)
        for problem in load_problems(args.problem_file):
            agent = make_agent(policy, problem.label, policy.decode)
            one = Collector(agent, search=Independent(1), recipe=GroupCentered())
            async with one as collector:
                collection = await collector.collect(problem)
            print(problem.id, *collection.returns, *collection.failures)
        status = "success"
    except (asyncio.CancelledError, KeyboardInterrupt):
        status = "interrupted"
        raise
    finally:
        await close(service, status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--problem-file", required=True)
    run(main(parser.parse_args()))
