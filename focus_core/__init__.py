"""FOCUS: collect trees of continuations, credit each segment, train with any trainer.

Every public name is exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

from focus_core.utils.lazy import lazy

_MODULES: dict[str, tuple[str, ...]] = {
    "agent.agent": ("Agent",),
    "agent.context": ("Context", "Segments", "Turns"),
    "env.dialects": ("Dialect", "Hermes", "QwenXml", "find_dialect"),
    "env.env": ("Env", "Reply", "ReplyEnv", "Transition"),
    "env.execution": ("Execution", "ThreadExecution"),
    "agent.folding": ("Folding",),
    "env.processes": ("ProcessExecution",),
    "tree.rollout": ("Rollout", "Turn"),
    "env.sandbox": ("Sandbox", "SandboxResult"),
    "env.tool_env": ("ToolEnv",),
    "env.tools": ("BadCall", "Parsed", "Tool", "ToolCall", "ToolState"),
    "env.workspace": ("Workspace",),
    "schedule.batches": ("BatchSource", "CollectedBatch", "TreeRecords"),
    "collect": ("Collection", "Collector"),
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
    "plugins.events": (
        "BatchCollected",
        "PolicyEvaluated",
        "PolicyPublished",
        "RecordsDelivered",
        "RunFinished",
        "RunStarted",
        "StepFinished",
        "UpdateStarted",
    ),
    "failure": ("Failure",),
    "hookspecs": ("hookimpl",),
    "lanes": ("Lane",),
    "plugins.observers": ("Observers",),
    "policy": ("Generation", "Policy", "PreparedPrompt", "SamplingParams"),
    "recipes": ("Credit", "DirectBranchTd", "GroupCentered", "Recipe", "RefinedTd"),
    "records": ("ActorRecord", "Batch", "CriticRecord", "Problem", "Span", "StepReport"),
    "schedule.aside": ("Aside", "SetAside"),
    "schedule.order": ("Order", "Sequential", "Shuffled"),
    "schedule.progress": ("Limits", "Progress", "check_batch"),
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
    "records.shifted": ("Shifted", "shifted"),
    "lanes.sinks": ("CriticSink", "JsonlDirectory"),
    "sources": ("DataWarning", "Row", "read_rows"),
    "plugins.specs": (
        "CommandSpec",
        "ConverterSpec",
        "CriticSpec",
        "LaneSpec",
        "ObserverSpec",
        "RecipeSpec",
        "SandboxSpec",
        "SearchSpec",
        "TaskSpec",
        "TrainerSpec",
    ),
    "task": ("CollectorFor", "Task", "TaskDefaults"),
    "own_loop": ("LaunchPlan", "OwnLoop", "collect_records"),
    "trainer": ("RunStatus", "Trainer"),
    "tree": ("OPEN", "TERMINAL", "TRUNCATED", "Prefix", "Tree", "Values"),
    "view": ("save_tree",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)
__version__ = "0.1.0"
__getattr__, __dir__ = lazy(__name__, {name: f".{module}" for name, module in _HOME.items()})
