"""Grading: the last closed box, exactly."""

import pytest
from focus_task_arithmetic import boxed_integer, grade
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"7+5=12\n\boxed{9}", 9),
        (r"\boxed{-12}<|end|>", -12),
        (r"\boxed{ +4 }", 4),
        (r"\boxed{1} then \boxed{2}", 2),
        (r"\boxed{1} then \boxed{2", 1),  # the last one that closes
        (r"\boxed{1} then \boxed{two}", None),  # never an earlier one instead
        (r"\boxed{1} then \boxed{\text{2}}", None),
        (r"\boxed{\boxed{3}}", 3),
        (r"\boxed{9.0}", None),
        (r"\boxed{7+2=9}", None),
        (r"\boxed{}", None),
        (r"\boxed{", None),
        (r"boxed{9}", None),
        ("9", None),
        ("", None),
        ("\\boxed{\u0669}", None),  # a digit, but not one of ours
        (r"\boxed{" + "1" * 10_000 + "}", None),
        (r"\boxed{" * 100_000, None),
    ],
)
def test_boxed_integer(text, expected):
    assert boxed_integer(text) == expected
    assert not grade(text, 77)


@given(st.text(), st.integers(-(10**9), 10**9), st.text(alphabet="abc{ \n"))
def test_a_box_after_anything_counts(before, answer, after):
    assert grade(f"{before}\\boxed{{{answer}}}{after}", answer)
    assert not grade(f"{before}\\boxed{{{answer}}}{after}", answer + 1)


@given(st.text(alphabet="\\boxed{}0123456789"))
def test_any_text_can_be_graded(text):
    value = boxed_integer(text)
    assert value is None or str(abs(value)) in text
