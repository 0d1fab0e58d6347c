"""Measuring a policy: what counts, what the interval is, what a failure does."""

import asyncio
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_core import (
    Agent,
    Collector,
    Critic,
    Generation,
    PreparedPrompt,
    Problem,
    Selective,
    Transition,
)
from focus_core.run.evaluate import Evaluation, evaluate
from tests.core.schedule_kit import run_virtual


class Policy:
    """Answers "1 0" after a second; notes what it was asked."""

    version = 0

    def __init__(self):
        self.asked = []
        self.running = self.most = 0

    def prepare(self, messages):
        return PreparedPrompt([5])

    def decode(self, tokens):
        return " ".join(map(str, tokens))

    async def generate(self, tokens, params, n=1):
        self.asked.append(params)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(1.0)
        finally:
            self.running -= 1
        return [Generation([1, 0], [-0.5, -0.5], "stop")]


class Env:
    forkable = False

    def __init__(self, problem, answer):
        self.problem, self.answer = problem, answer

    def reset(self, problem):
        return ({"role": "user", "content": problem.prompt},)

    async def step(self, reply):
        return self.answer(self.problem)


def measure(answer, count=4, policy=None, **options):
    """Evaluate on ``count`` problems; ``answer`` makes each one's transition."""
    policy = policy or Policy()
    problems = [Problem(str(i), id=i) for i in range(count)]

    def collector_for(policy, problem):
        return Collector(Agent(policy, Env(problem, answer)), critic=Critic.constant(0.5))

    return run_virtual(lambda: evaluate(policy, problems, collector_for, **options))


def won(problem):
    return Transition(float(problem.id % 2), done=True)


def test_accuracy_is_the_mean_return_of_finished_rollouts():
    found = measure(won, rollouts=3)
    assert found.returns == [0.0] * 3 + [1.0] * 3 + [0.0] * 3 + [1.0] * 3
    assert found.accuracy == 0.5
    assert (found.unfinished, found.failures, found.tokens) == (0, [], 24)


def test_a_failure_is_no_zero():
    def answer(problem):
        if problem.id == 1:
            raise RuntimeError("the sandbox is gone")
        return Transition(1.0, done=True)

    found = measure(answer, rollouts=2)
    assert found.returns == [1.0] * 6
    assert found.accuracy == 1.0
    assert [str(f.error) for f in found.failures] == ["the sandbox is gone"] * 2
    assert "2 failed (first: environment at state 0: RuntimeError" in str(found)


def test_an_unfinished_rollout_is_not_solved():
    def answer(problem):
        if problem.id == 0:
            return Transition(truncated=True)
        return Transition(1.0, done=True)

    found = measure(answer)
    assert found.returns == [1.0] * 3
    assert (found.unfinished, found.rollouts, found.accuracy) == (1, 4, 0.75)
    assert "n=4), 1 unfinished, counted as not solved" in str(found)


def test_an_unfinished_rollout_of_other_returns_is_in_no_mean():
    found = Evaluation([0.5, 0.25], 2, [], 0)
    assert (found.accuracy, found.rollouts) == (0.375, 2)
    assert "n=2), 2 unfinished, in no mean" in str(found)


def test_without_any_outcome_there_is_no_accuracy():
    found = measure(lambda problem: Transition(truncated=True))
    assert math.isnan(found.accuracy)
    assert all(math.isnan(end) for end in found.interval)
    assert found.unfinished == 4


def test_temperature_and_seed_reach_the_policy():
    policy = Policy()
    measure(won, policy=policy, temperature=0.0, seed=3, rollouts=2)
    assert {p.temperature for p in policy.asked} == {0.0}
    seeds = [p.seed for p in policy.asked]
    assert None not in seeds
    assert len(set(seeds)) == 8
    again = Policy()
    measure(won, policy=again, temperature=0.0, seed=3, rollouts=2)
    assert [p.seed for p in again.asked] == seeds
    free = Policy()
    measure(won, policy=free)
    assert {(p.temperature, p.seed) for p in free.asked} == {(1.0, None)}


def test_the_critic_is_not_asked_and_the_search_not_used():
    asked = []

    def collector_for(policy, problem):
        env = Env(problem, won)
        critic = Critic.from_fn(lambda text: asked.append(text) or 0.5)
        return Collector(Agent(policy, env), critic=critic, search=Selective(budget=50))

    problems = [Problem("0", id=0)]
    found = run_virtual(lambda: evaluate(Policy(), problems, collector_for, rollouts=3))
    assert len(found.returns) == 3
    assert asked == []


def test_concurrency_bounds_the_problems_at_a_time():
    for concurrency, most in ((2, 6), (64, 15)):
        policy = Policy()
        measure(won, count=5, policy=policy, rollouts=3, concurrency=concurrency)
        assert policy.most == most


def test_progress_is_told_after_each_problem():
    told = []
    measure(won, on_problem=told.append)
    assert told == [1, 2, 3, 4]


def test_an_error_outside_a_rollout_ends_it_and_leaves_nothing_running():
    problems = [Problem(str(i), id=i) for i in range(4)]

    def collector_for(policy, problem):
        if problem.id == 2:
            raise LookupError("no such environment")
        return Collector(Agent(policy, Env(problem, won)), critic=Critic.constant(0.5))

    with pytest.raises(LookupError, match="no such environment"):
        run_virtual(lambda: evaluate(Policy(), problems, collector_for))


def test_no_problems_is_no_accuracy():
    assert math.isnan(measure(won, count=0).accuracy)


# The interval ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "n", "low", "high"),
    [  # Wilson's score interval at 95%, from Brown, Cai & DasGupta 2001's formula by hand
        (0, 10, 0.0, 0.27753),
        (10, 10, 0.72247, 1.0),
        (5, 10, 0.23659, 0.76341),
        (1, 1, 0.20655, 1.0),
        (50, 100, 0.40383, 0.59617),
        (1, 100, 0.00177, 0.05449),
    ],
)
def test_outcomes_have_wilsons_interval(wins, n, low, high):
    found = Evaluation([1.0] * wins + [0.0] * (n - wins), 0, [], 0)
    assert found.interval == pytest.approx((low, high), abs=1e-5)


def test_other_returns_have_the_normal_interval():
    found = Evaluation([0.0, 0.5, 1.0, 0.5], 0, [], 0)
    half = 1.959964 * math.sqrt((0.25 + 0.25) / 3 / 4)
    assert found.interval == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)
    assert Evaluation([0.5], 0, [], 0).interval == (-math.inf, math.inf)


def test_rollouts_of_one_problem_are_not_independent():
    """Against resampling problems, as a reader would check it."""
    random.seed(1)
    problems = [([float(random.random() < p) for _ in range(12)], 0) for p in [0.0, 0.1, 0.9] * 16]
    returns = [value for found, _ in problems for value in found]
    found = Evaluation(returns, 0, [], 0, problems=problems)
    means = sorted(
        sum(sum(scores) for scores, _ in random.choices(problems, k=48)) / (48 * 12)
        for _ in range(4000)
    )
    assert found.interval == pytest.approx((means[100], means[3900]), abs=0.012)
    assert found.method == "Wilson, by problem"
    assert ", Wilson, by problem)" in str(found)
    naive = Evaluation(returns, 0, [], 0).interval
    assert found.interval[1] - found.interval[0] > 2.5 * (naive[1] - naive[0])


def test_problems_that_agree_with_themselves_count_once_each():
    """The interval is that of a rollout each, whatever their number."""
    same = [([float(k < 6)] * 10, 0) for k in range(20)]
    many = Evaluation([v for found, _ in same for v in found], 0, [], 0, problems=same)
    once = Evaluation([found[0] for found, _ in same], 0, [], 0)
    assert many.interval == pytest.approx(once.interval, abs=0.01)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_without_a_difference_the_interval_is_of_as_many_rollouts_as_problems(score):
    alike = [([score] * 5, 0)] * 8
    found = Evaluation([score] * 40, 0, [], 0, problems=alike)
    assert found.interval == Evaluation([score] * 8, 0, [], 0).interval


def test_other_returns_by_problem():
    problems = [([0.2, 0.4], 0), ([0.6, 0.8], 0), ([0.1, 0.3], 0)]
    found = Evaluation([v for some, _ in problems for v in some], 0, [], 0, problems=problems)
    middle, sums = 0.4, [0.6, 1.4, 0.4]
    half = 1.959964 * math.sqrt(3 / 2 * sum((s - 2 * middle) ** 2 for s in sums)) / 6
    assert found.interval == pytest.approx((middle - half, middle + half), abs=1e-6)
    assert found.method == "normal, by problem"
    one = Evaluation([0.5, 0.6], 0, [], 0, problems=[([0.5, 0.6], 0)])
    assert one.interval == (-math.inf, math.inf)


def test_unfinished_rollouts_belong_to_their_problem():
    problems = [([1.0, 1.0], 2), ([0.0], 0), ([], 3)]
    found = Evaluation([1.0, 1.0, 0.0], 5, [], 0, problems=problems)
    assert found.scores == [[1.0, 1.0, 0.0, 0.0], [0.0], [0.0, 0.0, 0.0]]
    assert found.accuracy == 0.25


@given(st.integers(0, 200), st.integers(1, 200), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_holds_the_mean_and_stays_in_0_1(wins, n, confidence):
    wins = min(wins, n)
    found = Evaluation([1.0] * wins + [0.0] * (n - wins), 0, [], 0, confidence)
    low, high = found.interval
    assert 0.0 <= low <= found.accuracy + 1e-12
    assert found.accuracy - 1e-12 <= high <= 1.0
    wider = Evaluation(found.returns, 0, [], 0, 0.999).interval
    assert wider[0] <= low + 1e-12
    assert high <= wider[1] + 1e-12


def test_as_text():
    text = str(Evaluation([1.0, 0.0], 0, [], 0))
    assert text == "50.0% (9.5% to 90.5%, n=2)"
