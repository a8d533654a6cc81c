"""Runs a :class:`KeyedProcess` over the blocks of a key group. Plain Python: the Spark
adapter, the test kit and the property tests all drive this one class."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import (
    DataError,
    HoldfastError,
    OutputSchemaError,
    UserCodeError,
    shorten,
)
from holdfast.state.blocks import StateLayout
from holdfast.state.heap import HeapCache, KeyGroup
from holdfast.state.log import GroupStore
from holdfast.state.process import MAIN, Context, KeyedProcess, ProcessSpec, Routed
from holdfast.state.records import Record, RecordMaker
from holdfast.state.schema import type_ddl
from holdfast.state.values import KeyColumn, decode_keys, encode, keys_are_values

_LIBRARY = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class StepPlan:
    """A process step, as it is shipped to the workers."""

    uid: str
    process: KeyedProcess
    spec: ProcessSpec
    keys: tuple[str, ...]
    input_schema: pa.Schema
    key_groups: int
    older_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By state variable: the names it was stored under before."""

    @property
    def layout(self) -> StateLayout:
        return StateLayout(
            tuple(self.input_schema.field(name).type for name in self.keys),
            tuple(
                state.variable(self.older_names.get(state.name, ()))
                for state in self.spec.states
            ),
        )


@dataclass(frozen=True)
class GroupResult:
    """What one batch did in one key group."""

    outputs: Sequence[tuple[str, pa.RecordBatch]]
    live_keys: int
    log_bytes: int
    blocks_read: int
    compacted: bool


class StepRunner:
    """Runs one step in one worker. Key groups pass through it one after another."""

    def __init__(self, plan: StepPlan, cache: HeapCache, owner: Hashable) -> None:
        self._plan, self._cache, self._owner = plan, cache, owner
        self._layout = plan.layout
        self._context = Context()
        self._process = plan.process
        self._handles = [state.handle(self._context) for state in plan.spec.states]
        self._process.__dict__.update(
            (state.name, handle)
            for state, handle in zip(plan.spec.states, self._handles, strict=True)
        )
        self._make = RecordMaker(tuple(plan.input_schema.names))
        self._guarded(self._process.open)
        self._process.__dict__["_running"] = True

    def run(
        self, store: GroupStore, number: int, blocks: Iterable[pa.RecordBatch]
    ) -> GroupResult:
        """Process the blocks of key group `number` and store what changed."""
        group = self._cache.take(self._owner, self._layout, number)
        blocks_read = group.catch_up(store, store.read_head())
        for handle, table in zip(self._handles, group.tables, strict=True):
            handle.attach(group, table)
        outputs: list[tuple[str, pa.RecordBatch]] = []
        if self._plan.spec.batched:
            outputs += self._run_batched(pa.Table.from_batches(blocks, self._plan.input_schema))
        else:
            for block in blocks:
                outputs += self._run_records(block)
        compacted = self._flush(group, store)
        self._cache.put(self._owner, group)
        return GroupResult(outputs, group.live_keys, group.log_bytes, blocks_read, compacted)

    def _run_records(self, block: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        keys = decode_keys([block.column(name) for name in self._plan.keys])
        records = self._records_of(block, keys)
        context, process = self._context, self._process.process
        rows: list[Any] = []
        ends: list[int] = []
        extend, end = rows.extend, ends.append
        try:
            for key, record in zip(keys, records, strict=True):
                context.key = key
                result = process(record, context)
                if result is not None:
                    extend(result)
                end(len(rows))
        except Exception as error:
            raise self._user_error(error, key, record) from error
        return self._encode(rows, _Origin(keys, ends, block, self._make.records))

    def _records_of(self, block: pa.RecordBatch, keys: list[Any]) -> Iterator[Record]:
        """The block's records; a key column that was just decoded is not decoded again."""
        name = self._plan.keys[0]
        shared = len(self._plan.keys) == 1 and keys_are_values(block.schema.field(name).type)
        return self._make.records(block, {name: keys} if shared else {})

    def _run_batched(self, table: pa.Table) -> list[tuple[str, pa.RecordBatch]]:
        keys = KeyColumn([table.column(name) for name in self._plan.keys])
        self._context.key = None
        result = self._guarded(lambda: self._process.process_batch(keys, table, self._context))
        if result is None:
            return []
        return [(MAIN, self._fit_table(result))]

    def _fit_table(self, result: Any) -> pa.RecordBatch:
        wanted = self._plan.spec.outputs[MAIN]
        if isinstance(result, pa.RecordBatch):
            result = pa.Table.from_batches([result])
        if not isinstance(result, pa.Table) or set(result.column_names) != set(wanted.names):
            found = result.column_names if isinstance(result, pa.Table) else type(result)
            raise OutputSchemaError(
                "OUTPUT_DOES_NOT_FIT",
                f"step {self._plan.uid!r}: process_batch returned {found}; declared are the "
                f"columns {wanted.names}.",
                fix="return a pyarrow Table with exactly the declared columns.",
                step=self._plan.uid,
            )
        try:
            fitted = result.select(wanted.names).cast(wanted).combine_chunks()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OutputSchemaError(
                "OUTPUT_DOES_NOT_FIT",
                f"step {self._plan.uid!r}: process_batch returned {result.schema}: {error}.",
                fix="cast the columns to the declared types.",
                step=self._plan.uid,
            ) from error
        return pa.RecordBatch.from_arrays(
            [_one_chunk(column, wanted.field(i)) for i, column in enumerate(fitted.columns)],
            schema=wanted,
        )

    def _encode(self, rows: list[Any], origin: _Origin) -> list[tuple[str, pa.RecordBatch]]:
        outputs = self._plan.spec.outputs
        if not rows:
            return []
        if len(outputs) == 1:
            return [(MAIN, self._columns(MAIN, rows, range(len(rows)), origin))]
        by_tag: dict[str, tuple[list[Any], list[int]]] = {tag: ([], []) for tag in outputs}
        for at, row in enumerate(rows):
            tag, values = (row.side, row.row) if type(row) is Routed else (MAIN, row)
            if tag not in by_tag:
                raise self._bad_output(tag, row, at, origin, f"no side output {tag!r}")
            by_tag[tag][0].append(values)
            by_tag[tag][1].append(at)
        return [
            (tag, self._columns(tag, values, places, origin))
            for tag, (values, places) in by_tag.items()
            if values
        ]

    def _columns(
        self, tag: str, rows: list[Any], places: Sequence[int], origin: _Origin
    ) -> pa.RecordBatch:
        schema = self._plan.spec.outputs[tag]
        if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {len(schema)}:
            return self._columns_slowly(tag, rows, places, origin)
        try:
            arrays = [
                encode(list(map(itemgetter(at), rows)), field.type)
                for at, field in enumerate(schema)
            ]
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            return self._columns_slowly(tag, rows, places, origin)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _columns_slowly(
        self, tag: str, rows: list[Any], places: Sequence[int], origin: _Origin
    ) -> pa.RecordBatch:
        """Accept dicts, lists and single values, and name the row that does not fit."""
        schema = self._plan.spec.outputs[tag]
        plain = []
        for at, row in zip(places, rows, strict=True):
            try:
                values = _as_tuple(row, schema)
                for value, field in zip(values, schema, strict=True):
                    encode([value], field.type)
            except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
                raise self._bad_output(tag, row, at, origin, str(error)) from error
            plain.append(values)
        return pa.RecordBatch.from_arrays(
            [
                encode(values, field.type)
                for values, field in zip(zip(*plain, strict=True), schema, strict=True)
            ],
            schema=schema,
        )

    def _flush(self, group: KeyGroup, store: GroupStore) -> bool:
        try:
            return group.flush(store)
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise self._bad_state(group, error) from error

    def _bad_state(self, group: KeyGroup, error: Exception) -> HoldfastError:
        """Find the value that could not be stored."""
        for variable, table in zip(self._layout.variables, group.tables, strict=True):
            for key in group.changed:
                try:
                    encode([table.get(key)], variable.kind)
                except (TypeError, ValueError, OverflowError, pa.ArrowException) as why:
                    return DataError(
                        "STATE_VALUE_DOES_NOT_FIT",
                        f"step {self._plan.uid!r}, key {shorten(key)}: state "
                        f"{variable.name!r} became {shorten(table.get(key))}, which is no "
                        f"{type_ddl(variable.kind)} ({why}).",
                        fix="declare a wider type for the state, or check the value.",
                        step=self._plan.uid,
                        key=shorten(key),
                    )
        return DataError(
            "STATE_NOT_STORED",
            f"step {self._plan.uid!r}: the state could not be encoded: {error}.",
            fix="report this with the traceback.",
        )

    def _guarded(self, call: Any) -> Any:
        try:
            return call()
        except Exception as error:
            raise self._user_error(error, None, None) from error

    def _user_error(self, error: Exception, key: Any, record: Any) -> HoldfastError:
        place = user_frame(error)
        where = f" at {place}" if place else ""
        facts: dict[str, Any] = {"step": self._plan.uid, "place": place}
        if record is not None:
            facts |= {"key": shorten(key), "record": shorten(record, 500)}
        about = (
            f"\n  key: {facts['key']}\n  record: {facts['record']}"
            if facts.get("record")
            else ""
        )
        if isinstance(error, HoldfastError):
            return type(error)(
                error.name, f"{error.message}{where}{about}", fix=error.fix, **facts
            )
        if isinstance(error, AttributeError) and error.obj is self._process:
            return UserCodeError(
                "STATE_NOT_DECLARED",
                f"step {self._plan.uid!r} uses self.{error.name}, which is not declared"
                f"{where}.{about}",
                fix=f"declare it on {type(self._process).__name__}, such as "
                f'`{error.name} = hf.ValueState("bigint", default=0)`.',
                **facts,
            )
        return UserCodeError(
            "USER_FUNCTION_FAILED",
            f"step {self._plan.uid!r}: {type(error).__name__}: {error}{where}.{about}",
            fix="correct the function, or handle such records in it (a side output keeps "
            "them); then run the job again, it goes on from the last committed epoch.",
            traceback="".join(traceback.format_exception(error)),
            **facts,
        )

    def _bad_output(
        self, tag: str, row: Any, at: int, origin: _Origin, why: str
    ) -> OutputSchemaError:
        key, record = origin.of(at)
        schema = self._plan.spec.outputs.get(tag)
        declared = (
            ", ".join(f"{field.name} {type_ddl(field.type)}" for field in schema)
            if schema is not None
            else f"the side outputs {sorted(set(self._plan.spec.outputs) - {MAIN})}"
        )
        return OutputSchemaError(
            "OUTPUT_DOES_NOT_FIT",
            f"step {self._plan.uid!r} yielded {shorten(row)}, but declared is ({declared}): "
            f"{why or 'wrong number of values'}.\n"
            f"  key: {shorten(key)}\n  record: {shorten(record, 500)}",
            fix=f"yield what {type(self._process).__name__} declares, or change the "
            "declaration.",
            step=self._plan.uid,
            key=shorten(key),
            record=shorten(record, 500),
        )


@dataclass(frozen=True)
class _Origin:
    """Which record an output row came from; only looked at when a row is wrong."""

    keys: list[Any]
    ends: list[int]
    block: pa.RecordBatch
    records: Callable[..., Iterator[Record]]

    def of(self, output: int) -> tuple[Any, Any]:
        at = next(i for i, end in enumerate(self.ends) if end > output)
        return self.keys[at], next(self.records(self.block.slice(at, 1), {}))


def _as_tuple(row: Any, schema: pa.Schema) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        unknown = set(row) - set(schema.names)
        if unknown:
            raise TypeError(f"undeclared columns {sorted(unknown)}")
        return tuple(row.get(name) for name in schema.names)
    if isinstance(row, (tuple, list)):
        if len(row) != len(schema):
            raise TypeError(f"{len(row)} values for {len(schema)} columns")
        return tuple(row)
    if len(schema) == 1:
        return (row,)
    raise TypeError(f"{type(row).__name__} is not a row")


def _one_chunk(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    chunks = column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], field.type)


def user_frame(error: BaseException) -> str | None:
    """`file:line in function` of the innermost frame that is the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith(_LIBRARY)
        and "site-packages" not in frame.filename
        and "/pyspark/" not in frame.filename
    ]
    if not own:
        return None
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}"
