"""The base of every contract class: what a contract is, and running them without pytest."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from unittest import SkipTest

import attrs

from focus_core.errors import UnknownNameError, UsageError
from focus_core.plugins.options import closest
from focus_core.plugins.specs import Spec

__all__ = [
    "Broken",
    "Contract",
    "Excused",
    "NotApplicable",
    "Outcome",
    "check",
    "contract",
    "require",
]


class Broken(AssertionError):
    """A contract does not hold; the message says what to mend."""


class Excused(SkipTest):
    """A contract is not asked for, and why. pytest shows it as skipped."""


class NotApplicable(SkipTest):
    """A contract says nothing about this subject. pytest shows it as skipped."""


def require(condition: object, message: str) -> None:
    """Hold a contract's condition.

    Raises:
        Broken: It is false.
    """
    __tracebackhide__ = True
    if not condition:
        raise Broken(message)


def contract(
    *, needs: str | None = None
) -> Callable[[Callable[[Any], Any]], Callable[[Any], None]]:
    """Mark a method of a ``Contract`` as one contract; its docstring says it in one sentence.

    A coroutine method runs in an event loop of its own, at most ``time_limit`` seconds.

    Args:
        needs: The capability without which the contract does not apply.
    """

    def decorate(holds: Callable[[Any], Any]) -> Callable[[Any], None]:
        @functools.wraps(holds)
        def run(self: Contract) -> None:
            reason = self.excused.get(_plain(holds.__name__))
            if reason is not None:
                raise Excused(f"excused: {reason}")
            if needs is not None and needs not in self.capabilities():
                raise NotApplicable(f"only for the capability {needs!r}")
            with self.surroundings():
                outcome = holds(self)
                if inspect.iscoroutine(outcome):
                    asyncio.run(self._limited(outcome))

        return run

    return decorate


class Contract:
    """What every subject of a kind keeps, one method a contract.

    Inherit from a kind's class in a pytest module, under a name that starts with ``Test``, and
    give ``subject``; ``focus check`` runs the same methods on what is installed.

    Attributes:
        excused: Contracts not asked for, by name without ``test_``, each with its reason.
        time_limit: Seconds one contract may take.
        spec: What a plug-in registered for the subject, if it did.
    """

    excused: Mapping[str, str] = MappingProxyType({})
    time_limit: float = 120.0
    spec: Spec | None = None

    def __init_subclass__(cls) -> None:
        """Check the excuses where they are written."""
        super().__init_subclass__()
        cls.check_excuses(cls.excused)

    @classmethod
    def names(cls) -> list[str]:
        """Every contract of the class, in the order they are written, an inherited one first."""
        found = {
            name: None
            for base in reversed(cls.__mro__)
            for name in vars(base)
            if name.startswith("test_")
        }
        return [_plain(name) for name in found]

    @classmethod
    def check_excuses(cls, excuses: Mapping[str, str]) -> None:
        """Refuse an excuse for nothing, or without a reason.

        Raises:
            UnknownNameError: No such contract.
            UsageError: The reason is empty.
        """
        known = cls.names()
        for name, reason in excuses.items():
            if name not in known:
                raise UnknownNameError(
                    f"no contract {name!r} to excuse{closest(name, known)}; there are: "
                    f"{', '.join(known)}"
                )
            if not reason.strip():
                raise UsageError(f"the excuse for {name} needs a reason")

    def subject(self) -> Any:
        """What the contracts are about: a fresh one with each call."""
        raise NotImplementedError(f"{type(self).__name__} needs a method subject()")

    def capabilities(self) -> frozenset[str]:
        """The subject's flags; they choose contracts."""
        return frozenset(getattr(self.subject(), "capabilities", ()))

    def surroundings(self) -> contextlib.AbstractContextManager[None]:
        """Where one contract runs."""
        return contextlib.nullcontext()

    async def _limited(self, work: Any) -> None:
        try:
            async with asyncio.timeout(self.time_limit) as limit:
                await work
        except TimeoutError:
            require(not limit.expired(), f"it was not over after {self.time_limit:g} s")
            raise


@contextlib.contextmanager
def scratch_directory() -> Iterator[None]:
    """Run in an empty directory, for subjects that write where they are."""
    with tempfile.TemporaryDirectory(prefix="focus-check-") as folder, contextlib.chdir(folder):
        yield


Status = Literal["ok", "failed", "excused", "not applicable"]


@attrs.frozen
class Outcome:
    """How one contract went.

    Attributes:
        contract: Its name.
        sentence: What it asks.
        status: How it went.
        detail: What to mend, the excuse, or why it does not apply.
    """

    contract: str
    sentence: str
    status: Status
    detail: str = ""


def check(contracts: Contract) -> Iterator[Outcome]:
    """Run every contract of an object, one after another."""
    for name in contracts.names():
        method = getattr(contracts, f"test_{name}")
        sentence = (inspect.getdoc(method) or "").split("\n\n")[0].replace("\n", " ")
        status, detail = _run(method)
        yield Outcome(name, sentence, status, detail)


def _run(method: Callable[[], None]) -> tuple[Status, str]:
    try:
        method()
    except Excused as reason:
        return "excused", str(reason).removeprefix("excused: ")
    except SkipTest as reason:
        return "not applicable", str(reason)
    except Broken as broken:
        return "failed", str(broken)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the subject's own, sys.exit() too
        return "failed", f"it raised {_described(error)}"
    return "ok", ""


def _described(error: BaseException) -> str:
    """Type, message, notes, and the place where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    text = f"{type(error).__name__}: {error}{notes}"
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        text += f" [{Path(frames[-1].filename).name}:{frames[-1].lineno}]"
    return " ".join(text.split())


def _plain(name: str) -> str:
    return name.removeprefix("test_")
