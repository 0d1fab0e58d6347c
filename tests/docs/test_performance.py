"""The page of measurements: results are written where they belong, and what was not run stays."""

import importlib.util
import sys

import pytest

from tests.docs.docs_kit import ROOT

FAKE = """
import json
print("a word of someone else's")
print(json.dumps({"what": "x / y", "value": 0.5, "target": "<= 1", "detail": "", "holds": True}))
print(json.dumps({"what": "z", "value": 3, "target": "<= 1", "detail": "", "holds": False}))
raise SystemExit(%d)
"""


@pytest.fixture
def run_all(monkeypatch, tmp_path):
    """The module, with a page and benchmarks of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("run_all", ROOT / "benchmarks/run_all.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = tmp_path / "performance.md"
    page.write_text((ROOT / "docs/performance.md").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "PAGE", page)
    yield module
    sys.modules.pop("_measure", None)


def typed(run_all, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["run_all.py", *words])
    return run_all.main()


def test_every_benchmark_of_the_table_is_one_that_runs(run_all):
    text = run_all.PAGE.read_text(encoding="utf-8")
    compared = text.partition("## What is compared")[2].partition("##")[0]
    assert [row.split("|")[1].strip() for row in compared.splitlines() if "| " in row][1:] == list(
        run_all.NAMES
    )


def test_results_go_between_the_markers_and_the_rest_stays(run_all, monkeypatch, capfd):
    whole = run_all.PAGE.read_text(encoding="utf-8")
    before, after = whole.partition(run_all.BEGIN)[0], whole.partition(run_all.END)[2]
    (run_all.HERE / "grading.py").write_text(FAKE % 0)
    (run_all.HERE / "scheduler.py").write_text(FAKE % 0)
    assert typed(run_all, monkeypatch, "--write", "--only", "grading") == 0  # a miss is no error
    once = run_all.PAGE.read_text(encoding="utf-8")
    assert typed(run_all, monkeypatch, "--write", "--only", "grading") == 0
    assert run_all.PAGE.read_text(encoding="utf-8").count("### grading") == 1
    assert typed(run_all, monkeypatch, "--write", "--only", "scheduler") == 0
    text = run_all.PAGE.read_text(encoding="utf-8")
    assert text.startswith(before)
    assert text.endswith(after)
    assert "| x / y | 0.5 | ≤ 1 | yes |  |" in once
    assert "| z | 3 | ≤ 1 | **no** |  |" in text.partition("### grading")[2]
    assert text.index("### scheduler") < text.index("### grading")
    said = capfd.readouterr().out
    assert "1 of 2 targets hold\nMISSED  z: 3, target <= 1" in said
    assert "a word of someone else's" in said


def test_a_benchmark_that_fails_is_an_error_and_writes_nothing(run_all, monkeypatch, capfd):
    (run_all.HERE / "soak.py").write_text(FAKE % 3)
    before = run_all.PAGE.read_text(encoding="utf-8")
    assert typed(run_all, monkeypatch, "--write") == 1
    assert "FAILED  soak (exit status 3)" in capfd.readouterr().out
    assert run_all.PAGE.read_text(encoding="utf-8") == before
