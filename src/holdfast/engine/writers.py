"""Sink descriptors to writers that know the epoch commit protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from holdfast.checkpoint.forking import Adoption, adopt
from holdfast.checkpoint.identity import JobIdentity
from holdfast.checkpoint.kafka_epochs import SinkIdentity
from holdfast.checkpoint.record import SinkResult
from holdfast.engine.kafka_writer import KafkaWriter, RepeatingKafkaWriter
from holdfast.engine.transport import carry_errors
from holdfast.engine.trunk import blocks_to_rows
from holdfast.engine.worker import decoded_blocks
from holdfast.errors import JobDefinitionError
from holdfast.sinks import Console, Delivery, Discard, Files, Kafka, Memory, Sink
from holdfast.state.collector import end_of_task
from holdfast.state.packing import gather
from holdfast.state.plan import StepPlan
from holdfast.storage.file_sink_log import FileSinkLog, StagedFile
from holdfast.storage.files import storage_errors
from holdfast.storage.sink_logs import log_of

Decode = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_MANIFEST_DDL = "name string, rows bigint, bytes bigint"


@dataclass(frozen=True)
class Rows:
    """What a sink gets in an epoch: rows, or still packed blocks of a process step."""

    frame: DataFrame
    step: StepPlan | None = None
    tag: str = ""

    def unpacked(self) -> DataFrame:
        return (
            self.frame if self.step is None else blocks_to_rows(self.frame, self.step, self.tag)
        )

    @property
    def columns(self) -> list[str]:
        return list(self.step.outputs[self.tag].names) if self.step else self.frame.columns

    def decoder(self) -> Decode:
        """What turns the frame's Arrow batches into batches of rows, for a worker."""
        if self.step is None:
            return iter
        tag, schema = f"{self.step.uid}/{self.tag}", self.step.outputs[self.tag]
        return partial(decoded_blocks, tag=tag, schema=schema)


class SinkWriter(Protocol):
    def open(self) -> None:
        """Put right what an earlier run left behind."""

    def has(self, epoch: int) -> bool:
        """Whether the epoch is committed already."""

    def last_epoch(self) -> int | None:
        """The newest epoch that the sink has."""

    def rewind(self, kept: Mapping[str, int | None]) -> None:
        """Drop the epochs that do not lead to the job's timeline."""

    def adopt(self, adoption: Adoption, kept: Mapping[str, int | None]) -> None:
        """Take over what a promoted fork has written; `kept` leads to the job's timeline."""

    def write(self, epoch: int, rows: Rows) -> SinkResult:
        """Write the epoch and commit it. Every partition of the frame is computed."""


def writer_for(
    uid: str, sink: Sink, identity: JobIdentity, *, fence: int, directory: Path
) -> SinkWriter:
    """`directory` is the job's."""
    log = log_of(
        uid,
        sink,
        job_id=identity.job_id,
        job_name=identity.name,
        timeline=identity.timeline,
        fence=fence,
    )
    if log is not None and isinstance(sink, Files):
        return FilesWriter(uid, log, sink.format)
    if isinstance(sink, Kafka):
        if sink.delivery is not Delivery.TRANSACTIONAL:
            return RepeatingKafkaWriter(uid, sink)
        owner = SinkIdentity(
            job_id=identity.job_id,
            job_name=identity.name,
            uid=uid,
            timeline=identity.timeline,
            fence=fence,
            lease_directory=str(directory),
        )
        return KafkaWriter(uid, sink, owner, identity.parallelism)
    if isinstance(sink, Memory):
        return MemoryWriter(sink)
    if isinstance(sink, Console):
        return ConsoleWriter(uid, sink)
    if isinstance(sink, Discard):
        return DiscardWriter()
    raise JobDefinitionError(
        "UNKNOWN_SINK",
        f"sink {uid!r} is a {type(sink).__name__}, which this engine cannot write.",
        fix="use a descriptor of hf.sinks.",
    )


class FilesWriter:
    """Parquet and JSON files, by :class:`FileSinkLog`."""

    def __init__(self, uid: str, log: FileSinkLog, file_format: str) -> None:
        self._uid, self._log, self._format = uid, log, file_format

    def open(self) -> None:
        self._log.open()

    def has(self, epoch: int) -> bool:
        return self._log.is_committed(epoch)

    def last_epoch(self) -> int | None:
        return max(self._log.committed_epochs(), default=None)

    def rewind(self, kept: Mapping[str, int | None]) -> None:
        self._log.rewind(kept)

    def adopt(self, adoption: Adoption, kept: Mapping[str, int | None]) -> None:
        adopt(self._uid, self._log, adoption, kept)

    def write(self, epoch: int, rows: Rows) -> SinkResult:
        staging = self._log.begin(epoch)
        write = self._write_parquet if self._format == "parquet" else self._write_json
        files = write(rows, staging)
        record = self._log.commit(epoch, staging, files)
        return SinkResult(
            rows=record.rows,
            bytes=record.bytes,
            files=len(record.files),
            skipped=record.already,
        )

    def _write_parquet(self, rows: Rows, staging: Path) -> list[StagedFile]:
        """Arrow writes the files, in one Python hop with the decoding of blocks. What comes
        back is the list of files."""
        written = rows.frame.mapInArrow(
            _parquet_writer(rows.decoder(), str(staging)), _MANIFEST_DDL
        ).collect()
        return [StagedFile(name=row.name, rows=row.rows, bytes=row.bytes) for row in written]

    def _write_json(self, rows: Rows, staging: Path) -> list[StagedFile]:
        target = staging / "rows"
        (
            rows.unpacked()
            .write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .option("ignoreNullFields", "false")
            .json(str(target))
        )
        with storage_errors(target):
            return [
                StagedFile(
                    name=f"rows/{path.name}",
                    rows=_count_lines(path),
                    bytes=path.stat().st_size,
                )
                for path in sorted(target.iterdir())
                if path.name.startswith("part-") and path.name.endswith(".json")
            ]


def _parquet_writer(decode: Decode, staging: str) -> Callable[..., Any]:
    """For mapInArrow: the rows of a partition into one file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A name of its own per task attempt: only files that a finished task reports count.
        path = Path(staging) / f"{uuid.uuid4().hex}.parquet"
        rows, writer = 0, None
        with carry_errors(), storage_errors(path):
            for table in gather(decode(batches)):
                if writer is None:
                    writer = pq.ParquetWriter(path, table.schema)
                writer.write_table(table)
                rows += table.num_rows
            if writer is None:
                return
            writer.close()
            size = path.stat().st_size
        yield pa.RecordBatch.from_pydict({"name": [path.name], "rows": [rows], "bytes": [size]})
        end_of_task()

    return write


def _count_lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: lines.read(1 << 20), b""))


class _Forgetful:
    """A sink that keeps nothing which outlives the process."""

    def open(self) -> None:
        """There is nothing to put right."""

    def has(self, epoch: int) -> bool:
        return False

    def last_epoch(self) -> int | None:
        return None

    def rewind(self, kept: Mapping[str, int | None]) -> None:
        """There is nothing to drop."""

    def adopt(self, adoption: Adoption, kept: Mapping[str, int | None]) -> None:
        """The fork has kept nothing either."""


def _row_counter(decode: Decode) -> Callable[..., Any]:
    """For mapInArrow: how many rows a partition has."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in decode(batches))
        yield pa.RecordBatch.from_pydict({"rows": [rows]})
        end_of_task()

    return count


class DiscardWriter(_Forgetful):
    """All rows computed, none kept."""

    def write(self, epoch: int, rows: Rows) -> SinkResult:
        if rows.step is None:
            rows.frame.write.format("noop").mode("overwrite").save()
            return SinkResult(rows=0, bytes=0)
        # As far as a sink that takes blocks goes: they are decoded where they are.
        counts = rows.frame.mapInArrow(_row_counter(rows.decoder()), "rows bigint").collect()
        return SinkResult(rows=sum(row.rows for row in counts), bytes=0)


class MemoryWriter(_Forgetful):
    """Rows in the driver, for tests."""

    def __init__(self, sink: Memory) -> None:
        self._sink = sink

    def write(self, epoch: int, rows: Rows) -> SinkResult:
        found = [tuple(row) for row in rows.unpacked().collect()]
        self._sink.store(epoch, found)
        return SinkResult(rows=len(found), bytes=0)


class ConsoleWriter(_Forgetful):
    """The first rows of every epoch, as a table."""

    def __init__(self, uid: str, sink: Console) -> None:
        self._uid, self._sink = uid, sink

    def write(self, epoch: int, rows: Rows) -> SinkResult:
        from rich.console import Console as Terminal
        from rich.table import Table
        from rich.text import Text

        frame = rows.unpacked()
        found = frame.collect()
        table = Table(title=f"{self._uid}, epoch {epoch}: {len(found)} rows")
        for name in frame.columns:
            table.add_column(Text(name))
        for row in found[: self._sink.rows]:
            table.add_row(*(Text(str(value)) for value in row))
        Terminal().print(table)
        return SinkResult(rows=len(found), bytes=0)
