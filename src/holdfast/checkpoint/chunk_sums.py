"""The CRC-32 of a whole, from those of its parts.

Hadoop keeps a sum per 512 bytes of a file. To compare each of them with the bytes is a call per
part, which takes four times as long as one sum of all bytes. So the kept sums are combined into
the one that the whole must have.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FEW = 64
"""So many are combined sooner one by one than NumPy is imported."""


def whole_sum(sums: bytes, part: int, size: int) -> int | None:
    """Of `size` bytes, from the sums (big endian, 4 bytes each) of its parts of `part` bytes;
    None if these are not as many as there are parts."""
    count = len(sums) // 4
    if len(sums) % 4 or part <= 0 or count != -(-size // part):
        return None
    if count == 0:
        return 0
    last = size - part * (count - 1)
    before = sums[: 4 * (count - 1)]
    first = _one_by_one(before, part) if count <= _FEW else _all_at_once(before, part)
    return _moved(first, bytes(last)) ^ int.from_bytes(sums[-4:])


def _moved(sum_before: int, zeros: bytes) -> int:
    """What a sum becomes when that many bytes follow; to be combined with their own sum.

    CRC-32 is linear: sum(A + B) = moved(sum(A), len(B)) ^ sum(B).
    """
    return zlib.crc32(zeros, sum_before) ^ zlib.crc32(zeros)


def _one_by_one(sums: bytes, part: int) -> int:
    zeros, found = bytes(part), 0
    for each in _numbers(sums):
        found = _moved(found, zeros) ^ each
    return found


def _numbers(sums: bytes) -> Iterator[int]:
    return (int.from_bytes(sums[at : at + 4]) for at in range(0, len(sums), 4))


def _all_at_once(sums: bytes, part: int) -> int:
    """Neighbours are combined until one is left."""
    import numpy as np  # late: nearly a tenth of a second, and small files do not need it

    given = np.frombuffer(sums, dtype=">u4").astype(np.uint32)
    # The sum of nothing is 0, which moves to 0: it may stand in front.
    doublings = (len(given) - 1).bit_length()
    found = np.concatenate([np.zeros((1 << doublings) - len(given), dtype=np.uint32), given])
    for times in range(doublings):
        found = _all_moved(found[0::2], _tables(part, times)) ^ found[1::2]
    return int(found[0])


def _all_moved(values: NDArray[np.uint32], tables: NDArray[np.uint32]) -> NDArray[np.uint32]:
    result: NDArray[np.uint32] = tables[0][values & 0xFF]
    for at in (1, 2, 3):
        result ^= tables[at][(values >> (8 * at)) & 0xFF]
    return result


@cache
def _tables(part: int, doublings: int) -> NDArray[np.uint32]:
    """How a sum moves by `part` bytes, so often doubled: for each of its four bytes, what each
    value becomes. To move by twice as many bytes is to move twice."""
    import numpy as np

    if doublings:
        half = _tables(part, doublings - 1)
        return _all_moved(half, half)
    zeros = bytes(part)
    return np.array(
        [[_moved(byte << shift, zeros) for byte in range(256)] for shift in (0, 8, 16, 24)],
        dtype=np.uint32,
    )
