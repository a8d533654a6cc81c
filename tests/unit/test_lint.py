"""Each rule fires on a bad job, and stays silent on a good one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

import holdfast as hf
from holdfast.control import lint as rules
from holdfast.control.growth import Growth
from holdfast.control.lint import RULES, Finding, JobFacts, Severity, lint, patience
from holdfast.control.trace import Trace, TracedStep, TracedWatermark
from holdfast.errors import JobDefinitionError

DOCS = Path(__file__).parents[2] / "docs"
GIB = 1024**3


@dataclass(frozen=True)
class Socket(hf.sources.Source):
    """Cannot be read again."""

    replayable: ClassVar[bool] = False


LOG = hf.sources.FileLog(
    "log", schema="user string", max_segments_per_epoch=5, on_bad_record="side"
)
OUT = hf.sinks.Files("out")
STEP = TracedStep(uid="totals", kind="process", forgets=True)
MARK = TracedWatermark(column="ts", delay=timedelta(seconds=10), place="app.py:7")
GROWN = Growth(
    step="totals",
    rows=10,
    bytes=GIB // 2,
    rows_per_hour=0,
    bytes_per_hour=0,
    hours_to_limit=None,
)
GOOD = JobFacts(
    name="good",
    checkpoint=hf.CheckpointConfig(timeout="10 min"),
    restart=hf.ExponentialDelay(),
    trace=Trace(sources={"in": LOG}, sinks={"out": OUT}, steps=(STEP,), watermarks=(MARK,)),
    parallelism=2,
    parallelism_declared=True,
    key_groups=64,
    master="local[2]",
    cores=2,
    heap_limit=GIB,
    memory=8 * GIB,
    driver_memory=2 * GIB,
    growth=(GROWN,),
)


def facts(**changes: Any) -> JobFacts:
    """The good job, with something changed; changes of the trace are taken by name."""
    fields = set(Trace.__dataclass_fields__)
    traced = replace(GOOD.trace, **{k: v for k, v in changes.items() if k in fields})
    rest = {k: v for k, v in changes.items() if k not in fields}
    return replace(GOOD, trace=traced, **rest)


def source(**options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"max_segments_per_epoch": 5, "on_bad_record": "side"} | options
    return {"sources": {"in": hf.sources.FileLog("log", schema="user string", **given)}}


def checkpoint(**options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"timeout": "10 min"} | options
    return {"checkpoint": hf.CheckpointConfig(**given)}


NEVER = replace(STEP, forgets=False)
BAD: list[tuple[str, Severity, dict[str, Any]]] = [
    (
        "DUPLICATE_UID",
        Severity.ERROR,
        {"refused": JobDefinitionError("DUPLICATE_UID", "twice.", fix="rename.")},
    ),
    ("PIPELINE_NOT_FOLLOWED", Severity.WARNING, {"lost_at": "KeyError: 'x' at app.py:3"}),
    ("SINK_MISSING", Severity.ERROR, {"sinks": {}}),
    ("GUARANTEE_WEAK", Severity.ERROR, {"sources": {"in": Socket()}}),
    (
        "GUARANTEE_WEAK",
        Severity.WARNING,
        {"sources": {"in": Socket()}, **checkpoint(mode="at_least_once")},
    ),
    ("GUARANTEE_WEAK", Severity.WARNING, checkpoint(mode="none")),
    ("SINK_KEEPS_NOTHING", Severity.WARNING, {"sinks": {"out": hf.sinks.Console()}}),
    ("SINK_KEEPS_NOTHING", Severity.WARNING, {"sinks": {"o": OUT, "m": hf.sinks.Memory("m")}}),
    (
        "SOURCE_ENDS",
        Severity.WARNING,
        {"sources": {"in": hf.sources.Collection([("a",)], "user string")}},
    ),
    ("EPOCH_WITHOUT_LIMIT", Severity.INFO, source(max_segments_per_epoch=None)),
    ("BAD_RECORD_STOPS_JOB", Severity.INFO, source(on_bad_record="fail")),
    (
        "WATERMARK_DELAY_ZERO",
        Severity.WARNING,
        {"watermarks": (replace(MARK, delay=timedelta(0)),)},
    ),
    ("STATE_UNBOUNDED", Severity.WARNING, {"steps": (NEVER,)}),
    ("STATE_UNBOUNDED", Severity.WARNING, {"steps": (replace(NEVER, kind="native"),)}),
    ("HEAP_NEARLY_FULL", Severity.WARNING, {"growth": (replace(GROWN, bytes=2 * GIB),)}),
    ("HEAP_NEARLY_FULL", Severity.WARNING, {"growth": (replace(GROWN, hours_to_limit=3.0),)}),
    ("MEMORY_OVERCOMMITTED", Severity.WARNING, {"memory": 3 * GIB}),
    ("STORAGE_TEMPORARY", Severity.WARNING, {"storage_is_temporary": True}),
    ("PARALLELISM_ABOVE_KEY_GROUPS", Severity.ERROR, {"parallelism": 8, "key_groups": 4}),
    ("PARALLELISM_ABOVE_CORES", Severity.WARNING, {"parallelism": 200, "key_groups": 2048}),
    (
        "PARALLELISM_NOT_DECLARED",
        Severity.WARNING,
        {"master": "spark://host:7077", "cores": None, "parallelism_declared": False},
    ),
    ("SHUFFLE_PARTITIONS_SET", Severity.WARNING, {"shuffle_partitions": "200"}),
    (
        "INTERVAL_ABOVE_RESTARTS",
        Severity.WARNING,
        {"restart": hf.FixedDelay(attempts=3, delay="20 s"), **checkpoint(interval="5 min")},
    ),
    ("RETENTION_SHORT", Severity.WARNING, checkpoint(retained=3)),
    ("RETENTION_SHORT", Severity.WARNING, checkpoint(retained=50, interval="100 ms")),
    ("EPOCH_WITHOUT_TIMEOUT", Severity.INFO, checkpoint(timeout=None)),
    ("CANCEL_DELETES_STATE", Severity.WARNING, checkpoint(on_cancel="delete")),
    ("NOBODY_IS_TOLD", Severity.INFO, {"tells_when_failed": False}),
    ("NO_RESTART", Severity.WARNING, {"restart": hf.NoRestart()}),
    (
        "RESTARTS_FEW",
        Severity.WARNING,
        {"restart": hf.FixedDelay(attempts=2, delay="10 s")},
    ),
    (
        "RESTARTS_FEW",
        Severity.WARNING,
        {"restart": hf.FailureRate(max_failures=1, per="5 min", delay="10 s")},
    ),
    ("RESTARTS_NOT_RENEWED", Severity.INFO, {"restart": hf.FixedDelay(delay="1 min")}),
    (
        "RETRIES_CANNOT_HEAL",
        Severity.WARNING,
        {"restart": hf.ExponentialDelay(also_retry=("code", "hung"))},
    ),
]


def test_the_good_job_is_good() -> None:
    assert lint(GOOD) == []


@pytest.mark.parametrize(("name", "severity", "changes"), BAD, ids=[name for name, *_ in BAD])
def test_a_bad_job_is_found(name: str, severity: Severity, changes: dict[str, Any]) -> None:
    found = {finding.name: finding for finding in lint(facts(**changes))}
    assert name in found
    finding = found[name]
    assert finding.severity is severity
    assert finding.text.endswith(".") and finding.fix.endswith((".", "…"))
    # Besides it, only what follows from the same change.
    assert set(found) - {name} <= {
        "RESTARTS_NOT_RENEWED", "BAD_RECORD_STOPS_JOB", "EPOCH_WITHOUT_LIMIT"
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": ()},
        {"growth": ()},
        {"memory": None},
        {"memory": 1, "steps": (replace(STEP, kind="native"),)},
        {"memory": 1, **checkpoint(backend="rocksdb")},
        {"growth": (replace(GROWN, bytes=9 * GIB),), **checkpoint(backend="rocksdb")},
        {"growth": (replace(GROWN, hours_to_limit=300.0),)},
        {"parallelism": 8},
        {"parallelism": 200, "key_groups": 2048, "master": "yarn", "cores": None},
        {"parallelism_declared": False},
        {"shuffle_partitions": "2"},
        {"restart": hf.FailureRate(max_failures=3, per="5 min", delay="10 s")},
        {"restart": hf.FailureRate(max_failures=100, per="1 min", delay="1 s")},
        {"restart": hf.ExponentialDelay(also_retry=("hung",)), **checkpoint(interval="1 h")},
        checkpoint(retained=100, interval="1 s"),
        {"sources": {"in": hf.sources.Files("in", "parquet", "a int", max_files_per_epoch=1)}},
    ],
)
def test_what_is_fine(changes: dict[str, Any]) -> None:
    assert lint(facts(**changes)) == []


def test_the_worst_comes_first() -> None:
    found = lint(facts(restart=hf.FixedDelay(), sinks={}, steps=(NEVER,)))
    assert [finding.severity for finding in found] == [
        Severity.ERROR,
        Severity.WARNING,
        Severity.INFO,
    ]


def test_patience() -> None:
    assert patience(hf.NoRestart()) == timedelta(0)
    assert patience(hf.FixedDelay(attempts=3, delay="10 s")) == timedelta(seconds=30)
    assert patience(hf.FailureRate(max_failures=3, per="5 min", delay="10 s")) == timedelta(
        seconds=30
    )
    assert patience(hf.FailureRate(max_failures=6, per="1 min", delay="10 s")) is None
    assert patience(hf.ExponentialDelay()) is None


# -- documentation ----------------------------------------------------------------------


def all_findings() -> list[Finding]:
    return [finding for _, _, changes in BAD for finding in lint(facts(**changes))]


def test_every_rule_has_a_bad_job() -> None:
    fired = {rule for rule in RULES for _, _, changes in BAD if list(rule(facts(**changes)))}
    assert fired == set(RULES)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    for finding in all_findings():
        path, _, anchor = finding.docs.partition("#")
        assert (DOCS / path).is_file(), finding
        assert not anchor or anchor in anchors(DOCS / path), finding


def test_every_finding_is_described_and_exists() -> None:
    page = (DOCS / "guide" / "check.md").read_text("utf-8")
    described = dict(re.findall(r"^\| `([A-Z_]+)` \| ([a-z, ]+) \|", page, re.M))
    found: dict[str, set[str]] = {}
    for finding in all_findings():
        if finding.name != "DUPLICATE_UID":  # stands for all that is refused at the start
            found.setdefault(finding.name, set()).add(str(finding.severity))
    assert {name: set(text.split(", ")) for name, text in described.items()} == found


def test_the_limits_on_the_page_are_the_limits() -> None:
    page = (DOCS / "guide" / "check.md").read_text("utf-8")
    assert f"{rules.HEAP_NEARLY_FULL:.0%}".replace("%", " %") in page
    assert f"within {rules.SOON_HOURS:g} hours" in page
    assert f"More than {rules.PARTITIONS_PER_CORE} partitions per core" in page
    assert f"Fewer than {rules.FEW_EPOCHS} epochs" in page
    assert f"within {rules.TINY_BUDGET.total_seconds():g} seconds" in page
