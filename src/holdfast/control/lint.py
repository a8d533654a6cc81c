"""What hurts in production, found in a job's declaration. Pure.

A rule is a function from the facts about a job to what it finds. None of them starts, reads or
writes anything; :mod:`holdfast.control.check` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from holdfast.config import CheckpointConfig
from holdfast.control.growth import Growth
from holdfast.control.trace import Trace
from holdfast.failure import FailureClass
from holdfast.guarantees import Guarantee, end_to_end
from holdfast.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from holdfast.sinks.base import Delivery
from holdfast.sources.collection import Collection
from holdfast.types import parse_duration

TINY_BUDGET = timedelta(seconds=30)
"""Most systems that a job depends on take longer than this to restart."""
FEW_EPOCHS = 10
SHORT_RETENTION = timedelta(minutes=1)
PARTITIONS_PER_CORE = 4
HEAP_NEARLY_FULL = 0.8
SOON_HOURS = 24.0


class Severity(StrEnum):
    ERROR = "error"
    """The job will not start, or not do what it says."""
    WARNING = "warning"
    """It runs, and will hurt some day."""
    INFO = "info"
    """Good to know, and often meant so."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one rule found."""

    name: str
    severity: Severity
    text: str
    fix: str
    docs: str
    """A page of the documentation, and the place in it."""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """All that the rules look at."""

    name: str
    checkpoint: CheckpointConfig
    restart: RestartStrategy
    trace: Trace
    parallelism: int
    parallelism_declared: bool
    key_groups: int
    master: str
    cores: int | None
    """Of the master; None if nobody knows before it is asked."""
    heap_limit: int
    """Bytes of decoded state that one Python worker may hold."""
    memory: int | None = None
    """Bytes of this machine, for a master that lives on it."""
    driver_memory: int = 0
    growth: tuple[Growth, ...] = field(default_factory=tuple)
    """Of the job's steps in its last epochs, if it has run before."""
    shuffle_partitions: str | None = None
    """What the settings say for Spark, if they do."""
    storage_is_temporary: bool = False
    tells_when_failed: bool = True
    """Whether `on_failed` names somebody."""

    @property
    def guarantee(self) -> Guarantee:
        return end_to_end(self.trace.sources, self.trace.sinks, self.checkpoint)


Rule = Callable[[JobFacts], Iterator[Finding]]
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    RULES.append(function)
    return function


def lint(facts: JobFacts) -> list[Finding]:
    """All findings, the worst first."""
    found = [finding for each in RULES for finding in each(facts)]
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def patience(strategy: RestartStrategy) -> timedelta | None:
    """How long a strategy goes on trying when every attempt fails at once; None: for ever."""
    if isinstance(strategy, FixedDelay):
        return strategy.attempts * parse_duration(strategy.delay)
    if isinstance(strategy, FailureRate):
        tried = strategy.max_failures * parse_duration(strategy.delay)
        return None if tried >= parse_duration(strategy.per) else tried
    return None if isinstance(strategy, ExponentialDelay) else timedelta(0)


# -- the pipeline -----------------------------------------------------------------------


@rule
def refused(facts: JobFacts) -> Iterator[Finding]:
    error = facts.trace.refused
    if error is not None:
        yield Finding(
            name=error.name,
            severity=Severity.ERROR,
            text=f"the job would not start: {error.message}",
            fix=error.fix,
            docs="reference/errors.md#the-job-is-wrong-as-written",
        )


@rule
def not_followed(facts: JobFacts) -> Iterator[Finding]:
    if facts.trace.lost_at:
        yield Finding(
            name="PIPELINE_NOT_FOLLOWED",
            severity=Severity.WARNING,
            text="the pipeline does something that cannot be followed without Spark "
            f"({facts.trace.lost_at}); what comes after it was not checked.",
            fix="keep actions (count, collect, schema) out of the pipeline function.",
            docs="guide/check.md#how-it-looks-at-a-job",
        )


@rule
def sink_missing(facts: JobFacts) -> Iterator[Finding]:
    if facts.trace.complete and not facts.trace.sinks:
        yield Finding(
            name="SINK_MISSING",
            severity=Severity.ERROR,
            text="the job has no sink: it would compute and throw away.",
            fix='end the pipeline with flow.sink("out", frame, hf.sinks.…).',
            docs="guide/sinks.md",
        )


@rule
def guarantee_weak(facts: JobFacts) -> Iterator[Finding]:
    weak = facts.guarantee.weak_links
    if weak:
        refused = facts.checkpoint.mode == "exactly_once"
        yield Finding(
            name="GUARANTEE_WEAK",
            severity=Severity.ERROR if refused else Severity.WARNING,
            text=f"the guarantee from end to end is {facts.guarantee.level!r}: "
            f"{'; '.join(weak)}."
            + (" It asks for exactly once, and would not start." if refused else ""),
            fix="replace the named part"
            + (', or say CheckpointConfig(mode="at_least_once").' if refused else ".")
            if facts.checkpoint.mode != "none"
            else 'leave mode="none" out, unless it is meant so.',
            docs="guide/guarantees.md#how-it-is-computed",
        )


@rule
def sink_for_development(facts: JobFacts) -> Iterator[Finding]:
    sinks = facts.trace.sinks
    shows = [uid for uid, sink in sinks.items() if sink.delivery is Delivery.OBSERVER]
    for uid in shows:
        alone = len(shows) == len(sinks)
        yield Finding(
            name="SINK_KEEPS_NOTHING",
            severity=Severity.WARNING,
            text=f"sink {uid!r} ({sinks[uid].describe()}) shows rows and keeps none"
            + ("; no sink of the job keeps any." if alone else "."),
            fix="write to hf.sinks.Files in production.",
            docs="guide/sinks.md#console",
        )


@rule
def source_for_development(facts: JobFacts) -> Iterator[Finding]:
    for uid, source in facts.trace.sources.items():
        if isinstance(source, Collection):
            yield Finding(
                name="SOURCE_ENDS",
                severity=Severity.WARNING,
                text=f"source {uid!r} ({source.describe()}) holds rows of the program, and "
                "gets no new ones.",
                fix="read hf.sources.Files or FileLog in production.",
                docs="guide/sources.md#collection",
            )


@rule
def epoch_unbounded(facts: JobFacts) -> Iterator[Finding]:
    for uid, source in facts.trace.sources.items():
        limits = [name for name in vars(source) if name.endswith("_per_epoch")]
        if isinstance(source, Collection) or not limits:
            continue
        if all(getattr(source, name) is None for name in limits):
            yield Finding(
                name="EPOCH_WITHOUT_LIMIT",
                severity=Severity.INFO,
                text=f"source {uid!r} has no {limits[0]}: the first epoch after a pause reads "
                "all that has piled up, at once.",
                fix=f"give it {limits[0]}=… so that the job catches up in steps.",
                docs="guide/sources.md",
            )


@rule
def bad_record_stops(facts: JobFacts) -> Iterator[Finding]:
    for uid, source in facts.trace.sources.items():
        is_text = getattr(source, "format", "json") != "parquet"
        if is_text and getattr(source, "on_bad_record", "") == "fail":
            yield Finding(
                name="BAD_RECORD_STOPS_JOB",
                severity=Severity.INFO,
                text=f"source {uid!r}: one record that does not parse ends the job, and no "
                "restart helps.",
                fix='keep bad records with on_bad_record="side", or leave this on purpose.',
                docs="guide/sources.md#bad-records",
            )


@rule
def watermark_without_delay(facts: JobFacts) -> Iterator[Finding]:
    for watermark in facts.trace.watermarks:
        if watermark.delay <= timedelta(0):
            yield Finding(
                name="WATERMARK_DELAY_ZERO",
                severity=Severity.WARNING,
                text=f"the watermark on {watermark.column!r} has no delay "
                f"({watermark.place}): every record that comes out of order is late.",
                fix='allow for disorder: flow.watermark(frame, "ts", delay="10 s").',
                docs="guide/event-time.md#watermark",
            )


# -- state ------------------------------------------------------------------------------


@rule
def state_unbounded(facts: JobFacts) -> Iterator[Finding]:
    for step in facts.trace.steps:
        if step.forgets:
            continue
        native = step.kind == "native"
        yield Finding(
            name="STATE_UNBOUNDED",
            severity=Severity.WARNING,
            text=f"step {step.uid!r} keeps every key that it has ever seen: it has "
            + ("no window of event time." if native else "no TTL, no timers and no window."),
            fix="aggregate over windows: keyed.window(…).aggregate(…)."
            if native
            else 'give its state a TTL (ttl="7 d"), clear it in on_timer, or use windows. If '
            "the keys are few and stay few, leave it.",
            docs="guide/native.md" if native else "guide/state.md#ttl",
        )


@rule
def heap_nearly_full(facts: JobFacts) -> Iterator[Finding]:
    if facts.checkpoint.backend != "heap" or not facts.growth:
        return
    limit = facts.heap_limit * facts.parallelism
    held = sum(step.bytes for step in facts.growth)
    hours = [step.hours_to_limit for step in facts.growth if step.hours_to_limit is not None]
    soon = min(hours, default=None)
    share = held / limit
    if share >= HEAP_NEARLY_FULL or (soon is not None and soon < SOON_HOURS):
        when = "" if soon is None else f", and will reach it in {soon:,.1f} h"
        yield Finding(
            name="HEAP_NEARLY_FULL",
            severity=Severity.WARNING,
            text=f"in its last epochs the job kept {share:.0%} of what heap_limit lets "
            f"{facts.parallelism} workers hold{when}. Past it, state is dropped from memory "
            "and loaded again, which is slow.",
            fix="raise heap_limit, let state expire (TTL), or make the job anew with "
            'backend="rocksdb".',
            docs="guide/backends.md#heap",
        )


@rule
def memory_overcommitted(facts: JobFacts) -> Iterator[Finding]:
    if facts.checkpoint.backend != "heap" or facts.memory is None or facts.cores is None:
        return
    if not any(step.kind != "native" for step in facts.trace.steps):
        return
    wanted = facts.cores * facts.heap_limit + facts.driver_memory
    if wanted > facts.memory:
        yield Finding(
            name="MEMORY_OVERCOMMITTED",
            severity=Severity.WARNING,
            text=f"{facts.cores} Python workers may hold {_gib(facts.heap_limit)} each, and "
            f"the JVM {_gib(facts.driver_memory)}: {_gib(wanted)} on a machine with "
            f"{_gib(facts.memory)}. The kernel would kill one of them.",
            fix="lower heap_limit or driver_memory, or use fewer cores: --master local[N].",
            docs="guide/state.md#memory",
        )


@rule
def storage_temporary(facts: JobFacts) -> Iterator[Finding]:
    if facts.storage_is_temporary:
        yield Finding(
            name="STORAGE_TEMPORARY",
            severity=Severity.WARNING,
            text="state is kept below the system's directory for temporary files, which is "
            "emptied some day.",
            fix="set HOLDFAST_HOME or HOLDFAST_STORAGE to a directory that lasts.",
            docs="reference/settings.md#all-settings",
        )


# -- parallelism ------------------------------------------------------------------------


@rule
def parallelism_above_key_groups(facts: JobFacts) -> Iterator[Finding]:
    if facts.parallelism > facts.key_groups:
        yield Finding(
            name="PARALLELISM_ABOVE_KEY_GROUPS",
            severity=Severity.ERROR,
            text=f"parallelism {facts.parallelism} exceeds {facts.key_groups} key groups; the "
            "job would not start.",
            fix="raise key_groups or lower the parallelism.",
            docs="guide/jobs.md#parallelism-and-key-groups",
        )


@rule
def parallelism_above_cores(facts: JobFacts) -> Iterator[Finding]:
    cores = facts.cores
    if cores is not None and facts.parallelism > PARTITIONS_PER_CORE * cores:
        yield Finding(
            name="PARALLELISM_ABOVE_CORES",
            severity=Severity.WARNING,
            text=f"parallelism {facts.parallelism} on {cores} core{'s' * (cores != 1)} "
            f"({facts.master}): every epoch starts a task and opens a state store for each of "
            "them, which costs more than its records.",
            fix=f"use parallelism={cores} to {PARTITIONS_PER_CORE * cores}; key_groups is what "
            "leaves room for growth.",
            docs="guide/jobs.md#parallelism-and-key-groups",
        )


@rule
def parallelism_of_driver(facts: JobFacts) -> Iterator[Finding]:
    if not facts.parallelism_declared and not facts.master.startswith("local"):
        yield Finding(
            name="PARALLELISM_NOT_DECLARED",
            severity=Severity.WARNING,
            text=f"parallelism is not given, so it is the number of cores of the driver's "
            f"machine ({facts.parallelism}), whatever {facts.master} has; it is fixed at the "
            "first start.",
            fix="give the job parallelism=…, about the number of cores of the cluster.",
            docs="guide/jobs.md#parallelism-and-key-groups",
        )


@rule
def shuffle_partitions_set(facts: JobFacts) -> Iterator[Finding]:
    given = facts.shuffle_partitions
    if given is not None and given != str(facts.parallelism):
        yield Finding(
            name="SHUFFLE_PARTITIONS_SET",
            severity=Severity.WARNING,
            text=f"the settings say spark.sql.shuffle.partitions={given}, which wins over the "
            f"parallelism of the job ({facts.parallelism}).",
            fix="take it out of the settings, and give the job parallelism=….",
            docs="guide/jobs.md#parallelism-and-key-groups",
        )


# -- checkpoints and restarts -----------------------------------------------------------


@rule
def interval_above_restarts(facts: JobFacts) -> Iterator[Finding]:
    budget = patience(facts.restart)
    interval = timedelta(seconds=facts.checkpoint.interval_seconds)
    if not isinstance(facts.restart, NoRestart) and budget is not None and interval > budget:
        yield Finding(
            name="INTERVAL_ABOVE_RESTARTS",
            severity=Severity.WARNING,
            text=f"an epoch begins every {_seconds(interval)}, but all restarts are used up "
            f"after {_seconds(budget)}: the job can be given up before it committed anything.",
            fix="shorten the interval, or restart for longer: hf.ExponentialDelay().",
            docs="guide/jobs.md#restart-strategies",
        )


@rule
def retention_short(facts: JobFacts) -> Iterator[Finding]:
    retained = facts.checkpoint.retained
    kept = timedelta(seconds=retained * facts.checkpoint.interval_seconds)
    if retained < FEW_EPOCHS or kept < SHORT_RETENTION:
        yield Finding(
            name="RETENTION_SHORT",
            severity=Severity.WARNING,
            text=f"the last {retained} epochs are kept, about {_seconds(kept)}: too little to "
            "go back after a mistake, and a savepoint of a running job may find its files "
            "gone.",
            fix=f"use retained=100; fewer will do from {FEW_EPOCHS} on, if they make "
            f"{_seconds(SHORT_RETENTION)} or more.",
            docs="guide/jobs.md#checkpoints",
        )


@rule
def epoch_without_timeout(facts: JobFacts) -> Iterator[Finding]:
    if facts.checkpoint.timeout is None:
        tolerated = facts.checkpoint.tolerable_failures
        yield Finding(
            name="EPOCH_WITHOUT_TIMEOUT",
            severity=Severity.INFO,
            text="an epoch that hangs in a call of yours hangs for ever: there is no timeout."
            + (f" tolerable_failures={tolerated} has no effect." if tolerated else ""),
            fix='give it CheckpointConfig(timeout="10 min"), well above its longest epoch.',
            docs="guide/jobs.md#checkpoints",
        )


@rule
def state_deleted_on_cancel(facts: JobFacts) -> Iterator[Finding]:
    if facts.checkpoint.on_cancel == "delete":
        yield Finding(
            name="CANCEL_DELETES_STATE",
            severity=Severity.WARNING,
            text='on_cancel="delete": `holdfast cancel` removes the state, and nothing brings '
            "it back.",
            fix='leave it out ("retain"), and remove the directory of the job by hand.',
            docs="guide/jobs.md#checkpoints",
        )


@rule
def nobody_told(facts: JobFacts) -> Iterator[Finding]:
    if not facts.tells_when_failed:
        yield Finding(
            name="NOBODY_IS_TOLD",
            severity=Severity.INFO,
            text="nobody is told when the job has failed for good.",
            fix="give the job on_failed=…, or have Prometheus watch it.",
            docs="guide/metrics.md#alerts",
        )


@rule
def restarts_few(facts: JobFacts) -> Iterator[Finding]:
    budget = patience(facts.restart)
    if isinstance(facts.restart, NoRestart):
        yield Finding(
            name="NO_RESTART",
            severity=Severity.WARNING,
            text="the first failure ends the job, also one that would heal by itself, such as "
            "a lost worker.",
            fix="give it restart=hf.ExponentialDelay().",
            docs="guide/jobs.md#restart-strategies",
        )
    elif budget is not None and budget < TINY_BUDGET:
        yield Finding(
            name="RESTARTS_FEW",
            severity=Severity.WARNING,
            text=f"all restarts are used up after {_seconds(budget)}: a dependency that is "
            "away for longer ends the job.",
            fix="restart for longer: hf.ExponentialDelay(), or a larger delay.",
            docs="guide/jobs.md#restart-strategies",
        )


@rule
def restarts_never_refill(facts: JobFacts) -> Iterator[Finding]:
    if isinstance(facts.restart, FixedDelay):
        yield Finding(
            name="RESTARTS_NOT_RENEWED",
            severity=Severity.INFO,
            text=f"FixedDelay counts its {facts.restart.attempts} restarts from the start by "
            "hand: a failure a month uses them up, too.",
            fix="use hf.FailureRate or hf.ExponentialDelay for a job that runs for long.",
            docs="guide/jobs.md#restart-strategies",
        )


@rule
def retries_what_cannot_heal(facts: JobFacts) -> Iterator[Finding]:
    hopeless = sorted(
        each for name in facts.restart.also_retry if not (each := FailureClass(name)).can_heal
    )
    if hopeless:
        yield Finding(
            name="RETRIES_CANNOT_HEAL",
            severity=Severity.WARNING,
            text=f"also_retry names {', '.join(hopeless)}: such a failure comes again with the "
            "same code and data, and only takes longer to be seen.",
            fix="take it out of also_retry.",
            docs="guide/jobs.md#restart-strategies",
        )


def _seconds(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min"


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"
