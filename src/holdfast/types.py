"""Small values shared by every layer: names, durations, sizes."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.errors import JobDefinitionError, SettingsError, shorten

NAME_PATTERN = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$")
"""Job names and uids become directory names, labels and log fields: keep them plain."""

_DURATION_UNITS = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1, "sec": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_SIZE_UNITS = {
    "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "k": 1024, "m": 1024**2, "g": 1024**3,
}  # fmt: skip
_QUANTITY = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*$")


def check_name(name: object, what: str) -> str:
    """Return `name` if it can be used as an identifier, else say why not."""
    if isinstance(name, str) and NAME_PATTERN.match(name):
        return name
    raise JobDefinitionError(
        "INVALID_NAME",
        f"{shorten(name)} is not a valid {what}.",
        fix=f"use 1 to 64 letters, digits, '.', '_' or '-' for the {what}, "
        "beginning with a letter or a digit.",
    )


def parse_duration(value: str | timedelta | float, what: str = "duration") -> timedelta:
    """`"10 s"`, `"1.5 min"`, a timedelta, or a number of seconds."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value)
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    if match and match[2].lower() in _DURATION_UNITS:
        return timedelta(seconds=float(match[1]) * _DURATION_UNITS[match[2].lower()])
    raise SettingsError(
        "INVALID_DURATION",
        f"{what} is {shorten(value)}, which is not a duration.",
        fix='write a number and a unit, such as "500 ms", "10 s", "5 min", "1 h" or "7 d".',
    )


def parse_size(value: str | int, what: str = "size") -> int:
    """`"512 MiB"`, `"2 GB"`, or a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    if match and match[2].lower() in (_SIZE_UNITS | {"": 1}):
        return int(float(match[1]) * (_SIZE_UNITS | {"": 1})[match[2].lower()])
    raise SettingsError(
        "INVALID_SIZE",
        f"{what} is {shorten(value)}, which is not a size.",
        fix='write a number and a unit, such as "512 MiB" or "2 GB".',
    )
