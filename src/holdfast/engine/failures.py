"""From Spark's exceptions to errors that name the thing, the cause and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.protocol import Py4JError, Py4JNetworkError

from holdfast.engine.kafka_failures import kafka_failure
from holdfast.engine.kafka_reader import bad_kafka_record
from holdfast.engine.pulse import jvm_is_alive
from holdfast.engine.readers import bad_record_error
from holdfast.engine.transport import carried_error
from holdfast.errors import (
    CorruptionError,
    DataError,
    EnvironmentProblem,
    HoldfastError,
    JobDefinitionError,
    NotFoundError,
    RunFailedError,
)
from holdfast.sources.base import Source

_CAUSE = re.compile(r"(?:Caused by: |^)([\w.$]+(?:Exception|Error)): ([^\n]*)", re.MULTILINE)


def explain(error: BaseException, sources: dict[str, Source]) -> HoldfastError:
    """The holdfast error behind whatever ended a query."""
    if isinstance(error, HoldfastError):
        return error
    if _lost_jvm(error):
        return RunFailedError(
            "JVM_DIED",
            "the JVM of Spark ended in the middle of the run.",
            fix="see the attempt's log; the system's out-of-memory killer looks like this "
            "(lower driver_memory), and so does a crash of the JVM.",
        )
    text = _full_text(error)
    return (
        carried_error(text)
        or bad_record_error(text, sources)
        or bad_kafka_record(text, sources)
        or kafka_failure(text)
        or _known(text)
        or _unknown(error, text)
    )


def _lost_jvm(error: BaseException) -> bool:
    """Py4J says of a JVM that dies in the middle of an answer only that there was an error."""
    chain = list(_chain(error))
    if any(isinstance(each, Py4JNetworkError | ConnectionError) for each in chain):
        return True
    return any(type(each) is Py4JError for each in chain) and not jvm_is_alive()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what caused it, and so on."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _full_text(error: BaseException) -> str:
    parts: list[str] = []
    for each in _chain(error):
        parts.append(str(each))
        java = getattr(each, "_origin", None) or getattr(each, "java_exception", None)
        if java is not None:
            parts.append(_java_text(java))
    return "\n".join(parts)


def _java_text(java: object) -> str:
    """The messages along a Java exception's causes; Spark wraps deeply."""
    parts = []
    for _ in range(20):
        if java is None:
            break
        parts.append(f"Caused by: {java.toString()}")  # type: ignore[attr-defined]
        java = java.getCause()  # type: ignore[attr-defined]
    return "\n".join(parts)


def _known(text: str) -> HoldfastError | None:
    for recognise in _RECOGNISED:
        error = recognise(text)
        if error is not None:
            return error
    return None


def _disk_full(text: str) -> HoldfastError | None:
    if "No space left on device" not in text and "Disk quota exceeded" not in text:
        return None
    where = re.search(r"(/[^\s:'\"]+)[^\n]*No space left on device", text)
    return EnvironmentProblem(
        "DISK_FULL",
        "the disk is full" + (f" ({where[1]})" if where else "") + "; the epoch was not "
        "committed and nothing of it is visible.",
        fix="free space and run the job again; it goes on from the last committed epoch.",
    )


_REFUSALS = (
    r"(?P<reason>Input/output error|Too many open files|Stale file handle|Permission denied|"
    r"Read-only file system)"
)
# The JVM says FileNotFoundException whenever a file cannot be opened, whatever the reason.
_REFUSED_FILE = re.compile(
    rf"(?:FileNotFound|IO|FileSystem)Exception: (?:(?P<path>/[^\n]*?):? )?\(?{_REFUSALS}"
)
_REFUSED_PYTHON = re.compile(rf"\[Errno \d+\] {_REFUSALS}[^\n:]*(?:: '(?P<path>[^'\n]*)')?")


def _storage_failed(text: str) -> HoldfastError | None:
    found = _REFUSED_FILE.search(text) or _REFUSED_PYTHON.search(text)
    if found is None:
        return None
    path, reason = found["path"] or "a file", found["reason"]
    if reason in ("Permission denied", "Read-only file system"):
        return EnvironmentProblem(
            "PERMISSION_DENIED",
            f"no permission for {path}: {reason}; the epoch was not committed.",
            fix="grant access to it and run the job again, or choose another directory.",
        )
    return EnvironmentProblem(
        "STORAGE_ERROR",
        f"the file system failed on {path}: {reason}; the epoch was not committed.",
        fix="check the disk (`dmesg`, `df`) and the limit of open files (`ulimit -n`), then "
        "run the job again; it goes on from the last committed epoch.",
    )


def _header_differs(text: str) -> HoldfastError | None:
    found = re.search(
        r"CSV header does not conform to the schema\.(.*?CSV file: \S+)", text, re.S
    )
    if found is None:
        return None
    return DataError(
        "CSV_HEADER_DIFFERS",
        f"a CSV header does not name the columns of the schema:{found[1]}",
        fix="write the schema's columns in the order of the header, or correct the file.",
    )


def _damaged_input(text: str) -> HoldfastError | None:
    damaged = re.search(r"(\S+\.parquet)\S* is not a Parquet file", text) or re.search(
        r"FAILED_READ_FILE[^\n]*?file[^\n]*?(file:\S+)", text
    )
    if damaged is None:
        return None
    file = damaged[1].rstrip(".,").removeprefix("file:")
    return DataError(
        "INPUT_FILE_UNREADABLE",
        f"the input file {file} cannot be read: it is damaged or not in the declared format.",
        fix="replace or remove the file; then run the job again.",
        file=file,
    )


def _input_gone(text: str) -> HoldfastError | None:
    if "FileNotFoundException" not in text or "/state/" in text:
        return None
    missing = re.search(r"File (\S+) does not exist", text)
    return NotFoundError(
        "INPUT_FILE_GONE",
        "an input file vanished while it was needed: "
        f"{missing[1] if missing else _root_cause(text)}.",
        fix="restore it: a source must keep its files until the epoch is committed.",
    )


def _damaged_checkpoint(text: str) -> HoldfastError | None:
    if "CANNOT_LOAD_STATE_STORE" not in text and "CHECKPOINT_FILE_CHECKSUM" not in text:
        return None
    return CorruptionError(
        "CHECKPOINT_DAMAGED",
        f"the checkpoint's state cannot be loaded: {_root_cause(text)}.",
        fix="restore the checkpoint directory from a backup.",
    )


def _worker_died(text: str) -> HoldfastError | None:
    if "Python worker exited" not in text and "Python worker failed to connect" not in text:
        return None
    return EnvironmentProblem(
        "PYTHON_WORKER_DIED",
        f"a Python worker died: {_root_cause(text)}.",
        fix="see the attempt's log; often it is memory (lower heap_limit or the "
        "parallelism), or user code that ended the process.",
    )


def _out_of_memory(text: str) -> HoldfastError | None:
    if "OutOfMemoryError" not in text:
        return None
    return EnvironmentProblem(
        "OUT_OF_MEMORY",
        "the JVM ran out of memory.",
        fix="raise driver_memory in the settings, or make epochs smaller "
        "(max_files_per_epoch).",
    )


def _not_shippable(text: str) -> HoldfastError | None:
    if "PicklingError" not in text and "Could not serialize object" not in text:
        return None
    return JobDefinitionError(
        "PROCESS_NOT_SHIPPABLE",
        f"the process cannot be sent to the workers: {_root_cause(text)}.",
        fix="keep connections, locks and open files out of __init__; make them in open().",
    )


# What the machine lacks comes first: Spark says CANNOT_LOAD_STATE_STORE about anything that
# goes wrong near a state store, and a bad disk is no reason to throw a checkpoint away.
_RECOGNISED = (
    _disk_full,
    _storage_failed,
    _out_of_memory,
    _header_differs,
    _damaged_input,
    _input_gone,
    _damaged_checkpoint,
    _worker_died,
    _not_shippable,
)


def _unknown(error: BaseException, text: str) -> RunFailedError:
    return RunFailedError(
        "QUERY_FAILED",
        f"the query ended with {type(error).__name__}: {_root_cause(text)}.",
        fix="the attempt's log has the full trace; the job's state is as of the last "
        "committed epoch, and running it again goes on from there.",
        detail=text[:20_000],
    )


def _root_cause(text: str) -> str:
    causes = _CAUSE.findall(text)
    if causes:
        name, message = causes[-1]
        return f"{name.rsplit('.', 1)[-1]}: {message.strip()[:500]}"
    lines = text.strip().splitlines()
    return lines[0][:500] if lines else "no message"
