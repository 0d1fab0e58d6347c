"""FOCUS: collect trees of continuations, credit each segment, train with any trainer.

Every public name is exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES: dict[str, tuple[str, ...]] = {
    "agent.agent": ("Agent",),
    "agent.context": ("Context", "Segments", "Turns"),
    "agent.dialects": ("Dialect", "Hermes", "QwenXml", "find_dialect"),
    "agent.env": ("Env", "Reply", "ReplyEnv", "Transition"),
    "agent.execution": ("Execution", "ThreadExecution"),
    "agent.folding": ("Folding",),
    "agent.processes": ("ProcessExecution",),
    "agent.rollout": ("Rollout", "Turn"),
    "agent.sandbox": ("Sandbox", "SandboxResult"),
    "agent.tool_env": ("ToolEnv",),
    "agent.tools": ("BadCall", "Parsed", "Tool", "ToolCall", "ToolState"),
    "agent.workspace": ("Workspace",),
    "batches": ("BatchSource", "CollectedBatch", "TreeRecords"),
    "collect": ("Collection", "Collector", "Failure", "collect_records"),
    "critic": ("Critic", "VLLMCritic"),
    "errors": (
        "CollectionError",
        "CriticError",
        "DataError",
        "DeadlineError",
        "ExecutionError",
        "FocusError",
        "FoldError",
        "GenerationError",
        "GradingError",
        "OffPolicyError",
        "PluginError",
        "RecordError",
        "StaleBatchError",
        "TrainerError",
        "UnknownNameError",
        "UsageError",
    ),
    "events": (
        "BatchCollected",
        "PolicyEvaluated",
        "PolicyPublished",
        "RecordsDelivered",
        "RunFinished",
        "RunStarted",
        "StepFinished",
        "UpdateStarted",
    ),
    "hookspecs": ("hookimpl",),
    "lanes": ("Lane",),
    "observers": ("Observers",),
    "policy": ("Generation", "Policy", "PreparedPrompt", "SamplingParams"),
    "recipes": ("Credit", "DirectBranchTd", "GroupCentered", "Recipe", "RefinedTd"),
    "records": ("ActorRecord", "Batch", "CriticRecord", "Problem", "Span", "StepReport"),
    "order": ("Order", "Sequential", "Shuffled"),
    "progress": ("Limits", "Progress", "check_batch"),
    "schedule": ("run_batches", "run_schedule"),
    "search": (
        "BestFirst",
        "BetaBernoulli",
        "Calibration",
        "Decisions",
        "Explained",
        "Fifo",
        "Frontier",
        "Gaussian",
        "Independent",
        "Search",
        "Selective",
        "TokenEntropy",
    ),
    "shifting": ("Shifted", "shifted"),
    "sinks": ("CriticSink", "JsonlDirectory"),
    "sources": ("DataWarning", "Row", "read_rows"),
    "specs": (
        "CommandSpec",
        "ConverterSpec",
        "LaneSpec",
        "ObserverSpec",
        "SandboxSpec",
        "TaskSpec",
        "TrainerSpec",
    ),
    "task": ("CollectorFor", "Task", "TaskDefaults"),
    "trainer": ("LaunchPlan", "OwnLoop", "RunStatus", "Trainer"),
    "tree": ("Prefix", "Tree", "Values"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'focus_core' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f"focus_core.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
