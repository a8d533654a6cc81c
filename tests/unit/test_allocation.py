"""Workers keep the memory that they will need again. Seen by the pages that they ask for."""

from __future__ import annotations

import os
import subprocess
import sys

_SIZE = 24 * 1024**2
_ROUNDS = 20
_PROGRAM = """
import resource, sys
sys.argv[1] == "kept" and __import__(
    "holdfast.engine.allocation", fromlist=["_"]
).keep_freed_memory()
import numpy, pyarrow

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def by_arrow(size):
    pyarrow.compute.fill_null(pyarrow.nulls(size // 8, pyarrow.int64()), 1)

def by_c(size):
    zeros.tobytes()

import pyarrow.compute
size, rounds = int(sys.argv[2]), int(sys.argv[3])
zeros = numpy.zeros(size, numpy.uint8)
for make in (by_arrow, by_c):
    make(size)
    before = faults()
    for _ in range(rounds):
        make(size)
    print(faults() - before)
"""


def _pages_asked_for(how: str, **environment: str) -> tuple[int, int]:
    """By Arrow's allocator and by C's."""
    plain = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how, str(_SIZE), str(_ROUNDS)],
        env=plain | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    arrow, c = ran.stdout.split()
    return int(arrow), int(c)


def test_memory_is_used_again() -> None:
    arrow, c = _pages_asked_for("kept")
    of_one_round = _SIZE // os.sysconf("SC_PAGE_SIZE")
    assert arrow < of_one_round
    assert c < of_one_round


def test_without_it_the_c_library_asks_in_every_round() -> None:
    """Or this test would not tell anything."""
    of_all_rounds = _SIZE // os.sysconf("SC_PAGE_SIZE") * _ROUNDS
    _, c = _pages_asked_for("returned", MALLOC_MMAP_THRESHOLD_="131072")
    assert c > of_all_rounds / 2


def test_a_choice_of_the_user_stands() -> None:
    of_all_rounds = _SIZE // os.sysconf("SC_PAGE_SIZE") * _ROUNDS
    _, c = _pages_asked_for("kept", MALLOC_MMAP_THRESHOLD_="131072")
    assert c > of_all_rounds / 2
