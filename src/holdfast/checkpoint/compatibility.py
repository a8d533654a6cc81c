"""Whether the code of a job fits its stored state, step by step.

What Spark would accept in silence (another key column, a renamed variable, another parallelism,
swapped steps) is refused here, by name and before any state is touched. A job that is simply
resumed must have its steps as they were, because Spark finds state by place. A restore puts
state where the code wants it: :func:`judge` says what becomes of each part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.checkpoint.identity import JobIdentity
from holdfast.errors import StateMismatchError
from holdfast.job.graph import JobGraph, OperatorSignature
from holdfast.sinks import Files
from holdfast.storage.sink_logs import directory_of, file_format

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

_BY_SAVEPOINT = "stop the job with a savepoint and start the new code from it (`--from`)"


def check_parallelism(
    identity: JobIdentity, wanted: int | None, key_groups: int | None
) -> None:
    """Parallelism and key groups are part of the state: refuse what Spark would ignore."""
    if wanted is not None and wanted != identity.parallelism:
        reason = f"Spark would silently keep {identity.parallelism}"
        fix = f"say parallelism={identity.parallelism} (or leave it out)."
        if identity.backend == "memory":
            reason = "Spark cannot rescale state of its in-memory store"
        else:
            fix = f"`holdfast rescale {identity.name} {wanted}` moves the state; or {fix}"
        raise StateMismatchError(
            "PARALLELISM_DIFFERS",
            f"job {identity.name!r}: its state has {identity.parallelism} partitions, the job "
            f"now says parallelism={wanted}. {reason}.",
            fix=fix,
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
        way = (
            "or start a new job under another name."
            if "memory" in (wanted, identity.backend)
            else f"or {_BY_SAVEPOINT}, which writes the state anew."
        )
        raise StateMismatchError(
            "BACKEND_DIFFERS",
            f"job {identity.name!r}: its state was written by backend={identity.backend!r}, "
            f"the job now says backend={wanted!r}.",
            fix=f"say backend={identity.backend!r}; {way}",
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


@dataclass(frozen=True, kw_only=True)
class Code:
    """What the code of a job declares."""

    graph: JobGraph
    named_sources: bool
    positions: Mapping[str, int]
    """Stateful steps by the number under which Spark will look for their state."""
    backend: str
    version: str = ""
    """A name for it as it is now; see `holdfast.control.app.code_version`."""

    @property
    def locations(self) -> dict[str, str]:
        """Where sources of files read."""
        paths = {
            uid: getattr(source, "path", None) for uid, source in self.graph.sources.items()
        }
        return {
            uid: str(Path(path).expanduser().absolute())
            for uid, path in paths.items()
            if path is not None
        }

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        """Where sinks of files write, as the code says."""
        return {
            uid: {"directory": str(directory_of(sink)), "format": file_format(sink)}
            for uid, sink in self.graph.sinks.items()
            if isinstance(sink, Files)
        }


def check_resume(identity: JobIdentity, code: Code) -> None:
    """A job that goes on from its own last epoch."""
    _check_sources(identity, code.graph, code.named_sources)
    _check_operators(identity, code)


def adopted(identity: JobIdentity, code: Code) -> JobIdentity:
    """The identity of a job that runs this code."""
    return replace(
        identity,
        code=code.version,
        backend=code.backend,
        operators={
            uid: {**_plain(signature), "position": code.positions.get(uid)}
            for uid, signature in code.graph.steps.items()
        },
        sources=tuple(code.graph.sources),
        locations=code.locations,
        named_sources=code.named_sources,
        outputs=code.outputs,
        edges=code.graph.edges,
    )


Outcome = Literal["restored", "migrated", "starts empty", "dropped", "refused"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What becomes of the state of a step, or of the position of a source."""

    uid: str
    part: Literal["step", "source"]
    outcome: Outcome
    reason: str
    rewritten: bool = False
    """Whether its state is read and written anew, instead of being taken as it lies there."""
    refusal: StateMismatchError | None = None


def judge(
    stored: JobIdentity,
    code: Code,
    *,
    canonical: bool,
    allow_dropped: bool,
    reset_sources: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """What a restore of `stored` will do. `canonical`: its state is stored as plain columns."""
    return (
        *(_judge_reset(uid, code) for uid in reset_sources),
        *(
            _judge_source(uid, stored, code, allow_dropped)
            for uid in _either(stored.sources, code.graph.sources)
            if uid not in reset_sources
        ),
        *(
            _judge_step(uid, stored, code, canonical, allow_dropped)
            for uid in _either(stored.operators, code.graph.steps)
        ),
    )


def stored_positions(identity: JobIdentity, code: Code) -> dict[str, int]:
    """The numbers under which Spark has kept the state of steps.

    Before they were noted, steps had to stay in the order of their declaration.
    """
    noted = {uid: step.get("position") for uid, step in identity.operators.items()}
    if None not in noted.values():
        return {uid: int(position) for uid, position in noted.items() if position is not None}
    if list(noted) == list(code.graph.steps):
        return dict(code.positions)
    raise _mismatch(
        "OPERATORS_REORDERED",
        f"job {identity.name!r} has state of the steps {list(noted)}, from a version of "
        f"holdfast that did not note their places, and the code has {list(code.graph.steps)}.",
        "run the job once with the steps as they were, in the same order.",
    )


def require_restorable(verdicts: Iterable[Verdict]) -> None:
    for verdict in verdicts:
        if verdict.refusal is not None:
            raise verdict.refusal


def _either(stored: Iterable[str], declared: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*declared, *stored]))


def _refused(uid: str, part: Literal["step", "source"], error: StateMismatchError) -> Verdict:
    return Verdict(uid=uid, part=part, outcome="refused", reason=error.message, refusal=error)


def _judge_reset(uid: str, code: Code) -> Verdict:
    """A source that is to begin anew."""
    if uid not in code.graph.sources or not code.named_sources:
        error = _mismatch(
            "SOURCE_NOT_RESET",
            f"source {uid!r} cannot begin anew: "
            + (
                "two branches read a source, so positions have no names in the checkpoint."
                if uid in code.graph.sources
                else f"the job has the sources {', '.join(code.graph.sources)}."
            ),
            "name a source of the job, by its uid; leave --reset-source out.",
        )
        return _refused(uid, "source", error)
    reason = "asked for: begins where the code says, and not where it was"
    return Verdict(uid=uid, part="source", outcome="starts empty", reason=reason)


def _judge_source(uid: str, stored: JobIdentity, code: Code, allow_dropped: bool) -> Verdict:
    refusal = _source_refusal(uid, stored, code, allow_dropped)
    if refusal is not None:
        return _refused(uid, "source", refusal)
    before, now = stored.locations.get(uid), code.locations.get(uid)
    outcome: Outcome
    if uid not in code.graph.sources:
        outcome, reason = "dropped", "not in the code"
    elif uid not in stored.sources:
        outcome, reason = "starts empty", "new: read from its beginning"
    elif before and now and before != now:
        outcome = "migrated"
        reason = f"moved from {before}: files that were read there are not read again"
    else:
        outcome, reason = "restored", "goes on where it was"
    return Verdict(uid=uid, part="source", outcome=outcome, reason=reason)


def _source_refusal(
    uid: str, stored: JobIdentity, code: Code, allow_dropped: bool
) -> StateMismatchError | None:
    if stored.named_sources != code.named_sources:
        return _readers_changed(stored)
    if not code.named_sources and tuple(code.graph.sources) != stored.sources:
        return _mismatch(
            "SOURCES_CHANGED",
            f"the sources were {list(stored.sources)}, and are now {list(code.graph.sources)}; "
            "a source that two branches read has no name in the checkpoint, and positions are "
            "told apart by their order.",
            "keep the sources and their order.",
        )
    if uid not in code.graph.sources and not allow_dropped:
        return _not_restored("source", uid, f"the position of source {uid!r}")
    return None


def _judge_step(
    uid: str, stored: JobIdentity, code: Code, canonical: bool, allow_dropped: bool
) -> Verdict:
    signature, known = code.graph.steps.get(uid), stored.operators.get(uid)
    if "memory" in (stored.backend, code.backend):
        try:
            check_backend(stored, code.backend)
            check_resume(stored, code)
        except StateMismatchError as error:
            # Spark's in-memory store: what it has written stays where it is.
            return _refused(uid, "step", error)
    if signature is None:
        if not allow_dropped:
            return _refused(uid, "step", _not_restored("step", uid, f"state of step {uid!r}"))
        return Verdict(uid=uid, part="step", outcome="dropped", reason="not in the code")
    if known is None:
        return Verdict(uid=uid, part="step", outcome="starts empty", reason="new")
    gone = _gone(known, signature) if allow_dropped else []
    try:
        _check_operator(uid, known, signature, gone)
    except StateMismatchError as error:
        return _refused(uid, "step", error)
    changes = _changes(known, signature)
    changes += [f"without {name!r}, which the code no longer has" for name in gone]
    process = signature.kind == "process"
    if process and stored.backend != code.backend:
        changes.append(f"from backend {stored.backend!r} to {code.backend!r}")
    return Verdict(
        uid=uid,
        part="step",
        outcome="migrated" if changes else "restored",
        reason=", ".join(changes) or "as it was",
        rewritten=process
        and (
            canonical or bool(gone) or stored.backend != code.backend or _encoded(stored, code)
        ),
    )


def _encoded(stored: JobIdentity, code: Code) -> bool:
    """Whether Spark will encode all state of the query otherwise: it does for its own steps."""
    before = any(step["kind"] == "native" for step in stored.operators.values())
    return before != any(step.kind == "native" for step in code.graph.steps.values())


def _changes(known: Mapping[str, Any], now: OperatorSignature) -> list[str]:
    """What is another way in the code, and still fits."""
    found = []
    for name, kind in now.variables.items():
        old = now.renames.get(name, name)
        before = known["variables"].get(name, known["variables"].get(old))
        if before is None:
            found.append(f"{name!r} is new, and empty")
        elif name not in known["variables"]:
            found.append(f"{old!r} is now {name!r}")
        elif before != kind:
            found.append(f"{name!r} from {before} to {kind}")
    return found


def _gone(known: Mapping[str, Any], now: OperatorSignature) -> list[str]:
    """Variables whose values the code has no place for."""
    renamed = set(now.renames.values())
    return [
        name for name in known["variables"] if name not in now.variables and name not in renamed
    ]


def _not_restored(part: str, uid: str, what: str) -> StateMismatchError:
    return _mismatch(
        "STATE_NOT_RESTORED",
        f"there is {what}, and the code has no {part} of that uid.",
        f"give the {part} its uid {uid!r} back; or leave this part out for good: "
        "--allow-non-restored-state.",
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
        "layout": [dict(variable) for variable in signature.layout],
    }


def _check_sources(identity: JobIdentity, graph: JobGraph, named: bool) -> None:
    if tuple(graph.sources) != identity.sources:
        raise _mismatch(
            "SOURCES_CHANGED",
            f"job {identity.name!r} was started with the sources {list(identity.sources)}, the "
            f"code now has {list(graph.sources)}; their positions are part of the checkpoint.",
            f"keep the sources and their uids; or {_BY_SAVEPOINT}, which says what becomes of "
            "each source.",
        )
    if named != identity.named_sources:
        raise _readers_changed(identity)


def _readers_changed(identity: JobIdentity) -> StateMismatchError:
    return _mismatch(
        "SOURCE_READERS_CHANGED",
        f"job {identity.name!r}: a source is read by another number of branches than when "
        "the job was started, and Spark cannot carry its position over.",
        "keep the branches as they were, or start a new job under another name.",
    )


def _check_operators(identity: JobIdentity, code: Code) -> None:
    graph = code.graph
    stored, declared = set(identity.operators), set(graph.steps)
    if stored != declared:
        raise _mismatch(
            "OPERATORS_CHANGED",
            f"job {identity.name!r} has state for the steps {sorted(stored)}, the code "
            f"declares {sorted(declared)}.",
            f"keep the uids of stateful steps; or {_BY_SAVEPOINT}, which says what becomes of "
            "each step.",
        )
    places = stored_positions(identity, code)
    if places != code.positions:
        raise _mismatch(
            "OPERATORS_REORDERED",
            f"job {identity.name!r} had its steps in the order {_in_order(places)}, the code "
            f"now has them in the order {_in_order(code.positions)}, counted from the sinks. "
            "Spark finds state by place.",
            "keep the order of steps and sinks; or start from a savepoint, or from "
            "`--from checkpoint:N`, which puts state where the code looks for it.",
        )
    for uid, signature in graph.steps.items():
        _check_operator(uid, identity.operators[uid], signature)


def _check_operator(
    uid: str, stored: Mapping[str, Any], now: OperatorSignature, gone: Iterable[str] = ()
) -> None:
    """`gone`: variables that may be left behind."""
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
        if name in gone:
            continue
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
                f"{hint}; to drop it for good, start from a savepoint with "
                "--allow-non-restored-state.",
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


def _in_order(places: Mapping[str, int]) -> list[str]:
    return sorted(places, key=lambda uid: places[uid])


def _columns(keys: Any) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in keys)


def _mismatch(name: str, message: str, fix: str) -> StateMismatchError:
    return StateMismatchError(name, message, fix=fix)
