"""Secrets that a process has got to know are hidden in all that leaves it."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.cli.main import main
from holdfast.control.redaction import redacted, redacted_text
from holdfast.drill.waiting import wait
from holdfast.errors import RunFailedError, SettingsError
from holdfast.storage import known_secrets
from holdfast.storage.known_secrets import (
    HIDDEN,
    forms_of,
    hidden_in_files,
    hide,
    hide_in,
    hide_in_error,
    remember,
)
from holdfast.storage.references import resolve

PASSWORD = "pa ss/wö?rd+1"


@pytest.fixture(autouse=True)
def _knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "_forms", frozenset())


@pytest.mark.parametrize("around", ["", "u:", "us:", "usr:", "user:x"])
def test_in_any_form(around: str) -> None:
    remember(PASSWORD)
    for form in (PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=""), repr(PASSWORD)):
        assert HIDDEN in hide(f"<{around}{form}>")
        assert form not in hide(f"<{around}{form}>")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for after in ("", "!", "!!"):
            text = encode(f"{around}{PASSWORD}{after}".encode()).decode()
            left = hide(text).replace(HIDDEN, "")
            assert HIDDEN in hide(text)
            assert len(left) <= len(encode(f"{around}{after}".encode())) + 4


def test_what_a_reference_stands_for_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIKI_PASSWORD", "correct-horse")
    (tmp_path / "key").write_text("battery-staple\n")
    assert hide("correct-horse") == "correct-horse"
    assert resolve(f"${{env:WIKI_PASSWORD}}:${{file:{tmp_path}/key}}").count("-") == 2
    assert hide("correct-horse, battery-staple") == f"{HIDDEN}, {HIDDEN}"
    assert redacted_text("it said: correct-horse") == f"it said: {HIDDEN}"
    assert redacted({"said": ["battery-staple"]}) == {"said": [HIDDEN]}
    with pytest.raises(SettingsError):
        resolve("${env:WIKI_NOTHING}")


def test_short_values_stand_in_too_many_places() -> None:
    assert forms_of("admin") == frozenset()
    assert all(len(form) >= known_secrets.SHORTEST for form in forms_of("admin1"))


def test_errors_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    error = RunFailedError("X", "correct-horse", fix="not correct-horse", at={"a": ["y"]})
    assert hide_in_error(error) is error
    remember("correct-horse")
    hidden = hide_in_error(error)
    assert isinstance(hidden, RunFailedError)
    assert (hidden.message, hidden.fix) == (HIDDEN, f"not {HIDDEN}")
    assert hide_in({"a": ("correct-horse", 1, None)}) == {"a": [HIDDEN, 1, None]}
    assert main(["correct-horse"]) == 2
    assert "correct-horse" not in capsys.readouterr().err


def test_a_log_that_others_write(tmp_path: Path) -> None:
    """Before the secret is known, afterwards, and in two pieces."""
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as writer, hidden_in_files([log, tmp_path / "none"]):
        writer.write(b"first correct-horse\nsecond corr")
        remember("correct-horse")
        wait(lambda: b"*" in log.read_bytes(), "the first")
        writer.write(b"ect-horse, and correct-horse\n")
    stars = "*" * len("correct-horse")
    assert log.read_text() == f"first {stars}\nsecond {stars}, and {stars}\n"


def test_a_large_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "_CHUNK", 50)
    log = tmp_path / "log"
    log.write_text("correct-horse " * 100)
    remember("correct-horse")
    with hidden_in_files([log]):
        pass
    assert log.read_text() == f"{'*' * len('correct-horse')} " * 100
