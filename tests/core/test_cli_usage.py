"""No mistake on the command line ends in a traceback: one line, exit code 2, nothing started."""

import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.cli_kit import command, environment, fake_distribution, focus, invoke

TASK = ("--task", "countdown", "--trainer", "fake")
TRAIN = ("train", *TASK, "--steps", 1)
COLLECT = ("collect", *TASK, "--output", "out")
EVAL = ("eval", *TASK)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return fake_distribution(tmp_path_factory.mktemp("site"))


@pytest.fixture(autouse=True)
def here(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("1\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def refused(*args):
    """Runs it; checks that it is refused as a mistake and returns what was said."""
    done = invoke(*args)
    assert not done.crashed, f"{args}: {done.exception!r}"
    assert done.code == 2, f"{args}: exit code {done.code}: {done.err}"
    assert done.out == ""
    assert done.err.strip()
    return done.err


# By hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("train",), "give --task; installed: blind, countdown, needy, unmade"),
        (("train", "--task", "countdwn"), "did you mean countdown"),
        (("train", "--task", "countdown", "--trainer", "fak"), "did you mean fake"),
        (("train", "--task", "needy", "--trainer", "fake"), "pip install no_such_module"),
        (("train", "--task", "countdown", "--trainer", "heavy"), "pip install focus-fake[heavy]"),
        ((*TRAIN, "--search", "selectiv"), "did you mean selective"),
        ((*TRAIN, "--recipe", "grup"), "did you mean group"),
        ((*TRAIN, "--set", "task.steps"), "SECTION.NAME=VALUE"),
        ((*TRAIN, "--set", "steps=3"), "SECTION.NAME=VALUE"),
        ((*TRAIN, "--set", "=3"), "SECTION.NAME=VALUE"),
        ((*TRAIN, "--set", "tsk.steps=3"), "did you mean task"),
        ((*TRAIN, "--set", "task.stepz=3"), "task takes: steps, segment_tokens"),
        ((*TRAIN, "--set", "task.steps=x"), "task.steps='x' is not an integer"),
        ((*TRAIN, "--set", "task.steps=0"), "'steps' must be >= 1: 0"),
        ((*TRAIN, "--set", "task.level=medium"), "not one of easy, hard"),
        ((*TRAIN, "--set", "task.sizes=1,x"), "task.sizes"),
        ((*TRAIN, "--set", "trainer.nothing=1"), "trainer takes: model, learning_rate"),
        ((*TRAIN, "--set", "search.bugdet=3"), "budget"),
        ((*TRAIN, "--set", "search.budget=-3"), "budget"),
        ((*TRAIN, "--search", "selective", "--set", "search.bugdet=3"), "did you mean budget"),
        ((*TRAIN, "--search", "independent", "--set", "search.n=0"), "'n' must be >= 1: 0"),
        ((*TRAIN, "--recipe", "direct", "--set", "recipe.scale=true"), "recipe takes: no options"),
        ((*TRAIN, "--recipe", "group", "--set", "recipe.scale=2"), "not true or false"),
        ((*TRAIN, "--recipe", "direct", "--set", "recipe.group_size=2"), "group_size"),
        ((*TRAIN, "--learning-rate", "-1"), "learning_rate is -1.0"),
        ((*TRAIN, "--learning-rate", "nan"), "--learning-rate"),
        ((*TRAIN, "--recipe", "group", "--search", "selective"), "use --search independent"),
        ((*TRAIN, "--eval-every", 1, "--task", "blind"), "no held-out problems"),
        ((*TRAIN, "--deadline", "nan"), "--deadline"),
        ((*TRAIN, "--failure-rate", "nan"), "--failure-rate"),
        ((*TRAIN, "--min-abs-advantage", "nan"), "--min-abs-advantage"),
        ((*TRAIN, "--problems", "missing"), "missing"),
        ((*TRAIN, "--problems", "folder"), "folder"),
        ((*TRAIN, "--problems", "0"), "0 holds no problems"),
        ((*TRAIN, "--strict"), "--strict: the problems() of task 'countdown' takes no 'strict'"),
        ((*COLLECT, "--skip-bad-rows"), "task 'countdown' takes no 'skip_bad_rows'"),
        ((*EVAL, "--skip-bad-rows"), "task 'countdown' takes no 'skip_bad_rows'"),
        ((*TRAIN, "--eval-every", 1, "--eval-source", "0"), "0 holds no problems"),
        ((*TRAIN, "--eval-every", 1, "--eval-source", "missing"), "missing"),
        ((*TRAIN, "--run-dir", "file"), "--run-dir file is a file"),
        ((*TRAIN, "--run-dir", "file/below"), "--run-dir file/below cannot be written"),
        ((*TRAIN, "--run-dir", "x" * 300), "--run-dir"),
        ((*TRAIN, "--critic-output", "file"), "--critic-output"),
        ((*TRAIN, "--critic-output", "file/below"), "--critic-output"),
        ((*TRAIN, "--run-dir", "a", "--resume", "b"), "leave --run-dir out"),
        (("train", "--resume", "missing"), "missing/config.json: no such file"),
        (("train", "--resume", "file"), "file/config.json"),
        (("train", "--resume", "folder"), "folder/config.json: no such file"),
        (("train", "--resume", "x" * 300), "config.json"),
        (("collect", *TASK), "--output"),
        ((*COLLECT, "--first", "-1"), "--first"),
        ((*COLLECT, "--first", 99), "there are 4 problems"),
        ((*COLLECT, "--count", 0), "--count"),
        ((*COLLECT, "--problems", "missing"), "missing"),
        ((*COLLECT, "--checkpoint", "missing"), "missing"),
        (("collect", *TASK, "--output", "file"), "--output file"),
        (("collect", *TASK, "--output", "file/below"), "--output file/below"),
        ((*EVAL, "--temperature", "nan"), "--temperature"),
        ((*EVAL, "--temperature", "-1"), "--temperature"),
        ((*EVAL, "--rollouts", 0), "--rollouts"),
        ((*EVAL, "--limit", 0), "--limit"),
        ((*EVAL, "--checkpoint", "folder"), "folder"),
        ((*EVAL, "--checkpoint", "x" * 300), "xxx"),
        ((*EVAL, "--trainer", "forgetful", "--checkpoint", "file"), "cannot continue"),
        (("plugins", "--jsn"), "--jsn"),
        (("trian",), "trian"),
        (("train", "extra"), "extra"),
    ],
    ids=lambda v: " ".join(map(str, v))[:60] if isinstance(v, tuple) else "",
)
def test_each_mistake_is_one_message_and_starts_nothing(here, args, says):
    before = list(here.rglob("*"))
    said = refused(*args)
    assert says in " ".join(said.split()), said
    left = [p for p in here.rglob("*") if p.is_file() and p not in before]
    assert left == [], "something was written"


def test_a_task_whose_factory_is_missing_is_the_plugins_fault(here):
    done = invoke("train", "--task", "unmade", "--trainer", "fake")
    assert not done.crashed
    assert done.code == 1
    assert "focus_fake:Missing cannot be imported" in done.err


def test_our_own_messages_are_one_line(here):
    for args in (
        ("train",),
        (*TRAIN, "--set", "task.steps=x\ny"),
        (*TRAIN, "--problems", "two\nlines"),
        ("train", "--resume", "missing"),
    ):
        said = refused(*args)
        assert said.startswith("focus: ")
        assert said.count("\n") == 1, said


def test_help_exits_0():
    for name in ((), ("train",), ("collect",), ("eval",), ("plugins",)):
        done = invoke(*name, "--help")
        assert done.code == 0
        assert "Usage" in done.out


# At random ------------------------------------------------------------------------------------

VALUES = st.sampled_from(
    [
        *("0", "1", "2", "-1", "-0", "1e3", "1e-5", "1e400", "nan", "-inf", "inf", "0x10"),
        *(
            "",
            " ",
            "x",
            "true",
            "None",
            "none",
            "null",
            "{}",
            "[1]",
            "a=b",
            "--json",
            "-",
        ),
        *("file", "folder", "missing", "file/below", ".", "..", "/dev/null", "/proc/self/mem"),
        *("selective", "independent", "direct", "group", "9" * 30, "x" * 300, "\n", "\t1", "%s"),
    ]
)
OPTIONS = {
    "train": [
        *("--problems", "--model", "--steps", "--async-depth", "--problems-per-step"),
        *("--learning-rate", "--search", "--recipe", "--run-dir", "--resume", "--critic-output"),
        *("--eval-every", "--eval-source", "--eval-problems", "--save-every", "--deadline"),
        "--keep-checkpoints",
        *("--failure-rate", "--max-tokens", "--min-abs-advantage", "--seed", "--task", "--trainer"),
    ],
    "collect": [
        *("--problems", "--model", "--first", "--count", "--search", "--recipe", "--checkpoint"),
        *("--seed", "--output", "--task", "--trainer"),
    ],
    "eval": [
        *("--problems", "--model", "--limit", "--rollouts", "--temperature", "--checkpoint"),
        *("--seed", "--task", "--trainer"),
    ],
}
SETTINGS = [
    *("task.steps", "task.segment_tokens", "task.level", "task.sizes", "task.seconds"),
    *("search.budget", "search.warmup", "search.n", "search.max_concurrency", "recipe.scale"),
    *("recipe.epsilon", "recipe.group_size", "trainer.model", "trainer.learning_rate"),
    *("trainer.seed", "trainer.resume_from", "trainer.checkpoint_dir", "x.y", "task.", ".x"),
]
BIG = {"9" * 30, "1e400", "inf", "1e3"}
LONG = {"--steps", "--count", "--rollouts", "task.seconds", "--deadline", "search.n", "--problems"}
LONG |= {"--problems-per-step", "task.steps", "search.budget", "search.warmup", "recipe.group_size"}


@st.composite
def commands(draw):
    command = draw(st.sampled_from(sorted(OPTIONS)))
    args = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            option, value = draw(st.sampled_from(OPTIONS[command])), draw(VALUES)
            pair = [option, value]
        else:
            option, value = draw(st.sampled_from(SETTINGS)), draw(VALUES)
            pair = ["--set", f"{option}={value}"]
        if not (option in LONG and value in BIG):  # right, and longer than a test may take
            args += pair
    return command, args


NUMBERS = ("0", "1e400", "nan", "")
WORDS = ("", "file", "folder", "missing", "file/below", "x" * 300)
NUMERIC = {
    "train": [
        *("--steps", "--async-depth", "--problems-per-step", "--learning-rate", "--eval-every"),
        *("--eval-problems", "--save-every", "--deadline", "--failure-rate", "--max-tokens"),
        "--keep-checkpoints",
        *("--min-abs-advantage", "--seed"),
    ],
    "collect": ["--first", "--count", "--seed"],
    "eval": ["--limit", "--rollouts", "--temperature", "--seed"],
}


@pytest.mark.parametrize("name", ["train", "collect", "eval"])
def test_no_single_value_ends_in_a_traceback(here, name):
    base = {"train": TRAIN, "collect": COLLECT, "eval": EVAL}[name]
    words = [option for option in OPTIONS[name] if option not in NUMERIC[name]]
    pairs = [(option, value) for option in NUMERIC[name] for value in NUMBERS]
    pairs += [(option, value) for option in words for value in WORDS]
    for option, value in pairs:
        done = invoke(*base, option, value)
        assert not done.crashed, f"{option} {value!r}: {done.exception!r}"
        assert done.code in (0, 2), f"{option} {value!r}: {done}"


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(commands())
def test_no_combination_of_values_ends_in_a_traceback(here, command):
    name, args = command
    base = {"train": TRAIN, "collect": COLLECT, "eval": EVAL}[name]
    done = invoke(*base, *args)
    assert not done.crashed, f"{name} {args}: {done.exception!r}"
    assert done.code in (0, 1, 2), done
    if done.code:
        assert done.err.strip(), "it failed and said nothing"
    if done.code == 1:  # a run that failed says so, on one line
        assert "focus: " in done.err, done.err


# Processes ------------------------------------------------------------------------------------


def test_what_the_terminal_cannot_show_is_escaped(installed, here):
    """A path that is no text, and a tree's lines where output is ASCII only."""
    path = b"r\xe9sultat\xff"
    done = focus(installed, *COLLECT[:-1], path.decode(errors="surrogateescape"), cwd=here)
    assert done.code == 0, done.err
    assert os.path.isdir(os.fsencode(here) + b"/" + path)
    narrow = focus(installed, *COLLECT, cwd=here, PYTHONIOENCODING="ascii")
    assert narrow.code == 0, narrow.err
    assert "\\u2514" in narrow.out


def test_a_reader_that_goes_away_ends_the_command_quietly(installed, here):
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{' '.join(command(*COLLECT, '--count', 4))} | true; echo ${{PIPESTATUS[0]}}",
        ],
        env=environment(installed),
        cwd=here,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() in ("0", "1")  # all was written before the reader left, or not
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_the_process_has_the_exit_code(installed, here):
    done = focus(installed, *TRAIN, "--set", "task.steps=0", cwd=here)
    assert (done.code, done.out) == (2, "")
    assert not done.crashed
