"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.checkpoint.record import EpochRecord, EpochStatus, SinkResult, StateSize
from holdfast.cli import output
from holdfast.cli.main import main
from holdfast.control.registry import JobRow, Registry, RunState
from holdfast.errors import UserCodeError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EVIL = "\x1b[31mred\x1b[0m \x1b]0;title\x07[bold]x[/bold]\r\x9b2J\u202eb"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def registry(home: Path) -> Iterator[Registry]:
    with Registry(f"sqlite:///{home}/registry.db") as registry:
        registry.ensure_schema()
        yield registry


def epoch(number: int, attempt: int = 1, **fields: Any) -> EpochRecord:
    started = NOW + timedelta(seconds=10 * number)
    defaults: dict[str, Any] = {
        "status": EpochStatus.COMMITTED,
        "ended": started + timedelta(seconds=1.5),
        "phases": {"plan": 0.02, "execute": 1.25, "commit": 0.1},
        "input_rows": 120_000,
        "output_rows": 119_000,
        "bytes_written": 3 * 1024**2,
        "checkpoint_bytes": 2048,
        "state": {"balances": StateSize(rows=4321, bytes=5 * 1024**3)},
        "sinks": {"out": SinkResult(rows=119_000, bytes=3 * 1024**2)},
        "watermark": NOW,
    }
    return EpochRecord(epoch=number, attempt=attempt, started=started, **(defaults | fields))


@pytest.fixture
def job(registry: Registry) -> JobRow:
    job = registry.register_job("wiki-diffs", {"app": "app.py"})
    registry.start_attempt(job.id, os.getpid(), socket.gethostname(), NOW, {"spark": "4.3.0"})
    registry.set_state(job.id, RunState.RUNNING)
    registry.save_epochs(job.id, [epoch(0), epoch(1)])
    return job


class Terminal:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.code = 0
        self.out = ""
        self.err = ""

    def __call__(self, *arguments: str) -> str:
        self.code = main(arguments)
        captured = self._capsys.readouterr()
        self.out, self.err = captured.out, captured.err
        return self.out

    def json(self, *arguments: str) -> Any:
        text = self(*arguments, "--json")
        assert self.code == 0, self.err
        assert self.err == ""
        return json.loads(text)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


class TestImports:
    HEAVY = ("pyspark", "pyarrow", "pandas", "sqlalchemy", "alembic", "rich")

    @pytest.mark.parametrize(
        ("arguments", "heavy"),
        [
            (["--help"], (*HEAVY, "pydantic")),
            (["--version"], (*HEAVY, "pydantic")),
            (["run", "--help"], HEAVY),  # Typer itself takes pydantic for a command's options
        ],
    )
    def test_nothing_heavy_for(self, arguments: list[str], heavy: tuple[str, ...]) -> None:
        code = (
            "import sys\n"
            "from holdfast.cli.main import main\n"
            f"code = main({arguments!r})\n"
            f"heavy = sorted(set(sys.modules) & set({heavy!r}))\n"
            "print('HEAVY', heavy, code)\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines()[-1] == "HEAVY [] 0"


class TestMain:
    def test_help_names_every_command(self, cli: Terminal) -> None:
        cli("--help")
        assert cli.code == 0
        for name in ("run", "ps", "show", "attempts", "checkpoints", "doctor", "config"):
            assert re.search(rf"^  {name}\s", cli.out, re.MULTILINE), name

    def test_version(self, cli: Terminal) -> None:
        assert cli("--version") == f"holdfast {holdfast.__version__}\n"
        assert cli.code == 0

    def test_the_shell_completes_commands(self) -> None:
        asked = {
            "_HOLDFAST_COMPLETE": "complete_bash",
            "COMP_WORDS": "holdfast s",
            "COMP_CWORD": "1",
        }
        command = Path(sys.executable).with_name("holdfast")
        ran = subprocess.run(
            [command], env=os.environ | asked, capture_output=True, text=True, check=False
        )
        assert {"show", "stop", "suspend"} <= set(ran.stdout.split()), ran.stderr
        assert "run" not in ran.stdout.split()

    def test_unknown_command(self, cli: Terminal) -> None:
        assert cli("pss") == ""
        assert cli.code == 2
        assert "INVALID_USAGE: No such command 'pss'" in cli.err
        assert "Fix: `holdfast --help`" in cli.err

    def test_missing_argument_points_to_the_command(self, cli: Terminal) -> None:
        cli("show")
        assert cli.code == 2
        assert "`holdfast show --help`" in cli.err

    def test_usage_error_as_json(self, cli: Terminal) -> None:
        cli("show", "--json")
        assert cli.out == ""
        error = json.loads(cli.err)
        assert (error["name"], error["exit_code"], cli.code) == ("INVALID_USAGE", 2, 2)

    def test_error_for_people(self, cli: Terminal, job: JobRow) -> None:
        assert cli("show", "wiki-dif") == ""
        assert cli.code == 3
        assert cli.err == (
            "JOB_NOT_FOUND: there is no job 'wiki-dif'.\nFix: did you mean 'wiki-diffs'?\n"
        )

    def test_error_for_programs(self, cli: Terminal, job: JobRow) -> None:
        assert cli("show", "wiki-dif", "--json") == ""
        assert json.loads(cli.err) == {
            "kind": "NotFoundError",
            "name": "JOB_NOT_FOUND",
            "message": "there is no job 'wiki-dif'.",
            "fix": "did you mean 'wiki-diffs'?",
            "facts": {"job": "wiki-dif", "close_matches": ["wiki-diffs"]},
            "exit_code": 3,
        }

    @pytest.mark.parametrize("arguments", [("--debug", "show", "x"), ("show", "x", "--debug")])
    def test_debug_shows_the_traceback(
        self, cli: Terminal, job: JobRow, arguments: tuple[str, ...]
    ) -> None:
        cli(*arguments)
        assert cli.code == 3
        assert "Traceback (most recent call last)" in cli.err
        assert "JOB_NOT_FOUND" in cli.err

    def test_bad_setting(self, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "loud")
        cli("ps")
        assert cli.code == 2
        assert "HOLDFAST_LOG_LEVEL" in cli.err

    def test_escape_sequences_in_errors_are_removed(self, cli: Terminal) -> None:
        cli("show", f"x{EVIL}\n")
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", cli.err)

    def test_home_flag_beats_the_environment(self, cli: Terminal, tmp_path: Path) -> None:
        assert cli.json("ps", "--home", str(tmp_path / "other")) == []
        assert (tmp_path / "other" / "registry.db").exists()


class TestRun:
    """What is refused before Spark starts; whole runs are in tests/e2e."""

    def test_missing_file(self, cli: Terminal, tmp_path: Path) -> None:
        cli("run", str(tmp_path / "app.py"))
        assert cli.code == 3
        assert "APP_NOT_FOUND" in cli.err
        assert "app.py" in cli.err

    def test_file_that_does_not_load(self, cli: Terminal, tmp_path: Path) -> None:
        app = tmp_path / "broken.py"
        app.write_text("import holdfast as hf\n\njob = hf.Job(nme)\n")
        cli("run", str(app))
        assert cli.code == 1
        assert "APP_FAILED_TO_LOAD: NameError: name 'nme' is not defined" in cli.err
        assert f"{app}:3" in cli.err

    def test_file_that_is_not_python(self, cli: Terminal, tmp_path: Path) -> None:
        app = tmp_path / "broken.py"
        app.write_text("import holdfast as hf\n\ndef process(:\n")
        cli("run", str(app))
        assert "APP_FAILED_TO_LOAD: SyntaxError: " in cli.err
        assert "(broken.py, line 3)" in cli.err
        assert "importlib" not in cli.err, "Python's own frames are not where the mistake is"

    def test_file_without_a_job(self, cli: Terminal, tmp_path: Path) -> None:
        app = tmp_path / "empty_app.py"
        app.write_text("")
        cli("run", str(app))
        assert cli.code == 2
        assert "JOB_UNCLEAR" in cli.err

    def test_which_of_two_jobs(self, cli: Terminal, tmp_path: Path) -> None:
        app = tmp_path / "two_jobs.py"
        app.write_text("import holdfast as hf\n\na, b = hf.Job('one'), hf.Job('two')\n")
        cli("run", str(app))
        assert cli.code == 2
        assert "--job NAME" in cli.err
        cli("run", str(app), "--job", "three")
        assert cli.code == 3
        assert "it has: one, two" in cli.err
        cli("run", str(app), "--job", "two")
        assert cli.code == 2
        assert "PIPELINE_MISSING: job 'two'" in cli.err

    def test_ctrl_c(self, cli: Terminal, tmp_path: Path) -> None:
        app = tmp_path / "interrupted.py"
        app.write_text("raise KeyboardInterrupt\n")
        cli("run", str(app))
        assert cli.code == 130
        assert "Traceback" not in cli.err

    @pytest.mark.parametrize("option", ["--parallelism", "--max-epochs"])
    def test_zero_is_refused(self, cli: Terminal, option: str) -> None:
        cli("run", "app.py", option, "0")
        assert cli.code == 2
        assert option in cli.err


class TestJobs:
    def test_ps_of_nothing(self, cli: Terminal) -> None:
        assert "no jobs yet" in cli("ps")
        assert cli.json("ps") == []

    def test_ps(self, cli: Terminal, job: JobRow) -> None:
        line = next(line for line in cli("ps").splitlines() if "wiki-diffs" in line)
        assert line.split() == [
            "wiki-diffs", job.id, "RUNNING", "1", str(os.getpid()),
            "2026-03-01", "12:00:00Z", "1", *line.split()[-2:],
        ]  # fmt: skip
        (row,) = cli.json("ps")
        assert (row["name"], row["state"], row["alive"]) == ("wiki-diffs", "RUNNING", True)
        assert (row["attempt"], row["epoch"]) == (1, 1)
        assert row["started"] == "2026-03-01T12:00:00Z"

    def test_ps_sees_that_a_process_is_gone(
        self, cli: Terminal, registry: Registry, job: JobRow
    ) -> None:
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        registry.start_attempt(job.id, gone.pid, socket.gethostname(), NOW, {})
        assert "STARTING (process gone)" in cli("ps")
        (row,) = cli.json("ps")
        assert (row["state"], row["alive"], row["pid"]) == ("STARTING", False, None)

    def test_ps_does_not_guess_about_other_hosts(
        self, cli: Terminal, registry: Registry, job: JobRow
    ) -> None:
        registry.start_attempt(job.id, 1, "elsewhere.example", NOW, {})
        assert cli.json("ps")[0]["alive"] is None

    def test_show(self, cli: Terminal, job: JobRow) -> None:
        text = cli("show", job.id[:4])
        for pattern in (
            "JOB +wiki-diffs", "STATE +RUNNING", "STATE ROWS +4,321", r"STATE SIZE +5\.0 GiB",
            "WATERMARK +2026-03-01 12:00:00Z", r"spec\.app +app\.py",
        ):  # fmt: skip
            assert re.search(pattern, text), pattern
        fields = cli.json("show", "wiki-diffs")
        assert fields["last_epoch"] == epoch(1).to_dict()
        assert fields["info"] == {"spark": "4.3.0"}
        assert fields["spec"] == {"app": "app.py"}

    def test_show_has_a_line_for_each_part_of_the_declaration(
        self, cli: Terminal, registry: Registry, job: JobRow
    ) -> None:
        spec = {"checkpoint": {"interval": "1 s", "timeout": None}, "launch": {"claim": False}}
        registry.register_job(job.name, spec)
        text = cli("show", job.name)
        assert re.search(r"spec\.checkpoint\.interval +1 s *\n", text)
        assert re.search(r"spec\.launch\.claim +no *\n", text)
        assert "timeout" not in text
        assert "{" not in text

    def test_show_sources_and_steps(self, cli: Terminal, job: JobRow) -> None:
        last = epoch(1)
        fields = cli.json("show", job.id, "--sources", "--steps")
        assert {row["source"]: row["position"] for row in fields["sources"]} == last.offsets
        assert all(row["moved"] for row in fields["sources"])
        assert {row["sink"] for row in fields["sinks"]} == set(last.sinks)
        assert {row["step"]: row["rows"] for row in fields["steps"]} == {
            uid: size.rows for uid, size in last.state.items()
        }
        text = cli("show", job.id, "--sources", "--steps")
        assert all(uid in text for uid in (*last.offsets, *last.sinks, *last.state))

    def test_show_before_the_first_attempt(self, cli: Terminal, registry: Registry) -> None:
        registry.register_job("new", {})
        fields = cli.json("show", "new")
        assert (fields["state"], fields["last_epoch"], fields["attempts"]) == (
            "CREATED",
            None,
            0,
        )
        assert "CREATED" in cli("show", "new")

    def test_attempts(self, cli: Terminal, registry: Registry, job: JobRow) -> None:
        failure = UserCodeError("USER_FUNCTION_FAILED", f"it raised {EVIL}", fix="mend it")
        first = registry.attempts(job.id)[0]
        registry.end_attempt(first.id, RunState.FAILED, NOW + timedelta(seconds=5), failure)
        registry.start_attempt(job.id, 4711, "box", NOW + timedelta(seconds=9), {})
        text = cli("attempts", "wiki-diffs")
        assert "USER_FUNCTION_FAILED: it raised red [bold]x[/bold]b" in text
        assert not re.search(r"[\x1b\x9b\r\u202e]", text)
        failed, current = cli.json("attempts", "wiki-diffs")
        assert failed["error"]["name"] == "USER_FUNCTION_FAILED"
        assert failed["error"]["message"] == f"it raised {EVIL}"
        assert (failed["number"], failed["ended"]) == (1, "2026-03-01T12:00:05Z")
        assert (current["number"], current["error"]) == (2, None)

    def test_no_attempts(self, cli: Terminal, registry: Registry) -> None:
        registry.register_job("new", {})
        assert "not been started" in cli("attempts", "new")


class TestCheckpoints:
    def test_table_has_everything(self, cli: Terminal, job: JobRow) -> None:
        lines = cli("checkpoints", "wiki-diffs").splitlines()
        line = next(line for line in lines if re.match(r"\s*1 ", line))
        for text in (
            "COMMITTED", "2026-03-01 12:00:10Z", "1.5 s",
            "plan 20 ms, execute 1.2 s, commit 100 ms", "120,000", "119,000", "3.0 MiB",
            "4,321", "5.0 GiB", "2.0 KiB", "incremental",
        ):  # fmt: skip
            assert text in line, text

    def test_last(self, cli: Terminal, job: JobRow) -> None:
        rows = cli.json("checkpoints", "wiki-diffs", "--last", "1")
        assert [row["epoch"] for row in rows] == [1]

    def test_json_is_the_whole_record(self, cli: Terminal, job: JobRow) -> None:
        rows = cli.json("checkpoints", "wiki-diffs")
        assert [EpochRecord.from_dict(row) for row in rows] == [epoch(0), epoch(1)]
        assert rows[0]["started"] == "2026-03-01T12:00:00Z"
        assert rows[0]["seconds"] == 1.5
        assert rows[0]["state_rows"] == 4321

    def test_every_attempt_is_listed(
        self, cli: Terminal, registry: Registry, job: JobRow
    ) -> None:
        cut = epoch(2, status=EpochStatus.INTERRUPTED, ended=None)
        registry.save_epochs(job.id, [cut, epoch(2, attempt=2)])
        rows = cli.json("checkpoints", "wiki-diffs", "--last", "2")
        assert [(row["epoch"], row["attempt"], row["status"]) for row in rows] == [
            (2, 1, "INTERRUPTED"),
            (2, 2, "COMMITTED"),
        ]
        assert "INTERRUPTED" in cli("checkpoints", "wiki-diffs")

    def test_none_yet(self, cli: Terminal, registry: Registry) -> None:
        registry.register_job("new", {})
        assert "no epochs yet" in cli("checkpoints", "new")
        assert cli.json("checkpoints", "new") == []

    def test_follow_spans_attempts_and_ends_with_the_job(
        self,
        cli: Terminal,
        registry: Registry,
        job: JobRow,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def go_on(_seconds: float) -> None:
            """While the command waits for more, it comes."""
            registry.save_epochs(job.id, [epoch(2, status=EpochStatus.RUNNING, ended=None)])
            registry.start_attempt(job.id, 1, "host", NOW, {})
            registry.save_epochs(job.id, [epoch(2, attempt=2), epoch(3, attempt=2)])
            registry.set_state(job.id, RunState.FINISHED)

        monkeypatch.setattr("holdfast.cli.checkpoints.time.sleep", go_on)
        cli("checkpoints", "wiki-diffs", "--follow", "--last", "1", "--json")
        rows = [json.loads(line) for line in cli.out.splitlines()]
        assert [(row["epoch"], row["attempt"], row["status"]) for row in rows] == [
            (1, 1, "COMMITTED"),
            (2, 1, "INTERRUPTED"),
            (2, 2, "COMMITTED"),
            (3, 2, "COMMITTED"),
        ]

    def test_follow_for_people(self, cli: Terminal, registry: Registry, job: JobRow) -> None:
        registry.set_state(job.id, RunState.FINISHED)
        lines = cli("checkpoints", "wiki-diffs", "-f").splitlines()
        assert len(lines) == 2
        assert lines[1].startswith("epoch 1  attempt 1  status COMMITTED")
        assert "by phase plan 20 ms, execute 1.2 s" in lines[1]


class TestConfig:
    def test_show_with_origin(
        self, cli: Terminal, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_REGISTRY_URL", "postgresql://me:geheim@db/holdfast")
        home.mkdir()
        (home / "holdfast.toml").write_text('master = "local[3]"\n[spark]\nui.port = 4050\n')
        rows = {row["key"]: row for row in cli.json("config", "show", "--origin")}
        assert rows["home"]["origin"] == "HOLDFAST_HOME"
        assert rows["master"] == {
            "key": "master",
            "value": "local[3]",
            "origin": str(home / "holdfast.toml"),
        }
        assert rows["spark.ui.port"]["value"] == "4050"
        assert "geheim" not in cli.out
        assert re.search(r"driver_memory +2g +default", cli("config", "show", "--origin"))

    def test_show_without_origin(self, cli: Terminal) -> None:
        assert all(set(row) == {"key", "value"} for row in cli.json("config", "show"))
        assert "default" not in cli("config", "show")


class TestDoctor:
    def test_fails_with_the_code_of_the_environment(
        self, cli: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
        cli("doctor", "--json")
        assert cli.code == 6
        findings = {row["check"]: row for row in json.loads(cli.out)}
        assert findings["java"]["status"] == "fail"
        assert "JAVA_HOME" in findings["java"]["fix"]
        assert "fail" in cli("doctor")
        assert cli.code == 6

    def test_passes_here(
        self, cli: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        fake = tmp_path / "jdk"
        (fake / "bin").mkdir(parents=True)
        (fake / "bin" / "java").write_text("#!/bin/sh\n")
        (fake / "bin" / "java").chmod(0o755)
        (fake / "release").write_text('JAVA_VERSION="17.0.2"\n')
        monkeypatch.setenv("JAVA_HOME", str(fake))
        rows = cli.json("doctor")
        assert {row["status"] for row in rows} == {"ok"}


class TestOutput:
    @pytest.mark.parametrize(
        ("dirty", "pure"),
        [
            (EVIL, "red [bold]x[/bold]b"),
            ("a\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
            ("plain ünïcode 数 🎣", "plain ünïcode 数 🎣"),
            ("two\nlines\tand a tab", "two lines and a tab"),
            ("\x1b", ""),
            ("cut\x1b[", "cut"),
        ],
    )
    def test_clean(self, dirty: str, pure: str) -> None:
        assert output.clean(dirty) == pure

    def test_clean_may_keep_lines(self) -> None:
        assert output.clean("a\r\nb\x00", keep_lines=True) == "a\nb"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, ""), (0.0, "0 ms"), (0.0426, "43 ms"), (1.25, "1.2 s"), (99.9, "99.9 s"),
            (125.0, "2 min 05 s"), (3720.0, "1 h 02 min"),
        ],
    )  # fmt: skip
    def test_seconds(self, value: float | None, text: str) -> None:
        assert output.seconds(value) == text

    @pytest.mark.parametrize(
        ("value", "text"),
        [(None, ""), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")],
    )
    def test_size(self, value: int | None, text: str) -> None:
        assert output.size(value) == text

    def test_json_is_ascii(self, capsys: pytest.CaptureFixture[str]) -> None:
        output.print_json({"name": f"ü{EVIL}", "at": NOW, "path": Path("/x")})
        text = capsys.readouterr().out
        assert text.isascii()
        assert "\x1b" not in text
        assert json.loads(text) == {
            "name": f"ü{EVIL}",
            "at": "2026-03-01T12:00:00Z",
            "path": "/x",
        }
