"""Trees and a browser, made once."""

import pytest

from tests.view import view_kit
from tests.view.browser import Browser, installed


@pytest.fixture(scope="session")
def tree():
    """A saved tree of some seventy states."""
    return view_kit.saved(budget=40, warmup=16)


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium."""
    if installed() is None:
        pytest.skip("no Chromium; on Debian: apt-get install chromium")
    with Browser() as browser:
        yield browser
