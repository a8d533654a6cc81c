"""What two jobs have written since the point that they have in common, compared by DuckDB.

Only committed files count, and only epochs that the job has committed as a whole. Rows are
compared as a multiset, columns by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.checkpoint.forking import Adoption
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.source_log import paths_up_to
from holdfast.checkpoint.spark_files import read_start, spark_source_name
from holdfast.checkpoint.timelines import lineage
from holdfast.control.fork_plans import directories, require_fork_of
from holdfast.errors import ConflictError, CorruptionError, NotFoundError, shorten

if TYPE_CHECKING:
    import duckdb

_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\)")


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a job has written to a sink, and read from its sources, since an epoch."""

    job: str
    timeline: str
    after: int
    epoch: int
    """The newest one that counts."""
    files: Mapping[str, Sequence[Path]]
    """By sink."""
    formats: Mapping[str, str]
    read: Mapping[str, frozenset[str]]
    """By source of files: all that it has read so far."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A row that only one of them has."""

    job: str
    row: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SinkDiff:
    uid: str
    rows: tuple[int, int]
    only: tuple[int, int]
    """Rows, by job, that the other one does not have (so often)."""
    both: int
    columns: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Columns, by job, that the other one does not have; they are left out."""
    samples: tuple[Sample, ...] = ()

    @property
    def same(self) -> bool:
        return not any((*self.only, *self.columns))


@dataclass(frozen=True, kw_only=True)
class InputDiff:
    """Files of a source that only one of the two has read."""

    uid: str
    only: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class OutputDiff:
    first: Written
    second: Written
    sinks: tuple[SinkDiff, ...]
    inputs: tuple[InputDiff, ...]

    @property
    def same(self) -> bool:
        return all(each.same for each in self.sinks)

    @property
    def same_input(self) -> bool:
        return not any(number for each in self.inputs for number in each.only)


def written_since(directory: JobDirectory, identity: JobIdentity, after: int) -> Written:
    epoch = directory.last_committed()
    epoch = after if epoch is None else epoch
    kept = {
        timeline: epoch if last is None else min(last, epoch)
        for timeline, last in lineage(identity.timelines, identity.timeline).items()
    }
    places = Adoption(
        job=identity.name,
        job_id=identity.job_id,
        after=after,
        kept=kept,
        directories=directories(identity, kept),
        formats={uid: output["format"] for uid, output in identity.outputs.items()},
    )
    return Written(
        job=identity.name,
        timeline=identity.timeline,
        after=after,
        epoch=epoch,
        files={
            uid: [
                log.path_of(file)
                for timeline, log in places.logs(uid).items()
                for record in log.within({timeline: kept[timeline]}, after=after)
                for file in record.files
            ]
            for uid in places.directories
        },
        formats=places.formats,
        read=_read(directory, identity, epoch),
    )


def _read(
    directory: JobDirectory, identity: JobIdentity, epoch: int
) -> dict[str, frozenset[str]]:
    checkpoint = directory.checkpoint
    uids = {spark_source_name(uid): uid for uid in identity.sources}
    # Rows of a collection lie in the directory of each job.
    inside = f"{quote(str(directory.path))}/"
    found = {}
    for source in read_start(checkpoint, epoch).sources:
        if source.log_offset is not None:
            paths = paths_up_to(checkpoint / "sources" / source.name, source.log_offset)
            shortened = frozenset(path.replace(inside, "", 1) for path in paths)
            found[uids.get(source.name, source.name)] = shortened
    return found


def compared(
    first: JobDirectory, second: JobDirectory, *, sink: str | None = None, limit: int = 20
) -> OutputDiff:
    """Of a job and its fork, in either order, or of two forks of one savepoint."""
    one, other = _identity(first), _identity(second)
    after = common_epoch(one, other)
    return diff(
        written_since(first, one, after),
        written_since(second, other, after),
        sink=sink,
        limit=limit,
    )


def common_epoch(one: JobIdentity, other: JobIdentity) -> int:
    """The last epoch that two jobs have in common."""
    forks = [each.fork for each in (one, other)]
    if forks[0] and forks[1] and forks[0].savepoint == forks[1].savepoint:
        return forks[0].epoch
    if forks[0] and forks[0].job_id == other.job_id:
        return require_fork_of(one, other).epoch
    return require_fork_of(other, one).epoch


def _identity(directory: JobDirectory) -> JobIdentity:
    identity = directory.load()
    if identity is None:
        raise NotFoundError(
            "NOTHING_TO_READ",
            f"job {directory.name!r} has no committed epoch yet.",
            fix="look again once it has; `holdfast checkpoints` shows its epochs.",
        )
    return identity


def diff(
    first: Written, second: Written, *, sink: str | None = None, limit: int = 20
) -> OutputDiff:
    import duckdb

    uids = list(dict.fromkeys([*first.files, *second.files]))
    if sink is not None:
        if sink not in uids:
            raise NotFoundError(
                "SINK_NOT_FOUND",
                f"neither {first.job!r} nor {second.job!r} has a sink of files "
                f"{shorten(sink)}.",
                fix=f"they have: {', '.join(uids) or 'none'}.",
            )
        uids = [sink]
    with duckdb.connect() as database, _changed_meanwhile():
        sinks = tuple(_sink_diff(database, uid, first, second, limit) for uid in uids)
    return OutputDiff(
        first=first,
        second=second,
        sinks=sinks,
        inputs=tuple(
            InputDiff(uid=uid, only=(len(one - other), len(other - one)))
            for uid in dict.fromkeys([*first.read, *second.read])
            for one, other in [
                (first.read.get(uid, frozenset()), second.read.get(uid, frozenset()))
            ]
        ),
    )


@contextmanager
def _changed_meanwhile() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.IOException as error:
        raise ConflictError(
            "OUTPUT_CHANGED",
            f"a committed file could not be read: {error}",
            fix="if one of the jobs has just been taken back, compare again; else restore the "
            "file from a backup.",
        ) from error
    except duckdb.InvalidInputException as error:
        raise CorruptionError(
            "OUTPUT_UNREADABLE",
            f"a committed file is not what was written: {error}",
            fix="restore it from a backup.",
        ) from error


def _sink_diff(
    database: duckdb.DuckDBPyConnection, uid: str, first: Written, second: Written, limit: int
) -> SinkDiff:
    sides = (first, second)
    kinds = [_attach(database, f"side_{at}", side, uid) for at, side in enumerate(sides)]
    # One that has written nothing has no columns of its own.
    one, other = (kinds[0] or kinds[1] or {}), (kinds[1] or kinds[0] or {})
    common = [name for name in one if name in other]
    columns = ", ".join(_compared_column(name, one[name], other[name]) for name in common)
    for at, known in enumerate(kinds):
        rows = f"SELECT {columns or '1'} FROM side_{at if known else 1 - at}"
        database.execute(
            f"CREATE OR REPLACE TEMP VIEW rows_{at} AS "
            + (f"{rows} {'' if known else 'LIMIT 0'}" if one else "SELECT 1 LIMIT 0")
        )
    for at in (0, 1):
        less = f"EXCEPT ALL SELECT * FROM rows_{1 - at}" if common else ""
        database.execute(
            f"CREATE OR REPLACE TEMP TABLE only_{at} AS SELECT * FROM rows_{at} {less}"
        )
    number = [_count(database, f"rows_{at}") for at in (0, 1)]
    only = [_count(database, f"only_{at}") for at in (0, 1)]
    return SinkDiff(
        uid=uid,
        rows=(number[0], number[1]),
        only=(only[0], only[1]),
        both=number[0] - only[0],
        columns=(
            tuple(name for name in one if name not in other),
            tuple(name for name in other if name not in one),
        ),
        samples=_samples(database, sides, limit) if common else (),
    )


def _attach(
    database: duckdb.DuckDBPyConnection, name: str, side: Written, uid: str
) -> dict[str, str] | None:
    """A view of what one of them has written; its columns, or None if there are no files."""
    files = ", ".join(_text(path) for path in side.files.get(uid, ()))
    if not files:
        return None
    how = (
        "read_parquet([{}], union_by_name = true)"
        if side.formats[uid] == "parquet"
        else "read_json([{}], format = 'newline_delimited', union_by_name = true, "
        "sample_size = -1)"
    )
    database.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {how.format(files)}")
    return {row[0]: row[1] for row in database.execute(f"DESCRIBE {name}").fetchall()}


def _compared_column(name: str, one: str, other: str) -> str:
    """Numbers are compared as numbers; of other types that differ the texts are compared."""
    if one == other or (_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)):
        return _name(name)
    return f"CAST({_name(name)} AS VARCHAR) AS {_name(name)}"


def _samples(
    database: duckdb.DuckDBPyConnection, sides: Sequence[Written], limit: int
) -> tuple[Sample, ...]:
    found = []
    for at, side in enumerate(sides):
        shown = database.execute(f"SELECT * FROM only_{at} ORDER BY ALL LIMIT {limit}")
        names = [column[0] for column in shown.description or ()]
        found += [
            Sample(job=side.job, row=dict(zip(names, row, strict=True)))
            for row in shown.fetchall()
        ]
    return tuple(found)


def _count(database: duckdb.DuckDBPyConnection, table: str) -> int:
    found = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert found is not None
    return int(found[0])


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"
