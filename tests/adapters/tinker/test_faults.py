"""Every fault at every request of a three-step run: it goes on whole, or says what it lost.

What is expected is the table of ``docs/tinker.md``; where it strikes is read off calm runs.
"""

import gc
import re
from pathlib import Path

import pytest
from focus_adapter_tinker import connection
from focus_adapter_tinker.loopback.faults import FUTURE_ROUTES, ROUTES, kinds_of

from focus_core import CollectionError, TrainerError
from tests.adapters.tinker.fault_kit import LIMIT, STEPS, hurried_sdk, three_steps
from tests.adapters.tinker.sdk_kit import ENDS_SESSIONS

TABLE = Path(__file__).parents[3] / "docs" / "tinker.md"
GOES_ON, STOPS = "goes on", "stops"
GROUPS = ("opening", "sample", "training", "rest")
"""The table's columns, after the fault and its meaning."""

OPENING = ("client_config", "client_dynamic_config", "create_session", "create_model")
RESUMING = ("weights_info", "load_weights")
SNAPSHOT = ("save_weights_for_sampler", "create_sampling_session", "get_sampler", "get_info")
TRAINING = ("forward_backward", "optim_step", *SNAPSHOT, "save_weights")
REST = ("get_server_capabilities", "finish")
ASIDE = ("session_heartbeat", "telemetry")
"""Asked by the clock, not by the run."""

RUN = (*OPENING, *RESUMING, "asample", *TRAINING, *REST)
STOPPING = ("cancel_future", "healthz")
"""Asked by runs that stop. ``retrieve_future`` is where the faults of ``X.result`` strike."""

EVERY = {*RUN, *ASIDE, *STOPPING, "retrieve_future"}


def kinds(route):
    """Faults of a route and of its result, as the table writes them."""
    short = {"timeout": ("timeout:S", "timeout"), "slow": ("slow:S",)}
    door = [each for kind in kinds_of(route) for each in short.get(kind, (kind,))]
    found = ["429", "500", "403", *door]
    if route in FUTURE_ROUTES:
        result = [each for kind in kinds_of(f"{route}.result") for each in short.get(kind, (kind,))]
        found += [f".result={kind}" for kind in ("429", "500", "403", "410", *result)]
    return found


def spec(route, kind, position):
    """As the loopback reads it."""
    kind = kind.replace(":S", ":0.1")
    if kind.startswith(".result="):
        return f"{route}.result:{position}={kind.removeprefix('.result=')}"
    return f"{route}:{position}={kind}"


def group(route, position=1):
    """The table's column. The SDK asks for its configuration again before optional questions."""
    if route in OPENING[:2]:
        return "opening" if position == 1 else "rest"
    if route in (*OPENING, *RESUMING):
        return "opening"
    return "sample" if route == "asample" else "training" if route in TRAINING else "rest"


def outcomes():
    """The documentation's table: a cell by group and kind."""
    lines = TABLE.read_text(encoding="utf-8").partition("| fault |")[2].splitlines()[2:]
    found = {}
    for line in lines[: lines.index("")]:
        fault, _, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for kind in re.findall(r"`([^`]+)`", fault):
            found |= {(name, kind): cell for name, cell in zip(GROUPS, cells, strict=True)}
    return found


EXPECTED = outcomes()


@pytest.fixture(scope="module")
def calm(server):
    """A new run and a resumed one, without faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_TELEMETRY", "0")
        patch.setenv("TINKER_API_KEY", "tml-loopback")
        patch.delenv("TINKER_PROJECT_ID", raising=False)
        hurried_sdk(patch)
        new = three_steps(server, first=True)
        went_on(new)
        resumed = three_steps(server, resume_from=new.state)
        went_on(resumed)
    yield new, resumed
    gc.collect()


@pytest.fixture
def _collect_garbage():
    """At the end instead: there are many short tests here."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    hurried_sdk(monkeypatch)


def went_on(ended, more_open=0):
    """Whether a run made its three updates, each on one gradient, of all that was counted."""
    assert ended.error is None, ended.said
    assert ended.lags == [0, 1, 1]
    assert ended.steps == [1] * STEPS
    assert ended.gradients == STEPS
    assert ended.trained[0] == ended.trained[1]
    assert ended.state is not None
    assert not ENDS_SESSIONS or ended.open_sessions <= more_open


def done(route, kind, position):
    """Gradients computed and steps made in a run that stops here."""
    computed = "logprobs" in kind or kind == "timeout" or kind.startswith(".result=")
    if route == "forward_backward":
        return position - 1 + computed, position - 1
    if route == "optim_step":
        return position, position - 1 + computed
    if route == "save_weights":
        return STEPS, STEPS
    return (0, 0) if group(route) == "opening" else (position - 1, position - 1)


def says(route, kind, position):
    """What the error has to name: the step, and what may have been applied."""
    step = position - 1
    update = rf"the update of step {step} on batch {step} (failed|got no answer)"
    if route == "forward_backward":
        return rf"{update}.*no optimizer step was sent"
    if route == "optim_step":
        return rf"{update}.*its optimizer step was sent and may have been applied"
    if route == "save_weights":
        return r"saving the state 'end' of step 3 failed, though it may have been saved: \w+"
    if route == "asample":
        return rf"log probabilities|sampling failed|no sample within {LIMIT:g} s"
    if route in SNAPSHOT:
        return rf"publishing the policy of step {step}( failed: \w+)?"
    return r"Tinker at http://\S+ does not open 'm': \w+"


def cases():
    """Every route and kind; all but one route of a cell of the table are long."""
    first = ("create_model", "asample", "optim_step", "finish")  # what says most of its cell
    seen = set()
    for route in sorted(RUN, key=lambda route: (route not in first, RUN.index(route))):
        for kind in kinds(route):
            known = (group(route), kind) in seen
            seen.add((group(route), kind))
            yield pytest.param(route, kind, marks=[pytest.mark.long] if known else [])


@pytest.mark.parametrize(("route", "kind"), list(cases()))
def test_a_run_goes_on_whole_or_says_what_was_lost(server, calm, route, kind):
    new, resumed = calm
    resume_from = new.state if route in RESUMING else None
    requests = (resumed if resume_from else new).routes.get(route, 0)
    if not requests:
        pytest.skip(f"this SDK does not ask {route}")
    for position in range(1, requests + 1):
        fault, name = spec(route, kind, position), group(route, position)
        ended = three_steps(
            server,
            fault,
            resume_from=resume_from,
            no_answer=kind.endswith("timeout"),
            patient="update" if name == "sample" else "sample",
        )
        assert ended.struck == 1, fault
        if EXPECTED[name, kind].startswith(GOES_ON):
            went_on(ended, more_open=route == "create_session" or name == "rest")
            continue
        assert EXPECTED[name, kind].startswith(STOPS), fault
        assert isinstance(ended.error, TrainerError | CollectionError), ended.said
        assert re.search(says(route, kind, position), ended.said), ended.said
        if name == "sample":
            assert f"for batch {position - 1}" in ended.said
        gradients, steps = done(route, kind, position)
        assert (ended.gradients, ended.steps) == (gradients, [1] * steps), fault
        assert not ENDS_SESSIONS or ended.open_sessions <= (route == "create_session"), fault
        if kind.endswith("timeout"):
            assert "no answer" in ended.said or "no sample within" in ended.said


@pytest.mark.parametrize("kind", kinds("session_heartbeat"))
@pytest.mark.parametrize("route", ASIDE)
def test_what_is_asked_aside_stops_no_run(server, calm, monkeypatch, route, kind):
    """Every heartbeat, ten times as many as usual, or every report of telemetry."""
    monkeypatch.setenv("TINKER_TELEMETRY", "1")
    hurried_sdk(monkeypatch, longest=10.0)
    ended = three_steps(server, spec(route, kind, "1-"), first=True)
    assert ended.struck
    assert EXPECTED["rest", kind].startswith(GOES_ON)
    went_on(ended, more_open=1)


@pytest.mark.parametrize("kind", kinds("cancel_future"))
def test_a_sample_that_cannot_be_called_off_is_given_up_all_the_same(server, calm, kind):
    ended = three_steps(
        server,
        "asample:2=slow:1",
        spec("cancel_future", kind, 1),
        no_answer=True,
        patient="update",
    )
    assert re.search("no sample within .* for batch 1", ended.said, re.DOTALL)
    assert (ended.gradients, ended.steps) == (1, [1])
    assert not ENDS_SESSIONS or not ended.open_sessions


@pytest.mark.parametrize("kind", kinds("healthz"))
def test_a_server_that_cannot_be_looked_at_is_named_all_the_same(server, calm, monkeypatch, kind):
    monkeypatch.setattr(connection, "_PROBE", 0.5)
    ended = three_steps(server, "create_model:1=403", spec("healthz", kind, 1))
    assert ended.struck == 2
    assert re.search(says("create_model", "403", 1), ended.said), ended.said
    assert (ended.gradients, ended.steps) == (0, [])
    assert not ENDS_SESSIONS or not ended.open_sessions


def test_every_request_of_a_run_is_struck_by_every_fault(calm):
    """No route, result or kind of fault is missing from the cases or from the table."""
    for ended in calm:
        assert set(ended.routes) <= EVERY
        results = sum(ended.routes.get(route, 0) for route in FUTURE_ROUTES)
        assert ended.routes["retrieve_future"] == results
    for route in RESUMING:
        assert calm[1].routes[route] == 1
    assert set(ROUTES) == EVERY
    every = {kind for route in ROUTES for kind in kinds(route)}
    assert {kind for _, kind in EXPECTED} == every
    reached = {
        (group(route, position), kind)
        for route in ROUTES
        if route != "retrieve_future"
        for position in (1, 2)
        for kind in kinds(route)
    }
    for case in reached:
        assert EXPECTED[case].startswith((GOES_ON, STOPS)), case
