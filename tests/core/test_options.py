"""Options from text: conversions by annotation, and one readable line for every mistake."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

# ruff: noqa: UP007, UP045  # both spellings of unions are accepted
from focus_core import Independent, Selective, UnknownNameError, UsageError
from focus_core.plugins.options import build, closest, evolve, options_of
from focus_core.run.config import parse_settings

if TYPE_CHECKING:
    from decimal import Decimal


def convert(kind, text):
    """What an option of that annotation becomes."""

    def factory(option):
        return option

    factory.__annotations__ = {"option": kind}
    return build(factory, {"option": text}, "thing")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "3", 3),
        (int, "-3", -3),
        (int, " 3 ", 3),
        (float, "1e-5", 1e-5),
        (float, "1E-5", 1e-5),
        (float, "3", 3.0),
        (float, ".5", 0.5),
        (float, "-2.5", -2.5),
        (float, "inf", math.inf),
        (bool, "true", True),
        (bool, "True", True),
        (bool, "FALSE", False),
        (str, "word", "word"),
        (str, "123", "123"),
        (str, "1e-5", "1e-5"),
        (str, "true", "true"),
        (str, "null", "null"),
        (str, "", ""),
        (str, "[1]", "[1]"),
        (str, "a=b=c", "a=b=c"),
        (str | None, "none", None),
        (str | None, "None", None),
        (str | None, "null", None),
        (str | None, "", None),
        (str | None, "7", "7"),
        (int | None, "7", 7),
        (int | None, "none", None),
        (Optional[float], "1e-5", 1e-5),
        (Optional[float], "none", None),
        (Union[int, str], "7", 7),
        (Union[int, str], "seven", "seven"),
        (bool | int, "true", True),
        (bool | int, "2", 2),
        (Literal["a", "b"], "b", "b"),
        (Literal[1, 2], "2", 2),
        (Literal["a"] | None, "none", None),
        (Literal[True, False], "True", True),
        (tuple[int, ...], "1,2,3", (1, 2, 3)),
        (tuple[int, ...], "[1, 2, 3]", (1, 2, 3)),
        (tuple[int, ...], "5", (5,)),
        (tuple[int, ...], "[]", ()),
        (tuple[float, ...], "1e-5,2", (1e-5, 2.0)),
        (tuple[str, ...], "a,b", ("a", "b")),
        (tuple[str, ...], "1,2", ("1", "2")),
        (tuple[str, ...], "only", ("only",)),
        (tuple[str, ...], '["a,b", "c"]', ("a,b", "c")),
        (tuple[int, str], "1,x", (1, "x")),
        (tuple[int, ...] | None, "1,2", (1, 2)),
        (Sequence[int], "1,2", (1, 2)),
        (Sequence[str], '["a"]', ("a",)),
        (tuple, "a,b", ("a", "b")),
        (dict, '{"a": 1}', {"a": 1}),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Mapping[str, Any], '{"a": [1, null]}', {"a": [1, None]}),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], "1, 2", [1, 2]),
        (list[str], "", []),
        (Path, "a/b", Path("a/b")),
        (Path | None, "a/b", Path("a/b")),
        (Any, "3", 3),
        (Any, "1e-5", 1e-5),
        (Any, "true", True),
        (Any, "word", "word"),
        (Any, '{"a": 1}', {"a": 1}),
    ],
    ids=str,
)
def test_conversion(kind, text, value):
    found = convert(kind, text)
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, tuple | list):
        assert [type(item) for item in found] == [type(item) for item in value]


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (int, "3.5", "not an integer"),
        (int, "1e3", "not an integer"),
        (int, "", "not an integer"),
        (int, "true", "not an integer"),
        (int, "9" * 5000, "not an integer"),
        (float, "x", "not a number"),
        (float, "1,5", "not a number"),
        (float, "nan", "not a number"),
        (float, "NaN", "not a number"),
        (float | None, "-nan", "none of"),
        (bool, "1", "not true or false"),
        (bool, "yes", "not true or false"),
        (bool, "", "not true or false"),
        (Literal["a", "b"], "c", "not one of a, b"),
        (Literal["a", "b"] | None, "c", "none of"),
        (int | None, "x", "none of"),
        (tuple[int, ...], "1,x", "not an integer"),
        (tuple[int, ...], '{"a": 1}', "tuple"),
        (tuple[int, int], "1,2,3", "tuple"),
        (dict, "[1]", "dict"),
        (dict, "{'a': 1}", "dict"),
        (list[int], "3,x", "not an integer"),
        (list[int], '{"a": 1}', "list"),
        (complex, "1j", "complex"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_a_value_of_another_type_is_one_line_that_names_the_option(kind, text, says):
    with pytest.raises(UsageError, match=says) as caught:
        convert(kind, text)
    message = str(caught.value)
    assert message.startswith("thing.option=")
    assert "\n" not in message
    assert len(message) < 6000


@given(st.floats(allow_nan=False))
def test_every_float_survives(value):
    assert convert(float, repr(value)) == value


@given(st.integers())
def test_every_integer_survives(value):
    assert convert(int, str(value)) == value


@given(st.text())
def test_every_text_survives(value):
    assert convert(str, value) == value


@given(st.text(), st.sampled_from([int, float, bool, tuple[int, ...], dict, int | None, Any]))
def test_any_text_is_converted_or_refused_as_a_usage_error(text, kind):
    try:
        convert(kind, text)
    except UsageError as error:
        assert str(error).startswith("thing.option=")  # noqa: PT017


def test_values_that_are_no_text_are_left_alone():
    marker = object()
    assert convert(int, marker) is marker
    assert convert(int, 3) == 3


# Names ----------------------------------------------------------------------------------------


@attrs.frozen
class Thing:
    """Options of every kind."""

    size: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    rate: float = attrs.field(default=0.5, validator=attrs.validators.lt(1.0))
    label: str | None = None
    kind: Literal["a", "b"] = attrs.field(default="a", validator=attrs.validators.in_(("a", "b")))
    hidden: int = attrs.field(default=0, init=False)
    _private: int = 7


def test_an_unknown_option_lists_the_known_and_guesses():
    with pytest.raises(UnknownNameError) as caught:
        build(Thing, {"szie": "3"}, "search")
    message = str(caught.value)
    assert message == (
        "search.szie does not exist (did you mean size?); "
        "search takes: size, rate, label, kind, private"
    )


def test_a_factory_without_options_says_so():
    with pytest.raises(UnknownNameError, match="recipe takes: no options"):
        build(lambda: None, {"x": "1"}, "recipe")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"size": "0"}, "'size' must be >= 1: 0"),
        ({"rate": "1.5"}, "'rate' must be < 1.0: 1.5"),
        ({"kind": "c"}, "not one of a, b"),
        ({"size": "x"}, "thing.size='x' is not an integer"),
    ],
)
def test_validators_become_one_line(given, says):
    for made in (lambda: build(Thing, given, "thing"), lambda: evolve(Thing(), given, "thing")):
        with pytest.raises(UsageError, match=says) as caught:
            made()
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("thing")


def test_a_missing_required_option_is_named():
    def factory(*, path: str):
        return path

    with pytest.raises(UsageError, match="path"):
        build(factory, {}, "trainer")


def test_a_usage_error_of_the_factory_passes_as_it_is():
    def factory():
        raise UsageError("my own words")

    with pytest.raises(UsageError, match=r"^my own words$"):
        build(factory, {}, "trainer")


def test_another_error_of_the_factory_passes_as_it_is():
    def factory():
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        build(factory, {}, "trainer")


def test_postponed_annotations_of_attrs_classes_are_resolved():
    assert options_of(Thing)["size"].annotation is int
    assert build(Thing, {"label": "7", "private": "8"}, "t") == Thing(label="7", private=8)


@attrs.frozen
class Partly:
    """One annotation that only type checkers can resolve."""

    amount: Decimal | None = None
    flag: bool = True
    name: str = "x"


def test_one_unresolvable_annotation_does_not_spoil_the_others():
    made = build(Partly, {"flag": "False", "name": "12"}, "task")
    assert made == Partly(flag=False, name="12")


def test_functions_take_their_keywords_as_options():
    def factory(a: int, *rest: int, b: float = 1.0, **more: int):
        return a, b

    assert list(options_of(factory)) == ["a", "b"]
    assert build(factory, {"a": "1", "b": "2"}, "x") == (1, 2.0)


# Evolve ---------------------------------------------------------------------------------------


def test_evolve_changes_what_is_given_and_keeps_the_rest():
    base = Thing(size=9, label="kept")
    assert evolve(base, {"rate": "1e-5"}, "t") == Thing(size=9, label="kept", rate=1e-5)
    assert evolve(base, {"private": "3"}, "t") == Thing(size=9, label="kept", private=3)
    assert evolve(base, {}, "t") is base
    assert base == Thing(size=9, label="kept")


def test_evolve_lists_the_options_of_the_class():
    with pytest.raises(UnknownNameError, match=r"search\.n does not exist.*budget, warmup"):
        evolve(Selective(), {"n": "3"}, "search")


def test_searches_convert():
    assert evolve(Selective(), {"budget": "8", "max_concurrency": "1"}, "search") == Selective(
        budget=8, max_concurrency=1
    )
    assert evolve(Independent(4), {"max_concurrency": "2"}, "search") == Independent(
        4, max_concurrency=2
    )


def test_closest():
    assert closest("selectiv", ["selective", "independent"]) == " (did you mean selective?)"
    assert closest("zzz", ["selective"]) == ""


@attrs.frozen
class Converted:
    """A converter hides the field's type from the constructor's signature."""

    levels: tuple[int, ...] = attrs.field(default=(1,), converter=tuple)


@attrs.frozen
class Heir(Converted):
    more: float = 0.5


def test_a_fields_type_counts_behind_a_converter():
    assert build(Heir, {"levels": "4,5,6", "more": "1"}, "task") == Heir((4, 5, 6), 1.0)
    with pytest.raises(UsageError, match="integer"):
        build(Converted, {"levels": "4,x"}, "task")


def test_the_size_of_a_group_needs_no_section():
    assert parse_settings(["group_size=8", "search.budget=3"]) == {
        "recipe": {"group_size": "8"},
        "search": {"budget": "3"},
    }
    for wrong in ("group_size", "groupsize=8", "x.group_size.y"):
        with pytest.raises(UsageError):
            parse_settings([wrong])
