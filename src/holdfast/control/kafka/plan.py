"""What is started and with which properties: pure, so that it can be read and tested.

One node that is broker and controller, on loopback only. Topics are made on purpose, never by a
misspelt name; internal topics have one replica, since there is one node.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
VERSION = "4.2.0"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    # Without a binding a broker that cannot start ends without a word.
    "org.slf4j:slf4j-simple:1.7.36",
)
_MEMORY = "-Xmx512m"


@dataclass(frozen=True, kw_only=True)
class BrokerPlan:
    """One broker: its ports, its directory, and what is to be different from the defaults."""

    java: Path
    jars: Path
    directory: Path
    port: int
    controller_port: int
    properties: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False
    """It will have much to do, so that optimised code pays."""

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def is_formatted(self) -> bool:
        return (self.directory / "log" / "meta.properties").exists()

    def properties_text(self) -> str:
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            # Static voters: they are not written into the log, so the port may change.
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://{self.address},"
            f"CONTROLLER://{LOOPBACK}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "log.dirs": str(self.directory / "log"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",  # 50 by default: made at the first use
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
        }
        return "".join(f"{key}={_escaped(value)}\n" for key, value in values.items())

    def format_command(self) -> list[str]:
        """Prepares an empty directory."""
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Joined: an id that begins with a dash would be taken for an option.
        arguments = ("format", "--ignore-formatted", f"--cluster-id={cluster}", "-c")
        return self._command("kafka.tools.StorageTool", *arguments, str(self.properties_file))

    def run_command(self) -> list[str]:
        return self._command("kafka.Kafka", str(self.properties_file))

    def _command(self, program: str, *arguments: str) -> list[str]:
        return [
            str(self.java),
            _MEMORY,
            "-XX:+UseSerialGC",
            # It should start fast and leave the cores to the job.
            *(() if self.busy else ("-XX:TieredStopAtLevel=1",)),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
            "-cp",
            f"{self.jars}/*",
            program,
            *arguments,
        ]


def _escaped(value: str) -> str:
    """For a file of Java properties."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
