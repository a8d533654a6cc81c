"""Faults in a Python process of the job, at a named fault point."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.faults import FAULTS_VARIABLE

PythonAction = Literal["kill", "raise", "wait", "enospc", "eio", "oom"]
"""To kill the process group, to raise, to wait for what is done from outside, to find the disk
full or broken, or to use up the memory of the driver's JVM."""
_OUT_OF_MEMORY = "call:holdfast.drill.heap:use_up"


@dataclass(frozen=True, kw_only=True)
class PythonFault:
    """At the `on_pass`-th pass of a fault point in a process; once per job."""

    point: str
    action: PythonAction
    on_pass: int

    def variables(self, gate: Path) -> dict[str, str]:
        """For the environment of `holdfast run`; the log of faults has to be there, too."""
        special = {"wait": f"gate:{gate}", "oom": _OUT_OF_MEMORY}
        action = special.get(self.action, self.action)
        return {FAULTS_VARIABLE: json.dumps({self.point: f"{action}@{self.on_pass} once"})}
