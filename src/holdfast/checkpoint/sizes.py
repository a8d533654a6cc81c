"""State size per key group after each of the last epochs: figures for people.

    sizes/15.json    {"epoch": 15, "sizes": [[step, key group, live keys, bytes], …]}

A key group reports its size when it is touched; the others are as they were. So the figures
of an epoch build upon those before it, and a job that is taken back needs those of its epoch.
If they are lost, they fill up again as key groups are touched.
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
        temporary = self.path / f".{epoch}.new"
        temporary.write_text(json.dumps({"epoch": epoch, "sizes": rows}), encoding="utf-8")
        temporary.replace(self.file(epoch))
        self.file(epoch - retained).unlink(missing_ok=True)

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

    def replace_by(self, sizes: Sizes, epoch: int) -> None:
        """Those of an epoch that the job was taken back to, and no others."""
        self.remove()
        self.save(epoch, sizes, retained=epoch + 1)

    def remove(self) -> None:
        remove_tree(self.path)

    def _epochs(self) -> list[int]:
        names = (name.removesuffix(".json") for name in list_names(self.path))
        return sorted(int(name) for name in names if name.isdigit())
