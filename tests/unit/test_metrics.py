"""Metrics: what is exposed, that it goes on after restarts, and that the docs say the same."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from sqlalchemy.dialects import postgresql

import holdfast
from holdfast.checkpoint.record import (
    EpochRecord,
    EpochStatus,
    JobEvent,
    SinkResult,
    StateSize,
    time_text,
)
from holdfast.cli.main import main
from holdfast.clock import ManualClock
from holdfast.control.registry import JobRow, Registry, RunState
from holdfast.control.tables import epochs as epochs_table
from holdfast.errors import EnvironmentProblem, JobDefinitionError, RunFailedError
from holdfast.failure import FailureClass
from holdfast.metrics.collect import collect, exposition
from holdfast.metrics.families import FAMILIES
from holdfast.metrics.labels import MOST_KINDS, MOST_UIDS, OTHER
from holdfast.metrics.queries import SETTLED_AFTER, Place, Totals, sums_by_uid
from holdfast.metrics.server import MetricsServer
from holdfast.metrics.targets import FOLDER, remove_target, write_target

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SAMPLE_NAMES = {family.sample_name for family in FAMILIES}
Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/registry.db"


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    with Registry(url, clock=ManualClock(NOW)) as registry:
        registry.ensure_schema()
        yield registry


def epoch(number: int, attempt: int = 1, **fields: Any) -> EpochRecord:
    started = NOW + timedelta(seconds=10 * number)
    given: dict[str, Any] = {
        "status": EpochStatus.COMMITTED,
        "ended": started + timedelta(seconds=1.5),
        "phases": {"plan": 0.25, "execute": 1.0, "sinks": 0.5},
        "input_rows": 100,
        "skipped_rows": 3,
        "checkpoint_bytes": 2048,
        "state": {"balances": StateSize(rows=7, bytes=512)},
        "sinks": {"out": SinkResult(rows=90, bytes=1), "bad.rows": SinkResult(rows=3, bytes=1)},
        "late": {"balances": 2},
        "watermark": NOW,
    }
    return EpochRecord(epoch=number, attempt=attempt, started=started, **(given | fields))


@pytest.fixture
def job(registry: Registry) -> JobRow:
    """A job that was killed in its third epoch, and goes on."""
    job = registry.register_job("wiki-diffs", {"checkpoint": {"interval": "10 s"}})
    registry.start_attempt(job.id, 1, "host", NOW, {})
    cut = epoch(2, status=EpochStatus.RUNNING, ended=None, sinks={}, late={})
    registry.save_epochs(job.id, [epoch(0), epoch(1), cut])
    registry.start_attempt(job.id, 2, "host", NOW + timedelta(minutes=1), {}, last_committed=1)
    registry.set_state(job.id, RunState.RUNNING)
    registry.save_epochs(job.id, [epoch(2, attempt=2)])
    registry.add_event(job.id, JobEvent(at=NOW, kind="restarted", text="attempt 2"))
    renewed = time_text(NOW - timedelta(seconds=5))
    registry.set_lease(job.id, {"epoch": 4, "renewed": renewed, "owner": "host:1"})
    return job


def scrape(registry: Registry, **options: Any) -> Samples:
    """Samples by name and label values; the text must be valid OpenMetrics."""
    text = exposition(collect(registry, clock=ManualClock(NOW), **options)).decode()
    return parsed(text)


def parsed(text: str) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            key = sample.name, tuple(sample.labels.values())
            assert key not in samples
            samples[key] = sample.value
    return samples


# -- values -----------------------------------------------------------------------------


def test_values(registry: Registry, job: JobRow) -> None:
    samples = scrape(registry)
    name = "wiki-diffs"
    wanted = {
        ("holdfast_job_state", (name, "RUNNING")): 1,
        ("holdfast_job_state", (name, "FAILED")): 0,
        ("holdfast_job_attempts_total", (name,)): 2,
        ("holdfast_job_restarts_total", (name, "lost_driver")): 1,
        ("holdfast_job_restarts_total", (name, "code")): 0,
        ("holdfast_job_start_timestamp_seconds", (name,)): NOW.timestamp() + 60,
        ("holdfast_job_events_total", (name, "restarted")): 1,
        ("holdfast_checkpoints_completed_total", (name,)): 3,
        ("holdfast_checkpoints_failed_total", (name,)): 1,
        ("holdfast_checkpoint_interval_seconds", (name,)): 10,
        ("holdfast_checkpoint_duration_seconds", (name, "execute")): 1,
        ("holdfast_epoch_duration_seconds", (name,)): 1.5,
        ("holdfast_checkpoint_last_completed_timestamp_seconds", (name,)): NOW.timestamp()
        + 21.5,
        ("holdfast_checkpoint_last_id", (name,)): 2,
        ("holdfast_checkpoint_size_bytes", (name,)): 2048,
        ("holdfast_source_records_total", (name,)): 300,
        ("holdfast_sink_records_total", (name, "out")): 270,
        ("holdfast_sink_records_total", (name, "bad.rows")): 9,
        ("holdfast_late_records_total", (name, "balances")): 6,
        ("holdfast_skipped_records_total", (name,)): 9,
        ("holdfast_state_rows", (name, "balances")): 7,
        ("holdfast_state_bytes", (name, "balances")): 512,
        ("holdfast_watermark_timestamp_seconds", (name,)): NOW.timestamp(),
        ("holdfast_supervisor_heartbeat_age_seconds", (name,)): 5,
        ("holdfast_lease_epoch", (name,)): 4,
    }
    assert {key: samples.get(key) for key in wanted} == wanted
    states = [value for (metric, _), value in samples.items() if metric == "holdfast_job_state"]
    assert (len(states), sum(states)) == (len(RunState), 1)
    assert {
        labels[1] for metric, labels in samples if metric == "holdfast_job_restarts_total"
    } == set(FailureClass)


def test_the_version(registry: Registry) -> None:
    [(name, labels)] = scrape(registry)
    assert name == "holdfast_build_info"
    assert holdfast.__version__ in labels


def test_what_is_not_known_is_left_out(registry: Registry) -> None:
    registry.register_job("new", {})
    names = {name for name, _ in scrape(registry)}
    assert not names & {
        "holdfast_watermark_timestamp_seconds",
        "holdfast_source_lag_records",
        "holdfast_lease_epoch",
        "holdfast_supervisor_heartbeat_age_seconds",
        "holdfast_checkpoint_last_id",
        "holdfast_checkpoint_interval_seconds",
        "holdfast_job_start_timestamp_seconds",
    }


@pytest.mark.parametrize(
    ("interval", "seconds"), [("1.5 min", 90), ("2.5", 2.5), ("10", 10), ("0:00:10", None)]
)
def test_interval(registry: Registry, interval: str, seconds: float | None) -> None:
    registry.register_job("new", {"checkpoint": {"interval": interval}})
    assert scrape(registry).get(("holdfast_checkpoint_interval_seconds", ("new",))) == seconds


def test_lag_where_a_record_has_it(registry: Registry, job: JobRow) -> None:
    with registry._database.write() as connection:
        connection.execute(
            epochs_table.update()
            .where(epochs_table.c.epoch == 2, epochs_table.c.attempt == 2)
            .values(record=epoch(2, 2).to_dict() | {"lag": {"edits": 12, "rules": None}})
        )
    samples = scrape(registry)
    lags = {key: value for key, value in samples.items() if "lag" in key[0]}
    assert lags == {("holdfast_source_lag_records", ("wiki-diffs", "edits")): 12}


def test_one_job_of_several(registry: Registry, job: JobRow) -> None:
    registry.register_job("other", {})
    jobs = {
        labels[0]
        for name, labels in scrape(registry, job="wiki-diffs")
        if name != "holdfast_build_info"
    }
    assert jobs == {"wiki-diffs"}


# -- counters ---------------------------------------------------------------------------


def counters(samples: Samples) -> Samples:
    return {key: value for key, value in samples.items() if key[0].endswith("_total")}


def test_counters_survive_a_new_attempt(registry: Registry, job: JobRow, url: str) -> None:
    before = counters(scrape(registry))
    registry.end_attempt(2, RunState.FAILED, NOW, RunFailedError("EXECUTOR_LOST", "gone"))
    registry.start_attempt(job.id, 3, "host", NOW, {}, last_committed=2)
    with Registry(url) as another:  # another process, which knows nothing of the first
        after = counters(scrape(another))
    assert all(after[key] >= value for key, value in before.items())
    risen = {key: after[key] - before[key] for key in before if after[key] != before[key]}
    assert risen == {
        ("holdfast_job_attempts_total", ("wiki-diffs",)): 1,
        ("holdfast_job_restarts_total", ("wiki-diffs", "lost_worker")): 1,
    }


def test_settled_epochs_are_added_up_once(
    registry: Registry, job: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = Totals(registry)
    ranges: list[tuple[Place, Place | None]] = []
    summed = Totals._sum

    def noting(
        self: Totals, connection: Any, job_id: str, after: Place, upto: Place | None
    ) -> Any:
        ranges.append((after, upto))
        return summed(self, connection, job_id, after, upto)

    monkeypatch.setattr(Totals, "_sum", noting)
    for last in (50, 1000, 1001, 1500):
        known = totals.of(job.id).committed
        registry.save_epochs(job.id, [epoch(n, attempt=3) for n in range(known, last)])
        found = totals.of(job.id)
        assert found == Totals(registry).of(job.id), "as if asked for the first time"
        assert (found.committed, found.input_rows) == (last, 100 * last)
        assert found.interrupted == 1
    ranges.clear()
    totals.of(job.id)
    assert ranges == [((3, 1499 - SETTLED_AFTER), None)], "the rest is not read again"
    # Taken back to an older epoch: what is written again counts as well.
    registry.save_epochs(job.id, [epoch(n, attempt=4) for n in range(700, 703)])
    assert totals.of(job.id).committed == 1503
    assert totals.of(job.id) == Totals(registry).of(job.id)


def test_a_late_correction_still_counts(registry: Registry) -> None:
    job = registry.register_job("new", {})
    registry.start_attempt(job.id, 1, "host", NOW, {})
    totals = Totals(registry)
    registry.save_epochs(job.id, [*(epoch(n) for n in range(500))])
    registry.save_epochs(job.id, [epoch(500, status=EpochStatus.RUNNING, ended=None)])
    assert totals.of(job.id).committed == 500
    # Its driver is killed after the commit, before it could say so.
    registry.start_attempt(job.id, 2, "host", NOW, {}, last_committed=500)
    assert totals.of(job.id).committed == 501


def test_queries_for_postgresql() -> None:
    where = epochs_table.c.epoch > 3
    for part, member in (("sinks", "rows"), ("late", None)):
        query = sums_by_uid("postgresql", part, member, where)
        text = str(query.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
        assert "JOIN json_each(epochs.record ->" in text
        assert "json_extract" not in text


# -- labels -----------------------------------------------------------------------------


def test_odd_events_and_uids_make_few_series(registry: Registry, job: JobRow) -> None:
    chance = random.Random(7)
    for number in range(1000):
        odd = "".join(chance.choices("abc /\"\n\\{}=é'", k=8))
        kind = chance.choice([f"kind_{number}", odd, "x" * 32, "executor_lost"])
        registry.add_event(job.id, JobEvent(at=NOW, kind=kind, text=odd, data={"id": odd}))
    many = {f"uid-{number}": StateSize(rows=1, bytes=1) for number in range(500)}
    registry.save_epochs(job.id, [epoch(3, attempt=2, state=many, phases={"odd phase!": 1.0})])
    samples = scrape(registry)
    by_metric: dict[str, list[tuple[str, ...]]] = {}
    for name, labels in samples:
        by_metric.setdefault(name, []).append(labels)
    kinds = [labels[1] for labels in by_metric["holdfast_job_events_total"]]
    assert len(kinds) <= MOST_KINDS + 1
    assert kinds[0] == "restarted", "what was there first keeps its label"
    assert OTHER in kinds
    assert (
        sum(
            value for (name, _), value in samples.items() if name == "holdfast_job_events_total"
        )
        == 1001
    )
    assert len(by_metric["holdfast_state_rows"]) == MOST_UIDS + 1
    assert samples["holdfast_state_rows", ("wiki-diffs", OTHER)] == 500 - MOST_UIDS
    assert by_metric["holdfast_checkpoint_duration_seconds"] == [("wiki-diffs", OTHER)]


def test_labels_are_the_declared_ones(registry: Registry, job: JobRow) -> None:
    declared = {family.sample_name: set(family.labels) for family in FAMILIES}
    allowed = {
        "job", "operator", "sink", "source", "reason", "state", "phase", "kind",
        "version", "python",
    }  # fmt: skip
    assert set().union(*declared.values()) == allowed
    for family in collect(registry):
        for sample in family.samples:
            assert set(sample.labels) == declared[sample.name]


# -- HTTP -------------------------------------------------------------------------------


def get(
    port: int, path: str, *, method: str = "GET", host: str | None = None
) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()


def test_server_answers_on_loopback(job: JobRow, url: str) -> None:
    with MetricsServer(url) as server:
        assert server.port > 0
        status, kind, body = get(server.port, "/metrics")
        assert (status, kind) == (
            200,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )
        samples = parsed(body.decode())
        assert samples["holdfast_checkpoints_completed_total", ("wiki-diffs",)] == 3
        assert get(server.port, "/metrics")[2].count(b"\n") == body.count(b"\n")
        assert get(server.port, "/livez")[::2] == (200, b"ok\n")
        port = server.port
    assert server.port == 0
    with pytest.raises(ConnectionRefusedError):
        get(port, "/livez")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/../metrics", "/livez/x", ""])
def test_server_refuses_other_paths(job: JobRow, url: str, path: str) -> None:
    with MetricsServer(url) as server:
        assert get(server.port, path or "/x")[0] == 404


def test_server_refuses_other_methods_and_foreign_hosts(job: JobRow, url: str) -> None:
    with MetricsServer(url) as server:
        assert get(server.port, "/metrics", method="POST")[0] == 501
        assert get(server.port, "/metrics", host="evil.example")[0] == 403
        assert get(server.port, "/metrics", host="evil.example:80")[0] == 403
        assert get(server.port, "/livez", host=f"localhost:{server.port}")[0] == 200


def test_server_of_one_job(registry: Registry, job: JobRow, url: str) -> None:
    registry.register_job("other", {})
    with MetricsServer(url, job="wiki-diffs") as server:
        assert b'job="other"' not in get(server.port, "/metrics")[2]


def test_server_lives_without_its_registry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with MetricsServer(f"sqlite:///{tmp_path}/file/registry.db") as server:
        assert get(server.port, "/metrics")[0] == 503
        assert get(server.port, "/livez")[0] == 200


def test_server_on_a_taken_port(job: JobRow, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = MetricsServer(url, port=taken.getsockname()[1])
        with pytest.raises(EnvironmentProblem, match="METRICS_PORT_UNAVAILABLE"):
            server.start()
        server.stop()


def test_server_starts_and_stops_more_than_once(job: JobRow, url: str) -> None:
    server = MetricsServer(url)
    for _ in range(2):
        server.start()
        server.start()
        assert get(server.port, "/metrics")[0] == 200
        server.stop()
        server.stop()


def test_targets(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "metrics"
    file = write_target(folder, "wiki-diffs", 4321)
    write_target(folder, "wiki-diffs", 4322)
    assert file == folder / "wiki-diffs.json"
    assert json.loads(file.read_text()) == [
        {"targets": ["127.0.0.1:4322"], "labels": {"instance": "wiki-diffs"}}
    ]
    assert [path.name for path in folder.iterdir()] == ["wiki-diffs.json"]
    remove_target(folder, "wiki-diffs")
    remove_target(folder, "wiki-diffs")
    assert not file.exists()
    with pytest.raises(JobDefinitionError):
        write_target(folder, "../evil", 1)


# -- command line -----------------------------------------------------------------------


def test_command(
    registry: Registry, job: JobRow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", "--home", str(tmp_path / "home")]) == 0
    out = capsys.readouterr().out
    assert out.endswith("# EOF\n")
    assert ("holdfast_lease_epoch", ("wiki-diffs",)) in parsed(out)
    assert main(["metrics", "--home", str(tmp_path / "home"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {family["name"] for family in document} == {family.name for family in FAMILIES}


def test_command_that_serves(registry: Registry, job: JobRow, tmp_path: Path) -> None:
    arguments = ["metrics", "--home", str(tmp_path / "home"), "--port", "0", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", said["url"])[1])  # type: ignore[index]
        assert ("holdfast_lease_epoch", ("wiki-diffs",)) in parsed(
            get(port, "/metrics")[2].decode()
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


# -- documentation, dashboard, alerts ---------------------------------------------------


def exposed(registry: Registry) -> dict[str, tuple[str, str]]:
    return {family.name: (family.type, family.documentation) for family in collect(registry)}


def test_every_metric_is_described_and_exists(registry: Registry) -> None:
    page = (ROOT / "docs" / "guide" / "metrics.md").read_text("utf-8")
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.M)
    described = [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), text)
        for name, kind, labels, text in rows
    ]
    assert described == [
        (family.sample_name, family.kind, family.labels, family.help) for family in FAMILIES
    ]
    assert exposed(registry) == {family.name: (family.kind, family.help) for family in FAMILIES}


def test_names_follow_the_conventions() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"holdfast_[a-z_]+", family.name)
        if "seconds" in family.name or "bytes" in family.name:
            assert family.name.endswith(("_seconds", "_bytes"))
        assert family.help.endswith(".")


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bholdfast_\w+", text))


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_alerts_use_metrics_that_exist() -> None:
    for alert in alerts():
        assert metrics_in(alert["expr"]) <= SAMPLE_NAMES, alert["alert"]
        assert metrics_in(alert["expr"]) or alert["expr"].startswith("up{")
        assert alert["expr"].count("(") == alert["expr"].count(")")
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} == set(alert["annotations"])
        assert metrics_in(alert["annotations"]["description"]) <= SAMPLE_NAMES
    states = re.findall(r'state=~?"([A-Z|]+)"', " ".join(alert["expr"] for alert in alerts()))
    assert {state for each in states for state in each.split("|")} <= set(RunState)


def test_every_alert_is_described_and_exists() -> None:
    page = (ROOT / "docs" / "guide" / "metrics.md").read_text("utf-8")
    described = re.findall(r"^\| `(Holdfast\w+)` \|", page, re.M)
    assert sorted(described) == sorted(alert["alert"] for alert in alerts())


def test_the_dashboard_uses_metrics_that_exist_and_all_that_matter() -> None:
    document = json.loads((ROOT / "deploy" / "grafana" / "holdfast.json").read_text())
    used: set[str] = set()
    for panel in document["panels"]:
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")")
            used |= metrics_in(target["expr"])
    assert used <= SAMPLE_NAMES
    assert SAMPLE_NAMES - used <= {"holdfast_lease_epoch", "holdfast_checkpoint_last_id"}
    places = [tuple(panel["gridPos"].values()) for panel in document["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in document["panels"]}) == len(places)


def test_prometheus_finds_the_targets() -> None:
    document = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    [scrape_config] = document["scrape_configs"]
    assert scrape_config["honor_labels"] is True
    [files] = scrape_config["file_sd_configs"][0]["files"]
    assert files.endswith(f"/{FOLDER}/*.json")
    assert document["rule_files"] == ["alerts.yml"]
