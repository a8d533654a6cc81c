"""`holdfast savepoint`: take, list, show, verify, delete, export, import."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import (
    HomeOption,
    JobArgument,
    JsonOption,
    open_registry,
    settings_for,
)
from holdfast.cli.output import Column
from holdfast.cli.savepoint_tree import tree
from holdfast.errors import shorten

if TYPE_CHECKING:
    from holdfast.savepoint.store import Progress, Savepoint, SavepointStore

app = typer.Typer(no_args_is_help=True, help="Take, look at and remove savepoints of jobs.")
SavepointArgument = Annotated[
    str,
    typer.Argument(
        metavar="SAVEPOINT", help="Id or its beginning, label, directory, or 'latest'."
    ),
]
app.command("tree")(tree)


class Form(StrEnum):
    NATIVE = "native"
    CANONICAL = "canonical"


_COLUMNS = [
    Column(key="id", title="ID"),
    Column(key="job", title="JOB"),
    Column(key="label", title="LABEL"),
    Column(key="created", title="TAKEN", text=output.time_of_day),
    Column(key="epoch", title="EPOCH", right=True),
    Column(key="timeline", title="TIMELINE"),
    Column(key="parallelism", title="PARALLELISM", right=True),
    Column(key="backend", title="BACKEND"),
    Column(key="format", title="FORMAT"),
    Column(key="code", title="CODE"),
    Column(key="keys", title="KEYS", text=output.count, right=True),
    Column(key="bytes", title="SIZE", text=output.size, right=True),
]


@app.command()
def take(
    job: JobArgument,
    *,
    label: Annotated[
        str, typer.Option("--label", metavar="TEXT", help="A name to find it by.")
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Where to keep it; default: the setting."),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="native: Spark's own files, at once. canonical: state as plain columns "
            "(Parquet), for every backend; takes Spark.",
        ),
    ] = Form.NATIVE,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Take a savepoint of a job, running or not. A job that runs is not stopped."""
    taken = take_and_show(
        job,
        label=label,
        to=to,
        home=home,
        as_json=json_output,
        canonical=form is Form.CANONICAL,
    )
    if json_output:
        output.print_json(taken)


def take_and_show(
    job: str,
    *,
    label: str,
    to: Path | None,
    home: Path | None,
    as_json: bool,
    canonical: bool = False,
) -> dict[str, Any]:
    """Also for `holdfast stop --savepoint`. Returns what --json prints."""
    from holdfast.cli.through_server import asked_of_server
    from holdfast.client import requests
    from holdfast.clock import SystemClock
    from holdfast.control.runner import runtime_config
    from holdfast.control.savepoints import take_canonical, take_savepoint

    began = time.monotonic()
    with open_registry(home) as registry, shown_progress(quiet=as_json) as progress:
        row, store, clock = registry.job(job), _store(home, to), SystemClock()
        asked = None
        if to is None:
            asked = asked_of_server(
                home,
                row.name,
                requests.SavepointRequest(label=label, canonical=canonical),
                quiet=True,
                timeout=600,
                progress=progress,
            )
        if asked is not None:
            savepoint = store.by_id(asked["savepoint"])
        elif canonical:
            runtime = runtime_config(settings_for(home=home).values)
            savepoint = take_canonical(
                registry, row, store, clock, runtime, label=label, progress=progress
            )
        else:
            savepoint = take_savepoint(
                registry, row, store, clock, label=label, progress=progress
            )
    found = _row(savepoint) | {"seconds": round(time.monotonic() - began, 3)}
    if not as_json:
        output.write_line(
            f"savepoint {found['id']} of job {found['job']}: epoch {found['epoch']}, "
            f"{output.count(found['keys'])} keys, {output.size(found['bytes'])}, taken in "
            f"{found['seconds']:.2f} s"
        )
        for uid, keys in found["steps"].items():
            output.write_line(f"  step        {output.clean(uid)}: {output.count(keys)} keys")
        for uid, position in found["sources"].items():
            output.write_line(f"  source      {output.clean(f'{uid}: {shorten(position)}')}")
        if found["code"]:
            output.write_line(f"  code        version {found['code']}")
        output.write_line(f"  kept in     {output.clean(found['path'])}")
        output.write_line(f"  go back     holdfast run APP.py --from {_address(savepoint, to)}")
    return found


@app.command("list")
def list_(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Only those of this job.")
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show all savepoints, oldest first."""
    savepoints, unreadable = _store(home).scan(job)
    for error in unreadable:
        sys.stderr.write(f"{error.name}: {output.clean(error.message)}\n")
    output.show_rows(
        [_row(each) for each in savepoints],
        _COLUMNS,
        as_json=json_output,
        empty="There are no savepoints; `holdfast savepoint take JOB` takes one.",
    )


@app.command()
def show(
    savepoint: SavepointArgument, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """Show what a savepoint holds."""
    found = _store(home).find(savepoint)
    manifest = found.manifest
    if json_output:
        output.print_json(manifest.to_dict() | {"path": str(found.path)})
        return
    for title, value in _facts(found):
        output.write_line(f"{title:<12}{output.clean(value)}")


@app.command()
def verify(
    savepoint: SavepointArgument, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """Compare every byte of a savepoint with its manifest."""
    from holdfast.savepoint.store import verify as verify_files

    found = _store(home).find(savepoint)
    with shown_progress(quiet=json_output) as progress:
        verify_files(found, progress)
    if json_output:
        output.print_json({"id": found.manifest.id, "files": len(found.manifest.files)})
    else:
        output.write_line(
            f"savepoint {found.manifest.id} is whole: "
            f"{output.count(len(found.manifest.files))} files, "
            f"{output.size(found.manifest.bytes)}"
        )


@app.command()
def export(
    savepoint: SavepointArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE.tar.zst", help="The archive to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Write a whole savepoint into one file, once all its bytes are verified."""
    from holdfast.savepoint.archive import export_savepoint

    found = _store(home).find(savepoint)
    with shown_progress(quiet=json_output) as progress:
        written = export_savepoint(found, file, force=force, progress=progress)
    packed = written.stat().st_size
    if json_output:
        output.print_json(_row(found) | {"archive": str(written), "archive_bytes": packed})
        return
    output.write_line(
        f"savepoint {found.manifest.id} is exported: "
        f"{output.count(len(found.manifest.files))} files, {output.size(found.manifest.bytes)} "
        f"in {output.size(packed)}"
    )
    output.write_line(f"  archive     {output.clean(str(written))}")
    output.write_line("  elsewhere   holdfast savepoint import FILE.tar.zst")


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.tar.zst", help="An archive that export wrote.")
    ],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Where to keep it; default: the setting."),
    ] = None,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Unpack an archive of a savepoint; every file is compared with its manifest."""
    from holdfast.savepoint.archive import import_savepoint

    with shown_progress(quiet=json_output) as progress:
        savepoint = import_savepoint(file, _store(home, to), progress=progress)
    found = _row(savepoint)
    if json_output:
        output.print_json(found)
        return
    output.write_line(
        f"savepoint {found['id']} of job {found['job']}: epoch {found['epoch']}, "
        f"{output.count(found['keys'])} keys, {output.size(found['bytes'])}"
    )
    output.write_line(f"  kept in     {output.clean(found['path'])}")
    output.write_line(f"  go on       holdfast run APP.py --from {_address(savepoint, to)}")


@app.command()
def delete(
    savepoint: SavepointArgument, home: HomeOption = None, json_output: JsonOption = False
) -> None:
    """Remove a savepoint for good."""
    store = _store(home)
    found = store.find(savepoint)
    store.delete(found)
    if json_output:
        output.print_json({"id": found.manifest.id, "deleted": True})
    else:
        output.write_line(f"savepoint {found.manifest.id} is removed")


@app.command()
def gc(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Remove what savepoints that were never finished have left behind."""
    from holdfast.storage.files import remove_tree

    leftovers = _store(home).leftovers()
    for path in leftovers:
        remove_tree(path)
    if json_output:
        output.print_json({"removed": [str(path) for path in leftovers]})
    else:
        output.write_line(f"{len(leftovers)} unfinished savepoints removed")


def _store(home: Path | None, to: Path | None = None) -> SavepointStore:
    from holdfast.savepoint.store import SavepointStore

    return SavepointStore(to or settings_for(home=home).values.savepoints)


def _address(savepoint: Savepoint, to: Path | None) -> str:
    """What `--from` finds it by: ids are looked up in the directory of the settings only."""
    return output.clean(str(savepoint.path)) if to else savepoint.manifest.id


def _row(savepoint: Savepoint) -> dict[str, Any]:
    manifest = savepoint.manifest
    return {
        "id": manifest.id,
        "job": manifest.identity.name,
        "label": manifest.label,
        "created": manifest.created,
        "epoch": manifest.epoch,
        "timeline": manifest.identity.timeline,
        "parallelism": manifest.identity.parallelism,
        "backend": manifest.identity.backend,
        "format": manifest.kind,
        "code": manifest.identity.code,
        "keys": sum(manifest.keys.values()),
        "steps": dict(manifest.keys),
        "sources": dict(manifest.sources),
        "bytes": manifest.bytes,
        "files": len(manifest.files),
        "path": str(savepoint.path),
    }


def _facts(savepoint: Savepoint) -> Iterator[tuple[str, str]]:
    manifest, identity = savepoint.manifest, savepoint.manifest.identity
    yield "savepoint", manifest.id + (f" ({manifest.label})" if manifest.label else "")
    yield "job", f"{identity.name} ({identity.job_id})"
    yield (
        "taken",
        f"{manifest.created.isoformat()} by holdfast {manifest.holdfast}, Spark "
        + (manifest.spark),
    )
    yield "epoch", f"{manifest.epoch} of timeline {identity.timeline}"
    if identity.code:
        yield "code", f"version {identity.code}"
    if manifest.parent:
        yield "came from", manifest.parent
    for statement in manifest.edits:
        yield "edited by", output.clean(statement)
    yield "format", manifest.kind
    yield (
        "state",
        f"{identity.parallelism} partitions, {identity.key_groups} key groups, "
        f"{identity.backend} backend",
    )
    for uid, step in identity.operators.items():
        keys = output.count(manifest.keys[uid]) if uid in manifest.keys else "?"
        names = ", ".join(f"{name} {kind}" for name, kind in step["variables"].items())
        yield f"  {uid}", f"{keys} keys; {names or step['detail'] or step['kind']}"
    for name, offset in manifest.sources.items():
        yield "source", f"{name}: {offset}"
    if manifest.watermark:
        yield "watermark", manifest.watermark.isoformat()
    yield "files", f"{len(manifest.files)}, {output.size(manifest.bytes)}, in {savepoint.path}"


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Progress]:
    """A bar for work that takes long enough to be seen."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield update
