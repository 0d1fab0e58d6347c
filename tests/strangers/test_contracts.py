"""Strangers keep every contract; a copy with one mistake breaks exactly the contract against it."""

import pytest

from focus_core.testing import (
    LaneContract,
    ObserverContract,
    PolicyContract,
    TaskContract,
    TrainerContract,
)
from tests.strangers.mistakes import MISTAKES
from tests.strangers.strangers_kit import COUNT, KINDS, copied, outcomes

CONTRACTS = {
    "task": TaskContract,
    "trainer": TrainerContract,
    "policy": PolicyContract,
    "lane": LaneContract,
    "observer": ObserverContract,
}
INAPPLICABLE = {"held_out_problems_are_held_out", "the_context_length_is_kept"}
"""Of the strangers as they are: their task holds nothing out, their policy has no limit."""


@pytest.mark.parametrize("kind", KINDS)
def test_strangers_keep_every_contract(kind, tmp_path, monkeypatch):
    found = outcomes(copied(tmp_path, kind), kind, monkeypatch)
    assert [outcome.contract for outcome in found] == CONTRACTS[kind].names()
    assert {o.contract for o in found if o.status == "not applicable"} <= INAPPLICABLE
    assert not [outcome for outcome in found if outcome.status in ("failed", "excused")]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_breaks_its_contract_alone(mistake, tmp_path, monkeypatch):
    package = copied(tmp_path, mistake.kind, mistake.file, mistake.edits)
    settings = {"longest_hold": 0.02} if "hold_the" in mistake.contract else {}
    found = outcomes(package, mistake.kind, monkeypatch, **settings)
    failed = {o.contract: o.detail for o in found if o.status == "failed"}
    assert mistake.contract in failed, "the mistake was not seen"
    assert mistake.says in failed[mistake.contract]
    assert set(failed) == {mistake.contract, *mistake.also}, failed
    assert all("\n" not in detail for detail in failed.values())


@pytest.mark.parametrize(
    ("option", "remedy"),
    [("seed: int | None = None", "set trainer.seed,"), ("", "let all fresh trainers begin with")],
)
def test_learners_that_begin_with_other_weights_are_not_compared(
    option, remedy, tmp_path, monkeypatch
):
    """Updates of another size each time stand for other initial weights."""
    edits = {
        'frozenset({"merges-spans", "resumes"})': 'frozenset({"merges-spans"})',
        "    checkpoint_dir: str": f"    {option}\n    checkpoint_dir: str",
        "@attrs.frozen\n": COUNT + "@attrs.frozen\n",
        "        self._updates += 1\n": (
            "        self._table = {k: v * (next(_COUNT) % 7) for k, v in self._table.items()}\n"
            "        self._updates += 1\n"
        ),
    }
    found = outcomes(copied(tmp_path, "trainer", "trainer", edits), "trainer", monkeypatch)
    (detail,) = [o.detail for o in found if o.contract == "merged_records_train_as_single_ones"]
    assert "two fresh trainers made different policies of the same records" in detail
    assert remedy in detail


def test_there_is_a_mistake_for_every_contract():
    known = {(kind, name) for kind, contracts in CONTRACTS.items() for name in contracts.names()}
    assert known == {(mistake.kind, mistake.contract) for mistake in MISTAKES}
