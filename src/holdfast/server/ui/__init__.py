"""The web pages."""

from __future__ import annotations

from fastapi import FastAPI


def add_pages(app: FastAPI) -> None:
    """Put the pages on the application; they use `app.state.service`."""
