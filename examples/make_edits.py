"""Write made-up edits into the log that the examples read: ``python make_edits.py [COUNT]``."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import holdfast as hf

count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

with hf.FileLogProducer(Path("edits-log"), max_records=1_000) as log:
    for n in range(count):
        log.send(
            {
                "user": f"user {n * n % 1009}",
                "page": f"page {n % 50}",
                "diff": n * 37 % 1001 - 500,
                "ts": datetime.now(UTC),
            }
        )
