"""One recorded batch as a file: numeric columns of its actor records, the rest as JSON; exact.

A NumPy archive (``.npz``, deflated) of flat arrays. Actor records are kept in merged form, one per
path, from which the records per edge follow exactly (``split_merged``):

=================  =======  ====================================================================
``tokens``         int32    of all records, one after another
``lengths``        int64    tokens of each record
``spans``          int64    spans of each record
``start, stop``    int64    of each span, in its record
``edge, parent``   int64    of each span; -1 if it has none
``advantages``     float64  of each span
``logprobs``       float32  of the generated tokens only, span after span
``meta``           uint8    JSON (UTF-8): schema, recording, batch, steps, metrics, actor metadata,
                            records per tree, and the other lanes' records in plain form
=================  =======  ====================================================================
"""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.errors import DataError, RecordError
from focus_core.records import ActorRecord, CriticRecord, Span
from focus_core.schedule.batches import CollectedBatch
from focus_core.utils.files import atomic_file
from focus_core.utils.plain_json import to_json

__all__ = ["RecordedBatch", "read_batch", "write_batch"]

SCHEMA = 1
_REMEDY = "restore the file, or record the run again"
_DTYPES: Mapping[str, type[np.generic]] = {
    "tokens": np.int32,
    "lengths": np.int64,
    "spans": np.int64,
    "start": np.int64,
    "stop": np.int64,
    "edge": np.int64,
    "parent": np.int64,
    "advantages": np.float64,
    "logprobs": np.float32,
    "meta": np.uint8,
}
_META: Mapping[str, type] = {
    "recording": str,
    "batch": int,
    "behavior_step": int,
    "learner_step": int,
    "metrics": dict,
    "trees": list,
    "actor": list,
    "others": dict,
}


@attrs.frozen(kw_only=True)
class RecordedBatch:
    """A batch as it was handed to the trainer.

    Attributes:
        batch: Its index.
        behavior_step: Updates completed when the policy that sampled it was published.
        learner_step: Updates completed before its own.
        trees: Merged actor records of each tree.
        others: Records of the other lanes in plain form, by lane name.
        metrics: The collection's numbers.
    """

    batch: int
    behavior_step: int
    learner_step: int
    trees: Sequence[Sequence[ActorRecord]]
    others: Mapping[str, Sequence[Mapping[str, Any]]]
    metrics: Mapping[str, Any]


def write_batch(path: Path, batch: CollectedBatch, *, learner_step: int, recording: str) -> None:
    """Write a whole file or none.

    Args:
        path: Of the file.
        batch: What to keep.
        learner_step: Updates completed before this batch's.
        recording: Id of the recording that it belongs to.

    Raises:
        RecordError: Metadata that JSON would change.
        OSError: The file cannot be written.
    """
    records = [record for tree in batch.trees for record in tree.merged]
    spans = [span for record in records for span in record.spans]
    kept = {
        "recording": recording,
        "batch": batch.index,
        "behavior_step": batch.behavior_step,
        "learner_step": learner_step,
        "metrics": to_json(batch.metrics),
        "trees": [len(tree.merged) for tree in batch.trees],
        "actor": [dict(record.metadata) for record in records],
        "others": {name: [r.to_dict() for r in group] for name, group in batch.others.items()},
    }
    columns = {
        "tokens": _joined([record.tokens for record in records]),
        "lengths": [len(record.tokens) for record in records],
        "spans": [len(record.spans) for record in records],
        "start": [span.start for span in spans],
        "stop": [span.stop for span in spans],
        "edge": [-1 if span.edge is None else span.edge for span in spans],
        "parent": [-1 if span.parent is None else span.parent for span in spans],
        "advantages": [span.advantage for span in spans],
        "logprobs": _joined(
            [record.logprobs[s.start : s.stop] for record in records for s in record.spans]
        ),
        "meta": np.frombuffer(_exact_json({"schema": SCHEMA, **kept}, batch.index), np.uint8),
    }
    arrays: dict[str, Any] = {
        name: np.asarray(columns[name], dtype) for name, dtype in _DTYPES.items()
    }
    with atomic_file(path) as file:
        np.savez_compressed(file, **arrays)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0)


def _exact_json(value: Mapping[str, Any], batch: int) -> bytes:
    """JSON that reads back equal."""
    remedy = "use text, finite numbers, lists and objects in problem ids and record metadata"
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(f"batch {batch} cannot be recorded: {error}; {remedy}") from error
    again = json.loads(text)
    for key, part in value.items():
        if again[key] != part:
            raise RecordError(f"batch {batch} cannot be recorded: JSON changes {key!r}; {remedy}")
    return text.encode()


def read_batch(path: Path, *, batch: int, recording: str) -> RecordedBatch:
    """Read and validate a file; nothing in it is evaluated or unpickled.

    Raises:
        DataError: It is missing, damaged, of another schema, or belongs somewhere else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            columns = {name: _column(archive, name, dtype) for name, dtype in _DTYPES.items()}
        meta = json.loads(columns["meta"].tobytes())
        if not isinstance(meta, dict) or meta.get("schema") != SCHEMA:
            found = meta.get("schema") if isinstance(meta, dict) else meta
            raise _Damage(f"its schema is {found!r}; this version reads {SCHEMA}")
        for key, kind in _META.items():
            if type(meta.get(key)) is not kind:
                raise _Damage(
                    f"{key!r} is {meta.get(key)!r:.80}; it must be of type {kind.__name__}"
                )
        for key, expected in (("batch", batch), ("recording", recording)):
            if meta[key] != expected:
                raise _Damage(f"it belongs to {key} {meta[key]!r}, not {expected!r}")
        if not 0 <= meta["behavior_step"] <= meta["learner_step"]:
            raise _Damage(
                f"it was sampled at step {meta['behavior_step']} and trained at step "
                f"{meta['learner_step']}"
            )
        return RecordedBatch(
            batch=batch,
            behavior_step=meta["behavior_step"],
            learner_step=meta["learner_step"],
            trees=_trees(columns, meta),
            others=_others(meta["others"]),
            metrics=_metrics(meta["metrics"]),
        )
    except FileNotFoundError:
        raise DataError("no such file", path=path, remedy=_REMEDY) from None
    except Exception as error:  # of whatever zipfile, NumPy and JSON make of damaged bytes
        raise DataError(f"not a recorded batch: {error}", path=path, remedy=_REMEDY) from error


class _Damage(Exception):
    """What is wrong with a file's contents."""


def _column(archive: zipfile.ZipFile, name: str, dtype: type[np.generic]) -> NDArray[Any]:
    """A flat array of that type whose length is what the file really holds."""
    with archive.open(f"{name}.npy") as file:
        shape, found = _header(file)
        if len(shape) != 1 or found != np.dtype(dtype):
            raise _Damage(f"{name!r} is {found} of shape {shape}, not a flat {np.dtype(dtype)}")
        size = shape[0] * found.itemsize
        content = bytearray(file.read(size + 1))  # however much it would inflate to
    if len(content) != size:
        raise _Damage(f"{name!r} says {shape[0]} entries and holds something else")
    return np.frombuffer(content, found)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise _Damage(f"NumPy format {version}")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


def _trees(columns: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> list[list[ActorRecord]]:
    """The actor records of each tree."""
    spans = len(columns["start"])
    for name, whole, total in (
        ("lengths", len(meta["actor"]), len(columns["tokens"])),
        ("spans", len(meta["actor"]), spans),
    ):
        _check_counts(name, columns[name].tolist(), whole, total)
    _check_counts("trees", meta["trees"], len(meta["trees"]), len(meta["actor"]))
    for name in ("stop", "edge", "parent", "advantages"):
        if len(columns[name]) != spans:
            raise _Damage(f"{len(columns[name])} entries in {name!r} for {spans} spans")
    sizes = (columns["stop"] - columns["start"]).tolist()
    _check_counts("stop - start", sizes, spans, len(columns["logprobs"]))
    every = zip(
        *(columns[name].tolist() for name in ("start", "stop", "advantages", "edge", "parent")),
        strict=True,
    )
    each = zip(columns["lengths"].tolist(), columns["spans"].tolist(), meta["actor"], strict=True)
    token = logprob = 0
    records: list[ActorRecord] = []
    for length, count, metadata in each:
        if not isinstance(metadata, dict):
            raise _Damage(f"record {len(records)}: its metadata is {metadata!r:.80}")
        logprobs = np.zeros(length, np.float32)
        own = []
        for start, stop, advantage, edge, parent in itertools.islice(every, count):
            if not 0 <= start < stop <= length:
                raise _Damage(f"record {len(records)}: span {start}:{stop} of {length} tokens")
            logprobs[start:stop] = columns["logprobs"][logprob : logprob + stop - start]
            logprob += stop - start
            own.append(Span(start, stop, advantage, _index(edge), _index(parent)))
        try:
            records.append(
                ActorRecord(columns["tokens"][token : token + length], logprobs, own, metadata)
            )
        except RecordError as error:
            raise _Damage(f"record {len(records)}: {error}") from error
        token += length
    ends = np.cumsum([0, *meta["trees"]]).tolist()
    return [records[start:stop] for start, stop in itertools.pairwise(ends)]


def _index(number: int) -> int | None:
    return None if number < 0 else number


def _check_counts(name: str, counts: Sequence[Any], number: int, total: int) -> None:
    """Refuse counts that are not as many, or do not add up."""
    if len(counts) != number:
        raise _Damage(f"{len(counts)} entries in {name!r}, not {number}")
    if any(type(count) is not int or count < 0 for count in counts) or sum(counts) != total:
        raise _Damage(f"{name!r} adds up to something else than {total}")


def _others(lanes: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    for name, records in lanes.items():
        if not isinstance(records, list) or not all(
            isinstance(r, dict)
            and isinstance(r.get("metadata"), dict)
            and isinstance(r["metadata"].get("training"), dict)
            for r in records
        ):
            raise _Damage(f"lane {name!r} holds something else than records of a batch")
        if name == CriticRecord.lane:
            for record in records:
                CriticRecord.from_dict(record)
    return lanes


def _metrics(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    if type(metrics.get("sampled_tokens")) is not int:
        raise _Damage(f"sampled_tokens is {metrics.get('sampled_tokens')!r:.80}")
    return metrics
