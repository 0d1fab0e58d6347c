"""Commands that plug-ins add: found by name, listed, and never loaded for the core's own."""

import json
import sys

import pytest
import typer

from focus_core import PluginError
from focus_core.cli import app
from focus_core.plugins import builtin
from focus_core.plugins.manager import load
from tests.core.cli_kit import distribution, focus, invoke

COUNTING = """
    import sys
    from typing import Annotated

    import typer

    from focus_core import CommandSpec, UsageError, hookimpl


    def count(
        words: Annotated[list[str], typer.Argument(help="What to count.")],
        each: Annotated[bool, typer.Option("--each", help="Letters of each word.")] = False,
    ) -> None:
        "Count words."
        if words == ["nothing"]:
            raise UsageError("nothing cannot be counted; give something")
        if words == ["stop"]:
            raise KeyboardInterrupt
        print(*map(len, words) if each else [len(words)])
        if words == ["three"]:
            raise typer.Exit(3)


    @hookimpl
    def focus_commands():
        return [
            CommandSpec("count", "counts words", count),
            CommandSpec("needy", "needs more", count, requires=("no_such_module",)),
            CommandSpec("unmade", "has no factory", "t_counting:missing"),
        ]
"""


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    distribution(tmp_path, "t-counting", points={"counting": "t_counting"}, t_counting=COUNTING)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "t-counting,t-other")
    sys.modules.pop("t_counting", None)
    sys.modules.pop("t_other", None)
    return tmp_path


def test_a_plugin_s_command_runs_with_its_options():
    assert invoke("count", "two", "words").out == "2\n"
    assert invoke("count", "--each", "two", "words").out == "3 5\n"


def test_it_has_help_and_usage_errors_of_its_own():
    done = invoke("count", "--help")
    assert done.code == 0
    for said in ("focus count", "Count words.", "--each", "What to count."):
        assert said in done.out
    done = invoke("count", "--eech", "a")
    assert (done.code, done.crashed, "--eech" in done.err) == (2, False, True)


def test_its_errors_and_exit_codes_are_those_of_every_command():
    done = invoke("count", "nothing")
    assert (done.code, done.err) == (2, "focus: nothing cannot be counted; give something\n")
    assert invoke("count", "three").code == 3
    assert invoke("count", "stop").code == 130


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("cuont", 2, "no command 'cuont' (did you mean count?); 'focus --help' lists"),
        ("trian", 2, "no command 'trian' (did you mean train?)"),
        ("zzz", 2, "no command 'zzz'; 'focus --help' lists"),
        ("needy", 2, "command 'needy' needs no_such_module; pip install no_such_module"),
        ("unmade", 1, "t_counting:missing cannot be imported"),
    ],
)
def test_what_cannot_run_is_one_line(name, code, says):
    done = invoke(name, "x")
    assert (done.code, done.crashed, done.out) == (code, False, "")
    (line,) = done.err.splitlines()
    assert says in line


def test_they_are_listed_and_help_says_where():
    rows = [json.loads(line) for line in invoke("plugins", "--json").out.splitlines()]
    listed = [row["name"] for row in rows if row["kind"] == "command"]
    assert listed == ["count", "needy", "unmade"]
    assert "'focus plugins' lists them" in " ".join(invoke("--help").out.split())


def test_no_plugin_is_loaded_for_help_or_for_a_command_of_the_core(site):
    (site / "t_counting.py").write_text("raise RuntimeError('loaded')")
    assert "t_counting" not in sys.modules
    for args in (("--help",), ("--version",), ("train", "--help"), ("train", "--stepz", "1")):
        done = focus(site, *args, FOCUS_PLUGINS="")
        assert "loaded" not in done.err, args
    assert "RuntimeError: loaded" in focus(site, "count", "a", FOCUS_PLUGINS="").err


def other(name):
    return f"""
        from focus_core import CommandSpec, hookimpl

        @hookimpl
        def focus_commands():
            return [CommandSpec({name!r}, "takes a name", print)]
    """


@pytest.mark.parametrize("name", builtin.COMMANDS)
def test_a_plugin_cannot_take_a_name_of_the_core(site, name):
    distribution(site, "t-other", points={"other": "t_other"}, t_other=other(name))
    with pytest.raises(PluginError, match=f"t-other 1.0 offers command '{name}', which is"):
        load().specs("command")


def test_two_plugins_cannot_share_a_name(site):
    distribution(site, "t-other", points={"other": "t_other"}, t_other=other("count"))
    done = invoke("count", "a")
    assert (done.code, done.crashed) == (1, False)
    assert "t-counting 1.0 and t-other 1.0 both offer command 'count'" in done.err


def test_the_core_s_names_are_those_of_its_commands():
    assert set(builtin.COMMANDS) == set(typer.main.get_command(app).commands)
