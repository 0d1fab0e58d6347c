"""``focus export``: saved records as items, from every place records are saved."""

import json
import sys
from pathlib import Path

import pytest

from focus_core import ActorRecord
from focus_core.run.recording import Recording
from tests.core.cli_kit import distribution, fake_distribution, invoke

BASE = ("--task", "countdown", "--trainer", "fake")

ITEMS = """
    import array, dataclasses, enum
    import attrs
    import numpy as np
    from focus_core import ConverterSpec, RecordError, hookimpl

    class Kind(enum.Enum):
        ACTOR = "actor"

    @attrs.frozen
    class Item:
        tokens: object
        numbers: object
        kind: Kind = Kind.ACTOR

    @dataclasses.dataclass
    class Numbers:
        advantage: object
        model: object

    class Model:
        def model_dump(self):
            return {"half": np.float32(0.5), "none": None, "flags": (True, np.bool_(False))}

    def item(record):
        return Item(record.tokens, Numbers(np.float64(record.reward), Model()))

    def refuse(record):
        raise RecordError("this loss needs a reward per sample")

    def bug(record):
        return record.no_such_thing

    def nothing(record):
        return object()

    def not_finite(record):
        return [float("nan")]

    def key(record):
        return {1: 2}

    def endless(record):
        loop = []
        loop.append(loop)
        return loop

    @hookimpl
    def focus_converters():
        return [
            ConverterSpec(f.__name__.replace("_", "-"), f.__name__, f)
            for f in (item, refuse, bug, nothing, not_finite, key, endless)
        ]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = fake_distribution(tmp_path_factory.mktemp("site"))
    return distribution(folder, "t-items", points={"items": "t_items"}, t_items=ITEMS)


@pytest.fixture(autouse=True)
def here(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake,t-items")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recorded(here):
    done = invoke("train", *BASE, "--steps", 2, "--run-dir", "run", "--record", "rec")
    assert done.code == 0, done.err
    return here / "rec"


@pytest.fixture
def collected(here):
    done = invoke("collect", *BASE, "--output", "out", "--merge", "--count", 2)
    assert done.code == 0, done.err
    return here / "out"


def lines(done):
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_records_of_a_recording_in_either_form(recorded):
    recording = Recording.open(recorded)
    merged = [r.to_dict() for b in range(2) for tree in recording.read(b).trees for r in tree]
    assert lines(invoke("export", recorded, "--to", "records", "--merge")) == merged
    single = lines(invoke("export", recorded))
    assert not any("spans" in plain["metadata"] for plain in single)
    assert sum(sum(plain["loss_mask"]) for plain in single) == sum(
        sum(plain["loss_mask"]) for plain in merged
    )
    assert len(single) > len(merged)
    for plain in single:
        assert ActorRecord.from_dict(plain).to_dict() == plain


def test_a_recorded_run_is_named_by_its_own_directory(recorded, here):
    assert invoke("export", "run").out == invoke("export", "rec").out


def test_what_was_collected_in_either_form(collected):
    saved = [json.loads(line) for line in (collected / "actor.jsonl").read_text().splitlines()]
    assert lines(invoke("export", collected, "--merge")) == saved
    assert any("spans" in plain["metadata"] for plain in saved)
    done = invoke("collect", *BASE, "--output", "edges", "--count", 2)
    assert done.code == 0
    edges = [json.loads(line) for line in Path("edges/actor.jsonl").read_text().splitlines()]
    assert sorted(lines(invoke("export", collected)), key=edge) == edges


def edge(plain):
    """Where a record per edge is among those of ``focus collect``."""
    return plain["metadata"]["group_index"], plain["metadata"]["edge"]


def test_items_of_any_make_become_json(recorded):
    items = lines(invoke("export", recorded, "--to", "item"))
    records = lines(invoke("export", recorded))
    assert items == [
        {
            "tokens": record["tokens"],
            "numbers": {
                "advantage": record["reward"],
                "model": {"half": 0.5, "none": None, "flags": [True, False]},
            },
            "kind": "actor",
        }
        for record in records
    ]


def test_a_file_appears_whole_or_not_at_all(recorded, here):
    done = invoke("export", recorded, "--to", "item", "--output", "deep/items.jsonl")
    assert done.code == 0, done.err
    text = (here / "deep/items.jsonl").read_text()
    assert text == invoke("export", recorded, "--to", "item").out
    assert done.out == f"{len(text.splitlines())} items: deep/items.jsonl\n"
    (recorded / "batch-000001.npz").write_bytes(b"")
    done = invoke("export", recorded, "--output", "deep/items.jsonl")
    assert done.code == 2
    assert "batch-000001.npz: not a recorded batch" in done.err
    assert (here / "deep/items.jsonl").read_text() == text
    assert [path.name for path in (here / "deep").iterdir()] == ["items.jsonl"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("refuse", "rec/batch-000000.npz: record 0: this loss needs a reward per sample"),
        ("bug", "record 0: converter 'bug' failed: AttributeError"),
        ("nothing", "record 0: the item of converter 'nothing' has no JSON form: a object"),
        ("not-finite", "has no JSON form: nan is not finite"),
        ("key", "has no JSON form: the key 1 is not text"),
        ("endless", "has no JSON form: "),
    ],
)
def test_a_converter_that_fails_names_the_record(recorded, target, said):
    done = invoke("export", recorded, "--to", target)
    assert (done.code, done.out, done.crashed) == (1, "", False)
    assert said in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("nowhere", "nowhere: holds no records; give what focus train --record"),
        ("bare", "bare: the run was not recorded"),
        ("out", "out/actor.jsonl:2: not an actor record"),
        ("binary", "binary/actor.jsonl:1: not an actor record"),
        ("list", "list/actor.jsonl:1: not an actor record"),
    ],
)
def test_what_holds_no_records_is_named(collected, here, directory, said):
    invoke("train", *BASE, "--steps", 1, "--run-dir", "bare")
    path = here / "out/actor.jsonl"
    first = path.read_text().splitlines()[0]
    path.write_text(f"{first}\n{first[:50]}\n")
    for name, content in (("binary", b"\xff\xfe\n"), ("list", b"[]\n")):
        (here / name).mkdir()
        (here / name / "actor.jsonl").write_bytes(content)
    done = invoke("export", directory, "--output", "items.jsonl")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert not (here / "items.jsonl").exists()


def test_an_unknown_target_lists_the_known(recorded):
    done = invoke("export", recorded, "--to", "itm")
    assert done.code == 2
    assert "no converter 'itm' (did you mean item?)" in done.err


def test_an_output_that_cannot_be_written(recorded, here):
    (here / "file").write_text("")
    done = invoke("export", recorded, "--output", "file/items")
    assert done.code == 2
    assert "--output file/items cannot be written" in done.err
