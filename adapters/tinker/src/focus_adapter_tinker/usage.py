"""What a run asked Tinker for, step by step, and what that costs."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import DataError

__all__ = ["Prices", "Usage"]

_PRICED = ("prompt", "sampled", "trained")
"""Kinds of tokens that have a price; a price file's keys."""


@attrs.frozen(kw_only=True)
class Prices:
    """Dollars per million tokens.

    Attributes:
        prompt: Of a prompt; several samples of one request share one.
        sampled: Of what was sampled.
        trained: Of a trained sequence, its conditioning tokens included.
        date: When these prices held; ``None`` if the user gave numbers.
    """

    prompt: float = 0.0
    sampled: float = 0.0
    trained: float = 0.0
    date: str | None = None

    def cost(self, counts: Mapping[str, int]) -> float:
        """Dollars."""
        return float(sum(counts.get(name, 0) * getattr(self, name) for name in _PRICED)) / 1e6

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
        if not isinstance(found, dict) or set(found) != set(_PRICED) or not all(
            _price(value) for value in found.values()
        ):  # fmt: skip
            raise DataError(
                f"the prices of {model!r} are {found!r}", path=path, field=model, remedy=form
            )
        return cls(date=content["date"], **{name: float(found[name]) for name in _PRICED})


def _price(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


@attrs.define(eq=False)
class Usage:
    """Requests and tokens since the last update, and of each update before; thread-safe.

    A row holds what was asked for after the update before it: with one step of asynchrony a
    batch's sampling lies mostly in the row of the update it overlapped.
    """

    prices: Prices | None = None
    _now: Counter[str] = attrs.field(factory=Counter, init=False)
    _rows: list[tuple[str, Counter[str]]] = attrs.field(factory=list, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def count(self, **more: int) -> None:
        """Add to the counts: ``requests``, ``prompt``, ``sampled`` or ``trained``."""
        with self._lock:
            self._now.update(more)

    def sampled(self, *, prompt: int, sampled: int, n: int) -> None:
        """One sampling request that was answered."""
        self.count(requests=1, prompt=prompt, sampled=sampled, samples=n)

    def close_row(self, name: str) -> dict[str, float]:
        """End a row, and say what it cost if prices are known."""
        with self._lock:
            row, self._now = self._now, Counter()
            self._rows.append((name, row))
        return {} if self.prices is None else {"cost_usd": self.prices.cost(row)}

    def table(self) -> str:
        """All rows and their sum, as text."""
        rows = [*self._rows]
        if self._now:
            rows.append(("after", self._now))
        total: Counter[str] = Counter()
        for _, row in rows:
            total.update(row)
        rows.append(("total", total))
        names = ("requests", *_PRICED)
        head = ["step", "requests", *(f"{name} tokens" for name in _PRICED)]
        lines = [[name, *(f"{row[column]:,}" for column in names)] for name, row in rows]
        if self.prices is not None:
            head.append("cost (USD)")
            for line, (_, row) in zip(lines, rows, strict=True):
                line.append(f"{self.prices.cost(row):.4f}")
        text = _aligned([head, *lines])
        if self.prices is None:
            return text + "\nno prices were given, so no cost: --set trainer.prices=FILE"
        if self.prices.date is not None:
            return text + f"\nprices of {self.prices.date}"
        return text


def _aligned(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    )
