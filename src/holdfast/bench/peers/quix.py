"""The running total per user in Quix Streams, exactly once. Run by a Python that has it.

Two processes of one consumer group: each reads a partition of the topic.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import Any


def work(number: int, servers: str, source: str, target: str, state: str) -> None:
    from quixstreams import Application

    app = Application(
        broker_address=servers,
        consumer_group=target,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=Path(state) / str(number),
        loglevel="WARNING",
    )
    edits = app.topic(source, key_deserializer="str", value_deserializer="json")
    totals = app.topic(target, key_serializer="str", value_serializer="json")

    def add(edit: dict[str, Any], stored: Any) -> dict[str, Any]:
        total = stored.get("total", 0) + edit["diff"]
        stored.set("total", total)
        return {"user": edit["user"], "total": total}

    app.dataframe(edits).apply(add, stateful=True).to_topic(totals)
    app.run()


if __name__ == "__main__":
    workers = [
        multiprocessing.Process(target=work, args=(number, *sys.argv[1:])) for number in (0, 1)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
