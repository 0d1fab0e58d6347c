"""The trainer ``slime``: writes what Slime's own loop needs, and starts it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from focus_adapter_slime.arguments import Flag, Launch, arguments, shell_lines
from focus_adapter_slime.configuration import READY
from focus_adapter_slime.launching import PROGRAMS, find_checkout, model_flags, run
from focus_core.errors import UsageError
from focus_core.own_loop import LaunchPlan
from focus_core.utils.files import write_atomically

__all__ = ["SlimeTrainer"]


@attrs.frozen(kw_only=True)
class SlimeTrainer:
    """Starts Slime's ``train.py``, or ``train_async.py`` with ``--async-depth 1``.

    The run's directory gets the prompt data, the custom configuration and ``launch.sh``, which is
    the whole command; Slime saves its checkpoints there.

    Attributes:
        model: Hugging Face folder or name of the model, for ``--hf-checkpoint``.
        learning_rate: For ``--lr``; Slime's own by default.
        model_args: Megatron's flags of the model: one of Slime's ``scripts/models``, such as
            ``qwen3-4B``, or the path of a script that sets ``MODEL_ARGS``.
        args: Further flags of Slime and Megatron, as a shell would read them: checkpoints, GPUs,
            parallelism, logging.
        settings: Further keys of the custom configuration as JSON, without their ``focus_``.
        hooks: Module of your own ``generate`` and ``evaluate`` (``make_generate``); by default the
            ready-made ones, which collect the task. The problems are the task's either way.
        root: A checkout of Slime; by default the folder of the installed package.
        python: The interpreter to run it with; by default this one.
        dry_run: Show the command, and start nothing.
    """

    model: str | None = None
    learning_rate: float | None = attrs.field(default=None)
    model_args: str | None = None
    args: str = ""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    hooks: str = READY
    root: str | None = None
    python: str | None = None
    dry_run: bool = False

    @learning_rate.validator
    def _check_learning_rate(self, _: Any, value: float | None) -> None:
        if value is not None and not 0.0 < value < float("inf"):
            raise ValueError(f"learning_rate is {value}; it must be above 0 and finite")

    def launch(self, plan: LaunchPlan) -> int:
        """Write the files, show the command and run it; its exit code.

        Raises:
            UsageError: An option is wrong, or Slime is not installed; the files are there then.
        """
        if self.model is None:
            raise UsageError("Slime needs a model in Hugging Face's form; give --model DIR")
        if plan.config["async_depth"] and "--colocate" in _names(self._own()):
            raise UsageError(
                "Slime's asynchronous loop needs GPUs of its own for sampling; leave --colocate "
                "out of trainer.args, or give --async-depth 0"
            )
        checkout, missing = self._checkout()
        launch = self.prepared(plan, plan.directory / "slime.yaml", checkout, save=True)
        launch.write()
        program = PROGRAMS[plan.config["async_depth"]]
        path = program if checkout is None else str(checkout / program)
        python = self.python or sys.executable
        shown = f"{shlex.join([python, path])} \\\n{shell_lines(launch.words())}\n"
        if checkout is not None:
            shown = (
                f'PYTHONPATH={shlex.quote(str(checkout))}"${{PYTHONPATH:+:$PYTHONPATH}}" {shown}'
            )
        write_atomically(plan.directory / "launch.sh", f"#!/usr/bin/env bash\n{shown}")
        print(shown, flush=True)
        if self.dry_run:
            return 0
        if checkout is None:
            raise UsageError(
                f"{missing}. What it needs is written: {plan.directory / 'launch.sh'} is the "
                "command above"
            )
        return run([python, path, *launch.words()], _environment(checkout))

    def prepared(
        self, plan: LaunchPlan, output: Path, checkout: Path | None = None, *, save: bool = False
    ) -> Launch:
        """The flags, the user's own last, and the files.

        Args:
            plan: What was asked for.
            output: The custom configuration; the other files go beside it.
            checkout: Where Slime's own ``scripts/models`` are.
            save: Have Slime save checkpoints into the run's directory.

        Raises:
            UsageError: As in ``arguments``.
        """
        own = self._own()
        if self.model_args is not None:
            if checkout is None and self.root is not None:
                checkout = find_checkout(self.root)
            own = [*model_flags(self.model_args, checkout), *own]
        if save:
            own = [*_saving(plan, own), *own]
        return arguments(
            plan,
            output,
            model=self.model,
            learning_rate=self.learning_rate,
            settings=self.settings,
            hooks=self.hooks,
            own=own,
        )

    def _own(self) -> list[str]:
        try:
            words = shlex.split(self.args)
        except ValueError as error:
            raise UsageError(f"trainer.args={self.args!r}: {error}") from error
        shell_lines(words)  # refuses what is no flag, before others of ours stand in front
        return words

    def _checkout(self) -> tuple[Path | None, UsageError | None]:
        """Where Slime is, or why it is nowhere; a folder that was named must be right."""
        try:
            return find_checkout(self.root), None
        except UsageError as error:
            if self.root is not None:
                raise
            return None, error


def _saving(plan: LaunchPlan, own: list[str]) -> list[str]:
    """Slime's checkpoints go into the run's directory, unless the user says where."""
    names = _names(own)
    if "--save" in names or plan.config["save_every"] is None:
        return []
    flags = [Flag("--save", (str((plan.directory / "checkpoints").absolute()),))]
    if "--save-interval" not in names:
        flags.append(Flag("--save-interval", (str(plan.config["save_every"]),)))
    return [word for flag in flags for word in flag.words]


def _names(words: list[str]) -> set[str]:
    """The flags among a command line's words, ``--name=value`` too."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def _environment(checkout: Path) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(checkout), before]))}
