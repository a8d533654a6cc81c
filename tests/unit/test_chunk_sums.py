"""Sums of parts, combined into that of the whole."""

from __future__ import annotations

import random
import zlib

import pytest

from holdfast.checkpoint.chunk_sums import whole_sum


def _sums(data: bytes, part: int) -> bytes:
    found = (zlib.crc32(data[at : at + part]) for at in range(0, len(data), part))
    return b"".join(each.to_bytes(4) for each in found)


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        511,
        512,
        513,
        1024,
        64 * 512,
        64 * 512 + 1,
        65 * 512,
        100_003,
        128 * 512,
        1_000_000,
    ],
)
def test_the_combined_sum_is_that_of_all_bytes(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert whole_sum(_sums(data, 512), 512, size) == zlib.crc32(data)


@pytest.mark.parametrize("size", [40_000, 400_000])
def test_one_other_bit_anywhere_is_another_sum(size: int) -> None:
    data, chance = bytearray(random.Random(1).randbytes(size)), random.Random(2)
    sums = _sums(bytes(data), 512)
    for _ in range(50):
        at, bit = chance.randrange(size), 1 << chance.randrange(8)
        data[at] ^= bit
        assert whole_sum(sums, 512, size) != zlib.crc32(data)
        data[at] ^= bit


@pytest.mark.parametrize("size", [511, 1025, 2000])
def test_too_few_or_too_many_sums_are_no_sum(size: int) -> None:
    sums = _sums(bytes(1024), 512)
    assert whole_sum(sums, 512, size) is None
    assert whole_sum(sums[:-1], 512, 1024) is None
