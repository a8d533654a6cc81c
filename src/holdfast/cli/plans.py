"""What a start from an older point will do, shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.output import Column

if TYPE_CHECKING:
    from holdfast.checkpoint.restore_plan import RestorePlan
    from holdfast.control.restore_check import RestoreCheck

_PARTS = [
    Column(key="part", title="PART"),
    Column(key="uid", title="UID"),
    Column(key="outcome", title="OUTCOME"),
    Column(key="reason", title="WHY"),
]


def show_check(check: RestoreCheck, *, as_json: bool) -> int:
    """Exit code 1 if a part is refused."""
    found = check.to_dict()
    if as_json:
        output.print_json(found)
    else:
        show_plan(check.plan, as_json=False)
        if check.other_spark:
            output.write_line(f"  {check.other_spark}")
        output.show_rows(found["parts"], _PARTS, as_json=False, empty="It has no state.")
        for part in found["parts"]:
            if part["fix"]:
                output.write_line(f"{part['error']}: Fix: {output.clean(part['fix'])}")
    return 1 if check.refused else 0


def show_plan(plan: RestorePlan, *, as_json: bool) -> None:
    if as_json:
        output.print_json(plan.summary())
        return
    output.write_line(f"job {plan.identity.name}, {plan.sentence}")
    for line in plan.beyond:
        output.write_line(output.clean(line))
