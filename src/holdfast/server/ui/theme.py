"""Colours of charts, which know nothing of style sheets. They read well on light and dark."""

from __future__ import annotations

from typing import Any

PALETTE = ("#2b8fa3", "#7b6fd0", "#d08a2b", "#4f9d5d", "#c65f7a", "#6b7f94", "#a3772b")
FULL = "#d08a2b"
INCREMENTAL = "#2b8fa3"
INK = "#7d8896"
LINE = "rgba(125,136,150,0.25)"

AXIS: dict[str, Any] = {
    "axisLine": {"lineStyle": {"color": LINE}},
    "axisTick": {"show": False},
    "axisLabel": {"color": INK, "fontSize": 11},
    "splitLine": {"lineStyle": {"color": LINE}},
    "nameTextStyle": {"color": INK, "fontSize": 11},
}


def chart(**options: Any) -> dict[str, Any]:
    """What all charts have: no animation, room for the legend, quiet lines."""
    return {
        "animation": False,
        "color": list(PALETTE),
        "textStyle": {"fontFamily": "Roboto, sans-serif"},
        "grid": {"left": 8, "right": 12, "top": 38, "bottom": 6, "containLabel": True},
        "legend": {
            "top": 2,
            "left": 4,
            "itemWidth": 12,
            "itemHeight": 9,
            "icon": "roundRect",
            "textStyle": {"color": INK, "fontSize": 12},
        },
        "tooltip": {"trigger": "axis", "confine": True, "renderMode": "richText"},
        **options,
    }
