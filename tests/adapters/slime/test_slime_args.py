"""``focus slime-args``: flags and files that Slime takes, and that our own checks accept."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from focus_adapter_slime.objective import RULES, check_objective
from focus_adapter_slime.settings import read_settings

from tests.adapters.slime.checkout_kit import checkout
from tests.adapters.slime.flags_kit import as_args, words_of
from tests.core.cli_kit import invoke

BASE = ("slime-args", "--task", "arithmetic")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-adapter-slime,focus-task-arithmetic,focus-task-math")
    return tmp_path


def written(*args):
    done = invoke(*BASE, *args)
    assert (done.code, done.exception) == (0, None), done
    return as_args(words_of(done.out))


def configuration(path="slime.yaml"):
    return yaml.safe_load(Path(path).read_text())


def rows(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# Flags ----------------------------------------------------------------------------------------


def test_our_checks_accept_what_it_writes(here):
    args = written("--budget", 8, "--eval-every", 5, "--model", "m", "--merge")
    vars(args).update(configuration(args.custom_config_path))
    check_objective(args)
    settings = read_settings(args)
    assert (settings.task, settings.merge, settings.searching()) == (
        "arithmetic",
        True,
        {"budget": 8},
    )
    given = {rule.name for rule in RULES if hasattr(args, rule.name)}
    assert {"advantage_estimator", "use_dynamic_batch_size", "rewards_normalization"} <= given


def test_flags_follow_the_options(here):
    args = written(
        *("--steps", 7, "--problems-per-step", 4, "--learning-rate", 2e-6, "--model", "big one"),
        *("--seed", 3, "--output", "out/mine.yaml"),
    )
    assert (args.num_rollout, args.rollout_batch_size, args.global_batch_size) == (7, 4, 4)
    assert (args.n_samples_per_prompt, args.lr, args.hf_checkpoint) == (1, 2e-6, "big one")
    assert (args.rollout_seed, args.rollout_shuffle) == (3, True)
    assert args.prompt_data == str(here / "out/mine.jsonl")
    assert configuration("out/mine.yaml") == {
        "focus_task": "arithmetic",
        "focus_critic_sink": str(here / "out/critic-targets"),
    }
    assert not hasattr(args, "eval_interval")


def test_options_reach_the_configuration(here):
    written(
        *("--set", "task.count=9", "--search", "independent", "--set", "search.n=4"),
        *("--recipe", "group", "--critic-output", "there", "--problems", "train"),
        *("--set", 'trainer.settings={"straddle": "keep", "deadline": 60}'),
    )
    found = configuration()
    read_settings(SimpleNamespace(**found))
    assert found == {
        "focus_task": "arithmetic",
        "focus_task_options": {"count": "9"},
        "focus_problems": "train",
        "focus_search": "independent",
        "focus_search_options": {"n": "4"},
        "focus_recipe": "group",
        "focus_critic_sink": str(here / "there"),
        "focus_straddle": "keep",
        "focus_deadline": 60,
    }


def test_evaluation_has_a_configuration_of_its_own(here):
    args = written("--eval-every", 20)
    assert args.eval_interval == 20
    (dataset,) = configuration(args.eval_config)["eval"]["datasets"]
    assert dataset["custom_generate_function_path"] == "focus_adapter_slime.hooks.evaluate"
    held_out = rows(dataset["path"])
    training = rows(args.prompt_data)
    assert held_out
    assert training
    assert [row["prompt"] for row in held_out] != [row["prompt"] for row in training]


def test_own_arguments_come_last_and_may_set_what_is_open(here):
    done = invoke(*BASE, "--set", "trainer.args=--max-tokens-per-gpu 4096 --wandb-group 'a b'")
    words = words_of(done.out)
    assert words[-4:] == ["--max-tokens-per-gpu", "4096", "--wandb-group", "a b"]
    assert words.count("--max-tokens-per-gpu") == 1


def test_a_model_s_flags_may_be_among_them(here):
    folder = checkout(here / "slime")
    done = invoke(*BASE, "--set", "trainer.model_args=small", "--set", f"trainer.root={folder}")
    assert words_of(done.out)[-4:] == ["--num-layers", "2", "--normalization", "RMS Norm"]


def test_bash_reads_it_as_its_help_says(here):
    (here / "a 'b' $c").mkdir()
    done = invoke(*BASE, "--output", "a 'b' $c/slime.yaml", "--model", "M")
    script = 'flags=$(cat) && eval "A=($flags)"; printf "%s\\0" "${A[@]}"'
    read = subprocess.run(
        ["bash", "-c", script], input=done.out, capture_output=True, text=True, check=True
    )
    assert read.stdout.split("\0")[:-1] == words_of(done.out)
    assert str(here / "a 'b' $c/slime.yaml") in words_of(done.out)


def test_hooks_of_one_s_own_take_the_place_of_the_ready_made_ones(here):
    args = written("--set", "trainer.hooks=my.hooks", "--eval-every", 5, "--merge")
    assert args.custom_generate_function_path == "my.hooks.generate"
    assert configuration() == {"focus_merge": True}
    (dataset,) = configuration(args.eval_config)["eval"]["datasets"]
    assert dataset["custom_generate_function_path"] == "my.hooks.evaluate"


# Files ----------------------------------------------------------------------------------------


def test_it_says_what_it_wrote_apart_from_the_flags(here):
    done = invoke(*BASE, "--eval-every", 5)
    names = ["slime.jsonl", "slime-eval.jsonl", "slime-eval.yaml", "slime.yaml"]
    assert done.err.splitlines() == [f"wrote {here / name}" for name in names]
    assert {path.name for path in here.iterdir()} == set(names)


def test_files_that_are_there_are_kept_unless_forced(here):
    written()
    before = {path: path.read_text() for path in here.iterdir()}
    done = invoke(*BASE, "--budget", 3)
    assert (done.code, done.out) == (2, "")
    assert "slime.jsonl" in done.err
    assert "--force" in done.err
    assert {path: path.read_text() for path in here.iterdir()} == before
    written("--budget", 3, "--force")
    assert configuration()["focus_budget"] == 3


def test_a_full_disk_leaves_no_half_file(here, monkeypatch):
    import errno

    from focus_adapter_slime import arguments

    def full(path, text):
        if path.suffix == ".yaml":
            raise OSError(errno.EACCES, "Permission denied")
        write(path, text)

    write = arguments.write_atomically
    monkeypatch.setattr(arguments, "write_atomically", full)
    done = invoke(*BASE)
    assert (done.code, done.out) == (2, "")
    assert "slime.yaml cannot be written: Permission denied" in done.err
    assert {path.name for path in here.iterdir()} == {"slime.jsonl"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--task", "arithmetc"), "did you mean arithmetic"),
        (("--set", "search.bugdet=3"), "did you mean budget"),
        (("--set", "task.count=x"), "task.count"),
        (("--set", "trainer.modle=x"), "did you mean model"),
        (("--output", "slime.txt"), "name a .yaml file"),
        (("--learning-rate", "-1"), "learning_rate is -1.0"),
        (("--problems", "missing"), "missing"),
        (("--set", "trainer.settings={1"), "trainer.settings"),
        (("--set", 'trainer.settings={"stradle": "keep"}'), "did you mean straddle"),
        (("--set", 'trainer.settings={"straddle": "yes"}'), "must be 'refuse' or 'keep'"),
        (("--set", 'trainer.settings={"task": "math"}'), "has options of its own"),
        (("--set", "trainer.args=--normalize-advantages"), "--normalize-advantages is True"),
        (("--set", "trainer.args=--kl-coef 0.1 --group-rm"), "2 of Slime's settings would change"),
        (("--set", "trainer.args=--context-parallel-size=2"), "--context-parallel-size 1"),
        (("--set", "trainer.args=--advantage-estimator gspo"), "--advantage-estimator"),
        (("--set", "trainer.args=--num-rollout 3"), "trainer.args gives --num-rollout"),
        (("--set", "trainer.args=num-rollout"), "trainer.args begins with 'num-rollout'"),
        (("--set", "trainer.args='"), "No closing quotation"),
        (("--set", "trainer.model_args=nowhere"), "nowhere is no script"),
        (
            ("--set", "trainer.hooks=x", "--budget", 2, "--critic-output", "c"),
            "which --critic-output, --set search.* would not reach",
        ),
        (("--eval-every", 5, "--output", "${x}.yaml"), "for a variable"),
    ],
    ids=lambda v: " ".join(map(str, v))[:60] if isinstance(v, tuple) else "",
)
def test_each_mistake_is_one_message_and_writes_nothing(here, args, says):
    done = invoke(*BASE, *args)
    assert (done.code, done.crashed, done.out) == (2, False, ""), done
    assert done.err.count("\n") == 1
    assert says in done.err
    assert list(here.iterdir()) == []
