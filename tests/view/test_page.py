"""The page in a real browser: quick, quiet, usable by keyboard and on a phone, and inert."""

import json
import math

import pytest

from focus_core.view import SavedTree, render_html
from tests.view.view_kit import HOSTILE, hostile, saved

pytestmark = pytest.mark.timeout(300)
WIDE, PHONE = (1280, 800), (360, 720)


@pytest.fixture(scope="module")
def large():
    """A tree of two thousand states, really collected."""
    tree = saved(budget=1750, warmup=300, max_concurrency=8, steps=10)
    assert len(tree.nodes) >= 2000
    return tree


@pytest.fixture
def show(browser, tmp_path):
    """Open trees in a viewport; afterwards nothing may have been asked for or complained of."""

    def open_page(trees, size=WIDE):
        (tmp_path / "page.html").write_text(render_html(trees))
        browser.size(*size)
        return browser.open(tmp_path / "page.html")

    yield open_page
    assert browser.requests == []
    assert browser.complaints == []


def title(browser):
    return browser.run("document.querySelector('#details h2').textContent")


def text(browser, selector):
    return browser.run(f"document.querySelector({json.dumps(selector)})?.innerText")


def focused(browser):
    return browser.run("document.activeElement.id")


def drawn(browser):
    """The distinct colours on the canvas."""
    return browser.run(
        "(() => { const c = document.getElementById('canvas'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; const s = new Set();"
        "for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200)"
        "s.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]); return s.size })()"
    )


def test_two_thousand_states_open_in_under_two_seconds(browser, show, large):
    assert show(large) < 2.0
    assert text(browser, "#summary").startswith(f"{len(large.nodes)} states")
    assert drawn(browser) > 20


def test_two_thousand_states_stay_fluid(browser, show, large):
    show(large)
    script = """(async () => {
        const canvas = document.getElementById("canvas"), times = [];
        const frame = () => new Promise(requestAnimationFrame);
        for (let i = 0; i < 40; i++) {
            canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: i < 20 ? -60 : 60,
                clientX: 400, clientY: 400, bubbles: true, cancelable: true }));
            const start = performance.now();
            await frame();
            await frame();
            times.push((performance.now() - start) / 2);
        }
        return times.sort((a, b) => a - b)[20];
    })()"""
    assert browser.run(script) < 50.0  # milliseconds a frame; a screen's own pace is 17


def test_the_keyboard_walks_the_tree(browser, show, tree):
    show(tree)
    children = {}
    for node in tree.nodes[1:]:
        children.setdefault(node.parent, []).append(node.id)
    first, second = children[0][:2]
    assert title(browser) == "State 0"
    for key, state in [
        ("ArrowRight", first),
        ("ArrowDown", second),
        ("ArrowUp", first),
        ("ArrowRight", children[first][0]),
        ("ArrowLeft", first),
        ("ArrowLeft", 0),
        ("ArrowLeft", 0),
        ("ArrowRight", first),
        ("Home", 0),
    ]:
        browser.press(key)
        assert title(browser) == f"State {state}", key
    browser.press("End")
    assert text(browser, "#details .kind") == "terminal"
    browser.press("Home", "ArrowRight")
    item = "document.getElementById('item')"
    assert browser.run(f"{item}.getAttribute('aria-level')") == "2"
    assert browser.run(f"{item}.getAttribute('aria-setsize')") == str(len(children[0]))
    assert f"State {first}," in browser.run(f"{item}.textContent")
    browser.press("Enter")
    assert focused(browser) == "details"
    browser.press("Escape")
    assert focused(browser) == "tree"
    browser.press("Shift+?")
    assert browser.run("document.getElementById('help').open")
    browser.press("Escape")
    assert not browser.run("document.getElementById('help').open")


def test_everything_is_reached_by_tab_and_has_a_name(browser, show, tree):
    show([tree, tree])
    browser.press("ArrowRight")
    nameless = browser.run(
        "[...document.querySelectorAll('button, input, select, [tabindex]')].filter(e => "
        "!(e.ariaLabel || e.innerText || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert nameless == []
    seen = []
    for _ in range(40):
        browser.press("Tab")
        seen.append(browser.run("document.activeElement.id || document.activeElement.className"))
    assert {"trees", "colour", "query", "helper", "fit", "tree", "launch"} <= set(seen)
    assert "text tokens" in seen


def test_a_states_numbers_and_its_tokens_on_demand(browser, show, tree):
    show(tree)
    browser.press("ArrowRight")
    node = tree.nodes[1]
    numbers = text(browser, ".numbers").split("\n")
    shown = dict(zip(numbers[::2], numbers[1::2], strict=True))
    assert shown["prediction"] == f"{node.prediction:.3f}"
    assert shown["value"] == f"{node.value:.3f}"
    assert shown["visits"] == str(node.visits)
    assert shown["branches"] == str(node.branches)
    assert shown["tokens"] == str(len(node.tokens))
    assert shown["advantage"].replace("\u2212", "-") == f"{node.advantage:+.3f}"
    assert browser.run("document.querySelector('.tokens').textContent") == "".join(node.pieces)
    browser.run("document.querySelector('.tokens').focus()")
    browser.press("ArrowRight", "ArrowRight")
    assert title(browser) == "State 1", "the arrows step through tokens there"
    readout = text(browser, ".readout").replace("\u2212", "-")
    assert f"token {node.tokens[1]} no. 2 of {len(node.tokens)}" in readout
    assert f"log p {node.logprobs[1]:.3f}" in readout


def test_why_a_state_was_chosen(browser, show, tree):
    launches = tree.launches
    launch = launches["phase"].index("refinement")
    state, worth = launches["state"][launch], launches["worth"][launch]
    show(tree)
    browser.press("/")
    browser.call("Input.insertText", text=f"#{state}")
    browser.press("Enter")
    assert title(browser) == f"State {state}"
    assert browser.run("document.querySelectorAll('.chart .dot').length") == launches[
        "state"
    ].count(state)
    browser.run("document.querySelector('details summary').click()")
    browser.settle()
    rows = [row.split("\t") for row in text(browser, "#details table").split("\n")]
    row = next(row for row in rows if row[0] == str(launch))
    assert row[1] == "refinement"
    assert row[2].startswith(f"{worth:.4f} (no. ")
    browser.press("Escape")
    while int(browser.run("document.getElementById('launch').value")) > launch:
        browser.press(",")
    assert f"{launch} of {len(launches['state'])} · refinement: from state {state}" in text(
        browser, "#moment"
    )


def changed(tree, numbers=(), **fields):
    """The tree with other fields, and other numbers in some states."""
    form = {**tree.to_dict(), **fields}
    for state, values in numbers:
        form["nodes"][state].update(values)
    return SavedTree.from_dict(form)


def marks(browser):
    """Where each mark of the value bar stands: shares of its axis."""
    return browser.run(
        "Object.fromEntries([...document.querySelectorAll('.bar path[transform]')].map(e =>"
        " [e.getAttribute('class'), (Number(/\\(([-\\d.e]+)/.exec(e.getAttribute('transform'))[1])"
        " - 10) / 360]))"
    )


def test_values_stand_on_one_scale_from_0_to_1_however_close_they_are(browser, show, tree):
    form = tree.to_dict()
    near = [(n, {"prediction": 0.4, "value": 0.45, "target": 0.5}) for n in range(len(tree.nodes))]
    form["nodes"] = [node | values for node, (_, values) in zip(form["nodes"], near, strict=True)]
    for node in form["nodes"]:
        node["reward"] = 0.5
    form["nodes"][-1]["reward"] = 1 + 2**-40  # what rounding makes of 1
    show(SavedTree.from_dict(form))
    assert text(browser, "#legend").split("\n")[0].startswith("value")
    assert browser.run(
        "[...document.querySelectorAll('#legend .number')].map(e => e.innerText)"
    ) == [
        "0",
        "1",
    ]
    assert marks(browser) == pytest.approx({"prediction": 0.4, "value": 0.45, "target": 0.5})


def test_beyond_0_to_1_the_scale_reaches_over_every_number_and_clamps_none(browser, show, tree):
    inner = next(n.id for n in tree.nodes if n.id and n.kind == "open" and n.target is not None)
    show(
        changed(
            tree,
            [(0, {"prediction": -2.0, "value": 1.0, "target": 2.5}), (inner, {"value": 8.0})],
        )
    )
    ends = "[...document.querySelectorAll('.bar text')].map(e => e.textContent)"
    assert browser.run(ends) == ["\u22122", "8"]
    assert marks(browser) == pytest.approx({"prediction": 0.0, "value": 0.3, "target": 0.45})
    assert browser.run(
        "[...document.querySelectorAll('#legend .number')].map(e => e.innerText)"
    ) == [
        "\u22122",
        "8",
    ]


def test_the_tint_of_tokens_is_their_improbability(browser, show, tree):
    form = tree.to_dict()
    form["nodes"][1]["logprobs"] = [-9.0, -6.0, *form["nodes"][1]["logprobs"][2:]]
    show(SavedTree.from_dict(form))
    browser.press("ArrowRight")
    tints = browser.run(
        "[...document.querySelectorAll('.token')].map(e => "
        "Number(e.style.getPropertyValue('--surprise')))"
    )
    wanted = [1 - math.exp(logprob) for logprob in form["nodes"][1]["logprobs"]]
    assert tints == pytest.approx(wanted, abs=6e-4)
    assert tints[0] > tints[1]


def test_the_expected_answer_stands_at_the_prompt_and_at_ends(browser, show, tree):
    show(changed(tree, label="x = <b>7</b>"))
    assert text(browser, ".expected") == "x = <b>7</b>"
    browser.press("ArrowRight")
    assert text(browser, ".expected") is None
    browser.press("End")
    assert text(browser, ".expected") == "x = <b>7</b>"
    show(tree)  # without a label
    assert text(browser, ".expected") is None


def test_a_legend_says_what_value_worth_target_and_launch_are(browser, show, tree):
    show(tree)
    for _ in range(2):
        legend = browser.run(
            "[...document.querySelectorAll('#details details')].find(e => "
            "e.innerText.startsWith('What the words mean')).innerText"
        )
        for word in ("value", "worth", "target", "launch", "prediction", "advantage"):
            assert f"\n{word}\n" in legend
        browser.press("ArrowRight")


CALLS = {
    "hermes": '<think>a <tool_call> in mind</think>Let me see.\n<tool_call>\n{"name": "look_up", '
    '"arguments": {"word": "a </tool_call> b", "most": 3, "deep": {"x": [1]}}}\n</tool_call>',
    "qwen-xml": "<think>a <tool_call> in mind</think>Let me see.\n<tool_call>\n<function=look_up>\n"
    "<parameter=word>\na </tool_call> b\n</parameter>\n<parameter=most>\n3\n</parameter>\n"
    '<parameter=deep>\n{"x":[1]}\n</parameter>\n</function>\n</tool_call>',
}


@pytest.mark.parametrize("dialect", sorted(CALLS))
def test_calls_and_results_of_tools_are_set_apart(browser, show, tree, dialect):
    """A turn may be written by several edges; its call is read as a whole."""
    form, written = tree.to_dict(), CALLS[dialect]
    first = form["nodes"][0]["id"]
    one = next(n for n in form["nodes"] if n["parent"] == first and n["kind"] == "open")
    two = next(n for n in form["nodes"] if n["parent"] == one["id"] and n["kind"] == "open")
    for node, said in ((one, written[:70]), (two, written[70:])):
        node["pieces"] = [said, *[""] * (len(node["tokens"]) - 1)]
    result = {"role": "tool", "name": "look_up", "content": "<i>a word</i>"}
    two |= {"answer": [result], "rendered": [1], "rendered_text": "<tool>"}
    show(SavedTree.from_dict(form))
    browser.press("/")
    browser.call("Input.insertText", text=f"#{two['id']}")
    browser.press("Enter")
    (call,) = browser.run("[...document.querySelectorAll('.call')].map(e => e.innerText)")
    lines = [line for line in call.split("\n") if line]
    assert lines == ["calls look_up", "word", "a </tool_call> b", "most", "3", "deep", '{"x":[1]}']
    assert text(browser, ".part.thinking") == "<think>a <tool_call> in mind</think>"
    assert text(browser, ".part:not(.thinking)").startswith("Let me see.")
    assert text(browser, ".result").split("\n")[0] == "result look_up"
    assert text(browser, ".result .text") == "<i>a word</i>"
    raw = browser.run("document.querySelector('.tokens').textContent")
    assert raw.startswith(written[70:].replace("\n", "\u21b5\n"))
    browser.press("Escape", "ArrowLeft")
    assert "not finished here" in text(browser, ".call")
    browser.press("ArrowRight", "ArrowRight")
    assert text(browser, ".call") is None, "the next turn's own"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<tool_call>{1}</tool_call>", "calls a tool (no JSON)"),
        ('<tool_call>{"arguments": {}}</tool_call>', "calls a tool (no call)"),
        ("<tool_call><function=f><parameter=a></tool_call>", "calls f (broken off)"),
        ('<tool_call>{"name": "f"}</tool_call>', "calls f"),
    ],
)
def test_a_call_that_cannot_be_read_is_shown_raw(browser, show, tree, said, shown):
    form = tree.to_dict()
    form["nodes"][1]["pieces"] = [said, *[""] * (len(form["nodes"][1]["tokens"]) - 1)]
    show(SavedTree.from_dict(form))
    browser.press("ArrowRight")
    assert text(browser, ".call .role") == shown
    if "(" in shown:
        assert text(browser, ".call .text") == said


def test_search_in_text(browser, show, tree):
    show(tree)
    wanted = "".join(tree.nodes[5].pieces)[4:11]
    matches = [n.id for n in tree.nodes if wanted in "".join(n.pieces) + n.rendered_text]
    browser.press("/")
    assert focused(browser) == "query"
    browser.call("Input.insertText", text=wanted)
    browser.settle()
    assert text(browser, "#found") == f"{len(matches)} found"
    for state in [*matches, matches[0]]:
        browser.press("Enter")
        assert title(browser) == f"State {state}"
        hit = "[...document.querySelectorAll('.token.hit')].map(e => e.textContent).join('')"
        assert wanted in browser.run(hit)
    browser.press("Escape", "Shift+N")
    assert title(browser) == f"State {matches[-1]}"


def test_a_click_selects_what_lies_under_it(browser, show, tree):
    show(tree)
    x, y = browser.run(
        "(() => { const b = document.getElementById('canvas').getBoundingClientRect();"
        "return [b.left + 22, b.top] })()"
    )
    browser.press("End")
    end = title(browser)
    assert end != "State 0"
    height = browser.run("document.getElementById('canvas').clientHeight")
    for step in range(0, int(height), 6):  # the root stands at the left, at some height
        browser.click(x, y + step)
        if title(browser) == "State 0":
            break
    assert title(browser) == "State 0"


def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser, show, large):
    show(large, PHONE)
    for _ in range(3):
        assert browser.run("document.documentElement.scrollWidth") == PHONE[0]
        wide = browser.run(
            "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right"
            " > innerWidth + 1 && !e.closest('.wide, svg, dialog, .unseen')).map(e => e.outerHTML)"
        )
        assert wide == []
        browser.press("ArrowRight")
    top = browser.run("document.getElementById('details').getBoundingClientRect().top")
    assert top > browser.run("document.getElementById('tree').getBoundingClientRect().bottom")


def test_dark_and_light_follow_the_user(browser, show, tree):
    grounds = []
    for dark in (False, True):
        show(tree)
        browser.size(*WIDE, dark=dark)
        browser.settle()
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
        assert drawn(browser) > 20
    assert grounds[0] != grounds[1]


def test_several_trees_are_chosen_from_a_list(browser, show, tree, large):
    show([tree, large])
    assert browser.run("document.getElementById('trees').length") == 2
    browser.press("ArrowRight", "]")
    assert text(browser, "#summary").startswith(f"{len(large.nodes)} states")
    assert title(browser) == "State 0"
    browser.press("[")
    assert text(browser, "#summary").startswith(f"{len(tree.nodes)} states")


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_hostile_texts_do_nothing(browser, show, tree, size):
    bad = hostile()
    show(bad, size)
    name = browser.run("document.title")
    every = "[...document.querySelectorAll('*')].map(e => e.localName)"
    known = {*browser.run(every)}
    for _ in bad.nodes:
        browser.press("ArrowDown")
        browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
        browser.press("c", "ArrowRight", ",")
    browser.press("Home")
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    browser.settle()
    assert browser.run("[typeof window.pwned, document.title]") == ["undefined", name]
    ours = {"details", "summary", "table", "tr", "th", "td", "svg", "path", "circle", "text"}
    ours |= {"nav", "b", "code", "section", "div", "span", "button", "p", "dl", "dt", "dd", "h3"}
    assert set(browser.run(every)) <= known | ours
    assert browser.run("document.scripts.length") == 2
    assert browser.run("document.images.length") == 0
    shown = browser.run("document.body.innerText")
    for character in "\x1b\u202e\u2066\u200f\u061c\u200b\ufeff\u2028\x00\x85\U000e0041\ue000":
        assert character not in shown
    assert HOSTILE[0] in shown
    for mark in ("ESC", "202E", "2066", "200F", "2028", "NUL", "D800", "E0041"):
        assert f"\u27e8{mark}\u27e9" in shown
    assert browser.run("document.documentElement.scrollWidth") == size[0]


def test_the_policy_of_the_page_stops_what_would_get_through(browser, show, tree):
    """Were a script or an image of a tree's ever to become an element, it would not load."""
    show(tree)
    script = (
        "(async () => { const s = document.createElement('img'); s.src = 'https://a.invalid/x';"
        "document.body.append(s); const refused = new Promise(d => document.addEventListener("
        "'securitypolicyviolation', e => d(e.effectiveDirective), {once: true}));"
        "return refused })()"
    )
    assert browser.run(script) == "img-src"
    assert (
        browser.run(
            "(() => { try { document.body.innerHTML = '<b>'; return 'set' } "
            "catch (error) { return error.name } })()"
        )
        == "TypeError"
    )
    refused = [p for m, p in browser.events if m == "Network.loadingFailed"]
    assert [p["blockedReason"] for p in refused] == ["csp"]
    browser.events.clear()  # the console says so too


ODD = {"toString": 1, "valueOf": None, "toJSON": 2, "__proto__": 3}


def test_a_value_of_any_shape_is_shown_as_it_is_in_the_file(browser, show, tree):
    form = tree.to_dict()
    form |= {
        "problem": ODD,
        "policy": ODD,
        "messages": [None, 3, ODD, {"role": ODD, "content": "hi"}],
    }
    form["settings"] = {"search": ODD}
    form["counts"] = {"transitions": ODD, "constructor": "x"}
    show(SavedTree.from_dict(form))
    assert title(browser) == "State 0"
    odd = json.dumps(ODD, separators=(",", ":"))
    assert text(browser, "h1") == odd
    browser.run("document.querySelectorAll('summary').forEach(s => s.click())")
    browser.settle()
    assert text(browser, ".about").count(odd) == 3
    assert odd in text(browser, "#details")
    browser.press("ArrowRight")
    assert title(browser) != "State 0"


def test_a_long_run_with_many_failures_opens(browser, show, tree):
    form, many = tree.to_dict(), 200_000
    form["changes"] = {
        "state": [0] * many,
        "worth": [0.5] * many,
        "launches": [0] * many,
        "transitions": list(range(many)),
    }
    state = form["nodes"][-1]["id"]
    failure = {"stage": "step", "state": 0, "launch": 0, "error": "e"}
    form["failures"] = [failure] * 10_000 + [{**failure, "state": state}]
    assert show(SavedTree.from_dict(form)) < 3.0
    assert title(browser) == "State 0"
    assert text(browser, ".failures h3") == "Failures (10001)"
    assert browser.run("document.querySelectorAll('.failures p').length") == 101
    assert text(browser, ".failures p:last-child").startswith("9901 more")
    browser.press("/")
    browser.call("Input.insertText", text=f"#{state}")
    browser.press("Enter")
    assert text(browser, ".failures h3") == "Failures (1)"
