"""Reading the flags that we print, as a shell and as Slime do."""

import json
import shlex
from types import SimpleNamespace

NEGATED = {"disable_rewards_normalization": "rewards_normalization"}


def words_of(text):
    """The words of printed flags: each line but the last ends in a backslash."""
    lines = text.splitlines()
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert not lines[-1].endswith("\\")
    return shlex.split(text.replace("\\\n", ""))


def as_args(words):
    """Attributes, as Slime's parser names them."""
    found = {}
    while words:
        name, *words = words
        assert name.startswith("--"), name
        values = []
        while words and not words[0].startswith("--"):
            values.append(words.pop(0))
        name = name.removeprefix("--").replace("-", "_")
        value = [_value(text) for text in values]
        found[NEGATED.get(name, name)] = value[0] if value else name not in NEGATED
    return SimpleNamespace(**found)


def _value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text
