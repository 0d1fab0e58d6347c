"""Critic contexts in a tree: whole when read, and no longer than what they add when kept."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_core import Critic
from focus_core.lanes import export_critic
from focus_core.tree.contexts import context_of, kept
from focus_core.tree.tree import Tree
from tests.core.walk_kit import Fluent, collector


def chain(contexts, parents=None):
    """A tree whose states were asked about with these contexts."""
    tree = Tree((1,))
    for node in range(1, len(contexts)):
        tree.add(node - 1 if parents is None else parents[node])
    for node, context in enumerate(contexts):
        tree.context[node] = kept(tree, node, context)
    return tree


def held(tree):
    """Bytes of everything the contexts are kept in."""
    size = 0
    for context in tree.context:
        size += sys.getsizeof(context)
        if context is not None and not isinstance(context, str):
            size += sum(sys.getsizeof(x) for x in (context.state, context.length, context.rest))
    return size


@given(st.data())
def test_every_context_is_read_as_it_was_given(data):
    size = data.draw(st.integers(1, 12))
    parents = [-1, *(data.draw(st.integers(0, node - 1)) for node in range(1, size))]
    contexts = []
    for node in range(size):
        before = contexts[parents[node]] if node else ""
        kind = data.draw(
            st.sampled_from(["longer", "shorter", "other", "edited", "none", "number"])
        )
        text = before if isinstance(before, str) else ""
        more = data.draw(st.text("ab\U0001f600", max_size=3)) * data.draw(st.integers(0, 300))
        contexts.append(
            {
                "longer": text + more,
                "shorter": text[: data.draw(st.integers(0, 600))],
                "other": more,
                "edited": text[:-1] + "\ufffd" + more,
                "none": None,
                "number": 3.5,
            }[kind]
        )
    tree = chain(contexts, parents)
    assert [context_of(tree, node) for node in range(size)] == contexts


def test_a_path_of_growing_texts_is_kept_in_the_size_of_the_last():
    texts = ["x" * 1000 * (i + 1) for i in range(128)]
    tree = chain(texts)
    assert held(tree) < 1.3 * len(texts[-1])
    assert sum(map(len, texts)) > 60 * len(texts[-1])


def test_a_text_of_a_class_of_its_own_is_kept_as_it_is():
    class Marked(str):
        __slots__ = ("mark",)

    texts = [Marked("x" * 1000), Marked("x" * 2000)]
    tree = chain(texts)
    assert all(context_of(tree, node) is text for node, text in enumerate(texts))


class Forgetful(Fluent):
    """Never decodes the same way twice."""

    calls = 0

    def decode(self, tokens):
        self.calls += 1
        return f"{super().decode(tokens)} ({self.calls})"


@pytest.mark.parametrize("policy", [Fluent(), Forgetful()])
def test_the_text_sent_is_the_text_saved_however_it_is_decoded(policy, collect):
    sent = []

    def critic(text):
        sent.append(text)
        return 0.5

    made = collector(policy, None, depth=6, critic=Critic.from_fn(critic))
    collection = collect(made).prepare()
    saved = [record.context for record in export_critic(collection)]
    assert len(saved) == 6
    assert sorted(saved) == sorted(sent)


def test_they_are_kept_short_however_fast_the_policy_is(collect):
    made = collector(Fluent(), None, depth=30, critic=Critic.from_fn(lambda text: 0.5))
    collection = collect(made)
    assert held(collection.tree) < 2 * len(collection.context(29))


def test_what_is_asked_for_at_export_is_kept_too(collect):
    made = collector(Fluent(), None, depth=6, critic=Critic.constant(0.5))
    collection = collect(made).prepare()
    first = [record.context for record in export_critic(collection)]
    assert [record.context for record in export_critic(collection)] == first
    assert len(set(first)) == 6
    assert not isinstance(collection.tree.context[5], str)
