"""The flags and files that we write, read by Slime's own code: a checkout that SLIME_SRC names."""

import argparse
import importlib
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from focus_adapter_slime.objective import RULES, check_objective
from focus_adapter_slime.settings import read_settings
from focus_adapter_slime.trees import problem_of

from tests.adapters.slime.flags_kit import words_of
from tests.adapters.slime.slime_real import real_slime
from tests.core.cli_kit import invoke

SOURCE = os.environ.get("SLIME_SRC")
pytestmark = [
    pytest.mark.skipif(SOURCE is None, reason="SLIME_SRC names no checkout of Slime"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
MEGATRON = {"context_parallel_size", "calculate_per_token_loss"}
"""Attributes of our rules that Megatron's parser adds, which is not in a checkout of Slime."""


@pytest.fixture(scope="module")
def slime():
    with real_slime(SOURCE) as real:
        yield real


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-adapter-slime,focus-task-arithmetic,focus-task-math")


@pytest.fixture
def parse(slime):
    """Slime's own parser, without abbreviations: every flag must be one of its."""
    arguments = importlib.import_module("slime.utils.arguments")
    if hasattr(
        arguments, "RouterArgs"
    ):  # v0.3.0 adds the flags of its router, an empty module here
        arguments.RouterArgs = SimpleNamespace(add_cli_args=lambda *args, **options: None)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    arguments.get_slime_extra_args_provider()(parser)
    return parser.parse_args


EVERYTHING = (
    *("slime-args", "--task", "arithmetic", "--model", "m", "--learning-rate", 1e-5),
    *("--steps", 7, "--problems-per-step", 2, "--eval-every", 5, "--set", "search.budget=4"),
)


def test_slime_knows_every_flag_and_reads_it_as_meant(parse):
    args = parse(words_of(invoke(*EVERYTHING).out))
    assert (args.num_rollout, args.rollout_batch_size, args.global_batch_size) == (7, 2, 2)
    assert (args.lr, args.hf_checkpoint, args.eval_interval) == (1e-5, "m", 5)
    assert (args.rollout_shuffle, args.use_rollout_logprobs) == (True, True)


def test_with_slime_s_own_defaults_they_pass_our_checks(parse):
    args = parse(words_of(invoke(*EVERYTHING).out))
    for name, value in yaml.safe_load(Path(args.custom_config_path).read_text()).items():
        assert not hasattr(args, name)
        setattr(args, name, value)
    check_objective(args)
    assert read_settings(args).task == "arithmetic"


def test_slime_s_defaults_alone_do_not_pass(parse):
    from focus_core import UsageError

    with pytest.raises(UsageError, match="custom-advantage-function-path"):
        check_objective(parse(["--rollout-batch-size", "1"]))


def test_every_rule_is_about_an_argument_of_this_slime(parse):
    known = vars(parse(["--rollout-batch-size", "1"]))
    text = (Path(SOURCE) / "slime/utils/arguments.py").read_text()
    for rule in RULES:
        assert rule.name in known or rule.name in MEGATRON, rule.name
        for flag in re.findall(r"--[a-z-]+", rule.remedy):
            name = flag.removeprefix("--").replace("-", "_")
            assert f'"{flag}"' in text or name in MEGATRON, flag


def test_saving_and_program_files_are_slime_s(parse):
    args = parse(["--save", "x", "--save-interval", "3", "--rollout-batch-size", "1"])
    assert (args.save, args.save_interval) == ("x", 3)
    for name in ("train.py", "train_async.py", "scripts/models/qwen3-4B.sh"):
        assert (Path(SOURCE) / name).is_file()


def test_slime_s_data_set_gives_back_the_problems(slime, parse):
    args = parse(words_of(invoke(*EVERYTHING).out))
    made = slime.data.Dataset(
        args.prompt_data,
        tokenizer=None,
        processor=None,
        max_length=None,
        prompt_key=args.input_key,
        label_key=args.label_key,
        metadata_key=args.metadata_key,
        tool_key=args.tool_key,
        apply_chat_template=args.apply_chat_template,
    )
    rows = [json.loads(line) for line in Path(args.prompt_data).read_text().splitlines()]
    assert len(made) == len(rows) > 10
    for sample, row in zip(made.origin_samples, rows, strict=True):
        problem = problem_of(sample)
        found = (problem.prompt, problem.label, problem.id, dict(problem.metadata))
        assert found == (row["prompt"], row["label"], row["metadata"]["id"], row["metadata"])


def test_slime_evaluates_with_our_hook(slime, parse):
    args = parse(words_of(invoke(*EVERYTHING).out))
    config = yaml.safe_load(Path(args.eval_config).read_text())["eval"]
    build = importlib.import_module("slime.utils.eval_config").build_eval_dataset_configs
    (dataset,) = build(args, config["datasets"], {})
    assert dataset.custom_generate_function_path == "focus_adapter_slime.hooks.evaluate"
    assert (dataset.input_key, dataset.label_key, dataset.metadata_key) == (
        "prompt",
        "label",
        "metadata",
    )
    assert dataset.n_samples_per_eval_prompt == 1


def test_an_exported_record_is_a_sample(slime):
    from focus_adapter_slime.exporting import to_plain_sample

    from focus_core import ActorRecord, Span

    record = ActorRecord([1, 2, 3], [0.0, -1.0, -2.0], [Span(1, 3, 0.5)], {"group_index": 4})
    sample = slime.Sample.from_dict(to_plain_sample(record))
    assert (sample.tokens, sample.reward, sample.status.value) == ([1, 2, 3], 0.5, "completed")
    assert getattr(sample, slime.sibling) == 4
