"""Model directories that the tests of the local trainer share."""

import pytest

from tests.adapters.local.local_kit import build_model, build_tokenizer


@pytest.fixture(scope="session")
def model_of(tmp_path_factory):
    """The directory of a mini model of an architecture, by name."""
    import torch
    from transformers.utils import logging

    made = {}

    def directory(kind="llama"):
        if kind not in made:
            path = tmp_path_factory.mktemp(kind)
            logging.disable_progress_bar()
            torch.manual_seed(0)
            build_model(kind).save_pretrained(path)
            build_tokenizer().save_pretrained(path)
            made[kind] = str(path)
        return made[kind]

    return directory


@pytest.fixture(scope="session")
def mini(model_of):
    """A mini Llama."""
    return model_of("llama")


@pytest.fixture
def trainer_of(mini, tmp_path):
    """Make a trainer of the mini Llama (or ``model=``), with a small adapter."""
    from focus_adapter_local import LocalTrainer

    def make(**options):
        defaults = {
            "model": mini,
            "lora_rank": 4,
            "lora_alpha": 8.0,
            "learning_rate": 1e-2,
            "threads": 1,
            "checkpoint_dir": str(tmp_path / "checkpoints"),
        }
        return LocalTrainer(**(defaults | options))

    return make
