"""Plug-ins as installed distributions: found, isolated when broken, looked up with good errors."""

import asyncio
import subprocess
import sys

import pytest

from focus_core import (
    PluginError,
    Sandbox,
    SandboxResult,
    TaskSpec,
    TrainerSpec,
    UnknownNameError,
    UsageError,
    hookimpl,
)
from focus_core.plugins.manager import Plugins, load
from tests.core.cli_kit import distribution, environment, fake_distribution

TASK = """
    from focus_core import TaskSpec, hookimpl

    @hookimpl
    def focus_tasks():
        return [TaskSpec({name!r}, "a task", "{module}:Missing")]
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on ``sys.path`` in which distributions are installed; nothing else is loaded."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path[1:]])
    monkeypatch.delenv("FOCUS_PLUGINS", raising=False)
    monkeypatch.delenv("FOCUS_TRACE", raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def names(plugins, kind):
    return [name for name, (_, owner) in plugins.specs(kind).items() if owner.startswith("t-")]


# Discovery ------------------------------------------------------------------------------------


def test_installed_plugins_are_found_with_their_distribution(site):
    distribution(
        site, "t-one", "3.1", points={"one": "t_one"}, t_one=TASK.format(name="one", module="t_one")
    )
    distribution(
        site, "t-two", points={"two": "t_two"}, t_two=TASK.format(name="two", module="t_two")
    )
    plugins = load()
    assert plugins.broken == [] or all(not b.distribution.startswith("t-") for b in plugins.broken)
    assert names(plugins, "task") == ["one", "two"]
    spec, owner = plugins.specs("task")["one"]
    assert isinstance(spec, TaskSpec)
    assert owner == "t-one 3.1"


def test_the_core_offers_its_own_lanes_through_the_same_hooks():
    specs = Plugins().specs("lane")
    assert list(specs) == ["actor", "critic"]
    assert all(owner == "focus-core" for _, owner in specs.values())
    assert Plugins().make("lane", "critic", {}).consumer == "sink"


def test_an_entry_point_may_name_an_object(site):
    distribution(
        site,
        "t-object",
        points={"object": "t_object:plugin"},
        t_object="""
            from focus_core import TaskSpec, hookimpl

            class Plugin:
                @hookimpl
                def focus_tasks(self):
                    return [TaskSpec("from-object", "a task", dict)]

            plugin = Plugin()
        """,
    )
    assert names(load(), "task") == ["from-object"]


def test_focus_plugins_limits_by_entry_point_or_distribution(site, monkeypatch):
    for name in ("a", "b", "c"):
        distribution(
            site,
            f"t-{name}",
            points={f"point-{name}": f"t_{name}"},
            **{f"t_{name}": TASK.format(name=name, module=f"t_{name}")},
        )
    monkeypatch.setenv("FOCUS_PLUGINS", "point-a,t-c")
    plugins = load()
    assert list(plugins.specs("task")) == ["a", "c"]
    assert list(plugins.specs("lane")) == ["actor", "critic"]
    assert "t_b" not in sys.modules, "a plug-in that is not wanted is not even imported"
    monkeypatch.setenv("FOCUS_PLUGINS", " t-b , point-c ")
    assert list(load().specs("task")) == ["b", "c"]
    monkeypatch.setenv("FOCUS_PLUGINS", "")
    assert {"a", "b", "c"} <= set(load().specs("task"))


# Broken ones ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named"),
        ("raise ValueError('two\\n  lines')", "ValueError: two lines"),
        ("def broken(:", "SyntaxError"),
        (
            "from focus_core import hookimpl\n@hookimpl\ndef focus_taskz(): return []",
            "focus_taskz",
        ),
        (
            "from focus_core import hookimpl\n@hookimpl\ndef focus_tasks(wrong): return []",
            "wrong",
        ),
        ("raise KeyError('x')", "KeyError"),
    ],
)
def test_a_broken_plugin_is_told_on_one_line_and_harms_no_other(site, source, says):
    distribution(site, "t-bad", "0.3", points={"bad": "t_bad"}, t_bad=source)
    distribution(
        site,
        "t-zgood",
        points={"good": "t_zgood"},
        t_zgood=TASK.format(name="good", module="t_zgood"),
    )
    plugins = load()
    assert names(plugins, "task") == ["good"]
    (broken,) = [b for b in plugins.broken if b.distribution.startswith("t-")]
    line = str(broken)
    assert "\n" not in line
    for part in ("'bad'", "t-bad 0.3", says, "upgrade or uninstall"):
        assert part in line


def test_an_entry_point_that_names_nothing_is_broken(site):
    distribution(site, "t-gone", points={"gone": "t_gone:plugin"}, t_gone="x = 1")
    (broken,) = [b for b in load().broken if b.distribution.startswith("t-")]
    assert "AttributeError" in str(broken)


def test_the_broken_plugin_is_named_when_its_task_is_asked_for(site):
    distribution(site, "t-bad", points={"wanted": "t_bad"}, t_bad="import no_such_module_at_all")
    with pytest.raises(UnknownNameError, match="no_such_module_at_all") as caught:
        load().find("task", "wanted")
    assert "t-bad 1.0" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise OSError('no network')", "OSError: no network"),
        ("return None", "focus_tasks"),
        ("return 3", "focus_tasks"),
        ("return ['name']", "a str, not a TaskSpec"),
        ("return [TrainerSpec('x', 'x', dict)]", "a TrainerSpec, not a TaskSpec"),
    ],
)
def test_a_hook_that_fails_or_returns_nonsense_is_told_with_its_distribution(site, body, says):
    distribution(
        site,
        "t-odd",
        "0.1",
        points={"odd": "t_odd"},
        t_odd=f"from focus_core import *\n@hookimpl\ndef focus_tasks():\n    {body}\n",
    )
    with pytest.raises(PluginError, match=says) as caught:
        load().specs("task")
    assert "t-odd 0.1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_plugins_with_one_name_are_both_named(site):
    for name in ("x", "y"):
        distribution(
            site,
            f"t-{name}",
            points={name: f"t_{name}"},
            **{f"t_{name}": TASK.format(name="same", module="t")},
        )
    with pytest.raises(PluginError) as caught:
        load().specs("task")
    message = str(caught.value)
    for part in ("t-x 1.0", "t-y 1.0", "'same'", "FOCUS_PLUGINS"):
        assert part in message
    assert list(load().specs("trainer")) == list(load().specs("trainer"))  # other kinds go on


def test_one_plugin_may_use_a_name_for_several_kinds():
    class Plugin:
        @hookimpl
        def focus_tasks(self):
            return [TaskSpec("same", "a task", dict)]

        @hookimpl
        def focus_trainers(self):
            return [TrainerSpec("same", "a trainer", dict)]

    plugins = Plugins()
    plugins.register(Plugin(), "p")
    assert plugins.find("task", "same") is not plugins.find("trainer", "same")


def test_a_hook_typo_is_refused_and_leaves_the_manager_usable():
    class Typo:
        @hookimpl
        def focus_trainerz(self):
            return []

    plugins = Plugins()
    with pytest.raises(PluginError, match="focus_trainerz"):
        plugins.register(Typo(), "typo")
    with pytest.raises(PluginError, match="has no hooks; name a module with @hookimpl functions"):
        plugins.register(type("Bare", (), {}), "bare")
    assert list(plugins.specs("lane")) == ["actor", "critic"]


def test_a_second_plugin_of_one_name_does_not_unseat_the_first():
    class Plugin:
        @hookimpl
        def focus_tasks(self):
            return [TaskSpec("first", "a task", dict)]

    plugins = Plugins()
    plugins.register(Plugin(), "p")
    with pytest.raises(PluginError):
        plugins.register(Plugin(), "p")
    assert list(plugins.specs("task")) == ["first"]


# Look-up --------------------------------------------------------------------------------------


@pytest.fixture
def fake(site):
    fake_distribution(site)
    return load()


def test_an_unknown_name_says_what_exists_and_what_to_install(fake):
    with pytest.raises(UnknownNameError) as caught:
        fake.find("task", "countdwn")
    for part in ("'countdwn'", "did you mean countdown", "needy"):
        assert part in str(caught.value)
    assert "pip" not in str(caught.value), "nobody is sent to install a package of that name"
    with pytest.raises(UnknownNameError, match="pip install focus-adapter-tinker"):
        Plugins().find("trainer", "tinker")
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value, UsageError)


def test_missing_requirements_say_what_to_type(fake):
    with pytest.raises(UsageError, match=r"needs no_such_module; pip install focus-fake\[heavy\]"):
        fake.find("trainer", "heavy")
    with pytest.raises(UsageError, match="pip install no_such_module"):
        fake.make("task", "needy", {})


def test_requirements_inside_a_missing_package_are_missing():
    class Plugin:
        @hookimpl
        def focus_tasks(self):
            return [TaskSpec("t", "a task", dict, requires=("no_such_package.sub", "json"))]

    plugins = Plugins()
    plugins.register(Plugin(), "p")
    with pytest.raises(UsageError, match=r"needs no_such_package\.sub;"):
        plugins.find("task", "t")


def test_a_factory_that_cannot_be_imported_names_itself(fake):
    with pytest.raises(PluginError, match="focus_fake:Missing"):
        fake.make("task", "unmade", {})


def test_a_factory_is_imported_on_first_use_only(site):
    distribution(
        site,
        "t-lazy",
        points={"lazy": "t_lazy"},
        t_lazy=TASK.format(name="lazy", module="t_heavy"),
        t_heavy="Missing = dict",
    )
    plugins = load()
    spec = plugins.find("task", "lazy")
    assert "t_heavy" not in sys.modules
    assert spec.load() is dict
    assert "t_heavy" in sys.modules


# Trainers -------------------------------------------------------------------------------------


def test_options_reach_the_trainer_as_its_types(fake):
    trainer = fake.open_trainer("fake", {"learning_rate": "2e-5", "seed": 3})
    assert (trainer.seed, trainer.updates) == (3, 0)
    with pytest.raises(
        UnknownNameError, match=r"trainer\.learning_rat does not exist.*did you mean"
    ):
        fake.open_trainer("fake", {"learning_rat": "1"})
    with pytest.raises(UsageError, match=r"learning_rate is -1\.0; it must be above 0"):
        fake.open_trainer("fake", {"learning_rate": "-1"})


def test_a_plugin_can_replace_a_trainer(fake):
    class Replacing:
        @hookimpl
        def focus_open_trainer(self, spec, config):
            return (spec.name, dict(config)) if config.get("seed") == 1 else None

    fake.register(Replacing(), "replacing")
    assert fake.open_trainer("fake", {"seed": 1}) == ("fake", {"seed": 1})
    assert type(fake.open_trainer("fake", {"seed": 2})).__name__ == "Fake"


def test_a_plugin_can_wrap_a_trainer(fake):
    class Wrapping:
        @hookimpl(wrapper=True)
        def focus_open_trainer(self):
            trainer = yield
            return ["wrapped", trainer]

    fake.register(Wrapping(), "wrapping")
    wrapped, trainer = fake.open_trainer("fake", {})
    assert (wrapped, type(trainer).__name__) == ("wrapped", "Fake")


# Processes ------------------------------------------------------------------------------------


def test_focus_trace_prints_each_hook_call(tmp_path):
    fake_distribution(tmp_path)
    code = "from focus_core.plugins.manager import load; load().specs('task')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path, FOCUS_TRACE="1"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "focus_tasks" in done.stderr
    assert done.stdout == ""
    silent = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True
    )
    assert silent.stderr == ""


# Sandboxes ------------------------------------------------------------------------------------

SANDBOX = """
    from focus_core import ExecutionError, SandboxResult, SandboxSpec, hookimpl

    @hookimpl
    def focus_sandboxes():
        return [SandboxSpec("echo", "says what it is told", "t_box:open_echo")]

    class Echo:
        def __init__(self, times):
            self.times, self.files = times, {}

        async def run(self, command, *, timeout=60.0, directory=None):
            if self.files is None:
                raise ExecutionError("the sandbox is closed")
            return SandboxResult(command * self.times, "", 0)

        async def read(self, path):
            return self.files[path]

        async def write(self, path, content, *, executable=False):
            self.files[path] = content

        async def aclose(self):
            self.files = None

    async def open_echo(times: int = 1):
        return Echo(times)
"""


def test_a_sandbox_is_opened_by_name_with_its_options(site):
    distribution(site, "t-box", points={"box": "t_box"}, t_box=SANDBOX)
    plugins = load()
    assert names(plugins, "sandbox") == ["echo"]

    async def use():
        sandbox = await plugins.make("sandbox", "echo", {"times": "2"})
        assert isinstance(sandbox, Sandbox)
        assert await sandbox.run("hi") == SandboxResult("hihi", "", 0)
        await sandbox.write("a", b"1")
        assert await sandbox.read("a") == b"1"
        await sandbox.aclose()

    asyncio.run(use())
    with pytest.raises(UnknownNameError, match=r"no sandbox 'ech' \(did you mean echo\?\)"):
        plugins.find("sandbox", "ech")
