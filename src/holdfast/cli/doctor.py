"""`holdfast doctor`: is this machine fit to run jobs?"""

from __future__ import annotations

from dataclasses import asdict

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, settings_for
from holdfast.cli.output import Column
from holdfast.errors import EnvironmentProblem

_COLUMNS = [
    Column(key="check", title="CHECK"),
    Column(key="status", title="STATUS"),
    Column(key="found", title="FOUND"),
    Column(key="fix", title="FIX"),
]


def doctor(home: HomeOption = None, json_output: JsonOption = False) -> int:
    """Check this machine, and say the fix for each finding."""
    from holdfast.control.doctor import Status, examine

    settings = settings_for(home=home).values
    findings = examine(settings.home, settings.storage, settings.registry_url)
    rows = [asdict(finding) for finding in findings]
    output.show_rows(rows, _COLUMNS, as_json=json_output)
    failed = any(finding.status is Status.FAIL for finding in findings)
    return EnvironmentProblem.exit_code if failed else 0
