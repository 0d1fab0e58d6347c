"""The rows of one snapshot that are being sampled together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_adapter_local._cache import RowCache
from focus_adapter_local._sampling import choose, generator_for
from focus_core.errors import TrainerError
from focus_core.policy import Generation, SamplingParams

__all__ = ["Request", "RunningBatch"]

_DRAWS = 128
"""Uniform numbers drawn at a time for each row."""


@attrs.define(eq=False)
class Request:
    """Someone waits for ``n`` continuations of one prompt.

    Attributes:
        tokens: int32, shape (length,), at least one.
        params: How to sample.
        stops: Token ids that end a continuation.
        limit: Most tokens to sample, as the context allows.
        n: Continuations asked for.
        deliver: Takes the generations, or what went wrong; called once.
        ended: Whether what was sampled so far ends there, beside ``stops``.
        cancelled: Nobody waits any more.
    """

    tokens: NDArray[np.int32]
    params: SamplingParams
    stops: tuple[int, ...]
    limit: int
    n: int
    deliver: Callable[[list[Generation] | BaseException], None]
    ended: Callable[[list[int]], bool] | None = None
    cancelled: bool = False
    admitted: int = attrs.field(default=0, init=False)
    _done: dict[int, Generation] = attrs.field(factory=dict, init=False)

    def finish(self, sample: int, generation: Generation) -> None:
        """Take one continuation; deliver with the last."""
        self._done[sample] = generation
        if len(self._done) == self.n:
            self.deliver([self._done[index] for index in range(self.n)])


@attrs.define(eq=False)
class _Row:
    request: Request
    sample: int
    generator: np.random.Generator


@attrs.define(eq=False)
class _Columns:
    """Per-row numbers, so that a step needs no loop over rows. First axis: rows.

    Attributes:
        count: Tokens sampled.
        limit: Most tokens to sample.
        stops: Token ids that end the row, padded with -1; shape (N, most stops).
        tokens: What was sampled; shape (N, columns).
        logprobs: With which log probability; shape (N, columns).
        draws: Uniform numbers of the current block; shape (N, _DRAWS).
    """

    count: NDArray[np.int64]
    limit: NDArray[np.int64]
    stops: NDArray[np.int64]
    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    draws: NDArray[np.float64]

    @classmethod
    def empty(cls, rows: int = 0) -> _Columns:
        return cls(
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.full((rows, 1), -1, np.int64),
            np.zeros((rows, 64), np.int32),
            np.zeros((rows, 64), np.float32),
            np.zeros((rows, _DRAWS), np.float64),
        )

    def extend(self, other: _Columns) -> None:
        for name, fill in _FILLS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine.ndim == 2:
                width = max(mine.shape[1], theirs.shape[1])
                mine, theirs = (_widen(x, width, fill) for x in (mine, theirs))
            setattr(self, name, np.concatenate((mine, theirs)))

    def keep(self, order: NDArray[np.int64]) -> None:
        for name in _FILLS:
            setattr(self, name, getattr(self, name)[order])

    def put(self, tokens: NDArray[np.float64], logprobs: NDArray[np.float64]) -> None:
        """Append one token to each row."""
        width = self.tokens.shape[1]
        if int(self.count.max()) == width:
            self.tokens = _widen(self.tokens, 2 * width, 0)
            self.logprobs = _widen(self.logprobs, 2 * width, 0)
        rows = np.arange(len(self.count))
        self.tokens[rows, self.count] = tokens
        self.logprobs[rows, self.count] = logprobs
        self.count += 1


_FILLS = {"count": 0, "limit": 0, "stops": -1, "tokens": 0, "logprobs": 0, "draws": 0}


def _widen(array: NDArray[Any], width: int, fill: int) -> NDArray[Any]:
    if array.shape[1] == width:
        return array
    wide = np.full((array.shape[0], width), fill, array.dtype)
    wide[:, : array.shape[1]] = array
    return wide


class RunningBatch:
    """Rows of one snapshot that share every forward pass.

    Args:
        cache: Holds their keys and values.
        device: Where the model runs.
        joins: Whether rows can be added while others run.
    """

    def __init__(self, cache: RowCache, device: torch.device, *, joins: bool) -> None:
        self.joins = joins
        self._cache = cache
        self._device = device
        self._rows: list[_Row] = []
        self._columns = _Columns.empty()
        self._inputs = torch.zeros(0, dtype=torch.long, device=device)
        self._shape: dict[str, Tensor] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def requests(self) -> list[Request]:
        """The requests that have rows here, each once."""
        return list({id(row.request): row.request for row in self._rows}.values())

    def join(self, admitted: Sequence[tuple[Request, int]]) -> None:
        """Add one row for each request and sample index."""
        placed = self._cache.join([request.tokens for request, _ in admitted])
        rows = []
        for index in placed:
            request, sample = admitted[index]
            rows.append(_Row(request, sample, generator_for(request.params.seed, sample)))
        new = _Columns.empty(len(rows))
        new.limit[:] = [row.request.limit for row in rows]
        new.stops = np.full((len(rows), max(len(row.request.stops) for row in rows)), -1)
        for stops, row in zip(new.stops, rows, strict=True):
            stops[: len(row.request.stops)] = row.request.stops
        self._columns.extend(new)
        last = torch.tensor([int(row.request.tokens[-1]) for row in rows], device=self._device)
        self._inputs = torch.cat((self._inputs, last))
        self._rows += rows
        self._reshape()

    def step(self) -> None:
        """Sample one token for each row; rows that end leave and are delivered."""
        columns = self._columns
        at = columns.count % _DRAWS
        for row in np.flatnonzero(at == 0):
            columns.draws[row] = self._rows[row].generator.random(_DRAWS)
        uniforms = torch.from_numpy(columns.draws[np.arange(len(at)), at]).to(self._device)
        logits = self._cache.step(self._inputs)
        self._inputs, logprobs = choose(logits, uniforms, **self._shape)
        pair = torch.stack((self._inputs.double(), logprobs.double())).cpu().numpy()
        if not np.isfinite(pair[1]).all():
            raise TrainerError(
                "the model's logits are not finite while sampling; its weights have diverged "
                "(lower the learning rate) or overflow in this dtype"
            )
        columns.put(*pair)
        stopped = (columns.stops == pair[0][:, None]).any(1)
        for index, each in enumerate(self._rows):
            if each.request.ended is not None and not stopped[index]:
                so_far = columns.tokens[index, : columns.count[index]].tolist()
                stopped[index] = each.request.ended(so_far)
        ended = stopped | (columns.count >= columns.limit)
        if ended.any():
            for row in np.flatnonzero(ended):
                self._finish(int(row), bool(stopped[row]))
            self._leave(ended)

    def drop_cancelled(self) -> None:
        """Free the rows that nobody waits for."""
        cancelled = np.array([row.request.cancelled for row in self._rows], bool)
        if cancelled.any():
            self._leave(cancelled)

    def _finish(self, index: int, stopped: bool) -> None:
        row, columns, count = self._rows[index], self._columns, self._columns.count[index]
        row.request.finish(
            row.sample,
            Generation(
                columns.tokens[index, :count].tolist(),
                columns.logprobs[index, :count].tolist(),
                "stop" if stopped else "length",
            ),
        )

    def _leave(self, leaving: NDArray[np.bool_]) -> None:
        """Move the last rows into the gaps of those that leave."""
        order = np.arange(len(leaving))
        staying = int(np.count_nonzero(~leaving))
        order[:staying][leaving[:staying]] = order[staying:][~leaving[staying:]]
        order = order[:staying]
        gone = [(int(row), self._history(int(row))) for row in np.flatnonzero(leaving)]
        self._cache.leave(order, gone)
        self._columns.keep(order)
        self._rows = [self._rows[row] for row in order]
        self._inputs = self._inputs[torch.from_numpy(order).to(self._device)]
        self._reshape()

    def _history(self, row: int) -> NDArray[np.int32]:
        """The tokens that went through the model."""
        prompt = self._rows[row].request.tokens
        sampled = self._columns.tokens[row, : self._columns.count[row]]
        return np.concatenate((prompt, sampled))[:-1]

    def _reshape(self) -> None:
        """Collect the sampling parameters that differ from plain sampling."""
        params = [row.request.params for row in self._rows]
        plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
        types = {"temperature": torch.float32, "top_k": torch.long, "top_p": torch.float32}
        self._shape = {}
        for name, neutral in plain.items():
            values = [getattr(each, name) for each in params]
            if any(value != neutral for value in values):
                self._shape[name] = torch.tensor(values, dtype=types[name], device=self._device)
