"""An authority of the tests' own, and what it has signed: for the broker, and for a client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

KEY_PASSWORD = "of the key"
"""The client's key is encrypted with it."""


@dataclass(frozen=True)
class Certificates:
    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def broker(self) -> Path:
        """Key and certificate in one file, as a broker wants them."""
        return self.folder / "broker.pem"

    @property
    def client(self) -> Path:
        return self.folder / "client.crt"

    @property
    def client_key(self) -> Path:
        return self.folder / "client.key"


def make_certificates(folder: Path) -> Certificates:
    made = Certificates(folder)
    folder.mkdir(parents=True)
    authority = ("-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tests", "-days", "2")
    _openssl("req", *authority, "-keyout", str(folder / "ca.key"), "-out", str(made.ca))
    broker = _signed(folder, "broker")
    made.broker.write_text(broker.read_text() + (folder / "broker.crt").read_text())
    plain = _signed(folder, "client-plain")
    (folder / "client-plain.crt").rename(made.client)
    # The forms of an encrypted key that Java 17 reads: PKCS 8, and by the older algorithms.
    encrypted = ("-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{KEY_PASSWORD}")
    _openssl("pkcs8", *encrypted, "-in", str(plain), "-out", str(made.client_key))
    return made


def _signed(folder: Path, name: str) -> Path:
    """The key; its certificate lies beside it."""
    key, asked, names = (folder / f"{name}{end}" for end in (".key", ".csr", ".ext"))
    request = ("-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}")
    _openssl("req", *request, "-keyout", str(key), "-out", str(asked))
    names.write_text("subjectAltName=IP:127.0.0.1\n")
    authority = ("-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key"))
    serial = ("-CAcreateserial", "-days", "2", "-extfile", str(names))
    certificate = str(folder / f"{name}.crt")
    _openssl("x509", "-req", "-in", str(asked), *authority, *serial, "-out", certificate)
    return key


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
