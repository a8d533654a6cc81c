"""What every sink declares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Delivery(StrEnum):
    """What a sink does with an epoch that comes a second time."""

    TRANSACTIONAL = "transactional by epoch"
    REPEATING = "repeats it"
    OBSERVER = "shows rows, keeps none"
    """For people and tests: not part of the end-to-end guarantee."""


@dataclass(frozen=True, kw_only=True)
class Sink:
    """Base of the sink descriptors. A descriptor says where to; the engine writes."""

    rewindable: ClassVar[bool] = True
    """Whether what an epoch has written can be taken back."""

    @property
    def delivery(self) -> Delivery:
        raise NotImplementedError

    def describe(self) -> str:
        return type(self).__name__

    def with_suffix(self, suffix: str) -> Sink:
        """The same sink in another place, if it keeps anything."""
        return self
