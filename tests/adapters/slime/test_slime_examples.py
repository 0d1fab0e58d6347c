"""``docs/examples/slime_math``: as its readers run it; and that the task is everybody's."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import focus_adapter_local
import pytest
import yaml
from focus_adapter_slime.settings import read_settings

from focus_core.plugins.manager import load
from focus_core.run.config import RunConfig
from focus_core.run.prepare import collectors_of, make_task
from focus_core.testing import RandomPolicy
from tests.adapters.slime.checkout_kit import checkout
from tests.adapters.slime.flags_kit import as_args, words_of
from tests.adapters.slime.router_kit import Router
from tests.adapters.slime.slime_double import Slime
from tests.core.cli_kit import invoke

pytest.importorskip("focus_task_math")
ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs/examples"
TINY = Path(focus_adapter_local.__path__[0]) / "tiny"
PROBLEMS = '{"problem": "Compute 2+3.", "solution": "It is \\\\boxed{5}.", "id": "a"}\n'


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "problems.jsonl").write_text(PROBLEMS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Without Python -------------------------------------------------------------------------------


def test_the_script_starts_slime_with_the_model_and_our_flags(here, monkeypatch):
    folder = checkout(here / "a checkout")
    done = subprocess.run(
        ["bash", str(EXAMPLES / "slime_math/run.sh"), "problems.jsonl", "--wandb-group", "a b"],
        env={
            **os.environ,
            "SLIME": str(folder),
            "MODEL": "/models/M",
            "MODEL_ARGS_OF": "small",
            "SLIME_RECORD": str(here / "record"),
            "SLIME_MODE": "alone",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads((here / "record").read_text())
    assert seen["program"] == "train.py"
    args = as_args(seen["args"])
    assert (args.num_layers, args.normalization, args.wandb_group) == (2, "RMS Norm", "a b")
    assert (args.ref_load, args.hf_checkpoint) == ("/models/M_torch_dist", "/models/M")
    (row,) = map(json.loads, Path(args.prompt_data).read_text().splitlines())
    assert (row["prompt"], row["metadata"]["id"]) == ("Compute 2+3.", "a")
    vars(args).update(yaml.safe_load(Path(args.custom_config_path).read_text()))
    assert read_settings(args).searching() == {"budget": 32, "warmup": 16}


def test_the_script_stops_when_focus_does(here):
    folder = checkout(here / "slime")
    done = subprocess.run(
        ["bash", str(EXAMPLES / "slime_math/run.sh"), "missing.jsonl"],
        env={
            **os.environ,
            "SLIME": str(folder),
            "MODEL_ARGS_OF": "small",
            "SLIME_RECORD": str(here / "record"),
            "SLIME_MODE": "alone",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "missing.jsonl" in done.stderr
    assert not (here / "record").exists()


def test_the_configuration_that_is_shown_can_be_used():
    shown = yaml.safe_load((EXAMPLES / "slime_math/slime.yaml").read_text())
    settings = read_settings(SimpleNamespace(**shown))
    config = RunConfig(
        task=settings.task,
        search=settings.search,
        settings={"task": settings.task_options, "search": settings.searching()},
    )
    task = make_task(plugins := load(), config)
    (problem,) = task.problems("problems.jsonl")
    collector = collectors_of(plugins, task, config)(RandomPolicy(), problem)
    assert (collector.search.budget, collector.search.warmup) == (32, 16)


@pytest.fixture
def own_router():
    """The packaged model, whose tokenizer knows chats and every character of these problems."""
    with Router(model="tiny") as started:
        yield started


# With a collector of one's own ----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_hooks_over_the_tinker_example_s_collector_make_samples(here, own_router, monkeypatch):
    for name in ("slime_math", "tinker_math"):
        monkeypatch.syspath_prepend(str(EXAMPLES / name))
    done = invoke(
        *("slime-args", "--task", "math", "--problems", "problems.jsonl", "--model", TINY),
        *("--set", "trainer.hooks=math_hooks", "--eval-every", 1, "--eval-source"),
        "problems.jsonl",
    )
    assert done.code == 0, done
    args = as_args(words_of(done.out))
    assert args.custom_generate_function_path == "math_hooks.generate"
    vars(args).update(
        {
            "sglang_router_ip": "127.0.0.1",
            "sglang_router_port": own_router.port,
            "rollout_temperature": 1.0,
            "rollout_top_p": 1.0,
            "rollout_top_k": -1,
            "rollout_max_response_len": None,
            "rollout_stop": None,
            "rollout_stop_token_ids": None,
            "rollout_skip_special_tokens": False,
            "sglang_enable_deterministic_inference": False,
        }
    )
    slime = Slime()
    (row,) = map(json.loads, Path(args.prompt_data).read_text().splitlines())
    prompt = slime.sample(prompt=row["prompt"], label=row["label"], metadata=row["metadata"])
    ((samples,),) = slime.generate_rollout(args, [prompt])
    assert len(samples) > 1
    assert {sample.rollout_id for sample in samples} == {0}
    assert {sample.metadata["focus"]["problem"] for sample in samples} == {"a"}
    assert not any(sample.remove_sample for sample in samples)
    assert len(list((here / "critic-targets").iterdir())) == 1
    for name in ("math_hooks", "math_training", "math_quickstart"):
        sys.modules.pop(name, None)


# One task for all -----------------------------------------------------------------------------

WHERE = """
import json, focus_task_math, math_quickstart, math_training, {program}
of = [math_training, math_quickstart]
print(json.dumps([focus_task_math.__path__[0], *(module.__file__ for module in of)]))
"""


def task_of(folder, program):
    """Where an example's task package, environment and collector come from."""
    path = [str(EXAMPLES / folder), str(EXAMPLES / "tinker_math"), os.environ.get("PYTHONPATH")]
    done = subprocess.run(
        [sys.executable, "-c", WHERE.format(program=program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_examples_of_all_trainers_use_one_task_byte_for_byte():
    """``diff`` says nothing about what Tinker's, the local and Slime's example train on."""
    pytest.importorskip("tinker")
    assert shutil.which("diff")
    tinkers = task_of("tinker_math", "train_tinker")
    for folder, program in (("local_math", "train_local"), ("slime_math", "math_hooks")):
        for theirs, ours in zip(tinkers, task_of(folder, program), strict=True):
            done = subprocess.run(
                ["diff", "-r", "-x", "__pycache__", theirs, ours], capture_output=True, text=True
            )
            assert (done.returncode, done.stdout) == (0, ""), f"{theirs} {ours}"


def test_neither_the_core_nor_an_adapter_knows_a_task_of_ours():
    """What is the same for every trainer is nowhere adapted to one."""
    sources = [*ROOT.glob("adapters/*/src/**/*.py"), *ROOT.glob("focus_core/**/*.py")]
    assert len(sources) > 100
    naming = re.compile(r"\b(?:import|from) focus_task")
    assert [path for path in sources if naming.search(path.read_text())] == []
