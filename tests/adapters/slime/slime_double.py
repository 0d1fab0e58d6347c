"""What the hooks see of Slime: its ``Sample`` and the places that call them, in one process.

Written from how Slime behaves, for tests that run without it; ``test_fidelity.py`` holds it
against the real code. ``OldSlime`` is v0.3.0, ``Slime`` is v0.3.1 and later. A method does what
Slime does between two hooks, under the names of Slime's arguments; tensors stay on the CPU.
"""

import asyncio
import copy
import importlib
import inspect
import pickle
import warnings
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch


class Status(Enum):
    """How a sample ended."""

    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass
class _Sample:
    group_index: int | None = None
    index: int | None = None
    prompt: Any = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict = field(default_factory=dict)
    generate_function_path: str | None = None
    train_metadata: dict | None = None
    session_id: str | None = None

    def get_reward_value(self, args):
        return self.reward if not args.reward_key else self.reward[args.reward_key]


@dataclass
class Sample(_Sample):
    """Since v0.3.1: siblings share a ``rollout_id``."""

    rollout_id: int | None = None
    apply_chat_template_kwargs: dict = field(default_factory=dict)


@dataclass
class OldSample(_Sample):
    """v0.3.0: siblings share a ``group_id``; ``rollout_id`` can be set, with a warning."""

    group_id: int | None = None

    def __getattribute__(self, name):
        if name == "rollout_id":
            raise AttributeError("rollout_id is write-only here; use group_id")
        return super().__getattribute__(name)

    def __setattr__(self, name, value):
        if name == "rollout_id":
            if value is None:
                return
            warnings.warn("rollout_id is deprecated", DeprecationWarning, stacklevel=2)
            name = "group_id"
        super().__setattr__(name, value)


Sample.Status = OldSample.Status = Status


def hook(path):
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class Slime:
    """v0.3.1 and later."""

    Sample = Sample
    sibling = "rollout_id"
    ids, mask_sums = "rollout_ids", "rollout_mask_sums"
    put, get = staticmethod(pickle.dumps), staticmethod(pickle.loads)

    def sample(self, **values):
        return self.Sample(**values)

    # Rollout

    def generate_rollout(self, args, prompts):
        """Samples of one rollout step, in Slime's nested form: prompt, rollout, sample.

        Every group is generated at once; ``sampling_params`` is one dict for a whole group.
        """
        return asyncio.run(self._generate_rollout(args, prompts))

    async def _generate_rollout(self, args, prompts):
        groups = []
        for group_index, prompt in enumerate(prompts):
            group = []
            for each in range(args.n_samples_per_prompt):
                sample = copy.deepcopy(prompt)
                sample.group_index = group_index
                sample.index = group_index * args.n_samples_per_prompt + each
                group.append(sample)
            groups.append(group)
        params = self.sampling_params(args)
        done = await asyncio.gather(*(self._group(args, group, params.copy()) for group in groups))
        for group in done:
            assert len(group) == args.n_samples_per_prompt
        return done

    @staticmethod
    def sampling_params(args):
        """What the shared dict holds."""
        return {
            "temperature": args.rollout_temperature,
            "top_p": args.rollout_top_p,
            "top_k": args.rollout_top_k,
            "max_new_tokens": args.rollout_max_response_len,
            "stop": args.rollout_stop,
            "stop_token_ids": args.rollout_stop_token_ids,
            "skip_special_tokens": args.rollout_skip_special_tokens,
            "no_stop_trim": True,
            "spaces_between_special_tokens": False,
        }

    async def _group(self, args, group, params):
        for sample in group:
            if sample.session_id is None:
                sample.session_id = f"session-{sample.index}"
        calls = []
        for place, sample in enumerate(group):
            own = params.copy()
            if getattr(args, "sglang_enable_deterministic_inference", False):
                own["sampling_seed"] = args.rollout_seed + place
            calls.append(self.generate(args, sample, own))
        return await asyncio.gather(*calls)

    async def generate(self, args, sample, params, *, evaluation=False):
        """The generate hook's call site: a sample's own path goes before the arguments'."""
        function = hook(sample.generate_function_path or args.custom_generate_function_path)
        before = params.copy()
        if "evaluation" in inspect.signature(function).parameters:
            made = await function(args, sample, params, evaluation=evaluation)
        else:
            made = await function(args, sample, params)
        assert params == before
        for each in made if isinstance(made, list) else [made]:
            assert each.reward is not None or each.status is Status.ABORTED
        return made

    def flatten(self, groups):
        """One list of samples, once siblings were found to share an id."""
        for group in groups:
            for made in group:
                if isinstance(made, list) and len(made) > 1:
                    ids = [getattr(each, self.sibling) for each in made]
                    assert None not in ids, ids
                    assert len(set(ids)) == 1, ids
        while isinstance(groups[0], list):
            groups = [each for group in groups for each in group]
        return groups

    def log_samples(self, args, samples):
        """What the rollout's logger does to rewards: the groups in which all are alike."""
        groups = {}
        for sample in samples:
            groups.setdefault(sample.group_index, []).append(sample.get_reward_value(args))
        alike = [rewards[0] for rewards in groups.values() if len(set(rewards)) == 1]
        return [round(reward, 1) for reward in alike]

    # From samples to the trainer's batch

    def convert(self, args, samples):
        """The reward hook's call site, and everything else that training reads."""
        raw, rewards = hook(args.custom_reward_post_process_path)(args, samples)
        assert len(raw) == len(rewards) == len(samples)
        masks = []
        for sample in samples:
            if sample.loss_mask is None:
                sample.loss_mask = [1] * sample.response_length
            assert len(sample.loss_mask) == sample.response_length
            if sample.remove_sample:
                sample.loss_mask = [0] * sample.response_length
            masks.append(sample.loss_mask)
        ids = self._rollouts(samples)
        totals = {}
        for each, mask in zip(ids, masks, strict=True):
            totals[each] = totals.get(each, 0) + sum(mask)
        data = {
            "tokens": [sample.tokens for sample in samples],
            "response_lengths": [sample.response_length for sample in samples],
            "rewards": rewards,
            "raw_reward": raw,
            "truncated": [int(sample.status is Status.TRUNCATED) for sample in samples],
            "sample_indices": [sample.index for sample in samples],
            self.ids: ids,
            "loss_masks": masks,
            self.mask_sums: [totals[each] for each in ids],
        }
        if any("raw_reward" in (sample.metadata or {}) for sample in samples):
            data["raw_reward"] = [
                (sample.metadata or {}).get("raw_reward", sample.reward) for sample in samples
            ]
        if samples[0].rollout_log_probs is not None:
            data["rollout_log_probs"] = [sample.rollout_log_probs for sample in samples]
        return data

    def _rollouts(self, samples):
        """Ids of the rollouts that samples count as; one without an id counts by itself."""
        ids = [sample.rollout_id for sample in samples]
        taken, free = set(ids), 0
        for place, each in enumerate(ids):
            if each is None:
                while free in taken:
                    free += 1
                ids[place] = free
                taken.add(free)
        return ids

    def split(self, args, data, dp_size):
        """Each data-parallel rank's share, as it arrives there."""
        data["total_lengths"] = [len(tokens) for tokens in data["tokens"]]
        shares, batches, counts, sizes = self._schedule(args, data, dp_size)
        found = []
        for share, indices in zip(shares, batches, strict=True):
            rank = {
                key: [data[key][place] for place in share]
                for key in data
                if key not in ("raw_reward", "total_lengths")
            }
            rank["raw_reward"] = data["raw_reward"]
            rank["total_lengths"] = [data["total_lengths"][place] for place in share]
            rank["global_batch_sizes"] = sizes
            rank["num_microbatches"] = counts
            rank["micro_batch_indices"] = indices
            found.append(self._tensors(self.get(self.put(rank))))
        return found

    def _tensors(self, rank):
        """What the trainer's process makes tensors."""
        kinds = {"tokens": torch.long, "loss_masks": torch.int, "rollout_log_probs": torch.float32}
        for key, dtype in kinds.items():
            if key in rank:
                rank[key] = [torch.tensor(each, dtype=dtype) for each in rank[key]]
        rank[self.mask_sums] = torch.tensor(rank[self.mask_sums], dtype=torch.float32)
        return rank

    def _schedule(self, args, data, dp_size):
        """Steps of ``global_batch_size`` rollouts, packed first fit, dealt out in turn."""
        lengths = data["total_lengths"]
        rollouts = {}
        for place, each in enumerate(data[self.ids]):
            rollouts.setdefault(each, []).append(place)
        chosen, size = list(rollouts), args.global_batch_size
        assert len(chosen) >= size, f"{len(chosen)} rollouts are no batch of {size}"
        assert args.use_dynamic_batch_size
        shares, batches, counts = [[] for _ in range(dp_size)], [[] for _ in range(dp_size)], []
        for step in range(len(chosen) // size):
            names = chosen[step * size : (step + 1) * size]
            places = [place for name in names for place in rollouts[name]]
            assert len(places) >= dp_size
            packed = _packed(places, lengths, args.max_tokens_per_gpu, dp_size)
            counts.append(len(packed) // dp_size)
            for rank in range(dp_size):
                for micro in packed[rank::dp_size]:
                    start = len(shares[rank])
                    shares[rank] += micro
                    batches[rank].append(list(range(start, start + len(micro))))
        return shares, batches, counts, [size] * len(counts)

    # Training

    def advantages(self, args, rank):
        """The advantage hook's call site."""
        known = rank["rollout_log_probs"] if args.use_rollout_logprobs else rank.get("log_probs")
        like = known or rank.get("rollout_log_probs")
        if like is None:
            raise TypeError("neither log_probs nor rollout_log_probs")
        rank["kl"] = [torch.zeros_like(each, dtype=torch.float32) for each in like]
        hook(args.custom_advantage_function_path)(args, rank)

    def log_rank(self, rank):
        """What the trainer's logger adds up."""
        return {key: sum(rank[key]) / len(rank[key]) for key in ("rewards", "raw_reward")}

    def loss(self, args, batch, count, size, logits):
        """The reducer hook's call site: clipped policy loss of a micro-batch, scaled for Megatron.

        ``logits`` is float32 of shape (1, T, vocabulary), samples one after the other.
        """
        assert logits.dtype is torch.float32
        assert logits.shape[0] == 1
        logprobs, end = [], 0
        for tokens, total, response in zip(
            batch["tokens"], batch["total_lengths"], batch["response_lengths"], strict=True
        ):
            end += total
            picked = torch.log_softmax(logits[0, end - response - 1 : end - 1], -1)
            logprobs.append(picked.gather(-1, tokens[-response:, None])[:, 0])
        old = batch["rollout_log_probs"] if args.use_rollout_logprobs else batch["log_probs"]
        new = torch.cat(logprobs)
        ratio = (new - torch.cat(old or [each.detach() for each in logprobs])).exp()
        weights = torch.cat(batch["advantages"])
        clipped = ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high)
        losses = torch.maximum(-ratio * weights, -clipped * weights)
        reducer = hook(args.custom_pg_loss_reducer_function_path)(
            batch["total_lengths"], batch["response_lengths"], batch["loss_masks"], False
        )
        return reducer(losses) * count / size * args.dp_size


class OldSlime(Slime):
    """v0.3.0."""

    Sample = OldSample
    sibling = "group_id"
    ids, mask_sums = "group_ids", "group_mask_sums"

    def _rollouts(self, samples):
        return [each.index if each.group_id is None else each.group_id for each in samples]


def _packed(places, lengths, limit, dp_size):
    """Micro-batches of at most ``limit`` tokens, first fit; split until ranks get equally many."""
    bins = []
    for place in places:
        for each in bins:
            if sum(lengths[i] for i in each) + lengths[place] <= limit:
                each.append(place)
                break
        else:
            bins.append([place])
    while len(bins) % dp_size:
        sums = [(sum(lengths[i] for i in each), at) for at, each in enumerate(bins) if each[1:]]
        _, largest = max(sums)
        halves = [[], []]
        for place in sorted(bins[largest], key=lambda i: -lengths[i]):
            weights = [sum(lengths[i] for i in half) for half in halves]
            halves[0 if weights[0] <= weights[1] else 1].append(place)
        bins[largest] = halves[0]
        bins.append(halves[1])
    return bins
