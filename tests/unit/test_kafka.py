"""Kafka without a broker: what would be started, how brokers are reached, secrets."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.checkpoint.kafka_positions import data_lost, lag_of, lost_records, total
from holdfast.config import RuntimeConfig
from holdfast.control.kafka.broker import LocalBroker
from holdfast.control.kafka.checkup import kafka_connector
from holdfast.control.kafka.plan import COORDINATES, VERSION, BrokerPlan
from holdfast.control.maven import jars_folder, pom_for, resolved_jars
from holdfast.engine.connectors import equipped, uses_kafka
from holdfast.errors import EnvironmentProblem, HoldfastError, JobDefinitionError, SettingsError
from holdfast.failure import FailureClass, classify
from holdfast.kafka_access import KafkaAccess, check_references, checked_access
from holdfast.sinks import Kafka as KafkaSink
from holdfast.sources import Kafka
from holdfast.sources.kafka import BAD_DDL
from holdfast.state.schema import parse_columns
from holdfast.storage.kafka import KafkaAdmin
from holdfast.storage.references import resolve

SASL = {
    "protocol": "SASL_SSL",
    "mechanism": "SCRAM-SHA-512",
    "username": "alice",
    "password": "${env:KAFKA_PASSWORD}",
}


def plan(directory: Path, **properties: str) -> BrokerPlan:
    return BrokerPlan(
        java=Path("/usr/bin/java"),
        jars=Path("/jars"),
        directory=directory,
        port=9092,
        controller_port=9093,
        properties=properties,
    )


class TestBroker:
    def test_it_listens_on_loopback_only(self, tmp_path: Path) -> None:
        lines = plan(tmp_path).properties_text().splitlines()
        listeners = [line for line in lines if line.startswith(("listeners", "advertised"))]
        assert len(listeners) == 2
        for line in listeners:
            assert line.count("://") == line.count("://127.0.0.1:")
        assert "auto.create.topics.enable=false" in lines

    def test_properties_win(self, tmp_path: Path) -> None:
        text = plan(tmp_path, **{"num.partitions": "7"}).properties_text()
        assert "num.partitions=7\n" in text

    def test_without_maven(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("MAVEN_HOME", raising=False)
        with pytest.raises(EnvironmentProblem, match="MAVEN_NOT_FOUND"):
            resolved_jars(tmp_path, "broker", pom_for(["a:b:1"]))
        # What is there already needs no Maven.
        folder = jars_folder(tmp_path, "broker", pom_for(["a:b:1"]))
        folder.mkdir(parents=True)
        assert resolved_jars(tmp_path, "broker", pom_for(["a:b:1"])) == folder

    def test_maven_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = tmp_path / "bin" / "mvn"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho '[ERROR] no such thing: a:b:1'\nexit 1\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        with pytest.raises(EnvironmentProblem, match="no such thing: a:b:1") as caught:
            resolved_jars(tmp_path, "broker", pom_for(["a:b:1"]))
        assert caught.value.name == "JARS_NOT_RESOLVED"
        assert sorted(path.name for path in (tmp_path / "jars").iterdir()) == ["lock"]

    def test_without_java(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(EnvironmentProblem, match="JAVA_NOT_FOUND"):
            LocalBroker(tmp_path).up()

    def test_a_start_that_fails_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        java = tmp_path / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(
            '#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' && exit\n'
            "echo 'ERROR no broker today'\nexit 1\n"
        )
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
        jars_folder(tmp_path / "cache", f"kafka-broker-{VERSION}", pom_for(COORDINATES)).mkdir(
            parents=True
        )
        broker = LocalBroker(tmp_path)
        with pytest.raises(EnvironmentProblem, match="no broker today") as caught:
            broker.up()
        assert caught.value.name == "BROKER_DID_NOT_START"
        assert broker.status() is None
        assert not (broker.directory / "data").exists()


class TestAccess:
    def test_servers_are_checked(self) -> None:
        found = checked_access(["a:1", "b:2"], None, "source")
        assert found.servers == "a:1,b:2"
        wrong: list[Any] = ["", "host", "a:1,b", [], "PLAINTEXT://a:1"]
        for servers in wrong:
            with pytest.raises(JobDefinitionError, match="servers"):
                checked_access(servers, None, "source")

    def test_both_clients_get_the_password(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KAFKA_PASSWORD", 'a"b\\c')
        access = checked_access("a:1", SASL, "source")
        assert access.client_settings(resolve)["sasl.password"] == 'a"b\\c'
        java = access.java_settings(resolve)
        assert java["sasl.jaas.config"].endswith(
            'ScramLoginModule required username="alice" password="a\\"b\\\\c";'
        )
        assert "KAFKA_PASSWORD" in repr(access)
        assert "a\\" not in repr(access)

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            ({"password": "plain"}, "SECRET_IN_CODE"),
            ({"password": "${vault:x}"}, "INVALID_OPTION"),
            ({"mechanism": "GSSAPI"}, "INVALID_OPTION"),
            ({"protocol": "TLS"}, "INVALID_OPTION"),
            ({"passwort": "x"}, "INVALID_OPTION"),
            ({"certificate": "a.pem"}, "INVALID_OPTION"),
        ],
    )
    def test_what_cannot_work_is_refused(self, change: dict[str, str], name: str) -> None:
        with pytest.raises(JobDefinitionError) as caught:
            checked_access("a:1", SASL | change, "source")
        assert caught.value.name == name

    def test_secrets_among_options(self) -> None:
        check_references({"fetch.max.bytes": "1", "ssl.key.password": "${file:/x}"}, "source")
        with pytest.raises(JobDefinitionError, match="SECRET_IN_CODE"):
            check_references({"sasl.jaas.config": "user=x"}, "source")

    def test_references(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WHO", "alice")
        (tmp_path / "secret").write_text("s3cret\n")
        assert resolve(f"${{env:WHO}}:${{file:{tmp_path}/secret}}") == "alice:s3cret"
        for missing in ("${env:NOBODY_HAS_SET_THIS}", f"${{file:{tmp_path}/gone}}"):
            with pytest.raises(SettingsError, match="SECRET_NOT_FOUND"):
                resolve(missing)

    def test_a_broker_that_is_away_is_a_dependency(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and nobody listens
            access = KafkaAccess(servers=f"127.0.0.1:{taken.getsockname()[1]}")
            with pytest.raises(HoldfastError, match="BROKER_UNREACHABLE") as caught:
                KafkaAdmin(access, patience=0.1).topics()
        assert classify(caught.value) is FailureClass.DEPENDENCY


SCHEMA = "user string, diff bigint"
AVRO = {
    "type": "record",
    "name": "Edit",
    "fields": [
        {"name": "user", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": ["null", "Kind"]},
        {
            "name": "page",
            "type": {
                "type": "record",
                "name": "Page",
                "fields": [{"name": "id", "type": "int"}],
            },
        },
    ],
}


class TestSource:
    def test_columns(self) -> None:
        source = Kafka("edits", servers="a:1", schema=SCHEMA, with_metadata=True)
        assert parse_columns(source.row_schema).names == [
            *("user", "diff", "topic", "partition", "offset", "timestamp", "key"),
        ]
        assert source.bad_schema == BAD_DDL
        assert Kafka("t", servers="a:1", format="raw").row_schema == "value binary"
        assert source.describe() == "Kafka(edits at a:1)"
        assert source.group("job") == "holdfast-job"

    def test_columns_of_avro(self) -> None:
        source = Kafka("edits", servers="a:1", format="avro", schema=json.dumps(AVRO))
        assert source.row_schema == (
            "`user` string, `at` timestamp, `day` date, `tags` array<string>, "
            "`counts` map<string,bigint>, `price` decimal(9,2), `kind` string, "
            "`other` string, `page` struct<`id`:int>"
        )
        parse_columns(source.row_schema)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"topics": None},
            {"pattern": "a.*"},
            {"topics": []},
            {"topics": "a b"},
            {"topics": None, "pattern": "("},
            {"format": "xml"},
            {"format": "raw"},
            {"format": "string", "schema": None, "on_bad_record": "skip"},
            {"format": "avro"},
            {"format": "avro", "schema": '{"type": "record", "name": "a", "fields": '
             '[{"name": "x", "type": ["int", "string"]}]}'},
            {"schema": None},
            {"schema": "offset bigint", "with_metadata": True},
            {"start": "middle"},
            {"start": datetime(2026, 1, 1)},
            {"start": {"edits": {0: -3}}},
            {"start": {"moves": {0: 1}}},
            {"max_per_epoch": 0},
            {"on_data_loss": "ignore"},
            {"on_bad_record": "drop"},
            {"options": {"group.id": "x"}},
            {"options": {"kafka.bootstrap.servers": "x"}},
            {"servers": ""},
        ],
    )  # fmt: skip
    def test_what_cannot_work_is_refused(self, wrong: dict[str, Any]) -> None:
        given = {"topics": "edits", "servers": "a:1", "schema": SCHEMA}
        with pytest.raises(JobDefinitionError) as caught:
            Kafka(**given | wrong)
        assert caught.value.fix

    def test_starts_that_work(self) -> None:
        for start in ("latest", datetime(2026, 1, 1, tzinfo=UTC), {"edits": {0: 5, 1: -1}}):
            Kafka("edits", servers="a:1", schema=SCHEMA, start=start)


def by_name(flow: Any) -> None:
    flow.source("in", hf.sources.Kafka("edits", servers="a:1", schema=SCHEMA))


def through_another(flow: Any) -> None:
    by_name(flow)


def without(flow: Any) -> None:
    flow.source("in", hf.sources.FileLog("log", SCHEMA))


def into_kafka(flow: Any) -> None:
    rows = flow.source("in", hf.sources.FileLog("log", SCHEMA))
    flow.sink("out", rows, hf.sinks.Kafka("edits", servers="a:1"))


def into_kafka_repeating(flow: Any) -> None:
    rows = flow.source("in", hf.sources.FileLog("log", SCHEMA))
    flow.sink("out", rows, hf.sinks.Kafka("out", servers="a:1", guarantee="at_least_once"))


class TestJars:
    def test_only_jobs_that_use_kafka_get_them(self, tmp_path: Path) -> None:
        runtime = RuntimeConfig(
            storage=tmp_path, kafka_packages="g:a:1", spark={"spark.jars.packages": "x:y:2"}
        )
        job, plain = hf.Job("with"), hf.Job("without")
        job.pipeline(by_name)
        plain.pipeline(without)
        assert equipped(runtime, plain) == runtime
        once = equipped(runtime, job)
        assert once.spark == {"spark.jars.packages": "x:y:2,g:a:1"}
        assert equipped(once, job) == once

    def test_it_is_seen_in_the_code(self) -> None:
        source = Kafka("edits", servers="a:1", schema=SCHEMA)
        assert uses_kafka(by_name)
        assert uses_kafka(through_another)
        assert uses_kafka(lambda flow: flow.source("in", source))
        assert uses_kafka(lambda flow: [flow.source(n, Kafka(n)) for n in "ab"])
        assert not uses_kafka(without)

    def test_a_sink_needs_them_only_if_spark_writes_it(self) -> None:
        once = KafkaSink("out", servers="a:1")
        repeating = KafkaSink("out", servers="a:1", guarantee="at_least_once")
        assert not uses_kafka(into_kafka)
        assert not uses_kafka(lambda flow: flow.sink("out", flow, once))
        assert not uses_kafka(
            lambda flow: flow.sink("out", flow, KafkaSink("out", servers="a:1"))
        )
        assert uses_kafka(into_kafka_repeating)
        assert uses_kafka(lambda flow: flow.sink("out", flow, repeating))

    def test_jars_instead(self, tmp_path: Path) -> None:
        job = hf.Job("with")
        job.pipeline(by_name)
        runtime = RuntimeConfig(
            storage=tmp_path, kafka_packages="g:a:1", kafka_jars=str(tmp_path)
        )
        with pytest.raises(EnvironmentProblem, match="KAFKA_JARS_NOT_FOUND"):
            equipped(runtime, job)
        (tmp_path / "other.jar").touch()
        assert equipped(runtime, job).spark == {"spark.jars": str(tmp_path / "other.jar")}
        with pytest.raises(EnvironmentProblem, match="spark-sql-kafka"):
            kafka_connector("", str(tmp_path))()
        (tmp_path / "spark-sql-kafka-0-10_2.13-4.3.0.jar").touch()
        assert "spark-sql-kafka" in kafka_connector("", str(tmp_path))()


class TestPositions:
    def test_lag(self) -> None:
        position = {"edits": {"0": 5, "1": 7}}
        lag = lag_of(position, {"edits": {"0": 9, "1": 7, "2": 3}})
        assert lag == {"edits": {"0": 4, "1": 0, "2": 0}}
        assert total(lag) == 4
        assert lag_of({"logOffset": 3}, {"logOffset": 4}) is None
        assert lag_of(position, None) is None

    def test_what_is_gone(self) -> None:
        position = {"edits": {"0": 5, "1": 7, "2": 9, "3": 1}}
        earliest = {"edits": {0: 8, 1: 7, 2: 0}}
        latest = {"edits": {0: 20, 1: 7, 2: 4}}
        found = {lost.partition: lost for lost in lost_records(position, earliest, latest)}
        assert set(found) == {0, 2, 3}
        assert found[0].records == 3
        assert found[0].sentence.startswith("topic edits, partition 0, offsets 5 to 7")
        assert "made anew" in found[2].sentence
        error = data_lost("in", list(found.values()))
        assert HoldfastError.from_json(error.to_json()).facts["lost"][0]["first"] == 5
