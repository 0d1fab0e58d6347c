"""The tests of the cookbook's adapter, where the cookbook is installed."""

import importlib.util

import pytest

if importlib.util.find_spec("tinker_cookbook") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header():
    """Say why there are no tests."""
    if importlib.util.find_spec("tinker_cookbook") is None:
        return "tests/adapters/cookbook: left out, tinker_cookbook is not installed"
    return None


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No telemetry, no hub."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def tiny():
    """The directory of the policy in the local trainer's wheel, for its tokenizer."""
    from pathlib import Path

    import focus_adapter_local

    return str(Path(focus_adapter_local.__file__).parent / "tiny")


@pytest.fixture(scope="session")
def renderer(tiny):
    """Its chat template as a renderer."""
    from focus_adapter_cookbook.chat import TEMPLATE_RENDERER
    from tinker_cookbook.renderers import get_renderer
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    return get_renderer(TEMPLATE_RENDERER, get_tokenizer(tiny))
