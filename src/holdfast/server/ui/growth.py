"""How the state of a step grows, in words. Pure."""

from __future__ import annotations

from typing import Any

from holdfast.client import models
from holdfast.server.ui.widgets import Column

COLUMNS = (
    Column(name="step", label="Step", head=True),
    Column(name="rows", label="Keys", kind="number"),
    Column(name="rows_per_hour", label="Keys per hour", kind="change"),
    Column(name="bytes", label="Size", kind="bytes"),
    Column(name="bytes_per_hour", label="Size per hour", kind="change-bytes"),
    Column(name="limit", label="Limit of memory"),
)
_FARTHEST_HOURS = 24 * 365
"""Nobody plans further than that, and the line through some epochs does not reach as far."""


def growth_row(step: models.StepState) -> dict[str, Any]:
    return {
        "key": step.step,
        **step.model_dump(mode="json", exclude={"hours_to_limit"}),
        "limit": limit_in(step.hours_to_limit),
    }


def limit_in(hours: float | None) -> str:
    """When the state will have reached its limit, if it goes on as in the newest epochs."""
    if hours is None:
        return ""
    if hours <= 0:
        return "reached"
    if hours < 1:
        return f"in {max(1, round(hours * 60))} min"
    if hours < 48:
        return f"in {round(hours)} h"
    if hours <= _FARTHEST_HOURS:
        return f"in {round(hours / 24)} days"
    return "in more than a year"
