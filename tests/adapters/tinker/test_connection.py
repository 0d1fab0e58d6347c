"""Where Tinker is and who asks: what is refused at once, and what a slow opening says."""

import asyncio
import contextlib
import http.server
import logging
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from focus_adapter_tinker import TinkerTrainer, connection
from focus_adapter_tinker import trainer as trainer_module

from focus_core import TrainerError, UsageError
from tests.adapters.tinker.fault_kit import hurried_sdk
from tests.adapters.tinker.sdk_kit import ENDS_SESSIONS
from tests.core.cli_kit import invoke

NO_ADDRESS = [
    "localhost:8000",
    "127.0.0.1",
    "ftp://127.0.0.1:8000",
    "http://",
    "https:///path",
    "http://host:port",
    "http://host:99999",
    "http://[::1",
    "http://ho st",
]


def open_and_leave(**options):
    async def main():
        async with TinkerTrainer(**{"model": "m", **options}):
            pass

    asyncio.run(main())


@contextlib.contextmanager
def silent():
    """A server that takes connections and says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def page(status, body=b"<html>welcome</html>"):
    """A web server that answers everything alike."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("url", [*NO_ADDRESS, ""])
def test_what_is_no_address_is_refused_at_once(url):
    with pytest.raises(UsageError, match=r"for example http://127\.0\.0\.1:8000") as caught:
        TinkerTrainer(model="m", base_url=url)
    assert str(caught.value).startswith(f"base_url is {url!r}")


@pytest.mark.parametrize("url", NO_ADDRESS)
def test_so_it_is_from_the_environment(monkeypatch, url):
    monkeypatch.setenv("TINKER_BASE_URL", url)
    with pytest.raises(UsageError) as caught:
        TinkerTrainer(model="m")
    assert str(caught.value).startswith(f"TINKER_BASE_URL is {url!r}")
    TinkerTrainer(model="m", base_url="https://host/services/x/")


def test_a_password_in_an_address_is_not_repeated():
    with pytest.raises(UsageError) as caught:
        TinkerTrainer(model="m", base_url="ftp://me:hush@host")
    assert "'ftp://***@host'" in str(caught.value)


def test_an_empty_variable_is_unset(monkeypatch):
    monkeypatch.setenv("TINKER_BASE_URL", "")
    TinkerTrainer(model="m")


KEYS = {
    None: r"there is no API key for Tinker: set TINKER_API_KEY, or try .* --dry-run",
    "": r"there is no API key for Tinker: set TINKER_API_KEY",
    "hush-1f6b2c": r"TINKER_API_KEY holds no key of Tinker's: one starts with 'tml-'",
    "tml-hush-1f6b2c\n": r"TINKER_API_KEY holds a space, a line's end",
    "tml-hush-1f6b2c\u2026": r"TINKER_API_KEY holds a space, .* another character",
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_cannot_be_one_stops_a_run_before_it_leaves_anything(monkeypatch, tmp_path, key):
    monkeypatch.delenv("TINKER_API_KEY")
    monkeypatch.delenv("TINKER_CREDENTIAL_CMD", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if key is not None:
        monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(UsageError, match=KEYS[key]) as caught:
        TinkerTrainer(model="m")
    assert "hush" not in str(caught.value)
    monkeypatch.chdir(tmp_path)
    done = invoke("train", "--task", "arithmetic", "--trainer", "tinker", "--model", "m")
    assert (done.code, done.crashed) == (2, False)
    assert done.err.startswith("focus: ")
    assert "hush" not in done.err
    assert list(tmp_path.iterdir()) == []
    TinkerTrainer(model="m", dry_run=True)  # needs none


@pytest.mark.parametrize("key", [None, "some-other-key"])
def test_a_command_that_gives_keys_is_left_to_the_sdk(monkeypatch, key):
    monkeypatch.setenv("TINKER_CREDENTIAL_CMD", "false")
    monkeypatch.delenv("TINKER_API_KEY")
    if key is not None:
        monkeypatch.setenv("TINKER_API_KEY", key)
    TinkerTrainer(model="m")


def test_a_server_that_does_not_answer_is_told_of_while_it_is_waited_for(monkeypatch, caplog):
    monkeypatch.setattr(connection, "_PATIENCE", 0.1)
    monkeypatch.setattr(connection, "_PROBE", 0.2)
    monkeypatch.setattr(trainer_module, "_CLOSING", 0.1)
    with silent() as url, pytest.raises(TrainerError, match=f"{url} does not open 'm'.*{url}"):
        open_and_leave(base_url=url, update_timeout=3)
    (line,) = [r.getMessage() for r in caplog.records if r.name.endswith("connection")]
    assert line.startswith(f"cannot reach {url} (")
    assert line.endswith("; still trying (up to 3 s)")


def test_a_model_that_takes_its_time_is_not_called_unreachable(server, monkeypatch, caplog):
    monkeypatch.setattr(connection, "_PATIENCE", 0.1)
    server.inject("create_model:1=slow:3")
    try:
        open_and_leave(base_url=server.base_url)
    finally:
        server.heal()
    (line,) = [r.getMessage() for r in caplog.records if r.name.endswith("connection")]
    assert line.startswith(f"{server.base_url} answers, and does not give 'm' yet; still trying")


def test_what_opens_soon_says_nothing(server, caplog):
    open_and_leave(base_url=server.base_url)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_the_notice_is_on_standard_error():
    """Without any handler of logging, as in ``focus train``."""
    program = """
        import asyncio
        from focus_adapter_tinker import TinkerTrainer, connection, trainer

        connection._PATIENCE, trainer._CLOSING = 0.1, 0.1

        async def main():
            async with TinkerTrainer(model="m", base_url="http://127.0.0.1:9", update_timeout=2):
                pass

        try:
            asyncio.run(main())
        except Exception as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    first, *rest = done.stderr.splitlines()
    assert first.startswith("cannot reach http://127.0.0.1:9 (ConnectError: ")
    assert all(line.endswith("no answer within 0.1 s") for line in rest), "and that it was not told"
    assert done.stdout.startswith("Tinker at http://127.0.0.1:9 does not open 'm': ")


def test_a_wrong_path_is_told_by_its_address(server):
    url = f"{server.base_url}/wrong/path"
    with pytest.raises(
        TrainerError,
        match=rf"^Tinker at {url} does not open 'm': .*{url} knows no /api/v1/healthz \(404\)",
    ):
        open_and_leave(base_url=url, update_timeout=60)


@pytest.mark.parametrize("status", [200, 403])
def test_a_page_that_is_not_tinker_s_is_told_by_its_address(status):
    with page(status) as url, pytest.raises(TrainerError, match=f"^Tinker at {url} does not open"):
        open_and_leave(base_url=url, update_timeout=3)


@pytest.mark.skipif(not ENDS_SESSIONS, reason="this SDK has no ServiceClient.close")
def test_a_session_s_end_that_is_not_heard_says_why(server, monkeypatch, caplog):
    monkeypatch.setattr(trainer_module, "_CLOSING", 0.3)
    server.inject("finish:1-=timeout")
    try:
        open_and_leave(base_url=server.base_url)
    finally:
        server.heal()
    (line,) = [r.getMessage() for r in caplog.records if r.name.endswith("trainer")]
    assert line == "Tinker was not told that the session ended: no answer within 0.3 s"


@pytest.mark.skipif(not ENDS_SESSIONS, reason="this SDK has no ServiceClient.close")
def test_a_session_whose_end_is_not_heard_has_no_more_heartbeats(server, monkeypatch):
    hurried_sdk(monkeypatch, longest=10.0)  # 50 a second
    monkeypatch.setattr(trainer_module, "_CLOSING", 0.3)

    def beats():
        return server.stats()["routes"].get("session_heartbeat", 0)

    def quiet():
        last = beats()
        time.sleep(0.5)
        return beats() == last

    before = beats()
    server.inject("finish:1-=500")
    try:
        open_and_leave(base_url=server.base_url)
        assert beats() > before
        assert any(quiet() for _ in range(10))
    finally:
        server.heal()


def test_a_context_s_length_that_is_not_told_is_warned_of(server, caplog):
    server.inject("get_server_capabilities:1-=403")
    try:
        open_and_leave(base_url=server.base_url)
    finally:
        server.heal()
    (line,) = [r.getMessage() for r in caplog.records if "context length" in r.getMessage()]
    assert line.startswith("the context length of m is not known: PermissionDeniedError: ")
