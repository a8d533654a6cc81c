"""Process classes with a mistake each."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

import holdfast as hf


def digest(user: str) -> None:
    if user == "poison":
        raise ValueError("cannot digest this")


class FailsOnPoison(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "user string, total bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        digest(edit.user)
        self.total.value += edit.diff
        yield edit.user, self.total.value


class Tolerant(FailsOnPoison):
    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        self.total.value += edit.diff
        yield edit.user, self.total.value


class FailsOnLong(hf.KeyedProcess):
    output = "n bigint"

    def process(self, edit: Any, ctx: hf.Context) -> None:
        if len(edit.user) > 100:
            raise ValueError("too long")


class Yields(hf.KeyedProcess):
    output = "user string, n bigint"
    sides = {"side": "n bigint"}

    def __init__(self, row: Any) -> None:
        self.row = row

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        yield self.row


def yields(row: Any) -> hf.KeyedProcess:
    return Yields(row)


class WrongTable(hf.KeyedProcess):
    output = "user string, n bigint"

    def process_batch(self, keys: Sequence[Any], table: pa.Table, ctx: hf.Context) -> pa.Table:
        return pa.table({"wrong": [1]})


class Overflows(hf.KeyedProcess):
    total = hf.ValueState("bigint", default=0)
    output = "n bigint"

    def process(self, edit: Any, ctx: hf.Context) -> None:
        self.total.value = 2**63 if edit.user == "ann" else 1


class KeepsAttribute(hf.KeyedProcess):
    output = "n bigint"

    def process(self, edit: Any, ctx: hf.Context) -> None:
        self.last_user = edit.user


class UsesUndeclared(hf.KeyedProcess):
    output = "n bigint"

    def process(self, edit: Any, ctx: hf.Context) -> None:
        self.count.value += 1  # type: ignore[attr-defined]


class UsesHidden(hf.KeyedProcess):
    output = "n bigint"

    def process(self, edit: Any, ctx: hf.Context) -> None:
        this: Any = self
        this.hidden.value += 1


class MistypedColumn(hf.KeyedProcess):
    output = "n bigint"

    def process(self, edit: Any, ctx: hf.Context) -> Iterable[Any]:
        yield (edit.dif,)


class Exits(hf.KeyedProcess):
    output = "n bigint"

    def process(self, edit: Any, ctx: hf.Context) -> None:
        os._exit(3)


class HoldsLock(hf.KeyedProcess):
    output = "n bigint"

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def process(self, edit: Any, ctx: hf.Context) -> None:
        """Never reached: a lock cannot be sent to a worker."""
