"""Wikipedia edits as a stream; live ones from a server that misbehaves as real ones do."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from holdfast.errors import DataError, NotFoundError, RunFailedError
from holdfast.state.schema import parse_columns
from holdfast.wikipedia.edit import SCHEMA, Edit, from_recent_change
from holdfast.wikipedia.live import LiveEdits
from holdfast.wikipedia.origins import edits_of_file, synthetic_edits
from holdfast.wikipedia.pump import pump
from holdfast.wikipedia.targets import FileLogTarget

AGENT = "holdfast-tests/1 (tests)"


def change(number: int, **more: Any) -> dict[str, Any]:
    """As Wikimedia sends it, shortened."""
    return {
        "meta": {
            "id": f"e{number}",
            "dt": "2026-01-01T00:00:01Z",
            "domain": "de.wikipedia.org",
        },
        "id": number,
        "type": "edit",
        "title": "Brücken",
        "user": f"user {number % 3}",
        "bot": False,
        "timestamp": 1767225600 + number,
        "wiki": "dewiki",
        "length": {"old": 100, "new": 100 + number},
        **more,
    }


class Handler(BaseHTTPRequestHandler):
    """Plays the connections of a script, one after the other."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        script = self.server.script
        self.server.asked.append(dict(self.headers))
        play = script[min(len(self.server.asked), len(script)) - 1]
        if isinstance(play, int):
            self.send_response(play)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write("".join(play).encode())
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Not on the terminal."""


class Server(ThreadingHTTPServer):
    script: list[list[str] | int]
    asked: list[dict[str, str]]


def event(content: Any, event_id: str = "") -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    return (f"id: {event_id}\n" if event_id else "") + f"data: {text}\n\n"


@contextmanager
def serving(*script: list[str] | int) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.script, server.asked = list(script), []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def live(server: Server) -> LiveEdits:
    return LiveEdits(
        user_agent=AGENT,
        url=f"http://127.0.0.1:{server.server_port}/v2/stream/recentchange",
        first_delay=0.01,
        jitter=lambda: 0.5,
    )


def test_a_stream_that_is_interrupted_goes_on_where_it_was() -> None:
    first = [event(change(1), "a"), event(change(2), "b")]
    again = [event(change(2), "b"), event(change(3), "c"), 'data: {"half": ']
    last = [": keep alive\n\n", event(change(4), "d"), event(change(5), "e")]
    with serving(first, 503, again, 429, last) as server:
        edits = live(server)
        found = list(islice(edits, 5))
        assert [edit.id for edit in found] == ["e1", "e2", "e3", "e4", "e5"]
        assert [edit.diff for edit in found] == [1, 2, 3, 4, 5]
        assert edits.counts.repeated == 1
        assert edits.counts.reconnects == 4
        assert [asked.get("Last-Event-ID") for asked in server.asked] == [
            None,
            "b",
            "b",
            "c",
            "c",
        ]
        assert {asked["User-Agent"] for asked in server.asked} == {AGENT}


def test_what_is_no_edit_is_left_out_and_counted() -> None:
    events = [
        event("no json"),
        event("[1, 2]"),
        event({"type": "edit"}),
        event(change(1, timestamp="noon")),
        event(change(2, type="categorize")),
        event(change(3, meta={"id": "x", "domain": "canary"})),
        event(change(4, type="new", length={"new": 7}, user=None)),
    ]
    with serving(events) as server:
        edits = live(server)
        (found,) = islice(edits, 1)
    assert (found.diff, found.old_length, found.user) == (7, None, None)
    assert (edits.counts.garbage, edits.counts.other) == (4, 2)


def test_an_address_that_is_no_stream_is_refused() -> None:
    with serving(404) as server, pytest.raises(RunFailedError, match="answers 404"):
        next(iter(live(server)))


def test_a_stream_ends_when_it_is_told_to() -> None:
    with serving([event(change(1))], 503) as server:
        edits = live(server)
        for edit in edits:
            assert edit.id == "e1"
            edits.stop.set()


def test_an_edit_has_the_columns_of_the_schema() -> None:
    edit = from_recent_change(change(1))
    assert edit is not None
    assert list(json.loads(edit.to_json())) == parse_columns(SCHEMA).names
    assert (edit.ts, edit.published) == ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01Z")


# -- files and made up ones -------------------------------------------------------------------


def test_files_of_every_kind_are_replayed(tmp_path: Path) -> None:
    ours = next(synthetic_edits(users=3, seed=1))
    old: dict[str, Any] = {
        "time": "2015-09-12T00:46:58.771Z",
        "channel": "#en.wikipedia",
        "page": "Talk",
    }
    old |= {"user": "GEL", "delta": 36, "isRobot": True}
    lines = [ours.to_json(), json.dumps(change(2)), "", json.dumps(old)]
    with gzip.open(tmp_path / "edits.json.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    found = list(edits_of_file(tmp_path / "edits.json.gz"))
    assert [edit.diff for edit in found] == [ours.diff, 2, 36]
    assert found[0] == ours
    assert (found[2].wiki, found[2].bot) == ("en.wikipedia", True)


@pytest.mark.parametrize("line", ["{", "[]", '{"delta": 1}', '{"user": "x"}', '{"meta": 7}'])
def test_a_line_that_is_no_edit_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "edits.jsonl"
    path.write_text(json.dumps(change(1)) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"edits\.jsonl, line 2"):
        list(edits_of_file(path))
    with pytest.raises(NotFoundError, match="EDITS_NOT_FOUND"):
        list(edits_of_file(tmp_path / "nothing"))


def test_made_up_edits_are_the_same_for_the_same_seed() -> None:
    def some(seed: int, **more: float) -> list[Edit]:
        return list(islice(synthetic_edits(users=50, seed=seed, **more), 500))

    assert some(1) == some(1)
    assert some(1) != some(2)
    assert len({edit.id for edit in some(1)}) == 500
    assert all((edit.new_length or 0) - (edit.old_length or 0) == edit.diff for edit in some(1))
    assert [edit.ts for edit in some(1)] == sorted(edit.ts for edit in some(1))
    late = some(1, disorder=10.0)
    assert [edit.ts for edit in late] != sorted(edit.ts for edit in late)
    assert all(edit.ts <= edit.published for edit in late)


# -- the command ------------------------------------------------------------------------------


def test_edits_go_to_a_file_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    with serving([event(change(n)) for n in range(1, 8)]) as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        to = f"filelog:{tmp_path / 'log'}"
        options = ["--from", "live", "--url", url, "--limit", "7", "--user-agent", AGENT]
        assert main(["wikipedia", "--to", to, *options, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["sent"], result["reconnects"]) == (7, 0)
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "log").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert [line["diff"] for line in lines] == list(range(1, 8))
    for wrong in ("kafka:", "elsewhere:x", "edits"):
        assert main(["wikipedia", "--to", wrong]) == 2
        assert "INVALID_TARGET" in capsys.readouterr().err
    assert main(["wikipedia", "--to", "kafka:edits"]) != 0
    assert "BROKER_NOT_RUNNING" in capsys.readouterr().err


def test_a_rate_is_kept_and_a_stop_is_heard(tmp_path: Path) -> None:
    stop, sent = threading.Event(), []

    def told(count: int) -> None:
        sent.append(count)
        if count == 20:
            stop.set()

    with FileLogTarget(tmp_path) as target:
        edits = synthetic_edits(users=5, seed=1)
        done = pump(edits, target, stop=stop, rate=200, told=told)
    assert done.sent == 20 == sent[-1]
    assert done.seconds >= 19 / 200
