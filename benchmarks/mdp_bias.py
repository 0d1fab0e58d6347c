"""Bias of values, advantages and critic targets, against a Markov decision process solved exactly.

A reply is three tokens, one a transition; the last one is the outcome (1 pays 1, 0 pays 0). The
policy is a table over everything said so far, so dynamic programming gives each state's true value
and each edge's true advantage. Many trees are collected with each search and critic, and the table
shows estimate minus truth, with the standard error over trees (trees are independent, states of one
tree are not). Run it with ``python benchmarks/mdp_bias.py``.

What is unbiased, exactly. Take a state whose branches all end the rollout (here: two tokens
said). Its target is the mean of N outcomes, each drawn with the state's true value, and whether one
more is drawn depends on the past only. So the sum over states of ``N * (target - truth)`` is a
stopped martingale and has mean zero under any search, any critic and any concurrency, provided no
continuation fails: the N-weighted mean of targets has no bias beyond the 1/trees of a ratio. The
plain mean over states has one: after an outcome that agrees with the critic a search leaves, after
one that surprises it a search stays, so surprises are averaged away and agreement is kept.

The plain mean has none either under a search that looks at no outcome of the state it chooses:
Independent, Fifo, BestFirst (which ranks by the prediction) and TokenEntropy.

What is not. A state further up backs up ``V~`` of its children, which is shrunk towards the
critic's prediction, so its target (weighted or not) and every refined value carry the critic's
error, less of it the more branches there are. An exact critic removes that error but not the effect
of stopping by outcome on the shrunk value of a child: the small numbers in Selective's ``exact``
rows, which the weights do not remove. An advantage subtracts the refined value of its parent, and
carries its error with the sign reversed.

``RefinedTd`` refines by whole returns instead of by direct branches. Where branches end the rollout
the two are one. Above, its values carry less of the critic's error, for no child brings its own
along, and are noisier. Its advantages need not: an error cancels between a state and its child only
as far as both shrink alike, so with unlike counts (a root visited often, a child seen once) the
critic's error stays in the difference.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from focus_core import (
    Agent,
    BestFirst,
    Collection,
    Collector,
    Critic,
    Fifo,
    Generation,
    Independent,
    Problem,
    RefinedTd,
    Reply,
    SamplingParams,
    Search,
    Segments,
    Selective,
    TokenEntropy,
    Transition,
)
from focus_core.policy import PreparedPrompt
from focus_core.recipes.refined_td import refined_by_returns
from focus_core.tree.tree import TERMINAL

__all__ = ["CRITICS", "SEARCHES", "Bias", "Mdp", "measure"]

State = tuple[int, ...]
PROMPT = 9
HORIZON = 3
ACTIONS = 3


class Mdp:
    """The decision process, and its only policy, as tables over the tokens said so far.

    Args:
        truth: Probability of success in the middle.
        spread: How far the last states' probabilities lie on either side of it.
        seed: Of the tables.
    """

    version = 0

    def __init__(self, truth: float = 0.3, spread: float = 0.2, seed: int = 0) -> None:
        draw = random.Random(seed)
        self.table: dict[State, list[float]] = {}
        for state in self._states():
            if len(state) < HORIZON - 1:
                weights = [draw.uniform(0.2, 1.0) for _ in range(ACTIONS)]
                self.table[state] = [weight / sum(weights) for weight in weights]
            else:
                success = truth + spread * draw.uniform(-1.0, 1.0)
                self.table[state] = [1.0 - success, success]

    def _states(self, state: State = ()) -> Iterator[State]:
        yield state
        if len(state) < HORIZON - 1:
            for action in range(ACTIONS):
                yield from self._states((*state, action))

    def value(self, state: State) -> float:
        """True value, by dynamic programming."""
        if len(state) == HORIZON:
            return 0.0
        return sum(
            p * (reward(said := (*state, token)) + self.value(said))
            for token, p in enumerate(self.table[state])
        )

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """One token, whatever the chat."""
        return PreparedPrompt([PROMPT])

    def decode(self, tokens: Sequence[int]) -> str:
        """Token ids as words."""
        return " ".join(map(str, tokens))

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> Sequence[Generation]:
        """Draw from the table."""
        await asyncio.sleep(0)
        row = self.table[tuple(tokens[1:])]
        draw = random.Random(params.seed)
        drawn = draw.choices(range(len(row)), row, k=n)
        return [Generation([token], [math.log(row[token])], "length") for token in drawn]


def reward(state: State) -> float:
    """1 for a success at the end."""
    return float(len(state) == HORIZON and state[-1] == 1)


class Countdown:
    """Ends after ``HORIZON`` tokens with the outcome they say."""

    def __init__(self) -> None:
        self.said: State = ()

    def reset(self, problem: Problem) -> Sequence[Any]:
        """One user message."""
        self.said = ()
        return ({"role": "user", "content": str(problem.prompt)},)

    async def step(self, reply: Reply) -> Transition:
        """Pay at the end."""
        self.said = (*self.said, *reply.tokens)
        return Transition(reward(self.said), done=len(self.said) == HORIZON)

    def snapshot(self) -> State:
        """What was said."""
        return self.said

    def restore(self, state: State) -> None:
        """Continue from there."""
        self.said = state


@attrs.define
class Bias:
    """A ratio of sums over trees: total error by total weight, with its standard error."""

    errors: list[float] = attrs.field(factory=list)
    weights: list[float] = attrs.field(factory=list)

    def add(self, errors: Sequence[float], weights: Sequence[float]) -> None:
        """Add one tree."""
        self.errors.append(float(np.dot(errors, weights)))
        self.weights.append(float(np.sum(weights)))

    @property
    def mean(self) -> float:
        """The bias."""
        return sum(self.errors) / sum(self.weights)

    @property
    def error(self) -> float:
        """Standard error of ``mean``, trees being the independent draws (delta method)."""
        residuals = np.asarray(self.errors) - self.mean * np.asarray(self.weights)
        return float(np.sqrt((residuals**2).sum()) / sum(self.weights))

    def __str__(self) -> str:
        """Bias and standard error."""
        return f"{self.mean:+.4f} ± {self.error:.4f}"


SEARCHES: dict[str, Search] = {
    "Selective": Selective(budget=48, warmup=24, max_concurrency=1),
    "Selective, 4 in flight": Selective(budget=48, warmup=24, max_concurrency=4),
    "Fifo": Fifo(budget=72, max_concurrency=1),
    "BestFirst": BestFirst(budget=72, branches=4, max_concurrency=1),
    "TokenEntropy": TokenEntropy(budget=72, window=1, branches=4, max_concurrency=1),
    "Independent": Independent(24),
}

CRITICS: dict[str, Callable[[Mdp], Critic]] = {
    "v=0.1": lambda mdp: Critic.constant(0.1),
    "v=0.9": lambda mdp: Critic.constant(0.9),
    "exact": lambda mdp: Critic.from_fn(_exact(mdp)),
}


def _exact(mdp: Mdp) -> Callable[[str], Any]:
    truth = {state: mdp.value(state) for state in mdp.table}

    async def predict(context: str) -> float:
        return truth[tuple(map(int, context.split()[1:]))]

    return predict


COLUMNS = (
    "target, weighted",
    "target, plain",
    "value, branches",
    "value, returns",
    "advantage, direct",
    "advantage, refined",
)
ROWS = ("last", "upper")


def measure(
    mdp: Mdp, search: Search, critic: Critic, *, trees: int, seed: int = 0
) -> dict[tuple[str, str], Bias]:
    """Collect trees; the bias of each column at the last states and at those above them."""
    truth = {state: mdp.value(state) for state in mdp.table}
    found = {(row, column): Bias() for row in ROWS for column in COLUMNS}

    async def collect(place: int) -> Collection:
        agent = Agent(mdp, Countdown(), context=Segments(1))
        async with Collector(agent, critic=critic, search=search) as collector:
            collection = await collector.collect(Problem("?"), key=(seed, place))
        return collection.prepare()

    async def collect_all() -> None:
        for place in range(trees):
            _add(found, await collect(place), truth)

    asyncio.run(collect_all())
    return found


def _add(
    found: dict[tuple[str, str], Bias], collection: Collection, truth: dict[State, float]
) -> None:
    tree, values = collection.tree, collection.values
    returns = refined_by_returns(tree, gamma=1.0, kappa=values.kappa)
    refined = RefinedTd().credit(tree, values, gamma=1.0).advantages
    said = [tuple(tree.prefix(node).tolist()[1:]) for node in range(len(tree))]
    worth = [0.0 if tree.kind[n] == TERMINAL else truth[said[n]] for n in range(len(tree))]
    for row in ROWS:
        nodes = [
            node
            for node in range(len(tree))
            if values.branches[node] and (len(said[node]) == HORIZON - 1) == (row == "last")
        ]
        states = np.asarray(nodes)
        true = np.asarray(worth)[states]
        targets = values.target[states] - true
        found[row, "target, weighted"].add(targets, values.branches[states])
        found[row, "target, plain"].add(targets, np.ones(len(nodes)))
        found[row, "value, branches"].add(values.refined[states] - true, np.ones(len(nodes)))
        found[row, "value, returns"].add(returns[states] - true, np.ones(len(nodes)))
        edges = np.asarray([edge for edge in tree.edges() if tree.parent[edge] in set(nodes)])
        exact = [tree.reward[e] + worth[e] - worth[tree.parent[e]] for e in edges]
        for column, advantages in (
            ("advantage, direct", collection.advantages),
            ("advantage, refined", refined),
        ):
            found[row, column].add(advantages[edges] - exact, np.ones(len(edges)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Bias of what FOCUS estimates, by search.")
    parser.add_argument("--trees", type=int, default=400)
    parser.add_argument("--truth", type=float, default=0.3, help="success in the middle")
    parser.add_argument("--spread", type=float, default=0.2, help="on either side of it")
    arguments = parser.parse_args()
    mdp = Mdp(arguments.truth, arguments.spread)
    root = mdp.value(())
    print(f"estimate - truth, {arguments.trees} trees a line; the root is worth {root:.3f}")
    print(f"{'search':23}{'critic':8}{'states':8}" + "".join(f"{c:20}" for c in COLUMNS))
    for search_name, search in SEARCHES.items():
        for critic_name, make in CRITICS.items():
            found = measure(mdp, search, make(mdp), trees=arguments.trees)
            for row in ROWS:
                cells = "".join(f"{found[row, column]!s:20}" for column in COLUMNS)
                print(f"{search_name:23}{critic_name:8}{row:8}{cells}", flush=True)


if __name__ == "__main__":
    main()
