"""The checks of the machine, against fake Javas, fake packages and awkward directories."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.control import doctor, java
from holdfast.control.doctor import PACKAGES, Finding, Status
from holdfast.control.registry import Registry
from holdfast.control.tables import SCHEMA_HEAD
from holdfast.errors import EnvironmentProblem

REPOSITORY = Path(__file__).parents[2]


def make_java(
    folder: Path, printed: str | None = None, release: str | None = None, *, code: int = 0
) -> Path:
    """A Java home whose `java -version` prints the given text to stderr, as Java does.

    Without `printed` the program leaves a mark: it should not have been started.
    """
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    body = f"touch '{folder}/was-started'\n"
    if printed is not None:
        body += f"cat >&2 <<'END'\n{printed}\nEND\n"
    program.write_text(f"#!/bin/sh\n{body}exit {code}\n")
    program.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(release)
    return folder


def was_started(java_home: Path) -> bool:
    return (java_home / "was-started").exists()


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    # The fakes are shell scripts, so the shell stays; a java beside it would be found.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "cat", "touch"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(tools))
    return monkeypatch


def problem(name: str) -> EnvironmentProblem:
    with pytest.raises(EnvironmentProblem) as caught:
        doctor.require_environment()
    assert caught.value.name == name
    assert caught.value.exit_code == 6
    assert caught.value.fix
    assert "\n" not in caught.value.fix
    return caught.value


class TestJava:
    def test_none_at_all(self, no_java: pytest.MonkeyPatch) -> None:
        error = problem("JAVA_NOT_FOUND")
        assert "JAVA_HOME is not set" in error.message
        assert "openjdk-17" in error.fix

    def test_java_home_without_java(self, no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Spark does not look at PATH when JAVA_HOME is set, so neither may we."""
        good = make_java(tmp_path / "good", release='JAVA_VERSION="17.0.1"\n')
        no_java.setenv("PATH", str(good / "bin"))
        no_java.setenv("JAVA_HOME", str(tmp_path / "gone"))
        assert str(tmp_path / "gone") in problem("JAVA_NOT_FOUND").message

    @pytest.mark.parametrize(("version", "major"), [("11.0.22", 11), ("1.8.0_412", 8)])
    def test_too_old(
        self, no_java: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int
    ) -> None:
        old = make_java(tmp_path / "old", f'openjdk version "{version}" 2024-01-16')
        no_java.setenv("JAVA_HOME", str(old))
        assert java.find_java().major == major
        assert version in problem("JAVA_TOO_OLD").message

    @pytest.mark.parametrize(
        ("printed", "version"),
        [
            ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', "17.0.15"),
            ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "21" 2023-09-19', "21"),
            ('openjdk version "25-ea" 2025-09-16', "25-ea"),
        ],
    )
    def test_version_from_the_program(
        self, no_java: pytest.MonkeyPatch, tmp_path: Path, printed: str, version: str
    ) -> None:
        no_java.setenv("JAVA_HOME", str(make_java(tmp_path / "jre", printed)))
        assert java.require_java().version == version

    def test_version_from_the_release_file_starts_nothing(
        self, no_java: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        jdk = make_java(
            tmp_path / "jdk", release='IMPLEMENTOR="X"\nJAVA_VERSION="17.0.2"\nOS_ARCH="x"\n'
        )
        no_java.setenv("JAVA_HOME", str(jdk))
        assert java.require_java().version == "17.0.2"
        assert not was_started(jdk)

    def test_link_on_the_path_leads_to_the_release_file(
        self, no_java: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """As on Debian, where /usr/bin/java is a link to a link."""
        jdk = make_java(tmp_path / "jdk", release='JAVA_VERSION="21.0.3"\n')
        links = tmp_path / "links"
        links.mkdir()
        (links / "java").symlink_to(jdk / "bin" / "java")
        no_java.setenv("PATH", str(links))
        assert java.require_java().version == "21.0.3"
        assert not was_started(jdk)

    def test_release_file_without_a_version(
        self, no_java: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        jdk = make_java(tmp_path / "jdk", 'openjdk version "18.0.1"', 'OS_ARCH="x86_64"\n')
        no_java.setenv("JAVA_HOME", str(jdk))
        assert java.require_java().version == "18.0.1"

    def test_program_that_tells_nothing(
        self, no_java: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        broken = make_java(tmp_path / "broken", "Segmentation fault", code=139)
        no_java.setenv("JAVA_HOME", str(broken))
        assert "Segmentation fault" in problem("JAVA_BROKEN").message


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site-packages in which every package is fine; nothing else is installed."""
    jdk = make_java(tmp_path / "jdk", release='JAVA_VERSION="17.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(jdk))
    site = tmp_path / "site"
    for name, version in (
        ("pyspark", "4.3.0"),
        ("pandas", "2.3.3"),
        ("pyarrow", "18.0.0"),
        ("protobuf", "5.29.1"),
    ):
        install(site, name, version)
    others = [path for path in sys.path if "site-packages" not in path]
    monkeypatch.setattr(sys, "path", [str(site), *others])
    return site


def install(site: Path, name: str, version: str) -> None:
    remove(site, name)
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )


def remove(site: Path, name: str) -> None:
    for folder in site.glob(f"{name}-*.dist-info"):
        (folder / "METADATA").unlink()
        folder.rmdir()


class TestPackages:
    def test_all_there(self, packages: Path) -> None:
        doctor.require_environment()

    @pytest.mark.parametrize("name", ["pyspark", "pandas", "pyarrow", "protobuf"])
    def test_missing(self, packages: Path, name: str) -> None:
        remove(packages, name)
        error = problem(f"{name.upper()}_MISSING")
        assert error.fix.startswith(f'pip install "{name}')

    @pytest.mark.parametrize(
        ("name", "version"),
        [
            ("pyspark", "4.2.9"),
            ("pyspark", "4.4.0.dev1"),
            ("pyspark", "3.5.1"),
            ("pandas", "2.1.4"),
            ("pandas", "3.0.0rc1"),
            ("pyarrow", "17.0.0"),
            ("protobuf", "4.25.3"),
        ],
    )
    def test_unsupported(self, packages: Path, name: str, version: str) -> None:
        install(packages, name, version)
        assert version in problem(f"{name.upper()}_UNSUPPORTED").message

    @pytest.mark.parametrize(
        ("name", "version"),
        [("pyspark", "4.3.7"), ("pandas", "2.2"), ("pandas", "2.10.0"), ("protobuf", "7.1")],
    )
    def test_supported(self, packages: Path, name: str, version: str) -> None:
        install(packages, name, version)
        doctor.require_environment()

    def test_bounds_are_those_of_pyproject(self) -> None:
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        declared = {
            re.split(r"[=<>]", line)[0]: line.replace(" ", "")
            for line in project["dependencies"]
        }
        for package in PACKAGES:
            assert declared[package.name] == package.requirement

    def test_python_too_old(self) -> None:
        with pytest.raises(EnvironmentProblem) as caught:
            doctor.require_python((3, 10, 14))
        assert caught.value.name == "PYTHON_TOO_OLD"
        assert "3.10.14" in caught.value.message


class TestExamine:
    def examine(self, home: Path, storage: Path | None = None) -> dict[str, Finding]:
        findings = doctor.examine(home, storage or home / "jobs", f"sqlite:///{home}/r.db")
        assert all(finding.found for finding in findings)
        assert all(finding.fix or finding.status is Status.OK for finding in findings)
        return {finding.check: finding for finding in findings}

    def test_a_good_machine(self, packages: Path, tmp_path: Path) -> None:
        findings = self.examine(tmp_path / "not" / "yet" / "there")
        # The packages of this machine are stand-ins: there is no client to look at.
        assert findings.pop("state client").status is not Status.FAIL
        assert {finding.status for finding in findings.values()} == {Status.OK}
        assert list(findings) == [
            "java", "python", "pyspark", "pandas", "pyarrow", "protobuf",
            "home", "storage", "file system", "registry",
        ]  # fmt: skip
        assert findings["java"].found.startswith("17.0.2")
        assert not (tmp_path / "not").exists(), "looking must not leave anything behind"

    def test_one_failure_does_not_hide_the_others(
        self, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
        remove(packages, "protobuf")
        findings = self.examine(tmp_path)
        failed = [name for name, it in findings.items() if it.status is Status.FAIL]
        assert failed == ["java", "protobuf"]
        assert findings["protobuf"].fix == 'pip install "protobuf>=5"'

    @pytest.mark.parametrize("place", ["/proc/holdfast", "file"])
    def test_a_directory_that_cannot_be_written(
        self, packages: Path, tmp_path: Path, place: str
    ) -> None:
        (tmp_path / "file").touch()
        storage = tmp_path / place / "jobs"
        findings = self.examine(tmp_path, storage)
        assert findings["home"].status is Status.OK
        assert findings["storage"].status is Status.FAIL
        assert str(storage) in findings["storage"].found
        assert "HOLDFAST_STORAGE" in findings["storage"].fix
        assert findings["file system"].status is Status.FAIL

    def test_little_space_left(
        self, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 2**80)
        assert self.examine(tmp_path)["home"].status is Status.WARN
        monkeypatch.setattr(doctor, "NO_DISK_BYTES", 2**80)
        finding = self.examine(tmp_path)["home"]
        assert finding.status is Status.FAIL
        assert "HOLDFAST_HOME" in finding.fix

    def test_registry_at_the_head(self, tmp_path: Path) -> None:
        with Registry(f"sqlite:///{tmp_path}/r.db") as registry:
            registry.ensure_schema()
        assert self.examine(tmp_path)["registry"].found.endswith(f"schema {SCHEMA_HEAD}")

    @pytest.mark.parametrize(
        ("version", "status"), [("0000", Status.OK), ("9999", Status.FAIL)]
    )
    def test_registry_of_another_version(
        self, tmp_path: Path, version: str, status: Status
    ) -> None:
        with Registry(f"sqlite:///{tmp_path}/r.db") as registry:
            registry.ensure_schema()
            with registry._database.write() as connection:
                connection.exec_driver_sql(
                    f"UPDATE alembic_version SET version_num = '{version}'"
                )
        finding = self.examine(tmp_path)["registry"]
        assert finding.status is status
        assert version in finding.found

    def test_broken_registry(self, tmp_path: Path) -> None:
        (tmp_path / "r.db").write_bytes(b"not a database" * 100)
        assert self.examine(tmp_path)["registry"].status is Status.FAIL
