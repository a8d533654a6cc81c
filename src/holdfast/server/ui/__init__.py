"""The web pages: NiceGUI on the server's own application, behind its checks.

`pages` has one module per page, `dialogs` what is asked before something is changed, `widgets`
the parts that live in the browser. Pages hold no rules: they ask the service, as REST does.
"""

from __future__ import annotations

from fastapi import FastAPI


def add_pages(app: FastAPI) -> None:
    """Put the pages on the application; they use `app.state.service`."""
    from holdfast.server.ui.mount import mount_pages

    mount_pages(app)
