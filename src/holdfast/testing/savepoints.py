"""The state of a real job's step, for a harness: from a canonical savepoint, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import NotFoundError, UsageError
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.store import read_savepoint, verify
from holdfast.state.canonical import StoredStep
from holdfast.state.key_groups import KeyGroupIndex
from holdfast.state.packing import pack


def stored_blocks(
    path: Path, uid: str, keys: tuple[str, ...], index: KeyGroupIndex
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Key group and state of its keys, once the savepoint is known to be whole."""
    savepoint = read_savepoint(path)
    manifest = savepoint.manifest
    if manifest.kind != "canonical":
        raise UsageError(
            "SAVEPOINT_NOT_CANONICAL",
            f"savepoint {manifest.id} holds Spark's own files, which need Spark to be read.",
            fix="take one with `holdfast savepoint take JOB --format canonical`.",
        )
    verify(savepoint)
    signature = manifest.identity.operators.get(uid)
    if signature is None or not signature.get("layout"):
        known = [name for name, each in manifest.identity.operators.items() if each["layout"]]
        raise NotFoundError(
            "STEP_NOT_FOUND",
            f"savepoint {manifest.id} has no process step {uid!r}.",
            fix=f"it has: {', '.join(sorted(known)) or 'none'}.",
        )
    step = StoredStep.of(uid, signature, manifest.identity.backend)
    if step.keys != keys:
        raise UsageError(
            "KEYS_CHANGED",
            f"step {uid!r} is keyed by {', '.join(step.keys)}; the harness by "
            f"{', '.join(keys)}.",
            fix="give the harness the key of the step.",
        )
    schema = step.layout.schema.remove_metadata()
    for file in sorted(CanonicalState(path).rows(uid).glob("*.parquet")):
        for batch in pq.read_table(file).to_batches():
            renamed = pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(batch, schema, strict=True)],
                schema=schema,
            )
            yield from pack([renamed], tuple(schema.names[: len(keys)]), index)


def stored_broadcast(path: Path, uid: str) -> bytes | None:
    return CanonicalState(path).broadcast(uid)
