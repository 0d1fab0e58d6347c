"""The cookbook's environments as a task: any dataset, group or environment of its."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import attrs
from tinker_cookbook.renderers.base import Renderer
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer

import focus_adapter_cookbook.chat  # registers the chat-template renderer  # noqa: F401
from focus_adapter_cookbook.envs import CookbookEnv
from focus_core import (
    Agent,
    Collector,
    Critic,
    Gaussian,
    GroupCentered,
    Independent,
    Policy,
    Problem,
    Segments,
    Selective,
    TaskDefaults,
    Turns,
    UsageError,
)

__all__ = ["CookbookTask", "from_cookbook"]

T = TypeVar("T")


class _Single(EnvGroupBuilder):  # type: ignore[misc]  # untyped where the SDK is not installed
    """A group of one environment, made by a function."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    async def make_envs(self) -> Sequence[Any]:
        """A fresh one."""
        return [self.make()]


def _tokenizer(given: object) -> object:
    return get_tokenizer(given) if isinstance(given, str) else given


@attrs.define(eq=False)
class CookbookTask:
    """Problems are the groups of a cookbook dataset.

    Args:
        builder: An ``RLDatasetBuilder``, or the name of its class as ``"module:Class"``; also a
            dataset, an ``EnvGroupBuilder`` or a sequence of them, or a function that makes a fresh
            ``Env``.
        options: Of the class that ``builder`` names.
        max_tokens: Length limit of an action, in tokens.
        segment_tokens: Tokens of a transition, each of whose ends is a state to branch from;
            ``None``: an action is one transition, and only the ends of actions are branched.
        max_transitions: A rollout of so many is cut, without an outcome; by default as many as 64
            whole actions take.
        critic: What the constant critic predicts for an unfinished rollout.
        branch: Whether states are branched, by replaying their actions. Without, a group's
            rollouts are independent and their returns compared.
        copy_env: Copies an environment between two actions, instead of replaying them.
        tokenizer: For stop conditions that are texts: one, or the model it belongs to.
    """

    builder: str | object | None = None
    options: dict[str, Any] = attrs.field(factory=dict)
    max_tokens: int = attrs.field(default=1024, validator=attrs.validators.ge(1))
    segment_tokens: int | None = attrs.field(default=256)
    max_transitions: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )
    critic: float = 0.5
    branch: bool = True
    copy_env: Callable[[Any], Any] | None = None
    tokenizer: str | object | None = attrs.field(default=None, converter=_tokenizer)
    _made: tuple[Any, Any] | None = attrs.field(default=None, init=False, repr=False)

    @segment_tokens.validator
    def _some(self, _: object, tokens: int | None) -> None:
        if tokens is not None and tokens < 1:
            raise UsageError(f"segment_tokens={tokens}: give at least 1, or none")

    name: ClassVar[str] = "cookbook"
    defaults: ClassVar[TaskDefaults] = TaskDefaults(source="train")

    def problems(self, source: str | None = None) -> Sequence[Problem]:
        """The groups of the dataset: ``train`` (or ``None``) or ``test``.

        Raises:
            UsageError: There is no such dataset, the builder cannot be used, or it is asynchronous
                and an event loop runs here that would wait for it.
        """
        split = "train" if source is None else source
        if self._made is None:
            self._made = _datasets(self.builder, self.options)
        dataset = dict(zip(("train", "test"), self._made, strict=True)).get(split)
        if dataset is None:
            raise UsageError(
                f"no problems {source!r}; the builder makes train"
                + (" and test" if self._made[1] is not None else ", and no test")
            )
        groups = [group for batch in range(len(dataset)) for group in dataset.get_batch(batch)]
        return [_problem(split, place, group) for place, group in enumerate(groups)]

    def collector_for(self, policy: Policy, problem: Problem) -> Collector:
        """A collector whose environment is the problem's group.

        Raises:
            UsageError: The problem is not one of this task's.
        """
        group = problem.metadata.get("builder")
        if not hasattr(group, "make_envs"):
            raise UsageError(f"problem {problem.id!r} holds no EnvGroupBuilder; use problems()")
        whole = self.segment_tokens is None
        agent = Agent(
            policy,
            CookbookEnv(
                group,
                policy.decode,
                self.max_tokens,
                branch=self.branch,
                copy_env=self.copy_env,
                tokenizer=self.tokenizer,
            ),
            context=Turns(self.max_tokens) if whole else Segments(self.segment_tokens or 1),
            max_transitions=self.max_transitions,
        )
        if not self.branch:
            return Collector(agent, search=Independent(8), recipe=GroupCentered())
        return Collector(
            agent,
            critic=Critic.constant(self.critic),
            search=Selective(budget=16, warmup=16, max_concurrency=4),
            calibration=Gaussian(),
        )

    def validate(self) -> None:
        """Prove that the first group makes an environment with a prompt of tokens.

        Raises:
            FocusError: What is wrong.
        """
        group = self.problems()[0].metadata["builder"]
        env = CookbookEnv(group, str, self.max_tokens, tokenizer=self.tokenizer)
        _finished(_begun(env), "validate")


def from_cookbook(
    builder: Any, *, renderer: Renderer | None = None, **options: Any
) -> CookbookTask:
    """A task of anything of the cookbook's that makes environments.

    Args:
        builder: As in ``CookbookTask``.
        renderer: Whose tokenizer encodes stop conditions that are texts; not needed where they
            are tokens, nor for prompts, which the environments render themselves.
        options: Further ones of ``CookbookTask``.
    """
    if renderer is not None:
        options.setdefault("tokenizer", renderer.tokenizer)
    return CookbookTask(builder, **options)


async def _begun(env: CookbookEnv) -> None:
    try:
        await env.reset(Problem(""))
    finally:
        await env.aclose()


def _problem(split: str, place: int, group: Any) -> Problem:
    tags: Sequence[Any] = getattr(group, "logging_tags", tuple)()
    return Problem(
        " ".join(map(str, (*tags, place))), id=f"{split}-{place}", metadata={"builder": group}
    )


@attrs.frozen
class _Groups:
    """A sequence of groups as a dataset of one batch."""

    groups: Sequence[Any]

    def get_batch(self, index: int) -> Sequence[Any]:
        return self.groups

    def __len__(self) -> int:
        return 1


def _datasets(builder: Any, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Training and test dataset of whatever was given.

    Raises:
        UsageError: It is none of what the cookbook makes environments with, or an event loop would
            wait for it.
    """
    if isinstance(builder, str):
        builder = _named(builder, options)
    elif options:
        raise UsageError("task.options go with a builder's name; give the object its own")
    if isinstance(builder, RLDatasetBuilder):
        made = _finished(builder(), "problems")
        return made[0], made[1]
    if hasattr(builder, "get_batch"):
        return builder, None
    if hasattr(builder, "make_envs"):
        return _Groups([builder]), None
    if isinstance(builder, Sequence) and all(hasattr(item, "make_envs") for item in builder):
        return _Groups(builder), None
    if callable(builder):
        return _Groups([_Single(builder)]), None
    raise UsageError(
        f"builder={builder!r}: give an RLDatasetBuilder (or its name as 'module:Class'), a "
        "dataset, an EnvGroupBuilder or several, or a function that makes an Env"
    )


def _named(name: str, options: Mapping[str, Any]) -> Any:
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"builder={name!r} cannot be imported: {error}") from error
    try:
        return kind(**options)
    except Exception as error:
        raise UsageError(f"builder={name!r}: {type(error).__name__}: {error}") from error


def _finished(work: Coroutine[Any, Any, T], method: str) -> T:
    """Run a coroutine to its end.

    Raises:
        UsageError: An event loop runs in this thread, and would stand still for as long.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise UsageError(
        f"task.{method}() would hold up the event loop that runs here; call it in a thread: "
        f"await asyncio.to_thread(task.{method})"
    )
