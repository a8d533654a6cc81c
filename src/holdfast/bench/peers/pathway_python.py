"""As pathway_flow.py, but the total is kept by a Python function that is called per edit."""

from __future__ import annotations

import sys

import pathway as pw
from pathway_flow import main


@pw.reducers.stateful_single  # type: ignore[misc]
def total(so_far: int | None, diff: int) -> int:
    return (so_far or 0) + diff


if __name__ == "__main__":
    main(*sys.argv[1:], total=total)
