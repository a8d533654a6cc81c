"""All pages that there are, and how to see what is on them."""

from __future__ import annotations

TABS = ("overview", "epochs", "attempts", "time", "sources", "configuration", "logs")
SAVEPOINT = "20261117-112040-77be19"


def places(job: str, savepoint: str) -> tuple[str, ...]:
    return (
        "/",
        *(f"/jobs/{job}?tab={tab}" for tab in TABS),
        f"/savepoints?id={savepoint}",
        f"/state?of={savepoint}",
        "/cluster",
        "/operations",
        "/jobs/not-there",
        "/not-there",
    )
