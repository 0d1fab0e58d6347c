"""What a run does when its loop is held, and when it is told to stop twice."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

HELD = textwrap.dedent(
    """
    import sys, time
    from focus_core.cli import watch
    from focus_core.cli._common import run

    watch.PATIENCE = 0.2

    def grade():
        print("begun", flush=True)
        time.sleep(float(sys.argv[1]))

    async def main():
        grade()
        return "done"

    print(run(main()))
    """
)


def held(seconds):
    return subprocess.Popen(
        [sys.executable, "-c", HELD, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_who_holds_the_loop_is_named_once():
    out, err = held(1.2).communicate(timeout=60)
    assert out.splitlines() == ["begun", "done"]
    (line,) = err.splitlines()
    assert line.startswith("focus: nothing else has run for 0 s because of grade (<string>:")
    assert "await self.execution.run" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_even_a_held_loop(number):
    with held(60) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        for line in process.stderr:
            if line.startswith("stopping"):
                break
        time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(timeout=10) in (-number, 130, 1)


def test_one_signal_cancels_and_cleans_up():
    code = textwrap.dedent(
        """
        import asyncio
        from focus_core.cli._common import run

        async def main():
            try:
                print("begun", flush=True)
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.1)
                print("cleaned up", flush=True)

        try:
            run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert out.splitlines() == ["cleaned up", "interrupted"]
