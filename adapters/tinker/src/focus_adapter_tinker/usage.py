"""What a run asked Tinker for, step by step, and what that costs."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import DataError, UsageError
from focus_core.policy import COLLECTING

__all__ = ["PRICED", "Prices", "Usage"]

PRICED = ("prompt", "sampled", "trained")
"""Kinds of tokens that have a price; a price file's keys."""


@attrs.frozen(kw_only=True)
class Prices:
    """Dollars per million tokens.

    Attributes:
        prompt: Of a prompt; several samples of one request share one.
        sampled: Of what was sampled.
        trained: Of a trained sequence, its conditioning tokens included.
        date: When the prices of a file held; ``None`` if there is none.
        options: Kinds whose price is an option's, whatever a file says.

    A price that is ``None`` is not known, and left out of costs.

    Raises:
        UsageError: A price is below 0 or no finite number.
    """

    prompt: float | None = None
    sampled: float | None = None
    trained: float | None = None
    date: str | None = None
    options: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Refuse what is no price."""
        for name in PRICED:
            price = getattr(self, name)
            if price is not None and not _price(price):
                raise UsageError(
                    f"price_{name} is {price!r}; it must be dollars per million tokens, a finite "
                    "number that is 0 or more"
                )

    def cost(self, counts: Mapping[str, int]) -> float:
        """Dollars, as far as the prices are known."""
        return float(sum(counts.get(name, 0) * (getattr(self, name) or 0) for name in PRICED)) / 1e6

    def source(self) -> str:
        """Where the prices come from, and which are missing, on one line."""
        given = ", ".join(f"trainer.price_{name}={getattr(self, name):g}" for name in self.options)
        parts = [] if self.date is None else [f"prices of {self.date}"]
        if given:
            parts.append(f"prices {given}" if self.date is None else f"but {given}")
        if missing := [name for name in PRICED if getattr(self, name) is None]:
            options = ", ".join(f"trainer.price_{name}" for name in missing)
            parts.append(
                f"the cost is without {' and '.join(missing)} tokens, whose price was not given "
                f"({options})"
            )
        return "; ".join(parts)

    @classmethod
    def read(cls, path: str | Path, model: str) -> Prices:
        """The prices of a model, from a file ``{"date": ..., "models": {MODEL: {...}}}``.

        Raises:
            DataError: The file cannot be used, is not dated, or has no price of the model.
        """
        path = Path(path)
        form = (
            'write {"date": "2026-01-31", "models": {"NAME": {"prompt": 0.1, "sampled": 0.3, '
            '"trained": 0.4}}}, in dollars per million tokens'
        )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(
                f"cannot be read: {error.strerror}", path=path, remedy="name a price file"
            ) from error
        except ValueError as error:
            raise DataError(f"is no JSON: {error}", path=path, remedy=form) from error
        if not isinstance(content, dict) or not isinstance(content.get("date"), str):
            raise DataError("the prices have no date", path=path, field="date", remedy=form)
        models = content.get("models")
        if not isinstance(models, dict) or model not in models:
            known = ", ".join(models) if isinstance(models, dict) else "no model"
            raise DataError(
                f"has no price of {model!r}; it knows {known}", path=path, field="models",
                remedy="add it",
            )  # fmt: skip
        found = models[model]
        if not isinstance(found, dict) or set(found) != set(PRICED) or not all(
            _price(value) for value in found.values()
        ):  # fmt: skip
            raise DataError(
                f"the prices of {model!r} are {found!r}", path=path, field=model, remedy=form
            )
        prompt, sampled, trained = (float(found[name]) for name in PRICED)
        return cls(prompt=prompt, sampled=sampled, trained=trained, date=content["date"])


def _price(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= sys.float_info.max  # false of NaN


@attrs.define(eq=False)
class Usage:
    """Requests and tokens since the last update, and of each update before; thread-safe.

    A row holds what sampled its batch, as the console counts it, whenever that was, and whatever
    else was asked for after the update before.
    """

    prices: Prices | None = None
    _now: Counter[str] = attrs.field(factory=Counter, init=False)
    _batches: dict[int, Counter[str]] = attrs.field(factory=dict, init=False)
    _rows: list[tuple[str, Counter[str]]] = attrs.field(factory=list, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def count(self, **more: int) -> None:
        """Add to the counts: ``requests``, ``prompt``, ``sampled`` or ``trained``."""
        with self._lock:
            self._now.update(more)

    def sampled(self, *, prompt: int, sampled: int, n: int) -> None:
        """One sampling request that was answered, for the batch that is being collected."""
        more = {"requests": 1, "prompt": prompt, "sampled": sampled, "samples": n}
        batch = COLLECTING.get()
        with self._lock:
            (self._now if batch is None else self._batches.setdefault(batch, Counter())).update(
                more
            )

    def close_row(self, batch: int) -> dict[str, float]:
        """End a batch's row, and say what it cost if prices are known."""
        with self._lock:
            for earlier in sorted(each for each in self._batches if each < batch):  # skipped
                self._rows.append((str(earlier), self._batches.pop(earlier)))
            row, self._now = self._now, Counter()
            row.update(self._batches.pop(batch, {}))
            self._rows.append((str(batch), row))
        return {} if self.prices is None else {"cost_usd": self.prices.cost(row)}

    def table(self) -> str:
        """All rows and their sum, as text."""
        rows = [
            *self._rows,
            *((str(batch), self._batches[batch]) for batch in sorted(self._batches)),
        ]
        if self._now:
            rows.append(("after", self._now))
        total: Counter[str] = Counter()
        for _, row in rows:
            total.update(row)
        rows.append(("total", total))
        names = ("requests", *PRICED)
        head = ["step", "requests", "prompt tokens", "sampled tokens", "tokens in training"]
        lines = [[name, *(f"{row[column]:,}" for column in names)] for name, row in rows]
        if self.prices is not None:
            head.append("cost (USD)")
            for line, (_, row) in zip(lines, rows, strict=True):
                line.append(f"{self.prices.cost(row):.4f}")
        text = _aligned([head, *lines])
        if self.prices is None:
            return text + "\nno prices were given, so no cost: --set trainer.prices=FILE"
        return f"{text}\n{self.prices.source()}"


def _aligned(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    )
