"""Sandboxes behind FOCUS's contract and behind the cookbook's, with one that really runs."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from focus_adapter_cookbook import CookbookSandbox, FocusSandbox, open_sandbox
from tinker_cookbook.sandbox import SandboxInterface, SandboxResult, SandboxTerminatedError

from focus_core import DeadlineError, ExecutionError, Sandbox, UsageError
from focus_core.plugins.manager import load


class LocalSandbox:
    """A cookbook sandbox of subprocesses in a directory: no isolation, for tests only."""

    sandbox_id = "local"

    def __init__(self, directory):
        self.directory = Path(directory)
        self.gone = self.cleaned = 0

    def _there(self):
        if self.gone:
            raise SandboxTerminatedError("preempted")

    async def send_heartbeat(self, timeout=30):
        self._there()

    async def run_command(self, command, workdir=None, timeout=60, max_output_bytes=None):
        self._there()
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self.directory / (workdir or "."),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout):
                out, err = await process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            process._transport.close()
            raise
        return SandboxResult(
            stdout=out[:max_output_bytes].decode(),
            stderr=err.decode(),
            exit_code=process.returncode,
        )

    async def read_file(self, path, max_bytes=None, timeout=60):
        self._there()
        try:
            content = (self.directory / path).read_bytes()[:max_bytes]
        except OSError as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=1)
        return SandboxResult(stdout=content.decode(), stderr="", exit_code=0)

    async def write_file(self, path, content, executable=False, timeout=60):
        self._there()
        data = content.encode() if isinstance(content, str) else content
        try:
            (self.directory / path).write_bytes(data)
        except OSError as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=1)
        if executable:
            (self.directory / path).chmod(0o700)
        return SandboxResult(stdout="", stderr="", exit_code=0)

    async def cleanup(self):
        self.cleaned += 1


async def local(directory, timeout):
    """A sandbox factory, as recipes of the cookbook take one."""
    return LocalSandbox(directory)


def not_a_sandbox(directory, timeout):
    return object()


@pytest.fixture
def inner(tmp_path):
    return LocalSandbox(tmp_path)


def run(work):
    return asyncio.run(work)


def test_a_cookbook_sandbox_keeps_the_contract(inner):
    sandbox = FocusSandbox(inner)
    assert isinstance(sandbox, Sandbox)

    async def use():
        await sandbox.write("say.sh", b"#!/bin/sh\necho $1; echo no >&2; exit 3", executable=True)
        done = await sandbox.run("./say.sh hi")
        assert (done.stdout, done.stderr, done.exit_code) == ("hi\n", "no\n", 3)
        (inner.directory / "sub").mkdir()
        assert (await sandbox.run("pwd", directory="sub")).stdout.endswith("/sub\n")
        assert (await sandbox.read("say.sh")).startswith(b"#!/bin/sh\necho")
        with pytest.raises(FileNotFoundError, match=r"'none' cannot be read in the sandbox"):
            await sandbox.read("none")
        with pytest.raises(OSError, match=r"'no/x' cannot be written in the sandbox"):
            await sandbox.write("no/x", b"")
        await sandbox.aclose()
        await sandbox.aclose()

    run(use())
    assert inner.cleaned == 1


def test_limits_and_the_end_of_a_sandbox_are_errors(inner):
    sandbox = FocusSandbox(inner)
    with pytest.raises(DeadlineError, match=r"did not answer within 0\.2 s"):
        run(sandbox.run("sleep 60", timeout=0.2))
    inner.gone = 1
    for call in (sandbox.run("true"), sandbox.read("x"), sandbox.write("x", b"")):
        with pytest.raises(ExecutionError, match="the sandbox is gone: preempted"):
            run(call)


def test_output_can_be_capped(inner):
    done = run(FocusSandbox(inner, max_output_bytes=4).run("echo 123456"))
    assert done.stdout == "1234"


def test_there_and_back_is_the_cookbooks_interface(inner):
    sandbox = CookbookSandbox(FocusSandbox(inner), "mine")
    assert isinstance(sandbox, SandboxInterface)
    assert sandbox.sandbox_id == "mine"

    async def use():
        await sandbox.send_heartbeat()
        assert (await sandbox.write_file("a", "text")).exit_code == 0
        assert (await sandbox.read_file("a", max_bytes=2)).stdout == "te"
        assert (await sandbox.read_file("none")).exit_code == 1
        assert (await sandbox.write_file("no/x", b"")).exit_code == 1
        done = await sandbox.run_command("cat a; exit 4", max_output_bytes=3)
        assert (done.stdout, done.exit_code) == ("tex", 4)
        assert (await sandbox.run_command("sleep 60", timeout=1)).exit_code == 124
        inner.gone = 1
        for call in (
            sandbox.run_command("true"),
            sandbox.read_file("a"),
            sandbox.write_file("a", ""),
        ):
            with pytest.raises(SandboxTerminatedError):
                await call
        await sandbox.cleanup()

    run(use())
    assert inner.cleaned == 1


def test_the_plug_in_opens_one_by_the_name_of_its_factory(tmp_path):
    factory = f"{__name__}:local"
    options = {"factory": factory, "directory": str(tmp_path)}
    sandbox = run(_made(options))
    assert isinstance(sandbox, Sandbox)
    assert run(sandbox.run("pwd")).stdout.strip() == os.path.realpath(tmp_path)
    assert "cookbook" in load().specs("sandbox")


async def _made(options):
    return await load().make("sandbox", "cookbook", options)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("no.such.module:make", "cannot be imported"),
        (f"{__name__}:missing", "cannot be imported"),
        ("nothing", "cannot be imported"),
        (f"{__name__}:not_a_sandbox", "made a object, which is no SandboxInterface"),
    ],
)
def test_a_factory_that_makes_none_is_told(factory, said):
    with pytest.raises(UsageError, match=said):
        run(open_sandbox(factory))
