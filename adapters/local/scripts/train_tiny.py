#!/usr/bin/env python3
r"""Make the weights of the model ``tiny``: some minutes on one core, the same for a seed.

The policy reads and writes single characters. It is taught, by supervised learning alone,

- running sums (``12-3=9``, one a line), which is where it gets its arithmetic from, and
- worked replies to questions of the task ``arithmetic``, mostly short ones, ending in ``\boxed{}``.

Every reply is right. They differ in how their writers worked: a careful one adds one number a
line; an impatient one may at any line take all that is left at once; a brilliant one always does,
at the first line. The model copies that mixture, but it is not brilliant: what it takes in one
line it gets right the less often the more it is. So reinforcement learning has something to find
out that no reply says, namely which way of working pays. No mistake is planted anywhere.

Only questions of the split ``train`` are used; the figures printed are of ``tune``.

Needs torch 2.9 or newer (Muon) and focus-task-arithmetic. Usage::

    python adapters/local/scripts/train_tiny.py [--out DIR] [--seed N] [--steps N] [--threads N]
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from focus_task_arithmetic import LEVELS, Question, grade, questions
from tokenizers import Tokenizer, decoders, models
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TINY = Path(__file__).parents[1] / "src/focus_adapter_local/tiny"
PAD, UNKNOWN, SYSTEM, USER, ASSISTANT, END = range(6)
SPECIALS = ("<|pad|>", "<|unk|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
CHARACTERS = ["\n", *map(chr, range(32, 127))]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@attrs.frozen(kw_only=True)
class Recipe:
    """What is taught and how.

    Attributes:
        levels: Weights of the task's levels among the questions.
        writers: Weights of the writers of replies, and how likely each one is to take all
            remaining numbers at once at any line.
        chain_share: Share of running sums among the texts.
        steps: Optimizer steps.
        rows: Texts per step.
        muon_rate: Step size of the hidden matrices.
        adam_rate: Step size of embeddings and norms.
        seed: Of weights and texts.
    """

    levels: dict[int, float] = attrs.field(factory=lambda: {1: 2, 2: 3, 3: 5, 4: 3, 5: 1.5, 6: 1})
    writers: tuple[tuple[float, float], ...] = ((30, 0.0), (30, 0.5), (40, 1.0))
    chain_share: float = 0.3
    steps: int = 900
    rows: int = 32
    muon_rate: float = 0.02
    adam_rate: float = 6e-3
    seed: int = 0


def make_tokenizer() -> Any:
    """One token per printable ASCII character or newline; anything else is the unknown token."""
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, *CHARACTERS])}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token=SPECIALS[UNKNOWN]))
    inner.decoder = decoders.Fuse()
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=inner,
        pad_token=SPECIALS[PAD],
        unk_token=SPECIALS[UNKNOWN],
        eos_token=SPECIALS[END],
        additional_special_tokens=list(SPECIALS[SYSTEM:END]),
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
        padding_side="left",
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(seed: int) -> Any:
    """655 thousand parameters in three layers."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(SPECIALS) + len(CHARACTERS),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=END,
            pad_token_id=PAD,
        )
    )
    with torch.no_grad():
        for weight in _hidden(model):
            weight.mul_(2.5)  # transformers' 0.02 is meant for wider layers
    return model


def working(question: Question, haste: float, rng: random.Random) -> str:
    """A right reply to a question.

    Args:
        question: What was asked.
        haste: How likely a line is to take all remaining numbers instead of one.
        rng: Decides that.
    """
    total, rest = question.terms[0], list(question.terms[1:])
    lines = []
    while rest:
        take = len(rest) if rng.random() < haste else 1
        line = f"{total}" + "".join(f"{term:+d}" for term in rest[:take])
        total += sum(rest[:take])
        rest = rest[take:]
        lines.append(f"{line}={total}\n")
    return "".join(lines) + f"\\boxed{{{total}}}"


def chain(rng: random.Random) -> str:
    """Ten lines of a running sum, as in a long worked reply."""
    total = rng.randint(-40, 60)
    text = ""
    for _ in range(10):
        term = rng.choice((-1, 1)) * rng.randint(1, 9)
        text += f"{total}{term:+d}={total + term}\n"
        total += term
    return text


def prompt(question: Question) -> str:
    """The question as the chat template renders the task's prompt."""
    return f"<|user|>Compute {question}. Box the answer.<|end|><|assistant|>"


def texts(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Endless pairs of what is given and what is to be learned."""
    rng = random.Random(recipe.seed)
    levels, weights = zip(*recipe.levels.items(), strict=True)
    shares, hastes = zip(*recipe.writers, strict=True)
    while True:
        if rng.random() < recipe.chain_share:
            whole = chain(rng)
            yield whole[:1], whole[1:]
            continue
        (level,) = rng.choices(levels, weights)
        question = LEVELS[level][rng.randrange(len(LEVELS[level]))]
        if question.split == "train":
            (haste,) = rng.choices(hastes, shares)
            yield prompt(question), working(question, haste, rng) + SPECIALS[END]


def batches(recipe: Recipe, tokenizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and which of them are to be learned, both of shape (rows, width), padded on the right."""
    source = texts(recipe)
    while True:
        pairs = [
            [tokenizer.encode(part, add_special_tokens=False) for part in next(source)]
            for _ in range(recipe.rows)
        ]
        width = max(len(given) + len(learned) for given, learned in pairs)
        ids = torch.full((recipe.rows, width), PAD)
        mask = torch.zeros((recipe.rows, width), dtype=torch.bool)
        for row, (given, learned) in enumerate(pairs):
            stop = len(given) + len(learned)
            ids[row, :stop] = torch.tensor(given + learned)
            mask[row, len(given) : stop] = True
        yield ids, mask


def _hidden(model: nn.Module) -> list[nn.Parameter]:
    return [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]


def teach(recipe: Recipe, tokenizer: Any) -> Any:
    """Supervised learning from scratch: Muon for the matrices, Adam for the rest."""
    model = make_model(recipe.seed)
    hidden = _hidden(model)
    others = [p for p in model.parameters() if all(p is not h for h in hidden)]
    optimizers = [
        torch.optim.Muon(hidden, lr=recipe.muon_rate, weight_decay=0.01),
        torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: min((step + 1) / 30, 1.0, (recipe.steps - step) / (0.4 * recipe.steps)),
        )
        for optimizer in optimizers
    ]
    started, losses = time.monotonic(), []
    for step, (ids, mask) in enumerate(batches(recipe, tokenizer), start=1):
        hidden_states = model.model(input_ids=ids, use_cache=False).last_hidden_state
        learned = mask[:, 1:]
        logits = model.lm_head(hidden_states[:, :-1][learned])
        loss = nn.functional.cross_entropy(logits, ids[:, 1:][learned])
        model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == recipe.steps:
            mean = math.fsum(losses[-50:]) / len(losses[-50:])
            print(
                f"step {step}/{recipe.steps}  loss {mean:.4f}  {time.monotonic() - started:.0f} s",
                flush=True,
            )
        if step == recipe.steps:
            return model.eval()
    raise AssertionError("batches are endless")


@torch.no_grad()
def accuracy(
    model: Any, tokenizer: Any, asked: Sequence[Question], *, sample: bool
) -> tuple[float, float]:
    """Share of right replies, and their mean length in tokens."""
    inputs = tokenizer(
        [prompt(question) for question in asked],
        return_tensors="pt",
        padding=True,
        add_special_tokens=False,
        return_token_type_ids=False,
    )
    options: dict[str, Any] = {"do_sample": True, "top_k": 0} if sample else {"do_sample": False}
    torch.manual_seed(1)
    output = model.generate(**inputs, max_new_tokens=80, **options)
    replies = output[:, inputs["input_ids"].shape[1] :]
    right = [
        grade(tokenizer.decode(reply), question.answer)
        for reply, question in zip(replies, asked, strict=True)
    ]
    return sum(right) / len(right), (replies != PAD).sum().item() / len(right)


def main() -> None:
    """Teach, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=TINY)
    parser.add_argument("--seed", type=int, default=Recipe().seed)
    parser.add_argument("--steps", type=int, default=Recipe().steps)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = make_tokenizer()
    model = teach(Recipe(seed=options.seed, steps=options.steps), tokenizer)
    for level in range(1, 9):
        asked = questions("tune", [level], 30 if level == 1 else 200)
        sampled, length = accuracy(model, tokenizer, asked, sample=True)
        greedy, _ = accuracy(model, tokenizer, asked, sample=False)
        print(
            f"level {level}: right {sampled:.0%} sampled, {greedy:.0%} greedy; "
            f"{length:.0f} tokens a reply",
            flush=True,
        )
    model.save_pretrained(options.out)
    make_tokenizer().save_pretrained(options.out)  # the other one has learned to pad
    for path in options.out.iterdir():
        path.chmod(0o644)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
