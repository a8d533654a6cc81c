"""Topics of Kafka to streaming DataFrames; records that do not parse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from holdfast.engine.json_records import (
    OFFSET_BITS,
    SPARK_OPTIONS,
    Decode,
    can_decode,
    record_decoder,
)
from holdfast.engine.record_reasons import SKIPPED_PREFIX, why_bad
from holdfast.errors import BadRecordError, EnvironmentProblem, shorten
from holdfast.sources import Kafka
from holdfast.sources.base import BAD_SIDE, Source
from holdfast.sources.kafka import EARLIEST, METADATA
from holdfast.state.schema import parse_columns
from holdfast.storage.kafka import KafkaAdmin
from holdfast.storage.references import resolve

_MARK = "holdfast-bad-kafka-record"
_OWN = "__holdfast_"
_BAD, _CORRUPT, _AVRO_OK = f"{_OWN}bad", f"{_OWN}corrupt", f"{_OWN}ok"
_SHOWN = 2000
_LARGE_FETCHES = {"max.poll.records": "10000", "max.partition.fetch.bytes": str(8 * 1024**2)}
"""Spark asks for the range of offsets at each poll. With Kafka's 500 records per poll, that was
a third of the time in which the connector read."""
_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Undecoded:
    """A source's records as they are, for a step that decodes them where it packs them."""

    frame: DataFrame
    decode: Decode


def undecoded(records: DataFrame, uid: str, source: Kafka) -> Undecoded | None:
    """None where Spark has to decode: only it knows the meaning of every type, and only it can
    count bad records or send them aside."""
    if source.format != "json" or source.on_bad_record != "fail" or source.with_metadata:
        return None
    schema = parse_columns(str(source.schema))
    if not can_decode(schema):
        return None
    topic = source.topic_names[0] if len(source.topic_names) == 1 else None
    columns = [f.col("value"), _packed_place(), *([] if topic else [f.col("topic")])]
    return Undecoded(records.select(*columns), record_decoder(uid, schema, topic))


def _packed_place() -> Column:
    """Where a record lies, in one number: what a column costs counts in every record, what it
    says only in a bad one."""
    partition, offset = f.col("partition").cast("bigint"), f.col("offset")
    return f.shiftleft(partition, OFFSET_BITS).bitwiseOR(offset).alias("place")


def kafka_records(stream: Any, source: Kafka) -> DataFrame:
    """`stream` is a reader of format "kafka"."""
    for key, value in stream_options(source).items():
        stream = stream.option(key, value)
    try:
        records: DataFrame = stream.load()
    except AnalysisException as error:
        if "kafka" not in str(error):
            raise
        raise _connector_missing() from error
    return records


def read_kafka(
    records: DataFrame, uid: str, source: Kafka
) -> tuple[DataFrame, dict[str, DataFrame]]:
    """The source's rows, and its side outputs."""
    # Under names that no schema has.
    kept = [f.col(name).alias(_OWN + name) for name in METADATA]
    if not source.parses:
        kind = "string" if source.format == "string" else "binary"
        rows = records.select(*kept, f.col("value").cast(kind).alias("value"))
        return rows.select("value", *_metadata(source)), {}
    # `inline` of one element: a filter is not pushed below it, which would parse all twice.
    rows = records.select(
        *kept, f.col("value").alias(f"{_OWN}value"), f.inline(f.array(_parsed(source)))
    ).withColumn(_BAD, _is_bad(source))
    return _judged(uid, source, rows)


def stream_options(source: Kafka) -> dict[str, str]:
    """For Spark's reader. Secrets are in it: it is made when it is needed, and not kept."""
    settings = _LARGE_FETCHES | source.access.java_settings(resolve)
    found = {f"kafka.{key}": value for key, value in settings.items()}
    for key, value in source.options.items():
        found[f"kafka.{key.removeprefix('kafka.')}"] = resolve(value)
    found["kafka.isolation.level"] = (
        "read_committed" if source.read_committed else "read_uncommitted"
    )
    found["failOnDataLoss"] = str(source.on_data_loss == "fail").lower()
    found["groupIdPrefix"] = source.group_id or "holdfast"
    if source.pattern is None:
        found["subscribe"] = ",".join(source.topic_names)
    else:
        found["subscribePattern"] = source.pattern
    if source.max_per_epoch is not None:
        found["maxOffsetsPerTrigger"] = str(source.max_per_epoch)
    return found | _start_options(source)


def _start_options(source: Kafka) -> dict[str, str]:
    start = source.start
    if isinstance(start, str):
        return {"startingOffsets": start}
    if isinstance(start, datetime):
        return {
            "startingTimestamp": str(int(start.timestamp() * 1000)),
            # A partition without younger records would be an error otherwise.
            "startingOffsetsByTimestampStrategy": "latest",
        }
    # Spark wants all partitions; those that are not named start at their beginning.
    known = KafkaAdmin(source.access).selected(source.topic_names, source.pattern)
    offsets = {
        topic: {
            str(number): start.get(topic, {}).get(number, EARLIEST) for number in partitions
        }
        for topic, partitions in known.items()
    }
    return {"startingOffsets": json.dumps(offsets)}


def _parsed(source: Kafka) -> Column:
    """A struct of the schema's columns, and of one that says whether it is what was sent."""
    value, schema = f.col("value"), str(source.schema)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if source.format == "json":
        options |= SPARK_OPTIONS
        return f.from_json(value.cast("string"), f"{schema}, {_CORRUPT} string", options)
    if source.format == "csv":
        return f.from_csv(value.cast("string"), f"{schema}, {_CORRUPT} string", options)
    from pyspark.sql.avro.functions import from_avro

    # A record that is no Avro gives all nulls, and so may a good one. A column that the writer
    # does not have, with a default, tells them apart.
    reader = json.loads(schema)
    marker = {"name": _AVRO_OK, "type": "int", "default": 1}
    reader["fields"] = [*reader["fields"], marker]
    return from_avro(value, schema, {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)})


def _is_bad(source: Kafka) -> Column:
    value = f.col(f"{_OWN}value")
    if source.format == "avro":
        return f.col(_AVRO_OK).isNull()
    blank = f.length(f.trim(value.cast("string"))) == 0
    return value.isNull() | blank | f.col(_CORRUPT).isNotNull()


def _judged(uid: str, source: Kafka, rows: DataFrame) -> tuple[DataFrame, dict[str, DataFrame]]:
    own = [name for name in rows.columns if not name.startswith(_OWN)]
    columns = [f.col(f"`{name}`") for name in own] + _metadata(source)
    bad = f.col(_BAD)
    if source.on_bad_record == "fail":
        place = [f.col(f"{_OWN}{name}") for name in _PLACE]
        message = f.concat_ws(
            "|", f.lit(_MARK), f.lit(uid), *place, f.substring(_raw(source), 1, _SHOWN)
        )
        refused = f.raise_error(message).cast("boolean")
        return rows.where(f.when(~bad, True).otherwise(refused)).select(*columns), {}
    if source.on_bad_record == "skip":
        count = f.count(f.when(bad, 1)).alias("bad")
        rows = rows.observe(f"{SKIPPED_PREFIX}{uid}", count)
    good = rows.where(~bad).select(*columns)
    if source.on_bad_record == "skip":
        return good, {}
    places = [f.col(f"{_OWN}{name}").alias(name) for name in METADATA if name != "key"]
    spoilt = rows.where(bad).select(_raw(source).alias("raw"), *places)
    explained = spoilt.mapInArrow(
        _reasons(str(source.schema), source.format), source.bad_schema
    )
    return good, {BAD_SIDE: explained}


def _raw(source: Kafka) -> Column:
    """The record as text; null for one without a value."""
    value = f.col(f"{_OWN}value")
    return f.base64(value) if source.format == "avro" else value.cast("string")


def _metadata(source: Kafka) -> list[Column]:
    if not source.with_metadata:
        return []
    return [f.col(_OWN + name).alias(name) for name in METADATA]


def _reasons(schema: str, fmt: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """For mapInArrow: say why each bad record is bad."""

    def explain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reasons = [why_bad_value(raw, schema, fmt) for raw in batch.column(0).to_pylist()]
            columns = [batch.column(0), pa.array(reasons, pa.string()), *batch.columns[1:]]
            names = ["raw", "reason", *batch.schema.names[1:]]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    return explain


def why_bad_value(raw: str | None, schema: str, fmt: str) -> str:
    """Why the value of a record does not parse, in words."""
    if raw is None:
        return "the record has no value (it is a tombstone)"
    if not raw.strip():
        return "the record is empty"
    if fmt == "avro":
        return "it is not what the Avro schema says"
    return why_bad(raw, schema, fmt)


def bad_kafka_record(text: str, sources: dict[str, Source]) -> BadRecordError | None:
    """The bad record inside the text of a Spark exception, with its place."""
    start = text.find(f"{_MARK}|")
    if start < 0:
        return None
    head = text[start:].split("\n", 1)[0].removesuffix(" SQLSTATE: P0001")
    _, uid, topic, partition, offset, *rest = head.split("|", 5)
    raw = rest[0].rstrip() if rest else None  # concat_ws leaves nulls out
    source = sources.get(uid)
    reason = "it does not parse"
    if isinstance(source, Kafka):
        reason = why_bad_value(raw, str(source.schema), source.format)
    place = {"topic": topic, "partition": int(partition), "offset": int(offset)}
    return bad_record(uid, place, raw, reason)


def bad_record(
    uid: str, place: Mapping[str, Any], raw: str | None, reason: str
) -> BadRecordError:
    topic, partition, offset = (place[name] for name in _PLACE)
    return BadRecordError(
        "BAD_RECORD",
        f"source {uid!r}: a record does not parse: {reason}.\n  at: topic {topic}, partition "
        f"{partition}, offset {offset}\n  record: {shorten(raw)}",
        fix='correct who writes it, and let this one pass with on_bad_record="skip" or "side".',
        source=uid,
        topic=topic,
        partition=partition,
        offset=offset,
        record=shorten(raw),
        reason=reason,
    )


def _connector_missing() -> EnvironmentProblem:
    return EnvironmentProblem(
        "KAFKA_CONNECTOR_MISSING",
        "Spark was started without its Kafka connector: nothing in the pipeline's code told "
        "that it would be needed, or this process had a Spark session already.",
        fix="write hf.sources.Kafka(…) in the pipeline function, or in a function or module "
        "that it uses by name; run the job in a process of its own.",
    )
