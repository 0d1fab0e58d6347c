"""The log of a search: what it chose, and what every state was worth when it did."""

import math

import pytest

from focus_core import Independent
from focus_core.search.decisions import Decisions
from focus_core.search.worth import Evidence, expected_error_reduction
from focus_core.testing import CountdownEnv
from focus_core.view import SavedTree
from tests.view.view_kit import collected


def worths(log, launch):
    """What every state was worth when a launch was made, from the log of changes."""
    changes = log.changes
    return {
        state: worth
        for state, worth, before in zip(changes.state, changes.worth, changes.launches, strict=True)
        if before <= launch
    }


@pytest.mark.parametrize("concurrency", [1, 4])
def test_every_launch_is_there_and_left_from_its_state(concurrency):
    collection, _ = collected(budget=60, warmup=20, max_concurrency=concurrency)
    tree, log = collection.tree, collection.decisions
    assert len(log.launches.state) == collection.counts["continuations"]
    for node in tree.edges():
        if tree.launch[node] != tree.launch[tree.parent[node]]:
            assert log.launches.state[tree.launch[node]] == tree.parent[node]
    phases = log.launches.phase
    assert phases == sorted(phases, key=["warm-up", "refinement"].index)
    assert len(set(phases)) == 2


@pytest.mark.parametrize("concurrency", [1, 4])
def test_refinement_chose_what_the_log_says_was_worth_most(concurrency):
    collection, _ = collected(budget=120, warmup=20, max_concurrency=concurrency, steps=5)
    log = collection.decisions
    refined = 0
    for launch, (state, phase) in enumerate(
        zip(log.launches.state, log.launches.phase, strict=True)
    ):
        if phase == "refinement":
            known = worths(log, launch)
            assert log.launches.worth[launch] == known[state] == max(known.values()) > 0.0
            refined += 1
    assert refined > 20


def test_evidence_and_worth_agree_with_the_tree():
    """At the end, from the tree alone: each state's returns, and the formula on them."""
    collection, _ = collected(budget=80, warmup=20, max_concurrency=1)
    tree, log = collection.tree, collection.decisions
    expected = {}
    for end in tree.edges():
        if tree.kind[end] == 1:
            value, node = 0.0, end
            while True:  # up the chain of one launch, its source included
                value, up = value + tree.reward[node], tree.parent[node]
                expected.setdefault(up, Evidence()).observe(value)
                if tree.launch[up] != tree.launch[node]:
                    break
                node = up
    final = worths(log, math.inf)
    for state, evidence in log.evidence.items():
        assert (evidence.n, evidence.in_flight) == (expected[state].n, 0)
        assert evidence.mean == pytest.approx(expected[state].mean)
        worth = expected_error_reduction(
            tree.prediction[state],
            expected[state],
            kappa=1.0,
            calibration=collection.collector.calibration,
        )
        assert final[state] == pytest.approx(worth, abs=1e-12)
    assert set(expected) == set(log.evidence)


def test_the_log_grows_with_changes_not_with_states_times_launches():
    collection, _ = collected(budget=300, warmup=20)
    log, tree = collection.decisions, collection.tree
    assert len(log.changes.state) <= 3 * len(log.launches.state) + len(tree)


def test_launches_in_flight_and_failures_are_counted():
    class Fragile(CountdownEnv):
        async def step(self, reply):
            if reply.tokens[-1] == 3:
                raise ValueError("down")
            return await super().step(reply)

    collection, _ = collected(
        env=Fragile(3), budget=30, warmup=12, max_failures=9, allow_partial=True
    )
    log = collection.decisions
    assert 0 < collection.counts["failed_continuations"] < 9
    assert len(log.launches.state) == (
        collection.counts["continuations"] + collection.counts["failed_continuations"]
    )
    assert max(log.launches.in_flight) > 0
    assert all(evidence.in_flight == 0 for evidence in log.evidence.values())


def test_a_search_that_explains_nothing_still_has_its_launches():
    log = collected(search=Independent(5))[0].decisions
    assert list(log.launches.state) == [0] * 5
    assert log.launches.phase == [""] * 5
    assert all(map(math.isnan, log.launches.worth))
    assert list(log.launches.in_flight) == [0, 1, 2, 3, 4]
    assert not log.changes.state


def test_a_state_that_is_no_longer_offered_is_a_change():
    class Once:
        """Offers a state until it was chosen."""

        phase = "ranking"

        def __init__(self):
            self.scores = {0: 0.5}

        def worth(self, state):
            return self.scores.get(state)

    log, frontier = Decisions(), Once()
    log.follow(frontier)
    log.launched(0, 0)
    frontier.scores = {1: 0.25}
    log.landed(0, [1, 2], [1.0, 1.0, 0.0], 2)
    frontier.scores = {}
    log.launched(1, 2)
    log.failed(1, 3)
    assert list(log.changes.state) == [0, 0, 1, 1]
    assert [None if math.isnan(w) else w for w in log.changes.worth] == [0.5, None, 0.25, None]
    assert list(log.changes.launches) == [1, 1, 1, 2]
    assert log.launches.worth[1] == 0.25
    assert log.launches.phase == ["ranking"] * 2
    log.follow(None)
    log.launched(1, 3)
    assert len(log.changes.state) == 4


def test_a_root_that_cannot_be_made_has_an_empty_log():
    class Broken(CountdownEnv):
        def reset(self, problem):
            raise ValueError("no")

    collection, policy = collected(env=Broken(), allow_partial=True)
    assert not collection.decisions.launches.state
    form = SavedTree.of(collection, policy.decode)
    assert (len(form.nodes), form.failures[0].stage) == (1, "environment")
