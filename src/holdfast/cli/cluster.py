"""`holdfast cluster`: a Spark cluster on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, settings_for
from holdfast.cli.output import Column

if TYPE_CHECKING:
    from holdfast.control.cluster.local import LocalCluster, MemberStatus

app = typer.Typer(
    help="A Spark cluster on this machine: workers that can be lost and come back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_COLUMNS = [
    Column(key="name", title="NAME"),
    Column(key="state", title="STATE"),
    Column(key="pid", title="PID", text=output.optional, right=True),
    Column(key="address", title="ADDRESS"),
    Column(key="cores", title="CORES", text=output.optional, right=True),
    Column(key="cores_used", title="IN USE", text=output.optional, right=True),
    Column(key="memory", title="MEMORY", text=output.optional, right=True),
    Column(key="since", title="SINCE", text=output.time_of_day),
    Column(key="log", title="LOG", text=str),
]
_NONE = "There is no cluster. Start one with `holdfast cluster up`."

WorkersOption = Annotated[
    int, typer.Option("--workers", metavar="N", min=1, max=64, help="How many workers.")
]


@app.command()
def up(
    workers: WorkersOption = 2,
    cores: Annotated[
        int, typer.Option("--cores", metavar="N", min=1, help="Cores of each worker.")
    ] = 1,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory of each worker's executor.")
    ] = "1g",
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Start a cluster: a Master and workers, on loopback only."""
    from holdfast.control.cluster.plan import ClusterSize

    size = ClusterSize(cores=cores, memory=memory.lower())
    _show(_cluster(home).up(workers=workers, size=size), as_json=json_output)
    if not json_output:
        output.write_line("Run a job on it with `holdfast run APP.py --master cluster`.")


@app.command()
def add(
    workers: WorkersOption = 1, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """Start more workers; one that is gone comes back under its name."""
    _show(_cluster(home).add(workers=workers), as_json=json_output)


@app.command()
def ps(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """List the Master and the workers."""
    _show(_cluster(home).members(), as_json=json_output)


@app.command()
def kill(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Name, such as worker-1.")],
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Kill a worker with its executors (SIGKILL), to see a job survive it."""
    pids = [process.pid for process in _cluster(home).kill(worker)]
    if json_output:
        output.print_json({"worker": worker, "pids": pids})
    else:
        output.write_line(f"{worker} is gone, with {len(pids)} processes.")


@app.command()
def down(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """End the cluster, and wait until nothing of it is left."""
    ended = _cluster(home).down()
    if json_output:
        output.print_json({"ended": ended})
    else:
        output.write_line(f"Ended: {', '.join(ended)}." if ended else _NONE)


def _cluster(home: Path | None) -> LocalCluster:
    from holdfast.control.cluster.local import LocalCluster

    return LocalCluster(settings_for(home=home).values.home)


def _show(members: Sequence[MemberStatus], *, as_json: bool) -> None:
    rows = [asdict(member) for member in members]
    output.show_rows(rows, _COLUMNS, as_json=as_json, empty=_NONE)
