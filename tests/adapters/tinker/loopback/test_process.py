"""The server's process: how it starts, what it leaves, how fast it stops."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from focus_core import TrainerError, UsageError
from tests.adapters.tinker.loopback.loopback_kit import (
    KEY,
    Client,
    call,
    datum,
    learned,
    raw_model,
    settle,
    snapshot,
)

COMMAND = [sys.executable, "-m", "focus_adapter_tinker.loopback", "--threads", "1"]
OWNER = """
import sys, time
from focus_adapter_tinker.loopback import Loopback
with Loopback(threads=1) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


def loopback(**options):
    from focus_adapter_tinker.loopback import Loopback

    return Loopback(threads=1, **options)


def running(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def wait_until(done, seconds):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_command_says_once_that_it_is_ready_and_stops_on_sigterm(tmp_path):
    env = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
    )
    line = process.stdout.readline()
    assert line.startswith("ready http://127.0.0.1:")
    assert len(list(tmp_path.glob("focus-loopback-*"))) == 1
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=10)
    assert time.monotonic() - begun < 2
    assert (process.returncode, rest, errors) == (0, "", "")
    assert list(tmp_path.glob("focus-loopback-*")) == []


def test_it_stops_in_the_middle_of_an_update(tmp_path):
    with loopback(state=tmp_path) as server:
        begin_long_update(server)
        wait_until(lambda: server.stats()["pending"] == 1, 5)
        time.sleep(0.3)
        pid, begun = server.pid, time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 2
        assert not running(pid)


def begin_long_update(server):
    """Some seconds of work, asked for without the SDK, which would go on asking."""
    import urllib.request

    from tinker.proto import tinker_public_pb2 as proto

    _, model = raw_model(server)
    message = proto.ForwardBackwardRequest(model_id=model, seq_id=1, loss_fn="cross_entropy")
    tokens = np.full(500, 7)
    for _ in range(200):
        data = message.data.add()
        data.model_input.add().encoded_text.tokens = tokens.astype(np.int32).tobytes()
        for name, kind, array in (
            ("target_tokens", proto.DTYPE_INT64, tokens.astype(np.int64)),
            ("weights", proto.DTYPE_FLOAT32, np.ones(500, np.float32)),
        ):
            data.loss_fn_inputs[name].dtype = kind
            data.loss_fn_inputs[name].dense = array.tobytes()
    body = message.SerializeToString()
    url = server.base_url + "/api/v1/forward_backward"
    with urllib.request.urlopen(urllib.request.Request(url, data=body)) as response:
        assert response.status == 200


def test_it_ends_with_whoever_started_it():
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    pid = int(owner.stdout.readline())
    assert running(pid)
    owner.kill()
    owner.communicate()
    wait_until(lambda: not running(pid), 5)


def test_nothing_is_left_when_the_block_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = loopback()
    with server:
        pid, url = server.pid, server.base_url
        assert list(tmp_path.glob("focus-loopback-*"))
    assert not running(pid)
    assert list(tmp_path.glob("focus-loopback-*")) == []
    with pytest.raises(TrainerError, match="not running"):
        _ = server.base_url
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(url.rsplit(":", 1)[1]))) != 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "no-such-model"}, "no model 'no-such-model'"),
        ({"faults": ["asample:1=200"]}, "400 to 599"),
        ({"options": ["--dtype", "float31"]}, "float31"),
    ],
)
def test_an_option_that_cannot_be_used_is_told_on_one_line(options, says):
    with pytest.raises(UsageError) as caught, loopback(**options):
        pass
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_port_in_use_is_told(server):
    port = server.base_url.rsplit(":", 1)[1]
    with (
        pytest.raises(UsageError, match=f"port {port} cannot be used"),
        loopback(options=["--port", port]),
    ):
        pass


def test_it_listens_on_this_machine_only(server):
    """The socket table of the process: every listener is on 127.0.0.1."""
    inodes = {
        os.readlink(path).removeprefix("socket:[").removesuffix("]")
        for path in Path(f"/proc/{server.pid}/fd").iterdir()
        if os.readlink(path).startswith("socket:[")
    }
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{server.pid}/net/{table}").read_text().splitlines()[1:]
    ]
    listening = [line[1].split(":")[0] for line in lines if line[3] == "0A" and line[9] in inodes]
    assert listening == ["0100007F"]


def test_the_key_is_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with loopback(state=tmp_path, faults=["optim_step:1=fail", "create_session:1=500"]) as server:
        client = Client(server.base_url)
        training = client.train()
        learned(training, [datum()])
        with pytest.raises(Exception, match="fault") as caught:
            settle(training.optim_step(_adam()))
        settle(training.save_state("kept"))
        snapshot(training)
        seen = [str(caught.value), server.log(), repr(server), str(server.stats())]
        seen += [Path(f"/proc/{server.pid}/{name}").read_text() for name in ("cmdline", "environ")]
        client.close("errored")
    seen += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(seen) > 6
    assert not [text for text in seen if KEY in text]


def _adam():
    from tinker import types

    return types.AdamParams()


def test_saved_state_outlives_the_server_and_bodies_may_be_compressed(tmp_path, monkeypatch):
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    data = [datum(tokens=(3, 4, 5))]
    with loopback(state=tmp_path, options=["--compress"]) as server:
        client = Client(server.base_url)
        training = client.train()
        assert training.holder._client_config.proto_compress_fwdbwd
        learned(training, data)
        settle(training.optim_step(_adam()))
        path = settle(training.save_state("last")).path
        _, (before,) = learned(training, data)
        client.close("success")
    with loopback(state=tmp_path) as server:
        client = Client(server.base_url)
        _, (after,) = learned(client.resume(path), data)
        client.close("success")
    np.testing.assert_array_equal(after, before)


def test_unknown_routes_and_bodies_are_told(server):
    assert call(server, "/api/v1/no_such_route", {})[0] == 404
    assert call(server, "/api/v1/get_info", {"model_id": "x"})[0] == 404
    status, answer = call(server, "/api/v1/create_session/../optim_step", {"model_id": 3})
    assert status in (400, 404)
    status, answer = call(server, "/api/v1/optim_step", {"model_id": 3})
    assert (status, "model_id is 3" in answer["detail"]) == (400, True)
