"""How Kafka brokers are reached: addresses and security, for Java clients and for librdkafka.

Secrets are given by reference, `${env:NAME}` or `${file:/path}`, and stay references in every
descriptor. Whoever opens a connection resolves them at that moment; nothing is written down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import JobDefinitionError, shorten

REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_LOOKS_LIKE_REFERENCE = re.compile(r"\$\{[^}]*\}?")
_SECRET = re.compile(
    r"passw|secret|token|jaas|private[._]?key|keystore[._]key|api[._]?key", re.I
)
_SERVER = re.compile(r"^(\[[0-9A-Fa-f:.]+\]|[^\s,:/]+):\d{1,5}$")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
SECURITY_KEYS = (
    "protocol",
    "mechanism",
    "username",
    "password",
    "ca",
    "certificate",
    "key",
    "key_password",
)

Resolve = Callable[[str], str]
Servers = str | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class KafkaAccess:
    """Checked when it is made; holds references, never what they stand for."""

    servers: str
    security: Mapping[str, str] = field(default_factory=dict)
    """By the words of SECURITY_KEYS; `ca`, `certificate` and `key` are PEM files."""

    @property
    def _protocol(self) -> str:
        return self.security.get("protocol", "PLAINTEXT").upper()

    def client_settings(self, resolve: Resolve) -> dict[str, str]:
        """For confluent-kafka. With secrets in it: use it, and let it go."""
        names = {
            "mechanism": "sasl.mechanism",
            "username": "sasl.username",
            "password": "sasl.password",
            "ca": "ssl.ca.location",
            "certificate": "ssl.certificate.location",
            "key": "ssl.key.location",
            "key_password": "ssl.key.password",
        }
        given = {names[key]: resolve(self.security[key]) for key in names if self._has(key)}
        return {"bootstrap.servers": self.servers, "security.protocol": self._protocol} | given

    def java_settings(self, resolve: Resolve) -> dict[str, str]:
        """For Kafka's Java clients. With secrets in it, likewise."""
        found = {"bootstrap.servers": self.servers}
        if self._protocol == "PLAINTEXT":
            return found
        found["security.protocol"] = self._protocol
        if self._protocol.startswith("SASL"):
            mechanism = self.security["mechanism"]
            login = {name: resolve(self.security[name]) for name in ("username", "password")}
            quoted = " ".join(f'{name}="{_quoted(value)}"' for name, value in login.items())
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = f"{_LOGIN_MODULES[mechanism]} required {quoted};"
        if self._has("ca"):
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.location"] = resolve(self.security["ca"])
        if self._has("certificate"):
            found["ssl.keystore.type"] = "PEM"
            for name, key in (
                ("ssl.keystore.certificate.chain", "certificate"),
                ("ssl.keystore.key", "key"),
            ):
                found[name] = Path(resolve(self.security[key])).read_text(encoding="utf-8")
        if self._has("key_password"):
            found["ssl.key.password"] = resolve(self.security["key_password"])
        return found

    def _has(self, key: str) -> bool:
        return key in self.security


def checked_access(
    servers: Servers, security: Mapping[str, str] | None, owner: str
) -> KafkaAccess:
    """`owner` is the source or sink, for the message."""
    access = KafkaAccess(
        servers=_checked_servers(servers, owner), security=dict(security or {})
    )
    for key in access.security:
        if key not in SECURITY_KEYS:
            raise _invalid(
                f"{owner}: security has {key!r}.", f"it may have {', '.join(SECURITY_KEYS)}."
            )
    check_references(access.security, owner, secret=("password", "key_password"))
    protocol = access._protocol
    if protocol not in _PROTOCOLS:
        raise _invalid(
            f"{owner}: security protocol is {shorten(protocol)}.",
            f"use one of {', '.join(_PROTOCOLS)}.",
        )
    if protocol.startswith("SASL"):
        wanted = [key for key in ("mechanism", "username", "password") if not access._has(key)]
        if wanted or access.security["mechanism"] not in _LOGIN_MODULES:
            raise _invalid(
                f"{owner}: security protocol {protocol} without a usable "
                f"{wanted[0] if wanted else 'mechanism'}.",
                f"give mechanism ({', '.join(_LOGIN_MODULES)}), username and password.",
            )
    if access._has("certificate") != access._has("key"):
        raise _invalid(
            f"{owner}: security has one of certificate and key.", "give both, or neither."
        )
    return access


def check_references(
    values: Mapping[str, str], owner: str, *, secret: tuple[str, ...] = ()
) -> None:
    """Secrets must be references, and references must be ones that can be resolved."""
    for key, value in values.items():
        if not isinstance(value, str):
            raise _invalid(f"{owner}: {key} is {shorten(value)}.", f"write {key} as text.")
        for found in _LOOKS_LIKE_REFERENCE.findall(value):
            if not REFERENCE.fullmatch(found):
                raise _invalid(
                    f"{owner}: {key} holds {found!r}, which is no reference.",
                    "write ${env:NAME} or ${file:/path}.",
                )
        if (key in secret or _SECRET.search(key)) and not REFERENCE.search(value):
            raise JobDefinitionError(
                "SECRET_IN_CODE",
                f"{owner}: {key} is written down in the code.",
                fix=f'give it by reference: "{key}": "${{env:NAME}}" takes it from an '
                'environment variable, "${file:/path}" from a file.',
            )


def _checked_servers(servers: Servers, owner: str) -> str:
    given = servers.split(",") if isinstance(servers, str) else list(servers)
    found = [str(each).strip() for each in given]
    if not found or not all(_SERVER.match(each) for each in found):
        raise _invalid(
            f"{owner}: servers is {shorten(servers)}.",
            'name brokers with their ports, such as servers="127.0.0.1:9092".',
        )
    return ",".join(found)


def _quoted(value: str) -> str:
    """Inside the quotes of a JAAS configuration."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _invalid(message: str, fix: str) -> JobDefinitionError:
    return JobDefinitionError("INVALID_OPTION", message, fix=fix)
