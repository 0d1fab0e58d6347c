"""Searches, recipes and critics by name: registered or not, checked, and told of mistakes."""

import json
import sys
from pathlib import Path

import attrs
import pytest

from focus_core import (
    BestFirst,
    Critic,
    DirectBranchTd,
    Fifo,
    GroupCentered,
    Independent,
    RefinedTd,
    Selective,
    TokenEntropy,
)
from focus_core.critic.named import constant_critic, vllm_critic
from focus_core.testing import CriticContract, RecipeContract, SearchContract, check
from tests.core.cli_kit import fake_distribution, invoke


class TestSelective(SearchContract):
    def subject(self):
        return Selective(budget=32, warmup=16)


class TestFifo(SearchContract):
    def subject(self):
        return Fifo()


class TestBestFirst(SearchContract):
    def subject(self):
        return BestFirst()


class TestTokenEntropy(SearchContract):
    def subject(self):
        return TokenEntropy()


class TestIndependent(SearchContract):
    def subject(self):
        return Independent(4)


class TestDirect(RecipeContract):
    def subject(self):
        return DirectBranchTd()


class TestRefined(RecipeContract):
    def subject(self):
        return RefinedTd()


class TestGroup(RecipeContract):
    def subject(self):
        return GroupCentered()


class TestConstant(CriticContract):
    def subject(self):
        return constant_critic(0.3)


PARTS = """
import math
import time

import numpy as np

from focus_core import Credit, Critic, Fifo, RefinedTd


class Search(Fifo):
    pass


class Recipe(RefinedTd):
    pass


def critic(start: float = 0.5):
    return Critic.from_fn(lambda text: start)


class Asked:
    closed = []

    async def predict(self, text):
        return 0.25

    async def aclose(self):
        self.closed.append(True)


class Watch:
    def __init__(self):
        from focus_core import hookimpl

        self.told = []

    from focus_core import hookimpl

    @hookimpl
    def focus_run_started(self, event):
        print("watched", flush=True)


class Nothing:
    pass
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    fake_distribution(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts.py").write_text(PARTS)
    yield tmp_path
    sys.modules.pop("parts", None)


COLLECT = ("collect", "--task", "countdown", "--trainer", "fake", "--output", "out")


def collected(*arguments):
    done = invoke(*COLLECT, *arguments)
    assert done.code == 0, done.err
    return json.loads(Path("out/tree-0.json").read_text())["settings"]


def test_what_no_plugin_registered_is_named_by_its_module(here):
    told = collected("--search", "parts:Search", "--recipe", "parts:Recipe", "--gamma", 0.5)
    assert told["search"].startswith("Search(")
    assert told["recipe"].startswith("Recipe(")
    assert told["gamma"] == 0.5


def test_a_critic_by_name_has_options_and_is_asked(here):
    collected("--critic", "parts:critic", "--set", "critic.start=0.75", "--kappa", 2)
    nodes = json.loads((here / "out/tree-0.json").read_text())["nodes"]
    assert {node["prediction"] for node in nodes if node["kind"] != "terminal"} == {0.75}


def test_ours_are_registered_like_a_strangers(here):
    collected("--critic", "constant", "--set", "critic.value=0.125", "--search", "fifo")
    nodes = json.loads((here / "out/tree-0.json").read_text())["nodes"]
    assert nodes[0]["prediction"] == 0.125
    listed = [json.loads(line) for line in invoke("plugins", "--json").out.splitlines()]
    names = {(row["kind"], row["name"]) for row in listed}
    assert {("search", "selective"), ("recipe", "group"), ("critic", "vllm")} <= names


def test_a_critic_that_can_be_closed_is_closed_at_the_end(here):
    collected("--critic", "parts:Asked")
    assert sys.modules["parts"].Asked.closed == [True]


def test_observers_are_those_named(here):
    train = ("train", "--task", "countdown", "--trainer", "fake", "--steps", 1)
    told = invoke(*train, "--run-dir", "one", "--observer", "parts:Watch")
    assert told.code == 0, told.err
    assert "watched" in told.out
    assert "no observer 'nobody'" in invoke(*train, "--observer", "nobody").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--search", "parts:Serch"),
            "parts has no class or function 'Serch' (did you mean Search?)",
        ),
        (("--search", "nowhere:Search"), "there is no module 'nowhere', installed or in"),
        (("--recipe", "parts:Nothing"), "recipe Nothing lacks needs_critic, credit"),
        (("--search", "parts:Nothing"), "search Nothing lacks max_concurrency"),
        (("--critic", "parts:Nothing"), "critic 'parts:Nothing': Nothing has no predict()"),
        (("--critic", "nobody"), "no critic 'nobody'"),
        (("--search", "slective"), "no search 'slective' (did you mean selective?)"),
        (("--set", "critic.value=1"), "name another one with --critic"),
        (("--critic", "constant", "--set", "critic.worth=1"), "critic.worth does not exist"),
        (("--critic", "constant", "--set", "critic.value=nan"), "critic.value='nan'"),
    ],
)
def test_a_mistake_is_one_line(arguments, said):
    done = invoke(*COLLECT, *arguments)
    assert done.code in (1, 2)
    assert said in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("value", [-0.5, 1.5])
def test_gamma_is_from_0_to_1(value):
    assert invoke(*COLLECT, "--gamma", value).code == 2


def test_kappa_is_above_0():
    done = invoke(*COLLECT, "--kappa", 0)
    assert done.code == 2
    assert "not above 0" in done.err


def test_check_takes_the_module_s_too(here):
    done = invoke("check", "search", "parts:Search")
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1] == "search parts:Search: 7 ok"
    assert "no class or function" in invoke("check", "recipe", "parts:Other").err


def test_the_key_of_a_server_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    client = vllm_critic("http://127.0.0.1:1", "m")
    assert client._client.headers["Authorization"] == "Bearer hush"
    assert "hush" not in repr(client)


# Each contract has a mistake that breaks it -----------------------------------------------------


def failed(contracts):
    return {o.contract: o.detail for o in check(contracts) if o.status == "failed"}


@attrs.frozen
class Wrong:
    """A search with one mistake."""

    mistake: str
    budget: int = 24
    max_concurrency: int = 2
    max_failures: int = 8
    seen: list = attrs.field(factory=list)

    @property
    def branches(self):
        return self.mistake != "branches"

    def start(self, tree, *, kappa, calibration):
        if self.mistake == "remembers":
            self.seen.append(len(tree))
        return WrongFrontier(self, tree)


class WrongFrontier:
    def __init__(self, search, tree):
        self.search, self.tree, self.left, self.states = search, tree, search.budget, [0]
        self.shift = len(search.seen)

    def next(self):
        mistake = self.search.mistake
        if self.left <= 0 and mistake != "endless":
            return None
        if mistake == "dead" and len(self.tree) > 3:
            return len(self.tree) - 1
        if mistake == "idle":
            return None
        return self.states[(self.left + self.shift) % len(self.states)]

    def generated(self):
        self.left -= 1

    def landed(self, source, chain, returns):
        self.states += [n for n in chain if self.tree.kind[n] == 0]

    def failed(self, source):
        if self.search.mistake == "fails":
            raise KeyError(source)

    @property
    def stopped(self):
        return "" if self.search.mistake == "silent" else "budget"


@pytest.mark.parametrize(
    ("mistake", "contract", "said"),
    [
        ("endless", "launches_from_states_that_can_be_left", "give it a budget"),
        ("dead", "launches_from_states_that_can_be_left", "no unfinished state"),
        ("idle", "launches_from_states_that_can_be_left", "launched nothing"),
        ("silent", "launches_from_states_that_can_be_left", "say why in stopped"),
        ("remembers", "keeps_nothing_between_trees", "changed the search itself"),
        ("fails", "failures_are_survived", "KeyError"),
        ("branches", "branches_says_the_truth", "launched below the root"),
    ],
)
def test_a_searchs_mistake_is_seen(mistake, contract, said):
    class Tried(SearchContract):
        time_limit = 10.0

        def subject(self):
            return Wrong(mistake)

        async def _collected(self, seed):
            if mistake in ("endless", "dead", "silent"):
                raise AssertionError("not this way")
            return await super()._collected(seed)

    assert said in failed(Tried())[contract]


def test_a_search_that_draws_anew_is_seen():
    import random

    class Drawn(WrongFrontier):
        def next(self):
            return None if self.left <= 0 else random.choice(self.states)

    @attrs.frozen
    class Draws(Wrong):
        def start(self, tree, *, kappa, calibration):
            return Drawn(self, tree)

    class Tried(SearchContract):
        def subject(self):
            return Draws("")

    assert "differ" in failed(Tried())["same_seed_same_tree"]


@attrs.frozen
class WrongRecipe(RefinedTd):
    mistake: str = ""

    def credit(self, tree, values, *, gamma):
        import numpy as np

        credit = super().credit(tree, values, gamma=gamma)
        column = credit.advantages.copy()
        if self.mistake == "short":
            column = column[:-1]
        elif self.mistake == "root":
            column[0] = 1.0
        elif self.mistake == "nothing":
            column[:] = np.nan
        elif self.mistake == "changes":
            tree.reward[0] += 1.0
        elif self.mistake == "draws":
            column *= np.random.default_rng().random()
        elif self.mistake == "infinite" and gamma < 1:
            column[1:] = np.inf
        elif self.mistake == "array":
            return column
        return attrs.evolve(credit, advantages=column)


@pytest.mark.parametrize(
    ("mistake", "contract", "said"),
    [
        ("short", "credits_every_shape_of_tree", "advantages of shape"),
        ("root", "credits_every_shape_of_tree", "no edge leads to it"),
        ("nothing", "something_is_trained", "nothing would ever be trained"),
        ("changes", "changes_nothing", "changed the tree"),
        ("draws", "same_tree_same_credit", "differ"),
        ("infinite", "discount_is_the_collectors", "an infinity"),
    ],
)
def test_a_recipes_mistake_is_seen(mistake, contract, said):
    class Tried(RecipeContract):
        def subject(self):
            return WrongRecipe(mistake=mistake)

    assert said in failed(Tried())[contract]


@pytest.mark.parametrize(
    ("predict", "contract", "said"),
    [
        (lambda text: float("nan"), "predicts_finite_numbers", "CriticError"),
        (lambda text: None, "predicts_finite_numbers", "CriticError"),
    ],
)
def test_a_critics_mistake_is_seen(predict, contract, said):
    class Tried(CriticContract):
        def subject(self):
            return Critic.from_fn(predict)

    assert said in failed(Tried())[contract]


def test_critics_that_change_their_mind_or_hold_others_up_are_seen():
    import itertools
    import time

    count = itertools.count()

    class Fickle(CriticContract):
        def subject(self):
            return Critic.from_fn(lambda text: float(next(count)))

    assert "among others" in failed(Fickle())["same_text_same_value"]

    async def blocking(text):
        time.sleep(0.2)
        return 0.5

    class Blocks(CriticContract):
        def subject(self):
            return Critic.from_fn(blocking)

    assert "held the event loop up" in failed(Blocks())["holds_nobody_up"]
