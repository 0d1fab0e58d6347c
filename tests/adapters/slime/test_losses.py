"""The training hooks by themselves: what goes in, what comes out, what is refused."""

import inspect
import subprocess
import sys
import types

import focus_adapter_slime as adapter
import numpy as np
import pytest
import torch

from focus_core import RecordError, UsageError


def sample(reward, *, length=3, several=None, index=7):
    """What ``preserve_advantages`` reads of a sample."""
    metadata = None if several is None else {"focus_advantages": several}
    return types.SimpleNamespace(
        reward=reward, metadata=metadata, response_length=length, index=index
    )


def share(rewards, lengths, masks=None):
    """One rank's data before the advantage hook."""
    return {
        "kl": [torch.zeros(length) for length in lengths],
        "rewards": rewards,
        "loss_masks": masks or [torch.ones(length, dtype=torch.int) for length in lengths],
        "response_lengths": lengths,
    }


ARGS = types.SimpleNamespace(normalize_advantages=False, context_parallel_size=1)


@pytest.fixture
def megatron(monkeypatch):
    """Pretend that Megatron shares sequences among so many ranks."""

    def pretend(size):
        mpu = types.ModuleType("megatron.core.mpu")
        mpu.get_context_parallel_world_size = lambda: size
        core = types.ModuleType("megatron.core")
        core.mpu = mpu
        for name, module in {
            "megatron": types.ModuleType("megatron"),
            "megatron.core": core,
        }.items():
            monkeypatch.setitem(sys.modules, name, module)

    return pretend


def test_signatures_are_the_documented_ones():
    parameters = {
        name: [str(each) for each in inspect.signature(getattr(adapter, name)).parameters.values()]
        for name in ("advantages", "preserve_advantages", "sum_policy_tokens")
    }
    assert parameters == {
        "advantages": ["args: 'Any'", "rollout_data: 'dict[str, Any]'"],
        "preserve_advantages": ["args: 'Any'", "samples: 'list[Any]'"],
        "sum_policy_tokens": [
            "total_lengths: 'Any'",
            "response_lengths: 'Any'",
            "loss_masks: 'list[Any]'",
            "calculate_per_token_loss: 'bool' = False",
        ],
    }


def test_torch_and_slime_are_imported_by_calls_only():
    code = (
        "import sys, focus_adapter_slime as a; a.advantages, a.sum_policy_tokens; "
        "found = {'torch', 'slime', 'megatron', 'transformers'} & set(sys.modules); "
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_rewards_stay_what_they_are():
    samples = [sample(-0.25), sample(0.5, several=[1.0, 0.0, 0.5]), sample(3)]
    raw, rewards = adapter.preserve_advantages(None, samples)
    assert raw == [-0.25, 0.5, 3.0]
    assert [np.ravel(each).tolist() for each in rewards] == [[-0.25], [1.0, 0.0, 0.5], [3.0]]
    lists = types.SimpleNamespace(focus_arrays=False)
    assert adapter.preserve_advantages(lists, samples) == (raw, [-0.25, [1.0, 0.0, 0.5], 3.0])
    assert adapter.preserve_advantages(None, []) == ([], [])


@pytest.mark.parametrize("wrong", [None, True, "0.5", float("nan"), float("-inf"), {}, [0.5]])
def test_a_reward_that_is_no_advantage_is_refused(wrong):
    with pytest.raises(RecordError, match=r"reward of sample 1 \(index 7\) is .* finite"):
        adapter.preserve_advantages(None, [sample(0.0), sample(wrong)])
    if not isinstance(wrong, list):  # which are advantages of tokens
        with pytest.raises(RecordError, match="reward of sample 1 of this rank"):
            adapter.advantages(ARGS, share([0.0, wrong], [2, 2]))
    with pytest.raises(RecordError, match="an advantage of sample 0"):
        adapter.preserve_advantages(None, [sample(0.0, several=[0.0, wrong, 0.0])])
    with pytest.raises(RecordError, match="an advantage of sample 0"):
        adapter.advantages(ARGS, share([[0.0, wrong]], [2]))


def test_as_many_advantages_as_tokens():
    with pytest.raises(RecordError, match="2 advantages for 3 response tokens"):
        adapter.preserve_advantages(None, [sample(0.0, several=[1.0, 2.0])])
    with pytest.raises(RecordError, match="2 advantages for 3 response tokens"):
        adapter.advantages(ARGS, share([[1.0, 2.0]], [3]))
    with pytest.raises(RecordError, match="1 rewards for 2 samples"):
        adapter.advantages(ARGS, share([1.0], [3, 3]))


def test_advantages_reach_their_tokens_and_rewards_become_numbers():
    masks = [torch.tensor([1, 1]), torch.tensor([1, 0, 1]), torch.tensor([0])]
    data = share([0.5, [1.0, 0.0, -2.0], [0.0]], [2, 3, 1], masks)
    data["kl"][0] = data["kl"][0].double()
    assert adapter.advantages(ARGS, data) is None
    assert [each.tolist() for each in data["advantages"]] == [[0.5, 0.5], [1.0, 0.0, -2.0], [0.0]]
    assert [each.dtype for each in data["advantages"]] == [each.dtype for each in data["kl"]]
    assert [each.tolist() for each in data["returns"]] == [[0.0] * 2, [0.0] * 3, [0.0]]
    assert data["rewards"] == [0.5, -0.5, 0.0]


def test_normalised_advantages_are_refused():
    args = types.SimpleNamespace(normalize_advantages=True, context_parallel_size=1)
    data = share([1.0], [2])
    with pytest.raises(UsageError, match=r"--normalize-advantages .* remove it"):
        adapter.advantages(args, data)
    assert "advantages" not in data


@pytest.mark.parametrize("hook", ["advantages", "sum_policy_tokens"])
def test_context_parallel_groups_are_refused(hook, megatron):
    calls = {
        "advantages": lambda: adapter.advantages(ARGS, share([1.0], [2])),
        "sum_policy_tokens": lambda: adapter.sum_policy_tokens([3], [2], [torch.ones(2)], False),
    }
    for size in (0, 1):  # 0 is what Megatron says before it has groups
        megatron(size)
        calls[hook]()
    megatron(2)
    with pytest.raises(UsageError, match=r"size is 2.*--context-parallel-size 1"):
        calls[hook]()


def test_context_parallel_arguments_are_refused():
    args = types.SimpleNamespace(normalize_advantages=False, context_parallel_size=4)
    with pytest.raises(UsageError, match="--context-parallel-size 1"):
        adapter.advantages(args, share([1.0], [2]))


@pytest.mark.parametrize("per_token", [False, True])
def test_the_reducer_adds_up_what_the_masks_keep(per_token):
    masks = [torch.tensor([1, 0, 1], dtype=torch.int), torch.tensor([0, 1], dtype=torch.int)]
    losses = torch.tensor([1.0, 10.0, 2.0, 20.0, 4.0], requires_grad=True)
    total = adapter.sum_policy_tokens([9, 9], [3, 2], masks, per_token)(losses)
    assert total.shape == ()
    assert total.item() == 7.0
    total.backward()
    assert losses.grad.tolist() == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_the_reducer_of_nothing_is_zero_and_has_a_gradient():
    losses = torch.zeros(0, requires_grad=True)
    total = adapter.sum_policy_tokens([], [], [])(losses)
    total.backward()
    assert total.item() == 0.0


def test_the_reducer_notices_tokens_that_are_elsewhere():
    reduce = adapter.sum_policy_tokens([9], [3], [torch.ones(3)])
    with pytest.raises(RecordError, match=r"2 token losses for samples of \[3\]"):
        reduce(torch.zeros(2))
