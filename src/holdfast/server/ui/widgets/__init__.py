"""Parts of pages that live in the browser: a few Vue components, fed with plain values.

Whatever they show is set as text. What changes is sent as a property, and Vue changes only what
is different: nothing jumps, and nothing is built anew.
"""

from holdfast.server.ui.widgets.base import Widget
from holdfast.server.ui.widgets.controls import Button, Field, Option
from holdfast.server.ui.widgets.elements import (
    Column,
    Facts,
    GraphView,
    LineageView,
    LogView,
    Moment,
    Notice,
    OperationView,
    PlanView,
    StatePill,
    Table,
)

__all__ = [
    "Button",
    "Column",
    "Facts",
    "Field",
    "GraphView",
    "LineageView",
    "LogView",
    "Moment",
    "Notice",
    "OperationView",
    "Option",
    "PlanView",
    "StatePill",
    "Table",
    "Widget",
]
