"""From what was asked for to a run under way: new, resumed, replayed, or left to its trainer."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import UsageError
from focus_core.plugins.manager import Plugins
from focus_core.plugins.options import options_of
from focus_core.records import StepReport
from focus_core.run.config import RunConfig
from focus_core.run.directory import RunDirectory, writable_directory
from focus_core.run.launching import prepare_launch
from focus_core.run.prepare import Prepared, prepare, prepare_replay
from focus_core.run.recording import Recorder, Recording
from focus_core.run.replay import check_replayed, check_steps, replayed
from focus_core.run.session import train
from focus_core.schedule.progress import Progress

__all__ = ["Launch", "Run", "opened"]


@attrs.frozen(kw_only=True)
class Run:
    """A run that is ready: its directory is made and held, nothing heavy is loaded.

    Attributes:
        prepared: What runs.
        directory: Where it writes; held for this process until ``opened`` ends.
        start: Where it begins; behind the start of a new run, or of one without a checkpoint.
        recorder: Keeps its batches; ``None``: it is not recorded.
    """

    prepared: Prepared
    directory: RunDirectory
    start: Progress
    recorder: Recorder | None

    @property
    def config(self) -> RunConfig:
        """What it was asked for; ``steps`` are those still to make."""
        return self.prepared.config

    async def train(
        self, observers: Sequence[object] = (), *, required: Sequence[object] = ()
    ) -> list[StepReport]:
        """Run it; its reports are kept whoever else observes. Errors as in ``session.train``."""
        return await train(
            self.prepared,
            self.directory,
            start=self.start,
            observers=observers,
            required=required,
            recorder=self.recorder,
        )

    def summary(self) -> str | None:
        """What the trainer says at the end, if it says something."""
        said: Callable[[], str | None] | None = getattr(self.prepared.trainer, "summary", None)
        return None if said is None else said()


@attrs.frozen(kw_only=True)
class Launch:
    """A run of a trainer that has a loop of its own.

    Attributes:
        config: What it was asked for.
        path: The run's directory.
    """

    config: RunConfig
    path: Path
    _plugins: Plugins = attrs.field(repr=False)
    _options: Mapping[str, Any] = attrs.field(repr=False)

    def launch(self, say: Callable[[str], None]) -> int:
        """Run it, in the calling thread.

        Returns:
            The loop's exit status.

        Raises:
            UsageError: As in ``prepare_launch``, or the directory cannot be used.
        """
        path = self.path
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"--run-dir {path} is not an empty directory; name another")
        loop, plan = prepare_launch(self._plugins, self.config, self._options, path)
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        writable_directory(path, "--run-dir")
        say(f"run directory: {path}")
        try:
            return loop.launch(plan)
        except BaseException:
            with contextlib.suppress(OSError):  # what was refused before it wrote leaves nothing
                for folder in made:
                    folder.rmdir()
            raise


@contextlib.contextmanager
def opened(
    plugins: Plugins,
    asked: Mapping[str, Any],
    *,
    run_dir: Path | None = None,
    resume: Path | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> Iterator[Run | Launch]:
    """A run to start; its directory and its recording are this process's until the end.

    Args:
        plugins: What is installed.
        asked: Fields of ``RunConfig``, those that were given; ``settings`` always.
        run_dir: Where a new run writes; ``None``: a new directory in ``runs``.
        resume: The directory of the run to continue, instead.
        dry_run: Spend nothing, and keep nothing but in ``run_dir``.
        say: Told what the user should know, a line at a time.

    Raises:
        UsageError: Options that exclude each other, a name, value or file that is wrong, or a
            directory that cannot be used.
        DataError: The run to continue, or the recording, is damaged.
    """
    if "steps" in asked and "epochs" in asked:
        raise UsageError("--steps and --epochs both say when to stop; give one of them")
    if resume is not None and dry_run:
        raise UsageError("--dry-run would change the run that --resume names; try another run")
    if resume is not None and run_dir is not None:
        raise UsageError("--resume continues in its own directory; leave --run-dir out")
    with contextlib.ExitStack() as held:
        options: dict[str, Any] = {}
        if dry_run:
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix="focus-dry-run-"))
            options, run_dir = {"dry_run": True}, run_dir or Path(folder, "run")
        if resume is not None:
            yield _resumed(plugins, asked, resume, say, held)
        else:
            yield _new(plugins, asked, options, run_dir, say, held)


def _new(
    plugins: Plugins,
    asked: Mapping[str, Any],
    options: Mapping[str, Any],
    run_dir: Path | None,
    say: Callable[[str], None],
    held: contextlib.ExitStack,
) -> Run | Launch:
    if "replay" in asked:
        asked = replayed(Recording.open(Path(asked["replay"])), asked)
    elif "task" not in asked:
        raise UsageError(f"give --task; installed: {', '.join(plugins.specs('task')) or 'none'}")
    config = RunConfig(**asked)
    path = run_dir or _new_directory(config)
    spec, _ = plugins.specs("trainer").get(config.trainer, (None, ""))
    if spec is not None and "own-loop" in spec.capabilities:
        return Launch(config=config, path=path, plugins=plugins, options=options)
    directory, start = RunDirectory(path), Progress()
    prepared = _prepared(plugins, config, options, directory, start)
    held.enter_context(directory.locked())
    recorder = _recorder(plugins, prepared.config, None, held)
    RunDirectory.create(path, prepared.config)
    say(f"run directory: {path}")
    return Run(prepared=prepared, directory=directory, start=start, recorder=recorder)


def _resumed(
    plugins: Plugins,
    asked: Mapping[str, Any],
    path: Path,
    say: Callable[[str], None],
    held: contextlib.ExitStack,
) -> Run:
    """What came after the newest checkpoint is dropped, everything if there is none yet."""
    directory = RunDirectory.open(path)
    held.enter_context(directory.locked())
    start, reference = directory.state()
    saved = directory.config()
    config = RunConfig(**_continued(saved, asked, start))
    options = {} if reference is None else {"resume_from": reference}
    prepared = _prepared(plugins, config, options, directory, start)
    config = prepared.config
    recorder = _recorder(plugins, config, start, held)
    dropped = directory.rewind() + (recorder.dropped if recorder else [])
    since = "the checkpoint"
    if reference is None:
        since = "the start"
        say("the run has no checkpoint yet: it starts again from the beginning")
    if dropped:
        say(f"dropped what came after {since}: {_named(dropped)}")
    end = start.batch + config.steps
    directory.configure(attrs.evolve(config, steps=max(end, saved["steps"])))
    say(f"run directory: {path}")
    return Run(prepared=prepared, directory=directory, start=start, recorder=recorder)


def _prepared(
    plugins: Plugins,
    config: RunConfig,
    options: Mapping[str, Any],
    directory: RunDirectory,
    start: Progress,
) -> Prepared:
    """Everything looked up, and the directories that it names."""
    if config.keep_checkpoints is not None:
        known = options_of(plugins.find("trainer", config.trainer).load())
        if "checkpoint_dir" not in known or "checkpoint_dir" in config.options("trainer"):
            raise UsageError(
                f"trainer {config.trainer!r} saves elsewhere than in the run's directory, where "
                "nothing is removed; leave --keep-checkpoints out"
            )
    options = {
        **options,
        "checkpoint_dir": str(directory.checkpoints.resolve()),
        "seed": config.seed,
    }
    if config.replay is not None:
        recording = Recording.open(Path(config.replay))
        check_steps(recording, config.steps, start.batch)
        prepared = prepare_replay(plugins, config, options, recording)
    else:
        prepared = prepare(plugins, config, options)
    config = prepared.config
    if config.critic_output is not None:
        writable_directory(Path(config.critic_output), "--critic-output")
    if config.record is not None and Path(config.record).resolve() == directory.path.resolve():
        raise UsageError(f"--record {directory.path} is the run's own directory; name another")
    return prepared


def _recorder(
    plugins: Plugins, config: RunConfig, resumed: Progress | None, held: contextlib.ExitStack
) -> Recorder | None:
    """What records the run, if it is to be: from the start, or from the batch it resumes with."""
    if config.record is None:
        return None
    path = Path(config.record)
    if resumed is not None:
        return held.enter_context(Recorder.resume(path, config.run_id, resumed.batch))
    owners = [plugins.specs(kind)[getattr(config, kind)][1] for kind in ("task", "trainer")]
    versions = {name: version for name, _, version in (owner.partition(" ") for owner in owners)}
    return held.enter_context(Recorder.create(path, config, versions))


def _continued(
    saved: Mapping[str, Any], asked: Mapping[str, Any], start: Progress
) -> dict[str, Any]:
    """A resumed run's configuration: what it was asked for, and what may change now."""
    for name in ("task", "trainer"):
        if asked.get(name, saved[name]) != saved[name]:
            raise UsageError(
                f"--resume continues a run with --{name} {saved[name]}; start another run for "
                f"{asked[name]}"
            )
    for name in ("record", "replay"):
        if name in asked:
            raise UsageError(
                f"--resume goes on recording or replaying as the run did; leave --{name} out"
            )
    if saved["replay"] is not None:
        check_replayed({name: value for name, value in asked.items() if name != "task"})
    merged = {**saved, **asked}
    merged["settings"] = {
        section: {**saved["settings"].get(section, {}), **asked["settings"].get(section, {})}
        for section in {*saved["settings"], *asked["settings"]}
    }
    if "epochs" not in asked:
        merged["epochs"] = None  # its steps are counted, in the saved configuration
    if "steps" not in asked and "epochs" not in asked:
        merged["steps"] = saved["steps"] - start.batch
        if merged["steps"] < 1:
            raise UsageError(
                f"the run has made its {saved['steps']} updates; say how many more with --steps "
                "or --epochs"
            )
    return merged


def _named(files: Sequence[str]) -> str:
    """Files by name, the many of records by number."""
    records = [name for name in files if name.count("-") >= 3]
    others = [name for name in files if name not in records]
    return ", ".join([*others, *([f"{len(records)} files of records"] if records else [])])


def _new_directory(config: RunConfig) -> Path:
    now = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{config.task}-{config.trainer}-{now}-{config.run_id[:4]}"
