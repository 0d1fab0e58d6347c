"""The same, with the predictions of a value model that vLLM serves.

    vllm serve VALUE_MODEL --runner pooling
    python train_tinker_vllm.py --model MODEL --problem-file problems.jsonl \
        --critic-url http://localhost:8000 --critic-model VALUE_MODEL

The value model is fitted to the records in --critic-output, and stays the same during a run.
"""

from math_quickstart import run
from math_training import make_collector, math_context
from train_tinker import arguments, main

from focus_core import Critic, VLLMCritic


async def with_critic(args):
    """One client of the value model for the whole run."""
    client = VLLMCritic(base_url=args.critic_url, model=args.critic_model, reduce="last")

    def collector_for(policy, problem):
        critic = Critic.from_fn(client.predict, context=math_context(policy))
        return make_collector(policy, problem.label, critic=critic)

    try:
        await main(args, collector_for)
    finally:
        await client.aclose()


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--critic-url", required=True, help="root of the vLLM server")
    parser.add_argument("--critic-model", required=True, help="its served name")
    run(with_critic(parser.parse_args()))
