"""The terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.sinks.base import Delivery, Sink


@dataclass(frozen=True)
class Console(Sink):
    """Print the first rows of every epoch."""

    rows: int = 20
    delivery: ClassVar[Delivery] = Delivery.OBSERVER
