"""`holdfast check` as it is called: what it prints, its exit code, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.record import EpochRecord, EpochStatus, StateSize
from holdfast.cli.main import main
from holdfast.control.check import cores_of
from holdfast.control.registry import Registry

EXAMPLES = Path(__file__).parents[2] / "examples"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GOOD = """
import holdfast as hf

class Totals(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0, ttl="1 h")
    output = "user string, total bigint"

    def process(self, edit, ctx):
        yield edit.user, 1

job = hf.Job(
    "checked",
    checkpoint=hf.CheckpointConfig(timeout="10 min"),
    restart=hf.ExponentialDelay(),
    on_failed=["notify"],
    parallelism=2{options},
)

@job.pipeline
def pipeline(flow):
    log = hf.sources.FileLog(
        "log", schema="user string, ts timestamp", max_segments_per_epoch=2,
        on_bad_record="side",
    )
    edits = flow.source("edits", log)
    totals = flow.key_by(edits, "user").process("totals", Totals())
    flow.sink("out", totals, hf.sinks.{sink})
    flow.sink("bad", edits.side("bad"), hf.sinks.Files("bad", "json"))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_MASTER", "local[2]")
    monkeypatch.setenv("HOLDFAST_HEAP_LIMIT", "1 MiB")  # fits on every machine
    monkeypatch.setenv("HOLDFAST_DRIVER_MEMORY", "1m")
    # The home of a test does lie where temporary files do; elsewhere that is a finding.
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def write_app(folder: Path, *, options: str = "", sink: str = 'Files("out")') -> str:
    app = folder / "checked_app.py"
    app.write_text(GOOD.format(options=options, sink=sink))
    return str(app)


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["check", *arguments])
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, captured.out


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out = check(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_a_good_job(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, write_app(tmp_path), "--strict")
    assert code == 0
    assert out == "job checked: guarantee exactly once, end to end\nNothing found.\n"
    assert not home.exists(), "looking must not create anything"


def test_a_warning_counts_when_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = write_app(tmp_path, sink="Console()")
    code, out = check(capsys, app)
    assert code == 0
    assert "SINK_KEEPS_NOTHING" in out
    assert out.endswith("0 errors, 1 warning, 0 info\n")
    assert check(capsys, app, "--strict")[0] == 1


def test_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = found(capsys, write_app(tmp_path, options=", key_groups=1"))
    assert code == 1
    assert document["counts"] == {"error": 1, "warning": 0, "info": 0}
    assert (document["job"], document["guarantee"]) == ("checked", "exactly once")
    [finding] = document["findings"]
    assert finding.keys() == {"name", "severity", "text", "fix", "docs"}
    assert finding["name"] == "PARALLELISM_ABOVE_KEY_GROUPS"


def test_a_refused_job_has_no_guarantee(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / "refused_app.py"
    app.write_text(GOOD.format(options="", sink='Files("out")').replace('"bad"', '"out"', 1))
    code, document = found(capsys, str(app))
    assert code == 1
    assert document["guarantee"] is None
    assert [each["name"] for each in document["findings"]] == ["DUPLICATE_UID"]


def test_the_settings_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = write_app(tmp_path)
    monkeypatch.setenv("HOLDFAST_HEAP_LIMIT", "9000 GB")
    monkeypatch.setenv("HOLDFAST_SPARK", '{"sql.shuffle.partitions": 200}')
    _, document = found(capsys, app)
    names = {finding["name"] for finding in document["findings"]}
    assert names == {"MEMORY_OVERCOMMITTED", "SHUFFLE_PARTITIONS_SET"}


def test_the_master_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = Path(write_app(tmp_path))
    app.write_text(app.read_text().replace("parallelism=2", "parallelism=None"))
    _, document = found(capsys, str(app), "--master", "spark://host:7077")
    assert [each["name"] for each in document["findings"]] == ["PARALLELISM_NOT_DECLARED"]
    app.write_text(app.read_text().replace("parallelism=None", "parallelism=200"))
    _, document = found(capsys, str(app), "--master", "local[2]")
    assert [each["name"] for each in document["findings"]] == ["PARALLELISM_ABOVE_CORES"]


def test_a_known_job_is_judged_by_its_past(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Registry(f"sqlite:///{home}/registry.db") as registry:
        registry.ensure_schema()
        job = registry.register_job("checked", {})
        registry.save_epochs(
            job.id,
            [
                EpochRecord(
                    epoch=number,
                    attempt=1,
                    status=EpochStatus.COMMITTED,
                    started=NOW + timedelta(minutes=number),
                    state={"totals": StateSize(rows=number, bytes=number * 100_000)},
                )
                for number in range(19)
            ],
        )
    _, document = found(capsys, write_app(tmp_path))
    [finding] = document["findings"]
    assert finding["name"] == "HEAP_NEARLY_FULL"
    assert "86%" in finding["text"]


def example_jobs() -> list[tuple[str, str]]:
    return [
        (example.name, job)
        for example in sorted(EXAMPLES.glob("*.py"))
        for job in re.findall(r'hf\.Job\(\s*"([^"]+)"', example.read_text("utf-8"))
    ]


@pytest.mark.parametrize(("example", "job"), example_jobs())
def test_examples_have_no_errors(
    example: str, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = found(capsys, str(EXAMPLES / example), "--job", job)
    assert code == 0
    assert document["counts"]["error"] == 0
    assert document["guarantee"] is not None, "the whole pipeline was followed"


def test_there_are_examples() -> None:
    assert len(example_jobs()) >= 5


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.py"]) == 3
    assert "APP_NOT_FOUND" in capsys.readouterr().err


def in_a_new_process(app: str) -> str:
    """The last line: whether PySpark was imported, whether a JVM runs, the exit code."""
    code = (
        "import sys\n"
        "from holdfast.cli.main import main\n"
        f"code = main(['check', {app!r}, '--strict'])\n"
        "pyspark = sys.modules.get('pyspark')\n"
        "gateway = pyspark and pyspark.SparkContext._gateway\n"
        "print('SPARK', pyspark is not None, gateway, code)\n"
    )
    temporary = Path(app).parent / "temporary"
    temporary.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TMPDIR": str(temporary),
        },
    )
    return ran.stdout.splitlines()[-1]


def test_a_job_without_pyspark_does_not_import_it(tmp_path: Path) -> None:
    assert in_a_new_process(write_app(tmp_path)) == "SPARK False None 0"


def test_a_pipeline_that_imports_pyspark_itself(tmp_path: Path) -> None:
    app = Path(write_app(tmp_path))
    found = 'flow.source("edits", log)'
    text = app.read_text().replace(
        f"    edits = {found}\n",
        f"    from pyspark.sql import functions as F\n    edits = {found}\n"
        '    shouted = edits.withColumn("user", F.upper("user"))\n',
    )
    app.write_text(text.replace("key_by(edits", "key_by(shouted"))
    assert in_a_new_process(str(app)) == "SPARK True None 0"


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[4, 2]", 4),
        ("local[*]", os.cpu_count()),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_cores(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores
