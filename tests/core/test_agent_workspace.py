"""Workspaces: content-addressed, branched with the state, safe on disk."""

import array
import os
import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import (
    Agent,
    Collector,
    Critic,
    DataError,
    Independent,
    Problem,
    Segments,
    Selective,
    Workspace,
)
from focus_core.testing import CountdownEnv, RandomPolicy


def test_workspaces_fork_and_refuse_to_be_left():
    workspace = Workspace({"a/b.txt": b"1"})
    assert workspace.read("a/./b.txt") == b"1"
    fork = workspace.fork()
    fork.delete("a/b.txt")
    assert list(workspace) == ["a/b.txt"]
    for path in ("/etc/passwd", "../x", "a/../../x", "", "."):
        with pytest.raises(ValueError, match="leaves the workspace"):
            workspace.write(path, b"")
    with pytest.raises(FileNotFoundError, match="no file 'c'"):
        workspace.read("c")
    with pytest.raises(FileNotFoundError):
        fork.delete("a/b.txt")


class Files(CountdownEnv):
    """Appends each reply to a file."""

    workspace = None
    seen = None

    async def step(self, reply):
        try:
            so_far = self.workspace.read("log")
        except FileNotFoundError:
            so_far = b""
        self.workspace.write("log", so_far + b"%d;" % reply.tokens[0])
        transition = await super().step(reply)
        self.seen.append((tuple(self.said), self.workspace.read("log")))
        return transition


def test_files_are_branched_with_the_state(collect):
    env = Files(3)
    env.seen = []
    start = Workspace({"log": b"start;"})
    collector = Collector(
        Agent(RandomPolicy(end=0.0), env, context=Segments(1)),
        critic=Critic.constant(0.5),
        search=Selective(budget=8, warmup=9, max_concurrency=3),
    )
    collection = collect(collector, Problem("5"), workspace=start)
    assert not collection.failures
    assert len(env.seen) > 9
    for said, log in env.seen:
        assert log == b"start;" + b"".join(b"%d;" % token for token in said)
    assert start.read("log") == b"start;", "the caller's own files are untouched"


def test_an_attribute_named_workspace_may_be_anything(collect, scripted):
    class Somewhere(CountdownEnv):
        workspace = "/tmp/elsewhere"

    collector = Collector(
        Agent(scripted([4, 0]), Somewhere()), critic=Critic.constant(0.5), search=Independent(1)
    )
    assert not collect(collector).failures


# Contents ---------------------------------------------------------------------------------------


def test_equal_contents_are_kept_once():
    big = os.urandom(1000)
    one = Workspace({"a": big, "b": bytes(bytearray(big))})
    other = Workspace({"c": bytes(bytearray(big))})
    assert one.read("a") is one.read("b") is other.read("c")
    assert pickle.loads(pickle.dumps(one)).read("a") is one.read("a")


def test_a_fork_copies_no_table_until_a_write():
    one = Workspace({f"{i}": b"" for i in range(100)})
    fork = one.fork()
    assert fork._files is one._files
    fork.write("0", b"x")
    assert fork._files is not one._files
    one.write("1", b"y")
    assert (one.read("0"), fork.read("1")) == (b"", b"")


paths = st.sampled_from(["a", "b", "c/d", "c/e", "f/g/h"])
contents = st.sampled_from([b"", b"1", b"22", b"a"])
edits = st.lists(st.tuples(st.integers(0, 3), st.none() | st.tuples(paths, st.none() | contents)))


@given(edits)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_forks_are_independent_copies(script):
    """Against dictionaries copied whole: any order of forks, writes and deletions."""
    workspaces, models = [Workspace()], [{}]
    for index, edit in script:
        index %= len(workspaces)
        if edit is None:
            workspaces.append(workspaces[index].fork())
            models.append(dict(models[index]))
            continue
        path, content = edit
        if content is not None:
            workspaces[index].write(path, content)
            models[index][path] = content
        elif path in models[index]:
            workspaces[index].delete(path)
            del models[index][path]
    for workspace, model in zip(workspaces, models, strict=True):
        assert {path: workspace.read(path) for path in workspace} == model
        assert workspace.size == sum(map(len, model.values()))
        assert workspace.digest == Workspace(model).digest
    for a, one in zip(workspaces, models, strict=True):
        for b, other in zip(workspaces, models, strict=True):
            assert (a.digest == b.digest) is (one == other)


def test_digests_do_not_confuse_names_with_contents():
    trees = [{"a": b"b"}, {"ab": b""}, {"a": b"", "b": b""}, {"b": b"a"}, {}, {"a/b": b""}]
    assert len({Workspace(files).digest for files in trees}) == len(trees)


def test_a_file_is_no_folder():
    workspace = Workspace({"a/b": b""})
    with pytest.raises(IsADirectoryError, match="'a' is a folder"):
        workspace.write("a", b"")
    with pytest.raises(NotADirectoryError, match="'a/b' is a file"):
        workspace.write("a/b/c", b"")
    with pytest.raises(ValueError, match="leaves the workspace"):
        workspace.write("a\0b", b"")


def test_size_is_limited():
    workspace = Workspace({"a": b"123"}, max_bytes=4)
    workspace.write("a", b"1234")
    with pytest.raises(ValueError, match=r"'b' makes 5 bytes.*at most 4"):
        workspace.write("b", b"1")
    fork = workspace.fork()
    fork.delete("a")
    fork.write("b", b"1")
    assert (workspace.size, fork.size, list(workspace)) == (4, 1, ["a"])
    with pytest.raises(ValueError, match="at most 4"):
        fork.write("b", b"12345")


# Directories ------------------------------------------------------------------------------------


def test_to_a_directory_and_back(tmp_path):
    files = {
        "a.txt": b"1",
        "b/c/d.bin": bytes(range(256)),
        "b/e": b"",
        "\N{GREEK SMALL LETTER PI}": b"3",
    }
    workspace = Workspace(files)
    workspace.write_to(tmp_path / "new/er")
    assert (tmp_path / "new/er/b/c/d.bin").read_bytes() == files["b/c/d.bin"]
    again = Workspace.from_directory(tmp_path / "new/er")
    assert again.digest == workspace.digest
    with pytest.raises(DataError, match=r"is not empty.*new or empty"):
        workspace.write_to(tmp_path / "new")


def test_links_and_devices_are_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for make in (
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to("/etc"),
        lambda path: path.symlink_to("file"),
        os.mkfifo,
    ):
        path = tmp_path / "odd"
        make(path)
        with pytest.raises(DataError, match=r"odd: is neither a file nor a folder"):
            Workspace.from_directory(tmp_path)
        path.unlink()
    assert list(Workspace.from_directory(tmp_path)) == ["file"]
    with pytest.raises(DataError, match="is no directory"):
        Workspace.from_directory(tmp_path / "file")


def test_writing_follows_no_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "a").symlink_to(outside)
    with pytest.raises(DataError, match="is not empty"):
        Workspace({"a/b": b"x"}).write_to(target)
    assert not any(outside.iterdir())


def test_a_directory_beyond_the_limit_is_refused_unread(tmp_path):
    with (tmp_path / "huge").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(DataError, match=r"huge: the files below .* exceed 10 bytes"):
        Workspace.from_directory(tmp_path, max_bytes=10)


# What would fail on disk, or take long -----------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a" * 256, "too long"),
        ("é" * 128, "too long"),
        ("a/" * 600 + "b", "too long"),
        ("a\ud835", "surrogate"),
        ("a\0b", "leaves the workspace"),
    ],
)
def test_names_that_no_file_system_takes_are_refused_when_written(tmp_path, path, said):
    """By the model that chose them, and not by a grader's ``write_to``, half done."""
    workspace = Workspace()
    with pytest.raises(ValueError, match=said):
        workspace.write(path, b"")
    longest = "/".join(["a" * 255] * 3 + ["\u202egpj\n.exe"])
    workspace.write(longest, b"1")
    workspace.write("é" * 127, b"2")
    workspace.write_to(tmp_path / "out")
    assert Workspace.from_directory(tmp_path / "out").digest == workspace.digest


def test_contents_are_bytes_and_counted_as_such():
    workspace = Workspace()
    workspace.write("a", array.array("q", [1, 2]))
    assert workspace.size == len(workspace.read("a")) == 16
    for content in ("text", 5, [1, 2], None):
        with pytest.raises(TypeError, match="bytes-like"):
            workspace.write("a", content)
    assert workspace.size == 16


def test_many_files_take_time_in_proportion():
    start = time.process_time()
    workspace = Workspace({f"d{number % 100}/{number}": b"" for number in range(20_000)})
    assert time.process_time() - start < 3.0
    for number in range(0, 20_000, 100):
        workspace.delete(f"d0/{number}")
    workspace.write("d0", b"a folder no more")
    with pytest.raises(IsADirectoryError):
        workspace.write("d1", b"")


# Of the environment's own -----------------------------------------------------------------------


class Own(CountdownEnv):
    """Makes a file for each problem, and must not find it there before."""

    def __init__(self, steps):
        super().__init__(steps)
        self.workspace = Workspace({"readme": b""})

    def reset(self, problem):
        if "problem" in list(self.workspace):
            raise FileExistsError("the problem is there already")
        self.workspace.write("problem", str(problem.prompt).encode())
        return super().reset(problem)

    async def step(self, reply):
        if "said" in list(self.workspace) and self.left == self.steps:
            raise FileExistsError("another rollout's file")
        self.workspace.write("said", b"")
        return await super().step(reply)


class Unforkable(Own):
    forkable = False


@pytest.mark.parametrize("kind", [Own, Unforkable])
@pytest.mark.parametrize("given", [None, Workspace({"readme": b""})], ids=["own", "given"])
def test_every_reset_finds_the_files_it_began_with(collect, kind, given):
    env = kind(2)
    for prompt in ("5", "6"):
        collector = Collector(
            Agent(RandomPolicy(end=0.0), env, context=Segments(1)),
            critic=Critic.constant(0.5),
            search=Independent(3),
        )
        collection = collect(collector, Problem(prompt), workspace=given)
        assert not collection.failures
        assert collection.counts["continuations"] == 3
    assert list(env.workspace) == ["readme"], "the agent's environment is nobody's to write to"


def test_a_digest_is_of_the_files_as_they_are_now():
    workspace = Workspace({"a": b"1"})
    before = workspace.digest
    workspace.write("a", b"2")
    assert workspace.digest == Workspace({"a": b"2"}).digest != before
    workspace.delete("a")
    assert workspace.digest == Workspace().digest
