"""Wikipedia edits into Kafka, a running balance per user, and back into Kafka."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast as hf
from e2e.drivers import Home
from holdfast.cli.main import main
from holdfast.wikipedia.edit import SCHEMA
from kafka.cluster import Cluster
from kafka.workshop import Copy, Totals, Workshop
from spark.workplace import running_totals

REAL = Path(__file__).parents[3] / "shared" / "data" / "wikipedia-edits-2015-09-12.json.gz"
EXAMPLE = Path(__file__).parents[2] / "examples" / "wikipedia" / "step2_checkpoint.py"
Topic = Callable[..., str]


def send(cluster: Cluster, topic: str, *options: str) -> None:
    to = f"kafka:{topic}"
    assert main(["wikipedia", "--to", to, "--servers", cluster.address, *options]) == 0


def by_user(cluster: Cluster, topic: str, column: str) -> dict[str, list[int]]:
    """What a consumer sees of each user, in the order of the topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for _, _, value in sorted(cluster.read(topic), key=lambda row: row[:2]):
        row = json.loads(value or b"{}")
        found[row["user"]].append(row[column])
    return found


def truth(edits: dict[str, list[int]]) -> dict[str, list[int]]:
    return {
        user: [total for _, total in running_totals([(user, diff) for diff in diffs])]
        for user, diffs in edits.items()
    }


def balances(cluster: Cluster, edits: str, out: str, per_epoch: int) -> Totals:
    source = hf.sources.Kafka(
        edits, servers=cluster.address, schema=SCHEMA, max_per_epoch=per_epoch
    )
    return Totals(source, hf.sinks.Kafka(out, servers=cluster.address, key="user"))


def test_made_up_edits(cluster: Cluster, topic: Topic, shop: Workshop) -> None:
    edits, out = topic(3), topic(2)
    send(cluster, edits, "--limit", "2000", "--users", "200", "--disorder", "5")
    shop.run(balances(cluster, edits, out, 800), out)
    assert len(shop.epochs(out)) == 3
    send(cluster, edits, "--limit", "500", "--users", "200", "--seed", "2")
    shop.run(balances(cluster, edits, out, 800), out)
    sent = by_user(cluster, edits, "diff")
    assert sum(map(len, sent.values())) == 2_500
    assert by_user(cluster, out, "total") == truth(sent)


def test_the_example_survives_a_kill(
    cluster: Cluster, topic: Topic, jars: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch is in the topic when the driver dies, and Spark does not know it yet."""
    edits, out = topic(2), topic(2)
    for name, value in (("SERVERS", cluster.address), ("EDITS", edits), ("BALANCES", out)):
        monkeypatch.setenv(f"WIKIPEDIA_{name}", value)
    send(cluster, edits, "--limit", "300", "--users", "30")
    home = Home(tmp_path)
    (tmp_path / "home").mkdir()
    settings = f'master = "local[2]"\nkafka_jars = "{jars}"\n'
    (tmp_path / "home" / "holdfast.toml").write_text(settings, encoding="utf-8")
    with home.driver(EXAMPLE, "--available-now", faults="epoch.end=kill") as driver:
        assert driver.end() != 0
    send(cluster, edits, "--limit", "200", "--users", "30", "--seed", "2")
    with home.driver(EXAMPLE, "--available-now") as driver:
        assert driver.end() == 0
    assert by_user(cluster, out, "total") == truth(by_user(cluster, edits, "diff"))


@pytest.mark.skipif(not REAL.exists(), reason="the data set is not beside the repository")
def test_real_edits(cluster: Cluster, topic: Topic, shop: Workshop) -> None:
    edits, out = topic(2), topic(2)
    send(cluster, edits, "--from", str(REAL))
    shop.run(balances(cluster, edits, out, 25_000), out)
    sent = by_user(cluster, edits, "diff")
    assert sum(map(len, sent.values())) == 39_244
    assert by_user(cluster, out, "total") == truth(sent)


def test_at_least_once_is_written_by_spark(
    cluster: Cluster, topic: Topic, shop: Workshop
) -> None:
    out = topic(2)
    rows = [(n, f"u{n % 3}", None if n % 4 else f"k{n}") for n in range(50)]
    source = hf.sources.Collection(rows, "id bigint, user string, kind string")
    sink = hf.sinks.Kafka(
        out,
        servers=cluster.address,
        key="user",
        headers={"kind": "kind"},
        guarantee="at_least_once",
    )
    with pytest.raises(hf.errors.JobDefinitionError, match="cannot tell a repeated epoch"):
        shop.run(Copy(source, sink), out)
    shop.run(Copy(source, sink), out, checkpoint={"mode": "at_least_once"})
    found = sorted(json.loads(value or b"{}")["id"] for _, _, value in cluster.read(out))
    assert found == list(range(50))
