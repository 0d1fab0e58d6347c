"""The token cases of the shared behaviour file that an agent must get right."""

import asyncio
import json
import math
from pathlib import Path

import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    Generation,
    GenerationError,
    Independent,
    PreparedPrompt,
    ReplyEnv,
    Segments,
    Transition,
)
from focus_core.lanes import export_actor, export_merged

CASES = Path(__file__).parents[3] / "shared" / "cases" / "behaviour.jsonl"
pytestmark = pytest.mark.skipif(not CASES.exists(), reason="needs ../shared/cases")


def case(name):
    for line in CASES.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        if found["id"].startswith(f"{name}_"):
            return found["input"], found["expected"]
    raise LookupError(name)


class Table:
    """Says generations in order; tokens and prompts are what a case says they are.

    Args:
        said: Generations.
        prompts: Prompts in order of rendering.
        pieces: Bytes of each token.
        end: The end token.
    """

    version = 0

    def __init__(self, said, prompts, pieces=None, end=0):
        self.said = list(said)
        self.prompts = list(prompts)
        self.pieces = pieces or {}
        self.end_tokens = frozenset({end})
        self.asked = []
        self.chats = []

    def prepare(self, messages):
        self.chats.append(messages)
        return PreparedPrompt(self.prompts.pop(0))

    def decode(self, tokens):
        return b"".join(self.pieces.get(t, b"<%d>" % t) for t in tokens).decode(errors="replace")

    async def generate(self, tokens, params, n=1):
        self.asked.append(list(tokens))
        return [self.said.pop(0)]


class Again:
    """Asks once more after the first turn; every turn's reward is 1."""

    def __init__(self):
        self.turns = 0

    def reset(self, problem):
        return ({"role": "user", "content": "?"},)

    async def step(self, reply):
        self.turns += 1
        if self.turns == 2:
            return Transition(1.0, done=True)
        return Transition(messages=[{"role": "user", "content": "more"}])


def said(tokens, stop="stop"):
    return Generation(tokens, [-0.5] * len(tokens), stop)


def one(policy, env, collect, context=None):
    agent = Agent(policy, env, context=context or Segments())
    search = Independent(1)
    return collect(Collector(agent, critic=Critic.constant(0.5), search=search))


def test_t01_sampled_ids_are_kept_where_encoding_the_text_gives_others(collect):
    given, expected = case("t01")
    (again,) = given["reencoded_ids"]
    pieces = dict(
        zip(given["sampled_ids"], map(str.encode, given["sampled_text_pieces"]), strict=True)
    )
    pieces[again] = b"".join(pieces.values())
    policy = Table([said(given["sampled_ids"]), said([7])], [[1], [1, again, 2]], pieces)
    collection = one(policy, Again(), collect).prepare()
    assert policy.chats[1][1]["content"] == "hello"
    first, second = export_actor(collection)
    assert first.tokens[first.loss_mask.astype(bool)].tolist() == expected["datum_tokens"]
    assert second.tokens.tolist() == [1, again, 2, 7], "sampled after the template's own ids"
    assert second.loss_mask.tolist() == [0, 0, 0, 1]
    assert list(collection.tree.fresh) == [1, 1, 0]
    assert len(export_merged(collection)) == 2


def test_t03_a_character_cut_by_a_segment_is_read_from_all_ids(collect):
    given, expected = case("t03")
    text = given["text"].encode()
    shown = [piece.replace("\\ufffd", "\ufffd") for piece in given["ids_as_pieces"]]
    ids = list(range(10, 10 + len(shown)))
    cuts, at = [], 0
    for piece in shown:
        width = len(piece.replace("\ufffd", "?").encode())  # a byte for each mark
        cuts.append(text[at : at + width])
        at += width
    pieces = dict(zip(ids, cuts, strict=True))
    assert [b.decode(errors="replace") for b in cuts] == shown

    class Exact(ReplyEnv):
        async def grade(self, reply):
            return float(reply == expected["join_of_ids_decodes_to"])

    segments = [ids[start:stop] for start, stop in given["segments"]]
    policy = Table([said(segments[0], "length"), said(segments[1])], [[1]], pieces)
    collection = one(policy, Exact(policy.decode, 99), collect).prepare()
    assert collection.returns == [1.0]
    assert policy.asked[1] == [1, *segments[0]]
    (record,) = export_merged(collection)
    assert record.tokens.tolist() == [1, *ids]


@pytest.mark.parametrize("kept", [False, True])
def test_t04_the_stop_token_is_there_once_and_trained_only_if_sampled(collect, kept):
    given, expected = case("t04")
    turn, end = given["turn1"], given["turn1"]["end_token"]
    first = [*turn["sampled"], end] if kept else turn["sampled"]
    policy = Table(
        [said(first), said(given["turn2_sampled"])],
        [turn["prompt"], given["turn2_prompt_from_template"]],
        end=end,
    )
    collection = one(policy, Again(), collect).prepare()
    assert policy.asked == [turn["prompt"], given["turn2_prompt_from_template"]]
    assert policy.chats[1][1]["content"] == "<3>"
    (record,) = export_merged(collection)
    assert record.tokens.tolist().count(end) == 1
    mask = record.loss_mask[1:].tolist()  # of targets
    assert mask == ([0, 1, 1, 0, 1] if kept else expected["mask"])


def test_t06_a_log_probability_that_is_no_number_is_refused(collect):
    given, expected = case("t06")
    assert expected["rejected_or_masked"]
    logprobs = [float(value) for value in given["logprobs"]]
    assert math.isinf(logprobs[1])
    policy = Table([Generation(given["tokens"], logprobs, "stop")], [[1]])
    (failure,) = one(policy, Again(), collect).failures
    assert isinstance(failure.error, GenerationError)
    assert "log probability 1 of 2 is -inf" in str(failure.error)


def test_t07_an_empty_completion_trains_nothing(collect):
    given, expected = case("t07")

    class Graded(ReplyEnv):
        async def grade(self, reply):
            return float(bool(reply))

    policy = Table([said(given["tokens"])], [given["prompt"]])
    collection = one(policy, Graded(policy.decode, 9), collect).prepare()
    assert collection.returns == [expected["reward"]]
    assert export_actor(collection) == export_merged(collection) == []
    assert not collection.failures


def test_the_table_is_a_policy():
    assert asyncio.run(Table([said([1])], []).generate([5], None)) == [said([1])]
