"""The stand-in router that the tests of Slime's adapter share."""

import pytest

from tests.adapters.slime.router_kit import Router


@pytest.fixture(scope="session")
def running_router():
    """One for the session: its model loads once."""
    with Router() as router:
        yield router


@pytest.fixture
def router(running_router):
    """The router, without faults and without memory."""
    running_router.clear()
    yield running_router
    running_router.clear()
