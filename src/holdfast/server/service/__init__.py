"""What the server can do, without HTTP: REST routes and web pages both call this.

Reading takes no actor, because whoever gets here has logged in; every change takes one, checks
its role, and writes a line into the audit log.
"""

from holdfast.server.service.service import Service

__all__ = ["Service"]
