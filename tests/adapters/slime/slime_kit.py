"""Trees through Slime's stages and through the local trainer: what the tests of both share."""

import asyncio
import functools
from argparse import Namespace

import attrs
import focus_adapter_slime
import numpy as np
import torch

from focus_core import Agent, Collector, Critic, ReplyEnv, Segments, Selective, Transition
from focus_core.lanes import export_actor, export_merged

PROMPTS = ("SUM 2+3", "4", "A LONGER QUESTION: 17*23")
BUDGETS = {"SUM 2+3": 5, "4": 1, "A LONGER QUESTION: 17*23": 2}
"""Transitions after the warm-up, so that the trees are uneven."""
FAILS, HANGS = "NO GRADE", "GRADED FOR EVER"
"""Prompts whose trees fail, and do not end."""


def make_args(**changes):
    """Slime's arguments as its parser leaves them, as far as they are read, on one CPU."""
    values = {
        "advantage_estimator": "grpo",
        "allgather_cp": False,
        "apply_chat_template": False,
        "apply_chat_template_kwargs": {},
        "balance_by_flops": False,
        "balance_data": False,
        "calculate_per_token_loss": False,
        "ci_test": False,
        "compute_advantages_and_returns": True,
        "context_parallel_size": 1,
        "custom_advantage_function_path": "focus_adapter_slime.advantages",
        "custom_convert_samples_to_train_data_path": None,
        "custom_generate_function_path": "tests.adapters.slime.slime_kit.generate",
        "custom_pg_loss_reducer_function_path": "focus_adapter_slime.sum_policy_tokens",
        "custom_reward_post_process_path": "focus_adapter_slime.preserve_advantages",
        "custom_eval_rollout_log_function_path": None,
        "custom_rm_path": None,
        "custom_rollout_log_function_path": None,
        "dp_size": 1,
        "dynamic_sampling_filter_path": None,
        "entropy_coef": 0.0,
        "eval_datasets": None,
        "eval_max_prompt_len": None,
        "eval_reward_key": None,
        "eps_clip": 0.2,
        "eps_clip_c": None,
        "eps_clip_high": 0.2,
        "get_mismatch_metrics": False,
        "global_batch_size": len(PROMPTS),
        "group_rm": False,
        "hf_checkpoint": None,
        "kl_coef": 0.0,
        "kl_loss_coef": 0.0,
        "load_debug_rollout_data": None,
        "log_passrate": False,
        "log_probs_chunk_size": -1,
        "log_reward_category": None,
        "loss_type": "policy_loss",
        "mask_offpolicy_in_partial_rollout": False,
        "max_tokens_per_gpu": 64,
        "multimodal_keys": None,
        "n_samples_per_prompt": 1,
        "normalize_advantages": False,
        "over_sampling_batch_size": len(PROMPTS),
        "partial_rollout": False,
        "qkv_format": "thd",
        "recompute_loss_function": False,
        "reward_key": None,
        "rewards_normalization": False,
        "rollout_batch_size": len(PROMPTS),
        "rollout_global_dataset": True,
        "rollout_max_response_len": 12,
        "rollout_num_engines": 1,
        "rollout_num_gpus": 1,
        "rollout_num_gpus_per_engine": 1,
        "rollout_all_samples_process_path": None,
        "rollout_sample_filter_path": None,
        "rollout_sample_hook_paths": None,
        "rollout_seed": 1,
        "rollout_skip_special_tokens": False,
        "rollout_stop": None,
        "rollout_stop_token_ids": None,
        "rollout_temperature": 1.0,
        "rollout_top_k": -1,
        "rollout_top_p": 1.0,
        "sglang_dp_size": None,
        "sglang_enable_deterministic_inference": True,
        "sglang_router_ip": None,
        "sglang_router_port": None,
        "sglang_server_concurrency": 16,
        "use_distributed_post": False,
        "use_dynamic_batch_size": True,
        "use_kl_loss": False,
        "use_opd": False,
        "use_opsm": False,
        "use_rollout_entropy": False,
        "use_rollout_logprobs": True,
        "use_tensorboard": False,
        "use_tis": False,
        "use_wandb": False,
        "wandb_always_use_train_step": False,
    }
    return Namespace(**(values | changes))


# Trees


class Even(ReplyEnv):
    """Pays the share of characters whose code is even, so that samples differ in worth."""

    def __init__(self, decode, problem):
        super().__init__(decode, max_tokens=12)
        self.problem = problem

    async def grade(self, text):
        if self.problem.prompt == FAILS:
            raise RuntimeError("the grader died")
        if self.problem.prompt == HANGS:
            await asyncio.sleep(3600)
        return sum(ord(character) % 2 == 0 for character in text) / max(len(text), 1)


class Talk(Even):
    """Answers every segment but the last, so that a sample has tokens nobody generated."""

    async def step(self, reply):
        made = await super().step(reply)
        if made.done:
            return made
        return Transition(messages=({"role": "user", "content": "9"},))


class Recording(Collector):
    """Keeps what it collected, to train the same tree in another way."""

    async def collect(self, problem, **options):
        collection = await super().collect(problem, **options)
        KEPT[problem.prompt] = collection
        return collection


KEPT = {}
"""Collections by prompt."""


def collector_for(policy, problem):
    """A small tree in segments of three tokens, its size by the prompt."""
    env = Talk if problem.prompt == "4" else Even
    agent = Agent(policy, env(policy.decode, problem), context=Segments(3))
    budget = BUDGETS.get(problem.prompt, 1)
    search = Selective(budget=budget, warmup=2, max_concurrency=1)
    return Recording(agent, critic=Critic.constant(0.4), search=search)


async def generate(args, sample, sampling_params=None, evaluation=False):
    """The hook over ``collector_for``, made at the first call."""
    return await hook("make_generate")(args, sample, sampling_params, evaluation=evaluation)


async def evaluate(args, sample, sampling_params=None, evaluation=True):
    """The evaluation's hook over ``collector_for``."""
    return await hook("make_evaluate")(args, sample, sampling_params, evaluation=evaluation)


@functools.cache
def hook(make):
    """What the package makes for ``collector_for``."""
    return getattr(focus_adapter_slime, make)(collector_for)


def records_of(samples, *, merge):
    """The records of every tree that trains, in the order of its samples."""
    prompts = dict.fromkeys(sample.prompt for sample in samples if not sample.remove_sample)
    export = export_merged if merge else export_actor
    return [record for prompt in prompts for record in export(KEPT[prompt])]


def rolled_out(slime, router, *, merge, prompts=(*PROMPTS, FAILS), **changes):
    """Arguments, and one rollout step's samples: uneven trees, and one that trains nothing."""
    count = len(prompts)
    args = make_args(
        sglang_router_ip="127.0.0.1",
        sglang_router_port=router.port,
        hf_checkpoint=router.model,
        focus_merge=merge,
        **{
            "global_batch_size": count,
            "rollout_batch_size": count,
            "over_sampling_batch_size": count,
            **changes,
        },
    )
    KEPT.clear()
    groups = slime.generate_rollout(args, [slime.sample(prompt=each) for each in prompts])
    return args, slime.flatten(groups)


# Training


@attrs.define(eq=False)
class Trained:
    """One optimizer step's gradient, and what it went through.

    Attributes:
        loss: The sum of the micro-batches' losses as Megatron averages them.
        gradient: One flat vector.
        data: The converted samples.
        ranks: Each data-parallel rank's share, with advantages.
        logged: What the trainer's logger makes of rewards, by rank.
    """

    loss: float
    gradient: torch.Tensor
    data: dict
    ranks: list
    logged: list


def flat(learner):
    """The gradient as one vector, which is taken away."""
    found = torch.cat([each.grad.double().flatten() for each in learner.parameters.values()])
    learner.drop_gradient()
    return found


def logits_of(learner, sequences):
    """Float32, shape (1, T, vocabulary): sequences one after the other, each by itself."""
    rows = [learner.model(input_ids=each[None], use_cache=False).logits[0] for each in sequences]
    return torch.cat(rows)[None].float()


def train(slime, args, samples, learner):
    """Samples through conversion, split, advantages and loss, to a gradient.

    What Megatron does is done here: losses are divided by the number of micro-batches, and
    gradients averaged over data-parallel ranks.
    """
    data = slime.convert(args, samples)
    ranks = slime.split(args, data, args.dp_size)
    learner.drop_gradient()
    total, logged = 0.0, []
    for rank in ranks:
        if not args.use_rollout_logprobs and args.recompute_log_probs:
            rank["log_probs"] = _log_probs(rank, learner)
        slime.advantages(args, rank)
        logged.append(slime.log_rank(rank))
        (count,), (size,) = rank["num_microbatches"], rank["global_batch_sizes"]
        assert len(rank["micro_batch_indices"]) == count
        for indices in rank["micro_batch_indices"]:
            batch = {
                key: [values[place] for place in indices]
                for key, values in rank.items()
                if key not in NO_FIELDS and values is not None
            }
            batch[slime.mask_sums] = torch.stack(batch[slime.mask_sums])
            batch.setdefault("log_probs", None)
            logits = logits_of(learner, batch["tokens"])
            loss = slime.loss(args, batch, count, size, logits) / count / args.dp_size
            loss.backward()
            total += loss.item()
    return Trained(total, flat(learner), data, ranks, logged)


NO_FIELDS = (
    *("partition", "global_batch_sizes", "num_microbatches", "micro_batch_indices"),
    *("raw_reward", "local_raw_reward"),
)
"""What a rank's share holds besides one value for each sample."""


def _log_probs(rank, learner):
    """What Slime recomputes before a step if it is told not to use the rollout's."""
    found = []
    with torch.no_grad():
        for tokens, length in zip(rank["tokens"], rank["response_lengths"], strict=True):
            logits = logits_of(learner, [tokens])[0, -length - 1 : -1]
            picked = torch.log_softmax(logits, -1).gather(-1, tokens[-length:, None])
            found.append(picked[:, 0])
    return found


def train_locally(records, learner, rollouts):
    """Loss, gradient and clipped tokens of the local trainer: sums, divided by the rollouts."""
    from focus_adapter_local import to_item

    learner.drop_gradient()
    items, bounds = [to_item(each) for each in records], learner.config.loss
    logprobs, loss = learner.forward_backward(items, bounds)
    behaviour = np.concatenate([item.logprobs[item.mask] for item in items])
    ratio = np.exp(np.concatenate(logprobs) - behaviour)
    low, high = bounds.clip_low_threshold, bounds.clip_high_threshold
    clipped = int(((ratio < low) | (ratio > high)).sum())
    return loss / rollouts, flat(learner) / rollouts, clipped


def gap(found, wanted):
    """Distance of two gradients, relative to the wanted one's norm."""
    norm = float(wanted.norm())
    assert norm > 1e-3, f"a gradient of norm {norm} shows nothing"
    return float((found - wanted).norm()) / norm


def perturb(learner, seed=0, size=0.05):
    """Move the adapter, so that it is no longer what sampled and both factors have a gradient."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in learner.parameters.values():
            each += size * torch.randn(each.shape, generator=generator, dtype=each.dtype)


def same(first, second):
    """Whether two shares or train data hold the same, tensors and all."""
    if isinstance(first, torch.Tensor):
        return torch.equal(torch.as_tensor(second), first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(np.all(first == second))
