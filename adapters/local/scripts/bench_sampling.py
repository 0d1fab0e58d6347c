"""Tokens per second of batched sampling, against the bare transformers model at the same batch.

Every row samples exactly ``--tokens`` tokens after a prompt of ``--prompt`` tokens, end tokens
ignored, so that all three do the same work: ``generate`` of transformers, a hand-written loop
over its forward pass and dynamic cache, and a LocalPolicy with that many concurrent requests.

    python adapters/local/scripts/bench_sampling.py --model tiny --batch 1 8 32
"""

from __future__ import annotations

import argparse
import asyncio
import time

import torch
from focus_adapter_local import LocalTrainer

from focus_core import SamplingParams


def generate(model: torch.nn.Module, ids: torch.Tensor, tokens: int) -> None:
    """What transformers offers."""
    mask = torch.ones_like(ids)
    model.generate(
        ids,
        attention_mask=mask,
        do_sample=True,
        top_k=0,
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        pad_token_id=0,
    )


@torch.inference_mode()
def loop(model: torch.nn.Module, ids: torch.Tensor, tokens: int) -> None:
    """The least that samples with log probabilities."""
    output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    for _ in range(tokens):
        logprobs = torch.log_softmax(output.logits[:, -1].float(), -1)
        chosen = torch.multinomial(logprobs.exp(), 1)
        logprobs.gather(-1, chosen).tolist()
        cache = getattr(output, "cache", None) or output.past_key_values
        name = "cache" if hasattr(output, "cache") else "past_key_values"
        output = model(input_ids=chosen, use_cache=True, logits_to_keep=1, **{name: cache})


async def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    async with LocalTrainer(
        model=options.model, max_sampling_batch=max(options.batch), threads=options.threads
    ) as trainer:
        policy = await trainer.publish_policy()
        snapshot, engine = policy._snapshot, policy._engine
        text = policy.prepare([{"role": "user", "content": "1+2+3+4"}]).tokens
        prompt = (list(text) * options.prompt)[: options.prompt]
        print(f"{'batch':>6} {'generate':>9} {'loop':>9} {'focus':>9}  tokens/s, best of runs")
        for batch in options.batch:
            ids = torch.tensor([prompt] * batch)
            params = SamplingParams(max_tokens=options.tokens)
            best = [float("inf")] * 3
            for _ in range(options.repeat):
                for which, run in enumerate((generate, loop)):
                    start = time.perf_counter()
                    run(snapshot.model, ids, options.tokens)
                    best[which] = min(best[which], time.perf_counter() - start)
                start = time.perf_counter()
                await asyncio.gather(
                    *(
                        engine.sample(
                            snapshot,
                            tokens=ids[row].int().numpy(),
                            params=params,
                            stops=(-1,),
                            limit=options.tokens,
                            n=1,
                        )
                        for row in range(batch)
                    )
                )
                best[2] = min(best[2], time.perf_counter() - start)
            rates = "".join(f" {batch * options.tokens / each:9.0f}" for each in best)
            print(f"{batch:6d}{rates}")


if __name__ == "__main__":
    asyncio.run(main())
