"""The contract of searches: launches from states that can be left, within a budget, to an end."""

from __future__ import annotations

import math
from typing import Any

import attrs

from focus_core.agent.agent import Agent
from focus_core.agent.context import Segments
from focus_core.collect import Collection, Collector
from focus_core.critic import Critic
from focus_core.recipes import RefinedTd
from focus_core.records import Problem
from focus_core.search import BetaBernoulli, Search
from focus_core.testing._looking import form
from focus_core.testing.base import Broken, Contract, contract, require
from focus_core.testing.fakes import CountdownEnv, RandomPolicy
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, Tree

__all__ = ["SearchContract"]

_MOST = 3000
"""Launches of a tree after which a search is said not to stop; a default budget ends far below."""


class SearchContract(Contract):
    """What every search keeps; ``subject()`` gives a fresh one, as users get it."""

    @contract()
    def test_has_the_methods(self) -> None:
        """A search has start(), max_concurrency and max_failures."""
        made = self.subject()
        require(isinstance(made, Search), f"{type(made).__name__} lacks one of them")
        for name in ("max_concurrency", "max_failures"):
            value = getattr(made, name)
            fits = isinstance(value, int) and value >= 1
            require(fits, f"{name} is {value!r}; it is an integer from 1")

    @contract()
    def test_launches_from_states_that_can_be_left(self) -> None:
        """next() names unfinished states that can be branched, until a budget is used."""
        require(self._launches(self.subject(), seed=2), "it launched nothing")

    @contract()
    def test_keeps_nothing_between_trees(self) -> None:
        """One search starts on many trees: what it knows of one is its frontier's."""
        made = self.subject()
        before = form(made)
        first, second = (self._launches(made, seed=1) for _ in range(2))
        require(form(made) == before, "start() or its frontier changed the search itself")
        require(first == second, "it grew the second tree otherwise than the first, which is alike")

    @contract()
    def test_failures_are_survived(self) -> None:
        """A continuation that failed left nothing in the tree; the search goes on, or stops."""
        self._launches(self.subject(), seed=3, fails=3)

    @contract()
    def test_branches_says_the_truth(self) -> None:
        """A search with branches = False launches from the root only."""
        made = self.subject()
        below = set(self._launches(made, seed=4)) - {ROOT}
        if not getattr(made, "branches", True):
            require(not below, "branches is False, and it launched below the root")

    @contract()
    async def test_collects_to_an_end(self) -> None:
        """A collection with it ends by itself, says why, and has landed something."""
        for seed in range(3):
            collection = await self._collected(seed)
            require(collection.counts["continuations"] > 0, "nothing landed")
            require(collection.stopped, "the frontier's stopped is empty after the end")

    @contract()
    async def test_same_seed_same_tree(self) -> None:
        """One continuation at a time, the same draws and values grow the same tree."""
        one, other = [await self._collected(7) for _ in range(2)]
        require(
            list(one.tree.parent) == list(other.tree.parent),
            "two collections with the same seeds differ; draw from a generator that start() makes",
        )

    async def _collected(self, seed: int) -> Collection:
        search: Any = self.subject()
        if attrs.has(type(search)):
            search = attrs.evolve(search, max_concurrency=1)
        agent = Agent(RandomPolicy(seed=seed), CountdownEnv(5), context=Segments(2))
        critic = Critic.from_fn(_guess)
        async with Collector(agent, critic=critic, search=search, recipe=RefinedTd()) as collector:
            return await collector.collect(Problem("1 2", id="p"), key=(seed,))

    def _launches(self, search: Any, *, seed: int, fails: int = 0) -> list[int]:
        """Grow a tree by hand, one continuation at a time, and check what is launched."""
        tree = Tree([1, 2], forkable=True)
        tree.prediction[ROOT] = 0.5
        frontier = search.start(tree, kappa=1.0, calibration=BetaBernoulli())
        sources: list[int] = []
        while (source := frontier.next()) is not None:
            fits = isinstance(source, int) and 0 <= source < len(tree) and tree.alive[source]
            require(
                fits and tree.kind[source] == OPEN and tree.forkable[source],
                f"it launched from {source!r}, which is no unfinished state that can be branched",
            )
            sources.append(source)
            require(len(sources) <= _MOST, f"it goes on after {_MOST} launches; give it a budget")
            chain = _grown(tree, source, len(sources) + seed, frontier)
            if fails and len(sources) % fails == 0:
                tree.remove(chain)
                frontier.failed(source)
                if len(sources) > 30 * fails:
                    return sources
            else:
                value = float((len(sources) * 7 + seed) % 3 == 0)
                frontier.landed(source, chain, [value] * (len(chain) + 1))
        if not frontier.stopped:
            raise Broken("next() gave None with nothing in flight; say why in stopped")
        return sources


def _grown(tree: Tree, source: int, launch: int, frontier: Any) -> list[int]:
    """Three transitions, to the end of a rollout."""
    chain = []
    for step in range(3):
        kind = TERMINAL if step == 2 else OPEN
        node = tree.add(source, [3], [-0.5 - launch % 5], kind=kind, launch=launch)
        if kind == OPEN:
            tree.forkable[node] = 1
            tree.prediction[node] = (launch * 3 + step) % 7 / 7
        frontier.generated()
        chain.append(node)
        source = node
    return chain


def _guess(text: str) -> float:
    """Some fixed function of a text, from 0 to 1."""
    return 0.5 + 0.4 * math.sin(sum(map(ord, text)))
