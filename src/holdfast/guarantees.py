"""What a job guarantees from end to end: computed from its parts, before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.config import CheckpointConfig
from holdfast.errors import JobDefinitionError
from holdfast.sinks.base import Delivery, Sink
from holdfast.sources.base import Source


@dataclass(frozen=True)
class Guarantee:
    level: str
    """"exactly once", "at least once" or "none"."""
    weak_links: tuple[str, ...] = ()


def end_to_end(
    sources: Mapping[str, Source], sinks: Mapping[str, Sink], checkpoint: CheckpointConfig
) -> Guarantee:
    """The guarantee that the weakest part allows."""
    if checkpoint.mode == "none":
        return Guarantee(
            "none",
            (
                "checkpoints are off: every attempt reads all input again, with empty state, "
                "and repeats its output",
            ),
        )
    weak = [
        f"source {uid!r} ({source.describe()}) cannot be read again"
        for uid, source in sources.items()
        if not source.replayable
    ] + [
        f"sink {uid!r} ({sink.describe()}) cannot tell a repeated epoch"
        for uid, sink in sinks.items()
        if sink.delivery not in (Delivery.TRANSACTIONAL, Delivery.OBSERVER)
    ]
    return Guarantee("at least once" if weak else "exactly once", tuple(weak))


def require(guarantee: Guarantee, checkpoint: CheckpointConfig) -> None:
    """Refuse a job that asks for more than its parts can give."""
    if checkpoint.mode == "exactly_once" and guarantee.weak_links:
        raise JobDefinitionError(
            "EXACTLY_ONCE_NOT_POSSIBLE",
            "the job asks for exactly once, but " + "; ".join(guarantee.weak_links) + ".",
            fix='replace the named part, or say CheckpointConfig(mode="at_least_once").',
        )
