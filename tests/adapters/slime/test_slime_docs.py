"""``docs/slime.md`` names every key, every flag that is checked, and the defaults."""

import re
from pathlib import Path

import attrs
from focus_adapter_slime.objective import RULES
from focus_adapter_slime.settings import PREFIX, Settings

PAGE = (Path(__file__).parents[3] / "docs/slime.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(focus_\w+)` \| (.*?) \|", PAGE, re.MULTILINE))


def test_every_key_is_in_the_table_in_order():
    assert list(ROWS) == [PREFIX + field.name for field in attrs.fields(Settings)]


def test_defaults_are_those_of_the_program():
    own = {
        PREFIX + field.name: field.default
        for field in attrs.fields(Settings)
        if isinstance(field.default, bool | int | float | str)
    }
    assert len(own) > 8
    for key, default in own.items():
        shown = ROWS[key].strip("`")
        said = str(default).lower() if isinstance(default, bool) else default
        assert shown == (f"{said:g}" if isinstance(said, float) else str(said)), key


def test_every_flag_that_is_checked_is_named():
    said = PAGE.split("## What is checked")[1].split("\n## ")[0]
    for rule in RULES:
        named = {rule.flag, f"--disable-{rule.flag.removeprefix('--')}"}
        assert named & set(re.findall(r"--[a-z-]+", said)), rule.flag
