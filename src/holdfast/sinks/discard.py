"""Nowhere, for measuring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.sinks.base import Delivery, Sink


@dataclass(frozen=True)
class Discard(Sink):
    """Compute every row and throw it away: what a pipeline costs without its sink."""

    delivery: ClassVar[Delivery] = Delivery.OBSERVER
