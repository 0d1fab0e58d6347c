"""Saved trees: exact, small, and refused with the place where they are wrong."""

import json

import numpy as np
import pytest

from focus_core import DataError, Problem, Transition, save_tree
from focus_core.testing import CountdownEnv
from focus_core.view import SavedTree, read_tree
from tests.view.view_kit import collected, saved


def test_what_is_read_is_what_was_saved(tree, tmp_path):
    path = tmp_path / "tree.json"
    path.write_text(tree.to_json())
    again = read_tree(path)
    assert again == tree
    assert again.to_json() == tree.to_json()
    assert tree.to_json().isascii()
    assert "\n" not in tree.to_json()


def test_a_script_saves_a_tree_as_the_command_does(tmp_path):
    collection, policy = collected(budget=20, warmup=8)
    save_tree(collection, tmp_path / "tree-0.json")
    assert read_tree(tmp_path / "tree-0.json") == SavedTree.of(collection, policy.decode)
    save_tree(collection, str(tmp_path / "other.json"), decode=lambda tokens: "?" * len(tokens))
    assert set("".join(read_tree(tmp_path / "other.json").nodes[-1].pieces)) <= {"?"}


def test_the_expected_answer_and_the_environments_are_kept():
    form = saved(problem=Problem("1 2 3", label={"answer": np.float32(6.5)}, id="p"), warmup=4)
    assert form.label == {"answer": 6.5}
    assert SavedTree.from_dict(json.loads(form.to_json())) == form
    assert {type(state.answer) for state in form.nodes} == {list}
    asked = saved(env=Asking(), segment=4, warmup=4, budget=0)
    answered = [state for state in asked.nodes if state.rendered and state.parent is not None]
    assert answered
    for state in asked.nodes:
        assert state.answer == ([{"role": "tool", "content": "42"}] if state in answered else [])


class Asking(CountdownEnv):
    """Answers each step."""

    async def step(self, reply):
        transition = await super().step(reply)
        if transition.done:
            return transition
        return Transition(messages=[{"role": "tool", "content": "42"}])


@pytest.mark.parametrize("version", [3, 4])
def test_a_tree_saved_before_labels_still_opens(tree, tmp_path, version):
    old = json.loads(tree.to_json())
    old["schema"] = version
    if version == 3:
        del old["label"]
        for state in old["nodes"]:
            del state["answer"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    read = read_tree(tmp_path / "old.json")
    assert (read.schema, read.label) == (4, None)
    assert read == tree


def test_the_numbers_are_the_collections():
    collection, policy = collected(budget=40, warmup=16)
    tree, form = collection.tree, SavedTree.of(collection, policy.decode)
    assert [state.id for state in form.nodes] == list(range(len(tree)))
    for state in form.nodes:
        tokens, logprobs = tree.generated(state.id)
        assert state.tokens == tokens.tolist()
        assert np.array(state.logprobs, np.float32).tobytes() == logprobs.tobytes()
        assert "".join(state.pieces) == policy.decode(state.tokens)
        assert state.rendered == tree.rendered(state.id).tolist()
        assert state.value == collection.values.refined[state.id]
        through = {
            end.launch for end in form.nodes if end.kind != "open" and state.id in tree.path(end.id)
        }
        assert state.visits == len(through)
        evidence = collection.decisions.evidence.get(state.id)
        assert state.n == (evidence.n if evidence else 0)
        assert (state.mean is None) == (state.n == 0)
    root = form.nodes[0]
    assert (root.parent, root.advantage, root.tokens) == (None, None, [])
    assert root.rendered_text == policy.decode(root.rendered)
    assert root.visits == form.counts["continuations"]
    assert form.messages == [{"role": "user", "content": "1 2 3"}]
    assert form.settings["search"].startswith("Selective(budget=40")
    assert len(form.launches["state"]) == form.counts["continuations"]


def test_what_failed_is_kept_apart():
    class Fragile(CountdownEnv):
        async def step(self, reply):
            if self.left == 2:
                raise ValueError("the verifier is down")
            return await super().step(reply)

    form = saved(env=Fragile(3), segment=1, budget=4, warmup=8, allow_partial=True)
    assert len(form.nodes) == 1
    assert form.nodes[0].visits == 0
    assert len(form.removed) == len(form.failures) == 4
    assert [failure.error for failure in form.failures] == ["ValueError: the verifier is down"] * 4
    assert {state.parent for state in form.removed} == {0}
    assert [f.state for f in form.failures] == [state.id for state in form.removed]
    assert all(state.visits == 0 and state.value is None for state in form.removed)
    assert SavedTree.from_dict(json.loads(form.to_json())) == form


def change(form, path, value):
    """Replace or (with ``...``) delete what lies at a path."""
    *way, last = path
    for step in way:
        form = form[step]
    if value is ...:
        del form[last]
    else:
        form[last] = value


WRONG = [
    (("schema",), 1, "field 'schema': 1 is not 4 or 3"),
    (("nodes",), {}, "field 'nodes': must be a list"),
    (("nodes",), [], "nodes must hold the root"),
    (("nodes", 2), 7, "field 'nodes[2]'"),
    (("nodes", 2, "id"), True, "field 'nodes[2]': id must be an integer from 0, not True"),
    (("nodes", 2, "id"), 1, "nodes must be ordered by id; 1 follows 1"),
    (("nodes", 2, "parent"), 5, "state 2: there is no parent 5 before it"),
    (("nodes", 2, "parent"), None, "state 2: exactly the first state has no parent"),
    (("nodes", 0, "parent"), 0, "state 0: exactly the first state has no parent"),
    (("nodes", 2, "kind"), "closed", "kind must be one of 'open', 'terminal', 'truncated'"),
    (("nodes", 2, "reward"), "1", "reward must be a finite number, not '1'"),
    (("nodes", 2, "reward"), 10**400, "reward must be a finite number, not 1000"),
    (("nodes", 2, "value"), [], "value must be a finite number"),
    (("nodes", 2, "tokens"), [1], "logprobs has 12 entries, tokens 1"),
    (("nodes", 2, "tokens", 0), -1, "tokens must be an integer from 0, not -1"),
    (("nodes", 2, "tokens", 0), 2**60, "tokens must be an integer from 0"),
    (("nodes", 2, "pieces", 0), None, "pieces must hold str, not None"),
    (("nodes", 2, "inside"), [99], "state 2: inside names a token beyond the last"),
    (("nodes", 2, "rendered_text"), 3, "rendered_text"),
    (("nodes", 2, "advantage"), ..., "missing 1 required keyword-only argument: 'advantage'"),
    (("nodes", 2, "more"), 1, "unexpected keyword argument 'more'"),
    (("launches", "n"), ..., "launches must have the columns state, phase, worth"),
    (("launches", "n"), [], "the columns of launches must be of one length"),
    (("launches", "state", 0), 10**6, "names state 1000000; there is none"),
    (("changes", "worth", 0), "1", "changes.worth must be a finite number, not '1'"),
    (("failures",), [{}], "field 'failures[0]'"),
    (("messages",), "hello", "messages"),
    (("counts",), [], "counts"),
]


@pytest.mark.parametrize(("path", "value", "words"), WRONG, ids=lambda v: str(v)[:40])
def test_a_wrong_tree_is_refused_where_it_is_wrong(tree, tmp_path, path, value, words):
    form = json.loads(tree.to_json())
    change(form, path, value)
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(form))
    with pytest.raises(DataError) as caught:
        read_tree(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("[1, 2]", "not a tree"),
        ('{"a": 1}', "not a tree"),
        ('{"schema": 2, "nodes": [NaN]}', "NaN is not a finite number"),
        ("[" * 100_000, "cannot be read"),
        (b"\xff\xfe{}", "cannot be read"),
    ],
    ids=["empty", "list", "other", "nan", "deep", "bytes"],
)
def test_what_is_no_tree_is_refused(tmp_path, text, words):
    file = tmp_path / "tree.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=words):
        read_tree(file)
    with pytest.raises(DataError, match="no such file"):
        read_tree(tmp_path / "none.json")
