"""The embedded file log: whole segments, names that rise, several producers, clear refusals."""

from __future__ import annotations

import json
import multiprocessing
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import (
    CorruptionError,
    DataError,
    EnvironmentProblem,
    JobDefinitionError,
    SettingsError,
    UsageError,
)
from holdfast.storage.filelog import FileLogProducer, read_log, segments

NAME = re.compile(r"^\d{13}-[A-Za-z0-9._-]+-\d{9}\.jsonl$")


def numbers(path: Path) -> list[int]:
    return [record["n"] for record in read_log(path)]


def names(path: Path) -> list[str]:
    return [segment.name for segment in segments(path)]


def all_names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_round_trip_in_order(tmp_path: Path) -> None:
    with FileLogProducer(tmp_path / "new" / "log", max_records=3) as producer:
        for n in range(10):
            producer.send({"n": n})
    assert numbers(tmp_path / "new" / "log") == list(range(10))
    assert [len(segment.read_bytes().splitlines()) for segment in segments(producer.path)] == [
        *(3, 3, 3, 1)
    ]


def test_names_and_no_litter(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    with FileLogProducer(tmp_path, producer_id="web-1", clock=clock) as producer:
        producer.send({"n": 0})
    assert all_names(tmp_path) == ["1767225600000-web-1-000000000.jsonl"]


def test_nothing_is_visible_before_its_segment(tmp_path: Path) -> None:
    producer = FileLogProducer(tmp_path)
    producer.send({"n": 0})
    assert all_names(tmp_path) == []
    written = producer.flush()
    assert written is not None
    assert segments(tmp_path) == [written]
    assert producer.flush() is None


def test_max_delay_is_looked_at_on_send(tmp_path: Path) -> None:
    clock = ManualClock()
    producer = FileLogProducer(tmp_path, max_delay="2 s", clock=clock)
    producer.send({"n": 0})
    clock.advance(timedelta(seconds=1.9))
    producer.send({"n": 1})
    assert names(tmp_path) == []
    clock.advance(timedelta(seconds=0.1))
    producer.send({"n": 2})
    assert numbers(tmp_path) == [0, 1, 2]
    clock.advance(timedelta(seconds=1.9))
    producer.send({"n": 3})
    assert len(names(tmp_path)) == 1


def test_what_was_sent_before_an_error_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), FileLogProducer(tmp_path) as producer:
        producer.send({"n": 0})
        raise ZeroDivisionError
    assert numbers(tmp_path) == [0]


def test_closed_producer_refuses(tmp_path: Path) -> None:
    with FileLogProducer(tmp_path) as producer:
        pass
    with pytest.raises(UsageError, match="PRODUCER_CLOSED"):
        producer.send({"n": 0})


# Names never collide and never go back


def test_clock_set_back(tmp_path: Path) -> None:
    clock = ManualClock()
    producer = FileLogProducer(tmp_path, max_records=1, clock=clock)
    for n, step in enumerate((0, -3600, 1, -5, 7200)):
        clock.advance(timedelta(seconds=step))
        producer.send({"n": n})
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]


def test_restart_with_the_same_id_continues_above(tmp_path: Path) -> None:
    clock = ManualClock()
    with FileLogProducer(tmp_path, producer_id="a", max_records=1, clock=clock) as producer:
        producer.send({"n": 0})
        producer.send({"n": 1})
    clock.advance(timedelta(days=-1))
    with FileLogProducer(tmp_path, producer_id="a", clock=clock) as producer:
        producer.send({"n": 2})
    assert numbers(tmp_path) == [0, 1, 2]
    assert names(tmp_path)[-1].endswith("-a-000000002.jsonl")


def test_segments_are_never_modified_in_the_same_millisecond(tmp_path: Path) -> None:
    """Spark orders files by that time, and takes those of one millisecond in any order."""
    clock = ManualClock()
    for producer_id in ("b", "a", "b"):
        with FileLogProducer(tmp_path, producer_id=producer_id, clock=clock) as producer:
            for n in range(3):
                producer.send({"n": n})
                producer.flush()
    times = [path.stat().st_mtime_ns for path in segments(tmp_path)]
    assert times == [1767225600000_000_000 + n * 1_000_000 for n in range(9)]
    assert numbers(tmp_path) == [0, 1, 2] * 3


def test_ids_that_look_alike_do_not_mix(tmp_path: Path) -> None:
    for producer_id in ("a", "a-000000007", "1767225600000-a"):
        with FileLogProducer(tmp_path, producer_id=producer_id) as producer:
            producer.send({"n": 0})
    assert all(name.endswith("-000000000.jsonl") for name in names(tmp_path))
    assert len(names(tmp_path)) == 3


def test_two_live_producers_with_one_id_lose_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    one = FileLogProducer(tmp_path, producer_id="same", max_records=1, clock=clock)
    two = FileLogProducer(tmp_path, producer_id="same", max_records=1, clock=clock)
    for n in range(6):
        (one if n % 2 else two).send({"n": n})
    assert numbers(tmp_path) == list(range(6))


def _produce(path: Path, producer: int) -> None:
    with FileLogProducer(path, max_records=7) as log:
        for n in range(100):
            log.send({"producer": producer, "n": n})


def test_several_producers_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_produce, args=(tmp_path, n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    records = list(read_log(tmp_path))
    for producer in range(3):
        mine = [record["n"] for record in records if record["producer"] == producer]
        assert mine == list(range(100))
    assert all(NAME.match(name) for name in all_names(tmp_path))


# Values


def sent(tmp_path: Path, value: Any) -> Any:
    with FileLogProducer(tmp_path) as producer:
        producer.send({"v": value})
    (record,) = read_log(tmp_path)
    return record["v"]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC), "2026-05-01T12:00:00.000005Z"),
        (
            datetime(2026, 5, 1, 1, 30, tzinfo=timezone(timedelta(hours=2))),
            "2026-04-30T23:30:00.000000Z",
        ),
        (date(2026, 5, 1), "2026-05-01"),
        (Decimal("12.340"), "12.340"),
        (Decimal("1E+3"), "1000"),
        (b"\x00\xff", "AP8="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("line\nbreak\r\u2028 Zoë 🦉", "line\nbreak\r\u2028 Zoë 🦉"),
        ({"a": [1, Decimal(2), None]}, {"a": [1, "2", None]}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ((1, True), [1, True]),
        (2**70, 2**70),
    ],
)
def test_values(tmp_path: Path, value: object, stored: object) -> None:
    assert sent(tmp_path, value) == stored


def test_a_record_is_one_line_of_utf_8(tmp_path: Path) -> None:
    sent(tmp_path, "a\nb Zoë")
    (segment,) = segments(tmp_path)
    assert segment.read_bytes() == '{"v": "a\\nb Zoë"}\n'.encode()


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"ok": 1, "bad": object()}, "bad"),
        ({"bad": {1, 2}}, "bad"),
        ({"outer": {"list": [0, {"bad": 1j}]}}, "outer.list[1].bad"),
        ({"bad": float("nan")}, "bad"),
        ({"bad": [1.0, float("-inf")]}, "bad[1]"),
        ({"bad": Decimal("NaN")}, "bad"),
        ({"bad": datetime(2026, 1, 1)}, "bad"),
        ({"bad": "\ud800"}, "bad"),
        ({"bad": range(3)}, "bad"),
        ({"bad": {(1, 2): 3}}, "bad.(1, 2)"),
        ({3: "three"}, ""),
        (["not", "a", "mapping"], ""),
    ],
)
def test_unwritable_values_name_the_field(tmp_path: Path, record: Any, field: str) -> None:
    producer = FileLogProducer(tmp_path)
    with pytest.raises(DataError) as caught:
        producer.send(record)
    assert caught.value.name == "UNWRITABLE_VALUE"
    assert caught.value.facts["field"] == field
    assert field in caught.value.message
    assert producer.flush() is None


def test_a_value_that_contains_itself(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains itself") as caught:
        FileLogProducer(tmp_path).send({"loop": LOOP})
    assert caught.value.facts["field"].startswith("loop[0]")


# Settings, damage, failures


def test_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError):
        FileLogProducer(tmp_path, producer_id="a/b")
    with pytest.raises(SettingsError):
        FileLogProducer(tmp_path, max_records=0)
    with pytest.raises(SettingsError):
        FileLogProducer(tmp_path, max_delay="soon")


def test_reading_ignores_what_is_not_a_segment(tmp_path: Path) -> None:
    sent(tmp_path, 1)
    (tmp_path / ".1767225600000-a-000000000.jsonl.ab.tmp").write_text('{"half')
    (tmp_path / "README.md").write_text("hello")
    assert [record["v"] for record in read_log(tmp_path)] == [1]
    assert list(read_log(tmp_path / "nothing")) == []


@pytest.mark.parametrize("line", [b'{"n": 1', b"[1]", b"\xff"])
def test_damage_names_file_and_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "1767225600000-a-000000000.jsonl"
    path.write_bytes(json.dumps({"n": 0}).encode() + b"\n" + line + b"\n")
    records = read_log(tmp_path)
    assert next(records) == {"n": 0}
    with pytest.raises(CorruptionError, match=rf"{path.name}, line 2"):
        next(records)


def test_records_survive_a_failed_flush(tmp_path: Path) -> None:
    path = tmp_path / "log"
    producer = FileLogProducer(path)
    producer.send({"n": 0})
    path.rmdir()
    with pytest.raises(EnvironmentProblem):
        producer.flush()
    path.mkdir()
    producer.flush()
    assert numbers(path) == [0]
