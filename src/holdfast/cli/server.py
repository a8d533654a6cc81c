"""`holdfast server`: REST and web pages over all jobs of this machine."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JsonOption, settings_for
from holdfast.cli.output import Column
from holdfast.errors import EnvironmentProblem

if TYPE_CHECKING:
    from holdfast.server.access.tokens import TokenFile

app = typer.Typer(
    help="Serve REST and web pages over the jobs of this machine.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
tokens = typer.Typer(
    no_args_is_help=True, help="Who may use the server.", rich_markup_mode=None
)
app.add_typer(tokens, name="token")


class TokenRole(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"


TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]
RoleOption = Annotated[
    TokenRole, typer.Option("--role", help="What it may do: see, or also change.")
]


@app.callback()
def server(
    context: typer.Context,
    *,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=0, max=65535, help="On which port; 0 takes a free one."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, as PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, as PEM.")
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="HOST", help="A host name that browsers may call it by; again."
        ),
    ] = None,
    job_root: Annotated[
        list[Path] | None,
        typer.Option("--job-root", metavar="DIR", help="Files below may be started; again."),
    ] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy", help="Something in front of it speaks TLS; listen without."
        ),
    ] = False,
    allow_root: Annotated[
        bool, typer.Option("--allow-root", help="Run as root, and all jobs with it.")
    ] = False,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Serve until Ctrl-C. Jobs and operations go on without the server."""
    if context.invoked_subcommand is not None:
        return
    loaded = settings_for(
        home=home,
        server_host=host,
        server_port=port,
        server_tls_cert=None if tls_cert is None else str(tls_cert),
        server_tls_key=None if tls_key is None else str(tls_key),
        server_names=name or None,
        server_job_roots=[str(root) for root in job_root] if job_root else None,
        server_allow_root=allow_root or None,
    )
    _log_to_stderr(loaded.values.log_level)
    serve = _serve()
    serve(
        loaded, insecure=behind_proxy, told=lambda running: _say(running, as_json=json_output)
    )


def _serve() -> Any:
    try:
        from holdfast.server.run import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("holdfast"):
            raise
        raise EnvironmentProblem(
            "SERVER_PACKAGE_MISSING",
            f"the server needs the Python package {error.name!r}.",
            fix="pip install 'holdfast[server]'",
        ) from error
    return serve


def _log_to_stderr(level: str) -> None:
    import logging

    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("holdfast").setLevel(level)


def _say(running: Any, *, as_json: bool) -> None:
    if as_json:
        output.print_json_line(
            {
                "event": "listening",
                "url": running.url,
                "login": running.login_url,
                "token": running.new_token,
            }
        )
        return
    output.write_line(f"holdfast server at {running.url}")
    output.write_line(f"  log in      {running.login_url}")
    output.write_line(
        "              (once, within 15 minutes; `holdfast server login` makes more)"
    )
    if running.new_token is not None:
        output.write_line(f"  token       {running.new_token}")
        output.write_line("              for programs; it is not shown again")
    output.write_line("  end it      Ctrl-C; jobs go on")


@app.command()
def status(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Show whether a server runs for this home directory, and where."""
    from holdfast.client import Client

    with Client.here(home) as client:
        info = client.server()
        url = client.url
    if json_output:
        output.print_json({"url": url, **info.model_dump(mode="json")})
        return
    output.write_line(f"holdfast server {info.version} at {url}, {info.jobs} jobs")
    output.write_line(f"  since       {output.time_of_day(info.started)}")
    output.write_line(f"  log in      holdfast server login --home {output.clean(info.home)}")


@app.command()
def login(
    role: RoleOption = TokenRole.OPERATOR,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Print a link that logs a browser in, once."""
    from holdfast.client import Client

    with Client.here(home) as client:
        link = client.login_link(role.value)
    if json_output:
        output.print_json(link.model_dump(mode="json"))
    else:
        output.write_line(link.url)


_TOKEN_COLUMNS = [
    Column(key="id", title="TOKEN"),
    Column(key="role", title="ROLE"),
    Column(key="created", title="CREATED", text=output.time_of_day),
]


@tokens.command("list")
def list_(home: HomeOption = None, json_output: JsonOption = False) -> None:
    """List the tokens; what they are cannot be shown again."""
    rows = [
        {"id": each.id, "role": each.role.value, "created": each.created}
        for each in _tokens(home).all()
    ]
    output.show_rows(
        rows,
        _TOKEN_COLUMNS,
        as_json=json_output,
        empty="There are no tokens; the first start of `holdfast server` makes one.",
    )


@tokens.command()
def create(
    name: TokenName,
    role: RoleOption = TokenRole.VIEWER,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a token, and show it: once."""
    from holdfast.server.access.roles import Role

    token = _tokens(home).create(name, Role(role.value))
    _tell_server(home)
    _show_token(name, token, as_json=json_output)


@tokens.command()
def rotate(name: TokenName, home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Replace a token; the old one and its sessions are dead at once."""
    token = _tokens(home).rotate(name)
    _tell_server(home)
    _show_token(name, token, as_json=json_output)


@tokens.command()
def remove(name: TokenName, home: HomeOption = None, json_output: JsonOption = False) -> None:
    """Remove a token; it and its sessions are dead at once."""
    _tokens(home).remove(name)
    _tell_server(home)
    if json_output:
        output.print_json({"token": name, "removed": True})
    else:
        output.write_line(f"token {name} is removed")


def _tokens(home: Path | None) -> TokenFile:
    from holdfast.server.access.tokens import TokenFile

    return TokenFile(settings_for(home=home).values.home / "server")


def _tell_server(home: Path | None) -> None:
    """One that runs reads its tokens again."""
    from holdfast.client.address import ServerAddress

    running = ServerAddress.find(settings_for(home=home).values.home)
    if running is not None:
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGHUP)


def _show_token(name: str, token: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"name": name, "token": token})
    else:
        output.write_line(token)
