"""Which problem comes when: every problem once an epoch, and the same again after a resume."""

from collections import Counter
from collections.abc import Sequence as AbstractSequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_core import Problem, Progress, Sequential, Shuffled
from tests.core.schedule_kit import World

PROBLEMS = [Problem(str(i % 3), id=f"p{i}") for i in range(5)]


def names(world):
    return [event[-1] for event in world.order() if event[0] == "tree"]


@given(st.integers(0, 2**63), st.integers(1, 40), st.integers(0, 5))
def test_every_epoch_has_every_problem_once(seed, size, epoch):
    order = Shuffled(seed)
    drawn = [order(epoch * size + place, size) for place in range(size)]
    assert sorted(drawn) == list(range(size))


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(1, 9))
def test_an_order_is_a_function_of_the_position_alone(positions, size):
    """However it is asked: jumping between epochs, with other sizes in between, or anew."""
    one = Shuffled(3)
    for position in positions:
        assert one(position, size) == Shuffled(3)(position, size)
        one(position, size + 1)


def test_epochs_and_seeds_differ():
    def epoch(seed, number):
        return [Shuffled(seed)(number * 50 + place, 50) for place in range(50)]

    drawn = [epoch(seed, number) for seed in (0, 1) for number in (0, 1)]
    assert len({tuple(order) for order in drawn}) == 4


def test_the_order_is_the_same_on_every_machine():
    """Pinned: a run resumed elsewhere, or by a later version, goes on in the same order."""
    assert [Shuffled(0)(place, 6) for place in range(12)] == [3, 0, 5, 4, 2, 1, 5, 1, 4, 0, 3, 2]


def test_places_are_drawn_evenly():
    first = Counter(Shuffled(seed)(0, 4) for seed in range(4000))
    assert all(900 < first[index] < 1100 for index in range(4))


def test_a_seed_is_fixed():
    with pytest.raises(AttributeError):
        Shuffled(1).seed = 2
    assert Shuffled(1) == Shuffled(1) != Shuffled(2)


def test_sequential_cycles():
    assert [Sequential()(position, 3) for position in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("depth", [0, 1])
def test_the_schedule_follows_its_order_and_a_resumed_one_goes_on_in_it(depth):
    """Two trees a batch over five problems: the third batch crosses into the next epoch."""
    options = {"problems": PROBLEMS, "order": Shuffled(1), "async_depth": depth}
    whole = World(per_step=2)
    reports = whole.run(5, **options)
    expected = [PROBLEMS[Shuffled(1)(position, 5)].id for position in range(10)]
    assert names(whole) == expected
    assert sorted(expected[:5]) == sorted(expected[5:]) == [p.id for p in PROBLEMS]
    assert [report.metrics["epoch"] for report in reports] == [0.4, 0.8, 1.2, 1.6, 2.0]
    again = World(per_step=2, start_batch=2)
    options["order"] = Shuffled(1)
    reports = again.run(3, start=Progress(batch=2, learner_step=2), **options)
    assert names(again) == expected[4:]
    assert [report.metrics["epoch"] for report in reports] == [1.2, 1.6, 2.0]


def test_any_function_is_an_order():
    world = World()
    world.run(3, problems=PROBLEMS, order=lambda position, size: size - 1 - position)
    assert names(world) == ["p4", "p3", "p2"]


def test_lazy_problems_are_made_one_at_a_time():
    made = []

    class Lazy(AbstractSequence):
        def __len__(self):
            return 10**9

        def __getitem__(self, index):
            assert isinstance(index, int), "no slice, which of some data sets is no sequence"
            made.append(index)
            return Problem(str(index), id=f"p{index}")

        def __iter__(self):
            raise AssertionError("the problems were copied")

    World(per_step=2).run(2, problems=Lazy())
    assert made == [0, 1, 2, 3]
