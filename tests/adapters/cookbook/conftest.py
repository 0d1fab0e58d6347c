"""The tests of the cookbook's adapter, where the cookbook is installed."""

import importlib.util

import pytest

MISSING = importlib.util.find_spec("tinker_cookbook") is None


class LeftOut(pytest.Module):
    """A module that is not imported, as what it imports is not there."""

    def collect(self):
        pytest.skip("tinker_cookbook is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Skip every module without the cookbook, and say why."""
    return LeftOut.from_parent(parent, path=module_path) if MISSING else None


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
