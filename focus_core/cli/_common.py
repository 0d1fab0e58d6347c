"""What the commands share: option types, and running a coroutine under signals."""

from __future__ import annotations

import errno
import functools
import math
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Optional, ParamSpec, TypeVar

import typer

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What a disk says that takes no more: nobody's mistake, and no traceback."""

P = ParamSpec("P")
T = TypeVar("T")

TaskOption = Annotated[str, typer.Option("--task", help="Task to use; see 'focus plugins'.")]
TrainerOption = Annotated[str, typer.Option("--trainer", help="Trainer to use.")]
ModelOption = Annotated[
    Optional[str],  # noqa: UP045  # Typer resolves it at run time
    typer.Option("--model", help="The trainer's model; short for --set trainer.model=..."),
]
ProblemsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--problems", help="File or other source of problems, as the task takes it."),
]
StrictOption = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option("--strict", help="Refuse rows of problems that are otherwise warned of."),
]
SkipBadRowsOption = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option(
        "--skip-bad-rows",
        help="Leave out rows of problems that are refused, counted and named.",
    ),
]
_NAMED = "A name that 'focus plugins' lists, or MODULE:CLASS.  [default: the task's]"
SearchOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--search", help=f"Where to spend. {_NAMED}"),
]
RecipeOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--recipe", help=f"What an edge is worth. {_NAMED}"),
]
CriticOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--critic", help=f"What predicts unfinished states. {_NAMED}"),
]


def finite(value: float | None) -> float | None:
    """An option's number, which Typer's ranges let be NaN."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def above_zero(value: float | None) -> float | None:
    """An option's number that may be small, but not nothing."""
    if value is not None and not 0.0 < value < math.inf:
        raise typer.BadParameter(f"{value} is not above 0 and finite")
    return value


GammaOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--gamma",
        min=0.0,
        max=1.0,
        callback=finite,
        help="Discount per transition.  [default: the task's]",
    ),
]
KappaOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--kappa",
        callback=above_zero,
        help="Weight of a prediction, in branches.  [default: the task's]",
    ),
]
SetOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set",
        metavar="SECTION.NAME=VALUE",
        help="Any option of the task, search, recipe, critic or trainer; repeatable.",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        help="Seed of sampling and training; a tree repeats exactly at search.max_concurrency=1.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object a line on stdout, the rest on stderr.")
]


def checkpoint_of(name: str) -> str:
    """The reference of a saved state, or of a run directory's newest one.

    Raises:
        DataError: The directory's run has no checkpoint.
    """
    from focus_core.errors import DataError, UsageError
    from focus_core.run.directory import RunDirectory

    files = ("state.json", "config.json")
    if all(os.path.isfile(os.path.join(name, file)) for file in files):
        reference = RunDirectory.open(Path(name)).state()[1]
        if reference is None:
            raise DataError(
                "has no checkpoint yet", path=name, remedy="wait for one, or name a saved state"
            )
        return reference
    if os.sep in name and "://" not in name and not os.path.exists(name):
        raise UsageError(f"--checkpoint {name}: there is no such run or checkpoint")
    return name


def guarded(command: Callable[P, T]) -> Callable[P, T]:
    """Turn errors into one line on stderr and an exit code; a plug-in's bug keeps its traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of our output went away
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except SystemExit as end:  # no command's own: it would pass for an end of ours
            raise RuntimeError(f"something installed called sys.exit({end.code!r})") from end
        except Exception as error:
            from focus_core.errors import FocusError, UsageError

            if isinstance(error, OSError) and error.errno in DISK:
                notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
                print(f"focus: {error.strerror}{notes}", file=sys.stderr)
                raise typer.Exit(1) from None
            if not isinstance(error, FocusError):
                raise
            _print_bug(error)
            notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
            print(printable(" ".join(f"focus: {error}{notes}".splitlines())), file=sys.stderr)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None

    return wrapped


def printable(text: str) -> str:
    """A line as a terminal may be given it: text of models and plug-ins may hold escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _print_bug(error: BaseException) -> None:
    """The traceback of what failed a collection: whoever wrote that environment needs it."""
    from focus_core.errors import CollectionError, FocusError

    cause = error.__cause__
    if isinstance(error, CollectionError) and not isinstance(cause, FocusError | OSError | None):
        import traceback

        traceback.print_exception(cause)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; SIGINT and SIGTERM cancel it and wait until it has cleaned up.

    A second one ends it at once. Whatever holds the event loop for long is named on stderr, and
    whatever hangs in a thread, which is not waited for.
    """
    import asyncio
    import signal

    from focus_core.cli.watch import watching
    from focus_core.utils.threads import DaemonThreads

    async def stoppable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stop(number: int, _: object) -> None:
            signal.signal(number, signal.SIG_DFL)  # the next one ends the process
            print("stopping; once more to end at once", file=sys.stderr, flush=True)
            loop.call_soon_threadsafe(task.cancel)

        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # a background job stays one
                signal.signal(number, stop)
        loop.set_default_executor(DaemonThreads())
        with watching(loop, sys.stderr):
            return await main

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def settings(pairs: list[str] | None, **trainer: Any) -> dict[str, dict[str, Any]]:
    """``--set`` pairs, with short options of the trainer laid over them."""
    from focus_core.run.config import parse_settings

    parsed: dict[str, dict[str, Any]] = {**parse_settings(pairs or [])}
    given = {name: str(value) for name, value in trainer.items() if value is not None}
    if given:
        parsed["trainer"] = {**parsed.get("trainer", {}), **given}
    return parsed


def load_plugins() -> Any:
    """The installed plug-ins; broken ones are named on stderr."""
    from focus_core.plugins.manager import load

    plugins = load()
    for broken in plugins.broken:
        print(f"focus: {broken}", file=sys.stderr)
    return plugins
