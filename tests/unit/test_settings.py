"""Settings: which place wins, where a value came from, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SettingsError
from holdfast.settings import FILE_NAME, LoadedSettings, load_settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working directory of our own, and no HOLDFAST_ variable but one."""
    for name in list(os.environ):
        if name.upper().startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    monkeypatch.chdir(work)
    return home


def origin(loaded: LoadedSettings, key: str) -> str:
    return next(entry.origin for entry in loaded.explain() if entry.key == key)


def refused(name: str = "INVALID_SETTING", **flags: Any) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    assert caught.value.name == name
    return caught.value


class TestDefaults:
    def test_values(self, home: Path) -> None:
        values = load_settings().values
        assert values.home == home
        assert values.storage == home / "jobs"
        assert values.registry_url == f"sqlite:///{home}/registry.db"
        assert values.master == "local[*]"
        assert values.driver_memory == "2g"
        assert values.heap_limit == 1024**3
        assert values.log_level == "INFO"
        assert values.spark == {}

    def test_home_without_a_variable(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HOLDFAST_HOME")
        monkeypatch.setenv("HOME", str(home.parent))
        loaded = load_settings()
        assert loaded.values.home == home.parent / ".holdfast"
        assert origin(loaded, "home") == "default"

    def test_storage_and_registry_follow_the_home(self, home: Path, tmp_path: Path) -> None:
        values = load_settings(home=tmp_path / "else").values
        assert values.storage == tmp_path / "else" / "jobs"
        assert values.registry_url == f"sqlite:///{tmp_path}/else/registry.db"


class TestOrder:
    def test_each_place_beats_the_next(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local_file, home_file = Path.cwd() / FILE_NAME, home / FILE_NAME
        seen = [(load_settings().values.master, origin(load_settings(), "master"))]
        local_file.write_text('master = "local[1]"')
        seen.append((load_settings().values.master, origin(load_settings(), "master")))
        home_file.write_text('master = "local[2]"')
        seen.append((load_settings().values.master, origin(load_settings(), "master")))
        monkeypatch.setenv("HOLDFAST_MASTER", "local[3]")
        seen.append((load_settings().values.master, origin(load_settings(), "master")))
        flagged = load_settings(master="local[4]")
        seen.append((flagged.values.master, origin(flagged, "master")))
        assert seen == [
            ("local[*]", "default"),
            ("local[1]", str(local_file)),
            ("local[2]", str(home_file)),
            ("local[3]", "HOLDFAST_MASTER"),
            ("local[4]", "--master"),
        ]

    def test_a_flag_that_was_not_given_does_not_count(self, home: Path) -> None:
        (home / FILE_NAME).write_text('master = "local[2]"')
        assert load_settings(master=None).values.master == "local[2]"

    def test_an_empty_variable_does_not_count(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_MASTER", "")
        assert origin(load_settings(), "master") == "default"

    def test_every_key_has_an_origin(self, home: Path) -> None:
        entries = load_settings(driver_memory="3G").explain()
        assert {entry.key: entry.origin for entry in entries} == {
            "home": "HOLDFAST_HOME",
            "storage": "default",
            "savepoints": "default",
            "registry_url": "default",
            "master": "default",
            "driver_memory": "--driver-memory",
            "heap_limit": "default",
            "rocksdb_memory": "default",
            "heartbeat_timeout": "default",
            "start_timeout": "default",
            "fast_start": "default",
            "log_level": "default",
            "kafka_packages": "default",
            "kafka_jars": "default",
            "session_cores": "default",
            "session_memory": "default",
            "server_host": "default",
            "server_port": "default",
            "server_names": "default",
            "server_tls_cert": "default",
            "server_tls_key": "default",
            "server_job_roots": "default",
            "server_operations_kept": "default",
            "server_allow_root": "default",
            "server_pass_environment": "default",
        }

    def test_the_working_directory_may_set_the_home(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("HOLDFAST_HOME")
        other = tmp_path / "other"
        other.mkdir()
        (other / FILE_NAME).write_text('log_level = "debug"')
        Path(FILE_NAME).write_text(f'home = "{other}"')
        loaded = load_settings()
        assert loaded.values.home == other
        assert loaded.values.log_level == "DEBUG"
        assert origin(loaded, "home") == str(Path.cwd() / FILE_NAME)

    def test_working_in_the_home_reads_its_file_once(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(home)
        (home / FILE_NAME).write_text('heap_limit = "2 GiB"')
        assert load_settings().values.heap_limit == 2 * 1024**3


class TestSpark:
    def test_confs_merge_key_by_key(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (home / FILE_NAME).write_text(
            "[spark]\n"
            "sql.shuffle.partitions = 4\n"
            '"spark.ui.enabled" = false\n'
            'driver.extraJavaOptions = "-Xss4m"\n'
        )
        Path(FILE_NAME).write_text('[spark]\nui.enabled = true\nlocal.dir = "/tmp/spark"\n')
        monkeypatch.setenv("HOLDFAST_SPARK", '{"sql.shuffle.partitions": 8}')
        loaded = load_settings()
        assert loaded.values.spark == {
            "spark.sql.shuffle.partitions": "8",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "-Xss4m",
            "spark.local.dir": "/tmp/spark",
        }
        assert origin(loaded, "spark.sql.shuffle.partitions") == "HOLDFAST_SPARK"
        assert origin(loaded, "spark.ui.enabled") == str(home / FILE_NAME)
        assert origin(loaded, "spark.local.dir") == str(Path.cwd() / FILE_NAME)

    def test_a_list_is_refused(self, home: Path) -> None:
        (home / FILE_NAME).write_text("[spark]\njars = [1, 2]\n")
        assert str(home / FILE_NAME) in refused().message

    def test_a_plain_value_is_refused(self, home: Path) -> None:
        (home / FILE_NAME).write_text('spark = "fast"')
        assert "spark is 'fast'" in refused().message

    def test_a_variable_that_is_not_json(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_SPARK", "sql.shuffle.partitions=8")
        error = refused()
        assert "HOLDFAST_SPARK" in error.message
        assert "sql.shuffle.partitions=8" in error.message


class TestRefusals:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("home", "s3://bucket/home"),
            ("storage", "s3a://bucket/jobs"),
            ("registry_url", "registry.db"),
            ("master", "local[two]"),
            ("master", "localhost"),
            ("driver_memory", "2 potatoes"),
            ("driver_memory", "0g"),
            ("heap_limit", "much"),
            ("heap_limit", "0 B"),
            ("log_level", "chatty"),
        ],
    )
    def test_names_key_value_type_and_origin(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str
    ) -> None:
        from holdfast.settings import WANTED

        variable = f"HOLDFAST_{key.upper()}"
        monkeypatch.setenv(variable, value)
        error = refused()
        assert error.message == f"{key} is '{value}' (from {variable}), which is not " + (
            f"{WANTED[key]}."
        )
        assert error.exit_code == 2
        assert WANTED[key] in error.fix

    @pytest.mark.parametrize("text", ["master = 4", "heap_limit = true", "home = 1"])
    def test_wrong_toml_types(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        Path(FILE_NAME).write_text(text)
        key = text.partition(" ")[0]
        if key == "home":
            monkeypatch.delenv("HOLDFAST_HOME")
        error = refused()
        assert error.facts["key"] == key
        assert error.facts["origin"] == str(Path.cwd() / FILE_NAME)

    def test_unknown_key_offers_the_close_one(self, home: Path) -> None:
        (home / FILE_NAME).write_text('heap_limt = "1 GiB"')
        error = refused("UNKNOWN_SETTING")
        assert "'heap_limt'" in error.message
        assert str(home / FILE_NAME) in error.message
        assert error.fix.startswith("did you mean 'heap_limit'?")

    def test_unknown_key_with_nothing_close_lists_all(self, home: Path) -> None:
        (home / FILE_NAME).write_text("zzz = 1")
        assert refused("UNKNOWN_SETTING").fix.startswith("The settings are: home, storage")

    def test_unknown_flag(self, home: Path) -> None:
        assert refused("UNKNOWN_SETTING", mastr="local").facts["close_matches"] == ["master"]

    def test_unknown_variable(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_FAULTS", "")  # not a setting, but ours
        monkeypatch.setenv("HOLDFAST_HEAPLIMIT", "1 GiB")
        error = refused("UNKNOWN_SETTING")
        assert "the environment variable HOLDFAST_HEAPLIMIT" in error.message
        assert error.facts["close_matches"] == ["heap_limit"]

    def test_bad_toml_says_where(self, home: Path) -> None:
        (home / FILE_NAME).write_text('log_level = "INFO"\nmaster = local')
        error = refused("INVALID_SETTINGS_FILE")
        assert str(home / FILE_NAME) in error.message
        assert "line 2" in error.message

    def test_not_utf8(self, home: Path) -> None:
        (home / FILE_NAME).write_bytes(b'master = "\xff"')
        refused("INVALID_SETTINGS_FILE")

    def test_an_unreadable_file(self, home: Path) -> None:
        (home / FILE_NAME).mkdir()
        assert str(home / FILE_NAME) in refused("SETTINGS_FILE_UNREADABLE").message

    def test_home_inside_the_home(self, home: Path) -> None:
        (home / FILE_NAME).write_text('home = "/elsewhere"')
        assert "HOLDFAST_HOME" in refused().fix

    def test_settings_cannot_be_changed(self, home: Path) -> None:
        values = load_settings().values
        with pytest.raises(ValueError, match="frozen"):
            values.master = "yarn"


class TestSecrets:
    def test_are_masked_when_shown(self, home: Path) -> None:
        loaded = load_settings(
            registry_url="postgresql://me:geheim@db/holdfast",
            spark={"hadoop.fs.s3a.secret.key": "geheim", "app.name": "wiki"},
        )
        shown = {entry.key: entry.shown for entry in loaded.explain()}
        assert shown["registry_url"] == "postgresql://me:********@db/holdfast"
        assert shown["spark.hadoop.fs.s3a.secret.key"] == "********"
        assert shown["spark.app.name"] == "wiki"
        assert loaded.values.registry_url == "postgresql://me:geheim@db/holdfast"

    def test_are_masked_in_errors(self, home: Path) -> None:
        error = refused(master="spark //x", registry_url="Bad+Url://me:geheim@db")
        assert "geheim" not in str(error)
