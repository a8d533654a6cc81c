"""The total per user in Pathway, with persistence on. Run by a Python that has it.

By its own sum, which is Rust (`sum`), or by a Python function called per edit (`python`).

Pathway writes a total when a batch of its own is done, not for every edit.
"""

from __future__ import annotations

import os
import sys

os.environ["PATHWAY_THREADS"] = "2"

import pathway as pw


class Edit(pw.Schema):
    user: str
    diff: int


@pw.reducers.stateful_single  # type: ignore[untyped-decorator]
def by_python(so_far: int | None, diff: int) -> int:
    return (so_far or 0) + diff


def main(how: str, servers: str, source: str, target: str, state: str) -> None:
    total = {"sum": pw.reducers.sum, "python": by_python}[how]
    settings = {
        "bootstrap.servers": servers,
        "group.id": target,
        "auto.offset.reset": "earliest",
    }
    edits = pw.io.kafka.read(settings, topic=source, format="json", schema=Edit, name="edits")
    # By name: a table has a method `diff` of its own.
    totals = edits.groupby(edits.user).reduce(edits.user, total=total(edits["diff"]))
    pw.io.kafka.write(totals, settings, topic_name=target, format="json", key=totals.user)
    backend = pw.persistence.Backend.filesystem(state)
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=5000),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
