"""Roles, and who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.errors import AccessError


class Role(StrEnum):
    VIEWER = "viewer"
    """Sees everything, changes nothing."""
    OPERATOR = "operator"
    """Also runs jobs, and changes and removes what belongs to them."""

    def includes(self, wanted: Role) -> bool:
        return self is Role.OPERATOR or wanted is Role.VIEWER


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Who asks, and from where."""

    name: str
    """The id of a token; what the audit log and operations say."""
    role: Role
    address: str = ""
    via: str = ""
    """The route, or the page."""
    session: str | None = None
    """Of somebody who came with a cookie."""

    def require(self, role: Role) -> None:
        if not self.role.includes(role):
            raise AccessError(
                "ROLE_TOO_WEAK",
                f"{self.name} is a {self.role}, and this takes an {role}.",
                fix=f"log in with the token of an {role}.",
            )
