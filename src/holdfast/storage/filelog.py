"""The embedded file log: a directory of JSON-lines segments that producers append to.

A segment appears whole, under its final name, or not at all; it never changes afterwards. So
a reader may list the directory at any time and replay it as often as it likes::

    with FileLogProducer(Path("edits")) as log:
        log.send({"user": "Zoë", "diff": 12, "ts": datetime.now(UTC)})

    edits/1767225600000-web1-000000000.jsonl        milliseconds - producer id - sequence

Names sort by time of writing. Each producer's own times only ever rise, even if the clock is
set back or the producer is started again, and they begin above those of every segment that was
there when it started; between producers the id keeps names apart. Spark reads files in the
order of their times of modification, in milliseconds, so a segment carries that of its name.
"""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from holdfast.clock import Clock, SystemClock
from holdfast.errors import CorruptionError, DataError, SettingsError, UsageError, shorten
from holdfast.storage.files import create_exclusive, list_names, make_directory, storage_errors
from holdfast.types import check_name, parse_duration

_SEGMENT = re.compile(r"^(?P<millis>\d{13})-(?P<producer>.+)-(?P<sequence>\d{9,})\.jsonl$")
_SYSTEM_CLOCK = SystemClock()


class FileLogProducer:
    """Appends records to a file log; safe to share between threads.

    `send` buffers. A segment is written when `max_records` are waiting, when the oldest has
    waited for `max_delay` (looked at whenever something is sent: there is no thread behind
    this), on `flush`, and at the end of the ``with`` block. A record is durable when its
    segment is. If writing fails the records stay in the buffer, so `flush` can be repeated.

    A producer that is started again with the same `producer_id` continues above its newest
    segment.
    """

    def __init__(
        self,
        path: Path,
        *,
        producer_id: str | None = None,
        max_records: int = 10_000,
        max_delay: timedelta | str = timedelta(seconds=1),
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        if max_records < 1:
            raise SettingsError(
                "INVALID_MAX_RECORDS",
                f"max_records is {max_records}.",
                fix="write at least 1 record per segment.",
            )
        self.path = path
        self.producer_id = check_name(producer_id or secrets.token_hex(6), "producer id")
        self._max_records = max_records
        self._max_delay = parse_duration(max_delay, "max_delay").total_seconds()
        self._clock = clock
        self._buffer: list[bytes] = []
        self._oldest = 0.0
        self._closed = False
        self._lock = threading.RLock()
        make_directory(path)
        self._millis, self._sequence = self._position()

    def send(self, record: Mapping[str, Any]) -> None:
        """Append one record; DataError, and nothing appended, if it cannot be JSON."""
        line = _encode(record)
        with self._lock:
            if self._closed:
                raise UsageError(
                    "PRODUCER_CLOSED",
                    f"producer {self.producer_id!r} of {self.path} is closed.",
                    fix="send within the `with` block, or make another producer.",
                )
            now = self._clock.monotonic()
            if not self._buffer:
                self._oldest = now
            self._buffer.append(line)
            full = len(self._buffer) >= self._max_records
            if full or now - self._oldest >= self._max_delay:
                self.flush()

    def flush(self) -> Path | None:
        """Write what is buffered as one segment; its path, or None if there was nothing."""
        with self._lock:
            if not self._buffer:
                return None
            data = b"".join(self._buffer)
            path = self._next_name()
            while not create_exclusive(path, data, modified_ns=self._millis * 1_000_000):
                # Somebody else uses our id at the same time: go on above their segments.
                self._millis, self._sequence = self._position()
                path = self._next_name()
            self._buffer.clear()
            self._sequence += 1
            return path

    def close(self) -> None:
        """Flush and accept no more records."""
        with self._lock:
            self.flush()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Also after an error: what was sent before it was accepted.
        self.close()

    def _next_name(self) -> Path:
        now = int(self._clock.now().timestamp() * 1000)
        self._millis = max(self._millis + 1, now)
        return self.path / f"{self._millis:013d}-{self.producer_id}-{self._sequence:09d}.jsonl"

    def _position(self) -> tuple[int, int]:
        """The time of the newest segment, and a sequence above those that carry our id."""
        millis, sequence = 0, 0
        for match in filter(None, map(_SEGMENT.match, list_names(self.path))):
            millis = max(millis, int(match["millis"]))
            if match["producer"] == self.producer_id:
                sequence = max(sequence, int(match["sequence"]) + 1)
        return millis, sequence


def segments(path: Path) -> list[Path]:
    """The segments of a log, oldest first; none if there is no log yet."""
    return [path / name for name in list_names(path) if _SEGMENT.match(name)]


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """All records of a log in segment order, as JSON has them (times are strings)."""
    for segment in segments(path):
        with storage_errors(segment), segment.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield _decode(segment, number, line)


def _decode(segment: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise _odd_line(segment, number, str(error)) from error
    if not isinstance(record, dict):
        raise _odd_line(segment, number, f"{shorten(record)} is not an object")
    return record


def _odd_line(segment: Path, number: int, reason: str) -> CorruptionError:
    return CorruptionError(
        "ODD_LOG_LINE",
        f"{segment}, line {number} is not a record: {reason}.",
        fix="segments never change once written: restore this one from a backup, or remove it "
        "if its records may be lost.",
        path=str(segment),
        line=number,
    )


def _encode(record: Mapping[str, Any]) -> bytes:
    if not isinstance(record, Mapping):
        raise _unwritable("", record, "a record is a mapping of field names to values")
    for name in record:
        if not isinstance(name, str):
            raise _unwritable("", name, "the name of a field is a string")
    try:
        # The C encoder does nearly all the work; `_plain` sees only what it does not know.
        text = json.dumps(dict(record), default=_plain, ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        # It does not say where, so look for the place now that time no longer matters.
        _find_unwritable(record, "")
        raise _unwritable("", record, str(error)) from error


def _plain(value: Any) -> Any:
    """A value that JSON has no type for, as the text that Spark reads back."""
    match value:
        case datetime():
            if value.tzinfo is None:
                raise ValueError(
                    "a datetime without a time zone could mean any moment of a day; "
                    "use datetime.now(UTC) or .replace(tzinfo=UTC)"
                )
            text = value.astimezone(UTC).isoformat(timespec="microseconds")
            return text.replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal() if value.is_finite():
            return format(value, "f")
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case UUID():
            return str(value)
        case Mapping():
            return dict(value)
    raise TypeError(f"JSON has no place for {type(value).__name__}")


def _find_unwritable(value: Any, place: str, depth: int = 0) -> None:
    """Raise the DataError that names the first part of `value` that cannot be written."""
    if depth > 100:
        raise _unwritable(
            place[:80], "…", "it is nested more than 100 levels deep, or contains itself"
        )
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{place}.{key}" if place else str(key)
            if key is not None and not isinstance(key, str | int | float):
                raise _unwritable(inner, key, "the name of a field is a string")
            _check_text(str(key), inner)
            _find_unwritable(item, inner, depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _find_unwritable(item, f"{place}[{index}]", depth + 1)
    elif isinstance(value, str):
        _check_text(value, place)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _unwritable(place, value, "JSON has no NaN and no infinity; send null")
    elif value is not None and not isinstance(value, bool | int | float):
        try:
            _plain(value)
        except (TypeError, ValueError) as error:
            raise _unwritable(place, value, str(error)) from error


def _check_text(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _unwritable(place, text, f"it is not valid Unicode: {error.reason}") from error


def _unwritable(place: str, value: object, reason: str) -> DataError:
    where = f"field {place!r}" if place else "a record, or a name in it,"
    return DataError(
        "UNWRITABLE_VALUE",
        f"{where} is {shorten(value)} ({type(value).__name__}): {reason}.",
        fix="send text, numbers, booleans, None, date, datetime with a time zone, Decimal, "
        "bytes, UUID, or lists and mappings of these.",
        field=place,
    )
