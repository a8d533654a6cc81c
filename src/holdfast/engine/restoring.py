"""Carries a restore plan out: a checkpoint of its own that fits the code, then the switch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import SparkSession

from holdfast.checkpoint.compatibility import (
    Code,
    Verdict,
    adopted,
    judge,
    require_restorable,
    stored_positions,
)
from holdfast.checkpoint.copies import Moved, copy_batch, unmoved
from holdfast.checkpoint.grafting import (
    Graft,
    graft,
    operator_name,
    operator_numbers,
    rename_operator,
)
from holdfast.checkpoint.identity import JobDirectory, JobIdentity
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.sizes import Sizes
from holdfast.checkpoint.spark_files import (
    batch_files,
    committed_batches,
    snapshot_entries,
    spark_source_name,
)
from holdfast.engine.planner import InitialState, StepSettings
from holdfast.engine.planting import BATCH, plant
from holdfast.engine.stored_state import (
    broadcast_state,
    initial_state,
    key_rows,
    live_keys,
)
from holdfast.errors import CorruptionError
from holdfast.faults import fault_point
from holdfast.job.job import Job
from holdfast.savepoint.canonical import CanonicalState
from holdfast.savepoint.store import delete_savepoint
from holdfast.sources import Collection
from holdfast.state.canonical import StoredStep
from holdfast.storage.files import remove_tree

_COLLECTED = re.compile(
    r"/(?P<file>collections/(?P<uid>[a-zA-Z0-9._-]+)/[0-9a-f]{16}/\d{6}\.parquet)$"
)
"""A file with rows of a Collection, in the directory of a job."""


_ROLLING, _AGGREGATION = "StatefulStreamlineAggregate", "stateStoreSave"
"""Spark's names of the operators behind `.rolling` and `.aggregate`."""


@dataclass(frozen=True, kw_only=True)
class Restore:
    """A plan, and the code that is to go on from it."""

    plan: RestorePlan
    code: Code
    job: Job
    directory: JobDirectory
    fence: int
    """Of the attempt that carries it out."""
    session: SparkSession
    settings: StepSettings

    @cached_property
    def _positions(self) -> dict[str, int]:
        """Where the state of each step lies now."""
        return stored_positions(self.plan.identity, self.code)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        return judge(
            self.plan.identity,
            self.code,
            canonical=self.plan.canonical is not None,
            allow_dropped=self.plan.allow_dropped,
            reset_sources=self.plan.reset_sources,
        )

    def carry_out(self) -> JobIdentity:
        """May be repeated after a crash: until the switch, which is one rename, the job is as
        it was. An attempt that was replaced meanwhile has worked where nobody looks, for each
        has a directory of its own, and does not come to the switch."""
        require_restorable(self.verdicts)
        plan, directory = self.plan, self.directory
        replaced = directory.load()
        target = directory.path / f"{plan.identity.checkpoint}.{self.fence}"
        remove_tree(target)
        files = batch_files(plan.checkpoint, plan.batch)
        copy_batch(plan.checkpoint, files, target, moved=self._moved())
        fault_point("restore.copied")
        kept = self._kept()
        if plan.rescales and kept:
            repartition(self.session, target, plan.identity.parallelism)
            if not self._has_all_entries(target, kept):
                # What is noted may be incomplete: ask the state itself.
                before = self._key_counts(target, kept, plan.batch)
                _require_same(before, self._key_counts(target, kept))
            fault_point("restore.rescaled")
        if self._differs(kept):
            self._fit(target, kept)
        identity = replace(adopted(plan.identity, self.code), checkpoint=target.name)
        with directory.lease.not_past(self.fence):
            directory.save(identity)
            directory.sizes.replace_by(self._sizes(kept), plan.batch)
            remaining = {target.name} | ({replaced.checkpoint} if replaced else set())
            left_over = directory.checkpoints() - remaining
        fault_point("restore.switched")
        for name in left_over:
            remove_tree(directory.path / name)
        if plan.claim:
            delete_savepoint(plan.checkpoint.parent)
        return identity

    def _kept(self) -> dict[str, int]:
        """Steps whose state is taken as it lies there, and the number that it has so far."""
        return {
            verdict.uid: self._positions[verdict.uid]
            for verdict in self.verdicts
            if verdict.part == "step"
            and verdict.outcome in ("restored", "migrated")
            and not verdict.rewritten
        }

    def _differs(self, kept: Mapping[str, int]) -> bool:
        """Whether the copy does not fit the code as it is."""
        if kept != dict(self.code.positions) or len(kept) < len(self.plan.identity.operators):
            return True
        sources = set(self.plan.identity.sources) != set(self.code.graph.sources)
        return sources or bool(self.plan.reset_sources) or (self.plan.rescales and not kept)

    def _fit(self, target: Path, kept: Mapping[str, int]) -> None:
        place = self.directory.path / f".{target.name}.planting"
        rewritten = [verdict.uid for verdict in self.verdicts if verdict.rewritten]
        if self.plan.canonical is not None:
            counts = CanonicalState(self.plan.canonical).key_counts()
            expected = {uid: counts.get(uid, 0) for uid in rewritten}
        else:
            expected = self._key_counts(target, rewritten)
        initial = {uid: self._stored(uid, target) for uid in rewritten}
        planted = plant(self.job, self.session, replace(self.settings, initial=initial), place)
        _require_same(expected, self._planted_keys(rewritten))
        fault_point("restore.planted")
        positions = self.code.positions
        graft(
            target,
            committed_batches(target)[-1],
            planted,
            BATCH,
            Graft(
                kept={old: positions[uid] for uid, old in kept.items()},
                planted=[positions[uid] for uid in positions if uid not in kept],
                sources=[spark_source_name(uid) for uid in self._source_names()],
            ),
        )
        remove_tree(place)

    def _source_names(self) -> list[str]:
        graph = self.code.graph
        clocks = [f"{uid}-clock" for uid in (*graph.steps, *graph.sources)]
        kept = [uid for uid in graph.sources if uid not in self.plan.reset_sources]
        return [*kept, *clocks]

    def _step(self, uid: str) -> StoredStep:
        stored = self.plan.identity
        return StoredStep.of(uid, stored.operators[uid], stored.backend)

    def _key_counts(
        self, target: Path, uids: Iterable[str], batch: int | None = None
    ) -> dict[str, int]:
        """Of the process steps among these, in the copy, where they still have their places;
        as of its last batch, or of another one."""
        batch = committed_batches(target)[-1] if batch is None else batch
        return {
            uid: live_keys(self.session, target, batch, self._positions[uid], self._step(uid))
            for uid in uids
            if self.plan.identity.operators[uid].get("layout")
        }

    def _has_all_entries(self, target: Path, uids: Iterable[str]) -> bool:
        """Whether the new snapshots say that they have as many entries as Spark said that there
        were. Neither is read for that."""
        noted = self.plan.sizes.entries(self.plan.batch)
        found = snapshot_entries(target, committed_batches(target)[-1])
        return found is not None and all(
            noted.get(uid) == found[self._positions[uid]] for uid in uids
        )

    def _planted_keys(self, uids: Iterable[str]) -> dict[str, int]:
        sizes = self.settings.sizes.value
        return {
            uid: sum(keys for (owner, _), (keys, *_) in sizes.items() if owner == uid)
            for uid in uids
        }

    def _stored(self, uid: str, target: Path) -> InitialState:
        plan, session, step = self.plan, self.session, self._step(uid)
        if plan.canonical is not None:
            state = CanonicalState(plan.canonical)
            rows = session.read.schema(state.ddl(step)).parquet(str(state.rows(uid)))
            broadcast = state.broadcast(uid)
        else:
            at = target, committed_batches(target)[-1], self._positions[uid]
            rows = key_rows(session, *at, step)
            broadcast = broadcast_state(session, *at)
        return initial_state(session, step, rows, broadcast, plan.identity.key_groups)

    def _sizes(self, kept: Mapping[str, int]) -> Sizes:
        stored = self.plan.sizes.load(self.plan.batch)
        found = {group: size for group, size in stored.items() if group[0] in kept}
        planted = self.settings.sizes.value
        return found | {group: (keys, size) for group, (keys, size, *_) in planted.items()}

    def _moved(self) -> Moved:
        """Where files of the input lie now, if a source has another directory than before."""
        before, now = self.plan.identity.locations, self.code.locations
        moves = [
            (f"{quote(before[uid])}/", f"{quote(now[uid])}/")
            for uid in before
            if uid in now and before[uid] != now[uid]
        ]
        collections = [
            uid
            for uid, source in self.code.graph.sources.items()
            if isinstance(source, Collection)
        ]
        if not moves and not collections:
            return unmoved
        return _Moves(moves, collections, f"{quote(str(self.directory.path))}/")


@dataclass(frozen=True)
class _Moves:
    moves: list[tuple[str, str]]
    collections: list[str]
    """Their rows lie in the directory of the job, which may be another one than before."""
    job: str

    def __call__(self, path: str) -> str:
        scheme, slashes, rest = path.partition("://")
        for old, new in self.moves:
            if rest.startswith(old):
                return f"{scheme}{slashes}{new}{rest.removeprefix(old)}"
        found = _COLLECTED.search(rest)
        if found is not None and found["uid"] in self.collections:
            return f"{scheme}{slashes}{self.job}{found['file']}"
        return path


def _require_same(expected: Mapping[str, int], found: Mapping[str, int]) -> None:
    for uid, keys in expected.items():
        if found[uid] != keys:
            raise CorruptionError(
                "STATE_KEYS_LOST",
                f"step {uid!r} had {keys:,} keys, and has {found[uid]:,} after its state was "
                "written anew. Nothing was switched: the job is as it was.",
                fix="try again; if it stays, use another savepoint, and report this.",
            )


def repartition(session: SparkSession, checkpoint: Path, partitions: int) -> None:
    """Have Spark write the state of a checkpoint that nobody uses into other partitions.

    It appends a batch that reads nothing and holds the new state.
    """
    # Private, and the only way that Spark has.
    manager = session._streamingCheckpointManager
    with _rolling_as_plain(checkpoint):
        manager.repartition(str(checkpoint), partitions)


@contextmanager
def _rolling_as_plain(checkpoint: Path) -> Iterator[None]:
    """Spark moves the state of its aggregations, but refuses that of the kind that gives a row
    per record, which is stored in the same way: under another name it is moved too."""
    found = [
        number
        for number in operator_numbers(checkpoint)
        if operator_name(checkpoint, number) == _ROLLING
    ]
    for number in found:
        rename_operator(checkpoint, number, _AGGREGATION)
    yield
    for number in found:
        rename_operator(checkpoint, number, _ROLLING)
