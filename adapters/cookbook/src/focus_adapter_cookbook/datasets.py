"""A FOCUS task as a cookbook dataset, so that the cookbook's own loops train it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import chz
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer

from focus_adapter_cookbook.chat import TEMPLATE_RENDERER, Chat
from focus_adapter_cookbook.env_of_task import FocusEnv
from focus_core.env.execution import ThreadExecution
from focus_core.errors import TrainerError, UsageError
from focus_core.plugins.manager import load
from focus_core.policy import Generation, SamplingParams
from focus_core.records import Problem
from focus_core.schedule.order import Order, Sequential, Shuffled
from focus_core.task import Task, defaults_of
from focus_core.utils.concurrency import all_of

__all__ = ["FocusDatasetBuilder", "FocusGroupBuilder"]


class _Renders(Chat):
    """A policy for tasks to render and decode with; the cookbook's completer samples."""

    version = "cookbook"

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> Sequence[Generation]:
        """Refused.

        Raises:
            TrainerError: Always.
        """
        raise TrainerError("tinker-cookbook's completer samples here, not the task's policy")


@attrs.define(eq=False)
class FocusGroupBuilder(EnvGroupBuilder):  # type: ignore[misc]  # untyped without the SDK
    """Rollouts of one problem. Pickles if the task and the problem do.

    Args:
        task: Makes the agents.
        problem: What they solve.
        chat: Renders and decodes.
        group_size: How many.
    """

    task: Task
    problem: Problem
    chat: Chat
    group_size: int
    _open: list[Any] = attrs.field(factory=list, init=False)
    _envs: list[FocusEnv] = attrs.field(factory=list, init=False)

    async def make_envs(self) -> Sequence[Env]:
        """Fresh environments, each with an agent of its own."""
        execution = ThreadExecution()
        self._open.append(execution)
        policy = _Renders(self.chat.renderer)
        envs = []
        for _ in range(self.group_size):
            agent = self.task.collector_for(policy, self.problem).agent
            if hasattr(agent.env, "aclose"):
                self._open.append(agent.env)
            envs.append(FocusEnv(agent, self.problem, agent.execution or execution))
        self._envs += envs
        return envs

    async def cleanup(self) -> None:
        """Close what the environments used."""
        opened, self._open = self._open, []
        envs, self._envs = self._envs, []
        await all_of(env.aclose() for env in envs)
        await all_of(one.aclose() for one in opened)

    def logging_tags(self) -> list[str]:
        """The task's name."""
        return [self.task.name]

    def __getstate__(self) -> Mapping[str, Any]:
        """All but what is open in this process."""
        return {
            "task": self.task,
            "problem": self.problem,
            "chat": self.chat,
            "group_size": self.group_size,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """What was pickled, with nothing open."""
        for name, value in state.items():
            setattr(self, name, value)
        self._open, self._envs = [], []


@attrs.frozen
class FocusDataset(RLDataset):  # type: ignore[misc]  # untyped without the SDK
    """Batches of problems, in an order; an epoch's last, smaller batch is left out.

    Attributes:
        task: Of the problems.
        problems: All of them.
        chat: Renders and decodes.
        batch_size: Problems of a batch.
        group_size: Rollouts of a problem.
        order: Which problem comes when.
        epochs: Passes over the problems.
    """

    task: Task
    problems: Sequence[Problem]
    chat: Chat
    batch_size: int
    group_size: int
    order: Order
    epochs: int = 1

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Groups of the batch; the same ones each time."""
        first = index * self.batch_size
        return [
            FocusGroupBuilder(
                self.task,
                self.problems[self.order(position, len(self.problems))],
                self.chat,
                self.group_size,
            )
            for position in range(first, first + self.batch_size)
        ]

    def __len__(self) -> int:
        """Number of batches."""
        return self.epochs * len(self.problems) // self.batch_size


@chz.chz
class FocusDatasetBuilder(RLDatasetBuilder):  # type: ignore[misc]  # untyped without the SDK
    """Any FOCUS task for ``rl.train``.

    Prompts are rendered, and replies decoded, by the cookbook's renderer of that name; by default
    by the model's own chat template. The task gives environment, context and system prompt; its
    search, recipe and critic are not used, as the cookbook compares a group's independent
    rollouts. An action is at most a transition of the task's context.

    Args:
        task: A task, or the registered name of one.
        model_name_for_tokenizer: Whose tokenizer.
        batch_size: Problems of a batch.
        group_size: Rollouts of a problem.
        options: Of the task, if it is named.
        renderer_name: The cookbook's name of a renderer.
        source: Where the problems come from; by default the task's own source.
        shuffle: Draw an order for each epoch; otherwise the problems come as they are.
        seed: Of that order.
        epochs: Passes over the problems.
        eval_problems: Held-out problems that the cookbook's evaluator rolls out, once each;
            0: none.
        eval_source: Where they come from; by default the task's own held-out source.
    """

    task: Any
    model_name_for_tokenizer: str
    batch_size: int
    group_size: int
    options: dict[str, Any] = chz.field(default_factory=dict)
    renderer_name: str = TEMPLATE_RENDERER
    source: str | None = None
    shuffle: bool = True
    seed: int = 0
    epochs: int = 1
    eval_problems: int = 0
    eval_source: str | None = None

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Training dataset, and held-out one if it was asked for.

        Raises:
            UsageError: A name, option or source is wrong, or there are too few problems.
        """
        if isinstance(self.task, str):
            task = load().make("task", self.task, self.options)
        elif self.options:
            raise UsageError("options go with a task's name; give the task object its own")
        else:
            task = self.task
        tokenizer = get_tokenizer(self.model_name_for_tokenizer)
        chat = Chat(get_renderer(self.renderer_name, tokenizer))
        defaults = defaults_of(task)
        problems = task.problems(self.source if self.source is not None else defaults.source)
        order = Shuffled(self.seed) if self.shuffle else Sequential()
        train = FocusDataset(
            task, problems, chat, self.batch_size, self.group_size, order, self.epochs
        )
        if not len(train):
            raise UsageError(
                f"task {task.name!r}: {len(problems)} problems make no batch of {self.batch_size}; "
                "lower batch_size or raise epochs"
            )
        if not self.eval_problems:
            return train, None
        held_out = self.eval_source or defaults.eval_source
        if held_out is None:
            raise UsageError(f"task {task.name!r} holds no problems out; give eval_source")
        some = list(task.problems(held_out))[: self.eval_problems]
        return train, FocusDataset(task, some, chat, len(some), 1, Sequential())
