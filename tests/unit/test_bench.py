"""The benchmark without a JVM: what it runs, what it makes of what it measures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import typer.main

from holdfast.bench import crashes, inputs, measure, report
from holdfast.bench.jobs import Reminders, Totals
from holdfast.bench.kafka import flink_peer
from holdfast.bench.kafka_output import Truth, figures
from holdfast.bench.measure import Epoch, Failed, Measured, PeakMemory
from holdfast.bench.programs import HEAP_BYTES, KEYED_DDL, TIMED_DDL
from holdfast.bench.recovery import recoveries
from holdfast.bench.section import (
    PROCESS,
    PROCESS_ROCKSDB,
    TWS,
    KafkaPlace,
    Result,
    Row,
    Section,
    Work,
)
from holdfast.bench.sections import SECTIONS
from holdfast.bench.verify import totals_of
from holdfast.cli.bench import _COLUMNS, _TITLES, _shown
from holdfast.cli.main import app
from holdfast.errors import UsageError
from holdfast.storage.kafka_topic import TopicRecord
from holdfast.testing import Harness

MIB = 1024**2
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(folder=tmp_path, scale=1.0)


def section(name: str) -> Section:
    [found] = [each for each in SECTIONS if each.name == name]
    return found


def ran(
    row: Row,
    seconds: float,
    *,
    epochs: int = 40,
    events: Sequence[dict[str, Any]] = (),
    jvm: int = 0,
) -> Result:
    """As if each batch had taken so long."""
    times = [
        Epoch(number=n, started=n * seconds, ended=(n + 1) * seconds, rows=row.batch, phases={})
        for n in range(epochs)
    ]
    run = Measured(
        spawned=0,
        seconds=epochs * seconds,
        events=list(events),
        epochs=times,
        started_at=0,
        timings={},
        memory=PeakMemory(total=jvm, jvm=jvm),
    )
    return Result(row=row, outcome=run, exact=True)


def failed(row: Row) -> Result:
    return Result(row=row, outcome=Failed(reason="exit code 1", log=Path("log.txt")))


def epoch_event(
    *, rows_in: int, rows_out: int, state: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "event": "epoch",
        "input_rows": rows_in,
        "output_rows": rows_out,
        "state": state or {},
    }


# -- memory -------------------------------------------------------------------------------


def fake_process(proc: Path, pid: int, name: str, *, parent: int, exe: str, pages: int) -> None:
    fields = ["S", parent, 7, 7, *[0] * 17, pages, 0]
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}")
    (proc / str(pid) / "exe").symlink_to(f"/usr/bin/{exe}")


def test_a_child_in_the_memory_of_the_jvm_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_PROC", tmp_path)
    fake_process(tmp_path, 7, "python", parent=1, exe="python3.11", pages=10)
    fake_process(tmp_path, 8, "java", parent=7, exe="java", pages=1000)
    fake_process(tmp_path, 9, "stream executio", parent=8, exe="java", pages=1000)
    fake_process(tmp_path, 10, "java", parent=8, exe="java", pages=1000)
    fake_process(tmp_path, 11, "chmod", parent=8, exe="chmod", pages=1)
    fake_process(tmp_path, 12, "python", parent=8, exe="python3.11", pages=20)
    found = measure._session_processes(7)
    assert set(found) == {7, 8, 9, 10, 11, 12}  # all of them are to be ended
    peak = PeakMemory()
    peak.note(found)
    page = os.sysconf("SC_PAGE_SIZE")
    assert (peak.jvm, peak.python, peak.total) == (1000 * page, 31 * page, 1031 * page)


# -- sections -----------------------------------------------------------------------------


def test_every_section_can_be_named_and_shown() -> None:
    names = [each.name for each in SECTIONS]
    bench: Any = typer.main.get_command(app).commands["bench"]  # type: ignore[attr-defined]
    [only] = [option for option in bench.params if option.name == "only"]
    told = [f"{each.name}{' (only when named)' * each.on_request}" for each in SECTIONS]
    assert only.help == f"A section: {', '.join(told)}. May be repeated."
    assert set(_TITLES) == set(_COLUMNS) == set(names)


@pytest.mark.parametrize("scale", [0.001, 0.02, 1.0])
def test_programs_of_a_plan_have_folders_of_their_own(tmp_path: Path, scale: float) -> None:
    some = Work(folder=tmp_path, scale=scale, kafka=kafka_place(tmp_path))
    for each in SECTIONS:
        rows = each.plan(some)
        folders = {row.program.folder for row in rows}
        assert len(folders) == len(rows)
        assert all(folder.is_relative_to(each.folder(some)) for folder in folders)


def kafka_place(folder: Path) -> KafkaPlace:
    names = ("Quix Streams", "Bytewax", "Pathway", "Flink, in Java")
    peers = dict.fromkeys(names, (sys.executable, "peer.py"))
    return KafkaPlace(port=9092, cache=folder, jars="", packages="", peers=peers)


# -- kafka --------------------------------------------------------------------------------


def test_what_a_topic_holds_is_compared_with_the_edits() -> None:
    truth = Truth({"a": 3, "b": 1}, edits=3)
    written = [("a", 1, 10.0), ("b", 1, 11.0), ("a", 3, 14.0)]
    records = [
        TopicRecord(0, at, int(time * 1000), None, json.dumps(row).encode())
        for at, (user, total, time) in enumerate(written)
        for row in ({"user": user, "total": total},)
    ]
    found = figures(records, truth, killed_at=10.5)
    assert (found["rows"], found["surplus"], found["exact"]) == (3, 0, True)
    assert found["first_after_kill"] == 0.5
    assert found["steady_per_second"] == pytest.approx(2 / 4)  # since the first one
    # A row that came twice, and one that was lost.
    assert figures([*records, records[0]], truth)["surplus"] == 1
    lost = figures(records[:2], truth)
    assert (lost["surplus"], lost["exact"], lost["wrong_users"]) == (-1, False, 1)
    assert figures(records[:1], truth)["steady_per_second"] is None
    assert figures([], truth)["rows"] == 0
    # Pathway takes a total back before it writes the next.
    back = TopicRecord(0, 9, 14_000, None, b'{"user": "a", "total": 1, "diff": -1}')
    assert figures([*records, back], truth)["rows"] == 3


@pytest.mark.parametrize(("burst", "pause"), [(1, 0.1), (10, 1.0), (20, 2.0)])
def test_bursts_are_measured_with_the_time_before_them(burst: int, pause: float) -> None:
    """Ten rows in a second, one by one or all at the end of an epoch: the rate is the same."""
    times = [pause * (at // burst + 1) for at in range(200)]
    records = [
        TopicRecord(0, at, int(time * 1000), None, b'{"user": "a", "total": 1}')
        for at, time in enumerate(times)
    ]
    found = figures(records, Truth({"a": 1}, edits=200))
    assert found["early_per_second"] == found["steady_per_second"] == pytest.approx(10)


def test_a_program_that_gets_faster_has_two_rates() -> None:
    """Four epochs of 100 rows for 200 edits each: after 8, 6, 4 and 4 seconds."""
    ends = (8.0, 14.0, 18.0, 22.0)
    times = [end - 1 + at / 100 for end in ends for at in range(1, 101)]
    records = [
        TopicRecord(0, at, round(time * 1000), None, b'{"user": "a", "total": 1}')
        for at, time in enumerate(times)
    ]
    found = figures(records, Truth({"a": 1}, edits=800))
    assert found["early_per_second"] == pytest.approx(200 / 6)
    assert found["steady_per_second"] == pytest.approx(200 / 4)


def test_epochs_that_fold_unequally_are_measured_whole() -> None:
    """The first epoch has the most rows, and ends after a quarter of all."""
    written = [(260, 9.0), (250, 13.0), (245, 15.0), (245, 17.0)]
    records = [
        TopicRecord(0, 0, round(time * 1000), None, b'{"user": "a", "total": 1}')
        for rows, time in written
        for _ in range(rows)
    ]
    found = figures(records, Truth({"a": 1}, edits=4000))
    assert found["early_per_second"] == pytest.approx(1000 / 4)
    assert found["steady_per_second"] == pytest.approx(2000 * 0.98 / 4)


def test_of_kafka_the_steady_rates_are_compared(work: Work, tmp_path: Path) -> None:
    kafka = section("kafka")
    plan = kafka.plan(replace(work, kafka=kafka_place(tmp_path)))
    rates = {"holdfast .process, exactly once": 90_000.0, "Pathway": 60_000.0}
    results = [
        ran(
            row,
            1.0,
            events=[
                {"event": "output", "steady_per_second": rates.get(row.name, 180_000.0)},
            ],
        )
        for row in plan
    ]
    summary = kafka.summarise(results)
    verdicts = {bar["what"].partition("against ")[2]: bar["met"] for bar in summary["bars"]}
    assert verdicts == {
        "Quix Streams": False,
        "Bytewax": False,
        "Pathway": True,
        "Flink, in Java": False,
        "78,000 per second": True,
    }
    flink = next(row for row in summary["rows"] if row["name"] == "Flink, in Java")
    assert flink["to_exactly_once"] == pytest.approx(2.0)


def test_flink_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"FlinkTotals\.class"):
        flink_peer(tmp_path)
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / "FlinkTotals.class").touch()
    assert list(flink_peer(tmp_path)) == ["Flink, in Java"]


# -- throughput ---------------------------------------------------------------------------


def test_rocksdb_is_held_to_its_bar_with_small_batches_only(work: Work) -> None:
    throughput = section("throughput")
    seconds = {TWS: 10.0, PROCESS_ROCKSDB: 2.0}
    results = [ran(row, seconds.get(row.name, 1.0)) for row in throughput.plan(work)]
    summary = throughput.summarise(results)
    found = [bar for bar in summary["bars"] if bar["what"].startswith(PROCESS_ROCKSDB)]
    assert [(bar["what"], bar["bar"], bar["verdict"]) for bar in found] == [
        (f"{PROCESS_ROCKSDB} against {TWS}, 100,000 per batch", 4.0, "met")
    ]
    ours = [row for row in summary["rows"] if row["name"] == PROCESS_ROCKSDB]
    assert [row["batch"] for row in ours] == [100_000, 500_000]
    assert [row["to_tws"] for row in ours] == pytest.approx([5.0, 5.0])


def test_a_program_that_failed_has_no_verdict(work: Work) -> None:
    throughput = section("throughput")
    results = [
        failed(row) if row.name == TWS else ran(row, 1.0) for row in throughput.plan(work)
    ]
    bars = throughput.summarise(results)["bars"]
    assert {bar["verdict"] for bar in bars if TWS in bar["what"]} == {"not measured"}


def test_totals_are_read_from_the_bytes_of_entries() -> None:
    harness = Harness(Totals(), KEYED_DDL, key="user", backend="rocksdb")
    users = {"ann": 5, "Zoë": -70_000, "": 2**40, "total": 0}
    harness.push(*((user, diff, START) for user, diff in users.items()))
    groups = harness.snapshot().groups.values()
    entries = [entry for group in groups for entry in group.entries.items()]
    others = [(b"T", b"\x01\x80"), (b"v\x00\x06!event\x73", b"\x01\x90")]
    found = totals_of([*entries, *others])
    assert dict(zip(*(column.to_pylist() for column in found.columns), strict=True)) == users


# -- state on RocksDB ---------------------------------------------------------------------


def test_memory_of_rocksdb_against_its_bound(work: Work) -> None:
    rocksdb_size = section("rocksdb-size")
    first, *others = rocksdb_size.plan(work)
    assert [row.keys for row in (first, *others)] == [100_000, 1_000_000, 5_000_000]
    assert first.rocksdb_bound == 256 * MIB
    assert first.program.environment["HOLDFAST_ROCKSDB_MEMORY"] == str(256 * MIB)
    events = [
        {"event": "rocksdb", "bytes": 200 * MIB},
        epoch_event(rows_in=9, rows_out=9, state={"totals": {"rows": 100_000, "bytes": 7}}),
        {"event": "rocksdb", "bytes": 320 * MIB},
        {"event": "rocksdb", "bytes": 240 * MIB},
    ]
    results = [
        ran(first, 1.0, events=events, jvm=HEAP_BYTES + MIB),
        ran(others[0], 3.0, events=events[:1]),
        failed(others[1]),
    ]
    # The job counts 100,000 keys: right in the first program, wrong in the second.
    assert rocksdb_size.check(work, results, None) == {0: True, 1: False}  # type: ignore[arg-type]
    summary = rocksdb_size.summarise(results)
    row, slower, gone = summary["rows"]
    assert (row["rocksdb_peak"], row["state_bytes"]) == (320 * MIB, 7)
    assert (row["jvm_beyond_heap"], slower["jvm_beyond_heap"]) == (MIB, None)
    assert (row["growth"], slower["growth"], gone["growth"]) == (1.0, pytest.approx(3.0), None)
    verdicts = [bar["verdict"] for bar in summary["bars"]]
    assert verdicts == ["missed by 13.6 %", "met", "not measured"]


def test_memory_that_nobody_reported_is_unknown() -> None:
    assert report.peak_rocksdb([epoch_event(rows_in=1, rows_out=1)]) is None
    assert report.last_state([]) == {"rows": 0, "bytes": 0}


# -- timers -------------------------------------------------------------------------------


def test_growth_with_timers_and_how_many_fired(work: Work) -> None:
    timers = section("timers")
    plan = timers.plan(work)
    assert [row.timers for row in plan[::2]] == [0, 100_000, 1_000_000]
    assert [row.name for row in plan[:2]] == [PROCESS, PROCESS_ROCKSDB]
    # The last epoch has no records: the watermark has moved, and the last timers fire.
    events = [epoch_event(rows_in=9, rows_out=509), epoch_event(rows_in=0, rows_out=500)]
    seconds = (1.0, 2.0, 1.0, 2.0, 1.1, 3.0)
    results = [ran(row, took, events=events) for row, took in zip(plan, seconds, strict=True)]
    results[2] = ran(plan[2], 1.0, events=events[:1])
    verdicts = timers.check(work, results, None)  # type: ignore[arg-type]
    assert verdicts == {at: at != 2 for at in range(6)}
    summary = timers.summarise(results)
    assert [row["growth"] for row in summary["rows"]] == pytest.approx([1, 1, 1, 1, 1.1, 1.5])
    assert [row["fired"] for row in summary["rows"]] == [1000, 1000, 500, 1000, 1000, 1000]
    assert [bar["met"] for bar in summary["bars"]] == [True, False]


def test_timed_input(tmp_path: Path) -> None:
    inputs.timed_keys(
        tmp_path / "in",
        far=50,
        idle=25,
        near=30,
        plain=20,
        preload_epochs=2,
        epochs=5,
        file_records=10,
    )
    files = sorted((tmp_path / "in").iterdir())
    assert len(files) == 2 * (2 + 5)
    assert [file.stat().st_mtime for file in files] == sorted(f.stat().st_mtime for f in files)
    tables = [ds.dataset(file).to_table() for file in files]
    assert all(table.num_rows for table in tables)
    times = [set(table["ts"].to_pylist()) for table in tables]
    assert times == [{START + timedelta(minutes=at // 2)} for at in range(14)]
    preload, rest = pa.concat_tables(tables[:4]), pa.concat_tables(tables[4:])
    assert len(set(preload["user"].to_pylist())) == preload.num_rows == 125
    asked = dict(zip(preload["user"].to_pylist(), preload["due"].to_pylist(), strict=True))
    far = {due for user, due in asked.items() if user.startswith("far")}
    near = {due for user, due in asked.items() if user.startswith("near")}
    assert far == {START + timedelta(days=3650)}
    assert {due for user, due in asked.items() if user.startswith("idle")} == {None}
    # Reached by the watermark before the last epoch, which it follows by one.
    assert near == {START + timedelta(minutes=at) for at in (2, 3, 4)}
    assert set(rest["user"].to_pylist()) <= {user for user in asked if user[:5] == "plain"}
    assert rest["due"].null_count == rest.num_rows


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_one_row_per_record_and_per_timer(backend: Literal["heap", "rocksdb"]) -> None:
    harness = Harness(
        Reminders(), TIMED_DDL, key="user", event_time="ts", late="process", backend=backend
    )
    soon, later = START + timedelta(minutes=1), START + timedelta(days=3650)
    rows = harness.push(("a", 1, START, soon), ("b", 2, START, later), ("c", 3, START, None))
    assert sorted(rows) == [("a", 1), ("b", 2), ("c", 3)]
    assert harness.advance_watermark(soon) == [("a", 1)]
    assert harness.push(("a", 4, START + timedelta(minutes=2), None)) == [("a", 5)]
    assert (harness.timers("a"), harness.timers("b")) == ([], [later])


# -- recovery -----------------------------------------------------------------------------


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def recovered(killed: float, *, lost: float = 0) -> list[dict[str, Any]]:
    """A kill, and an attempt that commits its first epoch `10 + lost` seconds after it."""
    began = killed + 7 + lost
    phases = {"plan": 0.5, "workers": 0.75, "load": 0.25}
    return [
        {"event": "killed", "at": at(killed)},
        {"event": "restart", "at": at(killed + 0.25), "data": {"delay": 0.25}},
        {
            "event": "started",
            "timings": {"jvm": 4, "plan": 5, "query": 5.5},
            "arrived": START.timestamp() + began - 0.5,
        },
        {"event": "epoch", "started": at(began), "ended": at(began + 3), "phases": phases},
        {"event": "epoch", "started": at(began + 3), "ended": at(began + 4), "phases": phases},
    ]


def test_phases_of_a_recovery_add_up() -> None:
    before: list[dict[str, Any]] = [
        {"event": "started"},
        {"event": "epoch"},
        {"event": "epoch"},
    ]
    events = [*before, *recovered(100), *recovered(200, lost=2), {"event": "killed"}]
    first, second = recoveries(events)
    assert (first.total, second.total) == (10, 12)
    parts = (first.detect, first.python, first.jvm, first.planning, first.query)
    assert parts == pytest.approx((0.5, 0.5, 4, 1, 1))
    assert first.total == pytest.approx(sum(parts) + first.first_epoch)
    assert (first.workers, first.load, first.first_epoch_planning) == (0.75, 0.25, 0.5)
    assert first.warm_epoch == 1


def test_the_bar_of_recovery_is_in_seconds(work: Work) -> None:
    recovery = section("recovery")
    [row] = recovery.plan(work)
    assert (row.keys, row.batch) == (100_000, 10_000)
    events = [*recovered(100), *recovered(200, lost=2), *recovered(300, lost=9)]
    summary = recovery.summarise([ran(row, 1.0, events=[{"event": "started"}, *events])])
    [figures], [bar] = summary["rows"], summary["bars"]
    assert (figures["kills"], figures["total"], figures["longest"]) == (3, 12, 19)
    assert (bar["bar"], bar["unit"], bar["verdict"]) == (15.0, "seconds", "met")
    assert _shown(bar)["wanted"] == "at most 15.0 s"
    assert recovery.summarise([failed(row)])["bars"][0]["verdict"] == "not measured"


def test_a_job_that_was_not_killed_often_enough_has_failed(tmp_path: Path) -> None:
    epochs = 'print(\'{"event": "epoch"}\')'
    options = ["--directory", str(tmp_path), "--epochs", "2", "--", sys.executable, "-c"]
    assert crashes.main(["--kills", "0", *options, epochs]) == 0
    assert crashes.main(["--kills", "1", *options, epochs]) != 0
    assert crashes.main(["--kills", "0", *options, "import sys; sys.exit(7)"]) == 7
