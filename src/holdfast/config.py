"""Frozen settings of a job and of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import JobDefinitionError, SettingsError, shorten
from holdfast.types import parse_duration, parse_size

Backend = Literal["heap", "rocksdb", "memory"]
Mode = Literal["exactly_once", "at_least_once", "none"]
Latency = Literal["epoch", "real_time"]
Duration = str | timedelta | float

_NOT_YET = "leave it out; this version does not have it."


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How a job checkpoints. An epoch is a Spark micro-batch; each one is a checkpoint.

    What this version cannot honour is refused with the reason, never ignored.
    """

    interval: Duration = "10 s"
    """Time from the start of one epoch to the start of the next."""
    min_pause: Duration = 0
    timeout: Duration | None = None
    """Longest time that an epoch may take; then its driver is killed and the epoch repeated."""
    tolerable_failures: int = 0
    """Epochs in a row that may exceed `timeout` before it counts as a failure."""
    retained: int = 100
    """Epochs that can be gone back to."""
    on_cancel: Literal["retain", "delete"] = "retain"
    """What `holdfast cancel` does with the checkpoint."""
    incremental: bool = True
    """Write what changed (RocksDB changelog) instead of a full snapshot per epoch."""
    backend: Backend = "heap"
    savepoint_every: Duration | None = None
    """Take a savepoint by itself, so often."""
    savepoints_kept: int = 3
    """How many of those are kept."""
    mode: Mode = "exactly_once"
    """With "none", every attempt starts from scratch, as a job without checkpoints does."""
    latency: Latency = "epoch"
    """With "real_time", rows are written when they come, in milliseconds, and not at the end of
    an epoch: Spark's real-time mode, for at least once from Kafka to Kafka."""

    def __post_init__(self) -> None:
        parse_duration(self.interval, "checkpoint interval")
        if self.timeout is not None:
            parse_duration(self.timeout, "checkpoint timeout")
        if self.savepoint_every is not None:
            parse_duration(self.savepoint_every, "savepoint_every")
        if not isinstance(self.savepoints_kept, int) or self.savepoints_kept < 1:
            raise SettingsError(
                "INVALID_CHECKPOINT_CONFIG",
                f"checkpoint savepoints_kept={self.savepoints_kept!r}.",
                fix="use a whole number, 1 or more; the newest ones are kept.",
            )
        if not isinstance(self.tolerable_failures, int) or self.tolerable_failures < 0:
            raise SettingsError(
                "INVALID_CHECKPOINT_CONFIG",
                f"checkpoint tolerable_failures={self.tolerable_failures!r}.",
                fix="use a whole number: how many epochs in a row may exceed `timeout`.",
            )
        _one_of("backend", self.backend, ("heap", "rocksdb", "memory"))
        _one_of("mode", self.mode, ("exactly_once", "at_least_once", "none"))
        _one_of("latency", self.latency, ("epoch", "real_time"))
        _one_of("on_cancel", self.on_cancel, ("retain", "delete"))
        if not isinstance(self.retained, int) or self.retained < 2:
            raise SettingsError(
                "INVALID_CHECKPOINT_CONFIG",
                f"checkpoint retained={self.retained!r}: Spark needs at least the last 2.",
                fix="use retained=2 or more (the default is 100).",
            )
        for name, wanted, reason in (
            (
                "min_pause",
                0,
                "Spark starts an epoch at the interval, or at once when it is late",
            ),
        ):
            if getattr(self, name) != wanted:
                raise JobDefinitionError(
                    "NOT_SUPPORTED",
                    f"checkpoint {name}={getattr(self, name)!r} cannot be honoured: {reason}.",
                    fix=_NOT_YET,
                )

    @property
    def interval_seconds(self) -> float:
        return parse_duration(self.interval).total_seconds()


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """What a run needs to know about its surroundings; made from the settings."""

    storage: Path
    """Where the directories of jobs live."""
    master: str = "local[*]"
    conf_dir: str | None = None
    """Spark's configuration directory, for a master that has one with a secret in it."""
    driver_memory: str = "2g"
    heap_limit: str | int = "1 GiB"
    """Decoded state that one Python worker may hold."""
    rocksdb_memory: str | int = "512 MiB"
    """Memory of all RocksDB instances of an executor: block cache and write buffers."""
    log_level: str = "WARN"
    cache: str | None = None
    """Where to keep what makes the next start faster; None: nowhere."""
    kafka_packages: str = ""
    """Maven coordinates of Spark's Kafka connector, for jobs that use it."""
    kafka_jars: str = ""
    """Instead: jar files, or a directory of them."""
    spark: Mapping[str, Any] = field(default_factory=dict)
    """Extra Spark configuration; wins over ours."""

    @property
    def heap_limit_bytes(self) -> int:
        return parse_size(self.heap_limit, "heap_limit")

    @property
    def rocksdb_memory_bytes(self) -> int:
        return parse_size(self.rocksdb_memory, "rocksdb_memory")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingsError(
            "INVALID_CHECKPOINT_CONFIG",
            f"checkpoint {name} is {shorten(value)}.",
            fix=f"use one of {', '.join(map(repr, allowed))}.",
        )
