"""The registry's database: connections, transactions, and the schema's version.

SQLite is the default and is shared by several processes: drivers write history while
commands read it. Hence WAL (readers never wait for a writer) and, for every transaction
that writes, BEGIN IMMEDIATE: a transaction that begins as a reader and turns into a
writer fails at once when another writer came first, whatever the busy timeout says.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from holdfast.control.tables import SCHEMA_HEAD
from holdfast.errors import (
    ConflictError,
    EnvironmentProblem,
    HoldfastError,
    SettingsError,
    shorten,
)

BUSY_SECONDS = 10.0
_NO_ROOM_BYTES = 64 * 1024
_WRITE = "holdfast_write"
_MIGRATION_LOCK = 0x686F6C64  # any number that all holdfast processes agree on
_alembic_lock = threading.Lock()  # Alembic keeps its context in module globals


class Database:
    """Connections to one registry; safe to use from several threads."""

    def __init__(self, url: str, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.url = _parse_url(url)
        self.shown_url = self.url.render_as_string(hide_password=True)
        self._busy_seconds = busy_seconds
        self._engine = self._create_engine()
        self._writer = self._engine.execution_options(**{_WRITE: True})

    @property
    def dialect(self) -> str:
        return self._engine.dialect.name

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for other databases and for one in memory."""
        name = self.url.database
        if self.dialect != "sqlite" or not name or name == ":memory:":
            return None
        return Path(name)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._named_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._named_errors(), self._writer.begin() as connection:
            yield connection

    # -- schema ---------------------------------------------------------------------

    def schema_version(self) -> str | None:
        """The migration this database is at; None when it has no tables yet."""
        if self.file is not None and not self.file.exists():
            return None  # connecting would create it
        with self._named_errors(), self._engine.connect() as connection:
            try:
                return self._read_version(connection)
            except DBAPIError:
                connection.rollback()
                if inspect(connection).has_table("alembic_version"):
                    raise
                return None

    def ensure_schema(self) -> None:
        """Bring the database to the schema of this holdfast, creating it if need be."""
        if self.schema_version() == SCHEMA_HEAD:
            return
        if self.file is not None:
            self._prepare_file(self.file)
        with _alembic_lock, self.write() as connection:
            if self.dialect == "postgresql":
                lock = text("SELECT pg_advisory_xact_lock(:id)")
                connection.execute(lock, {"id": _MIGRATION_LOCK})
            # Another process may have migrated while this one waited for the lock.
            exists = inspect(connection).has_table("alembic_version")
            if not exists or self._read_version(connection) != SCHEMA_HEAD:
                self._migrate(connection)

    @staticmethod
    def _read_version(connection: Connection) -> str | None:
        version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if version is None else str(version)

    def _migrate(self, connection: Connection) -> None:
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", "holdfast.control:migrations")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise ConflictError(
                "REGISTRY_NEWER",
                f"the registry {self.shown_url} is at schema "
                f"{self._read_version(connection)}, which this holdfast (schema "
                f"{SCHEMA_HEAD}) does not know.",
                fix="upgrade holdfast to the version that last used this registry, "
                "or point HOLDFAST_REGISTRY_URL to another one.",
            ) from error

    def _prepare_file(self, file: Path) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unavailable(error) from error
        deadline = time.monotonic() + self._busy_seconds
        with self._named_errors():
            # WAL is a property of the file, so switching once is enough. While
            # another process writes, SQLite refuses the switch at once, busy timeout or not.
            while True:
                try:
                    with closing(self._engine.raw_connection()) as connection:
                        connection.cursor().execute("PRAGMA journal_mode = WAL")
                        return
                except sqlite3.OperationalError as error:
                    if not _is_busy(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    # -- connections ----------------------------------------------------------------

    def _create_engine(self) -> Engine:
        try:
            engine = create_engine(self.url, pool_pre_ping=self.url.drivername != "sqlite")
        except ModuleNotFoundError as error:
            raise EnvironmentProblem(
                "REGISTRY_DRIVER_MISSING",
                f"the registry {self.shown_url} needs the Python package {error.name!r}.",
                fix=f"pip install {error.name}",
            ) from error
        except (ArgumentError, NoSuchModuleError) as error:
            raise _bad_url(self.shown_url, error) from error
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", self._configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _configure_sqlite(self, connection: sqlite3.Connection, _record: Any) -> None:
        # Python's sqlite3 would otherwise begin transactions by guessing from the SQL.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout = {int(self._busy_seconds * 1000)}",
            "synchronous = NORMAL",  # with WAL: safe against crashes, no fsync per commit
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except (SQLAlchemyError, sqlite3.Error) as error:
            cause = getattr(error, "orig", None) or error
            if _is_busy(cause):
                raise ConflictError(
                    "REGISTRY_BUSY",
                    f"the registry {self.shown_url} was locked by another process for "
                    f"{self._busy_seconds:g} s.",
                    fix="try again; if it stays locked, look for a hanging process that "
                    "has the file open.",
                ) from error
            raise self._unavailable(cause) from error

    def _unavailable(self, cause: BaseException) -> EnvironmentProblem:
        if self.file is not None and _is_full(cause, self.file.parent):
            return EnvironmentProblem(
                "DISK_FULL",
                f"the registry {self.file} cannot be written: its disk is full.",
                fix=f"free space in {self.file.parent} and start again; no job has lost "
                "anything, the registry only keeps their history.",
            )
        return EnvironmentProblem(
            "REGISTRY_UNAVAILABLE",
            f"the registry {self.shown_url} cannot be used: {cause}",
            fix="check that the database is reachable, that its disk has space and that "
            "you may write to it; `holdfast doctor` shows more.",
        )


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _is_full(error: BaseException, folder: Path) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    # A full disk also shows as a failed write of the shared-memory file.
    no_room = shutil.disk_usage(folder).free < _NO_ROOM_BYTES
    return code & 0xFF == sqlite3.SQLITE_FULL or (
        code & 0xFF == sqlite3.SQLITE_IOERR and no_room
    )


def _is_busy(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    # The low byte is the family; the rest says which kind of busy.
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _parse_url(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise _bad_url(shorten(url), error) from error


def _bad_url(shown: str, error: Exception) -> SettingsError:
    return SettingsError(
        "INVALID_REGISTRY_URL",
        f"registry_url is {shown}, which is not a database URL: {error}",
        fix='write it as "sqlite:////path/registry.db" or '
        '"postgresql+psycopg://user@host/database".',
    )
