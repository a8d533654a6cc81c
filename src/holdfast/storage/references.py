"""Secrets by reference: `${env:NAME}` and `${file:/path}` become what they stand for."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.kafka_access import REFERENCE
from holdfast.storage.known_secrets import remember


def resolve(text: str) -> str:
    """What a text says once its references are followed. Call it where that is used."""
    return REFERENCE.sub(_value, text)


def _value(found: re.Match[str]) -> str:
    value = _looked_up(found)
    remember(value)
    return value


def _looked_up(found: re.Match[str]) -> str:
    kind, name = found[1], found[2]
    if kind == "env":
        value = os.environ.get(name)
        if value is None:
            raise SettingsError(
                "SECRET_NOT_FOUND",
                f"{found[0]} stands for the environment variable {name}, which is not set.",
                fix=f"set {name} for the process that runs the job.",
            )
        return value
    try:
        # An editor, or `echo`, ends a file with a newline that is no part of the secret.
        return Path(name).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            "SECRET_NOT_FOUND",
            f"{found[0]} stands for a file that cannot be read: {error}.",
            fix="create the file, or let the user that runs the job read it.",
        ) from error
