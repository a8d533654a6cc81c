"""Options that several commands share, and what they lead to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from holdfast.control.registry import Registry
    from holdfast.settings import LoadedSettings

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="Where holdfast keeps everything."),
]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Name of the job, or the beginning of its id.")
]

SinkOption = Annotated[
    Literal["rewind", "keep", "new"] | None,
    typer.Option(
        "--sink",
        help="What becomes of output that came after --from: remove it (rewind), leave it "
        "(keep), or write to a new directory (new).",
    ),
]


def settings_for(**flags: Any) -> LoadedSettings:
    from holdfast.settings import load_settings

    return load_settings(**flags)


@contextmanager
def open_registry(home: Path | None) -> Iterator[Registry]:
    from holdfast.control.registry import Registry

    with Registry(settings_for(home=home).values.registry_url) as registry:
        registry.ensure_schema()
        yield registry
