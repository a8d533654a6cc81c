"""Is the state that a program left right? Run in a process of its own, after the measuring.

The expected totals are computed from the input files by Arrow alone. The found ones come from
the checkpoint through Spark's state reader; holdfast's blocks are read as the Arrow streams
they are and its entries as the bytes they are, not by the code that wrote them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from holdfast.bench.plain import ENCODING, RUNTIME
from holdfast.bench.programs import PARTITIONS
from holdfast.config import CheckpointConfig
from holdfast.engine.session import driver_session, query_session

_TOTAL = b"v\x00\x05total"
_FORMAT, _STRING = b"\x01", b"s"
_LENGTH_BYTES = 4


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = driver_session(RUNTIME)
    session = query_session(spark, CheckpointConfig(), PARTITIONS, RUNTIME)
    for case in cases:
        verdict = {"event": "case", "name": case["name"], "exact": _is_exact(session, case)}
        sys.stdout.write(json.dumps(verdict) + "\n")
        sys.stdout.flush()
    spark.stop()


def _is_exact(session: SparkSession, case: dict[str, Any]) -> bool:
    session.conf.set(ENCODING, "unsaferow" if case["kind"] == "native" else "avro")
    readers = {"process": _process, "entries": _entries, "value": _value, "native": _native}
    found = readers[case["kind"]](session, case["checkpoint"])
    edits = ds.dataset(case["source"], format="parquet").to_table(columns=["user", "diff"])
    expected = edits.group_by("user").aggregate([("diff", "sum")])
    return _sorted(found) == _sorted(expected)


def _sorted(totals: pa.Table) -> list[tuple[str, int]]:
    user, total = (totals.column(at).to_pylist() for at in range(2))
    return sorted(zip(user, total, strict=True))


def _native(session: SparkSession, checkpoint: str) -> pa.Table:
    """Buffers of a native aggregation; the only one is the sum."""
    buffers = session.read.format("statestore").load(checkpoint)
    return buffers.select("key.*", "value.*").toArrow()


def _value(session: SparkSession, checkpoint: str) -> pa.Table:
    return _variable(session, checkpoint, "total").select("key.*", "value.*").toArrow()


def _process(session: SparkSession, checkpoint: str) -> pa.Table:
    """The blocks of every key group's log, oldest first; a later row of a key counts."""
    blocks = [entry for entry in _stored_entries(session, checkpoint) if entry[0][:1] == b"b"]
    totals: dict[str, int] = {}
    for _, stored in sorted(blocks):
        with pa.ipc.open_stream(stored) as stream:
            block = stream.read_all()
        totals.update(zip(block["k0"].to_pylist(), block["v_total"].to_pylist(), strict=True))
    return pa.table({"user": list(totals), "total": list(totals.values())})


def _entries(session: SparkSession, checkpoint: str) -> pa.Table:
    return totals_of(_stored_entries(session, checkpoint))


def _stored_entries(session: SparkSession, checkpoint: str) -> list[tuple[bytes, bytes]]:
    """Of all key groups together: their keys do not overlap, their logs are in order."""
    found = _variable(session, checkpoint, "entries").select(
        "user_map_key.k", "user_map_value.v"
    )
    key, value = (column.to_pylist() for column in found.toArrow().columns)
    return list(zip(key, value, strict=True))


def totals_of(entries: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    """The variable `total` of every user in entries of the rocksdb backend."""
    totals: dict[str, int] = {}
    for key, value in entries:
        if not key.startswith(_TOTAL):
            continue
        user = key.removeprefix(_TOTAL).removeprefix(_STRING)
        totals[user[_LENGTH_BYTES:].decode()] = msgpack.unpackb(value.removeprefix(_FORMAT))
    return pa.table({"user": list(totals), "total": list(totals.values())})


def _variable(session: SparkSession, checkpoint: str, name: str) -> DataFrame:
    return session.read.format("statestore").option("stateVarName", name).load(checkpoint)


if __name__ == "__main__":
    main()
