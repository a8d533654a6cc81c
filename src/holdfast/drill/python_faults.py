"""Faults in a Python process of the job, at a named fault point."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.faults import FAULTS_VARIABLE

PythonAction = Literal["kill", "raise", "wait", "enospc"]
"""To kill the process group, to raise, to wait for what is done from outside, or to find the
disk full."""


@dataclass(frozen=True, kw_only=True)
class PythonFault:
    """At the `on_pass`-th pass of a fault point in a process; once per job."""

    point: str
    action: PythonAction
    on_pass: int

    def variables(self, gate: Path) -> dict[str, str]:
        """For the environment of `holdfast run`; the log of faults has to be there, too."""
        action = f"gate:{gate}" if self.action == "wait" else self.action
        return {FAULTS_VARIABLE: json.dumps({self.point: f"{action}@{self.on_pass} once"})}
