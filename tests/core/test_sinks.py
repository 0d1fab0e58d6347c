"""Files of records: whole or absent, however many processes write at once."""

import json
import math
import os
import subprocess
import sys
import time

import pytest

from focus_core import CriticRecord, CriticSink, JsonlDirectory
from focus_core.utils.files import write_atomically

WORKER = """
import sys
from focus_core import JsonlDirectory
sink, worker = JsonlDirectory(sys.argv[1]), int(sys.argv[2])
sys.stdin.read()  # all begin when the test says so
for call in range(6):
    sink([{"worker": worker, "call": call, "line": n, "pad": "x" * 2000} for n in range(20)])
"""


def test_eight_processes_at_once_lose_and_interleave_nothing(tmp_path):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "out"), str(worker)],
            stdin=subprocess.PIPE,
        )
        for worker in range(8)
    ]
    for worker in workers:
        worker.stdin.close()
    assert [worker.wait(60) for worker in workers] == [0] * 8
    files = list((tmp_path / "out").iterdir())
    assert len(files) == 8 * 6, "every call its own file, and no temporary one left"
    seen = set()
    for file in files:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line["line"] for line in lines] == list(range(20))
        assert len({(line["worker"], line["call"]) for line in lines}) == 1
        seen |= {(line["worker"], line["call"], line["line"]) for line in lines}
    assert len(seen) == 8 * 6 * 20


def test_a_lone_surrogate_is_written_and_read_back(tmp_path):
    record = CriticRecord("x \ud835 y", 0.5).to_dict()
    JsonlDirectory(tmp_path)([record, {"other": "漢"}])
    (file,) = tmp_path.iterdir()
    assert file.read_bytes().isascii()
    first, second = map(json.loads, file.read_text().splitlines())
    assert CriticRecord.from_dict(first).context == "x \ud835 y"
    assert second == {"other": "漢"}


def test_a_line_break_in_text_is_not_a_line_break_in_the_file(tmp_path):
    JsonlDirectory(tmp_path)([{"text": "a\nb\u2028c\x85d\r"}])
    (file,) = tmp_path.iterdir()
    assert len(file.read_text().splitlines()) == 1


def test_no_records_no_file_and_no_directory(tmp_path):
    JsonlDirectory(tmp_path / "out")([])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_refused_with_nothing_left_behind(tmp_path, number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        JsonlDirectory(tmp_path / "out")([{"target": 0.5}, {"target": number}])
    assert list(tmp_path.iterdir()) == []


def test_an_object_json_does_not_know_is_refused_with_nothing_left_behind(tmp_path):
    with pytest.raises(TypeError):
        JsonlDirectory(tmp_path / "out")([{"target": object()}])
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    write_atomically(path, "before")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud835")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_names_sort_by_time(tmp_path):
    sink = JsonlDirectory(str(tmp_path))
    for call in range(5):
        sink([{"call": call}])
    files = sorted(tmp_path.iterdir())
    assert [json.loads(file.read_text())["call"] for file in files] == list(range(5))
    assert all(file.suffix == ".jsonl" for file in files)
    assert str(os.getpid()) in files[0].name


def test_two_calls_in_one_instant_are_two_files(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    sink = JsonlDirectory(tmp_path)
    sink([{"call": 0}])
    sink([{"call": 1}])
    assert len(list(tmp_path.iterdir())) == 2


def test_a_sink_is_any_callable_on_plain_records(tmp_path):
    sink: CriticSink = JsonlDirectory(tmp_path)
    assert callable(sink)
    assert repr(sink) == f"JsonlDirectory({str(tmp_path)!r})"


def test_a_link_stays_one_and_the_file_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far/items.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(real)  # to nothing yet
    for text in ("first", "second"):
        write_atomically(link, text)
        assert link.is_symlink()
        assert real.read_text() == text
    assert list((tmp_path / "far").iterdir()) == [real]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        try:
            write_atomically(pipe, "text")
            assert pipe.is_fifo()
            assert reader.stdout.read() == b"text"
        finally:
            reader.kill()
    assert list(tmp_path.iterdir()) == [pipe]
