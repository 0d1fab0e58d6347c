"""Checkpoints: exact resume, loadable elsewhere, written whole, refused when they do not fit."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from focus_core import DataError, TrainerError, UsageError
from focus_core.utils.lock import hold
from tests.adapters.local.local_kit import batch, run, sample_records


async def train(trainer, seeds):
    """An update for each seed; what the last reported."""
    metrics = None
    for seed in seeds:
        policy = await trainer.publish_policy()
        metrics = await trainer.update(batch(trainer, await sample_records(policy, seed=seed)))
        await policy.aclose()
    return metrics


def exact(trainer):
    """Everything that the next update depends on."""
    learner = trainer._learner
    state = learner.optimizer.state
    return learner.step, {
        name: [each.detach().clone(), *(state[each][k].clone() for k in ("exp_avg", "exp_avg_sq"))]
        for name, each in learner.parameters.items()
    }


def test_resuming_equals_going_on_bit_for_bit(trainer_of):
    async def main():
        async with trainer_of(warmup_steps=5) as trainer:
            await train(trainer, (0, 1))
            reference = await trainer.save_state("two")
            straight = await train(trainer, (2, 3))
            expected = exact(trainer)
        async with trainer_of(warmup_steps=5, seed=99, resume_from=reference) as trainer:
            assert trainer.step == 2
            resumed = await train(trainer, (2, 3))
            step, tensors = exact(trainer)
        assert straight == resumed
        assert step == expected[0] == 4
        for name, values in tensors.items():
            for ours, theirs in zip(values, expected[1][name], strict=True):
                assert torch.equal(ours, theirs), name

    run(main())


def test_resuming_from_the_very_start(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            reference = await trainer.save_state("none")
            straight = await train(trainer, (0,))
        async with trainer_of(seed=5, resume_from=reference) as trainer:
            assert await train(trainer, (0,)) == straight

    run(main())


def test_peft_loads_the_adapter_and_nothing_is_pickled(trainer_of, mini):
    async def main():
        async with trainer_of() as trainer:
            await train(trainer, (0, 1))
            path = Path(await trainer.save_state("here"))
            policy = await trainer.publish_policy()
            ids = torch.tensor([[5, 6, 7]])
            with torch.no_grad():
                return path, policy._snapshot.model(input_ids=ids).logits

    path, logits = run(main())
    assert {each.name for each in path.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "optimizer.safetensors",
        "state.json",
    }
    state = json.loads((path / "state.json").read_text())
    assert state["step"] == 2
    assert state["options"]["lora_rank"] == 4

    from focus_adapter_local.models import quiet
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    with quiet(), torch.no_grad():
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(mini), str(path))
        theirs = model(input_ids=torch.tensor([[5, 6, 7]])).logits
    torch.testing.assert_close(theirs, logits, atol=1e-4, rtol=1e-4)


def test_saving_again_replaces_and_a_failed_save_leaves_the_old_one(trainer_of, monkeypatch):
    async def main():
        async with trainer_of() as trainer:
            first = Path(await trainer.save_state("same"))
            await train(trainer, (0,))
            assert Path(await trainer.save_state("same")) == first
            assert json.loads((first / "state.json").read_text())["step"] == 1
            await train(trainer, (1,))
            monkeypatch.setattr(json, "dumps", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await trainer.save_state("same")
            monkeypatch.undo()
            assert json.loads((first / "state.json").read_text())["step"] == 1
            assert [each.name for each in first.parent.iterdir()] == ["same"]
            first.parent.joinpath("file").write_text("in the way")
            trainer.checkpoint_dir = str(first.parent / "file")
            with pytest.raises(TrainerError, match="cannot be written"):
                await trainer.save_state("x")
            for name in ("", ".", "..", "a/b", "/abs"):
                with pytest.raises(UsageError, match="plain file name"):
                    await trainer.save_state(name)

    run(main())


def test_checkpoints_that_do_not_fit_are_refused_before_loading(trainer_of, model_of, tmp_path):
    async def main():
        async with trainer_of() as trainer:
            return Path(await trainer.save_state("good"))

    good = run(main())

    def spoiled(name, content=None):
        path = tmp_path / f"spoiled-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(good, path)
        (path / name).unlink() if content is None else (path / name).write_text(content)
        return str(path)

    state = json.loads((good / "state.json").read_text())
    for reference, message in (
        (str(tmp_path / "nowhere"), "is no directory"),
        (spoiled("state.json"), "state.json: cannot be read: No such file"),
        (spoiled("state.json", "{"), "state.json: is damaged"),
        (spoiled("optimizer.safetensors"), "optimizer.safetensors: is missing"),
        (spoiled("adapter_model.safetensors"), "adapter_model.safetensors: is missing"),
        (spoiled("state.json", json.dumps(state | {"format": 7})), "is 7; this version reads 1"),
    ):
        with pytest.raises(DataError, match=message):
            trainer_of(resume_from=reference)
    with pytest.raises(UsageError, match="saved with lora_rank 4, but this run has 8"):
        trainer_of(resume_from=str(good), lora_rank=8)
    with pytest.raises(UsageError, match="saved with model"):
        trainer_of(resume_from=str(good), model=model_of("mistral"))

    async def enter(reference):
        async with trainer_of(resume_from=reference):
            pass

    with pytest.raises(DataError, match="cannot be read"):
        run(enter(spoiled("adapter_model.safetensors", "not tensors")))


@pytest.mark.parametrize("by", ["save", "resume"])
def test_what_a_killed_save_left_goes_and_what_it_was_replacing_comes_back(trainer_of, by):
    async def main():
        async with trainer_of() as trainer:
            good = Path(await trainer.save_state("good"))
            here = good.parent
            shutil.copytree(good, here / ".good.old-1")  # killed after both renames
            for name in (".next.new-1", ".good.new-23"):  # killed while it wrote
                here.joinpath(name).mkdir()
                here.joinpath(name, "adapter_model.safetensors").write_bytes(b"half")
            good.rename(here / ".last.old-4")  # killed between the two renames
            others = [here / ".mine", here / ".written.new-5"]
            for path in others:
                path.mkdir()
            held = hold(others[1])  # another process writes it
            if by == "save":
                await trainer.save_state("more")
            else:
                trainer_of(resume_from=str(here / "last"))
            os.close(held)
            assert {path.name for path in here.iterdir()} == {
                *("good", "last", ".mine", ".written.new-5"),
                *(["more"] if by == "save" else []),
            }

    run(main())
