"""Where edits come from when they are not live: a file, or a generator."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from holdfast.demo.edits import generate
from holdfast.errors import DataError, NotFoundError, shorten
from holdfast.wikipedia.edit import Edit, NotAnEditError, from_record

_WIKIS = (
    "enwiki",
    "dewiki",
    "frwiki",
    "jawiki",
    "ruwiki",
    "eswiki",
    "commonswiki",
    "wikidatawiki",
)
_ENDLESS = 10**15


def edits_of_file(path: Path) -> Iterator[Edit]:
    """JSON lines, gzipped or not; the line of one that is no edit is named."""
    if not path.is_file():
        raise NotFoundError(
            "EDITS_NOT_FOUND",
            f"there is no file {path}.",
            fix="give a file with an edit per line, --from live or --from synthetic.",
        )
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as lines
    ):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                edit = from_record(json.loads(line), number)
            except (NotAnEditError, ValueError) as error:
                raise DataError(
                    "EDIT_UNREADABLE",
                    f"{path}, line {number}: {error}\n  line: {shorten(line.rstrip())}",
                    fix="correct or remove the line.",
                ) from error
            if edit is not None:
                yield edit


def synthetic_edits(*, users: int, seed: int, disorder: float = 0.0) -> Iterator[Edit]:
    """Without end; the same for the same seed. With `disorder`, an edit may be stamped so many
    seconds earlier than those before it, as late records are."""
    draw = random.Random(seed)  # noqa: S311 - made up on purpose
    for number, made in enumerate(generate(_ENDLESS, users=users, seed=seed)):
        diff = int(made["diff"])
        old = max(0, -diff) + draw.randrange(20_000)
        stamp = made["ts"]
        if disorder:
            earlier = timedelta(seconds=draw.uniform(0, disorder))
            moment = datetime.fromisoformat(stamp.replace("Z", "+00:00")) - earlier
            stamp = moment.isoformat().replace("+00:00", "Z")
        yield Edit(
            id=f"{seed}-{number}",
            wiki=_WIKIS[draw.randrange(len(_WIKIS))],
            title=made["page"],
            user=made["user"],
            bot=made["bot"],
            ts=stamp,
            published=made["ts"],
            old_length=old,
            new_length=old + diff,
            diff=diff,
        )
