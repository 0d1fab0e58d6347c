"""The pages build without a warning, need no network, and hold what is read from the program."""

import html
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import typer

import focus_core
from focus_core import testing
from focus_core.cli import app
from tests.docs.docs_kit import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the built pages."""
    folder = tmp_path_factory.mktemp("html")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n"]
    done = subprocess.run(
        [*sphinx, "-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "out")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "out"


def ids(path):
    return set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8")))


def test_every_public_name_is_in_the_reference(built):
    assert {f"focus_core.{name}" for name in focus_core.__all__} <= ids(built / "api.html")


def test_every_command_and_option_is_in_the_reference(built):
    text = (built / "commands.html").read_text(encoding="utf-8")
    found = set(re.findall(r'id="cmdoption-([^"]+)"', text))
    todo = [("focus", typer.main.get_command(app))]
    options = set()
    for name, command in todo:
        below = getattr(command, "commands", {})
        todo += [(f"{name}-{each}", inner) for each, inner in below.items()]
        for parameter in () if below else command.params:
            if parameter.param_type_name == "argument":
                shown = parameter.metavar or parameter.name.upper()
                options.add(f"{name}-arg-{shown.replace('|', '-')}")
            else:
                options |= {f"{name}-{each.lstrip('-')}" for each in parameter.opts}
    assert len(options) > 40
    assert options <= found
    assert "Trees per update." in html.unescape(text)


def test_options_that_set_reaches_are_in_the_reference(built):
    found = ids(built / "commands.html")
    for option in (
        "search-selective-arg-search.budget",
        "recipe-group-arg-recipe.scale",
        "task-arithmetic-arg-task.levels",
        "trainer-local-arg-trainer.learning_rate",
    ):
        assert f"cmdoption-{option}" in found


def test_every_contract_is_on_the_page(built):
    text = (built / "testing.html").read_text(encoding="utf-8")
    tables = "".join(re.findall(r'<table class="contracts.*?</table>', text, re.DOTALL))
    rows = re.findall(r'<span class="pre">(\w+)</span></code></p></td>\n<td><p>\S', tables)
    kinds = [getattr(testing, name) for name in testing.__all__ if name.endswith("Contract")]
    assert len(kinds) > 5
    assert {each for kind in kinds for each in kind.names()} == set(rows)


def test_every_name_of_the_kit_is_on_the_page(built):
    assert {f"focus_core.testing.{name}" for name in testing.__all__} <= ids(built / "testing.html")


class Loaded(HTMLParser):
    """What a page loads when it is opened."""

    def __init__(self):
        super().__init__()
        self.urls = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "link" and given.get("rel") not in ("next", "prev", "index", "search", "author"):
            self.urls.append(given.get("href", ""))
        elif tag != "a":
            self.urls += [given[name] for name in ("src", "srcset", "data") if given.get(name)]


def test_no_page_loads_anything_from_elsewhere(built):
    pages = sorted(built.glob("*.html"))
    assert len(pages) > 10
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.urls
        assert not [url for url in parser.urls if "//" in url], page.name
    for style in built.glob("_static/**/*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8")
        assert "@import url" not in style.read_text(encoding="utf-8")


def test_formulas_and_the_drawing_are_in_the_pages(built):
    algorithm = (built / "algorithm.html").read_text(encoding="utf-8")
    assert algorithm.count('display="block"') > 10
    assert '<svg class="data"' in (built / "concepts.html").read_text(encoding="utf-8")
