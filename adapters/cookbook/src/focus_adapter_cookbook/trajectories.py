"""FOCUS's records and rollouts as the cookbook's trajectories and training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tinker
import torch
from focus_adapter_tinker.chunks import text_chunk
from numpy.typing import NDArray
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

from focus_core.collect import Collection
from focus_core.records import ActorRecord, Span, as_actor
from focus_core.records.shifted import shifted
from focus_core.tree.tree import ROOT, TERMINAL, Tree

__all__ = ["to_datum", "trajectory_group", "trajectory_groups"]


def to_datum(record: ActorRecord | Mapping[str, Any]) -> tinker.Datum:
    """A record, native or plain, as ``assemble_training_data`` would have made it.

    The model input is ``tokens[:-1]``; ``target_tokens`` (int64), ``logprobs``, ``advantages`` and
    ``mask`` (float32), all of shape (T - 1,), speak of ``tokens[1:]``. ``train_step`` takes the
    mask away. A merged record keeps each span's own advantage.

    Raises:
        RecordError: As ``focus_core.shifted``.
    """
    made = shifted(record)
    columns: dict[str, NDArray[Any]] = {
        "target_tokens": made.target_tokens.astype(np.int64),
        "logprobs": made.logprobs,
        "advantages": made.advantages,
        "mask": made.mask.astype(np.float32),
    }
    return tinker.Datum(
        model_input=tinker.ModelInput(chunks=[text_chunk(made.input_tokens)]),
        loss_fn_inputs={
            name: tinker.TensorData.from_numpy(column) for name, column in columns.items()
        },
    )


def trajectory_groups(
    records: Sequence[ActorRecord | Mapping[str, Any]],
) -> tuple[list[TrajectoryGroup], list[torch.Tensor]]:
    """Records as what ``assemble_training_data`` takes: groups, and their advantages.

    One group for each tree. The cookbook has one advantage for a trajectory, FOCUS one for a
    segment, so a record is a trajectory for each advantage it has: its segments with that
    advantage are the actions, and all that comes before each is its observation. Every generated
    token is trained in exactly one of them, with its own advantage.

    The advantage is also the trajectory's final reward. It is an advantage already: do not put
    the groups through ``compute_advantages``, which would centre it.

    Args:
        records: Actor records, native or plain, merged or not.

    Returns:
        The groups in order of appearance, and for each a float64 tensor of its trajectories'
        advantages, shape (G,).

    Raises:
        RecordError: As ``focus_core.shifted``.
    """
    groups: dict[Any, list[tuple[Trajectory, float]]] = {}
    for given in records:
        record = as_actor(given)
        shifted(record)  # refuses what no datum can be made of
        own = groups.setdefault(record.metadata.get("group_index"), [])
        for advantage in dict.fromkeys(span.advantage for span in record.spans):
            spans = [span for span in record.spans if span.advantage == advantage]
            own.append((_trajectory(record, spans), advantage))
    made, advantages = [], []
    for pairs in groups.values():
        worth = [advantage for _, advantage in pairs]
        made.append(
            TrajectoryGroup([trajectory for trajectory, _ in pairs], worth, [{}] * len(worth))
        )
        advantages.append(torch.tensor(worth, dtype=torch.float64))
    return made, advantages


def trajectory_group(collection: Collection) -> TrajectoryGroup:
    """A collection's finished rollouts as the cookbook's own loop would have recorded them.

    One transition for each turn, with the turn's reward; nothing is added for the group. States
    in which several rollouts agree are in each of them: for training, use ``trajectory_groups``.
    A prompt that does not continue the sequence before it starts a new datum there, as here.
    """
    tree = collection.tree
    leaves = [node for node in tree.edges() if tree.kind[node] == TERMINAL]
    return TrajectoryGroup(
        [_rollout(tree, leaf) for leaf in leaves],
        [0.0] * len(leaves),
        [{} for _ in leaves],
    )


def _trajectory(record: ActorRecord, spans: Sequence[Span]) -> Trajectory:
    transitions = [
        _transition(
            record.tokens[: span.start].tolist(),
            record.tokens[span.start : span.stop].tolist(),
            record.logprobs[span.start : span.stop].tolist(),
            0.0,
            span is spans[-1],
        )
        for span in spans
    ]
    return Trajectory(transitions, tinker.ModelInput.empty())


def _transition(
    prompt: list[int], tokens: list[int], logprobs: list[float], reward: float, last: bool
) -> Transition:
    return Transition(
        ob=tinker.ModelInput.from_ints(prompt),
        ac=TokensWithLogprobs(tokens, logprobs),
        reward=reward,
        episode_done=last,
    )


def _rollout(tree: Tree, leaf: int) -> Trajectory:
    """The turns from the root to a leaf."""
    transitions = []
    prompt: list[int] = tree.prefix(ROOT).tolist()
    tokens: list[int] = []
    logprobs: list[float] = []
    reward = 0.0
    for node in tree.path(leaf)[1:]:
        said, behaviour = tree.generated(node)
        tokens += said.tolist()
        logprobs += behaviour.tolist()
        reward += tree.reward[node]
        if node == leaf or tree.ends_turn(node):
            transitions.append(_transition(prompt, tokens, logprobs, reward, node == leaf))
            prompt, tokens, logprobs, reward = tree.prefix(node).tolist(), [], [], 0.0
    return Trajectory(transitions, tinker.ModelInput.empty())
