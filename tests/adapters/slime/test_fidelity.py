"""Slime's own code under our hooks, and the double held against it.

Needs a checkout of THUDM/slime (main, v0.3.1 or v0.3.0), and no GPU and nothing else of Slime's::

    git clone https://github.com/THUDM/slime /somewhere && git -C /somewhere checkout v0.3.1
    SLIME_SRC=/somewhere python -m pytest -rP tests/adapters/slime/test_fidelity.py

``-rP`` shows the figures. Ray, SGLang and the like are used if they are installed and replaced by
empty modules otherwise.
"""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.slime import slime_checks as checks
from tests.adapters.slime.slime_double import OldSlime, Slime, Status
from tests.adapters.slime.slime_kit import (
    HANGS,
    PROMPTS,
    gap,
    hook,
    make_args,
    perturb,
    rolled_out,
    same,
    train,
)
from tests.adapters.slime.slime_real import real_slime

SOURCE = os.environ.get("SLIME_SRC")
ROOT = Path(__file__).parents[3]
ONLY_REAL = {"truncated", "sample_indices", "source_names", "partition", "local_raw_reward"}
"""What Slime's own shares hold that neither our hooks nor the policy's loss reads."""

pytestmark = pytest.mark.skipif(
    not SOURCE, reason="SLIME_SRC names no checkout of THUDM/slime to run Slime's own code from"
)


@pytest.fixture(scope="module")
def real():
    with real_slime(Path(SOURCE).resolve(strict=True)) as loaded:
        yield loaded


def twin(double, sample):
    """The double's sample with a real one's values."""
    fields = double.Sample.__dataclass_fields__
    values = {name: copy.deepcopy(getattr(sample, name)) for name in fields}
    return double.Sample(**(values | {"status": Status(sample.status.value)}))


def double_of(real):
    """The double of the version at hand."""
    return Slime() if real.sibling == "rollout_id" else OldSlime()


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_through_slime(check, real, router, learner):
    check(real, router, learner)


@pytest.mark.parametrize("split", checks.SPLITS, ids=str)
@pytest.mark.parametrize("merge", [False, True], ids=["one span", "several spans"])
def test_the_double_does_what_slime_does(merge, split, real, router, learner):
    """The same samples give the same train data, shares, advantages, loss and gradient."""
    args, samples = rolled_out(real, router, merge=merge, **split)
    double = double_of(real)
    perturb(learner)
    twins = [twin(double, sample) for sample in samples]
    ours, theirs = train(double, args, twins, learner), train(real, args, samples, learner)
    assert ours.data.keys() <= theirs.data.keys() <= ours.data.keys() | ONLY_REAL
    for name, values in ours.data.items():
        assert same(values, theirs.data[name]), name
    for one, other in zip(ours.ranks, theirs.ranks, strict=True):
        assert one.keys() <= other.keys() <= one.keys() | ONLY_REAL
        for name, values in one.items():
            assert same(values, other[name]), name
    for one, other in zip(ours.logged, theirs.logged, strict=True):
        assert one == pytest.approx(other)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
    distance, off = gap(ours.gradient, theirs.gradient), abs(ours.loss - theirs.loss)
    print(f"double against Slime: gap of the gradient {distance:.1e}, of the loss {off:.1e}")
    assert distance < 1e-6


def test_both_loops_generate_the_same(real, router):
    """Slime's loop and the double's call the hook alike: the same samples, in the same nesting."""
    double = double_of(real)
    options = {"merge": True, "n_samples_per_prompt": 2}
    theirs, ours = (rolled_out(each, router, **options)[1] for each in (real, double))
    for one, other in zip(ours, theirs, strict=True):
        other = twin(double, other)
        assert one.rollout_log_probs == pytest.approx(other.rollout_log_probs, abs=1e-5)
        other.rollout_log_probs = one.rollout_log_probs  # the model's batches were others
        other.session_id = one.session_id  # Slime's are random
        assert one == other


def test_the_loop_calls_off_what_it_asked_for_too_much(real, router):
    """Slime asks for a fourth tree, needs three, and aborts: the hook ends the one that hangs."""
    counts = hook("make_generate").counts
    before = counts["aborted_trees"]
    options = {"rollout_batch_size": len(PROMPTS), "global_batch_size": len(PROMPTS)}
    _, samples = rolled_out(real, router, merge=True, prompts=(HANGS, *PROMPTS), **options)
    assert {sample.prompt for sample in samples} == set(PROMPTS)
    assert counts["aborted_trees"] == before + 1


def test_a_dumped_rollout_trains_the_same(real, router):
    """``--load-debug-rollout-data`` reads samples back from their dictionaries."""
    args, samples = rolled_out(real, router, merge=True)
    again = [real.Sample.from_dict(copy.deepcopy(sample.to_dict())) for sample in samples]
    assert again == samples
    theirs, ours = real.convert(args, again), real.convert(args, samples)
    assert theirs.keys() == ours.keys()
    assert all(same(values, ours[name]) for name, values in theirs.items())


def test_evaluation_gets_outcomes(real, router, tmp_path):
    """Slime's evaluation: one sample per prompt and repetition, rewarded with what it scored."""
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": each, "label": ""}) + "\n" for each in PROMPTS))
    args = make_args(
        sglang_router_ip="127.0.0.1", sglang_router_port=router.port, hf_checkpoint=router.model
    )
    found, logged = real.evaluate(
        args,
        name="even",
        path=str(path),
        input_key="text",
        label_key="label",
        metadata_key="metadata",
        n_samples_per_eval_prompt=2,
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        max_response_len=12,
        custom_generate_function_path="tests.adapters.slime.slime_kit.evaluate",
    )
    assert [sample.index for sample in found["samples"]] == list(range(2 * len(PROMPTS)))
    for sample, reward in zip(found["samples"], found["rewards"], strict=True):
        own = [
            token
            for token, mask in zip(
                sample.tokens[-sample.response_length :], sample.loss_mask, strict=True
            )
            if mask
        ]
        text = router.tokenizer.decode(own)
        assert reward == sum(ord(each) % 2 == 0 for each in text) / len(text)
    assert logged["eval/even"] == pytest.approx(sum(found["rewards"]) / len(found["rewards"]))


def test_samples_have_what_the_double_has(real):
    """Every field of the double exists, with the same default."""
    double = double_of(real)
    made, twin = real.Sample(), double.Sample()
    for name in double.Sample.__dataclass_fields__:
        if name != "status":
            assert getattr(made, name) == getattr(twin, name), name
    assert {each.name: each.value for each in real.Sample.Status} == {
        each.name: each.value for each in Status
    }


def test_the_plugin_contracts_of_slime_hold(real, router):
    """Slime's own contract tests, over our hooks, in a process of their own."""
    folder = Path(SOURCE) / "tests" / "plugin_contracts"
    environment = {
        **os.environ,
        "FOCUS_ROUTER": str(router.port),
        "FOCUS_MODEL": router.model,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "SLIME_CONTRACT_CUSTOM_REWARD_POST_PROCESS_PATH": "focus_adapter_slime.preserve_advantages",
    }
    passed = []
    for name, tests in (("evaluate", "."), ("generate", "test_plugin_generate_contracts.py")):
        environment["SLIME_CONTRACT_CUSTOM_GENERATE_FUNCTION_PATH"] = f"{CONTRACT}.{name}"
        options = ["-q", "-p", CONTRACT, "-p", "no:cacheprovider", str(folder / tests)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=SOURCE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert "skipped" not in done.stdout
        passed.append(int(re.search(r"(\d+) passed", done.stdout).group(1)))
    assert passed[0] > passed[1] >= 4
    print(f"plug-in contract tests passed: {passed[0]}, of them over our generate {passed[1]}")


CONTRACT = "tests.adapters.slime.contract_hooks"
