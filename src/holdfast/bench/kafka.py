"""From a topic to a topic: holdfast, plain Spark, and other streaming libraries for Python.

All read the same edits and write the running total of their user back. Each is run twice: to
its end, for the rate; and on fewer edits with a kill -9 in the middle, for what that costs and
whether rows are doubled or lost. Flink's Java API does the same, for a measure of the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.bench import programs, report
from holdfast.bench.kafka_output import OUTPUT
from holdfast.bench.programs import HEAP_BYTES, Program
from holdfast.bench.report import Bar
from holdfast.bench.section import Result, Row, Section, Summary, Work
from holdfast.control.kafka.broker import LocalBroker
from holdfast.errors import UsageError
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.kafka import KafkaAdmin, NewTopic
from holdfast.storage.kafka_producer import TopicProducer
from holdfast.wikipedia.origins import synthetic_edits

EXACTLY_ONCE = "holdfast .process, exactly once"
AT_LEAST_ONCE = "holdfast .process, at least once"
AGGREGATE = "holdfast .aggregate"
PLAIN_TWS = "plain transformWithState"
PLAIN_GROUP_BY = "plain groupBy"
_JOBS = {
    EXACTLY_ONCE: "bench-kafka-process",
    AT_LEAST_ONCE: "bench-kafka-process-repeating",
    AGGREGATE: "bench-kafka-aggregate",
}
PATHWAY, PATHWAY_PYTHON = "Pathway", "Pathway, a Python function"
FLINK = "Flink, in Java"
_PYTHON_PEERS = {
    "Quix Streams": ("quixstreams", "quix.py"),
    "Bytewax": ("bytewax", "bytewax_flow.py"),
    PATHWAY: ("pathway", "pathway_flow.py", "sum"),
    PATHWAY_PYTHON: ("pathway", "pathway_flow.py", "python"),
}
"""By name: the library, the script that uses it, and what the script is told."""
_PEERS = (*_PYTHON_PEERS, FLINK)
_FOLDING = (AGGREGATE, PLAIN_GROUP_BY, PATHWAY, PATHWAY_PYTHON)
"""Write the last total of a batch, not one per edit."""

_EDITS, _KILL_EDITS = 4_000_000, 500_000
_EPOCHS = 4
"""That all edits make, where a program has epochs. The other programs take a checkpoint every
five seconds, which is about as often on a machine that does 200,000 edits per second."""
_USERS = 160_000
_FLINK_PER_SECOND = 78_000.0
"""What Flink did on the machine that the bar was measured on."""


@dataclass(frozen=True)
class _Input:
    """A topic of edits, and the truth about it."""

    topic: str
    edits: int
    truth: Path


def _inputs(work: Work) -> tuple[_Input, _Input]:
    folder = work.folder / "inputs" / "kafka"

    def described(topic: str, edits: int) -> _Input:
        return _Input(topic, work.scaled(edits, at_least=1000), folder / f"{topic}.parquet")

    return described("edits", _EDITS), described("edits-kill", _KILL_EDITS)


def _plan(work: Work) -> list[Row]:
    whole, part = _inputs(work)
    names = [EXACTLY_ONCE, AT_LEAST_ONCE, AGGREGATE, PLAIN_GROUP_BY, *_peers(work)]
    return [
        *(_row(work, name, whole, killed=False) for name in names),
        # It is slow: fewer edits show its rate, and its kill would show what groupBy's does.
        _row(work, PLAIN_TWS, part, killed=False),
        *(_row(work, name, part, killed=True) for name in names),
    ]


def _peers(work: Work) -> list[str]:
    place = work.kafka
    return [name for name in _PEERS if place and name in place.peers]


def _row(work: Work, name: str, edits: _Input, *, killed: bool) -> Row:
    place = work.kafka
    assert place is not None
    slug = "".join(each if each.isalnum() else "-" for each in name.lower())
    target = f"{slug}-{'killed' if killed else 'whole'}"
    per_epoch = edits.edits // _EPOCHS
    program = _program(work, name, edits.topic, target, per_epoch)
    watch = (
        *("-m", "holdfast.bench.kafka_watch", "--servers", place.address),
        *("--topic", target, "--truth", str(edits.truth)),
        # Of programs that write totals only, a topic never holds as many rows as edits.
        *(("--kill-at", str(edits.edits // (20 if name in _FOLDING else 3))) if killed else ()),
        "--",
    )
    return Row(
        name=name,
        program=replace(program, python=sys.executable, arguments=(*watch, *program.command)),
        batch=per_epoch,
        source=edits.truth,
        kind="killed" if killed else "",
    )


def _program(work: Work, name: str, source: str, target: str, per_epoch: int) -> Program:
    place = work.kafka
    assert place is not None
    folder = work.folder / "runs" / "kafka" / target
    if name in place.peers:
        executable, *arguments = place.peers[name]
        state = folder / "state"
        return Program(
            python=executable,
            arguments=(*arguments, place.address, source, target, str(state)),
            folder=folder,
            checkpoint=state,
        )
    if name in (PLAIN_TWS, PLAIN_GROUP_BY):
        query = "transform-with-state" if name == PLAIN_TWS else "group-by"
        return Program(
            arguments=(
                *("-m", "holdfast.bench.plain_kafka", query, "--servers", place.address),
                *("--source", source, "--target", target, "--per-epoch", str(per_epoch)),
                *("--checkpoint", str(folder / "checkpoint")),
                *("--jars", place.jars, "--packages", place.packages),
            ),
            folder=folder,
            checkpoint=folder / "checkpoint",
        )
    program = programs.holdfast(
        _JOBS[name],
        folder,
        source=Path(source),
        files_per_epoch=per_epoch,
        settings={"kafka_jars": place.jars, "kafka_packages": place.packages},
    )
    return replace(
        program,
        environment={
            **program.environment,
            programs.OUT_VARIABLE: target,
            programs.SERVERS_VARIABLE: place.address,
        },
    )


# -- the broker and its topics --------------------------------------------------------------


def _broker(work: Work) -> LocalBroker:
    return LocalBroker(work.folder / "kafka", cache=work.kafka.cache if work.kafka else None)


def _prepare(work: Work) -> None:
    place = work.kafka
    assert place is not None
    _broker(work).up(port=place.port, busy=True)
    access = KafkaAccess(servers=place.address)
    # A row's time is when it came to the broker, whoever has written it.
    stamped = {"message.timestamp.type": "LogAppendTime"}
    rows = SECTION.wanted(work)
    KafkaAdmin(access).create(
        NewTopic(name=_target_of(row), partitions=2, config=stamped) for row in rows
    )
    read = [each for each in _inputs(work) if each.truth in {row.source for row in rows}]
    _fill(read, access, work.scaled(_USERS, at_least=10))


def _target_of(row: Row) -> str:
    return row.program.folder.name


def _fill(inputs: Sequence[_Input], access: KafkaAccess, users: int) -> None:
    """All in one pass: to make an edit takes longer than to send it."""
    KafkaAdmin(access).create(NewTopic(name=each.topic, partitions=2) for each in inputs)
    with ExitStack() as stack:
        topics = [
            (each, _Totals(), stack.enter_context(TopicProducer(access, each.topic)))
            for each in inputs
        ]
        most = max(each.edits for each in inputs)
        for at, edit in enumerate(islice(synthetic_edits(users=users, seed=1), most)):
            assert edit.user is not None
            value, key = edit.to_json().encode(), edit.user.encode()
            for each, totals, target in topics:
                if at < each.edits:
                    totals.add(edit.user, edit.diff)
                    target.send(value, key)
    for each, totals, _ in topics:
        totals.write(each.truth)


class _Totals:
    """What the last total of every user has to be."""

    def __init__(self) -> None:
        self._totals: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def add(self, user: str, diff: int) -> None:
        self._totals[user] = self._totals.get(user, 0) + diff
        self._counts[user] = self._counts.get(user, 0) + 1

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        columns = [list(self._totals), list(self._totals.values()), list(self._counts.values())]
        pq.write_table(pa.table(columns, names=["user", "total", "edits"]), file)


def _tear_down(work: Work) -> None:
    _broker(work).down()


def installed_peers(python: Path) -> dict[str, tuple[str, ...]]:
    """Which of the other libraries an interpreter has; by name, what runs them."""
    question = (
        "import importlib.util, json, sys; "
        "print(json.dumps([bool(importlib.util.find_spec(m)) for m in sys.argv[1:]]))"
    )
    modules = [module for module, *_ in _PYTHON_PEERS.values()]
    ran = subprocess.run(
        [str(python), "-c", question, *modules],
        capture_output=True,
        text=True,
        check=True,
    )
    scripts = Path(__file__).parent / "peers"
    return {
        name: (str(python), str(scripts / script), *how)
        for (name, (_, script, *how)), has in zip(
            _PYTHON_PEERS.items(), json.loads(ran.stdout), strict=True
        )
        if has
    }


def flink_peer(folder: Path) -> dict[str, tuple[str, ...]]:
    """What runs Flink's program, from a folder with its `classes` and `jars`."""
    if not (folder / "classes" / "FlinkTotals.class").exists():
        raise UsageError(
            "FLINK_NOT_FOUND",
            f"--flink names {folder}, which has no classes/FlinkTotals.class.",
            fix="make bench-kafka builds it; or leave --flink out.",
        )
    path = f"{folder / 'classes'}:{folder / 'jars'}/*"
    return {FLINK: ("java", f"-Xmx{HEAP_BYTES // 1024**2}m", "-cp", path, "FlinkTotals")}


# -- figures --------------------------------------------------------------------------------


def _summarise(results: Sequence[Result]) -> Summary:
    rows = [_figures(result) for result in results if not result.row.kind]
    killed = {result.row.name: _figures(result) for result in results if result.row.kind}
    base = report.find(rows, "steady_per_second", name=EXACTLY_ONCE)
    for row in rows:
        row["to_exactly_once"] = report.ratio(row["steady_per_second"], base)
        after = killed.get(row["name"], {})
        row["exact_after_kill"] = after.get("exact")
        row["surplus_after_kill"] = after.get("surplus")
        row["first_after_kill"] = after.get("first_after_kill")
        row["failed"] = row["failed"] or after.get("failed")
    return {"rows": rows, "bars": [bar.to_dict() for bar in _bars(rows)]}


def _figures(result: Result) -> dict[str, Any]:
    found: Mapping[str, Any] = {}
    if result.run:
        found = next((each for each in result.run.events if each["event"] == OUTPUT), {})
    folds = result.row.name in _FOLDING
    return result.common() | {
        "rows": found.get("rows"),
        "early_per_second": found.get("early_per_second"),
        "steady_per_second": found.get("steady_per_second"),
        "exact": found.get("exact"),
        "surplus": None if folds else found.get("surplus"),
        "first_after_kill": found.get("first_after_kill"),
    }


def _bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    own = report.find(rows, "steady_per_second", name=EXACTLY_ONCE)
    bars = [
        Bar(
            what=f"{EXACTLY_ONCE}, against {peer}",
            bar=1.0,
            measured=report.ratio(own, report.find(rows, "steady_per_second", name=peer)),
        )
        for peer in _PEERS
        if any(row["name"] == peer for row in rows)
    ]
    elsewhere = Bar(
        what=f"{EXACTLY_ONCE}, against {_FLINK_PER_SECOND:,.0f} per second",
        bar=1.0,
        measured=report.ratio(own, _FLINK_PER_SECOND),
    )
    return [*bars, elsewhere]


SECTION = Section(
    name="kafka",
    plan=_plan,
    prepare=_prepare,
    tear_down=_tear_down,
    summarise=_summarise,
    on_request=True,
)
