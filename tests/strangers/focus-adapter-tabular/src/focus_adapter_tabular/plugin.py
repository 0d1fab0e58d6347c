"""What this distribution registers."""

from focus_core import TrainerSpec, hookimpl


@hookimpl
def focus_trainers() -> list[TrainerSpec]:
    """The trainer ``tabular``."""
    return [
        TrainerSpec(
            "tabular",
            "a softmax over a table of prefixes, trained exactly",
            "focus_adapter_tabular.trainer:TabularTrainer",
            requires=("numpy",),
            capabilities={"merges-spans", "resumes"},
        )
    ]
