"""Validators of saved trees; a value that passes is safe to count with, walk and draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs

__all__ = ["Column", "check_links", "column", "lists", "number", "one_of", "optional", "whole"]

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]
Column = Validator | type
"""What each entry of a list must be."""

_LARGEST = 2**53 - 1  # integers beyond are not exact in a browser


def whole(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A count, an index or a token: an integer from 0."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{attribute.name} must be an integer from 0, not {_short(value)}")


def number(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A finite number."""
    exact = type(value) is float or (type(value) is int and abs(value) <= _LARGEST)
    if not exact or not math.isfinite(value):
        raise ValueError(f"{attribute.name} must be a finite number, not {_short(value)}")


def optional(check: Validator) -> Validator:
    """``None``, or what passes the check."""

    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is not None:
            check(instance, attribute, value)

    return validate


def one_of(*choices: Any) -> Validator:
    """One of these values."""

    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value not in choices:
            listed = ", ".join(map(repr, choices))
            raise ValueError(f"{attribute.name} must be one of {listed}, not {_short(value)}")

    return validate


def lists(entry: Column, *, beside: str | None = None) -> Validator:
    """A list of such entries, as long as the field it stands beside."""

    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        _check_list(instance, attribute, value, entry)
        if beside is not None and len(value) != len(getattr(instance, beside)):
            raise ValueError(
                f"{attribute.name} has {len(value)} entries, {beside} "
                f"{len(getattr(instance, beside))}"
            )

    return validate


def column(columns: Mapping[str, Column]) -> Validator:
    """A mapping of exactly these columns, all of one length."""

    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, dict) or set(value) != set(columns):
            raise ValueError(f"{attribute.name} must have the columns {', '.join(columns)}")
        for name, entry in columns.items():
            named = attribute.evolve(name=f"{attribute.name}.{name}")
            _check_list(instance, named, value[name], entry)
        if len({len(entries) for entries in value.values()}) > 1:
            raise ValueError(f"the columns of {attribute.name} must be of one length")

    return validate


def check_links(tree: Any, attribute: attrs.Attribute[Any], removed: Any) -> None:
    """Of a whole tree: one root, parents before children, and references to states that exist."""
    if not tree.nodes:
        raise ValueError("nodes must hold the root at least")
    for name, states in (("nodes", tree.nodes), ("removed", removed)):
        last = -1
        for state in states:
            if state.id <= last:
                raise ValueError(f"{name} must be ordered by id; {state.id} follows {last}")
            last = state.id
    parents = {state.id: state.parent for state in (*tree.nodes, *removed)}
    if len(parents) < len(tree.nodes) + len(removed):
        raise ValueError("a state is listed both in nodes and in removed")
    surviving = {state.id for state in tree.nodes}
    root = tree.nodes[0].id
    for state, parent in parents.items():
        if (parent is None) != (state == root):
            raise ValueError(f"state {state}: exactly the first state has no parent")
        if parent is None:
            continue
        if parent >= state or parent not in (surviving if state in surviving else parents):
            raise ValueError(f"state {state}: there is no parent {parent} before it")
    named = (*tree.launches["state"], *tree.changes["state"], *(f.state for f in tree.failures))
    for state in named:
        if state not in parents:
            raise ValueError(f"a launch, change or failure names state {state}; there is none")
    for state in (*tree.nodes, *removed):
        if any(place >= len(state.tokens) for place in state.inside):
            raise ValueError(f"state {state.id}: inside names a token beyond the last")


def _check_list(instance: Any, attribute: attrs.Attribute[Any], value: Any, entry: Column) -> None:
    if not isinstance(value, list):
        raise ValueError(f"{attribute.name} must be a list, not {_short(value)}")
    if isinstance(entry, type):
        for item in value:
            if type(item) is not entry:
                raise ValueError(f"{attribute.name} must hold {entry.__name__}, not {_short(item)}")
    else:
        for item in value:
            entry(instance, attribute, item)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
