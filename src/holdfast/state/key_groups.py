"""Which key group a key belongs to: one definition, for workers, test kit and savepoints.

The hash is CRC-32 over a canonical, self-delimiting encoding of the key. It depends on
nothing but the key's value: not on the machine, the Python hash seed or the Spark version.
Changing it would orphan all stored state, so a golden test pins it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zlib import crc32

import pyarrow as pa

from holdfast.errors import JobDefinitionError
from holdfast.state.values import NAN, struct_class

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NTZ = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_CACHE_LIMIT = 1_000_000

MIN_KEY_GROUPS = 64
MAX_KEY_GROUPS = 32_768


def default_key_groups(parallelism: int) -> int:
    """The power of two at or above 8 × parallelism, at least 64."""
    return max(MIN_KEY_GROUPS, 1 << (8 * parallelism - 1).bit_length())


def check_key_groups(count: int) -> int:
    if isinstance(count, int) and 1 <= count <= MAX_KEY_GROUPS:
        return count
    raise JobDefinitionError(
        "INVALID_KEY_GROUPS",
        f"key_groups is {count!r}; it must be a whole number from 1 to {MAX_KEY_GROUPS}.",
        fix="leave it out (64 or more, by parallelism), or give the largest parallelism "
        "this job will ever need.",
    )


def canonical_bytes(key: Any) -> bytes:  # noqa: PLR0911 - one line per type
    """A tag and the value, so that values of different types or lengths never run together."""
    if key is None:
        return b"n"
    if isinstance(key, str):
        text = key.encode("utf-8", "surrogatepass")
        return b"s" + struct.pack(">I", len(text)) + text
    if isinstance(key, bool):
        return b"t" if key else b"f"
    if isinstance(key, int):
        return b"i" + struct.pack(">q", key)
    if isinstance(key, float):
        is_nan = key != key  # noqa: PLR0124 - all NaNs are one key
        return b"d" + struct.pack(">d", NAN if is_nan else key + 0.0)  # -0.0 + 0.0 is 0.0
    if isinstance(key, bytes):
        return b"b" + struct.pack(">I", len(key)) + key
    if isinstance(key, datetime):
        since = key - (_EPOCH if key.tzinfo else _EPOCH_NTZ)
        return b"T" + struct.pack(">q", since // _MICROSECOND)
    if isinstance(key, date):
        return b"D" + struct.pack(">i", key.toordinal())
    if isinstance(key, timedelta):
        return b"I" + struct.pack(">q", key // _MICROSECOND)
    if isinstance(key, Decimal):
        text = format(key, "f").encode()
        return b"N" + struct.pack(">I", len(text)) + text
    if isinstance(key, tuple):
        parts = b"".join(canonical_bytes(part) for part in key)
        return b"(" + struct.pack(">I", len(key)) + parts
    raise TypeError(f"{type(key).__name__} cannot be a key")


def key_from_bytes(data: bytes, kinds: Sequence[pa.DataType]) -> Any:
    """The key that :func:`canonical_bytes` was given, for key columns of these types."""
    if len(kinds) == 1:
        key, end = _parsed(data, 0, kinds[0])
    else:
        parts, end = [], 5  # "(", and how many parts there are
        for kind in kinds:
            part, end = _parsed(data, end, kind)
            parts.append(part)
        key = tuple(parts)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes after the end of a key")
    return key


def _parsed(data: bytes, at: int, kind: pa.DataType) -> tuple[Any, int]:  # noqa: PLR0911
    tag, begin = data[at : at + 1], at + 1
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], begin
    if tag in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[tag], data, begin)
        end = begin + struct.calcsize(_NUMBERS[tag])
        if tag == b"d" and number != number:  # noqa: PLR0124 - a dict finds NaN only as itself
            return NAN, end
        if tag == b"T":
            return (_EPOCH if kind.tz else _EPOCH_NTZ) + number * _MICROSECOND, end
        if tag == b"D":
            return date.fromordinal(number), end
        return (number * _MICROSECOND if tag == b"I" else number), end
    (length,) = struct.unpack_from(">I", data, begin)
    begin += 4
    if tag == b"(":
        is_struct = pa.types.is_struct(kind)
        kinds = [field.type for field in kind] if is_struct else [kind.value_type] * length
        parts = []
        for each in kinds:
            part, begin = _parsed(data, begin, each)
            parts.append(part)
        return (struct_class(kind)(*parts) if is_struct else tuple(parts)), begin
    content, end = data[begin : begin + length], begin + length
    if tag == b"s":
        return content.decode("utf-8", "surrogatepass"), end
    if tag == b"N":
        return Decimal(content.decode()), end
    if tag == b"b":
        return content, end
    raise ValueError(f"{tag!r} begins no key")


_CONSTANTS = {b"n": None, b"t": True, b"f": False}
_NUMBERS = {b"i": ">q", b"d": ">d", b"T": ">q", b"D": ">i", b"I": ">q"}


def key_group_of(key: Any, key_groups: int) -> int:
    return crc32(canonical_bytes(key)) % key_groups


def spark_label(group: int) -> int:
    """The number under which Spark knows a key group: the int whose hash is `group`.

    Spark puts a row into partition ``hash(kg) mod N``, and its hash scatters a few small
    numbers unevenly: 64 key groups would go 27 : 37 to two partitions, and 13 : 19 : 32 to
    three. Its hash of an int (Murmur3) can be turned around, so a label can be chosen for
    which the partition is ``group mod N``: even for every N.
    """
    mixed = _times(_unshift(group, 16), _INVERSE_MIX_2)
    mixed = _times(_unshift(mixed, 13), _INVERSE_MIX_1)
    mixed = _unshift(mixed, 16) ^ 4  # the length of an int
    mixed = _rotate_right(_times(mixed - 0xE6546B64, _INVERSE_FIVE), 13) ^ 42  # Spark's seed
    label = _times(_rotate_right(_times(mixed, _INVERSE_C2), 15), _INVERSE_C1)
    return label - _WORD if label >= _WORD // 2 else label


_WORD = 1 << 32
_INVERSE_C1, _INVERSE_C2 = pow(0xCC9E2D51, -1, _WORD), pow(0x1B873593, -1, _WORD)
_INVERSE_MIX_1, _INVERSE_MIX_2 = pow(0x85EBCA6B, -1, _WORD), pow(0xC2B2AE35, -1, _WORD)
_INVERSE_FIVE = pow(5, -1, _WORD)


def _times(value: int, factor: int) -> int:
    return value * factor % _WORD


def _rotate_right(value: int, bits: int) -> int:
    return (value >> bits | value << (32 - bits)) % _WORD


def _unshift(value: int, bits: int) -> int:
    """The inverse of ``value ^ value >> bits`` for `bits` of 11 or more."""
    return value ^ value >> bits ^ value >> 2 * bits


class KeyGroupIndex(dict[Any, int]):
    """Remembers the key groups of keys already seen: `index[key]`."""

    def __init__(self, key_groups: int) -> None:
        super().__init__()
        self._key_groups = key_groups

    def __missing__(self, key: Any) -> int:
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        group = key_group_of(key, self._key_groups)
        self[key] = group
        return group
