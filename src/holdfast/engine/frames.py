"""DataFrames with side outputs, and what can be read off their plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from holdfast.errors import JobDefinitionError
from holdfast.job.graph import user_line

_ROOT_MARK = "__holdfast_root_"
CLOCK_MARK = "!clock"
"""Ends the mark of a source that is our own, and nobody's uid."""

_STATEFUL_NODES = {
    "Aggregate",
    "Distinct",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
    "GlobalLimit",
}


class StreamFrame(ClassicDataFrame):
    """A plain DataFrame that also knows its side outputs.

    Whatever is made from it by DataFrame methods is a plain DataFrame again.
    """

    # DataFrame.__new__ picks a class by its arguments; ours are always the classic ones.
    def __new__(cls, *_: Any, **__: Any) -> StreamFrame:
        return object.__new__(cls)

    def __init__(
        self,
        frame: DataFrame,
        *,
        root: str,
        tag: str = "",
        sides: Mapping[str, Callable[[], StreamFrame]] | None = None,
    ) -> None:
        super().__init__(frame._jdf, frame.sparkSession)
        # DataFrame.__getattr__ looks names up as columns: keep ours in the dict.
        self.__dict__["hf_root"], self.__dict__["hf_tag"] = root, tag
        self.__dict__["hf_sides"] = dict(sides or {})

    def side(self, name: str) -> StreamFrame:
        """A side output."""
        sides: dict[str, Callable[[], StreamFrame]] = self.__dict__["hf_sides"]
        if name not in sides:
            raise JobDefinitionError(
                "SIDE_OUTPUT_NOT_FOUND",
                f"{self.__dict__['hf_root']!r} has no side output {name!r} ({user_line()}).",
                fix=f"it has: {', '.join(sides) or 'none'}. A process declares them as "
                '`sides = {"late": "user string, …"}`, a source with on_bad_record="side".',
            )
        return sides[name]()


def root_of(frame: DataFrame) -> str:
    """The root that a frame is, without any DataFrame operation in between."""
    return str(frame.__dict__["hf_root"]) if isinstance(frame, StreamFrame) else ""


def tag_of(frame: DataFrame) -> str:
    return str(frame.__dict__["hf_tag"])


def mark_root(frame: DataFrame, root: str) -> DataFrame:
    """Name a frame in its plan, so that frames made from it can be traced back to it."""
    return frame.alias(_ROOT_MARK + root)


@dataclass(frozen=True)
class Lineage:
    """What a frame is made from, as far down as the nearest roots."""

    roots: frozenset[str]
    stateful: tuple[str, ...]
    """Stateful operators above the roots, as Spark describes them."""
    stateful_kinds: tuple[str, ...]


def lineage(frame: DataFrame) -> Lineage:
    """Walk a frame's analysed plan down to the marked roots."""
    roots: set[str] = set()
    stateful: list[tuple[str, str]] = []
    stack = [_plan_of(frame)]
    while stack:
        node = stack.pop()
        kind = node.getClass().getSimpleName()
        if kind == "SubqueryAlias":
            alias = node.alias()
            if alias.startswith(_ROOT_MARK):
                if not alias.endswith(CLOCK_MARK):
                    roots.add(alias.removeprefix(_ROOT_MARK))
                continue
        if _is_stateful(node, kind):
            stateful.append((kind, node.simpleString(80).strip()))
        children = node.children()
        stack.extend(children.apply(i) for i in range(children.size()))
    return Lineage(
        frozenset(roots),
        tuple(text for _, text in stateful),
        tuple(kind for kind, _ in stateful),
    )


def marks_in_order(frame: DataFrame) -> list[str]:
    """All marked roots of a plan, from the sink's side down, left before right.

    Spark reports sources and stateful operators in that order, and by no name.
    """
    marks: list[str] = []
    stack = [_plan_of(frame)]
    while stack:
        node = stack.pop()
        if node.getClass().getSimpleName() == "SubqueryAlias":
            alias = node.alias()
            if alias.startswith(_ROOT_MARK):
                marks.append(alias.removeprefix(_ROOT_MARK))
        children = node.children()
        stack.extend(children.apply(i) for i in reversed(range(children.size())))
    return marks


def stateful_positions(frame: DataFrame, processes: Mapping[str, DataFrame]) -> dict[str, int]:
    """The number that Spark gives each stateful step: by place, from the sink's side down.

    Spark's own operators lie below the mark of their uid. Process steps have no mark of their
    own in the plan; they are known by the column that only they put out.
    """
    by_column = {_first_column(_plan_of(blocks)): uid for uid, blocks in processes.items()}
    found: list[str] = []
    stack: list[tuple[Any, str]] = [(_plan_of(frame), "")]
    while stack:
        node, mark = stack.pop()
        kind = node.getClass().getSimpleName()
        if kind == "SubqueryAlias" and node.alias().startswith(_ROOT_MARK):
            mark = node.alias().removeprefix(_ROOT_MARK)
        if _is_stateful(node, kind):
            found.append(by_column.get(_first_column(node), mark))
        children = node.children()
        stack.extend((children.apply(i), mark) for i in reversed(range(children.size())))
    return {uid: at for at, uid in enumerate(found)}


def _plan_of(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _first_column(node: Any) -> int:
    return int(node.output().head().exprId().id())


def has_watermark(frame: DataFrame) -> bool:
    return "EventTimeWatermark" in _plan_of(frame).toString()


def _is_stateful(node: Any, kind: str) -> bool:
    if kind in _STATEFUL_NODES:
        return bool(node.isStreaming())
    if kind == "Join":
        children = node.children()
        return all(children.apply(i).isStreaming() for i in range(children.size()))
    return False
