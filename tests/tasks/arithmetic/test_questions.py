"""Questions: pinned, in their split, different, and right."""

import subprocess
import sys

import pytest
from focus_task_arithmetic import LEVELS, Level, Question, questions, split_of
from hypothesis import given
from hypothesis import strategies as st

ALL_SPLITS = ("train", "tune", "heldout")
LEVEL = st.sampled_from(sorted(LEVELS))


def test_questions_are_the_same_everywhere():
    assert [str(q) for q in questions("train", (4, 5, 6), 4)] == [
        "6-9+4-7+7",
        "3-5-5+6-8-5",
        "9+9-7-4-2-4",
        "8+9+3+3+5",
    ]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_questions_do_not_depend_on_the_process(seed):
    code = (
        "from focus_task_arithmetic import questions;"
        "print(*questions('heldout', (9, 12), 3, seed=5))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": seed},
    )
    assert done.stdout.split() == [str(q) for q in questions("heldout", (9, 12), 3, seed=5)]


@given(LEVEL, st.data())
def test_every_number_names_one_question_of_its_level(level, data):
    kind = LEVELS[level]
    index = data.draw(st.integers(0, len(kind) - 1))
    question = kind[index]
    assert len(question.terms) == kind.operands
    assert all(1 <= abs(term) <= kind.largest for term in question.terms)
    assert question.terms[0] > 0
    assert eval(str(question)) == question.answer
    other = data.draw(st.integers(0, len(kind) - 1))
    assert (kind[other] == question) == (other == index)


def test_a_level_holds_each_question_once():
    level = Level(3, 4)
    assert len({str(level[i]) for i in range(len(level))}) == len(level) == 4**3 * 2**2
    with pytest.raises(IndexError):
        level[len(level)]


@given(st.sampled_from(ALL_SPLITS), st.lists(LEVEL, min_size=1, max_size=3), st.integers(0, 2**32))
def test_questions_are_different_and_of_their_split(split, levels, seed):
    found = questions(split, levels, 15, seed)
    assert len({str(q) for q in found}) == len(found) == 15
    assert {split_of(str(q)) for q in found} == {split}
    assert {len(q.terms) for q in found} <= {LEVELS[level].operands for level in levels}


def test_no_seed_or_level_brings_a_held_out_question_into_training():
    pools = {
        split: {str(q) for seed in range(5) for q in questions(split, (2, 3), 300, seed)}
        for split in ALL_SPLITS
    }
    assert not pools["train"] & pools["heldout"]
    assert not pools["train"] & pools["tune"]
    assert not pools["tune"] & pools["heldout"]


def test_a_small_level_gives_all_it_has_and_says_when_it_cannot():
    everything = [LEVELS[1][i] for i in range(len(LEVELS[1]))]
    for split in ALL_SPLITS:
        own = {str(q) for q in everything if q.split == split}
        assert len(own) > 20
        assert {str(q) for q in questions(split, (1,), len(own))} == own
        with pytest.raises(ValueError, match=f"have {len(own)} {split} questions, not 500"):
            questions(split, (1,), 500)


def test_levels_take_turns():
    found = questions("train", (1, 4), 100)
    short = sum(len(q.terms) == 2 for q in found)
    assert 30 < short < 70


@pytest.mark.parametrize(("split", "levels"), [("test", (1,)), ("train", ()), ("train", (1, 99))])
def test_what_does_not_exist_is_refused(split, levels):
    with pytest.raises(ValueError, match=r"levels are|no split"):
        questions(split, levels, 1)


def test_a_question_is_written_without_a_leading_plus():
    assert str(Question((7, 5, -3))) == "7+5-3"
    assert Question((7, 5, -3)).answer == 9
