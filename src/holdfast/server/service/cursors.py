"""Cursors: where a page ended, as text that a client gives back unread."""

from __future__ import annotations

from holdfast.errors import UsageError


def numbers(cursor: str | None, count: int) -> tuple[int, ...] | None:
    """So many numbers with dots between them; None: the first page."""
    if cursor is None:
        return None
    parts = cursor.split(".")
    if len(parts) != count or not all(part.isascii() and part.isdigit() for part in parts):
        raise bad_cursor()
    if any(len(part) > 18 for part in parts):
        raise bad_cursor()
    return tuple(int(part) for part in parts)


def bad_cursor() -> UsageError:
    return UsageError(
        "BAD_CURSOR",
        "that cursor is not one that a page ended with.",
        fix="give `next` of the page before, or none.",
    )
