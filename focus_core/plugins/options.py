"""Options of tasks, trainers, searches and recipes: a factory's parameters, set from text."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import attrs

from focus_core.errors import UnknownNameError, UsageError

__all__ = ["build", "closest", "evolve", "options_of"]


def options_of(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword parameters of a class or function, with resolved annotations."""
    if inspect.isclass(factory):
        hints = _hints(inspect.unwrap(factory.__init__))
        if attrs.has(factory):  # a converter hides the field's type from __init__
            for base in reversed(factory.__mro__):
                hints |= _hints(base)
    else:
        hints = _hints(inspect.unwrap(factory))
    return {
        name: parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _hints(target: Any) -> dict[str, Any]:
    """Annotations of a class or function, without those only a type checker can resolve."""
    module = sys.modules.get(getattr(target, "__module__", ""))
    names = getattr(target, "__globals__", vars(module) if module else {})
    hints: dict[str, Any] = {}
    own = vars(target).get("__annotations__", {}) if inspect.isclass(target) else None
    for name, annotation in (
        getattr(target, "__annotations__", {}) if own is None else own
    ).items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        with contextlib.suppress(Exception):
            hints |= typing.get_type_hints(one, names)
    return hints


def build(factory: Callable[..., Any], given: Mapping[str, Any], prefix: str) -> Any:
    """Call ``factory`` with options given as text (or already typed values).

    Args:
        factory: An attrs class or a function.
        given: Values by option name.
        prefix: What the user typed before the dot, for messages.

    Raises:
        UnknownNameError: An option that does not exist; the message lists those that do.
        UsageError: A value that is not of the option's type or range.
    """
    options = options_of(factory)
    values = {}
    for name, value in given.items():
        if name not in options:
            raise UnknownNameError(
                f"{prefix}.{name} does not exist{closest(name, options)}; {prefix} takes: "
                f"{', '.join(options) or 'no options'}"
            )
        kind = options[name].annotation
        values[name] = (
            _convert(value, kind, f"{prefix}.{name}") if isinstance(value, str) else value
        )
    try:
        return factory(**values)
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{prefix}: {_plain(error)}") from error


def evolve(instance: Any, given: Mapping[str, Any], prefix: str) -> Any:
    """A copy of an attrs object with some options changed; errors as in ``build``."""
    if not given:
        return instance

    def changed(**values: Any) -> Any:
        return attrs.evolve(instance, **values)

    changed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY) for p in options_of(type(instance)).values()]
    )
    changed.__annotations__ = {
        name: option.annotation for name, option in options_of(type(instance)).items()
    }
    return build(changed, given, prefix)


def closest(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """``" (did you mean X?)"`` or nothing."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _plain(error: Exception) -> str:
    """The readable part of an attrs validator's error."""
    return str(error.args[0]) if error.args else str(error)


def _convert(text: str, kind: Any, name: str) -> Any:
    """Text to a value of an annotated type."""
    origin = typing.get_origin(kind)
    if kind is Any or kind is inspect.Parameter.empty:
        return _json(text)
    if origin in (typing.Union, types.UnionType):
        choices = typing.get_args(kind)
        if type(None) in choices and text.lower() in ("none", "null", ""):
            return None
        for choice in choices:
            try:
                return _convert(text, choice, name)
            except UsageError:
                continue
        raise UsageError(f"{name}={text!r} is none of {_name(kind)}")
    if origin is typing.Literal:
        for value in typing.get_args(kind):
            if text == str(value):
                return value
        options = ", ".join(str(value) for value in typing.get_args(kind))
        raise UsageError(f"{name}={text!r} is not one of {options}")
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UsageError(f"{name}={text!r} is not true or false")
    if kind in (int, float):
        try:
            number = kind(text)
            if number == number:  # not NaN
                return number
            raise ValueError("NaN")
        except ValueError:
            article = "an integer" if kind is int else "a number"
            raise UsageError(f"{name}={text!r} is not {article}") from None
    if kind is str or (inspect.isclass(kind) and issubclass(kind, PurePath)):
        return kind(text)
    if kind is type(None):
        raise UsageError(f"{name}={text!r} is not none")
    value = _json(text)
    plain = origin or kind
    if plain in (tuple, list, Sequence) and not isinstance(value, dict):
        items = value if isinstance(value, list) else [i.strip() for i in text.split(",") if text]
        kinds = typing.get_args(kind) or (Any,)
        if plain is not tuple or kinds[-1] is Ellipsis or kinds == (Any,):
            kinds = kinds[:1] * len(items)
        if len(kinds) == len(items):
            texts = [item if isinstance(item, str) else json.dumps(item) for item in items]
            made = [_convert(t, k, name) for t, k in zip(texts, kinds, strict=True)]
            return made if plain is list else tuple(made)
    elif inspect.isclass(plain) and isinstance(value, plain):
        return value
    raise UsageError(f"{name}={text!r} is not {_name(kind)}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind)) if not typing.get_args(kind) else str(kind)
