"""The page as text: self-contained, one script, and data that cannot leave its element."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from focus_core.view import html, render_html
from tests.view.view_kit import HOSTILE, hostile

ASSETS = Path(html.__file__).with_name("page")


class Elements(HTMLParser):
    """Every start tag, and the text in each script and style."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.raw, self.tag = [], [], ("", {})
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tag = (tag, dict(attributes))
        self.tags.append(self.tag)

    def handle_endtag(self, tag):
        self.tag = ("", {})

    def handle_data(self, data):
        if self.raw and self.raw[-1][0] is self.tag:  # text comes in parts
            data = self.raw.pop()[1] + data
        if self.tag[0] in ("script", "style", "title"):
            self.raw.append((self.tag, data))


def only(found):
    (one,) = found
    return one


def test_the_policy_allows_exactly_the_script_and_style_it_carries(tree):
    page = Elements(render_html(tree))
    policy = only(
        a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for kind in ("script", "style"):
        text = only(t for (tag, a), t in page.raw if tag == kind and "type" not in a)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_the_page_names_no_address_outside_itself(tree):
    page = render_html(tree)
    addresses = set(re.findall(r"(?:https?:)?//[a-z][^\s\"')]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    for _, attributes in Elements(page).tags:
        assert "src" not in attributes
        assert attributes.get("href", "data:").startswith("data:")
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in page
    assert "innerHTML" not in page


def test_hostile_text_makes_no_element_and_is_data_unchanged(tree):
    bad = hostile()
    page, plain = render_html(bad), Elements(render_html(tree))
    elements = Elements(page)
    assert [tag for tag, _ in elements.tags] == [tag for tag, _ in plain.tags]
    data = only(t for (_, a), t in elements.raw if a.get("class") == "saved")
    assert json.loads(data) == bad.to_dict()
    assert not set(data) & set("<>&\u2028\u2029")
    assert page.isascii()
    title = only(t for (tag, _), t in elements.raw if tag == "title")
    assert title.startswith(f"Tree of {HOSTILE[0]}user txt.exe")


def test_several_trees_share_a_page(tree):
    page = Elements(render_html([tree, hostile(), tree], title="three & more"))
    data = [t for (_, a), t in page.raw if a.get("class") == "saved"]
    assert [json.loads(text)["schema"] for text in data] == [4, 4, 4]
    assert data[0] == data[2]
    assert only(t for (tag, _), t in page.raw if tag == "title") == "three & more"
    with pytest.raises(ValueError, match="one tree at least"):
        render_html([])


def test_the_assets_can_lie_inside_a_page():
    for path in ASSETS.iterdir():
        text = path.read_bytes()
        assert text.isascii()
        assert b"\r" not in text
        if path.suffix != ".html":
            assert not re.search(rb"</|<!--|\{\{", text)
            assert text.count(b"\n") <= 500
