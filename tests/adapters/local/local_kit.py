"""Mini models with random weights, and the ways the tests sample and train on them."""

import asyncio

import numpy as np

from focus_core import ActorRecord, Batch, SamplingParams, Span

COMMON = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "bos_token_id": 0,
    "pad_token_id": 1,
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] not in ('user', 'assistant') %}{{ raise_exception('no role') }}{% endif %}"
    "{{ '<u>' if m['role'] == 'user' else '<a>' }}"
    "{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


def build_model(kind):
    """A model with random weights, two layers and 64 tokens, of an architecture."""
    import transformers as t

    few = {name: value for name, value in COMMON.items() if name != "num_key_value_heads"}
    if kind == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**COMMON, tie_word_embeddings=True))
    if kind == "mistral":  # every layer looks back 8 tokens
        return t.MistralForCausalLM(t.MistralConfig(**COMMON, sliding_window=8))
    if kind == "gemma3":  # one layer looks back 8 tokens
        layers = ["sliding_attention", "full_attention"]
        config = t.Gemma3TextConfig(**COMMON, head_dim=8, sliding_window=8, layer_types=layers)
        return t.Gemma3ForCausalLM(config)
    if kind == "lfm2":  # one layer keeps a convolution's state instead of keys and values
        return t.Lfm2ForCausalLM(t.Lfm2Config(**COMMON, layer_types=["conv", "full_attention"]))
    if kind == "gpt2":  # learned positions, transposed weights
        return t.GPT2LMHeadModel(
            t.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=256)
        )
    if kind == "olmoe":  # a mixture of experts
        return t.OlmoeForCausalLM(t.OlmoeConfig(**few, num_experts=4, num_experts_per_tok=2))
    raise ValueError(kind)


def build_tokenizer():
    """One token per character; the first four are begin, end, user and assistant."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "</s>", "<u>", "<a>"]
    names = special + [chr(code) for code in range(32, 92)]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=special[2:],
    )
    fast.chat_template = TEMPLATE
    return fast


def run(coroutine, timeout=60):
    """Run to the end, but not for ever."""
    return asyncio.run(asyncio.wait_for(coroutine, timeout))


def prompts(lengths, seed=0):
    """Random prompts without special tokens."""
    draw = np.random.default_rng(seed)
    return [draw.integers(4, 64, size=length).tolist() for length in lengths]


def record(prompt, generation, advantage=1.0, edge=None):
    """The record of one edge."""
    tokens = [*prompt, *generation.tokens]
    logprobs = [0.0] * len(prompt) + list(generation.logprobs)
    return ActorRecord(tokens, logprobs, [Span(len(prompt), len(tokens), advantage, edge)])


def batch(trainer, records, *, lag=0):
    """A batch as the scheduler makes it."""
    step = trainer.step
    return Batch(
        index=step,
        behavior_step=step - lag,
        learner_step=step,
        actor=records,
        items=trainer.convert(records),
    )


async def sample_records(policy, lengths=(3, 9, 6, 14), *, tokens=12, n=2, seed=0):
    """Records of random prompts with random advantages."""
    asked = prompts(lengths, seed)
    params = [SamplingParams(max_tokens=tokens, seed=seed + i) for i in range(len(asked))]
    answers = await asyncio.gather(
        *(policy.generate(each, one, n) for each, one in zip(asked, params, strict=True))
    )
    draw = np.random.default_rng(seed)
    return [
        record(prompt, generation, float(draw.normal()))
        for prompt, generations in zip(asked, answers, strict=True)
        for generation in generations
    ]


async def gap(trainer, records):
    """Largest |learner - behaviour| over the records' generated tokens."""
    items = trainer.convert(records)
    values = await trainer.forward_logprobs(items)
    return max(
        np.abs(learner - item.logprobs[item.mask]).max()
        for learner, item in zip(values, items, strict=True)
    )
