"""Rows of files, folders and data sets: every shape, in order, and nothing in part."""

import gzip
import json
import os
import pickle
import sys
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import DataError, DataWarning, Row, read_rows

A, B = {"x": 1, "y": "ä"}, {"x": 2, "y": None}
LINES = f"{json.dumps(A)}\n{json.dumps(B)}\n"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(*rows):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    sink = arrow.BufferOutputStream()
    pyarrow.parquet.write_table(arrow.Table.from_pylist(list(rows)), sink)
    return sink.getvalue().to_pybytes()


def values(source):
    return [row.value for row in read_rows(source)]


def error(source):
    """The one-line message."""
    with pytest.raises(DataError) as caught:
        read_rows(source)
    message = str(caught.value)
    assert "\n" not in message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message
    return message


# Files ----------------------------------------------------------------------------------------

SHAPES = {
    "lines": LINES,
    "windows lines": LINES.replace("\n", "\r\n\r\n"),
    "array": json.dumps([A, B], indent=1),
    "indented objects": json.dumps(A, indent=2) + json.dumps(B, indent=2),
    "byte order mark": b"\xef\xbb\xbf" + LINES.encode(),
}


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet", ".txt"])
@pytest.mark.parametrize("shape", SHAPES)
def test_content_says_what_a_file_is_whatever_its_suffix(tmp_path, shape, suffix):
    content = SHAPES[shape]
    assert values(write(tmp_path / f"a{suffix}", content)) == [A, B]
    packed = gzip.compress(content if isinstance(content, bytes) else content.encode())
    assert values(write(tmp_path / f"b{suffix}", packed)) == [A, B]


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.parquet.gz"])
def test_parquet_too(tmp_path, name):
    content = parquet(A, B, {"x": None, "y": "c"})
    if name.endswith(".gz"):
        content = gzip.compress(content)
    rows = read_rows(write(tmp_path / name, content))
    assert [row.value for row in rows] == [A, B, {"x": None, "y": "c"}]
    assert [row.line for row in rows] == [1, 2, 3]
    assert [row.id for row in rows] == ["a-1", "a-2", "a-3"]


def test_nested_columns_come_as_lists_and_dicts(tmp_path):
    row = {"messages": [{"role": "user", "content": "hi"}], "score": 0.5}
    assert values(write(tmp_path / "a.parquet", parquet(row))) == [row]


def test_a_row_knows_its_place(tmp_path):
    path = write(tmp_path / "train.jsonl.gz", gzip.compress(b'\n{"x": 1}\n\n17\n'))
    first, second = read_rows(str(path))
    assert first == Row(path, 2, {"x": 1}, "train-1")
    assert (second.line, second.id, first.fields["x"]) == (4, "train-2", 1)
    with pytest.raises(DataError, match=r"train\.jsonl\.gz:4: is a number, not an object"):
        second.fields  # noqa: B018
    wrong = first.wrong("is odd", field="x", remedy="mend it")
    assert str(wrong) == f"{path}:2: field 'x': is odd; mend it"


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.json", "a"), ("a.b.jsonl", "a.b"), ("a.jsonl.gz", "a"), ("a", "a"), (".a.json", ".a")],
)
def test_ids_leave_the_format_out(tmp_path, name, stem):
    assert read_rows(write(tmp_path / name, "{}"))[0].id == f"{stem}-1"


def test_every_broken_line_is_named(tmp_path):
    message = error(write(tmp_path / "a.jsonl", '{"x": 1}\n{"x": }\n{"x": 2}\n{"x": 1, "x": 2}\n'))
    assert ":2: is not JSON" in message
    assert "line 4 (cannot be read: the key 'x' is there twice)" in message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"[]", "empty array"),
        (b"[{},\n]", ":2: has a comma before the closing bracket"),
        (b"{},\n{}", ":1: has a comma after the object"),
        (b"\xff", ":1: is not UTF-8 (byte 0xff)"),
        (gzip.compress(b'{"x": 1}' * 99, mtime=0)[:-9], "is not a whole gzip file"),
        (b"\x1f\x8bnonsense", "is not a whole gzip file"),
        (gzip.compress(b"[1", mtime=0)[:-8] + b"\0" * 8, "is not a whole gzip file"),
        (gzip.compress(b'{"x": NaN}', mtime=0), ":1: cannot be read: NaN"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, says):
    path = write(tmp_path / "a.json", content)
    message = error(path)
    assert message.startswith(str(path))
    assert says in message


def test_a_source_that_is_none(tmp_path):
    assert "does not exist; check the path" in error(tmp_path / "none.jsonl")


def test_a_file_that_cannot_be_read(tmp_path):
    path = tmp_path / "a.json"
    path.symlink_to(path)
    assert "cannot be read: Too many levels of symbolic links" in error(path)


def test_a_broken_parquet_file(tmp_path):
    content = parquet(A, B)
    assert "is not a whole Parquet file" in error(write(tmp_path / "a.parquet", content[:-40]))


def table(columns):
    """A Parquet file of (name, array) pairs."""
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    sink = arrow.BufferOutputStream()
    arrays = [
        array if isinstance(array, arrow.Array) else arrow.array(array, arrow.int64())
        for _, array in columns
    ]
    made = arrow.Table.from_arrays(arrays, names=[name for name, _ in columns])
    pyarrow.parquet.write_table(made, sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("value", ["bytes", "time", "zone"])
def test_a_parquet_value_that_python_cannot_hold_is_named(tmp_path, value):
    arrow = pytest.importorskip("pyarrow")
    letters = [None, arrow.py_buffer(b"\0\0\0\0\1\0\0\0"), arrow.py_buffer(b"\xff")]
    column = {
        "bytes": lambda: arrow.Array.from_buffers(arrow.string(), 1, letters),
        "time": lambda: arrow.array([2**62], arrow.timestamp("us")),
        "zone": lambda: arrow.array([1], arrow.timestamp("us", tz="Mars/Olympus")),
    }[value]()
    message = error(write(tmp_path / "a.parquet", table([("x", [1]), ("when", column)])))
    assert "a.parquet: field 'when': holds a value that cannot be read: " in message
    assert message.endswith("; mend or drop the column")


def test_a_key_twice_among_very_many_is_found_at_once(tmp_path):
    keys = ", ".join(f'"k{n}": 1' for n in (*range(100_000), 99_999))
    began = time.monotonic()
    assert "'k99999' is there twice" in error(write(tmp_path / "a.json", f"{{{keys}}}".encode()))
    assert time.monotonic() - began < 5.0


def test_a_parquet_file_without_rows(tmp_path):
    assert "is empty" in error(write(tmp_path / "a.parquet", table([("x", [])])))


def test_two_columns_of_one_name_are_refused_not_merged(tmp_path):
    path = write(tmp_path / "a.parquet", table([("x", [1]), ("x", [2])]))
    assert "has two columns 'x'" in error(path)


@pytest.mark.parametrize(
    ("module", "extra", "content"),
    [("pyarrow", "parquet", b"PAR1..."), ("datasets", "datasets", None)],
)
def test_what_is_not_installed_is_named(tmp_path, monkeypatch, module, extra, content):
    monkeypatch.setitem(sys.modules, module, None)
    source = write(tmp_path / "a.parquet", content) if content else "hf:openai/gsm8k"
    assert f"pip install 'focus-core[{extra}]'" in error(source)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(
    rows=st.lists(st.dictionaries(st.text(), JSON, max_size=3), min_size=1, max_size=5),
    shape=st.sampled_from(["lines", "indented", "array", "indented array"]),
    ascii=st.booleans(),
    mark=st.booleans(),
    packed=st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_rows_come_back_as_they_were_written(tmp_path_factory, rows, shape, ascii, mark, packed):
    indent = 2 if "indented" in shape else None
    if "array" in shape:
        text = json.dumps(rows, ensure_ascii=ascii, indent=indent)
    else:
        text = "\n".join(json.dumps(row, ensure_ascii=ascii, indent=indent) for row in rows)
    content = (b"\xef\xbb\xbf" if mark else b"") + text.encode()
    path = tmp_path_factory.mktemp("rows") / "a.json"
    found = read_rows(write(path, gzip.compress(content) if packed else content))
    assert [row.value for row in found] == rows
    starts = [text.split("\n")[row.line - 1] for row in found]
    assert all("{" in start for start in starts)


# Folders --------------------------------------------------------------------------------------


def test_maths_own_folders(tmp_path):
    """Subjects of one-object files: case d10."""
    for name in ("algebra/1", "algebra/10", "algebra/2", "geometry/1"):
        write(tmp_path / f"train/{name}.json", json.dumps({"name": name}))
    for name in ("._1.json", "README.md", "algebra/._2.json", ".git/a.json", "__MACOSX/b.json"):
        write(tmp_path / "train" / name, "not data")
    empty = write(tmp_path / "train/algebra/3.json", " \n")
    with pytest.warns(DataWarning, match="empty files, left out") as caught:
        rows = read_rows(tmp_path / "train")
    assert str(empty) in str(caught[0].message)
    assert [row.id for row in rows] == ["algebra/1", "algebra/2", "algebra/10", "geometry/1"]
    assert [row.value["name"] for row in rows] == [row.id for row in rows]


def test_a_folder_of_shards(tmp_path):
    write(tmp_path / "part-10.jsonl", '{"x": 3}\n')
    write(tmp_path / "part-2.jsonl.gz", gzip.compress(b'{"x": 1}\n{"x": 2}\n'))
    write(tmp_path / "more/b.NDJSON", '{"x": 0}')
    rows = read_rows(tmp_path)
    assert [row.value["x"] for row in rows] == [0, 1, 2, 3]
    assert [row.id for row in rows] == ["more/b-1", "part-2-1", "part-2-2", "part-10-1"]


def test_a_folder_of_parquet_shards(tmp_path):
    write(tmp_path / "train-00000-of-00002.parquet", parquet(A))
    write(tmp_path / "train-00001-of-00002.parquet", parquet(B, A))
    assert values(tmp_path) == [A, B, A]


def test_ids_differ_even_if_only_the_suffix_does(tmp_path):
    for name in ("a.json", "a.jsonl", "a.json.gz", "01.json", "1.json"):
        content = b"{}"
        write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    ids = [row.id for row in read_rows(tmp_path)]
    assert len(set(ids)) == 5
    assert ids == ["01.json", "1.json", "a.json", "a.json.gz", "a.jsonl"]


def test_the_order_is_that_of_the_names_not_of_the_disk(tmp_path, monkeypatch):
    for name in ("b/2", "b/10", "a/3", "a/x1y2", "a/x1y10", "c"):
        write(tmp_path / f"{name}.json", "{}")
    expected = ["a/3", "a/x1y2", "a/x1y10", "b/2", "b/10", "c"]
    assert [row.id for row in read_rows(tmp_path)] == expected
    walk = os.walk

    def backwards(*args, **options):
        for here, folders, files in walk(*args, **options):
            folders.reverse()
            yield here, folders, files[::-1]

    monkeypatch.setattr(os, "walk", backwards)
    assert [row.id for row in read_rows(tmp_path)] == expected


def test_links_are_followed_and_each_folder_is_read_once(tmp_path):
    write(tmp_path / "elsewhere/algebra/1.json", "{}")
    folder = tmp_path / "folder"
    write(folder / "b/2.json", "{}")
    (folder / "b/loop").symlink_to(folder)
    (folder / "a").symlink_to(tmp_path / "elsewhere/algebra")
    (folder / "again").symlink_to(tmp_path / "elsewhere/algebra")
    assert [row.id for row in read_rows(folder)] == ["a/1", "b/2"]


def test_nothing_of_a_folder_is_loaded_in_part(tmp_path):
    write(tmp_path / "1.json", "{}")
    write(tmp_path / "2.json", "{")
    write(tmp_path / "3.jsonl", '{"x": 1}\n{"x": }\n{"y": }\n')
    write(tmp_path / "4.json", b"\x1f\x8b")
    message = error(tmp_path)
    assert message.startswith(f"{tmp_path / '2.json'}:1: is not JSON")
    for part in (f"{tmp_path / '3.jsonl'}:2 (", f"{tmp_path / '3.jsonl'}:3 (", "4.json ("):
        assert part in message


def test_a_folder_without_data(tmp_path):
    assert "holds no .json, .jsonl, .ndjson, .parquet files" in error(tmp_path)
    write(tmp_path / "a.json", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "holds only empty files" in error(tmp_path)


# Hugging Face ---------------------------------------------------------------------------------


@pytest.fixture
def data_sets(tmp_path, monkeypatch):
    """The ``datasets`` library with a cache of its own and no network."""
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    library.disable_progress_bars()
    return library


def test_a_local_data_set_through_the_library(data_sets, tmp_path):
    write(tmp_path / "gsm/train-0.jsonl", LINES)
    write(tmp_path / "gsm/test-0.jsonl", '{"x": 9, "y": "z"}\n')
    source = f"hf:{tmp_path}/gsm"
    rows = read_rows(source)
    assert [row.value for row in rows] == [A, B]
    assert rows[1] == Row(source, 2, B, "gsm-train-2")
    assert values(f"{source}@test") == [{"x": 9, "y": "z"}]
    assert values(f"{source}@train[1:]") == [B]


def test_what_the_library_says_is_passed_on(data_sets, tmp_path):
    write(tmp_path / "gsm/train-0.jsonl", LINES)
    message = error(f"hf:{tmp_path}/gsm@validation")
    assert message.startswith(f"hf:{tmp_path}/gsm@validation: cannot be loaded: ")
    assert "validation" in message.partition("cannot be loaded")[2]
    assert "train" in message.partition("cannot be loaded")[2]


def test_a_data_set_that_is_not_to_be_had(data_sets):
    message = error("hf:nobody/nothing/main@test")
    assert message.startswith("hf:nobody/nothing/main@test: cannot be loaded: ")
    assert "check its name" in message


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("hf:gsm8k", ("gsm8k", None, "train")),
        ("hf:openai/gsm8k", ("openai/gsm8k", None, "train")),
        ("hf:openai/gsm8k@test", ("openai/gsm8k", None, "test")),
        ("hf:openai/gsm8k/main@test[:10]", ("openai/gsm8k", "main", "test[:10]")),
        ("hf:./data/gsm@test", ("./data/gsm", None, "test")),
        ("hf:/data/gsm/", ("/data/gsm/", None, "train")),
    ],
)
def test_how_an_id_is_read(data_sets, monkeypatch, source, asked):
    calls = []

    def load_dataset(name, config, *, split):
        calls.append((name, config, split))
        return data_sets.Dataset.from_list([A])

    monkeypatch.setattr(data_sets, "load_dataset", load_dataset)
    assert values(source) == [A]
    assert calls == [asked]


@pytest.mark.parametrize("source", ["hf:", "hf:@test", "hf:a/", "hf:a/b/", "hf:a/b@"])
def test_ids_that_name_nothing(source):
    assert "names no data set; write hf:OWNER/NAME" in error(source)


def test_an_empty_split(data_sets, monkeypatch):
    empty = data_sets.Dataset.from_dict({"x": []})
    monkeypatch.setattr(data_sets, "load_dataset", lambda *_, **__: empty)
    assert "is empty; name another split" in error("hf:openai/gsm8k")


def test_a_row_of_a_data_set_that_cannot_be_decoded(monkeypatch, data_sets):
    def rows(*_, **__):
        yield A
        raise ImportError("To support decoding images, please install 'Pillow'")

    monkeypatch.setattr(data_sets, "load_dataset", rows)
    assert "cannot be loaded: To support decoding images" in error("hf:openai/gsm8k")
