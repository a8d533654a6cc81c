"""Errors on their way from a Python worker to the driver.

Spark carries a worker's exception as text inside its own exceptions. A HoldfastError puts
itself into that text as one line of JSON; the driver finds it and raises it again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError

_MARK = re.compile(r"holdfast-error:([A-Za-z0-9+/=]+):end")


class CarriedError(Exception):
    """What leaves the worker: a HoldfastError as text."""

    def __init__(self, error: HoldfastError) -> None:
        packed = base64.b64encode(error.to_json().encode()).decode()
        super().__init__(f"{error}\nholdfast-error:{packed}:end")


@contextmanager
def carry_errors() -> Iterator[None]:
    """Around code in a worker: let a HoldfastError survive the trip to the driver."""
    try:
        yield
    except HoldfastError as error:
        raise CarriedError(error) from error


def carried_error(text: str) -> HoldfastError | None:
    """The HoldfastError inside the text of a Spark exception, if there is one."""
    found = _MARK.search(text)
    if found is None:
        return None
    return HoldfastError.from_json(base64.b64decode(found[1]).decode())
