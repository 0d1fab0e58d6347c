"""Train on this machine; environment, agent, search and critic are those of the Tinker example.

    PYTHONPATH=docs/examples/tinker_math python docs/examples/local_math/train_local.py \
        --model MODEL --problem-file problems.jsonl --steps 3

One JSON object per update is printed; critic records go to --critic-output.
"""

import argparse
import asyncio
import json
from dataclasses import asdict

from focus_adapter_local import LocalTrainer
from focus_task_math import load_problems
from math_training import collector_for

from focus_core import JsonlDirectory, run_schedule


async def main(args):
    """Train, and print one JSON object per update."""
    async with LocalTrainer(model=args.model, learning_rate=args.learning_rate) as trainer:
        await run_schedule(
            trainer,
            load_problems(args.problem_file),
            collector_for,
            steps=args.steps,
            async_depth=args.async_depth,
            critic_sink=JsonlDirectory(args.critic_output),
            on_step=lambda report: print(json.dumps(asdict(report)), flush=True),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="tiny", help="tiny, smollm2, or a directory of a causal language model")
    add("--problem-file", required=True, help="MATH records: problem, and solution or answer")
    add("--steps", type=int, default=3, help="updates, a problem each, over and over")
    add("--async-depth", type=int, choices=(0, 1), default=1, help="0: collect, then update")
    add("--learning-rate", type=float, default=1e-5)
    add("--critic-output", default="critic-targets", help="a file of critic records per batch")
    asyncio.run(main(parser.parse_args()))
