"""The value model behind vLLM's pooling endpoint, against a small server that answers like it."""

import asyncio
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("httpx", reason="VLLMCritic needs the extra focus-core[vllm]")

from focus_core import (
    Agent,
    Collector,
    Critic,
    CriticError,
    Independent,
    Problem,
    UsageError,
    VLLMCritic,
)
from focus_core.testing import CountdownEnv, RandomPolicy


class Pooling(ThreadingHTTPServer):
    """Answers POST /pooling as vLLM documents it; what it says of a text can be replaced.

    ``faults`` maps the number of a request to a status, or to a function of the handler.
    """

    def __init__(self, pooled=None, faults=None, refuses=()):
        self.pooled = pooled or (lambda text: [[0.0], [len(text) / 10]])
        self.faults = faults or {}
        self.refuses = refuses
        self.requests = []
        self.headers = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *_):
        """A client that left is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/pooling"
        self.server.requests.append(body)
        self.server.headers.append(dict(self.headers))
        fault = self.server.faults.get(len(self.server.requests) - 1, 200)
        if callable(fault):
            fault(self)
        elif fault != 200:
            self.answer(fault, {"error": {"message": "not now", "code": fault}})
        elif any(text in self.server.refuses for text in body["input"]):
            self.answer(400, {"error": {"message": "maximum context length is 8", "code": 400}})
        else:
            rows = [
                {"index": index, "object": "pooling", "data": self.server.pooled(text)}
                for index, text in enumerate(body["input"])
            ]
            self.answer(
                200,
                {
                    "id": "pool-1",
                    "object": "list",
                    "created": 1,
                    "model": body["model"],
                    "data": rows[::-1],  # the index says whose row it is
                    "usage": {"prompt_tokens": 3, "total_tokens": 3},
                },
            )

    def answer(self, status, value):
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def ask(server, *texts, **options):
    """What is predicted for some texts asked for at a time, errors in place."""

    async def main():
        client = VLLMCritic(server.url, "value", backoff=0.001, **options)
        try:
            return await asyncio.gather(*map(client.predict, texts), return_exceptions=True)
        finally:
            await client.aclose()

    return asyncio.run(main())


def test_the_last_score_is_the_value_and_one_request_asks_for_all():
    with Pooling() as server:
        assert ask(server, "a", "abc", "ab") == [0.1, 0.3, 0.2]
        assert server.requests == [{"model": "value", "input": ["a", "abc", "ab"]}]


def test_a_sequence_classifier_s_list_is_read_as_well():
    with Pooling(pooled=lambda text: [0.75]) as server:
        assert ask(server, "a") == [0.75]


def test_batches_are_bounded_and_every_text_is_sent_once():
    texts = ["x" * n for n in range(1, 24)]
    with Pooling() as server:
        found = ask(server, *texts, batch_size=5, concurrency=2)
    assert found == [len(text) / 10 for text in texts]
    assert max(len(request["input"]) for request in server.requests) <= 5
    assert sorted(text for request in server.requests for text in request["input"]) == texts


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(status):
    with Pooling(faults={0: status, 1: status}) as server:
        assert ask(server, "ab") == [0.2]
        assert len(server.requests) == 3


def test_a_dropped_connection_is_asked_again():
    with Pooling(faults={0: lambda handler: setattr(handler, "close_connection", True)}) as server:
        assert ask(server, "ab") == [0.2]


def test_retries_and_time_are_bounded():
    with Pooling(faults=dict.fromkeys(range(9), 503)) as server:
        (error,) = ask(server, "ab", retries=2)
        assert isinstance(error, CriticError)
        assert "3 attempts" in str(error)
        assert "503" in str(error)
        assert len(server.requests) == 3
    stuck = threading.Event()
    with Pooling(faults=dict.fromkeys(range(9), lambda _: stuck.wait(30))) as server:
        (error,) = ask(server, "ab", retries=1, timeout=0.1)
        stuck.set()
        assert isinstance(error, CriticError)
        assert "2 attempts" in str(error)


def test_one_text_that_is_refused_does_not_fail_the_others():
    with Pooling(refuses=("too long",)) as server:
        good, bad, also = ask(server, "a", "too long", "ab")
    assert (good, also) == (0.1, 0.2)
    assert isinstance(bad, CriticError)
    assert "maximum context length" in str(bad)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_batch_is_split_where_a_text_may_be_at_fault(status):
    with Pooling(faults={0: status}) as server:
        assert ask(server, "a", "ab") == [0.1, 0.2]
    assert [request["input"] for request in server.requests] == [["a", "ab"], ["a"], ["ab"]]


@pytest.mark.parametrize(
    ("status", "cause"),
    [(401, "give api_key"), (403, "check api_key"), (404, "--runner pooling"), (405, "HTTP 405")],
)
def test_what_no_text_is_at_fault_for_fails_at_once(status, cause):
    with Pooling(faults=dict.fromkeys(range(9), status)) as server:
        found = ask(server, "a", "ab", "abc")
    assert [request["input"] for request in server.requests] == [["a", "ab", "abc"]]
    for error in found:
        assert isinstance(error, CriticError)
        assert f"the value model 'value' at {server.url}/pooling refuses: HTTP {status}" in str(
            error
        )
        assert cause in str(error)


@pytest.mark.parametrize(
    "pooled", [[], None, "AAAA", [[]], [None], [True], [math.nan], [[math.inf]], [[0.1, 0.2]], 0.5]
)
def test_what_is_no_finite_number_fails_that_text_alone(pooled):
    with Pooling(pooled=lambda text: pooled if text == "bad" else [0.5]) as server:
        bad, good = ask(server, "bad", "good")
    assert good == 0.5
    assert isinstance(bad, CriticError)
    assert "finite numbers" in str(bad)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        {"data": []},
        {"data": 3},
        {"data": [{"index": 1, "data": [0.5]}]},
        {"detail": "x"},
    ],
)
def test_an_answer_in_another_form_is_an_error(body):
    with Pooling(faults={0: lambda handler: handler.answer(200, body)}) as server:
        (error,) = ask(server, "a")
    assert isinstance(error, CriticError)
    assert server.url in str(error)


def test_a_cancelled_caller_does_not_take_the_others_along():
    """The first caller carries the request of all; when it is cancelled, another one does."""
    arrived, go_on = threading.Event(), threading.Event()

    def hold(handler):
        arrived.set()
        go_on.wait(10)

    async def main(server):
        client = VLLMCritic(server.url, "value", concurrency=2)
        first, second, third = (asyncio.ensure_future(client.predict(t)) for t in ("a", "b", "cc"))
        await asyncio.to_thread(arrived.wait)
        first.cancel()
        go_on.set()
        found = await asyncio.wait_for(asyncio.gather(second, third), 10)
        await client.aclose()
        assert first.cancelled()
        return found

    with Pooling(faults={0: hold}) as server:
        assert asyncio.run(main(server)) == [0.1, 0.2]


def test_a_closed_client_refuses_and_closes_twice():
    async def main(server):
        client = VLLMCritic(server.url, "value")
        await client.aclose()
        await client.aclose()
        with pytest.raises(CriticError, match="closed"):
            await client.predict("a")

    with Pooling() as server:
        asyncio.run(main(server))


def test_the_key_is_sent_and_never_shown():
    with Pooling(faults={0: 401}) as server:
        (error,) = ask(server, "a", api_key="hush")
        assert server.headers[0]["Authorization"] == "Bearer hush"
    assert "hush" not in str(error) + repr(VLLMCritic("http://x", "m", api_key="hush"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": "localhost:8000"}, "http://HOST:PORT"),
        ({"reduce": "first"}, "last"),
        ({"batch_size": 0}, "batch_size"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": math.inf}, "timeout is inf"),
        ({"retries": -1}, "retries is -1"),
        ({"backoff": math.nan}, "backoff is nan"),
    ],
)
def test_wrong_arguments_are_told_at_once(arguments, message):
    with pytest.raises(UsageError, match=message):
        VLLMCritic(**{"base_url": "http://x", "model": "m", **arguments})


def test_it_is_the_critic_of_a_tree():
    async def main(server):
        client = VLLMCritic(server.url, "value")
        critic = Critic.from_fn(client.predict)
        agent = Agent(RandomPolicy(end=0.0), CountdownEnv(steps=2))
        async with Collector(agent, critic=critic, search=Independent(2)) as collector:
            collection = await collector.collect(Problem("1 2"), key=(0,))
        await client.aclose()
        return collection.prepare()

    with Pooling(pooled=lambda text: [0.25]) as server:
        collection = asyncio.run(main(server))
    assert {v for v in collection.tree.prediction if not math.isnan(v)} == {0.25}
    assert len(server.requests) >= 2
