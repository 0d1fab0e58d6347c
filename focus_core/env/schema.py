"""Reading a tool call's JSON strictly, and checking it against a tool's schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from focus_core.utils.plain_json import DECODER

__all__ = ["as_meant", "flaw", "mismatch", "read_json", "read_json_at", "read_typed"]


def read_json_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at a place, and where it ends.

    Raises:
        ValueError: There is none: wrong syntax, a key twice, a number that is not finite, half
            of a surrogate pair, or nesting beyond what can be read.
    """
    try:
        value, end = DECODER.raw_decode(text, start)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos - start + 1}") from None
    except UnicodeEncodeError:
        raise ValueError("a string holds half of a surrogate pair") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value, end


def read_json(text: str) -> Any:
    """The JSON value that is the whole text.

    Raises:
        ValueError: As ``read_json_at``, or something follows the value.
    """
    text = text.strip()
    value, end = read_json_at(text, 0)
    if end < len(text):
        raise ValueError(f"something follows the value at character {end + 1}")
    return value


_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: (  # 1.0 is one: JSON has a single kind of number
        isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The types a schema allows; empty if it does not say."""
    named = schema.get("type", ())
    if not named and "enum" in schema:
        return {name for name, is_it in _IS.items() if any(map(is_it, schema["enum"]))}
    types = {named} if isinstance(named, str) else set(named)
    for option in schema.get("anyOf", ()):
        types |= _types(option)
    return types


def flaw(schema: Any, where: str) -> str | None:
    """The first thing in a schema that no value could keep, as a sentence; None if there is none.

    Looks at the keywords that ``mismatch`` reads.
    """
    if not isinstance(schema, Mapping):
        return f"{where} is {schema!r}, not a JSON schema object"
    types = schema.get("type", ())
    for name in [types] if isinstance(types, str) else types:
        if name not in _IS:
            return f"{where} has the type {name!r}; there are {', '.join(_IS)}"
    for key in ("enum", "anyOf"):
        if key in schema and (not isinstance(schema[key], list | tuple) or not schema[key]):
            return f"{where}: {key} is {schema[key]!r}, not a list with something in it"
    for key in ("minimum", "maximum"):
        if key in schema and not _IS["number"](schema[key]):
            return f"{where}: {key} is {schema[key]!r}, not a number"
    known = schema.get("properties", {})
    if not isinstance(known, Mapping):
        return f"{where}: properties is {known!r}, not an object"
    more = schema.get("additionalProperties", False)
    for name in schema.get("required", ()):
        if name not in known and not more and more != {}:
            return f"{where}: {name!r} is required and not among the properties {sorted(known)}"
    members = {repr(name): member for name, member in known.items()}
    members |= {f"{where}: anyOf[{i}]": each for i, each in enumerate(schema.get("anyOf", ()))}
    members |= {f"{where}: items": schema["items"]} if "items" in schema else {}
    members |= {f"{where}: additionalProperties": more} if not isinstance(more, bool) else {}
    wrong = (flaw(member, name) for name, member in members.items())
    return next((each for each in wrong if each), None)


def mismatch(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    """The first thing in which a value breaks a schema, as a sentence; None if it keeps it.

    Looks at ``type``, ``enum``, ``anyOf``, ``minimum``, ``maximum``, ``items``, ``properties``,
    ``required`` and ``additionalProperties``; what other keywords ask for is the tool's own to
    check.

    Args:
        value: From JSON.
        schema: A JSON schema.
        where: What the value is called in the sentence.
    """
    named = schema.get("type")
    if named is not None:
        types = [named] if isinstance(named, str) else list(named)
        if not any(_IS[each](value) for each in types if each in _IS):
            actual = next(name for name, is_it in _IS.items() if is_it(value))
            return f"{where} must be of type {' or '.join(types)}, not {actual}"
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        options = ", ".join(json.dumps(each) for each in schema["enum"])
        return f"{where} must be one of {options}"
    if "anyOf" in schema:
        wrong = [mismatch(value, option, where) for option in schema["anyOf"]]
        if None not in wrong:
            return " and ".join(dict.fromkeys(map(str, wrong)))
    if _IS["number"](value):
        if value < schema.get("minimum", value):
            return f"{where} must be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            return f"{where} must be at most {schema['maximum']}"
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            if wrong_item := mismatch(item, schema["items"], f"{where}[{index}]"):
                return wrong_item
    if isinstance(value, dict) and ("properties" in schema or "required" in schema):
        return _wrong_member(value, schema, where)
    return None


def as_meant(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value that keeps a schema, with ``int`` for the numbers that it asks to be integers.

    Models write ``1.0`` or ``1e3`` where a tool takes an integer; JSON Schema calls both integers.
    """
    if "enum" in schema:
        return next(each for each in schema["enum"] if _same(value, each))
    if isinstance(value, float):
        types = _types(schema)
        return int(value) if "integer" in types and "number" not in types else value
    fits = (each for each in schema.get("anyOf", ()) if mismatch(value, each, "") is None)
    value = as_meant(value, option) if (option := next(fits, None)) else value
    if isinstance(value, list) and "items" in schema:
        return [as_meant(item, schema["items"]) for item in value]
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        other = more if isinstance(more, Mapping) else {}
        return {name: as_meant(member, known.get(name, other)) for name, member in value.items()}
    return value


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON, where true is not 1."""
    return isinstance(a, bool) is isinstance(b, bool) and bool(a == b)


def _wrong_member(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where}: {name!r} is missing"
    for name, member in value.items():
        if name in known:
            wrong = mismatch(member, known[name], ascii(name))
        elif isinstance(more := schema.get("additionalProperties", False), Mapping):
            wrong = mismatch(member, more, ascii(name))
        else:
            wrong = None if more else f"{where}: there is no {name!a}, only {sorted(known)}"
        if wrong:
            return wrong
    return None


def read_typed(text: str, schema: Mapping[str, Any]) -> Any:
    """A value written without quotes, typed by its schema.

    Text stays text where the schema allows a string and nothing else fits; true, false and null
    may be capitalised (chat templates print Python's words).

    Raises:
        ValueError: The text is no value of an allowed type.
    """
    types = _types(schema)
    if not types - {"string"}:
        return text
    word = text.strip().lower()
    if "null" in types and word in ("null", "none"):
        return None
    if "boolean" in types and word in ("true", "false"):
        return word == "true"
    try:
        value = read_json(text)
        if "string" in types and (isinstance(value, str) or mismatch(value, schema, "")):
            return text  # quotes are a part of it
    except ValueError:
        if "string" in types:
            return text
        raise
    return value
