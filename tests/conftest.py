"""What all tests share: one thread of torch, what ``--all`` adds, and one hypothesis profile.

The same examples every time, without a database; ``HYPOTHESIS_PROFILE=explore`` draws new ones.
"""

import gc
import os
import signal
import threading
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# Before torch is imported, here and in every process that a test starts: tests compute little, and
# threads of several workers would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Started in the background of a shell, this process and its children ignore SIGINT; the tests
# that interrupt a run need it as a terminal would leave it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "focus",
    deadline=None,  # a loaded machine is no failure
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", settings.get_profile("focus"), derandomize=False, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "focus"))


@pytest.fixture
def own_threads():
    """Names of the kit's threads that were started since the test began."""
    before = set(threading.enumerate())

    def names():
        new = set(threading.enumerate()) - before
        return [thread.name for thread in new if thread.name.startswith("focus-")]

    return names


WANTS = ("SLIME_SRC", "../shared", "Chromium")
"""What a machine may lack: named in the reason of whatever is skipped for want of it."""
LONG = pytest.StashKey()
"""How many long tests were left out."""


def pytest_addoption(parser):
    """One place decides what a run leaves out: tests marked ``long``."""
    parser.addoption("--all", action="store_true", help="run the tests marked long, too")


def pytest_collection_modifyitems(config, items):
    """Leave out what is long, unless asked for everything."""
    long = [] if config.option.all else [item for item in items if item.get_closest_marker("long")]
    if long:
        items[:] = [item for item in items if item not in set(long)]
        config.hook.pytest_deselected(items=long)
    config.stash[LONG] = getattr(config, "workeroutput", {})["long"] = len(long)


def pytest_collection_finish():
    """What was imported stays: no collection looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Keep what a worker left out, which only its process counts."""
    node.config.stash[LONG] = getattr(node, "workeroutput", {}).get("long", 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter, config):
    """One line before the last: what did not run, and what it would take."""
    yield
    lacking = Counter(
        want
        for report in terminalreporter.stats.get("skipped", ())
        for want in WANTS
        if want in str(report.longrepr)
    )
    told = [f"{count} for want of {want}" for want, count in sorted(lacking.items())]
    if left := config.stash.get(LONG, 0):
        told.append(f"{left} long ones without --all")
    terminalreporter.write_line(f"did not run: {', '.join(told) or 'nothing that this kit knows'}")
