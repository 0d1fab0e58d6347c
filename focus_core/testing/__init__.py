"""Proof that an extension keeps its contract, and doubles that behave like the real thing.

``TaskContract``, ``EnvContract``, ``PolicyContract``, ``TrainerContract``, ``SearchContract``,
``RecipeContract``, ``CriticContract``, ``LaneContract`` and ``ObserverContract`` are inherited in
pytest; ``focus check KIND NAME`` runs the same contracts on
what is installed. pytest itself is not needed; where it is, ``focus_core.testing.pytest_plugin``
gives it fixtures. Names are imported on first use (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from focus_core.utils.lazy import lazy

if TYPE_CHECKING:
    from focus_core.testing.base import (
        Contract,
        Excused,
        NotApplicable,
        Outcome,
        check,
        contract,
        require,
    )
    from focus_core.testing.critic_contract import CriticContract
    from focus_core.testing.env_contract import EnvContract
    from focus_core.testing.fakes import CountdownEnv, RandomPolicy, RecordingTrainer, TextPolicy
    from focus_core.testing.installed import contracts_of
    from focus_core.testing.lane_contract import LaneContract, example_collections
    from focus_core.testing.observer_contract import ObserverContract, example_events
    from focus_core.testing.policy_contract import PolicyContract
    from focus_core.testing.recipe_contract import RecipeContract
    from focus_core.testing.search_contract import SearchContract
    from focus_core.testing.task_contract import TaskContract
    from focus_core.testing.trainer_contract import TrainerContract

__all__ = [
    "Contract",
    "CountdownEnv",
    "CriticContract",
    "EnvContract",
    "Excused",
    "LaneContract",
    "NotApplicable",
    "ObserverContract",
    "Outcome",
    "PolicyContract",
    "RandomPolicy",
    "RecipeContract",
    "RecordingTrainer",
    "SearchContract",
    "TaskContract",
    "TextPolicy",
    "TrainerContract",
    "check",
    "contract",
    "contracts_of",
    "example_collections",
    "example_events",
    "require",
]

_HOME = {
    "SearchContract": "search_contract",
    "RecipeContract": "recipe_contract",
    "CriticContract": "critic_contract",
    "Contract": "base",
    "CountdownEnv": "fakes",
    "EnvContract": "env_contract",
    "Excused": "base",
    "NotApplicable": "base",
    "LaneContract": "lane_contract",
    "ObserverContract": "observer_contract",
    "Outcome": "base",
    "PolicyContract": "policy_contract",
    "RandomPolicy": "fakes",
    "RecordingTrainer": "fakes",
    "TaskContract": "task_contract",
    "TextPolicy": "fakes",
    "TrainerContract": "trainer_contract",
    "check": "base",
    "contract": "base",
    "contracts_of": "installed",
    "example_collections": "lane_contract",
    "example_events": "observer_contract",
    "require": "base",
}
__getattr__, __dir__ = lazy(__name__, {name: f".{module}" for name, module in _HOME.items()})
