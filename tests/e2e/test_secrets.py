"""SR-17: a secret that user code cries out is nowhere to be found afterwards."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from e2e.drivers import Home
from server.workshop import living

PASSWORD = "CANARY-9f-correct-horse"
JOB = """
import os
import holdfast as hf
from holdfast.storage.references import resolve

class Loud(hf.KeyedProcess):
    output = "user string"

    def process(self, row, ctx):
        raise RuntimeError("login with " + os.environ["WIKI_PASSWORD"] + " was refused")

job = hf.Job("loud", parallelism=1, restart=hf.NoRestart())

@job.pipeline
def pipeline(flow):
    resolve("${env:WIKI_PASSWORD}")  # as a source of Kafka does
    rows = flow.source("rows", hf.sources.Collection([("ann",)], schema="user string"))
    flow.sink("out", flow.key_by(rows, "user").process("loud", Loud()), hf.sinks.Discard())
"""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param([], id="supervised"),
        pytest.param(["--unsupervised"], id="unsupervised", marks=pytest.mark.long),
    ],
)
def test_sr17_a_secret_in_an_exception(tmp_path: Path, how: list[str]) -> None:
    home = Home(tmp_path)
    (tmp_path / "loud.py").write_text(JOB)
    done = home.call("run", "loud.py", "--available-now", *how, WIKI_PASSWORD=PASSWORD)
    assert done.returncode == 1
    assert "was refused" in done.stderr and PASSWORD not in done.stdout + done.stderr
    forms = [PASSWORD.encode(), base64.b64encode(PASSWORD.encode()).rstrip(b"=")]
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    holders = [path for path in files if any(form in path.read_bytes() for form in forms)]
    assert holders == []
    [log] = [path for path in files if path.name == "attempt-00001.log"]
    # It was there to be hidden, in the words of the JVM.
    assert f"login with {'*' * len(PASSWORD)} was refused" in log.read_text(errors="replace")
    with living(tmp_path / "home") as live, live.http() as http:
        for path in ("exceptions", "logs", "logs/file", "events", "attempts"):
            answer = http.get(f"/api/v1/jobs/loud/{path}")
            assert answer.status_code == 200 and PASSWORD not in answer.text
        [failure] = http.get("/api/v1/jobs/loud/exceptions").json()
        assert "was refused" in json.dumps(failure)
