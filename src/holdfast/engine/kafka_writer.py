"""Writers of Kafka sinks: in transactions of our own, or by Spark's writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from holdfast.checkpoint.forking import Adoption
from holdfast.checkpoint.kafka_epochs import (
    Marker,
    Markers,
    PartitionWrite,
    ProducerCount,
    SinkIdentity,
    cannot_rewind,
    end_open_transactions,
    ensure_topics,
    require_same_cut,
    write_partition,
)
from holdfast.checkpoint.record import SinkResult
from holdfast.engine.transport import carry_errors
from holdfast.errors import ConflictError, JobDefinitionError
from holdfast.sinks import Kafka
from holdfast.sinks.kafka_records import RecordShape
from holdfast.state.collector import end_of_task
from holdfast.state.packing import gather
from holdfast.storage.kafka import KafkaAdmin
from holdfast.storage.references import resolve

if TYPE_CHECKING:
    from holdfast.engine.writers import Decode, Rows

_WRITTEN_DDL = "rows bigint, bytes bigint, skipped boolean"


class _KafkaWriter:
    """What both kinds have in common."""

    def __init__(self, uid: str, sink: Kafka) -> None:
        self._uid, self._sink = uid, sink
        self._shape = RecordShape(
            key=sink.key, value=sink.value, headers=sink.headers, partition=sink.partition
        )

    def rewind(self, kept: Mapping[str, int | None]) -> None:
        raise cannot_rewind(self._uid, self._sink)

    def adopt(self, adoption: Adoption, kept: Mapping[str, int | None]) -> None:
        raise cannot_rewind(self._uid, self._sink)

    def _require_columns(self, frame_columns: list[str]) -> None:
        for name in self._sink.columns:
            if name not in frame_columns:
                raise JobDefinitionError(
                    "COLUMN_NOT_FOUND",
                    f"sink {self._uid!r} ({self._sink.describe()}) names column {name!r}; its "
                    f"rows have {', '.join(frame_columns)}.",
                    fix="correct key, value, headers or partition of the sink.",
                )


class KafkaWriter(_KafkaWriter):
    """Exactly once, by :mod:`holdfast.checkpoint.kafka_epochs`."""

    def __init__(self, uid: str, sink: Kafka, identity: SinkIdentity, parallelism: int) -> None:
        super().__init__(uid, sink)
        self._identity, self._producers = identity, ProducerCount(identity, parallelism)
        self._settings = sink.access.client_settings(resolve)
        self._options: dict[str, Any] = {
            name: resolve(value) for name, value in sink.options.items()
        } | {"transaction.timeout.ms": int(sink.timeout.total_seconds() * 1000)}
        self._known: dict[tuple[str, int], Marker] = {}

    def open(self) -> None:
        sink, identity = self._sink, self._identity
        admin = KafkaAdmin(sink.access)
        ensure_topics(admin, sink.topic, sink.like, identity.marker_topic)
        admin.partitions([sink.topic])
        # First: markers can be read only as far as no transaction is open.
        end_open_transactions(self._settings, identity, self._producers.most())
        self._known = Markers(self._settings, identity.marker_topic).all()
        for marker in self._known.values():
            if marker.job_id != identity.job_id:
                raise ConflictError(
                    "SINK_OWNED_BY_ANOTHER_JOB",
                    f"sink {self._uid!r}: topic {identity.marker_topic!r} holds epochs of "
                    f"another job {identity.job_name!r}, with id {marker.job_id}; this one is "
                    f"{identity.job_id}.",
                    fix="give the job or the sink another name, or delete that topic if the "
                    "other job is gone for good.",
                )

    def has(self, epoch: int) -> bool:
        found = [
            marker
            for (timeline, _), marker in self._known.items()
            if timeline == self._identity.timeline and marker.epoch >= epoch
        ]
        return bool(found) and len(found) >= found[0].partitions

    def last_epoch(self) -> int | None:
        return max(
            (
                marker.epoch
                for (timeline, _), marker in self._known.items()
                if timeline == self._identity.timeline
            ),
            default=None,
        )

    def write(self, epoch: int, rows: Rows) -> SinkResult:
        self._require_columns(rows.columns)
        write = PartitionWrite(
            settings=self._settings,
            options=self._options,
            identity=self._identity,
            topic=self._sink.topic,
            epoch=epoch,
            partitions=_partitions(rows.frame),
        )
        for marker in self._known.values():
            if marker.timeline == self._identity.timeline:
                require_same_cut(marker, write)
        self._producers.note(write.partitions)
        written = rows.frame.mapInArrow(
            _partition_writer(rows.decoder(), write, self._shape), _WRITTEN_DDL
        ).collect()
        return SinkResult(
            rows=sum(row.rows for row in written),
            bytes=sum(row.bytes for row in written),
            skipped=bool(written) and all(row.skipped for row in written),
        )


def _partitions(frame: DataFrame) -> int:
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def _partition_writer(
    decode: Decode, write: PartitionWrite, shape: RecordShape
) -> Callable[..., Any]:
    """For mapInArrow: the rows of a partition in one transaction."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        with carry_errors():
            records = (
                record for table in gather(decode(batches)) for record in shape.records(table)
            )
            written = write_partition(write, context.partitionId(), records)
        yield pa.RecordBatch.from_pylist([vars(written)])
        end_of_task()

    return run


class RepeatingKafkaWriter(_KafkaWriter):
    """At least once: Spark writes, and an epoch that comes again is written again."""

    def open(self) -> None:
        KafkaAdmin(self._sink.access).partitions([self._sink.topic])

    def has(self, epoch: int) -> bool:
        return False

    def last_epoch(self) -> int | None:
        return None

    def write(self, epoch: int, rows: Rows) -> SinkResult:
        frame = rows.unpacked()
        self._require_columns(frame.columns)
        records, options = self.records(frame), self.options()
        records.write.format("kafka").options(**options).save()
        # Spark's writer does not tell how many there were, and an Observation never answers:
        # the writer runs the plan in a way of its own.
        return SinkResult(rows=0, bytes=0)

    def records(self, frame: DataFrame) -> DataFrame:
        """A frame with the columns that Spark's writer takes."""
        shape = self._shape
        shown = [name for name in frame.columns if name != shape.partition]

        def text(name: str) -> Column:
            """Text and bytes as they are; Kafka takes nothing else."""
            column = _column(name)
            return column if dict(frame.dtypes)[name] == "binary" else column.cast("string")

        value = (
            text(shape.value)
            if shape.value
            else f.to_json(f.struct(*map(_column, shown)), {"ignoreNullFields": "false"})
        )
        columns = [value.alias("value")]
        if shape.key:
            columns.append(text(shape.key).alias("key"))
        if shape.partition:
            columns.append(_column(shape.partition).cast("int").alias("partition"))
        if shape.headers:
            pairs = [
                f.struct(f.lit(name).alias("key"), text(column).cast("binary").alias("value"))
                for name, column in shape.headers.items()
            ]
            columns.append(f.array(*pairs).alias("headers"))
        return frame.select(*columns)

    def options(self) -> dict[str, str]:
        """For Spark's writer. Secrets are in it: it is made when it is needed, and not kept."""
        sink = self._sink
        settings = sink.access.java_settings(resolve) | {
            name: resolve(text) for name, text in sink.options.items()
        }
        return {f"kafka.{name}": value for name, value in settings.items()} | {
            "topic": sink.topic
        }


def _column(name: str) -> Column:
    return f.col(f"`{name}`")
