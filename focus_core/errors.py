"""Every error FOCUS raises on purpose.

::

    FocusError
    ├── UsageError (ValueError)            the user's mistake: exit code 2, no traceback
    │   ├── DataError                      a file: names path, line, field and remedy
    │   └── UnknownNameError (LookupError) a plug-in, option or model that does not exist
    ├── PluginError (RuntimeError)         two plug-ins collide, or a hook returned nonsense
    ├── RecordError (ValueError)           a record breaks its contract
    ├── GenerationError (ValueError)       a policy's answer cannot be trained on
    ├── GradingError (RuntimeError)        a reply could not be graded: not a reward of zero
    ├── CriticError (ValueError)           a prediction is missing or not finite
    ├── DeadlineError (TimeoutError)       a continuation or a call took too long
    ├── ExecutionError (RuntimeError)      a worker process died while it ran a call
    ├── FoldError (RuntimeError)           a chat could not be folded into a shorter one
    ├── CollectionError (RuntimeError)     a collection has failures; ``failures`` lists them
    ├── StaleBatchError (RuntimeError)     a batch out of order or older than allowed
    ├── OffPolicyError (RuntimeError)      sampler and learner disagree about the same weights
    └── TrainerError (RuntimeError)        a trainer could not update, publish or save

Each also derives from the standard exception in brackets, so callers need not import this
module. All of them pickle.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from focus_core.failure import Failure

__all__ = [
    "CollectionError",
    "CriticError",
    "DataError",
    "DeadlineError",
    "ExecutionError",
    "FocusError",
    "FoldError",
    "GenerationError",
    "GradingError",
    "OffPolicyError",
    "PluginError",
    "RecordError",
    "StaleBatchError",
    "TrainerError",
    "UnknownNameError",
    "UsageError",
]


_SPELT_OUT = 10
"""Mistakes that one error names."""


class FocusError(Exception):
    """Base of all errors below."""


class UsageError(FocusError, ValueError):
    """A mistake of the user's; the message says what to do instead."""


class DataError(UsageError):
    """A file that cannot be used as it is.

    Printed on one line: ``path:line: field 'x': message; remedy``.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.message = message
        self.path = path
        self.line = line
        self.field = field
        self.remedy = remedy
        place = str(path) if path is not None else ""
        if line is not None:
            place = f"{place}:{line}" if place else f"line {line}"
        parts = [place] if place else []
        if field is not None:
            parts.append(f"field {field!r}")
        parts.append(message)
        super().__init__(": ".join(parts) + (f"; {remedy}" if remedy else ""))

    @classmethod
    def of(cls, errors: Sequence[DataError]) -> DataError:
        """One error for several: the first one's place, message and remedy, then the others'.

        They are put in order of lines within a file; ten are spelt out, the rest counted.
        """
        files: dict[str, int] = {}
        for error in errors:
            files.setdefault(str(error.path), len(files))
        first, *others = sorted(errors, key=lambda e: (files[str(e.path)], e.line or 0))
        if not others:
            return first
        also = ", ".join(error._beside(first) for error in others[: _SPELT_OUT - 1])
        left = len(errors) - _SPELT_OUT
        return cls(
            f"{first.message}; also {also}" + (f", and {left} more" if left > 0 else ""),
            path=first.path,
            line=first.line,
            field=first.field,
            remedy=first.remedy,
        )

    def _beside(self, first: DataError) -> str:
        """This error's place and message, next to one that may be of the same file."""
        line = "" if self.line is None else str(self.line)
        here = self.path == first.path
        place = f"line {line}" if here else f"{self.path}:{line}".rstrip(":")
        field = "" if self.field is None else f"field {self.field!r} "
        return f"{place} ({field}{self.message})"

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword arguments through pickling."""
        return _rebuild_data_error, (self.message, self.path, self.line, self.field, self.remedy)


def _rebuild_data_error(
    message: str,
    path: str | Path | None,
    line: int | None,
    field: str | None,
    remedy: str | None,
) -> DataError:
    return DataError(message, path=path, line=line, field=field, remedy=remedy)


class UnknownNameError(UsageError, LookupError):
    """No plug-in, option or model of that name; the message lists what exists."""


class PluginError(FocusError, RuntimeError):
    """Two plug-ins collide, or a hook returned something else than its spec says."""


class RecordError(FocusError, ValueError):
    """A record breaks its contract (lengths, mask, non-finite numbers)."""


class GenerationError(FocusError, ValueError):
    """A policy's answer cannot be trained on: wrong lengths, missing or non-finite numbers."""


class GradingError(FocusError, RuntimeError):
    """A reply could not be graded. The rollout fails; it does not score zero."""


class CriticError(FocusError, ValueError):
    """A critic prediction is missing or not finite."""


class DeadlineError(FocusError, TimeoutError):
    """A continuation ran longer than its deadline, or a call longer than its limit."""


class ExecutionError(FocusError, RuntimeError):
    """A worker process died while it ran a call."""


class FoldError(FocusError, RuntimeError):
    """A chat could not be folded: the summary is empty, or what remains is too long."""


class CollectionError(FocusError, RuntimeError):
    """A collection has failed continuations or predictions.

    Attributes:
        failures: What failed; each ``Failure`` has the state, the stage and the ``error``.
    """

    def __init__(self, message: str, failures: Sequence[Failure] = ()) -> None:
        self.message = message
        self.failures = tuple(failures)
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the failures through pickling."""
        return type(self), (self.message, self.failures)


class StaleBatchError(FocusError, RuntimeError):
    """A batch is out of order, or its policy is older than ``async_depth`` allows."""


class OffPolicyError(FocusError, RuntimeError):
    """Sampler and learner give different log probabilities for the same weights and tokens."""


class TrainerError(FocusError, RuntimeError):
    """A trainer could not update, publish or save."""
