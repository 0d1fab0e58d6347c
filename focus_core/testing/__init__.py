"""Proof that an extension keeps its contract, and doubles that behave like the real thing.

``TaskContract``, ``EnvContract``, ``PolicyContract``, ``TrainerContract``, ``LaneContract`` and
``ObserverContract`` are inherited in pytest; ``focus check KIND NAME`` runs the same contracts on
what is installed. pytest itself is not needed.
"""

from focus_core.testing.contract import Contract, Outcome, check, contract, require
from focus_core.testing.env_contract import EnvContract
from focus_core.testing.fakes import CountdownEnv, RandomPolicy, RecordingTrainer, TextPolicy
from focus_core.testing.installed import contracts_of
from focus_core.testing.lane_contract import LaneContract, example_collections
from focus_core.testing.observer_contract import ObserverContract, example_events
from focus_core.testing.policy_contract import PolicyContract
from focus_core.testing.task_contract import TaskContract
from focus_core.testing.trainer_contract import TrainerContract

__all__ = [
    "Contract",
    "CountdownEnv",
    "EnvContract",
    "LaneContract",
    "ObserverContract",
    "Outcome",
    "PolicyContract",
    "RandomPolicy",
    "RecordingTrainer",
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
