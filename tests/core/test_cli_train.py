"""``focus train`` from end to end, on a fake task and trainer installed as a distribution."""

import asyncio
import contextlib
import json
import signal
import sys

import pytest

from focus_core.plugins.manager import load
from focus_core.run.directory import RunDirectory
from focus_core.run.start import opened
from tests.core.cli_kit import fake_distribution, focus, invoke

FIELDS = ["batch", "behavior_step", "learner_step", "policy_lag", "metrics"]
BASE = ("train", "--task", "countdown", "--trainer", "fake")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return fake_distribution(tmp_path_factory.mktemp("site"))


@pytest.fixture(autouse=True)
def here(installed, tmp_path, monkeypatch):
    """An empty working directory, with the fake distribution and no other plug-in."""
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(folder):
    """Every file below a folder, by relative path."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# Output ---------------------------------------------------------------------------------------


def test_json_prints_one_line_of_five_fields_per_update_and_nothing_else(here):
    done = invoke(*BASE, "--steps", 3, "--run-dir", "run", "--json")
    assert done.code == 0, done.err
    reports = [json.loads(line) for line in done.out.splitlines()]
    assert [list(report) for report in reports] == [FIELDS] * 3
    assert [(r["behavior_step"], r["learner_step"], r["policy_lag"]) for r in reports] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 2, 1),
    ]
    assert done.out.endswith("}\n")
    assert lines(here / "run/metrics.jsonl") == reports
    for said in ("training task countdown with fake: 3 updates", "step 2", "run directory: run"):
        assert said in done.err


def test_json_never_holds_nan(here):
    done = invoke(*BASE, "--steps", 1, "--json", "--set", "task.steps=1")
    assert "NaN" not in done.out
    assert "Infinity" not in done.out


def test_plain_output_is_one_line_an_event(here):
    done = invoke(*BASE, "--steps", 2, "--run-dir", "run", "--eval-every", 1)
    assert done.code == 0, done.err
    said = done.out.splitlines()
    assert said[0] == "run directory: run"
    assert said[1] == "training task countdown with fake: 2 updates"
    assert said[2].startswith("held-out mean return after 0 updates: sampled ")
    assert [line.split("  ")[:2] for line in said if line.startswith("step ")] == [
        ["step 0", "lag 0"],
        ["step 1", "lag 1"],
    ]
    assert said[-1].startswith("held-out mean return, before -> after: sampled ")
    assert "\x1b" not in done.out, "no control codes where there is no terminal"


def test_a_failing_observer_is_logged_and_harms_nothing(here, monkeypatch, caplog):
    monkeypatch.setenv("DASHBOARD_DOWN", "1")
    done = invoke(*BASE, "--steps", 2, "--json")
    assert done.code == 0
    assert len(done.out.splitlines()) == 2
    said = "observer Watcher failed in focus_step_finished: RuntimeError('the dashboard is down')"
    assert [r.getMessage() for r in caplog.records] == [said] * 2
    assert [bool(r.exc_info) for r in caplog.records] == [True, False]


# The run directory ----------------------------------------------------------------------------


def test_the_run_directory_holds_the_run(here):
    done = invoke(
        *BASE, "--steps", 3, "--run-dir", "run", "--eval-every", 2, "--save-every", 2, "--seed", 5
    )
    assert done.code == 0, done.err
    run = here / "run"
    found = contents(run)
    critic = {name for name in found if name.startswith("critic-targets/")}
    assert found - critic == {
        "config.json",
        "metrics.jsonl",
        "evaluations.jsonl",
        "state.json",
        "checkpoints/step-000002.json",
        "checkpoints/step-000003.json",
    }
    assert len(critic) == 3
    config = json.loads((run / "config.json").read_text())
    assert (config["task"], config["trainer"], config["steps"], config["seed"]) == (
        "countdown",
        "fake",
        3,
        5,
    )
    state = json.loads((run / "state.json").read_text())
    assert state["reference"] == "checkpoints/step-000003.json", "wherever the run is moved"
    assert (state["progress"]["batch"], state["progress"]["learner_step"]) == (3, 3)
    assert [e["learner_step"] for e in lines(run / "evaluations.jsonl")] == [0, 2, 3]
    records = [record for name in sorted(critic) for record in lines(run / name)]
    assert {r["lane"] for r in records} == {"critic"}
    assert [sorted(r["metadata"]["training"]) for r in records] == [
        ["batch", "behavior_step", "learner_step", "problem"]
    ] * len(records)
    assert {r["metadata"]["training"]["batch"] for r in records} == {0, 1, 2}


def test_without_a_name_each_run_gets_a_new_directory(here):
    for _ in range(2):
        assert invoke(*BASE, "--steps", 1).code == 0
    assert len(list((here / "runs").iterdir())) == 2


def test_a_directory_with_a_run_is_refused_and_left_alone(here):
    assert invoke(*BASE, "--steps", 1, "--run-dir", "run").code == 0
    before = {name: (here / "run" / name).read_bytes() for name in contents(here / "run")}
    done = invoke(*BASE, "--steps", 1, "--run-dir", "run")
    assert done.code == 2
    assert "--resume run" in done.err
    assert {name: (here / "run" / name).read_bytes() for name in contents(here / "run")} == before


def test_critic_output_goes_where_it_is_told(here):
    done = invoke(*BASE, "--steps", 2, "--run-dir", "run", "--critic-output", "deep/er/critic")
    assert done.code == 0, done.err
    assert len(list((here / "deep/er/critic").glob("*.jsonl"))) == 2
    assert not (here / "run/critic-targets").exists()


def test_problems_can_be_a_file(here):
    (here / "three.txt").write_text("1\n2\n3\n")
    done = invoke(
        *BASE, "--steps", 1, "--problems-per-step", 3, "--problems", "three.txt", "--json"
    )
    assert json.loads(done.out)["metrics"]["trees"] == 3


def test_settings_reach_task_search_recipe_and_trainer(here):
    done = invoke(
        *BASE,
        *("--steps", 1, "--run-dir", "run", "--json", "--recipe", "group"),
        *("--set", "task.segment_tokens=1", "--set", "task.level=hard", "--set", "task.steps=1"),
        *("--set", "search.n=6", "--set", "recipe.scale=true", "--set", "trainer.model=tiny"),
        *("--learning-rate", "2e-5"),
    )
    assert done.code == 0, done.err
    metrics = json.loads(done.out)["metrics"]
    assert metrics["continuations"] == 6
    assert metrics["transitions"] == 6
    saved = json.loads((here / "run/config.json").read_text())["settings"]
    assert saved["task"] == {"segment_tokens": "1", "level": "hard", "steps": "1"}
    assert saved["trainer"] == {"model": "tiny", "learning_rate": "2e-05"}


def test_a_named_search_runs_all_at_once_unless_told(here):
    """``n`` from the command line also sets the default that depends on it."""
    from focus_core.plugins.manager import load
    from focus_core.run.config import RunConfig
    from focus_core.run.prepare import prepare

    prepared = prepare(
        load(),
        RunConfig(
            task="countdown", trainer="fake", search="independent", settings={"search": {"n": "16"}}
        ),
        {},
    )
    search = prepared.collector_for(None, prepared.problems[0]).search
    assert (search.n, search.max_concurrency) == (16, 16)


def test_the_seed_makes_runs_alike(here):
    runs = [invoke(*BASE, "--steps", 2, "--json", "--seed", seed).out for seed in ("3", "3", "4")]
    assert runs[0] == runs[1] != runs[2]


def test_the_token_cap_is_told(here):
    done = invoke(*BASE, "--steps", 50, "--max-tokens", 1)
    assert done.code == 0
    assert "stopped after 1 of 50 updates: the cap of 1 sampled tokens" in done.out


def test_a_run_that_nobody_watches_keeps_its_reports(here):
    """Started from a script: nothing is shown, and no observer is given."""
    asked = {"task": "countdown", "trainer": "fake", "steps": 2, "settings": {}}
    with opened(load(), asked, run_dir=here / "run", say=lambda line: None) as ready:
        reports = asyncio.run(ready.train())
    assert [r["batch"] for r in lines(here / "run/metrics.jsonl")] == [r.batch for r in reports]
    assert len(reports) == 2


# Resume ---------------------------------------------------------------------------------------


def test_a_run_continues_where_it_was(here):
    assert invoke(*BASE, "--steps", 2, "--run-dir", "run", "--seed", 3).code == 0
    done = invoke("train", "--resume", "run", "--steps", 3, "--json")
    assert done.code == 0, done.err
    reports = [json.loads(line) for line in done.out.splitlines()]
    assert [(r["batch"], r["behavior_step"], r["learner_step"]) for r in reports] == [
        (2, 2, 2),
        (3, 2, 3),
        (4, 3, 4),
    ]
    assert [r["batch"] for r in lines(here / "run/metrics.jsonl")] == [0, 1, 2, 3, 4]
    state = json.loads((here / "run/state.json").read_text())
    assert state["progress"]["learner_step"] == 5
    assert json.loads((here / "run/checkpoints/step-000005.json").read_text()) == {"updates": 5}


def test_a_run_that_stopped_early_continues_to_its_steps(here):
    """The trainer fails at the 4th update; the checkpoint is after the 2nd."""
    done = invoke(
        *BASE,
        *("--steps", 6, "--run-dir", "run", "--save-every", 2, "--set", "trainer.fail_at=3"),
    )
    assert done.code == 1
    again = invoke("train", "--resume", "run", "--json", "--set", "trainer.fail_at=none")
    assert again.code == 0, again.err
    assert [json.loads(line)["batch"] for line in again.out.splitlines()] == [2, 3, 4, 5]


def test_a_finished_run_says_that_nothing_is_left(here):
    assert invoke(*BASE, "--steps", 2, "--run-dir", "run").code == 0
    done = invoke("train", "--resume", "run")
    assert done.code == 2
    assert "has made its 2 updates; say how many more with --steps" in done.err


def test_what_a_resume_changes_holds_for_the_next(here):
    assert invoke(*BASE, "--steps", 2, "--run-dir", "run").code == 0
    more = ("--steps", 2, "--learning-rate", 0.5, "--set", "trainer.fail_at=3")
    assert invoke("train", "--resume", "run", *more, "--save-every", 1).code == 1
    saved = json.loads((here / "run/config.json").read_text())
    assert saved["steps"] == 4
    assert saved["settings"]["trainer"]["learning_rate"] == "0.5"
    again = invoke("train", "--resume", "run", "--json", "--set", "trainer.fail_at=none")
    assert [json.loads(line)["batch"] for line in again.out.splitlines()] == [3]


def test_a_resumed_runs_critic_records_are_there_once(here):
    args = ("--steps", 4, "--run-dir", "run", "--critic-output", "critic", "--save-every", 2)
    assert invoke(*BASE, *args, "--set", "trainer.fail_at=3").code == 1
    assert invoke("train", "--resume", "run", "--set", "trainer.fail_at=none").code == 0
    batches = [
        json.loads(path.read_text().splitlines()[0])["metadata"]["training"]["batch"]
        for path in (here / "critic").iterdir()
    ]
    assert sorted(batches) == [0, 1, 2, 3]


@pytest.mark.parametrize(("option", "value"), [("--task", "needy"), ("--trainer", "heavy")])
def test_a_resumed_run_keeps_its_task_and_trainer(here, option, value):
    assert invoke(*BASE, "--steps", 1, "--run-dir", "run").code == 0
    before = (here / "run/metrics.jsonl").read_text()
    done = invoke("train", "--resume", "run", "--steps", 1, option, value)
    assert done.code == 2
    assert value in done.err
    assert "start another run" in done.err
    assert (here / "run/metrics.jsonl").read_text() == before


def test_a_resumed_run_may_repeat_its_task(here):
    assert invoke(*BASE, "--steps", 1, "--run-dir", "run").code == 0
    assert invoke(*BASE, "--resume", "run", "--steps", 1).code == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", "{}"),
        ("config.json", '{"task": "countdown", "unheard": 1}'),
        ("state.json", None),
        ("state.json", "{}"),
        ("state.json", '{"progress": {"batch": 1, "colour": 2}, "reference": "x"}'),
        ("state.json", '{"progress": 3, "reference": "x"}'),
        ("checkpoints/step-000001.json", None),
        ("checkpoints/step-000001.json", "{}"),
    ],
)
def test_a_damaged_run_is_refused_on_one_line(here, name, content):
    assert invoke(*BASE, "--steps", 1, "--run-dir", "run").code == 0
    path = here / "run" / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    done = invoke("train", "--resume", "run", "--steps", 1)
    assert not done.crashed, done.exception
    assert done.code == 2
    assert name.rpartition("/")[2] in done.err


@pytest.mark.parametrize("updates", [0, 2])
def test_a_run_killed_before_its_first_checkpoint_starts_again(here, installed, updates):
    """Not even the end of the run saved; what the dead start made is there once."""
    args = ("--steps", 3, "--run-dir", "run", "--record", "rec", "--seed", 4)
    kill = ("--set", f"trainer.kill_at={updates}")
    assert focus(installed, *BASE, *args, *kill, cwd=here).code == -signal.SIGKILL
    assert RunDirectory(here / "run").reported_batches() == updates
    done = invoke("train", "--resume", "run", "--set", "trainer.kill_at=none")
    assert done.code == 0, done.err
    assert done.out.count("no checkpoint yet: it starts again from the beginning") == 1
    assert [r["batch"] for r in lines(here / "run/metrics.jsonl")] == [0, 1, 2]
    assert sorted(path.name for path in (here / "rec").glob("*.npz")) == [
        f"batch-{batch:06d}.npz" for batch in range(3)
    ]
    assert len(trained(here / "run")) == 3 == len([*(here / "run/critic-targets").iterdir()])


def test_a_resume_without_steps_finishes_what_was_asked_for_at_first(here):
    """A shorter resume in between does not make the run shorter."""
    first = ("--steps", 6, "--run-dir", "run", "--save-every", 2, "--set", "trainer.fail_at=3")
    assert invoke(*BASE, *first).code == 1
    assert invoke("train", "--resume", "run", "--steps", 1).code == 0
    done = invoke("train", "--resume", "run", "--set", "trainer.fail_at=none")
    assert done.code == 0, done.err
    assert [r["batch"] for r in lines(here / "run/metrics.jsonl")] == [0, 1, 2, 3, 4, 5]


# Checkpoints ----------------------------------------------------------------------------------


def saved_in(run):
    """Names of what lies in a run's checkpoints."""
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_what_a_kill_cut_short_goes_with_the_next_save_or_resume(here, installed):
    args = ("--steps", 5, "--run-dir", "run", "--save-every", 2, "--record", "rec")
    killed = focus(installed, *BASE, *args, "--set", "trainer.kill_at=3", cwd=here)
    assert killed.code == -signal.SIGKILL
    run = here / "run"
    assert saved_in(run) == ["step-000002.json"]
    run_id = RunDirectory(run).config()["run_id"]
    cut = [
        *(run / name for name in (".state.json.0123abcd", ".metrics.jsonl.0123abcd")),
        *(run / "checkpoints" / name for name in (".step-000004.new-7", "step-000003.json")),
        run / f"critic-targets/.0-1-{run_id}-89abcdef.jsonl.0123abcd",
        here / "rec/.batch-000003.npz.0123abcd",
    ]
    others = [
        *(run / name for name in (".notes", "checkpoints/best", "checkpoints/.git")),
        run / "critic-targets/.0-1-anotherrun-89abcdef.jsonl.0123abcd",
    ]
    for path in (*cut, *others):
        path.write_text("half of it")
    more = ("--set", "trainer.kill_at=none", "--set", "trainer.fail_at=2")
    assert invoke("train", "--resume", "run", *more).code == 1
    assert not any(path.exists() for path in cut)
    assert all(path.exists() for path in others)
    (run / "checkpoints/.step-000004.new-7").mkdir()
    assert invoke("train", "--resume", "run", "--set", "trainer.fail_at=none").code == 0
    steps = [f"step-{step:06d}.json" for step in (2, 4, 5)]
    assert saved_in(run) == [".git", "best", *steps]
    assert [r["batch"] for r in lines(run / "metrics.jsonl")] == [0, 1, 2, 3, 4]


def test_only_the_newest_checkpoints_are_kept(here):
    args = ("--steps", 5, "--run-dir", "run", "--save-every", 1)
    assert invoke(*BASE, *args, "--keep-checkpoints", 2, "--set", "trainer.fail_at=3").code == 1
    run = here / "run"
    assert saved_in(run) == ["step-000002.json", "step-000003.json"]
    (run / "checkpoints/step-000002.more").write_text("a second file of one checkpoint")
    more = ("--set", "trainer.fail_at=none")
    assert invoke("train", "--resume", "run", *more, "--steps", 1).code == 0
    assert saved_in(run) == ["step-000003.json", "step-000004.json"]
    assert invoke("train", "--resume", "run", "--keep-checkpoints", 1).code == 0
    assert saved_in(run) == ["step-000005.json"]
    assert RunDirectory(run).state()[1] == str(run / "checkpoints/step-000005.json")


def test_checkpoints_that_lie_elsewhere_are_not_counted(here):
    elsewhere = ("--set", "trainer.checkpoint_dir=mine")
    done = invoke(*BASE, "--run-dir", "run", "--keep-checkpoints", 2, *elsewhere)
    assert done.code == 2
    assert "saves elsewhere" in done.err
    assert not (here / "run").exists()


# Order and epochs -----------------------------------------------------------------------------


def trained(run):
    """The problem of each batch, by what its critic records say."""
    first = {}
    for path in run.glob("critic-targets/*.jsonl"):
        for record in lines(path):
            stamp = record["metadata"]["training"]
            first[stamp["batch"]] = stamp["problem"]
    return [first[batch] for batch in sorted(first)]


def test_problems_are_shuffled_anew_each_epoch_unless_told_otherwise(here):
    assert invoke(*BASE, "--epochs", 2, "--run-dir", "run").code == 0
    order = trained(here / "run")
    assert sorted(order[:4]) == sorted(order[4:]) == ["c0", "c1", "c2", "c3"]
    assert order[:4] != order[4:]
    assert invoke(*BASE, "--steps", 8, "--run-dir", "again").code == 0
    assert trained(here / "again") == order
    assert invoke(*BASE, "--steps", 8, "--run-dir", "other", "--seed", 5).code == 0
    assert trained(here / "other") != order
    options = ("--order", "sequential", "--steps", 5)
    assert invoke(*BASE, *options, "--run-dir", "plain").code == 0
    assert trained(here / "plain") == ["c0", "c1", "c2", "c3", "c0"]


def test_epochs_count_the_steps_and_the_last_one_is_filled_up(here):
    options = ("--epochs", 2, "--problems-per-step", 3, "--run-dir", "run")
    assert invoke(*BASE, *options).code == 0
    reports = lines(here / "run/metrics.jsonl")
    assert len(reports) == 3, "8 problems, 3 a step"
    assert [report["metrics"]["trees"] for report in reports] == [3, 3, 3]
    assert [report["metrics"]["epoch"] for report in reports] == [0.75, 1.5, 2.25]
    done = invoke("train", "--resume", "run")
    assert done.code == 2
    assert "has made its 3 updates; say how many more with --steps or --epochs" in done.err
    assert invoke("train", "--resume", "run", "--epochs", 1).code == 0
    assert len(lines(here / "run/metrics.jsonl")) == 5


def test_a_resumed_run_goes_on_in_its_order(here):
    assert invoke(*BASE, "--epochs", 2, "--run-dir", "whole", "--seed", 3).code == 0
    options = ("--epochs", 2, "--seed", 3, "--run-dir", "run", "--save-every", 1)
    assert invoke(*BASE, *options, "--set", "trainer.fail_at=3").code == 1
    assert invoke("train", "--resume", "run", "--set", "trainer.fail_at=none").code == 0
    assert trained(here / "run") == trained(here / "whole")
    assert len(trained(here / "run")) == 8


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--steps", 1, "--epochs", 1), "--steps and --epochs"),
        (("--epochs", 0), "--epochs"),
        (("--order", "random"), "no order 'random'; there are: sequential, shuffled"),
        (("--search", "best"), "best-first"),
        (("--recipe", "refine"), "refined"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(here, options, says):
    done = invoke(*BASE, *options)
    assert done.code == 2
    assert says in done.err
    assert not contents(here)


@pytest.mark.parametrize("search", ["fifo", "best-first", "token-entropy"])
def test_searches_and_recipes_by_name(here, search):
    options = ("--search", search, "--recipe", "refined", "--set", "search.budget=9")
    done = invoke(*BASE, "--steps", 2, "--run-dir", "run", *options)
    assert done.code == 0, done.err
    for report in lines(here / "run/metrics.jsonl"):
        assert report["metrics"]["transitions"] >= 9
        assert report["metrics"]["trained_tokens"] > 0


# Failures -------------------------------------------------------------------------------------


def test_a_bug_in_an_environment_says_where(here):
    options = ("--order", "sequential", "--set", "task.bug_in=c1")
    done = invoke(*BASE, "--steps", 3, "--run-dir", "run", *options)
    assert done.code == 1
    for part in ("'c1'", "batch 1", "environment", "KeyError", "a bug in the environment"):
        assert part in done.err, part
    assert "errored after 1 updates" in done.out


def test_a_bug_in_a_trainer_keeps_its_traceback_and_says_where(here):
    done = invoke(*BASE, "--steps", 3, "--set", "trainer.bug_at=1")
    assert isinstance(done.exception, KeyError)
    assert any("batch 1" in note for note in done.exception.__notes__)


def test_a_trainers_error_is_one_line_that_says_where(here):
    done = invoke(*BASE, "--steps", 3, "--set", "trainer.fail_at=1")
    assert done.code == 1
    assert not done.crashed
    (line,) = [line for line in done.err.splitlines() if line.startswith("focus:")]
    assert "the disk is full" in line
    assert "batch 1" in line


def test_a_trainer_that_cannot_close_does_not_hide_why_the_run_ended(here):
    done = invoke(
        *BASE, "--steps", 3, "--set", "trainer.fail_at=1", "--set", "trainer.close_fails=true"
    )
    assert done.code == 1
    assert "the disk is full" in done.err
    assert "the connection is lost" in done.err
    alone = invoke(*BASE, "--steps", 1, "--set", "trainer.close_fails=true")
    assert alone.code == 1
    assert "the connection is lost" in alone.err


def test_the_trainer_is_told_how_the_run_ended(here):
    for more, status in ((), "success"), (("--set", "trainer.fail_at=0"), "errored"):
        invoke(*BASE, "--steps", 1, "--set", "trainer.mark=mark", *more)
        assert (here / "mark").read_text().splitlines()[-1] == f"close {status}"


def test_a_resume_starts_where_the_run_is_once_it_holds_it(here, monkeypatch):
    """Another process may have gone on until the moment before."""
    assert invoke(*BASE, "--steps", 3, "--run-dir", "run", "--save-every", 1).code == 0
    state = here / "run/state.json"
    newest = state.read_text()
    older = json.loads(newest)
    older["progress"] |= {"batch": 2, "learner_step": 2}
    state.write_text(json.dumps(older))
    locked = RunDirectory.locked

    @contextlib.contextmanager
    def late(directory):
        state.write_text(newest)
        with locked(directory):
            yield

    monkeypatch.setattr(RunDirectory, "locked", late)
    done = invoke("train", "--resume", "run", "--steps", 1, "--json")
    assert [json.loads(line)["batch"] for line in done.out.splitlines()] == [3]
    assert [report["batch"] for report in lines(here / "run/metrics.jsonl")] == [0, 1, 2, 3]
