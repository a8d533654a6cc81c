"""What is asked of a Kafka broker besides its records: topics, offsets, groups.

By confluent-kafka, which is an extra and imported when it is needed. Whatever goes wrong comes
out as an error with a name; a broker that is away is a dependency that may come back.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import (
    EnvironmentProblem,
    HoldfastError,
    NotFoundError,
    RunFailedError,
    SettingsError,
)
from holdfast.kafka_access import KafkaAccess
from holdfast.storage.references import resolve

PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.2
SETTLING = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_PARTITION",
    "_UNKNOWN_TOPIC",
)
"""What a broker says of a topic that was just made, or whose leader has just changed."""

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""


@dataclass(frozen=True, kw_only=True)
class NewTopic:
    """A topic to be made."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


def client() -> Any:
    """The module `confluent_kafka`."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise EnvironmentProblem(
            "KAFKA_CLIENT_MISSING",
            "the Python package confluent-kafka is not installed.",
            fix='pip install "holdfast[kafka]"',
        ) from error
    return confluent_kafka


class KafkaAdmin:
    """Questions to one cluster, each with a deadline."""

    def __init__(self, access: KafkaAccess, *, patience: float = PATIENCE_SECONDS) -> None:
        from_client = client()
        import confluent_kafka.admin

        self._kafka, self._admin_module = from_client, confluent_kafka.admin
        self._access, self._patience = access, patience
        self._said: list[Any] = []
        quiet = logging.getLogger(f"{__name__}.librdkafka")
        quiet.propagate = False  # what it says is in our errors
        self._admin = confluent_kafka.admin.AdminClient(
            access.client_settings(resolve)
            | {"error_cb": self._said.append, "socket.connection.setup.timeout.ms": "5000"},
            logger=quiet,
        )

    def topics(self) -> dict[str, list[int]]:
        """Every topic, with its partitions."""
        deadline = time.monotonic() + self._patience
        while True:
            self._admin.poll(0)
            self._refuse_denied()
            try:
                metadata = self._admin.list_topics(timeout=max(_POLL_SECONDS, 1.0))
            except self._kafka.KafkaException as error:
                if time.monotonic() > deadline:
                    raise self._unreachable(error) from error
                continue
            return {
                name: sorted(topic.partitions)
                for name, topic in metadata.topics.items()
                if topic.error is None
            }

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Of these topics; refuses one that is not there."""
        known = self.topics()
        found = {}
        for topic in topics:
            if topic not in known:
                near = ", ".join(
                    sorted(name for name in known if not name.startswith("__"))[:10]
                )
                raise NotFoundError(
                    "TOPIC_NOT_FOUND",
                    f"there is no topic {topic!r} at {self._access.servers}.",
                    fix=f"create it, or correct its name; there are: {near or 'none'}.",
                    topic=topic,
                )
            found[topic] = known[topic]
        return found

    def selected(self, topics: Iterable[str], pattern: str | None) -> dict[str, list[int]]:
        """Of a source that names its topics, or has a pattern for them."""
        return self.partitions(topics) if pattern is None else self.matching(pattern)

    def matching(self, pattern: str) -> dict[str, list[int]]:
        """Topics whose whole name matches; there may be none yet."""
        return {
            name: found
            for name, found in self.topics().items()
            if re.fullmatch(pattern, name) and not name.startswith("__")
        }

    def create(self, topics: Iterable[NewTopic]) -> list[str]:
        """Make those that are not there, and wait until they are; the names of the new ones."""
        known = self.topics()
        wanted = [
            self._admin_module.NewTopic(each.name, each.partitions, config=dict(each.config))
            for each in topics
            if each.name not in known
        ]
        if not wanted:
            return []
        made = []
        for name, future in self._admin.create_topics(wanted).items():
            with self._errors():
                try:
                    future.result(self._patience)
                    made.append(name)
                except self._kafka.KafkaException as error:
                    # Somebody else was quicker.
                    if error.args[0].code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        deadline = time.monotonic() + self._patience
        while not {each.topic for each in wanted} <= set(self.topics()):
            if time.monotonic() > deadline:
                raise self._unreachable(TimeoutError("the new topic does not appear"))
            time.sleep(_POLL_SECONDS)
        return made

    def earliest(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """The first offset that each partition still has."""
        return self._offsets(partitions, self._admin_module.OffsetSpec.earliest())

    def latest(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """The offset that the next record of each partition will get."""
        return self._offsets(partitions, self._admin_module.OffsetSpec.latest())

    def _offsets(self, partitions: Mapping[str, Iterable[int]], spec: Any) -> Offsets:
        asked = {
            self._kafka.TopicPartition(topic, partition): spec
            for topic, numbers in partitions.items()
            for partition in numbers
        }
        deadline = time.monotonic() + self._patience
        while asked:
            answers = self._admin.list_offsets(asked, request_timeout=self._patience)
            found: Offsets = {}
            try:
                for place, future in answers.items():
                    offset = future.result(self._patience).offset
                    found.setdefault(place.topic, {})[place.partition] = offset
            except (self._kafka.KafkaException, TimeoutError) as error:
                if _name_of(error) not in SETTLING or time.monotonic() > deadline:
                    raise self._explained(error) from error
                time.sleep(_POLL_SECONDS)
            else:
                return found
        return {}

    def commit_group(self, group: str, offsets: Mapping[str, Mapping[Any, int]]) -> None:
        """Say how far a group has read, as its consumers would."""
        positions = [
            self._kafka.TopicPartition(topic, int(partition), offset)
            for topic, found in offsets.items()
            for partition, offset in found.items()
        ]
        request = self._kafka.ConsumerGroupTopicPartitions(group, positions)
        futures = self._admin.alter_consumer_group_offsets(
            [request], request_timeout=self._patience
        )
        for future in futures.values():
            with self._errors():
                future.result(self._patience)

    def group(self, group: str) -> Offsets:
        """How far a group has read."""
        request = self._kafka.ConsumerGroupTopicPartitions(group)
        futures = self._admin.list_consumer_group_offsets(
            [request], request_timeout=self._patience
        )
        found: Offsets = {}
        for future in futures.values():
            with self._errors():
                answer = future.result(self._patience)
            for place in answer.topic_partitions:
                found.setdefault(place.topic, {})[place.partition] = place.offset
        return found

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (self._kafka.KafkaException, TimeoutError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> HoldfastError:
        self._admin.poll(0)
        self._refuse_denied()
        return self._unreachable(error)

    def _refuse_denied(self) -> None:
        denied = (
            self._kafka.KafkaError._AUTHENTICATION,
            self._kafka.KafkaError._SSL,
            self._kafka.KafkaError.SASL_AUTHENTICATION_FAILED,
            self._kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
            self._kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
        for said in self._said:
            if said.code() in denied:
                raise SettingsError(
                    "KAFKA_ACCESS_DENIED",
                    f"{self._access.servers} refuses us: {said.str()}.",
                    fix="check protocol, mechanism, username and password in security=…, and "
                    "what the references stand for.",
                )

    def _unreachable(self, error: Exception) -> HoldfastError:
        said = self._said[-1].str() if self._said else str(error)
        return RunFailedError(
            "BROKER_UNREACHABLE",
            f"no Kafka broker answers at {self._access.servers} within {self._patience:g} s: "
            f"{said}.",
            fix="start it (`holdfast kafka up` for one on this machine), or correct servers=…; "
            "a restart strategy tries again by itself.",
            servers=self._access.servers,
        )


def _name_of(error: Exception) -> str:
    """Kafka's name of an error; "" for one that is not Kafka's."""
    name = getattr(error.args[0] if error.args else None, "name", None)
    return str(name()) if callable(name) else ""


def topic_names(address: str, *, patience: float = 5.0) -> list[str]:
    """Of a broker without security."""
    return list(KafkaAdmin(KafkaAccess(servers=address), patience=patience).topics())
