"""Beginning from a PEFT adapter: the same log probabilities as PEFT's, or a refusal by name."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from focus_core import DataError, SamplingParams, UsageError
from tests.adapters.local.local_kit import batch, record, run, sample_records

SHAPES = {
    "two of the layers": {"r": 3, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj"]},
    "every layer": {"r": 8, "lora_alpha": 8, "target_modules": "all-linear", "lora_dropout": 0.1},
    "ranks of their own": {
        "r": 4,
        "lora_alpha": 4,
        "target_modules": r".*\.(q_proj|down_proj)",
        "use_rslora": True,
        "rank_pattern": {"down_proj": 2},
        "alpha_pattern": {"q_proj": 9},
    },
    "one of the layers": {"r": 2, "target_modules": ["o_proj"], "layers_to_transform": [1]},
}


def base_of(directory):
    from focus_adapter_local.models import quiet
    from transformers import AutoModelForCausalLM

    with quiet():
        return AutoModelForCausalLM.from_pretrained(directory)


@pytest.fixture
def adapter_of(tmp_path, mini):
    """An adapter with random weights that PEFT saved, its ``adapter_config.json`` changed."""
    from peft import LoraConfig, get_peft_model

    def make(shape=SHAPES["two of the layers"], base=mini, **changes):
        torch.manual_seed(1)
        model = get_peft_model(base_of(base), LoraConfig(task_type="CAUSAL_LM", **shape))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3)
        path = tmp_path / f"adapter-{len(list(tmp_path.iterdir()))}"
        model.save_pretrained(str(path))
        config = path / "adapter_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | changes))
        return path

    return make


def theirs(base, adapter, tokens):
    """Log probability of each token after the first, by PEFT's own loading."""
    from peft import PeftModel

    with torch.no_grad():
        model = PeftModel.from_pretrained(base_of(base), str(adapter)).eval()
        logits = model(input_ids=torch.tensor([tokens])).logits[0, :-1]
    logprobs = logits.log_softmax(-1)
    return logprobs[range(len(tokens) - 1), tokens[1:]].numpy()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_log_probabilities_equal_those_of_pefts_own_loading(trainer_of, adapter_of, mini, shape):
    path = adapter_of(shape)
    prompt = [5, 9, 33, 40]

    async def main():
        options = {"lora_rank": None, "lora_alpha": None}
        async with trainer_of(adapter=str(path), **options) as trainer:
            assert trainer.step == 0
            policy = await trainer.publish_policy()
            (said,) = await policy.generate(prompt, SamplingParams(max_tokens=24, seed=3))
            (learner,) = await trainer.forward_logprobs(trainer.convert([record(prompt, said)]))
            return said, learner

    said, learner = run(main())
    tokens = [*prompt, *map(int, said.tokens)]
    expected = theirs(mini, path, tokens)[len(prompt) - 1 :]
    np.testing.assert_allclose(said.logprobs, expected, atol=2e-5)
    np.testing.assert_allclose(learner, expected, atol=2e-5)
    plain = theirs(mini, adapter_of({"r": 1, "target_modules": ["v_proj"]}), tokens)
    assert np.abs(expected - plain[len(prompt) - 1 :]).max() > 1e-2, "the adapter changes something"


def test_a_run_from_an_adapter_keeps_its_shape_and_resumes_without_it(trainer_of, adapter_of):
    path = adapter_of()
    options = {"lora_rank": None, "lora_alpha": None, "adapter": str(path)}

    async def train(trainer, seeds):
        for seed in seeds:
            policy = await trainer.publish_policy()
            metrics = await trainer.update(batch(trainer, await sample_records(policy, seed=seed)))
        return metrics

    async def main():
        async with trainer_of(**options) as trainer:
            await train(trainer, (0, 1))
            saved = await trainer.save_state("two")
            straight = await train(trainer, (2,))
        shutil.rmtree(path)
        async with trainer_of(**options, resume_from=saved) as trainer:
            assert trainer.step == 2
            assert await train(trainer, (2,)) == straight
        return Path(saved)

    config = json.loads((run(main()) / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (3, 7)
    assert sorted(config["target_modules"]) == ["q_proj", "v_proj"]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "olmoe"])
def test_our_own_checkpoint_is_an_adapter_too(trainer_of, model_of, kind):
    async def main():
        model = model_of(kind)
        async with trainer_of(model=model) as trainer:
            policy = await trainer.publish_policy()
            await trainer.update(batch(trainer, await sample_records(policy)))
            first = await trainer.save_state("first")
            policy = await trainer.publish_policy()
            (said,) = await policy.generate([5, 6], SamplingParams(max_tokens=8, seed=3))
        async with trainer_of(model=model, adapter=first, seed=9) as trainer:
            policy = await trainer.publish_policy()
            (again,) = await policy.generate([5, 6], SamplingParams(max_tokens=8, seed=3))
        assert list(said.logprobs) == list(again.logprobs)

    run(main())


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"base_model_name_or_path": "Some/Other-1B"}, UsageError, "base model 'Some/Other-1B'"),
        ({"use_dora": True}, DataError, "field 'use_dora': is 'True'"),
        ({"modules_to_save": ["lm_head"]}, DataError, "field 'modules_to_save'"),
        ({"bias": "all"}, DataError, "field 'bias': is 'all'"),
        ({"peft_type": "IA3"}, DataError, "field 'peft_type': is 'IA3'"),
        ({"task_type": "SEQ_CLS"}, DataError, "field 'task_type'"),
        ({"init_lora_weights": "pissa"}, DataError, "field 'init_lora_weights': is 'pissa'"),
        ({"r": "8"}, DataError, "field 'r': is '8'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_trained_on_is_refused_by_name(
    trainer_of, adapter_of, changes, error, words
):
    path = adapter_of(**changes)
    with pytest.raises(error) as caught:
        trainer_of(adapter=str(path), lora_rank=None, lora_alpha=None)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_another_rank_other_targets_and_lost_files_are_refused(trainer_of, adapter_of):
    path = adapter_of()
    with pytest.raises(UsageError, match="has lora_rank 3, but this run has 16; leave lora_rank"):
        trainer_of(adapter=str(path), lora_rank=16, lora_alpha=None)
    with pytest.raises(UsageError, match="has lora_alpha 7, but this run has 16"):
        trainer_of(adapter=str(path), lora_rank=3, lora_alpha=16.0)

    async def enter(path):
        async with trainer_of(adapter=str(path), lora_rank=None, lora_alpha=None):
            pass

    with pytest.raises(UsageError, match="target_modules c_attn, which this model lacks"):
        run(enter(adapter_of(target_modules=["q_proj", "c_attn"])))
    with pytest.raises(DataError, match=r"has base_model.*v_proj.*has no place"):
        run(enter(adapter_of(target_modules=["q_proj"])))
    with pytest.raises(DataError, match=r"q_proj.lora_A.weight has shape \(3, 32\), here .*5, 32"):
        run(enter(adapter_of(r=5)))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        path = adapter_of()
        (path / name).unlink()
        with pytest.raises(DataError, match=name):
            trainer_of(adapter=str(path), lora_rank=None, lora_alpha=None)
    with pytest.raises(DataError, match="is no directory"):
        trainer_of(adapter=str(path / "none"), lora_rank=None, lora_alpha=None)


def test_the_base_is_known_by_its_weights_and_by_its_name(
    trainer_of, adapter_of, mini, model_of, tmp_path
):
    def make(base):
        path = adapter_of(base_model_name_or_path=str(base))
        return trainer_of(adapter=str(path), lora_rank=None, lora_alpha=None)

    copy = tmp_path / "a copy"
    shutil.copytree(mini, copy)
    for base in (mini, copy, f"Someone/{Path(mini).name}", ""):
        make(base)
    with pytest.raises(UsageError, match="was trained on the base model"):
        make(model_of("mistral"))  # has layers of the same names and shapes
    with pytest.raises(UsageError, match=f"this run's model is '{mini}'"):
        make("Someone/else")
