"""What the pages say of hooks, events, records and errors is what the program does."""

import asyncio
import dataclasses
import inspect
import re

import attrs
import pytest
import typer

import focus_core
from focus_core import Agent, Collector, Critic, Problem, StepReport, Trainer, errors
from focus_core.cli import app
from focus_core.cli.new import _KINDS as SKELETONS
from focus_core.env.dialects import DIALECTS
from focus_core.hookspecs import Hooks
from focus_core.lanes import export_actor, export_critic
from focus_core.plugins import events
from focus_core.plugins.manager import Plugins, load
from focus_core.run import directory
from focus_core.run.prepare import ORDERS
from focus_core.testing import CountdownEnv, RandomPolicy, pytest_plugin
from focus_core.testing.installed import KINDS
from focus_core.view import SavedTree
from tests.docs.docs_kit import ROOT

DOCS = ROOT / "docs"
HOOKS = {
    name: list(inspect.signature(hook).parameters)[1:]
    for name, hook in vars(Hooks).items()
    if name.startswith("focus_")
}
SEARCHES, RECIPES = (
    {name: spec.load() for name, (spec, _) in Plugins().specs(kind).items()}
    for kind in ("search", "recipe")
)
EVENTS = {
    name: inspect.get_annotations(getattr(Hooks, name))["event"]
    for name, parameters in HOOKS.items()
    if parameters == ["event"]
}


def page(name):
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def sections(name):
    """Text below each heading of a page, by heading."""
    parts = re.split(r"^#{2,4} (.+)$", page(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def first_column(text):
    """Names in code in the first column of the first table of a text, in order."""
    table = re.search(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    rows = [row.split("|")[1] for row in table[1].splitlines()]
    return [name for cell in rows for name in re.findall(r"`([\w./-]+)`", cell)]


def terms(text):
    """Names in code that a definition list defines."""
    lines = re.findall(r"^(`.+)\n: ", text, re.MULTILINE)
    return [name for line in lines for name in re.findall(r"`(\w+)", line)]


def test_every_hook_is_documented_with_its_signature_and_in_order():
    documented = re.findall(r"^### `(focus_\w+)\((.*)\)`$", page("hooks"), re.MULTILINE)
    assert [(name, ", ".join(parameters)) for name, parameters in HOOKS.items()] == documented


def test_parameters_of_hooks_are_described():
    said = sections("hooks")
    for name, parameters in HOOKS.items():
        if parameters and name not in EVENTS:
            assert terms(said[f"`{name}({', '.join(parameters)})`"]) == parameters


@pytest.mark.parametrize("hook", EVENTS)
def test_every_field_of_an_event_is_documented(hook):
    text = sections("hooks")[f"`{hook}(event)`"]
    event = getattr(events, EVENTS[hook])
    assert f"{{class}}`~focus_core.{event.__name__}`" in text
    assert first_column(text) == [field.name for field in attrs.fields(event)]


def test_every_event_has_a_hook():
    assert sorted(EVENTS.values()) == sorted(events.__all__)


def test_the_tree_of_errors_is_the_program_s():
    drawn = r"^[ │]*(?:[├└]── |(?=FocusError))(\w+Error)(?: \((\w+)\))?"
    in_code = re.findall(drawn, inspect.cleandoc(errors.__doc__), re.MULTILINE)
    assert re.findall(drawn, page("errors"), re.MULTILINE) == in_code
    assert {name for name, _ in in_code} == set(errors.__all__)


def test_every_error_says_what_to_do():
    said = re.findall(r"^\{class\}`~focus_core\.(\w+)`\n: .+\. .+", page("errors"), re.MULTILINE)
    assert sorted(said) == sorted(set(errors.__all__) - {"FocusError"})


def collected():
    policy = RandomPolicy(seed=1)

    async def collect():
        agent = Agent(policy, CountdownEnv())
        async with Collector(agent, critic=Critic.constant(0.5)) as collector:
            return await collector.collect(Problem("1 2", id="p"), key=(0,))

    return asyncio.run(collect()).prepare(), policy


def test_every_key_of_a_record_is_documented():
    collection, policy = collected()
    said = sections("records")
    actor, critic = export_actor(collection)[0], export_critic(collection)[0]
    plain = said["An actor record"].split("Plain:")[1]
    native = [field.name for field in attrs.fields(type(actor))]
    assert first_column(said["An actor record"]) == native
    assert set(first_column(plain)) == set(actor.to_dict())
    assert set(first_column(said["A critic record"])) == set(critic.to_dict())
    metadata = set(first_column(said["Metadata"]))
    assert metadata == {*actor.metadata, "training"}
    assert set(critic.metadata) - metadata == {"branches"}
    assert "`branches`" in said["A critic record"]
    whole, node = said["A collected tree"].split("A node:")
    saved = SavedTree.of(collection, policy.decode).to_dict()
    assert set(first_column(whole)) == set(saved)
    assert set(first_column(node)) == set(saved["nodes"][0])


def test_every_field_of_a_report_is_documented():
    text = sections("records")["A run's directory"].split("A step report:")[1]
    assert first_column(text) == [field.name for field in dataclasses.fields(StepReport)]


def test_every_method_of_a_trainer_is_explained():
    methods = [name for name, value in vars(Trainer).items() if inspect.isfunction(value)]
    methods = [name for name in methods if name in ("__aenter__", "__aexit__") or name[0] != "_"]
    assert terms(sections("write-a-trainer")["Method by method"]) == methods


def mentioned(text, pattern):
    return set(re.findall(pattern, text))


def test_the_quick_start_lists_what_is_installed():
    said = sections("quickstart")["Install"].split("`focus plugins` lists")[1].split("Whatever")[0]
    listed = {
        kind.removesuffix("s"): set(re.findall(r"`([\w-]+)`", names))
        for kind, names in re.findall(r"the (\w+) ((?:`[\w-]+`[,\s]*(?:and )?)+)", said)
    }
    ours = ("focus-core", "focus-task-", "focus-adapter-")
    plugins = load()
    installed = {
        kind: {n for n, (_, owner) in plugins.specs(kind).items() if owner.startswith(ours)}
        for kind in ("task", "trainer", "lane", "converter", "sandbox", "command", "observer")
    }
    assert listed == {kind: names for kind, names in installed.items() if names}
    start = sections("quickstart")["Start your own"]
    assert set(SKELETONS) <= set(re.findall(r"focus new ([\w-]+)", start))


def test_every_command_is_shown_on_a_page_that_people_read():
    """The reference is generated; somebody must say what a command is for."""
    commands = typer.main.get_command(app).commands
    written = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    assert set(commands) <= mentioned(written, r"\bfocus (\w+)")


@pytest.mark.parametrize(
    ("heading", "known"),
    [("Where to spend: searches", SEARCHES), ("What an edge is worth: recipes", RECIPES)],
)
def test_every_search_and_recipe_is_in_the_table_of_its_concept(heading, known):
    rows = re.findall(
        r"^\| `([\w-]+)` \{class\}`~focus_core\.(\w+)` \|",
        sections("concepts")[heading],
        re.MULTILINE,
    )
    assert dict(rows) == {name: kind.__name__ for name, kind in known.items()}


def test_every_search_and_recipe_has_its_formula_and_its_bias():
    text = page("algorithm")
    for kind in (*SEARCHES.values(), *RECIPES.values()):
        assert f"{{class}}`~focus_core.{kind.__name__}`" in text
    measured = sections("algorithm")["What was measured"]
    for kind in SEARCHES.values():
        assert f"| {kind.__name__} |" in measured


def test_orders_dialects_and_kinds_are_named():
    assert all(f"`--order {name}`" in page("concepts") for name in ORDERS)
    assert set(first_column(sections("several-turns")["Tools"])) == set(DIALECTS)
    assert all(f"## {kind.capitalize()}"[:-1] in page("testing") for kind in KINDS)
    assert f"focus new {'|'.join(SKELETONS)} NAME" in page("testing")


def test_every_fixture_is_in_the_table():
    fixtures = [
        name
        for name, value in vars(pytest_plugin).items()
        if type(value).__name__ == "FixtureFunctionDefinition"
    ]
    assert len(fixtures) > 3
    assert first_column(sections("testing")["Fixtures"]) == fixtures


def test_a_run_s_files_are_those_it_names():
    """As the module that writes them says."""
    said = re.findall(r"^    ([\w./-]+) {2,}", inspect.getdoc(directory), re.MULTILINE)
    assert len(said) > 5
    assert sorted(first_column(sections("records")["A run's directory"])) == sorted(said)


def test_capabilities_are_those_the_core_names():
    named = re.findall(
        r"``([\w-]+)``", inspect.getdoc(focus_core.TrainerSpec).split("Capabilities:")[1]
    )
    text = sections("write-a-trainer")["Capabilities"]
    assert sorted(re.findall(r"^`([\w-]+)`$", text, re.MULTILINE)) == sorted(named)


def test_a_difference_is_noticed():
    """The readers of headings, tables and lists see what they are to compare."""
    assert first_column("| field | |\n|---|---|\n| `a`, `b` | x |\n| `c` | y |\n") == [
        "a",
        "b",
        "c",
    ]
    assert terms("`spec`\n: What.\n\n`config(x)`\n: That.\n") == ["spec", "config"]
    assert len(HOOKS) > 10
    assert len(EVENTS) > 6
