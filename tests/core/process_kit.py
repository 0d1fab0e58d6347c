"""What the tests of ``ProcessExecution`` run in its workers, and ways to see what is left."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ticks = 0


def nap(seconds):
    time.sleep(seconds)
    return os.getpid()


def spin():
    while True:
        pass


def hang_with_child(note):
    """Start a process, say which, and never return."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(note).write_text(str(child.pid))
    child.wait()


def kill_own():
    os.kill(os.getpid(), signal.SIGKILL)


def fail(error):
    raise error


class Awkward(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def awkward():
    raise Awkward(1, 2)


def unpicklable():
    return lambda: 1


async def count_ticks():
    global ticks
    while True:
        await asyncio.sleep(0.01)
        ticks += 1


def gone(pid):
    """Whether a process has ended; one that nobody waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def descendants():
    """This process's children that have not ended."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return {pid for pid in found if not gone(pid)}


def write_pid_and_spin(note):
    with open(note, "a") as stream:
        stream.write(f"{os.getpid()}\n")
    spin()


def write_pid(note):
    with open(note, "a") as stream:
        stream.write(f"{os.getpid()}\n")


def start_parent(note):
    """A process with one idle worker and one that never ends its call."""
    code = f"""
import asyncio
from focus_core import ProcessExecution
from tests.core import process_kit as kit
async def main():
    execution = ProcessExecution(2)
    note = {str(note)!r}
    await asyncio.gather(
        execution.run(kit.write_pid, note), execution.run(kit.write_pid_and_spin, note)
    )
asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONPATH": path}
    )


def leave_a_fork_and_die(note):
    pid = os.fork()
    if not pid:
        os.setsid()  # out of the group that is killed
        time.sleep(60)
        os._exit(0)
    Path(note).write_text(str(pid))
    os._exit(7)


def leave_a_program_and_die(note):
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        close_fds=False,
        start_new_session=True,
    )
    Path(note).write_text(str(child.pid))
    os._exit(7)
