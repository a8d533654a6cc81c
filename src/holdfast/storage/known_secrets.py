"""Secrets that this process has got to know: hidden in whatever it stores, sends or prints.

Whoever follows a reference (:mod:`holdfast.storage.references`) remembers here what it stood
for. Nothing of this is ever written down.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from holdfast.errors import HoldfastError

HIDDEN = "********"
SHORTEST = 6
"""A shorter value stands in too many places by chance."""
_LOOK_SECONDS = 0.5
_CHUNK = 1024 * 1024

_forms: frozenset[str] = frozenset()
_lock = threading.Lock()


def remember(value: str) -> None:
    global _forms  # noqa: PLW0603 - what a process knows belongs to the process
    with _lock:
        _forms = _forms | forms_of(value)


def forms_of(value: str) -> frozenset[str]:
    """The ways in which a secret may stand in a text. Pure."""
    if len(value) < SHORTEST:
        return frozenset()
    found = {value, quote(value, safe=""), quote(value), quote_plus(value)}
    found |= {repr(value)[1:-1], json.dumps(value)[1:-1]}
    found |= set(_base64_forms(value.encode()))
    return frozenset(form for form in found if len(form) >= SHORTEST)


def _base64_forms(value: bytes) -> Iterator[str]:
    """Also of the middle of something longer, such as `user:password`: there are three ways to
    stand in it, and the characters at both ends depend on what is around."""
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + value).decode().rstrip("=")
            first = 0 if before == 0 else before + 1
            last = len(text) - (1 if (before + len(value)) % 3 else 0)
            yield text[first:last]


def hide(text: str) -> str:
    """The text without any secret that is known here."""
    known = _forms
    return _pattern(known).sub(HIDDEN, text) if known else text


def hide_in(value: Any) -> Any:
    """The same for values of JSON, however deep."""
    if not _forms:
        return value
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hide_in(key): hide_in(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [hide_in(inner) for inner in value]
    return value


def hide_in_error(error: HoldfastError) -> HoldfastError:
    return HoldfastError.from_fields(hide_in(json.loads(error.to_json()))) if _forms else error


def _pattern(forms: frozenset[str]) -> re.Pattern[str]:
    return re.compile(
        "|".join(re.escape(each) for each in sorted(forms, key=len, reverse=True))
    )


@contextmanager
def hidden_in_files(files: Sequence[Path]) -> Iterator[None]:
    """While this lasts, secrets in these logs are written over, soon after they were written.

    A log has several writers, the JVM among them, and none of the others knows what a secret
    is. A filter between them and the file would hold them up whenever it stands still.
    """
    masks, over = [_Mask(file) for file in files], threading.Event()

    def look() -> None:
        for mask in masks:
            with suppress(OSError):  # it is not there yet, or the disk is broken
                mask.apply()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            look()

    thread = threading.Thread(target=watch, name="secrets", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()


class _Mask:
    """Of one log, up to where it was looked at."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, 0
        self._forms: frozenset[str] = frozenset()

    def apply(self) -> None:
        known = _forms
        if not known:
            return
        if known != self._forms:
            self._forms, self._seen = known, 0  # it may have been written before it was known
        encoded = sorted((each.encode() for each in known), key=len, reverse=True)
        pattern, longest = re.compile(b"|".join(map(re.escape, encoded))), len(encoded[0])
        with self._path.open("r+b") as file:
            while True:
                # One that was half written, or lies across two chunks, is seen the next time.
                begin = max(0, self._seen - longest)
                file.seek(begin)
                data = file.read(_CHUNK + longest)
                if begin + len(data) <= self._seen:
                    return
                for found in pattern.finditer(data):
                    # As long as it was: others append to the file meanwhile, and read it.
                    file.seek(begin + found.start())
                    file.write(b"*" * len(found[0]))
                file.flush()
                self._seen = begin + len(data)
