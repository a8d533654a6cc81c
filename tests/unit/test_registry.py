"""The registry on real SQLite files, with real second processes."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from holdfast.checkpoint.record import EpochRecord, EpochStatus, StateSize
from holdfast.clock import ManualClock
from holdfast.control.registry import JobRow, Registry, RunState
from holdfast.control.tables import SCHEMA_HEAD
from holdfast.errors import (
    ConflictError,
    EnvironmentProblem,
    JobDefinitionError,
    NotFoundError,
    SettingsError,
    UsageError,
    UserCodeError,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "registry.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def registry(file: Path, clock: ManualClock) -> Iterator[Registry]:
    with Registry(url(file), clock=clock, busy_seconds=0.2) as registry:
        registry.ensure_schema()
        yield registry


@pytest.fixture
def job(registry: Registry) -> JobRow:
    return registry.register_job("wiki-diffs", {"app": "app.py"})


def record(
    epoch: int, attempt: int = 1, status: EpochStatus = EpochStatus.COMMITTED
) -> EpochRecord:
    return EpochRecord(
        epoch=epoch,
        attempt=attempt,
        status=status,
        started=NOW + timedelta(seconds=epoch),
        input_rows=epoch * 10,
        state={"balances": StateSize(rows=epoch, bytes=epoch * 8)},
    )


class TestSchema:
    def test_fresh_database_reaches_the_head(self, file: Path) -> None:
        with Registry(url(file)) as registry:
            assert registry.schema_version() is None
            assert not file.exists(), "looking must not create the file"
            registry.ensure_schema()
            assert registry.schema_version() == SCHEMA_HEAD

    def test_constant_is_the_newest_migration(self) -> None:
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        config = Config()
        config.set_main_option("script_location", "holdfast.control:migrations")
        assert ScriptDirectory.from_config(config).get_heads() == [SCHEMA_HEAD]

    def test_migrations_build_what_the_tables_declare(
        self, file: Path, registry: Registry
    ) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext
        from sqlalchemy import create_engine

        from holdfast.control.tables import metadata

        engine = create_engine(url(file))
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []
        engine.dispose()

    def test_downgrade_leaves_nothing(self, file: Path, registry: Registry) -> None:
        from alembic import command
        from alembic.config import Config
        from sqlalchemy import create_engine, inspect

        engine = create_engine(url(file))
        config = Config()
        config.set_main_option("script_location", "holdfast.control:migrations")
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "base")
        assert inspect(engine).get_table_names() == ["alembic_version"]
        engine.dispose()

    def test_wal_mode_is_on(self, file: Path, registry: Registry) -> None:
        with closing(sqlite3.connect(file)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_no_alembic_import_when_up_to_date(self, file: Path, registry: Registry) -> None:
        ran = run_python(
            f"""
            import sys
            from holdfast.control.registry import Registry
            with Registry({url(file)!r}) as registry:
                registry.ensure_schema()
            print([name for name in sys.modules if name.startswith("alembic")])
            """
        )
        assert ran == "[]"

    def test_a_newer_schema_is_refused(self, file: Path, registry: Registry) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(ConflictError) as caught:
            registry.ensure_schema()
        assert caught.value.name == "REGISTRY_NEWER"
        assert "9999" in caught.value.message
        assert "upgrade holdfast" in caught.value.fix

    def test_waits_for_another_writer_of_a_fresh_file(self, tmp_path: Path) -> None:
        """SQLite refuses the switch to WAL at once when somebody else is writing."""
        fresh = tmp_path / "registry.db"
        connection = sqlite3.connect(fresh, isolation_level=None, check_same_thread=False)
        with closing(connection) as other, Registry(url(fresh)) as registry:
            other.execute("CREATE TABLE unrelated (x)")
            other.execute("BEGIN IMMEDIATE")
            other.execute("INSERT INTO unrelated VALUES (1)")
            end = threading.Timer(0.3, lambda: other.execute("COMMIT"))
            end.start()
            try:
                registry.ensure_schema()
            finally:
                end.join()
            assert registry.schema_version() == SCHEMA_HEAD

    def test_two_processes_at_once(self, tmp_path: Path) -> None:
        """Both start from a barrier file, several rounds, since a race is a matter of luck."""
        code = """
            import sys, time
            from pathlib import Path
            import alembic.command  # so that nothing slow separates the two
            from holdfast.control.registry import Registry
            me, other, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
            for number in range(rounds):
                registry = Registry(f"sqlite:///{me.parent}/{number}.db")
                me.write_text(str(number))
                deadline = time.monotonic() + 30
                while not (other.exists() and int(other.read_text() or -1) >= number):
                    assert time.monotonic() < deadline, "the other process is gone"
                registry.ensure_schema()
                assert registry.schema_version() is not None
                registry.register_job(f"job-{me.name}", {})
                registry.close()
            """
        rounds = 8
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(code), *names, str(rounds)],
                stderr=subprocess.PIPE,
                text=True,
                env=child_environment(),
            )
            for names in (
                (str(tmp_path / "a"), str(tmp_path / "b")),
                (str(tmp_path / "b"), str(tmp_path / "a")),
            )
        ]
        outcomes = [process.communicate(timeout=120)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], outcomes
        for number in range(rounds):
            with Registry(url(tmp_path / f"{number}.db")) as registry:
                assert [job.name for job in registry.jobs()] == ["job-a", "job-b"]


class TestBadDatabases:
    def test_not_a_url(self) -> None:
        with pytest.raises(SettingsError) as caught:
            Registry("registry.db")
        assert caught.value.name == "INVALID_REGISTRY_URL"

    def test_unknown_database(self) -> None:
        with pytest.raises(SettingsError) as caught:
            Registry("clay-tablets://museum/1")
        assert caught.value.name == "INVALID_REGISTRY_URL"

    def test_missing_driver_and_hidden_password(self) -> None:
        with pytest.raises(EnvironmentProblem) as caught:
            Registry("oracle+cx_oracle://me:geheim@host/db")
        assert caught.value.name == "REGISTRY_DRIVER_MISSING"
        assert "pip install" in caught.value.fix
        assert "geheim" not in str(caught.value)

    def test_not_a_database_file(self, tmp_path: Path) -> None:
        broken = tmp_path / "registry.db"
        broken.write_bytes(b"this is no database, whatever its name says" * 100)
        with (
            Registry(url(broken)) as registry,
            pytest.raises(EnvironmentProblem) as caught,
        ):
            registry.ensure_schema()
        assert caught.value.name == "REGISTRY_UNAVAILABLE"

    def test_directory_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with (
            Registry(url(tmp_path / "file" / "registry.db")) as registry,
            pytest.raises(EnvironmentProblem) as caught,
        ):
            registry.ensure_schema()
        assert caught.value.name == "REGISTRY_UNAVAILABLE"

    def test_locked_by_somebody_else(self, file: Path, registry: Registry) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert registry.jobs() == [], "readers do not wait for a writer"
            with pytest.raises(ConflictError) as caught:
                registry.register_job("late", {})
            other.execute("ROLLBACK")
        assert caught.value.name == "REGISTRY_BUSY"
        registry.register_job("late", {})


class TestJobs:
    def test_register_and_read_back(self, registry: Registry, job: JobRow) -> None:
        assert registry.jobs() == [job]
        assert job.state is RunState.CREATED
        assert job.spec == {"app": "app.py"}
        assert job.created == job.updated == NOW
        assert len(job.id) == 8
        int(job.id, 16)

    def test_registering_again_updates_the_spec_only(
        self, registry: Registry, job: JobRow, clock: ManualClock
    ) -> None:
        registry.set_state(job.id, RunState.FAILED)
        clock.advance(timedelta(minutes=1))
        again = registry.register_job(job.name, {"app": "new.py"})
        assert again == dataclasses.replace(
            job,
            spec={"app": "new.py"},
            state=RunState.FAILED,
            updated=NOW + timedelta(minutes=1),
        )

    def test_a_bad_name_is_refused(self, registry: Registry) -> None:
        with pytest.raises(JobDefinitionError, match="INVALID_NAME"):
            registry.register_job("../etc", {})
        assert registry.jobs() == []

    def test_lookup_by_name_id_and_prefix(self, registry: Registry, job: JobRow) -> None:
        for reference in (job.name, job.id, job.id[:4]):
            assert registry.job(reference) == job

    def test_one_character_is_no_prefix(self, registry: Registry, job: JobRow) -> None:
        with pytest.raises(NotFoundError):
            registry.job(job.id[:1])

    def test_a_name_wins_over_the_prefix_of_an_id(
        self, registry: Registry, job: JobRow
    ) -> None:
        tricky = registry.register_job(job.id[:3], {})
        assert registry.job(job.id[:3]) == tricky

    def test_an_ambiguous_prefix_lists_the_jobs(self, registry: Registry, file: Path) -> None:
        for name in ("one", "two"):
            registry.register_job(name, {})
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE jobs SET id = 'abcd01' WHERE name = 'one'")
            connection.execute("UPDATE jobs SET id = 'abcd02' WHERE name = 'two'")
        with pytest.raises(UsageError) as caught:
            registry.job("abcd")
        assert caught.value.name == "JOB_AMBIGUOUS"
        assert "abcd01 (one), abcd02 (two)" in caught.value.message
        assert registry.job("abcd02").name == "two"

    def test_not_found_offers_close_names(self, registry: Registry, job: JobRow) -> None:
        registry.register_job("unrelated", {})
        with pytest.raises(NotFoundError) as caught:
            registry.job("wiki-dif")
        assert caught.value.name == "JOB_NOT_FOUND"
        assert caught.value.fix == "did you mean 'wiki-diffs'?"
        assert caught.value.exit_code == 3

    def test_not_found_without_any_job(self, registry: Registry) -> None:
        with pytest.raises(NotFoundError) as caught:
            registry.job("x")
        assert "holdfast run" in caught.value.fix

    def test_state_of_an_unknown_job(self, registry: Registry) -> None:
        with pytest.raises(NotFoundError, match="JOB_NOT_FOUND"):
            registry.set_state("nope", RunState.RUNNING)


class TestAttempts:
    def test_are_numbered_per_job(self, registry: Registry, job: JobRow) -> None:
        other = registry.register_job("other", {})
        numbers = []
        for job_id in (job.id, job.id, other.id, job.id):
            attempt = registry.start_attempt(job_id, 1, "host", NOW, {})
            registry.end_attempt(attempt.id, RunState.FINISHED, NOW)
            numbers.append(attempt.number)
        assert numbers == [1, 2, 1, 3]
        assert [attempt.number for attempt in registry.attempts(job.id)] == [1, 2, 3]
        assert {
            job_id: attempt.number for job_id, attempt in registry.last_attempts().items()
        } == {job.id: 3, other.id: 1}

    def test_start_and_end_move_the_job(self, registry: Registry, job: JobRow) -> None:
        zone = timezone(timedelta(hours=-7))
        attempt = registry.start_attempt(job.id, 4711, "box", NOW.astimezone(zone), {"v": 1})
        assert registry.job(job.id).state is RunState.STARTING
        registry.set_state(job.id, RunState.RUNNING)
        assert registry.job(job.id).state is RunState.RUNNING
        assert registry.attempts(job.id)[0].state is RunState.RUNNING

        failure = UserCodeError("USER_FUNCTION_FAILED", "it raised", fix="mend it", line=7)
        registry.end_attempt(attempt.id, RunState.FAILED, NOW + timedelta(seconds=9), failure)
        ended = registry.attempts(job.id)[0]
        assert (ended.pid, ended.host, ended.info) == (4711, "box", {"v": 1})
        assert (ended.started, ended.ended) == (NOW, NOW + timedelta(seconds=9))
        assert ended.started.tzinfo is UTC
        assert registry.job(job.id).state is ended.state is RunState.FAILED
        assert isinstance(ended.error, UserCodeError)
        assert (ended.error.name, ended.error.fix) == ("USER_FUNCTION_FAILED", "mend it")
        assert ended.error.facts == {"line": 7}

    def test_a_killed_attempt_is_closed_by_the_next(
        self, registry: Registry, job: JobRow
    ) -> None:
        registry.start_attempt(job.id, 1, "host", NOW, {})
        running = [record(5), record(6, status=EpochStatus.RUNNING)]
        registry.save_epochs(job.id, running)
        later = NOW + timedelta(minutes=1)
        registry.start_attempt(job.id, 2, "host", later, {})
        lost, current = registry.attempts(job.id)
        assert (lost.state, lost.ended) == (RunState.FAILED, later)
        assert lost.error is not None
        assert lost.error.name == "ATTEMPT_LOST"
        assert (current.state, current.ended) == (RunState.STARTING, None)
        assert registry.epochs(job.id) == [
            running[0],
            dataclasses.replace(running[1], status=EpochStatus.INTERRUPTED),
        ]

    def test_the_end_of_an_older_attempt_leaves_the_job_alone(
        self, registry: Registry, job: JobRow
    ) -> None:
        old = registry.start_attempt(job.id, 1, "host", NOW, {})
        registry.start_attempt(job.id, 2, "host", NOW, {})
        registry.set_state(job.id, RunState.RUNNING)
        running = record(6, attempt=2, status=EpochStatus.RUNNING)
        registry.save_epochs(job.id, [running])
        registry.end_attempt(old.id, RunState.FAILED, NOW)
        assert registry.job(job.id).state is RunState.RUNNING
        assert registry.epochs(job.id) == [running]

    def test_of_nothing(self, registry: Registry) -> None:
        with pytest.raises(NotFoundError, match="JOB_NOT_FOUND"):
            registry.start_attempt("nope", 1, "host", NOW, {})
        with pytest.raises(NotFoundError, match="ATTEMPT_NOT_FOUND"):
            registry.end_attempt(99, RunState.FAILED, NOW)


class TestEpochs:
    def test_read_back_oldest_first(self, registry: Registry, job: JobRow) -> None:
        records = [record(epoch) for epoch in range(12)]
        registry.save_epochs(job.id, reversed(records))
        assert registry.epochs(job.id) == records
        assert registry.epochs(job.id, 3) == records[-3:]
        assert registry.epochs(job.id, after=(records[0].attempt, 9)) == records[10:]
        assert registry.last_epoch(job.id) == records[-1]

    def test_a_job_that_was_taken_back_counts_anew(
        self, registry: Registry, job: JobRow
    ) -> None:
        first = [record(epoch, 1) for epoch in range(5)]
        again = [record(epoch, 2) for epoch in (2, 3)]
        registry.save_epochs(job.id, [*again, *first])
        assert registry.epochs(job.id) == [*first, *again]
        assert registry.epochs(job.id, after=(1, 3)) == [first[4], *again]
        assert registry.epochs(job.id, epoch=3) == [first[3], again[1]]
        assert registry.last_epoch(job.id) == again[-1]

    def test_replaced_by_epoch_and_attempt(self, registry: Registry, job: JobRow) -> None:
        registry.save_epochs(job.id, [record(1, 1, EpochStatus.RUNNING)])
        registry.save_epochs(job.id, [record(1, 1, EpochStatus.INTERRUPTED), record(1, 2)])
        assert registry.epochs(job.id) == [
            record(1, 1, EpochStatus.INTERRUPTED),
            record(1, 2),
        ]

    def test_the_last_of_two_in_one_batch_wins(self, registry: Registry, job: JobRow) -> None:
        registry.save_epochs(job.id, [record(1, status=EpochStatus.RUNNING), record(1)])
        assert registry.epochs(job.id) == [record(1)]

    def test_none_yet(self, registry: Registry, job: JobRow) -> None:
        registry.save_epochs(job.id, [])
        assert registry.epochs(job.id) == []
        assert registry.last_epoch(job.id) is None

    def test_of_an_unknown_job_are_refused(self, registry: Registry) -> None:
        with pytest.raises(EnvironmentProblem, match="FOREIGN KEY"):
            registry.save_epochs("nope", [record(1)])


def run_python(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=child_environment(),
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def child_environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
