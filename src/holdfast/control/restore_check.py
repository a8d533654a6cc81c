"""Whether a job's code can go on from a point, part by part, without starting its query."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint.compatibility import Verdict, judge
from holdfast.checkpoint.identity import JobDirectory
from holdfast.checkpoint.restore_plan import RestorePlan
from holdfast.control.launch import Launch
from holdfast.control.runner import runtime_config
from holdfast.errors import StateMismatchError, UsageError


@dataclass(frozen=True)
class RestoreCheck:
    """What `--from` would do."""

    plan: RestorePlan
    verdicts: tuple[Verdict, ...]

    @property
    def refused(self) -> bool:
        return any(verdict.refusal is not None for verdict in self.verdicts)

    @property
    def other_spark(self) -> str:
        """What another version of Spark means for this restore; empty: it is the same one."""
        here, there = importlib.metadata.version("pyspark"), self.plan.spark
        if not there or there.split(".")[:2] == here.split(".")[:2]:
            return ""
        kind = "canonical: process steps do not depend on it"
        if self.plan.canonical is None:
            kind = "native: whether Spark reads its own files across versions is not promised; "
            kind += "a canonical savepoint does not depend on it"
        return f"taken under Spark {there}, restored under {here} ({kind})"

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.plan.summary(),
            "spark": self.plan.spark or None,
            "other_spark": self.other_spark or None,
            "parts": [
                {
                    "part": verdict.part,
                    "uid": verdict.uid,
                    "outcome": verdict.outcome,
                    "reason": verdict.reason,
                    "error": verdict.refusal.name if verdict.refusal else None,
                    "fix": verdict.refusal.fix if verdict.refusal else None,
                }
                for verdict in self.verdicts
            ],
        }


def require_fits(launch: Launch, directory: JobDirectory, settings: Any) -> None:
    """Raise what keeps the code of a launch from going on where a job is now.

    Asked in a process of its own: this one shall not keep a JVM.
    """
    epoch = directory.last_committed()
    if epoch is None:
        return
    here = replace(launch, start_from=f"checkpoint:{epoch}", sink_choice="keep")
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "holdfast.cli.main", "run", *here.arguments()),
            *("--dry-run", "--home", str(settings.home), "--json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=launch.directory,
    )
    try:
        parts = json.loads(done.stdout)["parts"]
    except (ValueError, KeyError):
        return  # that epoch is gone by now; the restore itself checks once more
    for part in parts:
        if part["error"] is not None:
            raise StateMismatchError(part["error"], part["reason"], fix=part["fix"])


def check_restore(launch: Launch, settings: Any) -> RestoreCheck:
    """Starts Spark to plan the job, and changes nothing."""
    from holdfast.engine.driver import declared_code

    job = launch.load()
    planned = launch.restore(job, settings)
    if planned is None:
        raise UsageError(
            "NOTHING_TO_SHOW",
            "there is no --from, and so nothing to compare the code with.",
            fix="say where to start from: --from SAVEPOINT, or --from checkpoint:N.",
        )
    plan = planned()
    directory = JobDirectory(settings.storage, job.name)
    with tempfile.TemporaryDirectory(prefix="holdfast-check-") as scratch:
        log, runtime = Path(scratch) / "spark.log", runtime_config(settings)
        with launch.in_directory():
            code = declared_code(job, plan.identity, directory, runtime, log)
    return RestoreCheck(
        plan,
        judge(
            plan.identity,
            code,
            canonical=plan.canonical is not None,
            allow_dropped=plan.allow_dropped,
            reset_sources=plan.reset_sources,
        ),
    )
