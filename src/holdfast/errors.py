"""Every error a user can meet.

    HoldfastError
    ├── UsageError            the call or the declaration is wrong        exit 2
    │   ├── JobDefinitionError    uid, schema, state, plan: refused before start
    │   └── SettingsError         an option or setting has a bad value
    ├── NotFoundError         a job, a checkpoint, a file is not there    exit 3
    ├── ConflictError         somebody else holds it, or it does not fit  exit 4
    │   └── StateMismatchError    the code and the stored state disagree
    ├── AccessError           not logged in, or not allowed to             exit 5
    ├── EnvironmentProblem    Java, a package, the disk, a permission     exit 6
    ├── DataError             the input or the user's output is bad       exit 1
    │   ├── BadRecordError        a record that does not parse
    │   ├── UserCodeError         the user's function raised
    │   └── OutputSchemaError     it returned something that does not fit
    ├── CorruptionError       stored bytes are not what was written       exit 1
    └── RunFailedError        the query died for any other reason         exit 1

An error has a stable name (``DUPLICATE_UID``), says the thing and the cause, and on a
line of its own the fix. The raw facts stay in ``facts``, so errors survive the trip from
a Python worker to the driver (see :func:`HoldfastError.to_json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

MAX_VALUE_LENGTH = 200


def shorten(value: object, limit: int = MAX_VALUE_LENGTH) -> str:
    """``repr`` of a value, cut so that an error stays readable."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


class HoldfastError(Exception):
    """Base of all holdfast errors."""

    exit_code: ClassVar[int] = 1

    def __init__(self, name: str, message: str, *, fix: str = "", **facts: Any) -> None:
        super().__init__(name, message, fix, facts)
        self.name = name
        self.message = message
        self.fix = fix
        self.facts = facts

    def __str__(self) -> str:
        text = f"[{self.name}] {self.message}"
        return f"{text}\nFix: {self.fix}" if self.fix else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self).__name__, self.name, self.message, self.fix, self.facts)

    def to_json(self) -> str:
        return json.dumps(
            {
                "kind": type(self).__name__,
                "name": self.name,
                "message": self.message,
                "fix": self.fix,
                "facts": self.facts,
            },
            default=str,
            ensure_ascii=True,
        )

    @staticmethod
    def from_json(text: str) -> HoldfastError:
        return HoldfastError.from_fields(json.loads(text))

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> HoldfastError:
        return _rebuild(
            fields["kind"], fields["name"], fields["message"], fields["fix"], fields["facts"]
        )


class UsageError(HoldfastError):
    exit_code = 2


class JobDefinitionError(UsageError):
    """The job is wrong as written; nothing was started."""


class SettingsError(UsageError):
    """An option or setting has a value that cannot be used."""


class NotFoundError(HoldfastError):
    exit_code = 3


class ConflictError(HoldfastError):
    exit_code = 4


class StateMismatchError(ConflictError):
    """The declared state and the stored state disagree."""


class AccessError(HoldfastError):
    """Who asks is not known, or may not do it."""

    exit_code = 5


class EnvironmentProblem(HoldfastError):  # noqa: N818 - "EnvironmentError" is Python's own
    exit_code = 6


class DataError(HoldfastError):
    """The data, not the installation, stopped the job."""


class BadRecordError(DataError):
    pass


class UserCodeError(DataError):
    pass


class OutputSchemaError(DataError):
    pass


class CorruptionError(HoldfastError):
    pass


class RunFailedError(HoldfastError):
    pass


def _all_kinds(root: type[HoldfastError]) -> dict[str, type[HoldfastError]]:
    kinds = {root.__name__: root}
    for child in root.__subclasses__():
        kinds |= _all_kinds(child)
    return kinds


def _rebuild(
    kind: str, name: str, message: str, fix: str, facts: dict[str, Any]
) -> HoldfastError:
    cls = _all_kinds(HoldfastError).get(kind, HoldfastError)
    return cls(name, message, fix=fix, **facts)
