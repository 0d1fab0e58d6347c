"""One server, and clients of the SDK, for the tests of this folder."""

from pathlib import Path

import pytest

from tests.adapters.tinker.loopback.loopback_kit import Client, missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Skip where the SDK or the server is not installed."""
    reason = missing()
    for item in items:
        if reason and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


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
