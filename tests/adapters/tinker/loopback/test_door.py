"""Who may use the loopback: this machine under its own names, and where there is a key, with it."""

import asyncio
import json

import pytest

pytest.importorskip("aiohttp")
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from focus_adapter_tinker.loopback.door import Door
from focus_adapter_tinker.loopback.faults import Faults
from focus_adapter_tinker.loopback.stats import Stats

HERE = "127.0.0.1:8000"


def ask(headers, key=None, method="GET", path="/loopback/stats"):
    """Status and text of one request to a door."""

    async def once():
        door = Door(Stats(), Faults([]), dict, key)
        app = web.Application(middlewares=[door.let_in])
        door.add_routes(app.router)
        async with TestClient(TestServer(app)) as client:
            body = json.dumps({"faults": ["asample:1=429"]}) if method == "POST" else None
            async with client.request(method, path, headers=headers, data=body) as answer:
                return answer.status, await answer.text()

    return asyncio.run(once())


@pytest.mark.parametrize(
    "host", ["127.0.0.1", HERE, "localhost:1", "LOCALHOST", "[::1]:80", "127.8.0.1"]
)
def test_this_machine_is_let_in_under_each_of_its_names(host):
    assert ask({"Host": host})[0] == 200
    assert ask({"Host": host, "Origin": f"http://{host}"})[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example:8000",
        "localhost.evil.example",
        "10.0.0.1",
        "",
        "[::",
    ],
)
@pytest.mark.parametrize("path", ["/loopback/stats", "/api/v1/no_such_route"])
def test_no_other_name_is(host, path):
    status, text = ask({"Host": host}, path=path)
    assert status == 403
    assert "127.0.0.1 or localhost" in text


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://localhost.evil.example", "file://"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_page_from_elsewhere_is(origin, method):
    path = "/loopback/stats" if method == "GET" else "/loopback/faults"
    assert ask({"Host": HERE, "Origin": origin}, method=method, path=path)[0] == 403


def test_a_key_of_its_own_is_asked_for_and_not_told():
    assert ask({"Host": HERE, "X-API-Key": "tml-it"}, key="tml-it")[0] == 200
    for wrong in ({}, {"X-API-Key": "tml-i"}, {"X-API-Key": "tml-loopback"}):
        status, text = ask({"Host": HERE, **wrong}, key="tml-it")
        assert status == 403
        assert "tml-it" not in text
