"""What a tree exports, by training role, and where it goes."""

from focus_core.lanes.actor import ACTOR, export_actor, export_merged, split_merged
from focus_core.lanes.critic import CRITIC, export_critic
from focus_core.lanes.lane import CreditedTree, Lane
from focus_core.lanes.sinks import CriticSink, JsonlDirectory

__all__ = [
    "ACTOR",
    "CRITIC",
    "CreditedTree",
    "CriticSink",
    "JsonlDirectory",
    "Lane",
    "export_actor",
    "export_critic",
    "export_merged",
    "split_merged",
]
