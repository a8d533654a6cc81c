"""The running total per user in Bytewax, with recovery on. Run by a Python that has it.

`python bytewax_flow.py …` starts two processes of the flow; they load this file again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

NAMES = ("BENCH_SERVERS", "BENCH_SOURCE", "BENCH_TARGET", "BENCH_STATE")


def build() -> Any:
    import bytewax.operators as op
    from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
    from bytewax.dataflow import Dataflow

    servers, source, target = (os.environ[name] for name in NAMES[:3])

    def read(message: Any) -> tuple[str, int]:
        edit = json.loads(message.value)
        return edit["user"], edit["diff"]

    def add(total: int | None, diff: int) -> tuple[int, int]:
        total = (total or 0) + diff
        return total, total

    def record(item: tuple[str, int]) -> Any:
        user, total = item
        return KafkaSinkMessage(
            user.encode(), json.dumps({"user": user, "total": total}).encode()
        )

    flow = Dataflow("bench")
    edits = op.input("edits", flow, KafkaSource([servers], [source], batch_size=1000))
    keyed = op.map("decode", edits, read)
    totals = op.stateful_map("totals", keyed, add)
    op.output("out", op.map("encode", totals, record), KafkaSink([servers], target))
    return flow


def main(arguments: list[str]) -> int:
    os.environ.update(zip(NAMES, arguments, strict=True))
    state = Path(os.environ["BENCH_STATE"])
    if not state.exists():
        state.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "bytewax.recovery", str(state), "2"], check=True)
    here = Path(__file__)
    os.chdir(here.parent)
    return subprocess.call(
        [
            *(sys.executable, "-m", "bytewax.testing", f"{here.stem}:build()", "-p", "2"),
            *("-r", str(state), "-s", "5", "-b", "0"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
