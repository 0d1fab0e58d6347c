"""Verdicts: the shared cases, MATH's own golds, and many pairs of the same kinds."""

import itertools
from pathlib import Path

import pytest
from focus_task_math import grade
from focus_task_math.grading.answers import find_answer, find_gold
from focus_task_math.grading.judge import judge

HERE = Path(__file__).parent


def lines(name):
    text = (HERE / name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("# ")]


def verdict(completion, gold):
    """What ``grade`` says, in this process: a thousand pairs need no pool."""
    readable, _ = judge(find_gold(gold), None)
    found = find_answer(completion)
    if readable is None:
        return None
    return found.text is not None and judge(find_gold(gold), found.text)[0]


def test_the_shared_cases(grading_cases):
    wrong = []
    for case in grading_cases:
        given, expected = case["input"], case["expected"]
        if "correct" in expected:
            got = grade(given["completion"], given["gold"])
            if got.correct is not expected["correct"]:
                wrong.append((case["id"], got))
        for gold in given.get("golds", ()):
            if grade(rf"\boxed{{{gold}}}", gold).correct is not True:
                wrong.append((case["id"], gold))
    assert not wrong


PAIRS = [line.rsplit(" | ", 2) for line in lines("pairs.txt")]


@pytest.mark.parametrize(("gold", "completion", "expected"), PAIRS)
def test_pair(gold, completion, expected):
    got = verdict(completion, gold.strip())
    assert {True: "right", False: "wrong", None: "ungraded"}[got] == expected


@pytest.mark.parametrize("gold", lines("golds.txt"))
def test_a_gold_is_read_and_equals_itself(gold):
    assert judge(gold, None)[0] is True
    # Another spelling, so that the texts differ.
    assert judge(gold, rf"{{ {gold} }}")[0] is True


def test_every_solution_and_answer_of_math_agree(math500):
    for record in math500:
        for gold in (record["answer"], record["solution"]):
            assert grade(record["solution"], gold).correct is True, record["id"]


def test_no_answer_of_math_is_taken_for_another(math500):
    answers = sorted({record["answer"] for record in math500})
    pairs = itertools.combinations(answers, 2)
    # Either way around in turn.
    pairs = [pair[:: 1 if index % 2 else -1] for index, pair in enumerate(pairs)]
    taken = [pair for pair in pairs if judge(*pair)[0] is not False]
    assert not taken


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{1} and \boxed{2}", r"1 \text{ and } 2"),
        (r"$\boxed{1}$, $\boxed{2}$ or \[\boxed{3}\]", r"1 ; 2 \text{ or } 3"),
        (r"\boxed{840}, \boxed{840}", "840"),
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{1} so \boxed{2}", "2"),
        (r"\fbox {\{1\}}", r"\{1\}"),
        (r"\boxed{\text{a } \boxed{b}}", r"\text{a } \boxed{b}"),
    ],
)
def test_which_boxes_are_the_answer(completion, answer):
    assert find_answer(completion).text == answer


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("12", "no box"),
        (r"<think>\boxed{5}", "the thinking never ends"),
        (r"\boxed{4} then \boxed{5", "the last box is not closed"),
        (r"\boxed{4} then \boxed", "the last box is not closed"),
        (r"\boxed{\boxed{5}", "the last box is not closed"),
        (r"\boxed{4} then \boxed{ }", "the last box is empty"),
    ],
)
def test_why_there_is_no_answer(completion, reason):
    got = grade(completion, "5")
    assert (got.correct, got.reason, got.answer) == (False, reason, None)


@pytest.mark.parametrize(
    "gold", ["", " ", r"\boxed{}", r"\frac{1}{", "\x08oxed{2}", "1 2", "4" * 9000]
)
def test_a_gold_that_cannot_be_read_grades_nothing(gold):
    for completion in (r"\boxed{anything}", "no box"):
        got = grade(completion, gold)
        assert got.correct is None
        assert "reference" in got.reason


@pytest.mark.parametrize(
    ("gold", "given"),
    [
        (r"\sqrt{2}", r"\sqrt{2} + 10^{-30}"),
        (r"\sqrt{2}", r"\sqrt{2 + 10^{-1000}}"),
        (r"\pi", "3." + "14159265358979323846264338327950288419716939937510582097494459"),
        ("0", r"e^{-1000}"),
        ("1", "0." + "9" * 500),
        (r"9^{9^{9^9}}", r"9^{9^{9^{10}}}"),
        ("10^{1000}", "10^{1000} + 1"),
    ],
)
def test_nothing_is_rounded(gold, given):
    assert judge(gold, given)[0] is False
    assert judge(given, gold)[0] is False


@pytest.mark.parametrize(
    ("gold", "given"),
    [
        (r"\sqrt{3 + 2\sqrt{2}}", r"1 + \sqrt{2}"),
        (r"\cos 20^\circ \cos 40^\circ \cos 80^\circ", r"\frac{1}{8}"),
        (r"(x + 1)^{500}(x - 1)^{500}", r"(x^2 - 1)^{500}"),
        (r"9^{9^{9^9}}", r"9^{\left(9^{9^9}\right)}"),
        (r"n \cdot (n - 1)!", "n!"),
        (r"\sin^2 x", r"1 - \cos^2 x"),
        (r"\tan^{-1} 2 + \tan^{-1} \frac{1}{2}", r"\frac{\pi}{2}"),
    ],
)
def test_equal_values_written_differently(gold, given):
    assert judge(gold, given)[0] is True
    assert judge(given, gold)[0] is True
