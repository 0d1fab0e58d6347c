"""One server, and clients of the SDK, for the tests of this folder."""

import gc
from pathlib import Path

import pytest

from tests.adapters.tinker.loopback.loopback_kit import Client, missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Let the SDK leave sockets to the garbage collector, and skip where it is not installed."""
    marks = [
        pytest.mark.filterwarnings("ignore::ResourceWarning"),
        pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    ]
    reason = missing()
    for item in items:
        if HERE in item.path.parents:
            for mark in marks + ([pytest.mark.skip(reason=reason)] if reason else []):
                item.add_marker(mark)


@pytest.fixture(autouse=True)
def _collect_garbage():
    """Here, where what the SDK leaves open is no error."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def shared_server():
    from focus_adapter_tinker.loopback import Loopback

    with Loopback(model="tiny", seed=1, threads=1, options=["--patience", "2"]) as running:
        yield running
        assert running.log() == ""


@pytest.fixture
def server(shared_server):
    """A server without faults."""
    shared_server.heal()
    yield shared_server
    shared_server.heal()


@pytest.fixture
def client(server, monkeypatch):
    """A session of the SDK, closed in the end."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    opened = Client(server.base_url)
    yield opened
    opened.close("success")
