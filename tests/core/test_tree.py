"""The tree's columns, prefixes and text form."""

import math

import numpy as np
import pytest

from focus_core import Tree
from focus_core.tree import backup, render_text
from focus_core.tree.returns import rollout_returns
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, TRUNCATED


@pytest.fixture
def chat():
    """Prompt 1 2; turn [3 4][5 0], answer rendered 6 7; turn [8]; and a branch re-rendered."""
    tree = Tree([1, 2], messages=["ask"], prediction=0.5)
    a = tree.add(ROOT, [3, 4], [-0.1, -0.2])
    b = tree.add(a, [5, 0], [-0.3, -0.4], rendered=[6, 7], messages=["ask", "say", "answer"])
    tree.add(b, [8], [-0.5], reward=1.0, kind=TERMINAL)
    d = tree.add(a, [9], [-0.6], rendered=[1, 9], fresh=True)
    tree.add(d, [10, 11], [-0.7, -0.8], kind=TRUNCATED, duration=2)
    return tree


def test_a_node_owns_its_edges_tokens_and_what_was_rendered_after(chat):
    tokens, logprobs = chat.generated(2)
    assert tokens.tolist() == [5, 0]
    assert logprobs.tolist() == [np.float32(-0.3), np.float32(-0.4)]
    assert chat.rendered(2).tolist() == [6, 7]
    assert chat.rendered(ROOT).tolist() == [1, 2]
    assert chat.generated(ROOT)[0].tolist() == []


def test_prefixes_are_what_the_next_request_sends(chat):
    assert chat.prefix(ROOT).tolist() == [1, 2]
    assert chat.prefix(1).tolist() == [1, 2, 3, 4]
    assert chat.prefix(2).tolist() == [1, 2, 3, 4, 5, 0, 6, 7]
    assert chat.prefix(3).tolist() == [1, 2, 3, 4, 5, 0, 6, 7, 8]
    assert chat.prefix(4).tolist() == [1, 9], "a new sequence forgets what came before"
    assert chat.prefix(5).tolist() == [1, 9, 10, 11]
    assert [chat.prefix_length(n) for n in range(6)] == [2, 4, 8, 9, 2, 4]
    assert chat.sequence(5) == [4, 5]
    assert chat.path(5) == [0, 1, 4, 5]


def test_a_prefix_is_a_copy(chat):
    chat.prefix(1)[:] = 0
    assert chat.prefix(1).tolist() == [1, 2, 3, 4]


def test_depth_counts_transitions(chat):
    assert list(chat.depth) == [0, 1, 2, 3, 2, 4]


def test_messages_are_the_parents_unless_given(chat):
    assert chat.messages[1] is chat.messages[ROOT]
    assert chat.messages[3] == ("ask", "say", "answer")


def test_removed_nodes_leave_edges_and_children(chat):
    assert list(chat.edges()) == [1, 2, 3, 4, 5]
    chat.remove([4, 5])
    assert list(chat.edges()) == [1, 2, 3]
    assert chat.children() == [[1], [2], [3], [], [], []]
    assert len(chat) == 6


def test_columns_grow_and_keep_what_they_held():
    tree = Tree(range(100))
    node = ROOT
    for step in range(50):
        node = tree.add(node, range(step, step + 20), [-float(step + 1)] * 20)
    assert tree.token_count == 1100
    assert tree.prefix(node).tolist()[:100] == list(range(100))
    assert tree.generated(1)[0].tolist() == list(range(20))
    assert set(tree.generated(node)[1].tolist()) == {-50.0}
    assert len(tree.prefix(node)) == tree.prefix_length(node) == 1100


def test_memory_grows_with_tokens_and_not_with_depth():
    deep, wide = Tree([1]), Tree([1])
    node = ROOT
    for _ in range(2000):
        node = deep.add(node, [5, 6], [-1.0, -1.0])
        wide.add(ROOT, [5, 6], [-1.0, -1.0])
    assert deep.token_bytes == wide.token_bytes
    assert deep.token_bytes < 8 * 4001 * 1.5
    assert len(deep.prefix(node)) == 4001


def test_returns_are_discounted_from_the_root():
    tree = Tree()
    a = tree.add(ROOT, reward=1.0, duration=2)
    tree.add(a, reward=4.0, kind=TERMINAL)
    tree.add(a, kind=TRUNCATED)
    # 1 + 0.5^2 * 4
    assert rollout_returns(tree, gamma=0.5) == {2: 2.0}


def test_the_text_form_draws_every_surviving_state(chat):
    chat.remove([5])
    values = backup(chat, gamma=1.0, kappa=1.0)
    text = render_text(
        chat,
        values.refined,
        [math.nan, 0.25, -0.5, 0.125, math.nan, math.nan],
        lambda t: f"<{t}\n>",
    )
    assert text.splitlines() == [
        "0 ○ V=0.50 2 prompt tokens",
        '└── 1 ○ V=nan A=+0.250 2 tok "<[3, 4]\\n>"',
        '    ├── 2 ○ V=nan A=-0.500 2 tok "<[5, 0]\\n>"',
        '    │   └── 3 ● R=1.00 A=+0.125 1 tok "<[8]\\n>"',
        '    └── 4 ○ V=nan 1 tok "<[9]\\n>"',
    ]
    assert render_text(chat).splitlines()[0] == "0 ○ 2 prompt tokens"
    assert '2 tok "[3…"' in render_text(chat, decode=str, width=3)


def test_a_deep_tree_is_drawn_without_recursion():
    tree = Tree()
    node = ROOT
    for _ in range(3000):
        node = tree.add(node, kind=OPEN)
    assert len(render_text(tree).splitlines()) == 3001


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": [2**31]},
        {"tokens": [1, 2], "logprobs": [-0.5, -0.5, -0.5]},
        {"tokens": [1], "logprobs": ["x"]},
        {"rendered": [2**40]},
        {"reward": "much"},
        {"kind": 256},
        {"duration": 1.5},
        {"messages": 5},
        {"prediction": None},
        {"parent": 99},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_and_leaves_the_tree_as_it_was(chat, wrong):
    before = [chat.prefix(node).tolist() for node in range(len(chat))]
    room = chat.token_count
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError)):
        chat.add(**{"parent": 2, "tokens": [7], "logprobs": [-0.5], **wrong})
    assert chat.token_count == room
    node = chat.add(2, [12], [-0.9])
    assert [chat.prefix(node).tolist() for node in range(len(chat) - 1)] == before
    assert chat.generated(node)[0].tolist() == [12]
    assert chat.generated(node)[1].tolist() == [np.float32(-0.9)]
    assert {len(column) for column in chat._columns()} == {len(before) + 1}
    names = {name for name, held in vars(chat).items() if hasattr(held, "append")}
    assert len(chat._columns()) == len(names - {"_bounds"}), (
        "a column is missing from those put right"
    )


def test_a_deep_tree_is_drawn_in_short_lines():
    tree = Tree([1])
    for _ in range(3000):
        tree.add(len(tree) - 1, [2], [-0.1])
    lines = render_text(tree).splitlines()
    assert len(lines) == 3001
    assert max(map(len, lines)) < 200
    assert lines[20].startswith(" " * 76 + "└── 20 ○")
    assert lines[3000].startswith("…   ")
    assert lines[3000].lstrip("… ").startswith("└── 3000 ○")
