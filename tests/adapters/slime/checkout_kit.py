"""A stand-in for a checkout of Slime: programs that write down how they were started."""

import textwrap

PROGRAM = """
    import json, os, signal, subprocess, sys, time

    record = os.environ["SLIME_RECORD"]
    mode = os.environ.get("SLIME_MODE", "")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = None if mode == "alone" else subprocess.Popen(sleep)
    seen = {
        "program": os.path.basename(__file__),
        "args": sys.argv[1:],
        "pid": os.getpid(),
        "child": child and child.pid,
        "path": os.environ["PYTHONPATH"].split(os.pathsep),
    }
    if mode == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(record + ".part", "w") as file:
        json.dump(seen, file)
    os.rename(record + ".part", record)
    if mode in ("wait", "deaf"):
        time.sleep(600)
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(os.environ.get("SLIME_CODE", "0")))
"""
SAMPLE = """
    from dataclasses import dataclass

    @dataclass
    class Sample:
        index: int | None = None
        rollout_id: int | None = None
"""


def checkout(folder):
    """Write it; the folder on ``sys.path`` makes it an installed Slime."""
    (folder / "slime/utils").mkdir(parents=True)
    (folder / "scripts/models").mkdir(parents=True)
    for name in ("slime", "slime/utils"):
        (folder / name / "__init__.py").write_text("")
    (folder / "slime/utils/types.py").write_text(textwrap.dedent(SAMPLE))
    for name in ("train.py", "train_async.py"):
        (folder / name).write_text(textwrap.dedent(PROGRAM))
    (folder / "scripts/models/small.sh").write_text(
        'MODEL_ARGS=(\n   --num-layers 2\n   --normalization "RMS Norm"\n)\n'
    )
    (folder / "scripts/models/smaller.sh").write_text(
        'echo reading\nsource "$(dirname -- "${BASH_SOURCE[0]}")/small.sh"\n'
        "MODEL_ARGS+=(--swiglu)\n"
    )
    return folder
