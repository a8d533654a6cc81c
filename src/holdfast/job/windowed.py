"""A keyed stream cut into windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import JobDefinitionError, shorten
from holdfast.event_time.process import WindowProcess
from holdfast.event_time.windowing import LateWindowPolicy, Windowing
from holdfast.event_time.windows import Session
from holdfast.job.graph import JobGraph, user_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.job.flow import Planner, Stream


class WindowedStream:
    """What ``keyed.window(…)`` returns; each method is a stateful step with a uid."""

    def __init__(
        self,
        planner: Planner,
        graph: JobGraph,
        frame: DataFrame,
        keys: tuple[str, ...],
        windowing: Windowing,
    ) -> None:
        self._planner, self._graph, self._frame, self._keys = planner, graph, frame, keys
        self._windowing = windowing

    def process(
        self, uid: str, process: WindowProcess, *, late: LateWindowPolicy | None = None
    ) -> Stream:
        """Run Python code over each window. See :class:`holdfast.WindowProcess`.

        A record whose windows are all gone is late: `late` is "side" (default), which sends it
        to ``.side("late")``, or "drop". Both count it.
        """
        self._graph.claim(uid, "process step")
        if not isinstance(process, WindowProcess):
            raise JobDefinitionError(
                "WRONG_ARGUMENT",
                f"process step {uid!r} got {shorten(process)} ({user_line()}).",
                fix="pass a WindowProcess instance; a KeyedProcess has no windows: "
                "keyed.process(…).",
            )
        return self._planner.window_process(  # type: ignore[no-any-return]
            uid, self._frame, self._keys, process, windowing=self._windowing, late=late
        )

    def aggregate(self, uid: str, **columns: Column) -> Stream:
        """Spark's native aggregation; emits each changed window once per epoch.

        >>> keyed.window(hf.windows.Tumbling("1 min")).aggregate("edits", n=F.count("*"))

        Columns: the keys, `window_start`, `window_end`, and what is computed. Late records are
        dropped and counted by Spark.
        """
        self._graph.claim(uid, "aggregation")
        check_columns(uid, columns)
        _check_native(uid, self._windowing)
        return self._planner.window_aggregate(  # type: ignore[no-any-return]
            uid, self._frame, self._keys, dict(columns), self._windowing
        )


def check_columns(uid: str, columns: Mapping[str, Any]) -> None:
    if not columns:
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"aggregation {uid!r} computes no column.",
            fix='name one, such as total=F.sum("diff").',
        )


def _check_native(uid: str, windowing: Windowing) -> None:
    """Refuse what Spark's windows cannot do."""
    reasons = {
        "allowed_lateness": (
            windowing.allowed_lateness,
            "Spark removes a window when the watermark reaches its end",
            "add it to the delay of the watermark",
        ),
        "early": (
            windowing.early,
            "Spark emits every changed window in every epoch already",
            "leave it out",
        ),
        f"{windowing.windows}": (
            isinstance(windowing.windows, Session),
            "Spark has no sessions in a query that emits changed rows (update mode)",
            "use Tumbling or Sliding",
        ),
    }
    for what, (given, reason, fix) in reasons.items():
        if given:
            raise JobDefinitionError(
                "NOT_SUPPORTED",
                f"aggregation {uid!r}: {what} is not possible in the JVM. {reason}.",
                fix=f"{fix}, or write a WindowProcess: keyed.window(…).process(…).",
            )
