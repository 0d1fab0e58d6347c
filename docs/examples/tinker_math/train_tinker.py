"""Train a LoRA adapter on Tinker, collecting the next batch while the learner updates on this one.

    python train_tinker.py --model MODEL --problem-file problems.jsonl --steps 3 --async-depth 1

A dry run needs no account: start ``python -m focus_adapter_tinker.loopback --port 8000``, and set
TINKER_BASE_URL=http://127.0.0.1:8000 and TINKER_API_KEY=tml-loopback.
"""

import argparse
import asyncio
import json
from dataclasses import asdict

from focus_adapter_tinker import train
from focus_task_math import load_problems
from math_quickstart import close, resolved, run
from math_training import collector_for

from focus_core import JsonlDirectory


def arguments():
    """The command line, shared by the variants of this program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", required=True, help="Tinker's name of the base model")
    add("--problem-file", required=True, help="MATH records: problem, and solution or answer")
    add("--steps", type=int, default=3, help="updates, a problem each, over and over")
    add("--async-depth", type=int, choices=(0, 1), default=1, help="0: collect, then update")
    add("--learning-rate", type=float, default=1e-5)
    add("--critic-output", default="critic-targets", help="a file of critic records per batch")
    add("--resume-from", metavar="STATE", help="a printed training checkpoint to continue from")
    return parser


async def open_client(service, args):
    """A new adapter, or a saved one with its optimizer."""
    if args.resume_from:
        make = service.create_training_client_from_state_with_optimizer
        return await resolved(await asyncio.to_thread(make, args.resume_from))
    make = service.create_lora_training_client
    return await resolved(await asyncio.to_thread(make, base_model=args.model, rank=32))


async def main(args, collector_for=collector_for):
    """Train, save weights and optimizer, and end the session with how it went."""
    import tinker

    problems = load_problems(args.problem_file)
    service = tinker.ServiceClient()
    status = "errored"
    try:
        training = await open_client(service, args)
        await train(
            training,
            model=args.model,
            problems=problems,
            collector_for=collector_for,
            steps=args.steps,
            async_depth=args.async_depth,
            learning_rate=args.learning_rate,
            profile="token_chunk",  # the model has no tools; a reply is read segment by segment
            critic_sink=JsonlDirectory(args.critic_output),
            on_step=lambda report: print(json.dumps(asdict(report)), flush=True),
        )
        saved = await training.save_state(name=f"after-{args.steps}-updates")
        print(f"Training checkpoint: {saved.path}")
        print(f"Critic targets: {args.critic_output}")
        status = "success"
    except (asyncio.CancelledError, KeyboardInterrupt):
        status = "interrupted"
        raise
    finally:
        await close(service, status)


if __name__ == "__main__":
    run(main(arguments().parse_args()))
