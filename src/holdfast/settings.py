"""The settings of a holdfast process, and where each of them came from.

A value is taken from the first place that has it: a flag, the environment variable
`HOLDFAST_<KEY>`, `holdfast.toml` in the home directory, `holdfast.toml` in the working
directory, the default. Settings of a *job* are not here; they are in its code.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as UnreadableVariable,
)

from holdfast.errors import HoldfastError, SettingsError, shorten
from holdfast.faults import FAULTS_VARIABLE, LOG_VARIABLE
from holdfast.types import parse_duration, parse_size

FILE_NAME = "holdfast.toml"
ENV_PREFIX = "HOLDFAST_"
_REDACTED = "********"
_MASTER = re.compile(r"^(local(\[(\d+|\*)(,\s*\d+)?\])?|yarn|cluster|(spark|k8s)://\S+)$")
_JVM_MEMORY = re.compile(r"^[1-9]\d*[kmgt]$")
_COORDINATES = re.compile(r"^[^\s:,]+:[^\s:,]+:[^\s:,]+(,[^\s:,]+:[^\s:,]+:[^\s:,]+)*$")
_HOST_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$|^\[[0-9a-f:.]+\]$")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_URL = re.compile(r"^[a-z][a-z0-9_+]*://")
_SECRET_KEY = re.compile(r"passw|secret|token|credential|access\.?key", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)([^/@:]*):([^/@]*)@")


def _directory(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "://" in str(value):
        raise ValueError("not a path")
    return Path(value).expanduser().absolute()


def _size(value: object) -> int:
    try:
        size = parse_size(value)  # type: ignore[arg-type]
    except HoldfastError as error:  # pydantic collects ValueErrors only
        raise ValueError(error.message) from error
    if size <= 0:
        raise ValueError("not positive")
    return size


def _size_or_none(value: object) -> int | None:
    return None if value == "none" else _size(value)


def _cores(value: object) -> int | None:
    if value == "none":
        return None
    cores = int(str(value))
    if cores < 1:
        raise ValueError("not positive")
    return cores


def _listed(value: object, separator: str) -> list[Any]:
    """A list in a settings file; in the environment, a text with separators."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator) if part.strip()]
    if isinstance(value, list | tuple):
        return list(value)
    raise ValueError("not a list")


def _directories(value: object) -> tuple[Path, ...]:
    return tuple(_directory(each) for each in _listed(value, os.pathsep))


def _host_names(value: object) -> tuple[str, ...]:
    names = tuple(str(each).lower() for each in _listed(value, ","))
    if not all(_HOST_NAME.match(name) for name in names):
        raise ValueError("not a host name")
    return names


def _variables(value: object) -> tuple[str, ...]:
    names = tuple(str(each) for each in _listed(value, ","))
    if not all(_VARIABLE.match(name) for name in names):
        raise ValueError("not the name of a variable")
    return names


def _seconds(value: object) -> float:
    try:
        seconds = parse_duration(value).total_seconds()  # type: ignore[arg-type]
    except HoldfastError as error:
        raise ValueError(error.message) from error
    if seconds <= 0:
        raise ValueError("not positive")
    return seconds


def _matching(pattern: re.Pattern[str], change: Callable[[str], str] = str) -> BeforeValidator:
    def check(value: object) -> str:
        if not isinstance(value, str) or not pattern.match(change(value)):
            raise ValueError("does not match")
        return change(value)

    return BeforeValidator(check)


def _level(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _spark_confs(value: object) -> dict[str, str]:
    """`[spark] sql.shuffle.partitions = 4` means `spark.sql.shuffle.partitions=4`."""
    if not isinstance(value, Mapping):
        raise TypeError("not a table")
    confs = {}
    for key, leaf in _leaves(value):
        if not isinstance(leaf, str | int | float):
            raise ValueError(f"{key} is not a plain value")  # noqa: TRY004 - see _size
        text = str(leaf).lower() if isinstance(leaf, bool) else str(leaf)
        confs[key if key.startswith("spark.") else f"spark.{key}"] = text
    return confs


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _without_spaces(text: str) -> str:
    return re.sub(r"\s+", "", text)


Directory = Annotated[Path, BeforeValidator(_directory)]


class Settings(BaseSettings):
    """Use :func:`load_settings` to get one."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    home: Directory
    storage: Directory
    savepoints: Directory
    registry_url: Annotated[str, _matching(_URL)]
    master: Annotated[str, _matching(_MASTER)]
    driver_memory: Annotated[str, _matching(_JVM_MEMORY, str.lower)]
    heap_limit: Annotated[int, BeforeValidator(_size)]
    rocksdb_memory: Annotated[int, BeforeValidator(_size)]
    heartbeat_timeout: Annotated[float, BeforeValidator(_seconds)]
    start_timeout: Annotated[float, BeforeValidator(_seconds)]
    fast_start: bool
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_level)]
    kafka_packages: Annotated[str, _matching(_COORDINATES, _without_spaces)]
    kafka_jars: str
    session_cores: Annotated[int | None, BeforeValidator(_cores)]
    session_memory: Annotated[int | None, BeforeValidator(_size_or_none)]
    server_host: str
    server_port: Annotated[int, Field(ge=0, le=65535)]
    server_names: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_host_names)]
    server_tls_cert: str
    server_tls_key: str
    server_job_roots: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_directories)]
    server_operations_kept: Annotated[int, Field(ge=1)]
    server_allow_root: bool
    server_pass_environment: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_variables)]
    spark: Annotated[dict[str, str], BeforeValidator(_spark_confs)]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load_settings` reads the places itself, because it must remember which one won.
        return (init_settings,)


WANTED = {
    "home": "a local directory",
    "storage": "a local directory",
    "savepoints": "a local directory",
    "registry_url": 'a database URL such as "sqlite:////path/registry.db"',
    "master": 'a Spark master: "local[*]", "local[4]", "cluster", "spark://host:7077", '
    '"k8s://https://host:443" or "yarn"',
    "driver_memory": 'a JVM size such as "2g" or "900m"',
    "heap_limit": 'a positive size such as "1 GiB" or "512 MiB"',
    "rocksdb_memory": 'a positive size such as "1 GiB" or "512 MiB"',
    "heartbeat_timeout": 'a duration such as "30 s"',
    "start_timeout": 'a duration such as "1 h"',
    "fast_start": "true or false",
    "log_level": "one of DEBUG, INFO, WARNING, ERROR",
    "kafka_packages": 'Maven coordinates such as "org.apache.spark:spark-sql-kafka-0-10_2.13:'
    '4.3.0", with commas between several',
    "kafka_jars": "jar files with commas between them, or a directory",
    "session_cores": 'a positive number, or "none"',
    "session_memory": 'a positive size such as "16 GiB", or "none"',
    "server_host": "an address of this machine",
    "server_port": "a port from 0 to 65535",
    "server_names": "host names, with commas between them",
    "server_tls_cert": "a file with a certificate in PEM",
    "server_tls_key": "a file with a private key in PEM",
    "server_operations_kept": "a positive number",
    "server_allow_root": "true or false",
    "server_pass_environment": "names of environment variables, with commas between them",
    "server_job_roots": "directories, with colons between them or as a list",
    "spark": "a table of Spark settings with plain values",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value, as `config show` lists it. Secrets are already masked in `shown`."""

    key: str
    value: Any
    shown: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class LoadedSettings:
    values: Settings
    origins: Mapping[str, str]

    def explain(self) -> list[Setting]:
        """Every value with its origin; one entry per Spark setting."""
        entries = []
        for key in Settings.model_fields:
            value = getattr(self.values, key)
            if key == "spark":
                entries += [
                    self._setting(f"spark.{name}", name, conf) for name, conf in value.items()
                ]
            else:
                entries.append(self._setting(key, key, value))
        return entries

    def _setting(self, origin_key: str, key: str, value: Any) -> Setting:
        shown = _REDACTED if _SECRET_KEY.search(key) else redact_url(str(value))
        return Setting(key=key, value=value, shown=shown, origin=self.origins[origin_key])


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """The values of one place."""

    values: Mapping[str, Any]
    origin_of: Callable[[str], str]


@dataclass(kw_only=True)
class _Merge:
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def add(self, layer: _Layer) -> None:
        """Take what no earlier, hence stronger, layer had. Spark settings merge by key."""
        for key, value in layer.values.items():
            if key == "spark":
                self._add_spark(layer)
            elif key not in self.values:
                self.values[key] = value
                self.origins[key] = layer.origin_of(key)

    def _add_spark(self, layer: _Layer) -> None:
        origin = layer.origin_of("spark")
        confs = self.values.setdefault("spark", {})
        for name, value in _checked_spark(layer.values["spark"], origin).items():
            if name not in confs:
                confs[name] = value
                self.origins[f"spark.{name}"] = origin


def load_settings(*, cwd: Path | None = None, **flags: Any) -> LoadedSettings:
    """Read all places. A flag that is None was not given."""
    given = {key: value for key, value in flags.items() if value is not None}
    _refuse_unknown(given, "a flag")
    merge = _Merge()
    merge.add(_Layer(values=given, origin_of=_flag_name))
    merge.add(_environment())

    # The home directory must be known before the file in it can be read; the file in the
    # working directory may set it, the one inside it may not.
    local_file = (cwd or Path.cwd()) / FILE_NAME
    local = _read_file(local_file)
    home_origin = merge.origins.get("home") or (
        str(local_file) if "home" in local else "default"
    )
    home_value = merge.values.get("home", local.get("home", "~/.holdfast"))
    home = _checked_home(home_value, home_origin)
    home_file = home / FILE_NAME
    if home_file.absolute() != local_file.absolute():
        merge.add(_file_layer(home_file, _without_home(_read_file(home_file), home_file)))
    else:
        local = _without_home(local, home_file)
    merge.add(_file_layer(local_file, local))
    merge.add(_defaults(home))
    return LoadedSettings(values=_validated(merge), origins=merge.origins)


def redact_url(text: str) -> str:
    return _URL_PASSWORD.sub(rf"\1:{_REDACTED}@", text)


def _flag_name(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _environment() -> _Layer:
    names = {name.upper(): name for name in os.environ}
    for upper, name in names.items():
        if upper.startswith(ENV_PREFIX) and upper not in (FAULTS_VARIABLE, LOG_VARIABLE):
            key = upper.removeprefix(ENV_PREFIX).lower()
            _refuse_unknown({key: None}, f"the environment variable {name}")
    try:
        values = EnvSettingsSource(Settings, env_ignore_empty=True)()
    except UnreadableVariable as error:
        name = f"{ENV_PREFIX}SPARK"  # the only field that is read as JSON
        raise SettingsError(
            "INVALID_SETTING",
            f"spark is {shorten(os.environ.get(name, ''))}, which is not JSON "
            f"(from the environment variable {name}).",
            fix=f"write it as JSON: {name}='{{\"sql.shuffle.partitions\": 4}}'",
        ) from error

    def origin(key: str) -> str:
        return names.get(f"{ENV_PREFIX}{key}".upper(), f"{ENV_PREFIX}{key.upper()}")

    return _Layer(values=values, origin_of=origin)


def _defaults(home: Path) -> _Layer:
    values = {
        "home": str(home),
        "storage": str(home / "jobs"),
        "savepoints": str(home / "savepoints"),
        "registry_url": f"sqlite:///{home / 'registry.db'}",
        "master": "local[*]",
        "driver_memory": "2g",
        "heap_limit": "1 GiB",
        "rocksdb_memory": "512 MiB",
        "heartbeat_timeout": "30 s",
        "start_timeout": "1 h",
        "fast_start": True,
        "log_level": "INFO",
        "kafka_packages": _connector(),
        "kafka_jars": "",
        "session_cores": "none",
        "session_memory": "none",
        "server_host": "127.0.0.1",
        "server_port": 8642,
        "server_names": [],
        "server_tls_cert": "",
        "server_tls_key": "",
        "server_job_roots": [],
        "server_operations_kept": 10_000,
        "server_allow_root": False,
        "server_pass_environment": [],
        "spark": {},
    }
    return _Layer(values=values, origin_of=lambda _key: "default")


def _connector() -> str:
    """Spark's Kafka connector and its Avro functions, in the version that is installed."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        version = "4.3.0"  # a job will not start, and says so
    names = ("spark-sql-kafka-0-10_2.13", "spark-avro_2.13")
    return ",".join(f"org.apache.spark:{name}:{version}" for name in names)


def _file_layer(file: Path, values: Mapping[str, Any]) -> _Layer:
    return _Layer(values=values, origin_of=lambda _key: str(file))


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(
            "SETTINGS_FILE_UNREADABLE",
            f"{file} cannot be read: {error.strerror}.",
            fix=f"give yourself the right to read {file}, or set HOLDFAST_HOME.",
        ) from error
    except ValueError as error:  # bad TOML, or not UTF-8
        raise SettingsError(
            "INVALID_SETTINGS_FILE",
            f"{file} is not a valid TOML file: {error}.",
            fix="correct the file at that place; text values need quotes.",
        ) from error
    _refuse_unknown(values, str(file))
    return values


def _without_home(values: Mapping[str, Any], file: Path) -> dict[str, Any]:
    if "home" in values:
        raise SettingsError(
            "INVALID_SETTING",
            f"home is {shorten(values['home'])} in {file}, the file that lies in the home "
            "directory itself.",
            fix="take it out of that file; set HOLDFAST_HOME or use --home.",
        )
    return dict(values)


def _refuse_unknown(values: Mapping[str, Any], origin: str) -> None:
    for key in values:
        if key not in Settings.model_fields:
            close = difflib.get_close_matches(key, Settings.model_fields, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise SettingsError(
                "UNKNOWN_SETTING",
                f"{key!r} in {origin} is not a setting.",
                fix=f"{hint}The settings are: {', '.join(Settings.model_fields)}.",
                key=key,
                origin=origin,
                close_matches=close,
            )


def _checked_home(value: Any, origin: str) -> Path:
    try:
        return _directory(value)
    except ValueError as error:
        raise _bad_value("home", value, origin) from error


def _checked_spark(value: Any, origin: str) -> dict[str, str]:
    try:
        return _spark_confs(value)
    except (TypeError, ValueError) as error:
        raise _bad_value("spark", value, origin) from error


def _validated(merge: _Merge) -> Settings:
    try:
        return Settings(**merge.values)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise _bad_value(key, merge.values[key], merge.origins[key]) from error


def _bad_value(key: str, value: Any, origin: str) -> SettingsError:
    return SettingsError(
        "INVALID_SETTING",
        f"{key} is {redact_url(shorten(value))} (from {origin}), which is not {WANTED[key]}.",
        fix=f"set {key} to {WANTED[key]}.",
        key=key,
        origin=origin,
    )
