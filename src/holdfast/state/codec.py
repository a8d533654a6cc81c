"""Entries of the rocksdb backend: a format version, and one value as msgpack.

The type of a value is not stored: the step's layout knows it. So a number that the code has
since declared wider is read like any other, and a small value costs a few bytes. Where msgpack
has no form for a type (dates, decimals, structs, maps with such keys), a *wire* converts to and
from what it has; the common types have no wire and are packed by msgpack's C code as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import msgpack
import pyarrow as pa

from holdfast.errors import CorruptionError
from holdfast.state.values import Convert, key_part, optional, struct_class

FORMAT_VERSION = 1
_FORMAT = bytes([FORMAT_VERSION])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NTZ = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]

# One for all: making a Packer costs more than packing. It starts with a small buffer, because
# its default of 256 KiB would be held for nothing.
_pack: Encode = msgpack.Packer(buf_size=4096).pack


def dump(plain: Any) -> bytes:
    """The bytes of a value that msgpack knows. Raises TypeError, ValueError, OverflowError."""
    return _FORMAT + _pack(plain)


def load(stored: bytes) -> Any:
    """The inverse of :func:`dump`."""
    if stored[:1] != _FORMAT:
        raise CorruptionError(
            "STATE_FORMAT_UNKNOWN",
            f"a state entry has format {stored[0] if stored else 'none'}; this version reads "
            f"{FORMAT_VERSION}.",
            fix="run the holdfast version that wrote the state, or a newer one.",
        )
    try:
        return msgpack.unpackb(stored[1:], strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptionError(
            "STATE_ENTRY_UNREADABLE",
            f"a state entry of {len(stored)} bytes is not msgpack: {error}.",
            fix="restore the checkpoint directory from a backup; the bytes were damaged.",
        ) from error


@cache
def encoder(kind: pa.DataType) -> Encode:
    """A function from a value in its exact form to bytes."""
    if pa.types.is_integer(kind):
        return _integer_encoder(kind)
    pack = wire(kind).pack
    if pack is None:
        return dump
    return lambda value: _FORMAT + _pack(pack(value))


@cache
def decoder(kind: pa.DataType) -> Decode:
    """A function from :func:`encoder`'s bytes back to an equal value of the same classes."""
    unpack = wire(kind).unpack
    if unpack is None:
        return load
    return lambda stored: unpack(load(stored))


def _integer_encoder(kind: pa.DataType) -> Encode:
    """A bigint is not checked when user code assigns it (that keeps assignment fast), and
    msgpack would take half of the numbers that do not fit."""
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1

    def encode(value: int) -> bytes:
        if not low <= value <= high:
            raise OverflowError(f"{value} does not fit into {kind}")
        return _FORMAT + _pack(value)

    return encode


@dataclass(frozen=True)
class Wire:
    """The way of a value to msgpack's types and back; None where it is one of them already."""

    pack: Convert | None = None
    unpack: Convert | None = None


_AS_IS = Wire()


@cache
def wire(kind: pa.DataType) -> Wire:  # noqa: PLR0911 - one line per type
    if pa.types.is_decimal(kind):
        return Wire(str, Decimal)  # the text keeps the scale
    if pa.types.is_timestamp(kind):
        return _timestamp(_EPOCH if kind.tz else _EPOCH_NTZ)
    if pa.types.is_date(kind):
        return Wire(date.toordinal, date.fromordinal)
    if pa.types.is_duration(kind):
        return Wire(_microseconds, lambda number: timedelta(microseconds=number))
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    return _AS_IS


def _timestamp(epoch: datetime) -> Wire:
    return Wire(
        lambda moment: (moment - epoch) // _MICROSECOND,
        lambda number: epoch + timedelta(microseconds=number),
    )


def _microseconds(length: timedelta) -> int:
    number = length // _MICROSECOND
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{length} does not fit into an interval of 64 bits")
    return number


def _struct(kind: pa.DataType) -> Wire:
    cls = struct_class(kind)
    packs = [_part(wire(field.type).pack) for field in kind]
    unpacks = [_part(wire(field.type).unpack) for field in kind]

    def pack(value: Any) -> list[Any]:
        return [part(item) if part else item for part, item in zip(packs, value, strict=True)]

    def unpack(items: list[Any]) -> Any:
        return cls(
            *(part(item) if part else item for part, item in zip(unpacks, items, strict=True))
        )

    return Wire(
        pack if any(packs) else None,  # a namedtuple is packed like a list
        unpack if any(unpacks) else lambda items: cls(*items),
    )


def _list(kind: pa.DataType) -> Wire:
    part = wire(kind.value_type)
    return Wire(_each(part.pack), _each(part.unpack))


def _each(convert: Convert | None) -> Convert | None:
    part = _part(convert)
    return part and (lambda items: [part(item) for item in items])


def _map(kind: pa.DataType) -> Wire:
    """msgpack's own map if it can hold keys and values as they are; else key, value, key, …"""
    key, item = wire(kind.key_type), wire(kind.item_type)
    if key == _AS_IS and item == _AS_IS:
        return _AS_IS
    key_pack, item_pack = key.pack or _same, _part(item.pack) or _same
    key_unpack, item_unpack = key.unpack or _same, _part(item.unpack) or _same

    def pack(value: dict[Any, Any]) -> list[Any]:
        flat: list[Any] = []
        for entry, found in value.items():
            flat.append(key_pack(entry))
            flat.append(item_pack(found))
        return flat

    def unpack(flat: list[Any]) -> dict[Any, Any]:
        return {
            key_unpack(entry): item_unpack(found)
            for entry, found in zip(flat[::2], flat[1::2], strict=True)
        }

    return Wire(pack, unpack)


def _same(value: Any) -> Any:
    return value


def _part(convert: Convert | None) -> Convert | None:
    """Inside a struct, a list or a map a value may be missing."""
    return None if convert is None else optional(convert)


@cache
def key_wire(kinds: Sequence[pa.DataType]) -> Wire:
    """The wire of a step's keys: what comes back is equal, and found in a dict."""
    parts = [key_part_wire(kind) for kind in kinds]
    if len(parts) == 1:
        return parts[0]
    packs, unpacks = [part.pack for part in parts], [part.unpack for part in parts]

    def pack(key: tuple[Any, ...]) -> list[Any]:
        return [part(item) if part else item for part, item in zip(packs, key, strict=True)]

    def unpack(items: list[Any]) -> tuple[Any, ...]:
        return tuple(
            part(item) if part else item for part, item in zip(unpacks, items, strict=True)
        )

    return Wire(pack if any(packs) else None, unpack if any(unpacks) else tuple)


def key_part_wire(kind: pa.DataType) -> Wire:
    plain, as_key = wire(kind), key_part(kind)
    unpack = _part(plain.unpack)
    if as_key is None:
        return Wire(_part(plain.pack), unpack)
    if unpack is None:
        return Wire(_part(plain.pack), as_key)
    return Wire(_part(plain.pack), lambda item: as_key(unpack(item)))
