"""Certificates and SCRAM, for both of the clients that a job uses: Java's, and librdkafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError, SettingsError
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.kafka import KafkaAdmin
from kafka.certificates import KEY_PASSWORD, make_certificates
from kafka.cluster import SecuredCluster
from kafka.workshop import Totals, Workshop
from spark.workplace import running_totals

SCHEMA = "user string, diff bigint"
EDITS = [(f"user {n % 5}", n) for n in range(50)]
USER, PASSWORD = "scram user", 'pass="word"\\'


@pytest.fixture
def security(cluster: SecuredCluster, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    cluster.add_user(USER, PASSWORD)
    monkeypatch.setenv("TEST_SCRAM_PASSWORD", PASSWORD)
    monkeypatch.setenv("TEST_KEY_PASSWORD", KEY_PASSWORD)
    certificates = cluster.listeners.certificates
    return {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": USER,
        "password": "${env:TEST_SCRAM_PASSWORD}",
        "ca": str(certificates.ca),
        "certificate": str(certificates.client),
        "key": str(certificates.client_key),
        "key_password": "${env:TEST_KEY_PASSWORD}",
    }


def test_from_a_topic_to_a_topic_over_tls(
    cluster: SecuredCluster,
    shop: Workshop,
    topic: Callable[..., str],
    security: dict[str, str],
) -> None:
    source, target = topic(1), topic(2)
    cluster.send(source, [{"user": user, "diff": diff} for user, diff in EDITS])
    servers = cluster.encrypted_address
    edits = hf.sources.Kafka(source, servers=servers, schema=SCHEMA, security=security)
    sink = hf.sinks.Kafka(target, servers=servers, key="user", security=security)
    shop.run(Totals(edits, sink), "encrypted")
    found = [json.loads(value or b"") for _, _, value in cluster.read(target)]
    truth = [{"user": user, "total": total} for user, total in running_totals(EDITS)]
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, truth))
    for path in Path(shop.path).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for secret in (PASSWORD, KEY_PASSWORD):
                assert secret.encode() not in content, path


def test_what_is_not_trusted_is_refused_by_name(
    cluster: SecuredCluster,
    security: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = KafkaAccess(servers=cluster.encrypted_address, security=security)
    assert KafkaAdmin(access).topics() is not None
    # A broker that some other authority has signed for.
    stranger = make_certificates(tmp_path / "stranger")
    with pytest.raises(HoldfastError, match="certificate"):
        KafkaAdmin(replace(access, security={**security, "ca": str(stranger.ca)})).topics()
    monkeypatch.setenv("TEST_SCRAM_PASSWORD", "wrong")
    with pytest.raises(SettingsError, match="KAFKA_ACCESS_DENIED"):
        KafkaAdmin(access).topics()
