"""How tokenizers and templates are read, on small ones in the style of real models."""

import logging

import pytest

pytest.importorskip("transformers")
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast

from focus_core import GenerationError, SamplingParams, UsageError
from focus_core.policy import Generation
from focus_core.tokenizer import ChatTokenizer, Reading, read_profile, turn_ends

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (  # leaves a system message out
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
PLAIN = (
    "{% for m in messages %}### {{ m.role }}\n{{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant\n{% endif %}"
)


def tokenizer(template, *added, special=True, eos="</s>"):
    """Bytes, an end of text, and further tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({each: i for i, each in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = ByteLevel()
    found = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=eos)
    found.add_tokens(list(added), special_tokens=special)
    found.chat_template = template
    return found


def chat(made):
    return ChatTokenizer(made, read_profile(made, None, "m"))


def said(made, messages):
    talk = chat(made)
    return talk.decode(talk.prepare(messages).tokens)


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "1+1?"}
REPLY = {"role": "assistant", "content": "2"}


# How turns end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(
    ("template", "added", "end"),
    [
        (CHATML, ("<|im_start|>", "<|im_end|>"), "<|im_end|>"),
        (GEMMA, ("<start_of_turn>", "<end_of_turn>"), "<end_of_turn>"),
        (MISTRAL, ("[INST]", "[/INST]"), "</s>"),
    ],
)
def test_the_token_after_a_reply_ends_a_turn_beside_the_end_of_text(
    template, added, end, special, caplog
):
    made = tokenizer(template, *added, special=special)
    ends = {made.convert_tokens_to_ids(end), made.eos_token_id}
    assert turn_ends(made, "m") == ends
    assert not caplog.records


@pytest.mark.parametrize(
    ("template", "written"), [(CHATML, "<|im_end|>"), (PLAIN.replace("\n\n", "\n\n~"), "~")]
)
def test_a_turn_that_ends_with_no_token_of_its_own_is_warned_of(template, written, caplog):
    made = tokenizer(template)
    with caplog.at_level(logging.WARNING):
        assert turn_ends(made, "base") == {made.eos_token_id}
    (message,) = caplog.messages
    assert f"'base' ends a turn with '{written}" in message
    assert "</s>" in message


# Templates without a system role ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        (GEMMA, "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n"),
        (MISTRAL, "[INST] ", " [/INST]"),
    ],
)
def test_the_system_text_comes_before_the_users_first(template, before, after):
    made = tokenizer(template)
    assert said(made, [SYSTEM, USER]) == f"{before}Be brief.\n\n1+1?{after}"
    assert said(made, [USER]) == f"{before}1+1?{after}"
    whole = said(made, [SYSTEM, USER, REPLY, USER])
    assert whole.count("Be brief.") == 1
    assert whole.startswith(f"{before}Be brief.\n\n1+1?")
    assert said(made, [{**SYSTEM, "content": ""}, USER]) == f"{before}1+1?{after}"


def test_a_template_with_a_system_role_keeps_it():
    made = tokenizer(CHATML)
    assert said(made, [SYSTEM, USER]).startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_what_cannot_be_folded_is_refused_as_the_template_says():
    with pytest.raises(UsageError, match="System role not supported"):
        said(tokenizer(GEMMA), [SYSTEM, REPLY])
    with pytest.raises(UsageError, match="roles must alternate"):
        said(tokenizer(GEMMA), [SYSTEM, USER, USER])


# Stop strings, and ids without text ---------------------------------------------------------------


def test_a_stop_string_ends_with_the_token_that_completes_it():
    made = tokenizer(PLAIN)
    tokens = made.encode("yes \u6f22 no\n\nmore no", add_special_tokens=False)
    sampled = Generation(tokens, [-float(i) for i in range(len(tokens))], "length")
    talk = chat(made)
    for texts, kept in {
        ("\n\n",): "yes \u6f22 no\n\n",
        ("no", "\u6f22"): "yes \u6f22",  # a character of three tokens
        ("more", "e"): "ye",
    }.items():
        cut = talk.cut(sampled, texts)
        assert talk.decode(cut.tokens) == kept
        count = len(cut.tokens)
        assert (cut.tokens, cut.logprobs) == (tokens[:count], sampled.logprobs[:count])
        assert cut.stop_reason == "stop"
    assert talk.cut(sampled, ("never",)) is sampled
    assert talk.cut(sampled, ()) is sampled


def test_stops_are_ids_and_strings():
    assert SamplingParams(stop="ab").stop == ("ab",)
    assert SamplingParams(stop=[1, "x"]).stop == (1, "x")
    with pytest.raises(ValueError, match="empty string"):
        SamplingParams(stop=[""])


def test_ids_that_the_tokenizer_lacks_are_refused():
    made = tokenizer(CHATML, "<|im_end|>")
    talk = chat(made)
    talk.check_known(range(len(made)), "The server")
    with pytest.raises(GenerationError, match=f"The server sampled token {len(made)}, which"):
        talk.check_known([0, len(made)], "The server")
    ChatTokenizer(made, Reading(frozenset({1}))).check_known([9999], "nobody knows")
