"""LaTeX whose backslash an escape ate: every command that has one, and no prose."""

import json
import time
from pathlib import Path

import pytest
from focus_task_math.eaten import find_eaten

ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# Not the module's own list: what a mathematician writes.
COMMANDS = """
bar begin{cases} beta bf big Bigg bigcap bigcup bigl bigr binom{5}{2} blacksquare bmod boldsymbol{x}
bot boxed{2} bullet fbox{2} forall frac{1}{2} frac12 frown
nabla natural ncong ne nearrow neg neq nexists ngeq ni nleq nless nmid not notin nparallel nsim
nsubseteq nu nRightarrow nwarrow
rangle rbrace rceil rfloor rho right) rightarrow rightleftharpoons rm{cm} rtimes rvert
tan tan^{-1} tanh tau tbinom{5}{2} text{odd} textbf{x} textit{x} textrm{x} tfrac{1}{2} therefore
theta thinspace tilde{x} times to top triangle triangleleft twoheadrightarrow
""".split()  # noqa: SIM905
SETTINGS = [
    ("2 {} 3", True),
    ("{} x", True),
    ("2{}", True),
    ("Find $2 {} x$ now", False),
    ("so $y + {}$", False),
    ("so\n\\[2 {} x = 1\\]", False),
    ("\\begin{{align*}}\nx &= 2 {} y \\\\\n&= 3\n\\end{{align*}}", False),
]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] in ESCAPES])
def test_every_command_everywhere(command):
    for setting, bare in SETTINGS:
        eaten = setting.format(ESCAPES[command[0]] + command[1:])
        assert find_eaten(eaten, bare=bare), repr(eaten)
        assert json.loads(json.dumps(eaten)) == eaten
        assert not find_eaten(setting.format("\\" + command), bare=bare)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("an x", "tan"), ("an^{-1} 2", "tan"), ("an(3)", "tan"), ("2imes 3", "times"),
        ("heta", "theta"), ("ext{odd}", "text"), ("rac{1}{2}", "frac"), ("rac12", "frac"),
        ("oxed{3}", "boxed"), ("eq 3, otin", "notin"), ("x^{lpha}", "alpha"), ("anh x", "tanh"),
        ("pprox 3", "approx"), ("nderline{x}", "underline"), ("arepsilon", "varepsilon"),
    ],
)  # fmt: skip
def test_a_command_without_its_beginning(text, command):
    found = find_eaten(text, bare=True)
    assert found is not None
    assert not found.certain
    assert found.command == f"\\{command}"
    assert f"\\{command}?" in found.found


@pytest.mark.parametrize(
    "text",
    ["Find x\ne 2", "Let n \ne 2.", "a \nmid b", "Is \tan x large?", "as x \to 0", "f(x)\to 1"],
)
def test_doubtful_words_count_in_prose_where_they_are_applied(text):
    found = find_eaten(text)
    assert found is not None
    assert not found.certain


@pytest.mark.parametrize(
    "text",
    [
        "Two lines\nare parallel.\nmid-point\nless than 3\nexists\nu and v\ni) one\ne.g. 3",
        "Tan:\ta tan\tan apple\nequal parts\nnot eq\tto\rm",
        "Solve:\ne^x = 3\nu(x) = 2\r\nu = 3\r\ni = 4",
        "name\tage\nan\t3\no\tx\n",
        "\\begin{align*}\nu + v &= 3 \\\\\nu - v &= 1, \\\\[2pt]\ne^x &=\ni\n\\end{align*}",
        "\\[\ne^x = u\n\\]and $$\ni = 1$$",
        "$x = \\text{one\nless}$",
        "It costs \\$5,\nu pay \\$6.",
        "x_{ext} is an external force, an int or a text",
        "angle, floor, box, dots and the eta function; \\operatorname{rank} frac",
        "for (int i = 0;\n\ti < 3; ++i)\n\tu[i] = i;",
    ],
)
def test_prose_and_rows_are_no_false_alarm(text):
    assert find_eaten(text) is None


@pytest.mark.parametrize(
    "text", ["an isosceles triangle", "e^x", "u(x)", "i", "an", "box 3", "1\\\\\nu"]
)
def test_answers_that_are_as_they_were_written(text):
    assert find_eaten(text, bare=True) is None


def test_real_problems_are_no_false_alarm():
    shared = Path(__file__).parents[4] / "shared/data/math500-a.jsonl"
    if not shared.exists():
        pytest.skip("no ../shared")
    for line in shared.read_text().splitlines():
        record = json.loads(line)
        for field in ("problem", "solution", "answer"):
            assert find_eaten(record[field], bare=field == "answer") is None, record["id"]


def test_what_is_certain_comes_before_what_is_not():
    found = find_eaten("$x \ne 2$ and $a \times b$")
    assert found is not None
    assert found.command == "\\times"
    assert found.certain


def test_a_long_text_of_doubts_is_read_at_once():
    began = time.monotonic()
    find_eaten("\ni \\(" * 50_000)
    find_eaten("\nu " * 100_000)
    assert time.monotonic() - began < 5.0
