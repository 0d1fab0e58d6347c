"""Every number that is reported is defined on the page of metrics."""

import json
import re

import pytest

from tests.core.cli_kit import invoke
from tests.docs.docs_kit import ROOT

PAGE = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
LOCAL = ("--model", "tiny", "--set", "trainer.threads=1")
SMALL = ("--set", "search.budget=2", "--set", "search.warmup=2")


def defined(*headings):
    """Names in the first column of the tables below these headings."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    tables = dict(zip(parts[1::2], parts[2::2], strict=True))
    rows = re.findall(r"^\| (`.+?) \|(.+)\|(.+)\|$", "\n".join(tables[h] for h in headings), re.M)
    assert all(unit is not None and len(what) > 5 for _, unit, what in rows)
    return {name for cell, *_ in rows for name in re.findall(r"`([\w/:]+)`", cell)}


BATCH = "A batch, as it was collected"
UPDATE = "An update, as the trainer reports it"
EVALUATION = "A run's evaluation"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A local run of two updates with an evaluation; its directory and its JSON lines."""
    folder = tmp_path_factory.mktemp("run") / "run"
    done = invoke(
        *("train", "--task", "arithmetic", *LOCAL, *SMALL, "--json", "--run-dir", folder),
        *("--steps", 2, "--problems-per-step", 1, "--eval-every", 1, "--eval-problems", 2),
    )
    assert done.code == 0, done
    return folder, [json.loads(line) for line in done.out.splitlines()]


def test_all_that_a_local_run_reports_is_on_the_page(run):
    folder, lines = run
    written = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == len(written) == 2
    for report in (*lines, *written):
        assert set(report) - {"metrics"} == defined("A step")
        assert set(report["metrics"]) <= defined(BATCH, UPDATE, EVALUATION)
    assert {"loss", "eval/greedy_low", "return_mean"} <= {*lines[-1]["metrics"]}


def test_all_that_a_runs_evaluation_reports_is_on_the_page(run):
    rows = [json.loads(line) for line in (run[0] / "evaluations.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    for row in rows:
        assert set(row) - {"learner_step"} == defined(EVALUATION)


def test_all_that_an_evaluation_reports_is_on_the_page():
    done = invoke("eval", "--task", "arithmetic", *LOCAL, "--limit", 2, "--rollouts", 2, "--json")
    assert set(json.loads(done.out)) == defined("`focus eval`")


def test_all_that_a_collection_reports_is_on_the_page(tmp_path):
    collect = ("collect", "--task", "arithmetic", *LOCAL, "--json")
    found = set()
    for name, more in (("a", SMALL), ("b", ("--recipe", "group", "--search", "independent"))):
        done = invoke(*collect, "--output", tmp_path / name, *more)
        assert done.code == 0, done
        found |= set(json.loads(done.out))
    assert found <= defined("`focus collect`")
    assert {"tokens", "failed_predictions", "stopped"} <= found


def test_the_formulas_are_those_of_the_numbers(run):
    """What can be checked between the numbers of a report."""
    for index, report in enumerate(run[1]):
        metrics = report["metrics"]
        assert report["policy_lag"] == report["learner_step"] - report["behavior_step"]
        assert metrics["epoch"] == pytest.approx((index + 1) / 2000)
        assert metrics["logprob_gap"] <= metrics["logprob_gap_max"]
        assert 0 <= metrics["signal_share"] <= 1
        assert 0 <= metrics["clip_fraction"] <= 1
        assert metrics["trained_tokens"] <= metrics["sampled_tokens"]
        if report["policy_lag"] == 0:
            assert metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)
