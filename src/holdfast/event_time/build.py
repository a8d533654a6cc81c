"""From a WindowProcess and its windows to the process that a step runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from holdfast.errors import JobDefinitionError, shorten
from holdfast.event_time.contents import Accumulated, Contents, Recorded
from holdfast.event_time.process import WindowProcess, check_window_process, folds
from holdfast.event_time.step import AlignedStep, SessionStep, WindowStep
from holdfast.event_time.windowing import LateWindowPolicy, Windowing
from holdfast.event_time.windows import Session
from holdfast.state.late import LATE, MOMENT, late_schema
from holdfast.state.schema import columns_ddl, parse_columns, type_ddl


def windowed(
    process: WindowProcess,
    windowing: Windowing,
    *,
    uid: str,
    schema: pa.Schema,
    event_time: str | None,
    late: LateWindowPolicy | None = None,
) -> WindowStep:
    """The process that computes `process` over the windows of its input.

    `schema` are the input's columns, `event_time` the one with the watermark. A step with it
    must let late records through: which ones are too late is for the windows to say.
    """
    check_window_process(process, windowing.windows)
    if event_time is None:
        raise event_time_missing(uid)
    if late not in (None, "side", "drop"):
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"step {uid!r}: late={shorten(late)}.",
            fix='use "side" (default: read them with .side("late")) or "drop". Records that '
            "come late to a window that is still kept are processed: see allowed_lateness.",
        )
    return _build(windowing, process, schema, late or "side")


def event_time_missing(uid: str) -> JobDefinitionError:
    return JobDefinitionError(
        "EVENT_TIME_MISSING",
        f"step {uid!r} has windows, but its input has no watermark.",
        fix='give the input one before key_by: edits = flow.watermark(edits, "ts", '
        'delay="10 s").',
    )


def _build(
    windowing: Windowing, process: WindowProcess, schema: pa.Schema, late: LateWindowPolicy
) -> WindowStep:
    base = SessionStep if isinstance(windowing.windows, Session) else AlignedStep
    contents: Contents = (
        Accumulated(process) if folds(process) else Recorded(process, _kept(process, schema))
    )
    sides = dict(process.sides)
    if late == "side":
        if LATE in sides:
            raise JobDefinitionError(
                "INVALID_NAME",
                f"{type(process).__name__} declares a side output {LATE!r}, the name for late "
                "records.",
                fix='rename it, or choose late="drop".',
            )
        sides[LATE] = columns_ddl(_late_schema(schema))
    members: dict[str, Any] = {
        **({"output": process.output} if hasattr(process, "output") else {}),
        "sides": sides,
        "timers": "both" if windowing.early else "event",
        **base.own_states(windowing),
        **contents.states(),
        # The class exists in this process alone: a worker builds its own.
        "__reduce__": lambda _: (_build, (windowing, process, schema, late)),
    }
    # Messages about the step name the user's class.
    step: type[WindowStep] = type(type(process).__name__, (base,), members)
    return step(windowing, process, contents, late)


def _late_schema(records: pa.Schema) -> pa.Schema:
    """Of late records, with the last window that each would have been in."""
    missed = [("late_window_start", MOMENT), ("late_window_end", MOMENT)]
    return pa.schema([*late_schema(records), *missed])


def _kept(process: WindowProcess, schema: pa.Schema) -> pa.Schema:
    """The columns of a record that are kept."""
    if process.keep is None:
        return schema
    name = type(process).__name__
    kept = parse_columns(process.keep, f"keep of {name}")
    for field in kept:
        if field.name not in schema.names or schema.field(field.name).type != field.type:
            raise JobDefinitionError(
                "INVALID_OPTION",
                f"{name}.keep names `{field.name} {type_ddl(field.type)}`, which is not a "
                "column of the input.",
                fix=f"name some of ({columns_ddl(schema)}).",
            )
    return kept
