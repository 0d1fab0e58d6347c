"""What tokenizers and models disagree about: padding ids, ends of turns, and texts that stop."""

import asyncio

import numpy as np
import pytest
import torch

from focus_core import RecordError, SamplingParams
from focus_core.policy import Generation
from tests.adapters.local.local_kit import TEMPLATE, batch, build_tokenizer, gap, record, run

PROMPT = [10, 11, 12]
MOST = 48
"""Ids that the small tokenizer has; the model has 64."""


def small_tokenizer(template=TEMPLATE):
    """The kit's, without its last 16 tokens."""
    import json

    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    full = build_tokenizer()
    saved = json.loads(full.backend_tokenizer.to_str())
    vocabulary = saved["model"]["vocab"]
    saved["model"]["vocab"] = {name: i for name, i in vocabulary.items() if i < MOST}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(saved)),
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<u>", "<a>"],
    )
    fast.chat_template = template
    return fast


@pytest.fixture(scope="module")
def padded(mini, tmp_path_factory):
    """The mini model with a smaller tokenizer, and a liking for what that lacks."""
    from transformers import AutoModelForCausalLM

    path = tmp_path_factory.mktemp("padded")
    model = AutoModelForCausalLM.from_pretrained(mini)
    with torch.no_grad():  # tied: the ids that are lacking get the largest logits
        model.get_input_embeddings().weight[MOST:] *= 40
    model.save_pretrained(path)
    small_tokenizer().save_pretrained(path)
    return str(path)


def exact_logprobs(model, tokens, length):
    """Of the last ``length`` tokens, normalised over what the tokenizer has."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens])).logits[0, :-1, :MOST].double()
    logprobs = torch.log_softmax(logits, -1)
    picked = logprobs.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0]
    return picked[-length:].numpy()


@pytest.mark.parametrize("params", [{}, {"top_k": 5, "top_p": 0.9}, {"temperature": 0.0}])
def test_ids_that_the_tokenizer_lacks_are_never_sampled(trainer_of, padded, params):
    async def main():
        async with trainer_of(model=padded) as trainer:
            policy = await trainer.publish_policy()
            asked = SamplingParams(max_tokens=24, seed=1, **params)
            return await policy.generate(PROMPT, asked, 8)

    for generation in run(main()):
        assert max(generation.tokens) < MOST


def test_sampler_and_learner_normalise_over_the_same_ids(trainer_of, padded):
    async def main():
        async with trainer_of(model=padded) as trainer:
            policy = await trainer.publish_policy()
            found = await policy.generate(PROMPT, SamplingParams(max_tokens=12, seed=3), 4)
            records = [record(PROMPT, each) for each in found]
            first = found[0]
            exact = exact_logprobs(
                policy._snapshot.model, [*PROMPT, *first.tokens], len(first.tokens)
            )
            np.testing.assert_allclose(first.logprobs, exact, atol=1e-4)
            assert await gap(trainer, records) < 1e-4
            metrics = await trainer.update(batch(trainer, records))
            assert np.isfinite(metrics["grad_norm"])
            later = await (await trainer.publish_policy()).generate(
                PROMPT, SamplingParams(max_tokens=12, seed=3), 4
            )
            assert all(np.isfinite(each.logprobs).all() for each in later)
            bad = batch(trainer, [record(PROMPT, Generation([60], [-1.0], "length"))])
            with pytest.raises(RecordError, match="token 60 was generated, which the model's tok"):
                await trainer.update(bad)

    run(main())


def test_a_template_s_own_end_of_turn_ends_a_turn(trainer_of, mini, tmp_path):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(mini).save_pretrained(tmp_path / "model")
    chatml = small_tokenizer(
        "{% for m in messages %}<u>{{ m['content'] }}<a>{% endfor %}"  # <a> ends each turn
    )
    chatml.save_pretrained(tmp_path / "model")

    async def main():
        async with trainer_of(model=str(tmp_path / "model")) as trainer:
            return (await trainer.publish_policy()).end_tokens

    assert run(main()) == {1, 3}, "the end of text, and what the template writes"


def test_a_stop_string_ends_a_sample_where_it_is_complete(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            policy = await trainer.publish_policy()
            free = SamplingParams(max_tokens=40, seed=7)
            whole = await policy.generate(PROMPT, free, 3)
            text = policy.decode(whole[1].tokens)[4:7]
            asked = SamplingParams(max_tokens=40, seed=7, stop=(text, "never said"))
            cut, plain = await asyncio.gather(
                policy.generate(PROMPT, asked, 3), policy.generate(PROMPT, free, 3)
            )
        assert [each.tokens for each in plain] == [each.tokens for each in whole]
        for long, short in zip(whole, cut, strict=True):
            count = len(short.tokens)
            assert short.tokens == long.tokens[:count]
            np.testing.assert_allclose(short.logprobs, long.logprobs[:count], atol=1e-4)
            said = policy.decode(short.tokens)
            assert text not in policy.decode(short.tokens[:-1])
            assert (short.stop_reason == "stop") == (
                text in said or short.tokens[-1] in policy.end_tokens
            )
        assert policy.decode(cut[1].tokens).endswith(text)
        assert len(cut[1].tokens) < len(whole[1].tokens)

    run(main())
