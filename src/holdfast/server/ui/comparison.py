"""What a job and its fork have written, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.control.output_summary import column_lines, input_lines
from holdfast.server.ui.html import element, text
from holdfast.server.ui.widgets import Column, Notice, Table

LONGEST_VALUE = 200
"""Characters of a value that are shown."""


class Comparison:
    """The result of an operation `compare`."""

    def __init__(self) -> None:
        with element("div", "comparison") as self._box:
            self._verdict = Notice()
            self._sinks = Table("Sinks, compared", (), empty="They have no sinks of files.")
            self._samples = element("div", "comparison-samples")
        self._told: Mapping[str, Any] | None = None
        self.show(None)

    def show(self, told: Mapping[str, Any] | None) -> None:
        self._box.set_visibility(told is not None)
        if told is None or told == self._told:
            return
        self._told = told
        title, tone = verdict_of(told)
        lines = [*input_lines(told), *column_lines(told)]
        self._verdict.say(title, lines, tone=tone)
        self._sinks.columns(sink_columns(told))
        self._sinks.rows(sink_rows(told))
        self._samples.clear()
        with self._samples:
            for sink in told["sinks"]:
                if sink["samples"]:
                    title = f"Rows of {sink['uid']} that only one has"
                    text("h3", title)
                    Table(title, *sample_table(sink["samples"]))
            if told.get("samples_cut"):
                text("p", "There are more; they are too large to be shown here.", "muted")


def verdict_of(told: Mapping[str, Any]) -> tuple[str, str]:
    """In words, and its tone. Other output means little while one is ahead."""
    if told["same"]:
        return "Both have written the same.", "good" if told["same_input"] else "calm"
    return "They have not written the same.", "warn" if told["same_input"] else "calm"


def sink_columns(told: Mapping[str, Any]) -> list[Column]:
    first, second = (each["job"] for each in told["jobs"])
    return [
        Column(name="sink", label="Sink", head=True),
        Column(name="both", label="Rows in both", kind="number"),
        Column(name="first", label=f"Only in {first}", kind="number"),
        Column(name="second", label=f"Only in {second}", kind="number"),
    ]


def sink_rows(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    first, second = (each["job"] for each in told["jobs"])
    return [
        {
            "key": sink["uid"],
            "sink": sink["uid"],
            "both": sink["both"],
            "first": sink["only"][first],
            "second": sink["only"][second],
        }
        for sink in told["sinks"]
    ]


def sample_table(
    samples: Sequence[Mapping[str, Any]],
) -> tuple[list[Column], list[dict[str, Any]]]:
    """Names of columns are data too, so they are no keys here."""
    names = list(dict.fromkeys(name for sample in samples for name in sample["row"]))
    columns = [
        Column(name="job", label="Only in", head=True),
        *(Column(name=f"c{at}", label=name) for at, name in enumerate(names)),
    ]
    rows = [
        {
            "key": str(number),
            "job": sample["job"],
            **{f"c{at}": _shown(sample["row"].get(name)) for at, name in enumerate(names)},
        }
        for number, sample in enumerate(samples)
    ]
    return columns, rows


def _shown(value: Any) -> str:
    """As text: a large number must not lose digits on its way through a browser."""
    if value is None:
        return ""
    told = value if isinstance(value, str) else json.dumps(value)
    return told if len(told) <= LONGEST_VALUE else f"{told[:LONGEST_VALUE]}…"
