"""The state of jobs and savepoints, read by SQL.

Making plain columns of state takes Spark, so a process of its own does it, and one at a time;
what it has made is kept, and read here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from holdfast.client import models
from holdfast.control.launch import of_server
from holdfast.control.state_views import StateViews
from holdfast.errors import ConflictError, HoldfastError, RunFailedError
from holdfast.savepoint.queries import Answer, Guard, StateView, counts, diff, plain, quoted
from holdfast.savepoint.queries import get as look_up
from holdfast.savepoint.queries import query as ask
from holdfast.server.service.backend import Backend
from holdfast.types import check_name

_MAKING_SECONDS = 240.0
_MOST_WAITING = 8


class StateService:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._making = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_WAITING)
        self._process: subprocess.Popen[str] | None = None

    def close(self) -> None:
        if self._process is not None:
            _kill(self._process)

    def tables(self, of: str, *, fresh: bool = False) -> models.StateTables:
        """`of` is a job, or the id of a savepoint. Of a job: the newest epoch that was looked
        at before, or with `fresh` the newest of all."""
        view = self.open(of, fresh=fresh)
        return models.StateTables(
            of=of, title=view.title, tables=[models.StateTable(**each) for each in counts(view)]
        )

    def get(
        self, of: str, table: str, key: Sequence[str], *, fresh: bool = False
    ) -> models.StateRows:
        """One key, given as one text per key column; no row if it is not known."""
        view = self.open(of, fresh=fresh)
        return _rows(of, view, look_up(view, table, key))

    def browse(
        self, of: str, table: str, *, offset: int = 0, limit: int = 50, fresh: bool = False
    ) -> models.StateRows:
        view = self.open(of, fresh=fresh)
        found = view.table(table)
        order = ", ".join(quoted(name) for name in found.keys)
        sql = f"SELECT * FROM {quoted(found.name)} ORDER BY {order} OFFSET {int(offset)}"  # noqa: S608
        return _rows(of, view, ask(view, sql, limit=limit, guard=Guard()))

    def query(
        self, of: str, sql: str, *, limit: int = 1000, fresh: bool = False
    ) -> models.StateRows:
        view = self.open(of, fresh=fresh)
        return _rows(of, view, ask(view, sql, limit=limit, guard=Guard()))

    def diff(
        self, before: str, after: str, *, table: str | None = None, limit: int = 100
    ) -> models.StateDiff:
        first, second = self.open(before), self.open(after)
        found = diff(first, second, table=table, limit=limit)
        return models.StateDiff(
            before=first.title,
            after=second.title,
            same=all(each.same for each in found),
            tables=[
                models.TableDiff(
                    **{name: value for name, value in vars(each).items() if name != "rows"},
                    columns=list(each.rows.columns),
                    rows=[[plain(value) for value in row] for row in each.rows.rows],
                    cut=each.rows.cut,
                )
                for each in found
            ],
        )

    # -- views ------------------------------------------------------------------------

    def open(self, of: str, *, fresh: bool = False) -> StateView:
        """Takes seconds if it has to be made; one is made at a time."""
        self._require_known(of)
        views = StateViews(self._backend.registry, self._backend.settings)
        view = None if fresh else views.kept(of)
        if view is not None:
            return view
        if not self._places.acquire(blocking=False):
            raise ConflictError(
                "STATE_BUSY",
                f"{_MOST_WAITING} others wait for state to be read.",
                fix="try again in a minute.",
            )
        try:
            with self._making:
                # Somebody may have made it meanwhile.
                view = None if fresh else views.kept(of)
                if view is None:
                    self._make(of)
                    view = views.kept(of)
        finally:
            self._places.release()
        if view is None:
            raise RunFailedError("STATE_NOT_READ", f"the state of {of!r} could not be read.")
        return view

    def _require_known(self, of: str) -> None:
        """A job's whole name, or a savepoint's whole id: a path of this machine is neither."""
        check_name(of, "job or savepoint")
        if of not in {row.name for row in self._backend.registry.jobs()}:
            self._backend.savepoints.by_id(of)

    def _make(self, of: str) -> None:
        settings = self._backend.settings
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "holdfast.cli.main", "state", "tables", of),
                *("--home", str(settings.home), "--json"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=of_server(settings),
        )
        self._process = process
        try:
            _, complaint = process.communicate(timeout=_MAKING_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise RunFailedError(
                "STATE_NOT_READ",
                f"the state of {of!r} was not read in {_MAKING_SECONDS:g} s.",
                fix="take a canonical savepoint of it, and look into that.",
            ) from None
        finally:
            self._process = None
        if process.returncode != 0:
            raise _said(complaint, of)


def _kill(process: subprocess.Popen[Any]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _said(complaint: str, of: str) -> HoldfastError:
    for line in reversed(complaint.splitlines()):
        with suppress(ValueError, KeyError, TypeError):
            return HoldfastError.from_fields(json.loads(line))
    return RunFailedError("STATE_NOT_READ", f"the state of {of!r} could not be read.")


def _rows(of: str, view: StateView, answer: Answer) -> models.StateRows:
    return models.StateRows(
        of=of,
        title=view.title,
        columns=list(answer.columns),
        rows=[[plain(value) for value in row] for row in answer.rows],
        cut=answer.cut,
    )
