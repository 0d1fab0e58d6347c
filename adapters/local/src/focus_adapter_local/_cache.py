"""The key-value caches of a running batch.

``SlotCache`` holds each row's keys and values from column 0 on in buffers allocated ahead, so a
row joins, grows and leaves without touching the others; the attention mask hides the columns a
shorter row has not filled. It serves models in which every layer attends to everything.
``GroupCache`` serves the others (sliding windows, recurrent layers) through their own cache
class: rows start together, padded on the left, and new ones wait until the group is through.

Both take prompts less their last token: that token is the input of the next shared step, so that
prompts of any length and rows at any depth take the same path to their next token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from focus_adapter_local._prefixes import KeysValues, PrefixStore

__all__ = ["Forward", "GroupCache", "RowCache", "SlotCache", "attends_to_everything"]

Tokens = NDArray[np.int32]

_PREFILL_TOKENS = 8192
"""Most tokens, padding included, of one prefill pass."""


class Forward(Protocol):
    """One pass of a model: ids and positions of shape (N, W) to logits of the last, (N, V)."""

    def __call__(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Cache
    ) -> Tensor: ...


class RowCache(Protocol):
    """What a running batch needs of a cache."""

    def join(self, prompts: Sequence[Tokens]) -> list[int]:
        """Add one row per prompt (prompts may repeat); which prompt each new row holds."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Feed one token to every row (int64, (N,)); logits of what follows, (N, V)."""
        ...

    def leave(self, order: NDArray[np.int64], gone: Sequence[tuple[int, Tokens]]) -> None:
        """Keep the rows in ``order``; ``gone`` has row and tokens of the others."""
        ...


def attends_to_everything(config: Any) -> bool:
    """Whether every layer of the model keeps, and attends to, all keys and values.

    Raises:
        ValueError: Some layer keeps something else, which this transformers has no cache for.
    """
    layers = DynamicCache(config=config).layers
    full = all(type(layer) is DynamicLayer for layer in layers)
    kinds = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ())
    other = sorted(kinds - {"full_attention", "sliding_attention", "moe", "mlp"})
    if full and other:
        raise ValueError(f"its layers of type {', '.join(other)} have a cache of their own")
    return full


@attrs.define
class _Window:
    """The part of the buffers that a forward pass reads and writes.

    Attributes:
        first: First row.
        count: Rows.
        past: Columns filled before the pass, as the model's mask is to believe.
        width: Columns that are attended to.
        columns: Where each row's one new token goes; ``None``: all rows' go to ``past`` on.
        rows: 0, 1, ... ``count`` - 1, beside ``columns``.
    """

    first: int = 0
    count: int = 0
    past: int = 0
    width: int = 0
    columns: Tensor | None = None
    rows: Tensor | None = None


class _SlotLayer(DynamicLayer):  # type: ignore[no-untyped-call, unused-ignore]  # of its base
    """One layer's keys and values, each of shape (rows, heads, columns, width).

    Attributes:
        buffers: The two, once the first pass has shown their shapes.
    """

    def __init__(self, window: _Window, capacity: Callable[[], tuple[int, int]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.window = window
        self.capacity = capacity
        self.buffers: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.buffers:
            self.buffers = [self._zeros(states) for states in (key_states, value_states)]
            self.is_initialized = True
        keys, values = self.buffers
        return self._put(keys, key_states), self._put(values, value_states)

    def _zeros(self, like: Tensor) -> Tensor:
        # Zeros, since a masked column still meets a weight of zero, and 0 * NaN is NaN.
        rows, columns = self.capacity()
        return like.new_zeros((rows, like.shape[1], columns, like.shape[3]))

    def _put(self, buffer: Tensor, states: Tensor) -> Tensor:
        window = self.window
        rows = buffer[window.first : window.first + window.count]
        if window.columns is not None:
            rows[window.rows, :, window.columns] = states[:, :, 0]
        else:
            rows[:, :, window.past : window.past + states.shape[2]] = states
            if window.past == 0:
                return states
        return rows[:, :, : window.width]

    def get_seq_length(self, *args: Any) -> int:
        return self.window.past

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.window.width, 0

    def resize(self, rows: int, columns: int) -> None:
        """Move to buffers of the new capacity; ``rows`` and ``columns`` are in use."""
        for index, old in enumerate(self.buffers):
            new = self._zeros(old)
            new[:rows, :, :columns] = old[:rows, :, :columns]
            self.buffers[index] = new


class SlotCache:
    """Rows at any depth side by side, and what prompts and finished rows leave for others.

    Args:
        forward: The model.
        layers: Number of its layers.
        device: Where it runs.
        keep_tokens: Most tokens kept for others to continue; 0 keeps none.
    """

    def __init__(
        self, forward: Forward, layers: int, device: torch.device, keep_tokens: int
    ) -> None:
        self._forward = forward
        self._device = device
        self._window = _Window()
        self._rows, self._columns = 8, 128
        self._layers = [_SlotLayer(self._window, self._capacity) for _ in range(layers)]
        self._cache = Cache(layers=list(self._layers))
        self._lengths: NDArray[np.int64] = np.zeros(0, np.int64)
        self._prefixes = PrefixStore(keep_tokens)

    def _capacity(self) -> tuple[int, int]:
        return self._rows, self._columns

    def _reserve(self, rows: int, columns: int) -> None:
        if rows > self._rows or columns > self._columns:
            while self._rows < rows:
                self._rows *= 2
            if self._columns < columns:
                self._columns = max(columns, self._columns * 3 // 2)
            used = int(self._lengths.max(initial=0))
            for layer in self._layers:
                layer.resize(len(self._lengths), used)

    # Joining

    def join(self, prompts: Sequence[Tokens]) -> list[int]:
        """Add rows; equal prompts are computed once, kept prefixes not at all."""
        alike: dict[bytes, list[int]] = defaultdict(list)
        for index, prompt in enumerate(prompts):
            alike[prompt[:-1].tobytes()].append(index)
        groups = sorted(alike.values(), key=lambda group: len(prompts[group[0]]))
        first = len(self._lengths)
        self._reserve(first + len(prompts), max(len(prompt) for prompt in prompts))
        known, unknown = [], []
        for group in groups:
            inputs = prompts[group[0]][:-1]
            runs, covered = self._prefixes.find(inputs)
            if len(inputs) and not covered:
                unknown.append((group, inputs))
            else:
                known.append((group, inputs, runs, covered))
        placed = [group[0] for group, _ in unknown]
        self._prefill([inputs for _, inputs in unknown], first)
        for group, inputs, runs, covered in known:
            if covered:
                self._restore(first + len(placed), inputs, runs, covered)
            placed.append(group[0])
        row_of = {prompt: first + offset for offset, prompt in enumerate(placed)}
        for group in groups:
            if len(group) > 1:
                source, length = row_of[group[0]], len(prompts[group[0]]) - 1
                self._copy(source, first + len(placed), len(group) - 1, length)
                placed.extend(group[1:])
        lengths = [len(prompts[index]) - 1 for index in placed]
        self._lengths = np.concatenate((self._lengths, np.array(lengths, np.int64)))
        return placed

    def _prefill(self, inputs: Sequence[Tokens], first: int) -> None:
        """Compute sequences, ascending in length, into the rows from ``first`` on.

        Padding is on the right, where no real token looks.
        """
        start = 0
        while start < len(inputs):
            stop = start + 1
            while stop < len(inputs) and (stop + 1 - start) * len(inputs[stop]) <= _PREFILL_TOKENS:
                stop += 1
            width = len(inputs[stop - 1])
            ids = np.zeros((stop - start, width), np.int64)
            for row, sequence in enumerate(inputs[start:stop]):
                ids[row, : len(sequence)] = sequence
            self._pass(ids, first + start, past=0)
            for row, sequence in enumerate(inputs[start:stop], first + start):
                self._keep(row, sequence)
            start = stop

    def _restore(self, row: int, inputs: Tokens, runs: Sequence[KeysValues], covered: int) -> None:
        """Fill a row from what is kept, and compute what that does not cover."""
        for index, layer in enumerate(self._layers):
            for which, buffer in enumerate(layer.buffers):
                start = 0
                for run in runs:
                    states = run[index][which][:, : covered - start]
                    buffer[row, :, start : start + states.shape[1]] = states
                    start += states.shape[1]
        if covered < len(inputs):
            self._pass(inputs[None, covered:].astype(np.int64), row, past=covered)

    def _pass(self, ids: NDArray[np.int64], first: int, past: int) -> None:
        count, width = ids.shape
        window = self._window
        window.first, window.count, window.columns = first, count, None
        window.past, window.width = past, past + width
        positions = torch.arange(past, past + width, device=self._device).expand(count, -1)
        self._forward(torch.from_numpy(ids).to(self._device), positions, None, self._cache)

    def _copy(self, source: int, first: int, count: int, length: int) -> None:
        for layer in self._layers:
            for buffer in layer.buffers:
                if length:
                    buffer[first : first + count, :, :length] = buffer[source, :, :length]

    # Running

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token to every row."""
        lengths = self._lengths
        width = int(lengths.max()) + 1
        self._reserve(len(lengths), width)
        positions = torch.from_numpy(lengths).to(self._device)
        window = self._window
        window.first, window.count, window.columns = 0, len(lengths), positions
        window.rows = torch.arange(len(lengths), device=self._device)
        window.past, window.width = width - 1, width
        mask = None
        if int(lengths.min()) + 1 < width:
            mask = torch.arange(width, device=self._device) <= positions[:, None]
        logits = self._forward(tokens[:, None], positions[:, None], mask, self._cache)
        self._lengths = lengths + 1
        return logits

    def leave(self, order: NDArray[np.int64], gone: Sequence[tuple[int, Tokens]]) -> None:
        """Keep what finished rows computed, and close their gaps."""
        for row, tokens in gone:
            self._keep(row, tokens)
        for row, source in enumerate(order):
            if row != source:
                self._copy(int(source), row, 1, int(self._lengths[source]))
        self._lengths = self._lengths[order]

    def _keep(self, row: int, tokens: Tokens) -> None:
        """Copy what is not kept yet of a row out, for whoever continues it."""
        self._prefixes.add(
            tokens,
            lambda start, stop: [
                [buffer[row, :, start:stop].clone() for buffer in layer.buffers]
                for layer in self._layers
            ],
        )


class GroupCache:
    """Rows that start together, on the model's own cache; see the module's first lines."""

    def __init__(self, forward: Forward, config: Any, device: torch.device) -> None:
        self._forward = forward
        self._config = config
        self._device = device
        self._cache: Cache = DynamicCache(config=config)
        self._mask = torch.ones((0, 0), dtype=torch.long, device=device)
        self._positions = torch.zeros(0, dtype=torch.long, device=device)

    def join(self, prompts: Sequence[Tokens]) -> list[int]:
        """Start a group; the caller makes sure that the last one is through."""
        lengths = np.array([len(prompt) - 1 for prompt in prompts])
        width = int(lengths.max())
        ids = np.zeros((len(prompts), width), np.int64)
        mask = np.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - lengths[row] :] = prompt[:-1]
            mask[row, width - lengths[row] :] = 1
        self._cache = DynamicCache(config=self._config)
        self._mask = torch.from_numpy(mask).to(self._device)
        self._positions = torch.from_numpy(lengths).to(self._device)
        if width:
            positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
            ids_here = torch.from_numpy(ids).to(self._device)
            self._forward(ids_here, positions, self._mask, self._cache)
        return list(range(len(prompts)))

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token to every row."""
        self._mask = torch.cat((self._mask, self._mask.new_ones((len(self._mask), 1))), -1)
        logits = self._forward(tokens[:, None], self._positions[:, None], self._mask, self._cache)
        self._positions = self._positions + 1
        return logits

    def leave(self, order: NDArray[np.int64], gone: Sequence[tuple[int, Tokens]]) -> None:
        """Drop the finished rows."""
        index = torch.from_numpy(order).to(self._device)
        if len(order):
            self._cache.reorder_cache(index)  # type: ignore[arg-type]  # says LongTensor
        self._mask, self._positions = self._mask[index], self._positions[index]
