"""Files, file logs and collections; records that do not parse."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.demo.edits import generate
from holdfast.errors import BadRecordError, DataError, JobDefinitionError, NotFoundError
from spark.workplace import Memory, Workplace

SCHEMA = "user string, diff bigint"
ROWS = [(edit["user"], edit["diff"]) for edit in generate(300, users=20, seed=4)]


def write(path: Path, number: int, text: str, suffix: str) -> Path:
    """A file with a modification time of its own: Spark reads the oldest first."""
    path.mkdir(parents=True, exist_ok=True)
    file = path / f"{number:03d}.{suffix}"
    file.write_text(text, encoding="utf-8")
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return file


def lines(rows: list[tuple[Any, Any]]) -> str:
    return "".join(json.dumps({"user": user, "diff": diff}) + "\n" for user, diff in rows)


def copy(place: Workplace, source: hf.sources.Source, sink: hf.sinks.Sink) -> None:
    """From a source straight to a sink: no Python worker, so the test is quick."""

    def pipeline(flow: hf.Flow) -> None:
        flow.sink("out", flow.source("in", source), sink)

    place.run(pipeline)


@pytest.mark.parametrize("fmt", ["json", "csv", "parquet"])
def test_directories_of_files(place: Workplace, memory: Memory, fmt: Any) -> None:
    sink, written = memory("out")
    path = place.path / "in"
    for number in range(3):
        rows = ROWS[number * 100 : number * 100 + 100]
        if fmt == "json":
            write(path, number, lines(rows), "jsonl")
        elif fmt == "csv":
            body = "".join(f'"{user}",{diff}\n' for user, diff in rows)
            write(path, number, f"user,diff\n{body}", "csv")
        else:
            file = write(path, number, "", "parquet")
            pq.write_table(pa.table(list(zip(*rows, strict=True)), ["user", "diff"]), file)
    source = hf.sources.Files(path, fmt, SCHEMA, max_files_per_epoch=2)
    copy(place, source, sink)
    assert Counter(written()) == Counter(ROWS)
    assert [epoch.input_rows for epoch in place.epochs()] == [200, 100]
    # What is there already is not read again; what is new is.
    new = {"json": lines([("new", 1)]), "csv": "user,diff\nnew,1\n"}.get(fmt)
    if new is not None:
        write(path, 9, new, fmt)
    copy(place, source, sink)
    assert len(written()) == 300 + (new is not None)


def test_file_log_of_two_producers(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    path = place.path / "log"
    with (
        hf.FileLogProducer(path, producer_id="a", max_records=40) as one,
        hf.FileLogProducer(path, producer_id="b", max_records=60) as two,
    ):
        for at, (user, diff) in enumerate(ROWS):
            (one, two)[at % 2].send({"user": user, "diff": diff})
    copy(place, hf.sources.FileLog(path, SCHEMA, max_segments_per_epoch=4), sink)
    assert Counter(written()) == Counter(ROWS)
    assert len(place.epochs()) == 2  # 4 + 3 segments


BAD_JSON = {
    "not json at all": "not JSON",
    '{"user": "a", "diff": "many"}': "column 'diff': 'many' is not a bigint",
    '{"user": "a", "diff": 1.5}': "column 'diff': 1.5 is not a bigint",
    "[1, 2]": "a JSON list, not an object",
    '{"user": "half': "not JSON",
}


def write_with_bad(place: Workplace) -> Path:
    good = lines(ROWS[:10])
    text = good + "".join(f"{line}\n" for line in BAD_JSON) + good
    write(place.path / "in", 1, good, "jsonl")
    return write(place.path / "in", 2, text, "jsonl").parent


def test_bad_record_fails_by_default(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    path = place.path / "in"
    write(path, 1, lines(ROWS[:10]), "jsonl")
    bad = '{"user": "a", "diff": "' + "x" * 5_000 + '"}'
    file = write(path, 2, lines(ROWS[:7]) + bad + "\n" + lines(ROWS[7:9]), "jsonl")
    source = hf.sources.Files(path, "json", SCHEMA, max_files_per_epoch=1)
    with pytest.raises(BadRecordError) as caught:
        copy(place, source, sink)
    error = caught.value
    assert error.name == "BAD_RECORD"
    assert (error.facts["file"], error.facts["line"]) == (str(file), 8)
    assert "column 'diff'" in error.message
    assert len(str(error)) < 1_500  # values are cut to a sane length
    assert "on_bad_record" in error.fix
    assert written() == ROWS[:10]
    # With the file corrected, the job goes on where it stopped.
    write(path, 2, lines(ROWS[10:20]), "jsonl")
    copy(place, source, sink)
    assert written() == ROWS[:20]


def test_bad_records_are_skipped_and_counted(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    path = write_with_bad(place)
    copy(place, hf.sources.Files(path, "json", SCHEMA, on_bad_record="skip"), sink)
    assert Counter(written()) == Counter(ROWS[:10] * 3)
    assert sum(epoch.skipped_rows for epoch in place.epochs()) == len(BAD_JSON)


def test_bad_records_to_a_side_output(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    side, written_bad = memory("bad")
    path = write_with_bad(place)

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Files(path, "json", SCHEMA, on_bad_record="side")
        frame = flow.source("in", source)
        flow.sink("out", frame, sink)
        flow.sink("bad", frame.side("bad"), side)

    place.run(pipeline)
    assert Counter(written()) == Counter(ROWS[:10] * 3)
    found = {raw: (reason, file) for raw, reason, file in written_bad()}
    assert set(found) == set(BAD_JSON)
    for raw, reason in BAD_JSON.items():
        assert found[raw][0].startswith(reason)
        assert found[raw][1].endswith("/in/002.jsonl")


@pytest.mark.parametrize("on_bad", ["fail", "skip", "side"])
def test_bad_value_in_a_column_that_nobody_uses(
    place: Workplace, memory: Memory, on_bad: Any
) -> None:
    """Whether a record is bad does not depend on what the pipeline does with it."""
    sink, written = memory("out")
    side, written_bad = memory("bad")
    bad = '{"user": "bad", "diff": "many"}'
    write(place.path / "in", 1, f"{lines([('good', 1)])}{bad}\n", "jsonl")

    def pipeline(flow: hf.Flow) -> None:
        source = hf.sources.Files(place.path / "in", "json", SCHEMA, on_bad_record=on_bad)
        frame = flow.source("in", source)
        flow.sink("out", frame.select("user"), sink)
        if on_bad == "side":
            flow.sink("bad", frame.side("bad").select("raw"), side)

    if on_bad == "fail":
        with pytest.raises(BadRecordError, match="column 'diff'"):
            place.run(pipeline)
        return
    place.run(pipeline)
    assert written() == [("good",)]
    assert written_bad() == ([(bad,)] if on_bad == "side" else [])
    assert place.epochs()[0].skipped_rows == (on_bad == "skip")


def test_side_output_that_nobody_reads(place: Workplace, memory: Memory) -> None:
    (place.path / "in").mkdir()
    source = hf.sources.Files(place.path / "in", "json", SCHEMA, on_bad_record="side")
    with pytest.raises(JobDefinitionError, match="SIDE_OUTPUT_NOT_READ"):
        copy(place, source, memory("out")[0])


def test_bad_csv(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    path = place.path / "in"
    file = write(path, 1, "user,diff\nann,1\nbob,two\n", "csv")
    with pytest.raises(BadRecordError) as caught:
        copy(place, hf.sources.Files(path, "csv", SCHEMA), sink)
    assert (caught.value.facts["file"], caught.value.facts["line"]) == (str(file), 3)
    assert written() == []


def test_csv_header_with_other_columns(place: Workplace, memory: Memory) -> None:
    path = place.path / "in"
    write(path, 1, "diff,user\n1,ann\n", "csv")
    with pytest.raises(DataError, match="CSV_HEADER_DIFFERS"):
        copy(place, hf.sources.Files(path, "csv", SCHEMA), memory("out")[0])


def test_damaged_parquet_is_named(place: Workplace, memory: Memory) -> None:
    sink, written = memory("out")
    path = place.path / "in"
    file = write(path, 1, "this is no parquet", "parquet")
    with pytest.raises(DataError, match="INPUT_FILE_UNREADABLE") as caught:
        copy(place, hf.sources.Files(path, "parquet", SCHEMA), sink)
    assert caught.value.facts["file"] == str(file)
    assert written() == []


def test_missing_directory(place: Workplace, memory: Memory) -> None:
    with pytest.raises(NotFoundError, match=r"INPUT_NOT_FOUND.*nowhere"):
        copy(place, hf.sources.Files(place.path / "nowhere", "json", SCHEMA), memory("out")[0])


def test_collection_row_that_does_not_fit(place: Workplace, memory: Memory) -> None:
    with pytest.raises(JobDefinitionError, match=r"ROW_DOES_NOT_FIT.*'many'"):
        copy(place, hf.sources.Collection([("a", "many")], SCHEMA), memory("out")[0])
