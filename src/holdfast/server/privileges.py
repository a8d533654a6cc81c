"""The server, and every job that it starts, has no more rights than an ordinary user."""

from __future__ import annotations

import ctypes
import logging
import sys

from holdfast.errors import UsageError

logger = logging.getLogger(__name__)

_PR_SET_NO_NEW_PRIVS = 38


def require_ordinary_user(user: int, *, allow_root: bool) -> None:
    """Whoever is an operator runs code as the server's user. Pure."""
    if user == 0 and not allow_root:
        raise UsageError(
            "SERVER_AS_ROOT",
            "the server would run as root, and so would every job that it starts.",
            fix="run it as a user of its own; or, where root is all there is, say so: "
            "--allow-root.",
        )


def refuse_new_privileges() -> None:
    """From here on no program that this process or its children start gains rights by being
    setuid. Cannot be taken back."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        logger.warning("the kernel does not know no_new_privs; jobs may use setuid programs")
