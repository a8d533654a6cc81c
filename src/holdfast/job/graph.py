"""The declared graph of a job: which uids there are, and where they were written."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import JobDefinitionError, shorten
from holdfast.sinks.base import Sink
from holdfast.sources.base import Source
from holdfast.types import NAME_PATTERN

_PACKAGE = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class OperatorSignature:
    """What of a stateful step must agree with its stored state."""

    kind: str
    """"process" for key groups, "native" for Spark's own operators."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Key columns and their types, in order."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """State variables: kind and type."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """New variable name to the name it was stored under."""
    older_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All names that a variable was ever stored under before, newest first."""
    detail: str = ""
    clock: str = "None"
    """Which clock Spark's timers of the step follow; it cannot change later."""
    layout: Sequence[Mapping[str, Any]] = ()
    """Of a process: what is stored per key, so that it can be read without the code."""
    forgets: bool = True
    """Whether anything declared (TTL, timers, a watermark) keeps its state from growing."""


@dataclass
class JobGraph:
    """Sources, stateful steps and sinks by uid, in the order of their declaration."""

    sources: dict[str, Source] = field(default_factory=dict)
    steps: dict[str, OperatorSignature] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()
    """From which uid to which rows go, whatever is done to them in between."""

    def claim(self, uid: object, what: str) -> str:
        """Check a uid and note where the user wrote it."""
        place = user_line()
        if not isinstance(uid, str) or not NAME_PATTERN.match(uid):
            raise JobDefinitionError(
                "UID_MISSING" if not isinstance(uid, str) else "INVALID_UID",
                f"the uid of a {what} is {shorten(uid)} ({place}).",
                fix=f'give every {what} a name as the first argument, such as "edits":'
                " 1 to 64 letters, digits, '.', '_' or '-'. State, metrics and savepoints hang"
                " on it.",
                place=place,
            )
        if uid in self.places:
            raise JobDefinitionError(
                "DUPLICATE_UID",
                f"the uid {uid!r} is used twice: at {self.places[uid]} and at {place}.",
                fix=f"rename one of them. Is the same {what} meant twice? Then use the "
                "returned frame twice instead.",
                place=place,
            )
        self.places[uid] = place
        return uid


def user_line() -> str:
    """`file:line` of the innermost caller outside holdfast."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
