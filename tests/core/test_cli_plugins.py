"""``focus plugins``: what is installed, as a table or as JSON lines."""

import json
import sys

import pytest

from tests.core.cli_kit import distribution, fake_distribution, focus, invoke


@pytest.fixture
def site(tmp_path, monkeypatch):
    fake_distribution(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake,t-bad")
    monkeypatch.setenv("COLUMNS", "120")
    sys.modules.pop("t_bad", None)
    return tmp_path


def offering(name, description):
    """A plug-in's source that offers one task."""
    return f"""
        from focus_core import TaskSpec, hookimpl

        @hookimpl
        def focus_tasks():
            return [TaskSpec({name!r}, {description!r}, dict)]
    """


def test_the_table_names_everything(site):
    done = invoke("plugins")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["kind", "name", "description", "distribution"]
    assert ["task", "countdown", "count", "down", "focus-fake", "2.5"] in rows
    assert [row[:2] for row in rows[1:]] == [
        ["task", "blind"],
        ["task", "countdown"],
        ["task", "needy"],
        ["task", "unmade"],
        ["trainer", "fake"],
        ["trainer", "forgetful"],
        ["trainer", "heavy"],
        *(["search", n] for n in ("best-first", "fifo", "independent", "selective")),
        ["search", "token-entropy"],
        *(["recipe", name] for name in ("direct", "group", "refined")),
        *(["critic", name] for name in ("constant", "vllm")),
        ["lane", "actor"],
        ["lane", "critic"],
        ["converter", "records"],
        ["observer", "watcher"],
    ]


def test_json_is_one_object_a_line(site):
    done = invoke("plugins", "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert rows[4] == {
        "kind": "trainer",
        "name": "fake",
        "description": "records batches",
        "distribution": "focus-fake 2.5",
        "capabilities": ["resumes"],
    }
    assert all(list(row) == list(rows[0]) for row in rows)


def test_a_broken_plugin_is_listed_and_named_before_every_command(site):
    distribution(site, "t-bad", "0.1", points={"bad": "t_bad"}, t_bad="import [no]such_thing")
    done = invoke("plugins")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "plug-in 'bad' of t-bad 0.1 does not load: SyntaxError" in text
    (broken,) = [
        row
        for line in invoke("plugins", "--json").out.splitlines()
        if (row := json.loads(line))["kind"] == "broken"
    ]
    assert broken["distribution"] == "t-bad 0.1"
    other = invoke("eval", "--task", "countdown", "--trainer", "fake", "--json")
    assert other.code == 0
    assert "plug-in 'bad' of t-bad 0.1" in other.err
    assert len(other.out.splitlines()) == 1


def test_two_plugins_with_one_name_are_one_line_and_exit_1(site):
    distribution(site, "t-bad", points={"bad": "t_bad"}, t_bad=offering("countdown", ""))
    done = invoke("plugins")
    assert done.code == 1
    assert not done.crashed
    (line,) = done.err.splitlines()
    assert "focus-fake 2.5 and t-bad 1.0 both offer task 'countdown'" in line


def test_descriptions_are_printed_as_they_are(site):
    """Square brackets are no markup."""
    odd = offering("odd", "a [red]b[/red] [x")
    distribution(site, "t-bad", points={"bad": "t_bad"}, t_bad=odd)
    done = invoke("plugins")
    assert done.code == 0
    assert "a [red]b[/red] [x" in done.out


def test_as_a_process_with_a_narrow_terminal(site):
    done = focus(site, "plugins", COLUMNS="40")
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 40
