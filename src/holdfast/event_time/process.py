"""What a user subclasses for windows: :class:`WindowProcess`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from holdfast.errors import JobDefinitionError
from holdfast.event_time.windows import Session, Window, Windows
from holdfast.state.declare import State
from holdfast.state.process import Context
from holdfast.state.schema import SchemaLike


class WindowProcess:
    """What is computed over the records of one key that lie in one window.

    Subclass it, declare the columns of the result as ``output``, and write either

    - an accumulator, of which one is kept per window: ``accumulator`` is its type, ``create``
      makes an empty one, ``add`` takes in a record and returns the new one, ``result`` yields
      the rows of a window. Sessions also need ``merge``, which makes one accumulator of two.
    - or ``process(self, window, records, ctx)``, which gets all records of the window. They are
      kept until the window is over: declare the columns that you need as
      ``keep = "user string, diff bigint"``, else all of them are kept.

    ``window.start`` and ``window.end`` are datetimes, ``window.firing`` is "on_time", "early"
    or "late": a window may give its result several times, each time for all of its records so
    far. ``ctx.key`` is the key. Side outputs are declared and fed as in a
    :class:`~holdfast.KeyedProcess`; "late" is the one of late records.
    """

    output: ClassVar[SchemaLike]
    sides: ClassVar[Mapping[str, SchemaLike]] = {}
    accumulator: ClassVar[SchemaLike | None] = None
    keep: ClassVar[SchemaLike | None] = None

    def open(self) -> None:
        """Called once in every worker before the first record: open what is not state."""

    def create(self) -> Any:
        raise NotImplementedError

    def add(self, accumulator: Any, record: Any) -> Any:
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def result(self, window: Window, accumulator: Any, ctx: Context) -> Iterable[Any] | None:
        raise NotImplementedError

    def process(
        self, window: Window, records: Sequence[Any], ctx: Context
    ) -> Iterable[Any] | None:
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_running", False):
            raise JobDefinitionError(
                "ATTRIBUTE_IS_NOT_STATE",
                f"{type(self).__name__}.{name} was assigned while records are processed; "
                "it would be lost in a restart and differ between workers.",
                fix="keep it in the accumulator, or set it in __init__ if it is a constant.",
            )
        super().__setattr__(name, value)


def folds(process: WindowProcess) -> bool:
    """Whether a process keeps an accumulator per window, and not the records."""
    return type(process).process is WindowProcess.process


def check_window_process(process: WindowProcess, windows: Windows) -> None:
    """Check a process as far as that can be done without its input."""
    cls = type(process)
    name = cls.__name__
    defined = {
        method
        for method in ("create", "add", "merge", "result")
        if getattr(cls, method) is not getattr(WindowProcess, method)
    }
    wanted = {"create", "add", "result"}
    if folds(process):
        missing = sorted(wanted - defined) + (["accumulator"] if not cls.accumulator else [])
        if missing:
            raise _not_defined(f"{name} lacks {', '.join(missing)}.")
    elif defined or cls.accumulator is not None:
        raise _not_defined(f"{name} has `process` beside an accumulator or its functions.")
    if isinstance(windows, Session) and folds(process) and "merge" not in defined:
        raise JobDefinitionError(
            "MERGE_MISSING",
            f"{name} is used on sessions but has no merge: a record between two sessions makes "
            "one of them.",
            fix="write `def merge(self, a, b)`, which returns one accumulator for both.",
        )
    if folds(process) and cls.keep is not None:
        raise JobDefinitionError(
            "INVALID_OPTION",
            f"{name} declares `keep`, but keeps an accumulator and no records.",
            fix="remove it, or write `process(self, window, records, ctx)`.",
        )
    for attribute in dir(cls):
        if isinstance(getattr(cls, attribute), State):
            raise JobDefinitionError(
                "NOT_SUPPORTED",
                f"{name}.{attribute} is state of a key; a WindowProcess has state of windows.",
                fix="put it into the accumulator, or write a KeyedProcess with timers.",
            )


def _not_defined(problem: str) -> JobDefinitionError:
    return JobDefinitionError(
        "PROCESS_NOT_DEFINED",
        problem,
        fix='write `accumulator = "n bigint"`, create(self), add(self, accumulator, record) '
        "and result(self, window, accumulator, ctx); or process(self, window, records, ctx) "
        "alone.",
    )
