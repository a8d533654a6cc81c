"""Python values of state and keys: one exact form per type.

State lives decoded in a worker's memory and encoded in Spark's state store. A value must
be the same whether it was just written or has been reloaded after a crash, so it is
brought into its exact form when it is written, not when it happens to be stored.
"""

from __future__ import annotations

import math
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import cache, cached_property
from typing import Any

import pyarrow as pa

NAN = float("nan")
"""The one NaN used in keys: a dict finds NaN only by identity."""

_WIDEST = Context(prec=76)
"""Python's own limit of 28 digits is less than a column may have."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NTZ = datetime(1970, 1, 1)

Convert = Callable[[Any], Any]


def exact_class(kind: pa.DataType) -> type | None:
    """The class whose instances need no conversion at all, if the type has one."""
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_string(kind):
        return str
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_float64(kind):
        return float
    if pa.types.is_binary(kind):
        return bytes
    return None


def is_mutable(kind: pa.DataType) -> bool:
    """Whether a decoded value holds a list or a dict that user code could change in place."""
    if pa.types.is_struct(kind):
        return any(is_mutable(field.type) for field in kind)
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind))


@cache
def coercion(kind: pa.DataType) -> Convert:  # noqa: PLR0911, PLR0912 - one line per type
    """A function that brings a user's value into the type's exact form or raises TypeError.

    The result never shares a list or a dict with the argument.
    """
    if pa.types.is_boolean(kind):
        return _only(bool, "boolean")
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_float64(kind):
        return _float
    if pa.types.is_float32(kind):
        return lambda value: struct.unpack("f", struct.pack("f", _float(value)))[0]
    if pa.types.is_string(kind):
        return _only(str, "string")
    if pa.types.is_binary(kind):
        return lambda value: bytes(_instance(value, (bytes, bytearray, memoryview), "binary"))
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_timestamp(kind):
        return _timestamp(kind)
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_duration(kind):
        return lambda value: _instance(value, timedelta, "interval")
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    return lambda value: _wrong(value, str(kind))


def optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _wrong(value: object, wanted: str) -> Any:
    raise TypeError(f"{value!r} ({type(value).__name__}) is not a {wanted}")


def _instance(value: Any, classes: type | tuple[type, ...], wanted: str) -> Any:
    return value if isinstance(value, classes) else _wrong(value, wanted)


def _only(cls: type, wanted: str) -> Convert:
    def convert(value: Any) -> Any:
        # numpy scalars are what vectorised user code hands back
        plain = value.item() if hasattr(value, "item") else value
        return cls(_instance(plain, cls, wanted))

    return convert


def _integer(kind: pa.DataType) -> Convert:
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1

    def convert(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, float) and plain.is_integer():
            plain = int(plain)
        if not isinstance(plain, int) or isinstance(plain, bool):
            _wrong(value, f"whole number ({kind})")
        if not low <= plain <= high:
            raise TypeError(f"{plain} does not fit into {kind}")
        return int(plain)

    return convert


def _float(value: Any) -> float:
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, (int, float)):
        _wrong(value, "double")
    return float(plain)


def _shown(kind: pa.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})"


def _decimal(kind: pa.DataType) -> Convert:
    quantum = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            _wrong(value, _shown(kind))
        try:
            exact = Decimal(value).quantize(quantum, context=_WIDEST)
        except InvalidOperation:
            raise TypeError(f"{value} does not fit into {_shown(kind)}") from None
        if len(exact.as_tuple().digits) > kind.precision:
            raise TypeError(f"{value} does not fit into {_shown(kind)}")
        return exact

    return convert


def _timestamp(kind: pa.DataType) -> Convert:
    def with_zone(value: Any) -> Any:
        _instance(value, datetime, "timestamp")
        if value.tzinfo is None:
            raise TypeError(f"{value!r} has no time zone; a timestamp needs one (use UTC)")
        return _EPOCH + (value - _EPOCH)  # a subclass becomes a plain datetime in UTC

    def without_zone(value: Any) -> Any:
        _instance(value, datetime, "timestamp_ntz")
        if value.tzinfo is not None:
            raise TypeError(f"{value!r} has a time zone; a timestamp_ntz has none")
        return _EPOCH_NTZ + (value - _EPOCH_NTZ)

    return with_zone if kind.tz else without_zone


def _date(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        _wrong(value, "date")
    return date(value.year, value.month, value.day)


@cache
def struct_class(kind: pa.DataType) -> Any:
    """The namedtuple class of a struct type."""
    return namedtuple("Struct", [field.name for field in kind], rename=True)


def _struct(kind: pa.DataType) -> Convert:
    cls = struct_class(kind)
    fields = [(field.name, optional(coercion(field.type))) for field in kind]

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            unknown = set(value) - {name for name, _ in fields}
            if unknown:
                raise TypeError(f"{value!r} has unknown fields {sorted(unknown)}")
            return cls(*(part(value.get(name)) for name, part in fields))
        if not isinstance(value, (tuple, list)) or len(value) != len(fields):
            _wrong(value, f"struct with {len(fields)} fields")
        return cls(*(part(item) for item, (_, part) in zip(value, fields, strict=True)))

    return convert


def _list(kind: pa.DataType) -> Convert:
    part = optional(coercion(kind.value_type))
    return lambda value: [
        part(item) for item in _instance(value, (list, tuple, set, frozenset), "array")
    ]


def _map(kind: pa.DataType) -> Convert:
    key_of, item_of = coercion(kind.key_type), optional(coercion(kind.item_type))
    return lambda value: {
        key_of(key): item_of(item) for key, item in dict(_instance(value, dict, "map")).items()
    }


@cache
def _decoder(kind: pa.DataType) -> Convert | None:
    """What must be done to a value of Arrow's ``to_pylist``; None where nothing is."""
    if pa.types.is_timestamp(kind):
        return optional(coercion(kind)) if kind.tz else None
    if pa.types.is_struct(kind):
        cls = struct_class(kind)
        parts = [(field.name, _decoder(field.type)) for field in kind]
        return lambda value: (
            None
            if value is None
            else cls(*(part(value[name]) if part else value[name] for name, part in parts))
        )
    if pa.types.is_map(kind):
        key_of, item_of = _decoder(kind.key_type), _decoder(kind.item_type)
        return lambda value: (
            None
            if value is None
            else {
                (key_of(key) if key_of else key): (item_of(item) if item_of else item)
                for key, item in value
            }
        )
    if pa.types.is_list(kind):
        part = _decoder(kind.value_type)
        if part is None:
            return None
        return lambda value: None if value is None else [part(item) for item in value]
    return None


def decode(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values of an Arrow column, in their exact form."""
    values: list[Any] = column.to_pylist()
    convert = _decoder(column.type)
    return values if convert is None else [convert(value) for value in values]


@cache
def _encoder(kind: pa.DataType) -> Convert | None:
    if pa.types.is_struct(kind):
        parts = [(field.name, _encoder(field.type)) for field in kind]

        def encode_struct(value: Any) -> Any:
            if value is None:
                return None
            items = [value.get(name) for name, _ in parts] if isinstance(value, dict) else value
            return {
                name: part(item) if part else item
                for (name, part), item in zip(parts, items, strict=True)
            }

        return encode_struct
    if pa.types.is_map(kind):
        key_of, item_of = _encoder(kind.key_type), _encoder(kind.item_type)
        return lambda value: (
            None
            if value is None
            else [
                (key_of(key) if key_of else key, item_of(item) if item_of else item)
                for key, item in value.items()
            ]
        )
    if pa.types.is_list(kind):
        part = _encoder(kind.value_type)
        if part is None:
            return None
        return lambda value: None if value is None else [part(item) for item in value]
    return None


def encode(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow column of Python values; raises Arrow's own errors when one does not fit."""
    convert = _encoder(kind)
    return pa.array(
        values if convert is None else [convert(value) for value in values], type=kind
    )


@cache
def key_part(kind: pa.DataType) -> Convert | None:
    """Make a decoded value usable as a dict key: hashable, and equal when Spark's is."""
    if pa.types.is_floating(kind):
        return lambda value: NAN if value is not None and math.isnan(value) else value
    if pa.types.is_list(kind):
        part = key_part(kind.value_type)
        return lambda value: (
            None if value is None else tuple(part(item) if part else item for item in value)
        )
    if pa.types.is_struct(kind):
        cls = struct_class(kind)
        parts = [key_part(field.type) for field in kind]
        return lambda value: (
            None
            if value is None
            else cls(
                *(part(item) if part else item for part, item in zip(parts, value, strict=True))
            )
        )
    return None


def keys_are_values(kind: pa.DataType) -> bool:
    """Whether a key of this type is the decoded value itself."""
    return key_part(kind) is None


def decode_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Any]:
    """One key per row: the value itself for one key column, a tuple for several."""
    parts: list[list[Any]] = []
    for column in columns:
        values, convert = decode(column), key_part(column.type)
        parts.append(values if convert is None else [convert(value) for value in values])
    return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


class KeyColumn(Sequence[Any]):
    """The keys of a table's rows, decoded when they are first looked at: code that works on
    Arrow columns often never does."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._columns, self._length = columns, len(columns[0])

    @cached_property
    def _keys(self) -> list[Any]:
        return decode_keys(self._columns)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        return self._keys[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)


def encode_keys(keys: Sequence[Any], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """The inverse of :func:`decode_keys`."""
    if len(kinds) == 1:
        return [encode(keys, kinds[0])]
    columns = list(zip(*keys, strict=True)) if keys else [()] * len(kinds)
    return [encode(column, kind) for column, kind in zip(columns, kinds, strict=True)]
