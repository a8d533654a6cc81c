"""A job's directory and the facts that are fixed when the job first starts.

    <storage>/<job name>/
    ├── job.json        who the job is: id, parallelism, key groups, operators
    ├── lock            held by the running driver
    ├── checkpoint/     Spark's checkpoint; nobody but Spark writes into it
    ├── sizes.json      state size per key group, as of the last epoch
    └── logs/

`job.json` is compared with the code at every start: what Spark would accept in silence
(another key column, a renamed variable, another parallelism) is refused here, before any
state is touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.errors import ConflictError, CorruptionError, StateMismatchError
from holdfast.job.graph import JobGraph, OperatorSignature
from holdfast.storage.files import list_names, make_directory, read_json, write_json

FORMAT_VERSION = 1
FIRST_TIMELINE = "t0"

_CLOCKS = {
    "None": "no use of time",
    "EventTime": "event time",
    "ProcessingTime": "TTL in processing time",
    "ProcessingTime, timers": "timers in processing time",
}

_WIDENING = {
    ("tinyint", "smallint"), ("tinyint", "int"), ("tinyint", "bigint"),
    ("smallint", "int"), ("smallint", "bigint"), ("int", "bigint"), ("float", "double"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """What `job.json` holds."""

    job_id: str
    name: str
    parallelism: int
    key_groups: int
    backend: str = "heap"
    timeline: str = FIRST_TIMELINE
    operators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    named_sources: bool = True


class JobDirectory:
    """The files of one job."""

    def __init__(self, storage: Path, name: str) -> None:
        self.name = name
        self.path = storage.expanduser().absolute() / name
        self.checkpoint = self.path / "checkpoint"
        self.logs = self.path / "logs"
        self.sizes = self.path / "sizes.json"
        self._identity = self.path / "job.json"

    def load(self) -> JobIdentity | None:
        if not self._identity.exists():
            if self.checkpoint.exists():
                raise CorruptionError(
                    "JOB_FILE_MISSING",
                    f"{self.checkpoint} exists, but {self._identity} does not.",
                    fix=f"restore job.json from a backup, or move {self.path} away to start "
                    "the job without its state.",
                )
            return None
        stored = read_json(self._identity)
        if not isinstance(stored, dict) or stored.pop("format", None) != FORMAT_VERSION:
            raise CorruptionError(
                "JOB_FILE_UNREADABLE",
                f"{self._identity} is not a job file of format {FORMAT_VERSION}.",
                fix="run the holdfast version that wrote it, or restore it from a backup.",
            )
        stored["sources"] = tuple(stored["sources"])
        # A list in the file, because the order of the steps matters.
        stored["operators"] = {step.pop("uid"): step for step in stored["operators"]}
        return JobIdentity(**stored)

    def create(self, parallelism: int, key_groups: int, backend: str) -> JobIdentity:
        """A new identity; it is kept only once :meth:`save` is called."""
        make_directory(self.logs)
        return JobIdentity(
            job_id=secrets.token_hex(8),
            name=self.name,
            parallelism=parallelism,
            key_groups=key_groups,
            backend=backend,
        )

    def save(self, identity: JobIdentity) -> None:
        operators = [{"uid": uid, **step} for uid, step in identity.operators.items()]
        write_json(
            self._identity,
            {"format": FORMAT_VERSION, **vars(identity), "operators": operators},
        )

    def last_begun(self) -> int | None:
        """The newest epoch whose input is fixed."""
        return _newest(self.checkpoint / "offsets")

    def last_committed(self) -> int | None:
        """The newest epoch that Spark has committed."""
        return _newest(self.checkpoint / "commits")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the job against a second driver; the lock ends with the process."""
        make_directory(self.path)
        path = self.path / "lock"
        with path.open("a+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise ConflictError(
                    "JOB_IS_RUNNING",
                    f"job {self.name!r} is being run by {_owner(lock.read())}.",
                    fix="stop that run first; two drivers on one state would destroy it.",
                ) from None
            lock.truncate(0)
            lock.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
            lock.flush()
            yield


def _newest(log: Path) -> int | None:
    return max((int(name) for name in list_names(log) if name.isdigit()), default=None)


def _owner(text: str) -> str:
    try:
        owner = json.loads(text)
        return f"process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def check_parallelism(
    identity: JobIdentity, wanted: int | None, key_groups: int | None
) -> None:
    """Parallelism and key groups are part of the state: refuse what Spark would ignore."""
    if wanted is not None and wanted != identity.parallelism:
        reason = (
            "Spark cannot rescale state of its in-memory store"
            if identity.backend == "memory"
            else f"Spark would silently keep {identity.parallelism}"
        )
        raise StateMismatchError(
            "PARALLELISM_DIFFERS",
            f"job {identity.name!r}: its state has {identity.parallelism} partitions, the job "
            f"now says parallelism={wanted}. {reason}.",
            fix=f"say parallelism={identity.parallelism} (or leave it out).",
            stored=identity.parallelism,
            wanted=wanted,
        )
    if key_groups is not None and key_groups != identity.key_groups:
        raise StateMismatchError(
            "KEY_GROUPS_DIFFER",
            f"job {identity.name!r}: its state has {identity.key_groups} key groups, the job "
            f"now says {key_groups}; the number is fixed when a job is created.",
            fix=f"say key_groups={identity.key_groups} (or leave it out).",
            stored=identity.key_groups,
            wanted=key_groups,
        )


def check_backend(identity: JobIdentity, wanted: str) -> None:
    """Each backend stores state in its own way."""
    if wanted != identity.backend:
        raise StateMismatchError(
            "BACKEND_DIFFERS",
            f"job {identity.name!r}: its state was written by backend={identity.backend!r}, "
            f"the job now says backend={wanted!r}.",
            fix=f"say backend={identity.backend!r}, or start a new job under another name.",
            stored=identity.backend,
            wanted=wanted,
        )


def check_sink_position(uid: str, committed: int | None, begun: int | None) -> None:
    """A sink cannot have epochs that its checkpoint has never begun."""
    if committed is None or (begun is not None and committed <= begun):
        return
    state = "is gone" if begun is None else f"has only come to epoch {begun}"
    raise StateMismatchError(
        "SINK_AHEAD_OF_CHECKPOINT",
        f"sink {uid!r} holds the job's epochs up to {committed}, but the checkpoint {state}. "
        "New epochs would have old numbers, and the sink would skip them.",
        fix="restore the checkpoint directory, or start a job under another name with another "
        "output directory.",
        sink=uid,
        committed=committed,
        begun=begun,
    )


def reconciled(
    identity: JobIdentity, graph: JobGraph, *, named_sources: bool, started_before: bool
) -> JobIdentity:
    """The identity updated with the code's graph, or an error that says what does not fit."""
    if started_before:
        _check_sources(identity, graph, named_sources)
        _check_operators(identity, graph)
    return replace(
        identity,
        operators={uid: _plain(signature) for uid, signature in graph.steps.items()},
        sources=tuple(graph.sources),
        named_sources=named_sources,
    )


def older_names(
    stored: Mapping[str, Any] | None, variables: Iterable[str], renames: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The names that each variable may still have in stored blocks, newest first.

    Blocks are not rewritten when a variable is renamed, so the job remembers every name, also
    when `renamed_from` is taken out of the code again.
    """
    known = stored["older_names"] if stored else {}
    found = {}
    for name in variables:
        before = [renames[name]] if name in renames else []
        names = dict.fromkeys(
            [*before, *known.get(name, ()), *(old for b in before for old in known.get(b, ()))]
        )
        names.pop(name, None)
        if names:
            found[name] = tuple(names)
    return found


def _plain(signature: OperatorSignature) -> dict[str, Any]:
    return {
        "kind": signature.kind,
        "keys": [[name, kind] for name, kind in signature.keys.items()],
        "variables": dict(signature.variables),
        "older_names": {name: list(old) for name, old in signature.older_names.items()},
        "detail": signature.detail,
        "clock": signature.clock,
    }


def _check_sources(identity: JobIdentity, graph: JobGraph, named: bool) -> None:
    if tuple(graph.sources) != identity.sources:
        raise _mismatch(
            "SOURCES_CHANGED",
            f"job {identity.name!r} was started with the sources {list(identity.sources)}, the "
            f"code now has {list(graph.sources)}; their positions are part of the checkpoint.",
            "keep the sources and their uids, or start a new job under another name.",
        )
    if named != identity.named_sources:
        raise _mismatch(
            "SOURCE_READERS_CHANGED",
            f"job {identity.name!r}: a source is read by another number of branches than when "
            "the job was started, and Spark cannot carry its position over.",
            "keep the branches as they were, or start a new job under another name.",
        )


def _check_operators(identity: JobIdentity, graph: JobGraph) -> None:
    stored, declared = set(identity.operators), set(graph.steps)
    if stored != declared:
        raise _mismatch(
            "OPERATORS_CHANGED",
            f"job {identity.name!r} has state for the steps {sorted(stored)}, the code "
            f"declares {sorted(declared)}.",
            "keep the uids of stateful steps; a renamed step would start empty.",
        )
    if list(identity.operators) != list(graph.steps):
        raise _mismatch(
            "OPERATORS_REORDERED",
            f"job {identity.name!r} declared its steps in the order "
            f"{list(identity.operators)}, the code now in the order {list(graph.steps)}. "
            "Spark finds state by position.",
            "declare the steps in the order in which the job was first started.",
        )
    for uid, signature in graph.steps.items():
        _check_operator(uid, identity.operators[uid], signature)


def _check_operator(uid: str, stored: Mapping[str, Any], now: OperatorSignature) -> None:
    if stored["kind"] != now.kind or stored["detail"] != now.detail:
        raise _mismatch(
            "OPERATOR_CHANGED",
            f"step {uid!r} was {stored['detail'] or stored['kind']}, and is now "
            f"{now.detail or now.kind}.",
            "keep the step as it was, or give the new one another uid in a new job.",
        )
    if stored.get("clock", "None") != now.clock:
        raise _mismatch(
            "CLOCK_CHANGED",
            f"step {uid!r} had {_CLOCKS[stored.get('clock', 'None')]}, and now has "
            f"{_CLOCKS[now.clock]}. Spark fixes this when a step first runs.",
            "keep the watermark, TTLs and timers of the step on the same clock, or start a new "
            "job under another name.",
        )
    keys = [list(item) for item in now.keys.items()]
    if [list(item) for item in stored["keys"]] != keys:
        raise _mismatch(
            "KEYS_CHANGED",
            f"step {uid!r} was keyed by {_columns(stored['keys'])}, and is now keyed by "
            f"{_columns(keys)}. Every key would start empty.",
            "key by the same columns with the same types, or start a new job.",
        )
    for name, old in now.older_names.items():
        for reused in set(old) & set(now.variables):
            raise _mismatch(
                "STATE_NAME_REUSED",
                f"step {uid!r} declares {reused!r}, the name under which older state of "
                f"{name!r} is still stored; the two would be mixed up.",
                f"give the new variable another name than {reused!r}.",
            )
    for name, kind in stored["variables"].items():
        new_names = [new for new, old in now.renames.items() if old == name] or [name]
        if not any(new in now.variables for new in new_names):
            added = sorted(set(now.variables) - set(stored["variables"]))
            hint = (
                f"if {added[0]!r} is the new name of it, say `{added[0]} = hf.…(…, "
                f'renamed_from="{name}")`'
                if added
                else f"declare {name!r} again"
            )
            raise _mismatch(
                "STATE_VARIABLE_MISSING",
                f"step {uid!r} has stored state in {name!r} ({kind}), which the code no longer "
                "declares. Its values would be lost.",
                f"{hint}; to drop it for good, start a new job.",
            )
        found = now.variables[next(new for new in new_names if new in now.variables)]
        if found != kind and not _widened(kind, found):
            raise _mismatch(
                "STATE_TYPE_CHANGED",
                f"step {uid!r}: state {name!r} was stored as {kind}, and is now declared as "
                f"{found}.",
                "keep the type (numbers may become wider), or add a variable under a new name.",
            )


def _widened(stored: str, now: str) -> bool:
    old_kind, _, old_type = stored.partition(" ")
    new_kind, _, new_type = now.partition(" ")
    return old_kind == new_kind and (old_type, new_type) in _WIDENING


def _columns(keys: Any) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in keys)


def _mismatch(name: str, message: str, fix: str) -> StateMismatchError:
    return StateMismatchError(name, message, fix=fix)
