"""Tools a policy may call: what they are, what a call is, and how one is run."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from focus_core.env.execution import Execution, bounded, is_async
from focus_core.env.schema import flaw
from focus_core.env.workspace import Workspace
from focus_core.errors import DeadlineError, ExecutionError, FocusError, UsageError

__all__ = ["BadCall", "Parsed", "Tool", "ToolCall", "ToolState"]

REPORTED = (
    ValueError,
    ArithmeticError,
    LookupError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
)
"""What a tool raises about the values it was called with, as the standard library does."""


@attrs.frozen
class ToolCall:
    """A call that can be run: the tool exists and the arguments keep its schema."""

    name: str
    arguments: Mapping[str, Any]


@attrs.frozen
class BadCall:
    """A call that cannot be run.

    Attributes:
        reason: What is wrong with it, for the policy to read.
        name: The tool it named, if it got that far.
    """

    reason: str
    name: str | None = None


@attrs.frozen
class Parsed:
    """What a dialect found in a turn.

    Attributes:
        blocks: Every call in the order written, good or bad.
        text: The rest, without thinking.
    """

    blocks: tuple[ToolCall | BadCall, ...]
    text: str

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that can be run."""
        return [block for block in self.blocks if isinstance(block, ToolCall)]

    @property
    def errors(self) -> list[BadCall]:
        """The calls that cannot."""
        return [block for block in self.blocks if isinstance(block, BadCall)]


@attrs.define
class ToolState:
    """What a stateful tool may read and change; it is that call's own until the call succeeds.

    Attributes:
        value: Anything the environment keeps for its tools. Rebind it, never mutate it: other
            branches hold the same object.
        workspace: Files, if the environment has some: a fork that may be written to.
    """

    value: Any = None
    workspace: Workspace | None = None


def _schema(instance: Any, attribute: Any, value: Mapping[str, Any]) -> None:
    wrong = None
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"they are no JSON: {error}"
    if wrong is None and (not isinstance(value, Mapping) or value.get("type") != "object"):
        wrong = "their type is not 'object'"
    if wrong := wrong or flaw(value, "parameters"):
        raise UsageError(
            f"tool {instance.name!r}: parameters must be a JSON schema of an object, such as "
            '{"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}; '
            f"{wrong}"
        )


def _name(instance: Any, attribute: Any, value: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", value, re.ASCII):
        raise UsageError(
            f"a tool cannot be called {value!r}; use letters, digits, '_', '-' and '.', "
            "beginning with a letter"
        )


@attrs.frozen
class Tool:
    """Something a policy may call.

    Args:
        name: As the policy writes it.
        description: What it does, for the policy.
        parameters: JSON schema of the arguments, of type ``object``.
        function: Called with the arguments by name; may be async. What it returns is sent to the
            policy: a string as it is, anything else as JSON. One of ``reports`` is sent as an
            error, as is a call that took too long or whose process died (of too much memory, for
            example); any other exception fails the rollout, since it says nothing about the call.
        stateful: Whether the function's first argument is the ``ToolState``. What it did there
            holds only if it returns in time.
        reports: Exceptions about the arguments.
    """

    name: str = attrs.field(validator=_name)
    description: str
    parameters: Mapping[str, Any] = attrs.field(validator=_schema)
    function: Callable[..., Any] = attrs.field(validator=attrs.validators.is_callable())
    stateful: bool = attrs.field(default=False, kw_only=True)
    reports: tuple[type[Exception], ...] = attrs.field(default=REPORTED, kw_only=True)

    @property
    def signature(self) -> dict[str, Any]:
        """As chat templates and APIs write it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }

    async def call(
        self,
        arguments: Mapping[str, Any],
        state: ToolState,
        execution: Execution,
        timeout: float | None,
    ) -> tuple[str, ToolState | None]:
        """Run one call.

        Args:
            arguments: As the dialect parsed and checked them.
            state: This call's own.
            execution: Where a plain function runs.
            timeout: Limit in seconds, from when the function starts.

        Returns:
            What to send to the policy, and the state after it; None if the call failed.
        """
        given = state if self.stateful else None
        try:
            if is_async(self.function):
                first = () if given is None else (given,)
                answer = await bounded(self.function(*first, **arguments), timeout)
            else:
                answer, given = await execution.run(
                    _apply, self.function, given, dict(arguments), timeout=timeout
                )
            if inspect.isawaitable(answer):
                answer = await bounded(answer, timeout)
        except DeadlineError as error:
            return f"Error: {error}", None
        except ExecutionError:
            return "Error: the process that ran the call died", None
        except FocusError:  # a ValueError too, but not about the arguments
            raise
        except self.reports as error:
            return f"Error: {type(error).__name__}: {error}", None
        except Exception as error:
            error.add_note(f"raised by the tool {self.name!r}, called with {dict(arguments)!a}")
            raise
        try:
            text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"the tool {self.name!r} returned {type(answer).__name__}, which is neither text "
                f"nor JSON: {error}"
            ) from error
        return text, given or state


def _apply(
    function: Callable[..., Any], state: ToolState | None, arguments: dict[str, Any]
) -> tuple[Any, ToolState | None]:
    """Call in the service's thread or process; the state comes back, as a process has its own."""
    answer = function(**arguments) if state is None else function(state, **arguments)
    return answer, state
