"""What Slime is started with: its flags, and the files that they name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import yaml

from focus_adapter_slime.configuration import READY, configuration
from focus_adapter_slime.objective import check_objective
from focus_adapter_slime.prompts import INPUT, LABEL, METADATA, prompt_data
from focus_adapter_slime.settings import PREFIX
from focus_core.errors import UsageError
from focus_core.own_loop import LaunchPlan
from focus_core.run.config import RunConfig
from focus_core.utils.files import write_atomically

__all__ = ["Flag", "Launch", "arguments", "shell_lines"]

_TRAINING_HOOKS = (
    ("--custom-reward-post-process-path", "focus_adapter_slime.preserve_advantages"),
    ("--custom-advantage-function-path", "focus_adapter_slime.advantages"),
    ("--custom-pg-loss-reducer-function-path", "focus_adapter_slime.sum_policy_tokens"),
)
_NOT_FOLLOWED = {
    "max_tokens": "--max-tokens: Slime's loop counts rollouts; give --steps",
    "lanes": "--lane: Slime's loop keeps actor and critic records only",
    "deadline": (
        "--deadline: Slime's hooks bound a whole tree; --set trainer.settings='{\"deadline\": S}'"
    ),
    "tries": "--tries: Slime's hooks drop a problem's group that failed, and go on",
    "failure_rate": (
        "--failure-rate: Slime's hooks count failures in a row; "
        "--set trainer.settings='{\"max_failures\": N}'"
    ),
}


@attrs.frozen
class Flag:
    """One flag of Slime's command line.

    Attributes:
        name: With its dashes.
        values: What follows it.
        open: The user may give another value among the arguments of his own.
    """

    name: str
    values: tuple[str, ...] = ()
    open: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The flag as separate arguments."""
        return (self.name, *self.values)


@attrs.frozen
class Launch:
    """What Slime is to be started with.

    Attributes:
        flags: In the order in which they are shown.
        files: Text by path; the flags name them.
    """

    flags: Sequence[Flag]
    files: Mapping[Path, str]

    def words(self) -> list[str]:
        """The command line's arguments."""
        return [word for flag in self.flags for word in flag.words]

    def write(self, *, force: bool = False) -> None:
        """Write the files, each whole or not at all, the configuration last.

        Raises:
            UsageError: A file is there already, or cannot be written.
        """
        there = [str(path) for path in self.files if path.exists()]
        if there and not force:
            raise UsageError(
                f"{', '.join(there)}: there already; name another --output, or --force"
            )
        for path, text in self.files.items():
            try:
                write_atomically(path, text)
            except OSError as error:
                raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def arguments(
    plan: LaunchPlan,
    output: Path,
    *,
    model: str | None = None,
    learning_rate: float | None = None,
    settings: Mapping[str, Any] | None = None,
    hooks: str = READY,
    own: Sequence[str] = (),
) -> Launch:
    """The flags that make Slime train a task as ``focus train`` would, and their files.

    Args:
        plan: What was asked for.
        output: The custom configuration to write; the other files go beside it.
        model: For ``--hf-checkpoint``.
        learning_rate: For ``--lr``.
        settings: Further keys of the custom configuration, without ``focus_``.
        hooks: Module of ``generate`` and ``evaluate``.
        own: Further arguments of the user's: they come last, and may set what is open.

    Raises:
        UsageError: An option that Slime's loop cannot follow, arguments that would change what is
            trained or contradict an option, or problems that no file holds.
    """
    for name, says in _NOT_FOLLOWED.items():
        if plan.config[name] != attrs.fields_dict(RunConfig)[name].default:
            raise UsageError(says)
    output = output.absolute()
    prompts, held_out, evaluation = (
        output.with_name(f"{output.stem}{end}") for end in (".jsonl", "-eval.jsonl", "-eval.yaml")
    )
    chosen = configuration(plan, output.parent, settings or {}, hooks)
    given = _given(own)
    check_objective(SimpleNamespace(**given), chosen.get(f"{PREFIX}allow", ()))
    files = {prompts: prompt_data(plan.problems)}
    if plan.eval_problems:
        files |= {
            held_out: prompt_data(plan.eval_problems),
            evaluation: _evaluation(plan.config["task"], held_out, f"{hooks}.evaluate"),
        }
    files[output] = _yaml(chosen)
    flags = [
        Flag("--custom-generate-function-path", (f"{hooks}.generate",)),
        *(Flag(name, (path,)) for name, path in _TRAINING_HOOKS),
        Flag("--custom-config-path", (str(output),)),
        *_data(plan, prompts),
        *_loop(plan, evaluation, model, learning_rate, chosen.get(f"{PREFIX}allow", ())),
    ]
    return Launch([*_without(flags, given), *_flags(own)], files)


def shell_lines(words: Sequence[str]) -> str:
    """Arguments as a shell reads them, one flag with its values on each line."""
    lines = [" ".join(shlex.quote(word) for word in flag.words) for flag in _flags(words)]
    return " \\\n".join(f"  {line}" for line in lines)


def _data(plan: LaunchPlan, prompts: Path) -> Iterator[Flag]:
    yield Flag("--prompt-data", (str(prompts),))
    yield Flag("--input-key", (INPUT,))
    yield Flag("--label-key", (LABEL,))
    yield Flag("--metadata-key", (METADATA,))
    if plan.config["order"] == "shuffled":
        yield Flag("--rollout-shuffle")
    yield Flag("--rollout-seed", (str(plan.config["seed"]),))


def _loop(
    plan: LaunchPlan,
    evaluation: Path,
    model: str | None,
    learning_rate: float | None,
    allow: Sequence[str],
) -> Iterator[Flag]:
    trees = str(plan.problems_per_step)
    yield Flag("--num-rollout", (str(plan.config["steps"]),))
    yield Flag("--rollout-batch-size", (trees,))
    yield Flag("--n-samples-per-prompt", ("1",))
    yield Flag("--global-batch-size", (trees,))
    yield Flag("--advantage-estimator", ("grpo",))
    yield Flag("--disable-rewards-normalization")
    if "use_rollout_logprobs" not in allow:
        yield Flag("--use-rollout-logprobs")
    yield Flag("--use-dynamic-batch-size")
    yield Flag("--max-tokens-per-gpu", ("8192",), open=True)
    if plan.eval_problems:
        yield Flag("--eval-interval", (str(plan.config["eval_every"]),))
        yield Flag("--eval-config", (str(evaluation),))
    if model is not None:
        yield Flag("--hf-checkpoint", (model,))
    if learning_rate is not None:
        yield Flag("--lr", (repr(learning_rate),))


def _evaluation(task: str, held_out: Path, hook: str) -> str:
    if "${" in str(held_out):
        raise UsageError(f"{held_out}: Slime would take the ${{...}} for a variable; name another")
    dataset = {
        "name": task,
        "path": str(held_out),
        "input_key": INPUT,
        "label_key": LABEL,
        "metadata_key": METADATA,
        "n_samples_per_eval_prompt": 1,
        "custom_generate_function_path": hook,
    }
    return _yaml({"eval": {"datasets": [dataset]}})


def _yaml(value: Mapping[str, Any]) -> str:
    try:
        text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise UsageError(f"the configuration cannot be written as YAML: {error}") from error
    return text


def _flags(words: Iterable[str]) -> list[Flag]:
    """Words of a command line, each flag with those that follow it."""
    flags: list[Flag] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            flags.append(Flag(name, (value,) if equals else ()))
        elif flags:
            flags[-1] = attrs.evolve(flags[-1], values=(*flags[-1].values, word))
        else:
            raise UsageError(f"trainer.args begins with {word!r}; it must be Slime's --flags")
    return flags


def _given(own: Sequence[str]) -> dict[str, Any]:
    """The user's own arguments as attributes of Slime's ``args``, as far as their text says."""
    found: dict[str, Any] = {}
    for flag in _flags(own):
        values = [_value(text) for text in flag.values]
        name = flag.name.removeprefix("--").replace("-", "_")
        found[name] = True if not values else values[0] if len(values) == 1 else values
        if name.startswith("disable_"):
            found[name.removeprefix("disable_")] = False
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _without(flags: Sequence[Flag], given: Mapping[str, Any]) -> list[Flag]:
    """Our flags, less the open ones that the user gives."""
    left = []
    for flag in flags:
        if flag.name.removeprefix("--").replace("-", "_") not in given:
            left.append(flag)
        elif not flag.open:
            raise UsageError(
                f"trainer.args gives {flag.name}, which is {' '.join(flag.values) or 'set'} here; "
                "leave it out, and use the option of focus train that it follows"
            )
    return left
