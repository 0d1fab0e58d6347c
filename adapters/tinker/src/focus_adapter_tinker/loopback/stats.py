"""Counts of what was asked and done, in all and for each optimizer step."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from focus_adapter_tinker.loopback.faults import FUTURE_ROUTES

__all__ = ["Stats"]

_TOTALS = ("requests", "prompt_tokens", "sampled_tokens", "trained_tokens", "forward_tokens")


class Stats:
    """Counts. A step's share is what happened between its optimizer step and the one before.

    Its ``gradients`` are those of its own model that it applied.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._totals: Counter[str] = Counter(dict.fromkeys(_TOTALS, 0))
        self._at_step = self._totals.copy()
        self._steps: list[dict[str, Any]] = []
        self._gradients = 0
        self._unapplied: Counter[str] = Counter()

    def request(self, route: str) -> None:
        """Count a request; ``requests`` are those that ask for work (``FUTURE_ROUTES``)."""
        with self._lock:
            self._requests[route] += 1
            self._totals["requests"] += route in FUTURE_ROUTES

    def add(self, **tokens: int) -> None:
        """Count tokens: ``prompt``, ``sampled``, ``trained``, ``forward`` (only)."""
        with self._lock:
            for name, count in tokens.items():
                self._totals[f"{name}_tokens"] += count

    def gradient(self, model_id: str) -> None:
        """Count a gradient that was computed."""
        with self._lock:
            self._gradients += 1
            self._unapplied[model_id] += 1

    def step(self, model_id: str) -> None:
        """Close the share of an optimizer step."""
        with self._lock:
            share = {name: self._totals[name] - self._at_step[name] for name in _TOTALS}
            gradients = self._unapplied.pop(model_id, 0)
            self._steps.append({"model_id": model_id, "gradients": gradients, **share})
            self._at_step = self._totals.copy()

    def as_dict(self) -> dict[str, Any]:
        """All counts; JSON-ready."""
        with self._lock:
            return {
                "routes": dict(self._requests),
                **{name: self._totals[name] for name in _TOTALS},
                "gradients": self._gradients,
                "steps": [dict(step) for step in self._steps],
            }
