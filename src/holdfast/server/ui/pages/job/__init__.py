"""One job: its tabs, one module each."""

from holdfast.server.ui.pages.job.page import register

__all__ = ["register"]
