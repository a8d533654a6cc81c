"""`holdfast bench`: the speed tables."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import JsonOption, settings_for
from holdfast.cli.output import Column, count, seconds, size, write_line
from holdfast.cli.progress import CountedProgress
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.bench.measure import Failed, Measured
    from holdfast.bench.section import KafkaPlace, Section


def bench(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="A section: throughput, state-size, rocksdb-size, timers, file-sink, "
            "cold-start, recovery, savepoints, kafka (only when named). May be repeated.",
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option("--scale", metavar="F", min=0.001, max=1.0, help="Fraction of the work."),
    ] = 1.0,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where to work; inputs in it are kept."),
    ] = None,
    rows: Annotated[
        str,
        typer.Option("--rows", metavar="TEXT", help="Only programs with this in their names."),
    ] = "",
    peers: Annotated[
        Path | None,
        typer.Option(
            "--peers",
            metavar="PYTHON",
            help="An interpreter with Quix Streams, Bytewax or Pathway, for the kafka section.",
        ),
    ] = None,
    flink: Annotated[
        Path | None,
        typer.Option(
            "--flink",
            metavar="DIR",
            help="Flink's jars and the compiled FlinkTotals, for the kafka section.",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> int:
    """Measure holdfast next to plain Spark, on this machine, now.

    Takes about an hour. Figures depend on the machine; compare ratios.
    """
    from holdfast.bench import machine
    from holdfast.bench.section import Work, run_section

    sections = _selected(only or [])
    # As Ctrl-C: the programs that run have to be ended, and the folder removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    before = machine.describe()
    if not json_output:
        _show_machine(before, "at the beginning")
    found: dict[str, Any] = {}
    with _folder(directory) as folder:
        place = _kafka_place(sections, peers, flink)
        work = Work(folder=folder, scale=scale, kafka=place, rows=rows)
        with _Progress(sum(len(section.wanted(work)) for section in sections)) as progress:
            for section in sections:
                found[section.name] = run_section(section, work, progress)
        failed = _failures(found)
        if failed:
            _keep(folder)
    after = machine.describe()
    if json_output:
        document = {
            "scale": scale,
            "machine": {"before": before, "after": after},
            "sections": found,
            "failed": failed,
        }
        output.print_json(document)
    else:
        for section in sections:
            _show_section(section.name, found[section.name], scale)
        _show_machine(after, "at the end")
        for failure in failed:
            write_line(f"FAILED: {failure}")
    return 1 if failed else 0


def _selected(names: Sequence[str]) -> list[Section]:
    from holdfast.bench.sections import SECTIONS

    known = [section.name for section in SECTIONS]
    for name in names:
        if name not in known:
            raise UsageError(
                "UNKNOWN_SECTION",
                f"--only names {name!r}, which the benchmark does not have.",
                fix=f"use one of {', '.join(known)}.",
            )
    return [
        section
        for section in SECTIONS
        if section.name in names or (not names and not section.on_request)
    ]


def _kafka_place(
    sections: Sequence[Section], peers: Path | None, flink: Path | None
) -> KafkaPlace | None:
    if all(section.name != "kafka" for section in sections):
        return None
    from holdfast.bench.kafka import flink_peer, installed_peers
    from holdfast.bench.section import KafkaPlace
    from holdfast.control.kafka.broker import free_port

    settings = settings_for().values
    return KafkaPlace(
        port=free_port(),
        cache=settings.home / "cache",
        jars=settings.kafka_jars,
        packages=settings.kafka_packages,
        # As it is: the interpreter of a virtual environment is a link, and knows it by that.
        peers={
            **(installed_peers(peers.absolute()) if peers else {}),
            **(flink_peer(flink.absolute()) if flink else {}),
        },
    )


_KEPT = "KEPT"


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """The folder to work in. A temporary one is removed, unless there is something to see."""
    if given is not None:
        yield given.expanduser().absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        yield folder
    finally:
        if not (folder / _KEPT).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path) -> None:
    (folder / _KEPT).touch()
    sys.stderr.write(f"logs and files of what failed are in {folder / 'runs'}\n")


def _failures(found: Mapping[str, Any]) -> list[str]:
    failed = []
    for name, summary in found.items():
        for row in summary["rows"]:
            batch = f", {row['batch']:,} per batch" if "batch" in row else ""
            if row["failed"]:
                failed.append(f"{name}: {row['name']}{batch}: {row['failed']}")
            elif row.get("exact") is False:
                failed.append(
                    f"{name}: {row['name']}{batch}: the result is wrong or unreadable"
                )
    return failed


# -- while it runs ------------------------------------------------------------------------


class _Progress(CountedProgress):
    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._label = ""

    def begin(self, section: str, label: str) -> None:
        self._label = f"{section}: {label}"
        self.step(self._label)

    def epoch(self, number: int) -> None:
        self.step(f"{self._label}: epoch {number}")

    def end(self, section: str, label: str, outcome: Measured | Failed) -> None:
        from holdfast.bench.measure import Failed

        line = f"{self.count()} {section}: {label}"
        if isinstance(outcome, Failed):
            self.say(f"{line}: FAILED, {outcome.reason}; the end of {outcome.log}:")
            for text in outcome.tail:
                self.say(f"    {output.clean(text)}")
        else:
            self.say(f"{line}: {len(outcome.epochs)} batches, {outcome.seconds:.0f} s")


# -- tables -------------------------------------------------------------------------------


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _times(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def _memory_of(part: str) -> Callable[[Mapping[str, int] | None], str]:
    return lambda peak: size(peak[part]) if peak and peak[part] else ""


def _exact(value: bool | None) -> str:
    return {True: "yes", False: "NO", None: "not checked"}[value]


def _signed(value: int | None) -> str:
    return "" if value is None else f"{value:+,d}" if value else "0"


def _cost(value: float | None) -> str:
    return "" if value in (None, 1) else f"{(value - 1) * 100:+.0f} %"


_NAME = Column(key="name", title="PROGRAM")
_BATCH = Column(key="batch", title="PER BATCH", text=count, right=True)
_MEMORY = Column(key="peak_memory", title="PEAK MEMORY", text=_memory_of("total"), right=True)
_MEDIAN = Column(key="median_batch_seconds", title="BATCH, MEDIAN", text=seconds, right=True)
_IS_EXACT = Column(key="exact", title="EXACT", text=_exact)
_TO_GROUP_BY = Column(key="to_group_by", title="TO GROUPBY", text=_times, right=True)
_FAILED = Column(key="failed", title="", text=lambda why: f"FAILED: {why}" if why else "")


def _bytes(key: str, title: str) -> Column:
    return Column(key=key, title=title, text=size, right=True)


def _peak(part: str, title: str) -> Column:
    return Column(key="peak_memory", title=title, text=_memory_of(part), right=True)


def _duration(key: str, title: str) -> Column:
    return Column(key=key, title=title, text=seconds, right=True)


_TITLES = {
    "throughput": "Throughput: running total per user, one Python call per record for .process",
    "state-size": "State size: the same batch while the state grows",
    "rocksdb-size": "State size on RocksDB: the same batch, and memory, while the state grows",
    "timers": "Timers: the same batch while timers are pending that do not fire",
    "file-sink": "File sink: exactly-once Parquet files against Spark's own file sink",
    "cold-start": "Cold start: from the start of the process to the first committed epoch",
    "recovery": "Recovery: from kill -9 of the driver to the next committed epoch",
    "kafka": "Kafka to Kafka: the running total per user, and again with a kill -9",
    "savepoints": "Savepoints: taking one, the job meanwhile, and starting from one",
}
_COLUMNS = {
    "throughput": [
        _NAME,
        _BATCH,
        Column(key="records", title="RECORDS", text=count, right=True),
        Column(key="records_per_second", title="RECORDS/S", text=_number, right=True),
        Column(key="to_tws", title="TO TRANSFORMWITHSTATE", text=_times, right=True),
        _TO_GROUP_BY,
        _MEDIAN,
        _MEMORY,
        _IS_EXACT,
        _FAILED,
    ],
    "state-size": [
        _NAME,
        Column(key="keys", title="KEYS", text=count, right=True),
        _BATCH,
        _MEDIAN,
        _duration("longest_batch_seconds", "LONGEST"),
        Column(key="growth", title="GROWTH", text=_times, right=True),
        Column(key="to_group_by", title="TIME TO GROUPBY'S", text=_times, right=True),
        _MEMORY,
        _FAILED,
    ],
    "rocksdb-size": [
        Column(key="keys", title="KEYS", text=count, right=True),
        _BATCH,
        _MEDIAN,
        _duration("longest_batch_seconds", "LONGEST"),
        Column(key="growth", title="GROWTH", text=_times, right=True),
        _bytes("state_bytes", "STATE"),
        _bytes("rocksdb_peak", "ROCKSDB"),
        _bytes("rocksdb_bound", "BOUND"),
        _peak("jvm", "JVM"),
        _bytes("jvm_beyond_heap", "BEYOND HEAP"),
        _peak("python", "PYTHON"),
        Column(key="exact", title="ALL KEYS", text=_exact),
        _FAILED,
    ],
    "timers": [
        _NAME,
        Column(key="timers", title="TIMERS", text=count, right=True),
        _BATCH,
        _MEDIAN,
        _duration("longest_batch_seconds", "LONGEST"),
        Column(key="growth", title="TO NO TIMERS", text=_times, right=True),
        Column(key="near_timers", title="NEAR TIMERS", text=count, right=True),
        Column(key="fired", title="FIRED", text=count, right=True),
        _MEMORY,
        _FAILED,
    ],
    "file-sink": [
        _NAME,
        _BATCH,
        _MEDIAN,
        Column(key="to_spark", title="COST", text=_cost, right=True),
        _MEMORY,
        _IS_EXACT,
        _FAILED,
    ],
    "cold-start": [
        _NAME,
        _duration("total", "TOTAL"),
        Column(key="to_tws", title="TO PLAIN", text=_times, right=True),
        _duration("python", "PYTHON"),
        _duration("jvm", "JVM"),
        _duration("planning", "PLANNING"),
        _duration("query", "QUERY START"),
        _duration("first_epoch", "FIRST EPOCH"),
        _duration("first_epoch_planning", "OF IT PLANNING"),
        _duration("warm_epoch", "SECOND EPOCH"),
        _FAILED,
    ],
    "recovery": [
        _NAME,
        Column(key="kills", title="KILLS", text=count, right=True),
        _duration("total", "TOTAL"),
        _duration("longest", "LONGEST"),
        _duration("detect", "DETECT"),
        _duration("python", "PYTHON"),
        _duration("jvm", "JVM"),
        _duration("planning", "PLANNING"),
        _duration("query", "QUERY START"),
        _duration("workers", "WORKERS"),
        _duration("load", "LOAD STATE"),
        _duration("first_epoch", "FIRST EPOCH"),
        _duration("warm_epoch", "WARM EPOCH"),
        _IS_EXACT,
        _FAILED,
    ],
    "kafka": [
        _NAME,
        Column(key="rows", title="ROWS OUT", text=count, right=True),
        Column(key="early_per_second", title="EARLY RECORDS/S", text=_number, right=True),
        Column(key="steady_per_second", title="RECORDS/S", text=_number, right=True),
        Column(key="to_exactly_once", title="TO EXACTLY ONCE", text=_times, right=True),
        Column(key="surplus", title="SURPLUS ROWS", text=_signed, right=True),
        _IS_EXACT,
        _duration("first_after_kill", "FIRST ROW AFTER KILL"),
        Column(key="surplus_after_kill", title="SURPLUS THEN", text=_signed, right=True),
        Column(key="exact_after_kill", title="EXACT THEN", text=_exact),
        _MEMORY,
        _FAILED,
    ],
    "savepoints": [
        Column(key="name", title="WHAT"),
        Column(key="keys", title="KEYS", text=count, right=True),
        Column(key="runs", title="TIMES", text=count, right=True),
        _duration("median", "MEDIAN"),
        _duration("longest", "LONGEST"),
        _duration("find", "FIND"),
        _duration("link", "LINK"),
        _duration("hash", "FLUSH, HASH"),
        _duration("finish", "FINISH"),
        Column(key="files", title="FILES", text=count, right=True),
        _bytes("bytes", "SIZE"),
        _duration("verify", "VERIFY BEFORE"),
        _duration("first_epoch", "FIRST EPOCH AFTER"),
        _IS_EXACT,
        _FAILED,
    ],
}
_BAR_COLUMNS = [
    Column(key="what", title="BAR"),
    Column(key="wanted", title="WANTED", right=True),
    Column(key="shown", title="MEASURED", right=True),
    Column(key="verdict", title="VERDICT"),
]
_UNITS: Mapping[str, Callable[[float | None], str]] = {"times": _times, "seconds": seconds}


def _show_section(name: str, summary: Mapping[str, Any], scale: float) -> None:
    write_line(f"\n{_TITLES[name]}")
    output.show_rows(summary["rows"], _COLUMNS[name], as_json=False)
    if not summary["bars"]:
        return
    output.show_rows([_shown(bar) for bar in summary["bars"]], _BAR_COLUMNS, as_json=False)
    if scale != 1:
        write_line(f"The bars are meant for the whole work; this was scale {scale:g}.")


def _shown(bar: Mapping[str, Any]) -> dict[str, Any]:
    text = _UNITS[bar["unit"]]
    wanted = f"{'at least' if bar['at_least'] else 'at most'} {text(bar['bar'])}"
    return {**bar, "wanted": wanted, "shown": text(bar["measured"])}


def _show_machine(found: Mapping[str, Any], when: str) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    load = " ".join(f"{value:.2f}" for value in found["load_average"])
    available = size(found["memory_available_bytes"]) or "unknown"
    write_line(f"machine {when}, {output.time_of_day(found['time'])}")
    write_line(f"  load      {load} on {found['cores']} cores ({found['cpu']})")
    write_line(f"  memory    {size(found['memory_bytes'])}, available {available}")
    write_line(f"  versions  {versions}; {found['system']}")
