"""A key group's entries in Spark's state store: a MapState of bytes to bytes.

PySpark's state client asks for one key and waits for the answer, a round trip of 100 µs and
more for each. The state server in the JVM does not care: it takes requests from its socket one
after another and answers in the same order. So :class:`PipelinedEntries` sends many requests
before it reads the answers. That uses parts of PySpark that are private, and this module is the
only one that does. :func:`pipelining_problem` lets PySpark's own client write the same requests
and compares; where anything differs, :class:`PublicEntries` does the same by public calls.

Why pipelining cannot get stuck: the server answers each request before it takes the next one,
and stops taking them while its answers are not read. If the client then were in the middle of
writing, each would wait for the other for ever. So all requests under way are kept so small
that they fit into the client's own send buffer. Its writes then end even if the server takes
nothing, the client always comes to read, and so the server always comes to write. A request
that is larger than that goes alone: a server with no answer to write is reading.
"""

from __future__ import annotations

import io
import logging
import pickle
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark import __version__ as pyspark_version
from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import PickleSerializer
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.proto import StateMessage_pb2
from pyspark.sql.streaming.stateful_processor import MapState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import BinaryType, StructField, StructType

from holdfast.state.entries import EntryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_DDL = "k binary"
VALUE_DDL = "v binary"
STATE_SERVER_LOGGER = (
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
)

_WINDOW_REQUESTS = 200
_LARGEST_IN_FLIGHT = 256 * 1024
_SMALLEST_SEND_BUFFER = 8 * 1024  # macOS; where a socket can be asked, it is

_log = logging.getLogger(__name__)


def entries_for(map_state: Any) -> EntryStore:
    """The entries of a MapState with KEY_DDL and VALUE_DDL: pipelined if that works here."""
    problem = pipelining_problem()
    if problem is None:
        return PipelinedEntries(map_state)
    _warn_once(problem)
    return PublicEntries(map_state)


@cache
def _warn_once(problem: str) -> None:
    _log.warning("state entries are read and written one by one: reason=%r", problem)


class PublicEntries:
    """One call of PySpark's MapState, and one round trip, per entry."""

    def __init__(self, map_state: Any) -> None:
        self._state = map_state

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = (self._state.getValue((key,)) for key in keys)
        return [None if row is None else bytes(row[0]) for row in found]

    def put_many(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in items:
            self._state.updateValue((key,), (value,))

    def remove_many(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._state.removeKey((key,))


class PipelinedEntries:
    """Many requests under way at once."""

    def __init__(self, map_state: Any) -> None:
        client = map_state._mapStateClient._stateful_processor_api_client
        self._file = client.sockfile
        self._limit = _in_flight_limit(getattr(client, "_client_socket", None))
        self._dumps: Callable[[Any], bytes] = client.pickleSer.dumps
        self._read_value = _ValueReader(client.pickleSer.loads)
        name = map_state._stateName
        self._get, self._put, self._remove = (
            _Request(name, method) for method in ("getValue", "updateValue", "removeKey")
        )
        self._in_step = True
        """Whether all answers to all requests have been read."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        encode, dumps, read = self._get.encode, self._dumps, self._read_value
        answers = self._exchange((encode(dumps((key,))) for key in keys), "getting value")
        return [read(answer) if answer else None for answer in answers]

    def put_many(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        encode, dumps = self._put.encode, self._dumps
        requests = (encode(dumps((key,)), dumps((value,))) for key, value in items)
        self._exchange(requests, "updating map state value")

    def remove_many(self, keys: Sequence[bytes]) -> None:
        encode, dumps = self._remove.encode, self._dumps
        requests = (encode(dumps((key,))) for key in keys)
        self._exchange(requests, "removing key from map state")

    def _exchange(self, requests: Iterable[bytes], doing: str) -> list[bytes]:
        """Send all requests; the values in the answers, in the same order."""
        if not self._in_step:
            raise PySparkRuntimeError(f"Error {doing}: the state server has failed before.")
        self._in_step = False
        answers: list[bytes] = []
        under_way: deque[tuple[int, int]] = deque()
        size = 0

        def receive() -> int:
            count, freed = under_way.popleft()
            answers.extend(self._answer(doing) for _ in range(count))
            return freed

        for window in _windows(requests, self._limit // 2):
            message = b"".join(window)
            while under_way and size + len(message) > self._limit:
                size -= receive()
            self._file.write(message)
            self._file.flush()
            under_way.append((len(window), len(message)))
            size += len(message)
        while under_way:
            receive()
        self._in_step = True
        return answers

    def _answer(self, doing: str) -> bytes:
        read = self._file.read
        length = read(4)
        if len(length) < 4:
            raise EOFError("the state server closed the connection")
        content = read(int.from_bytes(length, "big"))
        if not content:
            return b""  # done, and no value
        answer = StateMessage_pb2.StateResponse.FromString(content)
        if answer.statusCode != 0:
            # The server takes no further requests, so there is nothing more to be read.
            raise PySparkRuntimeError(f"Error {doing}: {answer.errorMessage}")
        return bytes(answer.value)


def _in_flight_limit(connection: socket.socket | None) -> int:
    """A quarter of what the send buffer is said to hold: the kernel counts its own overhead."""
    buffer = _SMALLEST_SEND_BUFFER
    if connection is not None:
        buffer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    return min(buffer // 4, _LARGEST_IN_FLIGHT)


def _windows(requests: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """Requests to be written at once: `limit` bytes at most, or one that is larger."""
    window: list[bytes] = []
    size = 0
    for request in requests:
        if window and (size + len(request) > limit or len(window) == _WINDOW_REQUESTS):
            yield window
            window, size = [], 0
        window.append(request)
        size += len(request)
    if window:
        yield window


class _Request:
    """A protobuf message that is built once; only key and value change."""

    def __init__(self, state_name: str, method: str) -> None:
        self._message = StateMessage_pb2.StateRequest()
        call = self._message.stateVariableRequest.mapStateCall
        call.stateName = state_name
        self._call = getattr(call, method)
        self._call.SetInParent()

    def encode(self, key: bytes, value: bytes | None = None) -> bytes:
        self._call.userKey = key
        if value is not None:
            self._call.value = value
        message: bytes = self._message.SerializeToString()
        return struct.pack("!ii", 0, len(message)) + message


class _ValueReader:
    """Reads the only column of a pickled row.

    The server pickles a row with its schema, as JSON, and the bytes as text; unpickling that
    takes longer than everything else together. So the first row shows what lies around the
    bytes, and rows with the very same around them are cut out. All others are unpickled.
    """

    def __init__(self, loads: Callable[[bytes], Any]) -> None:
        self._loads = loads
        self._before = self._after = b""

    def __call__(self, row: bytes) -> bytes:
        before, after = self._before, self._after
        if before and row.startswith(before) and row.endswith(after):
            begin, end = len(before) + 4, len(row) - len(after)
            if int.from_bytes(row[begin - 4 : begin], "little") == end - begin:
                return row[begin:end].decode().encode("latin-1")
        value = bytes(self._loads(row)[0])
        self._learn(row, value)
        return value

    def _learn(self, row: bytes, value: bytes) -> None:
        text = value.decode("latin-1").encode()
        opcode = pickle.BINUNICODE + struct.pack("<I", len(text)) + text
        if row.count(opcode) == 1:
            before, _, after = row.partition(opcode)
            self._before, self._after = before + pickle.BINUNICODE, after


def silence_missing_keys(session: SparkSession) -> None:
    """Spark's state server warns of every key that has no value, as every new key has none.

    This reaches the driver's JVM, so all there is in local mode; executors of a cluster need
    the same logger at ERROR in their own log4j2 configuration.
    """
    jvm: Any = session._jvm
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(STATE_SERVER_LOGGER, log4j.Level.ERROR)


# -- does the installed PySpark do what this module relies on? ----------------------------


@cache
def pipelining_problem() -> str | None:
    """Why requests cannot be pipelined with the installed PySpark; None if they can.

    PySpark's own client and ours make the same calls, on a file instead of a socket: they must
    write the same bytes and read the same values. Needs no running Spark.
    """
    try:
        theirs, ours = _probe(PublicEntries), _probe(PipelinedEntries)
    except Exception as error:  # whatever has changed in there
        problem = f"{type(error).__name__}: {error}"
    else:
        if theirs == ours:
            return None
        problem = "its state client writes other requests"
    return f"PySpark {pyspark_version}: {problem}"


def _probe(entries: Callable[[Any], EntryStore]) -> tuple[bytes, list[bytes | None]]:
    """The requests that some calls write, and the values that they read."""
    row = pickle.dumps((b"\x00value\xff",))
    found = StateMessage_pb2.StateResponse(value=row).SerializeToString()
    answers = (found, b"", b"", b"", b"")
    file = _TwoWayFile(b"".join(struct.pack("!i", len(each)) + each for each in answers))
    client = StatefulProcessorApiClient.__new__(StatefulProcessorApiClient)
    client.sockfile, client.pickleSer = file, PickleSerializer()  # type: ignore[assignment]
    key_schema, value_schema = (
        StructType([StructField(name, BinaryType())]) for name in ("k", "v")
    )
    store = entries(MapState(MapStateClient(client, key_schema, value_schema), "entries"))
    values = store.get_many([b"key", b"\x00\xff" * 300])
    store.put_many([(b"key", b"value"), (b"", b"\xff" * 70_000)])
    store.remove_many([b"key"])
    return file.written.getvalue(), values


class _TwoWayFile:
    """Stands in for the file around PySpark's socket."""

    def __init__(self, answers: bytes) -> None:
        self.written = io.BytesIO()
        self.write, self.read = self.written.write, io.BytesIO(answers).read

    def flush(self) -> None:
        pass
