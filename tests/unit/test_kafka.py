"""Kafka without a broker: what would be started, how brokers are reached, secrets."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast.control.kafka.broker import LocalBroker
from holdfast.control.kafka.plan import BrokerPlan
from holdfast.control.maven import jars_folder, pom_for, resolved_jars
from holdfast.errors import EnvironmentProblem, HoldfastError, JobDefinitionError, SettingsError
from holdfast.failure import FailureClass, classify
from holdfast.kafka_access import KafkaAccess, check_references, checked_access
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
