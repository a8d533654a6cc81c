"""Where the server listens, and what it refuses: decided before anything is opened. Pure, but
for a look at the files of the certificate."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import SettingsError, UsageError
from holdfast.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Listening:
    host: str
    port: int
    certificate: Path | None
    key: Path | None

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    def url(self, port: int) -> str:
        """For this machine: of an address that means all of them, loopback."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{port}"


def listening_of(settings: Settings, *, insecure: bool) -> Listening:
    certificate = _file(settings.server_tls_cert, "server_tls_cert")
    key = _file(settings.server_tls_key, "server_tls_key")
    if (certificate is None) != (key is None):
        raise SettingsError(
            "TLS_INCOMPLETE",
            "TLS takes a certificate and its key, and one of them is missing.",
            fix="give both: --tls-cert FILE --tls-key FILE.",
        )
    if certificate is not None and key is not None:
        _require_pair(certificate, key)
    if not is_loopback(settings.server_host) and certificate is None and not insecure:
        raise UsageError(
            "PUBLIC_WITHOUT_TLS",
            f"{settings.server_host} can be reached from other machines, and without TLS "
            "everybody on the way can read the tokens.",
            fix="give --tls-cert and --tls-key, or let a proxy with TLS stand in front and say "
            "so: --behind-proxy.",
        )
    return Listening(
        host=settings.server_host, port=settings.server_port, certificate=certificate, key=key
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _file(given: str, setting: str) -> Path | None:
    if not given:
        return None
    path = Path(given).expanduser().absolute()
    if not path.is_file():
        raise SettingsError(
            "TLS_FILE_UNUSABLE",
            f"{setting} is {path}, and there is no such file.",
            fix="give the path of a PEM file.",
        )
    return path


def _require_pair(certificate: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            "TLS_FILE_UNUSABLE",
            f"{certificate} and {key} cannot be used: {error}.",
            fix="give a certificate and its own key, both as PEM, without a passphrase.",
        ) from error
