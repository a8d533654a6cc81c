"""Starts a job from a savepoint in several ways, in one JVM. Run in a process of its own.

Each way has a storage of its own, so that the state that it led to can be compared with the
input afterwards. Spark's own rescaling gets a copy of the same savepoint, in turns with ours.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.bench.jobs import process
from holdfast.bench.live_savepoints import LIVE
from holdfast.bench.programs import DRIVER_MEMORY, MASTER, PARTITIONS
from holdfast.checkpoint.copies import copy_batch
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.record import EpochRecord, StartReport
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.checkpoint.spark_files import batch_files, committed_batches, read_start
from holdfast.clock import SystemClock
from holdfast.config import CheckpointConfig, RuntimeConfig
from holdfast.control.registry import Registry
from holdfast.control.restore import find_start, plan_restore
from holdfast.control.runner import Silent, run_job
from holdfast.control.savepoints import take_canonical
from holdfast.engine.session import driver_session, query_session
from holdfast.savepoint.store import Savepoint, SavepointStore

RESTORED, REPARTITIONED, EXPORTED = "restored", "repartitioned", "exported"
SAME, RESCALED, CANONICAL = "same", "rescaled", "canonical"
"""The ways, and the folders of their storages."""
MORE_PARTITIONS = 5


def main(arguments: list[str]) -> None:
    options = _parse(arguments)
    store = SavepointStore(options.savepoints)
    taken = [each for each in store.all(process.name) if each.manifest.label == LIVE]
    if not taken:
        sys.exit(f"{options.savepoints} has no savepoint of a running job")
    # The job still has records to read after it.
    origin = max(taken, key=lambda each: each.manifest.epoch)
    restores = _Restores(options.folder, store, options.heap_limit)
    for turn in range(options.rounds):
        restores.start(SAME, origin, PARTITIONS)
        ours_first = turn % 2 == 0
        if not ours_first:
            restores.repartition(origin)
        restores.start(RESCALED, origin, MORE_PARTITIONS)
        if ours_first:
            restores.repartition(origin)
    canonical = restores.export(options.registry)
    restores.start(CANONICAL, canonical, PARTITIONS)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--savepoints", type=Path, required=True, help="of a job that has run")
    parser.add_argument("--registry", required=True, help="URL, of that job")
    parser.add_argument("--folder", type=Path, required=True, help="where to work")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--heap-limit", required=True)
    return parser.parse_args(arguments)


class _Restores:
    def __init__(self, folder: Path, store: SavepointStore, heap_limit: str) -> None:
        self._folder, self._store, self._heap_limit = folder, store, heap_limit

    def start(self, way: str, savepoint: Savepoint, parallelism: int) -> None:
        """As `holdfast run --available-now --from SAVEPOINT --parallelism N` does."""
        place = self._folder / way
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        runtime, watch = self._runtime(place), _Watch()
        directory = JobDirectory(runtime.storage, process.name)
        job = copy.copy(process)
        job.parallelism = parallelism
        planning = 0.0

        def plan() -> RestorePlan:
            nonlocal planning
            began = time.monotonic()
            start = find_start(job, directory, str(savepoint.path), self._store)
            plan = plan_restore(
                job,
                directory,
                start,
                choice="keep",
                parallelism=parallelism,
                clock=SystemClock(),
            )
            planning = time.monotonic() - began
            return plan

        run_job(
            job,
            runtime=runtime,
            registry_url=f"sqlite:///{place / 'registry.db'}",
            available_now=True,
            reporter=watch,
            restore=plan,
        )
        timings = watch.timings
        _emit(
            {
                "event": RESTORED,
                "way": way,
                "verify": round(planning, 3),
                "restore": round(timings["restore"] - timings["plan"], 3),
                "first_epoch": watch.epochs[0].seconds if watch.epochs else None,
                "checkpoint": str(directory.checkpoint),
            }
        )

    def repartition(self, savepoint: Savepoint) -> None:
        """By Spark alone, of a copy that is made before the clock starts."""
        place = self._folder / "spark"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        checkpoint, epoch = place / "checkpoint", savepoint.manifest.epoch
        copy_batch(savepoint.checkpoint, batch_files(savepoint.checkpoint, epoch), checkpoint)
        runtime = self._runtime(place)
        spark = driver_session(runtime)
        session = query_session(spark, CheckpointConfig(), MORE_PARTITIONS, runtime)
        began = time.monotonic()
        # Private, and the only way that Spark has.
        session._streamingCheckpointManager.repartition(str(checkpoint), MORE_PARTITIONS)
        seconds = time.monotonic() - began
        written = committed_batches(checkpoint)[-1]
        assert read_start(checkpoint, written).partitions == MORE_PARTITIONS
        _emit({"event": REPARTITIONED, "seconds": round(seconds, 3)})

    def export(self, registry_url: str) -> Savepoint:
        """A canonical savepoint of where the job has ended."""
        runtime = self._runtime(self._folder)
        began = time.monotonic()
        with Registry(registry_url) as registry:
            savepoint = take_canonical(
                registry, registry.job(process.name), self._store, SystemClock(), runtime
            )
        manifest = savepoint.manifest
        _emit(
            {
                "event": EXPORTED,
                "seconds": round(time.monotonic() - began, 3),
                "files": len(manifest.files),
                "bytes": manifest.bytes,
            }
        )
        return savepoint

    def _runtime(self, place: Path) -> RuntimeConfig:
        return RuntimeConfig(
            storage=place / "jobs",
            master=MASTER,
            driver_memory=DRIVER_MEMORY,
            heap_limit=self._heap_limit,
        )


class _Watch(Silent):
    def __init__(self) -> None:
        self.timings: dict[str, float] = {}
        self.epochs: list[EpochRecord] = []

    def started(self, start: StartReport) -> None:
        self.timings = dict(start.timings)

    def epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)


def _emit(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
