"""The planted bugs of ``scripts/mutate`` can still be planted, and name tests that are there."""

from pathlib import Path

import pytest

from tests.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.breaks)
def test_it_can_be_planted(mutation):
    text = (ROOT / mutation.file).read_text()
    assert text.count(mutation.old) == 1, "the code moved on: name its text of today"
    assert mutation.new != mutation.old
    for name in mutation.tests.split():
        assert (ROOT / "tests" / name).exists(), name
