"""`python -m holdfast.cli.operate`: the process that carries one operation out.

Not a command for people: `holdfast server` starts it.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path


def main(operation_id: str, tries: str, home: str) -> int:
    from holdfast.control.tracked.worker import work
    from holdfast.settings import load_settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return 0 if work(operation_id, int(tries), load_settings(home=Path(home)).values) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
