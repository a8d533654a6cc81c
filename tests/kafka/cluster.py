"""The tests' broker: topics, records in and out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from holdfast.control.kafka.broker import LocalBroker, free_port
from holdfast.control.kafka.plan import LOOPBACK
from kafka.certificates import Certificates

USER, PASSWORD = "alice", 'a "quoted\\ pass'
_SECONDS = 30


@dataclass(frozen=True)
class Listeners:
    """One for everybody, one that asks for a password, and one that also wants certificates."""

    certificates: Certificates
    plain: int = field(default_factory=free_port)
    password: int = field(default_factory=free_port)
    encrypted: int = field(default_factory=free_port)
    controller: int = field(default_factory=free_port)

    def properties(self) -> dict[str, str]:
        outside = ",".join(
            f"{name}://{LOOPBACK}:{port}"
            for name, port in (
                ("PLAINTEXT", self.plain),
                ("SASL_PLAINTEXT", self.password),
                ("SASL_SSL", self.encrypted),
            )
        )
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        modules = "org.apache.kafka.common.security"
        return {
            "listeners": f"{outside},CONTROLLER://{LOOPBACK}:{self.controller}",
            "advertised.listeners": outside,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.controller}",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{modules}.plain."
            f'PlainLoginModule required user_{USER}="{quoted}";',
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{modules}.scram."
            "ScramLoginModule required;",
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
        }


@dataclass
class Cluster:
    broker: LocalBroker

    @property
    def address(self) -> str:
        return self.broker.address

    @cached_property
    def admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.address, "log_level": "0"})

    def new_topic(self, partitions: int = 2, name: str = "", **config: str) -> str:
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        topic = NewTopic(
            name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()}
        )
        for future in self.admin.create_topics([topic]).values():
            future.result(_SECONDS)
        return name

    def delete_topic(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result(_SECONDS)

    def add_partitions(self, name: str, total: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(name, total)]).values():
            future.result(_SECONDS)

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        delete_records(self.address, name, before)

    def send(self, topic: str, records: Iterable[Any], partition: int | None = None) -> None:
        """Bytes and text as they are, all else as JSON; in the order given, in turn over the
        partitions unless one is named."""
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "linger.ms": "5",
                "message.max.bytes": 1_048_000,
            }
        )
        count = 1
        if partition is None:
            count = len(producer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)
        for at, record in enumerate(records):
            value = record if isinstance(record, bytes | str | None) else json.dumps(record)
            place = partition if partition is not None else at % count
            producer.produce(topic, value, partition=place, on_delivery=_raise)
            producer.poll(0)
        assert producer.flush(_SECONDS) == 0

    def read(
        self, topic: str, *, committed: bool = True
    ) -> list[tuple[int, int, bytes | None]]:
        """Partition, offset and value of everything that a consumer sees."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": "true",
                "enable.auto.commit": "false",
            }
        )
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left, found = set(partitions), []
        while left:
            message = consumer.poll(_SECONDS)
            assert message is not None, "the broker does not answer"
            if message.error() is not None:
                left.discard(message.partition())
            else:
                found.append((message.partition(), message.offset(), message.value()))
        consumer.close()
        return found


@dataclass
class SecuredCluster(Cluster):
    """One that also has listeners for those who log in."""

    listeners: Listeners

    def start(self) -> None:
        """Also after a kill: same ports, same data."""
        self.broker.up(port=self.listeners.plain, properties=self.listeners.properties())

    @property
    def sasl_address(self) -> str:
        return f"{LOOPBACK}:{self.listeners.password}"

    @property
    def encrypted_address(self) -> str:
        return f"{LOOPBACK}:{self.listeners.encrypted}"

    def add_user(self, name: str, password: str) -> None:
        """One who logs in by SCRAM."""
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(name, kind, password.encode())
        for future in self.admin.alter_user_scram_credentials([user]).values():
            future.result(_SECONDS)


def delete_records(address: str, topic: str, before: Mapping[int, int]) -> None:
    """As retention would: the records before these offsets are gone."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": "0"})
    places = [TopicPartition(topic, partition, at) for partition, at in before.items()]
    for future in admin.delete_records(places).values():
        future.result(_SECONDS)


def _raise(error: Any, _message: Any) -> None:
    assert error is None, error
