"""The typed client of `holdfast server`, and the models that both sides share."""

from holdfast.client.client import Client

__all__ = ["Client"]
