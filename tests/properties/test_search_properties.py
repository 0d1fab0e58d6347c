"""Every search against a slow reference that keeps a log and scans everything at every step.

The frontier is driven directly: hypothesis decides which continuation in flight moves next and how
(a transition, an outcome, a truncation, a failure), so every interleaving a collector can produce
is reached without a clock.
"""

import math
from collections import Counter
from fractions import Fraction

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from focus_core import (
    BestFirst,
    BetaBernoulli,
    Fifo,
    Gaussian,
    Independent,
    Search,
    Selective,
    TokenEntropy,
    Tree,
)
from focus_core.search.worth import Evidence, expected_error_reduction
from focus_core.tree.returns import observed_returns
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, TRUNCATED

KAPPAS = (0.5, 1.0, 3.0)
RETURNS = (0.0, 1.0, 0.25, 0.7)
SURPRISALS = (0.0, 0.25, 0.5, 2.0)  # sums of them are exact, so that ties are


@attrs.define(eq=False)
class Launch:
    source: int
    refining: bool
    chain: list[int] = attrs.field(factory=list)


class Reference:
    """``Selective`` in the algorithm notes, read literally: nothing cached, nothing incremental."""

    def __init__(self, search, tree, kappa, calibration):
        self.search, self.tree, self.kappa, self.calibration = search, tree, kappa, calibration
        self.order = [ROOT]  # states that may be offered, as they landed
        self.observations = {ROOT: []}
        self.landed_launches = []
        self.flying = []
        self.refining = False
        self.since = 0

    def direct_branches(self, state):
        """Children of landed continuations that left the state, its own chain's included."""
        return sum(self.tree.parent[node] == state for node in self.seen())

    def seen(self):
        return [node for launch in self.landed_launches for node in launch.chain]

    def flying_from(self, state):
        return sum(launch.source == state for launch in self.flying)

    def score(self, state):
        evidence = Evidence()
        for value in self.observations[state]:
            evidence.observe(value)
        evidence.in_flight = self.flying_from(state)
        return expected_error_reduction(
            self.tree.prediction[state], evidence, kappa=self.kappa, calibration=self.calibration
        )

    def fifo(self):
        for state in self.order:
            if self.direct_branches(state) + self.flying_from(state) < 2:
                return state
        return None

    def next(self):
        if not self.refining:
            if self.since < self.search.warmup and (state := self.fifo()) is not None:
                return state
            if self.flying:
                return None
            self.refining, self.since = True, 0
        if self.since >= self.search.budget:
            return None
        eligible = [state for state in self.order if self.score(state) > 0.0]
        # max() keeps the first of equals, and ``order`` is by age
        return max(eligible, key=self.score, default=None)

    def landed(self, launch, returns):
        self.landed_launches.append(launch)
        for node in launch.chain:
            if self.tree.kind[node] == OPEN and self.tree.forkable[node]:
                self.order.append(node)
                self.observations[node] = []
        if returns is not None:
            for node, value in zip([launch.source, *launch.chain], returns, strict=True):
                if node in self.observations:
                    self.observations[node].append(value)


class FifoReference(Reference):
    def next(self):
        return self.fifo() if self.since < self.search.budget else None


class RankedReference(Reference):
    """One launch in flight from a state, ``branches`` direct branches, the root first and alone."""

    def rank(self, state):
        return self.tree.prediction[state]

    def next(self):
        if self.since >= self.search.budget:
            return None
        if not any(launch.source == ROOT for launch in self.landed_launches):
            return None if self.flying else ROOT
        eligible = [
            state
            for state in self.order
            if self.direct_branches(state) < self.search.branches
            and not self.flying_from(state)
            and not math.isnan(self.rank(state))
        ]
        return max(eligible, key=self.rank, default=None)


class EntropyReference(RankedReference):
    def rank(self, state):
        said = [x for node in self.tree.path(state) for x in self.tree.generated(node)[1].tolist()]
        last = said[-self.search.window :]
        return -sum(last) / len(last) if last else -math.inf


REFERENCES = {
    Selective: Reference,
    Fifo: FifoReference,
    BestFirst: RankedReference,
    TokenEntropy: EntropyReference,
}


class Driver:
    """Grows a tree under a search as the collector does, checking it at every step."""

    def __init__(self, data, kind, *, failures=True):
        self.data = data
        self.failures = failures
        draw = data.draw
        self.flight = draw(st.integers(1, 8), label="concurrency")
        ranges = {"budget": (int(kind is not Selective), 24), "warmup": (1, 24)}
        ranges |= {"window": (1, 6), "branches": (2, 4)}
        chosen = {
            field.name: draw(st.integers(*ranges[field.name]), label=field.name)
            for field in attrs.fields(kind)
            if field.name in ranges
        }
        self.search = kind(**chosen, max_concurrency=self.flight)
        self.predictions = draw(
            st.sampled_from([(0.5,), (0.0, 0.3, 1.0), (math.nan, 0.4), (math.nan,), (1.7, -0.2)]),
            label="predictions",
        )
        self.gamma = draw(st.sampled_from([1.0, 0.5]), label="gamma")
        calibration = draw(st.sampled_from([BetaBernoulli(), Gaussian()]), label="calibration")
        kappa = draw(st.sampled_from(KAPPAS), label="kappa")
        self.tree = Tree([1], prediction=self._prediction())
        self.frontier = self.search.start(self.tree, kappa=kappa, calibration=calibration)
        self.reference = REFERENCES[kind](self.search, self.tree, kappa, calibration)
        self.launches = []
        self.generated = Counter()  # by phase of the launch
        self.steps = 0

    def _prediction(self):
        return self.data.draw(st.sampled_from(self.predictions))

    @property
    def flying(self):
        return self.reference.flying

    def run(self):
        while self.steps < 400:
            while len(self.flying) < self.flight:
                expected = self.reference.next()
                source = self.frontier.next()
                assert source == expected
                if source is None:
                    break
                self.launched(source)
            if not self.flying:
                break
            self.move()
        return self

    def launched(self, source):
        phase = self.reference.refining
        used = self.generated[phase]
        two_phases = isinstance(self.search, Selective)
        assert used < (self.search.warmup if two_phases and not phase else self.search.budget)
        assert self.launches or source == ROOT
        assert self.tree.kind[source] == OPEN
        assert self.tree.forkable[source]
        assert self.tree.alive[source]
        if phase:
            assert self.reference.observations[source], "n = 0 is not offered"
            assert math.isfinite(self.tree.prediction[source])
            assert not any(not launch.refining for launch in self.flying), "warm-up drains first"
        launch = Launch(source, phase)
        self.flying.append(launch)
        self.launches.append(launch)
        if not phase:
            width = self.reference.direct_branches(source) + self.reference.flying_from(source)
            assert width <= getattr(self.search, "branches", 2)
        if hasattr(self.search, "branches"):
            assert self.reference.flying_from(source) == 1, "not twice at once"

    def move(self):
        """One of the continuations in flight does something."""
        draw, tree = self.data.draw, self.tree
        self.steps += 1
        launch = self.flying[draw(st.integers(0, len(self.flying) - 1))]
        if self.failures and draw(st.integers(0, 9)) == 9:
            if draw(st.booleans()):
                self._transition(launch, OPEN)  # generated, then lost
            tree.remove(launch.chain)
            self.flying.remove(launch)
            self.frontier.failed(launch.source)
            return
        end = draw(st.integers(0, 5))
        kind = {4: TERMINAL, 5: TRUNCATED}.get(end, TERMINAL if len(launch.chain) > 4 else OPEN)
        self._transition(launch, kind)
        if kind != OPEN:
            self._land(launch, kind)

    def _transition(self, launch, kind):
        draw, tree = self.data.draw, self.tree
        said = draw(st.lists(st.sampled_from(SURPRISALS), max_size=4))
        node = tree.add(
            launch.chain[-1] if launch.chain else launch.source,
            [7] * len(said),
            [-x for x in said],
            launch=self.launches.index(launch),
            reward=draw(st.sampled_from(RETURNS)) if kind == TERMINAL else 0.0,
            kind=kind,
            prediction=math.nan if kind == TERMINAL else self._prediction(),
        )
        if kind == OPEN:
            tree.forkable[node] = draw(st.integers(0, 9)) != 9
        launch.chain.append(node)
        self.generated[launch.refining] += 1
        self.reference.since += 1
        self.frontier.generated()

    def _land(self, launch, kind):
        returns = None
        if kind == TERMINAL:
            outcome = self.tree.reward[launch.chain[-1]]
            length = len(launch.chain)
            # a state k transitions before the end has return gamma**(k - 1) * outcome
            returns = [self.gamma ** (length - place - 1) * outcome for place in range(length)]
            returns.append(0.0)
        self.flying.remove(launch)
        self.frontier.landed(launch.source, launch.chain, returns)
        self.reference.landed(launch, returns)


@pytest.mark.parametrize("kind", REFERENCES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=80)
def test_every_choice_is_the_references(kind, data):
    """Phases, order, width, budgets, eligibility, scores, ties and observations at once."""
    driver = Driver(data, kind).run()
    event(f"launches: {min(len(driver.launches), 3)}")
    event(f"refined: {any(launch.refining for launch in driver.launches)}")
    check_observations(driver)
    if driver.steps < 400:
        assert driver.frontier.stopped
        assert driver.frontier.next() is None


@given(st.data())
@settings(max_examples=60)
def test_warm_up_alone_never_gives_a_state_more_than_two_branches(data):
    driver = Driver(data, Selective)
    driver.search = attrs.evolve(driver.search, budget=0)
    driver.reference.search = driver.search
    driver.frontier = driver.search.start(
        driver.tree, kappa=1.0, calibration=driver.reference.calibration
    )
    driver.run()
    assert driver.launches[0].source == ROOT
    width = Counter(driver.tree.parent[node] for node in driver.tree.edges())
    assert max(width.values(), default=0) <= 2


def check_observations(driver):
    """What ``RefinedTd`` reads from the tree afterwards is what was observed while it grew."""
    count, mean = observed_returns(driver.tree, gamma=driver.gamma)
    for state in range(len(driver.tree)):
        if driver.tree.kind[state] == OPEN and driver.tree.forkable[state]:
            seen = driver.reference.observations.get(state, [])
            assert count[state] == len(seen)
            assert mean[state] == pytest.approx(sum(seen) / len(seen)) if seen else True


@pytest.mark.parametrize("kind", REFERENCES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=40)
def test_use_exceeds_a_budget_by_at_most_what_was_in_flight(kind, data):
    driver = Driver(data, kind, failures=False).run()
    longest = max(len(launch.chain) for launch in driver.launches)
    budgets = [(False, getattr(driver.search, "warmup", driver.search.budget))]
    if kind is Selective:
        budgets.append((True, driver.search.budget))
    for phase, budget in budgets:
        over = driver.generated[phase] - budget
        assert over <= driver.flight * longest - 1 or driver.generated[phase] == 0
        if driver.flight == 1:
            assert over < longest


@given(
    st.sampled_from([0.5, 1.0, 2.0, 7.0]),
    st.floats(-0.5, 1.5),
    st.lists(st.sampled_from([0, 1, Fraction(1, 4)]), min_size=1, max_size=12),
    st.integers(0, 5),
)
def test_the_beta_score_is_the_notes_formula_in_exact_arithmetic(kappa, v, returns, flying):
    evidence = Evidence()
    for value in returns:
        evidence.observe(float(value))
    evidence.in_flight = flying
    k, n = Fraction(kappa), len(returns)
    clamped = min(max(Fraction(v), Fraction(0)), Fraction(1))
    mu = (k * clamped + sum(returns)) / (k + n)
    e2 = (clamped - mu) ** 2 + mu * (1 - mu) / (k + n + 1)
    s2 = mu * (1 - mu)
    score = (2 * k * k * e2 + (n + flying - k) * s2) / (k + n + flying) ** 3
    found = expected_error_reduction(v, evidence, kappa=kappa, calibration=BetaBernoulli())
    assert found == pytest.approx(max(float(score), 0.0), rel=1e-9, abs=1e-15)


@given(
    st.sampled_from([0.5, 1.0, 2.0]),
    st.fractions(-3, 3, max_denominator=8),
    st.lists(st.fractions(-4, 4, max_denominator=8), min_size=1, max_size=12),
    st.integers(0, 5),
)
def test_the_gaussian_score_is_the_notes_formula_in_exact_arithmetic(kappa, v, returns, flying):
    evidence = Evidence()
    for value in returns:
        evidence.observe(float(value))
    evidence.in_flight = flying
    k, n = Fraction(kappa), len(returns)
    mean = sum(returns) / Fraction(n)
    spread = Fraction(1, 4)
    if n >= 2:
        spread = max(sum((x - mean) ** 2 for x in returns) / (n - 1), Fraction(1, 1000))
    mu = (k * v + n * mean) / (k + n)
    e2 = (v - mu) ** 2 + spread / (k + n)
    s2 = spread * (1 + 1 / (k + n))
    score = (2 * k * k * e2 + (n + flying - k) * s2) / (k + n + flying) ** 3
    found = expected_error_reduction(float(v), evidence, kappa=kappa, calibration=Gaussian())
    assert found == pytest.approx(max(float(score), 0.0), rel=1e-9, abs=1e-15)


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_same_outcomes_in_another_order_tie_exactly(outcomes, random):
    """Else the age of a state would not decide between equals; the last bit of a mean would."""
    shuffled = list(outcomes)
    random.shuffle(shuffled)
    scores = []
    for order in (outcomes, shuffled):
        evidence = Evidence()
        for outcome in order:
            evidence.observe(float(outcome))
        scores.append(
            expected_error_reduction(0.5, evidence, kappa=1.0, calibration=BetaBernoulli())
        )
    assert scores[0] == scores[1]


def test_every_search_that_branches_has_a_reference():
    import focus_core.search as room

    kinds = {value for name in room.__all__ if isinstance(value := getattr(room, name), type)}
    searches = {k for k in kinds if k is not Search and hasattr(k, "start")}
    assert searches == {*REFERENCES, Independent}
