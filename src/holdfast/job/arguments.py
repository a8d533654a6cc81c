"""What a job can be told at each start: names with defaults, whose types the values take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.errors import JobDefinitionError, UsageError, shorten
from holdfast.types import check_name

Value = str | int | float | bool
_TYPES: Final = (bool, int, float, str)
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")
_GIVEN = re.compile(r"^([^=]+)=(.*)$", re.DOTALL)


class Arguments(Mapping[str, Value]):
    """The values of this run, by name."""

    def __init__(self, defaults: Mapping[str, Value]) -> None:
        for name, value in defaults.items():
            check_name(name, "argument's name")
            if type(value) not in _TYPES:
                raise JobDefinitionError(
                    "INVALID_OPTION",
                    f"argument {name!r} has {shorten(value)} as its default.",
                    fix="use text, a number, True or False.",
                )
        self._values = dict(defaults)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Arguments({self._values!r})"

    def told(self, given: Mapping[str, str]) -> Arguments:
        """With these instead of their defaults. They come as text, from a command or a form."""
        for name in given:
            if name not in self._values:
                raise _unknown(name, self._values)
        read = {name: _read(name, text, self[name]) for name, text in given.items()}
        return Arguments(self._values | read)

    def known_of(self, given: Mapping[str, str]) -> dict[str, str]:
        """What other code was told, as far as this one knows of it."""
        return {name: text for name, text in given.items() if name in self._values}


def parse_arguments(given: list[str]) -> dict[str, str]:
    """`NAME=VALUE`, as typed."""
    found: dict[str, str] = {}
    for each in given:
        match = _GIVEN.match(each)
        if match is None:
            raise UsageError(
                "INVALID_ARGUMENT",
                f"{shorten(each)} is no argument of a job.",
                fix="write NAME=VALUE.",
            )
        found[match[1].strip()] = match[2]
    return found


def _read(name: str, text: str, default: Value) -> Value:
    """Text as a value of the default's type."""
    if isinstance(default, str):
        return text
    word = text.strip().lower()
    if isinstance(default, bool):
        if word in (*_YES, *_NO):
            return word in _YES
        raise _invalid(name, text, "true or false")
    try:
        return type(default)(word)
    except ValueError:
        wanted = "a whole number" if isinstance(default, int) else "a number"
        raise _invalid(name, text, wanted) from None


def _invalid(name: str, text: str, wanted: str) -> UsageError:
    return UsageError(
        "INVALID_ARGUMENT",
        f"argument {name!r} is {shorten(text)}, not {wanted}.",
        fix=f"its default in the job's file is {wanted}: give one.",
    )


def _unknown(name: str, known: Mapping[str, Value]) -> UsageError:
    return UsageError(
        "UNKNOWN_ARGUMENT",
        f"the job has no argument {shorten(name)}.",
        fix=f"it has: {', '.join(known)}."
        if known
        else 'it has none: declare it with its default, Job(…, arguments={"NAME": "value"}).',
    )
