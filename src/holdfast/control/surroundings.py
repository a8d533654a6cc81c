"""The environment of processes that the server starts: its own, without what would run code in
each of them, or is meant for the server alone.

It is a list of what is left out, and not of what is let in: a job may need any variable, by
`${env:NAME}` or in its own code, and which ones it needs shows only when it runs. A job that
is restarted after months must find them. Nobody can set one from afar.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

LEFT_OUT = re.compile(
    # The loader takes these libraries into every process.
    r"LD_PRELOAD|LD_AUDIT|LD_PROFILE.*|GCONV_PATH|MALLOC_TRACE|DYLD_INSERT_LIBRARIES"
    # Interpreters and shells run these first, or stop there.
    r"|PYTHONSTARTUP|PYTHONINSPECT|PYTHONBREAKPOINT"
    r"|BASH_ENV|BASH_FUNC_.*|PROMPT_COMMAND|SHELLOPTS|BASHOPTS"
    # systemd talks to the server by these, and gives it credentials.
    r"|NOTIFY_SOCKET|LISTEN_(FDS|PID|FDNAMES|PIDFDID)|WATCHDOG_(USEC|PID)|MAINPID"
    r"|INVOCATION_ID|JOURNAL_STREAM|CREDENTIALS_DIRECTORY|SYSTEMD_.*"
)


def passed_on(variables: Mapping[str, str], wanted: Collection[str] = ()) -> dict[str, str]:
    """What a child gets of these; `wanted` are names that it gets all the same."""
    return {
        name: value
        for name, value in variables.items()
        if name in wanted or not LEFT_OUT.fullmatch(name)
    }
