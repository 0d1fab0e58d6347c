"""``scripts/real-tinker`` leaves no server behind, however it ends."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts/real-tinker"
FAKE = """
# As the script starts it; its engine does not listen to SIGTERM.
(exec setsid bash -c '(trap "" TERM; while :; do sleep 0.1; done) & echo $!; wait') >engine &
server=$!
until [ -s engine ]; do sleep 0.05; done
touch ready
"""
WAYS = {
    "exit 0": (None, 0),
    "false": (None, 1),
    "sleep 600 & example=$!; wait $example": (signal.SIGTERM, 143),
    "sleep 601 & example=$!; wait $example": (signal.SIGINT, 130),
}


def alive(number):
    """This process and those of this group, but for what merely waits to be reaped."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,pgid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in listed.stdout.splitlines()]
    return [row for row in rows if str(number) in row[:2] and not row[2].startswith("Z")]


@pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "setsid", "ps"))), reason="needs bash, setsid and ps"
)
@pytest.mark.parametrize("way", WAYS)
def test_the_server_s_whole_group_ends_with_the_script(tmp_path, way):
    number, status = WAYS[way]
    script = SCRIPT.read_text().replace("seq 50", "seq 5")  # half a second instead of five
    assert "seq 5)" in script
    begin, end = script.index("work=$(mktemp -d)"), script.index(".venv/bin/python - ")
    program = "set -euo pipefail\n" + script[begin:end] + FAKE + way + "\n"
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        ["bash", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not (tmp_path / "ready").exists() and process.poll() is None:
            pass
        if number is not None:
            while not any("sleep 60" in row[3] for row in alive(process.pid)):
                pass
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
        engine = int((tmp_path / "engine").read_text())
        assert (process.returncode, err) == (status, "")
        assert alive(process.pid) == [], "nor is the example"
        assert alive(engine) == []
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        process.kill()
        for pid, *_ in alive((tmp_path / "engine").read_text().strip() or process.pid):
            os.kill(int(pid), signal.SIGKILL)
