"""Folding a chat: when, by whom, into what, and at what price."""

import asyncio
import threading

import attrs
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    FoldError,
    Folding,
    Independent,
    ReplyEnv,
    Segments,
    Selective,
    Transition,
    Turns,
)
from focus_core.lanes import export_actor, export_merged
from focus_core.testing import RandomPolicy
from focus_core.tree.tree import ASKED, FOLDED

REQUEST, RESUME = "71", "72"


class Talk:
    """Answers each finished turn with a message, ``turns`` times; counts its steps."""

    def __init__(self, turns=3, answer="8"):
        self.turns = turns
        self.answer = answer
        self.steps = 0

    def reset(self, problem):
        self.steps = 0
        return ({"role": "user", "content": str(problem.prompt)},)

    async def step(self, reply):
        self.steps += 1
        if reply.stop_reason == "length":
            return Transition()
        self.turns -= 1
        if not self.turns:
            return Transition(1.0, done=True, metrics={"steps": float(self.steps)})
        return Transition(0.25, messages=[{"role": "tool", "content": self.answer}])

    def snapshot(self):
        return self.turns, self.steps

    def restore(self, state):
        self.turns, self.steps = state


def folding(**options):
    return Folding(**{"request": REQUEST, "resume": RESUME, "summary_tokens": 4} | options)


def grown(policy, env, collect, context, **options):
    collection = collect(
        Collector(
            Agent(policy, env, context=context, **options),
            critic=Critic.constant(0.5),
            search=Independent(1),
        )
    )
    return collection if collection.failures else collection.prepare()


def edges(collection):
    tree = collection.tree
    return [(tree.generated(n)[0].tolist(), tree.reward[n], tree.fold[n]) for n in tree.edges()]


# Triggers ---------------------------------------------------------------------------------------


def test_after_some_turns_the_policy_summarizes_and_goes_on_from_that(collect, scripted):
    policy = scripted([41, 0], [42, 0], [90, 91, 0], [43, 0])
    context = folding(inner=Turns(9), max_turns=2, penalty=0.125)
    collection = grown(policy, Talk(3), collect, context)
    first = [5, 3]
    second = [5, 3, 41, 0, 8, 3]
    asked = [*second[:-1], 3, 42, 0, 8, 71, 3]
    folded = [5, 3, 90, 91, 0, 72, 3]
    assert policy.prompts == [first, second, asked, folded]
    assert edges(collection) == [
        ([41, 0], 0.25, 0),
        ([42, 0], 0.25, ASKED),
        ([90, 91, 0], -0.125, FOLDED),
        ([43, 0], 1.0, 0),
    ]
    (rollout,) = collection.rollouts()
    assert rollout.reward == 1.375, "the outcome is paid, and the fold"
    assert rollout.messages[:3] == (
        {"role": "user", "content": "5"},
        {"role": "assistant", "content": "90 91"},
        {"role": "user", "content": RESUME},
    )
    assert [turn.tokens for turn in rollout.turns] == [[41, 0], [42, 0], [90, 91, 0], [43, 0]]
    assert rollout.turns[-1].prefix == folded
    assert collection.environment["steps"] == [3.0], "the summary is no step"
    assert collection.counts["folds"] == 1
    assert list(collection.tree.fresh) == [1, 0, 0, 1, 0]


def test_the_summary_is_trained_like_any_other_tokens(collect, scripted):
    policy = scripted([41, 0], [90, 0], [43, 0])
    collection = grown(policy, Talk(2), collect, folding(max_turns=1))
    records = {tuple(r.tokens[r.spans[0].start :].tolist()): r for r in export_actor(collection)}
    summary = records[90, 0]
    assert summary.tokens.tolist() == [5, 3, 41, 0, 8, 71, 3, 90, 0]
    assert summary.logprobs.tolist() == [0] * 7 + [-0.5] * 2
    merged = export_merged(collection)
    assert [record.tokens.tolist() for record in merged] == [
        summary.tokens.tolist(),
        [5, 3, 90, 0, 72, 3, 43, 0],
    ]
    assert [len(record.spans) for record in merged] == [2, 1]


def test_a_long_prompt_fires_in_the_middle_of_a_turn(collect, scripted):
    """What was said is put into the chat as it stands; the policy begins another turn."""
    policy = scripted([41, 42], [43, 44], [45, 46], [90, 0], [47, 0])
    context = folding(inner=Segments(2), max_tokens=7)

    class Whole(ReplyEnv):
        async def grade(self, text):
            return float(text == "41 42 43 44 45 46 47 0")

    collection = grown(policy, Whole(policy.decode, 99), collect, context)
    assert policy.prompts == [
        [5, 3],
        [5, 3, 41, 42],
        [5, 3, 41, 42, 43, 44],
        [5, 3, 41, 42, 43, 44, 45, 46, 0, 71, 3],
        [5, 3, 90, 0, 72, 3],
    ]
    (rollout,) = collection.rollouts()
    assert rollout.reward == 1.0, "the environment joined both parts of its reply"
    assert [turn.tokens for turn in rollout.turns] == [[41, 42, 43, 44, 45, 46], [90, 0], [47, 0]]


def test_an_environment_is_told_that_a_new_turn_begins(collect, scripted):
    class Told(Talk):
        def folded(self):
            self.steps = -100

    policy = scripted([41, 42], [90, 0], [45, 0])
    collection = grown(policy, Told(1), collect, folding(inner=Segments(2), max_tokens=8))
    assert collection.environment["steps"] == [2.0], "no fold yet"
    policy = scripted([41, 42, 43, 44, 45, 46], [90, 0], [45, 0])
    context = folding(inner=Segments(6), max_tokens=8)
    collection = grown(policy, Told(1), collect, context)
    assert collection.environment["steps"] == [-99.0]


def test_a_context_about_to_be_full_is_folded_while_the_summary_has_room(collect, scripted):
    policy = scripted([41, 42], [43, 44], [45, 46], [90, 91, 0], [47, 0])
    policy.context_length = 14
    collection = grown(policy, Talk(1), collect, folding(inner=Segments(2), summary_tokens=3))
    # Another segment, the request (3 with the turn's end) and the summary: 6 + 2 + 3 + 3 fit,
    # 8 + 2 + 3 + 3 do not.
    assert [len(prompt) for prompt in policy.prompts] == [2, 4, 6, 11, 7]
    assert policy.params[3].max_tokens == 3
    (rollout,) = collection.rollouts()
    assert rollout.tokens == [5, 3, 90, 91, 0, 72, 3, 47, 0]


def test_a_prompt_too_long_even_for_the_summary_is_a_cut(collect, scripted):
    policy = scripted([41, 0])
    policy.context_length = 20
    env = Talk(2, answer=" ".join(["8"] * 30))
    collection = grown(policy, env, collect, folding(inner=Segments(4)))
    assert collection.counts["truncated"] == 1
    assert not collection.failures


def test_a_rollout_cut_by_its_number_of_transitions_is_not_folded_first(collect, scripted):
    policy = scripted([41, 0], [42, 0])
    collection = grown(policy, Talk(9), collect, folding(max_turns=2), max_transitions=2)
    assert [edge[2] for edge in edges(collection)] == [0, 0]
    assert collection.tree.messages[2][-1] == {"role": "tool", "content": "8"}


def test_folds_repeat_and_count_turns_since_the_last(collect, scripted):
    said = [[41, 0], [90, 0], [42, 0], [91, 0], [43, 0]]
    policy = scripted(*said)
    collection = grown(policy, Talk(3), collect, folding(max_turns=1))
    assert [edge[2] for edge in edges(collection)] == [ASKED, FOLDED, ASKED, FOLDED, 0]
    assert policy.prompts[-1] == [5, 3, 91, 0, 72, 3]


# Summaries --------------------------------------------------------------------------------------


def test_a_summary_cut_at_its_limit_is_used_as_it_stands(collect, scripted):
    policy = scripted([41, 0], [90, 91], [43, 0])
    grown(policy, Talk(2), collect, folding(max_turns=1, summary_tokens=2))
    assert policy.params[1].max_tokens == 2
    assert policy.prompts[2] == [5, 3, 90, 91, 0, 72, 3]


@pytest.mark.parametrize("summary", [[0], []])
def test_an_empty_summary_is_a_failure(collect, scripted, summary):
    policy = scripted([41, 0], summary)
    collection = grown(policy, Talk(2), collect, folding(max_turns=1))
    (failure,) = collection.failures
    assert isinstance(failure.error, FoldError)
    assert failure.stage == "generation"
    assert "the summary is ''" in str(failure.error)
    assert collection.returns == []
    assert list(collection.tree.edges()) == []


def test_a_fold_that_does_not_help_is_a_failure_and_no_loop(collect, scripted):
    policy = scripted([41, 42], [90, 91, 92, 0])
    collection = grown(policy, Talk(1), collect, folding(inner=Segments(2), max_tokens=4))
    (failure,) = collection.failures
    assert isinstance(failure.error, FoldError)
    assert "after a fold has 8 tokens" in str(failure.error)
    assert "raise max_tokens" in str(failure.error)
    assert len(policy.prompts) == 2


def test_a_first_prompt_that_would_be_folded_is_refused_at_once(collect, scripted):
    policy = scripted()
    collection = grown(policy, Talk(1), collect, folding(max_tokens=2))
    (failure,) = collection.failures
    assert isinstance(failure.error, FoldError)
    assert "the first prompt has 2 tokens" in str(failure.error)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_function_may_summarize(collect, scripted, kind):
    chats, threads = [], []

    def shorten(chat):
        chats.append([message["content"] for message in chat])
        threads.append(threading.current_thread())
        return "99"

    async def shorten_later(chat):
        await asyncio.sleep(0)
        return shorten(chat)

    policy = scripted([41, 0], [42, 0])
    summarize = shorten if kind == "sync" else shorten_later
    context = folding(max_turns=1, summarize=summarize, penalty=0.125)
    collection = grown(policy, Talk(2), collect, context)
    assert policy.prompts == [[5, 3], [5, 3, 99, 0, 72, 3]]
    assert edges(collection) == [([41, 0], 0.125, FOLDED), ([42, 0], 1.0, 0)]
    assert chats == [["5", "41", "8"]]
    assert (threads[0] is threading.main_thread()) is (kind == "async")


@pytest.mark.parametrize("made", ["", "  \n", None, 7])
def test_a_function_that_makes_no_summary_fails_the_rollout(collect, scripted, made):
    policy = scripted([41, 0])
    context = folding(max_turns=1, summarize=lambda chat: made)
    (failure,) = grown(policy, Talk(2), collect, context).failures
    assert isinstance(failure.error, FoldError)
    assert repr(made) in str(failure.error)


@pytest.mark.parametrize(
    ("keep", "prompt"),
    [(None, [6, 5, 3, 90, 0, 72, 3]), (1, [6, 3, 90, 0, 72, 3]), (0, [3, 90, 0, 72, 3])],
)
def test_the_first_messages_stay(collect, scripted, keep, prompt):
    policy = scripted([41, 0], [90, 0], [43, 0])
    grown(policy, Talk(2), collect, folding(max_turns=1, keep=keep), system_prompt="6")
    assert policy.prompts[2] == prompt


# Branching --------------------------------------------------------------------------------------


class Steps(Talk):
    """Ends after some turns; the reward tells what was said since the start, folds or not."""

    def __init__(self, turns):
        super().__init__(turns)
        self.said = ()

    async def step(self, reply):
        self.said = (*self.said, *reply.tokens)
        transition = await super().step(reply)
        if transition.done:
            return Transition(sum(self.said) / 1000, done=True)
        return transition

    def snapshot(self):
        return super().snapshot(), self.said

    def restore(self, state):
        super().restore(state[0])
        self.said = state[1]


class Counting(RandomPolicy):
    """Never says nothing, so that no summary is empty."""

    async def generate(self, tokens, params, n=1):
        while True:
            found = await super().generate(tokens, params, n)
            if all(one.tokens != [0] for one in found):
                return found
            params = attrs.evolve(params, seed=params.seed + 1)


def test_states_before_and_after_a_fold_are_branched(collect):
    """Whether a state awaits a fold belongs to it: every branch from one is a summary."""
    policy = Counting(6, end=0.4)
    context = folding(inner=Segments(3), max_turns=2, max_tokens=40, summary_tokens=5)
    collector = Collector(
        Agent(policy, Steps(5), context=context),
        critic=Critic.constant(0.5),
        search=Selective(budget=120, warmup=80, max_concurrency=3),
    )
    collection = collect(collector, key=(1,)).prepare()
    assert not collection.failures
    tree, children = collection.tree, collection.tree.children()
    before = [node for node in range(len(tree)) if tree.fold[node] == ASKED]
    after = [node for node in range(len(tree)) if tree.fold[node] == FOLDED]
    assert any(len(children[node]) > 1 for node in before)
    assert any(len(children[node]) > 1 for node in after)
    for node in before:
        assert tree.messages[node][-1] == {"role": "user", "content": REQUEST}
        assert all(tree.fold[child] == FOLDED for child in children[node])
    for node in after:
        assert tree.fold[tree.parent[node]] == ASKED
        assert tree.fresh[node]
    for rollout in collection.rollouts():
        said, at = 0, rollout._node
        for node in tree.path(at)[1:]:
            if tree.fold[node] != FOLDED:
                said += int(tree.generated(node)[0].sum())
        assert tree.reward[at] == said / 1000, "the environment saw all but summaries"


def test_options_make_sense():
    for name, value in (("max_tokens", 0), ("max_turns", 0), ("summary_tokens", 0), ("keep", -1)):
        with pytest.raises(ValueError, match=name):
            Folding(**{name: value})
    with pytest.raises(ValueError, match="penalty"):
        Folding(penalty=-1.0)


@pytest.mark.parametrize("penalty", [-1.0, float("inf"), float("nan")])
def test_a_penalty_is_a_finite_number(penalty):
    with pytest.raises(ValueError, match="penalty"):
        Folding(penalty=penalty)
