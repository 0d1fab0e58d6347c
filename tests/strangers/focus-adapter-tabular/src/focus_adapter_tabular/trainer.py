"""The trainer: exact gradients of the policy loss over a table of logits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_adapter_tabular.policy import CHARACTERS, END, TabularPolicy, key, log_softmax
from focus_core import ActorRecord, Batch, DataError, OffPolicyError, RecordError, TrainerError


@attrs.frozen
class Step:
    """One generated token: the prefix it follows, its place among the sayable ones, and numbers."""

    prefix: bytes
    place: int
    behaviour: float
    advantage: float


@attrs.define(kw_only=True, eq=False)
class TabularTrainer:
    """Stochastic gradient descent on the logits of each prefix.

    The loss is the sum over generated tokens of ``-min(r A, clip(r, 0.8, 1.2) A)`` (``ppo``) or
    ``-r A`` (``importance_sampling``), with ``r`` the ratio of learner to behaviour probability;
    its gradient by the logits of a prefix is ``-r A (onehot - softmax)``, 0 where clipped.

    Args:
        alphabet: Characters the policy can say, beside the end of its turn.
        learning_rate: Step size on the logits.
        loss: ``ppo`` or ``importance_sampling``.
        checkpoint_dir: Where ``save_state`` writes.
        resume_from: A file to continue from.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"merges-spans", "resumes"})

    alphabet: str = "abcd"
    learning_rate: float = attrs.field(default=0.5, validator=attrs.validators.gt(0.0))
    loss: Literal["ppo", "importance_sampling"] = "ppo"
    checkpoint_dir: str = "checkpoints"
    resume_from: str | None = None

    _table: dict[bytes, NDArray[np.float64]] = attrs.field(factory=dict, init=False)
    _updates: int = attrs.field(default=0, init=False)
    _sayable: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Refuse letters the policy cannot write, and a file that is no checkpoint."""
        unknown = [letter for letter in self.alphabet if letter not in CHARACTERS]
        if unknown:
            raise ValueError(f"alphabet has {unknown[0]!r}; it must be printable ASCII")
        self._sayable = [END, *(5 + CHARACTERS.index(letter) for letter in self.alphabet)]
        if self.resume_from is not None:
            try:
                saved = json.loads(Path(self.resume_from).read_text())
                self._updates = int(saved["updates"])
                self._table = {
                    bytes.fromhex(prefix): np.array(logits, np.float64)
                    for prefix, logits in saved["table"].items()
                }
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"not a saved table: {error}",
                    path=self.resume_from,
                    remedy="give what save_state returned",
                ) from error

    async def __aenter__(self) -> TabularTrainer:
        """Nothing to load."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to free."""

    async def close(self, status: str) -> None:
        """Nothing to end."""

    async def publish_policy(self) -> TabularPolicy:
        """The table as it is; updates replace its arrays and never change them."""
        return TabularPolicy(dict(self._table), self._sayable, self._updates)

    def convert(self, records: Sequence[ActorRecord]) -> list[list[Step]]:
        """The generated tokens of each record."""
        return [
            [self._step(record, int(at)) for at in np.flatnonzero(record.loss_mask)]
            for record in records
        ]

    def _step(self, record: ActorRecord, at: int) -> Step:
        token = int(record.tokens[at])
        if token not in self._sayable:
            raise RecordError(f"token {token} was not said by this policy; check the alphabet")
        return Step(
            key(record.tokens[:at]),
            self._sayable.index(token),
            float(record.logprobs[at]),
            float(record.advantages[at]),
        )

    async def update(self, batch: Batch) -> Mapping[str, float]:
        """One exact step."""
        if not all(isinstance(item, list) for item in batch.items):
            raise RecordError("the items of a batch must be what convert() made")
        steps: list[Step] = [step for item in batch.items for step in item]
        if not steps:
            raise RecordError("the batch has no generated token")
        zeros = np.zeros(len(self._sayable))
        every = {s.prefix: log_softmax(self._table.get(s.prefix, zeros)) for s in steps}
        gaps = np.array([every[s.prefix][s.place] - s.behaviour for s in steps])
        if batch.on_policy and np.abs(gaps).max() > 1e-4:
            raise OffPolicyError(
                f"at lag 0 learner and sampler differ by {np.abs(gaps).max():.3g} nats"
            )
        ratios = np.exp(gaps)
        advantages = np.array([step.advantage for step in steps])
        clipped = np.clip(ratios, 0.8, 1.2) if self.loss == "ppo" else ratios
        losses = -np.minimum(ratios * advantages, clipped * advantages)
        learns = ratios * advantages <= clipped * advantages
        gradient: dict[bytes, NDArray[np.float64]] = {}
        for step, ratio, counts in zip(steps, ratios, learns, strict=True):
            if counts:
                slope = np.exp(every[step.prefix])
                slope[step.place] -= 1.0
                slope *= ratio * step.advantage
                gradient[step.prefix] = gradient.get(step.prefix, 0.0) + slope
        for prefix, slope in gradient.items():
            self._table[prefix] = self._table.get(prefix, zeros) - self.learning_rate * slope
        self._updates += 1
        return {
            "loss": float(losses.sum()),
            "ratio_mean": float(ratios.mean()),
            "clip_fraction": float((~learns).mean()),
            "logprob_gap": float(np.abs(gaps).mean()),
        }

    async def save_state(self, name: str) -> str:
        """Write the table as JSON; numbers read back exactly."""
        path = Path(self.checkpoint_dir) / f"{name}.json"
        table = {prefix.hex(): logits.tolist() for prefix, logits in self._table.items()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"updates": self._updates, "table": table}))
        except OSError as error:
            raise TrainerError(f"{path} cannot be written: {error}") from error
        return str(path)
