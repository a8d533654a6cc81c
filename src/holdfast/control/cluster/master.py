"""`--master cluster`: from the word to a URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.control.cluster.local import LocalCluster

CLUSTER = "cluster"


@dataclass(frozen=True, kw_only=True)
class ResolvedMaster:
    """What a driver needs to know to reach its master."""

    url: str
    conf_dir: str | None = None
    """Spark's configuration directory, if the master has one: the secret is in there, and so
    it gets to the driver without being in a command line."""


def resolve_master(master: str, home: Path) -> ResolvedMaster:
    """The local cluster's URL for "cluster"; anything else is a URL already."""
    if master != CLUSTER:
        return ResolvedMaster(url=master)
    cluster = LocalCluster(home)
    return ResolvedMaster(url=cluster.running().url, conf_dir=str(cluster.place.conf))
