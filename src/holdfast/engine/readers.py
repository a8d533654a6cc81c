"""Source descriptors to streaming DataFrames."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.checkpoint.spark_files import spark_source_name
from holdfast.engine.kafka_reader import Undecoded, kafka_records, read_kafka, undecoded
from holdfast.engine.record_reasons import SKIPPED_PREFIX, why_bad
from holdfast.errors import BadRecordError, JobDefinitionError, NotFoundError, shorten
from holdfast.sources import Collection, FileLog, Files, Kafka, Source
from holdfast.sources.base import BAD_SIDE
from holdfast.state.rows import row_tuple, rows_to_batch
from holdfast.state.schema import parse_columns
from holdfast.storage.files import write_atomic

_CORRUPT = "__holdfast_corrupt"
_BAD_MARK = "holdfast-bad-record"


class Reader:
    """Reads the sources of one job. `named` sources keep their position by uid."""

    def __init__(self, session: SparkSession, job_directory: Path, *, named: bool) -> None:
        self._session, self._directory, self._named = session, job_directory, named
        self._undecoded: dict[str, Undecoded | None] = {}

    def read(self, uid: str, source: Source) -> tuple[DataFrame, dict[str, DataFrame]]:
        """The source's rows, and its side outputs."""
        if isinstance(source, Collection):
            path, fmt = self._materialise(uid, source), "parquet"
            return self._stream(uid, fmt, 1).schema(str(source.schema)).load(path), {}
        if isinstance(source, FileLog):
            path = _existing(uid, source.path, create=True)
            stream = self._stream(uid, "json", source.max_segments_per_epoch)
            return _parsed(uid, source, stream, path)
        if isinstance(source, Files):
            path = _existing(uid, source.path, create=False)
            stream = self._stream(uid, source.format, source.max_files_per_epoch)
            if source.format == "parquet":
                return stream.schema(str(source.schema)).load(path), {}
            if source.format == "csv":
                # Columns are found by place: refuse a header that names others.
                stream = stream.option("header", source.header).option("enforceSchema", False)
            return _parsed(uid, source, stream, path)
        if isinstance(source, Kafka):
            records = kafka_records(self._named_stream(uid, "kafka"), source)
            self._undecoded[uid] = undecoded(records, uid, source)
            return read_kafka(records, uid, source)
        raise JobDefinitionError(
            "UNKNOWN_SOURCE",
            f"source {uid!r} is a {type(source).__name__}, which this engine cannot read.",
            fix="use a descriptor of hf.sources.",
        )

    def undecoded(self, uid: str) -> Undecoded | None:
        """A source's records as they were sent, where whoever packs them can decode them."""
        return self._undecoded.get(uid)

    def clock(self, uid: str) -> DataFrame:
        """A source of its own that has something new every second, and no rows.

        Timers in processing time need epochs also when nothing arrives, and Spark runs none
        after a restart until a source has something new.
        """
        return self.ticks(uid).where("false")

    def ticks(self, uid: str) -> DataFrame:
        """As `clock`, with a row per second. `uid` is that of a step or of a source."""
        stream = self._session.readStream.format("rate")
        if self._named:
            stream = stream.name(spark_source_name(f"{uid}-clock"))
        ticks: DataFrame = stream.option("rowsPerSecond", 1).option("numPartitions", 1).load()
        return ticks

    def _named_stream(self, uid: str, fmt: str) -> Any:
        stream = self._session.readStream.format(fmt)
        return stream.name(spark_source_name(uid)) if self._named else stream

    def _stream(self, uid: str, fmt: str, per_epoch: int | None) -> Any:
        stream = self._named_stream(uid, fmt)
        if per_epoch is not None:
            stream = stream.option("maxFilesPerTrigger", per_epoch)
        # Spark forgets, and never reads, files older than a week than the newest one.
        return stream.option("maxFileAge", "36500d")

    def _materialise(self, uid: str, source: Collection) -> str:
        """Write a collection's rows where they can be read again after a crash."""
        schema = parse_columns(str(source.schema))
        rows = [row_tuple(row, schema, "a row of a Collection") for row in source.rows]
        digest = hashlib.sha256(repr((str(source.schema), rows)).encode()).hexdigest()[:16]
        target = self._directory / "collections" / uid / digest
        step = source.rows_per_epoch or max(len(rows), 1)
        target.mkdir(parents=True, exist_ok=True)
        for number, start in enumerate(range(0, max(len(rows), 1), step)):
            path = target / f"{number:06d}.parquet"
            if not path.exists():
                write_atomic(path, _parquet_bytes(rows[start : start + step], schema))
                # Spark reads files in the order of their modification times.
                os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        return str(target)


def _parsed(
    uid: str, source: Files | FileLog, stream: Any, path: str
) -> tuple[DataFrame, dict[str, DataFrame]]:
    """Text to rows, with records that do not parse treated as the source says."""
    schema, fmt = str(source.schema), _format_of(source)
    rows = (
        stream.schema(f"{schema}, {_CORRUPT} string")
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", _CORRUPT)
        .load(path)
    )
    corrupt, file = f.col(_CORRUPT), f.col("_metadata.file_path")
    columns = [f.col(f"`{name}`") for name in parse_columns(schema).names]
    # Spark parses only the columns that a query needs, so whether a record is bad would depend
    # on what comes later. Naming them all where they are never computed makes it need all.
    parsed = f.to_json(f.struct(*columns))
    if source.on_bad_record == "fail":
        raw = f.concat(f.substring(parsed, 1, 0), f.substring(corrupt, 1, 2000))
        message = f.concat_ws("|", f.lit(_BAD_MARK), f.lit(uid), file, raw)
        intact = f.when(corrupt.isNull(), True).otherwise(
            f.raise_error(message).cast("boolean")
        )
        return rows.where(intact).select(*columns), {}
    if source.on_bad_record == "skip":
        rows = rows.observe(f"{SKIPPED_PREFIX}{uid}", f.count(corrupt).alias("bad"))
    intact = f.when(corrupt.isNull(), True).otherwise(f.length(parsed) < 0)
    good = rows.where(intact).select(*columns)
    if source.on_bad_record == "skip":
        return good, {}
    bad = (
        rows.where(corrupt.isNotNull())
        .select(corrupt.alias("raw"), file.alias("file"), parsed.alias("parsed"))
        .mapInArrow(_reasons(schema, fmt), source.bad_schema)
    )
    return good, {BAD_SIDE: bad}


def _format_of(source: Source | None) -> str:
    return source.format if isinstance(source, Files) else "json"


def _existing(uid: str, path: str | os.PathLike[str], *, create: bool) -> str:
    target = Path(path).expanduser().absolute()
    if create:
        target.mkdir(parents=True, exist_ok=True)
    if not target.is_dir():
        raise NotFoundError(
            "INPUT_NOT_FOUND",
            f"source {uid!r}: there is no directory {target}.",
            fix="create it, or correct the path of the source.",
            source=uid,
        )
    if not os.access(target, os.R_OK | os.X_OK):
        raise NotFoundError(
            "INPUT_NOT_READABLE",
            f"source {uid!r}: {target} cannot be read by this user.",
            fix="grant read and search permission on the directory.",
            source=uid,
        )
    return str(target)


def _parquet_bytes(rows: list[tuple[Any, ...]], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rows_to_batch(rows, schema)]), sink)
    return bytes(sink.getvalue())


def _reasons(schema: str, fmt: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """For mapInArrow: say why each bad record is bad."""

    def explain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raw = batch.column("raw").to_pylist()
            yield pa.RecordBatch.from_pydict(
                {
                    "raw": pa.array(raw, pa.string()),
                    "reason": pa.array(
                        [why_bad(text, schema, fmt) for text in raw], pa.string()
                    ),
                    "file": batch.column("file").cast(pa.string()),
                }
            )

    return explain


def bad_record_error(text: str, graph_sources: dict[str, Source]) -> BadRecordError | None:
    """The bad record inside the text of a Spark exception, with its file and line."""
    start = text.find(f"{_BAD_MARK}|")
    if start < 0:
        return None
    _, uid, url, rest = text[start:].split("|", 3)
    raw = rest.split("\n", 1)[0].removesuffix(" SQLSTATE: P0001").rstrip()
    path = Path(unquote(urlparse(url).path))
    source = graph_sources.get(uid)
    schema, fmt = str(getattr(source, "schema", "")), _format_of(source)
    number, line = _find_line(path, raw)
    line = line if line is not None else raw
    reason = why_bad(line, schema, fmt) if schema else "it does not parse"
    place = f"{path}, line {number}" if number else str(path)
    return BadRecordError(
        "BAD_RECORD",
        f"source {uid!r}: a record does not parse: {reason}.\n  at: {place}\n"
        f"  record: {shorten(line)}",
        fix='correct the file, or let such records pass with on_bad_record="skip" or "side".',
        source=uid,
        file=str(path),
        line=number,
        record=shorten(line),
        reason=reason,
    )


def _find_line(path: Path, raw: str) -> tuple[int | None, str | None]:
    """Spark does not know line numbers: look the text up, now that it matters."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if line.rstrip("\r\n").startswith(raw) and raw:
                    return number, line.rstrip("\r\n")
    except OSError:
        pass
    return None, None
