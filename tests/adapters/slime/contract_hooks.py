"""Our generate hooks for Slime's plug-in contract tests, whose ``args`` name no router.

Those tests want one sample. ``evaluate`` gives one; ``generate`` gives a tree's samples, of which
Slime's test sees the first and the others are checked here.
"""

import os
import sys
from argparse import Namespace
from pathlib import Path

import transformers  # noqa: F401  # else the contract tests put an empty module in its place

from tests.adapters.slime.slime_kit import collector_for, make_args
from tests.adapters.slime.slime_real import empty_modules

_EMPTY = empty_modules()
_EMPTY.__enter__()  # for as long as the process lives
sys.path.insert(0, str(Path.cwd()))


def _args(args):
    ours = make_args(
        sglang_router_ip="127.0.0.1",
        sglang_router_port=int(os.environ["FOCUS_ROUTER"]),
        hf_checkpoint=os.environ["FOCUS_MODEL"],
    )
    return Namespace(**(vars(ours) | vars(args)))


async def generate(args, sample, sampling_params):
    """A tree's first sample."""
    from focus_adapter_slime import make_generate

    before = dict(sampling_params)
    made = await make_generate(collector_for)(_args(args), sample, sampling_params)
    assert sampling_params == before
    for each in made:
        assert type(each) is type(sample)
        assert isinstance(each.tokens, list)
        assert isinstance(each.response, str)
        assert isinstance(each.response_length, int)
        assert isinstance(each.reward, float)
    assert len(made) > 1
    return made[0]


async def evaluate(args, sample, sampling_params):
    """One rollout's sample."""
    from focus_adapter_slime import make_evaluate

    return await make_evaluate(collector_for)(_args(args), sample, sampling_params)
