"""Where each node of a job's graph is drawn. Pure."""

from __future__ import annotations

from typing import Any

from holdfast.client import models


def columns_of(graph: models.Graph) -> dict[str, int]:
    """The longest way from any source: an edge always goes to the right."""
    columns = {node.uid: 0 for node in graph.nodes}
    for _ in graph.nodes:
        for start, end in graph.edges:
            if start in columns and end in columns and columns[end] <= columns[start]:
                columns[end] = columns[start] + 1
    return columns


def placed(graph: models.Graph) -> list[dict[str, Any]]:
    """Nodes with their column and row; a column that has fewer is centred."""
    columns = columns_of(graph)
    heights: dict[int, int] = {}
    rows = {}
    for node in graph.nodes:
        column = columns[node.uid]
        rows[node.uid] = heights.get(column, 0)
        heights[column] = rows[node.uid] + 1
    most = max(heights.values(), default=0)
    return [
        node.model_dump(mode="json")
        | {
            "column": columns[node.uid],
            "row": rows[node.uid] + (most - heights[columns[node.uid]]) / 2,
        }
        for node in graph.nodes
    ]
