"""Pipelined requests, against a state server in this process that behaves as Spark's does."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import PickleSerializer
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.proto import StateMessage_pb2
from pyspark.sql.streaming.stateful_processor import MapState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import BinaryType, StructField, StructType

from holdfast.engine import entries as module
from holdfast.engine.entries import (
    PipelinedEntries,
    PublicEntries,
    entries_for,
    pipelining_problem,
)

KEY_SCHEMA, VALUE_SCHEMA = (StructType([StructField(name, BinaryType())]) for name in "kv")
FORBIDDEN = b"this key fails"


def as_spark_pickles(value: bytes) -> bytes:
    """A row with one binary column, the way Spark 4.3 pickles it."""
    text = value.decode("latin-1").encode()
    return (
        b"\x80\x02cpyspark.sql.types\n_create_row_inbound_converter\nq\x00"
        b"cpyspark.sql.types\n_parse_datatype_json_string\n"
        b'XW\x00\x00\x00{"type":"struct","fields":[{"name":"v","type":"binary",'
        b'"nullable":true,"metadata":{}}]}q\x01\x85Rq\x02\x85R(cbuiltins\nbytes\n'
        b"c__builtin__\nbytearray\nX" + struct.pack("<I", len(text)) + text + b"q\x03"
        b"X\x07\x00\x00\x00latin-1q\x04\x86Rq\x05\x85Rq\x06tRq\x07."
    )


class StateServer(threading.Thread):
    """Takes a request, answers it, takes the next one; after an error it takes none."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self._file = connection.makefile("rwb")
        self.stored: dict[bytes, bytes] = {}
        self.requests = 0

    def run(self) -> None:
        while header := self._file.read(8):
            version, length = struct.unpack("!ii", header)
            assert version == 0
            request = StateMessage_pb2.StateRequest.FromString(self._file.read(length))
            self.requests += 1
            answer = self._answer(request.stateVariableRequest.mapStateCall)
            content = answer.SerializeToString()
            self._file.write(struct.pack("!i", len(content)) + content)
            self._file.flush()
            if answer.statusCode:
                return

    def _answer(self, call: Any) -> Any:
        assert call.stateName == "entries"
        method = call.WhichOneof("method")
        part = getattr(call, method)
        (key,) = pickle.loads(part.userKey)
        if key == FORBIDDEN:
            return StateMessage_pb2.StateResponse(statusCode=1, errorMessage="no disk")
        if method == "getValue":
            value = self.stored.get(key)
            row = b"" if value is None else as_spark_pickles(value)
            return StateMessage_pb2.StateResponse(value=row)
        if method == "updateValue":
            (self.stored[key],) = pickle.loads(part.value)
        else:
            assert method == "removeKey"
            self.stored.pop(key, None)
        return StateMessage_pb2.StateResponse()


@contextmanager
def state_server(buffer: int | None = None) -> Iterator[tuple[MapState, StateServer]]:
    """A MapState of PySpark's own classes, with a server at the other end of its socket."""
    ours, theirs = socket.socketpair()
    if buffer:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client = StatefulProcessorApiClient.__new__(StatefulProcessorApiClient)
    client._client_socket, client.pickleSer = ours, PickleSerializer()
    client.sockfile = ours.makefile("rwb", 65536)
    server = StateServer(theirs)
    server.start()
    try:
        yield MapState(MapStateClient(client, KEY_SCHEMA, VALUE_SCHEMA), "entries"), server
    finally:
        client.sockfile.close()
        ours.close()
        server.join(10)
        theirs.close()
        assert not server.is_alive()


@pytest.mark.parametrize("store", [PipelinedEntries, PublicEntries])
class TestBothWays:
    def test_any_bytes(self, store: Callable[[Any], Any]) -> None:
        values = [
            b"",
            b"\x00",
            b"\xff" * 3,
            b"latin-1",
            b"X\x07\x00\x00\x00",
            bytes(range(256)),
        ]
        items = [(bytes([at]) * at, value) for at, value in enumerate(values)]
        with state_server() as (map_state, server):
            entries = store(map_state)
            entries.put_many(items)
            assert server.stored == dict(items)
            asked = [*(key for key, _ in reversed(items)), b"missing"]
            assert entries.get_many(asked) == [*reversed(values), None]
            entries.remove_many([items[0][0], b"missing"])
            assert server.stored == dict(items[1:])

    def test_nothing(self, store: Callable[[Any], Any]) -> None:
        with state_server() as (map_state, server):
            entries = store(map_state)
            entries.put_many([])
            entries.remove_many([])
            assert entries.get_many([]) == []
            assert server.requests == 0

    def test_an_error(self, store: Callable[[Any], Any]) -> None:
        with (
            state_server() as (map_state, _),
            pytest.raises(PySparkRuntimeError, match="Error getting value: no disk"),
        ):
            store(map_state).get_many([b"a", FORBIDDEN, *(b"%d" % at for at in range(1000))])


class TestPipelining:
    def test_many(self) -> None:
        keys = [b"%d" % at for at in range(5_000)]
        with state_server() as (map_state, server):
            entries = PipelinedEntries(map_state)
            entries.put_many([(key, key * 2) for key in keys])
            assert entries.get_many(keys) == [key * 2 for key in keys]
            entries.remove_many(keys)
            assert server.stored == {}
            assert server.requests == 15_000

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("buffer", [1, 20_000, None], ids=["tiny", "small", "default"])
    @pytest.mark.parametrize("size", [10, 3_000, 300_000])
    def test_it_never_gets_stuck(self, size: int, buffer: int | None) -> None:
        """Values that are larger than all buffers together, in both directions."""
        items = [(b"%d" % at, os.urandom(size)) for at in range(20 if size > 10_000 else 600)]
        items += [(b"small %d" % at, b"x") for at in range(300)]
        items += [(b"large %d" % at, b"x" * 100_000) for at in range(5)]
        keys = [key for key, _ in items]
        with state_server(buffer) as (map_state, _):
            entries = PipelinedEntries(map_state)
            entries.put_many(items)
            assert entries.get_many(keys) == [value for _, value in items]

    def test_what_is_under_way_fits_into_the_send_buffer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The reason why it cannot get stuck."""
        monkeypatch.setattr(module, "_WINDOW_REQUESTS", 1)  # so an answer belongs to a write
        under_way: list[int] = []
        together: list[int] = []
        with state_server() as (map_state, _):
            entries = PipelinedEntries(map_state)
            file, answer = entries._file, entries._answer

            class WatchedFile:
                read, flush = file.read, file.flush

                @staticmethod
                def write(message: bytes) -> None:
                    under_way.append(len(message))
                    if len(under_way) > 1:
                        together.append(sum(under_way))
                    file.write(message)

            def watched_answer(doing: str) -> bytes:
                content = answer(doing)
                del under_way[0]
                return content

            monkeypatch.setattr(entries, "_file", WatchedFile)
            monkeypatch.setattr(entries, "_answer", watched_answer)
            entries.put_many([(b"%d" % at, b"x" * (at * 37 % 60_000)) for at in range(500)])
            assert entries._limit // 2 < max(together) <= entries._limit
            connection = map_state._mapStateClient._stateful_processor_api_client._client_socket
            buffer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            assert entries._limit <= buffer // 4

    def test_after_an_error_nothing_is_asked_any_more(self) -> None:
        """Answers may be missing, so the next one could be taken for that of another key."""
        with state_server() as (map_state, server):
            entries = PipelinedEntries(map_state)
            with pytest.raises(
                PySparkRuntimeError, match="removing key from map state: no disk"
            ):
                entries.remove_many([FORBIDDEN])
            with pytest.raises(PySparkRuntimeError, match="failed before"):
                entries.get_many([b"a"])
            assert server.requests == 1

    def test_a_server_that_has_gone(self) -> None:
        ours, theirs = socket.socketpair()
        client = StatefulProcessorApiClient.__new__(StatefulProcessorApiClient)
        client._client_socket, client.pickleSer = ours, PickleSerializer()
        client.sockfile = ours.makefile("rwb", 65536)
        map_state = MapState(MapStateClient(client, KEY_SCHEMA, VALUE_SCHEMA), "entries")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            PipelinedEntries(map_state).get_many([b"a"])
        client.sockfile.close()
        ours.close()
        theirs.close()


class TestRowsAreCutOut:
    def reader(self) -> tuple[Any, list[bytes]]:
        unpickled: list[bytes] = []

        def loads(row: bytes) -> Any:
            unpickled.append(row)
            return pickle.loads(row)

        return module._ValueReader(loads), unpickled

    def test_only_the_first_is_unpickled(self) -> None:
        read, unpickled = self.reader()
        values = [b"first", b"", bytes(range(256)), b"latin-1", b"x" * 70_000]
        assert [read(as_spark_pickles(value)) for value in values] == values
        assert len(unpickled) == 1

    def test_a_row_that_looks_otherwise(self) -> None:
        read, unpickled = self.reader()
        read(as_spark_pickles(b"first"))
        assert read(pickle.dumps((b"other",))) == b"other"
        assert read(as_spark_pickles(b"again")) == b"again"
        assert len(unpickled) == 2

    def test_a_value_that_is_found_twice_teaches_nothing(self) -> None:
        read, unpickled = self.reader()
        assert read(as_spark_pickles(b"latin-1")) == b"latin-1"
        assert read(as_spark_pickles(b"a")) == b"a"
        assert read(as_spark_pickles(b"b")) == b"b"
        assert len(unpickled) == 2


class TestTheInstalledPySpark:
    @pytest.fixture(autouse=True)
    def _forget(self) -> Iterator[None]:
        for cached in (pipelining_problem, module._warn_once):
            cached.cache_clear()
        yield
        for cached in (pipelining_problem, module._warn_once):
            cached.cache_clear()

    def test_it_can_be_pipelined(self) -> None:
        assert pipelining_problem() is None
        with state_server() as (map_state, _):
            assert isinstance(entries_for(map_state), PipelinedEntries)

    def other_requests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send = StatefulProcessorApiClient._send_proto_message
        monkeypatch.setattr(
            StatefulProcessorApiClient,
            "_send_proto_message",
            lambda client, message: send(client, message + b"\x00"),
        )

    def other_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            StatefulProcessorApiClient,
            "_deserialize_from_bytes",
            lambda client, value: (b"something else",),
        )

    def other_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        init = MapState.__init__

        def renamed(self: Any, *args: Any) -> None:
            init(self, *args)
            del self._stateName

        monkeypatch.setattr(MapState, "__init__", renamed)

    @pytest.mark.parametrize("change", [other_requests, other_answers, other_names])
    def test_another_pyspark(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        change: Callable[[Any, pytest.MonkeyPatch], None],
    ) -> None:
        with state_server() as (map_state, _):
            change(self, monkeypatch)
            problem = pipelining_problem()
            assert problem is not None
            assert problem.startswith("PySpark 4.3")
            assert isinstance(entries_for(map_state), PublicEntries)
            assert isinstance(entries_for(map_state), PublicEntries)
        assert len(caplog.records) == 1, "it is said once"
