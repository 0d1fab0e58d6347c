"""The contract of lanes: records of any tree, complete, and of their own."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from focus_core.agent.agent import Agent
from focus_core.agent.context import Context, Segments
from focus_core.agent.folding import Folding
from focus_core.collect import Collection, Collector
from focus_core.critic import Critic
from focus_core.env.env import Reply, Transition
from focus_core.lanes import Lane
from focus_core.recipes import DirectBranchTd, GroupCentered
from focus_core.records import SCHEMA, Problem
from focus_core.search import Independent, Selective
from focus_core.testing._looking import form
from focus_core.testing.base import Broken, Contract, NotApplicable, contract, require
from focus_core.testing.fakes import CountdownEnv, RandomPolicy, TextPolicy

__all__ = ["LaneContract", "example_collections"]


class _FailingEnv(CountdownEnv):
    """Fails at its first step."""

    async def step(self, reply: Reply) -> Transition:
        raise ValueError("this environment always fails")


class _PartlyFailingEnv(CountdownEnv):
    """Fails where the policy says a seven."""

    async def step(self, reply: Reply) -> Transition:
        if 7 in reply.tokens:
            raise ValueError("this environment fails sometimes")
        return await super().step(reply)


class _CuttingEnv(CountdownEnv):
    """Cuts every other rollout without an outcome."""

    async def step(self, reply: Reply) -> Transition:
        transition = await super().step(reply)
        cut = transition.done and sum(self.said) % 2 == 1
        return Transition(truncated=True) if cut else transition


class _ChattingEnv(CountdownEnv):
    """Answers every reply until the last."""

    async def step(self, reply: Reply) -> Transition:
        transition = await super().step(reply)
        return transition if transition.done else Transition(messages=({**GO_ON},))


GO_ON = {"role": "user", "content": "go on"}


async def _collect(
    env: CountdownEnv,
    *,
    policy: RandomPolicy | None = None,
    context: Context | None = None,
    **options: Any,
) -> Collection:
    agent = Agent(policy or RandomPolicy(), env, context=context or Segments(3))
    async with Collector(agent, critic=Critic.constant(0.5), **options) as collector:
        collection = await collector.collect(Problem("5 6", "x", id="p"), key=(0,))
    return collection.prepare(allow_partial=True)


def example_collections() -> Mapping[str, Collection]:
    """Prepared collections of every shape a lane meets, by name, made anew.

    ``branched`` (about 30 edges), ``rollouts`` (unbranched, group baseline), ``short`` (one edge),
    ``failed`` (a root alone: every continuation failed), ``partial`` (some did), ``truncated``
    (some rollouts cut), ``turns`` (answers between the replies) and ``folded`` (chats summarized,
    so that sequences begin anew below the root).
    """

    async def made() -> dict[str, Collection]:
        search = functools.partial(Selective, max_concurrency=1)
        return {
            "branched": await _collect(CountdownEnv(), search=search(budget=16, warmup=16)),
            "rollouts": await _collect(
                CountdownEnv(), search=Independent(4, max_concurrency=1), recipe=GroupCentered()
            ),
            "short": await _collect(
                CountdownEnv(1), search=Independent(1), recipe=DirectBranchTd()
            ),
            "failed": await _collect(_FailingEnv(), search=search(budget=4, warmup=4)),
            "partial": await _collect(
                _PartlyFailingEnv(), search=search(budget=16, warmup=16, max_failures=99)
            ),
            "truncated": await _collect(_CuttingEnv(), search=search(budget=16, warmup=16)),
            "turns": await _collect(
                _ChattingEnv(), policy=TextPolicy(end=0.3), search=search(budget=8, warmup=8)
            ),
            "folded": await _collect(
                _ChattingEnv(),
                policy=TextPolicy(end=0.1),
                context=Folding(inner=Segments(4), max_turns=2, summary_tokens=4),
                search=search(budget=16, warmup=16, max_failures=99),
            ),
        }

    return asyncio.run(made())


class LaneContract(Contract):
    """What every lane keeps.

    Inherit it in a pytest module::

        class TestMyLane(LaneContract):
            def subject(self):
                return my_lane()
    """

    def collections(self) -> Mapping[str, Collection]:
        """Prepared collections to export from, by name."""
        return example_collections()

    @contract()
    def test_is_a_lane(self) -> None:
        """A plug-in's lane is a Lane with a name of its own, whose records go to a sink."""
        lane = self.subject()
        require(isinstance(lane, Lane), f"the factory made a {type(lane).__name__}; return a Lane")
        require(
            self.spec is None or lane.name == self.spec.name,
            f"the lane calls itself {lane.name!r} but is registered as "
            f"{getattr(self.spec, 'name', '')!r}; use one name",
        )
        require(
            re.fullmatch(r"\w[\w.-]*", lane.name),
            f"{lane.name!r} cannot name a directory of records; take letters, digits and hyphens",
        )
        require(
            lane.consumer == "sink" or lane.name == "actor",
            f"lane {lane.name!r} is to be consumed by the {lane.consumer}, but only the actor "
            "lane is; say consumer='sink'",
        )

    @contract()
    def test_something_is_exported(self) -> None:
        """A branched tree gives records."""
        require(
            self._all(),
            "no record came of a branched tree or of unbranched rollouts; is the selection right?",
        )

    @contract()
    def test_small_trees_are_fine(self) -> None:
        """A tree of one edge, and one of which nothing is left, export without an error."""
        for name in ("short", "failed"):
            collection = self.collections().get(name)
            if collection is not None:
                try:
                    records = self.subject().export(collection)
                except Exception as error:
                    raise Broken(
                        f"a tree of {len(collection.tree)} states ({name}) made export fail: "
                        f"{type(error).__name__}: {error}; give no record where there is nothing"
                    ) from error
                require(
                    isinstance(records, Sequence),
                    f"export gave {records!r}; give a list, empty too",
                )

    @contract()
    def test_records_are_of_the_type(self) -> None:
        """Every record is of the lane's record type, with metadata and to_dict()."""
        lane = self.subject()
        for record in self._all():
            require(
                isinstance(record, lane.record_type),
                f"export gave a {type(record).__name__}; the lane says {lane.record_type.__name__}",
            )
            require(
                callable(getattr(record, "to_dict", None)),
                f"{type(record).__name__} has no to_dict(); sinks write plain records",
            )
            require(
                isinstance(getattr(record, "metadata", None), MutableMapping),
                f"{type(record).__name__}.metadata must be a dict: the scheduler stamps it",
            )

    @contract()
    def test_plain_records_are_complete(self) -> None:
        """The plain form is JSON: schema, lane, the record's fields, and where they come from."""
        name = self.subject().name
        for record in self._all():
            plain = record.to_dict()
            try:
                read = json.loads(json.dumps(plain, allow_nan=False))
            except (TypeError, ValueError) as error:
                raise Broken(f"to_dict() is no JSON: {error}; give numbers, text, lists") from error
            require(
                form(read) == form(plain), "to_dict() reads back otherwise; use JSON types only"
            )
            require(
                plain.get("schema") == SCHEMA,
                f"to_dict()['schema'] is {plain.get('schema')!r}; it must be {SCHEMA}",
            )
            require(
                plain.get("lane") == name,
                f"to_dict()['lane'] is {plain.get('lane')!r}; it must be {name!r}",
            )
            missing = {"group_index", "problem"} - set(plain.get("metadata") or {})
            require(
                not missing,
                f"the metadata lacks {', '.join(sorted(missing))}; say which tree of the batch and "
                "which problem a record comes from",
            )

    @contract()
    def test_metadata_is_each_records_own(self) -> None:
        """Stamping one record's metadata shows in its plain form and in no other record's."""
        records = self._all()
        for place, record in enumerate(records):
            record.metadata["training"] = {"batch": place}
        for place, record in enumerate(records):
            stamp = record.to_dict()["metadata"].get("training")
            require(
                stamp == {"batch": place},
                f"a record stamped {{'batch': {place}}} says {stamp!r}; give each record a dict of "
                "its own, and copy it in to_dict()",
            )

    @contract()
    def test_export_repeats(self) -> None:
        """Exporting again gives the same records."""
        for name, collection in self._branched().items():
            first, again = (
                [record.to_dict() for record in self.subject().export(collection)] for _ in range(2)
            )
            require(first == again, f"the tree {name!r} exported otherwise the second time")

    @contract()
    def test_export_leaves_the_tree_alone(self) -> None:
        """Exporting changes neither the tree nor its values nor its advantages."""
        for name, collection in self._branched().items():
            for node in np.flatnonzero(np.frombuffer(collection.tree.alive, np.uint8)):
                collection.context(int(node))  # kept once asked for, which is no change
            before = _everything(collection)
            self.subject().export(collection)
            require(
                _everything(collection) == before,
                f"export changed the tree {name!r}; other lanes read it too, so copy",
            )

    @contract()
    def test_plain_records_read_back(self) -> None:
        """If the record type has from_dict, it reads what to_dict wrote."""
        lane = self.subject()
        read = getattr(lane.record_type, "from_dict", None)
        if read is None:
            raise NotApplicable(f"{lane.record_type.__name__} has no from_dict")
        for record in self._all():
            plain = record.to_dict()
            require(read(plain).to_dict() == plain, "from_dict(to_dict()) is another record")

    def _branched(self) -> dict[str, Collection]:
        """The trees with something in them; the others have a contract of their own."""
        small = ("short", "failed")
        return {name: each for name, each in self.collections().items() if name not in small}

    def _all(self) -> list[Any]:
        lane = self.subject()
        return [record for each in self._branched().values() for record in lane.export(each)]


def _everything(collection: Collection) -> Any:
    tree = collection.tree
    return form([vars(tree), collection.values, collection.advantages, collection.counts])
