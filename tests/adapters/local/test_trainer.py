"""Options, life cycle and what the plug-in registers."""

import asyncio
import inspect
import subprocess
import sys
import threading

import pytest
from focus_adapter_local import Item, LocalTrainer, plugin, to_item

from focus_core import SamplingParams, Trainer, TrainerError, UsageError
from focus_core.policy import Policy
from tests.adapters.local.local_kit import batch, run, sample_records


def test_the_plugin_registers_what_exists():
    (trainer,) = plugin.focus_trainers()
    (converter,) = plugin.focus_converters()
    assert (trainer.name, converter.name) == ("local", "local")
    assert trainer.factory == f"{LocalTrainer.__module__}:{LocalTrainer.__name__}"
    assert converter.factory == f"{to_item.__module__}:{to_item.__name__}"
    assert trainer.capabilities == LocalTrainer.capabilities == {"merges-spans", "resumes"}


def test_registering_and_wrong_options_import_nothing_heavy():
    code = (
        "import sys\n"
        "from focus_adapter_local import LocalTrainer, plugin, to_item\n"
        "plugin.focus_trainers(), plugin.focus_converters()\n"
        "try:\n    LocalTrainer(model='nonsense')\n"
        "except ValueError:\n    pass\n"
        "heavy = {'torch', 'transformers', 'peft', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "dpo"}, "loss is 'dpo'; it must be one of cispo, cross_entropy, importance"),
        ({"dtype": "int8"}, "dtype is 'int8'; it must be one of float64, float32, bfloat16"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"lora_rank": 0}, "lora_rank is 0"),
        ({"warmup_steps": -1}, "warmup_steps is -1; it must be 0 or more"),
        ({"beta2": 1.0}, "beta2 is 1.0"),
        ({"clip_low_threshold": 1.3}, "bounds on the ratio"),
        ({"clip_high_threshold": 0.2}, "bounds on the ratio"),
        ({"threads": 0}, "threads is 0"),
        ({"logprob_tolerance": -1.0}, "logprob_tolerance is -1.0"),
    ],
)
def test_wrong_options_are_refused_on_construction(options, message, trainer_of):
    with pytest.raises(UsageError, match=message):
        trainer_of(**options)


def test_options_are_plain_keywords_with_defaults():
    for name, parameter in inspect.signature(LocalTrainer).parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name
        assert parameter.default is not inspect.Parameter.empty, name


def test_a_device_that_is_not_there(trainer_of):
    async def main(device):
        async with trainer_of(device=device):
            pass

    import torch

    with pytest.raises(UsageError, match="device 'nonsense'"):
        run(main("nonsense"))
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="torch sees no CUDA GPU"):
            run(main("cuda"))


def test_protocols_and_life_cycle(trainer_of, own_threads):
    async def main():
        trainer = trainer_of()
        assert isinstance(trainer, Trainer)
        for use in (trainer.publish_policy, lambda: trainer.save_state("x")):
            with pytest.raises(TrainerError, match="use it within 'async with'"):
                await use()
        async with trainer as entered:
            assert entered is trainer
            policy = await trainer.publish_policy()
            assert isinstance(policy, Policy)
            assert policy.version == 0
            items = trainer.convert([])
            assert items == []
            await trainer.close("success")
            await trainer.close("success")
        with pytest.raises(TrainerError, match="use it within"):
            await trainer.publish_policy()
        with pytest.raises(TrainerError, match="entered before"):
            await trainer.__aenter__()
        assert not own_threads()

    run(main())


def test_convert_takes_either_form_in_any_thread(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            records = await sample_records(await trainer.publish_policy())
            plain = await asyncio.to_thread(trainer.convert, [r.to_dict() for r in records])
            native = trainer.convert(records)
            assert all(isinstance(each, Item) for each in plain)
            assert [i.trained_tokens for i in plain] == [i.trained_tokens for i in native]

    run(main())


def test_several_snapshots_are_sampled_at_once(trainer_of):
    async def main():
        async with trainer_of(max_sampling_batch=3) as trainer:
            policies = []
            for seed in range(3):
                policies.append(await trainer.publish_policy())
                records = await sample_records(policies[-1], seed=seed)
                await trainer.update(batch(trainer, records))
            params = SamplingParams(max_tokens=20, seed=0)
            alone = [await each.generate([5, 6], params) for each in policies]
            together = await asyncio.gather(*(each.generate([5, 6], params) for each in policies))
            for a, b in zip(alone, together, strict=True):
                assert a[0].tokens == b[0].tokens
            assert len({tuple(each[0].logprobs) for each in together}) == 3
            assert [each.version for each in policies] == [0, 1, 2]

    run(main())


def test_a_cancelled_entry_leaves_no_thread(trainer_of, monkeypatch, own_threads):
    entered, go = threading.Event(), threading.Event()

    async def main():
        trainer = trainer_of()
        load = trainer._load

        def slow():
            entered.set()
            assert go.wait(30)
            load()

        monkeypatch.setattr(trainer, "_load", slow)
        task = asyncio.create_task(trainer.__aenter__())
        await asyncio.to_thread(entered.wait)
        task.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not own_threads()

    run(main())
