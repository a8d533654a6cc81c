"""Write made-up messages for hashtags.py to read: ``python make_messages.py [COUNT]``."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import holdfast as hf

TAGS = ["#spark", "#Spark", "#python", "#streaming", "#state", "#exactly_once"]
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

with hf.FileLogProducer(Path("messages-log"), max_records=1_000) as log:
    for n in range(count):
        # Out of order by up to seven seconds; every hundredth comes up to twelve minutes late.
        behind = n * 13 % 8 + (n // 100 % 13 * 60 if n % 100 == 99 else 0)
        tags = {TAGS[n % 6], TAGS[n * n % 5]} if n % 3 else {"no tags"}
        log.send(
            {
                "user": f"user {n * n % 1009}",
                "text": f"message {n}: {' '.join(sorted(tags))}",
                "ts": START + timedelta(milliseconds=250 * n) - timedelta(seconds=behind),
            }
        )
