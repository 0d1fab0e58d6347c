"""The searches, one launch at a time; ``tests/properties`` holds them against a reference."""

import math

import pytest

from focus_core import (
    BestFirst,
    BetaBernoulli,
    Fifo,
    Independent,
    Search,
    Selective,
    TokenEntropy,
    Tree,
)
from focus_core.search import expected_error_reduction
from focus_core.search.token_entropy import mean_surprisal
from focus_core.search.worth import Evidence
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, TRUNCATED


class Play:
    """Acts for the collector on one tree."""

    def __init__(self, search, *, v=0.5, forkable=True):
        self.v = v
        self.tree = Tree([1], prediction=v, forkable=forkable)
        self.forkable = forkable
        self.frontier = search.start(self.tree, kappa=1.0, calibration=BetaBernoulli())

    def land(self, source, states, outcome, *, kind=TERMINAL, predicted=(), surprise=()):
        """A continuation of ``states`` unfinished states and then its end; returns its chain.

        ``predicted`` gives the states' predictions, ``surprise`` the -log p of the one token
        that each of their edges generated.
        """
        chain, at = [], source
        for place in range(states + 1):
            last = place == states
            v = math.nan if last else predicted[place] if predicted else self.v
            said = [-surprise[place]] if surprise and not last else []
            at = self.tree.add(at, [7] * len(said), said, kind=kind if last else OPEN, prediction=v)
            self.tree.forkable[at] = self.forkable and not last
            chain.append(at)
            self.frontier.generated()
        returns = None if kind == TRUNCATED else [outcome] * (states + 1) + [0.0]
        self.frontier.landed(source, chain, returns)
        return chain

    def next(self):
        return self.frontier.next()


def test_warm_up_gives_two_branches_to_each_state_in_the_order_they_landed():
    play = Play(Selective(budget=0, warmup=100, max_concurrency=1))
    assert play.next() == ROOT
    a, b, _ = play.land(ROOT, 2, 1.0)  # root - a - b - end
    assert play.next() == ROOT, "one direct branch: its own chain's child"
    c, _ = play.land(ROOT, 1, 0.0)  # root - c - end
    assert play.next() == a
    play.land(a, 0, 1.0)
    assert play.next() == b
    d, _ = play.land(b, 1, 1.0)
    assert play.next() == c, "landed before d"
    play.land(c, 0, 0.0)
    assert play.next() == d
    play.land(d, 0, 0.0)
    assert play.next() is None
    assert play.frontier.stopped == "the budget of 0 transitions is used"


def test_the_head_counts_launches_in_flight_and_the_next_state_follows():
    play = Play(Selective(budget=0, warmup=100, max_concurrency=4))
    assert [play.next(), play.next(), play.next()] == [ROOT, ROOT, None]
    a, b, _ = play.land(ROOT, 2, 1.0)
    # root has one branch and one launch in flight; a and b have a child each
    assert [play.next(), play.next(), play.next()] == [a, b, None]


def test_a_failed_launch_gives_its_place_back_to_the_head():
    play = Play(Selective(budget=0, warmup=100, max_concurrency=2))
    assert [play.next(), play.next()] == [ROOT, ROOT]
    a, _ = play.land(ROOT, 1, 1.0)
    assert play.next() == a
    play.frontier.failed(ROOT)
    assert play.next() == ROOT
    assert play.next() is None


def test_warm_up_stops_launching_at_its_budget_and_drains():
    play = Play(Selective(budget=8, warmup=3, max_concurrency=2))
    assert [play.next(), play.next()] == [ROOT, ROOT]
    a, b, _ = play.land(ROOT, 2, 1.0)  # three transitions: used
    assert play.next() is None, "the other continuation has not landed"
    c, _ = play.land(ROOT, 1, 0.0)
    # refinement: with v = 0.5 and one outcome each, a, b and c tie; the root has seen two
    assert [play.next(), play.next(), play.next()] == [a, b, c]


def test_refinement_takes_the_largest_expected_reduction():
    play = Play(Selective(budget=100, warmup=5, max_concurrency=1), v=0.1)
    assert play.next() == ROOT
    dull, _ = play.land(ROOT, 1, 0.0)
    assert play.next() == ROOT
    surprising, _, _ = play.land(ROOT, 2, 1.0)
    assert play.next() == surprising
    assert play.frontier.stopped == ""
    assert dull < surprising


def test_a_continuation_is_observed_at_its_source_and_by_the_states_it_created():
    """Each by its own suffix return; states above the source hear nothing."""
    seen = []

    class Spy:
        def moments(self, v, n, mean, variance, kappa):
            seen.append((v, n, mean))
            return 1.0, 1.0

    tree = Tree([1], prediction=0.0)
    frontier = Selective(budget=9, warmup=1, max_concurrency=1).start(
        tree, kappa=1.0, calibration=Spy()
    )

    def grow(source, *predictions):
        chain = []
        for v in predictions:
            chain.append(tree.add(chain[-1] if chain else source, prediction=v))
            tree.forkable[chain[-1]] = 1
        chain.append(tree.add(chain[-1], kind=TERMINAL))
        return chain

    assert frontier.next() == ROOT
    frontier.generated()
    a, *rest = grow(ROOT, 0.1, 0.2)
    frontier.landed(ROOT, [a, *rest], [0.25, 0.5, 1.0, 0.0])
    source = frontier.next()
    assert set(seen) == {(0.0, 1, 0.25), (0.1, 1, 0.5), (0.2, 1, 1.0)}
    assert source == ROOT
    frontier.failed(ROOT)
    seen.clear()
    frontier.landed(a, grow(a, 0.3), [0.75, 0.125, 0.0])
    assert set(seen) == {(0.1, 2, 0.625), (0.3, 1, 0.125)}


def test_launches_in_flight_lower_a_score():
    """Equal states are visited in turn, oldest first, while nothing lands."""
    play = Play(Selective(budget=100, warmup=5, max_concurrency=8))
    play.next()
    play.next()
    a, _ = play.land(ROOT, 1, 1.0)
    b, c, _ = play.land(ROOT, 2, 1.0)
    launched = [play.next() for _ in range(8)]
    # brute force over the four states, older first
    flying = {ROOT: 0, a: 0, b: 0, c: 0}
    expected = []
    for _ in range(8):

        def score(state):
            evidence = Evidence()
            for _ in range(2 if state == ROOT else 1):
                evidence.observe(1.0)
            evidence.in_flight = flying[state]
            return expected_error_reduction(0.5, evidence, kappa=1.0, calibration=BetaBernoulli())

        best = max(flying, key=score)
        flying[best] += 1
        expected.append(best)
    assert launched == expected
    assert launched[:3] == [a, b, c]


def test_refinement_stops_launching_at_its_budget():
    play = Play(Selective(budget=2, warmup=1, max_concurrency=3))
    play.next()
    a, _, _ = play.land(ROOT, 2, 1.0)
    assert [play.next(), play.next()] == [ROOT, a], "all tie at one outcome; the root is older"
    play.land(a, 1, 1.0)  # two transitions, while the root's launch goes on
    assert play.next() is None
    assert play.frontier.stopped == "the budget of 2 transitions is used"


def test_without_any_prediction_refinement_is_skipped_and_says_so():
    play = Play(Selective(budget=100, warmup=1, max_concurrency=1), v=math.nan)
    play.next()
    play.land(ROOT, 2, 1.0)
    assert play.next() is None
    assert "refinement skipped" in play.frontier.stopped
    assert "no state has a critic prediction" in play.frontier.stopped
    assert play.next() is None


def test_when_nothing_is_eligible_it_says_so():
    play = Play(Selective(budget=100, warmup=1, max_concurrency=1), v=1.0)
    play.next()
    play.land(ROOT, 2, 1.0)  # the critic was certain, and right
    assert play.next() is None
    assert play.frontier.stopped == "no state is eligible"


def test_truncated_continuations_give_branches_but_no_observations():
    play = Play(Selective(budget=100, warmup=100, max_concurrency=1))
    play.next()
    a, cut = play.land(ROOT, 1, 0.0, kind=TRUNCATED)
    assert play.next() == ROOT
    play.land(ROOT, 0, 0.0, kind=TRUNCATED)
    assert play.next() == a
    play.land(a, 0, 0.0, kind=TRUNCATED)
    assert play.next() is None, "the cut states are not offered, and no state has n > 0"
    assert play.frontier.stopped == "no state is eligible"
    assert cut == 2


def test_an_environment_that_cannot_branch_is_collected_from_its_root():
    play = Play(Selective(budget=4, warmup=4, max_concurrency=1), forkable=False)
    sources = []
    while (source := play.next()) is not None:
        sources.append(source)
        play.land(source, 1, float(len(sources) % 2))
    assert set(sources) == {ROOT}
    assert len(sources) == 4


def test_asking_again_after_the_end_changes_nothing():
    play = Play(Selective(budget=1, warmup=1, max_concurrency=1))
    while (source := play.next()) is not None:
        play.land(source, 1, 1.0)
    stopped = play.frontier.stopped
    assert [play.next(), play.next()] == [None, None]
    assert play.frontier.stopped == stopped


def test_fifo_is_the_warm_up_alone_and_needs_no_critic():
    play = Play(Fifo(budget=7, max_concurrency=1), v=math.nan)
    assert play.next() == ROOT
    a, b, _ = play.land(ROOT, 2, 1.0)
    assert play.next() == ROOT
    c, _ = play.land(ROOT, 1, 0.0)
    assert [play.next(), play.next(), play.next(), play.next()] == [a, b, c, None]
    assert play.frontier.stopped == "", "three are in flight"
    for source in (a, b, c):
        play.land(source, 0, 1.0)
    assert play.next() is None
    assert play.frontier.stopped == "the budget of 7 transitions is used"


def test_fifo_ends_when_every_state_has_two_branches():
    play = Play(Fifo(budget=100))
    for _ in range(2):
        play.land(play.next(), 0, 1.0)
    assert play.next() is None
    assert play.frontier.stopped == "every state has two branches"


def test_best_first_takes_the_highest_prediction_whatever_was_observed_there():
    play = Play(BestFirst(budget=100, max_concurrency=1), v=0.5)
    assert play.next() == ROOT
    low, high, _ = play.land(ROOT, 2, 0.0, predicted=(0.2, 0.9))
    assert play.next() == high, "although its only return was 0"
    better, _ = play.land(high, 1, 0.0, predicted=(0.95,))
    assert play.next() == better
    play.land(better, 0, 1.0)
    assert play.next() == ROOT, "the others have their two branches"
    play.land(ROOT, 0, 1.0)
    assert play.next() == low
    play.land(low, 0, 1.0)
    assert play.next() is None
    assert play.frontier.stopped == "no state is eligible"


def test_more_branches_stay_at_the_best_state():
    play = Play(BestFirst(budget=100, branches=4, max_concurrency=1), v=0.1)
    play.next()
    best, _ = play.land(ROOT, 1, 1.0, predicted=(0.9,))
    for _ in range(3):  # with the child of its own chain, four
        assert play.next() == best
        play.land(best, 0, 0.0)
    assert play.next() == ROOT


def test_a_ranked_state_has_one_launch_in_flight():
    play = Play(BestFirst(budget=100, branches=9, max_concurrency=8), v=0.1)
    assert [play.next(), play.next()] == [ROOT, None], "the root first, and alone"
    assert play.frontier.stopped == ""
    a, b, _ = play.land(ROOT, 2, 1.0, predicted=(0.3, 0.7))
    assert [play.next() for _ in range(4)] == [b, a, ROOT, None]
    play.frontier.failed(a)
    assert play.next() == a, "what failed is offered again"


def test_a_failed_first_launch_is_repeated_from_the_root():
    play = Play(BestFirst(max_concurrency=1), v=math.nan)
    assert play.next() == ROOT
    play.frontier.failed(ROOT)
    assert play.next() == ROOT


def test_best_first_leaves_out_states_without_a_prediction():
    play = Play(BestFirst(max_concurrency=1), v=math.nan)
    play.next()
    play.land(ROOT, 2, 1.0)
    assert play.next() is None
    assert play.frontier.stopped == "no state is eligible"
    play = Play(BestFirst(max_concurrency=4), v=math.nan)
    play.next()
    _, known, _ = play.land(ROOT, 2, 1.0, predicted=(math.nan, 0.0))
    assert [play.next(), play.next()] == [known, None]


def test_token_entropy_takes_the_most_surprising_state_and_the_root_last():
    play = Play(TokenEntropy(budget=100, window=1, max_concurrency=1), v=math.nan)
    assert play.next() == ROOT
    sure, unsure, _ = play.land(ROOT, 2, 1.0, surprise=(0.25, 2.0))
    assert play.next() == unsure
    wild, certain, _ = play.land(unsure, 2, 0.0, surprise=(3.0, 0.0))
    for expected in (wild, sure, certain, ROOT):
        assert play.next() == expected
        play.land(expected, 0, 0.0)
    assert play.next() is None
    assert play.frontier.stopped == "no state is eligible"


def test_the_window_reaches_back_over_edges_and_leaves_rendered_tokens_out():
    tree = Tree([1, 2])
    a = tree.add(ROOT, [3, 4, 5], [-1.0, -2.0, -4.0], rendered=[8, 8])
    b = tree.add(a)  # said nothing
    c = tree.add(b, [6], [-0.5])
    assert mean_surprisal(tree, a, 2) == 3.0
    assert mean_surprisal(tree, b, 2) == 3.0
    assert mean_surprisal(tree, c, 1) == 0.5
    assert mean_surprisal(tree, c, 2) == 2.25
    assert mean_surprisal(tree, c, 3) == 6.5 / 3
    assert mean_surprisal(tree, c, 100) == 7.5 / 4
    assert mean_surprisal(tree, ROOT, 4) == -math.inf


def test_a_frontier_says_what_a_state_is_ranked_by():
    play = Play(BestFirst(max_concurrency=1))
    assert play.frontier.worth(ROOT) is None
    play.next()
    a, end = play.land(ROOT, 1, 1.0, predicted=(0.75,))
    assert [play.frontier.worth(s) for s in (ROOT, a, end)] == [0.5, 0.75, None]
    assert play.next() == a
    assert play.frontier.worth(a) is None, "in flight: not offered"
    play = Play(Selective(budget=9, warmup=1, max_concurrency=1))
    play.next()
    a, _ = play.land(ROOT, 1, 1.0)
    assert play.frontier.phase == "warm-up"
    assert play.frontier.worth(a) == 0.03125, "what refinement will begin with"
    play.next()
    assert play.frontier.worth(a) == pytest.approx(0.03125)


def test_independent_launches_n_from_the_root():
    play = Play(Independent(3))
    assert [play.next() for _ in range(5)] == [ROOT, ROOT, ROOT, None, None]
    play.frontier.failed(ROOT)
    play.land(ROOT, 1, 1.0)
    assert play.next() is None, "a failed rollout is not repeated"
    assert play.frontier.stopped == "all rollouts are in"
    assert Independent(3).max_concurrency == 3
    assert Independent(3, max_concurrency=2).max_concurrency == 2


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Selective, {"budget": -1}),
        (Selective, {"warmup": 0}),
        (Selective, {"max_concurrency": 0}),
        (Selective, {"max_failures": 0}),
        (Fifo, {"budget": 0}),
        (BestFirst, {"branches": 1}),
        (BestFirst, {"max_concurrency": 0}),
        (TokenEntropy, {"window": 0}),
        (TokenEntropy, {"branches": 1}),
        (Independent, {"n": 0}),
        (Independent, {"max_concurrency": 0}),
        (Independent, {"max_failures": 0}),
    ],
)
def test_numbers_that_make_no_sense_are_refused(kind, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        kind(**arguments)


def test_all_are_searches():
    for kind in (Selective, Independent, Fifo, BestFirst, TokenEntropy):
        assert isinstance(kind(), Search)
    assert (Selective().budget, Selective().warmup, Selective().max_failures) == (32, 16, 3)


@pytest.mark.parametrize("n", [2.5, math.inf, math.nan, 0])
def test_a_number_of_rollouts_is_whole(n):
    """Half a rollout was never left over: the collection did not end."""
    with pytest.raises(ValueError, match="'n' must be"):
        Independent(n)
