"""What the JVM says when it fails, and the errors that people see."""

from __future__ import annotations

import pytest

from holdfast.engine.failures import explain
from holdfast.failure import FailureClass, classify

FILE = "/jobs/drill/checkpoint/offsets/.2.b3c79ce6.tmp"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"java.io.FileNotFoundException: {FILE} (Input/output error)", "STORAGE_ERROR"),
        (f"java.io.FileNotFoundException: {FILE} (Too many open files)", "STORAGE_ERROR"),
        (f"java.nio.file.FileSystemException: {FILE}: Input/output error", "STORAGE_ERROR"),
        ("java.io.IOException: Input/output error", "STORAGE_ERROR"),
        (f"OSError: [Errno 5] Input/output error: '{FILE}'", "STORAGE_ERROR"),
        ("OSError: [Errno 5] Input/output error (injected fault)", "STORAGE_ERROR"),
        (f"PermissionError: [Errno 13] Permission denied: '{FILE}'", "PERMISSION_DENIED"),
        (f"java.io.FileNotFoundException: {FILE} (Permission denied)", "PERMISSION_DENIED"),
        (f"java.io.FileNotFoundException: {FILE} (Read-only file system)", "PERMISSION_DENIED"),
        (f"java.io.FileNotFoundException: {FILE} (No space left on device)", "DISK_FULL"),
        ("java.io.IOException: No space left on device", "DISK_FULL"),
    ],
)
def test_a_file_that_cannot_be_written_is_no_input_that_is_gone(text: str, name: str) -> None:
    error = explain(RuntimeError(f"the query died\nCaused by: {text}\n\tat some.Place"), {})
    assert error.name == name
    assert classify(error) is FailureClass.RESOURCE
    assert FILE not in text or FILE in error.message


@pytest.mark.parametrize(
    ("cause", "failure_class"),
    [
        ("java.io.FileNotFoundException: /c/state/0/1/.3.tmp (Input/output error)", "resource"),
        ("java.io.IOException: No space left on device", "resource"),
        ("java.lang.OutOfMemoryError: Java heap space", "resource"),
        ("java.io.IOException: Stream is corrupted", "corruption"),
        ("java.io.FileNotFoundException: File /c/state/0/1/3.zip does not exist", "corruption"),
    ],
)
def test_only_a_damaged_checkpoint_is_called_damaged(cause: str, failure_class: str) -> None:
    wrapped = (
        "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error"
    )
    error = explain(RuntimeError(f"{wrapped}\nCaused by: {cause}\n\tat some.Place"), {})
    assert classify(error) == failure_class


def test_an_input_file_that_is_gone() -> None:
    text = "Caused by: java.io.FileNotFoundException: File file:/in/a.json does not exist"
    error = explain(RuntimeError(text), {})
    assert (error.name, classify(error)) == ("INPUT_FILE_GONE", FailureClass.DEPENDENCY)
    assert "/in/a.json" in error.message


_GONE = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: Some data may have been lost "
    "because they are not available in Kafka any more;\neither the data was aged out by Kafka "
    "or the topic may have been deleted before all the data in the\ntopic was processed.\n"
    "If you don't want your streaming query to fail on such cases, set the source option "
    "failOnDataLoss to false.\nReason: {reason} SQLSTATE: XXKST\n=== Streaming Query ===\n"
)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (
            "Could not read records in offset [10, 14) for topic partition my-edits-0\n"
            "with consumer group holdfast-1-executor.",
            "topic my-edits, partition 0, offsets 10 to 13;",
        ),
        ("Partitions Set(edits-1) have been deleted.", "Partitions Set(edits-1) have been"),
        (
            "Partition edits-0 offset was changed from 10 to 3. This could be either 1) a user",
            "Partition edits-0 offset was changed from 10 to 3.",
        ),
    ],
)
def test_records_that_kafka_no_longer_has(reason: str, message: str) -> None:
    error = explain(RuntimeError(_GONE.format(reason=reason)), {})
    assert error.name == "DATA_LOST"
    assert message in error.message
    assert "SQLSTATE" not in error.message


def test_a_key_that_this_java_cannot_decrypt() -> None:
    said = "NoSuchAlgorithmException: PBES2 SecretKeyFactory not available"
    error = explain(RuntimeError(f"[STREAM_FAILED] Caused by: java.security.{said}"), {})
    assert error.name == "KAFKA_KEY_UNREADABLE"
    assert "openssl pkcs8" in (error.fix or "")
