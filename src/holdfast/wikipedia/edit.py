"""One edit, whatever it was read from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

SCHEMA = (
    "id string, wiki string, title string, user string, bot boolean, ts timestamp, "
    "published timestamp, old_length bigint, new_length bigint, diff bigint"
)
"""The edits as a Spark schema. `ts` is when the edit was made, `published` when the stream had
it; `diff` is by how many bytes the page has grown."""

_EDITS = ("edit", "new")
"""Kinds of changes that change a page; others are log entries and categories."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    id: str
    wiki: str
    title: str
    user: str | None
    bot: bool
    ts: str
    """ISO 8601, UTC."""
    published: str
    old_length: int | None
    new_length: int | None
    diff: int

    def to_json(self) -> str:
        return json.dumps(vars(self), ensure_ascii=False)


class NotAnEditError(ValueError):
    """It cannot be read as an edit; says why."""


def from_recent_change(event: Any) -> Edit | None:
    """An event of Wikimedia's `recentchange` stream; None: a change that is no edit."""
    try:
        meta = event["meta"]
        if event["type"] not in _EDITS or meta.get("domain") == "canary":
            return None
        length = event.get("length") or {}
        old, new = length.get("old"), length.get("new")
        made = datetime.fromtimestamp(event["timestamp"], UTC)
        return Edit(
            id=str(meta["id"]),
            wiki=str(event["wiki"]),
            title=str(event["title"]),
            user=event.get("user"),
            bot=bool(event.get("bot", False)),
            ts=_utc(made),
            published=str(meta.get("dt") or _utc(made)),
            old_length=old,
            new_length=new,
            diff=int(new or 0) - int(old or 0),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotAnEditError(f"{type(error).__name__}: {error}") from error


def from_record(record: Any, number: int) -> Edit | None:
    """A line of a file: an edit of ours, of the stream, or of Druid's data set of 2015."""
    if not isinstance(record, Mapping):
        raise NotAnEditError(f"a JSON {type(record).__name__}, not an object")
    if "meta" in record:
        return from_recent_change(record)
    try:
        if "delta" in record:
            return Edit(
                id=f"{record['time']}-{number}",
                wiki=str(record["channel"]).lstrip("#"),
                title=str(record["page"]),
                user=record.get("user"),
                bot=bool(record.get("isRobot", False)),
                ts=str(record["time"]),
                published=str(record["time"]),
                old_length=None,
                new_length=None,
                diff=int(record["delta"]),
            )
        return Edit(**record)
    except (KeyError, TypeError, ValueError) as error:
        raise NotAnEditError(f"{type(error).__name__}: {error}") from error


def _utc(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
