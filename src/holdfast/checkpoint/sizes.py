"""State size per key group after each of the last epochs: figures for people.

    sizes/15.json            {"epoch": 15, "sizes": [[step, key group, live keys, bytes], …]}
    sizes/15.entries.json    {"epoch": 15, "entries": {step: entries in Spark's store, …}}

A key group reports its size when it is touched; the others are as they were. So the figures
of an epoch build upon those before it, and a job that is taken back needs those of its epoch.
If they are lost, they fill up again as key groups are touched. The number of entries is Spark's
own, and comes when the epoch has been committed; what rewrites the state compares it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.storage.files import list_names, make_directory, read_json, remove_tree

Sizes = Mapping[tuple[str, int], tuple[int, int]]
"""(step uid, key group) -> (live keys, bytes)."""


class SizesLog:
    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, epoch: int) -> Path:
        return self.path / f"{epoch}.json"

    def save(self, epoch: int, sizes: Sizes, retained: int) -> None:
        """Worth a rename, not worth waiting for the disk."""
        rows = [[uid, group, keys, size] for (uid, group), (keys, size) in sizes.items()]
        make_directory(self.path)
        _write(self.file(epoch), {"epoch": epoch, "sizes": rows})
        self.file(epoch - retained).unlink(missing_ok=True)
        self._entries_file(epoch - retained).unlink(missing_ok=True)

    def load(self, last: int | None) -> Sizes:
        """As of epoch `last`, or of the newest before it that is known."""
        known = [epoch for epoch in self._epochs() if last is None or epoch <= last]
        if not known:
            return {}
        try:
            stored = read_json(self.file(known[-1]))
            return {(uid, group): (keys, size) for uid, group, keys, size in stored["sizes"]}
        except (HoldfastError, KeyError, TypeError, ValueError):
            return {}

    def replace_by(
        self, sizes: Sizes, epoch: int, entries: Mapping[str, int] | None = None
    ) -> None:
        """Those of an epoch that the job was taken back to, and no others."""
        self.remove()
        self.save(epoch, sizes, retained=epoch + 1)
        if entries:
            self.note_entries(epoch, entries)

    def note_entries(self, epoch: int, entries: Mapping[str, int]) -> None:
        make_directory(self.path)
        _write(self._entries_file(epoch), {"epoch": epoch, "entries": dict(entries)})

    def entries(self, epoch: int) -> Mapping[str, int]:
        """How many entries of Spark's store each step had after that very epoch, if known."""
        try:
            found: dict[str, int] = read_json(self._entries_file(epoch))["entries"]
        except (HoldfastError, KeyError, TypeError, ValueError):
            return {}
        return found

    def _entries_file(self, epoch: int) -> Path:
        return self.path / f"{epoch}.entries.json"

    def remove(self) -> None:
        remove_tree(self.path)

    def _epochs(self) -> list[int]:
        names = (name.removesuffix(".json") for name in list_names(self.path))
        return sorted(int(name) for name in names if name.isdigit())


def live_keys(sizes: Sizes) -> dict[str, int]:
    """Of each step, over all its key groups."""
    keys: dict[str, int] = {}
    for (uid, _), (count, _) in sizes.items():
        keys[uid] = keys.get(uid, 0) + count
    return keys


def _write(path: Path, content: object) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(path)
