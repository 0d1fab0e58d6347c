"""The tests of the Tinker adapter need its SDK, and spend nothing."""

import pytest

pytest.importorskip("tinker", reason="the Tinker SDK is not installed")


@pytest.fixture(autouse=True)
def _quiet_sdk(monkeypatch):
    """No telemetry, no account, and no server but the one a test names."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("TINKER_API_KEY", "tml-loopback")
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    monkeypatch.delenv("TINKER_PROJECT_ID", raising=False)


@pytest.fixture(scope="session")
def server():
    """A loopback that all tests of a session share; whoever injects faults heals them."""
    pytest.importorskip("aiohttp", reason="the extra focus-adapter-tinker[loopback] is missing")
    from focus_adapter_tinker.loopback import Loopback

    with Loopback(model="tiny", threads=1) as running:
        yield running


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the model ``tiny``."""
    import focus_adapter_local
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(f"{focus_adapter_local.__path__[0]}/tiny")
