"""What a job remembers, read, compared and corrected; against a computation in plain Python."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.control.edits import edit_savepoint
from holdfast.control.registry import Registry
from holdfast.control.state_views import StateViews
from holdfast.errors import CorruptionError, NotFoundError, UsageError
from holdfast.faults import EXIT_CODE, armed
from holdfast.savepoint.queries import StateView, counts, diff, get, query
from holdfast.savepoint.store import verify
from holdfast.settings import Settings, load_settings
from spark.processes import EveryKind, RunningTotal
from spark.workplace import Pipeline, Workplace, running_totals

EDITS = [
    (user, page, diff)
    for n in range(40)
    for user, page, diff in [(["Zoë", "太郎", None, "O'Hara"][n % 4], f"p{n % 3}", n * 7 - 90)]
]
SCHEMA = "user string, page string, diff bigint"
HALF = 24


def feed(place: Workplace, rows: list[tuple[Any, ...]]) -> None:
    with hf.FileLogProducer(place.path / "log", producer_id="p", max_delay="1 h") as log:
        for user, page, diff in rows:
            log.send({"user": user, "page": page, "diff": diff})


def kinds(place: Workplace) -> Pipeline:
    def pipeline(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.FileLog(place.path / "log", SCHEMA))
        step = flow.key_by(edits, "user").process("every-kind", EveryKind())
        flow.sink("out", step, hf.sinks.Files(place.path / "out", "json"))

    return pipeline


def balances(place: Workplace) -> Pipeline:
    def pipeline(flow: hf.Flow) -> None:
        edits = flow.source("edits", hf.sources.FileLog(place.path / "log", SCHEMA))
        step = flow.key_by(edits, "user").process("balances", RunningTotal())
        flow.sink("out", step, hf.sinks.Files(place.path / "out", "json"))

    return pipeline


def settings(place: Workplace) -> Settings:
    runtime = place.runtime()
    return load_settings(
        home=place.path / "home",
        storage=runtime.storage,
        savepoints=place.path / "savepoints",
        registry_url=place.registry_url,
        driver_memory=runtime.driver_memory,
    ).values


def view(place: Workplace, wanted: str) -> StateView:
    with Registry(place.registry_url) as registry:
        return StateViews(registry, settings(place)).open(wanted)


def totals_of(edits: list[tuple[Any, ...]]) -> dict[Any, int]:
    found: dict[Any, int] = defaultdict(int)
    for user, _, change in edits:
        found[user] += change
    return dict(found)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_every_kind_of_state_is_read_as_it_is(tmp_path: Path, backend: Any) -> None:
    place = Workplace(tmp_path, backend)
    feed(place, EDITS)
    place.run(kinds(place))
    found = view(place, "job")
    assert counts(found)[0]["keys"] == 4
    rows = query(found, 'SELECT "user", total, pages, per_page FROM "every-kind"').rows
    assert {user: total for user, total, *_ in rows} == totals_of(EDITS)
    for user, _, pages, per_page in rows:
        own = [(page, change) for who, page, change in EDITS if who == user]
        assert pages == [page for page, _ in own]
        assert per_page == {
            page: sum(change for at, change in own if at == page) for page, _ in own
        }
    # A second look needs no Spark: it was kept.
    assert view(place, "job").state.path == found.state.path
    assert get(found, "every-kind", ["太郎"]).records()[0]["total"] == totals_of(EDITS)["太郎"]
    assert get(found, "every-kind", ["nobody"]).rows == ()
    with pytest.raises(UsageError, match="KEY_INCOMPLETE"):
        get(found, "every-kind", ["a", "b"])
    with pytest.raises(NotFoundError, match="it has: every-kind"):
        get(found, "other", ["a"])
    with pytest.raises(UsageError, match="SQL_REFUSED"):
        query(found, "SELECT nothing FROM nowhere")
    with pytest.raises(NotFoundError, match="STATE_NOT_FOUND"):
        view(place, "yesterday")


def test_savepoints_are_compared_and_corrected(place: Workplace) -> None:
    feed(place, [edit for edit in EDITS[:HALF] if edit[0] is not None])
    place.run(balances(place))
    first = place.take()
    rest = [edit for edit in EDITS[HALF:] if edit[0] != "Zoë"]
    feed(place, rest)
    place.run(balances(place))
    second = place.take_canonical()
    before, after = view(place, first.manifest.id), view(place, second.manifest.id)
    [found] = diff(before, after)
    assert (found.keys_before, found.keys_after) == (3, 4)
    assert (found.added, found.removed, found.changed) == (1, 0, 2)
    old = totals_of([edit for edit in EDITS[:HALF] if edit[0] is not None])
    new = {user: total + old.get(user, 0) for user, total in totals_of(rest).items()}
    assert {
        row["user"]: (row["total before"], row["total after"]) for row in found.rows.records()
    } == {user: (old.get(user), total) for user, total in new.items()}
    assert diff(after, after)[0].same
    [one] = diff(before, after, table="balances", key=["太郎"])
    assert [row["user"] for row in one.rows.records()] == ["太郎"]
    assert (one.added, one.removed, one.changed) == (0, 0, 1)
    assert diff(before, after, key=["太郎"]) == [one]  # there is only one step
    with Registry(place.registry_url) as registry:

        def edit(savepoint: str, *sql: str) -> Any:
            clock = SystemClock()
            return edit_savepoint(registry, settings(place), savepoint, sql, clock)

        hashes = {file.path: file.sha256 for file in first.manifest.files}
        corrected, changes = edit(
            first.manifest.id,
            "UPDATE balances SET total = 1000 WHERE \"user\" = 'Zoë'",
            "DELETE FROM balances WHERE \"user\" = '太郎'",
            "INSERT INTO balances VALUES ('new', 5)",
        )
        verify(corrected)
        other = replace(corrected.manifest, keys={"balances": 99})
        with pytest.raises(CorruptionError, match="'balances' has 3 keys instead of 99"):
            verify(replace(corrected, manifest=other))
        assert {file.path: file.sha256 for file in first.manifest.files} == hashes
        assert (corrected.manifest.parent, len(corrected.manifest.edits)) == (
            first.manifest.id,
            3,
        )
        assert changes[0].rows == 2
        with pytest.raises(UsageError, match="KEY_TWICE"):
            edit(first.manifest.id, "INSERT INTO balances VALUES ('Zoë', 5)")
        with pytest.raises(UsageError, match="NOTHING_CHANGED"):
            edit(first.manifest.id, "DELETE FROM balances WHERE total > 1e12")
    # The job goes on from the corrected state.
    place.restore(balances(place), corrected.manifest.id, "rewind")
    told = [("Zoë", 1000), ("O'Hara", old["O'Hara"]), ("new", 5)]
    truth = running_totals([*told, *((user, change) for user, _, change in rest)])
    lines = query(view(place, "job"), 'SELECT "user", total FROM balances ORDER BY ALL').rows
    assert Counter(lines) == Counter(dict(truth).items())


def test_a_canonical_savepoint_that_was_cut_leaves_no_native_one(place: Workplace) -> None:
    feed(place, EDITS[:4])
    place.run(balances(place))
    crashed = os.fork()
    if not crashed:
        with armed("savepoint.native_taken=exit"):
            place.take_canonical()
    assert os.waitstatus_to_exitcode(os.waitpid(crashed, 0)[1]) == EXIT_CODE
    assert place.savepoints.all() == []
    [left] = place.savepoints.leftovers()  # what gc removes
    assert list(left.rglob("manifest.json"))
    with pytest.raises(NotFoundError):
        place.savepoints.find("latest")


def test_damaged_state_is_not_read(place: Workplace) -> None:
    feed(place, EDITS[:4])
    place.run(balances(place))
    savepoint = place.take_canonical()
    file = next((savepoint.path / "state").rglob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptionError, match=file.name):
        view(place, savepoint.manifest.id)
