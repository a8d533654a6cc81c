"""What is asked before anything is changed. Each shows first what would happen."""

from holdfast.server.ui.dialogs.cluster import kill_worker
from holdfast.server.ui.dialogs.operation import cancel_operation
from holdfast.server.ui.dialogs.points import (
    delete_savepoint,
    export_savepoint,
    verify_savepoint,
)
from holdfast.server.ui.dialogs.rehearsal import compare, promote
from holdfast.server.ui.dialogs.restore import fork, rescale, roll_back, upgrade
from holdfast.server.ui.dialogs.running import resume, stop, take_savepoint
from holdfast.server.ui.dialogs.start import start

__all__ = [
    "cancel_operation",
    "compare",
    "delete_savepoint",
    "export_savepoint",
    "fork",
    "kill_worker",
    "promote",
    "rescale",
    "resume",
    "roll_back",
    "start",
    "stop",
    "take_savepoint",
    "upgrade",
    "verify_savepoint",
]
