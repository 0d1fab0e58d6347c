"""``focus collect``: records and trees as files, whole or not at all."""

import json
import os
import sys

import pytest

from focus_core import ActorRecord, CriticRecord
from focus_core.utils.lock import hold
from tests.core.cli_kit import fake_distribution, invoke

BASE = ("collect", "--task", "countdown", "--trainer", "fake")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return fake_distribution(tmp_path_factory.mktemp("site"))


@pytest.fixture(autouse=True)
def here(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_and_trees_of_each_problem(here):
    done = invoke(*BASE, "--output", "out", "--first", 1, "--count", 2)
    assert done.code == 0, done.err
    out = here / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "actor.jsonl",
        "critic.jsonl",
        "tree-1.json",
        "tree-1.txt",
        "tree-2.json",
        "tree-2.txt",
    ]
    actor, critic = lines(out / "actor.jsonl"), lines(out / "critic.jsonl")
    assert {r["metadata"]["problem"] for r in actor} == {"c1", "c2"}
    assert [ActorRecord.from_dict(r).to_dict() for r in actor] == actor
    assert [CriticRecord.from_dict(r).to_dict() for r in critic] == critic
    assert all("training" not in r["metadata"] for r in actor + critic)
    for place in (1, 2):
        tree = json.loads((out / f"tree-{place}.json").read_text())
        mine = [r for r in actor if r["metadata"]["problem"] == f"c{place}"]
        assert tree["problem"] == f"c{place}"
        ids = [node["id"] for node in tree["nodes"]]
        assert ids == sorted(set(ids))
        edges = {n["id"]: n for n in tree["nodes"] if n["parent"] is not None}
        for record in mine:
            node = edges[record["metadata"]["edge"]]
            assert node["parent"] == record["metadata"]["parent"]
            assert node["advantage"] == pytest.approx(record["reward"])
            assert record["tokens"][-len(node["tokens"]) :] == node["tokens"]
        text = (out / f"tree-{place}.txt").read_text()
        assert len(text.splitlines()) == len(tree["nodes"])
        assert "└── " in text
        assert text in done.out
    assert f"{len(actor)} actor and {len(critic)} critic records of 2 trees: out" in done.out


def test_json_prints_one_summary_a_tree_and_nothing_else(here):
    done = invoke(*BASE, "--output", "out", "--count", 3, "--json")
    assert done.code == 0, done.err
    summaries = [json.loads(line) for line in done.out.splitlines()]
    assert [s["problem"] for s in summaries] == ["c0", "c1", "c2"]
    assert all(s["transitions"] > 0 and s["stopped"] for s in summaries)
    assert "3 trees: out" in done.err


def test_merging_trains_the_same_tokens_in_fewer_records(here):
    assert invoke(*BASE, "--output", "edges").code == 0
    assert invoke(*BASE, "--output", "paths", "--merge").code == 0
    edges, paths = lines(here / "edges/actor.jsonl"), lines(here / "paths/actor.jsonl")
    assert len(paths) < len(edges)
    count = lambda records: sum(sum(r["loss_mask"]) for r in records)  # noqa: E731
    assert count(paths) == count(edges)
    assert any(r["reward"] is None for r in paths)


def test_the_seed_makes_trees_alike(here):
    for name, seed in ("a", 1), ("b", 1), ("c", 2):
        assert invoke(*BASE, "--output", name, "--seed", seed).code == 0
    a, b, c = ((here / name / "actor.jsonl").read_bytes() for name in "abc")
    assert a == b != c


def test_a_failed_tree_is_not_written_and_says_where(here):
    done = invoke(*BASE, "--output", "out", "--count", 3, "--set", "task.bug_in=c1")
    assert done.code == 1
    last = done.err.splitlines()[-1]
    for part in ("focus: ", "'c1'", "environment", "KeyError"):
        assert part in last
    assert "focus_fake.py" in done.err, "the environment's author sees where"
    kept = ["actor.jsonl", "critic.jsonl", "tree-0.json", "tree-0.txt"]
    assert sorted(path.name for path in (here / "out").iterdir()) == kept, "what came before it"
    assert {record["metadata"]["problem"] for record in lines(here / "out/actor.jsonl")} == {"c0"}


def test_partial_trees_are_kept_if_allowed(here):
    args = (*BASE, "--output", "out", "--count", 2, "--set", "task.bug_in=c1")
    done = invoke(*args, "--allow-partial", "--json")
    assert done.code == 0, done.err
    first, second = (json.loads(line) for line in done.out.splitlines())
    assert first["failed_continuations"] == 0
    assert second["failed_continuations"] == 3
    assert {r["metadata"]["problem"] for r in lines(here / "out/actor.jsonl")} == {"c0"}
    tree = json.loads((here / "out/tree-1.json").read_text())
    assert len(tree["failures"]) == 3
    assert len(tree["nodes"]) == 1


def test_a_checkpoint_is_sampled_from(here):
    (here / "saved.json").write_text('{"updates": 4}')
    for name, more in ("fresh", ()), ("saved", ("--checkpoint", "saved.json")):
        assert invoke(*BASE, "--output", name, *more).code == 0
    done = invoke(*BASE, "--output", "x", "--checkpoint", "none.json")
    assert done.code == 2
    assert "none.json is not a saved state" in done.err


def test_a_problem_beyond_the_last_is_refused(here):
    done = invoke(*BASE, "--output", "out", "--first", 4)
    assert done.code == 2
    assert "there are 4 problems" in done.err
    assert not (here / "out").exists()


def test_a_collection_is_not_written_over(here):
    assert invoke(*BASE, "--output", "out").code == 0
    before = {path: path.read_bytes() for path in (here / "out").iterdir()}
    done = invoke(*BASE, "--output", "out", "--first", 1)
    assert done.code == 2
    assert "out holds a collection already" in done.err
    assert {path: path.read_bytes() for path in (here / "out").iterdir()} == before


def test_a_run_directory_stands_for_its_newest_checkpoint(here):
    train = ("train", *BASE[1:], "--steps", 2, "--run-dir", "run")
    assert invoke(*train).code == 0
    newest = invoke(*BASE, "--output", "a", "--checkpoint", "run")
    assert newest.code == 0, newest.err
    named = here / "run/checkpoints/step-000002.json"
    assert invoke(*BASE, "--output", "b", "--checkpoint", named).code == 0
    assert (here / "a/actor.jsonl").read_bytes() == (here / "b/actor.jsonl").read_bytes()


def test_two_processes_do_not_collect_into_one_directory(here):
    (here / "out").mkdir()
    held = hold(here / "out")
    try:
        done = invoke(*BASE, "--output", "out")
        assert done.code == 2
        assert "--output out: another process is writing there" in done.err
        assert list((here / "out").iterdir()) == []
    finally:
        os.close(held)
    assert invoke(*BASE, "--output", "out").code == 0
