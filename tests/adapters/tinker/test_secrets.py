"""The API key is in nothing a failing run leaves, though the server repeats it in its errors."""

import asyncio
import logging
import os
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest
import tinker
from focus_adapter_tinker import explain, train, update_actor

from focus_core import FocusError, Problem
from tests.adapters.tinker.sdk_kit import ENDS_SESSIONS, collector_for, record

KEY = "tml-hush-1f6b2c"
PROGRAM = """
    import logging
    import sys

    logging.basicConfig(level=logging.DEBUG, filename="debug.log")
    from focus_core.cli import main

    main()
"""


@pytest.fixture
def echoing(server):
    """Switch on that some routes answer with the key they were sent."""
    yield lambda *routes: server.inject(*(f"{route}:1-=echo" for route in routes))
    server.heal()


def struck(server):
    return {spec.split(":")[0] for spec, times in server.stats()["faults"].items() if times}


@pytest.mark.parametrize("route", ["optim_step", "asample", "create_model"])
def test_a_failing_run_leaves_it_nowhere(server, echoing, tmp_path, route):
    """Its directory, its recording, what it prints and logs, and its process's title."""
    echoing(route, "finish")
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", textwrap.dedent(PROGRAM), "train", "--task", "arithmetic"),
            *("--trainer", "tinker", "--model", "m", "--steps", "2", "--run-dir", "run", "--json"),
            *("--set", "search.budget=2", "--set", "search.warmup=2", "--record", "recording"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "TINKER_API_KEY": KEY,
            "TINKER_BASE_URL": server.base_url,
            "FOCUS_TRACE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    titles = Path(f"/proc/{process.pid}/cmdline")
    title = titles.read_bytes() if titles.exists() else b""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert route in struck(server)
    last = next(line for line in err.splitlines() if line.startswith(b"focus: "))
    assert b"the key *** may not do this" in last, "the server repeated it, and it was masked"
    left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert tmp_path / "run/config.json" in left
    assert tmp_path / "debug.log" in left
    if ENDS_SESSIONS:
        assert "finish" in struck(server)
        untold = b"Tinker was not told that the session ended: PermissionDeniedError: "
        assert untold in left[tmp_path / "debug.log"]
    for name, text in {**left, "out": out, "err": err, "title": title}.items():
        assert KEY.encode() not in text, name


def traced(error):
    return "".join(traceback.format_exception(error))


def given_in_code(server):
    """A training client whose key is not in the environment."""
    service = tinker.ServiceClient(base_url=server.base_url, api_key=KEY)
    made = service.create_lora_training_client(base_model="m", rank=4)
    return service, made.result() if hasattr(type(made), "result_async") else made


def end(service):
    if ENDS_SESSIONS:
        service.close("errored").result()


@pytest.mark.parametrize(
    "route",
    [
        "forward_backward",
        "optim_step",
        "asample",
        "save_weights_for_sampler",
        pytest.param(
            "get_sampler",
            marks=pytest.mark.skipif(
                hasattr(tinker.SamplingClient.sample_async, "__deprecated__"),
                reason="this SDK learns the tokenizer with the training client",
            ),
        ),
    ],
)
def test_a_key_given_in_code_is_in_no_error_and_no_log(server, echoing, caplog, route):
    caplog.set_level(logging.DEBUG)
    service, client = given_in_code(server)
    echoing(route)
    try:
        with pytest.raises(FocusError) as caught:
            asyncio.run(
                train(
                    client,
                    model="m",
                    problems=[Problem("Compute 2+3.")],
                    collector_for=collector_for,
                    steps=1,
                    learning_rate=1e-4,
                )
            )
    finally:
        end(service)
    assert route in struck(server)
    assert "the key *** may not do this" in str(caught.value)
    assert KEY not in traced(caught.value)
    assert KEY not in caplog.text


def test_nor_in_those_of_a_step_by_hand(server, echoing):
    service, client = given_in_code(server)
    echoing("forward_backward")
    try:
        with pytest.raises(FocusError, match=r"the key \*\*\* may") as caught:
            asyncio.run(update_actor(client, [record()], learning_rate=1e-4))
    finally:
        end(service)
    assert KEY not in traced(caught.value)


@pytest.mark.parametrize(
    "key", ["tml-abcDEF123456", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.s1-_g", "tml-a+b/c=d.e"]
)
@pytest.mark.parametrize("form", ["{}", "key={}", "b'{}'", '"{}"', "({})", "Bearer {},"])
def test_whatever_looks_like_a_key_is_masked(key, form):
    said = explain(ValueError("it was " + form.format(key)))
    assert said == "ValueError: it was " + form.format("***")


def test_what_is_no_key_is_left_as_it_is():
    for text in (
        "the api_key must start with the 'tml-' prefix",
        "use tml-renderers",
        "heyJoe12345",
    ):
        assert explain(ValueError(text)) == f"ValueError: {text}"


@pytest.mark.parametrize("error", [TimeoutError(), asyncio.CancelledError(), ValueError("  ")])
def test_an_error_without_words_is_called_by_its_name(error):
    assert explain(error) == type(error).__name__


def test_the_log_of_the_sdk_is_masked_with_its_tracebacks(caplog):
    from focus_adapter_tinker._sdk import mask_logs

    log = logging.getLogger("tinker.lib.some_module")
    mask_logs()
    mask_logs()
    try:
        raise ValueError(f"refused {KEY}")
    except ValueError:
        log.exception("with %s", KEY)
    log.warning("without %s", "any")
    assert KEY not in caplog.text
    assert "ValueError: refused ***" in caplog.text
    assert [r.getMessage() for r in caplog.records] == ["with ***", "without any"]


def test_loggers_are_looked_over_when_there_are_new_ones_only(caplog, monkeypatch):
    """Every request sees to it that the SDK's log is masked."""
    from focus_adapter_tinker._sdk import mask_logs

    mask_logs()
    with monkeypatch.context() as patch:
        patch.setattr(logging, "getLogger", lambda name: pytest.fail("looked over again"))
        mask_logs()
    late = logging.getLogger("tinker.lib.a_module_imported_late")
    mask_logs()
    late.warning("with %s", KEY)
    assert "with ***" in caplog.text
