"""The Python side of the widgets: each takes plain values and sends what is different."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nicegui.events import GenericEventArguments

from holdfast.client import models
from holdfast.server.ui.layout import placed
from holdfast.server.ui.widgets.base import Widget

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    label: str
    kind: str = "text"
    """How the value is written; see lib/index.js."""
    head: bool = False
    """Whether it names the row."""
    low: bool = False
    """Whether it may be left out where there is little room."""
    href: str = ""
    """The field with the address, if it is a link."""
    act: str = ""
    """The action that a click asks for, if it is one."""
    width: str = ""


class Table(Widget, component="table.js"):
    def __init__(
        self,
        caption: str,
        columns: Sequence[Column],
        rows: Sequence[Row] = (),
        *,
        empty: str = "Nothing here.",
        act: Callable[[str, str], Any] | None = None,
    ) -> None:
        """Each row has a `key`; `act` is called with the action and the key of the row."""
        super().__init__()
        self.show(caption=caption, empty=empty)
        self.columns(columns)
        self.rows(rows)
        if act is not None:
            self.on("act", lambda event: act(str(event.args["action"]), str(event.args["key"])))

    def columns(self, columns: Sequence[Column]) -> None:
        self.show(columns=[asdict(column) for column in columns])

    def rows(self, rows: Sequence[Row]) -> None:
        self.show(rows=[dict(row) for row in rows])

    def choose(self, key: str) -> None:
        self.show(chosen=key)


class Facts(Widget, component="facts.js"):
    def __init__(self, items: Sequence[Row] = (), *, big: bool = False) -> None:
        super().__init__()
        self.show(big=big)
        self.items(items)

    def items(self, items: Sequence[Row]) -> None:
        self.show(items=[dict(item) for item in items])


class Notice(Widget, component="notice.js"):
    def trouble(self, trouble: models.Trouble | None) -> None:
        shown = None
        if trouble is not None:
            shown = trouble.model_dump(mode="json", include={"name", "message", "fix"})
        self.show(trouble=shown, tone="bad")

    def say(self, title: str, reasons: Sequence[str] = (), *, tone: str = "calm") -> None:
        self.show(trouble=None, title=title, reasons=list(reasons), tone=tone)


class OperationView(Widget, component="operation.js"):
    def operation(
        self, operation: models.Operation | None, *, hide_result: bool = False
    ) -> None:
        shown = None if operation is None else operation.model_dump(mode="json")
        self.show(operation=shown, hide_result=hide_result)


class PlanView(Widget, component="plan.js"):
    def plan(self, plan: Mapping[str, Any] | None) -> None:
        self.show(plan=None if plan is None else dict(plan))


class GraphView(Widget, component="graph.js"):
    def graph(self, graph: models.Graph) -> None:
        self.show(nodes=placed(graph), edges=[list(edge) for edge in graph.edges])


class LineageView(Widget, component="lineage.js"):
    def __init__(self, choose: Callable[[str], Any]) -> None:
        super().__init__()

        def chosen(event: GenericEventArguments) -> Any:
            return choose(str(event.args))

        self.on("choose", chosen)

    def trees(self, trees: Sequence[models.Tree]) -> None:
        shown = [tree.model_dump(mode="json") | {"href": f"/jobs/{tree.job}"} for tree in trees]
        self.show(trees=shown)

    def choose(self, savepoint: str) -> None:
        self.show(chosen=savepoint)


class LogView(Widget, component="logview.js"):
    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self.show(first=list(lines), follow=True)

    def follow(self, wanted: bool) -> None:
        self.show(follow=wanted)

    def append(self, lines: Sequence[str]) -> None:
        self.run_method("append", list(lines))

    def replace(self, lines: Sequence[str]) -> None:
        self.run_method("replace", list(lines))


class StatePill(Widget, component="statepill.js"):
    def word(self, word: str) -> None:
        self.show(word=word)


class Moment(Widget, component="moment.js"):
    def __init__(self, at: str | None, kind: str = "time") -> None:
        super().__init__()
        self.show(at=at, kind=kind)
