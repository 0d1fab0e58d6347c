"""``Selective`` against a slow reference that keeps a log and scans everything at every step.

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

from focus_core import BetaBernoulli, Gaussian, Selective, Tree
from focus_core.search.worth import Evidence, expected_error_reduction
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, TRUNCATED

KAPPAS = (0.5, 1.0, 3.0)
RETURNS = (0.0, 1.0, 0.25, 0.7)


@attrs.define
class Launch:
    source: int
    refining: bool
    chain: list[int] = attrs.field(factory=list)


class Reference:
    """The algorithm notes, read literally: nothing cached, nothing incremental."""

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

    def next(self):
        if not self.refining:
            if self.since < self.search.warmup:
                for state in self.order:
                    if self.direct_branches(state) + self.flying_from(state) < 2:
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


class Driver:
    """Grows a tree under a search as the collector does, checking it at every step."""

    def __init__(self, data, *, failures=True):
        self.data = data
        self.failures = failures
        draw = data.draw
        self.flight = draw(st.integers(1, 8), label="concurrency")
        self.search = Selective(
            budget=draw(st.integers(0, 24), label="budget"),
            warmup=draw(st.integers(1, 24), label="warmup"),
            max_concurrency=self.flight,
        )
        self.predictions = draw(
            st.sampled_from([(0.5,), (0.0, 0.3, 1.0), (math.nan, 0.4), (math.nan,), (1.7, -0.2)]),
            label="predictions",
        )
        self.gamma = draw(st.sampled_from([1.0, 0.5]), label="gamma")
        calibration = draw(st.sampled_from([BetaBernoulli(), Gaussian()]), label="calibration")
        kappa = draw(st.sampled_from(KAPPAS), label="kappa")
        self.tree = Tree([1], prediction=self._prediction())
        self.frontier = self.search.start(self.tree, kappa=kappa, calibration=calibration)
        self.reference = Reference(self.search, self.tree, kappa, calibration)
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
        assert used < (self.search.budget if phase else self.search.warmup)
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
            assert width <= 2

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
        node = tree.add(
            launch.chain[-1] if launch.chain else launch.source,
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


@given(st.data())
@settings(max_examples=100)
def test_every_choice_is_the_references(data):
    """Phases, FIFO order, width, budgets, eligibility, scores, ties and observations at once."""
    driver = Driver(data).run()
    event(f"refined: {any(launch.refining for launch in driver.launches)}")
    if driver.steps < 400:
        assert driver.frontier.stopped
        assert driver.frontier.next() is None


@given(st.data())
@settings(max_examples=60)
def test_warm_up_alone_never_gives_a_state_more_than_two_branches(data):
    driver = Driver(data)
    driver.search = attrs.evolve(driver.search, budget=0)
    driver.reference.search = driver.search
    driver.frontier = driver.search.start(
        driver.tree, kappa=1.0, calibration=driver.reference.calibration
    )
    driver.run()
    assert driver.launches[0].source == ROOT
    width = Counter(driver.tree.parent[node] for node in driver.tree.edges())
    assert max(width.values(), default=0) <= 2


@given(st.data())
@settings(max_examples=60)
def test_use_exceeds_a_budget_by_at_most_what_was_in_flight(data):
    driver = Driver(data, failures=False).run()
    longest = max(len(launch.chain) for launch in driver.launches)
    for phase, budget in ((False, driver.search.warmup), (True, driver.search.budget)):
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
