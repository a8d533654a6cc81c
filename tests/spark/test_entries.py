"""Entries in Spark's real state store: pipelined and public calls see the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from holdfast.config import CheckpointConfig
from holdfast.engine.entries import (
    STATE_SERVER_LOGGER,
    pipelining_problem,
    silence_missing_keys,
)
from holdfast.engine.session import driver_session, query_session
from spark.entry_processor import OUTPUT_DDL, ComparingProcessor, entries_after
from spark.workplace import Workplace

GROUPS = (1, 2)


def run(session: SparkSession, place: Path) -> list[Any]:
    """Process the rounds that are there and not done yet; one batch each."""
    found: list[Any] = []

    def collect(frame: DataFrame, batch: int) -> None:
        found.extend(frame.collect())

    rounds = (
        session.readStream.name("rounds")
        .schema("kg int, round int")
        .option("maxFilesPerTrigger", 1)
        .json(str(place / "rounds"))
        .groupBy("kg")
        .transformWithState(ComparingProcessor(), OUTPUT_DDL, "append", "none")
    )
    query = (
        rounds.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def add_round(place: Path, number: int) -> None:
    (place / "rounds").mkdir(exist_ok=True)
    rows = "".join(f'{{"kg": {group}, "round": {number}}}\n' for group in GROUPS)
    file = place / "rounds" / f"{number}.json"
    file.write_text(rows)
    os.utime(file, (number, number))  # Spark takes the oldest first


def test_both_ways_see_the_same(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    session = driver_session(place.runtime())
    silence_missing_keys(session)
    query = query_session(session, CheckpointConfig(), 2, place.runtime())
    add_round(place.path, 1)
    rows = run(query, place.path)
    add_round(place.path, 2)
    add_round(place.path, 3)
    rows += run(query, place.path)  # from the checkpoint
    assert sorted((row.kg, row.round, row.entries) for row in rows) == [
        (group, number, len(entries_after(group, number)))
        for group in GROUPS
        for number in (1, 2, 3)
    ]
    assert pipelining_problem() is None
    assert {row.store for row in rows} == {"PipelinedEntries"}
    (error,) = {row.error for row in rows}
    assert error == "Error getting value: Map state unknown is not initialized."


def test_missing_keys_are_not_logged(tmp_path: Path) -> None:
    session = driver_session(Workplace(tmp_path).runtime())
    silence_missing_keys(session)
    jvm: Any = session._jvm
    logger = jvm.org.apache.logging.log4j.LogManager.getLogger(STATE_SERVER_LOGGER)
    assert not logger.isWarnEnabled()
    assert logger.isErrorEnabled()
