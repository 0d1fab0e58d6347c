"""Heads that share keys and values attend as transformers' own function has them attend."""

import asyncio

import pytest
import torch
from focus_adapter_local import _attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from focus_core import SamplingParams
from tests.adapters.local.local_kit import prompts, run


class Module:
    """What transformers' function reads off an attention layer."""

    is_causal = True

    def __init__(self, groups):
        self.num_key_value_groups = groups


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("shared", [1, 2, 6])
@pytest.mark.parametrize("ragged", [False, True])
def test_the_result_is_transformers_own(queries, shared, ragged):
    torch.manual_seed(0)
    rows, heads, columns, width = 3, 6, 9, 8
    query = torch.randn(rows, heads, queries, width, dtype=torch.float64)
    key, value = torch.randn(2, rows, shared, columns, width, dtype=torch.float64)
    mask = None
    if ragged:
        seen = torch.arange(columns) < torch.tensor([9, 4, 7])[:, None]
        mask = seen[:, None, None, :].expand(-1, 1, queries, -1)
    arguments = (Module(heads // shared), query, key, value, mask)
    expected, _ = sdpa_attention_forward(*arguments, scaling=0.3)
    got, _ = _attention._attend(*arguments, scaling=0.3)
    assert got.shape == expected.shape == (rows, queries, heads, width)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_a_mask_of_each_head_is_kept():
    torch.manual_seed(0)
    query = torch.randn(2, 4, 1, 8)
    key, value = torch.randn(2, 2, 2, 6, 8)
    mask = torch.rand(2, 4, 1, 6) < 0.7
    mask[..., 0] = True
    arguments = (Module(2), query, key, value, mask)
    expected, _ = sdpa_attention_forward(*arguments)
    torch.testing.assert_close(_attention._attend(*arguments)[0], expected)


def test_only_the_sampler_attends_in_groups(trainer_of, monkeypatch):
    """No copy of the cache is made for a step of rows that differ in length."""
    copied = []

    def spy(module, query, key, *rest, **more):
        copied.append(query.shape[2])
        return sdpa_attention_forward(module, query, key, *rest, **more)

    monkeypatch.setattr(_attention, "sdpa_attention_forward", spy)

    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            await asyncio.gather(
                *(policy.generate(each, SamplingParams(max_tokens=4)) for each in prompts((3, 9)))
            )
            learner, sampler = trainer._learner.model, policy._snapshot.model
            return learner.config._attn_implementation, sampler.config._attn_implementation

    assert run(main()) == ("sdpa", "focus_grouped")
    assert copied
    assert 1 not in copied
