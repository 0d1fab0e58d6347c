"""``focus view``: a page beside its tree, or one for a directory."""

import json

import pytest

from focus_core.view import SavedTree
from tests.core.cli_kit import fake_distribution, focus, invoke
from tests.view.view_kit import saved


@pytest.fixture
def out(tree, tmp_path):
    directory = tmp_path / "out"
    directory.mkdir()
    for place in (2, 10):
        (directory / f"tree-{place}.json").write_text(tree.to_json())
    return directory


def problems(page):
    text = page.read_text()
    return [part.split('"')[0] for part in text.split('data-problem="')[1:]]


def test_a_tree_gets_a_page_beside_it(out):
    done = invoke("view", out / "tree-2.json")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{out / 'tree-2.html'}\n"
    assert problems(out / "tree-2.html") == ["p"]


def test_a_directory_gets_one_page_in_the_order_of_its_problems(out):
    form = saved(budget=0, warmup=4).to_dict()
    (out / "tree-9.json").write_text(json.dumps({**form, "problem": "nine"}))
    done = invoke("view", out)
    assert (done.code, done.out) == (0, f"{out / 'trees.html'}\n")
    assert problems(out / "trees.html") == ["p", "nine", "p"]
    page = out.parent / "new/page.html"
    assert invoke("view", out, "--output", page).out == f"{page}\n"
    assert page.read_text() == (out / "trees.html").read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["none.json"], "none.json: no such file"),
        (["empty"], "no tree-N.json in it; name the --output of focus collect"),
        (["out/tree-2.json", "--output", "out/tree-2.json"], "name an HTML file"),
        (["out/tree-2.json", "--output", "out"], "name an HTML file"),
        (["out/tree-2.json", "--output", "out/tree-2.json/x.html"], "cannot be written"),
        (["old.json"], "field 'schema': 1 is not 4 or 3"),
    ],
)
def test_mistakes_are_one_line(out, monkeypatch, args, words):
    monkeypatch.chdir(out.parent)
    (out.parent / "empty").mkdir()
    (out.parent / "old.json").write_text('{"schema": 1, "nodes": []}')
    before = (out / "tree-2.json").read_bytes()
    done = invoke("view", *args)
    assert done.code == 2
    assert done.exception is None
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert (out / "tree-2.json").read_bytes() == before


def test_what_focus_collect_writes_can_be_viewed(tmp_path):
    site = fake_distribution(tmp_path)
    done = focus(
        site, "collect", "--task", "countdown", "--trainer", "fake", "--output", "out", "--count", 2
    )
    assert done.code == 0, done.err
    tree = SavedTree.from_dict(json.loads((tmp_path / "out/tree-1.json").read_text()))
    assert tree.problem == "c1"
    done = focus(site, "view", "out")
    assert done.code == 0, done.err
    assert problems(tmp_path / "out/trees.html") == ["c0", "c1"]
