"""The typed client of `holdfast server`, and the models that both sides share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Models and the server's address are of use without the packages of the client."""
    if name == "Client":
        from holdfast.client.client import Client

        return Client
    raise AttributeError(name)
