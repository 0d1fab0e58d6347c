"""``focus train --trainer slime``: the launch, on a stand-in for a checkout of Slime."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.adapters.slime.checkout_kit import checkout
from tests.adapters.slime.flags_kit import as_args
from tests.core.cli_kit import command, distribution, invoke

BASE = ("train", "--task", "arithmetic", "--trainer", "slime", "--model", "M")


def forget():
    for name in [name for name in sys.modules if name.split(".")[0] == "slime"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-adapter-slime,focus-task-arithmetic")
    monkeypatch.setenv("SLIME_RECORD", str(tmp_path / "record"))
    forget()
    yield work
    forget()


@pytest.fixture
def slime(tmp_path, monkeypatch):
    """A checkout that is installed."""
    folder = checkout(tmp_path / "checkout")
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def no_slime(monkeypatch):
    """No Slime is installed, whatever this environment has."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not Path(p, "slime").exists()])

    def nothing(name):
        if name == "slime":
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    found = importlib.metadata.distribution
    monkeypatch.setattr(importlib.metadata, "distribution", nothing)


def recorded(tmp_path):
    return json.loads((tmp_path / "record").read_text())


def test_it_starts_slime_with_the_flags_and_the_files(slime, here, tmp_path):
    done = invoke(*BASE, "--steps", 3, "--run-dir", "run")
    assert (done.code, done.exception) == (0, None), done
    seen = recorded(tmp_path)
    assert seen["program"] == "train_async.py"
    assert seen["path"][0] == str(slime)
    args = as_args(seen["args"])
    assert (args.num_rollout, args.hf_checkpoint) == (3, "M")
    assert (args.save, args.save_interval) == (str(here / "run/checkpoints"), 10)
    assert yaml.safe_load(Path(args.custom_config_path).read_text())["focus_task"] == "arithmetic"
    assert Path(args.prompt_data).is_file()
    names = {path.name for path in (here / "run").iterdir()}
    assert names == {"slime.yaml", "slime.jsonl", "launch.sh"}


def test_the_command_that_it_shows_is_the_one_that_ran(slime, here, tmp_path):
    done = invoke(*BASE, "--run-dir", "a run", "--set", "trainer.args=--wandb-group 'x y'")
    first = recorded(tmp_path)["args"]
    script = here / "a run/launch.sh"
    shown = done.out.removeprefix("run directory: a run\n").rstrip("\n")
    assert script.read_text() == f"#!/usr/bin/env bash\n{shown}\n"
    (tmp_path / "record").unlink()
    environment = {**os.environ, "SLIME_MODE": "alone"}
    subprocess.run(["bash", str(script)], check=True, cwd=tmp_path, env=environment)
    assert recorded(tmp_path)["args"] == first
    assert first[-2:] == ["--wandb-group", "x y"]


@pytest.mark.parametrize(("depth", "program"), [(0, "train.py"), (1, "train_async.py")])
def test_the_async_depth_chooses_the_program(slime, tmp_path, depth, program):
    assert invoke(*BASE, "--async-depth", depth).code == 0
    assert recorded(tmp_path)["program"] == program


def test_a_model_s_flags_and_own_ones_are_passed_on(slime, tmp_path):
    own = "--load /ckpt --save=/elsewhere --save-interval=2 --colocate"
    done = invoke(
        *(*BASE, "--async-depth", 0, "--set", "trainer.model_args=small"),
        *("--set", f"trainer.args={own}"),
    )
    assert done.code == 0, done
    words = recorded(tmp_path)["args"]
    expected = ["--num-layers", "2", "--normalization", "RMS Norm"]
    expected += own.replace("=", " ").split()
    assert words[-len(expected) :] == expected
    assert words.count("--save") == words.count("--save-interval") == 1


@pytest.mark.parametrize("code", [1, 7])
def test_its_exit_code_is_passed_on(slime, monkeypatch, code):
    monkeypatch.setenv("SLIME_CODE", str(code))
    assert invoke(*BASE).code == code


def test_a_checkout_may_be_named_though_none_is_installed(no_slime, tmp_path):
    folder = checkout(tmp_path / "elsewhere")
    assert invoke(*BASE, "--set", f"trainer.root={folder}").code == 0
    assert recorded(tmp_path)["path"][0] == str(folder)


def test_a_dry_run_starts_and_leaves_nothing(slime, here, tmp_path):
    done = invoke(*BASE, "--dry-run")
    assert done.code == 0
    assert "train_async.py" in done.out
    assert not (tmp_path / "record").exists()
    assert list(here.iterdir()) == []


def test_without_slime_it_says_how_to_get_it_and_where_the_files_are(no_slime, here):
    done = invoke(*BASE, "--run-dir", "run")
    assert (done.code, done.crashed) == (2, False)
    (line,) = done.err.splitlines()
    assert "Slime is not installed; git clone https://github.com/THUDM/slime && pip install" in line
    assert "run/launch.sh is the command above" in line
    assert "train_async.py \\\n  --custom-generate" in done.out
    assert {p.name for p in (here / "run").iterdir()} == {"slime.yaml", "slime.jsonl", "launch.sh"}


def test_the_unrelated_project_of_that_name_is_recognised(here, tmp_path, monkeypatch):
    site = tmp_path / "site"
    site.mkdir()
    distribution(site, "slime", "0.0.0", slime="mixed = 'effects'")
    monkeypatch.syspath_prepend(str(site))
    done = invoke(*BASE, "--run-dir", "run")
    assert (done.code, done.crashed) == (2, False)
    assert "(slime 0.0.0) is not THUDM's Slime" in done.err
    assert "mixed-effects" in done.err
    assert (here / "run/launch.sh").is_file()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--set", "trainer.args=--colocate"), "or give --async-depth 0"),
        (("--set", "trainer.args=--normalize-advantages"), "--normalize-advantages is True"),
        (("--set", "trainer.args=--lr 1", "--learning-rate", "1e-5"), "trainer.args gives --lr"),
        (("--set", "trainer.root=nowhere"), "trainer.root=nowhere has no train.py"),
        (("--set", "trainer.model_args=huge"), "is no script, nor one of small, smaller"),
        (("--max-tokens", 10), "--max-tokens: Slime's loop counts rollouts"),
        (("--deadline", 10), "--deadline: Slime's hooks bound a whole tree"),
        (("--failure-rate", 0.5), "--failure-rate: Slime's hooks count"),
        (("--lane", "pairs"), "pairs"),
        (("--record", "there"), "leave --record out"),
        (("--json",), "leave --json out"),
    ],
    ids=lambda v: " ".join(map(str, v))[:60] if isinstance(v, tuple) else "",
)
def test_each_mistake_is_one_message_and_starts_nothing(slime, here, tmp_path, args, says):
    done = invoke(*BASE, *args)
    assert (done.code, done.crashed) == (2, False), done
    assert done.err.count("\n") == 1
    assert says in done.err
    assert not (tmp_path / "record").exists()
    assert not [path for path in here.rglob("*") if path.is_file()]


def test_it_needs_a_model(slime, here):
    done = invoke("train", "--task", "arithmetic", "--trainer", "slime")
    assert done.code == 2
    assert "give --model DIR" in done.err


def test_an_interrupt_reaches_slime_and_ends_all_of_it(slime, here, tmp_path):
    path = os.pathsep.join([str(slime), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command(*BASE, "--run-dir", "run"),
        env={**os.environ, "PYTHONPATH": path, "SLIME_MODE": "wait"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "record").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    seen = recorded(tmp_path)
    for pid in (seen["pid"], seen["child"]):
        while not _gone(pid):
            time.sleep(0.01)


def _gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_saved_records_are_exported_as_samples(here, monkeypatch):
    monkeypatch.setenv("FOCUS_PLUGINS", "")
    done = invoke(
        *("collect", "--task", "arithmetic", "--output", "out", "--set", "search.budget=4"),
        *("--set", "search.warmup=4", "--set", "trainer.threads=1"),
    )
    assert done.code == 0, done
    assert invoke("export", "out", "--to", "slime", "--output", "samples.jsonl").code == 0
    records = [json.loads(line) for line in Path("out/actor.jsonl").read_text().splitlines()]
    samples = [json.loads(line) for line in Path("samples.jsonl").read_text().splitlines()]
    assert len(samples) == len(records) > 0
    for sample, record in zip(samples, records, strict=True):
        assert sample["tokens"] == record["tokens"]
        assert sum(sample["loss_mask"]) == sum(record["loss_mask"])
        assert len(sample["rollout_log_probs"]) == sample["response_length"]
        assert sample["reward"] == pytest.approx(record["reward"])
        assert (sample["status"], sample["remove_sample"]) == ("completed", False)
        assert sample["rollout_id"] == record["metadata"]["group_index"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--group-rm", "--group-rm is True"),
        ("--disable-compute-advantages-and-returns", "leave --disable-compute-advantages"),
        ("--eps-clip-c 3", "--eps-clip-c is 3"),
        ("--seed 1 --use-tis", "--use-tis is True"),
        ("foo", "trainer.args begins with 'foo'"),
        ("'", "No closing quotation"),
        ("--num-rollout 3", "trainer.args gives --num-rollout"),
    ],
)
def test_arguments_that_are_refused_leave_no_directory(words, said, no_slime, here):
    done = invoke(*BASE, "--set", f"trainer.args={words}")
    assert done.code != 0
    assert said in done.err, done.err
    assert list(here.iterdir()) == []


def test_a_directory_that_was_there_stays(no_slime, here):
    (here / "run").mkdir()
    done = invoke(*BASE, "--run-dir", "run", "--set", "trainer.args=--group-rm")
    assert done.code != 0
    assert list((here / "run").iterdir()) == []


@pytest.mark.parametrize("allowed", [["kl_loss_coef"], ["use_tis", "use_rollout_logprobs"]])
def test_the_flag_that_was_given_up_on_purpose_is_left_out(allowed, no_slime, here):
    settings = json.dumps({"allow": allowed})
    done = invoke(*BASE, "--run-dir", "run", "--set", f"trainer.settings={settings}")
    assert ("--use-rollout-logprobs" in done.out) == ("use_rollout_logprobs" not in allowed)
