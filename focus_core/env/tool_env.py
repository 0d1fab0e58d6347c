"""An environment in which a policy calls tools until it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs

from focus_core.env.dialects import Dialect, find_dialect
from focus_core.env.env import Reply, ReplyEnv, Said, Transition, add_system
from focus_core.env.tools import Parsed, Tool, ToolCall, ToolState
from focus_core.env.workspace import Workspace
from focus_core.errors import UsageError
from focus_core.records import Problem

__all__ = ["ToolEnv"]


@attrs.frozen
class _State:
    """What a branch needs; states share it, and nothing changes it."""

    said: Said | None
    turns: int
    value: Any


class ToolEnv(ReplyEnv):
    """Turns with tool calls, and a last one without, which is graded.

    A turn ends at a stop token or at ``max_tokens``. Its calls run one after another, in the order
    written, and each is answered by one message: what the tool returned, or what is wrong with
    the call. A turn without a call ends the rollout; ``grade``, which subclasses give, sees its
    whole text, thinking included.

    The assistant's message keeps the turn's text as it was sampled, calls and thinking included;
    what the chat template makes of it decides whether the next prompt continues the sequence. So
    answers carry the tool's name and no id: a template that wants ids would render the calls anew,
    from parsed arguments.

    Tools are described in the system message, by the dialect; not through the chat template,
    which a policy need not let us reach.

    Args:
        decode: The policy's ``decode``.
        max_tokens: Length limit of one turn, in tokens.
        tools: What may be called.
        dialect: How calls are written: ``"hermes"``, ``"qwen-xml"``, or a ``Dialect``.
        max_turns: Most turns. The last one's calls are not run.
        at_limit: What a last turn that still calls is: ``"grade"``: an answer, graded as it
            stands; ``"truncate"``: a cut, valued by the critic.
        answers: ``"tool"``: a message of that role for each call; ``"user"``: for templates
            without it, one user message with a ``<tool_response>`` for each call, which is what
            the templates of the two dialects make of tool messages.
        timeout: Limit of one call, in seconds.

    Attributes:
        value: What stateful tools keep; set its start in ``reset`` of a subclass.
    """

    workspace: Workspace | None = None

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        max_tokens: int,
        tools: Sequence[Tool],
        *,
        dialect: str | Dialect = "hermes",
        max_turns: int = 8,
        at_limit: Literal["grade", "truncate"] = "grade",
        answers: Literal["tool", "user"] = "tool",
        timeout: float | None = 30.0,
    ) -> None:
        super().__init__(decode, max_tokens)
        self.tools = {tool.name: tool for tool in tools}
        if not tools or len(self.tools) < len(tools):
            raise UsageError("a ToolEnv needs at least one tool, and no two of the same name")
        if (
            max_turns < 1
            or at_limit not in ("grade", "truncate")
            or answers not in ("tool", "user")
        ):
            raise UsageError(
                f"max_turns={max_turns!r}, at_limit={at_limit!r}, answers={answers!r}: "
                "max_turns is at least 1, at_limit 'grade' or 'truncate', answers 'tool' or 'user'"
            )
        if timeout is not None and not timeout > 0:
            raise UsageError(f"timeout={timeout!r}: it is a number of seconds above 0, or None")
        self.dialect = find_dialect(dialect)
        self.max_turns = max_turns
        self.at_limit = at_limit
        self.answers = answers
        self.timeout = timeout
        self.value: Any = None
        self._turns = 0

    def reset(self, problem: Problem) -> Sequence[Any]:
        """The problem's messages, the tools in the system message."""
        self._turns, self.value = 0, None
        return add_system(super().reset(problem), self.dialect.describe(self.tools), last=True)

    async def step(self, reply: Reply) -> Transition:
        """Take one segment; at the end of a turn, run its calls or grade it."""
        self._said = said = Said(self._said, tuple(reply.tokens))
        cut = said.length >= self.max_tokens
        if reply.stop_reason == "length" and not cut:
            return Transition()
        text = self.decode(said.tokens())
        self._said, self._turns = None, self._turns + 1
        parsed = self.dialect.parse(text, self.tools)
        if parsed.blocks and self._turns < self.max_turns:
            return await self._answer(parsed)
        metrics = {"turns": float(self._turns), "finished": float(not cut and not parsed.blocks)}
        if parsed.blocks and self.at_limit == "truncate":
            return Transition(truncated=True, metrics=metrics)
        return Transition(await self._graded(text), done=True, metrics=metrics)

    async def _answer(self, parsed: Parsed) -> Transition:
        """Run a turn's calls."""
        answers = []
        failed = 0
        for block in parsed.blocks:
            text, worked = f"Error: {getattr(block, 'reason', '')}", False
            if isinstance(block, ToolCall):
                text, worked = await self._call(block)
            failed += not worked
            # Half a surrogate pair cannot be tokenized.
            answers.append((block.name, text.encode(errors="replace").decode()))
        return Transition(
            messages=self._messages(answers),
            metrics={"tool_calls": float(len(answers)), "tool_errors": float(failed)},
        )

    async def _call(self, call: ToolCall) -> tuple[str, bool]:
        own = self.workspace.fork() if self.workspace is not None else None
        text, after = await self.tools[call.name].call(
            call.arguments, ToolState(self.value, own), self.execution, self.timeout
        )
        if after is not None:
            self.value, self.workspace = after.value, after.workspace
        return text, after is not None

    def _messages(self, answers: Sequence[tuple[str | None, str]]) -> Sequence[dict[str, str]]:
        if self.answers == "tool":
            return [
                {"role": "tool", **({"name": name} if name else {}), "content": text}
                for name, text in answers
            ]
        texts = [f"<tool_response>\n{text}\n</tool_response>" for _, text in answers]
        return [{"role": "user", "content": "\n".join(texts)}]

    def folded(self) -> None:
        """Forget an unfinished turn: the policy begins another one after a fold."""
        self._said = None

    def snapshot(self) -> Any:
        """The turn so far, how many there were, and what the tools keep."""
        return _State(self._said, self._turns, self.value)

    def restore(self, state: Any) -> None:
        """Continue from there."""
        self._said, self._turns, self.value = state.said, state.turns, state.value
