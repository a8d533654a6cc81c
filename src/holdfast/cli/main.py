"""The command line: the commands, and what an error looks like.

Nothing heavy may be imported here or at the top of a command's module: `holdfast --help`
has to answer at once, and a test holds that. Help is plain text for the same reason; with
Rich it takes three times as long.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli import (
    bench,
    check,
    checkpoints,
    cluster,
    config,
    control,
    demo,
    doctor,
    drill,
    jobs,
    kafka,
    logs,
    metrics,
    operation,
    operations,
    rehearse,
    run,
    savepoint,
    server,
    state,
    threads,
    wikipedia,
)
from holdfast.cli.output import clean, plain, write_line
from holdfast.errors import HoldfastError
from holdfast.storage.known_secrets import hide, hide_in_error

app = typer.Typer(
    name="holdfast",
    help="Stateful streaming on Apache Spark that you can trust.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("stop")(control.stop)
app.command("suspend")(control.suspend)
app.command("cancel")(control.cancel)
app.command("rescale")(operations.rescale)
app.command("rollback")(operations.rollback)
app.command("upgrade")(operations.upgrade)
app.command("fork")(rehearse.fork)
app.command("diff")(rehearse.diff)
app.command("promote")(rehearse.promote)
app.command("logs")(logs.logs)
app.command("events")(logs.events)
app.command("threads")(threads.threads)
app.command("ps")(jobs.ps)
app.command("show")(jobs.show)
app.command("attempts")(jobs.attempts)
app.command("checkpoints")(checkpoints.checkpoints)
app.command("check")(check.check)
app.command("metrics")(metrics.metrics)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
app.command("drill")(drill.drill)
app.command("wikipedia")(wikipedia.wikipedia)
app.add_typer(savepoint.app, name="savepoint")
app.add_typer(state.app, name="state")
app.add_typer(server.app, name="server")
app.add_typer(operation.app, name="operation")
app.add_typer(config.app, name="config")
app.add_typer(cluster.app, name="cluster")
app.add_typer(kafka.app, name="kafka")


def _print_version(wanted: bool) -> None:
    if wanted:
        import holdfast

        write_line(f"holdfast {holdfast.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error; works anywhere."),
    ] = False,
) -> None:
    # `main` has read --debug already, and callbacks have run.
    del version, debug


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = _take_flag(arguments, "--debug")
    as_json = "--json" in arguments
    try:
        code = app(arguments, prog_name="holdfast", standalone_mode=False)
    except HoldfastError as error:
        _report(error, as_json=as_json, debug=debug, exit_code=error.exit_code)
        return error.exit_code
    except typer.Abort:
        return 130
    except Exception as error:
        usage = _usage_error(error)
        shown = usage or _internal_error(error)
        exit_code = 2 if usage else 1
        _report(shown, as_json=as_json, debug=debug and not usage, exit_code=exit_code)
        return exit_code
    return code if isinstance(code, int) else 0


def _take_flag(arguments: list[str], flag: str) -> bool:
    """Remove a flag that may stand before or after the command's name."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if flag not in arguments[:end]:
        return False
    arguments.remove(flag)
    return True


def _usage_error(error: Exception) -> HoldfastError | None:
    """Typer's complaint about the arguments.

    Its base class has moved between Typer's versions; that method has been there in all.
    """
    describe = getattr(error, "format_message", None)
    if describe is None:
        return None
    path = getattr(getattr(error, "ctx", None), "command_path", "holdfast")
    return HoldfastError(
        "INVALID_USAGE", str(describe()), fix=f"`{path} --help` shows how to call it."
    )


def _internal_error(error: Exception) -> HoldfastError:
    return HoldfastError(
        "INTERNAL_ERROR",
        f"{type(error).__name__}: {error}",
        fix="this is a bug in holdfast. Run the command again with --debug and report the "
        "traceback together with the output of `holdfast doctor --json`.",
    )


def _report(error: HoldfastError, *, as_json: bool, debug: bool, exit_code: int) -> None:
    error = hide_in_error(error)
    if debug:
        sys.stderr.write(clean(hide(traceback.format_exc()), keep_lines=True))
    if as_json:
        fields = json.loads(error.to_json()) | {"exit_code": exit_code}
        sys.stderr.write(json.dumps(fields, default=plain) + "\n")
        return
    text = f"{error.name}: {error.message}"
    if error.fix:
        text += f"\nFix: {error.fix}"
    sys.stderr.write(clean(text, keep_lines=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
