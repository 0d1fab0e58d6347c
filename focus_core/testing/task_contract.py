"""The contract of tasks: problems, prompts, collectors, and the environment they come with."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from focus_core.agent.agent import Agent
from focus_core.collect import Collection, Collector
from focus_core.errors import FocusError, UsageError
from focus_core.lanes import export_actor, export_critic
from focus_core.policy import Policy
from focus_core.records import Problem
from focus_core.search import BetaBernoulli
from focus_core.task import TaskDefaults, defaults_of
from focus_core.testing._looking import form, require_methods, require_settable
from focus_core.testing.base import Broken, NotApplicable, contract, require
from focus_core.testing.env_contract import EnvContract

__all__ = ["TaskContract"]


class TaskContract(EnvContract):
    """What every task keeps, and the contract of the environments it makes.

    Inherit it in a pytest module::

        class TestMyTask(TaskContract):
            def subject(self):
                return MyTask()

    Attributes:
        source: Problems to look at; by default the task's own.
        sample: How many of them are collected.
    """

    source: Any = None
    sample: int = 3

    def env(self) -> tuple[Any, Problem]:
        """The environment of the first problem's collector."""
        problem = self._problems()[0]
        collector = self.subject().collector_for(self.policy(), problem)
        return collector.agent.env, problem

    @contract()
    def test_has_the_methods(self) -> None:
        """A task has a name, problems, collector_for and validate."""
        task = self.subject()
        require_methods(task, "Task", ("problems", "collector_for", "validate"), awaited=set())
        require(
            isinstance(getattr(task, "name", None), str) and task.name,
            f"{type(task).__name__}.name must be the text it is registered under",
        )
        require(
            self.spec is None or task.name == self.spec.name,
            f"the task calls itself {task.name!r} but is registered as "
            f"{getattr(self.spec, 'name', '')!r}; use one name",
        )
        require(
            isinstance(getattr(task, "defaults", TaskDefaults()), TaskDefaults),
            f"{type(task).__name__}.defaults must be a focus_core.TaskDefaults, if it is there",
        )

    @contract()
    def test_options_can_be_set(self) -> None:
        """Every option of the task can be given with --set."""
        require_settable(self.spec.load() if self.spec else type(self.subject()), "task")

    @contract()
    def test_problems_are_the_same_each_time(self) -> None:
        """A source gives some problems, each a Problem, the same ones each time."""
        first, again = self._problems(), self._problems()
        require(first, "problems() gave none")
        for problem in first:
            require(
                isinstance(problem, Problem),
                f"problems() gave a {type(problem).__name__}; make focus_core.Problem of it",
            )
        same = len(first) == len(again) and all(
            form(a) == form(b) for a, b in zip(first[:100], again[:100], strict=True)
        )
        require(same, "problems() gave others the second time; draw with a seed of its own")

    @contract()
    def test_problem_ids_are_unique(self) -> None:
        """Every problem has an id of its own that JSON can hold; records are found by it."""
        seen: dict[str, Problem] = {}
        for problem in self._problems():
            require(problem.id is not None, f"problem {problem.prompt!r:.80} has no id")
            try:
                key = json.dumps(problem.id)
            except (TypeError, ValueError):
                raise Broken(f"the id {problem.id!r} is nothing JSON can hold; use text") from None
            require(key not in seen, f"two problems have the id {problem.id!r}; make ids unique")
            seen[key] = problem

    @contract()
    def test_held_out_problems_are_held_out(self) -> None:
        """No problem of the evaluation is trained on."""
        task = self.subject()
        defaults = defaults_of(task)
        held_out = defaults.eval_source
        if held_out is None or held_out == defaults.source or self.source is not None:
            raise NotApplicable("the task holds no problems out")
        trained = {repr(problem.prompt) for problem in self._problems()}
        for problem in task.problems(held_out):
            require(
                repr(problem.prompt) not in trained,
                f"problem {problem.id!r} is both trained and evaluated on; split by content",
            )

    @contract()
    async def test_prompts_render(self) -> None:
        """The chat of every problem can be rendered: known roles, text as content."""
        for problem in self._problems()[: self.sample]:
            agent, chat = await self._begun_by_agent(problem)
            for message in chat:
                require(
                    message["role"] in ("system", "user", "assistant", "tool"),
                    f"problem {problem.id!r}: no chat template knows the role {message['role']!r}",
                )
                require(
                    isinstance(message["content"], str),
                    f"problem {problem.id!r}: the content {message['content']!r:.60} is not text",
                )
            require(len(agent.render(chat)), f"problem {problem.id!r} renders to no token")

    @contract()
    async def test_the_label_stays_out_of_the_prompt(self) -> None:
        """The policy is never shown the label: another label makes no other prompt.

        A label that stands whole in each of many prompts fails as well; where the question holds
        its answer by design (copying, say), excuse this contract.
        """
        problems = [p for p in self._problems()[:64] if p.label is not None]
        chats: list[tuple[Problem, str]] = []
        for problem, other in zip(problems, [*problems[1:], *problems[:1]], strict=True):
            mine = repr(await self._chat(problem))
            chats.append((problem, mine))
            repeats = mine == repr(await self._chat(problem))
            if form(problem.label) == form(other.label) or not repeats:
                continue
            swapped = dataclasses.replace(problem, label=other.label)
            require(
                mine == repr(await self._chat(swapped)),
                f"problem {problem.id!r}: its prompt changes with its label, so the policy sees "
                "the answer; build the prompt from problem.prompt alone",
            )
        shown = [problem for problem, chat in chats if _stands_in(problem.label, chat)]
        require(
            len(chats) < 8 or len(shown) < len(chats),
            f"the label of each of {len(chats)} problems stands in its prompt "
            f"({getattr(problems[0] if problems else None, 'label', None)!r:.60} in the first); "
            "leave it out",
        )

    @contract()
    def test_collectors_are_fresh(self) -> None:
        """Every call makes a collector, an agent and an environment of its own, for that policy."""
        task, policy = self.subject(), self.policy()
        problem = self._problems()[0]
        one, other = task.collector_for(policy, problem), task.collector_for(policy, problem)
        require(
            isinstance(one, Collector),
            f"collector_for returned a {type(one).__name__}; return a focus_core.Collector",
        )
        require(one is not other, "collector_for returned the same collector twice; it is used up")
        require(
            one.agent.env is not other.agent.env,
            "two collectors share an environment; make one in collector_for",
        )
        require(
            one.agent.policy is policy and other.agent.policy is policy,
            "the collector's agent must hold the policy that collector_for was given: another one "
            "would sample with old weights",
        )

    @contract()
    async def test_collects_without_failures(self) -> None:
        """Whatever a policy says, collecting fails nowhere, and the records can be written."""
        problems = self._problems()[: self.sample]
        for problem, policy in itertools.product(problems, self.policies()):
            collection = await self._collected(problem, policy)
            require(
                not collection.failures,
                f"problem {problem.id!r}: a policy that says anything made "
                f"{_first(collection)}; a bad reply is worth a low reward, not an error",
            )
            collection.prepare()
            fits = isinstance(collection.collector.calibration, BetaBernoulli)
            outside = [value for value in collection.returns if not 0.0 <= value <= 1.0]
            require(
                not (fits and outside),
                f"problem {problem.id!r}: a rollout returned {outside[:1]}, and the default "
                "calibration believes in returns from 0 to 1; scale the reward, or give the "
                "collector calibration=Gaussian()",
            )
            records = [record.to_dict() for record in export_actor(collection)]
            records += [record.to_dict() for record in export_critic(collection)]
            json.dumps(records, allow_nan=False)

    @contract()
    async def test_collecting_repeats(self) -> None:
        """With one continuation at a time and a seed, a tree is the same each time."""
        problem = self._problems()[0]
        one, other = [await self._collected(problem, self.policy()) for _ in range(2)]
        require(
            _columns(one) == _columns(other),
            f"problem {problem.id!r}: the same policy and seed grew another tree the second time; "
            "the environment must depend on the replies alone",
        )

    @contract()
    def test_validates(self) -> None:
        """The task proves its own grader: validate() passes."""
        try:
            self.subject().validate()
        except FocusError as error:
            raise Broken(f"validate() found: {error}") from error

    @contract()
    def test_bad_sources_are_explained(self) -> None:
        """A source that does not exist is a UsageError (or DataError) that names it."""
        wrong = "no-such-problems.jsonl"
        try:
            self.subject().problems(wrong)
        except (UsageError, OSError) as error:
            require(
                wrong in str(error),
                f"problems({wrong!r}) failed with {str(error)!r}; name the source in the message",
            )
        except Exception as error:
            raise Broken(
                f"problems({wrong!r}) raised {type(error).__name__}: {error}; raise DataError with "
                "path and remedy, so that the user sees one line"
            ) from error
        else:
            raise Broken(f"problems({wrong!r}) gave problems although there is no such source")

    # What they share

    def _problems(self) -> Sequence[Problem]:
        task = self.subject()
        source = self.source if self.source is not None else defaults_of(task).source
        if source is None:
            raise Broken(
                "there are no problems to check it with; give some: --problems, or the contract "
                "class's source"
            )
        with ThreadPoolExecutor(1) as thread:  # where an event loop runs, a task may refuse to wait
            problems: Sequence[Problem] = thread.submit(task.problems, source).result()
        require(problems, f"problems({source!r}) gave none")
        return problems

    async def _chat(self, problem: Problem) -> tuple[Any, ...]:
        return (await self._begun_by_agent(problem))[1]

    async def _begun_by_agent(self, problem: Problem) -> tuple[Agent, tuple[Any, ...]]:
        """A problem's agent, and the first messages it sees."""
        collector = self.subject().collector_for(self.policy(), problem)
        async with collector:
            agent = collector.agent
            return agent, await agent.first_messages(self._of(agent.env), problem)

    async def _collected(self, problem: Problem, policy: Policy) -> Collection:
        collector = self.subject().collector_for(policy, problem)
        if attrs.has(type(collector.search)):
            search = attrs.evolve(collector.search, max_concurrency=1)
            collector = attrs.evolve(collector, search=search)
        async with collector:
            collection: Collection = await collector.collect(problem, key=(0,))
        return collection


def _first(collection: Collection) -> str:
    return str(collection.failures[0]) if collection.failures else "no failure"


def _columns(collection: Collection) -> Any:
    tree = collection.tree
    return form(
        [
            (tree.parent[node], tree.kind[node], tree.reward[node], tree.generated(node)[0])
            for node in range(len(tree))
        ]
    )


def _stands_in(label: Any, chat: str) -> bool:
    """Whether a label's text stands in a chat, as a word of its own."""
    text = str(label)
    return bool(text) and bool(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", chat))
