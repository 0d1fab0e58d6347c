"""Each kind of fault, as the SDK and as a plain HTTP client meet it."""

import http.client
import time
import urllib.error

import numpy as np
import pytest

from focus_core import UsageError
from tests.adapters.tinker.loopback.loopback_kit import (
    call,
    datum,
    forwarded,
    learned,
    raw_model,
    sample,
    settle,
    snapshot,
    step,
)

CLOSED = (urllib.error.URLError, http.client.RemoteDisconnected, ConnectionResetError)


def struck(server, spec):
    return server.stats()["faults"][spec]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_status_is_answered_at_the_door_and_retried(client, server, status):
    sampler = snapshot(client.train())
    server.inject(f"asample:1={status}")
    assert len(sample(sampler, n=2)) == 2
    assert struck(server, f"asample:1={status}") == 1


def test_a_status_that_is_not_retried_reaches_the_caller(client, server):
    import tinker

    sampler = snapshot(client.train())
    server.inject("asample:1=410")
    with pytest.raises(tinker.APIStatusError) as caught:
        sample(sampler)
    assert caught.value.status_code == 410


def test_a_range_strikes_every_request_in_it(server):
    server.inject("healthz:2-3=503", "get_server_capabilities:2-=500")
    assert [call(server, "/api/v1/healthz", method="GET")[0] for _ in range(4)] == [
        200,
        503,
        503,
        200,
    ]
    path = "/api/v1/get_server_capabilities"
    assert [call(server, path, method="GET")[0] for _ in range(3)] == [200, 500, 500]
    server.heal()
    assert call(server, path, method="GET")[0] == 200


@pytest.mark.parametrize("kind", ["500", "429", "drop", "lost", "timeout:0.3"])
@pytest.mark.parametrize("route", ["forward_backward", "optim_step"])
def test_an_update_is_done_once_whatever_happens_to_its_requests(client, server, route, kind):
    training, calm = client.train(seed=5), client.train(seed=5)
    learned(calm, [datum()])
    step(calm)
    spec = f"{route}:1={kind}"
    server.inject(spec)
    learned(training, [datum()])
    step(training)
    assert struck(server, spec) == 1
    np.testing.assert_array_equal(forwarded(training, [datum()])[0], forwarded(calm, [datum()])[0])


@pytest.mark.parametrize("kind", ["500", "429", "408", "drop", "timeout:0.3"])
def test_a_result_can_be_asked_for_again(client, server, kind):
    training = client.train()
    server.inject(f"forward_backward.result:1={kind}", f"optim_step.result:1={kind}")
    assert len(learned(training, [datum()])[1]) == 1
    assert step(training).metrics["grad_norm"] > 0
    assert list(server.stats()["faults"].values()) == [1, 1]


def test_a_result_that_is_gone_is_sampled_again_but_not_trained_again(client, server):
    training = client.train()
    sampler = snapshot(training)
    server.inject("asample.result:1=410", "forward_backward.result:1=410")
    assert len(sample(sampler)) == 1
    asked = server.stats()["routes"]["forward_backward"]
    with pytest.raises(Exception, match="expired"):
        learned(training, [datum()])
    assert server.stats()["routes"]["forward_backward"] == asked + 1
    assert list(server.stats()["faults"].values()) == [1, 1]


@pytest.mark.parametrize("route", ["forward_backward", "optim_step"])
def test_a_failed_result_changes_nothing(client, server, route):
    from tinker import RequestFailedError
    from tinker.types import RequestErrorCategory

    training, calm = client.train(seed=5), client.train(seed=5)
    learned(training, [datum()]), learned(calm, [datum()])
    server.inject(f"{route}:1=fail")
    with pytest.raises(RequestFailedError, match="fault") as caught:
        learned(training, [datum()]) if route == "forward_backward" else step(training)
    assert caught.value.category is RequestErrorCategory.Server
    step(training), step(calm)
    np.testing.assert_array_equal(forwarded(training, [datum()])[0], forwarded(calm, [datum()])[0])


def test_a_failed_sample_is_told(client, server):
    from tinker import RequestFailedError

    sampler = snapshot(client.train())
    server.inject("asample:1=fail")
    with pytest.raises(RequestFailedError, match="fault"):
        sample(sampler)


def test_log_probabilities_go_missing(client, server):
    training = client.train()
    sampler = snapshot(training)
    server.inject("asample:1=missing_logprobs", "asample:2=short_logprobs")
    missing, short, whole = (sample(sampler, n=2) for _ in range(3))
    assert [each.logprobs for each in missing] == [None, None]
    assert [len(each.tokens) - len(each.logprobs) for each in short] == [1, 1]
    assert [len(each.tokens) - len(each.logprobs) for each in whole] == [0, 0]
    server.inject("forward_backward:1=missing_logprobs", "forward_backward:2=short_logprobs")
    outputs = [settle(training.forward_backward([datum()], "ppo")) for _ in range(3)]
    assert outputs[0].loss_fn_outputs == [{}]
    sizes = [len(each.loss_fn_outputs[0]["logprobs"].data) for each in outputs[1:]]
    assert sizes[1] - sizes[0] == 1


def test_a_slow_result_takes_its_time(client, server):
    training = client.train()
    server.inject("forward_backward:1=slow:1.5")
    begun = time.monotonic()
    learned(training, [datum()])
    assert time.monotonic() - begun >= 1.5


def test_a_dropped_connection_is_closed_before_anything_is_done(server):
    server.inject("create_session:1=drop", "create_session:2=lost")
    sessions = len(server.stats()["sessions"])
    for more in (0, 1):  # what was lost was done
        with pytest.raises(CLOSED):
            call(server, "/api/v1/create_session", {"tags": []})
        assert len(server.stats()["sessions"]) == sessions + more


def test_a_timeout_keeps_the_client_waiting(server):
    server.inject("healthz:1=timeout")
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        call(server, "/api/v1/healthz", method="GET", timeout=0.7)
    assert 0.6 < time.monotonic() - begun < 5
    assert call(server, "/api/v1/healthz", method="GET")[0] == 200


def result_of(server, answer):
    body = {"request_id": answer[1]["request_id"]}
    return call(server, "/api/v1/retrieve_future", body)[1]


def test_an_operation_does_not_wait_for_ever_for_one_that_was_lost(server):
    _, model = raw_model(server)
    operations = [
        call(server, "/api/v1/optim_step", {"model_id": model, "seq_id": n, "adam_params": {}})
        for n in (2, 3)
    ]
    begun = time.monotonic()
    errors = [result_of(server, each)["error"] for each in operations]
    assert 1 < time.monotonic() - begun < 6
    assert "operation 1 of the model never arrived" in errors[0]
    assert "never arrived" in errors[1]
    late = call(server, "/api/v1/optim_step", {"model_id": model, "seq_id": 1, "adam_params": {}})
    assert "too late" in result_of(server, late)["error"]
    body = {"model_id": model, "seq_id": 4, "path": "after"}
    assert result_of(server, call(server, "/api/v1/save_weights", body))["path"].endswith("/after")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("asample=429", "ROUTE:N=KIND"),
        ("asample:0=429", "ROUTE:N=KIND"),
        ("nonsense:1=429", "no route 'nonsense'"),
        ("healthz.result:1=429", "no route 'healthz'"),
        ("asample:1=200", "400 to 599"),
        ("healthz:1=slow", "drop, lost, timeout"),
        ("optim_step:1=short_logprobs", "fail, slow"),
        ("asample.result:1=slow", "drop, timeout"),
        ("asample:1=drop:3", "slow and timeout"),
        ("asample:5-2=429", "2 comes before 5"),
    ],
)
def test_a_fault_that_cannot_be_read_says_why(server, spec, says):
    with pytest.raises(UsageError) as caught:
        server.inject("asample:1=429", spec)
    assert says in str(caught.value)
    assert spec in str(caught.value)
    assert server.stats()["faults"] == {}
