"""A registry with 200 jobs and 100,000 epochs is as quick to look at as a small one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from holdfast.control import tables
from server.workshop import NOW, Live, epoch, living

JOBS, EPOCHS = 200, 500
LONGEST = 1.0
"""Seconds of this process, in which server and client both are: others may use the machine."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with living(tmp_path_factory.mktemp("large") / "home") as live:
        first = live.add_job("job-000", epochs=0)
        records = [epoch(number).to_dict() for number in range(EPOCHS)]
        with live.registry.database.write() as connection:
            jobs = [
                {
                    "id": f"{number:08x}",
                    "name": f"job-{number:03d}",
                    "state": "FINISHED",
                    "spec": {**first.spec, "directory": f"/nowhere/job-{number:03d}"},
                    "created": NOW,
                    "updated": NOW,
                }
                for number in range(1, JOBS)
            ]
            connection.execute(tables.jobs.insert(), jobs)
            for job_id in (first.id, *(str(job["id"]) for job in jobs)):
                connection.execute(
                    tables.epochs.insert(),
                    [
                        {
                            "job_id": job_id,
                            "epoch": record["epoch"],
                            "attempt": 1,
                            "status": "COMMITTED",
                            "record": record,
                        }
                        for record in records
                    ],
                )
        yield live


@pytest.mark.parametrize(
    "path",
    [
        "jobs",
        "jobs?limit=100",
        "jobs?contains=199",
        "jobs/job-150",
        "jobs/job-150/epochs",
        "jobs/job-150/epochs?cursor=1.250",
        "jobs/job-150/graph",
        "jobs/job-150/watermarks",
        "jobs/job-150/sinks",
        "operations",
    ],
)
def test_a_page_takes_less_than_a_second(large: Live, path: str) -> None:
    with large.http("viewer") as http:
        http.get("/api/v1/jobs?limit=1")
        begun = time.process_time()
        answer = http.get(f"/api/v1/{path}")
        took = time.process_time() - begun
    assert answer.status_code == 200, answer.text
    assert took < LONGEST


def test_no_page_reads_a_whole_table_of_epochs(large: Live) -> None:
    """By an index always: what the machine does meanwhile does not matter here."""
    asked: list[tuple[str, Any]] = []
    engine = large.registry.database._engine

    def note(_c: object, _k: object, statement: str, parameters: object, *_: object) -> None:
        if "epochs" in statement and statement.startswith("SELECT"):
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        large.service.jobs.page()
        large.service.history.epochs("job-150", cursor="1.250")
        large.service.history.health("job-150")
        large.registry.newest_epochs()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert asked
    with large.registry.database.read() as connection:
        for statement, parameters in dict(asked).items():
            explain: Any = f"EXPLAIN QUERY PLAN {statement}"
            for row in connection.exec_driver_sql(explain, parameters):
                assert "SCAN epochs" not in row[-1], (statement, row[-1])
                assert "TEMP B-TREE" not in row[-1] or "epochs" not in statement, statement
