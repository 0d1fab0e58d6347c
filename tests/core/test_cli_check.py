"""``focus check``: a line a contract, what to mend, excuses, and exit codes."""

import json
import sys

import pytest

from focus_core.testing import TrainerContract
from tests.core.cli_kit import distribution, fake_distribution, focus, invoke


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    fake_distribution(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake,focus-odd")
    return tmp_path


def test_a_task_that_keeps_its_contract():
    done = invoke("check", "task", "countdown", "--problems", "3")
    lines = done.out.splitlines()
    assert done.code == 0, done.out
    assert "ok              branches_are_apart" in lines
    assert lines[-1].startswith("task countdown: ")
    assert "failed" not in lines[-1]


def test_what_fails_is_told_with_what_to_mend():
    done = invoke("check", "trainer", "fake")
    assert done.code == 1
    assert not done.crashed
    lines = done.out.splitlines()
    at = lines.index("FAILED          capabilities_are_those_registered")
    assert lines[at + 1] == "    contract: The flags of the spec are the flags of the trainer."
    assert lines[at + 2].startswith("    found:    the spec says ['resumes'], the trainer's")


def test_json_is_one_object_a_line():
    done = invoke("check", "trainer", "fake", "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["contract"] for row in rows] == TrainerContract.names()
    assert all(set(row) == {"contract", "status", "sentence", "detail"} for row in rows)
    assert all(row["sentence"].endswith(".") for row in rows)
    assert {row["status"] for row in rows} == {"ok", "failed", "not applicable"}
    assert done.err.startswith("trainer fake: ")


def test_an_excused_contract_does_not_fail():
    done = invoke("check", "trainer", "fake", "--json")
    failed = [r["contract"] for r in map(json.loads, done.out.splitlines()) if r["detail"]]
    excuses = [part for name in failed for part in ("--excuse", f"{name}=it records only")]
    done = invoke("check", "trainer", "fake", *excuses)
    assert done.code == 0, done.out
    assert "excused         off_policy_is_noticed (it records only)" in done.out.splitlines()


def test_options_reach_the_subject(site):
    assert (
        invoke("check", "task", "countdown", *("--set", "task.steps=1", "--problems", "3")).code
        == 0
    )
    (site / "few.txt").write_text("1 2 1")
    assert invoke("check", "task", "countdown", "--problems", site / "few.txt").code == 0


def test_lanes_and_observers_are_checked(site):
    distribution(
        site,
        "focus-odd",
        points={"odd": "focus_odd"},
        focus_odd="""
            from focus_core import LaneSpec, ObserverSpec, hookimpl

            class Silent:
                pass

            @hookimpl
            def focus_lanes():
                return [LaneSpec("odd", "is no lane", lambda: {})]

            @hookimpl
            def focus_observers():
                return [ObserverSpec("silent", "observes nothing", Silent)]
        """,
    )
    done = focus(site, "check", "lane", "odd", FOCUS_PLUGINS="focus-odd")
    assert (done.code, done.crashed) == (1, False)
    assert "the factory made a dict; return a Lane" in done.out
    done = focus(site, "check", "observer", "silent", FOCUS_PLUGINS="focus-odd")
    assert (done.code, done.crashed) == (1, False)
    assert "Silent observes nothing" in done.out
    done = focus(
        site,
        *("train", "--task", "countdown", "--trainer", "fake"),
        FOCUS_PLUGINS="focus-odd,focus-fake",
    )
    assert (done.code, done.crashed) == (1, False)
    assert "lane 'odd' cannot be kept; 'focus check lane odd' says what to mend" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tusk", "countdown"), "did you mean task"),
        (("task", "countdwn"), "did you mean countdown"),
        (("policy", "countdown"), "no trainer 'countdown'"),
        (("task", "needy"), "needs no_such_module"),
        (("task", "countdown", "--set", "task.steps=0"), "steps"),
        (("task", "countdown", "--set", "trainer.seed=0"), "with its own options only"),
        (("task", "countdown", "--excuse", "validates"), "write CONTRACT=REASON"),
        (("task", "countdown", "--excuse", "validates="), "needs a reason"),
        (("task", "countdown", "--excuse", "validate=x"), "did you mean validates"),
    ],
)
def test_mistakes_are_one_line(arguments, said):
    done = invoke("check", *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1


ENDING = """
    import asyncio, sys
    import attrs
    from focus_core import TaskSpec, hookimpl
    from focus_fake import Countdown, Env

    class Ends(Countdown):
        def validate(self):
            sys.exit(0)

    class Cancels(Countdown):
        def validate(self):
            raise asyncio.CancelledError

    class Paints(Countdown):
        def validate(self):
            raise ValueError("\\x1b[2J red \\u202e \\ud800")

    class EndsEnv(Env):
        async def step(self, reply):
            sys.exit(0)

    class EndsInside(Countdown):
        def collector_for(self, policy, problem):
            collector = super().collector_for(policy, problem)
            agent = attrs.evolve(collector.agent, env=EndsEnv(self, problem))
            return attrs.evolve(collector, agent=agent)

    def unmade():
        sys.exit(0)

    @hookimpl
    def focus_tasks():
        made = {"ends": Ends, "cancels": Cancels, "paints": Paints, "inside": EndsInside}
        return [TaskSpec(n, "x", t) for n, t in made.items()] + [TaskSpec("unmade2", "x", unmade)]
"""


@pytest.fixture
def ending(site):
    return distribution(site, "focus-odd", points={"odd": "focus_odd"}, focus_odd=ENDING)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("ends", "it raised SystemExit: 0"),
        ("cancels", "it raised CancelledError"),
        ("paints", r"it raised ValueError: \x1b[2J red \u202e \ud800"),
    ],
)
def test_a_subject_that_ends_the_program_fails_like_any_other(ending, task, said):
    done = focus(ending, "check", "task", task, FOCUS_PLUGINS="focus-fake,focus-odd")
    assert done.code == 1
    assert said in done.out
    assert "\x1b" not in done.out
    assert f"task {task}: " in done.out.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "task", "unmade2"),
        ("train", "--task", "unmade2", "--trainer", "fake"),
        ("train", "--task", "inside", "--trainer", "fake", "--steps", "1"),
        ("collect", "--task", "inside", "--trainer", "fake", "--output", "out"),
        ("eval", "--task", "inside", "--trainer", "fake"),
    ],
)
def test_no_plug_in_ends_a_command_as_if_it_were_done(ending, arguments):
    done = focus(ending, *arguments, FOCUS_PLUGINS="focus-fake,focus-odd")
    assert done.code == 1
    said = done.err + done.out
    assert "something installed called sys.exit(0)" in said or "raised SystemExit(0)" in said
