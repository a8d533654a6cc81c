"""A job as a graph of uids. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.checkpoint.identity import JobIdentity
from holdfast.checkpoint.record import EpochRecord
from holdfast.client import models
from holdfast.control.job_views import per_second


def graph_of(identity: JobIdentity | None, committed: Sequence[EpochRecord]) -> models.Graph:
    """Who feeds whom is kept with the job since it last started."""
    last = committed[-1] if committed else None
    sources = _sources(identity, last)
    steps = _steps(identity, last)
    sinks = _sinks(identity, last, committed)
    nodes = [*sources, *steps, *sinks]
    known = {node.uid for node in nodes}
    kept = identity.edges if identity else ()
    return models.Graph(nodes=nodes, edges=[edge for edge in kept if known.issuperset(edge)])


def _sources(identity: JobIdentity | None, last: EpochRecord | None) -> list[models.Node]:
    uids = list(identity.sources if identity else ()) or list(last.offsets if last else ())
    places = identity.locations if identity else {}
    return [
        models.Node(
            uid=uid,
            kind="source",
            detail=places.get(uid, ""),
            lag=last.lag.get(uid) if last else None,
        )
        for uid in uids
    ]


def _steps(identity: JobIdentity | None, last: EpochRecord | None) -> list[models.Node]:
    operators = identity.operators if identity else {}
    found = []
    for uid, step in operators.items():
        size = last.state.get(uid) if last else None
        found.append(
            models.Node(
                uid=uid,
                kind="process" if step["kind"] == "process" else "native",
                detail=step.get("detail") or "",
                state_rows=size.rows if size else None,
                state_bytes=size.bytes if size else None,
                late_rows=last.late.get(uid) if last else None,
            )
        )
    return found


def _sinks(
    identity: JobIdentity | None, last: EpochRecord | None, committed: Sequence[EpochRecord]
) -> list[models.Node]:
    outputs = identity.outputs if identity else {}
    uids = list(dict.fromkeys([*(last.sinks if last else ()), *outputs]))
    return [
        models.Node(
            uid=uid,
            kind="sink",
            detail=dict(outputs.get(uid, {})).get("directory", ""),
            rows_per_second=per_second(_rows(uid, committed), committed),
        )
        for uid in uids
    ]


def _rows(sink: str, committed: Sequence[EpochRecord]) -> int:
    return sum(record.sinks[sink].rows for record in committed if sink in record.sinks)
