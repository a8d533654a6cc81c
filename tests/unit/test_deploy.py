"""What lies in deploy/ is well formed. Nothing of it is run here: see docs/guide/deploy.md."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from holdfast.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNIT = DEPLOY / "systemd" / "holdfast.service"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"


def resources() -> Iterator[Any]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text())


def containers() -> Iterator[tuple[Any, Any]]:
    for each in resources():
        if each["kind"] == "StatefulSet":
            spec = each["spec"]["template"]["spec"]
            yield from ((spec, container) for container in spec["containers"])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_their_schema(path: Path) -> None:
    for each in yaml.safe_load_all(path.read_text()):
        version = kubernetes_validate.latest_version()
        kubernetes_validate.validate(each, desired_version=version, strict=True)


def test_pods_have_no_more_rights_than_they_need() -> None:
    found = list(containers())
    assert len(found) == 2
    for spec, container in found:
        assert spec["securityContext"]["runAsNonRoot"] is True
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_probes_ask_for_a_name_that_the_server_answers_to() -> None:
    probes = [
        probe
        for _, container in containers()
        for name, probe in container.items()
        if name.endswith("Probe")
    ]
    assert {probe["httpGet"]["path"] for probe in probes} == {"/livez", "/readyz"}
    for probe in probes:
        assert probe["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_variables_are_settings() -> None:
    named = {
        variable["name"]: variable["value"]
        for _, container in containers()
        for variable in container.get("env", ())
    }
    fields = {f"HOLDFAST_{name.upper()}" for name in Settings.model_fields}
    assert set(named) <= fields
    assert json.loads(named["HOLDFAST_SPARK"])["kubernetes.container.image"]


def test_the_unit_leaves_jobs_alone(tmp_path: Path) -> None:
    lines = UNIT.read_text().splitlines()
    assert "KillMode=process" in lines
    assert "NoNewPrivileges=yes" in lines
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    # The program and the user are not there on the machine that checks.
    text = UNIT.read_text().replace("/opt/holdfast/bin/holdfast", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace("=holdfast\nGroup=holdfast", "=root\nGroup=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (told, done.returncode) == ([], 0), done.stderr


def test_the_image_does_not_run_as_root() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users and users[-1] not in ("0", "root")
    assert any("--require-hashes" in line for line in lines)
