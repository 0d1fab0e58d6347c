"""A trainer that runs its own loop: what ``focus train`` hands it, and what it takes away."""

import json
import sys

import pytest

from focus_core import OwnLoop, Problem
from tests.core.cli_kit import distribution, fake_distribution, invoke

LOOPS = """
    import json

    from focus_core import TrainerSpec, UsageError, hookimpl


    class Loop:
        def __init__(self, *, model: str = "none", code: int = 0, dry_run: bool = False) -> None:
            self.model, self.code, self.dry_run = model, code, dry_run

        def launch(self, plan):
            if plan.config["max_tokens"] is not None:
                raise UsageError("--max-tokens: this loop does not count; leave it out")
            seen = {
                "model": self.model,
                "dry_run": self.dry_run,
                "config": plan.config,
                "problems": [problem.id for problem in plan.problems],
                "eval_problems": [problem.id for problem in plan.eval_problems],
                "problems_per_step": plan.problems_per_step,
            }
            (plan.directory / "plan.json").write_text(json.dumps(seen))
            print("trained in", plan.directory.name)
            return self.code


    class Idle:
        pass


    @hookimpl
    def focus_trainers():
        own = {"own-loop"}
        return [
            TrainerSpec("loop", "runs its own loop", Loop, capabilities=own),
            TrainerSpec("idle", "says so, and has none", Idle, capabilities=own),
        ]
"""
BASE = ("train", "--task", "countdown", "--trainer", "loop")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    site = tmp_path / "site"
    site.mkdir()
    fake_distribution(site)
    distribution(site, "t-loops", points={"loops": "t_loops"}, t_loops=LOOPS)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake,t-loops")
    sys.modules.pop("t_loops", None)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def plan_of(folder):
    return json.loads((folder / "plan.json").read_text())


def test_it_is_given_everything_that_was_asked_for_looked_up(here):
    done = invoke(
        *(*BASE, "--epochs", 3, "--problems-per-step", 2, "--eval-every", 5, "--run-dir", "run"),
        *("--model", "big", "--set", "search.budget=3", "--set", "task.segment_tokens=2"),
    )
    assert done.code == 0, done.err
    assert done.out == "run directory: run\ntrained in run\n"
    plan = plan_of(here / "run")
    assert (plan["model"], plan["dry_run"], plan["problems_per_step"]) == ("big", False, 2)
    assert plan["problems"] == ["c0", "c1", "c2", "c3"]
    assert plan["eval_problems"] == plan["problems"][: len(plan["eval_problems"])] != []
    config = plan["config"]
    assert (config["steps"], config["async_depth"], config["task"]) == (6, 1, "countdown")
    assert config["settings"]["search"] == {"budget": "3"}
    assert {path.name for path in (here / "run").iterdir()} == {"plan.json"}


def test_without_evaluation_nothing_is_held_out(here):
    assert invoke(*BASE, "--run-dir", "run").code == 0
    assert plan_of(here / "run")["eval_problems"] == []


def test_its_exit_code_is_passed_on(here):
    assert invoke(*BASE, "--run-dir", "run", "--set", "trainer.code=7").code == 7


def test_a_dry_run_is_the_trainer_s_and_leaves_nothing(here):
    done = invoke(*BASE, "--dry-run")
    assert (done.code, list(here.iterdir())) == (0, [])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--record", "there"), "leave --record out"),
        (("--keep-checkpoints", 2), "leave --keep-checkpoints out"),
        (("--json",), "leave --json out"),
        (("--max-tokens", 5), "this loop does not count"),
        (("--run-dir", "full"), "--run-dir full is not an empty directory"),
        (("--run-dir", "full/file"), "--run-dir full/file is not an empty directory"),
        (("--set", "trainer.modle=x"), "did you mean model"),
        (("--set", "task.steps=0"), "'steps' must be >= 1"),
        (("--search", "selectiv"), "did you mean selective"),
        (("--task", "countdwn"), "did you mean countdown"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(here, args, says):
    (here / "full").mkdir()
    (here / "full/file").write_text("")
    done = invoke(*BASE, *args)
    assert (done.code, done.crashed) == (2, False)
    assert says in done.err
    assert not list(here.rglob("plan.json"))


def test_one_that_cannot_launch_is_the_plugin_s_fault(here):
    done = invoke("train", "--task", "countdown", "--trainer", "idle", "--run-dir", "run")
    assert (done.code, done.crashed) == (1, False)
    assert "trainer 'idle': Idle has no launch()" in done.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("collect", "--task", "countdown", "--output", "out"), "only 'focus train' starts"),
        (("eval", "--task", "countdown"), "only 'focus train' starts"),
        (("check", "trainer", "loop"), "publishes no policy"),
        (("check", "policy", "loop"), "publishes no policy"),
    ],
)
def test_other_commands_need_a_trainer_that_leaves_the_loop_to_focus(here, args, says):
    trainer = () if args[0] == "check" else ("--trainer", "loop")
    done = invoke(*args, *trainer)
    assert (done.code, done.crashed) == (2, False)
    assert says in done.err


def test_the_protocol_asks_for_launch_alone():
    class Loop:
        def launch(self, plan):
            return 0

    assert isinstance(Loop(), OwnLoop)
    assert not isinstance(Problem("x"), OwnLoop)
