"""A collected tree as a file: what ``focus collect`` writes and ``focus view`` draws."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from focus_core.collect import Collection
from focus_core.errors import DataError
from focus_core.utils.files import write_atomically
from focus_core.utils.plain_json import loads, to_json
from focus_core.view.checks import (
    Column,
    check_links,
    column,
    lists,
    number,
    one_of,
    optional,
    whole,
)
from focus_core.view.pieces import Pieces

__all__ = ["SCHEMA", "SavedFailure", "SavedState", "SavedTree", "read_tree", "save_tree"]

SCHEMA = 4
"""Version of the form. Schema 3 has no labels and answers, and is read; schema 2 did not say where
a sequence begins, and is not."""

KINDS = ("open", "terminal", "truncated")
FOLDS = ("", "asked", "folded")
LAUNCHES: Mapping[str, Column] = {
    "state": whole,
    "phase": str,
    "worth": optional(number),
    "n": whole,
    "mean": number,
    "in_flight": whole,
    "transitions": whole,
}
CHANGES: Mapping[str, Column] = {
    "state": whole,
    "worth": optional(number),
    "launches": whole,
    "transitions": whole,
}
_REMEDY = "collect the tree again with focus collect"


@attrs.frozen(kw_only=True)
class SavedState:
    """A state, and the edge that leads to it; numbers are ``None`` where there is none.

    Attributes:
        id: Index in the tree; a parent's is smaller.
        parent: The state the edge leaves; ``None`` at the root.
        kind: ``"open"``, ``"terminal"`` or ``"truncated"``.
        launch: The continuation that made it; -1 at the root.
        reward: Of the edge.
        prediction: The critic's.
        value: The value that the recipe credits by.
        target: The critic's target: the mean over direct branches.
        branches: Direct branches in that mean.
        visits: Finished continuations that passed through the state.
        n: Returns the search observed here.
        mean: Their mean.
        advantage: Of the edge.
        tokens: Ids the policy generated on the edge, length T.
        logprobs: Their behaviour log probabilities, in nats, length T; float32 in decimal.
        pieces: The text each of them wrote, length T; together the edge's text.
        inside: Places of the tokens that end inside a character.
        rendered: Ids that rendering the environment's answer added; where ``fresh``, the whole
            prompt of a new sequence, as at the root.
        rendered_text: Their text.
        fresh: Whether a new sequence begins here: the chat was rendered anew and does not continue
            the tokens before it.
        fold: ``""``, ``"asked"`` (the policy is to summarize) or ``"folded"`` (it has).
        answer: The messages with which the environment answered the turn that ends here, results
            of tools for example; empty within a turn, and where the chat was folded.
    """

    id: int = attrs.field(validator=whole)
    parent: int | None = attrs.field(validator=optional(whole))
    kind: str = attrs.field(validator=one_of(*KINDS))
    launch: int = attrs.field(validator=attrs.validators.instance_of(int))
    reward: float = attrs.field(validator=number)
    prediction: float | None = attrs.field(validator=optional(number))
    value: float | None = attrs.field(validator=optional(number))
    target: float | None = attrs.field(validator=optional(number))
    branches: int = attrs.field(validator=whole)
    visits: int = attrs.field(validator=whole)
    n: int = attrs.field(validator=whole)
    mean: float | None = attrs.field(validator=optional(number))
    advantage: float | None = attrs.field(validator=optional(number))
    tokens: Sequence[int] = attrs.field(validator=lists(whole))
    logprobs: Sequence[float] = attrs.field(validator=lists(number, beside="tokens"))
    pieces: Sequence[str] = attrs.field(validator=lists(str, beside="tokens"))
    inside: Sequence[int] = attrs.field(validator=lists(whole))
    rendered: Sequence[int] = attrs.field(validator=lists(whole))
    rendered_text: str = attrs.field(validator=attrs.validators.instance_of(str))
    fresh: bool = attrs.field(validator=attrs.validators.instance_of(bool))
    fold: str = attrs.field(validator=one_of(*FOLDS))
    answer: Sequence[Any] = attrs.field(factory=list, validator=attrs.validators.instance_of(list))


@attrs.frozen(kw_only=True)
class SavedFailure:
    """Something that failed; see ``focus_core.Failure``."""

    stage: str = attrs.field(validator=attrs.validators.instance_of(str))
    state: int = attrs.field(validator=whole)
    launch: int = attrs.field(validator=attrs.validators.instance_of(int))
    error: str = attrs.field(validator=attrs.validators.instance_of(str))


@attrs.frozen(kw_only=True)
class SavedTree:
    """A tree with its numbers and texts, in JSON types throughout.

    Attributes:
        schema: ``SCHEMA``.
        problem: The problem's id.
        label: What the problem's answers are graded against; ``None`` if it has none, or if the
            tree was saved in schema 3.
        policy: The snapshot that sampled it.
        settings: ``search`` and ``recipe`` as text, ``gamma`` and ``kappa``.
        stopped: Why the search stopped.
        counts: The collection's.
        messages: The chat at the root.
        launches: Columns, one entry a launch; ``focus_core.search.decisions.Launches``.
        changes: Columns, one entry a change of worth; ``focus_core.search.decisions.Changes``.
        failures: What failed.
        nodes: Surviving states, oldest first; the first is the root.
        removed: States that failed continuations had made: in no count, value or record.
    """

    schema: int = attrs.field(default=SCHEMA, validator=one_of(SCHEMA))
    problem: Any = None
    label: Any = None
    policy: Any = None
    settings: Mapping[str, Any] = attrs.field(validator=attrs.validators.instance_of(dict))
    stopped: str = attrs.field(validator=attrs.validators.instance_of(str))
    counts: Mapping[str, Any] = attrs.field(validator=attrs.validators.instance_of(dict))
    messages: Sequence[Any] = attrs.field(validator=attrs.validators.instance_of(list))
    launches: Mapping[str, Sequence[Any]] = attrs.field(validator=column(LAUNCHES))
    changes: Mapping[str, Sequence[Any]] = attrs.field(validator=column(CHANGES))
    failures: Sequence[SavedFailure]
    nodes: Sequence[SavedState]
    removed: Sequence[SavedState] = attrs.field(validator=check_links)

    @classmethod
    def of(cls, collection: Collection, decode: Callable[[Sequence[int]], str]) -> SavedTree:
        """A prepared collection, its texts decoded.

        Args:
            collection: After ``prepare``.
            decode: The policy's.
        """
        tree, log, collector = collection.tree, collection.decisions, collection.collector
        saved = _Saving(collection, decode)
        alive = [node for node in range(len(tree)) if tree.alive[node]]
        return cls(
            problem=to_json(collection.problem.id),
            label=to_json(collection.problem.label),
            policy=to_json(collector.agent.policy.version),
            settings={
                "search": repr(collector.search),
                "recipe": repr(collector.recipe),
                "gamma": collector.gamma,
                "kappa": collector.kappa,
            },
            stopped=collection.stopped,
            counts=to_json(collection.counts),
            messages=to_json(list(tree.messages[0])) if alive else [],
            launches=_columns(log.launches),
            changes=_columns(log.changes),
            failures=[
                SavedFailure(
                    stage=failure.stage,
                    state=failure.state,
                    launch=failure.launch,
                    error=f"{type(failure.error).__name__}: {failure.error}",
                )
                for failure in collection.failures
            ],
            nodes=[saved.state(node) for node in alive],
            removed=[saved.state(node) for node in range(len(tree)) if not tree.alive[node]],
        )

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> SavedTree:
        """The tree of a plain form.

        Raises:
            DataError: It is not one; the message names the field.
        """
        if not isinstance(form, Mapping) or "nodes" not in form:
            raise DataError("not a tree", remedy="give a tree-N.json that focus collect wrote")
        if type(form.get("schema")) is not int or form["schema"] not in (3, SCHEMA):
            raise DataError(
                f"{form.get('schema')!r} is not {SCHEMA} or 3, which are read here",
                field="schema",
                remedy=_REMEDY,
            )
        parts = {
            name: [_made(kind, item, f"{name}[{place}]") for place, item in _items(form, name)]
            for name, kind in (
                ("failures", SavedFailure),
                ("nodes", SavedState),
                ("removed", SavedState),
            )
        }
        made: SavedTree = _made(cls, {**form, **parts, "schema": SCHEMA}, None)
        return made

    def to_dict(self) -> dict[str, Any]:
        """The plain form: JSON types only."""
        form = _fields(self)
        for name in ("failures", "nodes", "removed"):
            form[name] = [_fields(part) for part in form[name]]
        return form

    def to_json(self) -> str:
        """The plain form as one compact line of ASCII."""
        return json.dumps(self.to_dict(), allow_nan=False, separators=(",", ":"))


def save_tree(
    collection: Collection, path: str | Path, decode: Callable[[Sequence[int]], str] | None = None
) -> None:
    """Write a prepared collection's tree as ``focus collect`` does, for ``focus view PATH``.

    Args:
        collection: What was collected; its ``prepare`` has been called.
        path: A file that appears whole, or stays as it was.
        decode: From tokens to text; by default the policy's that collected it.

    Raises:
        OSError: The file cannot be written.
    """
    if decode is None:
        decode = collection.collector.agent.policy.decode
    write_atomically(Path(path), SavedTree.of(collection, decode).to_json() + "\n")


def read_tree(path: Path) -> SavedTree:
    """Read a tree's file.

    Raises:
        DataError: It cannot be read, or is no tree of this version.
    """
    try:
        form = loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("no such file", path=path, remedy="see focus collect --help") from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path=path, remedy=_REMEDY) from error
    try:
        return SavedTree.from_dict(form)
    except DataError as error:
        raise DataError(error.message, path=path, field=error.field, remedy=error.remedy) from error


class _Saving:
    """Makes the saved form of a collection's states."""

    def __init__(self, collection: Collection, decode: Callable[[Sequence[int]], str]) -> None:
        self._collection = collection
        self._decode = decode
        self._pieces = Pieces(decode)
        self._visits = _visits(collection)

    def state(self, node: int) -> SavedState:
        collection, tree = self._collection, self._collection.tree
        generated, logprobs = tree.generated(node)
        tokens, rendered = generated.tolist(), tree.rendered(node).tolist()
        pieces, inside = self._pieces(tokens)
        evidence = collection.decisions.evidence.get(node) if tree.alive[node] else None
        return SavedState(
            id=node,
            parent=tree.parent[node] if node else None,
            kind=KINDS[tree.kind[node]],
            launch=tree.launch[node],
            reward=tree.reward[node],
            prediction=_finite(tree.prediction[node]),
            value=_finite(collection.state_values[node]),
            target=_finite(collection.values.target[node]),
            branches=int(collection.values.branches[node]),
            visits=self._visits[node],
            n=evidence.n if evidence else 0,
            mean=evidence.mean if evidence and evidence.n else None,
            advantage=_finite(collection.advantages[node]),
            tokens=tokens,
            logprobs=[float(str(logprob)) for logprob in logprobs],
            pieces=pieces,
            inside=inside,
            rendered=rendered,
            rendered_text=self._decode(rendered) if rendered else "",
            fresh=bool(tree.fresh[node]),
            fold=FOLDS[tree.fold[node]],
            answer=self._answer(node),
        )

    def _answer(self, node: int) -> list[Any]:
        """What the chat gained at a state after the policy's own turn."""
        tree = self._collection.tree
        if not node or tree.messages[node] is tree.messages[tree.parent[node]]:
            return []
        chat, before = list(tree.messages[node]), list(tree.messages[tree.parent[node]])
        if chat[: len(before)] != before:
            return []  # folded
        return list(map(to_json, chat[len(before) + 1 :]))


def _visits(collection: Collection) -> list[int]:
    """Of each node, the finished continuations that passed through it."""
    tree = collection.tree
    visits = [0] * len(tree)
    for node in range(len(tree) - 1, -1, -1):
        if tree.alive[node]:
            visits[node] += tree.kind[node] != 0
            if node:
                visits[tree.parent[node]] += visits[node]
    return visits


def _columns(rows: Any) -> dict[str, list[Any]]:
    return {name: to_json(list(column)) for name, column in _fields(rows).items()}


def _fields(thing: Any) -> dict[str, Any]:
    return {field.name: getattr(thing, field.name) for field in attrs.fields(type(thing))}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _items(form: Mapping[str, Any], name: str) -> enumerate[Any]:
    value = form.get(name)
    if not isinstance(value, list):
        raise DataError("must be a list", field=name, remedy=_REMEDY)
    return enumerate(value)


def _made(kind: type[Any], form: Any, place: str | None) -> Any:
    """An object of its plain form, or an error that says where."""
    try:
        return kind(**form)
    except (TypeError, ValueError) as error:
        text = str(error.args[0]).replace(f"{kind.__name__}.__init__() ", "")
        raise DataError(text, field=place, remedy=_REMEDY) from error
