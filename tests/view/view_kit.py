"""Trees to look at: a large one really collected, and a hand-made one with hostile texts."""

import asyncio

from focus_core import Agent, Collector, Critic, Problem, Segments, Selective
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.view import SavedTree


def collected(problem=None, **options):
    """A prepared collection of a random policy's countdown, and the policy."""
    policy = RandomPolicy(end=0.02, seed=options.pop("seed", 0))
    env = options.pop("env", None) or CountdownEnv(options.pop("steps", 6))
    partial = options.pop("allow_partial", False)
    collector = Collector(
        Agent(policy, env, context=Segments(options.pop("segment", 12))),
        critic=options.pop("critic", None) or Critic.constant(0.5),
        search=options.pop("search", None) or Selective(**options),
    )

    async def collect():
        async with collector:
            return await collector.collect(problem or Problem("1 2 3", id="p"), key=(7,))

    collection = asyncio.run(collect())
    return collection.prepare(allow_partial=partial), policy


def saved(**options):
    """The same, saved."""
    collection, policy = collected(**options)
    return SavedTree.of(collection, policy.decode)


HOSTILE = (
    "</script><script>window.pwned = 1; alert(1)</script>",
    "<img src=x onerror='window.pwned = 2'><svg onload='window.pwned = 3'>",
    "--><!--<script>window.pwned = 4",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J",
    "user\u202etxt.exe\u202c \u2066a\u2069 \u200f\u061c \u200b\ufeff zero",
    "line\u2028separator\u2029 \x00 nul \x85 \r\n tab\t",
    "lone \ud800 surrogate, \U000e0041 tag, \ue000 private",
    "{{trees}} {{script}} ${window.pwned = 5} javascript:window.pwned=6",
    '<tool_call>{"name": "<img src=x>\u202e", "arguments": {"<b onclick=x>": "</tool_call>'
    '</script><svg onload=pwned>"}}</tool_call><tool_call><function=<i>></tool_call>',
    "Z\u0351\u036b\u0343\u0346" + "\u0489" * 60 + "algo",
)


def hostile():
    """A tree whose every text tries something."""
    tree = saved(budget=0, warmup=8 * len(HOSTILE), steps=3).to_dict()
    tree["problem"] = HOSTILE[0] + HOSTILE[4]
    tree["label"] = HOSTILE[0]
    tree["policy"] = tree["stopped"] = HOSTILE[1]
    tree["settings"]["search"] = HOSTILE[2]
    tree["settings"][HOSTILE[1]] = HOSTILE[3]
    tree["messages"] = [{"role": text, "content": text} for text in HOSTILE]
    tree["messages"].append({"content": [{"type": "text", "text": HOSTILE[0]}]})
    tree["nodes"][0]["rendered_text"] = "".join(HOSTILE)
    for place, node in enumerate(tree["nodes"][1:]):
        node["pieces"] = [HOSTILE[place % len(HOSTILE)], *[""] * (len(node["tokens"]) - 1)]
        node["answer"] = [{"role": text, "name": text, "content": text} for text in HOSTILE]
        node["inside"] = list(range(1, len(node["tokens"]) - 1))
    tree["launches"]["phase"] = [HOSTILE[0]] * len(tree["launches"]["phase"])
    tree["failures"] = [{"stage": text, "state": 1, "launch": 0, "error": text} for text in HOSTILE]
    return SavedTree.from_dict(tree)
