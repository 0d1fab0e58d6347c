"""What the tests of the Slime adapter share."""

import pytest

from tests.adapters.local.local_kit import build_model, build_tokenizer
from tests.adapters.slime.router_kit import Router


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The directory of a mini Llama with random weights, one token per character."""
    import torch
    from transformers.utils import logging

    path = tmp_path_factory.mktemp("llama")
    logging.disable_progress_bar()
    torch.manual_seed(0)
    build_model("llama").save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def learner(tiny):
    """The local trainer's learner of the mini Llama, in float64, with a small adapter."""
    from focus_adapter_local import LocalTrainer
    from focus_adapter_local.learner import Learner
    from focus_adapter_local.models import find_model, load_model

    trainer = LocalTrainer(model=tiny, dtype="float64", lora_rank=4, lora_alpha=8.0)
    loaded = load_model(find_model(tiny), device="cpu", dtype="float64")
    return Learner(loaded, trainer._learner_config())


@pytest.fixture(scope="session")
def running_router(tiny):
    """The mini Llama behind a stand-in for Slime's router."""
    with Router(model=tiny) as started:
        yield started


@pytest.fixture
def router(running_router):
    """The router, without faults and without memory."""
    running_router.clear()
    yield running_router
    running_router.clear()
